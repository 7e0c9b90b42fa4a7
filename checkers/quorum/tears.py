"""A torn write, cell by cell: which pages showed it where, and what may have torn it; for words and for a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from checkers.explain.speaker import Speaker
from checkers.quorum.pages import in_bounds
from checkers.quorum.table import ABSENT, QuorumTable, cell_key

MOST_CELLS: Final = 60
MOST_READS: Final = 5
"""So many pages before the torn one are told of: the first that shows the mutation, and the last ones."""

SHOWN, GONE, OLDER, NEWER = "the write", "gone", "older", "newer"
NOTHING, UNASKED = "nothing", "not asked"
"""What a page shows of a cell of the torn mutation; `gone` is a cell that it deleted and that is absent."""


class Seen(NamedTuple):
    """What one read showed of the mutation's cells, in their order."""

    read: int
    marks: tuple[str, ...]


class Tear(NamedTuple):
    """A mutation of which a page shows one cell (`seen`) and not another (`lacking`)."""

    mutation: int
    seen: int
    lacking: int


def torn_deletion(table: QuorumTable, page: int, writer: int, cell: int) -> Tear | None:
    """The deletion that would account for a cell being absent that a mutation wrote, had the page not shown something
    older in another cell that the deletion covers; None if there is none such."""
    deletions, mutations, pages = table.deletions, table.mutations, table.pages
    shown = _shown_by(table, page)
    for place in range(int(deletions.begin[cell]), int(deletions.begin[cell + 1])):
        m = int(deletions.mutation[place])
        began = mutations.invoke[m] < pages.complete[page]
        if not began or mutations.timestamp[m] <= mutations.timestamp[writer]:
            continue
        for other in mutations.cell[int(mutations.begin[m]) : int(mutations.begin[m + 1])].tolist():
            seen = shown.get(other, ABSENT)
            if seen >= 0 and mutations.timestamp[seen] < mutations.timestamp[m]:
                return Tear(m, cell, other)
    return None


def seen_parts(table: QuorumTable, torn: int, tear: Tear) -> dict[str, Any]:
    """Facts of a finding: the cells that the mutation touched, and what pages up to the torn one that covered one of
    the two cells showed of them."""
    mutations, pages = table.mutations, table.pages
    touches = range(int(mutations.begin[tear.mutation]), int(mutations.begin[tear.mutation + 1]))
    cells = mutations.cell[touches.start : touches.stop].tolist()
    here, there = cells.index(tear.seen), cells.index(tear.lacking)
    chosen = sorted({here, there, *range(min(MOST_CELLS, len(cells)))})
    wrote = [SHOWN if mutations.value[touches[place]] else GONE for place in chosen]
    found = []
    mine = np.flatnonzero(pages.group[: torn + 1] == pages.group[torn])
    for page in mine.tolist():
        # Of those that ended when the torn one had, nobody can say which saw the replicas first.
        if not mutations.invoke[tear.mutation] < pages.complete[page] <= pages.complete[torn]:
            continue
        shown = _shown_by(table, page)
        marks = [_mark(table, page, tear.mutation, cells[place], shown, wrote[n]) for n, place in enumerate(chosen)]
        if {marks[chosen.index(here)], marks[chosen.index(there)]} != {UNASKED}:
            found.append(Seen(int(pages.invoke[page]), tuple(marks)))
    first = next(number for number, seen in enumerate(found) if {SHOWN, GONE} & {*seen.marks})
    kept = dict.fromkeys((first, *range(max(first, len(found) - MOST_READS), len(found))))
    return {
        "torn": int(mutations.invoke[tear.mutation]),
        "cells": [list(cell_key(table.cells, cells[place])) for place in chosen],
        "wrote": wrote,
        "here": chosen.index(here),
        "there": chosen.index(there),
        "reads": [[found[number].read, list(found[number].marks)] for number in kept],
    }


def _shown_by(table: QuorumTable, page: int) -> dict[int, int]:
    """What a page shows of the cells that it names."""
    pages = table.pages
    places = range(int(pages.begin[page]), int(pages.begin[page + 1]))
    return {int(pages.cell[place]): int(pages.shown[place]) for place in places}


def _mark(table: QuorumTable, page: int, writer: int, cell: int, shown: Mapping[int, int], wrote: str) -> str:
    timestamps, found = table.mutations.timestamp, shown.get(cell)
    if found is None and not in_bounds.py_func(table.pages, page, cell):
        return UNASKED
    if found == writer:
        return SHOWN
    if found is None or found == ABSENT:
        return GONE if wrote == GONE else NOTHING
    return NEWER if found < 0 or timestamps[found] > timestamps[writer] else OLDER


# ---- words ----


def why_torn(speaker: Speaker, facts: Mapping[str, Any]) -> str:
    """A sentence on how legacy replication comes to tear it so, where what was read before, or a limit, explains it."""
    *_, (torn, marks) = facts["reads"]
    repair = _repair(speaker, facts)
    if repair is not None:
        read, replicas = repair
        reader = f"process {speaker.rows[read]['process']}'s read{_asked(speaker, read)}"
        return (
            f" Before, {reader} had shown that part of it and had not asked for the other: repair of only "
            f"what was read leaves {replicas} with a part of it."
        )
    if _bounds(speaker, torn)[2] is not None and _ends_with_it(marks):
        answered = " or ".join(sorted(_replicas(speaker, torn))) or "one replica"
        return (
            " The page has a limit, and only its end shows it: a second answer "
            f"of {answered}, to a question for more rows, shows what came after the first answers."
        )
    return ""


