"""Merkle-tree repair of three stores: what is read and sent for it, and deletions that were forgotten (Q2, Q8)."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, cast

from sorted_stores import KNOBS, StoreMachine

from cluster.knobs import Knobs
from cluster.quorum.calls import ReplicaCalls
from cluster.quorum.deletions import Deletion
from cluster.quorum.keys import TOKENS, KeyBytes, encode_key
from cluster.quorum.merkle_repair import RepairRange, Repairs, hash_leaves, stream_span
from cluster.quorum.messages import (
    HashLeaves,
    QuorumReply,
    Repaired,
    ReplicaRequest,
    Stored,
    StreamSpan,
    TakePartitions,
)
from cluster.quorum.mutation import MutationBuilder, PartitionMutation, decode_mutation
from cluster.quorum.replica_sets import Endpoint, ReplicaSet
from cluster.quorum.slices import Slice, visible_rows
from cluster.quorum.sorted.live import SortedOptions
from harness.ports.sim.world import World
from tests.support.played import played

GRACE_MS = 10_000
P = encode_key(("p",))


class Stores:
    """Three stores, one a machine, and a repair that asks them as replicas are asked."""

    def __init__(self, world: World, knobs: Knobs) -> None:
        self.ports, self.knobs = world.harness_ports("coordinator"), knobs
        self.clock = self.ports.clock
        self.machines = {
            name: StoreMachine(world, SortedOptions(), self.purgeable, KNOBS, name) for name in ("a", "b", "c")
        }
        endpoints = tuple(Endpoint(name, name) for name in self.machines)
        self.range = RepairRange(ReplicaSet("tablet", endpoints), (0, TOKENS - 1))
        self.repairs = Repairs(self.ports, knobs, cast(ReplicaCalls, self), lambda: ())

    def purgeable(self, partition: KeyBytes, deletion: Deletion) -> bool:
        return self.now_ms() - deletion.local_time_ms >= GRACE_MS

    def now_ms(self) -> int:
        return self.clock.wall_ns() // 1_000_000

    async def ask(self, endpoint: Endpoint, request: ReplicaRequest, timeout_s: float) -> QuorumReply:
        """The replica's answer, as `ReplicaCalls.ask` gives it."""
        machine = self.machines[endpoint.node_id]
        if isinstance(request, HashLeaves):
            return await hash_leaves(machine.store, request, self.clock)
        if isinstance(request, StreamSpan):
            return await stream_span(machine.store, request, cast(ReplicaCalls, self), self.ports, 1 << 20)
        assert isinstance(request, TakePartitions)
        for each in request.mutations:
            await machine.do(machine.store.apply(decode_mutation(each)))
        return Stored()

    async def apply(self, mutation: PartitionMutation, *names: str) -> None:
        for name in names:
            await self.machines[name].do(self.machines[name].store.apply(mutation))

    async def compact(self) -> None:
        for machine in self.machines.values():
            await machine.do(machine.store.flush())
            await machine.do(machine.store.compact_all())

    async def shown(self, partition: KeyBytes = P) -> list[int]:
        """How many rows each shows."""
        found = []
        for machine in self.machines.values():
            page = await machine.store.read(Slice(partition))
            found.append(len(visible_rows(page.contents)))
        return found

    async def repair(self) -> Repaired:
        return await self.repairs.repair([self.range])


def simulate_stores(scenario: Callable[[Stores], Coroutine[Any, Any, None]], **knobs: int) -> None:
    with World(1) as world:
        stores = Stores(world, Knobs(deletion_grace_ms=GRACE_MS, **knobs))

        async def run() -> None:
            for machine in stores.machines.values():
                await machine.start()
            await scenario(stores)

        world.run(run())


def of_row(partition: KeyBytes, timestamp: int, row: int, size: int = 1) -> PartitionMutation:
    return MutationBuilder(partition, timestamp, 0).write(encode_key((row,)), {1: "x" * size}).build()


async def delete_missed_by_a(stores: Stores) -> None:
    await stores.apply(of_row(P, 1, 1), "a", "b", "c")
    deletion = MutationBuilder(P, 5, stores.now_ms()).delete_row(encode_key((1,))).build()
    await stores.apply(deletion, "b", "c")
    await stores.compact()
    assert await stores.shown() == [1, 0, 0]


@played(simulate_stores)
async def test_a_deletion_that_one_replica_missed_stays_if_the_repair_ran_inside_the_grace_period(
    stores: Stores, /
) -> None:
    await delete_missed_by_a(stores)
    await stores.clock.sleep(GRACE_MS / 2e3)
    assert (await stores.repair()).leaves == 1
    assert await stores.shown() == [0, 0, 0]
    await stores.clock.sleep(GRACE_MS / 1e3)
    await stores.compact()
    assert await stores.repair() == Repaired(1, 0, 0, 0, 0), "nothing is left of it anywhere"
    assert await stores.shown() == [0, 0, 0]


@played(simulate_stores)
async def test_it_comes_back_if_the_repair_came_after_the_grace_period(stores: Stores, /) -> None:
    await delete_missed_by_a(stores)
    await stores.clock.sleep(2 * GRACE_MS / 1e3)
    await stores.compact()
    assert await stores.shown() == [1, 0, 0], "the others have forgotten the deletion"
    assert (await stores.repair()).leaves == 1
    assert await stores.shown() == [1, 1, 1]


@played(simulate_stores)
async def test_a_replica_that_has_forgotten_a_deletion_and_one_that_has_not_are_equal(stores: Stores, /) -> None:
    await stores.apply(of_row(P, 1, 1), "a", "b", "c")
    deletion = MutationBuilder(P, 5, stores.now_ms()).delete_row(encode_key((1,))).build()
    await stores.apply(deletion, "a", "b", "c")
    await stores.clock.sleep(2 * GRACE_MS / 1e3)
    machine = stores.machines["a"]
    await machine.do(machine.store.flush())
    await machine.do(machine.store.compact_all())
    assert (await machine.store.read(Slice(P))).contents.empty
    assert not (await stores.machines["b"].store.read(Slice(P))).contents.empty
    assert await stores.repair() == Repaired(1, 0, 0, 0, 0)


def test_all_of_the_disk_is_read_and_all_of_a_differing_leaf_is_sent() -> None:
    """One cell is missing; the finer the tree, the less is sent for it, and never less than its partition."""
    sent = {}

    def scenario_of(depth: int) -> Callable[[Stores], Coroutine[Any, Any, None]]:
        async def scenario(stores: Stores) -> None:
            partitions = [encode_key((number,)) for number in range(24)]
            for number, partition in enumerate(partitions):
                for row in range(20):
                    await stores.apply(of_row(partition, 1 + number, row, 100), "a", "b", "c")
            await stores.apply(of_row(partitions[3], 1_000, 7), "a", "b")
            await stores.compact()
            on_disk = sum(file.ref.footer_at for m in stores.machines.values() for file in m.store.files)
            repaired = await stores.repair()
            assert (repaired.leaves, repaired.read_bytes) == (1, on_disk)
            sent[depth] = repaired
            pages = [await m.store.read(Slice(partitions[3])) for m in stores.machines.values()]
            assert pages[0] == pages[1] == pages[2]

        return scenario

    for depth in (0, 10):
        simulate_stores(scenario_of(depth), repair_tree_depth=depth)
    assert sent[0].partitions == 3 * 24 and sent[10].partitions == 3
    assert sent[0].sent_bytes > 20 * sent[10].sent_bytes > 20 * 2_000
