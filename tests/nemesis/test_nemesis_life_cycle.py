"""The life cycle of faults on a fake cluster: in effect, observed, healed, observed recovered."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import replace
from typing import Any

import pytest
from fake_cluster import GROUPS, FakeDatabase, FakeEnvironment

from harness.errors import HarnessError
from harness.history.ops import Op
from harness.ports.machines import CLIENTS, ProcessState
from harness.protocols import DiskState, NodeStatus
from nemesis.kinds.api import Claims
from nemesis.kinds.decommission import Decommission, Decommissions
from nemesis.kinds.disks import DiskTroubles, TroubleDisks
from nemesis.kinds.placement import LastWishes
from nemesis.kinds.side_transport import SideTroubles, TroubleAside
from nemesis.nemesis import FaultNemesis, Injectors, Patience
from nemesis.observe import DatabaseObserver, Sight
from nemesis.registry import KINDS

QUICK = Patience(
    choose_s=0.2, observe_s=0.5, recover_s=0.2, poll_s=0.05, probe_s=0.25, script_s=1.0, script_poll_s=0.05
)
START_NS = 77_000_000_000


class Stand:
    """A fake cluster with its nemesis, and the steps of tests in short."""

    def __init__(self, database: type[FakeDatabase] = FakeDatabase) -> None:
        self.environment = FakeEnvironment()
        self.database = database(wall_ns=self.environment.wall_ns, now_ns=self.environment.clock.monotonic_ns)
        self.database.sleep = self.environment.clock.sleep
        self.nemesis = FaultNemesis(self.database, self.environment, QUICK)

    async def step(self, fault: str, step: str, instance: int | None, variant: str = "one", seed: int = 5) -> Op:
        value = {"fault": fault, "variant": variant, "instance": instance, "step": step, "seed": seed}
        return await self.nemesis.invoke(Op("invoke", -1, f"{step}-{fault}", value=value, time=START_NS))

    async def begin(self, fault: str, variant: str = "one", instance: int = 0, seed: int = 5) -> dict[str, Any]:
        return (await self.step(fault, "begin", instance, variant, seed)).value

    async def end(self, fault: str, instance: int | None = 0) -> dict[str, Any]:
        return (await self.step(fault, "end", instance)).value

    def is_whole(self) -> bool:
        running = all(state is ProcessState.RUNNING for state in self.database.states.values())
        left = (self.environment.links_cut, self.environment.skews, self.environment.impaired, self.database.disks)
        left += (any(self.database.held),)
        masters = sorted(self.database.servers[name] for name in GROUPS["catalog"])
        return running and not any(left) and sorted(self.database.masters) == masters and not self.database.strangers


COME_AND_GO = (
    "crash-loop",
    "rolling-restart",
    "clock-strobe",
    "failpoint",
    "master-membership",
    "leadership",
    "protocol-step",
    "side-transport",
    "placement-change",
    "policy-change",
    "client-clock",
    "decommission",
)
"""Between two blows nothing is broken; nor is anything once a master was replaced, or another node leads, or where one
waits at a step, messages are lost that nobody waits for, or replicas are to move."""


HERE = [
    (kind.name, name)
    for kind in KINDS.values()
    for name, variant in kind.variants.items()
    if "spare-master" not in variant.needs
]
"""Every variant that three masters allow."""


@pytest.mark.parametrize(("fault", "variant"), HERE)
async def test_every_variant_takes_effect_is_seen_and_heals(fault: str, variant: str) -> None:
    stand = Stand()
    stand.database.renames = fault == "master-membership"
    begun = await stand.begin(fault, variant)
    assert begun["observed"] is True
    assert begun["observed_ns"] >= START_NS
    assert begun["targets"]
    assert (await stand.nemesis._injectors.look_gone(99)).met is True, "nothing is left of what another kind did"
    assert not stand.is_whole() or fault in COME_AND_GO
    ended = await stand.end(fault)
    assert ended["observed"] is True
    assert stand.is_whole()


def test_a_node_that_says_nothing_of_its_disk_neither_shows_nor_denies_that_it_hangs() -> None:
    async def scenario() -> list[bool | None]:
        stand = Stand()
        disks = DiskTroubles(DatabaseObserver(stand.database, stand.environment), Claims())
        await disks.carry_out(0, TroubleDisks(("t1", "t2"), "hung"))
        found: list[bool | None] = [(await disks.look(0)).met]
        silent = {"t2"}
        told = stand.database.probe_disk

        async def lost(node: str) -> DiskState | None:
            return None if node in silent else await told(node)

        stand.database.probe_disk = lost  # type: ignore[method-assign]
        found.append((await disks.look(0)).met)
        stand.database.disks["t1"] = DiskState(1.0, True, False)
        return [*found, (await disks.look(0)).met]

    assert asyncio.run(scenario()) == [True, None, False]


async def test_a_cut_that_leaks_is_not_observed() -> None:
    stand = Stand()
    stand.environment.leaky = True
    begun = await stand.begin("partition", "halves")
    assert begun["observed"] is False
    assert begun["observed_ns"] is None
    assert begun["evidence"]["leaking"]


def test_a_cut_that_vanishes_is_in_effect_only_until_then() -> None:
    async def scenario(at_s: float) -> tuple[float, dict[str, Any]]:
        stand = Stand()
        clock = stand.environment.clock
        begun = await stand.begin("partition", "halves")
        began_ns = clock.now_ns
        while clock.now_ns < began_ns + 5e9:
            await clock.sleep(0.05)
            if clock.now_ns - began_ns >= at_s * 1e9:
                stand.environment.links_cut.clear()
        ended = await stand.end("partition")
        assert begun["observed"] is ended["observed"] is True
        return sum(last - first for first, last in ended["spans"]) / 1e9, ended

    seen_s, _ = asyncio.run(scenario(at_s=0.45))
    assert 0.2 <= seen_s <= 0.5
    seen_s, ended = asyncio.run(scenario(at_s=9.9))
    assert seen_s >= 4.9
    assert len(ended["spans"]) == 1


async def test_a_kill_whose_victims_come_back_by_themselves_is_seen_to_end() -> None:
    stand = Stand()
    begun = await stand.begin("kill", "one")
    for _ in range(60):
        await stand.environment.clock.sleep(0.05)
        await stand.database.start(begun["targets"][0])
    ended = await stand.end("kill")
    assert sum(last - first for first, last in ended["spans"]) < 1e9


@pytest.mark.parametrize(("fault", "variant"), [("failpoint", "delay"), ("crash-loop", "one")])
def test_what_comes_and_goes_is_in_effect_until_it_was_last_seen(fault: str, variant: str) -> None:
    """Five seconds more were claimed."""

    async def scenario() -> int:
        stand = Stand()
        await stand.begin(fault, variant)
        await stand.environment.clock.sleep(3.0)
        stand.database.passing, stand.database.immortal = {}, set(stand.database.states)
        ceased_ns = stand.environment.clock.now_ns
        await stand.environment.clock.sleep(4.0)
        ending_ns = stand.environment.clock.now_ns
        ((first_ns, last_ns),) = (await stand.end(fault))["spans"]
        assert last_ns + ending_ns - START_NS <= ceased_ns + 2e8
        return int(last_ns - first_ns)

    assert 1e9 < asyncio.run(scenario()) < 3.2e9


def test_a_crash_loop_lasts_while_what_was_started_is_not_up_yet() -> None:
    """Of 2.7 s in containers 0.8 s were seen: what comes up slowly was seen dead only in between."""

    async def scenario(seed: int) -> int:
        stand = Stand()
        (target,) = (await stand.begin("crash-loop", "one", seed=seed))["targets"]
        stand.database.mute.add(target)
        await stand.environment.clock.sleep(2.0)
        ended = await stand.end("crash-loop")
        return sum(last - first for first, last in ended["spans"])

    assert min(asyncio.run(scenario(seed)) for seed in range(10)) > 1.5e9


def test_a_role_is_looked_at_again_after_what_precedes_a_fault() -> None:
    """Seed 336 of a swarm: links were measured for a second after their sender was chosen, and he led no more."""

    async def scenario() -> dict[str, Any]:
        stand, moves = Stand(), iter(range(2))
        stand.nemesis = FaultNemesis(stand.database, stand.environment, replace(QUICK, choose_s=5.0))
        flows = stand.environment.flows

        async def measured(*asked: Any) -> Any:
            for group in stand.database.leaders if next(moves, None) is not None else ():
                stand.database.depose(group)
            return await flows(*asked)

        stand.environment.flows = measured  # type: ignore[method-assign]
        seeds = itertools.count()
        while not (begun := await stand.begin("packets", "delay", seed=next(seeds))).get("roles"):
            await stand.end("packets")
        return begun

    begun = asyncio.run(scenario())
    assert all(role["held"] for role in begun["roles"])


async def test_a_fault_on_a_network_that_carries_nothing_is_not_observed() -> None:
    stand = Stand()
    names = [*stand.database.states, CLIENTS]
    stand.environment.left_behind = {(a, b) for a in names for b in names}
    begun = await stand.begin("partition", "one")
    assert begun["observed"] is False
    assert begun["evidence"]["silent"]


async def test_whose_failure_it_is_when_a_fault_is_not_gone() -> None:
    stand = Stand()
    await stand.begin("partition", "halves")
    stand.environment.left_behind = {("t1", "t2")}
    ended = await stand.end("partition")
    assert (ended["observed"], ended["blame"]) == (False, "harness")
    assert ended["evidence"]["silent"] == ["t1->t2"]
    stand = Stand()
    begun = await stand.begin("kill", "one")
    stand.database.mute = set(begun["targets"])
    ended = await stand.end("kill")
    assert (ended["observed"], ended["blame"]) == (False, "database")
    stand = Stand()
    begun = await stand.begin("kill", "one")
    stand.database.incarnations.update(dict.fromkeys(begun["targets"], 0))
    ended = await stand.end("kill")
    assert (ended["observed"], ended["blame"]) == (False, "harness"), "it answers in the life that was ended"


async def test_a_kill_that_misses_is_not_observed() -> None:
    stand = Stand()
    stand.database.immortal = set(stand.database.states)
    begun = await stand.begin("kill")
    assert begun["observed"] is False
    assert set(begun["evidence"]["states"].values()) == {"running"}


@pytest.mark.parametrize("fault", ["kill", "stop", "crash-loop", "rolling-restart", "failpoint"])
async def test_processes_that_ended_by_themselves_are_neither_hit_nor_started(fault: str) -> None:
    """A restart that heals a fault would hide that the database's process had died."""
    for variant in KINDS[fault].variants:
        stand = Stand()
        stand.database.states.update(dict.fromkeys(stand.database.states, ProcessState.DEAD))
        begun = await stand.begin(fault, variant)
        await stand.environment.clock.sleep(2.0)
        await stand.end(fault)
        assert begun["observed"] is False
        assert set(stand.database.states.values()) == {ProcessState.DEAD}, variant


