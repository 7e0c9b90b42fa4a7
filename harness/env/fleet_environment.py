"""Machines reached over SSH, whoever made them: what `harness.protocols.Environment` does to them and asks of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from harness.env import clocks, firewall, shaping
from harness.env.abilities import NodeAbilities
from harness.env.marks import IN_CONTAINERS, Marks
from harness.env.reachability import ReachabilityProbe, own_address
from harness.env.ssh import Explain, SshFleet, SshHost
from harness.errors import HarnessError
from harness.ports.api import Clock
from harness.ports.machines import CLIENTS, Daemon, Impairment, ProbeFlow, ProcessState, Skew
from harness.run.allowances import overload_of_this_machine


class FleetEnvironment:
    """The part of an environment that is the same on containers and on hosts. Who derives from it makes the machines:
    `_ready_fleet` once, `_prepare_host` on each with its data address noted, `_close_fleet` in the end."""

    def __init__(self, clock: Clock, marks: Marks = IN_CONTAINERS) -> None:
        self.clock = clock
        self._marks = marks
        self._addresses: dict[str, str] = {}
        self._cut_at: set[str] = set()
        self._fleet: SshFleet | None = None
        self._probe: ReachabilityProbe | None = None
        self._abilities: NodeAbilities | None = None
        self._clocks: clocks.Clocks | None = None
        self._leaving: dict[str, Impairment | None] = {}
        self._losing: dict[str, dict[str, float] | None] = {}

    @property
    def program_environment(self) -> Mapping[str, str]:
        """The variables that a node's program has to be started with for its wall clock to be skewed."""
        return clocks.program_environment(self._marks)

    def overload(self) -> str | None:
        """`harness.run.allowances.Overloadable`: clients are on this machine, as containers are, and who asks for
        statuses."""
        return overload_of_this_machine()

    @property
    def fleet(self) -> SshFleet:
        """SSH to the nodes; raises HarnessError before setup."""
        if self._fleet is None:
            raise HarnessError("the machines are not set up")
        return self._fleet

    def data_address(self, node: str) -> str:
        """The node's IP address on the data network; the harness can reach it too."""
        return self._addresses[node]

    def marks_at(self, node: str) -> Marks:
        """By what the run is told from all else there."""
        return self._marks

    def _ready_fleet(self, explain: Explain, with_clocks: bool) -> SshFleet:
        """The fleet of the run, to which its machines are added."""
        self._fleet = SshFleet(explain)
        self._probe = ReachabilityProbe(self._fleet, self._marks)
        if with_clocks:
            self._ready_clocks()
        return self._fleet

    def _ready_clocks(self) -> None:
        self._clocks = clocks.Clocks(self.fleet, self.clock, self._marks)

    def _prepare_host(self, host: SshHost) -> None:
        """Log in, and make firewall and agents ready; blocking."""
        host.connect()
        address = self.data_address(host.name)
        if self._cuts:
            host.check(firewall.install_command(address, self.marks_at(host.name)))
        self._prober().start(host, address)
        if self._clocks is not None:
            self._clocks.start(host)

    @property
    def _cuts(self) -> bool:
        """Whether the machines have an iptables that works, as far as was tried."""
        return self._abilities is None or bool(self._abilities.iptables)

    def _close_fleet(self) -> None:
        """End the agents and the connections; never raises."""
        for part in (self._probe, self._clocks, self._fleet):
            if part is not None:
                part.close()

    async def cut(self, links: frozenset[tuple[str, str]]) -> None:
        """Drop, at each target, what comes from its sources; on all nodes in parallel, each in one transaction.

        Clients run on the harness's own machine, from where nodes are asked for their status too: that is cut as well.
        """
        addresses = dict(self._addresses)
        addresses[CLIENTS] = own_address(next(iter(addresses.values())))
        changed = {name: firewall.Dropped() for name in self._cut_at} | firewall.dropped_at(links, addresses)
        if self._probe is not None and any(CLIENTS in link for link in links):
            self._probe.include_clients(addresses[CLIENTS])
        self._cut_at |= changed.keys()
        await self.fleet.check_each(
            {name: firewall.cut_command(rules, self.marks_at(name)) for name, rules in changed.items()}
        )
        self._cut_at = {name for name, rules in changed.items() if rules != firewall.Dropped()}

    async def heal_network(self) -> None:
        """Flush our chains on every node; all are tried, whatever fails."""
        healed = self._addresses if self._cuts else ()
        await self.fleet.check_each({name: firewall.heal_command(self.marks_at(name)) for name in healed})
        self._cut_at = set()

    async def reachability(self) -> dict[tuple[str, str], bool]:
        """Probed now by datagrams between the nodes' data addresses."""
        return await self._prober().matrix()

    async def process_state(self, node: str, program: Daemon) -> ProcessState:
        """How a program is on a node, asked there."""
        return await self._prober().process_state(node, program)

    async def incarnation(self, node: str, program: Daemon) -> int | None:
        """When the program began on a node, in ticks since this machine's start."""
        return await self._prober().incarnation(node, program)

    def _prober(self) -> ReachabilityProbe:
        if self._probe is None:
            raise HarnessError("the machines are not set up")
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
        addresses = dict(self._addresses)
        leaving, losing = shaping.leaving(links, addresses), shaping.loss_at(links, addresses)
        commands: dict[str, str] = {}
        for name, address in addresses.items():
            steps = []
            if leaving[name] != self._leaving.get(name, shaping.NOTHING):
                neighbour = next((other for other in addresses.values() if other != address), address)
                steps.append(shaping.shape_command(leaving[name], address, neighbour))
            if losing[name] != self._losing.get(name, {}):
                steps.append(shaping.lose_command(losing[name], address, self.marks_at(name)))
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
