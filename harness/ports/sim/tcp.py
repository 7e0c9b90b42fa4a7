"""A link whose messages ride on a TCP connection: in order, repeated when lost, blocked behind what is missing.

What is lost on the way costs a retransmission, and everything behind it waits (head-of-line blocking). A cut holds
messages back; a short one delivers them late, in a burst, and one of more than `BREAK_NS` without an acknowledgement
breaks the connection, as the real network's user timeout does: what was under way is lost, and the next message pays
for a handshake. Both directions break by themselves here; that data of one needs the acknowledgements of the other is
left out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from harness.ports.api import Channel
from harness.ports.sim.draws import BROKEN, LOST, RESUMED, LinkDraws
from harness.ports.sim.link import HANDSHAKE_TRIPS, PROBES, Link, LinkOptions, Message
from harness.ports.sim.loop import SimLoop

FIRST_TIMEOUT_NS = 200_000_000
"""Linux's shortest retransmission timeout; it doubles with each loss in a row."""

BREAK_NS = 3_000_000_000
_FAST_RETRANSMIT = 0.5


class TcpLink(Link):
    """One direction of a connection. `lost` is told of each message that broke off with it."""

    connected: ClassVar[bool] = True
    __slots__ = ("_cut_at_ns", "_epoch", "_held", "_lost", "_ready_ns")

    def __init__(
        self,
        source: str,
        target: str,
        options: LinkOptions,
        loop: SimLoop,
        draws: LinkDraws,
        lost: Callable[[tuple[Any, ...]], None],
    ) -> None:
        super().__init__(source, target, options, loop, draws)
        self._lost = lost
        self._epoch = 0
        self._ready_ns = 0
        self._cut_at_ns = 0
        self._held: list[Message] = []

    def send(
        self,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        size: int,
        copies: bool = False,
        channel: int = Channel.LOG,
    ) -> None:
        message = (callback, args, size, copies, channel)
        if self._queue is not None:
            self._queue.append(message)
        elif self.cut:
            self._hold(message)
        else:
            self._transmit(message)

    def send_probe(self, callback: Callable[..., object], args: tuple[Any, ...]) -> None:
        if not self.cut and self._queue is None:
            self._loop.post(self._loop.now_ns + self._delay_ns(PROBES), callback, args)

    def sever(self) -> None:
        if not self.cut:
            self.cut = True
            self._cut_at_ns = self._loop.now_ns

    def restore(self) -> None:
        """Deliver what was held back when its next retransmission is due, or lose it with the connection."""
        if not self.cut:
            return
        self.cut = False
        cut_ns = self._loop.now_ns - self._cut_at_ns
        held, self._held = self._held, []
        if cut_ns > BREAK_NS:
            self._break(held)
            return
        # The timeout has doubled since the cut, so the next repetition comes within as much time again.
        self._ready_ns = self._loop.now_ns + int(self._draws[RESUMED][Channel.LOG]() * max(cut_ns, FIRST_TIMEOUT_NS))
        for message in held:
            self._transmit(message)

    def _hold(self, message: Message) -> None:
        if self._loop.now_ns - self._cut_at_ns > BREAK_NS:
            self._lost(message[1])
        else:
            self._held.append(message)

    def _transmit(self, message: Message) -> None:
        options, channel = self.options, message[4]
        if self._happens(options.breaks, BROKEN, channel):
            self._break([])
        sent_ns = max(self._loop.now_ns, self._ready_ns)
        when_ns = sent_ns + self._delay_ns(channel) + self._late_ns(message[2], channel)
        if options.loss:
            when_ns += self._retransmission_ns(channel)
        if options.outage:
            when_ns += self._out_ns(channel)
        # In order: nothing overtakes what is late on its channel, which has a connection of its own.
        self._last_ns[channel] = when_ns = max(when_ns, self._last_ns[channel])
        self._loop.post(when_ns, self._arrive, (self._epoch, message))

    def _arrive(self, epoch: int, message: Message) -> None:
        if epoch != self._epoch:
            self._lost(message[1])
        elif self.cut:
            self._hold(message)
        else:
            message[0](*message[1])

    def _retransmission_ns(self, channel: int) -> int:
        """How much later a segment arrives that may be lost several times; the third duplicate ack spares a timeout."""
        late_ns, timeout_ns = 0, FIRST_TIMEOUT_NS
        while late_ns < BREAK_NS and self._happens(self.options.loss, LOST, channel):
            fast = late_ns == 0 and self._draws[LOST][channel]() < _FAST_RETRANSMIT
            late_ns += 2 * self._delay_ns(channel) if fast else timeout_ns
            timeout_ns *= 2
        return late_ns

    def _delay_ns(self, channel: int) -> int:
        return self._low_ns + int(self._delay[channel]() * self._span_ns)

    def _break(self, held: list[Message]) -> None:
        """What was under way is lost; the next message waits for a new connection."""
        self._epoch += 1
        for message in held:
            self._lost(message[1])
        self._forget_order()
        self._ready_ns = self._loop.now_ns + HANDSHAKE_TRIPS * (self._low_ns + self._span_ns)
