"""The history table: one row per operation, as `history.parquet` stores it and checkers read it (`runs.md`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

import msgspec
import pyarrow as pa

SCHEMA_VERSION = 1
"""Stored in the Parquet file's metadata under `assay.history.version`."""

VERSION_KEY = b"assay.history.version"

DICTIONARY_KEY = b"assay.history.dictionary"
"""Metadata key of the interned foreign values: a JSON array, the value with id `-(i + 1) - 2**62` is element i."""

PURPOSE_KEY = b"assay.history.purpose"
"""Metadata key of a history that knows its `Purpose`, which is JSON there."""


ModelSettings: TypeAlias = Mapping[str, Mapping[str, str]]
"""How models are set, by their names: what `-o KEY=VALUE` sets, and `consistency`."""


class Purpose(msgspec.Struct, frozen=True):
    """What a history was made for: the workload that asked for its operations, and the models to judge it by. Both are
    names, to be looked up in our own tables and nowhere else; empty where nobody said. `settings` of a model hold where
    who judges sets nothing else."""

    workload: str = ""
    models: tuple[str, ...] = ()
    settings: ModelSettings = {}


NO_PURPOSE: Final = Purpose()

FOREIGN_BASE = -(2**62)
"""Foreign values (strings, keywords, …) are interned as `FOREIGN_BASE - 1 - i`, i their place in the dictionary."""

MOST_EVENTS = 2**48
"""Indices of events are below this, so that checkers can do sums with them."""

MOP = pa.struct(
    [
        pa.field("f", pa.string(), nullable=False),
        pa.field("table", pa.int32(), nullable=False),
        pa.field("partition", pa.int64(), nullable=False),
        pa.field("row", pa.int64(), nullable=False),
        pa.field("column", pa.int32(), nullable=False),
        pa.field("value", pa.int64()),
        pa.field("expected", pa.int64()),
        pa.field("values", pa.list_(pa.int64())),
    ]
)

SCHEMA = pa.schema(
    [
        pa.field("op", pa.int64(), nullable=False),
        pa.field("invoke_index", pa.int64(), nullable=False),
        pa.field("complete_index", pa.int64()),
        pa.field("invoke_time", pa.int64(), nullable=False),
        pa.field("complete_time", pa.int64()),
        pa.field("type", pa.string(), nullable=False),
        pa.field("process", pa.int64(), nullable=False),
        pa.field("session", pa.int64()),
        pa.field("phase", pa.string()),
        pa.field("f", pa.string(), nullable=False),
        pa.field("txn", pa.int64()),
        pa.field("mops", pa.list_(MOP)),
        pa.field("mode", pa.string()),
        pa.field("bound", pa.int64()),
        pa.field("page", pa.int64()),
        pa.field("requested_ts", pa.int64()),
        pa.field("served_ts", pa.int64()),
        pa.field("node", pa.string()),
        pa.field("clock", pa.string()),
        pa.field("request_id", pa.string()),
        pa.field("error_class", pa.string()),
        pa.field("error", pa.string()),
        pa.field("value", pa.string()),
        pa.field("write_ts", pa.int64()),
        pa.field("data_centre", pa.string()),
        pa.field("replication", pa.string()),
        pa.field("replicas", pa.string()),
        pa.field("region", pa.string()),
        pa.field("route", pa.string()),
        pa.field("min_ts", pa.int64()),
        pa.field("latest_ts", pa.int64()),
        pa.field("closed_ts", pa.int64()),
        pa.field("unblocked_ts", pa.int64()),
        pa.field("blocked_ns", pa.int64()),
    ]
)
"""`type` is `ok`, `fail` or `info` (an operation that never completed is `info` with null completion). `mops` holds the
completion's micro-operations where there is one (so reads carry what they saw), else the invocation's. `value` is JSON
for what does not fit. Rows are in order of `invoke_index`; `op` counts them from 0. Parquet writes low-cardinality
strings with dictionary encoding. `write_ts` is the invocation's."""

QUORUM_COLUMNS: Final = frozenset({"write_ts", "data_centre", "replication", "replicas"})
"""Columns that operations on quorum tables alone state."""

TIMED_COLUMNS: Final = ("region", "route", "min_ts", "latest_ts", "closed_ts", "unblocked_ts", "blocked_ns")
"""What histories say of when and where reads are served that need not be of now."""

LATER_COLUMNS = QUORUM_COLUMNS.union(TIMED_COLUMNS)
"""Columns that files of the same version may lack; they are null then."""
