"""What the accesses of each register say when every written value is unique (Kingsbury and Alvaro 2020, section 5).

Who read whom is told by the values. The order of versions is known only in part: unset comes first; on request,
versions follow what the database states of their transactions, what a transaction read comes before what it then wrote,
versions follow the order within processes, or real time.

With real time, version a comes before b exactly if some transaction that left the key at a completed before some one
that found it at b began: f(a) < g(b), with f the earliest such completion and g the latest such invocation. This is
decided by two numbers a version, and has a cycle only if it has one of two versions. Of the pairs it gives, those that
follow through the writer of a third version are left out.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from checkers.columns.codes import FAIL, NEVER, NIL, OK, Bools, Codes, Ids, Ints
from checkers.columns.dense import ValueMap, insert, lookup, reset
from checkers.columns.instances import record
from checkers.compiled import lean
from checkers.transactions.graph.edges import RW, WR, WW, product_bound, put, put_product
from checkers.transactions.inference.prefix_trees import FINAL, UPDATES
from checkers.transactions.inference.register_versions import (
    EXTERNAL,
    as_stated,
    collect_times,
    find_contradiction,
    forget_times,
    have_order,
    in_graph,
    read_before_written,
    sort_by_time,
    sort_edges,
    sort_readers,
    within_processes,
)

INTERNAL: Final = 0
G1A: Final = 1
G1B: Final = 2
LOST_UPDATE: Final = 3
CYCLIC_VERSIONS: Final = 4
GARBAGE: Final = 5
FUTURE_READ: Final = 6

CLASSES: Final = ("internal", "G1a", "G1b", "lost-update", "cyclic-versions", "garbage-read", "future-read")
"""By anomaly code."""


ORDER_WFR: Final = 1
ORDER_SESSIONS: Final = 2
ORDER_REALTIME: Final = 4
ORDER_STATED: Final = 8
"""Where orders of versions come from; to be added up. One that contradicts those before it is left out for that key."""


class RegisterAccesses(NamedTuple):
    """Writes and reads by key, of a key in order of invocation. Never written by what infers from them."""

    write_at: Ints  # those of key k are write_at[k]:write_at[k + 1]
    write_txn: Ids  # the transaction's number
    write_outcome: Codes  # the transaction's: OK, INFO, FAIL
    write_flags: Codes  # FINAL
    written: Ints  # the value, unique in its key
    write_invoke: Ints  # the event of the transaction's invocation
    write_complete: Ints  # the event of its completion, NEVER: unknown
    write_process: Ints  # its process, as a small number
    write_stated: Ints  # what it states of its place among the versions, NIL: nothing; empty unless that is asked for
    read_at: Ints  # those of key k are read_at[k]:read_at[k + 1]; of transactions that completed only
    read_txn: Ids
    read_flags: Codes  # EXTERNAL, UPDATES
    value: Ints  # what was found, NIL: unset
    read_invoke: Ints
    read_complete: Ints
    read_process: Ints


class RegisterScratch(NamedTuple):
    """Working memory of one key after another. Versions of a key are numbered: its writes in order, then values that
    were only read, then unset, which is the last. Writes and reads count from the key's first."""

    values: ValueMap  # the version of each value
    ended: Ints  # by version the event of the earliest completion that left the key there, NEVER: none
    ended_by: Ids  # by version whose that was, -1: nobody's
    begun: Ints  # by version the event of the latest invocation that found the key there, -1: none
    begun_by: Ids  # by version whose that was, -1: nobody's
    updater: Ids  # by version the first to read it and then write; -1: nobody, -2: several, which was recorded
    reader_at: Ints  # version v was read from outside by readers[reader_at[v]:reader_at[v + 1]]
    version: Ints  # by read its version
    readers: Ids  # transactions in order of the version that they read
    ranked: Ints  # versions with a writer in the graph, by `begun`; also versions by `ended`, or a queue of them
    best: Ints  # three a rank: of ranked[rank:] the versions that ended first, -1: no more; also lists of versions
    targets: Ids  # the writers of the versions right behind the one at hand; also flags by version (`have_order`)
    before: Ids  # by version edge the version that comes before
    after: Ids  # by version edge the version that comes behind
    edge_at: Ints  # the edges from version v are edge_order[edge_at[v]:edge_at[v + 1]]
    edge_order: Ids  # version edges in order of `before`
    last: Ints  # by process the version at which it left the key at hand, -1: it has not touched it yet
    txn_stamp: Ints  # by transaction the helper node that it was marked for, -1: none is at work (`put_product`)
    contradiction: Ints  # [0]: 1 if the key's versions have no order; [1] and [2]: two that show it, or -1;
    # [3]: how many of them have a place that is stated


