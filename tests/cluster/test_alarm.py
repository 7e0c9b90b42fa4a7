"""One wake-up time, moved about: it wakes at the time that was set last, once, however its clock drifts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.alarm import Alarm
from harness.ports.sim.clock import SimClock
from harness.ports.sim.world import World

MS = 1_000_000
FAR_NS = 1 << 50


def played(drift: float, play: Callable[[Alarm, SimClock, list[int]], None]) -> list[int]:
    """When it woke, on its own clock, within a second; it is set far ahead then."""
    woken: list[int] = []

    async def scenario(world: World) -> None:
        clock = world.node("a").clock
        clock.set_monotonic_drift(drift)

        def wake() -> None:
            woken.append(clock.monotonic_ns())
            alarm.set(FAR_NS)

        alarm = Alarm(clock, wake)
        play(alarm, clock, woken)
        await asyncio.sleep(1)

    with World(seed=1) as world:
        world.run(scenario(world))
    return woken


@given(st.lists(st.integers(0, 100), min_size=1, max_size=6), st.sampled_from((-0.01, 0.0, 0.01)))
def test_it_wakes_once_at_the_time_that_was_set_last(times: list[int], drift: float) -> None:
    def play(alarm: Alarm, clock: SimClock, _: list[int]) -> None:
        for time in times:
            alarm.set(time * MS)

    (woken_ns,) = played(drift, play)
    assert times[-1] * MS <= woken_ns <= times[-1] * MS + MS // 100


def test_earlier_moves_it_ahead_and_never_back() -> None:
    def play(alarm: Alarm, clock: SimClock, _: list[int]) -> None:
        alarm.set(50 * MS)
        alarm.set_earlier(20 * MS)
        alarm.set_earlier(70 * MS)

    (woken_ns,) = played(0.0, play)
    assert woken_ns // MS == 20


def test_cancelled_it_never_wakes_and_can_not_be_set_again() -> None:
    def play(alarm: Alarm, clock: SimClock, _: list[int]) -> None:
        alarm.set(50 * MS)
        alarm.cancel()
        alarm.set(20 * MS)

    assert played(0.0, play) == []


@pytest.mark.parametrize("handed_on", [True, False])
def test_what_waking_raises_is_handed_on_once_and_ends_it(handed_on: bool) -> None:
    errors: list[BaseException] = []

    async def scenario(world: World) -> None:
        def wake() -> None:
            raise LookupError("a bug")

        alarm = Alarm(world.node("a").clock, wake, errors.append if handed_on else None)
        alarm.set(10 * MS)
        await asyncio.sleep(1)

    with World(seed=1) as world:
        if handed_on:
            world.run(scenario(world))
            assert [str(error) for error in errors] == ["a bug"]
        else:
            with pytest.raises(LookupError):
                world.run(scenario(world))
