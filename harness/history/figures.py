"""How often something happened in a history that a workload is about, as named counts; read in bounded memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final, TypeAlias

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from harness.errors import UserError
from harness.history.ops import Op
from harness.history.saved import open_saved
from harness.history.table import batches

Flags: TypeAlias = pa.Array
"""By operation that succeeded whether it counts; null does not."""

NEAR_NS: Final = 1_000_000_000
_AFTER: Final = '{"after":'

_COLUMNS: Final = (
    *("process", "phase", "type", "f", "mode", "route", "requested_ts", "served_ts"),
    *("min_ts", "closed_ts", "blocked_ns", "value"),
)


def _of_any_replica(rows: pa.RecordBatch) -> Flags:
    return pc.and_(pc.is_valid(rows["mode"]), pc.is_valid(rows["route"]))


def _off_leaseholder(rows: pa.RecordBatch) -> Flags:
    away = pc.or_(pc.starts_with(rows["route"], "follower"), pc.starts_with(rows["route"], "strong-anywhere"))
    return pc.and_(_of_any_replica(rows), away)


def _by_side_transport(rows: pa.RecordBatch) -> Flags:
    known = pc.or_(pc.ends_with(rows["route"], "copied"), pc.ends_with(rows["route"], "side-transport"))
    return pc.and_(_off_leaseholder(rows), known)


def _near_frontier(rows: pa.RecordBatch) -> Flags:
    time = pc.coalesce(rows["requested_ts"], rows["served_ts"])
    return pc.and_(_of_any_replica(rows), pc.less_equal(pc.subtract(rows["closed_ts"], time), NEAR_NS))


def _scans_above(rows: pa.RecordBatch) -> Flags:
    return pc.and_(pc.equal(rows["f"], "scan"), pc.greater(rows["served_ts"], rows["min_ts"]))


def _waited(rows: pa.RecordBatch) -> Flags:
    return pc.and_(_of_any_replica(rows), pc.greater(rows["blocked_ns"], 0))


def _pushed(rows: pa.RecordBatch) -> Flags:
    return pc.and_(pc.is_null(rows["route"]), pc.greater(rows["served_ts"], rows["requested_ts"]))


def _strong_anywhere(rows: pa.RecordBatch) -> Flags:
    return pc.and_(pc.equal(rows["mode"], "global"), pc.is_valid(rows["requested_ts"]))


def _strong_elsewhere(rows: pa.RecordBatch) -> Flags:
    return pc.and_(_strong_anywhere(rows), pc.starts_with(rows["route"], "global by"))


def _moved(rows: pa.RecordBatch) -> Flags:
    by_closed = pc.starts_with(rows["route"], "global")
    return pc.and_(_strong_anywhere(rows), pc.and_(by_closed, pc.greater(rows["served_ts"], rows["requested_ts"])))


def _kept_back(rows: pa.RecordBatch) -> Flags:
    return pc.and_(pc.is_null(rows["route"]), pc.greater(rows["blocked_ns"], 0))


FIGURES: Final[Mapping[str, Callable[[pa.RecordBatch], Flags]]] = MappingProxyType(
    {
        "reads that any replica may serve": _of_any_replica,
        "reads off the leaseholder": _off_leaseholder,
        "reads that the side transport made possible": _by_side_transport,
        "reads within 1 s of what was closed": _near_frontier,
        "scans of several ranges at a time above the least": _scans_above,
        "reads that waited for what was open": _waited,
        "changes that were pushed to a later time": _pushed,
        "strong reads of what is closed ahead": _strong_anywhere,
        "strong reads off the leaseholder": _strong_elsewhere,
        "strong reads that moved to a later time": _moved,
        "changes that were kept back until their time": _kept_back,
    }
)


def _pairs(rows: pa.RecordBatch) -> dict[str, int]:
    """How often something was done in a mode right after something in another, as `value` says (`{"after": …}`)."""
    said = rows.filter(pc.fill_null(pc.starts_with(rows["value"], _AFTER), False))
    table = pa.table({"value": said["value"], "f": said["f"], "mode": pc.fill_null(said["mode"], "strong")})
    groups = table.group_by(["value", "f", "mode"]).aggregate([([], "count_all")]).to_pylist()
    counts: Counter[str] = Counter()
    for group in groups:
        later = "change" if group["f"] == "write" else group["mode"]
        counts[f"{later} after {msgspec.json.decode(group['value'])['after']}"] += group["count_all"]
    return counts


def figures_in_parquet(path: Path, phase: str) -> dict[str, int]:
    """The figures of a phase of a saved history; raises UserError if it can't be read."""
    try:
        return _figures(open_saved(path).batches(_COLUMNS, texts=()), phase)
    except (OSError, ValueError, KeyError) as error:
        raise UserError(f"The history {path} can't be read: {error}.") from error


def figures_in_events(events: Iterable[Op], phase: str) -> dict[str, int]:
    """The figures of a phase of a history given as events."""
    return _figures(batches(events), phase)


def _figures(found: Iterable[pa.RecordBatch], phase: str) -> dict[str, int]:
    counts: Counter[str] = Counter(dict.fromkeys(FIGURES, 0))
    for batch in found:
        clients = pc.and_(pc.greater_equal(batch["process"], 0), pc.equal(batch["type"], "ok"))
        rows = batch.filter(pc.and_(clients, pc.fill_null(pc.equal(batch["phase"], phase), False)))
        for name, look in FIGURES.items():
            counts[name] += pc.sum(look(rows)).as_py() or 0
        counts.update(_pairs(rows))
    return dict(counts)
