"""Reads as sets of keys seen: which groups of reads are no chain by inclusion, and which pairs of reads show it."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from checkers.columns.codes import Ints
from checkers.columns.rows import group_starts

_MOST_BITS: Final = 62
"""Sets of up to so many keys are kept as machine integers."""


class GroupReads:
    """Reads in order of (group, invocation). `seen` has a flag for each key of each read, in the order of the group's
    keys; read i's begin at `starts[i]`."""

    def __init__(self, group: Ints, invoke: Ints, place: Ints, seen: Any, starts: Ints) -> None:
        self.group, self.invoke, self.starts, self.seen = group, invoke, starts, seen
        self._stops = np.append(starts[1:], len(seen))
        bits = place.astype(object) if int(place.max(initial=0)) > _MOST_BITS else place
        one = np.ones(len(place), np.int64).astype(bits.dtype)
        masks = np.where(seen, one << bits, 0).astype(bits.dtype)
        self.masks: Any = np.add.reduceat(masks, starts)
        self._firsts = group_starts([group])

    def size(self, read: int) -> int:
        """How many keys it names."""
        return int(self._stops[read] - self.starts[read])

    def of_group(self, number: int) -> slice:
        """The reads of the number-th group."""
        stop = self._firsts[number + 1] if number + 1 < len(self._firsts) else len(self.group)
        return slice(int(self._firsts[number]), int(stop))

    def forked_groups(self) -> list[int]:
        """The numbers of groups whose reads are no chain: ordered by size, some read does not include the one before.

        Where every neighbour includes the one before, all reads are comparable, since inclusion is transitive.
        """
        counts = np.add.reduceat(self.seen.astype(np.int64), self.starts)
        numbers = np.cumsum(np.isin(np.arange(len(self.group)), self._firsts)) - 1
        order = np.lexsort((counts, numbers))
        masks, mine = self.masks[order], numbers[order]
        missing = ((masks[:-1] & ~masks[1:]) != 0).astype(np.bool_) & (mine[:-1] == mine[1:])
        return sorted(set(mine[:-1][missing].tolist()))


def count_forks(reads: GroupReads, number: int) -> int:
    """How many pairs of reads of a group are incomparable; linear in the reads, quadratic in their distinct states."""
    masks, times = np.unique(reads.masks[reads.of_group(number)], return_counts=True)
    total = 0
    for i in range(len(masks) - 1):
        total += int(times[i]) * int(times[i + 1 :][_incomparable(masks[i], masks[i + 1 :])].sum())
    return total


def _incomparable(mask: Any, others: Any) -> Any:
    return ((others & ~mask) != 0).astype(np.bool_) & ((mask & ~others) != 0).astype(np.bool_)


def find_forks(reads: GroupReads, number: int, explain: int) -> list[tuple[int, int]]:
    """The first incomparable pairs of reads of a group, by the later of the two."""
    span = reads.of_group(number)
    masks = reads.masks[span]
    found: list[tuple[int, int]] = []
    for later in range(len(masks)):
        for earlier in np.flatnonzero(_incomparable(masks[later], masks[:later])).tolist():
            found.append((span.start + earlier, span.start + later))
            if len(found) >= explain:
                return found
    return found
