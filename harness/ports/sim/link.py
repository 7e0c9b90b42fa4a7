"""One direction of a simulated network path between two machines, and what can be wrong with it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeAlias

from harness.ports.api import Channel
from harness.ports.machines import LOOK_S, FlowWait, Impairment, ProbeFlow
from harness.ports.sim.draws import CLOGGED, DELAY, DUPLICATED, LOST, OUTAGE, REORDERED, STALLED, LinkDraws
from harness.ports.sim.loop import SimLoop

Message: TypeAlias = tuple[Callable[..., object], tuple[Any, ...], int, bool, int]
"""What to call at the other end, with what; its size in bytes, whether it may arrive twice, and its channel."""

PROBES = len(Channel)
"""What probes send keeps an order of its own, behind the channels'."""

HANDSHAKE_TRIPS = 3
"""One-way trips before the first message of a new connection leaves: SYN, SYN-ACK, and our hello before it."""

_CLOG_NS = (50_000_000, 1_000_000_000)
_OUTAGE_NS = (200_000_000, 2_000_000_000)


@dataclass(frozen=True, slots=True)
class LinkOptions:
    """How a link treats messages. Delays are uniform between the two bounds, ns.

    `loss`, `duplication` and `reorder` are probabilities per message; a reordered message takes up to `reorder_ns`
    longer and others may overtake it. Only notifications are duplicated (a connection delivers a call at most once).
    `rate_bytes_per_s` limits throughput. `slow` is the probability of a delay drawn up to `slow_ns` instead, `clog`
    that of the link standing still for up to a second, after which everything arrives in a burst, `outage` that of
    everything being lost for up to two seconds.

    With `tcp` messages ride on a connection (`sim.tcp`): none is duplicated or reordered, `loss` costs time,
    and `breaks` is the probability per message that the connection breaks.
    """

    delay_ns: tuple[int, int] = (200_000, 2_000_000)
    loss: float = 0.0
    duplication: float = 0.0
    reorder: float = 0.0
    reorder_ns: int = 20_000_000
    slow: float = 0.0
    slow_ns: int = 50_000_000
    rate_bytes_per_s: int | None = None
    clog: float = 0.0
    outage: float = 0.0
    tcp: bool = False
    breaks: float = 0.0


