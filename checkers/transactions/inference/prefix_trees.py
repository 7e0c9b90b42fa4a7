"""Lists observed by transactions, as a tree of prefixes a key: its trunk is an array, forks hang in a hash table.

A read is checked against the trunk of its key by comparing elements, extends it if it is longer, and leaves it at the
first difference into the forks. So a healthy history stores one list a key, every read becomes a length (and a fork, if
it took one), and nothing is compared twice, in time linear in what was read. Micro-operations are checked against
earlier ones of the same transaction on the way.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from checkers.columns.codes import OK, READ, Codes, Ids, Ints
from checkers.columns.instances import record
from checkers.compiled import lean

APPEND: Final = 1
SKIPPED: Final = 2
"""A read that says nothing: of a transaction that failed or whose outcome is unknown."""

INTERNAL: Final = 0
FUTURE_READ: Final = 1
"""Anomaly codes of what one transaction shows by itself."""

FINAL: Final = 1
"""Flag of an append: the transaction's last to this key."""
UPDATES: Final = 2
"""Flag of a read: the transaction's first access of this key, which it appends to later."""

ON_TRUNK: Final = -1
NOBODY: Final = 2**31 - 1


class Trunks(NamedTuple):
    """By key the list that its reads were compared with: the first read, and what went on where it ended."""

    start: Ints  # where it begins in the pool
    length: Ints  # elements, at most `room`
    room: Ints  # elements that there is room for behind `start`
    first: Ids  # the first transaction that read all of it, NOBODY


class Forks(NamedTuple):
    """Nodes off the trunks, each a list that somebody read, or the beginning of one; parents before children."""

    parent: Ints  # the node that it goes on from, or -1 - p: the trunk after p elements
    element: Ints  # what it adds to that
    key: Ids
    depth: Ids  # elements of the whole list: depth[parent] + 1
    first: Ids  # the first transaction whose list ends here, NOBODY
    slots: Ids  # open addressing by key, parent and element: a node's number, -1: free; twice the room for nodes
    used: Ints  # used[0]: how many nodes there are


class ObservedLists(NamedTuple):
    """The lists observed: trunks in a pool of elements, and what left them."""

    trunks: Trunks
    pool: Ints
    forks: Forks


class MopBatch(NamedTuple):
    """Micro-operations of transactions that follow each other."""

    offsets: Ints  # those of transaction t are offsets[t]:offsets[t + 1]
    outcome: Codes  # by transaction OK, INFO or FAIL
    f: Codes  # READ, APPEND or SKIPPED
    key: Ids
    value: Ints  # the element of an append
    start: Ints  # the list of a read is values[start:stop]
    stop: Ints
    values: Ints
    first_txn: int  # the number of transaction 0 in the history


class SeenMops(NamedTuple):
    """What came of each micro-operation: flags, and of reads their length and fork (or ON_TRUNK)."""

    flags: Codes
    length: Ids
    fork: Ids


class Scratch(NamedTuple):
    """Working memory: what the transaction at hand did with each key. It is never cleared: `txn` says if it counts."""

    txn: Ids  # by key the transaction that touched it last, -1: nobody
    opened: Ints  # by key the first of that transaction's micro-operations on it
    last: Ints  # by key the last one
    appended: Ints  # by key its last append, -1: none
    before: Ints  # by micro-operation the one before it in its transaction on the same key, -1: none


