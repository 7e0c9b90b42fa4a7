"""The Docker engine: reaching it, naming and labelling what a run makes there, and telling whose failure is whose."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docker
import requests
from docker.errors import DockerException

from harness.errors import HarnessError, UserError

RUN_LABEL = "assay.run"
OWNER_LABEL = "assay.owner"
LOG_LABEL = "assay.log"
"""Of a container: the file in it that is a node's log, …"""
SAVE_LABEL = "assay.save"
"""… and the folder of the run that it belongs to."""
ENGINE_TIMEOUT_S = 120


def connect_engine() -> Any:
    """A client of the local Docker engine; raises UserError with one sentence when none answers."""
    client = None
    try:
        client = docker.from_env(timeout=ENGINE_TIMEOUT_S, max_pool_size=32)
        client.ping()
    except (DockerException, requests.exceptions.RequestException, OSError) as error:
        if client is not None:
            client.close()
        raise UserError(
            "No Docker engine answers here: start one (or set DOCKER_HOST and check your rights on its socket),"
            f" or use `--on sim`, which needs none ({_first_line(error)})"
        ) from error
    return client


def memory_of(client: Any) -> float:
    """Memory of the engine's machine, MiB; raises HarnessError."""
    with engine_failures("asking for its memory"):
        return float(client.info()["MemTotal"]) / (1 << 20)


@contextmanager
def engine_failures(doing: str) -> Iterator[None]:
    """Turns what the engine raises inside the block into a HarnessError that says what was being done."""
    try:
        yield
    except (DockerException, requests.exceptions.RequestException) as error:
        raise HarnessError(f"Docker failed while {doing}: {_first_line(error)}") from error


def _first_line(error: BaseException) -> str:
    words = str(getattr(error, "explanation", None) or error).strip()
    return (words or type(error).__name__).splitlines()[0]


@dataclass(frozen=True, slots=True)
class Owner:
    """The harness process that a run belongs to, named so that a later process id can't be mistaken for it."""

    pid: int
    start_ticks: int
    boot_id: str
    pid_namespace: str

    def label(self) -> str:
        return f"{self.pid}:{self.start_ticks}:{self.boot_id}:{self.pid_namespace}"


def this_process() -> Owner:
    """The running process as an owner."""
    pid = os.getpid()
    return Owner(pid, _start_ticks(pid) or 0, _boot_id(), _pid_namespace())


def parse_owner(label: str) -> Owner | None:
    """An owner from its label, or None if the label is not one of ours."""
    parts = label.split(":", 3)
    if len(parts) != 4 or not (parts[0].isdigit() and parts[1].isdigit()):
        return None
    return Owner(int(parts[0]), int(parts[1]), parts[2], parts[3])


def is_gone(owner: Owner, observer: Owner) -> bool:
    """Whether the owner has surely ended, as a process on this machine sees it; False where that can't be known."""
    if owner.boot_id != observer.boot_id:
        return True
    if owner.pid_namespace != observer.pid_namespace:
        return False
    return _start_ticks(owner.pid) != owner.start_ticks


def _start_ticks(pid: int) -> int | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in ("Z", "X") else int(fields[19])


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _pid_namespace() -> str:
    return os.readlink("/proc/self/ns/pid")