async def test_a_restart_counts_only_with_a_new_incarnation() -> None:
    stand = Stand()
    stand.database.immortal = set(stand.database.states)
    await stand.begin("kill")
    ended = await stand.end("kill")
    assert ended["observed"] is False
    assert [before == after for before, after in ended["evidence"]["incarnations"].values()] == [True]


@pytest.mark.parametrize(("fault", "variant"), [("crash-loop", "one"), ("rolling-restart", "all")])
async def test_restarts_end_with_what_they_are_at(fault: str, variant: str) -> None:
    """A command that is on its way when the fault ends is carried out before the node is started again."""
    stand = Stand()
    at_it = asyncio.Event()
    kill = stand.database.kill

    async def slow_kill(node: str) -> None:
        at_it.set()
        await asyncio.sleep(0.1)
        await kill(node)

    stand.database.kill = slow_kill  # type: ignore[method-assign]
    await stand.begin(fault, variant)
    at_it.clear()
    await asyncio.wait_for(at_it.wait(), 10.0)
    ended = await stand.end(fault)
    lives = ended["evidence"]["incarnations"]
    assert ended["observed"] is True, lives
    assert all(after > before for before, after in lives.values()) and stand.is_whole()


async def test_a_leader_cut_off_was_the_leader() -> None:
    stand = Stand()
    begun = await stand.begin("partition", "leaseholder")
    assert begun["evidence"]["leader"]["group"] == "tablet"
    assert begun["targets"] == [begun["evidence"]["leader"]["node"]] == ["t1"]


