"""The virtual-time loop runs asyncio's own tools, in a fixed order, and says clearly when it can't go on."""

from __future__ import annotations

import asyncio
import gc
import warnings
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import HarnessError
from harness.ports.api import Ports
from harness.ports.machines import ProcessState
from harness.ports.sim import SimulationStuck, World


@pytest.fixture
def world() -> Iterator[World]:
    with World(seed=1) as world:
        yield world
        assert world.errors == []


async def forever(ports: Ports) -> None:
    await asyncio.Event().wait()


def test_virtual_time_jumps_to_the_next_timer(world: World) -> None:
    async def main() -> float:
        await asyncio.sleep(3600)
        return asyncio.get_running_loop().time()

    assert world.run(main()) == 3600.0


@given(st.lists(st.integers(0, 50), min_size=1, max_size=30))
def test_timers_fire_in_time_order_and_ties_in_the_order_set(delays: list[int]) -> None:
    fired: list[tuple[int, int]] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        for number, delay in enumerate(delays):
            loop.call_later(delay / 1000, fired.append, (delay, number))
        await asyncio.sleep(0.06)

    with World(seed=1) as world:
        world.run(main())
    assert fired == sorted((delay, number) for number, delay in enumerate(delays))


def test_wait_for_and_timeout_cancel_what_is_late(world: World) -> None:
    async def main() -> list[str]:
        seen: list[str] = []

        async def slow() -> None:
            try:
                await asyncio.sleep(10)
            except asyncio.CancelledError:
                seen.append("cancelled")
                raise

        with pytest.raises(TimeoutError):
            await asyncio.wait_for(slow(), 1)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await slow()
        assert await asyncio.wait_for(asyncio.sleep(0.5, "in time"), 1) == "in time"
        assert asyncio.get_running_loop().time() == 2.5
        return seen

    assert world.run(main()) == ["cancelled", "cancelled"]


def test_events_locks_queues_and_gather_work(world: World) -> None:
    async def main() -> list[int]:
        queue: asyncio.Queue[int] = asyncio.Queue(maxsize=2)
        lock, ready, got = asyncio.Lock(), asyncio.Event(), list[int]()

        async def produce(start: int) -> None:
            await ready.wait()
            for number in range(start, start + 3):
                await queue.put(number)

        async def consume() -> None:
            for _ in range(6):
                async with lock:
                    got.append(await queue.get())
                    await asyncio.sleep(0.001)

        tasks = asyncio.gather(produce(0), produce(10), consume())
        ready.set()
        await tasks
        return got

    assert sorted(world.run(main())) == [0, 1, 2, 10, 11, 12]


async def test_cancelled_timers_leave_the_heap(world: World) -> None:
    loop = asyncio.get_running_loop()
    kept = loop.call_later(5, lambda: None)
    for _ in range(5000):
        loop.call_later(1000, lambda: None).cancel()
    assert not kept.cancelled()
    assert len(world.loop._heap) < 2500
    assert world.loop.now_ns == 0


def test_the_result_and_the_exception_of_main_come_back(world: World) -> None:
    async def good() -> str:
        return "result"

    async def bad() -> None:
        raise LookupError("main failed")

    assert world.run(good()) == "result"
    with pytest.raises(LookupError, match="main failed"):
        world.run(bad())


def test_a_deadlock_is_one_clear_sentence(world: World) -> None:
    async def main() -> None:
        world.node("a").start(forever)
        await asyncio.sleep(2)
        world.node("a").pause()
        await asyncio.Event().wait()

    with pytest.raises(SimulationStuck, match=r"nothing is left to run at 2\.0+ s of virtual time.*a paused"):
        world.run(main())


def test_the_step_limit_ends_a_run_that_does_not_end() -> None:
    async def main() -> None:
        while True:
            await asyncio.sleep(1)

    with World(seed=1, step_limit=500) as world, pytest.raises(SimulationStuck, match="limit of 500 steps"):
        world.run(main())


