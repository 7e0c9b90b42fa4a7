"""Evaluation at the leaseholder, end to end: what is in flight, what latches keep, what reads are promised."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from cluster.knobs import Knobs
from cluster.observer import Observer
from cluster.wire.messages import (
    Cell,
    CompareAndSet,
    Done,
    ErrorReply,
    ReadCell,
    ReadReply,
    ReadRows,
    Reply,
    RowRange,
    RowsReply,
    WriteCell,
    WriteCells,
)
from harness.ports.failpoints import Arming
from harness.ports.sim.world import World
from tests.cluster.tserver.tserver_rig import NAMES, SECOND, TserverRig

MS = SECOND // 1_000


def simulate(
    seed: int,
    scenario: Callable[[TserverRig, str], Coroutine[Any, Any, None]],
    flaws: tuple[str, ...] = (),
    **knobs: int,
) -> None:
    async def led(servers: TserverRig) -> None:
        await servers.created()
        await scenario(servers, await servers.leader())

    with World(seed) as world:
        world.run(led(TserverRig(world, flaws, Knobs(**{"session_silence_ms": 10_000_000, **knobs}))))
        assert world.errors == []


def write(servers: TserverRig, sequence: int, value: int, row: int = 0, requested: int | None = None) -> WriteCell:
    return WriteCell(servers.rid(sequence), "tab", 1, row, 0, value, requested)


def cas(servers: TserverRig, sequence: int, expected: int | None, value: int) -> CompareAndSet:
    return CompareAndSet(servers.rid(sequence), "tab", 1, 0, 0, expected, value)


def slow_followers(servers: TserverRig, leader: str, extra_ns: int) -> None:
    """Appends wait for their disks; heartbeats, and with them leadership, do not."""
    for name in NAMES:
        if name != leader:
            servers.world.node(name).disk.extra_sync_ns = extra_ns


def rest_at(servers: TserverRig, leader: str, point: str, seconds: Callable[[int], float]) -> None:
    """Evaluations wait at a point, the n-th of them for the n-th number of seconds."""
    passed: list[int] = []

    def wait(_: str) -> Coroutine[Any, Any, None]:
        passed.append(0)
        return servers.clock.sleep(seconds(len(passed)))

    servers.world.node(leader).failpoints.arm(Arming(point, wait))


def timestamp(reply: Reply) -> int:
    assert isinstance(reply, Done | ReadReply | RowsReply), reply
    return reply.timestamp


def test_after_a_timed_out_write_a_compare_and_set_waits_until_its_fate_is_known() -> None:
    """The write is in the log and applies late: to decide on the state before it would be to forget it."""

    async def scenario(servers: TserverRig, leader: str) -> None:
        await servers.call(leader, write(servers, 1, 1))
        slow_followers(servers, leader, 900 * MS)
        late = await servers.call(leader, write(servers, 2, 2))
        assert isinstance(late, ErrorReply) and (late.kind, late.definite) == ("TIMED_OUT", False)
        stale = await servers.call(leader, cas(servers, 3, 1, 3))
        assert isinstance(stale, ErrorReply) and (stale.kind, stale.definite) == ("TIMED_OUT", True)
        read = await servers.call(leader, ReadCell("tab", 1, 0, 0))
        assert isinstance(read, ErrorReply) or (isinstance(read, ReadReply) and read.value == 2)
        slow_followers(servers, leader, 0)
        await servers.clock.sleep(3)
        assert await servers.cas(3, 1, 3) == Done(False, 2, timestamp(await servers.cas(3, 1, 3)))
        assert (await servers.read()).value == 2

    simulate(1, scenario, request_timeout_ms=300)


def test_evaluations_are_in_flight_at_once_and_their_timestamps_need_not_rise_along_the_log() -> None:
    async def scenario(servers: TserverRig, leader: str) -> None:
        rest_at(servers, leader, "tablet.evaluating", lambda passed: 0.5 / passed)
        started = servers.clock.monotonic_ns()
        ended: list[int] = []

        async def one(row: int) -> int:
            await servers.clock.sleep(0.01 * row)
            reply = await servers.call(leader, write(servers, row + 1, row, row))
            ended.append(row)
            return timestamp(reply)

        stamps = await asyncio.gather(*(one(row) for row in range(5)))
        assert servers.clock.monotonic_ns() - started < SECOND
        assert stamps == sorted(stamps), "a write's time is that of its arrival"
        assert ended != sorted(ended), "those that came later overtook"
        rows = await servers.call(leader, ReadRows("tab", 1, (RowRange(0, None),)))
        assert isinstance(rows, RowsReply) and [cell.value for cell in rows.cells] == list(range(5))

    simulate(2, scenario, closed_lag_ms=0)


@pytest.mark.parametrize("point", ["tablet.evaluating", "tablet.before_propose"])
def test_a_crash_in_mid_evaluation_takes_no_effect(point: str) -> None:
    async def scenario(servers: TserverRig, leader: str) -> None:
        await servers.write(1, 1)
        servers.world.node(leader).failpoints.arm(Arming(point))
        assert isinstance(await servers.cas(2, 1, 2), Done)
        assert (await servers.read()).value == 2

    simulate(3, scenario)


def test_an_evaluation_that_outlives_its_lease_is_refused() -> None:
    """Its sequence was fixed before it waited; that the node holds a later lease by then makes no difference."""

    async def scenario(servers: TserverRig, leader: str) -> None:
        await servers.write(1, 1)
        rest_at(servers, leader, "tablet.before_propose", lambda passed: 40.0 if passed == 1 else 0.0)
        waiting = asyncio.ensure_future(servers.call(leader, write(servers, 2, 2, row=9), 60.0))
        await servers.clock.sleep(0.1)
        servers.cut_off(leader)
        other = await servers.leader(*(name for name in NAMES if name != leader))
        assert isinstance(await servers.call(other, write(servers, 3, 3, row=5)), Done)
        servers.world.network.heal()
        while (now := await servers.leader()) != leader:
            servers.world.node(now).kill()
            await servers.leader(*(name for name in NAMES if name != now))
            servers.start(now)
        assert not waiting.done()
        reply = await waiting
        assert isinstance(reply, ErrorReply) and (reply.kind, reply.definite) == ("NOT_THE_LEADER", True)

    simulate(4, scenario)


async def read_then_write_below(servers: TserverRig, leader: str) -> tuple[ReadReply, Done, Reply]:
    """A served read, a write that asks for a time before it, and what was true at the read's time afterwards."""
    before = timestamp(await servers.call(leader, write(servers, 1, 1)))
    await servers.clock.sleep(0.1)
    served = await servers.call(leader, ReadCell("tab", 1, 0, 0))
    assert isinstance(served, ReadReply)
    written = await servers.call(leader, write(servers, 2, 2, requested=before + 1))
    assert isinstance(written, Done)
    return served, written, await servers.call(leader, ReadCell("tab", 1, 0, 0, served.timestamp))