@pytest.mark.parametrize("fault", ["kill", "pause", "partition", "clock-jump"])
def test_whether_a_role_was_held_is_looked_at_when_the_node_is_hit(monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    """Between the choice and the hit another leader may have been elected."""

    async def scenario(deposed: bool) -> dict[str, Any]:
        stand = Stand()
        done = Injectors.carry_out

        async def carry_out(injectors: Injectors, instance: int, action: Any) -> None:
            if deposed:
                stand.database.depose("tablet")
                await stand.environment.clock.sleep(0.01)
            await done(injectors, instance, action)

        monkeypatch.setattr(Injectors, "carry_out", carry_out)
        try:
            return await stand.begin(fault, "leaseholder" if fault != "clock-jump" else "leaseholder-within")
        finally:
            monkeypatch.undo()

    for deposed in (False, True):
        begun = asyncio.run(scenario(deposed))
        role = {"node": "t1", "role": "leaseholder", "group": "tablet", "term": 1}
        assert begun["roles"] == [{**role, "held": not deposed}]
        assert begun["observed"] is True, "the fault itself is there all the same"


def test_nobody_waits_for_the_answer_of_who_was_paused() -> None:
    """It comes not at all: neither the look at the fault nor the choice of the next one's targets is for that time."""

    async def scenario() -> list[float]:
        stand, told = Stand(), []
        answer = stand.database.status

        async def status(node: str) -> NodeStatus | None:
            if stand.database.states[node] is ProcessState.PAUSED:
                await stand.environment.clock.sleep(1.0)
            return await answer(node)

        stand.database.status = status  # type: ignore[method-assign]
        for instance, fault in enumerate(("pause", "partition", "kill")):
            begun = await stand.begin(fault, "leader-master" if fault == "kill" else "leaseholder", instance)
            assert begun["observed"] is True
            told.append((begun["observed_ns"] - START_NS) / 1e9)
        return told

    assert max(asyncio.run(scenario())) < 0.5


def test_who_is_hit_for_no_role_has_none() -> None:
    async def scenario() -> dict[str, Any]:
        return await Stand().begin("kill", "one")

    assert "roles" not in asyncio.run(scenario())


async def test_no_leader_no_fault() -> None:
    stand = Stand()
    for name in GROUPS["tablet"]:
        await stand.database.pause(name)
    begun = await stand.begin("kill", "leaseholder")
    assert begun["observed"] is False
    assert begun["idle"] is True and "leaseholder" in begun["evidence"]["reason"]
    assert not any(call.startswith("kill") for call in stand.database.calls)


async def test_process_faults_never_meet_on_a_node() -> None:
    for seed in range(20):
        stand = Stand()
        killed = await stand.begin("kill", "random", 0, seed)
        paused = await stand.begin("pause", "one", 1, seed)
        assert paused["observed"] or paused["idle"]
        assert not set(killed["targets"]) & set(paused.get("targets", []))
        await stand.end("kill", 0)
        await stand.end("pause", 1)
        assert stand.is_whole()


async def test_ending_one_partition_leaves_the_other() -> None:
    stand = Stand()
    await stand.begin("partition", "leaseholder", 0)
    first = set(stand.environment.links_cut)
    await stand.begin("partition", "leader-master", 1)
    assert stand.environment.links_cut > first
    ended = await stand.end("partition", 1)
    assert stand.environment.links_cut == first
    assert ended["observed"] is True


async def test_an_end_without_number_ends_whatever_is_in_effect() -> None:
    stand = Stand()
    await stand.begin("pause", instance=7)
    ended = await stand.end("pause", None)
    assert (ended["instance"], ended["observed"]) == (7, True)
    assert (await stand.end("pause", None))["instance"] is None


async def test_teardown_heals_what_failed_half_way() -> None:
    stand = Stand()
    stand.environment.failing = {"cut"}
    with pytest.raises(HarnessError, match="half-way"):
        await stand.begin("partition", "halves", 0)
    stand.database.unkillable = {"m2"}
    with pytest.raises(HarnessError, match="m2"):
        await stand.begin("kill", "all", 1)
    await stand.nemesis.teardown()
    assert stand.is_whole()


async def test_teardown_heals_the_rest_when_something_can_not_be_healed() -> None:
    stand = Stand()
    await stand.begin("kill", "all", 0)
    await stand.begin("partition", "halves", 1)
    stand.database.unstartable = {"t2"}
    with pytest.raises(HarnessError, match="t2 does not start"):
        await stand.nemesis.teardown()
    assert not stand.environment.links_cut
    assert [name for name, state in stand.database.states.items() if state is ProcessState.DEAD] == ["t2"]
    stand.database.unstartable = set()
    await stand.nemesis.teardown()
    assert stand.is_whole()


async def test_only_what_we_did_is_undone() -> None:
    stand = Stand()
    await stand.database.kill("t4")
    await stand.begin("pause", "leaseholder", 0)
    await stand.nemesis.teardown()
    assert stand.database.states["t4"] is ProcessState.DEAD
    assert "start t4" not in stand.database.calls
    assert stand.environment.heals == 0


async def test_a_last_wish_that_comes_to_nobody_is_wished_again() -> None:
    """Masters were cut off as policy-change ended (global-reads, seed 2884147382979778389), and the harness was said to
    have failed."""

    class Wishes(LastWishes):
        told, deaf = 0, False

        async def wish(self, number: int) -> None:
            if self.deaf:
                raise HarnessError("no answer")
            self.told = number

        async def taken_up(self, number: int) -> Sight:
            return Sight(self.told == number)

    wishes = Wishes()
    await wishes.begin(7, 2)
    assert (await wishes.look(7)).met
    wishes.deaf = True
    await wishes.undo(7)
    gone = await wishes.look_gone(7)
    assert (gone.met, gone.blame) == (False, "database")
    wishes.deaf = False
    assert (await wishes.look_gone(7)).met and wishes.told == 0


async def test_a_server_stays_though_no_master_could_be_told_as_it_was_to() -> None:
    """Masters were killed as decommission ended (register, seed 4170981190820133209)."""
    database, environment = FakeDatabase(), FakeEnvironment()
    emptying = Decommissions(DatabaseObserver(database, environment), Claims())
    await emptying.carry_out(3, Decommission("t1", 0.0))
    database.headless = True
    await emptying.undo(3)
    assert (await emptying.look_gone(3)).met is False
    database.headless = False
    assert [(await emptying.look_gone(3)).met for _ in range(2)] == [False, True]


async def test_a_side_transport_that_is_disarmed_by_hand_is_in_effect_no_more() -> None:
    """Nodes go on to say how often they acted at a point that nothing stands at any longer; t1 leads the
    tablet, so that what t2 does is not enough."""
    database, environment = FakeDatabase(), FakeEnvironment()
    troubles = SideTroubles(DatabaseObserver(database, environment), Claims())
    await troubles.carry_out(3, TroubleAside(("t1", "t2"), "lost"))
    assert (await troubles.look(3)).met is True
    for later_s, acted, met in ((4, "t1 t2", True), (6, "t2", False), (1, "t1", True), (6, "", False)):
        await environment.clock.sleep(later_s)
        for name in acted.split():
            database.acts[name, database.side_point] += 1
        assert (await troubles.look(3)).met is met
