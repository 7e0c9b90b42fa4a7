"""Whatever way a run ends, nothing of it stays in the engine, and nothing of another run is touched."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from assay.doctor_command import warn_of_leftovers
from harness.env.docker import leftovers
from harness.env.docker.engine import RUN_LABEL
from harness.env.docker.environment import DockerEnvironment
from harness.env.docker.machines import container_name
from harness.errors import HarnessError
from harness.ports.real.ports import RealClock
from harness.protocols import Node

pytestmark = [pytest.mark.docker, pytest.mark.xdist_group("docker")]

Left = Callable[[str], list[str]]

THREE_NODES = (Node("t1", "tserver"), Node("t2", "tserver"), Node("t3", "tserver"))

ANOTHER_HARNESS = """
import asyncio, sys
from pathlib import Path
from harness.env.docker.environment import DockerEnvironment
from harness.env.docker.machines import KeptLogs
from harness.protocols import Node
from harness.ports.real.ports import RealClock

async def main():
    logs = KeptLogs("/var/log/assay/node.log", Path(sys.argv[1]) / "nodes")
    environment = DockerEnvironment(RealClock(), logs=logs)
    await environment.setup((Node("t1", "tserver"),))
    await environment.fleet.upload("t1", "/var/log/assay/node.log", b"what t1 had to say")
    print(environment.run_id, flush=True)
    sys.stdin.read()

asyncio.run(main())
"""


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


def test_two_environments_at_once_do_not_meet_and_teardown_removes_everything(left_of: Left) -> None:
    """A teardown can be repeated."""

    async def scenario() -> tuple[list[str], list[str]]:
        nodes = (Node("t1", "tserver"), Node("t2", "tserver"))
        first, second = DockerEnvironment(RealClock()), DockerEnvironment(RealClock())
        try:
            await asyncio.gather(first.setup(nodes), second.setup(nodes))
            await first.cut(frozenset({("t1", "t2"), ("t2", "t1")}))
            assert not any((await first.reachability()).values())
            assert all((await second.reachability()).values())
            assert len(left_of(first.run_id)) == len(left_of(second.run_id)) == 6
            await first.teardown()
            assert left_of(first.run_id) == []
            assert all((await second.reachability()).values())
            with pytest.raises(HarnessError, match="closed"):
                await first.fleet.check("t1", "true")
        finally:
            await asyncio.gather(first.teardown(), second.teardown())
        return left_of(first.run_id), left_of(second.run_id)

    assert asyncio.run(scenario()) == ([], [])


def test_the_volume_of_a_container_that_somebody_removed_goes_too(engine: Any, left_of: Left) -> None:
    """It has a name, and there is no other, which nobody could find."""

    async def scenario() -> tuple[list[str], list[str], list[str]]:
        environment = DockerEnvironment(RealClock())
        try:
            await environment.setup((Node("t1", "tserver"),))
            container = engine.containers.get(container_name(environment.run_id, "t1"))
            volumes = [mount["Name"] for mount in container.attrs["Mounts"]]
            container.remove(force=True, v=True)
            left = left_of(environment.run_id)
        finally:
            await environment.teardown()
        return volumes, left, left_of(environment.run_id)

    volumes, left, after = asyncio.run(scenario())
    assert len(volumes) == 1 and volumes[0] in left and len(left) == 3, "with two networks"
    assert after == []


def start_another_harness(rundir: Path) -> subprocess.Popen[str]:
    """With the logs of a run that has this folder; it prints its id once all stands."""
    rundir.mkdir()
    (rundir / "run.json").write_text("{}")
    command = [sys.executable, "-c", ANOTHER_HARNESS, str(rundir)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def run_id_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_what_a_killed_harness_left_is_cleaned_when_its_logs_are_saved_and_a_living_one_is_not(
    engine: Any, left_of: Left, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of all that there is in the engine only these two are looked at: what others left is theirs."""
    every = leftovers._labelled

    def of_these(client: Any, filters: dict[str, str]) -> Iterator[tuple[str, dict[str, str]]]:
        return (each for each in every(client, filters) if each[1][RUN_LABEL] in (killed_run, living_run))

    monkeypatch.setattr(leftovers, "_labelled", of_these)
    killed, living = (start_another_harness(tmp_path / name) for name in ("killed", "living"))
    try:
        killed_run, living_run = run_id_of(killed), run_id_of(living)
        killed.kill()
        killed.communicate()
        assert len(left_of(killed_run)) == 4
        assert leftovers.find_leftovers(engine) == leftovers.Leftovers((killed_run,), 1, 1, 2)
        said: list[str] = []
        warn_of_leftovers(tmp_path, True, said.append)
        (sentence,) = said
        assert "1 container, 1 volume and 2 networks of 1 run whose harness is gone. `assay doctor --clean" in sentence
        removed = leftovers.clean_leftovers(engine)
        assert (removed.runs, removed.logs, removed.failures) == (1, 1, ())
        assert left_of(killed_run) == []
        assert (tmp_path / "killed" / "nodes" / "t1" / "node.log").read_bytes() == b"what t1 had to say"
        assert len(left_of(living_run)) == 4
    finally:
        killed.kill()
        living.communicate("")
    assert left_of(living_run) == []
    assert not (tmp_path / "living" / "nodes").exists()
