"""Q3: ids of mutations rise at each node and are never given twice, whatever clocks and restarts do."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.log.envelope import CorruptLog, twice
from cluster.quorum.ids import (
    ID_BYTES,
    IDS_FILE,
    RESERVED_NS,
    TICK_BITS,
    IdTimes,
    MutationId,
    MutationIds,
    decode_id,
    encode_id,
)
from harness.ports.api import DiskFull

NAMES = st.text("tm.0123456789abcdef", min_size=1, max_size=16)
IDS = st.builds(MutationId, time=st.integers(0, (1 << 63) - 1), node=NAMES)
SECOND = 1_000_000_000


class SetClock:
    """A wall clock that shows what it is told to."""

    def __init__(self, wall_ns: int = 1_000 * SECOND) -> None:
        self.wall = wall_ns

    def wall_ns(self) -> int:
        return self.wall

    def monotonic_ns(self) -> int:
        return 0

    def times_ns(self) -> tuple[int, int]:
        return self.wall, 0

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("nobody waits for ids")


@given(IDS, IDS)
def test_bytes_of_ids_sort_as_the_ids_do_and_come_back(one: MutationId, other: MutationId) -> None:
    assert len(encode_id(one)) == ID_BYTES and decode_id(encode_id(one)) == one
    assert (encode_id(one) < encode_id(other)) == (one < other)


def test_a_name_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="more than 16 bytes"):
        encode_id(MutationId(1, "a" * 17))
    with pytest.raises(ValueError, match="24 bytes"):
        decode_id(b"\0" * 23)


STEPS = st.tuples(st.booleans(), st.integers(-10 * SECOND, 10 * SECOND), st.none() | st.integers(-3, 3))


@given(st.lists(STEPS, max_size=60), st.booleans())
def test_times_rise_over_restarts_with_any_clock(steps: list[tuple[bool, int, int | None]], to_the_end: bool) -> None:
    """Each step restarts or not, and moves the clock either way; only what was reserved outlives a restart.

    Fences push the times up, to the last one that is reserved or from where they are; none pushes them down.
    """
    wall, times, given_out, fence = 1_000 * SECOND, IdTimes(), [0], 0
    for restart, jump, pushed in steps:
        wall = max(0, wall + jump)
        times = IdTimes(times.reserved) if restart else times
        if pushed is not None:
            fence = max(0, (times.reserved if to_the_end else given_out[-1]) + pushed)
            times.rise_above(fence)
        time = times.take(wall)
        if time is None:
            assert times.used_up(wall)
            times.reserved = times.wanted(wall)
            time = times.take(wall)
        assert time is not None and given_out[-1] < time < times.reserved
        assert pushed is None or time > fence
        given_out.append(time)


def test_times_run_ahead_of_the_clock_by_one_reservation_however_often_the_node_restarts() -> None:
    wall, reserved = 1_000 * SECOND, 0
    for _ in range(50):
        times = IdTimes(reserved)
        times.reserved = times.wanted(wall)
        time = times.take(wall)
        assert time is not None and reserved <= time < wall + RESERVED_NS + (2 << TICK_BITS)
        reserved, wall = times.reserved, wall + (1 << TICK_BITS)


def test_times_of_one_tick_follow_each_other() -> None:
    times = IdTimes()
    times.reserved = 10 << TICK_BITS
    assert [times.take((3 << TICK_BITS) + 5) for _ in range(3)] == [(3 << TICK_BITS) + each for each in range(3)]
    times.rise_above(4 << TICK_BITS)
    assert times.take(3 << TICK_BITS) == (4 << TICK_BITS) + 1


class Files:
    """As much of a disk as a reservation needs."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.writes, self.full = 0, False
        self.writable = asyncio.Event()
        self.writable.set()

    def list(self, prefix: str) -> list[str]:
        return [path for path in self.files if path.startswith(prefix)]

    async def read(self, path: str) -> bytes:
        return self.files[path]

    async def write_atomic(self, path: str, data: bytes) -> None:
        await self.writable.wait()
        if self.full:
            raise DiskFull
        self.writes += 1
        self.files[path] = data


class Machine:
    """A machine whose program is started again and again, and the ids that its lives have made."""

    def __init__(self, *flaws: str) -> None:
        self.clock, self.disk, self.flaws = SetClock(), Files(), flaws
        self.made: list[MutationId] = []

    def start(self, server_id: str = "t1") -> MutationIds:
        return MutationIds(server_id, self.clock, self.disk, self.flaws)  # type: ignore[arg-type]

    async def live(self, count: int, server_id: str = "t1") -> None:
        ids = self.start(server_id)
        await ids.recover()
        self.made += [await ids.next() for _ in range(count)]


async def test_a_restarted_server_goes_on_above_its_ids_though_its_clock_went_back() -> None:
    machine = Machine()
    for _ in range(5):
        await machine.live(20)
        machine.clock.wall -= 30 * SECOND
    assert machine.made == sorted(set(machine.made)) and len(machine.made) == 100


async def test_the_last_id_of_a_reservation_is_not_given_out_again_after_a_restart() -> None:
    machine = Machine()
    ids = machine.start()
    await ids.recover()
    first = await ids.next()
    ids.rise_above(first.time + RESERVED_NS - 2)
    machine.made.append(await ids.next())
    assert machine.disk.writes == 1 and machine.made[0].time == first.time + RESERVED_NS - 1
    await machine.live(3)
    assert machine.made == sorted(set(machine.made)) and len(machine.made) == 4


async def test_with_the_flaw_it_goes_by_its_clock_and_uses_ids_again() -> None:
    machine = Machine("mutation-id-reuse")
    await machine.live(20)
    await machine.live(20)
    assert len(set(machine.made)) == 20


async def test_a_wiped_node_makes_ids_of_another_server() -> None:
    machine = Machine()
    await machine.live(20)
    machine.disk.files.clear()
    machine.clock.wall -= SECOND // 100
    await machine.live(20, "t1.9f3a0b1c")
    assert len(set(machine.made)) == 40 and {each.node for each in machine.made} == {"t1", "t1.9f3a0b1c"}


async def test_many_who_ask_at_once_get_ids_of_their_own_and_one_reservation() -> None:
    machine = Machine()
    ids = machine.start()
    await ids.recover()
    machine.made += await asyncio.gather(*(ids.next() for _ in range(50)))
    assert len(set(machine.made)) == 50 and machine.disk.writes == 1
    assert max(machine.made).time < machine.clock.wall + RESERVED_NS


async def test_no_id_is_made_before_its_reservation_is_durable_whoever_asks_meanwhile() -> None:
    machine = Machine()
    ids = machine.start()
    machine.disk.writable.clear()
    asked = [asyncio.create_task(ids.next())]
    await asyncio.sleep(0.001)
    asked.append(asyncio.create_task(ids.next()))
    await asyncio.sleep(0.001)
    assert not any(each.done() for each in asked)
    machine.disk.writable.set()
    assert len(set(await asyncio.gather(*asked))) == 2


async def test_without_room_for_a_reservation_no_id_is_made() -> None:
    machine = Machine()
    ids = machine.start()
    machine.disk.full = True
    for _ in range(2):
        with pytest.raises(DiskFull):
            await ids.next()
    machine.disk.full = False
    await ids.next()


@pytest.mark.parametrize("contents", [b"nonsense", twice(20, b"short")])
def test_a_damaged_reservation_stops_the_node(contents: bytes) -> None:
    machine = Machine()
    machine.disk.files[IDS_FILE] = contents
    with pytest.raises(CorruptLog):
        asyncio.run(machine.live(1))
