"""Changes beside those of the workload (`harness.protocols.Flooding`): a tablet's log grows, and nobody sees them.

Registers are written at keys far above those of any workload. Of typed rows, which scans tell, rows that are not there
are erased: that is evaluated, replicated and remembered like any change, and leaves no row behind.
"""

from __future__ import annotations

from collections.abc import Sequence

from cluster.client.client import MakeChange
from cluster.deploy.row_ops import COLUMNS
from cluster.store.schema import encode_key
from cluster.wire.messages import Request, RequestId, TabletLocation, WriteCell
from cluster.wire.rows import ChangeRow

FLOODED_KEYS = 1 << 40
"""Partition keys, and numbers of rows, from here on belong to no workload."""


def register_writes(tablet: TabletLocation, count: int) -> Sequence[MakeChange]:
    """So many writes of as many registers of the tablet."""
    bucket, buckets = tablet.partition.bucket, tablet.partition.buckets
    return [_write((FLOODED_KEYS + i) * buckets + bucket) for i in range(count)]


def row_erasures(table_id: str, tablet: TabletLocation, count: int) -> Sequence[MakeChange]:
    """So many erasures of as many rows that the tablet does not have."""
    keys = (encode_key(COLUMNS, {"row": FLOODED_KEYS + i, "salt": 0}) for i in range(count))
    return [_erasure(table_id, tablet.partition.bucket, key) for key in keys]


def _write(key: int) -> MakeChange:
    def make(request_id: RequestId, tablet_id: str, requested: int | None) -> Request:
        return WriteCell(request_id, tablet_id, key, 0, 0, 0, requested)

    return make


def _erasure(table_id: str, bucket: int, key: bytes) -> MakeChange:
    def make(request_id: RequestId, tablet_id: str, requested: int | None) -> Request:
        return ChangeRow(request_id, tablet_id, table_id, bucket, key, "delete", (), 0, requested)

    return make
