"""Nodes in containers: `harness.protocols.Environment` on the local Docker engine, and what faults they bear there."""

from __future__ import annotations

import asyncio
import atexit
import secrets
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from harness.env.abilities import PROBE_COMMAND, UNTRIED, NodeAbilities, capabilities_of, parse_abilities
from harness.env.docker.engine import connect_engine, memory_of
from harness.env.docker.images import ImageSpec, Report, image_spec
from harness.env.docker.layers import ensure_node_image
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
from harness.env.fleet_environment import FleetEnvironment
from harness.env.reachability import own_address
from harness.env.ssh import Gone, SshTarget, make_key
from harness.errors import HarnessError
from harness.ports.api import Clock
from harness.ports.machines import CLIENTS
from harness.protocols import Node

PROBE_NODE = Node("doctor", "probe")


async def probe_node(environment: DockerEnvironment) -> NodeAbilities:
    """Set one node up, try everything in it, and remove it; raises HarnessError when not even that can be done."""
    try:
        await environment.setup((PROBE_NODE,))
        return parse_abilities(await environment.fleet.check(PROBE_NODE.name, PROBE_COMMAND))
    finally:
        await environment.teardown()


T = TypeVar("T")

MANY_NODES = 16
"""Of more it is told that they take their time."""


class DockerEnvironment(FleetEnvironment):
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
        super().__init__(clock)
        self._logs = logs
        self._volume_mib = volume_mib
        self.run_id = secrets.token_hex(4)
        self._client = connect_engine()
        self._image = image or image_spec()
        self._report = report
        self._work: list[asyncio.Future[Any]] = []
        self._machines: dict[str, Machine] = {}

    @property
    def capabilities(self) -> frozenset[str]:
        """Partitions if nothing else is known; clocks and packets as far as they worked when tried (see `prepare`)."""
        return capabilities_of(self._abilities or UNTRIED, volumes=self._volume_mib is not None)

    async def prepare(self, try_out: bool = False) -> None:
        """Make the node image if the engine lacks it: about a minute, once per machine; `setup` does it otherwise.

        With `try_out`, and of an image of the user's own, a container is made to see what its network, clocks and
        packets can be subjected to: about a second.
        """
        image = await self._blocking(lambda: ensure_node_image(self._client, self._image, self._report))
        if try_out or self._image.own:
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
        image = await self._blocking(lambda: ensure_node_image(self._client, self._image, self._report))
        if len(names) > MANY_NODES:
            self._report(f"making {len(names)} containers, about one a second")
        networks = await self._blocking(lambda: make_networks(self._client, self.run_id))
        plan = MachinePlan(self.run_id, image, networks, keys, self._volume_mib, self._logs)
        containers = await self._blocking(lambda: make_machines(self._client, plan, names))
        fleet = self._ready_fleet(self._disturbance, with_clocks="clock" in self.capabilities)
        preparing: list[asyncio.Task[None]] = []
        try:
            for name, container in containers.items():
                start = partial(start_machine, self._client, container, name, networks)
                machine = self._machines[name] = await self._blocking(start)
                self._addresses[name] = machine.data
                target = SshTarget(machine.control, key=keys.user, host_key=keys.host.public)
                preparing.append(asyncio.create_task(fleet.add(name, target, self._prepare_host)))
            await asyncio.gather(*preparing)
            await self._tell_names()
        finally:
            for task in preparing:
                task.cancel()

    async def _tell_names(self) -> None:
        """Every node knows the others and the clients by name: reverse look-ups of servers took seconds otherwise."""
        addresses = {name: self.data_address(name) for name in self._machines}
        addresses[CLIENTS] = own_address(next(iter(addresses.values())))
        lines = "\\n".join(f"{address} {name}" for name, address in addresses.items())
        await self.fleet.check_each(dict.fromkeys(self._machines, f"printf '{lines}\\n' >> /etc/hosts"))

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
        self._close_fleet()
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
