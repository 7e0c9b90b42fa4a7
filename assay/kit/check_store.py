"""The store of `kv` alone, before it is tortured: `python -m pytest` in this folder."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import plugin
import pytest


@contextmanager
def serving(path: Path) -> Iterator[None]:
    """The store on this machine, once it answers; killed when the block is left."""
    store = subprocess.Popen([sys.executable, str(plugin.STORE), str(plugin.PORT), str(path)])
    try:
        for _ in range(250):
            try:
                asked("r 0")
                break
            except plugin.assay.DefiniteError:
                time.sleep(0.02)
        yield
    finally:
        store.kill()
        store.wait()


def asked(*lines: str) -> list[str]:
    """The answers to these requests."""
    return [asyncio.run(plugin.ask("127.0.0.1", line, timeout_s=10.0)) for line in lines]


def test_what_was_answered_survives_a_kill(tmp_path: Path) -> None:
    with serving(tmp_path / "log"):
        assert asked("r 1", "w 1 5", "cas 1 5 6", "cas 1 5 7", "r 1") == ["nil", "ok", "ok", "no 6", "6"]
    with pytest.raises(plugin.assay.DefiniteError):
        asked("w 1 8")
    with serving(tmp_path / "log"):
        assert asked("r 1") == ["6"]