class RegisterBatch(NamedTuple):
    """Micro-operations of transactions that follow each other."""

    offsets: Ints  # those of transaction t are offsets[t]:offsets[t + 1]
    outcome: Codes  # by transaction OK, INFO or FAIL
    is_read: Bools  # else it is a write
    key: Ids
    value: Ints  # what was read or written, NIL: unset
    first_txn: int  # the number of transaction 0 in the history


@lean
def _index_writes(work, accesses, key, problem):
    """Number the versions; returns how many there are, unset last."""
    begin, end = accesses.write_at[key], accesses.write_at[key + 1]
    low, high = accesses.read_at[key], accesses.read_at[key + 1]
    lowest, highest, any_value = np.int64(0), np.int64(0), False
    for i in range(begin, end):
        value = accesses.written[i]
        lowest = min(lowest, value) if any_value else value
        highest = max(highest, value) if any_value else value
        any_value = True
    for i in range(low, high):
        if accesses.value[i] != NIL:
            lowest = min(lowest, accesses.value[i]) if any_value else accesses.value[i]
            highest = max(highest, accesses.value[i]) if any_value else accesses.value[i]
            any_value = True
    # Values in a small range get a place each, others are hashed: `reset` decides by the range.
    reset(work.values, end - begin + high - low, lowest, highest)
    for failed in range(2):  # who read what failed, too, read it of who did not
        for i in range(begin, end):
            if (accesses.write_outcome[i] == FAIL) != (failed == 1):
                continue
            other = insert(work.values, accesses.written[i], i - begin)
            if other >= 0 and not failed and problem[0] < 0:
                problem[0], problem[1], problem[2] = key, accesses.write_txn[i], accesses.write_txn[begin + other]
    count = end - begin
    # Writes have the first numbers, in their order; values that were only read come behind them, unset last.
    for i in range(low, high):
        if accesses.value[i] == NIL:
            work.version[i - low] = -1
            continue
        known = np.int64(lookup(work.values, accesses.value[i]))
        if known < 0:
            insert(work.values, accesses.value[i], count)
            known = count
            count += 1
        work.version[i - low] = known
    for i in range(high - low):
        if work.version[i] < 0:
            work.version[i] = count
    return count + 1


@lean
def _rank_targets(work, accesses, base, versions, writes):
    """Versions with a writer in the graph by latest invocation; of each suffix the three that ended first. One that
    nobody found there comes after unset only."""
    count = 0
    for version in range(versions):
        if in_graph(accesses, base, version, writes):
            work.begun[version] = max(work.begun[version], 0)
            work.ranked[count] = version
            count += 1
    sort_by_time(work.ranked, work.begun, count)
    one, two, three = -1, -1, -1
    for rank in range(count - 1, -1, -1):
        version = work.ranked[rank]
        ended = work.ended[version]
        if one < 0 or ended < work.ended[one]:
            one, two, three = version, one, two
        elif two < 0 or ended < work.ended[two]:
            two, three = version, two
        elif three < 0 or ended < work.ended[three]:
            three = version
        work.best[3 * rank], work.best[3 * rank + 1], work.best[3 * rank + 2] = one, two, three
    return count


@lean
def _later(work, accesses, base, version, versions, count):
    """Fill `targets` with the writers of the versions right behind one in real time; returns how many."""
    ended = np.int64(-1) if version == versions - 1 else work.ended[version]
    if ended == NEVER:
        return 0
    low, high = 0, count
    # `ranked` is in order of `begun`: what begins behind `ended` is ranked[low:].
    while low < high:
        middle = (low + high) // 2
        if work.begun[work.ranked[middle]] > ended:
            high = middle
        else:
            low = middle + 1
    if low == count:
        return 0
    # best[3 * low:][:3] are those of ranked[low:] that end first. The version itself is none of its own successors.
    one, two, three = work.best[3 * low], work.best[3 * low + 1], work.best[3 * low + 2]
    if one == version:
        one, two = two, three
    elif two == version:
        two = three
    if one < 0:
        return 0
    found, first = 0, work.ended[one]
    second = work.ended[two] if two >= 0 else NEVER
    # Right behind is what no other lies between: it begins before the first of the others ends. One that ends first is
    # measured by the second, for it does not lie before itself.
    for rank in range(low, count):
        other = work.ranked[rank]
        if work.begun[other] > max(first, second):
            break
        if other != version and work.begun[other] <= (second if other == one else first):
            work.targets[found] = accesses.write_txn[base + other]
            found += 1
    return found


