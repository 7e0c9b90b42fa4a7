"""The simulator as an environment: machines of a World, its links and clocks, probes as real simulated messages."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from harness.errors import HarnessError
from harness.ports.api import Clock
from harness.ports.machines import CLIENTS, Daemon, Impairment, ProbeFlow, ProcessState, Skew
from harness.ports.sim.clock import SimClock
from harness.ports.sim.world import World
from harness.ports.sim.worlds import CLIENT_MACHINES
from harness.protocols import Fleet, Node

_CAPABILITIES = frozenset({"partition", "client-cut", "full-disk", "clock", "client-clocks", "packets"})
_ON_ANY_LINK = frozenset({"packet-delay", "packet-loss", "packet-corruption", "packet-rate", "packet-clog"})
_OFF_TCP = frozenset({"packet-duplication", "packet-reorder"})
"""What a connection hides from those who use it."""

NO_PROGRAMS = "machines of the simulator run no programs but the reference cluster's"

_PROBE_TIMEOUT_S = 0.5
_A_CLIENT = "c0"


def _renamed(machine: str) -> str:
    return CLIENTS if machine == _A_CLIENT else machine


class SimEnvironment:
    """Implements `harness.protocols.Environment`, `ClockControl` and `PacketShaping` on a World, for one run."""

    name = "sim"

    def __init__(self, world: World) -> None:
        self._world = world
        self._clock = world.harness_ports("harness").clock
        self._nodes: tuple[Node, ...] = ()
        self._cuts: dict[tuple[str, str], None] = {}
        self._clients_matter = False
        self._skews: dict[str, tuple[Skew, int]] = {}

    @property
    def capabilities(self) -> frozenset[str]:
        tcp = self._world.network.plan(_A_CLIENT, _A_CLIENT).tcp
        return _CAPABILITIES | _ON_ANY_LINK | (frozenset() if tcp else _OFF_TCP)

    @property
    def clock(self) -> Clock:
        return self._clock

    @property
    def fleet(self) -> Fleet:
        raise HarnessError(NO_PROGRAMS)

    def data_address(self, node: str) -> str:
        return node

    async def process_state(self, node: str, program: Daemon) -> ProcessState:
        raise HarnessError(NO_PROGRAMS)

    async def incarnation(self, node: str, program: Daemon) -> int | None:
        raise HarnessError(NO_PROGRAMS)

    async def setup(self, nodes: tuple[Node, ...]) -> None:
        """Make the machines; the world makes their links at first use."""
        self._nodes = nodes
        for node in nodes:
            self._world.node(node.name)

    async def cut(self, links: frozenset[tuple[str, str]]) -> None:
        """Drop what goes from source to target, nodes or clients' machines; cuts made on the world by others stay."""
        for source, target in sorted(links):
            self._clients_matter |= CLIENTS in (source, target)
            if not self._world.network.is_cut(source, target):
                self._world.network.cut(source, target)
                self._cuts[source, target] = None
        for source, target in [link for link in self._cuts if link not in links]:
            self._world.network.uncut(source, target)
            del self._cuts[source, target]

    async def heal_network(self) -> None:
        await self.cut(frozenset())

    async def reachability(self) -> Mapping[tuple[str, str], bool]:
        """For every ordered pair of nodes, whether a probe message sent now arrives; one client stands for all."""
        names = [node.name for node in self._nodes] + [_A_CLIENT] * self._clients_matter
        found = await self._world.network.reachability(names, _PROBE_TIMEOUT_S)
        return {(_renamed(source), _renamed(target)): heard for (source, target), heard in found.items()}

    async def skew_clock(self, node: str, skew: Skew | None) -> None:
        """Have one machine's wall clock go like this, whatever its world has it do; None: as its world has it."""
        self._world.node(node).clock.skew(skew)
        if skew is None:
            self._skews.pop(node, None)
        else:
            self._skews[node] = (skew, self._clock.monotonic_ns())

    @property
    def client_machines(self) -> tuple[str, ...]:
        return CLIENT_MACHINES

    async def skew_client_clock(self, machine: str, skew: Skew | None) -> None:
        """Have one client machine's wall clock go like this; None: as its world has it."""
        self._client_clock(machine).skew(skew)

    async def client_offset_ns(self, machine: str) -> int:
        clock = self._client_clock(machine)
        return clock.offset_ns() if clock.skewed else 0

    def _client_clock(self, machine: str) -> SimClock:
        clock = self._world.harness_ports(machine).clock
        assert isinstance(clock, SimClock)
        return clock

    def due_offset_ns(self, node: str) -> int:
        if node not in self._skews:
            return self._world.node(node).clock.own_offset_ns()
        skew, since_ns = self._skews[node]
        return skew.after(self._clock.monotonic_ns() - since_ns)

    async def impair(self, links: Mapping[tuple[str, str], Impairment]) -> None:
        self._world.network.impair(links)

    async def flows(
        self, links: Iterable[tuple[str, str]], count: int, size: int, over_s: float
    ) -> Mapping[tuple[str, str], ProbeFlow]:
        """What datagrams meet that are sent over these links now, all at once."""
        listed = list(links)
        flows = await asyncio.gather(*(self._world.network.flow(*link, count, size, over_s) for link in listed))
        return dict(zip(listed, flows, strict=True))

    async def teardown(self) -> None:
        """Undo the cuts, impairments and skews; the world itself is its owner's to close."""
        await self.heal_network()
        await self.impair({})
        for node in list(self._skews):
            await self.skew_clock(node, None)
