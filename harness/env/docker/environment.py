"""Nodes in containers: `harness.protocols.Environment` on the local Docker engine, and what faults they bear there."""

from __future__ import annotations

import asyncio
import atexit
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from harness.env import clocks, firewall, shaping
from harness.env.clocks import LIBRARY
from harness.env.daemon import Daemon
from harness.env.docker.engine import connect_engine, memory_of
from harness.env.docker.images import ImageSpec, Report, ensure_image, image_spec
from harness.env.docker.leftovers import remove_run
from harness.env.docker.machines import (
    KeptLogs,
    Keys,
    Machine,
    MachinePlan,
    begun_at,
    make_machines,
    make_networks,
    require_memory,
    run_once,
    start_machine,
)
from harness.env.firewall import CHOOSE_IPTABLES
from harness.env.reachability import ReachabilityProbe, own_address
from harness.env.ssh import Gone, SshFleet, SshHost, SshTarget, make_key
from harness.errors import HarnessError
from harness.ports.api import Clock
from harness.ports.machines import CLIENTS, Impairment, ProbeFlow, ProcessState, Skew
from harness.protocols import Node
from harness.run.allowances import overload_of_this_machine

TRIAL_CHAIN = "ASSAY-TRIAL"
PROBE_NODE = Node("doctor", "probe")
FAKED_OFFSET_S = 120

CLOCK_PROGRAM = "import time; print(int(time.time()))"

PROBE_COMMAND = f"""
{CHOOSE_IPTABLES}
try() {{ name=$1; shift; if "$@" >/tmp/probe 2>&1; then echo "$name"; else echo "$name: $(head -n 1 /tmp/probe)"; fi; }}
echo "iptables $tool"
"$tool" -N {TRIAL_CHAIN}
try statistic "$tool" -A {TRIAL_CHAIN} -m statistic --mode random --probability 0.5 -j DROP
"$tool" -F {TRIAL_CHAIN}
"$tool" -X {TRIAL_CHAIN}
try netem tc qdisc add dev lo root netem delay 1ms
tc qdisc del dev lo root 2>/dev/null
try tbf tc qdisc add dev lo root tbf rate 1mbit burst 32kbit latency 400ms
tc qdisc del dev lo root 2>/dev/null
true_time=$(python3 -c '{CLOCK_PROGRAM}')
export FAKETIME=+{FAKED_OFFSET_S}s FAKETIME_DONT_FAKE_MONOTONIC=1
faked_time=$(LD_PRELOAD='{LIBRARY}' python3 -c '{CLOCK_PROGRAM}' 2>/tmp/preload)
offset=$((faked_time - true_time))
moved() {{ test "$offset" -ge {FAKED_OFFSET_S} -a "$offset" -le {FAKED_OFFSET_S + 20} ||
  {{ test -s /tmp/preload && head -n 1 /tmp/preload || echo "the clock moved by $offset s"; return 1; }}; }}
try faketime moved
true
"""


@dataclass(frozen=True, slots=True)
class NodeAbilities:
    """Which `iptables` works in a node (SSH and NET_ADMIN do, or there would be no answer), and what else does.

    `lacks` maps each of `statistic`, `netem`, `tbf`, `faketime` that does not work to what was said about it.
    """

    iptables: str
    works: frozenset[str]
    lacks: dict[str, str]


async def probe_node(environment: DockerEnvironment) -> NodeAbilities:
    """Set one node up, try everything in it, and remove it; raises HarnessError when not even that can be done."""
    try:
        await environment.setup((PROBE_NODE,))
        return parse_abilities(await environment.fleet.check(PROBE_NODE.name, PROBE_COMMAND))
    finally:
        await environment.teardown()


def parse_abilities(output: str) -> NodeAbilities:
    """What the probe printed: `iptables TOOL`, then `NAME` or `NAME: reason` for each ability."""
    first, *rest = output.strip().splitlines()
    works = frozenset(line for line in rest if ":" not in line)
    lacks = {name: reason.strip() for name, colon, reason in (line.partition(":") for line in rest) if colon}
    return NodeAbilities(first.removeprefix("iptables "), works, lacks)


T = TypeVar("T")

MANY_NODES = 16
"""Of more it is told that they take their time."""


def capabilities(works: frozenset[str], volumes: bool) -> frozenset[str]:
    """What can be done to nodes in containers where these abilities work, and with volumes of a limited size."""
    clock = {"clock"} if "faketime" in works else frozenset[str]()
    full = {"full-disk"} if volumes else frozenset[str]()
    return frozenset({"partition", "client-cut"}) | full | clock | shaping.capabilities(works)


