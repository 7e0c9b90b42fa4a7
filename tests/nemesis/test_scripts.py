"""Scripted faults on a fake cluster: they act on the states they wait for, and leave nothing behind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest
from fake_cluster import GROUPS, NODES, WIDE_GROUPS, WIDE_NODES, FakeDatabase, FakeEnvironment

from harness.history.ops import Op
from harness.ports.machines import ProcessState
from harness.protocols import GroupStatus, NodeStatus
from nemesis.faults import NO_CUT, PointDelay
from nemesis.nemesis import FaultNemesis, Patience
from nemesis.observe import Leader, View
from nemesis.registry import SCRIPTS
from nemesis.scripts.quorum import LEADERLESS
from nemesis.scripts.scene import Scene
from nemesis.scripts.storage import FLOOD_WRITES, LEAST_WRITES
from nemesis.scripts.successors import believes, late_acks, unaware

QUICK = Patience(choose_s=0.2, observe_s=0.2, recover_s=0.2, poll_s=0.05, script_s=1.0, script_poll_s=0.05)


class Episode:
    """One script on a fake cluster whose leaders, when cut off, are deposed; `written`: where clients write."""

    def __init__(self, script: str, seed: int, wide: bool = False, written: frozenset[str] | None = None) -> None:
        self.script, self.seed = script, seed
        self.environment = FakeEnvironment(nodes=WIDE_NODES if wide else NODES)
        self.groups = WIDE_GROUPS if wide else GROUPS
        self.database = FakeDatabase(
            nodes=self.environment.nodes, groups=self.groups, written=written, wall_ns=self.environment.wall_ns
        )
        self.nemesis = FaultNemesis(self.database, self.environment, QUICK)

    async def step(self, step: str) -> dict[str, object]:
        value = {"fault": self.script, "variant": self.script, "instance": 3, "step": step, "seed": self.seed}
        report = (await self.nemesis.invoke(Op("invoke", -1, f"{step}-{self.script}", value=value, time=0))).value
        for group, (leader, _) in list(self.database.leaders.items()):
            if any(leader in link for link in self.environment.links_cut):
                self.database.depose(group)
        return report

    def is_whole(self) -> bool:
        running = all(state is ProcessState.RUNNING for state in self.database.states.values())
        return running and not self.environment.links_cut


WITH_LEADERS = sorted(name for name, info in SCRIPTS.items() if LEADERLESS not in info.needs)
WHERE_CLIENTS_WRITE = ("lost-answer", "power-cut", "snapshot-race", "unheard-commit", "late-acks", "deposed-leader")
"""The scripts that take any group that clients write to."""


async def test_a_log_that_takes_no_more_is_not_flooded_any_further() -> None:
    """Seeds 41 and 44 of snapshot-race: thousands of writes stood before what clients asked for, for seconds each."""
    episode = Episode("snapshot-race", 1)
    await episode.step("begin")
    for _ in range(8):
        await episode.step("step")
    floods = [int(call.split()[2]) for call in episode.database.calls if call.startswith("flood")]
    assert floods[:2] == [1, FLOOD_WRITES] and set(floods[2:]) == {LEAST_WRITES}, "this fake's logs never grow"
    await episode.step("end")


@pytest.mark.parametrize("wide", [False, True], ids=["three", "five"])
@pytest.mark.parametrize("script", WITH_LEADERS)
@pytest.mark.parametrize("seed", range(5))
async def test_only_the_core_of_a_script_is_observed_and_it_heals(script: str, seed: int, wide: bool) -> None:
    episode = Episode(script, seed, wide)
    steps = [await episode.step("begin")] + [await episode.step("step") for _ in range(12)]
    assert len({report["action"] for report in steps}) > 2
    assert all(report["observed"] is (True if report["core"] else None) for report in steps)
    ended = await episode.step("end")
    assert ended["observed"] is True
    assert episode.is_whole()


@pytest.mark.parametrize("wide", [False, True], ids=["three", "five"])
@pytest.mark.parametrize("script", WHERE_CLIENTS_WRITE)
async def test_scripts_hit_the_masters_where_clients_write_to_the_catalog(script: str, wide: bool) -> None:
    """Of a workload that makes tables `lost-answer` never lost the answer to a change of them."""
    episode = Episode(script, 1, wide, frozenset({"catalog"}))
    steps = [await episode.step("begin")] + [await episode.step("step") for _ in range(12)]
    hit = {name for report in steps for name in report["targets"]}
    assert hit and hit <= set(episode.groups["catalog"])
    assert (await episode.step("end"))["observed"] is True and episode.is_whole()


async def test_each_new_leader_is_cut_off_in_turn() -> None:
    episode = Episode("new-leader-partition", 2)
    first = await episode.step("begin")
    reports = [first] + [await episode.step("step") for _ in range(10)]
    cut_off = [report["targets"] for report in reports if report["targets"]]
    assert all(len(targets) == 1 for targets in cut_off)
    assert all(before != after for before, after in pairwise(cut_off))
    group = next(voters for voters in GROUPS.values() if cut_off[0][0] in voters)
    assert {targets[0] for targets in cut_off} == set(group)


async def test_a_script_that_waits_for_long_lets_its_episode_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps come to an end, the script does not: it goes on where it was when it is asked again."""
    seen = asyncio.Event()

    async def patient(scene: Scene) -> None:
        await seen.wait()
        await scene.reached(leader="t1")

    monkeypatch.setitem(SCRIPTS, "patient", replace(SCRIPTS["power-cut"], script=patient))
    episode = Episode("patient", 1)
    episode.nemesis = FaultNemesis(episode.database, episode.environment, replace(QUICK, step_s=0.01))
    for step in ("begin", "step"):
        waiting = await episode.step(step)
        assert (waiting["core"], waiting["observed"], waiting.get("finished")) == (False, None, None)
    seen.set()
    assert (await episode.step("step"))["core"]
    assert (await episode.step("end"))["observed"]