@lean
def _put_after(work, accesses, key, version, found, edges):
    """Edges from all that touched a version to `found` writers of later ones; False if there is no room."""
    base, writes = accesses.write_at[key], accesses.write_at[key + 1] - accesses.write_at[key]
    low, high = work.reader_at[version], work.reader_at[version + 1]
    if edges.used[0] + found + product_bound(high - low, found) > edges.source.shape[0]:
        return False
    if in_graph(accesses, base, version, writes):
        for i in range(found):
            put(edges, accesses.write_txn[base + version], work.targets[i], WW, key)
    if high > low and found > 0:
        put_product(edges, work.readers[low:high], work.targets[:found], work.txn_stamp, RW, key)
    return True


@lean
def _realtime_edges(work, accesses, key, versions, edges):
    base, writes = accesses.write_at[key], accesses.write_at[key + 1] - accesses.write_at[key]
    count = _rank_targets(work, accesses, base, versions, writes)
    for version in range(versions):
        found = _later(work, accesses, base, version, versions, count)
        if not _put_after(work, accesses, key, version, found, edges):
            return False
    return True


@lean
def _unset_edges(work, accesses, key, versions, edges):
    """Unset comes before all versions."""
    base, writes, found = accesses.write_at[key], accesses.write_at[key + 1] - accesses.write_at[key], 0
    for version in range(writes):
        if in_graph(accesses, base, version, writes):
            work.targets[found] = accesses.write_txn[base + version]
            found += 1
    return _put_after(work, accesses, key, versions - 1, found, edges)


@lean
def _put_stated(work, accesses, key, versions, count, edges):
    """Edges between transactions by explicit version edges."""
    base, writes = accesses.write_at[key], accesses.write_at[key + 1] - accesses.write_at[key]
    sort_edges(work, versions, count)
    for version in range(versions):
        found = 0
        for i in range(work.edge_at[version], work.edge_at[version + 1]):
            other = work.after[work.edge_order[i]]
            if in_graph(accesses, base, other, writes):
                work.targets[found] = accesses.write_txn[base + other]
                found += 1
        if found and not _put_after(work, accesses, key, version, found, edges):
            return False
    return True


@lean
def _wr_edges(work, accesses, key, edges):
    base, low = accesses.write_at[key], accesses.read_at[key]
    writes, high = accesses.write_at[key + 1] - base, accesses.read_at[key + 1]
    if edges.used[0] + high - low > edges.source.shape[0]:
        return False
    for read in range(low, high):
        version = work.version[read - low]
        if accesses.read_flags[read] & EXTERNAL and in_graph(accesses, base, version, writes):
            put(edges, accesses.write_txn[base + version], accesses.read_txn[read], WR, key)
    return True


@lean
def _accepted(work, versions, count, more):
    """How many version edges stay: all `more`, or the first `count` if the rest leaves the versions no order."""
    if have_order(work, versions, more):
        return more
    work.contradiction[0], work.contradiction[1], work.contradiction[2] = True, -1, -1
    return count


@lean
def _order_edges(work, accesses, key, versions, sources, edges, problem):
    """ww and rw edges by all sources of version order that go together; False if there is no room."""
    first_unwritten, count = accesses.write_at[key + 1] - accesses.write_at[key], 0
    if sources & ORDER_STATED:
        count = as_stated(work, accesses, key, problem)
    forget_times(work, versions)
    if sources & ORDER_WFR:
        more = read_before_written(work, accesses, key, versions, first_unwritten, count)
        count = _accepted(work, versions, count, more)
    if sources & ORDER_SESSIONS:
        more = within_processes(work, accesses, key, versions, first_unwritten, count)
        count = _accepted(work, versions, count, more)
    if count and not _put_stated(work, accesses, key, versions, count, edges):
        return False
    if sources & ORDER_REALTIME:
        collect_times(work, accesses, key, versions, first_unwritten)
        one, other = find_contradiction(work, versions)
        if other < 0 and (count == 0 or have_order(work, versions, count)):
            return _realtime_edges(work, accesses, key, versions, edges)
        work.contradiction[0], work.contradiction[1], work.contradiction[2] = True, one, other
    return _unset_edges(work, accesses, key, versions, edges)


@lean
def _judge_versions(work, accesses, key, versions, out):
    """Record that the versions have no order: who left one before somebody found the other, both ways round, if two
    versions show it."""
    if work.contradiction[0] == 0:
        return
    one, other = work.contradiction[1], work.contradiction[2]
    low = accesses.read_at[key]
    first = accesses.read_txn[low] if accesses.read_at[key + 1] > low else accesses.write_txn[accesses.write_at[key]]
    if one < 0:
        record(out, CYCLIC_VERSIONS, first, key, (first, -1, -1, -1))
    elif one == versions - 1:
        late, early = work.begun_by[one], work.ended_by[other]
        record(out, CYCLIC_VERSIONS, late, key, (early, late, -1, -1))
    else:
        order = min(work.begun_by[one], work.begun_by[other])
        record(
            out,
            CYCLIC_VERSIONS,
            order,
            key,
            (work.ended_by[one], work.begun_by[other], work.ended_by[other], work.begun_by[one]),
        )


