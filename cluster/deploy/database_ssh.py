"""The reference cluster on machines reached over SSH, such as containers: `harness.protocols.Database`."""

from __future__ import annotations

import asyncio
import random
import secrets
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace

from cluster.client.client import ClusterClient
from cluster.config import NodeConfig, dump_config
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
from cluster.deploy.node_files import (
    DATA_DIRECTORY,
    FAILPOINT_LOG_PATH,
    FILL_COMMAND,
    FILLER_PATH,
    FOREIGN_CONFIG_PATH,
    FOREIGN_DAEMON,
    FOREIGN_DIRECTORY,
    LOG_PATH,
    NODE_DAEMON,
    code_archive,
    corrupt_command,
    format_command,
    install_command,
    read_command,
)
from cluster.invariants.watch import Reports
from cluster.knobs import Knobs
from cluster.wire.identity import identity_file
from cluster.wire.messages import WIRE_VERSION, ChangeReplicas, Replica
from harness.env import daemon
from harness.env.ssh import PREPARED_AT_ONCE
from harness.errors import HarnessError
from harness.history.ops import Op
from harness.ports.api import Clock, Hello, Ports
from harness.ports.machines import ProcessState
from harness.ports.real.network import RealNetwork
from harness.ports.real.ports import real_ports
from harness.protocols import Client, Damage, Environment, InvariantsRecord, Node, NodeStatus
from harness.verdict.leaderships import Leaderships

STATUS_TIMEOUT_S = 1.0
STRANGER = "stranger"
QUIET_LOOKS = 3
QUIET_LOOK_S = 0.2


