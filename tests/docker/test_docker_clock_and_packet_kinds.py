"""Kinds of faults of clocks and packets on real containers: each takes effect, is seen from inside, and heals."""

from __future__ import annotations

import asyncio
import json
import shlex
from collections.abc import Iterator
from typing import Any, cast

import pytest

from harness.env.docker.environment import DockerEnvironment
from harness.env.ssh import Conversation
from harness.history.ops import Op
from harness.protocols import Database, Node, NodeStatus
from nemesis.kinds.clocks import FAMILY as CLOCKS
from nemesis.kinds.packets import PACKETS
from nemesis.nemesis import FaultNemesis, Patience
from tests.docker.shared_cluster import open_on_each

pytestmark = [pytest.mark.docker, pytest.mark.xdist_group("docker")]

NODES = tuple(Node(name, "tserver") for name in ("t1", "t2", "t3"))
PROGRAM = """
import json, sys, time
for line in sys.stdin:
    print(json.dumps(time.time_ns()), flush=True)
"""
CASES = [(kind.name, variant) for kind in CLOCKS.kinds for variant in ("all-within", "random-beyond")]
CASES += [("packets", variant) for variant in PACKETS.variants]


class ClockReporting:
    """As much of a database as these kinds need: programs that tell their clocks when asked for their status."""

    name = "clock-reporting"
    nodes = NODES

    def __init__(self, programs: dict[str, Conversation]) -> None:
        self._programs = programs

    async def status(self, node: str) -> NodeStatus:
        answer = await asyncio.to_thread(self._programs[node].ask, b"", 10.0)
        return NodeStatus(node, "tserver", 1, wall_ns=json.loads(answer))


@pytest.fixture(scope="module")
def database(runner: asyncio.Runner, environment: DockerEnvironment) -> Iterator[Database]:
    variables = " ".join(f"{name}={shlex.quote(value)}" for name, value in environment.program_environment.items())
    command = f"exec env {variables} python3 -u -c {shlex.quote(PROGRAM)}"
    programs = runner.run(open_on_each(environment, command))
    yield cast(Database, ClockReporting(programs))
    for program in programs.values():
        program.close()


@pytest.mark.parametrize(("kind", "variant"), CASES)
def test_each_kind_takes_effect_is_seen_and_heals(
    kind: str, variant: str, runner: asyncio.Runner, environment: DockerEnvironment, database: Database
) -> None:
    needs = PACKETS.variants[variant].needs if kind == "packets" else frozenset({"clock"})
    if lacking := needs - environment.capabilities:
        pytest.skip(f"no {' and no '.join(sorted(lacking))} here")

    async def scenario() -> tuple[dict[str, Any], dict[str, Any]]:
        nemesis = FaultNemesis(database, environment, Patience())

        async def step(name: str) -> dict[str, Any]:
            value = {"fault": kind, "variant": variant, "instance": 0, "step": name, "seed": 7}
            done = await nemesis.invoke(Op("invoke", -1, name, value=value, time=0))
            return cast(dict[str, Any], done.value)

        try:
            begun = await step("begin")
            await environment.clock.sleep(1.0)
            return begun, await step("end")
        finally:
            await nemesis.teardown()

    begun, ended = runner.run(scenario())
    assert begun["observed"] is True, begun["evidence"]
    assert ended["spans"], "it was seen while it lasted"
    assert ended["observed"] is True, ended["evidence"]
