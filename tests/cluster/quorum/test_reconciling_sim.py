"""Reconciliation of logged tables in the simulator: what is missed is delivered, bounds rise, fences hold (Q6, Q7)."""

from __future__ import annotations

import asyncio

from quorum_play import FROM_NS, QuorumPlay, deleted, everything, play_quorum, rows_of, wrote

from cluster.config import Knobs
from cluster.quorum.ids import MutationId
from cluster.quorum.messages import (
    AskLowBound,
    BelowFence,
    BoundTold,
    DeliverMutations,
    IdsListed,
    ListIds,
    LoggedMutation,
    PageRead,
    RaiseFenceTo,
    RaiseLowBound,
    Stored,
    StoreLogged,
    Written,
)
from cluster.quorum.mutation import encode_mutation
from cluster.wire.messages import ErrorReply
from harness.failpoints import Arming

POLLED = Knobs(poll_period_ms=100, reconcile_period_ms=0)
SOON = Knobs(poll_period_ms=200, reconcile_period_ms=200, write_timeout_ms=200, reconcile_margin_ms=100)
FAR = 1 << 62


async def bounds(play: QuorumPlay) -> list[int]:
    found = []
    for name in play.replicas:
        reply = await play.ask(name, AskLowBound(play.tablet_id, 0))
        assert isinstance(reply, BoundTold)
        found.append(reply.low_bound)
    return found


async def ids_at(play: QuorumPlay, name: str) -> tuple[MutationId, ...]:
    reply = await play.ask(name, ListIds(play.tablet_id, 0, 0, FAR))
    assert isinstance(reply, IdsListed) and reply.complete_below == FAR
    return reply.ids


async def missed_by_first(play: QuorumPlay, coordinator: str) -> None:
    """A write that the first replica misses, whose coordinator dies."""
    play.cut(coordinator, play.replicas[0])
    assert isinstance(await play.write(coordinator, wrote(5, "new", 1, 2), "QUORUM"), Written)
    await play.database.kill(coordinator)
    play.heal()


async def all_hold(play: QuorumPlay, rows: dict[int, str]) -> None:
    async def equal() -> bool:
        return [await play.held(name) for name in play.replicas] == len(play.replicas) * [rows]

    await play.until(equal, f"{rows} at all replicas")


def test_what_a_replica_missed_is_delivered_without_a_read_a_hint_or_a_fence() -> None:
    async def scenario(play: QuorumPlay) -> None:
        await missed_by_first(play, play.others[0])
        await all_hold(play, {1: "new", 2: "new"})
        assert await bounds(play) == [0, 0, 0], "no bound was raised for it"
        assert len({await ids_at(play, name) for name in play.replicas}) == 1

    play_quorum(scenario, design="logged", knobs=POLLED)


def test_bounds_rise_and_nothing_is_kept_below_them_also_after_restarts() -> None:
    async def scenario(play: QuorumPlay) -> None:
        await missed_by_first(play, play.others[0])
        named = await ids_at(play, play.replicas[1])

        async def raised() -> bool:
            return min(await bounds(play)) > max(each.time for each in named)

        await play.until(raised, "a bound above the write")
        await all_hold(play, {1: "new", 2: "new"})
        for name in play.replicas:
            assert await ids_at(play, name) == ()
        before = await bounds(play)
        for name in play.replicas:
            await play.database.kill(name)
            await play.database.start(name)

        async def back() -> bool:
            return all(now >= then for now, then in zip(await bounds(play), before, strict=True))

        await play.until(back, "bounds at least as high as before")
        await all_hold(play, {1: "new", 2: "new"})

    play_quorum(scenario, design="logged", knobs=SOON)