def make_forks(room: int) -> Forks:
    """An empty tree with room for `room` nodes."""
    size = 1 << max(4, int(2 * room - 1).bit_length())
    columns = (np.empty(size // 2, np.int64), np.empty(size // 2, np.int64))
    ids = (np.empty(size // 2, np.int32), np.empty(size // 2, np.int32), np.empty(size // 2, np.int32))
    return Forks(*columns, *ids, np.full(size, -1, np.int32), np.zeros(1, np.int64))


@lean
def _fork_slot(forks, key, parent, element):
    mixed = np.uint64(parent) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(key)
    mixed = (mixed ^ (mixed >> np.uint64(31))) * np.uint64(0xC2B2AE3D27D4EB4F) + np.uint64(element)
    mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0x165667B19E3779F9)
    return np.int64((mixed ^ (mixed >> np.uint64(32))) & np.uint64(forks.slots.shape[0] - 1))


@lean
def _child(forks, key, parent, element, depth):
    """The node for `element` behind `parent`, made if need be."""
    slot, mask = _fork_slot(forks, key, parent, element), forks.slots.shape[0] - 1
    while forks.slots[slot] >= 0:
        node = forks.slots[slot]
        if forks.parent[node] == parent and forks.element[node] == element and forks.key[node] == key:
            return node
        slot = (slot + 1) & mask
    node = np.int32(forks.used[0])
    forks.used[0] += 1
    forks.slots[slot] = node
    forks.parent[node], forks.element[node] = parent, element
    forks.key[node], forks.depth[node], forks.first[node] = key, depth, NOBODY
    return node


def grown_forks(forks: Forks, room: int) -> Forks:
    """The given tree with room for at least `room` nodes."""
    count = int(forks.used[0])
    bigger = make_forks(room)
    _refill(forks, bigger, count)
    bigger.first[:count] = forks.first[:count]
    return bigger


@lean
def _refill(forks, bigger, count):
    for node in range(count):
        _child(bigger, forks.key[node], forks.parent[node], forks.element[node], forks.depth[node])


@lean
def observe(lists, key, txn, values, start, stop):
    """Take up a list; returns its fork or ON_TRUNK. There must be room for it in the trunk and in the forks."""
    trunks, pool, forks = lists.trunks, lists.pool, lists.forks
    begin, held, size = trunks.start[key], trunks.length[key], stop - start
    shared = min(held, size)
    for i in range(shared):
        if pool[begin + i] != values[start + i]:
            # It leaves the trunk here: -1 - i stands for the trunk's first i elements as the parent of a fork's first
            # node.
            parent = np.int64(-1 - i)
            for k in range(i, size):
                parent = np.int64(_child(forks, key, parent, values[start + k], k + 1))
            forks.first[parent] = min(forks.first[parent], txn)
            return np.int32(parent)
    # A list that goes on where the trunk ends is the trunk from now on; only forks are trees.
    if size > held:
        for i in range(held, size):
            pool[begin + i] = values[start + i]
        trunks.length[key], trunks.first[key] = size, txn
    elif size == held:
        trunks.first[key] = min(trunks.first[key], txn)
    return np.int32(ON_TRUNK)


@lean
def longest_lists(batch, longest):
    """Raise `longest` to the longest list read of each key."""
    for mop in range(batch.key.shape[0]):
        if batch.f[mop] == READ:
            size = batch.stop[mop] - batch.start[mop]
            longest[batch.key[mop]] = max(longest[batch.key[mop]], size)


@lean
def _agrees(batch, before, mop):
    """Whether a read is what the transaction's earlier micro-operations on the key say it must be."""
    at, place = before[mop], batch.stop[mop]
    while at >= 0:
        if batch.f[at] == APPEND:
            place -= 1
            if place < batch.start[mop] or batch.values[place] != batch.value[at]:
                return False
        elif batch.f[at] == READ:
            size = batch.stop[at] - batch.start[at]
            if place - batch.start[mop] != size:
                return False
            for i in range(size):  # noqa: SIM110 - compiled code has no generator expressions
                if batch.values[batch.start[at] + i] != batch.values[batch.start[mop] + i]:
                    return False
            return True
        at = before[at]
    return True


@lean
def _foreseen(batch, before, mop):
    """Whether an earlier read of the same transaction saw the element appended here."""
    at = before[mop]
    while at >= 0:
        if batch.f[at] == READ:
            for i in range(batch.start[at], batch.stop[at]):
                if batch.values[i] == batch.value[mop]:
                    return True
        at = before[at]
    return False


@lean
def _link(batch, scratch, txn, begin, end, seen):
    """Chain the micro-operations of one transaction by key and set the flags."""
    for mop in range(begin, end):
        key = batch.key[mop]
        seen.flags[mop] = 0
        if scratch.txn[key] == txn:
            scratch.before[mop] = scratch.last[key]
        else:
            scratch.before[mop], scratch.txn[key] = -1, txn
            scratch.opened[key], scratch.appended[key] = mop, -1
        scratch.last[key] = mop
        if batch.f[mop] == APPEND:
            seen.flags[mop] = FINAL
            earlier = scratch.appended[key]
            if earlier >= 0:
                seen.flags[earlier] &= ~np.uint8(FINAL)
            elif batch.f[scratch.opened[key]] == READ:
                seen.flags[scratch.opened[key]] |= UPDATES
            scratch.appended[key] = mop


@lean
def _check_alone(batch, scratch, txn, begin, end, out):
    """What a transaction that completed shows by itself: at most one of each class, as Elle counts."""
    internal, foreseen = False, False
    for mop in range(begin, end):
        if scratch.before[mop] < 0:
            continue
        if batch.f[mop] == READ and not internal and not _agrees(batch, scratch.before, mop):
            internal = True
            record(out, INTERNAL, txn, batch.key[mop], (txn, mop - begin, -1, -1))
        if batch.f[mop] == APPEND and not foreseen and _foreseen(batch, scratch.before, mop):
            foreseen = True
            record(out, FUTURE_READ, txn, batch.key[mop], (txn, mop - begin, -1, -1))


@lean
def observe_batch(batch, lists, scratch, seen, out, begin):
    """Take up transactions from `begin` on; returns the one before which the forks must grow, or how many there are."""
    for row in range(begin, batch.offsets.shape[0] - 1):
        first, last = batch.offsets[row], batch.offsets[row + 1]
        total = np.int64(0)
        for mop in range(first, last):
            total += batch.stop[mop] - batch.start[mop]
        if lists.forks.used[0] + total > lists.forks.parent.shape[0]:
            return row
        txn = np.int32(batch.first_txn + row)
        _link(batch, scratch, txn, first, last, seen)
        if batch.outcome[row] == OK:
            _check_alone(batch, scratch, txn, first, last, out)
        for mop in range(first, last):
            if batch.f[mop] == READ:
                start, stop = batch.start[mop], batch.stop[mop]
                seen.length[mop] = stop - start
                seen.fork[mop] = observe(lists, batch.key[mop], txn, batch.values, start, stop)
    return batch.offsets.shape[0] - 1


@lean
def move_trunks(trunks, longest, pool, used):
    """Give keys whose longest list does not fit a larger place; returns how much of the pool is used then, or minus
    what it needs if it is too small (nothing is moved then)."""
    need = used
    for key in range(longest.shape[0]):
        if longest[key] > trunks.room[key]:
            need += max(longest[key], 2 * trunks.room[key])
    if need > pool.shape[0]:
        return -need
    for key in range(longest.shape[0]):
        if longest[key] > trunks.room[key]:
            for i in range(trunks.length[key]):
                pool[used + i] = pool[trunks.start[key] + i]
            trunks.room[key] = max(longest[key], 2 * trunks.room[key])
            trunks.start[key] = used
            used += trunks.room[key]
    return used
