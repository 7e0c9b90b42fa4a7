"""Removing what a run made in the engine: containers, then volumes and networks, all found by label."""

from __future__ import annotations

import io
import tarfile
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import docker.errors

from harness.env.docker.engine import (
    LOG_LABEL,
    OWNER_LABEL,
    RUN_LABEL,
    SAVE_LABEL,
    engine_failures,
    is_gone,
    parse_owner,
    this_process,
)
from harness.errors import HarnessError
from harness.history.rundir import is_run, write_atomic

REMOVED_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class Removed:
    """How much was removed, what could not be (a sentence each), and how many nodes' logs were saved before."""

    runs: int
    containers: int
    volumes: int
    networks: int
    failures: tuple[str, ...] = ()
    logs: int = 0


@dataclass(frozen=True, slots=True)
class Leftovers:
    """What runs left in the engine whose harness process is gone: their ids, and how many things of each kind."""

    runs: tuple[str, ...] = ()
    containers: int = 0
    volumes: int = 0
    networks: int = 0


def remove_run(client: Any, run_id: str, at_once: int = REMOVED_AT_ONCE) -> Removed:
    """Remove everything that carries the run's label, also after a partial setup; raises HarnessError.

    With `at_once=1` it starts no threads, which it could not while the interpreter is ending. Containers leave their
    networks one by one before they are removed (why: see `make_machines`).
    """
    filters = {"label": f"{RUN_LABEL}={run_id}"}
    with engine_failures("removing a run's containers, volumes and networks"):
        containers = client.api.containers(all=True, filters=filters)
        volumes = [each["Name"] for each in client.api.volumes(filters=filters)["Volumes"] or ()]
        networks = [each["Id"] for each in client.api.networks(filters=filters)]
        for container in containers:
            _leave_networks(client, container["Id"], networks)
        _remove_containers(client, [container["Id"] for container in containers], at_once)
        for volume in volumes:
            _remove_volume(client, volume)
        for network in networks:
            _remove_network(client, network)
    return Removed(1, len(containers), len(volumes), len(networks))


def _leave_networks(client: Any, container: str, networks: Sequence[str]) -> None:
    for network in networks:
        try:
            client.api.disconnect_container_from_network(container, network, force=True)
        except docker.errors.APIError:
            continue  # not connected, or gone already: what counts is that it can be removed


def clean_leftovers(client: Any, process: int | None = None) -> Removed:
    """Remove what runs left behind whose harness process is gone (with `process`: was that one); runs that go on are
    not touched.

    Their nodes' logs are saved first, where the runs' folders are still there. What can't be removed is told and stops
    nothing else.
    """
    gone = find_leftovers(client, process).runs
    removed: list[Removed] = []
    failures: list[str] = []
    logs = 0
    for run_id in gone:
        try:
            logs += save_logs(client, run_id)
            removed.append(remove_run(client, run_id))
        except HarnessError as error:
            failures.append(f"run {run_id}: {error}")
    return Removed(
        len(removed),
        sum(each.containers for each in removed),
        sum(each.volumes for each in removed),
        sum(each.networks for each in removed),
        tuple(failures),
        logs,
    )


def save_logs(client: Any, run_id: str) -> int:
    """Save the logs that a run's containers still hold into its folder, if it is there; how many were saved."""
    with engine_failures("looking for the logs of an earlier run"):
        containers = client.api.containers(all=True, filters={"label": [f"{RUN_LABEL}={run_id}", SAVE_LABEL]})
    return sum(
        _save_log(client, each["Id"], each["Labels"][LOG_LABEL], Path(each["Labels"][SAVE_LABEL]))
        for each in containers
    )


def _save_log(client: Any, container: str, path: str, folder: Path) -> bool:
    """What can't be had is left: nobody is served by a container that stays for its log."""
    target = folder / PurePosixPath(path).name
    if not is_run(folder.parent.parent) or target.exists():
        return False
    try:
        packed = io.BytesIO(b"".join(client.api.get_archive(container, path)[0]))
        with tarfile.open(fileobj=packed) as archive:
            file = archive.extractfile(target.name)
            content = b"" if file is None else file.read()
        folder.mkdir(parents=True, exist_ok=True)
        write_atomic(target, content)
    except (docker.errors.DockerException, tarfile.TarError, KeyError, OSError, HarnessError):
        return False
    return True


def find_leftovers(client: Any, process: int | None = None) -> Leftovers:
    """What runs left whose harness process is gone (with `process`: was that one); raises HarnessError."""
    observer = this_process()
    counts: dict[str, Counter[str]] = {}
    owners: dict[str, str] = {}
    with engine_failures("looking for what earlier runs left"):
        for kind, labels in _labelled(client, {"label": RUN_LABEL}):
            owners[labels[RUN_LABEL]] = labels.get(OWNER_LABEL, "")
            counts.setdefault(labels[RUN_LABEL], Counter())[kind] += 1
    parsed = {run_id: parse_owner(label) for run_id, label in owners.items()}
    if process is not None:
        parsed = {run_id: owner for run_id, owner in parsed.items() if owner is not None and owner.pid == process}
    gone = sorted(run_id for run_id, owner in parsed.items() if owner is None or is_gone(owner, observer))
    total = sum((counts[run_id] for run_id in gone), Counter[str]())
    return Leftovers(tuple(gone), total["containers"], total["volumes"], total["networks"])


def _labelled(client: Any, filters: dict[str, str]) -> Iterable[tuple[str, dict[str, str]]]:
    """What carries a label: its kind, and all its labels."""
    for container in client.api.containers(all=True, filters=filters):
        yield "containers", container.get("Labels") or {}
    for network in client.api.networks(filters=filters):
        yield "networks", network.get("Labels") or {}
    for volume in client.api.volumes(filters=filters)["Volumes"] or ():
        yield "volumes", volume.get("Labels") or {}


def _remove_containers(client: Any, containers: Sequence[str], at_once: int) -> None:
    if at_once == 1:
        for container in containers:
            _remove_container(client, container)
        return
    with ThreadPoolExecutor(max_workers=at_once, thread_name_prefix="assay-remove") as pool:
        list(pool.map(lambda container: _remove_container(client, container), containers))


def _remove_container(client: Any, container: str) -> None:
    try:
        client.api.remove_container(container, force=True, v=True)
    except docker.errors.NotFound:
        return
    except docker.errors.APIError as error:
        if "already in progress" not in str(error):
            raise


def _remove_volume(client: Any, volume: str) -> None:
    with suppress(docker.errors.NotFound):
        client.api.remove_volume(volume)


def _remove_network(client: Any, network: str) -> None:
    try:
        client.api.remove_network(network)
    except docker.errors.NotFound:
        return
    except docker.errors.APIError as error:
        if "has active endpoints" not in str(error):
            raise
        raise HarnessError(
            f"the empty network {network[:12]} can't be removed because Docker has miscounted its endpoints"
            " (moby/moby#42119); restarting the engine frees it"
        ) from error
