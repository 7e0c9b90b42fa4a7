"""Every nemesis on the real cluster in the simulator: observed, healed, recovered, and nothing left behind."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from random import Random

import pytest

from assay.compose import carry_out
from assay.judging import judge_saved_run
from assay.options import RunOptions
from cluster.deploy.database_sim import SimDatabase
from cluster.deploy.layout import Layout
from cluster.knobs import Knobs
from cluster.wire.messages import WIRE_VERSION
from harness.capabilities import Capability
from harness.env.sim import SimEnvironment
from harness.history.rundir import create
from harness.ports.machines import ProcessState
from harness.ports.sim.world import World
from harness.run.life_cycle import run
from harness.run.spec import Silent, Test
from harness.verdict.adequacy import Floors
from harness.verdict.facts import load_faults, load_summary
from nemesis.packages import NemesisOptions, package
from nemesis.registry import NEMESES
from nemesis.scripts.quorum import LEADERLESS
from workloads.api import resolve_options
from workloads.registry import WORKLOADS

TIME_LIMIT_S = {"register": 15.0, "catalog": 25.0, "follower-reads": 15.0, "global-reads": 15.0}
"""The load goes on while a nemesis was not seen in effect; of a catalog's operations there are few in a second."""
LATE_CALL_S = 30.0
"""A replica is dead for a while before anything is called, and where masters are late another has to die."""


class Watched(SimDatabase):
    """Notes what is left of the faults when the run begins to tear down."""

    left: list[str]

    async def teardown(self) -> None:
        states = {node.name: await self.process_state(node.name) for node in self.nodes}
        self.left = [name for name, state in states.items() if state is not ProcessState.RUNNING]
        names = [node.name for node in self.nodes]
        links = [(a, b) for a in names for b in names if a != b]
        network = self._world.network
        self.left += [f"{a}->{b}" for a, b in links if network.link(a, b).cut or network.link(a, b).clogged]
        self.left += [f"{a}->{b} is bad" for a, b in links if network.link(a, b).options != network.plan(a, b)]
        self.left += [f"the clock of {name}" for name in names if self._world.node(name).clock.offset_ns()]
        await super().teardown()


@pytest.mark.parametrize(
    "kinds",
    [("partition", "kill", "pause"), *((name,) for name, info in NEMESES.items() if LEADERLESS not in info.needs)],
    ids=",".join,
)
def test_faults_are_observed_and_recovered_and_leave_nothing(kinds: tuple[str, ...], tmp_path: Path) -> None:
    ahead = Capability.POLICIES in NEMESES[kinds[0]].needs
    anywhere = ahead or Capability.READS_ANYWHERE in NEMESES[kinds[0]].needs
    name = "catalog" if kinds[0] in ("unheard-tablets", "protocol-step") else "register"
    workload = WORKLOADS["global-reads" if ahead else "follower-reads" if anywhere else name]
    rundir = create(tmp_path, workload.name, datetime(2026, 2, 3, 4, 5, 6))
    with World(7, version=WIRE_VERSION) as world:
        masters = 5 if kinds == ("master-membership",) else 3
        layout, knobs = Layout(masters, zones=5 if anywhere else 1), Knobs(side_transport_ms=200 if anywhere else 0)
        if ahead:
            knobs = Knobs(side_transport_ms=200, tablet_lease_ms=4_000, support_ms=4_000)
        database, environment = Watched(world, layout, knobs=knobs), SimEnvironment(world)
        database.workload = workload.name
        faults = package(kinds, database, environment, NemesisOptions(5.0), Random(7))
        options = resolve_options(workload, {})
        test = Test(
            name=workload.name,
            workload=workload.name,
            environment=environment,
            database=database,
            nemesis=faults.nemesis,
            generator=workload.generator(options, Random(1)),
            started=datetime(2026, 2, 3, 4, 5, 6),
            seed=7,
            concurrency=5,
            time_limit_s=LATE_CALL_S if kinds == ("late-call",) else TIME_LIMIT_S[workload.name],
            rate_hz=20.0,
            nemesis_generator=faults.generator,
            heal_generator=faults.final_generator,
            fs=workload.fs,
            requested_faults=faults.kinds,
            each_node=workload.each_node,
            workload_options=options,
            floors=Floors(**workload.floors),
        )
        outcome = world.run(run(test, rundir, judge_saved_run))
    assert outcome.verdict.overall == "valid", outcome.verdict.reasons
    assert database.left == []
    answered = load_summary(rundir).nodes.get("main", {})
    assert answered.keys() <= {node.name for node in database.nodes}, "also one whose disk was lost is the node it was"
    found = load_faults(rundir)
    assert {fault.kind for fault in found if fault.observed_ns is not None} == set(kinds)
    assert all(fault.recovered_ns is not None for fault in found)


@pytest.mark.parametrize(
    ("script", "masters", "world", "seed"),
    [
        ("lost-answer", 3, "", 3),
        pytest.param("lost-answer", 5, "", 3, marks=pytest.mark.campaign),
        ("power-cut", 5, "", 3),
        ("snapshot-race", 3, "snapshot-entries=20,retained-entries=16", 3),
    ],
)
def test_scripts_come_to_their_cores_at_masters(
    script: str, masters: int, world: str, seed: int, tmp_path: Path
) -> None:
    """Changes of tables are retried like any write, and none of these scripts was ever aimed at them."""
    options = RunOptions(
        "catalog", nemesis=(script,), time_limit=10.0, seed=seed, masters=masters, world=world, store=tmp_path
    )
    finished = carry_out(options, judge_saved_run, Silent(), datetime(2026, 2, 3, 4, 5, 6), lambda _: None)
    assert finished.outcome.verdict.overall == "valid", finished.outcome.verdict.reasons
    observed = [fault for fault in load_faults(finished.outcome.rundir) if fault.observed_ns is not None]
    cores = [
        {*fault.evidence.get("states", ()), *([fault.evidence["held"]] if "point" in fault.evidence else ())}
        for fault in observed
    ]
    assert any(core and all(name.startswith("m") for name in core) for core in cores), cores
