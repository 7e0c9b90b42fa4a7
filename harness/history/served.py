"""The times of a load's client operations as flat columns, read from a saved history in batches."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from harness.errors import UserError
from harness.history.ops import Op
from harness.history.saved import open_saved
from harness.history.table import batches

Times = npt.NDArray[np.int64]

_COLUMNS = ["process", "phase", "type", "invoke_time", "complete_time", "mops.list.element.partition"]


@dataclass(frozen=True, slots=True)
class Served:
    """The client operations of a run's load: when each was invoked and completed (ns; one that never did: at the end),
    whether it succeeded, and the group of its key."""

    invoked_ns: Times
    completed_ns: Times
    ok: npt.NDArray[np.bool_]
    group: Times


def served_in_parquet(path: Path, phase: str, groups: int, end_ns: int) -> Served:
    """The client operations of a phase; those that never completed count as completed at `end_ns`. Raises UserError."""
    try:
        return _served(open_saved(path).batches(_COLUMNS, texts=()), phase, groups, end_ns)
    except (OSError, ValueError, KeyError) as error:
        raise UserError(f"The history {path} can't be read: {error}.") from error


def served_in_events(events: Iterable[Op], phase: str, groups: int, end_ns: int) -> Served:
    """The same of a history given as events."""
    return _served(batches(events), phase, groups, end_ns)


def _served(found: Iterable[pa.RecordBatch], phase: str, groups: int, end_ns: int) -> Served:
    parts = [_part(batch, phase, groups, end_ns) for batch in found]
    if not parts:
        empty = np.zeros(0, dtype=np.int64)
        return Served(empty, empty, np.zeros(0, dtype=bool), empty)
    return Served(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def _part(batch: pa.RecordBatch, phase: str, groups: int, end_ns: int) -> tuple[Times, Times, Times, Times]:
    wanted = pc.and_(pc.greater_equal(batch["process"], 0), pc.fill_null(pc.equal(batch["phase"], phase), False))
    rows = batch.filter(wanted)
    return (
        _numbers(rows["invoke_time"]),
        _numbers(pc.fill_null(rows["complete_time"], end_ns)),
        np.asarray(pc.equal(rows["type"], "ok").to_numpy(zero_copy_only=False), dtype=bool),
        _first_partition(rows["mops"]) % groups,
    )


def _numbers(column: pa.Array) -> Times:
    return np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.int64)


def _first_partition(mops: pa.Array) -> Times:
    """That of each operation's first micro-operation, 0 for none."""
    lengths = _numbers(pc.fill_null(pc.list_value_length(mops), 0))
    flat = _numbers(pc.struct_field(pc.list_flatten(mops), "partition"))
    starts = np.cumsum(lengths) - lengths
    found = np.zeros(len(lengths), dtype=np.int64)
    found[lengths > 0] = flat[starts[lengths > 0]]
    return found
