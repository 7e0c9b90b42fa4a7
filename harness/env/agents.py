"""Agents: programs of ours that answer questions on machines, one on each, for as long as their environment lives."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

from harness.env.ssh import Conversation, SshFleet, SshHost
from harness.errors import HarnessError

ANSWER_TIMEOUT_S = 10.0


class Agents:
    """The agents of one kind on the machines of a fleet, spoken to over SSH.

    `start` starts one on a machine; where the one there has died it is called again by who asks.
    """

    def __init__(self, fleet: SshFleet, start: Callable[[SshHost], Conversation]) -> None:
        self.begun = 0
        """How many were started so far."""
        self._fleet = fleet
        self._begin = start
        self._conversations: dict[str, Conversation] = {}
        self._starting: dict[str, threading.Lock] = {}

    async def ask(self, node: str, line: bytes) -> bytes:
        """The line with which a node's agent answers this one; raises HarnessError."""
        return await self._fleet.on(node, partial(self._ask, line))

    def start(self, host: SshHost, line: bytes) -> None:
        """Start the one on this machine, and have it answer a line: it is at work then. Blocking."""
        self._ask(line, host)

    def _ask(self, line: bytes, host: SshHost) -> bytes:
        agent = self._conversations.get(host.name)
        try:
            if agent is not None:
                return agent.ask(line, ANSWER_TIMEOUT_S)
        except HarnessError:
            pass  # a new one may be able to
        return self._instead_of(agent, host).ask(line, ANSWER_TIMEOUT_S)

    def _instead_of(self, agent: Conversation | None, host: SshHost) -> Conversation:
        """A new one; of several that ask at once the first starts it."""
        with self._starting.setdefault(host.name, threading.Lock()):
            if self._conversations.get(host.name) is agent:
                self._conversations[host.name] = self._begin(host)
                self.begun += 1
            return self._conversations[host.name]

    def close(self) -> None:
        """End the conversations, and with them the agents; never raises."""
        for agent in self._conversations.values():
            agent.close()
