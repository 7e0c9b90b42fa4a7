"""A cluster with one quorum table in the simulator, whose ports are counted, and what rows of the table ask of it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any, TypeVar

from bench.quorum.rim import NodeCounts, counted, hint_bytes
from cluster.deploy.database_sim import SimDatabase
from cluster.deploy.layout import Layout
from cluster.knobs import Knobs
from cluster.quorum.client import QuorumClient, QuorumClientTable
from cluster.quorum.ids import MutationId
from cluster.quorum.keys import KeyBytes, encode_key
from cluster.quorum.messages import (
    AskLowBound,
    BoundTold,
    DeliverMutations,
    LoggedMutation,
    PageRead,
    QuorumReply,
    QuorumRequest,
    ReadPartition,
    ReadReplica,
    TakePartitions,
    WritePartition,
    decode_quorum_reply,
    encode_quorum_request,
)
from cluster.quorum.mutation import MutationBuilder, PartitionMutation, encode_mutation
from cluster.quorum.slices import Slice, visible_rows
from cluster.store.cells import Value
from cluster.store.schema import Column
from harness.ports.api import CallLost, Unreachable
from harness.ports.sim.clock import EPOCH_NS
from harness.ports.sim.disk import DiskOptions
from harness.ports.sim.link import LinkOptions
from harness.ports.sim.network import LinkPlan
from harness.ports.sim.world import World

T = TypeVar("T")

TABLE = "people"
VALUE = 2
COLUMNS = (
    Column(0, "partition", "int64", nullable=False, key=True),
    Column(1, "row", "int64", nullable=False, key=True),
    Column(VALUE, "value", "string"),
)
DESIGNS = ("legacy", "logged")
QUIET: dict[str, Any] = {"poll_period_ms": 0, "reconcile_period_ms": 0}
"""Knobs with which nothing goes on in the background."""

_LOADED_AT_ONCE = 500


def partition_key(number: int) -> KeyBytes:
    """The key of a partition."""
    return encode_key((number,))


def wrote(partition: int, rows: Iterable[int], value: Value, time: int, from_ns: int = EPOCH_NS) -> PartitionMutation:
    """A mutation that writes one value to these rows; `time` counts in ns from when the simulated world began."""
    builder = MutationBuilder(partition_key(partition), from_ns + time, 0)
    for row in rows:
        builder.write(encode_key((row,)), {VALUE: value})
    return builder.build()


class BenchCluster:
    """`replication` replicas of one tablet (`replicas`), and two tablet servers that only coordinate (`others`)."""

    def __init__(self, world: World, design: str, replication: int, knobs: Knobs) -> None:
        self.world, self.design, self.replication = world, design, replication
        self.counts = NodeCounts()
        self.database = SimDatabase(
            world, Layout(3, replication + 2), knobs=knobs, through=lambda ports: counted(ports, self.counts)
        )
        self.ports = world.harness_ports("bench")
        self.replicas: list[str] = []
        self.others: list[str] = []
        self.tablet_id = ""
        self._made = 0

    async def begin(self) -> None:
        """Start it, and make the table."""
        database = self.database
        await database.install()
        for node in database.nodes:
            await database.start(node.name)
        await database.await_ready(30)
        client = database.admin_client(10)
        await client.create_table(TABLE, COLUMNS, 1, self.replication, self.design)
        await database.await_ready(30)
        (tablet,) = (await client.table_locations(TABLE)).tablets
        self.tablet_id = tablet.tablet_id
        self.replicas = [replica.node_id for replica in tablet.replicas]
        servers = [node.name for node in database.nodes if node.role == "tserver"]
        self.others = [name for name in servers if name not in self.replicas]

    def client(self, timeout_s: float = 4.0, read_repair: str = "blocking") -> QuorumClient:
        """A client as workloads have them: any coordinator, any replicas."""
        masters = [self.database.address(name) for name in ("m1", "m2", "m3")]
        return QuorumClient(self.ports, masters, timeout_s, QuorumClientTable(TABLE, read_repair))

    async def ask(self, node: str, request: QuorumRequest, timeout_s: float = 60.0) -> QuorumReply:
        """One request to one node."""
        payload = encode_quorum_request(request)
        reply: QuorumReply = decode_quorum_reply(
            await self.ports.network.call(self.database.address(node), payload, timeout_s)
        )
        return reply

    async def write(self, node: str, mutation: PartitionMutation, level: str = "QUORUM") -> QuorumReply:
        """Have a node coordinate a write."""
        return await self.ask(node, WritePartition(TABLE, encode_mutation(mutation), level, 2.0))

    async def read(self, node: str, asked: Slice, prefer: Sequence[str]) -> PageRead:
        """Have a node coordinate a read at QUORUM, of these replicas first."""
        reply = await self.ask(node, ReadPartition(TABLE, asked, "QUORUM", 60.0, prefer=tuple(prefer)))
        assert isinstance(reply, PageRead), reply
        return reply

    async def held(self, node: str, partition: int) -> dict[KeyBytes, Value]:
        """What the replica on a node holds of a partition: the value of each row."""
        reply = await self.ask(node, ReadReplica(TABLE, Slice(partition_key(partition))), 2.0)
        assert isinstance(reply, PageRead), reply
        return {row.key: row.values[VALUE] for row in visible_rows(reply.page.contents)}

    async def load(self, mutations: Sequence[PartitionMutation], nodes: Sequence[str] | None = None) -> None:
        """Give mutations to replicas (None: all) directly; of a logged table under ids of their own, made now."""
        for begin in range(0, len(mutations), _LOADED_AT_ONCE):
            encoded = tuple(encode_mutation(each) for each in mutations[begin : begin + _LOADED_AT_ONCE])
            request: QuorumRequest = TakePartitions(self.tablet_id, 0, encoded)
            if self.design == "logged":
                request = DeliverMutations(self.tablet_id, 0, tuple(LoggedMutation(self._id(), e) for e in encoded))
            for node in nodes or self.replicas:
                reply = await self.ask(node, request)
                assert type(reply).__name__ == "Stored", reply

    def _id(self) -> MutationId:
        self._made += 1
        return MutationId(self.ports.clock.wall_ns() + self._made, "bench")

    async def until(self, done: Callable[[], Awaitable[bool]], every_s: float = 0.1, within_s: float = 600.0) -> None:
        """Wait for a condition; raises AssertionError where it does not come."""
        until_ns = self.ports.clock.monotonic_ns() + int(within_s * 1e9)
        while self.ports.clock.monotonic_ns() < until_ns:
            try:
                if await done():
                    return
            except (Unreachable, CallLost, AssertionError):
                pass  # a node that is not up yet
            await asyncio.sleep(every_s)
        raise AssertionError("what was waited for did not come")

    async def reconciled(self, time_ns: int) -> bool:
        """Whether the low bound of every replica lies above a time."""
        replies = [await self.ask(node, AskLowBound(self.tablet_id, 0)) for node in self.replicas]
        return all(isinstance(reply, BoundTold) and reply.low_bound > time_ns for reply in replies)

    def hint_bytes(self) -> int:
        """Bytes of hints in the logs of all nodes, of which nothing was let go (`log_segment_bytes`)."""
        return sum(hint_bytes(self.world.node(node.name).disk) for node in self.database.nodes)


def simulated(
    scenario: Callable[[BenchCluster], Coroutine[Any, Any, T]],
    design: str,
    replication: int = 3,
    seed: int = 1,
    network: LinkOptions | LinkPlan | None = None,
    **knobs: Any,
) -> T:
    """Run a scenario on a cluster in a world of its own."""
    with World(seed, network=network, disk=DiskOptions(), record_decisions=False) as world:
        cluster = BenchCluster(world, design, replication, Knobs(**knobs))

        async def main() -> T:
            await cluster.begin()
            found = await scenario(cluster)
            await cluster.database.teardown()
            return found

        return world.run(main())


def chance(seed: int) -> random.Random:
    """Draws that are the same for both designs."""
    return random.Random(f"bench/{seed}")
