"""How long a cluster is waited for that does not serve yet."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from cluster.deploy.readiness import await_ready
from harness.ports.sim.world import World
from harness.protocols import GroupStatus, Node, NodeStatus

NODES = [Node("t1", "tserver"), Node("t2", "tserver")]


class Unheard:
    """A leader master that has not heard from a tablet server until `ready_s`."""

    def __init__(self, world: World, ready_s: float) -> None:
        self._clock, self._ready_ns = world.harness_ports("harness").clock, int(ready_s * 1e9)

    async def tablet_servers(self) -> Any:
        heard = self._clock.monotonic_ns() >= self._ready_ns
        return type("Reply", (), {"live": ("t1", "t2") if heard else ("t1",)})

    async def list_tables(self) -> Sequence[Any]:
        return ()


def waited(lacked_each_s: int, ready_s: float, nears: bool = True) -> float:
    """Seconds until the cluster was ready, of which a follower lacks that many entries less each second."""
    with World(1) as world:
        clock = world.harness_ports("harness").clock

        async def statuses() -> dict[str, NodeStatus | None]:
            held = min(100, int(clock.monotonic_ns() / 1e9 * lacked_each_s))
            replicas = (("t1", "leader", 100), ("t2", "follower", held))
            return {
                name: NodeStatus(
                    name, "tserver", 1, (GroupStatus("g", role, 1, ("t1", "t2"), "t1", 1, 1, last, 1, False),)
                )
                for name, role, last in replicas
            }

        async def main() -> float:
            client: Any = Unheard(world, ready_s)
            await asyncio.wait_for(await_ready(client, NODES, statuses, clock, 10.0, nears), 100)
            return clock.monotonic_ns() / 1e9

        return world.run(main())


def test_who_comes_no_nearer_to_serving_is_given_up() -> None:
    assert waited(0, 9.0) == pytest.approx(9.0, abs=0.2)
    with pytest.raises(TimeoutError, match=r"not ready within 10 s: the leader master has not heard from t2"):
        waited(0, 11.0)


def test_who_brings_followers_up_is_waited_for_but_not_for_ever() -> None:
    """`leader-returns` with seed 455: a leader came back with a tail that took its followers 12 s."""
    assert waited(5, 19.0) == pytest.approx(19.0, abs=0.2)
    assert waited(5, 29.0) == pytest.approx(29.0, abs=0.2)
    with pytest.raises(TimeoutError):
        waited(5, 19.0, nears=False)
    with pytest.raises(TimeoutError):
        waited(5, 31.0)
    with pytest.raises(TimeoutError):
        waited(2, 41.0)