class Link:
    """Carries messages from one machine to another, in order on each channel unless told to reorder.

    While `cut`, messages are dropped, those under way too; while clogged they queue, to leave in a burst.
    """

    connected: ClassVar[bool] = False
    """Whether messages go to the process that listened when they were sent, and to no other."""

    __slots__ = (
        "_busy_ns",
        "_clear",
        "_clogged_until_ns",
        "_delay",
        "_draws",
        "_last_ns",
        "_loop",
        "_low_ns",
        "_out_until_ns",
        "_plain",
        "_queue",
        "_span_ns",
        "cut",
        "options",
        "source",
        "target",
    )

    def __init__(
        self,
        source: str,
        target: str,
        options: LinkOptions,
        loop: SimLoop,
        draws: LinkDraws,
    ) -> None:
        self.source = source
        self.target = target
        self.cut = False
        self._loop = loop
        self._draws = draws
        self._delay = draws[DELAY]
        self._queue: list[Message] | None = None
        self._forget_order()
        self.set_options(options)

    def set_options(self, options: LinkOptions) -> None:
        """Treat messages like this from now on; those under way may be overtaken, so that an old delay soon ends, but
        on a connection never."""
        self.options = options
        if not self.connected:
            self._forget_order()
        self._busy_ns = [0] * len(Channel)
        self._clogged_until_ns = self._out_until_ns = 0
        low, high = options.delay_ns
        self._low_ns, self._span_ns = low, high - low
        steady = not (options.clog or options.outage) and options.rate_bytes_per_s is None
        self._plain = steady and not (options.loss or options.duplication or options.reorder or options.slow)
        self._look_whether_clear()

    def _look_whether_clear(self) -> None:
        """Whether a message meets nothing but a delay."""
        self._clear = self._plain and not self.cut and self._queue is None

    def _forget_order(self) -> None:
        self._last_ns = [0] * (len(Channel) + 1)

    @property
    def disturbed(self) -> bool:
        """Whether it is cut or clogged, by a fault or by chance."""
        return (
            self.cut or self._queue is not None or self._loop.now_ns < max(self._clogged_until_ns, self._out_until_ns)
        )

    def connect(self) -> None:
        """A process has found an address that it had not talked to yet: what it sends waits for the handshake."""
        ready_ns = self._loop.now_ns + HANDSHAKE_TRIPS * (self._low_ns + self._span_ns)
        self._last_ns = [max(ready_ns, last_ns) for last_ns in self._last_ns]

    def sever(self) -> None:
        """Cut the link."""
        self.cut = True
        self._look_whether_clear()

    def restore(self) -> None:
        """Undo a cut."""
        self.cut = False
        self._look_whether_clear()

    def send_probe(self, callback: Callable[..., object], args: tuple[Any, ...]) -> None:
        """Send what only asks whether anything arrives."""
        self.send(callback, args, 64)

    def send(
        self,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        size: int,
        copies: bool = False,
        channel: int = Channel.LOG,
    ) -> None:
        """Let `callback(*args)` happen at the other end after a delay, unless the message is lost on the way."""
        if not self._clear:
            if self._queue is not None and not self.cut:
                self._queue.append((callback, args, size, copies, channel))
            elif not self.cut:
                self._send_with_trouble(self._drawn_ns(channel), callback, args, size, copies, channel)
            return
        loop, last_ns = self._loop, self._last_ns
        when_ns = loop.now_ns + self._low_ns + int(self._delay[channel]() * self._span_ns)
        if when_ns < last_ns[channel]:
            when_ns = last_ns[channel]
        else:
            last_ns[channel] = when_ns
        loop.post(when_ns, callback, args)

    def _drawn_ns(self, channel: int) -> int:
        """When a message that leaves now arrives if nothing happens to it."""
        return self._loop.now_ns + self._low_ns + int(self._delay[channel]() * self._span_ns)

    def send_datagram(self, callback: Callable[..., object], args: tuple[Any, ...], size: int) -> None:
        """Send a datagram of a probe: it meets what packets meet here, whatever messages ride on."""
        if self._queue is not None and not self.cut:
            self._queue.append((callback, args, size, True, Channel.LOG))
        elif not self.cut:
            self._send_with_trouble(self._drawn_ns(PROBES), callback, args, size, True, PROBES)

    def clog(self) -> None:
        """Queue everything from now on."""
        if self._queue is None:
            self._queue = []
            self._look_whether_clear()

    def unclog(self) -> None:
        """Send what was queued, in a burst."""
        queue, self._queue = self._queue, None
        self._look_whether_clear()
        for message in queue or ():
            self.send(*message)

    @property
    def clogged(self) -> bool:
        return self._queue is not None

    def _send_with_trouble(
        self,
        when_ns: int,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        size: int,
        copies: bool,
        channel: int,
    ) -> None:
        options = self.options
        if self._happens(options.loss, LOST, channel) or (options.outage and self._out_ns(channel)):
            return
        when_ns += self._late_ns(size, channel)
        if self._happens(options.reorder, REORDERED, channel):
            when_ns += int(self._draws[REORDERED][channel]() * options.reorder_ns)
        else:
            when_ns = self._last_ns[channel] = max(when_ns, self._last_ns[channel])
        self._loop.post(when_ns, callback, args)
        if copies and self._happens(options.duplication, DUPLICATED, channel):
            late_ns = int(self._draws[DUPLICATED][channel]() * options.reorder_ns)
            self._loop.post(when_ns + late_ns, callback, args)

    def _happens(self, probability: float, kind: str, channel: int) -> bool:
        return bool(probability) and self._draws[kind][channel]() < probability

    def _late_ns(self, size: int, channel: int) -> int:
        """What stalls, the rate and clogs add to a delay."""
        options, late_ns = self.options, self._queueing_ns(size, channel)
        if self._happens(options.slow, STALLED, channel):
            late_ns += int(self._draws[STALLED][channel]() * options.slow_ns)
        return max(late_ns, self._clogged_ns(channel)) if options.clog else late_ns

    def _clogged_ns(self, channel: int) -> int:
        now_ns = self._loop.now_ns
        if now_ns >= self._clogged_until_ns and self._happens(self.options.clog, CLOGGED, channel):
            self._clogged_until_ns = now_ns + self._between(_CLOG_NS, CLOGGED, channel)
        return max(0, self._clogged_until_ns - now_ns)

    def _out_ns(self, channel: int) -> int:
        """How long everything is lost from now on, 0 if nothing is."""
        now_ns = self._loop.now_ns
        if now_ns >= self._out_until_ns and self._happens(self.options.outage, OUTAGE, channel):
            self._out_until_ns = now_ns + self._between(_OUTAGE_NS, OUTAGE, channel)
        return max(0, self._out_until_ns - now_ns)

    def _between(self, bounds_ns: tuple[int, int], kind: str, channel: int) -> int:
        low_ns, high_ns = bounds_ns
        return low_ns + int(self._draws[kind][channel]() * (high_ns - low_ns))

    def _queueing_ns(self, size: int, channel: int) -> int:
        """What waits on the own channel and on more urgent ones leaves first."""
        rate = self.options.rate_bytes_per_s
        if rate is None:
            return 0
        now_ns = self._loop.now_ns
        channel = Channel.LOG if channel == PROBES else channel
        ahead_ns = max(now_ns, *self._busy_ns[: channel + 1])
        self._busy_ns[channel] = ahead_ns + size * 1_000_000_000 // rate
        return self._busy_ns[channel] - now_ns


