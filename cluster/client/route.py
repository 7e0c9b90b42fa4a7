"""Whom to ask next among the replicas of a group; pure."""

from __future__ import annotations

from collections.abc import Sequence


class Route:
    """Sticks with one target until that one fails or refuses, then follows a hint or goes round.

    A hint is not followed back to the target that failed last: it may be dead while others still believe in it.
    """

    def __init__(self, targets: Sequence[str], first: str | None = None) -> None:
        self._targets = tuple(targets)
        self._current = first if first in self._targets else self._targets[0]
        self._failed: str | None = None
        self._misses = 0

    @property
    def targets(self) -> tuple[str, ...]:
        return self._targets

    @property
    def current(self) -> str:
        return self._current

    @property
    def exhausted(self) -> bool:
        """Whether as many attempts missed in a row as there are targets: the targets may be out of date."""
        return self._misses >= len(self._targets)

    def succeeded(self) -> None:
        self._failed = None
        self._misses = 0

    def refreshed(self) -> None:
        """The targets were confirmed by who knows."""
        self._misses = 0

    def retarget(self, targets: Sequence[str]) -> None:
        """The group has other members now."""
        self._targets = tuple(targets)
        if self._current not in self._targets:
            self._current = self._targets[0]

    def failed(self) -> None:
        """The current target did not answer."""
        self._failed = self._current
        self._go_round()

    def refused(self, hint: str | None) -> bool:
        """The current target does not lead; True if its hint is worth following at once."""
        if hint is None or hint not in self._targets or hint in (self._current, self._failed):
            self._go_round()
            return False
        self._misses += 1
        self._current = hint
        return self._misses < len(self._targets)

    def _go_round(self) -> None:
        self._misses += 1
        self._current = self._targets[(self._targets.index(self._current) + 1) % len(self._targets)]
