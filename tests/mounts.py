"""File systems that are small or read-only, for tests; skipped, with the reason, where none can be mounted."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(place: Path, size: str = "96k", names: int | None = None) -> Iterator[Path]:
    """A file system of its own with this much room and this many names, at a directory that is made for it."""
    place.mkdir()
    inodes = 0 if names is None else names + 1  # 0: as many as are wanted; the root has one
    _mount("-t", "tmpfs", "-o", f"size={size},nr_inodes={inodes}", "none", str(place))
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", place], check=True)


def make_read_only(place: Path) -> None:
    """Let nobody write to this mounted file system any more."""
    _mount("-o", "remount,ro", str(place))


def _mount(*words: str) -> None:
    done = subprocess.run(["mount", *words], capture_output=True)
    if done.returncode != 0:
        pytest.skip(f"no file system can be mounted here: {done.stderr.decode().strip()}")
