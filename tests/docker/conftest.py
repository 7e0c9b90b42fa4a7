"""Skips, aloud and with the reason, what needs a Docker engine where none answers; lends nodes in containers."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cluster.deploy.node_files import CONFIG_PATH, FOREIGN_CONFIG_PATH
from harness.env.docker.engine import OWNER_LABEL, RUN_LABEL, connect_engine, parse_owner, this_process
from harness.env.docker.environment import DockerEnvironment
from harness.env.marks import IN_CONTAINERS
from harness.errors import UserError
from tests.docker.shared_cluster import REGISTERS, Cluster, Nodes, OneAtATime

HERE = Path(__file__).parent
LOOKS = 10


@pytest.hookimpl
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that share nothing come first, then those that share nodes, then those that share a cluster."""

    def shares(item: pytest.Item) -> int:
        names = getattr(item, "fixturenames", ())
        return 2 if "cluster" in names else int("environment" in names)

    ours = iter(sorted((item for item in items if is_ours(item)), key=shares))
    items[:] = [next(ours) if is_ours(item) else item for item in items]


def is_ours(item: pytest.Item) -> bool:
    return item.path.parent == HERE


@pytest.fixture(scope="session")
def engine() -> Any:
    """The engine's client, or a skip (a failure where ASSAY_REQUIRE_DOCKER is set) that gives the reason."""
    try:
        return connect_engine()
    except UserError as error:
        if os.environ.get("ASSAY_REQUIRE_DOCKER"):
            pytest.fail(f"ASSAY_REQUIRE_DOCKER is set, but {error}")
        pytest.skip(str(error))


@pytest.fixture(scope="session", autouse=True)
def nothing_of_ours_is_left(engine: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """After all Docker tests this machine is as it was: no container, network, volume, firewall rule, process or key.

    What any other process has made, beside these tests or before them, is its own.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("temporary")))
        before = traces(engine)
        yield
        for _ in range(LOOKS):  # what another harness is just taking away is in no container any more for a moment
            left = traces(engine) - before
            if not left:
                return
            time.sleep(0.5)
        pytest.fail(f"left by the Docker tests: {sorted(left)}")


def traces(engine: Any) -> set[str]:
    """What there is of this process on this machine."""
    return {*made_by(engine), *process_traces(engine), *rule_traces(), *key_traces(), *folder_traces()}


def made_by(engine: Any, pid: int | None = None) -> set[str]:
    """The names of containers, networks and volumes of this process, or of another one on this machine."""
    api, filters = engine.api, {"label": RUN_LABEL}
    found = [(each["Names"][0].lstrip("/"), each["Labels"]) for each in api.containers(all=True, filters=filters)]
    others = (*api.networks(filters=filters), *(api.volumes(filters=filters)["Volumes"] or ()))
    found += [(each["Name"], each["Labels"]) for each in others]
    wanted = replace(this_process(), pid=pid or os.getpid(), start_ticks=0)
    owners = ((name, parse_owner(labels.get(OWNER_LABEL, ""))) for name, labels in found)
    return {name for name, owner in owners if owner is not None and replace(owner, start_ticks=0) == wanted}


def process_traces(engine: Any) -> Iterator[str]:
    """Node programs, agents and sshds of ours (containers' processes are seen here too) in no container that is
    known."""
    known = {each["Id"] for each in engine.api.containers(all=True)}
    marks = (CONFIG_PATH, FOREIGN_CONFIG_PATH, IN_CONTAINERS.probe_agent, IN_CONTAINERS.clock_agent)
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            group = (folder / "cgroup").read_text()
            ours = command.startswith("python3 ") and any(mark in command for mark in marks)
            if ours and not any(container in group for container in known):
                yield f"process {folder.name}: {command}"


def rule_traces() -> Iterator[str]:
    """Rules in this machine's own firewall: ours belong into containers."""
    for tool in ("iptables-nft-save", "iptables-legacy-save"):
        if shutil.which(tool):
            saved = subprocess.run([tool], capture_output=True, text=True).stdout
            yield from (f"rule {line}" for line in saved.splitlines() if IN_CONTAINERS.cut in line)


def key_traces() -> Iterator[str]:
    """Keys and known hosts of the user: ours stay in memory."""
    for path in Path.home().glob(".ssh/*"):
        yield f"key {path} of {path.stat().st_mtime_ns}"


def folder_traces() -> Iterator[str]:
    """Temporary folders of clients."""
    yield from (f"folder {path}" for path in Path(tempfile.gettempdir()).glob("assay-clients-*"))


@pytest.fixture(scope="session")
def runner() -> Iterator[asyncio.Runner]:
    """The event loop of what tests share."""
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture(scope="session")
def shared(nothing_of_ours_is_left: None, runner: asyncio.Runner) -> Iterator[OneAtATime]:
    """What tests share, which is torn down when something else is asked for, and before it is looked what is left."""
    shared = OneAtATime(runner)
    yield shared
    shared.clear()


@pytest.fixture(autouse=True)
def mended(shared: OneAtATime, request: pytest.FixtureRequest) -> Iterator[None]:
    """A test that fails leaves what it shares whole for the next one."""
    failed = request.session.testsfailed
    yield
    if request.session.testsfailed > failed:
        shared.mend()


@pytest.fixture(scope="module")
def environment(shared: OneAtATime) -> DockerEnvironment:
    """Three nodes on which nothing runs."""
    return shared.get(Nodes, Nodes).environment


@pytest.fixture
def cluster(shared: OneAtATime, runner: asyncio.Runner, request: pytest.FixtureRequest) -> Cluster:
    """The reference cluster, with the module's `TABLE` if it has any, else with registers."""
    cluster = shared.get(Cluster, lambda: Cluster(runner))
    cluster.run(cluster.turn_to(*getattr(request.module, "TABLE", REGISTERS)))
    return cluster


@pytest.fixture(scope="session")
def left_of(engine: Any) -> Callable[[str], list[str]]:
    """Gives the names of the containers, volumes and networks that carry a run's label."""

    def find(run_id: str) -> list[str]:
        filters = {"label": f"{RUN_LABEL}={run_id}"}
        containers = engine.containers.list(all=True, filters=filters, ignore_removed=True)
        others = (*engine.volumes.list(filters=filters), *engine.networks.list(filters=filters))
        return [each.name for each in (*containers, *others)]

    return find
