"""The simulator as an environment: machines of a World, cuts of its links, probes as real simulated messages."""

from __future__ import annotations

from collections.abc import Mapping

from harness.ports import Clock
from harness.protocols import CLIENTS, Node
from harness.sim.world import World
from harness.sim.worlds import CLIENT_MACHINES

_PROBE_TIMEOUT_S = 0.5
_A_CLIENT = "c0"


def _renamed(machine: str) -> str:
    return CLIENTS if machine == _A_CLIENT else machine


class SimEnvironment:
    """Implements `harness.protocols.Environment` on a World, for one run."""

    name = "sim"
    capabilities = frozenset({"partition", "client-cut"})

    def __init__(self, world: World) -> None:
        self._world = world
        self._clock = world.harness_ports("harness").clock
        self._nodes: tuple[Node, ...] = ()
        self._cuts: dict[tuple[str, str], None] = {}
        self._clients_matter = False

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

    async def teardown(self) -> None:
        """Undo the cuts; the world itself is its owner's to close."""
        await self.heal_network()