async def test_teardown_stops_a_script_in_the_middle() -> None:
    episode = Episode("power-cut", 1)
    await episode.step("begin")
    await episode.step("step")
    await episode.nemesis.teardown()
    assert episode.is_whole()
    assert len(asyncio.all_tasks()) == 1


async def test_a_core_whose_cut_leaks_is_not_observed() -> None:
    episode = Episode("new-leader-partition", 2)
    episode.environment.leaky = True
    reports = [await episode.step("begin")]
    for _ in range(8):
        episode.database.depose("tablet")
        episode.database.depose("catalog")
        reports.append(await episode.step("step"))
    cores = [report for report in reports if report["core"]]
    assert cores
    assert all(report["observed"] is False and report["evidence"]["leaking"] for report in cores)


async def test_a_kill_at_the_core_that_misses_is_not_observed() -> None:
    episode = Episode("power-cut", 1)
    episode.database.immortal = set(episode.database.states)
    reports = [await episode.step("begin")] + [await episode.step("step") for _ in range(4)]
    cores = [report for report in reports if report["core"]]
    assert cores
    assert not any(report["observed"] for report in cores)


async def test_what_a_script_raises_is_told_once_and_it_is_finished(monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(scene: Scene) -> None:
        await scene.act(NO_CUT)
        raise ValueError("a bug")

    monkeypatch.setitem(SCRIPTS, "power-cut", replace(SCRIPTS["power-cut"], script=broken))

    episode = Episode("power-cut", 1)
    await episode.step("begin")
    with pytest.raises(ValueError, match="a bug"):
        await episode.step("step")
    assert (await episode.step("step"))["finished"] is True


async def test_a_script_that_finds_no_leader_says_so() -> None:
    episode = Episode("power-cut", 1)
    for name in episode.database.states:
        episode.database.states[name] = ProcessState.PAUSED
    begun = await episode.step("begin")
    assert (begun["observed"], begun["finished"]) == (False, True)
    assert (await episode.step("step"))["finished"] is True


@pytest.mark.parametrize(
    ("role", "term", "leads", "knows_nothing"),
    [("leader", 4, True, True), ("follower", 4, False, True), ("follower", 5, False, False)],
)
async def test_a_deposed_leader_may_have_given_up_and_know_nothing(
    role: str, term: int, leads: bool, knows_nothing: bool
) -> None:
    voters = ("t1", "t2", "t3")
    own = GroupStatus("tablet", role, term, voters, None, 9, 9, 9, 4, False)
    view = View(NODES, {"t1": NodeStatus("t1", "tserver", 1, (own,))})

    class Eyes:
        async def view(self, of: object) -> View:
            return view

    old = Leader("t1", "tablet", 4, True, 9, 9, voters)
    assert await believes(Eyes(), old) is leads  # type: ignore[arg-type]
    assert await unaware(Eyes(), old) is knows_nothing  # type: ignore[arg-type]


class Spoiled(FakeDatabase):
    """What its leaders have committed grows with each look; one thing may go otherwise than `late-batch` needs it."""

    looks, spoiled = 9, ""

    def _replica(self, group: str, node: str) -> GroupStatus:
        self.looks += 1
        replica = replace(super()._replica(group, node), commit_index=self.looks)
        return replace(replica, lease_sequence=1) if self.spoiled == "no later lease" else replica

    async def acted(self, node: str) -> Mapping[str, int]:
        return {} if self.spoiled == "nobody writes" else await super().acted(node)

    async def transfer_leadership(self, leader: str, group: str, target: str, timeout_s: float) -> str | None:
        if self.spoiled == "restarted":
            self.incarnations[leader] += 1
        refused = "no" if self.spoiled == "refused" else None
        return refused or await super().transfer_leadership(leader, group, target, timeout_s)


@pytest.mark.parametrize("spoiled", ["", "nobody writes", "refused", "restarted", "no later lease"])
async def test_a_batch_is_late_only_if_it_waits_in_one_life_under_an_earlier_lease(spoiled: str) -> None:
    episode = Episode("late-batch", 1)
    database = episode.database = Spoiled(wall_ns=episode.environment.wall_ns)
    database.spoiled = spoiled
    episode.nemesis = FaultNemesis(database, episode.environment, QUICK)
    reports = [await episode.step("begin")] + [await episode.step("step") for _ in range(7)]
    cores = [report for report in reports if report["core"]]
    assert bool(cores) is (spoiled == "")
    assert all(report["observed"] and report["evidence"]["leases"]["held"] == 3 for report in cores)
    assert (await episode.step("end"))["observed"] and episode.is_whole()


@pytest.mark.parametrize(
    ("committed", "reached"),
    [((8, 8, 9), True), ((8, 9, 9), False), ((8, 8, 8), False), ((8, 8, None), False), ((9, 9, 9), False)],
)
async def test_acknowledgements_are_late_only_if_the_leader_lacked_them_when_clients_asked_again(
    committed: tuple[int | None, ...], reached: bool
) -> None:
    """What the leader has committed of its log's nine entries as the disks are slow, at the end of that, and later;
    None: it leads no more."""

    class Seen:
        entropy = Random(1)

        def __init__(self) -> None:
            self.phase, self.cores, self.acts = 0, list[dict[str, object]](), list[PointDelay]()
            self.groups = [Leader("t1", "tablet", 4, True, 9, 8, ("t1", "t2", "t3"))]

        async def group(self, writable: bool) -> Leader | None:
            return self.groups.pop() if self.groups else None

        def role(self, node: str) -> str:
            return "tserver"

        async def act(self, action: PointDelay) -> None:
            self.acts.append(action)
            self.phase = 2 if action.seconds == 0.0 else 0

        async def hold(self, low_s: float, high_s: float) -> None:
            self.phase = max(self.phase, 1)

        async def view(self, of: object) -> View:
            upto = committed[self.phase]
            role, index = ("leader", upto) if upto is not None else ("follower", 8)
            own = GroupStatus("tablet", role, 4, ("t1", "t2", "t3"), "t1", index, index, 9, 4, upto is not None)
            return View(NODES, {"t1": NodeStatus("t1", "tserver", 1, (own,))})

        async def until(self, seen: Callable[[View], object], of: object, patience_s: float) -> object:
            return seen(await self.view(of))

        async def reached(self, **core: object) -> None:
            self.cores.append(core)

    scene = Seen()
    await late_acks(scene)  # type: ignore[arg-type]
    assert [(act.node, act.seconds > 0) for act in scene.acts] == [
        ("t2", True),
        ("t3", True),
        ("t2", False),
        ("t3", False),
    ]
    assert [core["committed"] for core in scene.cores] == ([9] if reached else [])
