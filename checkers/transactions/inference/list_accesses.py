"""What the accesses of each list say: anomalies of single keys, and dependencies between transactions (Kingsbury and
Alvaro 2020, section 4).

The version order of a list is the longest read, of several equally long the one invoked first (`settle`). Where several
are the longest there is no telling which is right. Dependencies are read off one of them only, for those of two
together belong to no single order of versions. Of what the others would say all but G0 is ruled out by
`incompatible-order` already; and a G0 that every choice has, this one has too.

Transactions that failed are in the version order if somebody read them, but not in the graph. An append that nobody
read comes after all that were read.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from checkers.columns.codes import FAIL, OK, Codes, Ids, Ints
from checkers.columns.dense import ValueMap, insert, lookup, reset
from checkers.columns.instances import record
from checkers.compiled import lean
from checkers.transactions.graph.edges import RW, WR, WW, product_bound, put, put_product
from checkers.transactions.inference.prefix_trees import FINAL, FUTURE_READ, INTERNAL, ON_TRUNK, UPDATES, Forks, Trunks


class Orders(NamedTuple):
    """The version order of each key, and how far the lists observed agree with it."""

    offsets: Ints  # the versions of key k are values[offsets[k]:offsets[k + 1]], each an element that was appended
    values: Ints
    first: Ids  # by key the first transaction that read all of them
    trunk: Ints  # by key how many elements its trunk has in common with them
    fork: Ids  # by fork node how many elements the list that ends there has in common with them
    nodes: Ints  # fork nodes in order of keys, of a key parents before children
    places: Ints  # those of key k are nodes[places[k]:places[k + 1]]


@lean
def _choose(trunks, forks, length, first, best):
    for key in range(length.shape[0]):
        length[key], first[key], best[key] = trunks.length[key], trunks.first[key], ON_TRUNK
    for node in range(forks.used[0]):
        key, depth = forks.key[node], forks.depth[node]
        if depth > length[key] or (depth == length[key] and forks.first[node] < first[key]):
            length[key], first[key], best[key] = depth, forks.first[node], node


@lean
def _write(trunks, pool, forks, offsets, best, values, trunk):
    """Write out the lists that end at `best`; `trunk` gets how much of each is the key's trunk."""
    for key in range(best.shape[0]):
        node, at = np.int64(best[key]), offsets[key + 1]
        while node >= 0:
            at -= 1
            values[at] = forks.element[node]
            node = forks.parent[node]
        trunk[key] = -1 - node if best[key] >= 0 else trunks.length[key]
        for place in range(trunk[key]):
            values[offsets[key] + place] = pool[trunks.start[key] + place]


@lean
def _agree(forks, offsets, values, trunk, fork):
    for node in range(forks.used[0]):
        key, parent, depth = forks.key[node], forks.parent[node], forks.depth[node]
        before = min(-1 - parent, trunk[key]) if parent < 0 else np.int64(fork[parent])
        at = offsets[key] + before
        same = before == depth - 1 and at < offsets[key + 1] and values[at] == forks.element[node]
        fork[node] = before + 1 if same else before


def settle(trunks: Trunks, pool: Ints, forks: Forks) -> Orders:
    """Choose the version orders; linear in the lists stored."""
    keys, count = len(trunks.length), int(forks.used[0])
    length, first, best = np.empty(keys, np.int64), np.empty(keys, np.int32), np.empty(keys, np.int32)
    _choose(trunks, forks, length, first, best)
    offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(length)))
    values, trunk, fork = np.empty(offsets[-1], np.int64), np.empty(keys, np.int64), np.empty(count, np.int32)
    _write(trunks, pool, forks, offsets, best, values, trunk)
    _agree(forks, offsets, values, trunk, fork)
    nodes = np.argsort(forks.key[:count], kind="stable")
    places: Ints = np.searchsorted(forks.key[:count][nodes], np.arange(keys + 1))
    return Orders(offsets, values, first, trunk, fork, nodes, places)


G1A: Final = 2
G1B: Final = 3
DIRTY_UPDATE: Final = 4
LOST_UPDATE: Final = 5
DUPLICATE_ELEMENTS: Final = 6
INCOMPATIBLE_ORDER: Final = 7
GARBAGE_READ: Final = 8

CLASSES: Final = (
    *("internal", "future-read", "G1a", "G1b", "dirty-update", "lost-update", "duplicate-elements"),
    *("incompatible-order", "garbage-read"),
)
"""By anomaly code."""
assert CLASSES[INTERNAL] == "internal" and CLASSES[FUTURE_READ] == "future-read"

