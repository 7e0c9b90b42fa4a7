"""How a run is put together from its options."""

from __future__ import annotations

from datetime import datetime

from assay.compose import layout_of, make_test, simulated_database
from assay.options import RunOptions
from assay.worlds import draw_world
from harness.env.sim import SimEnvironment
from harness.ports.sim.world import World
from harness.run.spec import Test


def made_of(options: RunOptions) -> Test:
    with World(1) as world:
        database = simulated_database(world, options, draw_world(1, options.world))
        return make_test(options, SimEnvironment(world), database, datetime.now())


def ready_timeout_s(nodes: int) -> float:
    return made_of(RunOptions("register", nodes=nodes)).ready_timeout_s


def test_no_cluster_has_to_recover_sooner_than_its_own_leases_allow() -> None:
    """One whose leader fell as its clock was healed was called invalid after 10.3 s: leases lasted 6 s, elections 2."""
    slow = "election-timeout-ms=1800,tablet-lease-ms=6000,max-clock-offset-ms=1500,check-quorum-ms=0"
    assert made_of(RunOptions("register", world=slow)).recovery_budget_s == 7.5 + 3.6
    assert made_of(RunOptions("register", world=slow, recovery_budget=12.0)).recovery_budget_s == 12.0
    assert made_of(RunOptions("register", recovery_budget=5.0)).recovery_budget_s == 5.0


def test_a_larger_cluster_has_more_time_to_become_ready() -> None:
    """Twenty nodes on two busy cores had not all answered after 20 s; they start one after the other."""
    assert ready_timeout_s(50) - ready_timeout_s(3) >= 47


def test_nodes_stand_in_the_zones_and_data_centres_that_a_run_asks_for() -> None:
    """Runs in containers had one zone and one data centre, whatever was asked for: a workload over two saw one."""

    def zones(options: RunOptions, of_the_environment: int) -> list[str]:
        return sorted({node.zone for node in layout_of(options, of_the_environment).nodes()})

    assert zones(RunOptions("register"), 3) == ["z1", "z2", "z3"]
    assert zones(RunOptions("register", zones=2), 3) == ["z1", "z2"]
    spread = RunOptions("write-atomicity", nodes=6, zones=1, workload_options={"data-centres": "2"})
    assert zones(spread, 3) == ["dc1/z1", "dc2/z1"]
