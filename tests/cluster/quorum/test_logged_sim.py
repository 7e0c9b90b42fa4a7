"""Logged tables in the simulator, step by step: neither of the tears of legacy ones, and ids that nobody uses twice."""

from __future__ import annotations

import asyncio

import pytest
from quorum_play import FROM_NS, QuorumPlay, deleted, everything, part, play_quorum, rows_of, wrote
from test_tears import OLD, seen, write_to_one

from cluster.config import Knobs
from cluster.failpoints import QUORUM_POINTS
from cluster.quorum.ids import MutationId
from cluster.quorum.messages import (
    ANY_EPOCH,
    BelowFence,
    BoundTold,
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
from harness.failpoints import Arming

NEW = dict.fromkeys(OLD, "new")


def test_a_read_of_two_rows_brings_all_of_a_write_that_reached_one_replica() -> None:
    async def scenario(play: QuorumPlay) -> None:
        a, b, c = play.replicas
        d, e = play.others
        assert isinstance(await play.write(e, wrote(10, "old", 1, 2, 3, 4), "ALL"), Written)
        await write_to_one(play, d, a, 20, "new")
        assert await play.held(a) == NEW
        assert await play.held(b) == await play.held(c) == OLD

        reply = await play.read(e, part(1, 2), (b, a))
        assert isinstance(reply, PageRead) and reply.replicas == (b, a)
        assert rows_of(reply.page) == {1: "new", 2: "new"}, "applied to the data of one that lacked it"
        assert await play.held(b) == NEW, "whole, and before the client was answered"
        assert await play.held(c) == OLD
        assert seen(await play.read(e, everything(), (b, c))) == NEW
        assert await play.held(c) == NEW

    play_quorum(scenario, design="logged")


def test_a_short_read_forwards_a_write_that_arrives_between_two_answers() -> None:
    async def scenario(play: QuorumPlay) -> None:
        a, b, c = play.replicas
        d, e = play.others
        await play.write(e, wrote(10, "old", 1, 2, 3, 4), "ALL")
        play.cut(d, a)
        assert isinstance(await play.write(d, deleted(15, 2), "QUORUM"), Written)
        await play.database.kill(d)
        play.heal()
        assert await play.held(a) == OLD

        held, reached = asyncio.Event(), asyncio.Event()

        async def hold() -> None:
            reached.set()
            await held.wait()

        coordinator = play.world.node(e).failpoints
        coordinator.arm(Arming("quorum.before_follow_up", lambda point: hold()))
        reading = asyncio.create_task(play.read(e, everything(limit=3), (a, b)))
        await reached.wait()
        assert await play.held(a) == {1: "old", 3: "old", 4: "old"}, "it has the deletion that it had missed"

        # Between A's two answers W of r1 to r4 is acknowledged by A and C.
        play.cut(c, b)
        assert isinstance(await play.write(c, wrote(20, "new", 1, 2, 3, 4), "QUORUM"), Written)
        assert await play.held(b) == {1: "old", 3: "old", 4: "old"}
        coordinator.disarm("quorum.before_follow_up")
        held.set()

        assert seen(await reading) == {1: "new", 2: "new", 3: "new"}, "all of the page is of the later moment"
        assert await play.held(b) == NEW, "who was asked as well has the write by now"

    play_quorum(scenario, design="logged")


def test_ids_and_mutations_survive_restarts_and_what_is_known_is_not_stored_again() -> None:
    async def scenario(play: QuorumPlay) -> None:
        a, _, _ = play.replicas
        partition = everything().partition
        for number in range(1, 6):
            assert isinstance(await play.write(a, wrote(number, f"v{number}", number), "ALL"), Written)
        ask = SummarizePartition(play.tablet_id, ANY_EPOCH, partition, 0, ALL_IDS)
        before = await play.ask(a, ask)
        assert isinstance(before, Summarized) and before.summary.ids is not None and before.summary.count == 5
        await play.database.kill(a)
        await play.database.start(a)

        async def back() -> bool:
            return await play.ask(a, ask) == before

        await play.until(back, "the same ids after a restart")
        fetched = await play.ask(a, FetchMutations(play.tablet_id, ANY_EPOCH, before.summary.ids))
        assert isinstance(fetched, MutationsFetched)
        assert {each.mutation for each in fetched.mutations} == {
            encode_mutation(wrote(number, f"v{number}", number)) for number in range(1, 6)
        }
        other = LoggedMutation(before.summary.ids[0], encode_mutation(wrote(99, "another", 9)))
        assert await play.ask(a, DeliverMutations(play.tablet_id, ANY_EPOCH, (other, *fetched.mutations))) == Stored()
        assert 9 not in await play.held(a), "an id names one mutation for ever"
        assert await play.ask(a, ask) == before

    play_quorum(scenario, design="logged")


def test_each_design_refuses_what_is_of_the_other() -> None:
    async def scenario(play: QuorumPlay) -> None:
        a, _, _ = play.replicas
        encoded = encode_mutation(wrote(1, "x", 1))
        named = LoggedMutation(MutationId(1, "t9"), encoded)
        mine = StoreLogged(play.tablet_id, ANY_EPOCH, named)
        plain = StoreMutation(play.tablet_id, ANY_EPOCH, encoded)
        own, others = (mine, plain) if play.design == "logged" else (plain, mine)
        assert isinstance(reply := await play.ask(a, others), ErrorReply) and reply.definite
        assert await play.held(a) == {}
        assert await play.ask(a, own) == Stored() and not isinstance(reply, BelowFence)

    for design in ("logged", "legacy"):
        play_quorum(scenario, design=design)


@pytest.mark.parametrize("design", ["logged", "legacy"])
def test_a_deletion_carries_its_coordinator_s_clock_whatever_its_client_says(design: str) -> None:
    async def scenario(play: QuorumPlay) -> None:
        before_ms = play.ports.clock.wall_ns() // 1_000_000
        assert isinstance(await play.write(play.others[0], deleted(5, 2), "ALL"), Written)
        for name in play.replicas:
            reply = await play.ask(name, ReadReplica(play.table, everything()))
            assert isinstance(reply, PageRead)
            (row,) = reply.page.contents.rows
            assert row.deletion is not None and row.deletion.timestamp == FROM_NS + 5
            assert 0 <= row.deletion.local_time_ms - before_ms < 1_000

    play_quorum(scenario, design=design)


def test_every_failpoint_of_coordinators_and_replicas_is_reached() -> None:
    async def scenario(play: QuorumPlay) -> None:
        a, b, _ = play.replicas
        d, e = play.others
        for name in (*play.replicas, d, e):
            for point in QUORUM_POINTS:
                play.world.node(name).failpoints.arm(Arming(point, "delay", times=0, seconds=0.001))
        await play.write(d, wrote(1, "old", 1, 2, 3, 4), "ALL")
        play.cut(d, a)
        await play.write(d, deleted(2, 2), "QUORUM", timeout_s=0.3)
        await asyncio.sleep(0.5)
        play.heal()
        await play.read(e, everything(limit=3), (a, b))
        play.cut(d, a)
        await play.write(d, wrote(3, "new", 5), "QUORUM", timeout_s=0.3)
        play.heal()
        listed = await play.ask(b, ListIds(play.tablet_id, 0, 0, 1 << 62))
        assert isinstance(listed, IdsListed) and listed.ids
        address = Replica(a, play.database.address(a))
        assert await play.ask(b, SendMutations(play.tablet_id, 0, listed.ids, address)) == Stored()
        assert isinstance(await play.ask(a, RaiseFenceTo(play.tablet_id, 0, 1)), BoundTold)
        assert await play.ask(a, RaiseLowBound(play.tablet_id, 0, 1)) == Stored()
        play.cut(d, a)
        await play.write(d, wrote(4, "newer", 6), "QUORUM", timeout_s=0.3)
        play.heal()

        async def all_but_streams() -> bool:
            """Of these a reconciliation passes some; streams are of legacy tables' repair."""
            acted = [dict(play.world.node(name).body.acted) for name in (*play.replicas, d, e)]
            unseen = [point for point in QUORUM_POINTS if not any(each.get(point) for each in acted)]
            return unseen == ["quorum.before_stream"]

        await play.until(all_but_streams, "every failpoint, the coordinator's of a reconciliation too")

    late = Knobs(poll_period_ms=0, reconcile_period_ms=2_500, write_timeout_ms=200, reconcile_margin_ms=100)
    play_quorum(scenario, design="logged", knobs=late)


def test_data_and_summary_are_one_moment_and_with_the_flaw_a_write_between_them_is_missed() -> None:
    """W is acknowledged by B and C; A gets it between its data and its answer to a read that began later."""

    async def scenario(play: QuorumPlay) -> None:
        a, b, _ = play.replicas
        d, e = play.others
        await play.write(e, wrote(10, "old", 1), "ALL")
        play.cut(d, a)
        assert isinstance(await play.write(d, wrote(20, "new", 1), "QUORUM"), Written)
        assert await play.held(a) == {1: "old"}
        held, reached = asyncio.Event(), asyncio.Event()

        async def hold() -> None:
            reached.set()
            await held.wait()

        play.world.node(a).failpoints.arm(Arming("quorum.after_rows", lambda point: hold()))
        reading = asyncio.create_task(play.read(e, everything(), (a, b)))
        await reached.wait()
        await play.read(e, everything(), (b, a))
        assert await play.held(a) == {1: "new"}, "another read has brought it"
        held.set()
        shown.append(seen(await reading))

    shown: list[dict[int, str]] = []
    play_quorum(scenario, design="logged")
    play_quorum(scenario, design="logged", flaws=("summary-after-data",))
    assert shown == [{1: "new"}, {1: "old"}], "what was acknowledged before the read began is missed"