def test_a_served_read_stays_true() -> None:
    async def scenario(servers: TserverRig, leader: str) -> None:
        served, written, again = await read_then_write_below(servers, leader)
        assert written.timestamp > served.timestamp
        assert (again.value, again.timestamp) == (served.value, served.timestamp)

    simulate(5, scenario)


def test_what_a_compare_and_set_found_that_failed_stays_true() -> None:
    async def scenario(servers: TserverRig, leader: str) -> None:
        before = timestamp(await servers.call(leader, write(servers, 1, 1)))
        await servers.clock.sleep(0.1)
        failed = await servers.call(leader, CompareAndSet(servers.rid(2), "tab", 1, 0, 0, 7, 8))
        assert isinstance(failed, Done) and (failed.applied, failed.found) == (False, 1)
        written = await servers.call(leader, write(servers, 3, 2, requested=before + 1))
        assert isinstance(written, Done) and written.timestamp > failed.timestamp > before + 1

    simulate(5, scenario)


def test_with_the_flaw_no_timestamp_cache_it_does_not() -> None:
    async def scenario(servers: TserverRig, leader: str) -> None:
        served, written, again = await read_then_write_below(servers, leader)
        assert written.timestamp < served.timestamp
        assert isinstance(again, ReadReply) and again.value == 2 != served.value

    simulate(5, scenario, flaws=("no-timestamp-cache",))


def test_a_write_below_what_is_closed_is_pushed_above_it_and_hears_of_it() -> None:
    async def scenario(servers: TserverRig, leader: str) -> None:
        first = timestamp(await servers.call(leader, write(servers, 1, 1)))
        for number in range(20):
            await servers.clock.sleep(0.05)
            second = timestamp(await servers.call(leader, write(servers, 2 + number, 2, row=1)))
        pushed = timestamp(await servers.call(leader, write(servers, 40, 3, row=2, requested=first)))
        assert second - 250 * MS < pushed < second
        ahead = timestamp(await servers.call(leader, write(servers, 41, 4, row=3, requested=second + 3_600 * SECOND)))
        assert ahead < second + SECOND, "a client's clock does not carry data into the future"

    simulate(6, scenario, closed_lag_ms=100)


async def doubles(servers: TserverRig, leader: str) -> list[Reply]:
    """A compare-and-set whose client tries again while it is in flight."""
    await servers.call(leader, write(servers, 1, 1))
    slow_followers(servers, leader, 300 * MS)
    request = cas(servers, 2, 1, 2)
    first = asyncio.ensure_future(servers.call(leader, request))
    await servers.clock.sleep(0.05)
    return [await servers.call(leader, request), await first]


def test_a_double_of_what_is_in_flight_gets_the_first_answer() -> None:
    async def scenario(servers: TserverRig, leader: str) -> None:
        again, first = await doubles(servers, leader)
        assert again == first == Done(True, None, timestamp(first))

    simulate(7, scenario)


