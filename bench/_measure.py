"""What benchmarks share: the machine in words, and the most memory that a process and all below it hold meanwhile."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_SAMPLE_EVERY_S: Final = 0.25


def machine() -> str:
    """Cores, memory and how busy the machine is."""
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{os.cpu_count()} cores, {memory_gib:.0f} GiB, load {os.getloadavg()[0]:.1f}"


def status_bytes(name: str) -> int:
    """A line of this process's status in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{name}:"))


class Peak:
    """The most memory seen, in bytes."""

    def __init__(self) -> None:
        self.bytes = 0

    def __str__(self) -> str:
        return f"peak {self.bytes / 2**30:.2f} GiB"


@contextmanager
def peak_memory() -> Iterator[Peak]:
    """Samples this process and all below it (the JVM, Python workers) while the block runs."""
    peak, stop = Peak(), threading.Event()

    def sample() -> None:
        while True:
            peak.bytes = max(peak.bytes, family_bytes(os.getpid()))
            if stop.wait(_SAMPLE_EVERY_S):
                return

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        stop.set()
        thread.join()


def family_bytes(root: int) -> int:
    """What a process and all below it hold, shared pages counted once; those that end meanwhile are left out."""
    return sum(_held(process) for process in _family(root))


def _family(root: int) -> Iterator[int]:
    yield root
    for task in Path(f"/proc/{root}/task").glob("*/children"):
        for child in _text(task).split():
            yield from _family(int(child))


def _held(process: int) -> int:
    lines = _text(Path(f"/proc/{process}/smaps_rollup")).splitlines()
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:"))


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:  # the process ended meanwhile
        return ""
