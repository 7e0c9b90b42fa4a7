"""Pages of quorum tables that show a part of a mutation where the rest within their bounds is older.

A page is whole if some set of mutations that began before the page was read, each of them entire, merged by timestamps,
gives just what the page shows. This decides it exactly:

- a set must hold the mutations whose values are shown. Each of them tears the page if a cell that it touches shows a
  value with a lower timestamp;
- a cell that it gave a value, but which is absent, must have been deleted at a higher timestamp. A deletion can be in
  the set if no cell that it touches shows a lower timestamp, and if each cell that it gave a value itself, but which is
  absent, was deleted at a still higher one by a mutation that can be in the set. Timestamps rise, so this ends;
- mutations that can be in the set can be so together: an absent cell stays absent, for the last to touch it among all
  of them deletes it, and a cell with a value is touched by none that is later.

Of a page that is not whole it is told, in words and as a picture, which pages showed the write where, and what may have
torn it (`seen_parts`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from checkers.columns.codes import Bools, Ints
from checkers.columns.instances import Instances, record
from checkers.compiled import kernel, lean, lean_inline
from checkers.explain.speaker import Speaker
from checkers.quorum.quorum_table import ABSENT, Deletions, Mutations, Pages, QuorumTable, cell_key


class _Memo(NamedTuple):
    """Working memory of one page after another. It is never cleared: what names another page does not count."""

    page_of_cell: Ints  # by cell the page that named it last, -1: none
    shown: Ints  # by cell what that page showed: a mutation, ABSENT, or -2: it tells nothing
    page_of_mutation: Ints  # by mutation the page that it was decided for last, -1: none
    fits: Bools  # by mutation whether it can be in that page's set
    stack: Ints  # mutations in question, timestamps rising: each, its touch at hand, the place of a deletion for that


@lean
def in_bounds(pages, page, cell):
    """Whether a page covers a cell by its bounds."""
    for bound in range(pages.bound_begin[page], pages.bound_begin[page + 1]):
        if pages.low[bound] <= cell < pages.high[bound]:
            return True
    return False


@lean
def first_above(deletions, cell, timestamp):
    """The place of the first deletion of a cell at a higher timestamp."""
    low, high = deletions.begin[cell], deletions.begin[cell + 1]
    while low < high:
        middle = (low + high) // 2
        if deletions.timestamp[middle] > timestamp:
            high = middle
        else:
            low = middle + 1
    return low


@lean_inline
def _shown_there(pages, memo, page, cell):
    """What a page shows of a cell: a mutation, ABSENT, or -2 where that tells nothing or the page does not cover it."""
    if memo.page_of_cell[cell] == page:
        return memo.shown[cell]
    return np.int64(-1) if in_bounds(pages, page, cell) else np.int64(-2)


@lean
def _can_be(pages, mutations, deletions, memo, page, wanted):
    """Whether a mutation can be in the page's set. Those on the stack wait for the one above them, which has a higher
    timestamp; so none is there twice."""
    depth = 0
    memo.stack[0, 0], memo.stack[0, 1], memo.stack[0, 2] = wanted, mutations.begin[wanted], -1
    # Before each turn: the touches of each mutation on the stack before the one that it is at fit the page, and each
    # but the top waits for a deletion, the one above it.
    while depth >= 0 and memo.page_of_mutation[wanted] != page:
        m, touch, place = memo.stack[depth, 0], memo.stack[depth, 1], memo.stack[depth, 2]
        # All that it touches fits.
        if touch == mutations.begin[m + 1]:
            memo.page_of_mutation[m], memo.fits[m] = page, True
            depth -= 1
            continue
        cell = mutations.cell[touch]
        shown = _shown_there(pages, memo, page, cell)
        # It would have replaced what the page shows.
        if shown >= 0 and mutations.timestamp[shown] < mutations.timestamp[m]:
            memo.page_of_mutation[m], memo.fits[m] = page, False
            depth -= 1
            continue
        if shown != -1 or not mutations.value[touch]:
            memo.stack[depth, 1], memo.stack[depth, 2] = touch + 1, -1
            continue
        # The cell is absent although this mutation gave it a value: some later deletion must be in the set as well.
        if place < 0:
            place = first_above(deletions, cell, mutations.timestamp[m])
        # Those known not to fit are passed; one that is known to fit settles this touch, one that is open goes on top.
        while place < deletions.begin[cell + 1]:
            other = deletions.mutation[place]
            began = mutations.invoke[other] < pages.complete[page]
            if began and (memo.page_of_mutation[other] != page or memo.fits[other]):
                break
            place += 1
        if place == deletions.begin[cell + 1]:
            memo.page_of_mutation[m], memo.fits[m] = page, False
            depth -= 1
            continue
        other = deletions.mutation[place]
        if memo.page_of_mutation[other] == page:
            memo.stack[depth, 1], memo.stack[depth, 2] = touch + 1, -1
            continue
        memo.stack[depth, 2] = place
        depth += 1
        memo.stack[depth, 0], memo.stack[depth, 1], memo.stack[depth, 2] = other, mutations.begin[other], -1
    return memo.fits[wanted]


@lean
def _is_deleted(pages, mutations, deletions, memo, page, cell, timestamp):
    """Whether a mutation that can be in the page's set deletes a cell at a higher timestamp."""
    for place in range(first_above(deletions, cell, timestamp), deletions.begin[cell + 1]):
        m = deletions.mutation[place]
        if mutations.invoke[m] < pages.complete[page] and _can_be(pages, mutations, deletions, memo, page, m):
            return True
    return False


