"""A cluster with one legacy table in the simulator, whose replicas tests write, read and look at one by one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from cluster.client.quorum import QuorumClient, QuorumTable
from cluster.config import Knobs
from cluster.deploy.database_sim import SimDatabase
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
from harness.ports import CallLost, Unreachable
from harness.sim.clock import EPOCH_NS
from harness.sim.world import World

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


class QuorumPlay:
    """Five tablet servers; replicas of the table on three (`a`, `b`, `c`), the others (`d`, `e`) only coordinate."""

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
        self.world, self.replication, self.design = world, replication, design
        quiet = Knobs(poll_period_ms=0, reconcile_period_ms=0)
        self.database = SimDatabase(world, 3, tservers, data_centres=data_centres, knobs=knobs or quiet, flaws=flaws)
        self.ports = world.harness_ports("tester")
        self.replicas: list[str] = []
        self.others: list[str] = []

    async def begin(self) -> None:
        await self.database.install()
        for node in self.database.nodes:
            await self.database.start(node.name)
        await self.database.await_ready(30)
        client = self.database.admin_client(10)
        await client.create_table(TABLE, COLUMNS, 1, self.replication, self.design)
        await self.database.await_ready(30)
        (tablet,) = (await client.table_locations(TABLE)).tablets
        self.tablet_id = tablet.tablet_id
        self.replicas = [replica.node_id for replica in tablet.replicas]
        servers = [node.name for node in self.database.nodes if node.role == "tserver"]
        self.others = [name for name in servers if name not in self.replicas]

    def client(self, timeout_s: float = 4.0, **options: object) -> QuorumClient:
        masters = [self.database.address(name) for name in ("m1", "m2", "m3")]
        return QuorumClient(self.ports, masters, timeout_s, QuorumTable(TABLE, **options))  # type: ignore[arg-type]

    async def ask(self, node: str, request: QuorumRequest, timeout_s: float = 6.0) -> QuorumReply:
        """One request to one node."""
        payload = encode_quorum_request(request)
        return decode_quorum_reply(await self.ports.network.call(self.database.address(node), payload, timeout_s))

    async def write(self, node: str, mutation: PartitionMutation, level: str, timeout_s: float = 1.0) -> QuorumReply:
        """Have a node coordinate a write."""
        return await self.ask(node, WritePartition(TABLE, encode_mutation(mutation), level, timeout_s))

    async def read(
        self, node: str, asked: Slice, prefer: tuple[str, ...], level: str = "QUORUM", repair: str = "blocking"
    ) -> QuorumReply:
        """Have a node coordinate a read from these replicas."""
        return await self.ask(node, ReadPartition(TABLE, asked, level, 3.0, repair, None, prefer))

    async def held(self, node: str) -> dict[int, str]:
        """The rows of the replica on a node, as it holds them."""
        reply = await self.ask(node, ReadReplica(TABLE, everything()))
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

    def cut(self, source: str, *targets: str) -> None:
        """Cut a node off from others, both ways."""
        for target in targets:
            self.world.network.cut(source, target)
            self.world.network.cut(target, source)

    def heal(self) -> None:
        self.world.network.heal()


def play_quorum(scenario: Callable[[QuorumPlay], object], seed: int = 1, **options: object) -> None:
    with World(seed, version=WIRE_VERSION) as world:
        play = QuorumPlay(world, **options)  # type: ignore[arg-type]

        async def run() -> None:
            await play.begin()
            await scenario(play)  # type: ignore[misc]
            assert play.database._watch.record().broken == {}

        world.run(run())
