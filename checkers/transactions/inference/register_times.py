"""What real time says of a register's versions: when each was written and read, and which contradict one another.

The columns are those of `checkers.transactions.inference.register_accesses`.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from checkers.columns.codes import FAIL, NEVER, OK
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
