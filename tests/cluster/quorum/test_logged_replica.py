"""One replica of a logged table over a store whose every durable step the test lets happen (Q5 to Q8)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, cast

from cluster.knobs import Knobs
from cluster.observer import UNOBSERVED
from cluster.quorum.calls import ReplicaCalls
from cluster.quorum.deletions import Deletion
from cluster.quorum.fence import Fence, decode_fence
from cluster.quorum.ids import MutationId
from cluster.quorum.messages import (
    BelowFence,
    BoundReply,
    DeliverMutations,
    IdsListed,
    ListIds,
    LoggedMutation,
    QuorumReply,
    RaiseFenceTo,
    RaiseLowBound,
    ReadSnapshot,
    ReplicaRequest,
    SendMutations,
    SnapshotGone,
    SnapshotRead,
    Stored,
    StoreLogged,
    SummarizePartition,
)
from cluster.quorum.messages import PartitionSummary as Summarized
from cluster.quorum.mutation import encode_mutation
from cluster.quorum.partition_store import Arrival, PartitionStore
from cluster.quorum.replica import LoggedReplica
from cluster.quorum.rows import NOTHING
from cluster.quorum.slices import Page, Slice
from cluster.quorum.summaries import ALL_IDS
from cluster.wire.messages import CreateTablet, ErrorReply, Partition, Replica
from harness.ports.failpoints import Arming, ProcessFailpoints
from harness.ports.sim.world import World
from tests.cluster.quorum.quorum_rig import FROM_NS, PARTITION, everything, wrote
from tests.support.played import played

TABLET = "tablet"
KNOBS = Knobs(deletion_grace_ms=1, listed_ids=3)


def named(time: int, node: str = "x") -> LoggedMutation:
    return LoggedMutation(MutationId(time, node), encode_mutation(wrote(time, "v", time)))


class SlowStore:
    """Mutations and notes are durable when the test says so; what is read shows nothing, and is late as well."""

    def __init__(self, noted: bytes | None = None) -> None:
        self.noted = noted
        self.replica: LoggedReplica
        self.syncing = asyncio.Event()
        self.reading = asyncio.Event()
        self.reading.set()
        self.kept: dict[int, bytes] = {}

    def begin_apply(self, arrivals: Sequence[Arrival]) -> asyncio.Future[None]:
        return asyncio.create_task(self._apply(arrivals))

    async def _apply(self, arrivals: Sequence[Arrival]) -> None:
        await self.syncing.wait()
        for each in arrivals:
            assert each.id is not None
            number = len(self.kept) + 1
            self.kept[number] = each.encoded
            self.replica.log.stored(number, each.id, each.mutation.partition)

    async def note(self, note: bytes) -> None:
        await self.syncing.wait()
        self.noted = note

    async def find(self, number: int) -> bytes | None:
        return self.kept.get(number)

    async def read(self, asked: Slice) -> Page:
        await self.reading.wait()
        return Page(NOTHING)

    def release(self) -> None:
        pass


class Played:
    """A replica, and what it is asked."""

    def __init__(self, world: World) -> None:
        self.ports = world.harness_ports("t1")
        self.failpoints = cast(ProcessFailpoints, self.ports.failpoints)
        self.begin()

    def begin(self, noted: bytes | None = None) -> None:
        """A life, which knows what was noted before."""
        created = CreateTablet(TABLET, True, TABLET, "table", "name", Partition(0, 1), (), 0, (), "logged")
        self.replica = LoggedReplica(self.ports, created, KNOBS, UNOBSERVED, ())
        self.store = SlowStore(noted)
        self.store.replica = self.replica
        self.replica.opened(cast(PartitionStore, self.store))

    async def ask(self, request: ReplicaRequest) -> QuorumReply:
        return await self.replica.answer(cast(PartitionStore, self.store), request, cast(ReplicaCalls, None))

    async def begun(self, request: ReplicaRequest) -> asyncio.Task[QuorumReply]:
        """It is asked, and has come as far as it can without anything durable."""
        task = asyncio.create_task(self.ask(request))
        await asyncio.sleep(0.01)
        return task

    async def stored(self, *times: int) -> None:
        self.store.syncing.set()
        for time in times:
            assert await self.ask(StoreLogged(TABLET, 0, named(time))) == Stored()
        self.store.syncing.clear()

    async def raised(self, time: int, bound: bool = True) -> None:
        self.store.syncing.set()
        assert isinstance(await self.ask(RaiseFenceTo(TABLET, 0, time)), BoundReply)
        if bound:
            assert await self.ask(RaiseLowBound(TABLET, 0, time)) == Stored()
        self.store.syncing.clear()


def play(scenario: Callable[[Played], Coroutine[Any, Any, None]]) -> None:
    with World(1) as world:

        async def run() -> None:
            await scenario(Played(world))

        world.run(run())


@played(play)
async def test_what_is_stored_while_rows_are_read_belongs_to_no_snapshot_before(played: Played, /) -> None:
    await played.stored(1, 2)
    for as_of, newer in ((None, []), (1, [2])):
        played.store.reading.clear()
        reading = await played.begun(ReadSnapshot(TABLET, 0, everything(), as_of))
        count = len(played.store.kept)
        await played.stored(count + 1)
        played.store.reading.set()
        reply = await reading
        assert isinstance(reply, SnapshotRead) and reply.as_of == reply.summary.count == count
        expected = [time for time in range(1, count + 1) if newer and time > 1]
        assert [each.id.time for each in reply.newer] == expected
        then = await played.ask(SummarizePartition(TABLET, 0, PARTITION, 0, ALL_IDS, reply.as_of))
        assert isinstance(then, Summarized) and then.summary.count == count


@played(play)
async def test_a_replica_that_can_t_send_all_that_came_since_sends_no_rows(played: Played, /) -> None:
    await played.stored(1, 2, 3)
    del played.store.kept[2]
    asked = ReadSnapshot(TABLET, 0, everything(), 1)
    assert isinstance(await played.ask(asked), SnapshotGone)


@played(play)
async def test_whoever_sends_a_mutation_again_waits_until_it_is_durable(played: Played, /) -> None:
    first = await played.begun(StoreLogged(TABLET, 0, named(1)))
    again = await played.begun(StoreLogged(TABLET, 0, named(1)))
    delivered = await played.begun(DeliverMutations(TABLET, 0, (named(1), named(2))))
    assert not any(each.done() for each in (first, again, delivered))
    played.store.syncing.set()
    assert await asyncio.gather(first, again, delivered) == [Stored()] * 3
    assert len(played.store.kept) == 2


@played(play)
async def test_a_fence_is_answered_when_it_is_durable_and_nothing_below_it_is_on_its_way(played: Played, /) -> None:
    store = played.store
    coming = await played.begun(StoreLogged(TABLET, 0, named(5)))
    late, store.syncing = store.syncing, asyncio.Event()
    store.syncing.set()
    fencing = await played.begun(RaiseFenceTo(TABLET, 0, 6))
    assert store.noted is not None and decode_fence(store.noted) == Fence(6, 0)
    assert not fencing.done(), "a mutation below it is on its way"
    assert await played.ask(StoreLogged(TABLET, 0, named(4))) == BelowFence(6)
    late.set()
    assert await coming == Stored() and isinstance(await fencing, BoundReply)
    store.syncing.clear()
    fencing = await played.begun(RaiseFenceTo(TABLET, 0, 8))
    assert not fencing.done() and await played.ask(StoreLogged(TABLET, 0, named(7))) == BelowFence(8)
    store.syncing.set()
    assert isinstance(await fencing, BoundReply) and decode_fence(store.noted) == Fence(8, 0)


@played(play)
async def test_a_mutation_that_waited_is_refused_by_the_fence_that_came_meanwhile(played: Played, /) -> None:
    played.failpoints.arm(Arming("quorum.before_store", "delay", seconds=0.5))
    waiting = await played.begun(StoreLogged(TABLET, 0, named(5)))
    await played.raised(6)
    played.store.syncing.set()
    assert await waiting == BelowFence(6) and not played.store.kept


@played(play)
async def test_nothing_is_forgotten_for_a_bound_before_it_is_durable_and_a_restart_goes_on_from_it(
    played: Played, /
) -> None:
    await played.stored(3, 7)
    young = Deletion(FROM_NS, FROM_NS // 1_000_000)
    old = Deletion(1, 0)
    await played.raised(2_000_000, bound=False)
    assert not played.replica.purgeable(PARTITION, old), "it is a fence, and no bound"
    raising = await played.begun(RaiseLowBound(TABLET, 0, 2_000_000))
    log = played.replica.log
    assert not raising.done() and log.low_bound == 0 and log.needs_from == 1
    assert not played.replica.purgeable(PARTITION, old)
    played.store.syncing.set()
    assert await raising == Stored()
    assert log.low_bound == 2_000_000 and log.needs_from is None
    assert played.replica.purgeable(PARTITION, old) and not played.replica.purgeable(PARTITION, young)

    played.begin(played.store.noted)
    played.replica.log.stored(1, named(3).id, PARTITION)
    told = await played.ask(SummarizePartition(TABLET, 0, PARTITION))
    assert isinstance(told, Summarized) and (told.summary.bound, told.summary.count) == (2_000_000, 0)
    assert await played.ask(StoreLogged(TABLET, 0, named(9))) == BelowFence(2_000_000)


def test_ids_are_listed_page_by_page_and_all_of_them_though_many_have_one_time() -> None:
    async def scenario(played: Played) -> None:
        counts = {1: 2, 2: 5, 3: 1, 4: 3, 6: 1}
        ids = [MutationId(time, f"n{at}") for time, count in counts.items() for at in range(count)]
        for number, each in enumerate(ids, 1):
            played.replica.log.stored(number, each, PARTITION)
        found: list[MutationId] = []
        low, pages = 0, 0
        while low < 10:
            reply = await played.ask(ListIds(TABLET, 0, low, 10))
            assert isinstance(reply, IdsListed) and reply.complete_below > low
            found += reply.ids
            low, pages = reply.complete_below, pages + 1
        assert found == ids and pages > 3

    play(scenario)


@played(play)
async def test_what_is_not_here_was_not_sent(played: Played, /) -> None:
    await played.stored(1)
    target = Replica("t2", "t2:1")
    for ids in ((MutationId(9, "x"),), (MutationId(1, "x"), MutationId(9, "x"))):
        reply = await played.ask(SendMutations(TABLET, 0, ids, target))
        assert isinstance(reply, ErrorReply) and (reply.kind, reply.definite) == ("NOT_FOUND", True)
