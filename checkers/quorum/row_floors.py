"""Reads of quorum tables that show less than what they must: older than a read before, or than an acknowledged write.

For each cell the highest timestamp is kept that reads have shown and writes have set, by the place (level, data centre)
of the operation. A read must reach the highest of those whose operation had completed before it began and whose place
binds its own. A value has the timestamp of its write. An absent cell has that of a deletion, nobody says of which: the
lowest that reaches the floor is taken, for it asks the least of later reads; so a violation is one whichever deletions
were seen, and every other history has deletions that explain it. What acknowledged writes had left there counts too, if
any deletion reaches it: a row was not absent because it had never been written.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from checkers.columns.codes import NIL, Bools, Ints
from checkers.columns.dense import together
from checkers.columns.instances import Instances, record
from checkers.compiled import kernel, lean, lean_inline
from checkers.quorum.quorum_table import Cells, Deletions, Mutations, Pages
from checkers.quorum.torn_pages import first_above

OLDER_THAN_READ: Final = 0
OLDER_THAN_WRITE: Final = 1
OLDER_THAN_DELETION: Final = 2


class Sources(NamedTuple):
    """Which operations bind which pages: groups of pages and mutations, sorted by group; `page` has pages in order of
    invocation, `ended` in order of completion, `write` acknowledged mutations in order of completion. Group g is about
    partition `partition[g]`. What reads of a group showed counts if `reads`, what its writes set if `writes`."""

    partition: Ints
    page_begin: Ints
    page: Ints
    ended: Ints
    write_begin: Ints
    write: Ints
    reads: bool
    writes: bool


class _QuorumReads(NamedTuple):
    """What is judged: `unwritten` are the places of `pages.cell` that show nothing that was written, `binding[i, j]`
    says whether what was done at place i must be seen at place j."""

    pages: Pages
    mutations: Mutations
    deletions: Deletions
    unwritten: Bools
    binding: Bools


class _Floors(NamedTuple):
    """Working memory of one group of operations after another; a place is a level with its data centre."""

    floor: Ints  # by cell and place the highest timestamp that was read or written so far, NIL: none
    owner: Ints  # by cell and place whose the floor is: a page, or -2 - touch of a mutation
    acknowledged: Ints  # by cell and place the highest timestamp of acknowledged writes so far, NIL: none
    page_of_cell: Ints  # by cell the page that named it last, -1: none
    begins: Ints  # by page where what it showed begins and ends among the entries of its group (`_judge`)
    too_old: Ints  # by page the first cell that it shows too old (-1: none), its place in `pages.cell` or -1, the owner


@kernel
def _grown(entries, count):
    if count < entries.shape[0]:
        return entries
    larger = np.empty((2 * entries.shape[0], 2), np.int64)
    larger[:count] = entries[:count]
    return larger


@lean_inline
def _raise(floors, cell, level, timestamp, owner):
    if timestamp > floors.floor[cell, level]:
        floors.floor[cell, level], floors.owner[cell, level] = timestamp, owner


@lean
def _raise_by_reads(sources, pages, floors, entries, place, begin):
    """Takes in what reads had shown that were over by then; the place of the next in order of completion."""
    while pages.complete[sources.ended[place]] < begin:
        done = sources.ended[place]
        for entry in range(floors.begins[done, 0], floors.begins[done, 1]):
            _raise(floors, entries[entry, 0], pages.level[done], entries[entry, 1], done)
        place += 1
    return place


@lean
def _raise_by_writes(sources, mutations, floors, group, place, begin):
    """Takes in what was acknowledged by then; the place of the next in order of completion."""
    while place < sources.write_begin[group + 1] and mutations.complete[sources.write[place]] < begin:
        m = sources.write[place]
        for touch in range(mutations.begin[m], mutations.begin[m + 1]):
            cell, level, timestamp = mutations.cell[touch], mutations.level[m], mutations.timestamp[m]
            if sources.reads:
                floors.acknowledged[cell, level] = max(floors.acknowledged[cell, level], timestamp)
            if sources.writes:
                _raise(floors, cell, level, timestamp, -2 - touch)
        place += 1
    return place


@lean_inline
def _highest(floor, binding, cell, level):
    """The place whose floor for a cell is the highest of those that bind a level, or -1."""
    best = -1
    for other in range(binding.shape[0]):
        if binding[other, level] and floor[cell, other] != NIL and (best < 0 or floor[cell, other] > floor[cell, best]):
            best = other
    return best


@lean
def _reached(deletions, mutations, cell, timestamp, complete):
    """The lowest timestamp of a deletion that reaches another and had begun by then; NIL if there is none."""
    for place in range(first_above(deletions, cell, timestamp - 1), deletions.begin[cell + 1]):
        if mutations.invoke[deletions.mutation[place]] < complete:
            return deletions.timestamp[place]
    return np.int64(NIL)


@lean
def _of_absent(table, floors, page, cell, least):
    """The timestamp of a deletion that an absent cell stands for, by a floor (NIL: none); NIL if there need be none."""
    pages, mutations, deletions = table.pages, table.mutations, table.deletions
    left = _highest(floors.acknowledged, table.binding, cell, pages.level[page])
    if left >= 0 and floors.acknowledged[cell, left] > least:
        found = _reached(deletions, mutations, cell, floors.acknowledged[cell, left], pages.complete[page])
        if found != NIL:
            return found
    return np.int64(NIL) if least == NIL else _reached(deletions, mutations, cell, least, pages.complete[page])


@lean
def _timestamp_of(table, floors, page, item):
    """The timestamp that a page shows, of its place `item` or, as -1 - cell, of a cell absent within its bounds, and
    whether there was a floor to reach; takes note of the first that does not."""
    pages, cell, shown = table.pages, -1 - item, -1
    if item >= 0:
        cell, shown = pages.cell[item], pages.shown[item]
    bound = _highest(floors.floor, table.binding, cell, pages.level[page])
    least = floors.floor[cell, bound] if bound >= 0 else np.int64(NIL)
    if shown >= 0:
        mine = table.mutations.timestamp[shown]
    else:
        mine = _of_absent(table, floors, page, cell, least)
    if bound < 0:
        return mine, False
    if mine < least and floors.too_old[page, 0] < 0:
        floors.too_old[page, 0], floors.too_old[page, 1] = cell, max(item, -1)
        floors.too_old[page, 2] = floors.owner[cell, bound]
    return mine, True


@kernel
def _read_page(table, floors, page, entries, count):
    """Looks at all cells that a page covers; the entries with what it shows, their number, and how many had a floor."""
    pages, compared = table.pages, 0
    for part in range(pages.bound_begin[page] - 1, pages.bound_begin[page + 1]):
        named = part == pages.bound_begin[page] - 1
        low, high = (pages.begin[page], pages.begin[page + 1]) if named else (pages.low[part], pages.high[part])
        for item in range(low, high):
            cell = pages.cell[item] if named else item
            if not named and floors.page_of_cell[cell] == page:
                continue
            floors.page_of_cell[cell] = page
            if named and table.unwritten[item]:
                continue
            place = item if named else -1 - cell
            mine, had_floor = _timestamp_of(table, floors, page, place)
            compared += had_floor
            if mine != NIL:
                entries = _grown(entries, count)
                entries[count, 0], entries[count, 1] = cell, mine
                count += 1
    return entries, count, compared


@kernel
def _judge(sources, cells, table, floors, out):
    pages, mutations, compared = table.pages, table.mutations, 0
    for group in range(sources.partition.shape[0]):
        first, last = cells.begin[sources.partition[group]], cells.begin[sources.partition[group] + 1]
        floors.floor[first:last], floors.acknowledged[first:last] = NIL, NIL
        # What the reads of this group showed, cell and timestamp, those of one page together.
        entries, count = np.empty((1024, 2), np.int64), 0
        ended, wrote = sources.page_begin[group], sources.write_begin[group]
        for number in range(sources.page_begin[group], sources.page_begin[group + 1]):
            page = sources.page[number]
            begin = pages.invoke[page]
            if sources.reads:
                ended = _raise_by_reads(sources, pages, floors, entries, ended, begin)
            wrote = _raise_by_writes(sources, mutations, floors, group, wrote, begin)
            kept = count if sources.reads else 0
            floors.begins[page, 0] = kept
            entries, count, more = _read_page(table, floors, page, entries, kept)
            floors.begins[page, 1] = count
            compared += more
            if floors.too_old[page, 0] >= 0:
                source, kind = floors.too_old[page, 2], OLDER_THAN_READ
                if source < -1:
                    kind = OLDER_THAN_WRITE if mutations.value[-2 - source] else OLDER_THAN_DELETION
                record(out, kind, begin, floors.too_old[page, 0], (page, floors.too_old[page, 1], source, -1))
    return compared


def too_old_reads(
    sources: Sources,
    cells: Cells,
    table: tuple[Pages, Mutations, Deletions],
    unwritten: Bools,
    binding: Bools,
    out: Instances,
) -> int:
    """Record the pages that show a cell too old, once each: by class of what they lack (key: the cell; page, place in
    `pages.cell` or -1 for a cell absent within the bounds, and the page that showed more or, as -2 - touch, the
    mutation); returns how many cells had a floor to reach."""
    pages, _, deletions = table
    count, width = len(pages.invoke), (len(deletions.begin) - 1, len(binding))
    floors = _Floors(
        np.full(width, NIL),
        np.full(width, -1),
        np.full(width, NIL),
        np.full(width[0], -1),
        np.zeros((count, 2), np.int64),
        np.full((count, 3), -1),
    )
    return int(_judge(sources, cells, _QuorumReads(*table, unwritten, binding), floors, out))


def by_partition(pages: Pages, mutations: Mutations, partitions: int, *, reads: bool, writes: bool) -> Sources:
    """Everybody's reads or writes bind everybody's reads."""
    return _sources(pages.group, mutations.group, np.arange(partitions), pages, mutations, reads, writes)


def by_session(pages: Pages, mutations: Mutations) -> Sources:
    """A session's own writes bind its reads."""
    group = np.concatenate((pages.group, mutations.group))
    ids, count = together([group, np.concatenate((pages.session, mutations.session))])
    partition = np.zeros(count, np.int64)
    partition[ids] = group
    mine, others = ids[: len(pages.group)], ids[len(pages.group) :]
    return _sources(mine, others, partition, pages, mutations, False, True)


def _sources(
    page_group: Ints,
    write_group: Ints,
    partition: Ints,
    pages: Pages,
    mutations: Mutations,
    reads: bool,
    writes: bool,
) -> Sources:
    page = np.lexsort((pages.invoke, page_group))
    ended = np.lexsort((pages.complete, page_group))
    write = np.flatnonzero(mutations.acknowledged)
    write = write[np.lexsort((mutations.complete[write], write_group[write]))]
    numbers = np.arange(len(partition) + 1)
    return Sources(
        partition,
        np.searchsorted(page_group[page], numbers),
        page,
        ended,
        np.searchsorted(write_group[write], numbers),
        write,
        reads,
        writes,
    )
