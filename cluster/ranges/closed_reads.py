"""Reads by what is closed, at any replica (R7): the follower path, which leaseholders take first too.

"应用了 log position 的日志后，便可以提供小于 timestamp 的读取": who has applied the log up to the position
may serve reads at the timestamp. A time that is closed here, and not above what this node's clock has shown, needs no
latch, no lease and no trusted clock: nobody will ever write at or below it, and all that was written is here.

A strong read is never served so: its time would be one that a follower's clock chose, and a slow clock misses what was
acknowledged.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

import msgspec

from cluster.groups.group import Group
from cluster.ranges import requests
from cluster.ranges.closed_here import ClosedHere
from cluster.ranges.observer import RangeObserver
from cluster.ranges.requests import Read, ReadAnswer
from cluster.ranges.tablet import TabletMachine
from cluster.store.cells import Span
from cluster.store.mvcc import LATEST
from cluster.store.node_clock import NodeClock
from cluster.wire.messages import ErrorReply, encode
from cluster.wire.staleness import HowServed, KnownBy, Path


class Waited(NamedTuple):
    """How long a read has waited for what was open by now, and up to where it could have been served without when it
    arrived."""

    blocked_ns: int = 0
    unblocked: int = LATEST


NOT_WAITED = Waited()

AtLease = Callable[[Read, int, Waited], Coroutine[Any, Any, bytes]]
"""Reads by the lease, exactly at a time."""


class _Reading(NamedTuple):
    """A read with its time, exact or least, the spans that it reads, and what it has waited for by now."""

    read: Read
    asked: int
    spans: tuple[Span, ...]
    waited: Waited

    @property
    def nearest_only(self) -> bool:
        return self.read.bound is not msgspec.UNSET and self.read.bound.nearest_only


class ClosedReads:
    """Of one replica; `attach` it to its group when that is open. What is not closed here goes `by_lease`, if the
    replica holds that, and is refused with NOT_CLOSED otherwise."""

    def __init__(
        self,
        clock: NodeClock,
        machine: TabletMachine,
        closed: ClosedHere,
        holds: Callable[[], bool],
        by_lease: AtLease,
        flaws: frozenset[str],
    ) -> None:
        self._clock, self._machine, self._closed = clock, machine, closed
        self._holds, self._by_lease, self._flaws = holds, by_lease, flaws
        self.observer = RangeObserver()
        self.on_held_back: Callable[[str, int], None] = lambda transaction, closed: None
        """Called with a transaction that holds what is closed back, and with how far that is."""
        self._log: Group | None = None
        self._group_id = ""

    def attach(self, log: Group, group_id: str) -> None:
        """The replica's group is open."""
        self._log, self._group_id = log, group_id

    async def read(self, read: Read, waited: Waited = NOT_WAITED) -> bytes:
        """A read as of a time or within a bound, both fixed, to its answer: an encoded reply or ErrorReply.

        Raises OpenIntent.
        """
        spans = requests.spans_of(read)
        if not spans:
            return encode(ErrorReply("INVALID", "a read of no rows", definite=True))
        problem = requests.bad_bound(read)
        if problem is not None:
            return encode(problem)
        work = _Reading(read, requests.asked_time(read), spans, waited)
        if self._log is None or self._log.installing:
            return self._not_closed(work, 0)
        return await (self._within(work) if requests.is_bounded(read) else self._exactly(work))

    async def _exactly(self, work: _Reading) -> bytes:
        known_by = self._closed.closed_by(work.asked) if work.asked <= self._shown() else None
        if known_by is None and "follower-skips-closed" in self._flaws:
            known_by = "log"
        if known_by is not None:
            return self._serve(work, work.asked, known_by)
        if self._holds():
            return await self._by_lease(work.read, work.asked, work.waited)
        return self._not_closed(work, self._closed.highest())

    async def _within(self, work: _Reading) -> bytes:
        """As fresh as can be served here without waiting: "以避开存在的锁冲突", below what transactions have open. What
        holds it back is pushed meanwhile."""
        closed = min(self._closed.highest(), self._shown())
        resolved, least = self._resolved(closed, work.spans), work.asked
        if "negotiate-ignores-intents" in self._flaws:
            resolved = closed
        if resolved < closed and (lowest := self._machine.lowest_intent(work.spans)) is not None:
            self.on_held_back(lowest[1].transaction, closed)
        if "staleness-unbounded" in self._flaws:
            least = 0
        skips = work.nearest_only and "nearest-skips-check" in self._flaws
        if resolved >= max(least, self._machine.threshold) or skips:
            return self._serve(work, resolved, self._closed.closed_by(resolved) or "")
        if self._holds() and not work.nearest_only:
            return await self._by_lease(work.read, least, work.waited)
        return self._not_closed(work, closed)

    def _serve(self, work: _Reading, timestamp: int, known_by: KnownBy) -> bytes:
        read, spans = work.read, work.spans
        if timestamp < self._machine.threshold:
            message = "the versions of the time asked for are collected"
            return encode(ErrorReply("TOO_OLD", message, definite=True, served=HowServed(asked=work.asked)))
        closed = max(timestamp, self._closed.highest())
        path: Path = "closed-at-leaseholder" if self._holds() else "follower"
        resolved = min(self._resolved(closed, spans), work.waited.unblocked)
        served = HowServed(path, known_by, work.asked, closed, resolved, work.waited.blocked_ns)
        if read.bound is not msgspec.UNSET and read.bound.negotiate:
            return encode(msgspec.structs.replace(requests.nothing(read, timestamp), served=served))
        found = requests.carry_out(read, spans, self._machine, timestamp)
        self.observer.closed_read_answered(self._group_id, read, spans, timestamp, found, self._machine)
        return encode(found if isinstance(found, ErrorReply) else msgspec.structs.replace(found, served=served))

    def _not_closed(self, work: _Reading, closed: int) -> bytes:
        asked, resolved = work.asked, self._resolved(closed, work.spans)
        message = f"{asked} is not closed here: that is known up to {closed}, and without waiting up to {resolved}"
        leader = None if self._log is None else self._log.leader
        served = HowServed("follower", "", asked, closed, resolved, work.waited.blocked_ns)
        return encode(ErrorReply("NOT_CLOSED", message, definite=True, leader=leader, served=served))

    def _resolved(self, closed: int, spans: tuple[Span, ...]) -> int:
        lowest = self._machine.lowest_intent(spans)
        return closed if lowest is None else min(closed, lowest[1].timestamp - 1)

    def _shown(self) -> int:
        """What the clock has shown: a clock that is not trusted shows nothing more."""
        return self._clock.last if self._clock.fenced is not None else self._clock.shown()


def answered(found: ReadAnswer, asked: int, closed: int, waited: Waited) -> ReadAnswer:
    """An answer by the lease at a time that was asked for, with what it says of how it was served."""
    if isinstance(found, ErrorReply):
        return found
    return msgspec.structs.replace(
        found, served=HowServed("leaseholder", "", asked, closed, min(closed, waited.unblocked), waited.blocked_ns)
    )
