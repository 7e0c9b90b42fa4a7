"""The simulated disk loses what was not synced and nothing else; the simulated clock jumps and drifts as told."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.ports.api import DiskFull, Ports
from harness.ports.machines import Skew
from harness.ports.sim import DiskOptions, SimNode, World
from harness.ports.sim.clock import ClockOptions, SimClock

SECOND = 1_000_000_000

Step = tuple[str, str, int]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["append", "fsync", "truncate", "rename", "remove", "write_atomic"]),
        st.sampled_from(["f", "g"]),
        st.integers(0, 12),
    ),
    max_size=25,
)


@pytest.fixture
def world() -> Iterator[World]:
    with World(seed=3) as world:
        yield world


async def carry_out(ports: Ports, step: Step, number: int) -> None:
    action, path, size = step
    disk = ports.disk
    if action == "append":
        await disk.append(path, bytes([number]) * size)
    elif action == "fsync":
        await disk.fsync(path)
    elif action == "truncate":
        await disk.truncate(path, size)
    elif action == "rename":
        await disk.rename(path, "g" if path == "f" else "f")
    elif action == "remove":
        await disk.remove(path)
    else:
        await disk.write_atomic(path, bytes([number]) * size)


class Model:
    """What a file holds, and how much of it is durable for certain."""

    def __init__(self) -> None:
        self.files: dict[str, tuple[bytes, int]] = {}

    def take(self, step: Step, number: int) -> None:
        action, path, size = step
        data, synced = self.files.get(path, (b"", 0))
        if action == "append":
            self.files[path] = (data + bytes([number]) * size, synced)
        elif action == "fsync":
            self.files[path] = (data, len(data))
        elif action == "truncate":
            self.files[path] = (data[:size], min(synced, size))
        elif action == "rename":
            self.files["g" if path == "f" else "f"] = self.files.pop(path)
        elif action == "remove":
            self.files.pop(path, None)
        else:
            self.files[path] = (bytes([number]) * size, size)


@given(steps=STEPS, seed=st.integers(0, 100))
def test_a_crash_leaves_every_synced_byte_and_a_prefix_of_the_rest(steps: list[Step], seed: int) -> None:
    model = Model()

    async def program(ports: Ports) -> None:
        for number, step in enumerate(steps):
            try:
                await carry_out(ports, step, number)
            except FileNotFoundError:
                assert step[1] not in model.files
            else:
                model.take(step, number)
        for path, (data, _) in model.files.items():
            assert await ports.disk.read(path) == data
        assert ports.disk.list("") == sorted(model.files)
        await asyncio.Event().wait()

    async def main() -> None:
        node = world.node("a")
        node.start(program)
        await asyncio.sleep(1)
        assert node.errors == []
        node.kill()
        for path, (data, synced) in model.files.items():
            kept = node.disk.peek(path) if path in node.disk.paths() else b""
            assert data.startswith(kept)
            assert len(kept) >= synced
        assert not set(node.disk.paths()) - set(model.files)

    with World(seed) as world:
        world.run(main())


def tail_after_crash(seed: int, options: DiskOptions) -> bytes:
    async def program(ports: Ports) -> None:
        await ports.disk.append("f", b"0123456789")
        await ports.disk.fsync("f")
        await ports.disk.append("f", b"unsynced")
        await asyncio.Event().wait()

    async def main() -> bytes:
        node = world.node("a")
        node.start(program)
        await asyncio.sleep(1)
        node.kill()
        return node.disk.peek("f")[10:]

    with World(seed, disk=options) as world:
        return world.run(main())


def test_tails_are_lost_torn_and_kept_as_the_options_say() -> None:
    assert {tail_after_crash(seed, DiskOptions(lose_tail=1)) for seed in range(10)} == {b""}
    assert {tail_after_crash(seed, DiskOptions(lose_tail=0, tear_tail=0)) for seed in range(10)} == {b"unsynced"}
    torn = {tail_after_crash(seed, DiskOptions(lose_tail=0, tear_tail=1)) for seed in range(60)}
    assert torn == {b"unsynced"[:kept] for kept in range(8)}


def test_an_atomic_write_cut_short_is_all_or_nothing() -> None:
    seen: set[bytes] = set()

    async def program(ports: Ports) -> None:
        await ports.disk.write_atomic("f", b"old")
        await ports.disk.write_atomic("f", b"new")
        await asyncio.Event().wait()

    async def main(world: World) -> None:
        node = world.node("a")
        node.start(program)
        while "f" not in node.disk.paths():
            await asyncio.sleep(0.0001)
        await asyncio.sleep(0)
        node.kill()
        seen.add(node.disk.peek("f"))

    for seed in range(20):
        with World(seed, disk=DiskOptions(sync_ns=(10**6, 10**6))) as world:
            world.run(main(world))
    assert seen == {b"old", b"new"}


def test_a_kill_during_fsync_may_lose_what_was_being_synced() -> None:
    seen: set[bytes] = set()

    async def program(ports: Ports) -> None:
        await ports.disk.append("f", b"data")
        await ports.disk.fsync("f")

    async def main(world: World) -> None:
        node = world.node("a")
        node.start(program)
        await asyncio.sleep(0.0001)
        node.kill()
        seen.add(node.disk.peek("f") if node.disk.paths() else b"")

    for seed in range(20):
        with World(seed, disk=DiskOptions(sync_ns=(10**6, 10**6), tear_tail=0)) as world:
            world.run(main(world))
    assert seen == {b"", b"data"}


def idle(world: World, name: str = "a") -> tuple[SimNode, list[Ports]]:
    started: list[Ports] = []

    async def program(ports: Ports) -> None:
        started.append(ports)
        await asyncio.Event().wait()

    node = world.node(name)
    node.start(program)
    return node, started


async def test_a_full_disk_refuses_writes_and_keeps_what_it_has(world: World) -> None:
    node, started = idle(world)
    await asyncio.sleep(0)
    disk = started[0].disk
    await disk.append("f", b"kept")
    node.disk.full = True
    with pytest.raises(DiskFull):
        await disk.append("f", b"refused")
    with pytest.raises(DiskFull):
        await disk.write_atomic("f", b"refused")
    await disk.fsync("f")
    node.disk.full = False
    await disk.append("f", b"+")
    assert await disk.read("f") == b"kept+"


def test_capacity_counts_every_file() -> None:
    async def main() -> None:
        _, started = idle(world)
        await asyncio.sleep(0)
        disk = started[0].disk
        await disk.append("f", bytes(60))
        await disk.append("g", bytes(40))
        with pytest.raises(DiskFull):
            await disk.append("g", bytes(1))
        await disk.write_atomic("f", bytes(50))
        await disk.append("g", bytes(10))

    with World(seed=1, disk=DiskOptions(capacity_bytes=100)) as world:
        world.run(main())


async def test_slow_fsync_bit_flip_lost_tail_and_wipe(world: World) -> None:
    node, started = idle(world)
    await asyncio.sleep(0)
    disk = started[0].disk
    await disk.append("f", bytes(8))
    node.disk.extra_sync_ns = 5 * SECOND
    before_ns = world.loop.now_ns
    await disk.fsync("f")
    assert world.loop.now_ns - before_ns >= 5 * SECOND
    node.disk.flip_bit("f", 17)
    assert await disk.read("f") == bytes([0, 0, 2, 0, 0, 0, 0, 0])
    node.disk.cut_tail("f", 3)
    assert await disk.read("f") == bytes([0, 0, 2])
    assert node.disk.synced_length("f") == 3
    node.kill()
    node.disk.wipe()
    assert node.disk.paths() == []


def test_durable_operations_of_one_disk_take_turns_and_those_of_two_disks_do_not(world: World) -> None:
    """A device carries out one flush after the other, whatever the files."""
    ended_ns: list[int] = []

    async def sync(ports: Ports, path: str) -> None:
        await ports.disk.append(path, b"x")
        await ports.disk.fsync(path)
        ended_ns.append(world.loop.now_ns)

    async def main() -> None:
        nodes = [idle(world, name) for name in ("one", "two")]
        await asyncio.sleep(0)
        for node, _ in nodes:
            node.disk.options = DiskOptions(sync_ns=(1_000_000, 1_000_000))
        one, two = (started[0] for _, started in nodes)
        began_ns = world.loop.now_ns
        await asyncio.gather(sync(one, "f"), sync(one, "g"), sync(two, "f"))
        assert [at_ns - began_ns for at_ns in ended_ns] == [1_000_000, 1_000_000, 2_000_000]

    world.run(main())


async def test_an_fsync_does_not_cover_what_was_cut_and_written_again(world: World) -> None:
    node, started = idle(world)
    await asyncio.sleep(0)
    await started[0].disk.append("f", bytes(8))
    syncing = asyncio.ensure_future(started[0].disk.fsync("f"))
    await asyncio.sleep(0)
    node.disk.cut_tail("f", 3)
    await syncing
    assert node.disk.synced_length("f") == 3


# ---- clock ----


@given(
    st.lists(
        st.tuples(
            st.integers(0, 10 * SECOND),
            st.sampled_from(["jump", "offset", "drift", "monotonic"]),
            st.floats(-0.9, 0.9),
        ),
        max_size=15,
    )
)
def test_monotonic_time_never_goes_back_and_offsets_are_exact(changes: list[tuple[int, str, float]]) -> None:
    async def main() -> None:
        clock = world.node("a").clock
        last_ns = clock.monotonic_ns()
        for wait_ns, change, amount in changes:
            await asyncio.sleep(wait_ns / SECOND)
            both_ns = clock.times_ns()
            wall_ns, monotonic_ns = clock.wall_ns(), clock.monotonic_ns()
            assert both_ns == (wall_ns, monotonic_ns)
            assert monotonic_ns >= last_ns
            if change == "jump":
                clock.jump(round(amount * SECOND))
                assert clock.wall_ns() == wall_ns + round(amount * SECOND)
            elif change == "offset":
                clock.set_offset(round(amount * SECOND))
                assert clock.offset_ns() == round(amount * SECOND)
            elif change == "drift":
                clock.set_drift(amount)
                assert clock.wall_ns() == wall_ns
            else:
                clock.set_monotonic_drift(amount)
            assert clock.monotonic_ns() == monotonic_ns
            assert clock.times_ns() == (clock.wall_ns(), monotonic_ns)
            last_ns = monotonic_ns

    with World(seed=1) as world:
        world.run(main())


@given(
    st.sampled_from([ClockOptions(), ClockOptions(wander_ns=SECOND // 10, jump_ns=SECOND)]),
    st.integers(0, 1 << 32),
    st.lists(st.tuples(st.integers(0, 6 * SECOND), st.sampled_from(["look", "skew", "as it is"])), min_size=1),
)
def test_a_look_at_both_clocks_shows_what_each_shows(
    options: ClockOptions, seed: int, looks: list[tuple[int, str]]
) -> None:
    async def main() -> None:
        both, one_by_one = (SimClock(world.loop, options, random.Random(seed)) for _ in range(2))
        for wait_ns, change in looks:
            await asyncio.sleep(wait_ns / SECOND)
            if change != "look":
                for clock in (both, one_by_one):
                    clock.skew(Skew(SECOND // 5) if change == "skew" else None)
            assert both.times_ns() == (one_by_one.wall_ns(), one_by_one.monotonic_ns())
            assert both.peak_offset_ns() == one_by_one.peak_offset_ns()

    with World(seed=1) as world:
        world.run(main())


async def test_drift_adds_up_and_clocks_are_independent(world: World) -> None:
    fast, other = world.node("fast").clock, world.node("other").clock
    fast.set_drift(0.5)
    fast.set_monotonic_drift(0.25)
    await asyncio.sleep(100)
    assert fast.offset_ns() == 50 * SECOND
    assert fast.monotonic_ns() == 125 * SECOND
    assert (other.offset_ns(), other.monotonic_ns()) == (0, 100 * SECOND)


async def test_sleep_is_by_the_node_s_own_monotonic_clock(world: World) -> None:
    node, started = idle(world)
    await asyncio.sleep(0)
    node.clock.set_monotonic_drift(1.0)
    before_ns = node.clock.monotonic_ns()
    await started[0].clock.sleep(10)
    assert world.loop.now_ns == 5 * SECOND
    assert node.clock.monotonic_ns() - before_ns == 10 * SECOND


async def test_a_clock_outlives_its_node_and_does_not_stand_still(world: World) -> None:
    node, _ = idle(world)
    node.clock.set_offset(7 * SECOND)
    node.kill()
    await asyncio.sleep(1)
    _, started = idle(world)
    await asyncio.sleep(0)
    wall_ns = started[0].clock.wall_ns()
    assert wall_ns == world.harness_ports("h").clock.wall_ns() + 7 * SECOND
    with pytest.raises(ValueError):
        node.clock.set_monotonic_drift(-1.0)


async def test_a_read_takes_time_and_ends_with_the_file_that_it_began_with(world: World) -> None:
    node, started = idle(world)
    await asyncio.sleep(0)
    disk = started[0].disk
    await disk.append("f", b"one")
    before_ns, reading = world.loop.now_ns, asyncio.create_task(disk.read_at("f", 1, 9))
    await asyncio.sleep(0)
    assert not reading.done(), "not in this turn"
    await disk.append("f", b"+two")
    await disk.write_atomic("g", b"other")
    await disk.rename("g", "f")
    assert await reading == b"ne+two" and await disk.read("f") == b"other"
    assert world.loop.now_ns >= before_ns + node.disk.options.read_ns[0]
