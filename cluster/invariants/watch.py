"""All invariants of one run: an observer for each life of a node, and what was found."""

from __future__ import annotations

from collections.abc import Sequence

from cluster.invariants.findings import Findings, Moment
from cluster.invariants.group import GroupInvariants
from cluster.invariants.lives import Lives
from cluster.observer import Digested, Observer
from cluster.raft.types import Entry, SnapshotMeta
from harness.invariants import InvariantsRecord


class Watch:
    """Watches a whole cluster; `moment` tells time and step, for what is found."""

    def __init__(self, moment: Moment) -> None:
        self._findings = Findings(moment)
        self._lives = Lives()
        self._groups: dict[str, GroupInvariants] = {}

    def observer(self, node: str, incarnation: int) -> Observer:
        """The observer of a life that begins now."""
        return _Life(self, self._lives.begin(node, incarnation))

    def group(self, group: str) -> GroupInvariants:
        """The invariants of a group, made at first use."""
        found = self._groups.get(group)
        if found is None:
            found = self._groups[group] = GroupInvariants(group, self._findings, self._lives)
        return found

    def record(self) -> InvariantsRecord:
        """What was checked and found so far."""
        checked: dict[str, int] = {}
        for group in self._groups.values():
            for invariant, times in group.checked.items():
                checked[invariant] = checked.get(invariant, 0) + times
        return self._findings.record(checked)


class _Life:
    """Implements `Observer` for one life of one node."""

    __slots__ = ("_groups", "_life", "_watch")

    def __init__(self, watch: Watch, life: int) -> None:
        self._watch, self._life = watch, life
        self._groups: dict[str, GroupInvariants] = {}

    def became_leader(self, group: str, term: int) -> None:
        self._of(group).became_leader(self._life, term)

    def committed(self, group: str, entries: Sequence[Entry]) -> None:
        (self._groups.get(group) or self._of(group)).committed(self._life, entries)

    def applied(self, group: str, index: int, state: Digested) -> None:
        (self._groups.get(group) or self._of(group)).applied(self._life, index, state.digest)

    def restored(self, group: str, meta: SnapshotMeta, state: Digested) -> None:
        self._of(group).applied(self._life, meta.index, state.digest)

    def _of(self, group: str) -> GroupInvariants:
        found = self._groups[group] = self._watch.group(group)
        return found
