"""The ports of a real process."""

from __future__ import annotations

import os
import random
from pathlib import Path

from harness.ports.api import Hello, Ports
from harness.ports.real.clock import RealClock
from harness.ports.real.disk import RealDisk
from harness.ports.real.failpoints import real_failpoints
from harness.ports.real.network import RealNetwork


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
