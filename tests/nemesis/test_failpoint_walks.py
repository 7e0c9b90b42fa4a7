"""Walks of failpoints on a fake cluster: which points are armed, and for how long one is in effect."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from fake_cluster import FakeDatabase
from test_nemesis_life_cycle import START_NS, Stand

from harness.ops import Op
from harness.protocols import ProcessState


async def test_only_the_failpoints_that_were_named_are_armed() -> None:
    stand = Stand()
    value = {"fault": "failpoint", "variant": "delay", "instance": 0, "step": "begin", "seed": 5}
    begun = await stand.nemesis.invoke(
        Op("invoke", -1, "start-failpoint", value={**value, "names": {"points": ["after_vote"]}}, time=0)
    )
    assert begun.value["observed"] is True
    armed = [call.split() for call in stand.database.calls if call.startswith("arm ")]
    assert {point for _, _, point, _ in armed} == {"after_vote"}
    assert {node[0] for _, node, _, _ in armed} == {"t"}, "masters have no such point"
    await stand.end("failpoint")


def test_a_walk_of_failpoints_comes_to_those_that_are_passed() -> None:
    """One of two walks armed points that idle masters never come to, and a run of 600 s was unknown."""

    async def scenario() -> dict[str, Any]:
        stand = Stand()
        stand.database.lonely_points = tuple(f"lonely.{number}" for number in range(60))
        stand.database.passing = {"t2": {"before_vote", "after_vote"}, "m1": {"before_vote"}}
        await stand.begin("failpoint", "delay")
        await stand.environment.clock.sleep(10.0)
        return await stand.end("failpoint")

    ended = asyncio.run(scenario())
    assert sum(last - first for first, last in ended["spans"]) > 5e9
    assert set(ended["evidence"]["reached"]) == {"before_vote", "after_vote"}
    assert len(ended["evidence"]["armed_in_vain"]) > 10, "others have their turns as well"


@pytest.mark.parametrize(("variant", "held_s"), [("crash", 4.0), ("delay", 0.0)])
def test_a_point_is_in_effect_while_the_node_that_it_ended_is_not_up_again(variant: str, held_s: float) -> None:
    """Of 29 walks in containers 41 of 117 s were in effect: of a node that a point had ended nothing was claimed."""

    async def scenario() -> float:
        stand = Stand()
        stand.database.mute = set(stand.database.states)
        await stand.begin("failpoint", variant)
        stand.database.passing = {}
        ceased_ns = stand.environment.clock.now_ns
        await stand.environment.clock.sleep(4.0)
        ending_ns = stand.environment.clock.now_ns
        ((_, last_ns),) = (await stand.end("failpoint"))["spans"]
        return float(last_ns + ending_ns - START_NS - ceased_ns) / 1e9

    assert asyncio.run(scenario()) == pytest.approx(held_s, abs=0.6)


def test_a_node_that_a_point_holds_while_others_are_armed_there_is_seen() -> None:
    """Seed 39 of a swarm of `catalog`: for as long as a stopped node was asked to arm more, nothing was claimed."""

    class Stopping(FakeDatabase):
        async def arm(self, node: str, *args: Any, **options: Any) -> bool:
            if self.states[node] is ProcessState.PAUSED:
                await self.sleep(5.0)
                return False
            await self.pause(node)
            return await super().arm(node, *args, **options)

    async def scenario() -> float:
        stand = Stand(Stopping)
        await stand.begin("failpoint", "stop")
        begun_ns = stand.environment.clock.now_ns
        await stand.environment.clock.sleep(4.0)
        assert stand.environment.clock.now_ns - begun_ns == 4e9
        ended = await stand.end("failpoint")
        assert stand.is_whole()
        return float(sum(last - first for first, last in ended["spans"])) / 1e9

    assert asyncio.run(scenario()) == pytest.approx(4.0, abs=0.2)


def test_a_walk_that_was_in_vain_goes_on_where_points_are_passed() -> None:
    async def scenario() -> list[str]:
        stand = Stand()
        stand.database.passing = {node: {"before_vote"} for node in stand.database.states if node.startswith("t")}
        await stand.begin("failpoint", "delay")
        stand.database.calls.clear()
        await stand.environment.clock.sleep(30.0)
        await stand.end("failpoint")
        return [call.split()[1][0] for call in stand.database.calls if call.startswith("disarm ")]

    turns = asyncio.run(scenario())
    known = "".join(turns[turns.index("t") :])
    assert "m" in known and "mm" not in known, "idle masters have turns, never two in a row"


def test_a_node_that_passes_nothing_keeps_a_walk_no_longer_than_its_points_stay_armed() -> None:
    async def scenario() -> int:
        stand = Stand()
        stand.database.passing = {}
        await stand.begin("failpoint", "delay")
        stand.database.calls.clear()
        await stand.environment.clock.sleep(10.0)
        await stand.end("failpoint")
        return sum(call.startswith("arm ") and "before_vote" in call for call in stand.database.calls)

    assert asyncio.run(scenario()) >= 20
