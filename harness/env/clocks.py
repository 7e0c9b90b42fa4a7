"""Wall clocks of programs on machines, made wrong by libfaketime: only for programs that were started with it."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

from harness.env.ssh import Conversation, SshFleet, SshHost, end_programs_command
from harness.errors import HarnessError
from harness.ports import Clock
from harness.protocols import Skew

AGENT_SOURCE = Path(__file__).parent / "clock_agent.py"
AGENT_PATH = "/tmp/assay-clock-agent.py"
CLOCK_FILE = "/dev/shm/assay-clock"
"""In memory: libfaketime reads it whenever the program looks at its wall clock."""

LIBRARY = "/usr/$LIB/faketime/libfaketime.so.1"
"""The dynamic linker puts the machine's library directory in for `$LIB`."""

ANSWER_TIMEOUT_S = 10.0

PROGRAM_ENVIRONMENT = {
    "LD_PRELOAD": LIBRARY,
    "FAKETIME_TIMESTAMP_FILE": CLOCK_FILE,
    "FAKETIME_NO_CACHE": "1",
    "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    "DONT_FAKE_MONOTONIC": "1",
    "FAKETIME_DISABLE_SHM": "1",
    "NO_FAKE_STAT": "1",
}
"""What a program must be started with. Its monotonic clock stays true, and with it all that it times."""


class Clocks:
    """One clock agent per node, spoken to over SSH, and what was asked of each."""

    def __init__(self, fleet: SshFleet, clock: Clock) -> None:
        self._fleet = fleet
        self._clock = clock
        self._agents: dict[str, Conversation] = {}
        self._skews: dict[str, tuple[Skew, int]] = {}

    async def start(self) -> None:
        """Upload and start the agents; all clocks are right then."""
        self._agents.update(await self._fleet.on_each(self._start_agent))

    def _start_agent(self, host: SshHost) -> Conversation:
        """An agent that has answered once, so that its file is there."""
        host.check(end_programs_command(AGENT_PATH))
        host.check(f"cat > {AGENT_PATH}", AGENT_SOURCE.read_bytes())
        agent = host.open_conversation(f"exec python3 -S -E {AGENT_PATH} {CLOCK_FILE}")
        agent.ask(b"null", ANSWER_TIMEOUT_S)
        return agent

    async def skew(self, node: str, skew: Skew | None) -> None:
        """Have the node's programs see such a wall clock; None: the machine's own. Raises HarnessError."""
        told = None if skew is None else {"offset_ns": skew.offset_ns, "rate": skew.rate}
        self._skews.pop(node, None)
        await self._fleet.on(node, partial(self._ask, json.dumps(told).encode()))
        if skew is not None:
            self._skews[node] = (skew, self._clock.monotonic_ns())

    def _ask(self, line: bytes, host: SshHost) -> None:
        """Ask a node's agent, starting a new one once if the old one has died."""
        try:
            self._agents[host.name].ask(line, ANSWER_TIMEOUT_S)
        except HarnessError:
            self._agents[host.name] = self._start_agent(host)
            self._agents[host.name].ask(line, ANSWER_TIMEOUT_S)

    def due_offset_ns(self, node: str) -> int:
        """How far ahead of this machine's the node's wall clock should be now: they share it when nothing was asked."""
        if node not in self._skews:
            return 0
        skew, since_ns = self._skews[node]
        return skew.after(self._clock.monotonic_ns() - since_ns)

    def close(self) -> None:
        """End the agents, which sets the clocks right; never raises."""
        for agent in self._agents.values():
            agent.close()
