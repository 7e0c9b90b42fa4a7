"""The reference cluster as the harness sees it: its client, its statuses, and who leads what; for every environment."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from cluster.client.client import ClusterClient
from cluster.deploy.catalog_ops import FS, CatalogOps
from cluster.deploy.row_ops import COLUMNS as ROW_COLUMNS
from cluster.deploy.row_ops import RowOps
from cluster.health.facts import SCHEMA_VERSIONS
from cluster.store.cells import Value
from cluster.wire.messages import Column, Done, StatusReply
from harness.errors import DefiniteError, HarnessError, IndefiniteError, UserError
from harness.history.ops import Mop, Op
from harness.ports.api import Ports, node_of
from harness.protocols import GroupStatus, NodeStatus

DATABASE_NAME = "assay-cluster"
REGISTER_WORKLOADS = ("register", "snapshots", "catalog")
ROWS_WORKLOAD = "catalog"
REGISTER_TABLE = "registers"
REGISTER_COLUMNS = (Column(0, "value", "int64"),)
ROW_OPERATIONS = frozenset({"r", "w", "cas"})
OPERATIONS = ROW_OPERATIONS | {"erase", *FS}
DEFAULT_BUCKETS = 3
REPLICATION_FACTOR = 3
CREATIONS = 5


class ClusterOpClient:
    """A `harness.protocols.Client`: operations of one micro-operation (`r`, `w`, `cas`) on the table of registers, or
    those on typed rows (`cluster.deploy.row_ops`), and those of the catalog (`cluster.deploy.catalog_ops`).

    `address` tells where a node listens: reads that name one go there (`harness.protocols.Directed`).
    """

    def __init__(
        self,
        ports: Ports,
        masters: Sequence[str],
        timeout_s: float,
        address: Callable[[str], str],
        table: str = REGISTER_TABLE,
    ) -> None:
        self._client = ClusterClient(ports, masters, timeout_s)
        self._address = address
        self._table = table
        self._catalog = CatalogOps(self._client, table)
        self._rows = RowOps(self._client, table, DEFAULT_BUCKETS, ports.clock)

    async def invoke(self, op: Op) -> Op:
        """Carry the operation out; the completion tells the value read, the node and its timestamp.

        Raises DefiniteError (`cas-mismatch` names the value found) and IndefiniteError.
        """
        if op.f not in ROW_OPERATIONS and op.f in FS:
            return await self._catalog.invoke(op)
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
        """Nothing is held open between operations."""

    async def _read(self, op: Op, mop: Mop) -> Op:
        if op.node is not None:
            at = self._address(op.node)
            served = await self._client.read_at(at, self._table, mop.cell)
            answered = msgspec.structs.replace(mop, value=_integer(served.value))
            return op.complete("ok", mops=(answered,), served_ts=served.timestamp)
        reply, node = await self._client.read(self._table, mop.cell, op.requested_ts)
        answered = msgspec.structs.replace(mop, value=_integer(reply.value))
        return op.complete("ok", mops=(answered,), node=node_of(node), served_ts=reply.timestamp)

    async def _change(self, op: Op, mop: Mop) -> Op:
        if mop.f == "w":
            reply, node = await self._client.write(self._table, mop.cell, mop.value)
        else:
            reply, node = await self._client.compare_and_set(self._table, mop.cell, mop.expected, mop.value)
        _require_applied(mop, reply)
        return op.complete("ok", node=node_of(node), served_ts=reply.timestamp)


def _integer(value: Value) -> int | None:
    """A register's value as histories hold it; raises HarnessError for what no operation wrote."""
    if value is None or type(value) is int:
        return value
    raise HarnessError(f"a register held {value!r}, which no operation wrote")


def _require_applied(mop: Mop, reply: Done) -> None:
    if not reply.applied:
        raise DefiniteError("cas-mismatch", f"expected {mop.expected}, found {reply.found!r}")


async def create_registers(client: ClusterClient, workload: str, options: Mapping[str, Any]) -> None:
    """Create what a workload needs: one table of registers, or for `catalog` of typed rows, with `options["buckets"]`
    tablets (default 3)."""
    if workload not in REGISTER_WORKLOADS:
        raise UserError(f"The reference cluster has no tables for the workload {workload!r}.")
    buckets = int(options.get("buckets", DEFAULT_BUCKETS))
    columns = ROW_COLUMNS if workload == ROWS_WORKLOAD else REGISTER_COLUMNS
    await create_for_certain(client, REGISTER_TABLE, columns, buckets, REPLICATION_FACTOR)


async def create_for_certain(
    client: ClusterClient, name: str, columns: Sequence[Column], buckets: int, replicas: int, design: str = "raft"
) -> None:
    """Create a workload's table, which nobody else creates: after an unknown outcome it is asked for again, and found.

    Raises what `ClusterClient.create_table` does; IndefiniteError after `CREATIONS` unknown outcomes.
    """
    for attempt in range(1, CREATIONS + 1):
        try:
            await client.create_table(name, columns, buckets, replicas, design)
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
    return NodeStatus(node_of(reply.node_id), reply.role, reply.incarnation, groups, reply.wall_ns, details)
