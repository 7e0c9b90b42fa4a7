"""What must hold after every step of a Raft cluster (figure 3.2, §4.1, §6.4), judged by an all-seeing observer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cluster.raft.core import Raft
from cluster.raft.log import configuration_of
from cluster.raft.types import Configuration, Entry, EntryKind, Role

if TYPE_CHECKING:
    from tests.cluster.raft.raft_rig import RaftRig


class Invariants:
    """Collects the names of broken invariants in `violations`, with what was seen."""

    def __init__(self, rig: RaftRig) -> None:
        self._bench = rig
        self.violations: list[str] = []
        self._leaders: dict[int, str] = {}
        self._leader_logs: dict[str, tuple[int, tuple[Entry, ...]]] = {}
        self._committed: dict[int, Entry] = {}
        self._applied: dict[str, int] = {}
        self._floors: dict[int, int] = {}
        self._highest = 0
        self._configuration: Configuration | None = None
        self._extended: dict[int, int] = {}
        self._used: dict[int, int] = {}
        self.extensions_reported = 0

    def forget(self, name: str) -> None:
        """A node crashed: what it had seen in memory is gone."""
        self._leader_logs.pop(name, None)
        self._applied.pop(name, None)

    def broken(self, invariant: str, detail: str) -> None:
        self.violations.append(f"{invariant}: {detail}")

    def read_asked(self, context: int) -> None:
        """From now on a read with this context must see all that is committed by now."""
        self._floors[context] = self._highest

    def read_served(self, name: str, context: int, index: int) -> None:
        if index < self._floors[context]:
            self.broken("linearizable read", f"{name} serves at {index} what needs {self._floors[context]}")

    def after_step(self, name: str) -> None:
        raft = self._bench.raft(name)
        self._applied_in_order(name)
        self._one_commit_per_index(name, raft)
        self._logs_match(name, raft)
        if raft.role is Role.LEADER:
            self._leader(name, raft)
            self._extensions(name, raft)
        else:
            self._leader_logs.pop(name, None)
        self._leases()

    def _leader(self, name: str, raft: Raft) -> None:
        if self._leaders.setdefault(raft.term, name) != name:
            self.broken("election safety", f"{self._leaders[raft.term]} and {name} both lead term {raft.term}")
        log = raft.entries(raft.first_index, raft.last_index)
        term, before = self._leader_logs.get(name, (0, ()))
        if term == raft.term:
            kept = tuple(entry for entry in before if entry.index >= raft.first_index)
            if log[: len(kept)] != kept:
                self.broken("leader append-only", f"{name} changed its own log")
        else:
            self._complete(name, raft)
        self._leader_logs[name] = (raft.term, log)

    def _extensions(self, name: str, raft: Raft) -> None:
        """Whoever leads knows up to where leases of earlier terms lasted by promises (G3)."""
        until = raft.lease_extension
        if until > self._extended.get(raft.term, 0):
            self._extended[raft.term] = self._used[raft.term] = until
        told = raft.earlier_until
        for term, used in self._used.items():
            if term < raft.term and told is not None:
                self.extensions_reported += 1
                if told < used:
                    self.broken(
                        "extended lease", f"{name} may begin at {told}, the lease of term {term} ends at {used}"
                    )

    def members_change(self, name: str) -> None:
        """Who changes them holds a lease, by its record: it has waited out all others, and renewed before (G3)."""
        term = self._bench.raft(name).term
        self._used = {later: until for later, until in self._used.items() if later > term}

    def _complete(self, name: str, raft: Raft) -> None:
        """Leader completeness, when a node has just become leader."""
        for index, entry in self._committed.items():
            if index < raft.first_index:
                continue
            if index > raft.last_index or raft.entries(index, index)[0] != entry:
                self.broken("leader completeness", f"{name} leads term {raft.term} without {entry}")

    def _one_commit_per_index(self, name: str, raft: Raft) -> None:
        """State-machine safety: nodes never disagree on what is committed at an index; a quorum has it on disk."""
        for index in range(max(raft.first_index, self._highest + 1), raft.commit_index + 1):
            self._committed[index] = raft.entries(index, index)[0]
            self._one_voter_at_a_time(self._committed[index])
        if raft.commit_index > self._highest:
            self._highest = raft.commit_index
            entry = self._committed.get(self._highest)
            nodes = self._bench.nodes
            voters = raft.configuration.voter_ids
            holders = [voter for voter in voters if entry is None or nodes[voter].holds(entry)]
            if len(holders) <= len(voters) // 2:
                self.broken("durable commit", f"{name} commits {entry}, which of {voters} only {holders} hold on disk")

    def _one_voter_at_a_time(self, entry: Entry) -> None:
        """Single-server changes (§4.1): committed configurations that follow each other have majorities in common."""
        if entry.kind != EntryKind.CONFIG:
            return
        after = configuration_of(entry)
        if self._configuration is not None:
            differing = set(after.voter_ids) ^ set(self._configuration.voter_ids)
            if len(differing) > 1:
                self.broken("single-server changes", f"{sorted(differing)} come or go at index {entry.index}")
        self._configuration = after

    def _applied_in_order(self, name: str) -> None:
        applied = self._bench.nodes[name].applied
        checked = self._applied.get(name, 0)
        for position, entry in enumerate(applied[checked:], checked + 1):
            if entry.index != position:
                self.broken("state machine safety", f"{name} applies {entry.index} in place {position}")
            if self._committed.setdefault(entry.index, entry) != entry:
                self.broken("state machine safety", f"{name} applies {entry}, not {self._committed[entry.index]}")
        self._applied[name] = len(applied)

    def _logs_match(self, name: str, raft: Raft) -> None:
        """Log matching: two logs with the same term at an index are the same up to there."""
        for other in self._bench.alive():
            peer = self._bench.raft(other)
            first = max(raft.first_index, peer.first_index)
            last = min(raft.last_index, peer.last_index)
            if other == name or last < first:
                continue
            mine, theirs = raft.entries(first, last), peer.entries(first, last)
            agree = max((at for at in range(len(mine)) if mine[at].term == theirs[at].term), default=-1)
            if mine[: agree + 1] != theirs[: agree + 1]:
                self.broken("log matching", f"{name} and {other} differ below index {first + agree}")

    def _leases(self) -> None:
        """Nobody holds a lease beside another holder, nor below what is committed anywhere."""
        rig = self._bench
        holders = []
        for name in rig.alive():
            index = rig.raft(name).lease_read_index(rig.nodes[name].clock_ns(rig.now_ns))
            if index is None:
                continue
            holders.append(name)
            if index < self._highest:
                self.broken("linearizable read", f"{name} would serve at {index}, committed is {self._highest}")
        if len(holders) > 1:
            self.broken("lease disjointness", f"{holders} hold leases at the same time")
