"""Which transactions must be committed before which, by the axioms of the weak isolation levels.

Biswas and Enea (OOPSLA 2019): a level holds if the transactions have a total commit order that extends session order
(so) and reads-from (wr), and in which, whenever t3 reads key x from t1 and another writer t2 of x is *visible* to it,
t2 comes before t1. Visible is: for read committed, t3 has read from t2 before, in its own order; for read atomic, t2
so ∪ wr t3; for causal, t2 (so ∪ wr)+ t3. What is visible does not depend on the order, so these edges are fixed, and a
level holds if and only if they, so and wr have no cycle. The ways to find enough edges (those left out follow from
others) in O(n^1.5), and O(n · sessions) for causal, are those of AWDIT (PLDI 2025); for causal they are vector clocks
over the chains of session order, in one pass.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from checkers.columns.codes import Bools, Ids, Ints
from checkers.compiled import kernel, lean, lean_inline


class Reads(NamedTuple):
    """External reads: transaction t owns `begin[t]:begin[t + 1]`, in its own order; `source` is whom it read from, the
    number of transactions for the initial state."""

    begin: Ints
    key: Ids
    source: Ids


class Writes(NamedTuple):
    """Last writes of each key: transaction t owns `begin[t]:begin[t + 1]`, sorted by key."""

    begin: Ints
    key: Ids


class SessionChains(NamedTuple):
    """Session order: transaction t is number `place[t]` of chain `chain[t]`, right behind `before[t]` (-1: none). A
    transaction that is in no order at all (not committed) has chain -1."""

    chain: Ids
    place: Ids
    before: Ids
    total: int


class DemandedEdges(NamedTuple):
    """Edges `source → target`; `reason` is the external read that demands it."""

    source: Ids
    target: Ids
    reason: Ints


class Demanded(NamedTuple):
    """The first `used` places of these columns are `DemandedEdges`, behind them is room."""

    source: Ids
    target: Ids
    reason: Ints
    used: np.int64


class _Accesses(NamedTuple):
    reads: Reads
    writes: Writes


class _LatestReads(NamedTuple):
    """By key up to two reads of one transaction with different sources."""

    of: Ids  # by key whose reads they are: of others they don't count
    first: Ints  # by key the read that was met last
    second: Ints  # by key the last one met of another source, -1: none
    keys: Ids  # the keys of the transaction at hand, in the order in which they were met


class _Sources(NamedTuple):
    """By source: the transaction that read from it last; by read: whether it is its transaction's first of that."""

    met: Ids
    first: Bools


@kernel
def _grown(edges):
    size, used = 2 * edges.used, edges.used
    source, target, reason = np.empty(size, np.int32), np.empty(size, np.int32), np.empty(size, np.int64)
    source[:used], target[:used], reason[:used] = edges.source, edges.target, edges.reason
    return Demanded(source, target, reason, used)


@kernel
def emit(edges, source, target, reason):
    """The edges and one more."""
    if edges.used == edges.source.shape[0]:
        edges = _grown(edges)
    edges.source[edges.used], edges.target[edges.used], edges.reason[edges.used] = source, target, reason
    return Demanded(edges.source, edges.target, edges.reason, edges.used + 1)


@kernel
def no_edges():
    """Room for some edges."""
    return Demanded(np.empty(1024, np.int32), np.empty(1024, np.int32), np.empty(1024, np.int64), np.int64(0))


@lean
def _writes_key(writes, transaction, key):
    low, high = writes.begin[transaction], writes.begin[transaction + 1]
    while low < high:
        middle = (low + high) // 2
        if writes.key[middle] < key:
            low = middle + 1
        else:
            high = middle
    return low < writes.begin[transaction + 1] and writes.key[low] == key


@lean_inline
def _remember(reads, latest, transaction, read, seen):
    """Take in a read; returns how many different keys have been seen."""
    key = reads.key[read]
    if latest.of[key] != transaction:
        latest.of[key] = transaction
        latest.first[key], latest.second[key] = read, -1
        latest.keys[seen] = key
        return seen + 1
    if reads.source[latest.first[key]] != reads.source[read]:
        latest.second[key] = latest.first[key]
    latest.first[key] = read
    return seen


@kernel
def _against(reads, latest, key, writer, both, edges):
    """Edges from a visible writer of the key to whom the key was read from instead."""
    for second in range(2):
        read = latest.second[key] if second else latest.first[key]
        if read >= 0 and reads.source[read] != writer:
            edges = emit(edges, writer, reads.source[read], read)
            if not both:
                break
    return edges


