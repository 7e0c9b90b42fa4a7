"""Wall clocks of programs on machines, made wrong by libfaketime: only for programs that were started with it."""

from __future__ import annotations

import json
from pathlib import Path

from harness.env.marks import IN_CONTAINERS, Marks
from harness.env.ssh import Agents, Conversation, SshFleet, SshHost
from harness.ports.api import Clock
from harness.ports.machines import Skew

AGENT_SOURCE = Path(__file__).parent / "clock_agent.py"
LIBRARY = "/usr/$LIB/faketime/libfaketime.so.1"
"""The dynamic linker puts the machine's library directory in for `$LIB`."""

RIGHT = b"null"
"""Tells an agent that its clock is right."""


def program_environment(marks: Marks = IN_CONTAINERS) -> dict[str, str]:
    """What a program must be started with. Its monotonic clock stays true, and with it all that it times.

    Waits by that clock are then right as they are. The library's correction of them (its MONOTONIC_FIX) ends each at
    once: threads of a Python program that wait for its interpreter would take it from each other all the time.
    """
    return {
        "LD_PRELOAD": LIBRARY,
        "FAKETIME_TIMESTAMP_FILE": marks.clock_file,
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "DONT_FAKE_MONOTONIC": "1",
        "FAKETIME_FORCE_MONOTONIC_FIX": "0",
        "FAKETIME_DISABLE_SHM": "1",
        "NO_FAKE_STAT": "1",
    }


class Clocks:
    """One clock agent per node, spoken to over SSH, and what was asked of each.

    `ahead_ns` is how far the machine's own clock is ahead of the harness's, where they don't share one.
    """

    def __init__(self, fleet: SshFleet, clock: Clock, marks: Marks = IN_CONTAINERS) -> None:
        self.ahead_ns: dict[str, int] = {}
        self._agents = Agents(fleet, self._start_agent)
        self._clock = clock
        self._marks = marks
        self._skews: dict[str, tuple[Skew, int]] = {}

    def start(self, host: SshHost) -> None:
        """Start the agent of a machine, whose clock is right then; blocking."""
        self._agents.start(host, RIGHT)

    def _start_agent(self, host: SshHost) -> Conversation:
        return host.open_agent(self._marks.clock_agent, AGENT_SOURCE.read_bytes(), self._marks.clock_file)

    async def skew(self, node: str, skew: Skew | None) -> None:
        """Have the node's programs see such a wall clock; None: the machine's own. Raises HarnessError."""
        self._skews.pop(node, None)
        if skew is None:
            await self._agents.ask(node, RIGHT)
        else:
            await self._agents.ask(node, json.dumps({"offset_ns": skew.offset_ns, "rate": skew.rate}).encode())
            self._skews[node] = (skew, self._clock.monotonic_ns())

    def due_offset_ns(self, node: str) -> int:
        """How far ahead of this machine's the node's wall clock should be now."""
        ahead_ns = self.ahead_ns.get(node, 0)
        if node not in self._skews:
            return ahead_ns
        skew, since_ns = self._skews[node]
        return ahead_ns + skew.after(self._clock.monotonic_ns() - since_ns)

    def close(self) -> None:
        """End the agents, which sets the clocks right; never raises."""
        self._agents.close()
