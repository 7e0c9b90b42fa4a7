"""What is known of the order of a register's versions, and whether it leaves them an order: real time says when each
was written and read, transactions and processes order them pair by pair.

The columns are those of `register_accesses`. Values that nobody wrote take no part.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from checkers.columns.codes import FAIL, NEVER, NIL, OK
from checkers.compiled import lean
from checkers.transactions.inference.prefix_trees import FINAL

EXTERNAL: Final = 4
"""Flag of a read: the transaction's first access of the key."""


@lean
def sort_readers(work, accesses, key, versions):
    """Group the transactions that read each version from outside."""
    low, high = accesses.read_at[key], accesses.read_at[key + 1]
    work.reader_at[: versions + 1] = 0
    for i in range(low, high):
        if accesses.read_flags[i] & EXTERNAL:
            work.reader_at[work.version[i - low] + 1] += 1
    for version in range(versions):
        work.reader_at[version + 1] += work.reader_at[version]
    for i in range(low, high):
        if accesses.read_flags[i] & EXTERNAL:
            version = work.version[i - low]
            work.readers[work.reader_at[version]] = accesses.read_txn[i]
            work.reader_at[version] += 1
    for version in range(versions, 0, -1):
        work.reader_at[version] = work.reader_at[version - 1]
    work.reader_at[0] = 0


@lean
def in_graph(accesses, base, version, writes):
    """Whether a version is what its transaction, if it took effect, made of the key."""
    if version >= writes:
        return False
    return accesses.write_outcome[base + version] != FAIL and accesses.write_flags[base + version] & FINAL != 0


@lean
def as_stated(work, accesses, key, problem):
    """Add version edges from each version to the next by what their transactions state, of those that took effect;
    returns how many there are. Two that state the same are a problem."""
    base, writes, count = accesses.write_at[key], accesses.write_at[key + 1] - accesses.write_at[key], 0
    for version in range(writes):
        told = accesses.write_stated[base + version]
        took = accesses.write_outcome[base + version] == OK or work.reader_at[version + 1] > work.reader_at[version]
        if in_graph(accesses, base, version, writes) and told != NIL and took:
            work.ranked[count], work.ended[version] = version, told
            count += 1
    sort_by_time(work.ranked, work.ended, count)
    for place in range(1, count):
        one, other = work.ranked[place - 1], work.ranked[place]
        if work.ended[one] == work.ended[other] and problem[0] < 0:
            problem[0], problem[3] = key, True
            problem[1], problem[2] = accesses.write_txn[base + one], accesses.write_txn[base + other]
        work.before[place - 1], work.after[place - 1] = one, other
    work.contradiction[3] = count
    return max(0, count - 1)


@lean
def _leave(work, version, complete, txn):
    if complete < work.ended[version]:
        work.ended[version], work.ended_by[version] = complete, txn


@lean
def _find(work, version, invoke, txn):
    if invoke > work.begun[version]:
        work.begun[version], work.begun_by[version] = invoke, txn


@lean
def next_access(work, accesses, key, write, read):
    """The next transaction's final write and external read of the key (-1: none), from places `write` and `read` on;
    returns (write, read, next places)."""
    write_end, read_end = accesses.write_at[key + 1], accesses.read_at[key + 1]
    while write < write_end and (accesses.write_flags[write] & FINAL == 0 or accesses.write_outcome[write] == FAIL):
        write += 1
    while read < read_end and accesses.read_flags[read] & EXTERNAL == 0:
        read += 1
    if write == write_end and read == read_end:
        return -1, -1, write, read
    if read == read_end or (write < write_end and accesses.write_txn[write] < accesses.read_txn[read]):
        return write, -1, write + 1, read
    if write == write_end or accesses.read_txn[read] < accesses.write_txn[write]:
        return -1, read, write, read + 1
    return write, read, write + 1, read + 1