def test_new_mutations_below_a_fence_are_refused_and_delivered_ones_below_the_bound_are_passed_over() -> None:
    async def scenario(play: QuorumPlay) -> None:
        a = play.replicas[0]
        old = LoggedMutation(MutationId(1_000, "x"), encode_mutation(wrote(5, "old", 1)))
        assert isinstance(await play.ask(a, RaiseLowBound(play.tablet_id, 0, 2_000)), ErrorReply), (
            "no fence is that high"
        )
        assert await play.ask(a, StoreLogged(play.tablet_id, 0, old)) == Stored()
        assert isinstance(await play.ask(a, RaiseFenceTo(play.tablet_id, 0, 2_000)), BoundTold)
        late = LoggedMutation(MutationId(1_999, "x"), encode_mutation(wrote(6, "late", 2)))
        assert await play.ask(a, StoreLogged(play.tablet_id, 0, late)) == BelowFence(2_000)
        assert await play.held(a) == {1: "old"}
        await play.database.kill(a)
        await play.database.start(a)

        async def refused() -> bool:
            return await play.ask(a, StoreLogged(play.tablet_id, 0, late)) == BelowFence(2_000)

        await play.until(refused, "the fence after a restart")
        assert await play.ask(a, DeliverMutations(play.tablet_id, 0, (late,))) == Stored(), "another replica has it"
        assert await play.held(a) == {1: "old", 2: "late"}
        for name in play.replicas[1:]:
            assert await play.ask(name, DeliverMutations(play.tablet_id, 0, (old, late))) == Stored()
        assert await play.ask(a, RaiseLowBound(play.tablet_id, 0, 2_000)) == Stored()
        again = LoggedMutation(MutationId(1_500, "x"), encode_mutation(wrote(7, "again", 3)))
        assert await play.ask(a, DeliverMutations(play.tablet_id, 0, (again,))) == Stored()
        assert await play.held(a) == {1: "old", 2: "late"}, "all had it once: what deleted it may be forgotten"
        for request in (RaiseFenceTo(play.tablet_id, 7, 9_000), RaiseLowBound(play.tablet_id, 7, 9_000)):
            reply = await play.ask(a, request)
            assert isinstance(reply, ErrorReply) and reply.kind == "WRONG_EPOCH"

    play_quorum(scenario, design="logged")


def test_a_write_below_a_fence_failed_if_all_refused_it_else_it_is_unknown_and_the_next_one_is_above() -> None:
    async def scenario(play: QuorumPlay) -> None:
        a, *others = play.replicas
        d = play.others[0]
        assert isinstance(await play.write(d, wrote(1, "first", 1), "ALL"), Written)

        async def fence(*names: str) -> None:
            told = await play.ask(a, AskLowBound(play.tablet_id, 0))
            assert isinstance(told, BoundTold)
            for name in names:
                raised = RaiseFenceTo(play.tablet_id, 0, told.clock_ns + 450_000_000)
                assert isinstance(await play.ask(name, raised), BoundTold)

        await fence(*play.replicas)
        refused = await play.write(d, wrote(2, "nowhere", 1), "ONE")
        assert isinstance(refused, ErrorReply) and (refused.kind, refused.definite) == ("UNAVAILABLE", True)
        assert isinstance(await play.write(d, wrote(3, "second", 1), "ALL"), Written), "ids begin above the fence"
        await asyncio.sleep(1)
        await fence(a)
        unknown = await play.write(d, wrote(4, "third", 1), "ALL")
        assert isinstance(unknown, ErrorReply) and (unknown.kind, unknown.definite) == ("UNAVAILABLE", False)
        assert [await play.held(name) for name in (a, *others)] == [{1: "second"}, {1: "third"}, {1: "third"}]
        assert isinstance(await play.write(d, wrote(5, "fourth", 1), "ALL"), Written)

    play_quorum(scenario, design="logged")


def test_a_fence_above_the_replica_s_clock_and_the_offset_of_clocks_is_refused_and_shuts_nobody_out() -> None:
    async def scenario(play: QuorumPlay) -> None:
        a, clock = play.replicas[0], play.ports.clock
        offset_ns = Knobs().max_clock_offset_ms * 1_000_000
        for ahead_ns in (offset_ns + 1_000_000_000, FAR - clock.wall_ns()):
            reply = await play.ask(a, RaiseFenceTo(play.tablet_id, 0, clock.wall_ns() + ahead_ns))
            assert isinstance(reply, ErrorReply) and (reply.kind, reply.definite) == ("CLOCK_OFFSET", True)
        new = LoggedMutation(MutationId(clock.wall_ns(), "x"), encode_mutation(wrote(5, "new", 1)))
        assert await play.ask(a, StoreLogged(play.tablet_id, 0, new)) == Stored()
        within = clock.wall_ns() + offset_ns
        assert isinstance(await play.ask(a, RaiseFenceTo(play.tablet_id, 0, within)), BoundTold)
        assert await play.ask(a, StoreLogged(play.tablet_id, 0, new)) == BelowFence(within)

    play_quorum(scenario, design="logged", knobs=Knobs(poll_period_ms=0, reconcile_period_ms=0))


