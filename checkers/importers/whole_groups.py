"""What of a damaged history can still be judged: the row groups before the first that is damaged.

Row groups have checksums of their own (`harness.history.seal`), so it is known which are whole. Those behind a damaged
one are left out all the same: what they show may come of operations that are lost, so nothing that they show refutes.
What is left is the history up to an event, as a journal is that ended early: operations that complete behind that event
have not completed, and what their completions told is not known.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from checkers.importers.detect import open_source
from checkers.importers.integrity import COLUMNS, EventOrder
from checkers.source import Source
from harness.errors import UserError
from harness.history.columns import MOST_EVENTS, SCHEMA, TIMED_COLUMNS, Purpose
from harness.history.saved import HistoryReader, dictionary_of, is_history_folder, open_saved, open_unsealed
from harness.history.seal import Seal, check_seal, whole_groups

_ANSWERS: Final = {"r": ("value", "values"), "dequeue": ("value",)}
"""What an operation's completion tells, by micro-operation; all else stands in its invocation."""

_OF_COMPLETION: Final = (
    *("complete_index", "complete_time", "served_ts", "node", "clock", "request_id", "error_class", "error"),
    "replicas",
    *TIMED_COLUMNS,
)


def open_what_is_whole(place: Path) -> tuple[Source, Purpose] | None:
    """What can be judged of a damaged history, and what it was made for; None of one that is not damaged.

    The source is `cut_short`, with a sentence on what was left out. Raises UserError where nothing can be judged.
    """
    if _is_whole(place):
        return None
    if is_history_folder(place):
        reader = open_saved(place)
        whole = list(_of_parts(reader))
    else:
        whole = _of_file(place, None)  # before Parquet's reader sees a footer that may be damaged
        reader = open_unsealed(place)
    first = len(list(takewhile(bool, whole)))
    if not first:
        raise UserError(f"{place} is damaged: nothing before its first damaged row group can be judged.")
    table = pa.Table.from_batches(list(reader.batches(SCHEMA.names, range(first), texts=())))
    ends = _last_event(reader, whole, first, table)
    table = _cut(table, ends)
    EventOrder(place, table.num_rows).check(table.select(COLUMNS).to_batches())
    told, dictionary = _told(place, whole, table.num_rows, ends), dictionary_of(reader.manifest)
    source = Source(place, "parquet", table.num_rows, table=table, dictionary=dictionary, cut_short=told)
    return source, reader.manifest.purpose


def _is_whole(place: Path) -> bool:
    """A file without a seal, which may have lost it, is not."""
    try:
        return open_source(place).saved is not None if is_history_folder(place) else check_seal(place)
    except UserError:
        return False
    except OSError as error:
        raise UserError(f"{place} can't be read: {error.strerror}.") from error


def _of_parts(reader: HistoryReader) -> Iterator[bool]:
    """Of each row group of a history in parts, whether it is whole."""
    for part in reader.manifest.parts:
        place = reader.place_of_part(part)
        try:
            groups = _of_file(place, part.seal) if isinstance(place, Path) else []
        except UserError:
            groups = []
        yield from groups if len(groups) == part.groups else [False] * part.groups


def _of_file(place: Path, seal: Seal | None) -> list[bool]:
    try:
        with place.open("rb") as file:
            found = whole_groups(file, seal)
    except OSError as error:
        raise UserError(f"{place} can't be read: {error.strerror}.") from error
    if found is None:
        raise UserError(
            f"{place} is damaged: which of its row groups are whole is told by its end, which is damaged too (or was "
            "written by an older assay)."
        )
    return found


def _last_event(reader: HistoryReader, whole: Sequence[bool], first: int, table: pa.Table) -> int:
    """Up to which event the operations before the first damaged row group are all that there was."""
    following = reader.first_of(first) if first < len(whole) else MOST_EVENTS
    return table.column("invoke_index")[-1].as_py() if following is None else following - 1


def _cut(table: pa.Table, last: int) -> pa.Table:
    """The operations as they were when the last of these events had happened."""
    late = pc.fill_null(pc.greater(table.column("complete_index"), last), False)
    reopened = pa.Table.from_pylist([_reopened(row) for row in table.filter(late).to_pylist()], schema=table.schema)
    return pa.concat_tables([table.filter(pc.invert(late)), reopened]).sort_by("invoke_index")


def _reopened(row: dict[str, Any]) -> dict[str, Any]:
    """An operation whose completion is not known."""
    unknown = dict.fromkeys(_OF_COMPLETION)
    mops = None if row["mops"] is None else [_asked(mop) for mop in row["mops"]]
    return {**row, **unknown, "type": "info", "mops": mops}


def _asked(mop: dict[str, Any]) -> dict[str, Any]:
    if mop["f"] == "page":
        return {**mop, "values": [*(mop["values"] or ())[:3], None]}
    return {**mop, **dict.fromkeys(_ANSWERS.get(mop["f"], ()))}


def _told(place: Path, whole: Sequence[bool], rows: int, last: int) -> str:
    damaged = [number for number, one in enumerate(whole) if not one]
    first = damaged[0] if damaged else len(whole)
    behind = [number for number, one in enumerate(whole) if one and number >= first]
    judged = f"{place} is damaged: {rows} operations in {_groups(range(first))} of {len(whole)} were judged"
    if not damaged:
        return f"{judged}, which is all of them, but the seal of the whole is damaged."
    out = f"{_groups(damaged)}, damaged"
    if behind:
        out += f", and {_groups(behind)}, whole but behind that"
    return f"{judged}, up to event {last}; left out: {out}."


def _groups(numbers: Sequence[int]) -> str:
    """Row groups by number, ranges as such."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and ranges[-1][-1] == number - 1:
            ranges[-1][1:] = [number]
        else:
            ranges.append([number])
    words = ", ".join(" to ".join(map(str, each)) for each in ranges)
    return f"row group{'s' if len(numbers) > 1 else ''} {words}"
