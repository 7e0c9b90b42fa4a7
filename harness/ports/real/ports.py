"""The ports of a real process: the system's clock, TCP, files, and failpoints that its environment can arm.

`ASSAY_FAILPOINTS=tablet.before_fsync=crash@3` arms one. What is armed acts once; `NAME=record` counts. Each point that
acted is a line in the file that `ASSAY_FAILPOINT_LOG` names, if it names one: that outlives the process.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from harness.ports.api import Hello, Ports
from harness.ports.failpoints import ACTIONS, Arming, ProcessFailpoints
from harness.ports.real.disk import RealDisk
from harness.ports.real.network import RealNetwork

VARIABLE = "ASSAY_FAILPOINTS"
LOG_VARIABLE = "ASSAY_FAILPOINT_LOG"


def real_failpoints(environment: Mapping[str, str] = os.environ) -> ProcessFailpoints:
    """The failpoints of this process; raises ValueError where the environment can't be read."""
    failpoints = ProcessFailpoints(ProcessBody(environment.get(LOG_VARIABLE, "")))
    for arming in _parse(environment.get(VARIABLE, "")):
        failpoints.arm(arming)
    return failpoints


class ProcessBody:
    """What failpoints do to this process. Implements `harness.ports.failpoints.Body`."""

    def __init__(self, log_file: str) -> None:
        self._log_file = log_file

    def crash(self, point: str) -> None:
        """SIGKILL: nothing runs after it."""
        os.kill(os.getpid(), signal.SIGKILL)

    def stop(self) -> None:
        os.kill(os.getpid(), signal.SIGSTOP)

    def block(self, seconds: float) -> None:
        time.sleep(seconds)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def note(self, point: str) -> None:
        if self._log_file:
            with open(self._log_file, "a", encoding="utf-8") as file:
                file.write(f"{point}\n")


def _parse(text: str) -> list[Arming]:
    """What `NAME=ACTION` and `NAME=ACTION@N`, the n-th pass, ask for; raises ValueError."""
    armings = []
    for item in filter(None, (part.strip() for part in text.split(","))):
        name, _, action = item.partition("=")
        word, _, turn = action.partition("@")
        if not name or word not in ACTIONS or not (turn.isdecimal() or not turn):
            raise ValueError(f"{VARIABLE} has {item!r}; write NAME=ACTION or NAME=ACTION@N with {', '.join(ACTIONS)}")
        times = 0 if word == "record" else 1
        armings.append(Arming(name, word, skip=max(int(turn or 1) - 1, 0), times=times))  # type: ignore[arg-type]
    return armings


class RealClock:
    """The machine's own clock, whose wall time faults may skew. Implements `harness.ports.api.Clock`."""

    __slots__ = ()

    def wall_ns(self) -> int:
        return time.time_ns()

    def monotonic_ns(self) -> int:
        return time.monotonic_ns()

    def times_ns(self) -> tuple[int, int]:
        return time.time_ns(), time.monotonic_ns()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(seconds, callback)


def real_ports(hello: Hello, data_dir: str | Path, torture: bool = False, seed: int | None = None) -> Ports:
    """Ports for one process with its files under `data_dir`; without a seed its entropy is the system's.

    Raises OSError when the directory can't be used and ValueError when `ASSAY_FAILPOINTS` can't be read.
    """
    failpoints = real_failpoints()
    return Ports(
        node_id=hello.node_id,
        incarnation=hello.incarnation,
        clock=RealClock(),
        network=RealNetwork(hello),
        disk=RealDisk(Path(data_dir), torture, failpoints),
        entropy=random.Random(seed if seed is not None else int.from_bytes(os.urandom(16))),
        failpoints=failpoints,
    )
