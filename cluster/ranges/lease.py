"""The lease of a range (R2, G3) at its holder: acquired, checked by each read, renewed and handed over.

*Who* may serve is Raft's business, timed on the monotonic clock; the record that is replicated here says at which
timestamps its holder may serve, and its sequence tells the commands of one holder from those of the next. Nothing is
renewed for its own sake: an idle range costs nothing. While it is silent the promises of its members extend the record.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeAlias

import msgspec

from cluster.groups.group import Group, NotLeader, OutcomeUnknown
from cluster.groups.membership import LOOK_S
from cluster.groups.waiters import NotProposed
from cluster.knobs import Knobs
from cluster.raft.types import Role, SoftState
from cluster.ranges.lease_record import AcquireLease, HandOverLease, Lease, RenewLease, ended
from cluster.ranges.tablet import TabletMachine
from cluster.store.hlc import Timestamp, shown_at
from cluster.store.node_clock import NodeClock
from cluster.wire.messages import ErrorReply, encode
from harness.ports.api import Ports

_MS = 1_000_000
_CLOCK = "clock fenced"
_FOR_EVER_S = 1e6
"""A lease command waits as long as its group leads; its fate is read from the state machine."""

_FENCED = encode(ErrorReply("CLOCK_FENCED", "this node's clock is not to be trusted", definite=True))
_NO_LEASE = encode(ErrorReply("NO_LEASE", "the new leader's lease has not begun yet", definite=True))


Promised: TypeAlias = Callable[[], tuple[Timestamp, Timestamp]]
"""(The highest timestamp closed by either transport, the highest that a read was served at), under this lease."""


OnExtended: TypeAlias = Callable[[int, Timestamp], None]
"""Called with a lease's sequence, and up to where it is used though its record ends before."""


def _ignore(*_: object) -> None:
    return None


class HeldLease(msgspec.Struct, frozen=True):
    """A lease that this node holds, and what it allows. Its sequence is fixed at evaluation: a command is refused at
    apply under another.

    `low_water`: no earlier holder served a read or closed a timestamp above it, so every write lies above it (the
    timestamp cache begins there). `upper`: the highest timestamp a read may be served at under the record as it is
    applied now, or by the promises of the group's members; `Holding.cover` raises it. Writes are under no such bound:
    what they carry extends the lease where they are applied.
    """

    lease: Lease
    low_water: Timestamp
    upper: Timestamp


