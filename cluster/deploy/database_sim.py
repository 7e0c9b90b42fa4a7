"""The reference cluster in the simulator: `harness.protocols.Database` on a `harness.ports.sim` world."""

from __future__ import annotations

import io
import logging
import traceback
from collections.abc import Callable, Mapping, Sequence

from cluster.client.client import ClusterClient
from cluster.config import NodeConfig
from cluster.deploy.database import ADMIN, ReferenceDatabase
from cluster.deploy.layout import (
    MASTER_ROLE,
    USUAL,
    Layout,
    foreign_cluster,
    foreign_configs,
    foreign_server,
    port_of,
)
from cluster.deploy.message_kinds import MESSAGE_KINDS, kinds_in
from cluster.invariants.watch import Watch
from cluster.knobs import Knobs
from cluster.node import run_node
from cluster.nodelog import ClockFormatter, node_logger
from cluster.wire.identity import IDENTITY_FILE, identity_file, named_cluster
from cluster.wire.messages import ChangeReplicas, Replica
from harness.capabilities import Capability
from harness.errors import HarnessError
from harness.levels import data_centre_of
from harness.ports.api import Clock, Ports
from harness.ports.machines import ProcessState
from harness.ports.sim.disk import SimDisk
from harness.ports.sim.network import MessageHold
from harness.ports.sim.node import SimNode
from harness.ports.sim.world import World
from harness.ports.sim.worlds import CLIENT_MACHINES
from harness.protocols import Client, Damage, InvariantsRecord, Node, NodeStatus
from harness.verdict.leaderships import Leaderships

STATUS_TIMEOUT_S = 0.5

STRANGER = "stranger"
"""The machine from which strangers in our nodes' places are asked."""


