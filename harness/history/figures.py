"""How often something happened in a history that a workload is about, as named counts; read in bounded memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from harness.errors import UserError
from harness.history.columns import SCHEMA
from harness.history.ops import Op
from harness.history.saved import open_saved
from harness.history.table import batches

Flags: TypeAlias = pa.Array
"""By operation that succeeded whether it counts; null does not."""

NEAR_NS: Final = 1_000_000_000
_AFTER: Final = '{"after":'
_SEEN: Final = r'^\{"seen":(?P<seen>\d+)'

_COLUMNS: Final = (
    *("process", "phase", "type", "f", "mode", "route", "requested_ts", "served_ts"),
    *("min_ts", "closed_ts", "unblocked_ts", "blocked_ns", "value"),
    *("node", "invoke_time", "complete_time"),
)


def _of_any_replica(rows: pa.RecordBatch) -> Flags:
    return pc.and_(pc.is_valid(rows["mode"]), pc.is_valid(rows["route"]))


def _off_leaseholder(rows: pa.RecordBatch) -> Flags:
    away = pc.or_(pc.starts_with(rows["route"], "follower"), _strong(rows))
    return pc.and_(_of_any_replica(rows), away)


def _by_side_transport(rows: pa.RecordBatch) -> Flags:
    known = pc.or_(pc.ends_with(rows["route"], "copied"), pc.ends_with(rows["route"], "side-transport"))
    return pc.and_(_off_leaseholder(rows), known)


def _near_frontier(rows: pa.RecordBatch) -> Flags:
    time = pc.coalesce(rows["requested_ts"], rows["served_ts"])
    return pc.and_(_of_any_replica(rows), pc.less_equal(pc.subtract(rows["closed_ts"], time), NEAR_NS))


def _scans_above(rows: pa.RecordBatch) -> Flags:
    return pc.and_(pc.equal(rows["f"], "scan"), pc.greater(rows["served_ts"], rows["min_ts"]))


def _strong(rows: pa.RecordBatch) -> Flags:
    return pc.starts_with(rows["route"], "strong-anywhere")


def _waited(rows: pa.RecordBatch) -> Flags:
    return pc.and_(_of_any_replica(rows), pc.greater(rows["blocked_ns"], 0))


def _waited_for_intents(rows: pa.RecordBatch) -> Flags:
    return pc.and_(_waited(rows), pc.invert(_strong(rows)))


def _waited_for_log(rows: pa.RecordBatch) -> Flags:
    return pc.and_(_waited(rows), _strong(rows))


def _held_back(rows: pa.RecordBatch) -> Flags:
    within = pc.is_in(rows["mode"], pa.array(["staleness", "nearest", "minimum"]))
    return pc.and_(pc.and_(_of_any_replica(rows), within), pc.less(rows["unblocked_ts"], rows["closed_ts"]))


def _pushed(rows: pa.RecordBatch) -> Flags:
    return pc.and_(pc.is_null(rows["route"]), pc.greater(rows["served_ts"], rows["requested_ts"]))


def _pushed_by_closed(rows: pa.RecordBatch) -> Flags:
    return pc.and_(_pushed(rows), pc.less_equal(rows["requested_ts"], rows["closed_ts"]))


def _out_of_order(rows: pa.RecordBatch) -> Flags:
    seen = pc.struct_field(pc.extract_regex(rows["value"], _SEEN), "seen").cast(pa.int64())
    return pc.and_(pc.is_null(rows["route"]), pc.less(rows["served_ts"], seen))


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
        "reads that waited for what was open": _waited_for_intents,
        "changes that were pushed to a later time": _pushed,
        "strong reads that waited for the log": _waited_for_log,
        "reads within a bound that what was open held back": _held_back,
        "changes that were pushed above what was known to be closed": _pushed_by_closed,
        "changes at an earlier time than one before them": _out_of_order,
        "strong reads of what is closed ahead": _strong_anywhere,
        "strong reads off the leaseholder": _strong_elsewhere,
        "strong reads that moved to a later time": _moved,
        "changes that were kept back until their time": _kept_back,
    }
)
"""What is known to be closed as a change is asked for is its `closed_ts`; `{"seen": …}` in its value is the highest
time at which a change of its partition had been committed by then."""


def reads_cut_off(kind: str) -> str:
    """The figure of reads that nodes served which faults of a kind had cut off then."""
    return f"reads off the leaseholder by nodes under {kind}"


Spans: TypeAlias = Sequence[tuple[int, int]]
"""From when to when, ns since the run's start."""


