"""Operations on partitions of a quorum table, as histories state them, and what they are to the client library.

Histories know rows by their number. In the table a row's key has one to four clustering columns, integers and text in
turn, so chosen that keys sort as the numbers do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from cluster.client.client import ClusterClient
from cluster.deploy.adapter import create_for_certain
from cluster.quorum.client import QuorumClient, QuorumClientTable
from cluster.quorum.keys import ABOVE, EVERYTHING, KeyBytes, KeySpan, decode_key, encode_key
from cluster.quorum.messages import PageRead
from cluster.quorum.mutation import MutationBuilder, PartitionMutation
from cluster.quorum.slices import Slice, visible_rows
from cluster.store.cells import Value
from cluster.store.schema import Column
from harness.errors import DefiniteError, HarnessError
from harness.history.ops import Mop, Op
from harness.levels import ONLY_DATA_CENTRE
from harness.ports.api import Ports, node_of

QUORUM_WORKLOADS = ("write-atomicity", "monotonic-reads", "durable-rows", "convergence")
QUORUM_TABLE = "partitions"
QUORUM_OPERATIONS = frozenset({"w", "r", "page", "delete"})
_MOST_CELLS = 20
QUORUM_BUCKETS = 2
_NS_PER_MS = 1_000_000


@dataclass(frozen=True, slots=True)
class RowKeys:
    """Keys of rows that are numbered from 0 up to `rows`, spread over `clustering` columns."""

    clustering: int
    rows: int

    @property
    def base(self) -> int:
        """How many values each clustering column has."""
        base = 1
        while base**self.clustering < self.rows:
            base += 1
        return base

    def key_of(self, row: int) -> KeyBytes:
        """The key of a row."""
        digits = [row // self.base**place % self.base for place in reversed(range(self.clustering))]
        return encode_key([_value(place, digit) for place, digit in enumerate(digits)])

    def row_of(self, key: KeyBytes) -> int:
        """The row of a key."""
        row = 0
        for value in decode_key(key):
            row = row * self.base + int(str(value))
        return row

    def span(self, first: int | None, last: int | None) -> KeySpan:
        """Rows from the first to the last, both included; None is open."""
        start = EVERYTHING[0] if first is None else self.key_of(first)
        return start, EVERYTHING[1] if last is None else self.key_of(last) + ABOVE


def _value(place: int, digit: int) -> Value:
    return f"{digit:04d}" if place % 2 else digit


def slice_of(mop: Mop, keys: RowKeys) -> Slice:
    """What a `page` micro-operation asks for."""
    first, last, limit = (mop.values or (None, None, None))[:3]
    return Slice(encode_key((mop.partition,)), (keys.span(first, last),), limit)


def mutation_of(op: Op, keys: RowKeys, now_ms: int, from_ns: int = 0) -> PartitionMutation:
    """What an operation writes to its one partition, with its client's timestamp; raises DefiniteError.

    Histories count timestamps from a time of their own, which is `from_ns` to the table.
    """
    partitions = dict.fromkeys(mop.partition for mop in op.mops)
    if len(partitions) != 1 or op.write_ts is None:
        raise DefiniteError("unsupported", "a write is of one partition and states its timestamp")
    builder = MutationBuilder(encode_key(tuple(partitions)), from_ns + op.write_ts, now_ms)
    rows: dict[int, dict[int, Value]] = {}
    for mop in op.mops:
        if mop.f == "delete":
            _delete(builder, mop, keys)
        else:
            rows.setdefault(mop.row, {})[mop.column] = mop.value
    for row, values in rows.items():
        builder.write(keys.key_of(row), values, insert=False)
    return builder.build()


def _delete(builder: MutationBuilder, mop: Mop, keys: RowKeys) -> None:
    first, last = (mop.values or (None, None))[:2]
    if first is None and last is None:
        builder.delete_partition()
    elif first == last and first is not None:
        builder.delete_row(keys.key_of(first))
    else:
        builder.delete_range(keys.span(first, last))


def mops_of(asked: Mop, read: PageRead, keys: RowKeys) -> tuple[Mop, ...]:
    """The page as a history states it: its bounds, where it ended, and every cell that was found."""
    page, bounds = read.page, (asked.values or (None, None, None))[:3]
    end = None if read.token is None or page.end is None else keys.row_of(page.end.removesuffix(ABOVE))
    found = [
        Mop("r", asked.partition, _integer(value), row=keys.row_of(row.key), column=column, table=asked.table)
        for row in visible_rows(page.contents)
        for column, value in row.values.items()
    ]
    return (msgspec.structs.replace(asked, values=(*bounds, end)), *found)


def _integer(value: Value) -> int:
    if isinstance(value, int):
        return value
    raise HarnessError(f"a cell held {value!r}, which no operation wrote")


class PageLeft(NamedTuple):
    """A page that was not the last of its query: what asked for the first one, and how the next is asked for."""

    query: Mop
    token: bytes
    first: int
    """The row behind its end."""

    @property
    def next(self) -> Mop:
        """What the next page covers."""
        _, last, limit = (self.query.values or (None, None, None))[:3]
        return msgspec.structs.replace(self.query, values=(self.first, last, limit))


class RunTimestamps:
    """What a history's timestamps, which count from its run's start, are to the table: wall-clock times."""

    def __init__(self) -> None:
        self._begin_ns: int | None = None

    def begin(self, op: Op, wall_ns: int) -> int:
        """When the run began; the first write, which is invoked about now, decides it for all clients."""
        if self._begin_ns is None:
            self._begin_ns = wall_ns - (op.write_ts or 0)
        return self._begin_ns


class QuorumOpClient:
    """A `harness.protocols.Client` of a quorum table: each operation is one page read, or one mutation of a partition.

    `address` tells where a node listens: reads that name one go to its replica alone (`harness.protocols.Directed`).
    `timestamps` is shared by all clients of a run.
    """

    def __init__(
        self,
        ports: Ports,
        masters: Sequence[str],
        timeout_s: float,
        address: Callable[[str], str],
        options: Mapping[str, Any],
        timestamps: RunTimestamps,
    ) -> None:
        self._clock, self._address, self._timestamps = ports.clock, address, timestamps
        self._client = QuorumClient(ports, masters, timeout_s, table_of(options))
        self._keys = row_keys(options)
        self._left: dict[int, PageLeft] = {}
        """By partition the last page read, if there is another one behind it."""

    async def invoke(self, op: Op) -> Op:
        """Carry the operation out; raises DefiniteError and IndefiniteError."""
        unknown = [mop.f for mop in op.mops if mop.f not in QUORUM_OPERATIONS or mop.table != 0]
        if unknown or not op.mops or op.mode is None:
            raise DefiniteError("unsupported", "an operation reads a page or writes to a partition, at a level")
        if op.mops[0].f == "page":
            return await (self._read(op, op.mode) if op.node is None else self._read_replica(op, op.node))
        wall_ns = self._clock.wall_ns()
        mutation = mutation_of(op, self._keys, wall_ns // _NS_PER_MS, self._timestamps.begin(op, wall_ns))
        written, node = await self._client.write(mutation, op.mode, op.data_centre or ONLY_DATA_CENTRE)
        return op.complete("ok", node=node_of(node), replicas=_names(written.replicas))

    async def close(self) -> None:
        """Nothing is held open between operations."""

    async def _read(self, op: Op, level: str) -> Op:
        """One page: of what is asked, or with a value the one behind the last of the partition, if there is any."""
        left = None if op.value is None else self._left.get(op.mops[0].partition)
        query, asked, token = (op.mops[0], op.mops[0], None) if left is None else (left.query, left.next, left.token)
        place = op.data_centre or ONLY_DATA_CENTRE
        read, node = await self._client.read(slice_of(query, self._keys), level, place, token)
        page, *cells = mops_of(asked, read, self._keys)
        self._left.pop(page.partition, None)
        if read.token is not None and page.values is not None and (end := page.values[3]) is not None:
            self._left[page.partition] = PageLeft(query, read.token, end + 1)
        return op.complete("ok", mops=(page, *cells), node=node_of(node), replicas=_names(read.replicas))

    async def _read_replica(self, op: Op, node: str) -> Op:
        """One replica's word is worth what ONE is worth."""
        read = await self._client.read_at(self._address(node), slice_of(op.mops[0], self._keys))
        return op.complete("ok", mops=mops_of(op.mops[0], read, self._keys), mode="ONE", replicas=node)


