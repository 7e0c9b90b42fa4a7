"""Reads of quorum tables that show less than what they must: older than a read before, or than an acknowledged write.

For each cell the highest timestamp is kept that reads have shown and writes have set, by the place (level, data centre)
of the operation. A read must reach the highest of those whose operation had completed before it began and whose place
binds its own. A value has the timestamp of its write. An absent cell has that of a deletion, nobody says of which: the
lowest that reaches the floor is taken, for it asks the least of later reads; so a violation is one whichever deletions
were seen, and every other history has deletions that explain it.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numba import njit

from checkers.kernels.columns import NIL, Ints
from checkers.kernels.instances import Instances, record
from checkers.kernels.quorum_pages import first_above
from checkers.kernels.quorum_table import Bools, Cells, Deletions, Mutations, Pages

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


@njit(cache=True)
def _grown(entries, count):
    if count < entries.shape[0]:
        return entries
    larger = np.empty((2 * entries.shape[0], 2), np.int64)
    larger[:count] = entries[:count]
    return larger


@njit(cache=True)
def _raise_by_write(mutations, cell_begin, m, floor, owner):
    for touch in range(mutations.begin[m], mutations.begin[m + 1]):
        cell, level = mutations.cell[touch] - cell_begin, mutations.level[m]
        if mutations.timestamp[m] > floor[cell, level]:
            floor[cell, level], owner[cell, level] = mutations.timestamp[m], -2 - touch


@njit(cache=True)
def _highest(floor, binding, cell, level):
    """The place whose floor for a cell is the highest of those that bind a level, or -1."""
    best = -1
    for other in range(binding.shape[0]):
        if binding[other, level] and floor[cell, other] != NIL and (best < 0 or floor[cell, other] > floor[cell, best]):
            best = other
    return best


@njit(cache=True)
def _reached(deletions, mutations, cell, timestamp, complete):
    """The lowest timestamp of a deletion that reaches another and had begun by then; NIL if there is none."""
    for place in range(first_above(deletions, cell, timestamp - 1), deletions.begin[cell + 1]):
        if mutations.invoke[deletions.mutation[place]] < complete:
            return deletions.timestamp[place]
    return np.int64(NIL)


@njit(cache=True)
def _judge(sources, cells, pages, mutations, deletions, strange, binding, out):
    places, compared = binding.shape[0], 0
    begins = np.zeros((pages.invoke.shape[0], 2), np.int64)
    page_of_cell = np.full(deletions.begin.shape[0] - 1, -1)
    told = np.full((pages.invoke.shape[0], 3), -1)
    for group in range(sources.partition.shape[0]):
        base = cells.begin[sources.partition[group]]
        width = cells.begin[sources.partition[group] + 1] - base
        floor, owner = np.full((width, places), NIL), np.full((width, places), -1)
        entries, count = np.empty((1024, 2), np.int64), 0
        ended, wrote = sources.page_begin[group], sources.write_begin[group]
        for number in range(sources.page_begin[group], sources.page_begin[group + 1]):
            page = sources.page[number]
            begin, complete, level = pages.invoke[page], pages.complete[page], pages.level[page]
            while sources.reads and pages.complete[sources.ended[ended]] < begin:
                done = sources.ended[ended]
                for entry in range(begins[done, 0], begins[done, 1]):
                    cell = entries[entry, 0]
                    if entries[entry, 1] > floor[cell, pages.level[done]]:
                        floor[cell, pages.level[done]], owner[cell, pages.level[done]] = entries[entry, 1], done
                ended += 1
            while sources.writes and wrote < sources.write_begin[group + 1]:
                m = sources.write[wrote]
                if mutations.complete[m] >= begin:
                    break
                _raise_by_write(mutations, base, m, floor, owner)
                wrote += 1
            begins[page, 0] = count
            bounds = pages.bound_begin[page + 1] - pages.bound_begin[page]
            for part in range(bounds + 1):
                if part == 0:
                    low, high = pages.begin[page], pages.begin[page + 1]
                else:
                    low = pages.low[pages.bound_begin[page] + part - 1]
                    high = pages.high[pages.bound_begin[page] + part - 1]
                for item in range(low, high):
                    cell, shown = item, -1
                    if part == 0:
                        cell, shown = pages.cell[item], pages.shown[item]
                        page_of_cell[cell] = page
                        if strange[item]:
                            continue
                    elif page_of_cell[cell] == page:
                        continue
                    page_of_cell[cell] = page
                    bound = _highest(floor, binding, cell - base, level)
                    least = floor[cell - base, bound] if bound >= 0 else np.int64(NIL)
                    if shown >= 0:
                        mine = mutations.timestamp[shown]
                    else:
                        mine = _reached(deletions, mutations, cell, least, complete) if bound >= 0 else np.int64(NIL)
                    compared += bound >= 0
                    if mine < least and told[page, 0] < 0:
                        told[page, 0], told[page, 1] = cell, item if part == 0 else -1
                        told[page, 2] = owner[cell - base, bound]
                    if mine != NIL and sources.reads:
                        entries = _grown(entries, count)
                        entries[count, 0], entries[count, 1] = cell - base, mine
                        count += 1
            begins[page, 1] = count
            if told[page, 0] >= 0:
                source, kind = told[page, 2], 0
                if source < -1:
                    kind = 1 if mutations.value[-2 - source] else 2
                record(out, kind, begin, told[page, 0], page, told[page, 1], source, -1)
    return compared


def too_old_reads(
    sources: Sources,
    cells: Cells,
    table: tuple[Pages, Mutations, Deletions],
    strange: Bools,
    binding: Bools,
    out: Instances,
) -> int:
    """Record the pages that show a cell too old, once each: by class of what they lack (key: the cell; page, place in
    `pages.cell` or -1 for a cell absent within the bounds, and the page that showed more or, as -2 - touch, the
    mutation); returns how many cells had a floor to reach."""
    pages, mutations, deletions = table
    return int(_judge(sources, cells, pages, mutations, deletions, strange, binding, out))


def by_partition(pages: Pages, mutations: Mutations, partitions: int, *, reads: bool, writes: bool) -> Sources:
    """Everybody's reads or writes bind everybody's reads."""
    return _sources(pages.group, mutations.group, np.arange(partitions), pages, mutations, reads, writes)


def by_session(pages: Pages, mutations: Mutations) -> Sources:
    """A session's own writes bind its reads."""
    both = np.concatenate((np.stack((pages.group, pages.session)), np.stack((mutations.group, mutations.session))), 1)
    pairs, ids = np.unique(both, axis=1, return_inverse=True)
    ids = ids.reshape(-1)
    mine, others = ids[: len(pages.group)], ids[len(pages.group) :]
    return _sources(mine, others, pairs[0], pages, mutations, False, True)


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
