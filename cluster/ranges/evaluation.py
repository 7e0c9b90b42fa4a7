"""Evaluation at the leaseholder, before replication (G2): this module reads as the list of its steps.

What is proposed is a write batch, decided here on the state that its latches hold still; replicas only carry it out.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec

from cluster.alarm import Alarm
from cluster.groups.group import Group
from cluster.groups.waiters import NotProposed, OutcomeUnknown
from cluster.knobs import Knobs
from cluster.ranges import requests
from cluster.ranges.latches import Latch, Latches
from cluster.ranges.lease import HeldLease, Holding, refused
from cluster.ranges.lease_record import Lease
from cluster.ranges.promises import InFlight, Promises
from cluster.ranges.requests import Change, Read
from cluster.ranges.tablet import Put, TabletMachine, WriteBatch
from cluster.store.cells import Span
from cluster.store.hlc import Timestamp
from cluster.store.intents import OpenIntent
from cluster.store.node_clock import NodeClock
from cluster.wire.messages import ErrorReply, encode
from cluster.wire.rows import ChangeRow
from harness.ports.api import Clock, Ports
from harness.ports.failpoints import pass_by

_MS = 1_000_000
_IDLE_NS = 3600 * 1_000_000_000


def _fault(kind: str, message: str, definite: bool = True) -> bytes:
    return encode(ErrorReply(kind, message, definite=definite))


_LATCH_TIMED_OUT = _fault("TIMED_OUT", "a change before this one was not decided within the deadline")
_READ_TIMED_OUT = _fault("TIMED_OUT", "no quorum within the deadline")
_INTENT_OPEN = _fault("INTENT_OPEN", "a transaction that is not decided yet has an intent there")
_CHANGE_TIMED_OUT = _fault("TIMED_OUT", "no quorum within the deadline", definite=False)


OnClosed: TypeAlias = Callable[[int, int, Lease | None], None]
"""Called with a lease's sequence, the closed timestamp just assigned under it, and the record that is applied here."""
OnRead: TypeAlias = Callable[[tuple[Span, ...], int], None]
"""Called with what was read, and as of which time, as it is about to be answered."""


def _ignore(*_: object) -> None:
    return None


class Evaluating(msgspec.Struct):
    """A change between its latches and its log position."""

    change: Change
    puts: tuple[Put, ...]
    latch: Latch
    promises: Promises
    lease_sequence: int
    in_flight: InFlight
    read_at: int | None = None
    """As of when it has read, where it turned out not to be applied."""