def _names(servers: Sequence[str]) -> str:
    return ",".join(node_of(server) for server in servers)


def row_keys(options: Mapping[str, Any]) -> RowKeys:
    """Keys of the rows of a workload's table; unless it is told, the number of rows decides on clustering columns."""
    rows = int(options["rows"])
    return RowKeys(int(options["clustering"]) or 1 + rows % 4, rows)


def table_of(options: Mapping[str, Any]) -> QuorumClientTable:
    """How a workload's clients use its table."""
    return QuorumClientTable(QUORUM_TABLE, options["read-repair"], options["route"], options["retry"] == "yes")


def columns_of(options: Mapping[str, Any]) -> tuple[Column, ...]:
    """The schema of a workload's table: partition key, clustering columns, and twenty cells."""
    clustering = [("string" if place % 2 else "int64", f"c{place}") for place in range(row_keys(options).clustering)]
    named = [("int64", "partition"), *clustering]
    keys = [Column(number, name, kind, nullable=False, key=True) for number, (kind, name) in enumerate(named)]
    return (*keys, *(Column(len(keys) + number, f"v{number}", "int64") for number in range(_MOST_CELLS)))


async def create_partitions(client: ClusterClient, options: Mapping[str, Any]) -> None:
    """Create a workload's table of partitions."""
    replicas = int(options["replication"]) * int(options["data-centres"])
    await create_for_certain(client, QUORUM_TABLE, columns_of(options), QUORUM_BUCKETS, replicas, options["table"])
