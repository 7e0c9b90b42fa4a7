"""The reference cluster as the harness sees it: its client, its statuses, and who leads what; for every environment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import msgspec

from cluster.client.client import ClusterClient
from cluster.client.rows import ServedChange
from cluster.deploy.catalog_ops import FS, CatalogOps
from cluster.deploy.row_ops import COLUMNS as ROW_COLUMNS
from cluster.deploy.row_ops import RowOps, of_base_column
from cluster.deploy.timed_reads import (
    GLOBAL_WORKLOADS,
    HELD,
    TIMED_WORKLOADS,
    ClientPlace,
    completed_at,
    served_as,
    wish_of,
)
from cluster.health.facts import SCHEMA_VERSIONS
from cluster.store.cells import Value
from cluster.wire.catalog import GLOBAL
from cluster.wire.messages import Cell as RowCell
from cluster.wire.messages import Column, Done, Regional, Replicas, RowRange, StatusReply
from harness.errors import DefiniteError, HarnessError, IndefiniteError
from harness.history.ops import Mop, Op
from harness.ports.api import Clock, Ports, node_of
from harness.protocols import GroupStatus, NodeStatus

DATABASE_NAME = "assay-cluster"
ROWS_WORKLOADS = frozenset({"catalog", "bounded-staleness"})
REGISTER_TABLE = "registers"
REGISTER_COLUMNS = (Column(0, "value", "int64"),)
ROW_OPERATIONS = frozenset({"r", "w", "cas"})
OPERATIONS = ROW_OPERATIONS | {"erase", "read-at", "hold", "settle", *FS}
DEFAULT_BUCKETS = 3
REPLICATION_FACTOR = 3
CREATIONS = 5
POLICIES = "policies"
"""How the tablets are closed that a node has, if not as knobs say, in the details of its status."""
LOOKS, LOOK_PERIOD_S = 120, 0.25
"""How often, and how far apart, it is looked whether a new table's learners are there."""


