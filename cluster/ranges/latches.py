"""Latches: which requests of a range must wait for which (G2). Pure.

A request names every span that it reads and writes at once, and waits for those before it that conflict: two requests
conflict where one writes what the other reads or writes. Waiting is in order of arrival, so nobody starves, and a
request waits only for earlier ones, so nobody waits in a circle.

Nearly all spans are of one cell. Those of one cell stand in its queue, so that a claim costs the same however many are
open. A span of several cells is compared with every open claim, and every later claim with it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator

from cluster.store.cells import Key, Span, is_point, overlap, point


class Latch:
    """One request's claim, `granted` once nothing earlier stands in the way; `cells` says of each whether it is
    written, and `wide_reads` and `wide_writes` are the spans of several cells.

    Who has to wait for it sets `wake`, which is called when it is granted.
    """

    __slots__ = (
        "_followers",
        "_over",
        "_waits_for",
        "cells",
        "granted",
        "reads",
        "wake",
        "wide_reads",
        "wide_writes",
        "writes",
    )

    def __init__(self, reads: tuple[Span, ...], writes: tuple[Span, ...]) -> None:
        self.reads, self.writes = reads, writes
        self.cells: dict[Key, bool] = {}
        self.wide_reads: tuple[Span, ...] = ()
        self.wide_writes: tuple[Span, ...] = ()
        for span in reads:
            if is_point(span):
                self.cells[span[0]] = False
            else:
                self.wide_reads += (span,)
        for span in writes:  # these come last: a cell that is written counts as that
            if is_point(span):
                self.cells[span[0]] = True
            else:
                self.wide_writes += (span,)
        self.wake: Callable[[], None] = _nothing
        self._waits_for, self.granted = 0, True
        self._followers: list[Latch] = []
        self._over = False

    def conflicts_widely(self, other: Latch) -> bool:
        """Whether the two may not run at once because of a span of several cells of this one."""
        return (
            _any_overlap(self.wide_writes, other.writes)
            or _any_overlap(self.wide_writes, other.reads)
            or _any_overlap(self.wide_reads, other.writes)
        )

    def proceed(self) -> None:
        """One of those that it waits for stands in its way no more; it may be given up by now."""
        self._waits_for -= 1
        if self._waits_for == 0:
            self.granted = True
            if not self._over:
                self.wake()


class _Queue:
    """The claims of one cell in order of arrival: those in `front` run at once, readers or one writer; those behind
    wait."""

    __slots__ = ("_behind", "_exclusive", "front")

    def __init__(self, first: Latch, writes: bool) -> None:
        self.front: dict[Latch, None] = {first: None}
        self._exclusive = writes
        self._behind: OrderedDict[Latch, bool] | None = None

    def enter(self, latch: Latch, writes: bool) -> bool:
        """Whether the claim comes to the front at once."""
        if not (writes or self._exclusive or self._behind):
            self.front[latch] = None
            return True
        if self._behind is None:
            self._behind = OrderedDict()
        self._behind[latch] = writes
        return False

    def leave(self, latch: Latch) -> list[Latch]:
        """Take a claim out, from wherever it is; those that come to the front by that."""
        behind = self._behind
        if latch in self.front:
            del self.front[latch]
        elif behind is not None:
            del behind[latch]
        # The front is empty, or readers (who share it) or one writer; whoever stands behind comes to it in order.
        moved: list[Latch] = []
        while behind:
            first, writes = next(iter(behind.items()))
            if self.front and (writes or self._exclusive):
                break
            self.front[first], self._exclusive = None, writes
            del behind[first]
            moved.append(first)
        return moved

    def claims(self) -> Iterator[Latch]:
        """All of them."""
        yield from self.front
        yield from self._behind or ()


class Latches:
    """The latches of one range."""

    def __init__(self) -> None:
        self._cells: dict[Key, Latch | _Queue] = {}
        """The claims of each cell: a queue, or a claim that met no other one there."""
        self._wide: dict[Latch, None] = {}
        self._open = 0

    def acquire(self, reads: tuple[Span, ...], writes: tuple[Span, ...]) -> Latch:
        """Claim all spans in one step; the latch is granted at once or later."""
        latch = Latch(reads, writes)
        self._open += 1
        waits_for = 0
        if self._wide or latch.wide_reads or latch.wide_writes:
            waits_for = self._follow(latch)
        # Mostly nobody else claims the cell: the latch stands there itself, and a queue is made for a second one.
        cells = self._cells
        for key, writes_it in latch.cells.items():
            if key not in cells:
                cells[key] = latch
            elif not self._queue(key).enter(latch, writes_it):
                waits_for += 1
        if waits_for:
            latch._waits_for, latch.granted = waits_for, False
        return latch

    def _queue(self, key: Key) -> _Queue:
        """The queue of a cell that has claims."""
        found = self._cells[key]
        if isinstance(found, Latch):
            found = self._cells[key] = _Queue(found, found.cells[key])
        return found

    def _follow(self, latch: Latch) -> int:
        """Have a claim wait for those that it conflicts with where spans of several cells are concerned: how many."""
        before = {other: None for other in self._wide if other.conflicts_widely(latch)}
        if latch.wide_reads or latch.wide_writes:
            for key in self._cells:
                cell = (point(key),)
                if _any_overlap(latch.wide_writes, cell):
                    before.update(dict.fromkeys(self._queue(key).claims()))
                elif _any_overlap(latch.wide_reads, cell):
                    before.update(dict.fromkeys(each for each in self._queue(key).claims() if each.cells[key]))
            self._wide[latch] = None
        for other in before:
            other._followers.append(latch)
        return len(before)

    def release(self, latch: Latch) -> None:
        """Give a claim up, granted or not; a second time does nothing.

        A follower waits for *all* earlier conflicts, not for the last one only, and so does who stands in a queue: a
        claim that is given up before it was granted lets nobody past those that it waited for.
        """
        if latch._over:
            return
        latch._over = True
        self._open -= 1
        if latch.wide_reads or latch.wide_writes:
            del self._wide[latch]
        for key in latch.cells:
            if self._cells[key] is latch:
                del self._cells[key]
                continue
            queue = self._queue(key)
            for moved in queue.leave(latch):
                moved.proceed()
            if not queue.front:
                del self._cells[key]
        for follower in latch._followers:
            follower.proceed()

    def __len__(self) -> int:
        """Claims that are not released."""
        return self._open


def _any_overlap(some: tuple[Span, ...], others: tuple[Span, ...]) -> bool:
    return any(overlap(one, other) for one in some for other in others)


def _nothing() -> None:
    return None
