"""What sets machines of a simulated world apart: clocks that go wrong within bounds, slow processors, bad disks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import pairwise

import pytest

from harness.ports.api import DiskFull, Ports
from harness.ports.failpoints import ANY, Arming, ProcessFailpoints, linger, pass_by
from harness.ports.machines import ProcessState
from harness.ports.sim import DiskOptions, MachineOptions, SimNode, World
from harness.ports.sim.clock import EPOCH_NS, ClockOptions
from harness.ports.sim.incarnation import Processor
from harness.ports.sim.worlds import BEYOND_BOUND, ClockBounds, PhysicalWorld

MS, SECOND = 10**6, 10**9
ROLES = (("m1", "m2", "m3"), ("t1", "t2", "t3", "t4", "t5"))
BOUNDS = ClockBounds(0.01, 500 * MS)


def offsets(options: ClockOptions, seed: int, seconds: int = 120) -> list[int]:
    """How wrong the wall clock of a machine is, each second."""

    async def main() -> list[int]:
        found = []
        for _ in range(seconds):
            found.append(node.clock.wall_ns() - EPOCH_NS - world.loop.now_ns)
            await asyncio.sleep(1)
        return found

    with World(seed, machines={"a": MachineOptions(options)}) as world:
        node = world.node("a")
        return world.run(main())


def test_a_wandering_clock_stays_within_its_bound_and_moves() -> None:
    for seed in range(20):
        found = offsets(ClockOptions(wander_ns=200 * MS), seed)
        assert max(map(abs, found)) <= 200 * MS
        assert len(set(found)) > 50
        assert all(abs(after - before) <= 11 * MS for before, after in pairwise(found))


def test_large_jumps_are_jumped_back() -> None:
    for seed in range(20):
        found = offsets(ClockOptions(wander_ns=100 * MS, jump_ns=5 * SECOND), seed)
        out = [abs(offset) > 100 * MS for offset in found]
        assert not all(out[-20:])
        assert max(map(abs, found)) <= 5 * SECOND
    assert any(abs(offset) > SECOND for seed in range(5) for offset in offsets(ClockOptions(jump_ns=5 * SECOND), seed))


def test_how_often_the_clock_is_read_changes_nothing() -> None:
    options = ClockOptions(wander_ns=200 * MS, jump_ns=SECOND)

    async def main(world: World, pause_s: float) -> int:
        clock = world.node("a").clock
        while world.loop.now_ns < 60 * SECOND:
            await asyncio.sleep(pause_s)
            clock.wall_ns()
        return clock.wall_ns()

    found = set()
    for pause_s in (0.5, 1.0, 20.0, 60.0):
        with World(3, machines={"a": MachineOptions(options)}) as world:
            found.add(world.run(main(world, pause_s)))
    assert len(found) == 1


def test_clocks_keep_the_declared_bounds_unless_told_otherwise() -> None:
    for seed in range(50):
        within = PhysicalWorld(drift="within", wall="within", jumps="within").machines(seed, ROLES, BOUNDS)
        beyond = PhysicalWorld(drift="beyond", jumps="beyond").machines(seed, ROLES, BOUNDS)
        clocks = [options.clock for options in within.values() if options.clock is not None]
        assert len(clocks) == 8
        assert all(abs(clock.drift) <= 0.01 for clock in clocks)
        assert all(2 * max(clock.wander_ns, clock.jump_ns) <= 500 * MS for clock in clocks)
        assert any(abs(options.clock.drift) > 0.01 for options in beyond.values() if options.clock is not None)
        assert all(options.clock.jump_ns > 500 * MS for options in beyond.values() if options.clock is not None)
    assert BEYOND_BOUND["within"] < 1 < BEYOND_BOUND["beyond"]


def test_one_machine_of_each_role_is_worse_off() -> None:
    world = PhysicalWorld(fsync_hang=0.5, bit_flips=0.5, slow_step_us=100, step_us=10)
    chosen = set()
    for seed in range(40):
        made = world.machines(seed, ROLES, BOUNDS)
        for names in ROLES:
            (worse,) = (name for name in names if made[name].processor.step_ns == 100_000)
            chosen.add(worse)
            for name in names:
                disk = made[name].disk
                assert disk is not None and (disk.hang, disk.flip) == ((0.5, 0.5) if name == worse else (0, 0))
                assert made[name].processor.step_ns == (100_000 if name == worse else 10_000)
    assert chosen == {name for names in ROLES for name in names}


# ---- slow processors ----


def play(main: Callable[[World, SimNode], object], options: MachineOptions, seed: int = 1) -> None:
    with World(seed, machines={"a": options}) as world:
        world.run(main(world, world.node("a")))  # type: ignore[arg-type]
        assert world.errors == [] and world.node("a").errors == []


async def count_steps(ports: Ports, done: list[int], steps: int) -> None:
    for _ in range(steps):
        await asyncio.sleep(0)
    done.append(ports.clock.monotonic_ns())


def test_steps_take_time_and_wait_for_each_other() -> None:
    async def main(world: World, node: SimNode) -> None:
        done: list[int] = []

        async def program(ports: Ports) -> None:
            both = [asyncio.create_task(count_steps(ports, done, 100)) for _ in range(2)]
            await asyncio.gather(*both)

        node.start(program)
        await node.wait_dead()
        assert len(done) == 2 and min(done) >= 200 * MS - 2 * MS and max(done) <= 210 * MS

    play(main, MachineOptions(processor=Processor(MS)))


def test_a_slow_machine_can_be_paused_resumed_and_killed() -> None:
    async def main(world: World, node: SimNode) -> None:
        beats: list[int] = []

        async def program(ports: Ports) -> None:
            while True:
                beats.append(world.loop.now_ns)
                await ports.clock.sleep(0.01)

        node.start(program)
        await asyncio.sleep(0.1)
        node.pause()
        assert node.state is ProcessState.PAUSED
        seen = len(beats)
        await asyncio.sleep(1)
        assert len(beats) == seen > 3
        node.resume()
        assert node.state is ProcessState.RUNNING
        await asyncio.sleep(0.1)
        assert len(beats) > seen + 3
        node.kill()
        seen = len(beats)
        await asyncio.sleep(1)
        assert len(beats) == seen and node.state is ProcessState.DEAD
        node.start(program)
        await asyncio.sleep(0.1)
        assert len(beats) > seen

    play(main, MachineOptions(processor=Processor(MS)))


def test_messages_queue_at_a_slow_machine() -> None:
    async def main(world: World, node: SimNode) -> None:
        heard: list[int] = []

        async def program(ports: Ports) -> None:
            async def on_call(_peer: object, request: bytes) -> bytes:
                return request

            await ports.network.listen("a:1", on_call, lambda _peer, _message: heard.append(world.loop.now_ns))
            await asyncio.Event().wait()

        node.start(program)
        client = world.harness_ports("c").network
        await asyncio.sleep(0.1)
        for _ in range(20):
            client.notify("a:1", b"x")
        await asyncio.sleep(1)
        assert len(heard) == 20
        assert all(after - before >= 10 * MS for before, after in pairwise(heard))
        assert await client.call("a:1", b"?", 1.0) == b"?"

    play(main, MachineOptions(processor=Processor(10 * MS)))


# ---- bad disks ----


def test_a_hanging_disk_ends_nothing_until_it_is_back() -> None:
    async def main(world: World, node: SimNode) -> None:
        ends: list[int] = []

        async def program(ports: Ports) -> None:
            async def sync(name: str) -> None:
                await ports.disk.append(name, b"x")
                await ports.disk.fsync(name)
                ends.append(world.loop.now_ns)

            await asyncio.gather(*(sync(f"f{number}") for number in range(5)))

        node.start(program)
        await node.wait_dead()
        assert len(ends) == 5 and min(ends) >= 2 * SECOND and max(ends) <= 2 * SECOND + 10 * MS

    play(main, MachineOptions(disk=DiskOptions(hang=1.0, episode_ns=(2 * SECOND, 2 * SECOND))))


async def appended(ports: Ports, count: int) -> list[bool]:
    """Whether the disk had room for each of `count` appends, a hundred in a second."""
    tries = []
    for _ in range(count):
        try:
            await ports.disk.append("f", b"x")
            tries.append(True)
        except DiskFull:
            tries.append(False)
        await ports.clock.sleep(0.01)
    return tries


@pytest.mark.parametrize(
    ("fill", "tries", "refused"),
    [(0.005, 3000, lambda number: 0 < number < 3000 and number % 100 <= 5), (1.0, 2000, lambda n: 800 < n < 1100)],
    ids=["an episode is a second of a hundred tries", "it has room half of the time"],
)
def test_a_disk_is_full_for_a_while(fill: float, tries: int, refused: Callable[[int], bool]) -> None:
    """With odds for each write alone one that is always written to was full again at once: its node had no replica for
    the rest of a run."""

    async def main(world: World, node: SimNode) -> None:
        found: list[bool] = []

        async def program(ports: Ports) -> None:
            found.extend(await appended(ports, tries))

        node.start(program)
        await node.wait_dead()
        assert len(found) == tries and refused(found.count(False)), found.count(False)

    play(main, MachineOptions(disk=DiskOptions(fill=fill, episode_ns=(SECOND, SECOND))))


@pytest.mark.parametrize("odds", [0.0, 1.0])
def test_a_crash_flips_one_synced_bit_when_asked(odds: float) -> None:
    async def main(world: World, node: SimNode) -> None:
        async def program(ports: Ports) -> None:
            await ports.disk.append("f", bytes(100))
            await ports.disk.fsync("f")
            await asyncio.Event().wait()

        node.start(program)
        await asyncio.sleep(1)
        node.kill()
        assert sum(byte.bit_count() for byte in node.disk.peek("f")) == odds

    play(main, MachineOptions(disk=DiskOptions(flip=odds)))


# ---- rare orders ----


def test_a_long_turn_holds_up_what_is_ready_and_keeps_its_order() -> None:
    async def main(world: World, node: SimNode) -> None:
        ran: list[tuple[int, int]] = []

        async def program(ports: Ports) -> None:
            loop = asyncio.get_running_loop()
            for number in range(2_000):
                loop.call_soon(lambda number=number: ran.append((number, world.loop.now_ns)))
            await ports.clock.sleep(60)

        node.start(program)
        await node.wait_dead()
        assert [number for number, _ in ran] == list(range(2_000))
        long = [(before, after - before) for (_, before), (_, after) in pairwise(ran) if after > before]
        assert 20 < len(long) < 200
        for began_ns, wait_ns in long:
            slower = 10 if SECOND // 2 <= began_ns < SECOND else 1
            assert slower * MS <= wait_ns <= slower * 50 * MS
        assert max(wait_ns for _, wait_ns in long) > 60 * MS, "tenfold in the stretch"

    play(main, MachineOptions(processor=Processor(0, 0.05, (SECOND // 2, SECOND))))


def test_a_slow_place_lets_later_passes_overtake_and_stays_slow() -> None:
    async def main(world: World, node: SimNode) -> None:
        done: list[int] = []

        async def program(ports: Ports) -> None:
            async def one(number: int) -> None:
                await pass_by(ports.failpoints, "slow")
                done.append(number)

            for round_ in range(3):
                await asyncio.gather(*(one(10 * round_ + number) for number in range(10)))
                assert isinstance(ports.failpoints, ProcessFailpoints)
                ports.failpoints.arm(Arming("slow", "delay", seconds=0.5))
                disturbed = [node.disturbed]
                await one(-1)
                ports.failpoints.disarm()
                assert [*disturbed, node.disturbed] == [True, False], "it is well as it is"

        for _ in range(2):
            node.start(program)
            await node.wait_dead()
        rounds = [[each for each in done if each // 10 == number] for number in range(3)]
        assert all(len(each) == 20 and each != sorted(each) for each in rounds)
        assert node.body.acted == {"slow": 6}, "only what was armed is a fault"

    play(main, MachineOptions(slow_places={"slow": 0.05}))


def test_slow_places_are_points_of_the_machine_s_role_and_differ_between_worlds() -> None:
    world, found = PhysicalWorld(slow_places=3), set()
    for seed in range(30):
        made = world.machines(seed, ROLES, BOUNDS, [("a", "b", "both"), ("both", "c", "d")])
        slow = {each: most_s for options in made.values() for each, most_s in options.slow_places.items()}
        assert len(slow) == 3 and slow == world.slow_points(seed, [("a", "b", "both"), ("both", "c", "d")])
        assert {each for name in ROLES[0] for each in made[name].slow_places} <= {"a", "b", "both"}
        found |= slow.keys()
    assert found == {"a", "b", "c", "d", "both"}


def test_slow_waits_are_drawn_beside_slow_places_and_of_the_machine_s_role() -> None:
    places, waits, found = [("a", "b", "both"), ("both", "c", "d")], [("w", "any"), ("any", "x")], set()
    for seed in range(30):
        plain = PhysicalWorld(slow_places=3).machines(seed, ROLES, BOUNDS, places, waits)
        made = PhysicalWorld(slow_places=3, slow_waits=2).machines(seed, ROLES, BOUNDS, places, waits)
        more = {name: made[name].slow_places.keys() - plain[name].slow_places.keys() for name in made}
        assert all(made[name].slow_places.items() >= plain[name].slow_places.items() for name in made)
        assert all(more[name] <= set(waits[number]) for number, names in enumerate(ROLES) for name in names)
        found |= {each for each in more.values() for each in each}
    assert found == {"w", "any", "x"}


def test_where_a_process_waits_longer_nothing_else_happens() -> None:
    async def main(world: World, node: SimNode) -> None:
        async def program(ports: Ports) -> None:
            failpoints = ports.failpoints
            assert isinstance(failpoints, ProcessFailpoints)
            failpoints.arm(Arming(ANY, "record", times=0))
            before_ns = ports.clock.monotonic_ns()
            await linger(failpoints, "quick")
            assert ports.clock.monotonic_ns() == before_ns
            for _ in range(20):
                await linger(failpoints, "slow")
            assert 200 * MS < ports.clock.monotonic_ns() - before_ns < 800 * MS
            assert failpoints.hits == {}

        node.start(program)
        await node.wait_dead()
        assert node.errors == []

    play(main, MachineOptions(slow_places={"slow": 0.05}))


def test_the_first_message_to_an_address_waits_for_a_connection() -> None:
    async def main(world: World, node: SimNode) -> None:
        async def program(ports: Ports) -> None:
            async def on_call(_peer: object, request: bytes) -> bytes:
                return request

            await ports.network.listen("a:1", on_call, lambda *_: None)
            await asyncio.Event().wait()

        node.start(program)
        await asyncio.sleep(0.1)
        client, took = world.harness_ports("c").network, []
        for _ in range(2):
            before = world.loop.now_ns
            await client.call("a:1", b"?", 1.0)
            took.append(world.loop.now_ns - before)
        assert took[0] >= 6 * MS and took[1] <= 4 * MS

    play(main, MachineOptions())