class ClusterOpClient:
    """A `harness.protocols.Client`: operations of one micro-operation (`r`, `w`, `cas`) on the table of registers, and
    reads of several (`span`), what transactions hold and settle (`hold`, `settle`), those on typed rows
    (`cluster.deploy.row_ops`), and those of the catalog (`cluster.deploy.catalog_ops`).

    `address` tells where a node listens: reads that name one go there (`harness.protocols.Directed`). With a `place`
    completions tell how reads were served (`cluster.deploy.timed_reads`).
    """

    def __init__(
        self,
        ports: Ports,
        masters: Sequence[str],
        timeout_s: float,
        address: Callable[[str], str],
        table: str = REGISTER_TABLE,
        place: ClientPlace | None = None,
    ) -> None:
        self._client = ClusterClient(ports, masters, timeout_s)
        self._clock, self._place = ports.clock, place
        self._address = address
        self._table = table
        self._catalog = CatalogOps(self._client, table)
        self._rows = RowOps(self._client, table, DEFAULT_BUCKETS, ports.clock, place)

    async def invoke(self, op: Op) -> Op:
        """Carry the operation out; the completion tells the value read, the node and its timestamp.

        Raises DefiniteError (`cas-mismatch` names the value found) and IndefiniteError.
        """
        done = await self._carried_out(op)
        return msgspec.structs.replace(done, **completed_at(self._place, self._clock))

    async def _carried_out(self, op: Op) -> Op:
        if op.f in ("hold", "settle"):
            return await (self._hold(op) if op.f == "hold" else self._settle(op))
        if self._place is not None and self._place.typed:
            op = of_base_column(op)
        if op.f not in ROW_OPERATIONS and op.f in FS:
            return await self._catalog.invoke(op)
        if op.f == "span":
            return await self._span(op)
        if op.f == "scan":
            return await self._rows.scan(op)
        if op.f == "erase":
            return await self._rows.erase(op)
        if len(op.mops) != 1 or op.mops[0].f not in ROW_OPERATIONS or op.mops[0].table != 0:
            raise DefiniteError("unsupported", "an operation must be one read, write or compare-and-set of table 0")
        mop = op.mops[0]
        if mop.column < 0 and mop.f != "cas":
            return await (self._rows.read(op) if mop.f == "r" else self._rows.write(op))
        if mop.f == "r":
            return await self._read(op, mop)
        return await self._change(op, mop)

    async def close(self) -> None:
        """Nothing is held open between operations, but what is measured goes on."""
        self._client.close()

    async def _read(self, op: Op, mop: Mop) -> Op:
        if op.node is not None:
            at = self._address(op.node)
            served = await self._client.read_at(at, self._table, mop.cell)
            answered = msgspec.structs.replace(mop, value=_integer(served.value))
            return op.complete("ok", mops=(answered,), served_ts=served.timestamp)
        read = await self._client.read(self._table, mop.cell, **wish_of(op))
        answered = msgspec.structs.replace(mop, value=_integer(read.reply.value))
        told = served_as(op, self._place, read.served, read.reply.timestamp, read.node)
        return op.complete("ok", mops=(answered,), **told)

    async def _span(self, op: Op) -> Op:
        """Reads of rows, in order, of one column of one partition, at one time."""
        first = op.mops[0]
        rows = ranges_of([mop.row for mop in op.mops])
        read = await self._client.read_rows(self._table, first.partition, rows, **wish_of(op))
        found = {cell.row: _integer(cell.value) for cell in read.reply.cells if cell.column == first.column}
        answered = tuple(msgspec.structs.replace(mop, value=found.get(mop.row)) for mop in op.mops)
        told = served_as(op, self._place, read.served, read.reply.timestamp, read.node)
        return op.complete("ok", mops=answered, **told)

    async def _change(self, op: Op, mop: Mop) -> Op:
        if mop.f == "w" and op.mode == HELD:
            done = await self._held(mop)
        elif mop.f == "w":
            done = await self._client.write(self._table, mop.cell, mop.value, op.requested_ts)
        else:
            done = await self._client.compare_and_set(self._table, mop.cell, mop.expected, mop.value)
        _require_applied(mop, done.reply)
        times = {"requested_ts": done.requested, "served_ts": done.reply.timestamp}
        if done.reply.waited_ns is not msgspec.UNSET:
            times["blocked_ns"] = done.reply.waited_ns
        return op.complete("ok", node=node_of(done.node), **times)

    async def _hold(self, op: Op) -> Op:
        """Lay what `op.value` names for a transaction; nobody sees it until that is settled."""
        named = op.value
        if self._place is not None and self._place.typed:
            done = await self._rows.hold(named["transaction"], named["partition"], named["value"], op.requested_ts)
        else:
            cells = (RowCell(named["row"], 0, named["value"]),)
            transaction, partition = named["transaction"], named["partition"]
            done = await self._client.hold(self._table, partition, transaction, cells, op.requested_ts)
        return op.complete("ok", requested_ts=done.requested, served_ts=done.reply.timestamp)

    async def _settle(self, op: Op) -> Op:
        """Commit what a transaction holds; or let it go, and the write has failed (`released`)."""
        named, commits = op.value, op.value["commits"]
        done = await self._client.settle(self._table, named["partition"], named["transaction"], commits)
        if not commits or not done.reply.applied:
            raise DefiniteError("hold-ended" if commits else "released", "nothing is held there any more")
        return op.complete("ok", node=node_of(done.node), served_ts=done.reply.timestamp)

    async def _held(self, mop: Mop) -> ServedChange:
        """Lay a write and commit it. What is laid and not committed is never seen: a hold that nobody knows the fate of
        has failed."""
        transaction, cell = f"{mop.value}", RowCell(mop.row, mop.column, mop.value)
        try:
            await self._client.hold(self._table, mop.partition, transaction, (cell,))
        except IndefiniteError as error:
            raise DefiniteError(error.kind, f"it was not laid for certain: {error}") from error
        done = await self._client.settle(self._table, mop.partition, transaction, commits=True)
        if not done.reply.applied:
            raise DefiniteError("hold-ended", "what was laid has ended before it was committed")
        return done


def ranges_of(rows: Sequence[int]) -> tuple[RowRange, ...]:
    """Rising rows as ranges of such as follow each other."""
    ends = [place for place, row in enumerate(rows, 1) if place == len(rows) or rows[place] != row + 1]
    return tuple(RowRange(rows[begin], rows[end - 1] + 1) for begin, end in pairwise([0, *ends]))


