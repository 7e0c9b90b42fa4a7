"""Idle groups on simulated nodes (G6): they send and write nothing, keep their leases, and fail over as ever."""

from __future__ import annotations

import asyncio

import pytest

from bench.idle import NODES, Idle
from cluster.knobs import Knobs
from cluster.wire.messages import GetStatus, StatusReply, decode_reply, encode
from harness.ports.machines import ProcessState
from harness.ports.sim.world import World

TABLETS = 20
KNOBS = Knobs()


async def statuses(idle: Idle) -> dict[str, StatusReply]:
    """What each node that answers says of itself."""
    replies = {}
    for node in NODES:
        if idle.world.node(node.node_id).state is ProcessState.RUNNING:
            reply = decode_reply(await idle.ports.network.call(node.address, encode(GetStatus()), 1.0))
            assert isinstance(reply, StatusReply)
            replies[node.node_id] = reply
    return replies


async def leases(idle: Idle) -> dict[str, str]:
    """Who holds a valid lease of each group; nobody else does."""
    found: dict[str, str] = {}
    for name, reply in (await statuses(idle)).items():
        for group in reply.groups:
            if group.lease_valid:
                assert found.setdefault(group.group, name) == name
    return found


def test_idle_tablets_cost_no_messages_and_no_log_entries() -> None:
    with World(1) as world:
        idle = Idle(world, TABLETS, KNOBS)
        world.run(idle.start())

        async def scenario() -> None:
            before, delivered = await statuses(idle), world.network.delivered
            await asyncio.sleep(10)
            # Two nodes exchange a heartbeat and its echo each 100 ms, each way, tell each other five times a second
            # what is closed, and measure clocks once a second.
            assert world.network.delivered - delivered < 10 * 3 * 2 * 30
            after = await statuses(idle)
            for name, reply in after.items():
                assert [group.last_index for group in reply.groups] == [each.last_index for each in before[name].groups]
                assert [group.term for group in reply.groups] == [each.term for each in before[name].groups]
            assert len(await leases(idle)) == TABLETS

        world.run(scenario())


@pytest.mark.parametrize("seed", range(3))
def test_leaders_of_idle_tablets_are_followed_by_others_within_the_goal(seed: int) -> None:
    """An election timeout, a lease and half a second: though nobody had said anything in these groups for long."""
    with World(seed) as world:
        idle = Idle(world, TABLETS, KNOBS)
        world.run(idle.start())

        async def scenario() -> None:
            holders = await leases(idle)
            victim = max(NODES, key=lambda node: list(holders.values()).count(node.node_id)).node_id
            world.node(victim).kill()
            await asyncio.sleep(2 * KNOBS.election_timeout_ms / 1e3 + 0.5)
            after = await leases(idle)
            assert len(after) >= 0.9 * TABLETS and victim not in after.values()

        world.run(scenario())


def test_a_paused_node_loses_the_leases_of_its_idle_tablets() -> None:
    """Its heartbeats have stopped; when it goes on it claims no lease that others have by now."""
    with World(2) as world:
        idle = Idle(world, TABLETS, KNOBS)
        world.run(idle.start())

        async def scenario() -> None:
            holders = await leases(idle)
            victim = next(iter(holders.values()))
            world.node(victim).pause()
            await asyncio.sleep(3)
            world.node(victim).resume()
            for _ in range(100):
                await leases(idle)
                await asyncio.sleep(0.02)
            assert len(await leases(idle)) == TABLETS

        world.run(scenario())