_NONE: Final = 2**62


class Accesses(NamedTuple):
    """Appends and reads by key, of a key in order of invocation. Never written by what infers from them."""

    append_at: Ints  # those of key k are append_at[k]:append_at[k + 1]
    append_txn: Ids  # the transaction's number
    append_outcome: Codes  # the transaction's: OK, INFO, FAIL
    append_flags: Codes  # FINAL
    value: Ints  # the element, unique in its key
    read_at: Ints  # those of key k are read_at[k]:read_at[k + 1]; reads of failed transactions are left out
    read_txn: Ids
    read_outcome: Codes
    read_flags: Codes  # UPDATES
    length: Ids  # elements in the list
    fork: Ids  # the fork node that the list ends at, or ON_TRUNK


class Store(NamedTuple):
    """The lists observed and their version orders."""

    trunks: Trunks
    pool: Ints
    forks: Forks
    orders: Orders


class ListScratch(NamedTuple):
    """Working memory of one key after another. A place is one in the key's version order; appends count from the key's
    first. What is *wrong* with a list is four numbers: where it first shows an aborted append, an element that nobody
    appended, an element for the second time (_NONE: nowhere), and the aborted append."""

    values: ValueMap  # the append of each element
    place: Ints  # by append its place, -1: nobody read it; writer[place[a]] == a
    writer: Ints  # by place its append, -1: nobody appended that, or it stood there before
    following: Ints  # by place the first append from there on that can have happened, -1: none
    updater: Ids  # by length of the trunk the first to read that and then append; -1: nobody, -2: several, recorded
    fork_updater: Ids  # by fork node likewise
    wrong: Ints  # by fork node where a list ends, of the key at hand: what is wrong with that list
    stamp: Ints  # by append the list that it was seen in last, by the number of that in `_inspect_lists`
    readers: Ids  # transactions that read the last version, each once in a row
    writers: Ids  # transactions whose appends nobody read, each once in a row
    txn_stamp: Ints  # by transaction the helper node that it was marked for, -1: none is at work (`put_product`)
    trunk_wrong: Ints  # what is wrong with the trunk


@lean
def _index_appends(work, accesses, key, problem):
    """Map elements to appends; the second append of one is a problem (key, its transaction, the other)."""
    begin, end = accesses.append_at[key], accesses.append_at[key + 1]
    lowest, highest = np.int64(0), np.int64(0)
    for i in range(begin, end):
        value = accesses.value[i]
        lowest = value if i == begin else min(lowest, value)
        highest = value if i == begin else max(highest, value)
    reset(work.values, end - begin, lowest, highest)
    for failed in range(2):  # who read what failed, too, read it of who did not
        for i in range(begin, end):
            if (accesses.append_outcome[i] == FAIL) != (failed == 1):
                continue
            work.place[i - begin], work.stamp[i - begin] = -1, -1
            other = insert(work.values, accesses.value[i], i - begin)
            if other >= 0 and not failed and problem[0] < 0:
                problem[0], problem[1], problem[2] = key, accesses.append_txn[i], accesses.append_txn[begin + other]


@lean
def _index_order(work, accesses, orders, key):
    """Fill `writer` by place, `place` by append and `following`; returns the number of places."""
    begin, size = orders.offsets[key], orders.offsets[key + 1] - orders.offsets[key]
    base = accesses.append_at[key]
    for at in range(size):
        append = np.int64(lookup(work.values, orders.values[begin + at]))
        first = append >= 0 and work.place[append] < 0
        if first:
            work.place[append] = at
        work.writer[at] = append if first else -1
    work.following[size] = -1
    for at in range(size - 1, -1, -1):
        append = work.writer[at]
        known = append >= 0 and accesses.append_outcome[base + append] != FAIL
        work.following[at] = append if known else work.following[at + 1]
    return size


@lean
def _note(work, accesses, key, element, at, mark, wrong):
    """Note where a list first shows an aborted append, an element that nobody appended, and a second copy."""
    append = np.int64(lookup(work.values, element))
    if append < 0:
        wrong[1] = min(wrong[1], at)
        return
    if accesses.append_outcome[accesses.append_at[key] + append] == FAIL and wrong[0] == _NONE:
        wrong[0], wrong[3] = at, append
    if work.stamp[append] == mark:
        wrong[2] = min(wrong[2], at)
    work.stamp[append] = mark