def _cut_off(rows: pa.RecordBatch, spans: Mapping[str, Spans]) -> int:
    """Reads that nodes served within these spans of theirs, from their beginning to their end."""
    away, count = _off_leaseholder(rows), 0
    for node, (begin, end) in [(node, span) for node, known in spans.items() for span in known]:
        within = pc.and_(pc.greater_equal(rows["invoke_time"], begin), pc.less(rows["complete_time"], end))
        count += pc.sum(pc.and_(pc.and_(away, pc.equal(rows["node"], node)), within)).as_py() or 0
    return count


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


def figures_of(ops: Sequence[Op]) -> Counter[str]:
    """The figures of completions that succeeded; all but those of faults."""
    return _counts(_completed(ops))


def cut_off_of(served: Sequence[tuple[int, Op]], spans: Mapping[str, Spans]) -> int:
    """The figure `reads_cut_off` of completions that succeeded, each with when it was begun."""
    begun = [begun_ns for begun_ns, _ in served]
    return _cut_off(_completed([op for _, op in served], invoke_time=begun), spans)


def _completed(ops: Sequence[Op], **more: list[Any]) -> pa.RecordBatch:
    known = [name for name in _COLUMNS if name in Op.__struct_fields__ and name != "value"]
    columns: dict[str, list[Any]] = {name: [getattr(op, name) for op in ops] for name in known} | more
    columns["value"] = [None if op.value is None else msgspec.json.encode(op.value).decode() for op in ops]
    columns["complete_time"] = [op.time for op in ops]
    return pa.RecordBatch.from_pydict(columns, schema=pa.schema([SCHEMA.field(name) for name in columns]))


def _counts(rows: pa.RecordBatch) -> Counter[str]:
    counts = Counter({name: pc.sum(look(rows)).as_py() or 0 for name, look in FIGURES.items()})
    counts.update(_pairs(rows))
    return counts


def figures_in_parquet(path: Path, phase: str, cut_off: Mapping[str, Mapping[str, Spans]] = {}) -> dict[str, int]:
    """The figures of a phase of a saved history; raises UserError if it can't be read.

    `cut_off` says by kind of fault when each node was cut off.
    """
    try:
        return _figures(open_saved(path).batches(_COLUMNS, texts=()), phase, cut_off)
    except (OSError, ValueError, KeyError) as error:
        raise UserError(f"The history {path} can't be read: {error}.") from error


def figures_in_events(
    events: Iterable[Op], phase: str, cut_off: Mapping[str, Mapping[str, Spans]] = {}
) -> dict[str, int]:
    """The figures of a phase of a history given as events."""
    return _figures(batches(events), phase, cut_off)


def _figures(found: Iterable[pa.RecordBatch], phase: str, cut_off: Mapping[str, Mapping[str, Spans]]) -> dict[str, int]:
    counts: Counter[str] = Counter(dict.fromkeys((*FIGURES, *map(reads_cut_off, cut_off)), 0))
    for batch in found:
        clients = pc.and_(pc.greater_equal(batch["process"], 0), pc.equal(batch["type"], "ok"))
        rows = batch.filter(pc.and_(clients, pc.fill_null(pc.equal(batch["phase"], phase), False)))
        counts.update(_counts(rows))
        counts.update({reads_cut_off(kind): _cut_off(rows, spans) for kind, spans in cut_off.items()})
    return dict(counts)
