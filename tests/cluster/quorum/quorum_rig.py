"""A cluster with one table without leaders, whose replicas tests write, read and look at one by one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from msgspec.structs import replace

from cluster.deploy.database import ReferenceDatabase
from cluster.deploy.database_sim import SimDatabase
from cluster.deploy.layout import Layout
from cluster.failpoints import QUORUM_POINTS
from cluster.knobs import Knobs
from cluster.quorum.client import QuorumClient, QuorumClientTable
from cluster.quorum.keys import EVERYTHING, bucket_of, decode_key, encode_key, token_of
from cluster.quorum.messages import (
    PageRead,
    QuorumReply,
    QuorumRequest,
    ReadPartition,
    ReadReplica,
    WritePartition,
    decode_quorum_reply,
    encode_quorum_request,
)
from cluster.quorum.mutation import MutationBuilder, PartitionMutation, encode_mutation
from cluster.quorum.slices import Page, Slice, visible_rows
from cluster.store.schema import Column
from cluster.wire.messages import WIRE_VERSION
from harness.env.sim import SimEnvironment
from harness.ports.api import CallLost, Ports, Unreachable, node_of
from harness.ports.failpoints import Arming, InjectedFailure
from harness.ports.machines import ProcessState
from harness.ports.sim.clock import EPOCH_NS
from harness.ports.sim.world import World
from harness.protocols import Environment

TABLE = "people"
COLUMNS = (
    Column(0, "partition", "int64", nullable=False, key=True),
    Column(1, "row", "int64", nullable=False, key=True),
    Column(2, "value", "string"),
)
PARTITION = encode_key((7,))
VALUE = 2
FROM_NS = EPOCH_NS
"""Tests count timestamps from here; 0 stays 0."""

READY_S = 60.0
"""For so long a cluster in containers may be busy before it makes a table and serves it."""

assert token_of(PARTITION) >= 0 and bucket_of(PARTITION, 1) == 0


def key(row: int) -> bytes:
    return encode_key((row,))


def wrote(timestamp: int, value: str, *rows: int) -> PartitionMutation:
    """A mutation that writes one value to the value column of these rows."""
    builder = MutationBuilder(PARTITION, FROM_NS + timestamp if timestamp else 0, timestamp)
    for row in rows:
        builder.write(key(row), {VALUE: value}, insert=False)
    return builder.build()


def deleted(timestamp: int, row: int) -> PartitionMutation:
    return MutationBuilder(PARTITION, FROM_NS + timestamp, timestamp).delete_row(key(row)).build()


def rows_of(page: Page) -> dict[int, str]:
    """Values of the rows that readers see."""
    return {decode_key(row.key)[0]: row.values[VALUE] for row in visible_rows(page.contents)}  # type: ignore[misc]


def part(first: int, last: int, limit: int | None = None) -> Slice:
    """Rows from the first to the last, both included."""
    return Slice(PARTITION, ((key(first), key(last) + b"\xff"),), limit)


def everything(limit: int | None = None) -> Slice:
    return Slice(PARTITION, (EVERYTHING,), limit)


class QuorumRig:
    """Five tablet servers of any kind; `replicas` of the table are on three nodes, the `others` only coordinate."""

    def __init__(
        self,
        database: ReferenceDatabase,
        environment: Environment,
        ports: Ports,
        replication: int = 3,
        design: str = "legacy",
        table: str = TABLE,
    ) -> None:
        self.database, self.environment, self.ports = database, environment, ports
        self.replication, self.design, self.table = replication, design, table
        self._servers: dict[str, str] = {}
        self.replicas: list[str] = []
        self.others: list[str] = []

    async def begin(self) -> None:
        await self.database.install()
        for node in self.database.nodes:
            await self.database.start(node.name)
        await self.database.await_ready(READY_S)
        await self.make_table()

    async def make_table(self) -> None:
        client = self.database.admin_client(READY_S)
        await client.create_table(self.table, COLUMNS, 1, self.replication, self.design)
        await self.database.await_ready(READY_S)
        (tablet,) = (await client.table_locations(self.table)).tablets
        self.tablet_id = tablet.tablet_id
        self._servers = {node_of(replica.node_id): replica.node_id for replica in tablet.replicas}
        self.replicas = list(self._servers)
        servers = [node.name for node in self.database.nodes if node.role == "tserver"]
        self.others = [name for name in servers if name not in self.replicas]

    def client(self, timeout_s: float = 4.0, **options: object) -> QuorumClient:
        masters = [self.database.address(name) for name in ("m1", "m2", "m3")]
        return QuorumClient(self.ports, masters, timeout_s, QuorumClientTable(self.table, **options))  # type: ignore[arg-type]

    async def ask(self, node: str, request: QuorumRequest, timeout_s: float = 6.0) -> QuorumReply:
        """One request to one node."""
        payload = encode_quorum_request(request)
        return decode_quorum_reply(await self.ports.network.call(self.database.address(node), payload, timeout_s))

    async def write(self, node: str, mutation: PartitionMutation, level: str, timeout_s: float = 1.0) -> QuorumReply:
        """Have a node coordinate a write."""
        return await self.ask(node, WritePartition(self.table, encode_mutation(mutation), level, timeout_s))

    async def read(
        self,
        node: str,
        asked: Slice,
        prefer: tuple[str, ...],
        level: str = "QUORUM",
        repair: str = "blocking",
        timeout_s: float = 3.0,
    ) -> QuorumReply:
        """Have a node coordinate a read from these replicas, which the answer names as nodes too."""
        servers = tuple(self._servers.get(name, name) for name in prefer)
        reply = await self.ask(
            node, ReadPartition(self.table, asked, level, timeout_s, repair, None, servers), 2 * timeout_s
        )
        if isinstance(reply, PageRead):
            return replace(reply, replicas=tuple(map(node_of, reply.replicas)))
        return reply

    async def held(self, node: str) -> dict[int, str]:
        """The rows of the replica on a node, as it holds them."""
        reply = await self.ask(node, ReadReplica(self.table, everything()))
        assert isinstance(reply, PageRead), reply
        return rows_of(reply.page)

    async def until(self, done: Callable[[], Awaitable[bool]], what: str) -> None:
        for _ in range(200):
            try:
                if await done():
                    return
            except (Unreachable, CallLost):
                pass  # a node that is not up yet
            await asyncio.sleep(0.05)
        raise AssertionError(f"not seen: {what}")

    async def sever(self, node: str, *others: str) -> None:
        """Cut a node off from others, both ways, and nobody else any more."""
        await self.environment.cut(frozenset(link for other in others for link in ((node, other), (other, node))))

    async def mend(self) -> None:
        """Nobody is cut off any more."""
        await self.environment.heal_network()

    async def stopped(self, node: str, point: str) -> None:
        """Returns when the process has stopped itself, as `arm` has told it to at that point."""

        async def is_paused() -> bool:
            return await self.database.process_state(node) is ProcessState.PAUSED

        await self.until(is_paused, f"{node} at {point}")


class SimQuorumRig(QuorumRig):
    """A quorum rig whose nodes run in the simulator."""

    def __init__(
        self,
        world: World,
        replication: int = 3,
        data_centres: int = 1,
        tservers: int = 5,
        knobs: Knobs | None = None,
        design: str = "legacy",
        flaws: tuple[str, ...] = (),
    ) -> None:
        quiet = Knobs(poll_period_ms=0, reconcile_period_ms=0)
        database = SimDatabase(world, Layout(3, tservers, data_centres=data_centres), knobs=knobs or quiet, flaws=flaws)
        super().__init__(database, SimEnvironment(world), world.harness_ports("tester"), replication, design)
        self.world, self.watch = world, database._watch

    def cut(self, source: str, *targets: str) -> None:
        """Cut a node off from others, both ways."""
        for target in targets:
            self.world.network.cut(source, target)
            self.world.network.cut(target, source)

    def heal(self) -> None:
        self.world.network.heal()

    def hold(self, node: str, point: str) -> tuple[asyncio.Event, asyncio.Event]:
        """Whoever passes a failpoint of a node sets the first event, and waits for the second."""
        reached, released = asyncio.Event(), asyncio.Event()

        async def pass_slowly() -> None:
            reached.set()
            await released.wait()

        self.world.node(node).failpoints.arm(Arming(point, lambda _: pass_slowly()))
        return reached, released

    async def pass_failpoints(self, prefer: tuple[str, str]) -> None:
        """Note every failpoint that is passed, and pass those of writes that a replica misses, and of a short read."""
        a = self.replicas[0]
        d, e = self.others
        for name in (*self.replicas, d, e):
            for point in QUORUM_POINTS:
                self.world.node(name).failpoints.arm(Arming(point, "delay", times=0, seconds=0.001))
        await self.write(d, wrote(1, "old", 1, 2, 3, 4), "ALL")
        self.cut(d, a)
        await self.write(d, deleted(2, 2), "QUORUM", timeout_s=0.3)
        await asyncio.sleep(0.5)
        self.heal()
        await self.read(e, everything(limit=3), prefer)
        self.cut(d, a)
        await self.write(d, wrote(3, "new", 5), "QUORUM", timeout_s=0.3)
        self.heal()

    def points_not_passed(self) -> list[str]:
        """The failpoints that no node has passed."""
        acted = [self.world.node(name).body.acted for name in (*self.replicas, *self.others)]
        return [point for point in QUORUM_POINTS if not any(each.get(point) for each in acted)]


def play_quorum(
    scenario: Callable[[SimQuorumRig], object],
    seed: int = 1,
    breaches: Mapping[str, int] | None = None,
    **options: object,
) -> None:
    """Play the scenario in a world of its own, in which these invariants break so often and no other."""
    with World(seed, version=WIRE_VERSION) as world:
        rig = SimQuorumRig(world, **options)  # type: ignore[arg-type]

        async def run() -> None:
            await rig.begin()
            await scenario(rig)  # type: ignore[misc]
            assert rig.watch.record().broken == (breaches or {})

        world.run(run())
        broken = [error for node in rig.database.nodes for error in world.node(node.name).errors]
        unmeant = [error for error in (*world.errors, *broken) if not isinstance(error, InjectedFailure)]
        assert unmeant == [], "nothing breaks unseen, in a callback of a node either"