class Holding:
    """One replica's side of its range's lease. Made once a replica; `attach` it to its group when that is open."""

    def __init__(
        self, ports: Ports, clock: NodeClock, state: TabletMachine, knobs: Knobs, flaws: frozenset[str]
    ) -> None:
        self._node_id, self._sleep, self._clock, self._state = ports.node_id, ports.clock.sleep, clock, state
        self._duration_ns, self._timeout_s = knobs.lease_record_ns, knobs.request_timeout_ms / 1e3
        self._knobs, self._flaws = knobs, flaws
        self._group: Group | None = None
        self.on_extended: OnExtended = _ignore
        self._promised: Promised = lambda: (Timestamp(0), Timestamp(0))
        self._acquisition: asyncio.Future[bytes] | None = None
        self._asked_in_term = 0
        self._guessed = (0, Timestamp(0))
        """The term, and where leases of earlier ones may end at the latest, where voters couldn't tell."""
        self._used = Timestamp(0)
        """Up to where a lease was used here by promises, beyond its record."""
        self._renewal: asyncio.Future[bytes] | None = None
        self._wait: asyncio.Task[None] | None = None
        self._aside: asyncio.Task[bool] | None = None
        self._given_up = 0
        """Sequence of the last lease given up here: whether its record was committed or not, it is held no more."""
        self._handing_over = False
        self.ahead_ns = 0
        """Up to so far ahead of the clock something is to be closed under the lease (R6)."""

    def attach(self, group: Group, promised: Promised) -> None:
        """The replica's group is open; a leader that it has elected meanwhile acquires the lease."""
        self._group, self._promised = group, promised
        self.on_fence()

    def close(self) -> None:
        """Stop waiting for anything."""
        self._group = None
        for task in (self._wait, self._aside):
            if task is not None:
                task.cancel()

    def on_leadership(self, state: SoftState) -> None:
        """To be told of every change of role, term or leader."""
        if state.role is Role.LEADER:
            self.on_fence()

    def held(self) -> HeldLease | None:
        """The lease, if its record says that this replica acquired it in the term that it now leads; none is held
        while the node's clock is fenced."""
        lease = self.own()
        if lease is None or self._clock.fenced is not None:
            return None
        return HeldLease(lease, lease.low_water, Timestamp(lease.expiration - 1))

    def own(self) -> Lease | None:
        """The lease that is neither lost nor given up here, whether the node's clock is fenced or not."""
        group, lease = self._group, self._state.lease
        if group is None or not group.is_leader or lease is None or lease.over or lease.sequence == self._given_up:
            return None
        return lease if lease.holder == self._node_id and lease.term == group.term else None

    async def check(self, arrived: Timestamp) -> HeldLease | None:
        """The lease check of a read that arrived at this time: the lease, if it may be served; None if it is not held.

        The record must cover the time, and then no other node can have been elected, by the monotonic clock (§6.4.1).
        Raises NotLeader, OutcomeUnknown.
        """
        held, group = self.held(), self._group
        if held is not None and self._wears_out(held, arrived) and "read-without-lease" not in self._flaws:
            held = await self.cover(arrived)
        if held is None and "read-before-own-term" in self._flaws:
            return await self._inherited(arrived)
        if held is None or group is None or "lease-by-wall-clock" in self._flaws:
            return held
        return self._covering(arrived) if await group.read_barrier(self._timeout_s) else held

    async def _inherited(self, arrived: Timestamp) -> HeldLease | None:
        """With the flaw a leader serves by what its predecessor's record promised, before its own is committed."""
        group, lease = self._group, self._state.lease
        if group is None or not group.is_leader or lease is None or self._clock.fenced is not None:
            return None
        await group.read_barrier(self._timeout_s)
        return HeldLease(lease, lease.low_water, arrived)

    async def cover(self, timestamp: Timestamp) -> HeldLease | None:
        """The lease once its record covers `timestamp`, a time on this clock; None when it is lost, or at a deadline.

        A renewal is begun ahead when the timestamp lies in the second half of the record's interval; none is needed
        where the members' promises cover it.
        """
        held = self.held()
        while held is not None and self._wears_out(held, timestamp):
            extended = self._extended(held)
            if extended is not held and timestamp <= extended.upper:
                return extended
            renewal = self._renew(held.lease)
            if timestamp <= held.upper:
                return held
            try:
                await asyncio.shield(renewal)
            except (NotProposed, OutcomeUnknown):
                return self._covering(timestamp)
            held = self._covering(timestamp)
        return held

    def _wears_out(self, held: HeldLease, timestamp: Timestamp) -> bool:
        """Whether it is time to renew the lease, or past that."""
        return timestamp > held.upper - max(self._duration_ns // 2, self.ahead_ns)

    def end(self, lease: Lease) -> Timestamp:
        """When the lease that is held is over: by its record, or by what all members have promised meanwhile (G3)."""
        until = Timestamp(0) if self._group is None else Timestamp(self._group.ends.lease_extension)
        if until <= lease.expiration:
            return lease.expiration
        self._used = until
        self.on_extended(lease.sequence, until)
        return until

    async def recorded(self, timeout_s: float) -> bool:
        """Have the record say what so far only members have promised; False where that can't be done. A lease is waited
        for until the deadline, a renewal as long as any request.

        To be asked before members change: who joins has promised nothing, and may be elected by others who haven't. A
        leader whose own lease has not begun waits for that: then it has waited out what was promised to earlier ones.
        """
        group, deadline_ns = self._group, self._clock.monotonic_ns() + int(timeout_s * 1e9)
        while (lease := self.own()) is None and group is not None and group.is_leader:
            if group.ends.earlier_until == 0 and not group.ends.lease_extension:
                break  # nobody has ever promised anything, to earlier leaders or to this one
            if self._clock.monotonic_ns() >= deadline_ns or self._clock.fenced is not None:
                return False
            self._acquire()
            await self._sleep(LOOK_S)
        if lease is None or group is None:
            return True
        if lease.expiration < group.ends.lease_extension:
            try:
                await asyncio.shield(self._renew(lease))
            except (NotProposed, OutcomeUnknown):
                return False
            lease = self.own()
        return lease is not None and lease.expiration >= group.ends.lease_extension

    async def hand_over(self, target: str | None = None) -> bool:
        """Give the lease up, then leadership, to `target` or to whoever can take it: True if the record of it was
        committed before (G3).

        From the call on nothing is served or closed here under this lease. Without the record the successor waits the
        lease out.
        """
        lease, group = self.own(), self._group
        if group is None or not group.is_leader or self._handing_over:
            return False
        self._handing_over = True
        try:
            return lease is not None and await self._record_hand_over(group, lease)
        finally:
            self._handing_over = False
            if target is not None:
                group.transfer_leadership(target)
            elif self._clock.fenced is not None:
                group.hand_over(_CLOCK)

    async def _record_hand_over(self, group: Group, lease: Lease) -> bool:
        self._given_up = lease.sequence
        closed, read = self._promised()
        if "handover-forgets-reads" in self._flaws:
            read = Timestamp(0)
        command = HandOverLease(lease.sequence, self._clock.last, closed, read)
        self._used = max(self._used, Timestamp(group.ends.lease_extension))
        try:
            await group.submit(encode(command), self._timeout_s)
        except (NotProposed, OutcomeUnknown):
            return False
        return True

    def on_fence(self) -> None:
        """To be told that the node's clock is fenced, or free again: a fenced leader lets another one lead, a fenced
        follower takes leadership from nobody."""
        group, fenced = self._group, self._clock.fenced is not None
        if group is None:
            return
        if not group.is_leader:
            group.hand_over(_CLOCK, fenced)
        elif not fenced:
            group.hand_over(_CLOCK, wanted=False)
            self._acquire()
        elif self._aside is None or self._aside.done():
            self._aside = asyncio.create_task(self.hand_over(), name="lease.aside")

    def on_tick(self) -> None:
        """To be told now and then while the group is awake and led here: where it can't fall silent, so that its
        members will never promise anything, the record is renewed before it is over."""
        held, group = self.held(), self._group
        if held is None or group is None or not self._wears_out(held, self._clock.shown()):
            return
        if group.ends.kept_awake(self._clock.monotonic_ns()) and "idle-never-closes" not in self._flaws:
            self._renew(held.lease)

    def on_over(self) -> None:
        """To be told that the lease before was handed over: who waits for its end may begin."""
        if self._wait is not None:
            self._wait.cancel()
            self._wait = None
            asyncio.get_running_loop().call_soon(self._acquire)

    def refusal(self) -> bytes:
        """Why nothing is served here; a leader whose lease command was refused (its disk was full) asks again."""
        group = self._group
        if group is not None and group.is_leader:
            self.on_fence()
            return _NO_LEASE if self._clock.fenced is None else _FENCED
        return refused(NotLeader(group.leader if group else None))

    # ---- acquiring and renewing ----

    def _covering(self, timestamp: Timestamp) -> HeldLease | None:
        held = self.held()
        if held is None or timestamp <= held.upper or "read-without-lease" in self._flaws:
            return held
        held = self._extended(held)
        return held if timestamp <= held.upper else None

    def _extended(self, held: HeldLease) -> HeldLease:
        """With what the members' promises allow beyond the record, if they do."""
        until = self.end(held.lease)
        return held if until == held.lease.expiration else HeldLease(held.lease, held.low_water, Timestamp(until - 1))

    def _renew(self, lease: Lease) -> asyncio.Future[bytes]:
        """One renewal at a time."""
        if self._renewal is None or self._renewal.done():
            assert self._group is not None
            command = RenewLease(lease.sequence, self._clock.reading(), self._duration_ns)
            self._renewal = self._group.submit(encode(command), self._timeout_s)
            self._renewal.add_done_callback(_look_at)
        return self._renewal

    def _acquire(self) -> None:
        """Propose the own lease, as soon as the one before is over on this clock."""
        group = self._group
        if group is None or not group.is_leader or self._handing_over or self.own() is not None:
            return
        if self._clock.fenced is not None:
            return
        if self._asked_in_term == group.term and self._acquisition is not None and not self._acquisition.done():
            return
        before, until = self._state.lease, self._earlier_until(group)
        if before is not None and self._clock.shown() < (end := ended(before, until)):
            self._wait_out(end)
            return
        command = AcquireLease(self._node_id, group.term, self._clock.reading(), self._duration_ns, until)
        self._acquisition, self._asked_in_term = group.submit(encode(command), _FOR_EVER_S), group.term
        self._acquisition.add_done_callback(self._decided)

    def _decided(self, future: asyncio.Future[bytes]) -> None:
        """What entries before it in the log did to the old lease may have had it refused: look again."""
        _look_at(future)
        if not future.cancelled() and future.exception() is None:
            self._acquire()

    def _earlier_until(self, group: Group) -> Timestamp:
        """Up to where leases of earlier leaders may last by what members promised them, whatever their records say."""
        if "support-not-waited-out" in self._flaws:
            return Timestamp(0)
        until = group.ends.earlier_until
        # A lease that was given up in this term may have been used by promises that came later.
        if until is not None:
            return max(Timestamp(until), self._used)
        if self._guessed[0] != group.term:
            self._guessed = (group.term, latest_end(self._clock, self._knobs))
        return max(self._guessed[1], self._used)

    def _wait_out(self, end: Timestamp) -> None:
        if self._wait is None or self._wait.done():
            self._wait = asyncio.create_task(self._waited_out(end), name="lease.wait")

    async def _waited_out(self, end: Timestamp) -> None:
        # A clock shows a time with a counter only when its next step is over: less would be waited for again and again.
        await self._sleep(max(0, shown_at(end) - self._clock.shown()) / 1e9)
        self._wait = None
        self._acquire()


def refused(error: NotProposed) -> bytes:
    """The encoded ErrorReply of a command that never entered the log."""
    return encode(ErrorReply(error.kind, str(error), definite=True, leader=error.leader))


def _look_at(future: asyncio.Future[bytes]) -> None:
    """The outcome of a lease command is read from the state machine; its future only must not complain."""
    if not future.cancelled():
        future.exception()


# ---- the ends of leases as one node's clock knows them ----


def latest_end(clock: NodeClock, knobs: Knobs) -> Timestamp:
    """No lease that anybody was promised by now lasts longer, as long as clocks keep their bounds.

    Who promised had a trusted clock, at most the maximum offset ahead of this one, or refused readings further ahead;
    and the hybrid clock that offered may have been led by as much again, by a clock that was not yet fenced.
    """
    return Timestamp(clock.shown() + knobs.support_ns + 2 * knobs.max_clock_offset_ms * _MS)


class NodeLeaseEnds:
    """Implements `cluster.wire.liveness.LeaseEnds` for a tablet server; `begin` it when the clock's peers are known."""

    def __init__(self, clock: NodeClock, knobs: Knobs) -> None:
        self._clock, self._knobs, self._support_ns = clock, knobs, knobs.support_ns
        self._begun = False
        self._before_start: Timestamp | None = None

    def begin(self) -> None:
        """From now on a clock that is trusted has been proven."""
        self._begun = True
        self.look()

    def look(self) -> None:
        """To be told that the clock is trusted: the sooner it is looked at, the less has to be waited for."""
        if self._before_start is None and self._begun and self._clock.fenced is None:
            self._before_start = latest_end(self._clock, self._knobs)

    def next_end(self) -> int:
        """How far a promise reaches that is asked for now: from the last reading, so no untrusted clock moves it."""
        return self._clock.last + self._support_ns

    def before_start(self) -> int | None:
        """No earlier life of this node has promised more; None while the clock has not been proven."""
        self.look()
        return self._before_start