class SimDatabase(ReferenceDatabase):
    """Masters and tablet servers, one process each, with logs kept in memory.

    `flaws` are names of `cluster.flaws`. Clients run on `CLIENT_MACHINES` in turn. `through` gives what programs are
    handed in place of their ports, as where a benchmark counts what crosses them.
    """

    setup_timeout_s = 30.0

    def __init__(
        self,
        world: World,
        layout: Layout = USUAL,
        flaws: Sequence[str] = (),
        knobs: Knobs | None = None,
        through: Callable[[Ports], Ports] = lambda ports: ports,
    ) -> None:
        super().__init__(layout.nodes(), knobs)
        self._world, self._through = world, through
        self._watch = Watch(
            lambda: (world.loop.now_ns, world.loop.steps),
            damaged=lambda node: world.node(node).disk.damaged,
            data_centres={node.name: data_centre_of(node.zone) for node in self._nodes},
            down=self._down_alone,
            knobs=self._knobs,
        )
        self._masters = tuple(Replica(node.name, _address(node)) for node in self._nodes if node.role == MASTER_ROLE)
        self._configs = {node.name: self._config(node, tuple(flaws), self._knobs) for node in self._nodes}
        self._logs = {node.name: _NodeLog(world, node.name) for node in self._nodes}
        self._reported: list[BaseException] = []
        self._set_aside: dict[str, SimDisk] = {}
        self._holds: list[MessageHold] = []
        self._admin = world.harness_ports(ADMIN)
        self._asker = ClusterClient(self._admin, self._addresses(), STATUS_TIMEOUT_S)

    # ---- processes ----

    async def install(self) -> None:
        """Format the nodes' disks and begin to keep their logs; programs need no installing here."""
        for node in self._nodes:
            format_machine(self._world.node(node.name), self._world.cluster_id)
        for log in self._logs.values():
            log.attach()

    async def start(self, node: str) -> None:
        machine = self._world.node(node)
        if machine.state == ProcessState.DEAD and node not in self._set_aside:
            config = self._configs[node]
            machine.cluster_id = named_cluster(config.cluster_id, config.flaws)
            machine.start(self._run)

    async def stop(self, node: str) -> None:
        self._world.node(node).stop()
        await self._world.node(node).wait_dead()

    async def kill(self, node: str) -> None:
        self._world.node(node).kill()

    async def pause(self, node: str) -> None:
        self._world.node(node).pause()

    async def resume(self, node: str) -> None:
        self._world.node(node).resume()

    async def process_state(self, node: str) -> ProcessState:
        return ProcessState.DEAD if node in self._set_aside else self._world.node(node).state

    def _operates(self, request: ChangeReplicas) -> None:
        self._watch.catalog.operated(request.group, request.change, request.config_index)

    # ---- strangers in their places ----

    async def supplant(self, nodes: Sequence[str]) -> None:
        for node, config in foreign_configs(self._configs, nodes).items():
            machine = self._dead(node)
            self._set_aside[node] = machine.exchange_disk()
            machine.disk.put(IDENTITY_FILE, identity_file(config.cluster_id, foreign_server(node)))
            machine.cluster_id = named_cluster(config.cluster_id, config.flaws)
            machine.start(lambda ports, config=config: run_node(ports, config))  # type: ignore[misc]

    async def restore_place(self, node: str) -> None:
        disk = self._set_aside.pop(node, None)
        if disk is not None:
            self._world.node(node).kill()
            self._world.node(node).exchange_disk(disk)

    async def stranger_status(self, node: str) -> NodeStatus | None:
        if node not in self._set_aside:
            return None
        ports = self._world.harness_ports(STRANGER, foreign_cluster(self._world.cluster_id))
        return await self._stranger_at(node, ClusterClient(ports, self._addresses(), STATUS_TIMEOUT_S))

    async def acted(self, node: str) -> Mapping[str, int]:
        return dict(self._world.node(node).body.acted)

    # ---- messages held back ----

    @property
    def capabilities(self) -> frozenset[str]:
        return super().capabilities | {Capability.HELD_MESSAGE}

    async def hold_message(self, source: str, target: str, kind: str) -> int:
        if kind not in MESSAGE_KINDS:
            raise ValueError(f"there are no messages of the kind {kind!r}")
        self._holds.append(self._world.network.hold(source, target, lambda message: kind in kinds_in(message)))
        return len(self._holds) - 1

    async def held_bytes(self, hold: int) -> int:
        return self._holds[hold].size

    async def release_message(self, hold: int) -> None:
        self._world.network.release(self._holds[hold])

    # ---- disks ----

    async def fill_disk(self, node: str) -> None:
        self._world.node(node).disk.full = True

    async def free_disk(self, node: str) -> None:
        self._world.node(node).disk.full = False

    async def wipe(self, node: str) -> None:
        self._dead(node).disk.wipe()

    async def file_sizes(self, node: str) -> Mapping[str, int]:
        disk = self._dead(node).disk
        return {path: len(disk.peek(path)) for path in disk.paths()}

    async def corrupt(self, node: str, damage: Damage) -> str:
        disk = self._dead(node).disk
        before = await self.read_damaged(node, damage)
        if damage.kind == "bit-flip":
            disk.flip_bit(damage.path, damage.at)
        else:
            disk.shorten(damage.path, damage.at)
        return f"{before} became {await self.read_damaged(node, damage)}"

    async def read_damaged(self, node: str, damage: Damage) -> str:
        data = self._dead(node).disk.peek(damage.path)
        return f"{data[damage.at // 8]:02x}" if damage.kind == "bit-flip" else f"{len(data)} bytes"

    def _dead(self, node: str) -> SimNode:
        machine = self._world.node(node)
        if machine.state is not ProcessState.DEAD:
            raise HarnessError(f"{node} runs: its files are not touched")
        return machine

    def _down_alone(self) -> frozenset[str] | None:
        """The nodes that are down, where nobody does anything to the others, to disks, clocks and links now."""
        machines = {node.name: self._world.node(node.name) for node in self._nodes}
        down = frozenset(name for name, machine in machines.items() if machine.state is ProcessState.DEAD)
        disturbed = any(machine.disturbed for name, machine in machines.items() if name not in down)
        return None if self._set_aside or self._world.network.disturbed or disturbed else down

    # ---- what it says of itself ----

    def _status_client(self) -> ClusterClient:
        return self._asker

    def _heard(self, status: NodeStatus) -> None:
        self.leaderships.take(status, self._world.loop.now_ns)

    @property
    def leaderships(self) -> Leaderships:
        return self._watch.leaderships

    async def collect_logs(self) -> Mapping[str, bytes]:
        """`NODE/node.log`, with a line for everything that nothing in the node handled."""
        return {f"{name}/node.log": log.contents() for name, log in self._logs.items()}

    async def invariants(self) -> InvariantsRecord:
        """What was checked at every step so far, and what broke (G10); what no task of a node handled among it."""
        for node in self._nodes:
            for error in self._world.node(node.name).errors:
                if error not in self._reported:
                    self._reported.append(error)
                    self._watch.unhandled(node.name, error)
        return self._watch.record()

    # ---- clients ----

    async def open_client(self, process: int, timeout_s: float) -> Client:
        machine = CLIENT_MACHINES[process % len(CLIENT_MACHINES)]
        return self.op_client(self._world.harness_ports(machine), self._addresses(), timeout_s)

    def address(self, node: str) -> str:
        return self._configs[node].address

    def admin_client(self, timeout_s: float) -> ClusterClient:
        return ClusterClient(self._admin, self._addresses(), timeout_s)

    def admin_clock(self) -> Clock:
        return self._admin.clock

    async def teardown(self) -> None:
        for node in self._nodes:
            self._world.node(node.name).kill()
        for log in self._logs.values():
            log.detach()

    async def _run(self, ports: Ports) -> None:
        machine = self._world.node(ports.node_id)
        observer = self._watch.observer(ports.node_id, ports.incarnation, machine.clock, machine.disk)
        try:
            await run_node(self._through(ports), self._configs[ports.node_id], observer)
        except Exception as error:
            self._reported.append(error)
            self._watch.panicked(ports.node_id, error)
            raise

    def _addresses(self) -> tuple[str, ...]:
        return tuple(master.address for master in self._masters)

    def _config(self, node: Node, flaws: tuple[str, ...], knobs: Knobs) -> NodeConfig:
        return NodeConfig(
            node_id=node.name,
            role="master" if node.role == MASTER_ROLE else "tserver",
            listen=_address(node),
            masters=self._masters,
            cluster_id=self._world.cluster_id,
            zone=node.zone,
            flaws=flaws,
            knobs=knobs,
        )


def format_machine(machine: SimNode, cluster_id: str) -> None:
    """What `cluster.wire.identity.format_disk` does, on a simulated machine before it starts."""
    if IDENTITY_FILE not in machine.disk.paths():
        machine.disk.put(IDENTITY_FILE, identity_file(cluster_id, machine.name))


def _address(node: Node) -> str:
    return f"{node.name}:{port_of(node)}"


class _NodeLog:
    """What one node wrote to its logger, stamped with the node's own clock."""

    def __init__(self, world: World, node: str) -> None:
        self._machine = world.node(node)
        self._logger = node_logger(node)
        self._text = io.StringIO()
        self._handler = logging.StreamHandler(self._text)
        self._handler.setFormatter(ClockFormatter(self._machine.clock))

    def attach(self) -> None:
        self._logger.setLevel(logging.INFO)
        self._logger.propagate = False
        self._logger.addHandler(self._handler)

    def detach(self) -> None:
        self._logger.removeHandler(self._handler)

    def contents(self) -> bytes:
        panics = ["PANIC: " + "".join(traceback.format_exception(error)) for error in self._machine.errors]
        return (self._text.getvalue() + "".join(panics)).encode()
