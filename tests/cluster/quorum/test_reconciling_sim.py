"""Reconciliation of logged tables in the simulator: what is missed is delivered, bounds rise, fences hold (Q6, Q7)."""

from __future__ import annotations

import asyncio

from cluster.knobs import Knobs
from cluster.quorum.ids import MutationId
from cluster.quorum.messages import (
    AskLowBound,
    BelowFence,
    BoundReply,
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
from harness.ports.failpoints import Arming
from tests.cluster.quorum.quorum_rig import FROM_NS, SimQuorumRig, deleted, everything, play_quorum, rows_of, wrote
from tests.support.played import played

POLLED = Knobs(poll_period_ms=100, reconcile_period_ms=0)
SOON = Knobs(poll_period_ms=200, reconcile_period_ms=200, write_timeout_ms=200, reconcile_margin_ms=100)
FAR = 1 << 62


async def bounds(rig: SimQuorumRig) -> list[int]:
    found = []
    for name in rig.replicas:
        reply = await rig.ask(name, AskLowBound(rig.tablet_id, 0))
        assert isinstance(reply, BoundReply)
        found.append(reply.low_bound)
    return found


async def ids_at(rig: SimQuorumRig, name: str) -> tuple[MutationId, ...]:
    reply = await rig.ask(name, ListIds(rig.tablet_id, 0, 0, FAR))
    assert isinstance(reply, IdsListed) and reply.complete_below == FAR
    return reply.ids


async def missed_by_first(rig: SimQuorumRig, coordinator: str) -> None:
    """A write that the first replica misses, whose coordinator dies."""
    rig.cut(coordinator, rig.replicas[0])
    assert isinstance(await rig.write(coordinator, wrote(5, "new", 1, 2), "QUORUM"), Written)
    await rig.database.kill(coordinator)
    rig.heal()


async def all_hold(rig: SimQuorumRig, rows: dict[int, str]) -> None:
    async def equal() -> bool:
        return [await rig.held(name) for name in rig.replicas] == len(rig.replicas) * [rows]

    await rig.until(equal, f"{rows} at all replicas")


@played(play_quorum, design="logged", knobs=POLLED)
async def test_what_a_replica_missed_is_delivered_without_a_read_a_hint_or_a_fence(rig: SimQuorumRig, /) -> None:
    await missed_by_first(rig, rig.others[0])
    await all_hold(rig, {1: "new", 2: "new"})
    assert await bounds(rig) == [0, 0, 0], "no bound was raised for it"
    assert len({await ids_at(rig, name) for name in rig.replicas}) == 1


@played(play_quorum, design="logged", knobs=SOON)
async def test_bounds_rise_and_nothing_is_kept_below_them_also_after_restarts(rig: SimQuorumRig, /) -> None:
    await missed_by_first(rig, rig.others[0])
    named = await ids_at(rig, rig.replicas[1])

    async def raised() -> bool:
        return min(await bounds(rig)) > max(each.time for each in named)

    await rig.until(raised, "a bound above the write")
    await all_hold(rig, {1: "new", 2: "new"})
    for name in rig.replicas:
        assert await ids_at(rig, name) == ()
    before = await bounds(rig)
    for name in rig.replicas:
        await rig.database.kill(name)
        await rig.database.start(name)

    async def back() -> bool:
        return all(now >= then for now, then in zip(await bounds(rig), before, strict=True))

    await rig.until(back, "bounds at least as high as before")
    await all_hold(rig, {1: "new", 2: "new"})


@played(play_quorum, design="logged")
async def test_new_mutations_below_a_fence_are_refused_and_delivered_ones_below_the_bound_are_passed_over(
    rig: SimQuorumRig, /
) -> None:
    a = rig.replicas[0]
    old = LoggedMutation(MutationId(1_000, "x"), encode_mutation(wrote(5, "old", 1)))
    assert isinstance(await rig.ask(a, RaiseLowBound(rig.tablet_id, 0, 2_000)), ErrorReply), "no fence is that high"
    assert await rig.ask(a, StoreLogged(rig.tablet_id, 0, old)) == Stored()
    assert isinstance(await rig.ask(a, RaiseFenceTo(rig.tablet_id, 0, 2_000)), BoundReply)
    late = LoggedMutation(MutationId(1_999, "x"), encode_mutation(wrote(6, "late", 2)))
    assert await rig.ask(a, StoreLogged(rig.tablet_id, 0, late)) == BelowFence(2_000)
    assert await rig.held(a) == {1: "old"}
    await rig.database.kill(a)
    await rig.database.start(a)

    async def refused() -> bool:
        return await rig.ask(a, StoreLogged(rig.tablet_id, 0, late)) == BelowFence(2_000)

    await rig.until(refused, "the fence after a restart")
    assert await rig.ask(a, DeliverMutations(rig.tablet_id, 0, (late,))) == Stored(), "another replica has it"
    assert await rig.held(a) == {1: "old", 2: "late"}
    for name in rig.replicas[1:]:
        assert await rig.ask(name, DeliverMutations(rig.tablet_id, 0, (old, late))) == Stored()
    assert await rig.ask(a, RaiseLowBound(rig.tablet_id, 0, 2_000)) == Stored()
    again = LoggedMutation(MutationId(1_500, "x"), encode_mutation(wrote(7, "again", 3)))
    assert await rig.ask(a, DeliverMutations(rig.tablet_id, 0, (again,))) == Stored()
    assert await rig.held(a) == {1: "old", 2: "late"}, "all had it once: what deleted it may be forgotten"
    for request in (RaiseFenceTo(rig.tablet_id, 7, 9_000), RaiseLowBound(rig.tablet_id, 7, 9_000)):
        reply = await rig.ask(a, request)
        assert isinstance(reply, ErrorReply) and reply.kind == "WRONG_EPOCH"


@played(play_quorum, design="logged")
async def test_a_write_below_a_fence_failed_if_all_refused_it_else_it_is_unknown_and_the_next_one_is_above(
    rig: SimQuorumRig, /
) -> None:
    a, *others = rig.replicas
    d = rig.others[0]
    assert isinstance(await rig.write(d, wrote(1, "first", 1), "ALL"), Written)

    async def fence(*names: str) -> None:
        told = await rig.ask(a, AskLowBound(rig.tablet_id, 0))
        assert isinstance(told, BoundReply)
        for name in names:
            raised = RaiseFenceTo(rig.tablet_id, 0, told.clock_ns + 450_000_000)
            assert isinstance(await rig.ask(name, raised), BoundReply)

    await fence(*rig.replicas)
    refused = await rig.write(d, wrote(2, "nowhere", 1), "ONE")
    assert isinstance(refused, ErrorReply) and (refused.kind, refused.definite) == ("UNAVAILABLE", True)
    assert isinstance(await rig.write(d, wrote(3, "second", 1), "ALL"), Written), "ids begin above the fence"
    await asyncio.sleep(1)
    await fence(a)
    unknown = await rig.write(d, wrote(4, "third", 1), "ALL")
    assert isinstance(unknown, ErrorReply) and (unknown.kind, unknown.definite) == ("UNAVAILABLE", False)
    assert [await rig.held(name) for name in (a, *others)] == [{1: "second"}, {1: "third"}, {1: "third"}]
    assert isinstance(await rig.write(d, wrote(5, "fourth", 1), "ALL"), Written)


@played(play_quorum, design="logged", knobs=Knobs(poll_period_ms=0, reconcile_period_ms=0))
async def test_a_fence_above_the_replica_s_clock_and_the_offset_of_clocks_is_refused_and_shuts_nobody_out(
    rig: SimQuorumRig, /
) -> None:
    a, clock = rig.replicas[0], rig.ports.clock
    offset_ns = Knobs().max_clock_offset_ms * 1_000_000
    for ahead_ns in (offset_ns + 1_000_000_000, FAR - clock.wall_ns()):
        reply = await rig.ask(a, RaiseFenceTo(rig.tablet_id, 0, clock.wall_ns() + ahead_ns))
        assert isinstance(reply, ErrorReply) and (reply.kind, reply.definite) == ("CLOCK_OFFSET", True)
    new = LoggedMutation(MutationId(clock.wall_ns(), "x"), encode_mutation(wrote(5, "new", 1)))
    assert await rig.ask(a, StoreLogged(rig.tablet_id, 0, new)) == Stored()
    within = clock.wall_ns() + offset_ns
    assert isinstance(await rig.ask(a, RaiseFenceTo(rig.tablet_id, 0, within)), BoundReply)
    assert await rig.ask(a, StoreLogged(rig.tablet_id, 0, new)) == BelowFence(within)


@played(play_quorum, design="logged", knobs=SOON)
async def test_while_a_replica_is_away_no_bound_rises_and_the_others_exchange_all_the_same(
    rig: SimQuorumRig, /
) -> None:
    a, b, c = rig.replicas
    d, e = rig.others
    await rig.database.kill(c)
    await asyncio.sleep(0.5)
    rig.cut(d, a)
    await rig.write(d, wrote(5, "new", 1), "ONE")
    rig.heal()

    async def exchanged() -> bool:
        return await rig.held(a) == await rig.held(b) == {1: "new"}

    await rig.until(exchanged, "an exchange between two")
    before = [await rig.ask(name, AskLowBound(rig.tablet_id, 0)) for name in (a, b)]
    await asyncio.sleep(3)
    after = [await rig.ask(name, AskLowBound(rig.tablet_id, 0)) for name in (a, b)]
    assert [each.low_bound for each in before] == [each.low_bound for each in after]  # type: ignore[union-attr]
    assert isinstance(await rig.write(e, wrote(9, "newer", 2), "QUORUM"), Written), "fences leave writes alone"
    await rig.database.start(c)
    await all_hold(rig, {1: "new", 2: "newer"})

    async def raised() -> bool:
        return not any([await ids_at(rig, name) for name in rig.replicas])

    await rig.until(raised, "bounds above all ids")


@played(play_quorum, design="logged", knobs=Knobs(deletion_grace_ms=2_000))
async def test_a_write_that_may_come_from_under_a_forgotten_deletion_is_refused_by_all_alike(
    rig: SimQuorumRig, /
) -> None:
    await asyncio.sleep(3)
    reply = await rig.write(rig.others[0], wrote(5, "old", 1), "QUORUM")
    assert isinstance(reply, ErrorReply) and (reply.kind, reply.definite) == ("TOO_OLD", True)
    now = rig.ports.clock.wall_ns() - FROM_NS
    assert isinstance(await rig.write(rig.others[0], deleted(now, 1), "QUORUM"), Written)
    read = await rig.read(rig.others[0], everything(), ())
    assert isinstance(read, PageRead) and rows_of(read.page) == {}


@played(play_quorum, design="logged", knobs=SOON)
async def test_reconciliation_goes_on_after_steps_that_failed_or_hung_at_replicas(rig: SimQuorumRig, /) -> None:
    for name in rig.replicas:
        for point in ("fence", "bound"):
            rig.world.node(name).failpoints.arm(Arming(f"quorum.before_{point}", "fail", times=2))
    assert isinstance(await rig.write(rig.others[0], wrote(5, "new", 1), "ALL"), Written)
    named = await ids_at(rig, rig.replicas[0])

    async def raised() -> bool:
        return min(await bounds(rig)) > max(each.time for each in named)

    await rig.until(raised, "a bound, after failures")
    hung = rig.replicas[0]
    rig.world.node(hung).failpoints.arm(Arming("disk.before_sync", "hang", times=0))
    await asyncio.sleep(1)
    assert isinstance(await rig.ask(rig.replicas[1], AskLowBound(rig.tablet_id, 0)), BoundReply)
    replies = await asyncio.gather(
        *(rig.ask(hung, RaiseFenceTo(rig.tablet_id, 0, rig.ports.clock.wall_ns())) for _ in range(3)),
        return_exceptions=True,
    )
    assert [reply.kind for reply in replies if isinstance(reply, ErrorReply)].count("BUSY") >= 2, replies
    rig.world.node(hung).failpoints.disarm()