@lean
def collect_times(work, accesses, key, versions, first_unwritten):
    """Fill `ended` and `begun`: who left the key at each version, and who found it there. Values that nobody wrote take
    no part."""
    for version in range(versions):
        work.ended[version], work.ended_by[version] = NEVER, -1
        work.begun[version], work.begun_by[version] = -1, -1
    base, low = accesses.write_at[key], accesses.read_at[key]
    write, read, next_write, next_read = next_access(work, accesses, key, base, low)
    while write >= 0 or read >= 0:
        found = work.version[read - low] if read >= 0 else write - base
        left = write - base if write >= 0 else found
        if read >= 0:
            invoke, complete, txn = accesses.read_invoke[read], accesses.read_complete[read], accesses.read_txn[read]
        else:
            invoke, complete = accesses.write_invoke[write], accesses.write_complete[write]
            txn = accesses.write_txn[write]
        if not first_unwritten <= found < versions - 1:
            _find(work, found, invoke, txn)
        if not first_unwritten <= left < versions - 1 and (read >= 0 or accesses.write_outcome[write] == OK):
            _leave(work, left, complete, txn)
        write, read, next_write, next_read = next_access(work, accesses, key, next_write, next_read)


@lean
def _sift(places, times, root, count):
    while 2 * root + 1 < count:
        child = 2 * root + 1
        if child + 1 < count and times[places[child]] < times[places[child + 1]]:
            child += 1
        if times[places[root]] >= times[places[child]]:
            return
        places[root], places[child] = places[child], places[root]
        root = child