BILLION = 1_000_000_000


def impaired(options: LinkOptions, by: Impairment) -> LinkOptions:
    """A link's options with an impairment added; a broken packet fails its checksum, and so is a lost one.

    Clogs are no matter of options (`Link.clog`).
    """
    low_ns, high_ns = options.delay_ns
    delay_ns = int(by.delay_s * BILLION)
    rates = [rate for rate in (options.rate_bytes_per_s, by.rate_bytes_per_s) if rate is not None]
    return replace(
        options,
        delay_ns=(low_ns + delay_ns, high_ns + delay_ns + int(by.jitter_s * BILLION)),
        loss=1 - (1 - options.loss) * (1 - by.loss) * (1 - by.corruption),
        duplication=max(options.duplication, by.duplication),
        reorder=max(options.reorder, by.reorder),
        rate_bytes_per_s=min(rates, default=None),
    )


class FlowProbe:
    """Datagrams of one probe over a link, and when they arrived."""

    def __init__(self, loop: SimLoop, link: Link, size: int) -> None:
        self._loop = loop
        self._link = link
        self._size = size
        self._sent_ns: list[int] = []
        self._arrived_ns: dict[int, int] = {}
        self._copies = 0

    def send(self) -> None:
        """Send the next one."""
        self._link.send_datagram(self._arrive, (len(self._sent_ns),), self._size)
        self._sent_ns.append(self._loop.now_ns)

    def _arrive(self, number: int) -> None:
        if not self._link.cut:
            self._copies += 1
            self._arrived_ns.setdefault(number, self._loop.now_ns)

    async def carry_out(self, count: int, over_s: float) -> ProbeFlow:
        """Send `count` in this time, wait for them (`harness.ports.machines`), and say what became of them."""
        for _ in range(count):
            self.send()
            await asyncio.sleep(over_s / count)
        wait, waited_s, over = FlowWait(count), 0.0, False
        while not over:
            await asyncio.sleep(LOOK_S)
            waited_s += LOOK_S
            over = wait.over((len(self._arrived_ns),), waited_s)
        return self.flow()

    def flow(self) -> ProbeFlow:
        """What has arrived by now."""
        start_ns = self._sent_ns[0]
        arrivals = [self._arrived_ns.get(number) for number in range(len(self._sent_ns))]
        return ProbeFlow(
            tuple((at_ns - start_ns) / BILLION for at_ns in self._sent_ns),
            tuple(None if at_ns is None else (at_ns - start_ns) / BILLION for at_ns in arrivals),
            self._copies,
            self._size,
        )
