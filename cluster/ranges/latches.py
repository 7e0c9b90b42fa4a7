"""Latches: which requests of a range must wait for which (G2). Pure.

A request names every span that it reads and writes at once, and waits for those before it that conflict: two requests
conflict where one writes what the other reads or writes. Waiting is in order of arrival, so nobody starves, and a
request waits only for earlier ones, so nobody waits in a circle.
"""

from __future__ import annotations

from collections.abc import Callable

from cluster.store.cells import Span, overlap


class Latch:
    """One request's claim; `partitions` are those that it touches, each once, in order of mention. It is `granted`
    once nothing earlier stands in the way.

    Who has to wait for it sets `wake`, which is called when it is granted.
    """

    __slots__ = ("_followers", "_over", "_waits_for", "granted", "partitions", "reads", "wake", "writes")

    def __init__(self, reads: tuple[Span, ...], writes: tuple[Span, ...]) -> None:
        self.reads, self.writes = reads, writes
        spans = reads + writes
        one = len(spans) == 1
        self.partitions = (spans[0][0][0],) if one else tuple(dict.fromkeys([span[0][0] for span in spans]))
        self.wake: Callable[[], None] = _nothing
        self._waits_for, self.granted = 0, True
        self._followers: list[Latch] = []
        self._over = False

    def conflicts(self, other: Latch) -> bool:
        """Whether the two may not run at once."""
        return (
            _any_overlap(self.writes, other.writes)
            or _any_overlap(self.writes, other.reads)
            or _any_overlap(self.reads, other.writes)
        )


class Latches:
    """The latches of one range."""

    def __init__(self) -> None:
        self._claims: dict[int, dict[Latch, None]] = {}

    def acquire(self, reads: tuple[Span, ...], writes: tuple[Span, ...]) -> Latch:
        """Claim all spans in one step; the latch is granted at once or later."""
        latch = Latch(reads, writes)
        before: dict[Latch, None] = {}
        for partition in latch.partitions:
            claims = self._claims.get(partition)
            if claims is None:
                self._claims[partition] = {latch: None}
                continue
            for other in claims:
                if latch.conflicts(other):
                    before[other] = None
            claims[latch] = None
        if before:
            for other in before:
                other._followers.append(latch)
            latch._waits_for, latch.granted = len(before), False
        return latch

    def release(self, latch: Latch) -> None:
        """Give a claim up, granted or not; a second time does nothing.

        A follower waits for *all* earlier conflicts, not for the last one only: a claim that is given up before it
        was granted lets nobody past those that it waited for.
        """
        if latch._over:
            return
        latch._over = True
        for partition in latch.partitions:
            claims = self._claims[partition]
            del claims[latch]
            if not claims:
                del self._claims[partition]
        for follower in latch._followers:
            follower._waits_for -= 1
            if follower._waits_for == 0:
                follower.granted = True
                if not follower._over:
                    follower.wake()

    def __len__(self) -> int:
        """Claims that are not released, over all partitions."""
        return sum(len(claims) for claims in self._claims.values())


def _any_overlap(some: tuple[Span, ...], others: tuple[Span, ...]) -> bool:
    return any(overlap(one, other) for one in some for other in others)


def _nothing() -> None:
    return None
