"""How long the datagrams of a probe's flow are waited for: no longer once all are there, or no more come."""

from __future__ import annotations

from collections.abc import Sequence

WAIT_S = 1.0
"""They are waited for so long at most, after the last was sent."""

LOOK_S = 0.1
"""How far apart the looks are at what has arrived."""

QUIET_S = 0.3
"""Where a link carries something, and nothing more has come for so long, the others are lost."""

CARRIES = 0.1
"""Of its datagrams, that have to arrive before a link is said to carry something: a clog lets the first ones pass."""


class FlowWait:
    """Whether the wait for flows of `count` datagrams each is over, asked at every look."""

    def __init__(self, count: int, wait_s: float = WAIT_S) -> None:
        self._count = count
        self._wait_s = wait_s
        self._before: tuple[int, ...] = ()
        self._since_s = 0.0

    def over(self, arrived: Sequence[int], waited_s: float) -> bool:
        """`arrived` says how many different ones of each flow have, `waited_s` after the last was sent."""
        fewest = min(arrived, default=self._count)
        if fewest >= self._count or waited_s >= self._wait_s - LOOK_S / 2:
            return True
        if tuple(arrived) != self._before:
            self._before, self._since_s = tuple(arrived), waited_s
        return fewest >= CARRIES * self._count and waited_s - self._since_s >= QUIET_S - LOOK_S / 2
