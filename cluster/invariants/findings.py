"""Breaches as they are found: the first of each invariant in full, the others counted."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from harness.invariants import MAX_EXPLAINED, Breach, InvariantsRecord

Moment: TypeAlias = Callable[[], tuple[int, int]]
"""Virtual time since the world began, ns, and the number of the step under way."""


class Findings:
    """Collects breaches and stamps each with the moment at which it is told."""

    def __init__(self, moment: Moment) -> None:
        self._moment = moment
        self._breaches: list[Breach] = []
        self._broken: dict[str, int] = {}

    def tell(self, invariant: str, message: str, nodes: tuple[str, ...], group: str | None) -> None:
        """An invariant has broken just now."""
        count = self._broken[invariant] = self._broken.get(invariant, 0) + 1
        if count <= MAX_EXPLAINED:
            time_ns, step = self._moment()
            named = tuple(dict.fromkeys(nodes))
            self._breaches.append(Breach(invariant, message, time_ns, step, named, group))

    def record(self, checked: dict[str, int]) -> InvariantsRecord:
        """All that was found so far; `checked` says how often each invariant was put to the test."""
        return InvariantsRecord(checked, dict(self._broken), tuple(self._breaches))