def test_with_the_flaw_double_apply_it_is_decided_on_its_own_effect() -> None:
    async def scenario(servers: TserverRig, leader: str) -> None:
        again, first = await doubles(servers, leader)
        assert isinstance(first, Done) and first.applied
        assert isinstance(again, Done) and (again.applied, again.found) == (False, 2)

    simulate(7, scenario, flaws=("double-apply",))


def test_reads_wait_for_writes_in_flight_on_their_rows_and_on_no_others() -> None:
    async def scenario(servers: TserverRig, leader: str) -> None:
        slow_followers(servers, leader, 300 * MS)
        pending = asyncio.ensure_future(servers.call(leader, write(servers, 1, 7, row=3)))
        await servers.clock.sleep(0.05)
        started = servers.clock.monotonic_ns()
        beside = await servers.call(leader, ReadRows("tab", 1, (RowRange(0, 3), RowRange(4, None))))
        assert servers.clock.monotonic_ns() - started < 100 * MS
        across = await servers.call(leader, ReadRows("tab", 1, (RowRange(2, 4),)))
        assert servers.clock.monotonic_ns() - started > 150 * MS
        assert isinstance(await pending, Done)
        assert isinstance(beside, RowsReply) and beside.cells == ()
        assert isinstance(across, RowsReply) and across.cells == (Cell(3, 0, 7),)

    simulate(8, scenario)


def test_rows_are_written_together_and_read_at_one_time() -> None:
    async def scenario(servers: TserverRig, leader: str) -> None:
        everything = (RowRange(0, None),)
        typed = (Cell(0, 0, "text"), Cell(0, 1, b"bytes"), Cell(2, 0, 1.5), Cell(3, 0, True), Cell(-4, 7, 1 << 62))
        first = await servers.call(leader, WriteCells(servers.rid(1), "tab", 1, typed))
        second = WriteCells(servers.rid(2), "tab", 1, (Cell(0, 0, None), Cell(2, 0, 2)))
        assert timestamp(await servers.call(leader, second)) > timestamp(first)
        early = await servers.call(leader, ReadRows("tab", 1, everything, timestamp(first)))
        assert isinstance(early, RowsReply)
        assert [(cell.row, cell.column, repr(cell.value)) for cell in early.cells] == [
            (0, 0, "'text'"),
            (0, 1, "b'bytes'"),
            (2, 0, "1.5"),
            (3, 0, "True"),
        ]
        late = await servers.call(leader, ReadRows("tab", 1, (RowRange(-9, None),)))
        assert isinstance(late, RowsReply)
        assert [(cell.row, cell.value) for cell in late.cells] == [(-4, 1 << 62), (0, b"bytes"), (2, 2), (3, True)]

    simulate(9, scenario)


def test_what_makes_no_sense_is_refused_with_a_reason() -> None:
    async def scenario(servers: TserverRig, leader: str) -> None:
        now = timestamp(await servers.call(leader, write(servers, 1, 1)))
        twice, nothing = (Cell(0, 0, 1), Cell(0, 0, 2)), ()
        for number, (request, words) in enumerate(
            (
                (WriteCells(servers.rid(2), "tab", 1, twice), "twice"),
                (WriteCells(servers.rid(3), "tab", 1, nothing), "write something"),
                (WriteCell(servers.rid(4), "tab", 1, 0, 0, [1]), "a value must be"),  # type: ignore[arg-type]
                (ReadCell("tab", 1, 0, 0, now + 3_600 * SECOND), "future"),
                (ReadCell("tab", 1, 0, 0, now - 3_600 * SECOND), "collected"),
                (ReadRows("tab", 1, ()), "no rows"),
            )
        ):
            if words == "collected":
                await servers.clock.sleep(2)
                await servers.call(leader, write(servers, 10 + number, 1))
            reply = await servers.call(leader, request)
            assert isinstance(reply, ErrorReply) and reply.definite and words in reply.message, reply
        assert (await servers.read()).value == 1

    simulate(10, scenario, version_retention_ms=1_000, closed_lag_ms=100)


def test_what_a_refused_change_read_is_told_to_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its batch came behind the record by which its lease was handed over (register, late-batch, seed
    2740807902960569263): a later holder may write below what it read."""
    answered: list[int] = []
    monkeypatch.setattr(Observer, "read_answered", lambda self, group, spans, timestamp: answered.append(timestamp))

    async def scenario(servers: TserverRig, leader: str) -> None:
        await servers.call(leader, write(servers, 1, 1))
        answered.clear()
        told = await servers.call(leader, cas(servers, 2, 7, 8))
        assert isinstance(told, Done) and not told.applied and answered == [told.timestamp]
        slow_followers(servers, leader, 300 * MS)
        rest_at(servers, leader, "tablet.before_propose", lambda n: 0.1)
        late = asyncio.create_task(servers.call(leader, cas(servers, 3, 7, 8)))
        await servers.clock.sleep(0.05)
        servers.world.node(leader).clock.set_offset(SECOND)
        reply = await late
        assert isinstance(reply, ErrorReply) and reply.message == "proposed under another lease", reply
        assert len(answered) == 1

    simulate(1, scenario)
