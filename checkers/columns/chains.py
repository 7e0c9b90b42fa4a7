"""Lists as versions: all reads of an append-only list should be prefixes of its longest.

Whole lists are not carried along. In each batch the longest list of every key stands for those that are prefixes of it;
its elements travel as rows of their own, once. A group's kernel then compares these few *chains* with the longest.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from checkers.columns.batches import BatchLists
from checkers.columns.codes import NEVER, Ints
from checkers.columns.dense import spread, together
from checkers.compiled import kernel


@kernel
def _stand_for(keys, start, stop, items, longest, standing):
    """Per list its key's longest list of the batch if it is a prefix of that, else itself."""
    for i in range(keys.shape[0]):
        known = longest[keys[i]]
        if known < 0 or stop[i] - start[i] > stop[known] - start[known]:
            longest[keys[i]] = i
    for i in range(keys.shape[0]):
        chosen = longest[keys[i]]
        standing[i] = chosen
        for k in range(stop[i] - start[i]):
            if items[start[i] + k] != items[start[chosen] + k]:
                standing[i] = i
                break


class Lists(NamedTuple):
    """Lists `items[start:stop]` (by list), and which list stands for each."""

    start: Ints
    stop: Ints
    items: Ints
    standing: Ints


def batch_lists(values: BatchLists, at: Ints, keys: Ints, key_count: int) -> Lists:
    """The lists at the places `at` of a column, with keys."""
    start, stop, items = values.start[at], values.stop[at], values.items
    standing = np.empty(len(at), np.int64)
    _stand_for(keys, start, stop, items, np.full(key_count, -1), standing)
    return Lists(start, stop, items, standing)


class Chains(NamedTuple):
    """The chains of all cells: chain c is of cell `cell[c]`, has the elements `items[begin[c]:begin[c + 1]]` and agrees
    with its cell's longest for `common[c]` of them; `longest` is by cell, -1 where there is none."""

    name: Ints
    cell: Ints
    begin: Ints
    items: Ints
    common: Ints
    longest: Ints


@kernel
def _compare(cell, begin, items, longest, common):
    for chain in range(cell.shape[0]):
        known = longest[cell[chain]]
        if known < 0 or begin[chain + 1] - begin[chain] > begin[known + 1] - begin[known]:
            longest[cell[chain]] = chain
    for chain in range(cell.shape[0]):
        known = longest[cell[chain]]
        size = begin[chain + 1] - begin[chain]
        while common[chain] < size and items[begin[chain] + common[chain]] == items[begin[known] + common[chain]]:
            common[chain] += 1


def find_chains(cell: Ints, name: Ints, place: Ints, item: Ints, cells: int) -> Chains:
    """Chains from rows of elements; `name` tells chains of a cell apart."""
    order = np.lexsort((place, name, cell))
    cell, name, item = cell[order], name[order], item[order]
    fresh = np.ones(len(cell), np.bool_)
    fresh[1:] = (cell[1:] != cell[:-1]) | (name[1:] != name[:-1])
    first = np.flatnonzero(fresh)
    begin = np.append(first, len(cell))
    common, longest = np.zeros(len(first), np.int64), np.full(cells, -1)
    _compare(cell[first], begin, item, longest, common)
    return Chains(name[first], cell[first], begin, item, common, longest)


def positions(chains: Chains, cell: Ints, item: Ints) -> Ints:
    """How many elements of the longest list there are up to and with each item's first place in it; 0 if it is not
    there."""
    used = chains.longest[chains.longest >= 0]
    places, of = spread(chains.begin[used], chains.begin[used + 1])
    known_cell, known_item = chains.cell[used[of]], chains.items[places]
    rank = places - chains.begin[used[of]] + 1
    both = np.concatenate((known_cell, cell)), np.concatenate((known_item, item))
    ids, count = together(both)
    found = np.zeros(count, np.int64)
    found[ids[: len(rank)][::-1]] = rank[::-1]
    return found[ids[len(rank) :]]


def chain_of(chains: Chains, cell: Ints, name: Ints) -> Ints:
    """The number of the chain of that cell and name, -1 where it has no elements."""
    ids, count = together((np.concatenate((chains.cell, cell)), np.concatenate((chains.name, name))))
    number = np.full(count, -1)
    number[ids[: len(chains.cell)]] = np.arange(len(chains.cell))
    return number[ids[len(chains.cell) :]]


@kernel
def _least_from_here(begin, at):
    for chain in range(begin.shape[0] - 1):
        for place in range(begin[chain + 1] - 2, begin[chain] - 1, -1):
            at[place] = min(at[place], at[place + 1])


def first_shown(chains: Chains, chain: Ints, length: Ints, complete: Ints) -> Ints:
    """By element of the chains, when the first of these reads that show it completed; a read shows the first `length`
    elements of its chain (-1: it shows none)."""
    at = np.full(len(chains.items), NEVER)
    shows = (chain >= 0) & (length > 0)
    np.minimum.at(at, chains.begin[chain[shows]] + length[shows] - 1, complete[shows])
    _least_from_here(chains.begin, at)
    return at