@lean
def sort_by_time(places, times, count):
    """Heap sort of the first `count` places, in place and without memory."""
    for root in range(count // 2 - 1, -1, -1):
        _sift(places, times, root, count)
    for last in range(count - 1, 0, -1):
        places[0], places[last] = places[last], places[0]
        _sift(places, times, 0, last)


@lean
def find_contradiction(work, versions):
    """Two versions that each come before the other in real time, or (-1, -1)."""
    by_end, order = work.ranked, work.best
    unset = versions - 1
    for version in range(unset):
        if work.ended[version] < work.begun[unset]:
            return unset, version
    for version in range(versions):
        by_end[version] = version
    sort_by_time(by_end, work.ended, versions)
    # order[rank] is which of by_end[:rank + 1] began last.
    widest, widest_by = np.int64(-2), 0
    for rank in range(versions):
        version = by_end[rank]
        if work.begun[version] > widest:
            widest, widest_by = work.begun[version], version
        order[rank] = widest_by
    for rank in range(versions):
        version = by_end[rank]
        if work.ended[version] == NEVER:
            break
        # by_end[:low] ended before this one began, so each of them comes before it. It comes before one of them if
        # that began after it had ended: then the one of them that began last did.
        low, high = 0, rank
        while low < high:
            middle = (low + high) // 2
            if work.ended[by_end[middle]] < work.begun[version]:
                low = middle + 1
            else:
                high = middle
        if low > 0 and work.begun[order[low - 1]] > work.ended[version]:
            return order[low - 1], version
    return -1, -1


_RELEASED: Final = 1
_PLACED: Final = 2


@lean
def read_before_written(work, accesses, key, versions, first_unwritten, count):
    """Add version edges from what a transaction read to what it then wrote; returns how many edges there are."""
    base, low = accesses.write_at[key], accesses.read_at[key]
    write, read, next_write, next_read = next_access(work, accesses, key, base, low)
    while write >= 0 or read >= 0:
        if write >= 0 and read >= 0:
            found = work.version[read - low]
            if found != write - base and not first_unwritten <= found < versions - 1:
                work.before[count], work.after[count] = found, write - base
                count += 1
        write, read, next_write, next_read = next_access(work, accesses, key, next_write, next_read)
    return count


@lean
def within_processes(work, accesses, key, versions, first_unwritten, count):
    """Add version edges from where a transaction left the key to where the next one of its process found it; returns
    how many edges there are. A write whose outcome is unknown was found there, if it took effect."""
    base, low = accesses.write_at[key], accesses.read_at[key]
    for i in range(base, accesses.write_at[key + 1]):
        work.last[accesses.write_process[i]] = -1
    for i in range(low, accesses.read_at[key + 1]):
        work.last[accesses.read_process[i]] = -1
    write, read, next_write, next_read = next_access(work, accesses, key, base, low)
    while write >= 0 or read >= 0:
        found = work.version[read - low] if read >= 0 else write - base
        left = write - base if write >= 0 else found
        process = accesses.read_process[read] if read >= 0 else accesses.write_process[write]
        before = work.last[process]
        if before >= 0 and before != found and not first_unwritten <= found < versions - 1:
            work.before[count], work.after[count] = before, found
            count += 1
        completed = read >= 0 or accesses.write_outcome[write] == OK
        if completed and not first_unwritten <= left < versions - 1:
            work.last[process] = left
        write, read, next_write, next_read = next_access(work, accesses, key, next_write, next_read)
    return count


@lean
def sort_edges(work, versions, count):
    """Offsets of version edges by version in `edge_at`, the edges in that order in `edge_order`."""
    work.edge_at[: versions + 2] = 0
    for i in range(count):
        work.edge_at[work.before[i] + 2] += 1
    for version in range(versions):
        work.edge_at[version + 2] += work.edge_at[version + 1]
    for i in range(count):
        work.edge_order[work.edge_at[work.before[i] + 1]] = i
        work.edge_at[work.before[i] + 1] += 1


@lean
def _release(version, state, waiting, queue, tail):
    """Note that real time lets a version come next."""
    if state[version] & _RELEASED:
        return tail
    state[version] |= _RELEASED
    return _step(version, waiting, queue, tail)


@lean
def _step(version, waiting, queue, tail):
    """One reason less for a version to wait; returns the queue's new end."""
    waiting[version] -= 1
    if waiting[version] > 0:
        return tail
    queue[tail] = version
    return tail + 1


@lean
def have_order(work, versions, count):
    """Whether `count` version edges and real time (`ended`, `begun`) together leave the versions an order that begins
    with unset: Kahn's algorithm, in which a version waits for its edges and for all others that ended before it began.
    """
    unset = versions - 1
    waiting, by_end, by_begin = work.best[:versions], work.best[versions : 2 * versions], work.best[2 * versions :]
    queue, state, head, tail = work.ranked, work.targets, 0, 0
    waiting[:unset], state[:unset] = 1, 0
    for version in range(unset):
        by_end[version], by_begin[version] = version, version
        if work.ended[version] < work.begun[unset]:
            return False
    for i in range(count):
        if work.after[i] == unset:
            return False
        waiting[work.after[i]] += 1 if work.before[i] != unset else 0
    sort_edges(work, versions, count)
    sort_by_time(by_end, work.ended, unset)
    sort_by_time(by_begin, work.begun, unset)
    # `by_end[first]` ends first of the versions that have no place yet, `by_end[second]` next. Whoever begins behind
    # that end has to wait; `by_begin[:begun]` need not. Each of the three only moves on, so all turns together are
    # linear.
    first, second, begun = 0, 1, 0
    while True:
        while first < unset and state[by_end[first]] & _PLACED:
            first += 1
        if first == unset:
            return True
        second = max(second, first + 1)
        while second < unset and state[by_end[second]] & _PLACED:
            second += 1
        earliest = work.ended[by_end[first]]
        while begun < unset and work.begun[by_begin[begun]] <= earliest:
            tail = _release(by_begin[begun], state, waiting, queue, tail)
            begun += 1
        # It does not wait for itself: what it may still have to wait for is the second that ends.
        if second == unset or work.begun[by_end[first]] <= work.ended[by_end[second]]:
            tail = _release(by_end[first], state, waiting, queue, tail)
        # All that are left wait for each other: in a circle of edges and real time.
        if head == tail:
            return False
        version = queue[head]
        head += 1
        state[version] |= _PLACED
        for i in range(work.edge_at[version], work.edge_at[version + 1]):
            tail = _step(work.after[work.edge_order[i]], waiting, queue, tail)


@lean
def forget_times(work, versions):
    """Let real time say nothing of the versions."""
    work.ended[:versions], work.begun[:versions] = NEVER, -1