def test_time_that_stands_still_is_noticed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.ports.sim.loop.STALL_STEPS", 1000)

    async def spin() -> None:
        while True:
            await asyncio.sleep(0)

    with pytest.raises(SimulationStuck, match="virtual time did not advance"):
        world.run(spin())


def test_observers_see_every_step_and_can_end_the_run(world: World) -> None:
    seen: list[int] = []

    def observe(observed: World) -> None:
        assert observed is world
        seen.append(observed.loop.now_ns)
        if observed.loop.now_ns >= 3 * 10**9:
            raise AssertionError("invariant broken")

    async def main() -> None:
        while True:
            await asyncio.sleep(1)

    world.observers.append(observe)
    with pytest.raises(AssertionError, match="invariant broken"):
        world.run(main())
    assert sorted(set(seen)) == [0, 10**9, 2 * 10**9, 3 * 10**9]


def test_a_failing_callback_of_the_harness_ends_the_run(world: World) -> None:
    def broken() -> None:
        raise ZeroDivisionError

    async def main() -> None:
        asyncio.get_running_loop().call_later(1, broken)
        await asyncio.sleep(2)

    with pytest.raises(ZeroDivisionError):
        world.run(main())


def test_lost_exceptions_of_harness_tasks_are_kept() -> None:
    async def fail() -> None:
        raise LookupError("nobody awaits me")

    async def main() -> None:
        asyncio.create_task(fail())  # noqa: RUF006 - that nobody keeps it is the point
        await asyncio.sleep(1)

    with World(seed=1) as world:
        world.run(main())
        assert [str(error) for error in world.errors] == ["nobody awaits me"]


def test_a_world_that_ended_runs_nothing(world: World) -> None:
    async def main() -> None:
        raise AssertionError("this must not run")

    world.close()
    with pytest.raises(HarnessError, match="ended"):
        world.run(main())


def test_worlds_run_inside_another_loop_and_inside_each_other() -> None:
    async def nap() -> float:
        await asyncio.sleep(5)
        return asyncio.get_running_loop().time()

    async def with_a_world_inside() -> list[float]:
        await asyncio.sleep(0.001)
        with World(seed=2) as inner:
            napped = inner.run(nap())
        await asyncio.sleep(0.001)
        return [napped, asyncio.get_running_loop().time()]

    with World(seed=1) as world:
        assert world.run(with_a_world_inside()) == [5.0, 0.002]
    assert asyncio.run(with_a_world_inside())[0] == 5.0


@pytest.mark.filterwarnings("error")
def test_the_end_of_a_world_is_quiet(caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> None:
    async def stubborn(ports: Ports) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await ports.clock.sleep(1)
            await ports.disk.append("f", b"after the end")

    async def main(world: World) -> None:
        for name in ("killed", "paused", "running"):
            world.node(name).start(stubborn)
        await asyncio.sleep(1)
        world.node("killed").kill()
        world.node("paused").pause()
        world.node("just started").start(stubborn)

    with warnings.catch_warnings(action="ignore"):
        gc.collect()  # What tests before left unclosed is not of this world.
    with warnings.catch_warnings(record=True) as warned, World(seed=1) as world:
        world.run(main(world))
        states = [node.state for node in world.nodes]
    del world
    gc.collect()
    assert states.count(ProcessState.DEAD) == 1
    assert [str(warning.message) for warning in warned] == []
    assert caplog.text == ""
    assert capfd.readouterr().err == ""


def test_nothing_is_left_of_a_world_that_nobody_closed(capfd: pytest.CaptureFixture[str]) -> None:
    async def main(world: World) -> None:
        world.node("a").start(forever)
        await asyncio.sleep(1)

    def abandon() -> Coroutine[Any, Any, None]:
        world = World(seed=1)
        world.run(main(world))
        return forever(world.harness_ports("h"))

    abandon().close()
    gc.collect()
    assert capfd.readouterr().err == ""
