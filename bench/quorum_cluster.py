"""A cluster with one quorum table in the simulator, what benchmarks ask of it, and what crosses its nodes' ports."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from cluster.deploy.database_sim import SimDatabase
from cluster.deploy.layout import Layout
from cluster.knobs import Knobs
from cluster.log.frames import scan
from cluster.log.replay import APPEND
from cluster.log.segments import parse_path
from cluster.quorum.client import QuorumClient, QuorumClientTable
from cluster.quorum.hints import HINTS_GROUP
from cluster.quorum.ids import MutationId
from cluster.quorum.keys import KeyBytes, encode_key
from cluster.quorum.messages import (
    MARK,
    AskLowBound,
    BoundReply,
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
from cluster.wire.clocked import unclocked
from harness.ports.api import (
    Address,
    CallLost,
    Channel,
    Disk,
    Handler,
    Listener,
    Network,
    NotifyHandler,
    Ports,
    Unreachable,
)
from harness.ports.sim.clock import EPOCH_NS
from harness.ports.sim.disk import DiskOptions, SimDisk
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
        return all(isinstance(reply, BoundReply) and reply.low_bound > time_ns for reply in replies)

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
    with World(seed, network=network, disk=DiskOptions()) as world:
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


# ---- what crosses a node's ports: bytes of files read, bytes of messages sent, records in the log ----

FILES = "sorted/"
"""Where replicas keep their rows (`cluster.quorum.sorted`)."""


@dataclass
class NodeCounts:
    """What all nodes together have done: reads of files of rows, and bytes of calls and answers of quorum tables.

    `wire` has these by the kind of the call.
    """

    disk_reads: int = 0
    disk_read_bytes: int = 0
    largest_message: int = 0
    wire: Counter[str] = field(default_factory=Counter)

    @property
    def wire_bytes(self) -> int:
        """Bytes between nodes."""
        return self.wire.total()

    def since(self, before: NodeCounts) -> NodeCounts:
        """What came on top."""
        return NodeCounts(
            self.disk_reads - before.disk_reads,
            self.disk_read_bytes - before.disk_read_bytes,
            self.largest_message,
            self.wire - before.wire,
        )

    def copy(self) -> NodeCounts:
        """As it is now."""
        return replace(self, wire=Counter(self.wire))


class CountedDisk:
    """A node's disk; reads of files of rows are counted. Implements `harness.ports.api.Disk`."""

    def __init__(self, disk: Disk, counts: NodeCounts) -> None:
        self._disk, self._counts = disk, counts

    async def append(self, path: str, data: bytes) -> None:
        await self._disk.append(path, data)

    def fsync(self, path: str) -> Awaitable[None]:
        return self._disk.fsync(path)

    async def read(self, path: str) -> bytes:
        return self._counted(path, await self._disk.read(path))

    async def read_at(self, path: str, offset: int, length: int) -> bytes:
        return self._counted(path, await self._disk.read_at(path, offset, length))

    def _counted(self, path: str, data: bytes) -> bytes:
        if path.startswith(FILES):
            self._counts.disk_reads += 1
            self._counts.disk_read_bytes += len(data)
        return data

    async def truncate(self, path: str, length: int) -> None:
        await self._disk.truncate(path, length)

    async def rename(self, source: str, target: str) -> None:
        await self._disk.rename(source, target)

    async def remove(self, path: str) -> None:
        await self._disk.remove(path)

    async def write_atomic(self, path: str, data: bytes) -> None:
        await self._disk.write_atomic(path, data)

    def list(self, prefix: str) -> list[str]:
        return self._disk.list(prefix)


class CountedNetwork:
    """A node's network; calls of quorum tables and their answers are counted. Implements `Network`."""

    def __init__(self, network: Network, counts: NodeCounts) -> None:
        self._network, self._counts = network, counts

    async def listen(self, address: Address, on_call: Handler, on_notify: NotifyHandler) -> Listener:
        return await self._network.listen(address, on_call, on_notify)

    async def call(self, address: Address, request: bytes, timeout_s: float) -> bytes:
        said = unclocked(request)
        if not said.startswith(MARK):
            return await self._network.call(address, request, timeout_s)
        kind = _kind(said)
        self._count(kind, request)
        answer = await self._network.call(address, request, timeout_s)
        self._count(kind, answer)
        return answer

    def _count(self, kind: str, message: bytes) -> None:
        self._counts.wire[kind] += len(message)
        self._counts.largest_message = max(self._counts.largest_message, len(message))

    def notify(self, address: Address, message: bytes, channel: Channel = Channel.LOG) -> None:
        self._network.notify(address, message, channel)

    async def close(self) -> None:
        await self._network.close()


def counted(ports: Ports, counts: NodeCounts) -> Ports:
    """A node's ports with counters."""
    return replace(ports, disk=CountedDisk(ports.disk, counts), network=CountedNetwork(ports.network, counts))


def hint_bytes(disk: SimDisk) -> int:
    """What of a node's log are records of hints, of all segments that there still are."""
    found = 0
    for path in disk.paths():
        segment = parse_path(path)
        for part in scan(disk.peek(path), segment.salt, sealed=False).parts if segment is not None else ():
            found += sum(len(each.body) for each in part.records if each.group == HINTS_GROUP and each.kind == APPEND)
    return found


def _kind(request: bytes) -> str:
    """The name of a request's type: its tag, which MessagePack writes behind the key `type`."""
    _, _, rest = request.partition(b"\xa4type")
    return rest[1 : 1 + (rest[0] & 0x1F)].decode() if rest else "?"
