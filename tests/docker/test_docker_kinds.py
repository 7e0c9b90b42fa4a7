"""Kinds of fault on the reference cluster in containers: seen in effect from inside, and seen to be gone.

One cluster serves them all, one kind after the other. Kinds of clocks, packets and lost data have tests of their own
(`test_docker_clock_and_packet_kinds.py`, `test_docker_runs.py`).
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from harness.history.ops import Op
from nemesis.nemesis import FaultNemesis, Patience
from nemesis.registry import KINDS, SCRIPTS
from nemesis.scripts.quorum import LEADERLESS
from tests.docker.shared_cluster import Cluster
from tests.support.patience import Limit

pytestmark = [pytest.mark.docker, pytest.mark.xdist_group("docker")]

LASTS_S = 1.2
PATIENCE = Patience(choose_s=20.0, observe_s=20.0, recover_s=60.0)
"""A busy machine is slow, and a replica that lost its disk takes some time to be a voter again."""

CORE_S = 120.0
"""For so long a script may look for its core."""

ROLLING_S = 6.0
ELSEWHERE = (
    *("clock-jump", "clock-strobe", "clock-drift", "packets", "bit-flip", "truncate", "wipe", "protocol-step"),
    *("region-loss", "region-partition", "learner-lag", "side-transport", "placement-change", "client-clock"),
    *("policy-change", "decommission"),
)
"""Kinds that other tests try: those of workloads that read from any replica, in the simulator; so `protocol-step`, for
a cluster in which nobody makes tables or changes members comes to the steps of a protocol now and then only."""

QUICK_SCRIPTS = ("new-leader-partition", "deposed-leader", "skewed-lease")


class Stand:
    """The nemesis of one fault on the cluster, under a load."""

    def __init__(self, cluster: Cluster, kind: str) -> None:
        self.cluster, self.kind = cluster, kind
        self.nemesis = FaultNemesis(cluster.database, cluster.environment, PATIENCE)
        self.load: asyncio.Task[None]

    async def __aenter__(self) -> Stand:
        await self.cluster.whole()
        load = self.cluster.quorum_load if self.cluster.options else self.cluster.load
        self.load = asyncio.create_task(load())
        return self

    async def __aexit__(self, *_: object) -> None:
        self.load.cancel()
        await self.nemesis.teardown()

    async def step(self, name: str, kind: str = "", instance: int = 0, variant: str = "") -> dict[str, Any]:
        """What the nemesis tells of a step, of the preferred variant if none is named."""
        kind = kind or self.kind
        variant = variant or (next(iter(KINDS[kind].variants)) if kind in KINDS else kind)
        value = {"fault": kind, "variant": variant, "instance": instance, "step": name, "seed": 7}
        done = await self.nemesis.invoke(Op("invoke", -1, name, value=value, time=0))
        return cast(dict[str, Any], done.value)


def skip_without(cluster: Cluster, needs: frozenset[str]) -> None:
    if lacking := needs - (cluster.environment.capabilities | cluster.database.capabilities):
        pytest.skip(f"no {' and no '.join(sorted(lacking))} here")


def comes_to_its_core_and_heals(cluster: Cluster, script: str) -> None:
    skip_without(cluster, SCRIPTS[script].needs)

    async def scenario() -> tuple[list[dict[str, Any]], dict[str, Any]]:
        async with Stand(cluster, script) as stand:
            told = [await stand.step("begin")]
            limit = Limit(CORE_S)
            while not (told[-1]["core"] and told[-1]["observed"]) and limit.left_s() > 0:
                told.append(await stand.step("step"))
            return told, await stand.step("end")

    told, ended = cluster.run(scenario())
    assert told[-1]["core"] is True and told[-1]["observed"] is True, [each.get("action") for each in told]
    assert ended["observed"] is True, ended["evidence"]
    cluster.run(cluster.serves())


def takes_effect_is_seen_and_heals(cluster: Cluster, kind: str, variant: str = "") -> dict[str, Any]:
    """What the nemesis told of its begin."""

    async def scenario() -> tuple[dict[str, Any], dict[str, Any]]:
        async with Stand(cluster, kind) as stand:
            begun = await stand.step("begin", variant=variant)
            await asyncio.sleep(ROLLING_S if kind == "rolling-restart" else LASTS_S)
            return begun, await stand.step("end")

    skip_without(cluster, KINDS[kind].needs)
    begun, ended = cluster.run(scenario())
    assert begun["observed"] is True, begun["evidence"]
    assert ended["spans"], "it was seen while it lasted"
    assert ended["observed"] is True, ended["evidence"]
    cluster.run(cluster.serves())
    return begun


@pytest.mark.parametrize("kind", [name for name in KINDS if name not in ELSEWHERE])
def test_each_kind_takes_effect_is_seen_and_heals(kind: str, cluster: Cluster) -> None:
    takes_effect_is_seen_and_heals(cluster, kind)


@pytest.mark.parametrize(
    ("variant", "links"), [("masters-from-tservers", (30, 15)), ("zone", (30, 24)), ("zones", (42,))]
)
def test_roles_and_zones_lose_sight_of_each_other(variant: str, links: tuple[int, ...], cluster: Cluster) -> None:
    """Three masters and five tablet servers, now and then one way only; a zone of three nodes, or of two; all three."""
    begun = takes_effect_is_seen_and_heals(cluster, "partition", variant)
    assert begun["evidence"]["cut"] in links


def test_a_heal_that_another_fault_hides_is_seen_once_that_is_over(cluster: Cluster) -> None:
    """Of a node that is dead nobody knows what its clock shows."""
    skip_without(cluster, frozenset({"clock"}))

    async def scenario() -> list[dict[str, Any]]:
        async with Stand(cluster, "clock-jump") as stand:
            told = [await stand.step("begin"), await stand.step("begin", "kill", 1)]
            return [*told, await stand.step("end"), await stand.step("end", "kill", 1)]

    begun, killed, ended, last = cluster.run(scenario())
    assert begun["observed"] is killed["observed"] is True, begun["evidence"]
    assert (ended["observed"], ended["blame"], ended["others"]) == (False, None, [1]), ended["evidence"]
    assert last["observed"] is True and [late["observed"] for late in last["late"]] == [True], last
    cluster.run(cluster.serves())


@pytest.mark.parametrize(
    "script",
    [
        name if name in QUICK_SCRIPTS else pytest.param(name, marks=pytest.mark.campaign)
        for name, info in SCRIPTS.items()
        if LEADERLESS not in info.needs
    ],
)
def test_each_script_comes_to_its_core_and_heals(script: str, cluster: Cluster) -> None:
    """What is in effect at its core is looked at from inside the nodes, and everything that it did is undone."""
    comes_to_its_core_and_heals(cluster, script)
