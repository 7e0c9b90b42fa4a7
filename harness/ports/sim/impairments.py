"""Links that faults make bad at run time, and the probes that tell what packets meet on them."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from harness.ports.flows import LOOK_S, FlowWait, ProbeFlow
from harness.ports.machines import Impairment
from harness.ports.sim.link import Link, LinkOptions
from harness.ports.sim.loop import SimLoop

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
        """Send so many in this time, wait for them (`harness.ports.flows`), and say what became of them."""
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