class Evaluation:
    """The leaseholder's side of one replica; refuses everything while the lease is not held."""

    def __init__(
        self,
        ports: Ports,
        knobs: Knobs,
        clock: NodeClock,
        machine: TabletMachine,
        holding: Holding,
        flaws: frozenset[str],
    ) -> None:
        self._clock, self._machine, self._holding = clock, machine, holding
        self._failpoints = ports.failpoints
        self._flaws = flaws
        self._heeds_reads = "no-timestamp-cache" not in flaws
        self._timeout_s = knobs.request_timeout_ms / 1e3
        self._duration_ns = knobs.lease_record_ns
        self._closed_lag_ns = knobs.closed_lag_ms * _MS
        self._deadlines = Deadlines(ports.clock, self._timeout_s)
        self._latches = Latches()
        self._promises: Promises | None = None
        self._log: Group | None = None
        self.on_closed: OnClosed = _ignore
        self.on_read: OnRead = _ignore
        self._group_id = ""

    def attach(self, log: Group, group_id: str) -> None:
        """The replica's group is open."""
        self._log, self._group_id = log, group_id

    def close(self) -> None:
        """End every wait."""
        self._deadlines.close()

    def promised(self) -> tuple[Timestamp, Timestamp]:
        """(The highest timestamp closed, the highest served) under the lease held last: what successors stay above."""
        closed, read = (0, 0) if self._promises is None else self._promises.summary()
        return Timestamp(closed), Timestamp(read)

    # ---- changes ----

    async def change(self, change: Change) -> bytes:
        """A change from its arrival to its answer, an encoded Done or ErrorReply."""
        puts = requests.puts_of(change)
        problem = requests.problem(puts)
        if problem is not None:
            return _fault("INVALID", problem)
        held = self._holding.held()
        if held is None:
            return self._holding.refusal()
        if type(change) is ChangeRow:
            refusal = requests.row_refusal(change, self._machine.schema_in_force)
            if refusal is not None:
                return encode(refusal)
        answer = self._machine.answered(change.request_id)
        if answer is not None:
            return answer  # a double of what is still in flight is found at apply
        requested = self._requested(change)
        latch = self._latches.acquire((), requests.points_of(puts))
        if not latch.granted:
            if not await self._granted(latch):
                return _LATCH_TIMED_OUT
            held = self._holding.held()
        if held is None or self._log is None:
            self._latches.release(latch)
            return self._holding.refusal()
        promises = self._promises_of(held)
        work = Evaluating(change, puts, latch, promises, promises.sequence, promises.enter(requested))
        try:
            proposed = await self._evaluate(work, self._log)
        except BaseException as error:
            self._dead(work)
            if isinstance(error, OpenIntent):
                return _INTENT_OPEN
            raise
        return await self._decided(work, proposed)

    def _requested(self, change: Change) -> int:
        """The timestamp that is asked for: the client's, unless it lies in the future, or the time of arrival."""
        arrived = self._clock.now()
        return arrived if change.requested is None else min(arrived, change.requested)

    async def _evaluate(self, work: Evaluating, log: Group) -> asyncio.Future[bytes]:
        """From the timestamp cache to the proposal. Lease sequence and tracker entry stay what they are, whatever
        happens where this waits; later steps only raise the timestamp. Raises OpenIntent.
        """
        if self._failpoints.armed:
            await pass_by(self._failpoints, "tablet.evaluating", self._group_id)
        spans = work.latch.writes
        timestamp = work.in_flight.timestamp
        if self._heeds_reads:
            timestamp = max(timestamp, work.promises.highest_read(spans) + 1)
        for span in spans:
            timestamp = max(timestamp, self._machine.newest(span) + 1)
        puts, done = requests.decide(work.change, work.puts, self._machine, timestamp)
        if not puts:  # it was not applied, which tells what stood there at its time
            work.read_at = timestamp
            work.promises.served(spans, timestamp)
        if self._machine.open_intents:
            self._machine.check_intents(spans + requests.points_of(puts))
        if self._failpoints.armed:
            await pass_by(self._failpoints, "tablet.before_propose", self._group_id)
        return log.submit_stamped(lambda: self._at_its_position(work, timestamp, puts, encode(done)), self._timeout_s)

    def _at_its_position(self, work: Evaluating, timestamp: int, puts: tuple[Put, ...], answer: bytes) -> bytes:
        """The position in the log is fixed: the write leaves the tracker, and a closed timestamp is stamped (R5)."""
        work.promises.leave(work.in_flight)
        reading = self._clock.reading()
        closed = work.promises.close(self._closed_target(work.lease_sequence, reading))
        self.on_closed(work.lease_sequence, closed, self._machine.lease)
        return encode(
            WriteBatch(
                request_id=work.change.request_id,
                lease_sequence=work.lease_sequence,
                timestamp=timestamp,
                closed=closed,
                reading=reading,
                duration_ns=self._duration_ns,
                puts=puts,
                answer=answer,
            )
        )

    async def _decided(self, work: Evaluating, proposed: asyncio.Future[bytes]) -> bytes:
        """The answer, or that the deadline passed; latches are kept until the batch is applied or known dead."""
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

        def decided(fate: asyncio.Future[bytes]) -> None:
            if work.read_at is not None and fate.exception() is None:
                self.on_read(work.latch.writes, work.read_at)
            self._dead(work)
            _pass_on(fate, answer)

        proposed.add_done_callback(decided)
        self._deadlines.add(answer)
        try:
            return await answer
        except NotProposed as error:
            return refused(error)
        except OutcomeUnknown:
            return _CHANGE_TIMED_OUT

    def _dead(self, work: Evaluating) -> None:
        """The change is applied, or never will be."""
        work.promises.leave(work.in_flight)
        self._latches.release(work.latch)

    # ---- reads ----

    async def read(self, read: Read) -> bytes:
        """A read from its arrival to its answer, an encoded reply or ErrorReply.

        Its latches wait for the changes in flight that it would have to see, and keep later ones from being decided
        before the read's timestamp is in the cache.
        """
        spans = requests.spans_of(read)
        if not spans:
            return _fault("INVALID", "a read of no rows")
        arrived = self._clock.now()
        latch = self._latches.acquire(spans, ())
        if not latch.granted and not await self._granted(latch):
            return _LATCH_TIMED_OUT
        try:
            held = await self._holding.check(arrived)
            return self._holding.refusal() if held is None else self._read_now(held, read, arrived, spans)
        except NotProposed as error:
            return refused(error)
        except OutcomeUnknown:
            return _READ_TIMED_OUT
        except OpenIntent:
            return _INTENT_OPEN
        finally:
            self._latches.release(latch)

    def _read_now(self, held: HeldLease, read: Read, arrived: int, spans: tuple[Span, ...]) -> bytes:
        """Strong reads are served at their arrival, or where a version lies above that (data timestamps may lead the
        clock): what was acknowledged is never missed. Raises OpenIntent.
        """
        present = arrived
        for span in spans:
            present = max(present, self._machine.newest(span))
        timestamp = present if read.as_of is None else read.as_of
        if timestamp > present:
            return _fault("INVALID", "the time asked for lies in the future")
        if timestamp < self._machine.threshold:
            return _fault("INVALID", "the versions of the time asked for are collected")
        found = requests.carry_out(read, spans, self._machine, timestamp)
        self._promises_of(held).served(spans, timestamp)
        self.on_read(spans, timestamp)
        return encode(found)

    # ---- both ----

    async def _granted(self, latch: Latch) -> bool:
        """Whether the latch is granted within the deadline; else it is given up."""
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        latch.wake = lambda: _grant(granted)
        self._deadlines.add(granted)
        try:
            await granted
        except BaseException as error:
            self._latches.release(latch)
            if isinstance(error, OutcomeUnknown):
                return False
            raise
        return True

    def _promises_of(self, held: HeldLease) -> Promises:
        promises, sequence = self._promises, held.lease.sequence
        if promises is None or promises.sequence != sequence:
            promises = self._promises = Promises(sequence, held.low_water, self._machine.closed, self._flaws)
        return promises

    def _closed_target(self, sequence: int, reading: int) -> int:
        """How far to close at this moment's reading: to a lag behind it (R6), and below the lease's expiration (R4).

        No further than before under a lease that is lost or given up: the next one's low water is fixed by then (G3).
        """
        lease = self._holding.own()
        if lease is None or lease.sequence != sequence or self._clock.judged is not None:
            return 0
        lagging = reading - self._closed_lag_ns
        return lagging if lagging < lease.expiration else min(lagging, self._holding.end(lease) - 1)


