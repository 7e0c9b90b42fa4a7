"""The probe agent as a program, two of it on loopback addresses."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from harness.env.reachability import AGENT_SOURCE

ADDRESSES = {"a": "127.0.0.1", "b": "127.0.0.2"}


def free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Agent:
    def __init__(self, address: str, port: int) -> None:
        command = [sys.executable, str(AGENT_SOURCE), address, str(port)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.ask({"collect": ""})

    def ask(self, question: dict[str, Any]) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(question).encode() + b"\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


@pytest.fixture
def agents() -> Iterator[dict[str, Agent]]:
    port = free_port()
    agents = {name: Agent(address, port) for name, address in ADDRESSES.items()}
    yield agents
    for agent in agents.values():
        agent.process.communicate()


def test_a_token_is_collected_once_with_its_senders(agents: dict[str, Agent]) -> None:
    agents["a"].ask({"send": "x", "as": "a", "to": [ADDRESSES["b"]]})
    assert agents["b"].ask({"collect": "x"}) == ["a"]
    assert agents["b"].ask({"collect": "x"}) == []
    assert agents["a"].ask({"collect": "x"}) == []


def test_tokens_are_kept_apart(agents: dict[str, Agent]) -> None:
    agents["a"].ask({"send": "x", "as": "a", "to": [ADDRESSES["b"]]})
    agents["b"].ask({"send": "y", "as": "b", "to": [ADDRESSES["b"], ADDRESSES["a"]]})
    assert agents["b"].ask({"collect": "y"}) == ["b"]
    assert agents["b"].ask({"collect": "x"}) == ["a"]
    assert agents["a"].ask({"collect": "y"}) == ["b"]


def test_an_agent_ends_with_its_input(agents: dict[str, Agent]) -> None:
    agents["a"].process.communicate()
    assert agents["a"].process.returncode == 0


def test_what_has_arrived_of_a_flow_is_told_before_it_is_collected(agents: dict[str, Agent]) -> None:
    flow = {"flow": "f", "as": "a", "to": [ADDRESSES["b"]], "count": 20, "size": 200, "over_s": 0.02}
    assert agents["b"].ask({"heard": "f"}) == {}
    agents["a"].ask(flow)
    assert agents["b"].ask({"heard": "f"}) == {"a": 20}
    assert len(agents["b"].ask({"arrivals": "f"})["a"]) == 20