@lean
def _judge_reads(work, accesses, key, versions, out):
    base, low = accesses.write_at[key], accesses.read_at[key]
    writes = accesses.write_at[key + 1] - base
    # Before each turn: `updater` says of each version who of the reads so far read it and then wrote.
    work.updater[:versions] = -1
    for read in range(low, accesses.read_at[key + 1]):
        version, txn = work.version[read - low], accesses.read_txn[read]
        # Versions: those written, those only read, unset.
        if version < writes:
            writer = accesses.write_txn[base + version]
            if accesses.write_outcome[base + version] == FAIL:
                record(out, G1A, txn, key, (txn, writer, -1, -1))
            if accesses.write_flags[base + version] & FINAL == 0 and writer != txn:
                record(out, G1B, txn, key, (txn, writer, -1, -1))
        elif version < versions - 1:
            record(out, GARBAGE, txn, key, (txn, -1, -1, -1))
        if accesses.read_flags[read] & UPDATES:
            # Two that read one version and then wrote are a lost update, which is recorded once a version.
            if work.updater[version] >= 0:
                record(out, LOST_UPDATE, txn, key, (work.updater[version], txn, -1, -1))
                work.updater[version] = -2
            elif work.updater[version] == -1:
                work.updater[version] = txn


@lean
def _is_open(work, accesses, key):
    """Whether the key was written more than once, by some whose place among the versions is not stated."""
    base, writes, found = accesses.write_at[key], accesses.write_at[key + 1] - accesses.write_at[key], 0
    for version in range(writes):
        found += in_graph(accesses, base, version, writes)
    return found > max(1, work.contradiction[3])


@lean
def infer_registers(work, accesses, sources, first_key, edges, out, problem):
    """Judge keys from `first_key` on; returns the key before which edges need more room, or how many keys there are."""
    for key in range(first_key, accesses.write_at.shape[0] - 1):
        before, helper = edges.used[0], edges.used[1]
        work.contradiction[:] = 0
        versions = _index_writes(work, accesses, key, problem)
        sort_readers(work, accesses, key, versions)
        roomy = _wr_edges(work, accesses, key, edges)
        roomy = roomy and _order_edges(work, accesses, key, versions, sources, edges, problem)
        if not roomy:
            edges.used[0], edges.used[1] = before, helper
            return key
        edges.used[2] += _is_open(work, accesses, key)
        _judge_versions(work, accesses, key, versions, out)
        _judge_reads(work, accesses, key, versions, out)
    return accesses.write_at.shape[0] - 1


@lean
def link_registers(batch, by_key, flags, out):
    """Set the flags of a batch's micro-operations and record reads that contradict their own transaction. `by_key` is
    scratch: the transaction that touched each key last, its last micro-operation on it, its last write and its external
    read (or -1)."""
    for row in range(batch.offsets.shape[0] - 1):
        txn, clash, foreseen = batch.first_txn + row, False, False
        for mop in range(batch.offsets[row], batch.offsets[row + 1]):
            key = batch.key[mop]
            known = by_key[key]
            flags[mop] = 0
            # `known` is of this transaction only if it says so: scratch is never cleared.
            again = known[0] == txn
            if not again:
                known[0], known[2], known[3] = txn, -1, -1
            if batch.is_read[mop]:
                if not again:
                    flags[mop], known[3] = EXTERNAL, mop
                # Behind its first micro-operation on a key a transaction has to read what it last read or wrote there.
                elif batch.outcome[row] == OK and not clash and batch.value[mop] != batch.value[known[1]]:
                    clash = True
                    record(out, INTERNAL, txn, key, (txn, mop - batch.offsets[row], -1, -1))
            else:
                flags[mop] = FINAL
                # A later read that shows what is yet to be written is `internal`, for it does not show what came last.
                shown = known[3] >= 0 and batch.value[known[3]] == batch.value[mop]
                if shown and batch.outcome[row] == OK and not foreseen:
                    foreseen = True
                    record(out, FUTURE_READ, txn, key, (txn, mop - batch.offsets[row], -1, -1))
                if known[2] >= 0:
                    flags[known[2]] = 0
                elif known[3] >= 0:
                    flags[known[3]] |= UPDATES
                known[2] = mop
            known[1] = mop