class DockerEnvironment:
    """One container per node, a control network for SSH and a data network that faults act on.

    Names carry the run's id, so two runs at once don't collide; everything is labelled, and removed by label. What else
    the kernel and the node image can do is known once it was tried: `ClockControl`, `PacketShaping`.
    """

    name = "docker"

    def __init__(
        self,
        clock: Clock,
        image: ImageSpec | None = None,
        report: Report = lambda _: None,
        volume_mib: int | None = None,
        logs: KeptLogs | None = None,
    ) -> None:
        """`report` is told of steps that take long (making the image). Raises UserError if no engine answers.

        With `volume_mib` the nodes' data lies on a volume of that size, in memory: it can be filled (`full-disk`).
        `logs` says where nodes' logs are to be saved by who removes what a killed harness left.
        """
        self._logs = logs
        self._volume_mib = volume_mib
        self.clock = clock
        self.run_id = secrets.token_hex(4)
        self._client = connect_engine()
        self._image = image or image_spec()
        self._report = report
        self._work: list[asyncio.Future[Any]] = []
        self._machines: dict[str, Machine] = {}
        self._cut_at: set[str] = set()
        self._fleet: SshFleet | None = None
        self._probe: ReachabilityProbe | None = None
        self._abilities: NodeAbilities | None = None
        self._clocks: clocks.Clocks | None = None
        self._leaving: dict[str, Impairment | None] = {}
        self._losing: dict[str, dict[str, float] | None] = {}

    def overload(self) -> str | None:
        """`harness.run.allowances.Overloadable`: containers share this machine."""
        return overload_of_this_machine()

    @property
    def capabilities(self) -> frozenset[str]:
        """Partitions always; clocks and packets as far as they worked when they were tried (see `prepare`)."""
        works = self._abilities.works if self._abilities is not None else frozenset[str]()
        return capabilities(works, volumes=self._volume_mib is not None)

    @property
    def program_environment(self) -> Mapping[str, str]:
        """The variables that a node's program has to be started with for its wall clock to be skewed."""
        return clocks.PROGRAM_ENVIRONMENT

    @property
    def fleet(self) -> SshFleet:
        """SSH to the nodes; raises HarnessError before setup."""
        if self._fleet is None:
            raise HarnessError("the Docker environment is not set up")
        return self._fleet

    def data_address(self, node: str) -> str:
        """The node's IP address on the data network; the harness can reach it too."""
        return self._machines[node].data

    async def prepare(self, try_out: bool = False) -> None:
        """Make the node image if the engine lacks it: about a minute, once per machine; `setup` does it otherwise.

        With `try_out` a container is made to see what clocks and packets can be subjected to here: about a second.
        """
        image = await self._blocking(lambda: ensure_image(self._client, self._image, self._report))
        if try_out:
            output = await self._blocking(lambda: run_once(self._client, image, self.run_id, PROBE_COMMAND))
            self._abilities = parse_abilities(output)

    async def setup(self, nodes: tuple[Node, ...]) -> None:
        """Make image (if need be), networks and containers, log in, prepare firewall and probes.

        Raises UserError, before anything is made, for more nodes than the engine's machine can hold.
        """
        memory_mib = await self._blocking(lambda: memory_of(self._client))
        require_memory(len(nodes), memory_mib)
        atexit.register(self._remove_at_exit)
        names = [node.name for node in nodes]
        keys = Keys(user=make_key(), host=make_key())
        image = await self._blocking(lambda: ensure_image(self._client, self._image, self._report))
        if len(names) > MANY_NODES:
            self._report(f"making {len(names)} containers, about one a second")
        networks = await self._blocking(lambda: make_networks(self._client, self.run_id))
        plan = MachinePlan(self.run_id, image, networks, keys, self._volume_mib, self._logs)
        containers = await self._blocking(lambda: make_machines(self._client, plan, names))
        self._fleet = SshFleet(self._disturbance)
        self._probe = ReachabilityProbe(self._fleet)
        if "clock" in self.capabilities:
            self._clocks = clocks.Clocks(self._fleet, self.clock)
        preparing: list[asyncio.Task[None]] = []
        try:
            for name, container in containers.items():
                start = partial(start_machine, self._client, container, name, networks)
                machine = self._machines[name] = await self._blocking(start)
                target = SshTarget(machine.control, key=keys.user, host_key=keys.host.public)
                preparing.append(asyncio.create_task(self._fleet.add(name, target, self._prepare_host)))
            await asyncio.gather(*preparing)
        finally:
            for task in preparing:
                task.cancel()

    def _prepare_host(self, host: SshHost) -> None:
        """Log in, and make firewall and agents ready, while the next container is started."""
        host.connect()
        host.check(firewall.install_command(self.data_address(host.name)))
        self._prober().start(host, self.data_address(host.name))
        if self._clocks is not None:
            self._clocks.start(host)

    async def cut(self, links: frozenset[tuple[str, str]]) -> None:
        """Drop, at each target, what comes from its sources; on all nodes in parallel, each in one transaction.

        Clients run on the harness's own machine, from where nodes are asked for their status too: that is cut as well.
        """
        addresses = {name: self.data_address(name) for name in self._machines}
        addresses[CLIENTS] = own_address(next(iter(addresses.values())))
        changed = {name: firewall.Dropped() for name in self._cut_at} | firewall.dropped_at(links, addresses)
        if self._probe is not None and any(CLIENTS in link for link in links):
            self._probe.include_clients(addresses[CLIENTS])
        self._cut_at |= changed.keys()
        await self.fleet.check_each({name: firewall.cut_command(rules) for name, rules in changed.items()})
        self._cut_at = {name for name, rules in changed.items() if rules != firewall.Dropped()}

    async def heal_network(self) -> None:
        """Flush our chains on every node; all are tried, whatever fails."""
        await self.fleet.check_each(dict.fromkeys(self._machines, firewall.heal_command()))
        self._cut_at = set()

    async def reachability(self) -> dict[tuple[str, str], bool]:
        """Probed now by datagrams between the nodes' data addresses."""
        return await self._prober().matrix()

    async def process_state(self, node: str, program: Daemon) -> ProcessState:
        """How a program is on a node, asked there."""
        return await self._prober().process_state(node, program)

    def _prober(self) -> ReachabilityProbe:
        if self._probe is None:
            raise HarnessError("the Docker environment is not set up")
        return self._probe

    async def skew_clock(self, node: str, skew: Skew | None) -> None:
        """By libfaketime, in programs that were started with `program_environment`."""
        await self._all_clocks().skew(node, skew)

    def due_offset_ns(self, node: str) -> int:
        return self._all_clocks().due_offset_ns(node)

    def _all_clocks(self) -> clocks.Clocks:
        if self._clocks is None:
            raise HarnessError("clocks can't be skewed here: libfaketime was not tried, or does not work")
        return self._clocks

    async def impair(self, links: Mapping[tuple[str, str], Impairment]) -> None:
        """By `tc` where packets leave, and by the firewall, for loss, where they arrive; on all nodes in parallel."""
        addresses = {name: self.data_address(name) for name in self._machines}
        leaving, losing = shaping.leaving(links, addresses), shaping.loss_at(links, addresses)
        commands: dict[str, str] = {}
        for name, address in addresses.items():
            steps = []
            if leaving[name] != self._leaving.get(name, shaping.NOTHING):
                neighbour = next((other for other in addresses.values() if other != address), address)
                steps.append(shaping.shape_command(leaving[name], address, neighbour))
            if losing[name] != self._losing.get(name, {}):
                steps.append(shaping.lose_command(losing[name], address))
            if steps:
                commands[name] = "set -e\n" + "\n".join(steps)
        self._leaving |= dict.fromkeys(commands)  # None, which is like nothing: what fails is tried again
        self._losing |= dict.fromkeys(commands)
        await self.fleet.check_each(commands)
        self._leaving |= {name: leaving[name] for name in commands}
        self._losing |= {name: losing[name] for name in commands}

    async def flows(
        self, links: Iterable[tuple[str, str]], count: int, size: int, over_s: float
    ) -> Mapping[tuple[str, str], ProbeFlow]:
        """What datagrams meet that are sent over these links now."""
        return await self._prober().flows(links, count, size, over_s)

    async def disturbed(self) -> tuple[str, ...]:
        """`harness.protocols.Inspected`: containers that were removed, stopped or started by somebody else."""
        found = await asyncio.gather(*(asyncio.to_thread(self._disturbance, name) for name in self._machines))
        return tuple(
            f"{name} is gone: {gone.why}" for name, gone in zip(self._machines, found, strict=True) if gone is not None
        )

    def _disturbance(self, name: str) -> Gone | None:
        """What happened to a node's container since setup; None where nothing did, or the engine does not say."""
        try:
            begun = begun_at(self._client, self.run_id, name)
        except HarnessError as error:
            return Gone(str(error))
        known = self._machines.get(name)
        started_anew = begun and known is not None and begun != known.begun
        return Gone("its container was started anew", answers=True) if started_anew else None

    async def teardown(self) -> None:
        """Remove containers, their volumes and the networks; waits for what setup is still making."""
        await asyncio.gather(*self._work, return_exceptions=True)
        if self._probe is not None:
            self._probe.close()
        if self._clocks is not None:
            self._clocks.close()
        if self._fleet is not None:
            self._fleet.close()
        await self._blocking(lambda: remove_run(self._client, self.run_id))
        self._client.close()
        atexit.unregister(self._remove_at_exit)

    def _remove_at_exit(self) -> None:
        """The last resort of a process that ends without teardown."""
        remove_run(self._client, self.run_id, at_once=1)

    async def _blocking(self, call: Callable[[], T]) -> T:
        """Runs on a thread that goes on if the caller is cancelled; teardown waits for it."""
        work = asyncio.ensure_future(asyncio.to_thread(call))
        self._work.append(work)
        return await asyncio.shield(work)
