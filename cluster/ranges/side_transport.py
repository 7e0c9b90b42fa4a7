"""The side transport of one node (R4): closes timestamps for ranges that nothing is written to, and tells other nodes.

Every `side_transport_ms` each *group* of quiet ranges, those of one policy, is closed together up to a lag behind the
clock, or a lead ahead of it (R6); the ranges that are not quiet are asked one by one whether they can join. So a tick
costs what changed, however many ranges are quiet, and a range's C (`cluster.ranges.promises`) is its group's until
something happens to it.

"side transport 如果发现对应的 range 里有 t_eval，则会跳过该 range" (it skips ranges with writes in flight). A range
joins at T iff its lease is own and not given up, the clock is trusted, nothing of it is proposed or committed and
unapplied, nothing is tracked, and T lies before the end of the lease (`Evaluation.join`). C is T, or above, before any
message names T, with the write index that is applied. A write, another lease, members, a silence that ends, and the end
of its record take it out again, with the T of that moment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from heapq import heappop, heappush
from typing import NamedTuple, Protocol

from cluster.alarm import Alarm
from cluster.failpoints import ASIDE
from cluster.knobs import Knobs
from cluster.nodelog import node_logger
from cluster.ranges.observer import RangeObserver
from cluster.ranges.promises import SharedClosed
from cluster.store.node_clock import NodeClock
from cluster.wire.closing import (
    AskAfresh,
    ClosedAt,
    ClosedIn,
    ClosedOut,
    ClosedUpdate,
    Policy,
    QuietAt,
    decode_side,
)
from cluster.wire.messages import encode
from harness.errors import UNDECODABLE
from harness.ports.api import Peer, Ports
from harness.ports.failpoints import InjectedFailure

_MS = 1_000_000


class Joined(NamedTuple):
    """A range that has joined a group: under which lease, the write index that is applied, who else has a replica.

    `end` is that of the lease's record; None where what the other members' nodes promise counts instead, for as long as
    the range is silent.
    """

    sequence: int
    write_index: int
    others: tuple[str, ...]
    end: int | None


class Closer(Protocol):
    """The leaseholder's side of one range, as the side transport sees it; its replica's where that holds no lease."""

    range_id: str

    @property
    def policy(self) -> Policy:
        """Which ranges it is closed with: those of the same lag, ns, or below 0 of the same lead."""

    @property
    def leads(self) -> bool:
        """Whether its replica here leads it; else it closes nothing."""

    def join(self, shared: SharedClosed, on_leave: Callable[[], None]) -> Joined | None:
        """Close what the group has closed and go on with it, if that may be done now."""

    def leave(self) -> None:
        """Go on alone."""

    def keep(self, known: ClosedAt) -> None:
        """How far the range was closed by another node."""


class Streams(Protocol):
    """What carries the messages."""

    def post_aside(self, target: str, message: bytes) -> None:
        """Send to a server, in order, if it gets there."""

    def supported(self, server: str) -> int:
        """Up to where that server lets leases of this node's silent groups last."""

    def refuses(self, peer: Peer, source: str) -> bool:
        """Whether this peer can't speak for that server (G9)."""


class _Group:
    """The quiet ranges of one policy."""

    def __init__(self) -> None:
        self.shared = SharedClosed()
        self.joined: dict[str, Joined] = {}
        self.ends: list[tuple[int, str]] = []
        """A heap of the ends of records, of ranges that may have left by now."""


