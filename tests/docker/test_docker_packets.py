"""Bad links between containers: seen by datagrams on the link they are asked for, gone afterwards."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping

import pytest

from harness.env import reachability
from harness.env.docker.environment import DockerEnvironment
from harness.errors import HarnessError
from harness.ports.machines import Impairment, ProbeFlow
from harness.protocols import PacketShaping

pytestmark = [pytest.mark.docker, pytest.mark.xdist_group("docker")]

UNCLOGGED_S = 3.0
"""By then a clog is surely gone that was to last for 0.8 s, also where a command takes a second."""

NAMES = ("t1", "t2", "t3")
LEAVING = [("t1", "t2"), ("t1", "t3")]
LINKS = [*LEAVING, ("t2", "t1")]
QUIET = dict.fromkeys(LINKS, False)
BAD = {link: link in LEAVING for link in LINKS}

SEEN: dict[str, tuple[Impairment, Callable[[ProbeFlow], bool]]] = {
    "packet-delay": (Impairment(delay_s=0.1), lambda flow: flow.delays_s[len(flow.delays_s) // 2] > 0.09),
    "packet-loss": (Impairment(loss=0.4), lambda flow: 0.2 < flow.lost < 0.6),
    "packet-corruption": (Impairment(corruption=0.4), lambda flow: flow.lost > 0.1),
    "packet-duplication": (Impairment(duplication=0.4), lambda flow: flow.duplicated > 0.2),
    "packet-reorder": (Impairment(reorder=0.4), lambda flow: flow.overtaken > 0.1),
    "packet-rate": (Impairment(rate_bytes_per_s=100_000), lambda flow: 0 < flow.rate_bytes_per_s < 130_000),
    "packet-clog": (Impairment(clogged=True), lambda flow: flow.lost > 0.9),
}


def look(
    runner: asyncio.Runner, environment: DockerEnvironment, seen: Callable[[ProbeFlow], bool]
) -> dict[tuple[str, str], bool]:
    flows = runner.run(environment.flows(LINKS, 100, 1_000, 0.3))
    return {link: seen(flow) for link, flow in flows.items()}


@pytest.mark.parametrize("name", SEEN)
def test_an_impairment_is_seen_where_it_was_asked_for_and_ends(
    name: str, runner: asyncio.Runner, environment: DockerEnvironment
) -> None:
    if name not in environment.capabilities:
        pytest.skip(f"this kernel can't do {name}")
    assert isinstance(environment, PacketShaping)
    impairment, seen = SEEN[name]
    assert look(runner, environment, seen) == QUIET
    runner.run(environment.impair(dict.fromkeys(LEAVING, impairment)))
    try:
        assert look(runner, environment, seen) == BAD
    finally:
        runner.run(environment.impair({}))
    time.sleep(0.2)
    assert look(runner, environment, seen) == QUIET
    assert "qdisc tbf" not in runner.run(environment.fleet.check("t1", "tc qdisc show"))
    assert "netem" not in runner.run(environment.fleet.check("t1", "tc qdisc show"))


def test_what_waited_in_a_clog_arrives_in_a_burst(
    runner: asyncio.Runner, environment: DockerEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "packet-clog" not in environment.capabilities:
        pytest.skip("this kernel can't clog")
    monkeypatch.setattr(reachability, "FLOW_WAIT_S", UNCLOGGED_S)

    async def scenario() -> ProbeFlow:
        await environment.impair(dict.fromkeys(LEAVING, Impairment(clogged=True)))
        flowing = asyncio.create_task(environment.flows([("t1", "t2")], 50, 1_000, 0.3))
        await asyncio.sleep(0.8)
        await environment.impair({})
        return (await flowing)["t1", "t2"]

    flow = runner.run(scenario())
    assert flow.lost == 0
    late_s = [at_s for at_s in flow.arrived_s if at_s is not None and at_s > 0.4]
    assert len(late_s) > 40
    assert max(late_s) - min(late_s) < 0.2


def test_what_could_not_be_made_well_is_tried_again(
    runner: asyncio.Runner, environment: DockerEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was noted as done before it was: packets went on being lost, and nobody tried again."""
    if "packet-loss" not in environment.capabilities:
        pytest.skip("this kernel can't lose packets")
    impairment, seen = SEEN["packet-loss"]

    async def fails(commands: Mapping[str, str]) -> None:
        raise HarnessError("no way to the nodes")

    runner.run(environment.impair(dict.fromkeys(LEAVING, impairment)))
    try:
        with monkeypatch.context() as patch:
            patch.setattr(environment.fleet, "check_each", fails)
            with pytest.raises(HarnessError, match="no way"):
                runner.run(environment.impair({}))
        assert look(runner, environment, seen) == BAD
    finally:
        runner.run(environment.impair({}))
    assert look(runner, environment, seen) == QUIET


def test_links_of_one_node_can_not_be_shaped_apart(runner: asyncio.Runner, environment: DockerEnvironment) -> None:
    with pytest.raises(HarnessError, match="what leaves t1 can't be treated differently"):
        runner.run(environment.impair({("t1", "t2"): Impairment(clogged=True)}))
