"""The reachability matrix, probed from inside the nodes: who hears whom over the data network, one way at a time."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from harness.env.daemon import parse_incarnation, parse_state, question_about
from harness.env.marks import IN_CONTAINERS, Marks
from harness.env.ssh import Agents, Conversation, SshFleet, SshHost
from harness.errors import HarnessError
from harness.ports.machines import CLIENTS, LOOK_S, WAIT_S, Daemon, FlowWait, ProbeFlow, ProcessState

AGENT_SOURCE = Path(__file__).parent / "probe_agent.py"
ANY_PORT = 9
ARE_YOU_THERE = b'{"collect": ""}'
"""A question whose answer means that the agent listens."""

ROUNDS = 3
"""So often a round of probes is made in which an agent had to be started: it may have missed the first of them."""

CLIENTS_ROUNDS = 4
"""How often the clients' datagram is sent."""

FLOW_WAIT_S = WAIT_S
"""How long a flow's datagrams are waited for at most after the last one was sent."""

SETTLE_S = 0.03
"""What the last datagram is given to arrive; on a bridge it takes well under a millisecond."""


def own_address(towards: str) -> str:
    """The address that this machine has on the network of another one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        asking.connect((towards, ANY_PORT))
        return str(asking.getsockname()[0])


class ClientsProbe:
    """The probe's end on this machine, where the clients are: datagrams as the agents send them."""

    def __init__(self, address: str, port: int) -> None:
        self.address, self._port = address, port
        self._datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._datagrams.bind((address, port))
        self._datagrams.setblocking(False)

    def send(self, token: str, addresses: Iterable[str]) -> None:
        for address in list(addresses) * CLIENTS_ROUNDS:
            with suppress(OSError):
                self._datagrams.sendto(f"{token} {CLIENTS}".encode(), (address, self._port))

    def collect(self, token: str) -> set[str]:
        """Whose datagrams of this token have arrived."""
        heard = set()
        with suppress(BlockingIOError):
            while True:
                told, _, name = self._datagrams.recv(256).decode().partition(" ")
                if told == token:
                    heard.add(name)
        return heard

    def close(self) -> None:
        self._datagrams.close()


class ReachabilityProbe:
    """One probe agent per node, spoken to over SSH, for as long as the environment lives.

    An agent is a program of its own beside the node program, so no kill or pause of that one touches it.
    """

    def __init__(self, fleet: SshFleet, marks: Marks = IN_CONTAINERS) -> None:
        self._marks = marks
        self._addresses: dict[str, str] = {}
        self._agents = Agents(fleet, self._start_agent)
        self._clients: ClientsProbe | None = None
        self._probes = 0
        self._one_at_a_time = asyncio.Lock()

    def start(self, host: SshHost, data_address: str) -> None:
        """Start the agent of a machine that has this address, where it listens then; blocking."""
        self._addresses[host.name] = data_address
        self._agents.start(host, ARE_YOU_THERE)

    def _start_agent(self, host: SshHost) -> Conversation:
        arguments = f"{self._addresses[host.name]} {self._marks.probe_port}"
        return host.open_agent(self._marks.probe_agent, AGENT_SOURCE.read_bytes(), arguments)

    def include_clients(self, address: str) -> None:
        """From now on the matrix says who hears the clients, which are on this machine and have this address."""
        if self._clients is None:
            self._clients = ClientsProbe(address, self._marks.probe_port)

    async def process_state(self, node: str, program: Daemon) -> ProcessState:
        """How a program is on a node, with its children, as its kernel says now."""
        return parse_state((await self._ask_each({node: question_about(program)}))[node])

    async def incarnation(self, node: str, program: Daemon) -> int | None:
        """When the program began there, in ticks of its kernel; None while it does not run."""
        return parse_incarnation((await self._ask_each({node: question_about(program)}))[node])

    async def matrix(self) -> dict[tuple[str, str], bool]:
        """For every ordered pair of nodes whether a datagram sent now from the one arrives at the other."""
        async with self._one_at_a_time:
            for _ in range(ROUNDS):
                begun = self._agents.begun
                heard = await self._heard()
                if self._agents.begun == begun:
                    break
            else:
                raise HarnessError("probes end as soon as they are started")
        names = list(heard)
        return {(source, target): source in heard[target] for source in names for target in names if source != target}

    async def _heard(self) -> dict[str, Collection[str]]:
        """Who hears whom, if all listen."""
        self._probes += 1
        token = f"probe-{self._probes}"
        if self._clients is not None:
            self._clients.send(token, self._addresses.values())
        await self._ask_each({name: self._send_question(name, token) for name in self._addresses})
        await asyncio.sleep(SETTLE_S)
        heard: dict[str, Collection[str]] = await self._ask_each({name: {"collect": token} for name in self._addresses})
        return heard if self._clients is None else heard | {CLIENTS: self._clients.collect(token)}

    async def flows(
        self, links: Iterable[tuple[str, str]], count: int, size: int, over_s: float
    ) -> dict[tuple[str, str], ProbeFlow]:
        """What becomes of `count` datagrams of this size, sent over each link in this time."""
        targets: dict[str, list[str]] = {}
        for source, target in links:
            targets.setdefault(source, []).append(target)
        async with self._one_at_a_time:
            self._probes += 1
            token = f"flow-{self._probes}"
            flow = {"flow": token, "count": count, "size": size, "over_s": over_s}
            questions = {
                source: flow | {"as": source, "to": [self._addresses[name] for name in names]}
                for source, names in targets.items()
            }
            sent = await self._ask_each(questions)
        await self._until_arrived(token, targets, count)
        async with self._one_at_a_time:
            heard = await self._ask_each({name: {"arrivals": token} for names in targets.values() for name in names})
        return {
            (source, target): _flow(sent[source], heard[target].get(source, []), size)
            for source, names in targets.items()
            for target in names
        }

    async def _until_arrived(self, token: str, targets: Mapping[str, list[str]], count: int) -> None:
        """Wait for the datagrams that were sent to these targets by each source."""
        wait, began_s = FlowWait(count, FLOW_WAIT_S), time.monotonic()
        heard_at = sorted({name for names in targets.values() for name in names})
        over = False
        while not over:
            await asyncio.sleep(LOOK_S)
            async with self._one_at_a_time:
                heard = await self._ask_each({name: {"heard": token} for name in heard_at})
            arrived = [heard[target].get(source, 0) for source, names in targets.items() for target in names]
            over = wait.over(arrived, time.monotonic() - began_s)

    def _send_question(self, name: str, token: str) -> dict[str, Any]:
        others = [address for other, address in self._addresses.items() if other != name]
        others += [self._clients.address] if self._clients is not None else []
        return {"send": token, "as": name, "to": others}

    async def _ask_each(self, questions: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        lines = {name: json.dumps(question).encode() for name, question in questions.items()}
        answers = await asyncio.gather(*(self._agents.ask(name, line) for name, line in lines.items()))
        return dict(zip(questions, map(json.loads, answers), strict=True))

    def close(self) -> None:
        """End the agents; never raises."""
        if self._clients is not None:
            self._clients.close()
        self._agents.close()


def _flow(sent_s: list[float], arrivals: list[tuple[int, float]], size: int) -> ProbeFlow:
    first_s: dict[int, float] = {}
    for number, at_s in arrivals:
        first_s.setdefault(number, at_s - sent_s[0])
    arrived = tuple(first_s.get(number) for number in range(len(sent_s)))
    return ProbeFlow(tuple(at_s - sent_s[0] for at_s in sent_s), arrived, len(arrivals), size)