def _integer(value: Value) -> int | None:
    """A register's value as histories hold it; raises HarnessError for what no operation wrote."""
    if value is None or type(value) is int:
        return value
    raise HarnessError(f"a register held {value!r}, which no operation wrote")


def _require_applied(mop: Mop, reply: Done) -> None:
    if not reply.applied:
        raise DefiniteError("cas-mismatch", f"expected {mop.expected}, found {reply.found!r}")


async def create_registers(client: ClusterClient, workload: str, options: Mapping[str, Any], clock: Clock) -> None:
    """Create what any workload needs whose operations are offered: one table of registers, or for some of typed rows,
    with `options["buckets"]` tablets (default 3). Where all replicas are to serve reads every tablet server gets one,
    and is waited for."""
    buckets = int(options.get("buckets", DEFAULT_BUCKETS))
    columns = ROW_COLUMNS if workload in ROWS_WORKLOADS else REGISTER_COLUMNS
    replicas: Replicas = REPLICATION_FACTOR
    zones = (await client.tablet_servers()).zones if workload in TIMED_WORKLOADS else ()
    if len(zones) > REPLICATION_FACTOR:
        replicas = everywhere(zones, options.get("home", ""))
    policy = GLOBAL if workload in GLOBAL_WORKLOADS else ""
    await create_for_certain(client, REGISTER_TABLE, columns, buckets, replicas, policy=policy)
    for _ in range(LOOKS if isinstance(replicas, Regional) else 0):
        tablets = (await client.table_locations(REGISTER_TABLE)).tablets
        if all(len(tablet.replicas) == len(zones) for tablet in tablets):
            return
        await clock.sleep(LOOK_PERIOD_S)


def everywhere(zones: Sequence[str], home: str, turn: int = 0) -> Regional:
    """A replica for each server in these zones, of which there are more than voters: the voters in different zones, or
    most of them at home, if there is room; the others are learners. Without a home the lease is anywhere. Zones are
    taken in the order of their names, from the one at place `turn` on."""
    left = Counter(zones)
    if left[home] <= REPLICATION_FACTOR // 2:
        home = ""
    chosen = Counter({home: REPLICATION_FACTOR // 2 + 1}) if home else Counter[str]()
    names = sorted(left)
    order = names[turn % len(names) :] + names[: turn % len(names)]
    while chosen.total() < REPLICATION_FACTOR:
        chosen[min((zone for zone in order if left[zone] > chosen[zone]), key=lambda zone: chosen[zone])] += 1
    return Regional(home, dict(chosen), dict(left - chosen))


async def create_for_certain(
    client: ClusterClient,
    name: str,
    columns: Sequence[Column],
    buckets: int,
    replicas: Replicas,
    design: str = "raft",
    policy: str = "",
) -> None:
    """Create a workload's table, which nobody else creates: after an unknown outcome it is asked for again, and found.

    Raises what `ClusterClient.create_table` does; IndefiniteError after `CREATIONS` unknown outcomes.
    """
    for attempt in range(1, CREATIONS + 1):
        try:
            await client.create_table(name, columns, buckets, replicas, design, policy)
        except IndefiniteError:
            if attempt == CREATIONS:
                raise
        except DefiniteError as error:
            if attempt > 1 and error.kind == "already-present":
                return
            raise
        else:
            return


def node_status(reply: StatusReply, max_clock_offset_ns: int) -> NodeStatus:
    """A node's answer to GetStatus, in the harness's words; beside it how far the nodes' clocks may be apart."""
    views = [msgspec.structs.asdict(group) for group in reply.groups]
    schemas = {view["group"]: view.pop("schema_version") for view in views}
    groups = tuple(GroupStatus(**view) for view in views)
    details = {"server_id": reply.node_id, "max_clock_offset_ns": max_clock_offset_ns, SCHEMA_VERSIONS: schemas}
    if reply.policies is not msgspec.UNSET:
        details[POLICIES] = reply.policies
    return NodeStatus(node_of(reply.node_id), reply.role, reply.incarnation, groups, reply.wall_ns, details)
