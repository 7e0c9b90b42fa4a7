"""How a run is put together from its options."""

from __future__ import annotations

from datetime import datetime

from assay.compose import make_test, simulated_database
from assay.options import RunOptions
from assay.worlds import draw_world
from harness.env.sim import SimEnvironment
from harness.sim.world import World


def ready_timeout_s(nodes: int) -> float:
    options = RunOptions("register", nodes=nodes)
    with World(1) as world:
        database = simulated_database(world, options, draw_world(1, options.world))
        return make_test(options, SimEnvironment(world), database, datetime.now()).ready_timeout_s


def test_a_larger_cluster_has_more_time_to_become_ready() -> None:
    """Twenty nodes on two busy cores had not all answered after 20 s; they start one after the other."""
    assert ready_timeout_s(50) - ready_timeout_s(3) >= 47
