"""Clocks and links that don't do as they are told are not reported as faults; whose they are, and what is read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random

import pytest
from fake_cluster import FakeDatabase, FakeEnvironment
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.ops import Op
from harness.protocols import Impairment, ProcessState
from nemesis.faults import SetClocks
from nemesis.kinds.api import Moment
from nemesis.kinds.clocks import FAMILY, Strobe
from nemesis.nemesis import FaultNemesis, Patience
from nemesis.view import DEFAULT_CLOCK_OFFSET_NS, View

QUICK = Patience(choose_s=0.2, observe_s=0.5, recover_s=0.5, poll_s=0.05, probe_s=0.25)
CLOCK_KINDS = {kind.name: kind for kind in FAMILY.kinds}
STUCK = set(FakeDatabase().states)


class Stand:
    def __init__(self) -> None:
        self.environment = FakeEnvironment()
        self.database = FakeDatabase(wall_ns=self.environment.wall_ns)
        self.nemesis = FaultNemesis(self.database, self.environment, QUICK)

    async def step(self, step: str, fault: str, variant: str, instance: int = 0) -> dict[str, object]:
        value = {"fault": fault, "variant": variant, "instance": instance, "step": step, "seed": 5}
        done = await self.nemesis.invoke(Op("invoke", -1, step, value=value, time=0))
        assert isinstance(done.value, dict)
        return done.value


def carried_out(fault: str, variant: str, meddle: Callable[[Stand], None]) -> tuple[dict[str, object], ...]:
    """Begin a fault on a cluster that was meddled with, and end it."""

    async def scenario() -> tuple[dict[str, object], ...]:
        stand = Stand()
        meddle(stand)
        begun = await stand.step("begin", fault, variant)
        return begun, await stand.step("end", fault, variant)

    return asyncio.run(scenario())


@pytest.mark.parametrize("fault", sorted(CLOCK_KINDS))
def test_a_clock_that_does_not_move_is_not_observed(fault: str) -> None:
    begun, ended = carried_out(fault, "leaseholder-beyond", lambda stand: stand.environment.stuck_clocks.update(STUCK))
    assert begun["observed"] is False
    assert not ended.get("spans")


@pytest.mark.parametrize("variant", ["delay", "loss", "clog", "rate", "duplication", "reorder", "corruption", "jitter"])
def test_links_that_carry_all_the_same_are_not_observed(variant: str) -> None:
    def sturdy(stand: Stand) -> None:
        stand.environment.sturdy = True

    begun, _ = carried_out("packets", variant, sturdy)
    assert begun["observed"] is False
    begun, ended = carried_out("packets", variant, lambda stand: None)
    assert begun["observed"] is ended["observed"] is True


def test_a_node_that_another_fault_holds_shows_its_clock_if_it_can() -> None:
    """Seed 173 of a swarm: while a node's disk was full, nobody asked it what its clock showed. Of one that is dead
    nothing is known: a clock that was set wrong there alone is not observed."""

    async def scenario(fault: str, variant: str) -> object:
        stand = Stand()
        await stand.step("begin", fault, variant, 1)
        return (await stand.step("begin", "clock-jump", "leaseholder-beyond"))["observed"]

    assert asyncio.run(scenario("full-disk", "leaseholder")) is True
    assert asyncio.run(scenario("kill", "all")) is False


def test_a_clock_that_stays_wrong_is_our_failure() -> None:
    async def scenario() -> None:
        stand = Stand()
        assert (await stand.step("begin", "clock-jump", "leaseholder-beyond"))["observed"] is True
        wrong = dict(stand.environment.skews)
        shown = stand.database.wall_ns
        stand.database.wall_ns = lambda node: shown(node) + (5_000_000_000 if node in wrong else 0)
        ended = await stand.step("end", "clock-jump", "leaseholder-beyond")
        assert (ended["observed"], ended["blame"]) == (False, "harness")

    asyncio.run(scenario())


def test_a_node_that_does_not_answer_any_more_is_the_database_s_failure() -> None:
    async def scenario() -> None:
        stand = Stand()
        begun = await stand.step("begin", "clock-jump", "leaseholder-within")
        stand.database.states[begun["targets"][0]] = ProcessState.PAUSED  # type: ignore[index]
        ended = await stand.step("end", "clock-jump", "leaseholder-within")
        assert (ended["observed"], ended["blame"]) == (False, "database")

    asyncio.run(scenario())


def test_a_clock_belongs_to_one_fault_at_a_time() -> None:
    async def scenario() -> None:
        stand = Stand()
        assert (await stand.step("begin", "clock-jump", "all-within"))["observed"] is True
        skews = dict(stand.environment.skews)
        second = await stand.step("begin", "clock-drift", "all-beyond", instance=1)
        assert second["observed"] is False
        assert "others hold" in str(second["evidence"])
        await stand.step("end", "clock-drift", "all-beyond", instance=1)
        assert stand.environment.skews == skews

    asyncio.run(scenario())


def test_what_was_read_of_each_clock_is_told_with_its_times() -> None:
    begun, ended = carried_out("clock-jump", "leaseholder-beyond", lambda stand: None)
    readings = ended["readings"]
    assert isinstance(readings, dict)
    assert list(readings) == begun["targets"]
    offsets = [offset_ns for _, offset_ns in readings[begun["targets"][0]]]  # type: ignore[index]
    assert abs(offsets[0]) > DEFAULT_CLOCK_OFFSET_NS
    assert offsets[-1] == 0
    times = [at_ns for at_ns, _ in readings[begun["targets"][0]]]  # type: ignore[index]
    assert times == sorted(times)
    assert "readings" not in ended["evidence"]  # type: ignore[operator]


@settings(deadline=None)
@given(st.integers(0, 2**32), st.sampled_from(sorted(CLOCK_KINDS)))
def test_offsets_are_within_the_bound_or_beyond_it_as_their_names_say(seed: int, kind: str) -> None:
    nodes = FakeDatabase().nodes
    for name in ("all-within", "all-beyond", "minority-within", "random-beyond"):
        values = CLOCK_KINDS[kind].settings_with({})
        plan = CLOCK_KINDS[kind].variants[name].choose(Moment(View(nodes, {}), (), Random(seed), values))
        assert isinstance(plan.action, SetClocks | Strobe)
        offsets = [abs(skew.after(4_000_000_000)) for _, skew in plan.action.skews]
        if name.endswith("within"):
            assert min(offsets) > 0 and max(offsets) < DEFAULT_CLOCK_OFFSET_NS / 2, (
                "two of them are no further apart than it"
            )
        else:
            assert min(offsets) > DEFAULT_CLOCK_OFFSET_NS


def test_what_a_node_sends_belongs_to_one_fault_at_a_time() -> None:
    async def scenario() -> None:
        stand = Stand()
        await stand.step("begin", "packets", "loss")
        before = dict(stand.environment.impaired)
        second = await stand.step("begin", "packets", "loss", instance=1)
        assert second["observed"] is False
        assert stand.environment.impaired == before
        assert all(isinstance(each, Impairment) and each.loss for each in before.values())

    asyncio.run(scenario())