class SshDatabase(ReferenceDatabase):
    """Masters and tablet servers, one process each, that keep unsynced writes in the process (torture mode).

    `flaws` are names of `cluster.flaws`; `environment` are variables that the programs are started with. Clients and
    status calls go from the harness's own machine over the data network to the nodes' real ports.
    """

    setup_timeout_s = 180.0
    """Of a machine that has much else to do; where the database is at fault this only tells it later."""

    def __init__(
        self,
        machines: Environment,
        layout: Layout = USUAL,
        flaws: Sequence[str] = (),
        knobs: Knobs | None = None,
        seed: int = 0,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(layout.nodes(), knobs)
        self._machines = machines
        self._flaws = tuple(flaws)
        self._seed = seed
        self._daemon = replace(NODE_DAEMON, environment={**NODE_DAEMON.environment, **(environment or {})})
        self._cluster_id = f"assay-{secrets.token_hex(6)}"
        self._entropy = random.Random(seed)
        self._admin: Ports | None = None
        self._opened = 0
        self._turns = asyncio.Semaphore(PREPARED_AT_ONCE)
        self._damaged: set[str] = set()
        self._reports = Reports(self._damaged.__contains__)
        self.leaderships = Leaderships()

    @property
    def cluster_id(self) -> str:
        """What every connection states."""
        return self._cluster_id

    # ---- processes ----

    async def install(self) -> None:
        """Upload the program's source and each node's configuration, and format the nodes' disks (G1)."""
        archive = await asyncio.to_thread(code_archive)

        async def install_on(node: Node) -> None:
            config, identity = dump_config(self._config(node)), identity_file(self._cluster_id, node.name)
            command = install_command(len(archive), len(config))
            await self._machines.fleet.check(node.name, command, archive + config + identity)

        await self._on_each_node(install_on)

    async def start(self, node: str) -> None:
        async with self._turns:
            await self._command(node, daemon.start_command(self._daemon))

    async def stop(self, node: str) -> None:
        await self._command(node, daemon.stop_command(self._daemon))

    async def kill(self, node: str) -> None:
        await self._command(node, daemon.kill_command(self._daemon))

    async def pause(self, node: str) -> None:
        await self._command(node, daemon.pause_command(self._daemon))

    async def resume(self, node: str) -> None:
        await self._command(node, daemon.resume_command(self._daemon))

    async def process_state(self, node: str) -> ProcessState:
        return await self._machines.process_state(node, self._daemon)

    async def acted(self, node: str) -> Mapping[str, int]:
        """Read from the file in which the node's processes note it."""
        return Counter((await self._command(node, f"cat {FAILPOINT_LOG_PATH} 2>/dev/null || true")).split())

    def _operates(self, request: ChangeReplicas) -> None:
        """Invariants are not checked at every step here."""

    # ---- strangers in their places ----

    async def supplant(self, nodes: Sequence[str]) -> None:
        ours = {node.name: self._config(node) for node in self._nodes}
        for node, config in foreign_configs(ours, nodes, data_dir=FOREIGN_DIRECTORY).items():
            await self._dead(node)
            await self._machines.fleet.upload(node, FOREIGN_CONFIG_PATH, dump_config(config))
            identity = identity_file(config.cluster_id, foreign_server(node))
            await self._machines.fleet.check(node, format_command(FOREIGN_DIRECTORY), identity)
            await self._command(node, daemon.start_command(FOREIGN_DAEMON))

    async def restore_place(self, node: str) -> None:
        await self._command(node, daemon.kill_command(FOREIGN_DAEMON))
        await self._command(node, f"rm -rf {FOREIGN_DIRECTORY}")

    async def stranger_status(self, node: str) -> NodeStatus | None:
        hello = Hello(foreign_cluster(self._cluster_id), STRANGER, 1, WIRE_VERSION)
        ports = replace(self._admin_ports(), node_id=STRANGER, network=RealNetwork(hello))
        try:
            return await self._stranger_at(node, ClusterClient(ports, self._masters(), STATUS_TIMEOUT_S))
        finally:
            await ports.network.close()

    # ---- disks ----

    async def fill_disk(self, node: str) -> None:
        await self._command(node, FILL_COMMAND)

    async def free_disk(self, node: str) -> None:
        await self._command(node, f"rm -f {FILLER_PATH}")

    async def wipe(self, node: str) -> None:
        await self._dead(node)
        await self._command(node, f"find {DATA_DIRECTORY} -mindepth 1 -delete")

    async def file_sizes(self, node: str) -> Mapping[str, int]:
        await self._dead(node)
        lines = (await self._command(node, f"find {DATA_DIRECTORY} -type f -printf '%s %P\n'")).splitlines()
        return {path: int(size) for size, _, path in (line.partition(" ") for line in lines)}

    async def corrupt(self, node: str, damage: Damage) -> str:
        await self._dead(node)
        self._damaged.add(node)
        return (await self._command(node, corrupt_command(damage))).strip()

    async def read_damaged(self, node: str, damage: Damage) -> str:
        return (await self._command(node, read_command(damage))).strip()

    async def _dead(self, node: str) -> None:
        if await self.process_state(node) is not ProcessState.DEAD:
            raise HarnessError(f"{node} runs: its files are not touched")

    async def _command(self, node: str, command: str) -> str:
        return await self._machines.fleet.check(node, command)

    # ---- what it says of itself ----

    def _status_client(self) -> ClusterClient:
        return ClusterClient(self._admin_ports(), self._masters(), STATUS_TIMEOUT_S)

    def _heard(self, status: NodeStatus) -> None:
        self._reports.take(status)
        self.leaderships.take(status, self._admin_ports().clock.monotonic_ns())

    async def invariants(self) -> InvariantsRecord:
        """What every status so far says together, those of this quiet moment among them (G10)."""
        for _ in range(QUIET_LOOKS):
            await self.statuses()
            await self._admin_ports().clock.sleep(QUIET_LOOK_S)
        return self._reports.record()

    async def collect_logs(self) -> Mapping[str, bytes]:
        """`NODE/node.log` of every node that can be reached."""
        logs: dict[str, bytes] = {}

        async def collect(node: Node) -> None:
            logs[f"{node.name}/node.log"] = (await self._command(node.name, f"cat {LOG_PATH}")).encode()

        await self._on_each_node(collect, tolerant=True)
        return dict(sorted(logs.items()))

    # ---- clients ----

    async def open_client(self, process: int, timeout_s: float) -> ConnectedOpClient:
        self._opened += 1
        ports = self._client_ports(f"c{process}.{self._opened}")
        return ConnectedOpClient(ports, self.op_client(ports, self._masters(), timeout_s))

    def address(self, node: str) -> str:
        return self._address(self._node(node))

    def admin_client(self, timeout_s: float) -> ClusterClient:
        return ClusterClient(self._admin_ports(), self._masters(), timeout_s)

    def admin_clock(self) -> Clock:
        return self._admin_ports().clock

    async def teardown(self) -> None:
        """Kill every node program that can be reached and drop the harness's own connections."""
        if self._admin is not None:
            await self._admin.network.close()
            self._admin = None
        await self._on_each_node(lambda node: self.kill(node.name), tolerant=True)

    # ---- parts ----

    async def _on_each_node(self, action: Callable[[Node], Awaitable[None]], tolerant: bool = False) -> None:
        """Run on every node, a few at a time; all are tried, then the first failure is raised unless it is
        tolerated."""
        turns = asyncio.Semaphore(PREPARED_AT_ONCE)

        async def in_turn(node: Node) -> None:
            async with turns:
                await action(node)

        results = await asyncio.gather(*(in_turn(node) for node in self._nodes), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException) and not (tolerant and isinstance(result, HarnessError)):
                raise result

    def _node(self, name: str) -> Node:
        return next(node for node in self._nodes if node.name == name)

    def _address(self, node: Node) -> str:
        return f"{self._machines.data_address(node.name)}:{port_of(node)}"

    def _masters(self) -> tuple[str, ...]:
        return tuple(self._address(node) for node in self._nodes if node.role == MASTER_ROLE)

    def _config(self, node: Node) -> NodeConfig:
        masters = tuple(Replica(each.name, self._address(each)) for each in self._nodes if each.role == MASTER_ROLE)
        return NodeConfig(
            node_id=node.name,
            role="master" if node.role == MASTER_ROLE else "tserver",
            listen=self._address(node),
            masters=masters,
            cluster_id=self._cluster_id,
            zone=node.zone,
            data_dir=DATA_DIRECTORY,
            torture=True,
            seed=self._seed,
            flaws=self._flaws,
            knobs=self._knobs,
        )

    def _admin_ports(self) -> Ports:
        if self._admin is None:
            with tempfile.TemporaryDirectory(prefix="assay-clients-") as folder:  # clients write no files into it
                self._admin = real_ports(self._hello(ADMIN), folder, seed=self._entropy.getrandbits(64))
        return self._admin

    def _client_ports(self, client_id: str) -> Ports:
        """Ports with connections of their own; clients have no files."""
        entropy = random.Random(self._entropy.getrandbits(64))
        network = RealNetwork(self._hello(client_id))
        return replace(self._admin_ports(), node_id=client_id, network=network, entropy=entropy)

    def _hello(self, node_id: str) -> Hello:
        return Hello(self._cluster_id, node_id, 1, WIRE_VERSION)


class ConnectedOpClient:
    """A `harness.protocols.Client` that owns its connections."""

    def __init__(self, ports: Ports, client: Client) -> None:
        self._ports = ports
        self._client = client

    async def invoke(self, op: Op) -> Op:
        return await self._client.invoke(op)

    async def close(self) -> None:
        await self._client.close()
        await self._ports.network.close()
