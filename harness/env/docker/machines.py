"""The containers, volumes and networks of one run: made in parallel, found by label, blocking."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import docker.errors
import requests

from harness.env.docker.engine import (
    LOG_LABEL,
    OWNER_LABEL,
    RUN_LABEL,
    SAVE_LABEL,
    engine_failures,
    this_process,
)
from harness.env.ssh import KeyPair
from harness.errors import HarnessError, UserError

MACHINES_AT_ONCE = 8

NODE_MIB = 64
"""Memory that a node's container takes: its program, sshd and two agents took 54 to 61 MiB."""

VOLUME_PATH = "/var/lib/assay"
"""Where a node keeps its data."""


@dataclass(frozen=True, slots=True)
class Machine:
    """A container that was started: its addresses (SSH is on the control network, the database and every fault on the
    data network), and when it was, in the engine's words."""

    control: str
    data: str
    begun: str


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of one run: the harness's own and the nodes' common host key."""

    user: KeyPair
    host: KeyPair


def labels_of(run_id: str) -> dict[str, str]:
    """The labels by which everything of a run is found again, and its harness process told."""
    return {RUN_LABEL: run_id, OWNER_LABEL: this_process().label()}


@dataclass(frozen=True, slots=True)
class KeptLogs:
    """Where a node's log is (a file in its container), and the folder of the run that has a folder a node for it: for
    whoever removes the containers of a run whose harness is gone."""

    path: str
    folder: Path

    def labels(self, node: str) -> dict[str, str]:
        """The labels of the node's container that say so."""
        return {LOG_LABEL: self.path, SAVE_LABEL: str(self.folder / node)}


@dataclass(frozen=True, slots=True)
class MachinePlan:
    """What the machines of a run have in common: their image, the control and data networks, the keys. With
    `volume_mib` their volumes have that size, and are in memory; `logs` is where those are, if they are to be kept."""

    run_id: str
    image: str
    networks: tuple[str, str]
    keys: Keys
    volume_mib: int | None = None
    logs: KeptLogs | None = None


def require_memory(nodes: int, engine_mib: float) -> None:
    """Raise UserError for more nodes than the engine's machine can hold, however little runs on it."""
    needed_mib = nodes * NODE_MIB
    if needed_mib > engine_mib:
        raise UserError(
            f"{nodes} nodes take {needed_mib / 1024:.1f} GiB of memory, and the machine of the Docker engine has "
            f"{engine_mib / 1024:.1f}: use fewer (--masters, --nodes), or the simulator."
        )


def make_networks(client: Any, run_id: str) -> tuple[str, str]:
    """The run's control and data networks, by name; the engine chooses their subnets, so runs can't collide."""
    names = (f"assay-{run_id}-control", f"assay-{run_id}-data")
    with engine_failures(
        "making the networks (if it has no subnet left, `assay doctor --clean` frees those of crashed runs)"
    ):
        for name in names:
            client.networks.create(name, driver="bridge", internal=True, labels=labels_of(run_id))
    return names


def make_machines(client: Any, plan: MachinePlan, nodes: Sequence[str]) -> dict[str, str]:
    """The id of one container per node name, on both networks, with the run's keys in place; made in parallel.

    At VOLUME_PATH there is a volume with the run's labels. They join their networks (that is, start) one by one:
    engines before 28 keep a count of each network's endpoints, and it was seen one too high after several containers
    had joined and left at once; then only a restart of the engine frees the network (moby/moby#42119).
    """
    with ThreadPoolExecutor(max_workers=MACHINES_AT_ONCE, thread_name_prefix="assay-docker") as pool:
        return dict(zip(nodes, pool.map(partial(_make_machine, client, plan), nodes), strict=True))


def _make_machine(client: Any, plan: MachinePlan, node: str) -> str:
    control, data = plan.networks
    api = client.api
    kept = {} if plan.logs is None else plan.logs.labels(node)
    with engine_failures(f"making the container of {node}"):
        container = api.create_container(
            plan.image,
            name=container_name(plan.run_id, node),
            hostname=node,
            labels={**labels_of(plan.run_id), **kept},
            host_config=api.create_host_config(cap_add=["NET_ADMIN"], **_volume(api, plan, node)),
            networking_config=api.create_networking_config({control: api.create_endpoint_config()}),
        )["Id"]
        api.connect_container_to_network(container, data)
        api.put_archive(container, "/etc/assay", _key_archive(plan.keys))
    return str(container)


def _volume(api: Any, plan: MachinePlan, node: str) -> dict[str, Any]:
    """How the node's container is told of its volume, which is found by label even when the container is gone."""
    if plan.volume_mib is not None:
        return {"tmpfs": {VOLUME_PATH: f"size={plan.volume_mib}m,mode=0755"}}
    name = container_name(plan.run_id, node)
    api.create_volume(name, labels=labels_of(plan.run_id))
    return {"binds": {name: {"bind": VOLUME_PATH, "mode": "rw"}}}


def start_machine(client: Any, container: str, node: str, networks: tuple[str, str]) -> Machine:
    """Start a container that was made for a node."""
    with engine_failures(f"starting the container of {node}"):
        client.api.start(container)
        found = client.api.inspect_container(container)
    joined = found["NetworkSettings"]["Networks"]
    control, data = (joined[network]["IPAddress"] for network in networks)
    if not (control and data):
        raise HarnessError(f"the container of {node} ended as soon as it was started")
    return Machine(control, data, str(found["State"]["StartedAt"]))


def begun_at(client: Any, run_id: str, node: str) -> str:
    """When the node's container was last started, in the engine's words; raises HarnessError that says it is gone."""
    try:
        state = client.api.inspect_container(container_name(run_id, node))["State"]
    except docker.errors.NotFound:
        raise HarnessError("its container was removed") from None
    except (docker.errors.DockerException, requests.exceptions.RequestException):
        return ""
    if not state["Running"]:
        raise HarnessError("its container has stopped")
    if state.get("Paused"):
        raise HarnessError("its container is paused")
    return str(state["StartedAt"])


def container_name(run_id: str, node: str) -> str:
    return f"assay-{run_id}-{node}"


def _key_archive(keys: Keys) -> bytes:
    files = {"host_key": keys.host.private, "authorized_keys": keys.user.public + "\n"}
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, text in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(text.encode()), 0o600
            archive.addfile(entry, io.BytesIO(text.encode()))
    return buffer.getvalue()


def run_once(client: Any, image: str, run_id: str, command: str) -> str:
    """The output of a shell command in a container of its own, which is removed at once; raises HarnessError."""
    api = client.api
    with engine_failures("trying out what nodes can be subjected to"):
        container = api.create_container(
            image,
            entrypoint=["/bin/sh", "-c", command],
            labels=labels_of(run_id),
            network_disabled=True,
            host_config=api.create_host_config(cap_add=["NET_ADMIN"]),
        )["Id"]
        try:
            api.start(container)
            api.wait(container)
            return str(api.logs(container, stderr=False).decode(errors="replace"))
        finally:
            api.remove_container(container, v=True, force=True)
