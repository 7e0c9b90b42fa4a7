"""Logged tables in the simulator, step by step: neither of the tears of legacy ones, and ids that nobody uses twice."""

from __future__ import annotations

import asyncio

import pytest
from test_tears import OLD, seen, write_to_one

from cluster.knobs import Knobs
from cluster.quorum.ids import MutationId
from cluster.quorum.messages import (
    ANY_EPOCH,
    BelowFence,
    BoundReply,
    DeliverMutations,
    FetchMutations,
    IdsListed,
    ListIds,
    LoggedMutation,
    MutationsFetched,
    PageRead,
    RaiseFenceTo,
    RaiseLowBound,
    ReadReplica,
    SendMutations,
    Stored,
    StoreLogged,
    StoreMutation,
    SummarizePartition,
    Written,
)
from cluster.quorum.messages import PartitionSummary as Summarized
from cluster.quorum.mutation import encode_mutation
from cluster.quorum.summaries import ALL_IDS
from cluster.wire.messages import ErrorReply, Replica
from tests.cluster.quorum.quorum_rig import (
    FROM_NS,
    SimQuorumRig,
    deleted,
    everything,
    part,
    play_quorum,
    rows_of,
    wrote,
)
from tests.support.played import played

NEW = dict.fromkeys(OLD, "new")


@played(play_quorum, design="logged")
async def test_a_read_of_two_rows_brings_all_of_a_write_that_reached_one_replica(rig: SimQuorumRig, /) -> None:
    a, b, c = rig.replicas
    d, e = rig.others
    assert isinstance(await rig.write(e, wrote(10, "old", 1, 2, 3, 4), "ALL"), Written)
    await write_to_one(rig, d, a, 20, "new")
    assert await rig.held(a) == NEW
    assert await rig.held(b) == await rig.held(c) == OLD

    reply = await rig.read(e, part(1, 2), (b, a))
    assert isinstance(reply, PageRead) and reply.replicas == (b, a)
    assert rows_of(reply.page) == {1: "new", 2: "new"}, "applied to the data of one that lacked it"
    assert await rig.held(b) == NEW, "whole, and before the client was answered"
    assert await rig.held(c) == OLD
    assert seen(await rig.read(e, everything(), (b, c))) == NEW
    assert await rig.held(c) == NEW


@played(play_quorum, design="logged")
async def test_a_short_read_forwards_a_write_that_arrives_between_two_answers(rig: SimQuorumRig, /) -> None:
    a, b, c = rig.replicas
    d, e = rig.others
    await rig.write(e, wrote(10, "old", 1, 2, 3, 4), "ALL")
    rig.cut(d, a)
    assert isinstance(await rig.write(d, deleted(15, 2), "QUORUM"), Written)
    await rig.database.kill(d)
    rig.heal()
    assert await rig.held(a) == OLD

    reached, released = rig.hold(e, "quorum.before_follow_up")
    reading = asyncio.create_task(rig.read(e, everything(limit=3), (a, b)))
    await reached.wait()
    assert await rig.held(a) == {1: "old", 3: "old", 4: "old"}, "it has the deletion that it had missed"

    # Between A's two answers W of r1 to r4 is acknowledged by A and C.
    rig.cut(c, b)
    assert isinstance(await rig.write(c, wrote(20, "new", 1, 2, 3, 4), "QUORUM"), Written)
    assert await rig.held(b) == {1: "old", 3: "old", 4: "old"}
    rig.world.node(e).failpoints.disarm("quorum.before_follow_up")
    released.set()

    assert seen(await reading) == {1: "new", 2: "new", 3: "new"}, "all of the page is of the later moment"
    assert await rig.held(b) == NEW, "who was asked as well has the write by now"


@played(play_quorum, design="logged", breaches={"answers-are-durable": 1})  # by what is forged at the end
async def test_ids_and_mutations_survive_restarts_and_what_is_known_is_not_stored_again(rig: SimQuorumRig, /) -> None:
    a, _, _ = rig.replicas
    partition = everything().partition
    for number in range(1, 6):
        assert isinstance(await rig.write(a, wrote(number, f"v{number}", number), "ALL"), Written)
    ask = SummarizePartition(rig.tablet_id, ANY_EPOCH, partition, 0, ALL_IDS)
    before = await rig.ask(a, ask)
    assert isinstance(before, Summarized) and before.summary.ids is not None and before.summary.count == 5
    await rig.database.kill(a)
    await rig.database.start(a)

    async def back() -> bool:
        return await rig.ask(a, ask) == before

    await rig.until(back, "the same ids after a restart")
    fetched = await rig.ask(a, FetchMutations(rig.tablet_id, ANY_EPOCH, before.summary.ids))
    assert isinstance(fetched, MutationsFetched)
    assert {each.mutation for each in fetched.mutations} == {
        encode_mutation(wrote(number, f"v{number}", number)) for number in range(1, 6)
    }
    other = LoggedMutation(before.summary.ids[0], encode_mutation(wrote(99, "another", 9)))
    assert await rig.ask(a, DeliverMutations(rig.tablet_id, ANY_EPOCH, (other, *fetched.mutations))) == Stored()
    assert 9 not in await rig.held(a), "an id names one mutation for ever"
    assert await rig.ask(a, ask) == before