def test_while_a_replica_is_away_no_bound_rises_and_the_others_exchange_all_the_same() -> None:
    async def scenario(play: QuorumPlay) -> None:
        a, b, c = play.replicas
        d, e = play.others
        await play.database.kill(c)
        await asyncio.sleep(0.5)
        play.cut(d, a)
        await play.write(d, wrote(5, "new", 1), "ONE")
        play.heal()

        async def exchanged() -> bool:
            return await play.held(a) == await play.held(b) == {1: "new"}

        await play.until(exchanged, "an exchange between two")
        before = [await play.ask(name, AskLowBound(play.tablet_id, 0)) for name in (a, b)]
        await asyncio.sleep(3)
        after = [await play.ask(name, AskLowBound(play.tablet_id, 0)) for name in (a, b)]
        assert [each.low_bound for each in before] == [each.low_bound for each in after]  # type: ignore[union-attr]
        assert isinstance(await play.write(e, wrote(9, "newer", 2), "QUORUM"), Written), "fences leave writes alone"
        await play.database.start(c)
        await all_hold(play, {1: "new", 2: "newer"})

        async def raised() -> bool:
            return not any([await ids_at(play, name) for name in play.replicas])

        await play.until(raised, "bounds above all ids")

    play_quorum(scenario, design="logged", knobs=SOON)


def test_a_write_that_may_come_from_under_a_forgotten_deletion_is_refused_by_all_alike() -> None:
    async def scenario(play: QuorumPlay) -> None:
        await asyncio.sleep(3)
        reply = await play.write(play.others[0], wrote(5, "old", 1), "QUORUM")
        assert isinstance(reply, ErrorReply) and (reply.kind, reply.definite) == ("TOO_OLD", True)
        now = play.ports.clock.wall_ns() - FROM_NS
        assert isinstance(await play.write(play.others[0], deleted(now, 1), "QUORUM"), Written)
        read = await play.read(play.others[0], everything(), ())
        assert isinstance(read, PageRead) and rows_of(read.page) == {}

    play_quorum(scenario, design="logged", knobs=Knobs(deletion_grace_ms=2_000))


def test_reconciliation_goes_on_after_steps_that_failed_or_hung_at_replicas() -> None:
    async def scenario(play: QuorumPlay) -> None:
        for name in play.replicas:
            for point in ("fence", "bound"):
                play.world.node(name).failpoints.arm(Arming(f"quorum.before_{point}", "fail", times=2))
        assert isinstance(await play.write(play.others[0], wrote(5, "new", 1), "ALL"), Written)
        named = await ids_at(play, play.replicas[0])

        async def raised() -> bool:
            return min(await bounds(play)) > max(each.time for each in named)

        await play.until(raised, "a bound, after failures")
        hung = play.replicas[0]
        play.world.node(hung).failpoints.arm(Arming("disk.before_sync", "hang", times=0))
        await asyncio.sleep(1)
        assert isinstance(await play.ask(play.replicas[1], AskLowBound(play.tablet_id, 0)), BoundTold)
        replies = await asyncio.gather(
            *(play.ask(hung, RaiseFenceTo(play.tablet_id, 0, play.ports.clock.wall_ns())) for _ in range(3)),
            return_exceptions=True,
        )
        assert [reply.kind for reply in replies if isinstance(reply, ErrorReply)].count("BUSY") >= 2, replies
        play.world.node(hung).failpoints.disarm()

    play_quorum(scenario, design="logged", knobs=SOON)
