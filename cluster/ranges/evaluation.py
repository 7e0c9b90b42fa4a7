"""Evaluation at the leaseholder, before replication (G2): this module reads as the list of its steps.

What is proposed is a write batch, decided here on the state that its latches hold still; replicas only carry it out.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from cluster.alarm import Alarm
from cluster.groups.group import Group
from cluster.groups.waiters import NotProposed, OutcomeUnknown
from cluster.knobs import Knobs
from cluster.ranges import requests
from cluster.ranges.closed_reads import NOT_WAITED, Waited, answered
from cluster.ranges.latches import Latch, Latches
from cluster.ranges.lease import HeldLease, Holding, refused
from cluster.ranges.observer import RangeObserver
from cluster.ranges.promises import InFlight, Promises, SharedClosed
from cluster.ranges.requests import Change, Read
from cluster.ranges.tablet import NO_REQUEST, HoldBatch, Put, TabletMachine, WriteBatch
from cluster.store.cells import Span, is_point
from cluster.store.hlc import Timestamp
from cluster.store.intents import OpenIntent
from cluster.store.node_clock import NodeClock
from cluster.wire.messages import Done, ErrorReply, PushHold, ReadTime, SettleHold, WriteCell, decode_reply, encode
from cluster.wire.rows import ChangeRow
from harness.ports.api import Clock, Ports
from harness.ports.failpoints import linger, pass_by

_MS = 1_000_000
_IDLE_NS = 3600 * 1_000_000_000


def _is_answer(reply: bytes) -> bool:
    """Whether it tells what was found; a batch that came too late for its lease is refused, and tells nothing."""
    return isinstance(decode_reply(reply), Done)


def _fault(kind: str, message: str, definite: bool = True) -> bytes:
    return encode(ErrorReply(kind, message, definite=definite))


_LATCH_TIMED_OUT = _fault("TIMED_OUT", "a change before this one was not decided within the deadline")
_READ_TIMED_OUT = _fault("TIMED_OUT", "no quorum within the deadline")
_INTENT_OPEN = _fault("INTENT_OPEN", "a transaction that is not decided yet has an intent there")
_CHANGE_TIMED_OUT = _fault("TIMED_OUT", "no quorum within the deadline", definite=False)


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


class RefusedRow(Exception):
    """A change of a row can't be carried out under the schema in force: nothing was proposed."""

    def __init__(self, reply: ErrorReply) -> None:
        super().__init__(reply.message)
        self.reply = reply


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
        self.lag_ns = knobs.closed_lag_ms * _MS
        """How far behind the clock to close, ns, by the table's policy; below 0 ahead of it (R6)."""
        self._hold_ns = knobs.hold_ms * _MS
        self._read_spans, self._exact = knobs.read_spans, bool(knobs.exact_tracker)
        self._deadlines = Deadlines(ports.clock, self._timeout_s)
        self._latches = Latches()
        self._promises: Promises | None = None
        self._log: Group | None = None
        self.observer = RangeObserver()
        self.pushed = 0
        """How many writes asked for a time that was closed, and were pushed above C."""
        self._group_id = ""

    def attach(self, log: Group, group_id: str) -> None:
        """The replica's group is open."""
        self._log, self._group_id = log, group_id

    def close(self) -> None:
        """End every wait."""
        self._deadlines.close()

    def promised(self) -> tuple[Timestamp, Timestamp]:
        """(The highest timestamp closed, the highest served) under the lease held last: what successors stay above."""
        self.leave()
        closed, read = (0, 0) if self._promises is None else self._promises.summary()
        return Timestamp(closed), Timestamp(read)

    @property
    def assigned(self) -> int:
        """C under the lease that is held, 0 where none is or nothing was promised under it yet."""
        held, promises = self._holding.held(), self._promises
        if held is None or promises is None or promises.sequence != held.lease.sequence:
            return 0
        return promises.closed

    # ---- changes ----

    async def change(self, change: Change) -> bytes:
        """A change from its arrival to its answer, an encoded Done or ErrorReply."""
        if type(change) is SettleHold:
            puts = self._held_puts(change.transaction)
        else:
            puts = requests.puts_of(change)
            problem = requests.problem(puts)
            if problem is not None:
                return _fault("INVALID", problem)
        held = self._holding.held()
        if held is None:
            return self._holding.refusal()
        answer = self._machine.answered(change.request_id)
        if answer is not None:  # a double of what is still in flight is found at apply
            self.observer.change_answered(self._group_id, change.request_id, answer)
            return answer
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
        self.pushed += work.in_flight.timestamp > requested
        self.observer.change_begun(self._group_id, change, latch.writes, work.in_flight.timestamp)
        try:
            proposed = await self._evaluate(work, self._log)
        except BaseException as error:
            self._dead(work)
            if isinstance(error, OpenIntent):
                if self._clock.shown() - error.intent.written_at > self._hold_ns:
                    await self.push(PushHold(self._group_id, error.intent.transaction, 0))
                return _INTENT_OPEN
            if isinstance(error, RefusedRow):
                return encode(error.reply)
            raise
        return await self._decided(work, proposed)

    def _requested(self, change: Change) -> int:
        """The timestamp that is asked for: the client's, unless it lies in the future, or the time of arrival."""
        arrived = self._clock.now()
        return arrived if change.requested is None else min(arrived, change.requested)

    async def _evaluate(self, work: Evaluating, log: Group) -> asyncio.Future[bytes]:
        """From the timestamp cache to the proposal. Lease sequence and tracker entry stay what they are, whatever
        happens where this waits; later steps only raise the timestamp. Raises OpenIntent, RefusedRow.
        """
        if self._failpoints.armed:
            await pass_by(self._failpoints, "tablet.evaluating", self._group_id)
        if type(work.change) is SettleHold:
            return self._settle(work, work.change, log)
        spans = work.latch.writes
        timestamp = work.in_flight.timestamp
        if self._heeds_reads:
            timestamp = max(timestamp, work.promises.highest_read(spans) + 1)
        for span in spans:
            timestamp = max(timestamp, self._machine.newest(span) + 1)
        if (
            type(work.change) is ChangeRow
        ):  # by the schema that it is decided by: it may have waited for others till now
            refusal = requests.row_refusal(work.change, self._machine.schema_in_force)
            if refusal is not None:
                raise RefusedRow(refusal)
        puts, done = requests.decide(work.change, work.puts, self._machine, timestamp)
        if not puts:  # it was not applied, which tells what stood there at its time
            work.read_at = timestamp
            if "failed-cas-unrecorded" not in self._flaws:
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
        sequence, named = work.lease_sequence, work.change.request_id
        self.observer.timestamp_closed(self._group_id, sequence, closed, self._machine.lease, named)
        batch = WriteBatch(
            request_id=work.change.request_id,
            lease_sequence=work.lease_sequence,
            timestamp=timestamp,
            closed=closed,
            reading=reading,
            duration_ns=self._duration_ns,
            puts=puts,
            answer=answer,
        )
        change = work.change
        if type(change) is WriteCell or not puts:
            return encode(batch)
        if type(change) is SettleHold:
            return encode(HoldBatch("commit" if change.commits else "abort", change.transaction, 0, batch))
        transaction = requests.laid_for(change)
        return encode(batch if transaction is None else HoldBatch("lay", transaction, reading, batch))

    # ---- what transactions hold (R9) ----

    def _held_puts(self, transaction: str, among: tuple[Span, ...] | None = None) -> tuple[Put, ...]:
        """What a transaction holds here, or of that what is latched."""
        latched = None if among is None else dict.fromkeys(span[0] for span in among)
        held = self._machine.held_by(transaction)
        return tuple([Put(key, each.value) for key, each in held.items() if latched is None or key in latched])

    def _settle(self, work: Evaluating, change: SettleHold, log: Group) -> asyncio.Future[bytes]:
        """Commit at the timestamp that was laid, whatever is closed by now, or abort; nothing where it has ended."""
        held, puts = self._machine.open_intents, self._held_puts(change.transaction, work.latch.writes)
        timestamp = max((held[put.key].timestamp for put in puts), default=work.in_flight.timestamp)
        done = encode(Done(bool(puts), None, timestamp))
        return log.submit_stamped(lambda: self._at_its_position(work, timestamp, puts, done), self._timeout_s)

    async def push(self, push: PushHold) -> bytes:
        """Have what a transaction holds here lie above a time, and above what is closed; or end, where it was held for
        too long: an encoded Done or ErrorReply."""
        latch = self._latches.acquire((), requests.points_of(self._held_puts(push.transaction)))
        if not latch.granted and not await self._granted(latch):
            return _LATCH_TIMED_OUT
        held, log, puts = self._holding.held(), self._log, self._held_puts(push.transaction, latch.writes)
        if held is None or log is None or not puts:
            self._latches.release(latch)
            return self._holding.refusal() if held is None else encode(Done(False, None, 0))
        stamp = partial(self._pushed, push, self._promises_of(held), puts)
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

        def decided(fate: asyncio.Future[bytes]) -> None:
            self._latches.release(latch)
            _pass_on(fate, answer)

        log.submit_stamped(stamp, self._timeout_s).add_done_callback(decided)
        self._deadlines.add(answer)
        try:
            return await answer
        except NotProposed as error:
            return refused(error)
        except OutcomeUnknown:
            return _CHANGE_TIMED_OUT

    def _pushed(self, push: PushHold, promises: Promises, puts: tuple[Put, ...]) -> bytes:
        """Its position is fixed: the timestamp is chosen, above C as for any write, and a closed one is stamped."""
        held = self._machine.open_intents
        since = min(held[put.key].written_at for put in puts)
        in_flight = promises.enter(push.above + 1)
        spans = requests.points_of(puts)
        newest = max(map(self._machine.newest, spans))
        timestamp = max(in_flight.timestamp, promises.highest_read(spans) + 1, newest + 1)
        promises.leave(in_flight)
        reading = self._clock.reading()
        closed = promises.close(self._closed_target(promises.sequence, reading))
        self.observer.timestamp_closed(self._group_id, promises.sequence, closed, self._machine.lease)
        ends = reading - since > self._hold_ns
        done = encode(Done(True, None, timestamp))
        batch = WriteBatch(NO_REQUEST, promises.sequence, timestamp, closed, reading, self._duration_ns, puts, done)
        return encode(HoldBatch("abort" if ends else "lay", push.transaction, since, batch))

    async def _decided(self, work: Evaluating, proposed: asyncio.Future[bytes]) -> bytes:
        """The answer, or that the deadline passed; latches are kept until the batch is applied or known dead."""
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

        def decided(fate: asyncio.Future[bytes]) -> None:
            if work.read_at is not None and fate.exception() is None and _is_answer(fate.result()):
                self.observer.read_answered(self._group_id, work.latch.writes, work.read_at)
            self._dead(work)
            _pass_on(fate, answer)

        proposed.add_done_callback(decided)
        self._deadlines.add(answer)
        try:
            found = await answer
        except NotProposed as error:
            return refused(error)
        except OutcomeUnknown:
            return _CHANGE_TIMED_OUT
        self.observer.change_answered(self._group_id, work.change.request_id, found)
        return found

    def _dead(self, work: Evaluating) -> None:
        """The change is applied, or never will be."""
        self.observer.change_ended(self._group_id, work.change.request_id)
        work.promises.leave(work.in_flight)
        self._latches.release(work.latch)

    # ---- reads ----

    async def read(
        self, read: Read, asked: int | None = None, waited: Waited = NOT_WAITED, arrived: int | None = None
    ) -> bytes:
        """A read from its arrival, now unless told, to its answer, an encoded reply or ErrorReply: strong, or as of the
        time `asked`. Raises OpenIntent.

        Its latches wait for the changes in flight that it would have to see, and keep later ones from being decided
        before the read's timestamp is in the cache.
        """
        return await self._under_latches(read, partial(self._read_now, read, asked, waited), arrived)

    async def read_time(self, read: Read) -> bytes:
        """When a strong read that another replica serves has to be served, an encoded ReadTime or ErrorReply (R8).

        Its latches wait for the changes in flight, so that all that it has to see is applied here; the time is in the
        cache before anybody is told, so that nothing is written at or below it any more.
        """
        early = self._machine.write_index if "index-before-latches" in self._flaws else None

        def now(held: HeldLease, arrived: int, spans: tuple[Span, ...]) -> bytes:
            timestamp = self._present(arrived, spans)
            if "strong-unrecorded" not in self._flaws:
                self._promises_of(held).served(spans, timestamp)
            return encode(ReadTime(timestamp, self._machine.write_index if early is None else early))

        return await self._under_latches(read, now)

    async def _under_latches(
        self, read: Read, serve: Callable[[HeldLease, int, tuple[Span, ...]], bytes], since: int | None = None
    ) -> bytes:
        spans = requests.spans_of(read)
        if not spans:
            return _fault("INVALID", "a read of no rows")
        arrived = self._clock.now() if since is None else Timestamp(since)
        latched = tuple(filter(is_point, spans)) if "span-reads-unlatched" in self._flaws else spans
        latch = self._latches.acquire(latched, ())
        if not latch.granted and not await self._granted(latch):
            return _LATCH_TIMED_OUT
        try:
            if self._failpoints.armed:
                await linger(self._failpoints, "tablet.reading")
            held = await self._holding.check(arrived)
            return self._holding.refusal() if held is None else serve(held, arrived, spans)
        except NotProposed as error:
            return refused(error)
        except OutcomeUnknown:
            return _READ_TIMED_OUT
        finally:
            self._latches.release(latch)

    def _present(self, arrived: int, spans: tuple[Span, ...]) -> int:
        """When a strong read is served: at its arrival, or where a version lies above that (data timestamps may lead
        the clock): what was acknowledged is never missed."""
        present = arrived
        for span in spans:
            present = max(present, self._machine.newest(span))
        return present

    def _read_now(
        self, read: Read, asked: int | None, waited: Waited, held: HeldLease, arrived: int, spans: tuple[Span, ...]
    ) -> bytes:
        """Read at the time that was asked for, or strongly; raises OpenIntent."""
        present = self._present(arrived, spans)
        timestamp = present if asked is None else asked
        if timestamp > present:
            return _fault("FUTURE_TIME", "the time asked for lies in the future")
        if timestamp < self._machine.threshold:
            return _fault("TOO_OLD", "the versions of the time asked for are collected")
        if asked is not None and read.bound is not msgspec.UNSET and read.bound.negotiate:
            return encode(answered(requests.nothing(read, asked), asked, self._machine.closed, waited))
        found = requests.carry_out(read, spans, self._machine, timestamp)
        self._promises_of(held).served(spans, timestamp)
        self.observer.read_answered(self._group_id, spans, timestamp)
        self.observer.read_found(self._group_id, read, spans, timestamp, found)
        return encode(found if asked is None else answered(found, asked, self._machine.closed, waited))

    # ---- closing for others (R4) ----

    def join(self, shared: SharedClosed, on_leave: Callable[[], None]) -> tuple[int, int | None] | None:
        """Close what these ranges have closed and go on with them: (the lease's sequence, the end of its record, None
        while promises stand for it); None where that can't be done now.

        What was proposed has left the tracker and may lie below: nothing may be on its way. Who leads without a lease
        asks for it: where only closed times are read no request does.
        """
        held, log = self._holding.held(), self._log
        if held is None:
            self._holding.on_fence()
        if held is None or log is None or not (log.settled or "side-transport-unapplied" in self._flaws):
            return None
        silent = log.asleep and shared.closed < log.ends.lease_extension
        ends = not silent and shared.closed >= held.lease.expiration
        if ends and "closed-past-lease" not in self._flaws:
            return None
        if not self._promises_of(held).share(shared, on_leave):
            return None
        return held.lease.sequence, None if silent else held.lease.expiration

    def leave(self) -> None:
        """Close no more with others than until now."""
        if self._promises is not None:
            self._promises.leave_shared()

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
            self.leave()
            promises = self._promises = Promises(
                sequence, held.low_water, self._machine.closed, self._flaws, self._read_spans, self._exact
            )
        return promises

    def _closed_target(self, sequence: int, reading: int) -> int:
        """How far to close at this moment's reading: by the policy (R6), and below the lease's expiration (R4).

        No further than before under a lease that is lost or given up: the next one's low water is fixed by then (G3).
        """
        lease = self._holding.own()
        if lease is None or lease.sequence != sequence or self._clock.judged is not None:
            return 0
        lagging = reading - self.lag_ns
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
