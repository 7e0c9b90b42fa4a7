"""Scripts about tables without leaders, in containers: each comes to its core, which is looked at, and heals."""

from __future__ import annotations

import pytest

from nemesis.registry import SCRIPTS
from nemesis.scripts.quorum import LEADERLESS
from tests.docker.shared_cluster import Cluster
from tests.docker.test_docker_kinds import comes_to_its_core_and_heals
from workloads.api import resolve_options
from workloads.registry import WORKLOADS

pytestmark = [pytest.mark.docker, pytest.mark.xdist_group("docker")]

WORKLOAD = "write-atomicity"
TABLE = (WORKLOAD, resolve_options(WORKLOADS[WORKLOAD], {"table": "logged"}))
QUICK = ("partial-write", "replica-away", "split-snapshot")
"""Others wait for steps that are seldom taken, or for a container's restart."""


@pytest.mark.parametrize(
    "script",
    [
        name if name in QUICK else pytest.param(name, marks=pytest.mark.campaign)
        for name, info in SCRIPTS.items()
        if LEADERLESS in info.needs
    ],
)
def test_each_script_comes_to_its_core_and_heals(script: str, cluster: Cluster) -> None:
    comes_to_its_core_and_heals(cluster, script)