class SideTransport:
    """Runs between `start` and `close`; ranges `attend` from when they are open. With a period of 0 it does nothing."""

    def __init__(
        self,
        ports: Ports,
        knobs: Knobs,
        clock: NodeClock,
        streams: Streams,
        observer: RangeObserver,
        flaws: frozenset[str],
    ) -> None:
        self._ports, self._clock, self._streams, self._observer = ports, clock, streams, observer
        self._flaws = flaws
        self._log = node_logger(ports.node_id)
        self._period_ns = knobs.side_transport_ms * _MS
        self._alarm = Alarm(ports.clock, self._tick)
        self._closers: dict[str, Closer] = {}
        self._active: dict[str, None] = {}
        """Ranges that are in no group."""
        self._groups: dict[Policy, _Group] = {}
        self._silent: dict[str, int] = {}
        """By server, how many ranges in groups last by what it promises."""
        self._out: dict[str, ClosedOut] = {}
        self._in: dict[str, ClosedIn] = {}
        self._late: dict[asyncio.Task[None], None] = {}

    # ---- what the owner calls ----

    def start(self) -> None:
        """Begin to tick."""
        if self._period_ns:
            self._alarm.set(self._ports.clock.monotonic_ns() + self._period_ns)

    def close(self) -> None:
        """Tick no more."""
        self._alarm.cancel()
        for task in list(self._late):
            task.cancel()

    def attend(self, closer: Closer) -> None:
        """This range has a replica here, which is told what other nodes close."""
        self._closers[closer.range_id] = closer

    def consider(self, range_id: str) -> None:
        """A replica here leads the range: it is to be closed from the next tick on, as soon as it can be."""
        if range_id in self._closers and not any(range_id in each.joined for each in self._groups.values()):
            self._active[range_id] = None

    def forget(self, closer: Closer) -> None:
        """The replica of this range here is closed."""
        closer.leave()
        if self._closers.get(closer.range_id) is closer:
            del self._closers[closer.range_id]
            self._active.pop(closer.range_id, None)

    def known(self, range_id: str) -> Iterable[ClosedAt]:
        """What streams from other nodes, or this one, go on to tell of this range."""
        for group in self._groups.values():
            joined = group.joined.get(range_id)
            if joined is not None:
                yield ClosedAt(range_id, joined.write_index, group.shared.closed)
        for stream in self._in.values():
            known = stream.known(range_id)
            if known is not None:
                yield known

    # ---- closing ----

    def _tick(self) -> None:
        self._alarm.set(self._ports.clock.monotonic_ns() + self._period_ns)
        if self._clock.fenced is not None:
            return
        reading = self._clock.reading()
        for policy, group in self._groups.items():
            self._advance(group, reading - policy)
        active = list(self._active)
        self._active = dict.fromkeys(active)  # made anew: one of which most keys are gone takes as long to go through
        for range_id in active:
            closer = self._closers[range_id]
            if not closer.leads:
                del self._active[range_id]
                continue
            if closer.policy not in self._groups:
                self._groups[closer.policy] = _Group()
                self._advance(self._groups[closer.policy], reading - closer.policy)
            self._ask(closer.policy, self._groups[closer.policy], closer)
        for group in self._groups.values():
            self._observer.ranges_closed(group.shared.closed, group.joined)
        times = {policy: group.shared.closed for policy, group in self._groups.items()}
        for target, stream in self._out.items():
            update = stream.message(times)
            if update is not None:
                self._send(target, encode(update))

    def _advance(self, group: _Group, target: int) -> None:
        """Close the group up to `target`, or as far as every lease in it lasts."""
        supported = min(map(self._streams.supported, self._silent), default=None)
        if supported is not None and supported <= target and "closed-past-lease" not in self._flaws:
            target = supported - 1
        while group.ends and group.ends[0][0] <= target and "closed-past-lease" not in self._flaws:
            end, range_id = heappop(group.ends)
            joined = group.joined.get(range_id)
            if joined is not None and joined.end == end:
                self._closers[range_id].leave()
        if target > group.shared.closed:
            group.shared.closed = target

    def _ask(self, policy: Policy, group: _Group, closer: Closer) -> None:
        joined = closer.join(group.shared, partial(self._left, policy, closer.range_id))
        if joined is None:
            return
        group.joined[closer.range_id] = joined
        self._active.pop(closer.range_id)
        if joined.end is not None:
            heappush(group.ends, (joined.end, closer.range_id))
        for server in joined.others:
            if joined.end is None:
                self._silent[server] = self._silent.get(server, 0) + 1
            stream = self._out.get(server)
            if stream is None:
                stream = self._out[server] = ClosedOut(self._ports.node_id, self._ports.incarnation)
            stream.join(closer.range_id, QuietAt(policy, joined.write_index))

    def _left(self, policy: Policy, range_id: str) -> None:
        """Something has happened to a quiet range; what it has closed until now stands."""
        group = self._groups[policy]
        joined = group.joined.pop(range_id)
        self._active[range_id] = None
        self._closers[range_id].keep(ClosedAt(range_id, joined.write_index, group.shared.closed))
        for server in joined.others:
            self._out[server].leave(range_id)
            if joined.end is None:
                self._silent[server] -= 1
                if not self._silent[server]:
                    del self._silent[server]

    # ---- messages ----

    def _send(self, target: str, message: bytes) -> None:
        failpoints = self._ports.failpoints
        if failpoints.armed:
            try:
                rest = failpoints.rest(ASIDE)
            except InjectedFailure:
                return  # lost, as any message may be
            if rest is not None:
                task = asyncio.create_task(self._send_late(rest, target, message), name=f"closing.{target}")
                self._late[task] = None
                task.add_done_callback(self._late.pop)
                return
        self._streams.post_aside(target, message)

    async def _send_late(self, rest: Awaitable[None], target: str, message: bytes) -> None:
        await rest
        self._streams.post_aside(target, message)

    def receive(self, peer: Peer, payload: bytes) -> None:
        """Take a message of another node's side transport in."""
        try:
            message = decode_side(payload)
        except UNDECODABLE as error:
            self._log.warning("a message of %s is none of the side transport: %s", peer.node_id, error)
            return
        if self._streams.refuses(peer, message.source):
            return
        if isinstance(message, AskAfresh):
            stream = self._out.get(message.source)
            if stream is not None:
                stream.afresh()
            return
        self._take(message)

    def _take(self, update: ClosedUpdate) -> None:
        stream = self._in.get(update.source)
        if stream is None:
            stream = self._in[update.source] = ClosedIn(self._flaws)
        kept, broken = stream.take(update)
        for known in kept:
            closer = self._closers.get(known.range_id)
            if closer is not None:
                closer.keep(known)
        if broken:
            self._streams.post_aside(update.source, encode(AskAfresh(self._ports.node_id)))
