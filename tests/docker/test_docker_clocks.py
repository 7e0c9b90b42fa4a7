"""Wall clocks skewed inside one node's program; every other clock, the host's too, stays as it was."""

from __future__ import annotations

import asyncio
import json
import shlex
import time
from collections.abc import Iterator

import pytest

from harness.env.docker.environment import DockerEnvironment
from harness.env.ssh import Conversation
from harness.protocols import ClockControl, Skew

pytestmark = [pytest.mark.docker, pytest.mark.xdist_group("docker")]

SECOND = 1_000_000_000
SLACK_NS = SECOND // 10
NAMES = ("t1", "t2", "t3")
PROGRAM = """
import json, sys, time
for line in sys.stdin:
    print(json.dumps([time.time_ns(), time.monotonic_ns()]), flush=True)
"""


@pytest.fixture(scope="module")
def programs(runner: asyncio.Runner, environment: DockerEnvironment) -> Iterator[dict[str, Conversation]]:
    """A program on each node, as the database's is started, that tells its two clocks when it is asked."""
    if "clock" not in environment.capabilities:
        pytest.skip("libfaketime does not work in the node image")
    variables = " ".join(f"{name}={shlex.quote(value)}" for name, value in environment.program_environment.items())
    command = f"exec env {variables} python3 -u -c {shlex.quote(PROGRAM)}"
    programs = runner.run(environment.fleet.on_each(lambda host: host.open_conversation(command)))
    yield programs
    for program in programs.values():
        program.close()


def offsets_ns(programs: dict[str, Conversation]) -> dict[str, tuple[int, int]]:
    """How far each program's wall and monotonic clock are ahead of this machine's."""
    found = {}
    for name, program in programs.items():
        wall_ns, monotonic_ns = time.time_ns(), time.monotonic_ns()
        shown_ns = json.loads(program.ask(b"", 10.0))
        found[name] = (shown_ns[0] - wall_ns, shown_ns[1] - monotonic_ns)
    return found


def near(offset_ns: int, due_ns: int) -> bool:
    return abs(offset_ns - due_ns) < SLACK_NS


@pytest.mark.parametrize(
    "skew", [Skew(120 * SECOND), Skew(-2 * SECOND), Skew(SECOND // 5), Skew(0, 0.5), Skew(0, -0.5)]
)
def test_one_program_s_wall_clock_is_skewed_and_no_other_clock(
    skew: Skew, runner: asyncio.Runner, environment: DockerEnvironment, programs: dict[str, Conversation]
) -> None:
    assert isinstance(environment, ClockControl)
    lead_ns = time.time_ns() - time.monotonic_ns()
    runner.run(environment.skew_clock("t2", skew))
    for _ in range(3):
        time.sleep(0.4)
        due_ns = environment.due_offset_ns("t2")
        found = offsets_ns(programs)
        assert near(found["t2"][0], due_ns)
        assert all(near(found[name][0], 0) for name in NAMES if name != "t2")
        assert all(near(monotonic_ns, 0) for _, monotonic_ns in found.values())
    assert not near(due_ns, 0)
    assert near(time.time_ns() - time.monotonic_ns(), lead_ns), "the host's clock moved"
    true_s = float(runner.run(environment.fleet.check("t2", "date +%s.%N")))
    assert near(int((true_s - time.time()) * SECOND), 0), "the machine's own clock moved"
    runner.run(environment.skew_clock("t2", None))
    assert environment.due_offset_ns("t2") == 0
    assert all(near(wall_ns, 0) for wall_ns, _ in offsets_ns(programs).values())


def test_a_dead_clock_agent_is_replaced_and_its_end_sets_the_clock_right(
    runner: asyncio.Runner, environment: DockerEnvironment, programs: dict[str, Conversation]
) -> None:
    runner.run(environment.skew_clock("t1", Skew(5 * SECOND)))
    runner.run(environment.fleet.check("t1", "pkill -9 -f assay-clock-agent.py"))
    runner.run(environment.skew_clock("t1", Skew(-5 * SECOND)))
    assert near(offsets_ns(programs)["t1"][0], -5 * SECOND)
    runner.run(environment.skew_clock("t1", None))
    assert near(offsets_ns(programs)["t1"][0], 0)
