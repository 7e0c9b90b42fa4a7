"""Breaches as they are found: the first of each invariant in full, the others counted; and whose lives they are."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import TypeAlias

from harness.protocols import Breach, InvariantsRecord
from harness.verdict.run_verdict import MAX_EXPLAINED


class Lives:
    """A life is a node's process from its start to its end; incarnations count from 1."""

    def __init__(self) -> None:
        self._lives: list[tuple[str, int]] = []

    def begin(self, node: str, incarnation: int) -> int:
        """The number of a life that begins now."""
        self._lives.append((node, incarnation))
        return len(self._lives) - 1

    def latest(self, node: str) -> int:
        """The number of the node's last life."""
        return max(number for number, life in enumerate(self._lives) if life[0] == node)

    def node(self, life: int) -> str:
        """Whose life it is."""
        return self._lives[life][0]

    def names(self, lives: Iterable[int]) -> tuple[str, ...]:
        """Nodes by name; where two lives of one node are meant, each with its incarnation."""
        chosen = [self._lives[life] for life in dict.fromkeys(lives)]
        several = len(dict.fromkeys(node for node, _ in chosen)) < len(chosen)
        return tuple(f"{node} (incarnation {incarnation})" if several else node for node, incarnation in chosen)


Moment: TypeAlias = Callable[[], tuple[int, int]]
"""Virtual time since the world began, ns, and the number of the step under way."""


class BreachLog:
    """Collects breaches, and stamps each with the moment at which it is told.

    `checked` counts how often each invariant was put to the test; whoever does so counts it.
    """

    def __init__(self, moment: Moment) -> None:
        self.lives = Lives()
        self._moment = moment
        self.checked: defaultdict[str, int] = defaultdict(int)
        self._breaches: list[Breach] = []
        self._broken: dict[str, int] = {}

    def tell(self, invariant: str, message: str, lives: tuple[int, ...], group: str | None) -> None:
        """An invariant has broken just now, by what these lives have told."""
        count = self._broken[invariant] = self._broken.get(invariant, 0) + 1
        if count <= MAX_EXPLAINED:
            time_ns, step = self._moment()
            self._breaches.append(Breach(invariant, message, time_ns, step, self.lives.names(lives), group))

    def record(self) -> InvariantsRecord:
        """All that was checked and found so far."""
        return InvariantsRecord(dict(self.checked), dict(self._broken), tuple(self._breaches))


class Scope:
    """Findings about one Raft group."""

    __slots__ = ("_findings", "checked", "group")

    def __init__(self, findings: BreachLog, group: str) -> None:
        self._findings, self.group = findings, group
        self.checked = findings.checked

    def same_node(self, life: int, other: int) -> bool:
        """Whether these are lives of one node: the earlier one has ended."""
        return self._findings.lives.node(life) == self._findings.lives.node(other)

    def tell(self, invariant: str, message: str, *lives: int) -> None:
        """An invariant of the group has broken just now."""
        self._findings.tell(invariant, message, lives, self.group)
