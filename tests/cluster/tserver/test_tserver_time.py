"""Time in tablet servers: clocks that jump, fences, and what fail-overs do to timestamps (G3)."""

from __future__ import annotations

import pytest

from cluster.knobs import Knobs
from cluster.wire.messages import Done, ErrorReply, ReadCell, ReadReply, Reply, WriteCell
from cluster.wire.operating import GetRanges, RangesReply
from tests.cluster.tserver.tserver_rig import NAMES, SECOND, TserverRig, simulate
from tests.support.played import played


@pytest.mark.parametrize("jump_ms", [240, -240])
@played(simulate, seed=6)
async def test_a_wall_clock_that_jumps_neither_loses_nor_reorders_anything(
    servers: TserverRig, /, jump_ms: int
) -> None:
    await servers.created()
    stamps = []
    for turn in range(6):
        leader = await servers.leader()
        if turn % 2:
            servers.world.node(leader).clock.set_offset(jump_ms * SECOND // 1000)
        reply = await servers.write(turn + 1, turn)
        assert isinstance(reply, Done)
        read = await servers.read()
        assert read.value == turn
        stamps += [reply.timestamp, read.timestamp]
        if turn % 3 == 2:
            servers.world.node(leader).kill()
            servers.start(leader)
    assert stamps == sorted(stamps)


@pytest.mark.parametrize("jump_s", [3_600, -3_600])
@played(simulate, seed=6)
async def test_a_leader_whose_clock_jumps_far_serves_nothing_lets_another_lead_and_comes_back(
    servers: TserverRig, /, jump_s: int
) -> None:
    await servers.created()
    old = await servers.leader()
    assert isinstance(first := await servers.write(1, 1), Done)
    clock = servers.world.node(old).clock
    clock.set_offset(jump_s * SECOND)
    reply = await servers.call(old, ReadCell("tab", 1, 0, 0))
    assert isinstance(reply, ErrorReply) and reply.kind in ("CLOCK_FENCED", "NOT_THE_LEADER")
    new = await servers.leader(*(name for name in NAMES if name != old))
    assert isinstance(second := await servers.write(2, 2), Done)
    assert first.timestamp < second.timestamp < servers.world.node(new).clock.wall_ns() + SECOND // 2
    servers.world.node(new).kill()
    await servers.clock.sleep(3.0)
    assert isinstance(await servers.call(old, ReadCell("tab", 1, 0, 0)), ErrorReply), "a fenced node serves nothing"
    clock.set_offset(0)
    assert (await servers.read()).value == 2
    assert isinstance(third := await servers.write(3, 3), Done)
    assert second.timestamp < third.timestamp < clock.wall_ns() + SECOND // 2


@played(simulate, seed=6, knobs=Knobs(tablet_lease_ms=20_000, session_silence_ms=10_000_000))
async def test_a_lease_that_was_handed_over_is_not_waited_for(servers: TserverRig, /) -> None:
    await servers.created()
    old = await servers.leader()
    assert isinstance(first := await servers.write(1, 1), Done)
    assert (seen := await servers.read()).value == 1
    servers.world.node(old).clock.set_offset(-SECOND)
    began_ns = servers.clock.monotonic_ns()
    assert isinstance(second := await servers.write(2, 2), Done)
    assert servers.clock.monotonic_ns() - began_ns < 5 * SECOND, "the old lease lasts 20 s"
    assert first.timestamp < seen.timestamp < second.timestamp


@played(simulate, seed=6)
async def test_a_leader_whose_clock_is_right_before_its_lease_is_handed_over_closes_again_unasked(
    servers: TserverRig, /
) -> None:
    """With seed 3227707229828749304 of global-reads, whose reads ask for no lease, nothing was closed any more."""
    await servers.created()
    leader = await servers.leader()
    for name in NAMES:
        servers.world.node(name).disk.extra_sync_ns = SECOND // 5
    clock = servers.world.node(leader).clock
    clock.set_offset(SECOND)
    await servers.clock.sleep(0.03)
    clock.set_offset(0)
    await servers.clock.sleep(6.0)
    told = await servers.call(leader, GetRanges())
    assert isinstance(told, RangesReply)
    (known,) = told.ranges
    assert known.holder and known.closed > clock.wall_ns() - servers.knobs.closed_lag_ms * SECOND // 1_000 - SECOND


@played(simulate, seed=6)
async def test_the_whole_group_may_be_set_to_another_time_node_by_node(servers: TserverRig, /) -> None:
    """A clock that is set for good is accepted as soon as a quorum shows the same time."""
    await servers.created()
    assert isinstance(await servers.write(1, 1), Done)
    for name in NAMES:
        servers.world.node(name).clock.set_offset(3_600 * SECOND)
        await servers.clock.sleep(0.5)
    assert (await servers.read()).value == 1
    assert isinstance(await servers.write(2, 2), Done)


@played(simulate, seed=6)
async def test_fail_overs_carry_no_timestamp_ahead_of_the_clocks(servers: TserverRig, /) -> None:
    """A new lease waits until the old one is over: it doesn't start in the future and take the clock along."""
    await servers.created()
    for turn in range(6):
        leader = await servers.leader()
        assert isinstance(done := await servers.write(turn + 1, turn), Done)
        read = await servers.read()
        now_ns = servers.world.node(leader).clock.wall_ns()
        assert max(done.timestamp, read.timestamp) <= now_ns + 1_000_000
        servers.world.node(leader).kill()
        assert isinstance(await servers.anyone(ReadCell("tab", 1, 0, 0)), ReadReply)
        servers.start(leader)


async def read_of_a_slow_holder(servers: TserverRig) -> Reply:
    """What a holder that was cut off answers once a successor has written; its wall clock lags, within bounds."""
    await servers.created()
    await servers.leader()
    assert isinstance(await servers.write(1, 1), Done)
    old = await servers.leader()
    servers.world.node(old).clock.set_offset(-SECOND // 5)
    await servers.clock.sleep(0.5)
    servers.world.node(old).clock.set_offset(-SECOND * 2 // 5)
    assert (await servers.read()).value == 1
    servers.cut_off(old)
    others = tuple(name for name in NAMES if name != old)
    await servers.leader(*others)
    for name in others:
        reply = await servers.call(name, WriteCell(servers.rid(2), "tab", 1, 0, 0, 2))
        if isinstance(reply, Done):
            break
    else:
        raise AssertionError("nobody wrote")
    return await servers.call(old, ReadCell("tab", 1, 0, 0), 10.0)


SLOW_HOLDER = Knobs(tablet_lease_ms=2_000, session_silence_ms=10_000_000)


@played(simulate, seed=5, knobs=SLOW_HOLDER)
async def test_a_holder_whose_wall_clock_lags_serves_no_stale_read(servers: TserverRig, /) -> None:
    assert isinstance(await read_of_a_slow_holder(servers), ErrorReply)


@played(simulate, seed=5, flaws=("lease-by-wall-clock",), knobs=SLOW_HOLDER)
async def test_with_the_flaw_lease_by_wall_clock_it_does(servers: TserverRig, /) -> None:
    assert isinstance(reply := await read_of_a_slow_holder(servers), ReadReply)
    assert reply.value == 1
