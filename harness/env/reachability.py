"""The reachability matrix, probed from inside the nodes: who hears whom over the data network, one way at a time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from harness.env.ssh import Conversation, SshFleet, SshHost
from harness.errors import HarnessError

AGENT_SOURCE = Path(__file__).parent / "probe_agent.py"
AGENT_PATH = "/tmp/assay-probe-agent.py"
PROBE_PORT = 7999
ANSWER_TIMEOUT_S = 10.0
ARE_YOU_THERE = {"collect": ""}
"""A question whose answer means that the agent listens: asked of all before anyone sends."""

SETTLE_S = 0.03
"""What the last datagram is given to arrive; on a bridge it takes well under a millisecond."""


class ReachabilityProbe:
    """One probe agent per node, spoken to over SSH, for as long as the environment lives.

    An agent is a program of its own beside the node program, so no kill or pause of that one touches it.
    """

    def __init__(self, fleet: SshFleet, data_addresses: Mapping[str, str]) -> None:
        self._fleet = fleet
        self._addresses = dict(data_addresses)
        self._agents: dict[str, Conversation] = {}
        self._probes = 0
        self._one_at_a_time = asyncio.Lock()

    async def start(self) -> None:
        """Upload and start the agents."""
        self._agents.update(await self._fleet.on_each(self._start_agent))

    def _start_agent(self, host: SshHost) -> Conversation:
        """An agent that has answered once, so that it listens."""
        address = self._addresses[host.name]
        host.check(f"cat > {AGENT_PATH}", AGENT_SOURCE.read_bytes())
        agent = host.open_conversation(f"exec python3 -S -E {AGENT_PATH} {address} {PROBE_PORT}")
        agent.ask(json.dumps(ARE_YOU_THERE).encode(), ANSWER_TIMEOUT_S)
        return agent

    async def matrix(self) -> dict[tuple[str, str], bool]:
        """For every ordered pair of nodes whether a datagram sent now from the one arrives at the other."""
        async with self._one_at_a_time:
            self._probes += 1
            token = f"probe-{self._probes}"
            await self._ask_each(dict.fromkeys(self._addresses, ARE_YOU_THERE))
            await self._ask_each({name: self._send_question(name, token) for name in self._addresses})
            await asyncio.sleep(SETTLE_S)
            heard = await self._ask_each({name: {"collect": token} for name in self._addresses})
        names = list(self._addresses)
        return {(source, target): source in heard[target] for source in names for target in names if source != target}

    def _send_question(self, name: str, token: str) -> dict[str, Any]:
        others = [address for other, address in self._addresses.items() if other != name]
        return {"send": token, "as": name, "to": others}

    async def _ask_each(self, questions: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
        answers = await asyncio.gather(
            *(self._fleet.on(name, partial(self._ask, question)) for name, question in questions.items())
        )
        return dict(zip(questions, answers, strict=True))

    def _ask(self, question: dict[str, Any], host: SshHost) -> Any:
        """Ask a node's agent, starting a new one once if the old one has died."""
        line = json.dumps(question).encode()
        try:
            return json.loads(self._agents[host.name].ask(line, ANSWER_TIMEOUT_S))
        except HarnessError:
            self._agents[host.name] = self._start_agent(host)
            return json.loads(self._agents[host.name].ask(line, ANSWER_TIMEOUT_S))

    def close(self) -> None:
        """End the agents; never raises."""
        for agent in self._agents.values():
            agent.close()
