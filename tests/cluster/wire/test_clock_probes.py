"""Whom a node's clock is measured against, and what it costs to learn that there are more (G3)."""

from __future__ import annotations

from collections.abc import Iterable

from cluster.knobs import Knobs
from cluster.store.clock_guard import ClockLimits
from cluster.store.node_clock import NodeClock
from cluster.wire.clocked import ClockProbes
from harness.ports.sim.world import World


def test_only_a_new_peer_has_all_of_them_counted_again() -> None:
    """A thousand tablets on the same servers are a thousand looks at three addresses, not at all replicas each time."""
    with World(1) as world:
        ports = world.harness_ports("h")
        counted: list[int] = []
        known: list[str] = []

        def peers() -> Iterable[str]:
            counted.append(len(known))
            return tuple(known)

        clock = NodeClock(ports.clock, ClockLimits.of(Knobs()))
        probes = ClockProbes(ports, clock, 1_000, peers)

        async def main() -> None:
            probes.start()
            await ports.clock.sleep(0.1)
            counted.clear()
            for address in ("t2:7050", "t3:7050"):
                known.append(address)
                probes.meet((address,))
                assert clock.peers == tuple(known), "it counts from the moment it is met"
            asked = len(counted)
            for _ in range(1_000):
                probes.meet(tuple(known))
            assert len(counted) == asked
            await probes.close()

        world.run(main())
