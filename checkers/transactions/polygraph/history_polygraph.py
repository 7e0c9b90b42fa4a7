"""The polygraph of a history (Papadimitriou 1979): who read whom, who wrote the same key, and what is known of orders.

A transaction of unknown outcome is in it only if a committed one read what it wrote: without it the others are possible
wherever they are with it. Its own reads say nothing.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

from checkers.columns.codes import FAIL, INFO, NEVER, OK, Bools, Ints

INITIAL: Final = -1
"""In place of a writer: what a key was before anybody wrote it."""

PLAIN: Final = 0
SESSIONS: Final = 1
REALTIME: Final = 2
"""The form of a level: what orders transactions besides what they read and wrote; real time includes sessions."""


class Polygraph(NamedTuple):
    """Transactions by number in order of invocation, and who wrote and read each key.

    Every pair of a read is of two transactions; a transaction shows its last write of a key only.
    """

    txn: Ints  # by transaction its number in the history
    process: Ints
    invoke: Ints  # the event of its invocation
    complete: Ints  # the event of its completion, NEVER: unknown outcome
    write_at: Ints  # the writers of key k are writer[write_at[k]:write_at[k + 1]], each once, in order
    writer: Ints
    read_key: Ints  # reads of committed transactions from outside: each (key, reader, writer) once
    reader: Ints
    read_from: Ints  # the writer, or INITIAL
    follow_key: Ints  # known: in this key `later` comes right behind `earlier`, or INITIAL
    earlier: Ints
    later: Ints
    order_key: Ints  # known: in this key `before` comes before `after`
    before: Ints
    after: Ints

    @property
    def size(self) -> int:
        return len(self.txn)

    @property
    def keys(self) -> int:
        return len(self.write_at) - 1


class Accessed(NamedTuple):
    """What `make_polygraph` is made of, by numbers of the history's transactions: three columns each, key first.

    `writes` (key, writer) of transactions that did not fail; `reads` (key, reader, writer or INITIAL); `follows` and
    `orders` (key, one, other) as in `Polygraph`, of which committed transactions saw all in `follows`. Rows may repeat.
    """

    keys: int
    writes: Ints
    reads: Ints
    follows: Ints
    orders: Ints


class TxnTimes(NamedTuple):
    """By transaction of a history its outcome, process and events, in order of invocation."""

    outcome: Any
    process: Ints
    invoke: Ints
    complete: Ints


def make_polygraph(times: TxnTimes, accessed: Accessed) -> Polygraph:
    """The polygraph of a history; transactions that failed, and unknown ones that nobody saw, are left out."""
    reads = accessed.reads[:, times.outcome[accessed.reads[1]] == OK]
    reads = reads[:, reads[1] != reads[2]]
    kept = times.outcome == OK
    for seen in (reads[2], accessed.follows[1], accessed.follows[2]):
        kept[seen[seen != INITIAL]] = True
    kept &= times.outcome != FAIL
    number = np.where(kept, np.cumsum(kept) - 1, -2)
    number = np.append(number, INITIAL)  # so that INITIAL, which is -1, stays what it is
    write = _renumbered(accessed.writes, number)
    read, follow, order = (_renumbered(rows, number) for rows in (reads, accessed.follows, accessed.orders))
    txn = np.flatnonzero(kept)
    complete = np.where(times.outcome[txn] == INFO, NEVER, times.complete[txn])
    write_at = np.searchsorted(write[0], np.arange(accessed.keys + 1))
    columns = (txn, times.process[txn], times.invoke[txn], complete, write_at, write[1])
    return Polygraph(*columns, *read, *follow, *order)


def _renumbered(rows: Ints, number: Ints) -> Ints:
    """Rows of which all transactions are kept, each once, by the new numbers."""
    rows = np.vstack((rows[:1], number[rows[1:]]))
    rows = rows[:, (rows[1:] > -2).all(axis=0)]
    return unique_rows(rows)


def unique_rows(rows: Ints) -> Ints:
    """Each column once, in order of the first row, then of the second, …"""
    if not rows.shape[1]:
        return rows.astype(np.int64)
    rows = rows[:, np.lexsort(rows[::-1])]
    new = np.append(True, (rows[:, 1:] != rows[:, :-1]).any(axis=0))
    return rows[:, new].astype(np.int64)


def followed_sessions(polygraph: Polygraph) -> tuple[Ints, Ints]:
    """To each transaction from the last one of its process that had completed before."""
    place = np.argsort(polygraph.process, kind="stable")
    known: Bools = polygraph.complete[place] != NEVER
    last = np.maximum.accumulate(np.where(known, np.arange(len(place)), -1)) if len(place) else place
    before = np.append(-1, last[:-1]) if len(place) else place
    has = np.flatnonzero(before >= 0)
    has = has[polygraph.process[place[has]] == polygraph.process[place[before[has]]]]
    one, other = place[before[has]], place[has]
    told = polygraph.complete[one] < polygraph.invoke[other]
    return one[told], other[told]


def moments(polygraph: Polygraph) -> tuple[Ints, Ints, int]:
    """Real time as a chain of moments: for each transaction the moment that it completes into (-1: never) and the last
    moment before its invocation (-1: none), and how many moments there are. One moment leads to the next, and what
    completes into a moment comes before whatever is invoked behind it."""
    events = np.concatenate((polygraph.invoke, polygraph.complete))
    order = np.argsort(events, kind="stable")
    completion = (order >= polygraph.size) & (events[order] != NEVER)
    # Completions between the same two invocations share a moment.
    first = completion & np.append(True, ~completion[:-1]) if len(order) else completion
    number = np.empty(len(order), np.int64)
    number[order] = np.cumsum(first) - 1
    ended = np.where(polygraph.complete == NEVER, -1, number[polygraph.size :])
    return ended, number[: polygraph.size], int(first.sum())