def test_each_design_refuses_what_is_of_the_other() -> None:
    async def scenario(rig: SimQuorumRig) -> None:
        a, _, _ = rig.replicas
        encoded = encode_mutation(wrote(1, "x", 1))
        named = LoggedMutation(MutationId(1, "t9"), encoded)
        mine = StoreLogged(rig.tablet_id, ANY_EPOCH, named)
        plain = StoreMutation(rig.tablet_id, ANY_EPOCH, encoded)
        own, others = (mine, plain) if rig.design == "logged" else (plain, mine)
        assert isinstance(reply := await rig.ask(a, others), ErrorReply) and reply.definite
        assert await rig.held(a) == {}
        assert await rig.ask(a, own) == Stored() and not isinstance(reply, BelowFence)

    for design in ("logged", "legacy"):
        play_quorum(scenario, design=design)


@pytest.mark.parametrize("design", ["logged", "legacy"])
def test_a_deletion_carries_its_coordinator_s_clock_whatever_its_client_says(design: str) -> None:
    async def scenario(rig: SimQuorumRig) -> None:
        before_ms = rig.ports.clock.wall_ns() // 1_000_000
        assert isinstance(await rig.write(rig.others[0], deleted(5, 2), "ALL"), Written)
        for name in rig.replicas:
            reply = await rig.ask(name, ReadReplica(rig.table, everything()))
            assert isinstance(reply, PageRead)
            (row,) = reply.page.contents.rows
            assert row.deletion is not None and row.deletion.timestamp == FROM_NS + 5
            assert 0 <= row.deletion.local_time_ms - before_ms < 1_000

    play_quorum(scenario, design=design)


def test_every_failpoint_of_coordinators_and_replicas_is_reached() -> None:
    async def scenario(rig: SimQuorumRig) -> None:
        a, b, _ = rig.replicas
        d, _ = rig.others
        await rig.pass_failpoints((a, b))
        listed = await rig.ask(b, ListIds(rig.tablet_id, 0, 0, 1 << 62))
        assert isinstance(listed, IdsListed) and listed.ids
        address = Replica(a, rig.database.address(a))
        assert await rig.ask(b, SendMutations(rig.tablet_id, 0, listed.ids, address)) == Stored()
        assert isinstance(await rig.ask(a, RaiseFenceTo(rig.tablet_id, 0, 1)), BoundReply)
        assert await rig.ask(a, RaiseLowBound(rig.tablet_id, 0, 1)) == Stored()
        rig.cut(d, a)
        await rig.write(d, wrote(4, "newer", 6), "QUORUM", timeout_s=0.3)
        rig.heal()

        async def all_but_streams() -> bool:
            """Of these a reconciliation passes some; streams are of legacy tables' repair."""
            return rig.points_not_passed() == ["quorum.before_stream"]

        await rig.until(all_but_streams, "every failpoint, the coordinator's of a reconciliation too")

    late = Knobs(poll_period_ms=0, reconcile_period_ms=2_500, write_timeout_ms=200, reconcile_margin_ms=100)
    play_quorum(scenario, design="logged", knobs=late)


def test_data_and_summary_are_one_moment_and_with_the_flaw_a_write_between_them_is_missed() -> None:
    """W is acknowledged by B and C; A gets it between its data and its answer to a read that began later."""

    async def scenario(rig: SimQuorumRig) -> None:
        a, b, _ = rig.replicas
        d, e = rig.others
        await rig.write(e, wrote(10, "old", 1), "ALL")
        rig.cut(d, a)
        assert isinstance(await rig.write(d, wrote(20, "new", 1), "QUORUM"), Written)
        assert await rig.held(a) == {1: "old"}
        reached, released = rig.hold(a, "quorum.after_rows")
        reading = asyncio.create_task(rig.read(e, everything(), (a, b)))
        await reached.wait()
        await rig.read(e, everything(), (b, a))
        assert await rig.held(a) == {1: "new"}, "another read has brought it"
        released.set()
        shown.append(seen(await reading))

    shown: list[dict[int, str]] = []
    play_quorum(scenario, design="logged")
    play_quorum(scenario, design="logged", flaws=("summary-after-data",))
    assert shown == [{1: "new"}, {1: "old"}], "what was acknowledged before the read began is missed"