@lean
def _inspect_lists(work, accesses, store, key):
    """What is first wrong in the trunk, and in each fork that was read."""
    trunks, forks, orders, trunk_wrong = store.trunks, store.forks, store.orders, work.trunk_wrong
    trunk_wrong[:3], trunk_wrong[3] = _NONE, -1
    begin = trunks.start[key]
    for at in range(trunks.length[key]):
        _note(work, accesses, key, store.pool[begin + at], at, 0, trunk_wrong)
    # Each list that was read is walked from its leaf up the fork to where it leaves the trunk (-1 - node elements of
    # it), and down the trunk; `mark` tells the elements of one list from those of others, so that duplicates show.
    mark = np.int64(1)
    for i in range(orders.places[key], orders.places[key + 1]):
        leaf = orders.nodes[i]
        wrong = work.wrong[leaf]
        wrong[:3], wrong[3] = _NONE, -1
        work.fork_updater[leaf] = -1
        node = leaf
        while node >= 0:
            _note(work, accesses, key, forks.element[node], forks.depth[node] - 1, mark, wrong)
            node = forks.parent[node]
        for at in range(-1 - node):
            _note(work, accesses, key, store.pool[begin + at], at, mark, wrong)
        mark += 1


@lean
def _last_element(store, key, fork, length):
    if fork != ON_TRUNK:
        return store.forks.element[fork]
    return store.pool[store.trunks.start[key] + length - 1]


@lean
def _judge_read(work, accesses, store, key, read, out):
    """Anomalies that one read shows; returns the number of versions that it is past (-1: it can't be said)."""
    txn, size, fork = accesses.read_txn[read], np.int64(accesses.length[read]), accesses.fork[read]
    orders, base = store.orders, accesses.append_at[key]
    wrong = work.trunk_wrong if fork == ON_TRUNK else work.wrong[fork]
    agreed = min(size, orders.trunk[key]) if fork == ON_TRUNK else np.int64(orders.fork[fork])
    if wrong[2] < size:
        record(out, DUPLICATE_ELEMENTS, txn, key, (txn, -1, -1, -1))
    if agreed < size:
        record(out, INCOMPATIBLE_ORDER, txn, key, (txn, orders.first[key], -1, -1))
    last = np.int64(lookup(work.values, _last_element(store, key, fork, size))) if size > 0 else np.int64(-1)
    if accesses.read_outcome[read] == OK and size > 0:
        if wrong[0] < size:
            record(out, G1A, txn, key, (txn, accesses.append_txn[base + wrong[3]], -1, -1))
        if wrong[1] < size:
            record(out, GARBAGE_READ, txn, key, (txn, -1, -1, -1))
        if last >= 0 and accesses.append_flags[base + last] & FINAL == 0 and accesses.append_txn[base + last] != txn:
            record(out, G1B, txn, key, (txn, accesses.append_txn[base + last], -1, -1))
    if agreed == size:
        return size
    return work.place[last] + 1 if last >= 0 and work.place[last] >= 0 else np.int64(-1)


@lean
def _judge_update(work, accesses, read, key, size, out):
    """Two transactions that read one version and both append are a lost update; each such version counts once."""
    length, fork, txn = accesses.length[read], accesses.fork[read], accesses.read_txn[read]
    known = work.updater[length] if fork == ON_TRUNK else work.fork_updater[fork]
    if known >= 0:
        record(out, LOST_UPDATE, txn, key, (known, txn, -1, -1))
        known = -2
    elif known == -1:
        known = txn
    if fork == ON_TRUNK:
        work.updater[length] = known
    else:
        work.fork_updater[fork] = known


@lean
def _judge_order(work, accesses, key, size, out):
    """Dirty updates along the version order."""
    base, aborted = accesses.append_at[key], np.int64(-1)
    for at in range(size):
        append = work.writer[at]
        if append < 0:
            continue
        outcome = accesses.append_outcome[base + append]
        if outcome == FAIL:
            aborted = append if aborted < 0 else aborted
        elif outcome == OK:
            if aborted >= 0:
                txn = accesses.append_txn[base + append]
                record(out, DIRTY_UPDATE, txn, key, (accesses.append_txn[base + aborted], txn, -1, -1))
            aborted = np.int64(-1)


