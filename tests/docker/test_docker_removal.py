"""Whatever way a run ends, nothing of it stays in the engine, and nothing of another run is touched."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.env.docker.environment import DockerEnvironment
from harness.env.docker.leftovers import clean_leftovers
from harness.errors import HarnessError
from harness.protocols import Node
from harness.real.clock import RealClock

pytestmark = [pytest.mark.docker, pytest.mark.xdist_group("docker")]

Left = Callable[[str], list[str]]

THREE_NODES = (Node("t1", "tserver"), Node("t2", "tserver"), Node("t3", "tserver"))

ANOTHER_HARNESS = """
import asyncio, sys
from harness.env.docker.environment import DockerEnvironment
from harness.protocols import Node
from harness.real.clock import RealClock

environment = DockerEnvironment(RealClock())
asyncio.run(environment.setup((Node("t1", "tserver"),)))
print(environment.run_id, flush=True)
sys.stdin.read()
"""


def test_teardown_removes_everything_and_can_be_repeated(left_of: Left) -> None:
    async def scenario() -> str:
        environment = DockerEnvironment(RealClock())
        await environment.setup(THREE_NODES)
        assert len(left_of(environment.run_id)) == 5
        await environment.teardown()
        await environment.teardown()
        with pytest.raises(HarnessError, match="closed"):
            await environment.fleet.check("t1", "true")
        return environment.run_id

    assert left_of(asyncio.run(scenario())) == []


def test_a_setup_that_is_cancelled_half_way_leaves_nothing(left_of: Left) -> None:
    async def scenario() -> str:
        environment = DockerEnvironment(RealClock())
        setup = asyncio.create_task(environment.setup(THREE_NODES))
        while not await asyncio.to_thread(left_of, environment.run_id):
            await asyncio.sleep(0.01)
        setup.cancel()
        with pytest.raises(asyncio.CancelledError):
            await setup
        await environment.teardown()
        return environment.run_id

    assert left_of(asyncio.run(scenario())) == []


def test_two_environments_at_once_do_not_meet(left_of: Left) -> None:
    async def scenario() -> tuple[list[str], list[str]]:
        nodes = (Node("t1", "tserver"), Node("t2", "tserver"))
        first, second = DockerEnvironment(RealClock()), DockerEnvironment(RealClock())
        try:
            await asyncio.gather(first.setup(nodes), second.setup(nodes))
            await first.cut(frozenset({("t1", "t2"), ("t2", "t1")}))
            assert not any((await first.reachability()).values())
            assert all((await second.reachability()).values())
            await first.teardown()
            assert all((await second.reachability()).values())
        finally:
            await asyncio.gather(first.teardown(), second.teardown())
        return left_of(first.run_id), left_of(second.run_id)

    assert asyncio.run(scenario()) == ([], [])


def start_another_harness() -> tuple[subprocess.Popen[str], str]:
    command = [sys.executable, "-c", ANOTHER_HARNESS]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


def test_what_a_killed_harness_left_is_cleaned_and_a_living_one_is_not(engine: Any, left_of: Left) -> None:
    (killed, killed_run), (living, living_run) = start_another_harness(), start_another_harness()
    try:
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        assert len(left_of(killed_run)) == 3
        assert clean_leftovers(engine).runs >= 1
        assert left_of(killed_run) == []
        assert len(left_of(living_run)) == 3
    finally:
        living.communicate("")
    assert left_of(living_run) == []


KILLED_WITH_LOGS = """
import asyncio, sys
from pathlib import Path
from harness.env.docker.environment import DockerEnvironment
from harness.env.docker.machines import KeptLogs
from harness.protocols import Node
from harness.real.clock import RealClock

async def main():
    logs = KeptLogs("/var/log/assay/node.log", Path(sys.argv[1]) / "nodes")
    environment = DockerEnvironment(RealClock(), logs=logs)
    await environment.setup((Node("t1", "tserver"),))
    await environment.fleet.upload("t1", "/var/log/assay/node.log", b"what t1 had to say")
    print(environment.run_id, flush=True)
    sys.stdin.read()

asyncio.run(main())
"""


def test_logs_of_a_killed_harness_are_saved_before_its_containers_go(
    engine: Any, left_of: Left, tmp_path: Path
) -> None:
    (tmp_path / "run.json").write_text("{}")
    command = [sys.executable, "-c", KILLED_WITH_LOGS, str(tmp_path)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    run_id = process.stdout.readline().strip()
    process.kill()
    process.communicate()
    assert clean_leftovers(engine).logs >= 1
    assert left_of(run_id) == []
    assert (tmp_path / "nodes" / "t1" / "node.log").read_bytes() == b"what t1 had to say"
