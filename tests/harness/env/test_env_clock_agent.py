"""The clock hand as a program: what it writes for libfaketime, that a drift goes on, and that its end undoes it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.env.clocks import AGENT_SOURCE


class Agent:
    def __init__(self, file: Path) -> None:
        self.file = file
        command = [sys.executable, str(AGENT_SOURCE), str(file)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.set(None)

    def set(self, skew: dict[str, float] | None) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(skew).encode() + b"\n")
        self.process.stdin.flush()
        assert json.loads(self.process.stdout.readline()) is None

    @property
    def written_s(self) -> float:
        return float(self.file.read_text())


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    agent = Agent(tmp_path / "clock")
    yield agent
    agent.process.communicate()


@pytest.mark.parametrize("offset_ns", [1, -1, 120_000_000_000, -1_500_000_000, 0])
def test_an_offset_is_told_to_the_nanosecond(agent: Agent, offset_ns: int) -> None:
    agent.set({"offset_ns": offset_ns, "rate": 0.0})
    assert agent.written_s == offset_ns / 1e9
    assert agent.file.read_text()[0] in "+-", "without a sign it would be a date"
    agent.set(None)
    assert agent.written_s == 0


def test_a_drift_goes_on_from_its_offset(agent: Agent) -> None:
    agent.set({"offset_ns": 1_000_000_000, "rate": 10.0})
    began_s, seen = time.monotonic(), []
    while len(seen) < 5:
        if not seen or agent.written_s > seen[-1]:
            seen.append(agent.written_s)
        assert agent.written_s <= 1 + 10 * (time.monotonic() - began_s + 0.5)
    assert seen == sorted(seen)


def test_its_end_sets_the_clock_right(agent: Agent) -> None:
    agent.set({"offset_ns": 5_000_000_000, "rate": 1.0})
    agent.process.communicate()
    assert agent.process.returncode == 0
    assert agent.written_s == 0
