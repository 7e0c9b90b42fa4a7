"""Causal consistency: vector clocks over the chains of session order, in one pass (see `weak_edges`)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from checkers.compiled import kernel, lean, lean_inline
from checkers.isolation.weak_edges import (
    DemandedEdges,
    Int32s,
    Int64s,
    Reads,
    SessionChains,
    Writes,
    emit,
    no_edges,
    written,
)


class KeyWriters(NamedTuple):
    """Writers by key, then by chain: key k's groups are `groups[k]:groups[k + 1]`, group g is of chain `chain[g]` and
    has the transactions `transaction[begin[g]:begin[g + 1]]`, numbers `place` of their chain, rising."""

    groups: Int64s
    chain: Int32s
    begin: Int64s
    transaction: Int32s
    place: Int32s


class VectorClocks(NamedTuple):
    """A pool of vector clocks: transaction t's is `pool[slot[t]]` while `waiting[t]` of its successors need it; entry c
    counts the transactions of chain c that are before t or t itself. `free` is a stack of free slots."""

    pool: Int32s
    slot: Int32s
    waiting: Int32s
    free: Int32s


def key_writers(writes: Writes, chains: SessionChains, keys: int) -> KeyWriters:
    """The last writes sorted by key, chain and place."""
    owner = np.repeat(np.arange(len(writes.begin) - 1, dtype=np.int32), np.diff(writes.begin))
    chain, place = chains.chain[owner], chains.place[owner]
    order = np.lexsort((place, chain, writes.key))
    key, chain, place, owner = writes.key[order], chain[order], place[order], owner[order]
    fresh = np.ones(len(key), np.bool_)
    fresh[1:] = (key[1:] != key[:-1]) | (chain[1:] != chain[:-1])
    begin = np.flatnonzero(fresh)
    groups = np.searchsorted(key[begin], np.arange(keys + 1))
    return KeyWriters(groups, chain[begin], np.append(begin, len(key)), owner, place)


@kernel
def _successors(reads, chains, waiting, met):
    """How many transactions take each one's clock over."""
    initial = waiting.shape[0]
    for transaction in range(initial):
        if chains.chain[transaction] < 0:
            continue
        if chains.before[transaction] >= 0:
            waiting[chains.before[transaction]] += 1
        for read in range(reads.begin[transaction], reads.begin[transaction + 1]):
            source = reads.source[read]
            if source != initial and met[source] != transaction:
                met[source] = transaction
                waiting[source] += 1


@kernel
def most_alive(order, reads, chains, waiting, met):
    """How many clocks are needed at once when transactions are taken in this order."""
    initial = waiting.shape[0]
    alive, most = 0, 0
    for transaction in order:
        if transaction == initial or chains.chain[transaction] < 0:
            continue
        alive += 1
        most = max(most, alive)
        before = chains.before[transaction]
        if before >= 0:
            waiting[before] -= 1
            alive -= waiting[before] == 0
        for read in range(reads.begin[transaction], reads.begin[transaction + 1]):
            source = reads.source[read]
            if source != initial and met[source] != transaction:
                met[source] = transaction
                waiting[source] -= 1
                alive -= waiting[source] == 0
        alive -= waiting[transaction] == 0
    return most


@lean_inline
def _join(clocks, into, transaction):
    pool, other = clocks.pool, clocks.slot[transaction]
    for chain in range(pool.shape[1]):
        pool[into, chain] = max(pool[into, chain], pool[other, chain])


@lean_inline
def _drop(clocks, transaction, free):
    clocks.waiting[transaction] -= 1
    if clocks.waiting[transaction] == 0:
        clocks.free[free] = clocks.slot[transaction]
        return free + 1
    return free


@lean
def _latest_before(writers, group, limit):
    """The last transaction of a group that is among the first `limit` of its chain, or -1."""
    low, high = writers.begin[group], writers.begin[group + 1]
    while low < high:
        middle = (low + high) // 2
        if writers.place[middle] < limit:
            low = middle + 1
        else:
            high = middle
    return writers.transaction[low - 1] if low > writers.begin[group] else np.int32(-1)


@kernel
def _demand(reads, read, writers, chains, clocks, mine, edges):
    """Edges to a read's source from the last visible writer of its key in each chain, unless they are known already."""
    source, key, initial = reads.source[read], reads.key[read], clocks.slot.shape[0]
    for group in range(writers.groups[key], writers.groups[key + 1]):
        limit = clocks.pool[mine, writers.chain[group]]
        if limit == 0:
            continue
        writer = _latest_before(writers, group, limit)
        if writer < 0 or writer == source:
            continue
        if source != initial and clocks.pool[clocks.slot[source], writers.chain[group]] > chains.place[writer]:
            continue
        edges = emit(edges, writer, source, read)
    return edges


@kernel
def _causal_edges(order, reads, writers, chains, clocks, met, key_met):
    initial = clocks.slot.shape[0]
    edges, free = no_edges(), clocks.free.shape[0]
    # At the head: whoever came before in `order` (which follows sessions and reads) has its clock, as long as somebody
    # waits for it; `clocks.free[:free]` are rows of the pool that nobody uses. A clock says by chain how many of its
    # transactions are in one's causal past.
    for transaction in order:
        if transaction == initial or chains.chain[transaction] < 0:
            continue
        free -= 1
        mine = clocks.free[free]
        clocks.slot[transaction] = mine
        clocks.pool[mine, :] = 0
        before, begin, end = chains.before[transaction], reads.begin[transaction], reads.begin[transaction + 1]
        if before >= 0:
            _join(clocks, mine, before)
        for read in range(begin, end):
            source = reads.source[read]
            if source != initial and met[source] != transaction:
                met[source] = transaction
                _join(clocks, mine, source)
        # The past is whole now: whatever of it wrote a key that is read here has to come before the version that was
        # read (AWDIT, causal consistency). Each key counts once.
        for read in range(begin, end):
            if key_met[reads.key[read]] != transaction:
                key_met[reads.key[read]] = transaction
                edges = _demand(reads, read, writers, chains, clocks, mine, edges)
        # Only now does one count itself, for nobody is in his own past.
        clocks.pool[mine, chains.chain[transaction]] = chains.place[transaction] + 1
        if before >= 0:
            free = _drop(clocks, before, free)
        for read in range(begin, end):
            source = reads.source[read]
            if source != initial and met[source] == transaction:
                met[source] = -1
                free = _drop(clocks, source, free)
        if clocks.waiting[transaction] == 0:
            clocks.free[free] = mine
            free += 1
    return edges


def causal_edges(order: Int32s, reads: Reads, writes: Writes, chains: SessionChains, keys: int) -> DemandedEdges:
    """What causal consistency demands besides so and wr, for histories that are read atomic (in which a transaction
    reads each key from one source); `order` is a topological order of so ∪ wr."""
    count = len(reads.begin) - 1
    waiting = np.zeros(count, np.int32)
    _successors(reads, chains, waiting, np.full(count + 1, -1, np.int32))
    alive = most_alive(order, reads, chains, waiting.copy(), np.full(count + 1, -1, np.int32)) + 1
    pool = np.zeros((alive, max(1, chains.total)), np.int32)
    clocks = VectorClocks(pool, np.zeros(count, np.int32), waiting, np.arange(alive, dtype=np.int32))
    writers = key_writers(writes, chains, keys)
    met, key_met = np.full(count + 1, -1, np.int32), np.full(keys, -1, np.int32)
    return written(_causal_edges(order, reads, writers, chains, clocks, met, key_met))