@kernel
def _visible(accesses, latest, transaction, writer, seen, both, edges):
    """Edges that the visibility of `writer` demands for the reads in `latest`: through the shorter of two lists."""
    reads, writes = accesses.reads, accesses.writes
    if writes.begin[writer + 1] - writes.begin[writer] <= seen:
        for place in range(writes.begin[writer], writes.begin[writer + 1]):
            key = writes.key[place]
            if latest.of[key] == transaction:
                edges = _against(reads, latest, key, writer, both, edges)
    else:
        for i in range(seen):
            if _writes_key(writes, writer, latest.keys[i]):
                edges = _against(reads, latest, latest.keys[i], writer, both, edges)
    return edges


@lean
def _mark_first_reads(reads, transaction, sources):
    """Which reads are their transaction's first of their source."""
    for read in range(reads.begin[transaction], reads.begin[transaction + 1]):
        sources.first[read] = sources.met[reads.source[read]] != transaction
        sources.met[reads.source[read]] = transaction


@kernel
def _committed_edges(accesses, latest, sources):
    """Read committed: backwards through each transaction, a source's first read against the keys read behind it."""
    reads, initial = accesses.reads, accesses.reads.begin.shape[0] - 1
    edges = no_edges()
    for transaction in range(initial):
        _mark_first_reads(reads, transaction, sources)
        seen = 0
        for read in range(reads.begin[transaction + 1] - 1, reads.begin[transaction] - 1, -1):
            writer = reads.source[read]
            if sources.first[read] and writer != initial and seen > 0:
                edges = _visible(accesses, latest, transaction, writer, seen, False, edges)
            seen = _remember(reads, latest, transaction, read, seen)
    return edges


@kernel
def _atomic_edges(accesses, chains, in_order, latest, sources, last_writer):
    """Read atomic: every source, and the latest writer of each key before it in the session, against all reads."""
    reads, writes, initial = accesses.reads, accesses.writes, accesses.reads.begin.shape[0] - 1
    edges = no_edges()
    for transaction in in_order:
        _mark_first_reads(reads, transaction, sources)
        seen = 0
        begin, end = reads.begin[transaction], reads.begin[transaction + 1]
        for read in range(end - 1, begin - 1, -1):
            seen = _remember(reads, latest, transaction, read, seen)
        for read in range(begin, end):
            if sources.first[read] and reads.source[read] != initial:
                edges = _visible(accesses, latest, transaction, reads.source[read], seen, True, edges)
        for i in range(seen):
            writer = last_writer[latest.keys[i]]
            if writer >= 0 and chains.chain[writer] == chains.chain[transaction]:
                edges = _against(reads, latest, latest.keys[i], writer, True, edges)
        for place in range(writes.begin[transaction], writes.begin[transaction + 1]):
            last_writer[writes.key[place]] = transaction
    return edges


def _scratch(reads: Reads, keys: int) -> tuple[_LatestReads, _Sources]:
    longest = np.empty(int(np.diff(reads.begin).max(initial=0)), np.int32)
    latest = _LatestReads(np.full(keys, -1, np.int32), np.empty(keys, np.int64), np.empty(keys, np.int64), longest)
    return latest, _Sources(np.full(len(reads.begin), -1, np.int32), np.zeros(len(reads.key), np.bool_))


def written(edges: Demanded) -> DemandedEdges:
    """Just the edges that are there."""
    return DemandedEdges(edges.source[: edges.used], edges.target[: edges.used], edges.reason[: edges.used])


def committed_edges(reads: Reads, writes: Writes, keys: int) -> DemandedEdges:
    """What read committed demands besides so and wr."""
    return written(_committed_edges(_Accesses(reads, writes), *_scratch(reads, keys)))


def atomic_edges(reads: Reads, writes: Writes, chains: SessionChains, keys: int) -> DemandedEdges:
    """What read atomic demands besides so and wr."""
    in_order = np.lexsort((chains.place, chains.chain))
    in_order = in_order[chains.chain[in_order] >= 0].astype(np.int32)
    last_writer = np.full(keys, -1, np.int32)
    return written(_atomic_edges(_Accesses(reads, writes), chains, in_order, *_scratch(reads, keys), last_writer))


class KeyWriters(NamedTuple):
    """Writers by key, then by chain: key k's groups are `groups[k]:groups[k + 1]`, group g is of chain `chain[g]` and
    has the transactions `transaction[begin[g]:begin[g + 1]]`, numbers `place` of their chain, rising."""

    groups: Ints
    chain: Ids
    begin: Ints
    transaction: Ids
    place: Ids


class VectorClocks(NamedTuple):
    """A pool of vector clocks: entry c of a transaction's counts those of chain c that are in its past, or itself."""

    pool: Ids  # by slot a clock
    slot: Ids  # by transaction the slot of its clock, while it is needed
    waiting: Ids  # by transaction how many others still need its clock
    free: Ids  # a stack of slots: those that no transaction has


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


def causal_edges(order: Ids, reads: Reads, writes: Writes, chains: SessionChains, keys: int) -> DemandedEdges:
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