def _grant(granted: asyncio.Future[None]) -> None:
    if not granted.done():
        granted.set_result(None)


def _pass_on(fate: asyncio.Future[bytes], answer: asyncio.Future[bytes]) -> None:
    """Give a caller who still waits what became of the proposal."""
    error = fate.exception()
    if answer.done():
        return
    if error is None:
        answer.set_result(fate.result())
    else:
        answer.set_exception(error)


class Deadlines:
    """Fails futures that are not done `timeout_s` after they were added with OutcomeUnknown.

    All waits last equally long, so they end in the order in which they began, and one alarm is enough.
    """

    def __init__(self, clock: Clock, timeout_s: float) -> None:
        self._clock = clock
        self._timeout_ns = int(timeout_s * 1e9)
        self._waits: deque[tuple[int, asyncio.Future[Any]]] = deque()
        self._alarm = Alarm(clock, self._wake)
        self._armed = False

    def add(self, future: asyncio.Future[Any]) -> None:
        """Give this one its deadline."""
        while self._waits and self._waits[0][1].done():
            self._waits.popleft()
        deadline_ns = self._clock.monotonic_ns() + self._timeout_ns
        self._waits.append((deadline_ns, future))
        if not self._armed:
            self._armed = True
            self._alarm.set(deadline_ns)

    def close(self) -> None:
        """End every wait now."""
        self._alarm.cancel()
        while self._waits:
            _expire(self._waits.popleft()[1])

    def _wake(self) -> None:
        now_ns = self._clock.monotonic_ns()
        while self._waits and (self._waits[0][0] <= now_ns or self._waits[0][1].done()):
            _expire(self._waits.popleft()[1])
        self._armed = bool(self._waits)
        self._alarm.set(self._waits[0][0] if self._waits else now_ns + _IDLE_NS)


def _expire(future: asyncio.Future[Any]) -> None:
    if not future.done():
        future.set_exception(OutcomeUnknown("the deadline passed"))