def _repair(speaker: Speaker, facts: Mapping[str, Any]) -> tuple[int, str] | None:
    """The last read before that showed the one part and did not ask for the other, of a replica that the torn read
    asked too; and the replicas that both asked."""
    *before, (torn, _) = facts["reads"]
    for read, marks in reversed(before):
        common = _replicas(speaker, read) & _replicas(speaker, torn)
        if marks[facts["here"]] in (SHOWN, GONE) and marks[facts["there"]] == UNASKED and common:
            return read, " and ".join(sorted(common))
    return None


def _ends_with_it(marks: Sequence[str]) -> bool:
    """Whether a page shows the mutation in the last cells that it covers, and not in those before."""
    there = [mark in (SHOWN, GONE) for mark in marks if mark not in (UNASKED, NEWER)]
    return there == sorted(there) and not all(there) and any(there)


def picture(speaker: Speaker, facts: Mapping[str, Any]) -> dict[str, Any]:
    """What the report draws (`Anomaly.details`): a line for the mutation, for each read, and for the repair that left a
    part of it; a column for each cell, or for neighbours of which all lines say the same."""
    writer, repair = facts["torn"], _repair(speaker, facts)
    what = "write" if SHOWN in facts["wrote"] else "deletion"
    lines: list[tuple[int, str, list[str]]] = [(writer, _line(speaker, writer, what), facts["wrote"])]
    *before, torn = facts["reads"]
    for read, marks in (*sorted(before), torn):
        lines.append((read, _line(speaker, read, f"read{_asked(speaker, read)}"), marks))
        if repair is not None and read == repair[0]:
            left = [mark if mark in (SHOWN, GONE) else UNASKED for mark in marks]
            lines.append((read, f"its repair left {repair[1]} with this part only", left))
    columns = _columns(speaker, facts["cells"], list(zip(*(marks for *_, marks in lines), strict=True)))
    drawn = [
        {"op": speaker.rows[op]["op"], "what": told, "marks": [marks[places[0]] for _, places in columns]}
        for op, told, marks in lines
    ]
    return {"tear": {"columns": [name for name, _ in columns], "lines": drawn}}


def _columns(
    speaker: Speaker, cells: Sequence[Sequence[int]], marks: Sequence[tuple[str, ...]]
) -> list[tuple[str, list[int]]]:
    """Names of columns and the places of the cells that each stands for: neighbours with the same marks, in one row or
    in whole rows."""
    within: list[list[int]] = []
    for place, cell in enumerate(cells):
        if within and cells[within[-1][0]][2] == cell[2] and marks[within[-1][0]] == marks[place]:
            within[-1].append(place)
        else:
            within.append([place])
    parts = [cells[places[0]][2] for places in within]
    found: list[list[int]] = []
    whole_before = False
    for places in within:
        whole = parts.count(cells[places[0]][2]) == 1
        if found and whole and whole_before and marks[found[-1][0]] == marks[places[0]]:
            found[-1] += places
        else:
            found.append(list(places))
        whole_before = whole
    return [(_column(speaker, [cells[place] for place in places], parts), places) for places in found]


def _column(speaker: Speaker, cells: Sequence[Sequence[int]], parts: Sequence[int]) -> str:
    first, last = cells[0], cells[-1]
    if first[2] != last[2]:
        return f"rows {speaker.source.shown(first[2])} to {speaker.source.shown(last[2])}"
    line = f"row {speaker.source.shown(first[2])}"
    if parts.count(first[2]) == 1 and first[3] == 0:
        return line
    return f"{line}, column {first[3]}" if first == last else f"{line}, columns {first[3]} to {last[3]}"


def _line(speaker: Speaker, index: int, what: str) -> str:
    row = speaker.rows[index]
    outcome = "" if row["type"] == "ok" else ", outcome unknown"
    replicas = f", {row['replicas'].replace(',', ' ')} answered" if row.get("replicas") else ""
    return f"{speaker.when(index, 'invoke')}: process {row['process']}'s {what}{replicas}{outcome}"


def _replicas(speaker: Speaker, index: int) -> set[str]:
    return set((speaker.rows[index].get("replicas") or "").split(",")) - {""}


def _bounds(speaker: Speaker, index: int) -> tuple[Any, Any, Any]:
    """The first and last row that a read asked for, and its limit."""
    page = next((mop for mop in speaker.rows[index]["mops"] or () if mop["f"] == "page"), None)
    first, last, limit = ((*page["values"], None, None, None) if page and page["values"] else (None,) * 3)[:3]
    return first, last, limit


def _asked(speaker: Speaker, index: int) -> str:
    """` of rows 2 to 5 with limit 3`, as far as there are any."""
    first, last, limit = _bounds(speaker, index)
    shown = ["…" if row is None else speaker.source.shown(row) for row in (first, last)]
    rows = f" of row {shown[0]}" if first == last else f" of rows {shown[0]} to {shown[1]}"
    return ("" if first is None and last is None else rows) + ("" if limit is None else f" with limit {limit}")