@lean
def _order_edges(work, accesses, key, size, edges):
    """ww edges along the version order; returns the last append that can have happened, or -1."""
    base, before = accesses.append_at[key], np.int64(-1)
    for at in range(size):
        append = work.writer[at]
        if append < 0 or accesses.append_outcome[base + append] == FAIL:
            continue
        if before >= 0:
            put(edges, accesses.append_txn[base + before], accesses.append_txn[base + append], WW, key)
        before = append
    return before


@lean
def _read_edges(work, accesses, key, read, past, readers, edges):
    """rw edges of a read that is `past` versions; returns how many readers of the last version there are."""
    txn = accesses.read_txn[read]
    if past >= 0 and work.following[past] >= 0:
        put(edges, txn, accesses.append_txn[accesses.append_at[key] + work.following[past]], RW, key)
    elif past >= 0 and (readers == 0 or work.readers[readers - 1] != txn):
        work.readers[readers] = txn
        readers += 1
    return readers


@lean
def _end_edges(work, accesses, key, last, readers, edges):
    """Appends that nobody read come after the last version: ww from its writer, rw from its readers."""
    base, writers = accesses.append_at[key], 0
    for i in range(base, accesses.append_at[key + 1]):
        # A transaction's appends stand one right behind the other; what of it is torn is for the complete judge.
        follows = i > base and accesses.append_txn[i] == accesses.append_txn[i - 1] and work.place[i - base] >= 0
        before = work.place[i - 1 - base] if follows else 0
        edges.used[2] += follows and (before < 0 or work.place[i - base] != before + 1)
        if work.place[i - base] < 0 and accesses.append_outcome[i] != FAIL:
            if last >= 0:
                put(edges, accesses.append_txn[base + last], accesses.append_txn[i], WW, key)
            if writers == 0 or work.writers[writers - 1] != accesses.append_txn[i]:
                work.writers[writers] = accesses.append_txn[i]
                writers += 1
    edges.used[2] += writers > 1
    if readers > 0 and writers > 0:
        put_product(edges, work.readers[:readers], work.writers[:writers], work.txn_stamp, RW, key)


@lean
def _seen_last(work, accesses, store, key, read):
    """The append that a read list ends with, or -1."""
    length = np.int64(accesses.length[read])
    if length == 0:
        return np.int64(-1)
    return np.int64(lookup(work.values, _last_element(store, key, accesses.fork[read], length)))


@lean
def _infer_key(work, accesses, store, key, edges, out, problem):
    # First the order of the versions, and what is wrong in it by itself; then each read's place in it.
    _index_appends(work, accesses, key, problem)
    size = _index_order(work, accesses, store.orders, key)
    _inspect_lists(work, accesses, store, key)
    for at in range(store.trunks.length[key] + 1):
        work.updater[at] = -1
    _judge_order(work, accesses, key, size, out)
    last = _order_edges(work, accesses, key, size, edges)
    base, readers = accesses.append_at[key], 0
    for read in range(accesses.read_at[key], accesses.read_at[key + 1]):
        past = _judge_read(work, accesses, store, key, read, out)
        if accesses.read_flags[read] & UPDATES and accesses.read_outcome[read] == OK:
            _judge_update(work, accesses, read, key, size, out)
        seen = _seen_last(work, accesses, store, key, read)
        if seen >= 0 and accesses.append_outcome[base + seen] != FAIL:
            put(edges, accesses.append_txn[base + seen], accesses.read_txn[read], WR, key)
        readers = _read_edges(work, accesses, key, read, past, readers, edges)
    _end_edges(work, accesses, key, last, readers, edges)


@lean
def _edge_bound(accesses, key):
    appends = accesses.append_at[key + 1] - accesses.append_at[key]
    reads = accesses.read_at[key + 1] - accesses.read_at[key]
    return 2 * appends + 2 * reads + product_bound(reads, appends)


@lean
def infer_keys(work, accesses, store, first_key, edges, out, problem):
    """Judge keys from `first_key` on; returns the key before which edges need more room, or how many keys there are."""
    for key in range(first_key, accesses.append_at.shape[0] - 1):
        if edges.used[0] + _edge_bound(accesses, key) > edges.source.shape[0]:
            return key
        _infer_key(work, accesses, store, key, edges, out, problem)
    return accesses.append_at.shape[0] - 1


def edge_bound(accesses: Accesses, key: int) -> int:
    """The room that a key may need."""
    return int(_edge_bound(accesses, key))
