"""Deletions of quorum tables: what one is, and disjoint ranges of them that can be merged and cut. Pure.

Ranges of a partition are kept *canonical*: sorted, disjoint, each with the latest deletion that covers it, and joined
where neighbours have the same one. Equal deletions, merged in whatever order and pieces, are equal lists.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter

import msgspec

from cluster.quorum.keys import KeyBytes


class Deletion(msgspec.Struct, frozen=True, array_like=True, order=True, gc=False):
    """Everything written at or below `timestamp` is deleted: a deletion wins a tie.

    `local_time_ms` is the coordinator's clock when it took the deletion: grace and reconciliation count from it (Q8),
    for the timestamp is the client's choice.
    """

    timestamp: int
    local_time_ms: int


class RangeDeletion(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A deletion of all rows with keys from `start` (inclusive) to `end` (exclusive)."""

    start: KeyBytes
    end: KeyBytes
    deletion: Deletion


_start, _end = attrgetter("start"), attrgetter("end")


def latest(one: Deletion | None, other: Deletion | None) -> Deletion | None:
    """The one that covers more; of two with one timestamp, that which is kept longer."""
    if one is None or (other is not None and other > one):
        return other
    return one


def add_range(ranges: list[RangeDeletion], new: RangeDeletion) -> None:
    """Merge one range into a canonical list, in place; costs what it overlaps. An empty range changes nothing."""
    if new.start >= new.end:
        return
    low = bisect_right(ranges, new.start, key=_end)
    high = bisect_left(ranges, new.end, key=_start)
    pieces: list[RangeDeletion] = []
    reached = new.start
    # Invariant: `pieces` are sorted, disjoint, and say all that old ranges and the new one say of keys below `reached`.
    for old in ranges[low:high]:
        if old.start < new.start:
            pieces.append(RangeDeletion(old.start, new.start, old.deletion))
        elif reached < old.start:
            pieces.append(RangeDeletion(reached, old.start, new.deletion))
        shared = min(old.end, new.end)
        pieces.append(RangeDeletion(max(old.start, new.start), shared, max(old.deletion, new.deletion)))
        if old.end > new.end:
            pieces.append(RangeDeletion(new.end, old.end, old.deletion))
        reached = shared
    if reached < new.end:
        pieces.append(RangeDeletion(reached, new.end, new.deletion))
    # The neighbours take part, for a piece may join them.
    before = max(low - 1, 0)
    ranges[before : high + 1] = joined([*ranges[before:low], *pieces, *ranges[high : high + 1]])


def merge_ranges(lists: Sequence[Sequence[RangeDeletion]]) -> list[RangeDeletion]:
    """One canonical list of several."""
    longest = max(range(len(lists)), key=lambda index: len(lists[index]), default=None)
    if longest is None:
        return []
    merged = list(lists[longest])
    for index, ranges in enumerate(lists):
        if index != longest:
            for each in ranges:
                add_range(merged, each)
    return merged


def joined(ranges: Iterable[RangeDeletion]) -> list[RangeDeletion]:
    """Sorted, disjoint ranges, with neighbours of one deletion made one."""
    result: list[RangeDeletion] = []
    for each in ranges:
        if result and result[-1].end == each.start and result[-1].deletion == each.deletion:
            result[-1] = RangeDeletion(result[-1].start, each.end, each.deletion)
        else:
            result.append(each)
    return result


def clip_ranges(ranges: Sequence[RangeDeletion], start: KeyBytes, end: KeyBytes) -> list[RangeDeletion]:
    """What of a canonical list lies in a span."""
    found = ranges[bisect_right(ranges, start, key=_end) : bisect_left(ranges, end, key=_start)]
    return [
        each
        if each.start >= start and each.end <= end
        else RangeDeletion(max(each.start, start), min(each.end, end), each.deletion)
        for each in found
    ]


def covering(ranges: Sequence[RangeDeletion], top: Deletion | None) -> Callable[[KeyBytes], Deletion | None]:
    """Which deletion covers a row, `top` being the partition's; to be asked for keys in rising order."""
    at = 0

    def cover(key: KeyBytes) -> Deletion | None:
        nonlocal at
        while at < len(ranges) and ranges[at].end <= key:
            at += 1
        if at < len(ranges) and ranges[at].start <= key:
            return latest(top, ranges[at].deletion)
        return top

    return cover
