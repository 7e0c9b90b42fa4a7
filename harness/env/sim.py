"""The simulator as an environment: machines of a World, cuts of its links, probes as real simulated messages."""

from __future__ import annotations

from collections.abc import Mapping

from harness.ports import Clock
from harness.protocols import Node
from harness.sim.world import World
from harness.sim.worlds import CLIENT_MACHINES

_PROBE_TIMEOUT_S = 0.5


class SimEnvironment:
    """Implements `harness.protocols.Environment` on a World, for one run."""

    name = "sim"
    capabilities = frozenset({"partition"})

    def __init__(self, world: World) -> None:
        self._world = world
        self._clock = world.harness_ports("harness").clock
        self._nodes: tuple[Node, ...] = ()
        self._cuts: dict[tuple[str, str], None] = {}

    @property
    def clock(self) -> Clock:
        return self._clock

    async def setup(self, nodes: tuple[Node, ...]) -> None:
        """Make the machines; the world makes their links at first use."""
        self._nodes = nodes
        for node in nodes:
            self._world.node(node.name)

    @property
    def client_machines(self) -> tuple[str, ...]:
        return CLIENT_MACHINES

    async def cut(self, links: frozenset[tuple[str, str]]) -> None:
        """Drop what goes from source to target, nodes or clients' machines, for links that are not cut already."""
        for source, target in sorted(links):
            if not self._world.network.link(source, target).cut:
                self._world.network.cut(source, target)
                self._cuts[source, target] = None

    async def heal_network(self) -> None:
        """Undo the cuts made here; cuts made on the world by others stay."""
        cuts, self._cuts = self._cuts, {}
        for source, target in cuts:
            self._world.network.uncut(source, target)

    async def reachability(self) -> Mapping[tuple[str, str], bool]:
        """For every ordered pair of nodes, whether a probe message sent now arrives."""
        return await self._world.network.reachability([node.name for node in self._nodes], _PROBE_TIMEOUT_S)

    async def teardown(self) -> None:
        """Undo the cuts; the world itself is its owner's to close."""
        await self.heal_network()