@lean
def _lacks(pages, mutations, deletions, memo, page, writer):
    """A touch of the writer's where the page shows something older, or -1."""
    mine = mutations.timestamp[writer]
    for touch in range(mutations.begin[writer], mutations.begin[writer + 1]):
        cell = mutations.cell[touch]
        shown = _shown_there(pages, memo, page, cell)
        if shown >= 0 and mutations.timestamp[shown] < mine:
            return touch
        # It deletes the cell, or a later deletion must account for its absence.
        lost = shown == -1 and mutations.value[touch]
        if lost and not _is_deleted(pages, mutations, deletions, memo, page, cell, mine):
            return touch
    return -1


@lean
def _name(pages, memo, page, unwritten):
    """Take note of what a page shows; a place where it shows a cell a second time and otherwise, or -1."""
    twice = -1
    for place in range(pages.begin[page], pages.begin[page + 1]):
        # What nobody wrote is an anomaly of its own, and tells nothing about its cell.
        cell, shown = pages.cell[place], np.int64(-2) if unwritten[place] else pages.shown[place]
        if memo.page_of_cell[cell] == page and memo.shown[cell] != shown and memo.shown[cell] != -2 and shown != -2:
            twice = place
        memo.page_of_cell[cell], memo.shown[cell] = page, shown
    return twice


@kernel
def _judge(pages, mutations, deletions, memo, unwritten, out):
    seen = np.full(mutations.invoke.shape[0], -1)
    for page in range(pages.invoke.shape[0]):
        twice = _name(pages, memo, page, unwritten)
        if twice >= 0:
            record(out, 1, pages.invoke[page], page, (twice, -1, -1, -1))
            continue
        for place in range(pages.begin[page], pages.begin[page + 1]):
            # Each mutation of which a page shows something has to be there as a whole; `seen` has who was looked at
            # for this page.
            writer = -1 if unwritten[place] else pages.shown[place]
            if writer < 0 or seen[writer] == page:
                continue
            seen[writer] = page
            lacking = _lacks(pages, mutations, deletions, memo, page, writer)
            if lacking >= 0:
                record(out, 0, pages.invoke[page], page, (place, lacking, -1, -1))
                break


def torn_pages(pages: Pages, mutations: Mutations, deletions: Deletions, unwritten: Bools, out: Instances) -> None:
    """Record pages that are not whole: of class 0 (place in `pages.cell` that shows a mutation, touch of it that is
    lacking), of class 1 pages that show one cell twice and differently (place). Cells that are `unwritten` show what
    nobody wrote."""
    cells, count = len(deletions.begin) - 1, len(mutations.invoke)
    memo = _Memo(
        np.full(cells, -1),
        np.zeros(cells, np.int64),
        np.full(count, -1),
        np.zeros(count, np.bool_),
        np.zeros((count + 1, 3), np.int64),
    )
    _judge(pages, mutations, deletions, memo, unwritten, out)


MOST_CELLS: Final = 60
MOST_READS: Final = 5
"""Cells of a mutation, and pages before the torn one, that are shown: the first that shows it, and the last ones."""

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
