"""Which replica a client takes for the nearest: by pings in the background, and by what answers told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec

from cluster.client.client import ClusterClient
from cluster.client.reading import Nearby
from cluster.wire.messages import WIRE_VERSION
from harness.cell_address import CellAddress
from harness.ports.api import node_of
from harness.ports.sim.link import LinkOptions
from harness.ports.sim.world import World
from tests.cluster.table_rig import KNOBS, TableRig

MS = 1_000_000
S = 1_000 * MS


def test_the_nearest_comes_first_and_who_did_not_answer_last() -> None:
    now_ns = [0]
    near = Nearby(lambda: now_ns[0])
    assert near.due("abc") == ["a", "b", "c"] and not near.knows("abc")
    near.answered("b", 5 * MS)
    near.answered("a", 9 * MS)
    near.missed("c")
    assert near.nearest("abcd") == ["b", "a", "d", "c"] and near.due("abcd") == ["d"]
    now_ns[0] = 3 * S
    assert near.due("abc") == ["c"]
    near.answered("c", MS)
    assert near.nearest("abc") == ["c", "b", "a"], "one answer is enough where it was away"
    now_ns[0] = 12 * S
    assert near.due("abc") == ["a", "b"] and near.nearest("abc") == ["c", "b", "a"], "what was known still counts"


def test_those_about_as_near_come_in_turn_and_for_one_read_always_in_the_same() -> None:
    """A scan waited at one replica for a time that another had said it could be read at (bounded-staleness, --nemesis
    all --swarm, seed 3444569557112412862)."""
    near = Nearby(lambda: 0)
    for name, took_ms in zip("abcd", (5, 4, 14, 15), strict=True):
        near.answered(name, took_ms * MS)
    orders = [near.nearest_in_turn("abcd", turn) for turn in range(40)]
    assert orders == [near.nearest_in_turn("dcba", turn) for turn in range(40)]
    assert {each[0] for each in orders} == set("abc") and {each[3] for each in orders} == {"d"}


def test_closed_times_follow_the_clock() -> None:
    now_ns = [0]
    near = Nearby(lambda: now_ns[0])
    assert near.may_serve("tablet", "a", 1_000)
    near.note_closed("tablet", "a", 900)
    assert not near.may_serve("tablet", "a", 1_000)
    now_ns[0] = 100
    assert near.may_serve("tablet", "a", 1_000) and not near.may_serve("tablet", "a", 1_001)
    now_ns[0] = 3 * S
    assert near.may_serve("tablet", "a", 4 * S), "it may have caught up by now"


def play_far(scenario: Callable[[TableRig], Coroutine[Any, Any, None]], between_ms: int) -> None:
    """The higher its number, the farther away a server is from clients; and so far they are from each other."""

    def plan(source: str, target: str) -> LinkOptions:
        numbers = [int(name[1:]) for name in (source, target) if name[:1] == "t"]
        away = (sum(numbers) * 10 if len(numbers) == 1 else between_ms) * MS
        return LinkOptions(delay_ns=(away, away))

    with World(1, network=plan, version=WIRE_VERSION) as world:
        world.run(scenario(TableRig(world, msgspec.structs.replace(KNOBS, closed_lag_ms=300))))


async def begun(rig: TableRig) -> tuple[ClusterClient, int, list[str]]:
    """A client, when it wrote, and the nodes that have the tablet, the nearest first."""
    await rig.begin()
    client = rig.database.admin_client(5)
    written = (await client.write("registers", CellAddress(0), 1)).reply.timestamp
    await asyncio.sleep(2)
    (tablet,) = (await client.table_locations("registers")).tablets
    return client, written, sorted(node_of(replica.node_id) for replica in tablet.replicas)


def test_how_long_a_read_takes_says_nothing_of_how_far_a_replica_is_away() -> None:
    """A strong read from a follower takes a round trip to the leaseholder more."""

    async def scenario(rig: TableRig) -> None:
        client, written, nodes = await begun(rig)
        for _ in range(10):
            await client.read("registers", CellAddress(0), strong_anywhere=True)
        read = await client.read("registers", CellAddress(0), as_of=written)
        assert node_of(read.node) == nodes[0]
        client.close()

    play_far(scenario, 100)


def test_reads_go_to_the_nearest_replica_and_when_that_is_dead_wait_for_it_once_at_most() -> None:
    async def scenario(rig: TableRig) -> None:
        client, written, (nearest, second, *_) = await begun(rig)
        reads = [await client.read("registers", CellAddress(0), as_of=written) for _ in range(5)]
        assert {node_of(read.node) for read in reads} == {nearest}
        await rig.database.kill(nearest)
        clock, slow = rig.database.admin_clock(), 0
        for _ in range(20):
            began_ns = clock.monotonic_ns()
            read = await client.read("registers", CellAddress(0), as_of=written)
            slow += clock.monotonic_ns() - began_ns > S // 2
            assert node_of(read.node) == second
            await clock.sleep(0.5)
        assert slow <= 1
        await rig.database.start(nearest)
        await clock.sleep(5)
        for _ in range(3):
            read = await client.read("registers", CellAddress(0), as_of=written)
            await clock.sleep(1)
        assert node_of(read.node) == nearest
        client.close()

    play_far(scenario, 1)
