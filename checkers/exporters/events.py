"""The rows of a history as Jepsen's events, one EDN map a line, in their total order.

As in Jepsen, an invocation has the value that was asked for (nil for reads), its completion what was found; a nemesis
has the process `:nemesis` and all its events the type `:info`. What else the table has of an operation stands in the
last of its events. Memory is bounded by a piece of the table and the completions that are still to come.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from checkers.exporters.values import (
    MopRow,
    Scalars,
    Values,
    foreign_forms,
    form_of,
    is_keyword,
    is_vector,
    name,
    quoted,
)
from checkers.source import NO_CLOCK, Source
from harness.errors import UserError
from harness.history.columns import MOP, SCHEMA

_ROWS_PER_PIECE: Final = 1 << 12
_LAST_NEMESIS: Final = -999_999_999
"""The importer takes no number of more digits for a nemesis."""

_WORDS: Final = (
    *("clock", "phase", "mode", "node", "request_id", "data_centre", "replication", "replicas"),
    *("region", "route"),
)
_NUMBERS: Final = (
    *("session", "txn", "bound", "page", "requested_ts", "served_ts", "write_ts"),
    *("min_ts", "latest_ts", "closed_ts", "unblocked_ts", "blocked_ns"),
)
_FOREVER: Final = 2**63

Row = dict[str, Any]


@dataclass(slots=True)
class Counts:
    """How much was written."""

    operations: int = 0
    events: int = 0


def event_lines(source: Source, counts: Counts) -> Iterator[str]:
    """The lines of the whole history, without their ends; raises UserError for what Jepsen's histories can't say."""
    writer = _Lines(source)
    later: list[tuple[int, str]] = []
    for row in _rows(source):
        while later and later[0][0] < row["invoke_index"]:
            counts.events += 1
            yield heapq.heappop(later)[1]
        invocation, completion = writer.of(row)
        counts.operations += 1
        counts.events += 1
        yield invocation
        if completion is not None:
            heapq.heappush(later, (row["complete_index"], completion))
    counts.events += len(later)
    yield from (line for _, line in sorted(later))


def _rows(source: Source) -> Iterator[Row]:
    """The table's rows with the columns that say something."""
    for batch in source.batches(SCHEMA.names):
        for begin in range(0, batch.num_rows, _ROWS_PER_PIECE):
            piece = batch.slice(begin, _ROWS_PER_PIECE)
            telling = [field.name for field in SCHEMA if piece.column(field.name).null_count < piece.num_rows]
            columns = [
                _mops(piece.column(name)) if name == "mops" else piece.column(name).to_pylist() for name in telling
            ]
            for values in zip(*columns, strict=True):
                yield dict(zip(telling, values, strict=True))


def _mops(lists: pa.ListArray) -> list[list[MopRow] | None]:
    flat = dict(zip((field.name for field in MOP), pc.list_flatten(lists).flatten(), strict=True))
    mops = list(map(MopRow, *(flat[name].to_pylist() for name in MopRow._fields)))
    found: list[list[MopRow] | None] = []
    place = 0
    for length in pc.list_value_length(lists).to_pylist():
        found.append(None if length is None else mops[place : place + length])
        place += length or 0
    return found


class _Lines:
    """Turns rows into lines."""

    def __init__(self, source: Source) -> None:
        self._path = source.path
        self._values = Values(form_of(source), Scalars(foreign_forms(source)), source.independent)
        self._busy_until: dict[int, int] = {}

    def of(self, row: Row) -> tuple[str, str | None]:
        """The lines of an operation's invocation and of its completion, None for one without."""
        process, f, type = row["process"], row["f"], row["type"]
        begun, ended = row["invoke_index"], row.get("complete_index")
        self._check(row, begun, ended)
        mops, plain = row.get("mops"), row.get("value")
        who = f":process {process}" if process >= 0 else f":process {_nemesis(process)}"
        what = f"{who}, :f {name(f)}"
        found = self._values.found(f, mops, plain)
        time = row["invoke_time"] if row.get("clock") != NO_CLOCK or row["invoke_time"] else None
        if process < 0:
            asked, invoke, type = (None if ended not in (None, begun) else found), "info", "info"
        else:
            asked, invoke = self._values.asked(f, mops, plain, type == "ok"), "invoke"
        head = f"{{:index {begun}{_time(time)}, :type :{invoke}, {what}{_held(asked)}"
        extras = _extras(row, time is None)
        if ended is None or ended == begun:
            return f"{head}{extras}}}", None
        time = row.get("complete_time")
        return f"{head}}}", f"{{:index {ended}{_time(time)}, :type :{type}, {what}{_held(found)}{extras}}}"

    def _check(self, row: Row, begun: int, ended: int | None) -> None:
        process = row["process"]
        if process < 0:
            if row.get("mops") is not None:
                raise self._refused(begun, f"an unsolicited event ({row['f']}) has micro-operations")
            if process < _LAST_NEMESIS:
                raise self._refused(begun, f"there is no nemesis {process}")
        elif ended == begun:
            raise self._refused(begun, f"process {process} completes what it has not invoked")
        elif self._busy_until.get(process, -1) >= begun:
            raise self._refused(begun, f"process {process} invokes while its last operation is open")
        elif not self._values.has_key(row.get("mops"), row.get("value")):
            raise self._refused(begun, f"{row['f']} has no key, while others have one")
        else:
            self._busy_until[process] = _FOREVER if ended is None else ended

    def _refused(self, index: int, reason: str) -> UserError:
        return UserError(
            f"{self._path} can't be exported: event {index}: {reason}, which Jepsen's histories can't say."
        )


def _nemesis(process: int) -> str:
    return ":nemesis" if process == -1 else f":nemesis{process}"


def _time(time: int | None) -> str:
    return "" if time is None else f", :time {time}"


def _held(value: str | None) -> str:
    return "" if value is None else f", :value {value}"


def _extras(row: Row, untimed: bool) -> str:
    """What stands behind the value: `, :node "n1", :error :timeout`."""
    parts = [f":{key.replace('_', '-')} {quoted(row[key])}" for key in _WORDS if row.get(key) is not None]
    if untimed:
        parts.remove(f":clock {quoted(NO_CLOCK)}")
    parts += [f":{key.replace('_', '-')} {row[key]}" for key in _NUMBERS if row.get(key) is not None]
    parts += _errors(row.get("error"), row.get("error_class"))
    return "".join(f", {part}" for part in parts)


def _errors(error: str | None, error_class: str | None) -> list[str]:
    """`:error-class` is left out where it is what the error says itself."""
    if error is None:
        return [] if error_class is None else [f":error-class {name(error_class)}"]
    bare = is_keyword(error) or is_vector(error)
    said = error[1:] if is_keyword(error) else None if bare else error
    parts = [f":error {error if bare else quoted(error)}"]
    if error_class is None or error_class != said:
        parts.append(f":error-class {'nil' if error_class is None else name(error_class)}")
    return parts
