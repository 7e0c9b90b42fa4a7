"""Wall clocks skewed inside one node's program; every other clock, the host's too, stays as it was."""

from __future__ import annotations

import asyncio
import json
import shlex
import time
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from harness.env.docker.environment import DockerEnvironment
from harness.env.ssh import Conversation
from harness.ports.machines import Skew
from harness.protocols import ClockControl
from tests.docker.shared_cluster import open_on_each

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
    programs = runner.run(open_on_each(environment, command))
    yield programs
    for program in programs.values():
        program.close()


class Span(NamedTuple):
    """What lies between two bounds: how far apart they are says how long it took to look, and nothing of a clock."""

    low_ns: int
    high_ns: int

    def may_be(self, due: Span) -> bool:
        return self.low_ns - SLACK_NS < due.high_ns and due.low_ns - SLACK_NS < self.high_ns


NO_OFFSET = Span(0, 0)


class Offsets(NamedTuple):
    """How far a program's wall and monotonic clock are ahead of this machine's."""

    wall: Span
    monotonic: Span


def offsets(program: Conversation) -> Offsets:
    before_ns = time.time_ns(), time.monotonic_ns()
    shown_ns = json.loads(program.ask(b"", 10.0))
    after_ns = time.time_ns(), time.monotonic_ns()
    wall, monotonic = (
        Span(shown - after, shown - before) for shown, before, after in zip(shown_ns, before_ns, after_ns, strict=True)
    )
    return Offsets(wall, monotonic)


def due_and_shown(environment: DockerEnvironment, node: str, program: Conversation, slack_ns: int) -> tuple[Span, Span]:
    """A clock that drifts is due to be further off at the end of the look than at its beginning, and by `slack_ns` more
    or less for what it took to have it drift."""
    first_ns = environment.due_offset_ns(node)
    shown = offsets(program).wall
    low_ns, high_ns = sorted((first_ns, environment.due_offset_ns(node)))
    return Span(low_ns - slack_ns, high_ns + slack_ns), shown


@pytest.mark.parametrize(
    "skew", [Skew(120 * SECOND), Skew(-2 * SECOND), Skew(SECOND // 5), Skew(0, 0.5), Skew(0, -0.5)]
)
def test_one_program_s_wall_clock_is_skewed_and_no_other_clock(
    skew: Skew, runner: asyncio.Runner, environment: DockerEnvironment, programs: dict[str, Conversation]
) -> None:
    assert isinstance(environment, ClockControl)
    lead_ns = time.time_ns() - time.monotonic_ns()
    began_ns = time.monotonic_ns()
    runner.run(environment.skew_clock("t2", skew))
    slack_ns = int(abs(skew.rate) * (time.monotonic_ns() - began_ns))
    for _ in range(3):
        time.sleep(0.4)
        due, shown = due_and_shown(environment, "t2", programs["t2"], slack_ns)
        assert shown.may_be(due)
        found = {name: offsets(programs[name]) for name in NAMES}
        assert all(found[name].wall.may_be(NO_OFFSET) for name in NAMES if name != "t2")
        assert all(each.monotonic.may_be(NO_OFFSET) for each in found.values())
    assert not due.may_be(NO_OFFSET)
    assert abs(time.time_ns() - time.monotonic_ns() - lead_ns) < SLACK_NS, "the host's clock moved"
    before_ns = time.time_ns()
    true_ns = int(float(runner.run(environment.fleet.check("t2", "date +%s.%N"))) * SECOND)
    assert Span(true_ns - time.time_ns(), true_ns - before_ns).may_be(NO_OFFSET), "the machine's own clock moved"
    runner.run(environment.skew_clock("t2", None))
    assert environment.due_offset_ns("t2") == 0
    assert all(offsets(programs[name]).wall.may_be(NO_OFFSET) for name in NAMES)


def test_a_dead_clock_agent_is_replaced_and_its_end_sets_the_clock_right(
    runner: asyncio.Runner, environment: DockerEnvironment, programs: dict[str, Conversation]
) -> None:
    runner.run(environment.skew_clock("t1", Skew(5 * SECOND)))
    runner.run(environment.fleet.check("t1", "pkill -9 -f assay-clock-agent.py"))
    runner.run(environment.skew_clock("t1", Skew(-5 * SECOND)))
    assert offsets(programs["t1"]).wall.may_be(Span(-5 * SECOND, -5 * SECOND))
    runner.run(environment.skew_clock("t1", None))
    assert offsets(programs["t1"]).wall.may_be(NO_OFFSET)


WAIT = """
import ctypes, time
c = ctypes.CDLL(None)
attributes, condition, mutex = (ctypes.create_string_buffer(128) for _ in range(3))
c.pthread_condattr_init(attributes)
c.pthread_condattr_setclock(attributes, time.CLOCK_MONOTONIC)
c.pthread_cond_init(condition, attributes)
c.pthread_mutex_init(mutex, None)
c.pthread_mutex_lock(mutex)
began = time.monotonic_ns()
end = (ctypes.c_long * 2)(*divmod(began + 200_000_000, 10**9))
c.pthread_cond_timedwait(condition, mutex, end)
print(time.monotonic_ns() - began)
"""


@pytest.mark.usefixtures("programs")
def test_a_wait_by_the_monotonic_clock_lasts_as_long_as_was_asked(
    runner: asyncio.Runner, environment: DockerEnvironment
) -> None:
    """Threads wait so for Python's interpreter: with waits that end at once a node takes several times its work."""
    variables = " ".join(f"{name}={shlex.quote(value)}" for name, value in environment.program_environment.items())
    waited_ns = int(runner.run(environment.fleet.check("t1", f"env {variables} python3 -c {shlex.quote(WAIT)}")))
    assert waited_ns >= SECOND // 5
