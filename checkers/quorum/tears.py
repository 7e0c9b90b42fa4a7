"""A torn write, cell by cell: which pages showed it where, and what may have torn it; for words and for a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from checkers.kernels.quorum_pages import in_bounds
from checkers.kernels.quorum_table import ABSENT, QuorumTable, cell_key
from checkers.words import Speaker

MOST_CELLS: Final = 24
MOST_READS: Final = 5
"""So many pages before the torn one are told of: the first that shows the write, and the last ones."""

SHOWN, OLDER, NEWER, NOTHING, UNASKED = "the write", "older", "newer", "nothing", "not asked"
"""What a page shows of a cell of the write."""


class Seen(NamedTuple):
    """What one read showed of the write's cells, in their order."""

    read: int
    marks: tuple[str, ...]


def seen_parts(table: QuorumTable, torn: int, writer: int) -> dict[str, Any]:
    """Facts of a finding: the cells that the mutation touched, and what pages up to the torn one showed of them."""
    mutations, pages = table.mutations, table.pages
    cells = mutations.cell[int(mutations.begin[writer]) : int(mutations.begin[writer + 1])][:MOST_CELLS].tolist()
    found = []
    mine = np.flatnonzero(pages.group[: torn + 1] == pages.group[torn])
    for page in mine.tolist():
        # Of those that ended when the torn one had, nobody can say which saw the replicas first.
        if not mutations.invoke[writer] < pages.complete[page] <= pages.complete[torn]:
            continue
        marks = _marks(table, page, writer, cells)
        if any(mark != UNASKED for mark in marks):
            found.append(Seen(int(pages.invoke[page]), marks))
    first = next(number for number, seen in enumerate(found) if SHOWN in seen.marks)
    kept = dict.fromkeys((first, *range(max(0, len(found) - MOST_READS), len(found))))
    return {
        "cells": [list(cell_key(table.cells, cell)) for cell in cells],
        "reads": [[found[number].read, list(found[number].marks)] for number in kept],
    }


def _marks(table: QuorumTable, page: int, writer: int, cells: Sequence[int]) -> tuple[str, ...]:
    pages, mutations = table.pages, table.mutations
    places = range(int(pages.begin[page]), int(pages.begin[page + 1]))
    shown = {int(pages.cell[place]): int(pages.shown[place]) for place in places}
    return tuple([_mark(mutations.timestamp, shown.get(cell), writer, table, page, cell) for cell in cells])


def _mark(timestamps: Any, shown: int | None, writer: int, table: QuorumTable, page: int, cell: int) -> str:
    if shown is None:
        return NOTHING if in_bounds(table.pages, page, cell) else UNASKED
    if shown == writer:
        return SHOWN
    if shown < 0:
        return NOTHING if shown == ABSENT else NEWER
    return NEWER if timestamps[shown] > timestamps[writer] else OLDER


# ---- words ----


def why_torn(speaker: Speaker, facts: Mapping[str, Any]) -> str:
    """A sentence on how legacy replication comes to tear it so, where what was read before, or a limit, explains it."""
    cells = [tuple(cell) for cell in facts["cells"]]
    here, there = (cells.index(tuple(facts[name]["cell"])) for name in ("shown", "lacking"))
    *before, (torn, _) = facts["reads"]
    for read, marks in before:
        common = _replicas(speaker, read) & _replicas(speaker, torn)
        if marks[here] == SHOWN and marks[there] == UNASKED and common:
            reader = f"process {speaker.rows[read]['process']}'s read{_asked(speaker, read)}"
            return (
                f" Before, {reader} had shown that part of the write and had not asked for the other: repair of only "
                f"what was read leaves {' and '.join(sorted(common))} with a part of it."
            )
    if _bounds(speaker, torn)[2] is not None:
        return (
            " The page has a limit: a second answer of one replica, to a question for more rows, may show a write that "
            "its first answer did not."
        )
    return ""


def picture(speaker: Speaker, writer: int, facts: Mapping[str, Any]) -> dict[str, Any]:
    """What the report draws (`Anomaly.details`): a line for the write and for each read, a column for each cell."""
    columns = [_column(speaker, cell) for cell in facts["cells"]]
    lines = [
        {"op": speaker.rows[writer]["op"], "what": _line(speaker, writer, "write"), "marks": [SHOWN] * len(columns)}
    ]
    for read, marks in facts["reads"]:
        asked = f"read{_asked(speaker, read)}"
        lines.append({"op": speaker.rows[read]["op"], "what": _line(speaker, read, asked), "marks": list(marks)})
    return {"tear": {"columns": columns, "lines": lines}}


def _line(speaker: Speaker, index: int, what: str) -> str:
    row = speaker.rows[index]
    outcome = "" if row["type"] == "ok" else ", outcome unknown"
    replicas = f", {row['replicas'].replace(',', ' ')} answered" if row.get("replicas") else ""
    return f"{speaker.when(index, 'invoke')}: process {row['process']}'s {what}{replicas}{outcome}"


def _column(speaker: Speaker, cell: Sequence[int]) -> str:
    line = f"row {speaker.source.shown(cell[2])}"
    return line if cell[3] == 0 else f"{line}, column {cell[3]}"


def _replicas(speaker: Speaker, index: int) -> set[str]:
    return set((speaker.rows[index].get("replicas") or "").split(",")) - {""}


def _bounds(speaker: Speaker, index: int) -> tuple[Any, Any, Any]:
    """The first and last row that a read asked for, and its limit."""
    page = next((mop for mop in speaker.rows[index]["mops"] or () if mop["f"] == "page"), None)
    first, last, limit = ((*page["values"], None, None, None) if page and page["values"] else (None,) * 3)[:3]
    return first, last, limit


def _asked(speaker: Speaker, index: int) -> str:
    """` of rows 2 to 5, limit 3,`, as far as there are any."""
    first, last, limit = _bounds(speaker, index)
    shown = ["…" if row is None else speaker.source.shown(row) for row in (first, last)]
    rows = f" of row {shown[0]}" if first == last else f" of rows {shown[0]} to {shown[1]}"
    return ("" if first is None and last is None else rows) + ("" if limit is None else f", limit {limit},")
