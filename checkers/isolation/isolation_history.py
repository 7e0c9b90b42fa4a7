"""A history of plain read and write transactions as small numbers: who wrote what was read, reads that no level allows,
external reads, last writes, session chains.

Rows are micro-operations in order of transaction and place. A version is a pair of key and value; with unique writes it
has one writer. The rules are those that Biswas and Enea (2019) and AWDIT (2025) ask of any history, with the names that
Plume gives to their violations.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from checkers.columns.codes import FAIL, INFO, NIL, OK, WRITE, Bools, Ids, Ints
from checkers.columns.dense import dense, packed, together
from checkers.columns.mops import ADDRESS, Columns, selected
from checkers.compiled import kernel, lean_inline
from checkers.isolation.commit_edges import Reads, SessionChains, Writes

FINE: Final = 0
THIN_AIR_READ: Final = 1
ABORTED_READ: Final = 2
FUTURE_READ: Final = 3
NOT_MY_OWN_WRITE: Final = 4
NOT_MY_LAST_WRITE: Final = 5
INTERMEDIATE_READ: Final = 6
SEVERAL_WRITERS: Final = 7
"""Not an anomaly: nothing can be concluded from this read."""


class TransactionRows(NamedTuple):
    """Transaction t owns the rows `begin[t]:begin[t + 1]`; `key` and `version` are dense numbers, `write` and `nil`
    flags; `status` is the transaction's."""

    begin: Ints
    key: Ids
    version: Ids
    write: Bools
    nil: Bools
    status: npt.NDArray[np.int8]


class Matched(NamedTuple):
    """By row: the transaction that an external read read from (the number of transactions stands for the initial state,
    -1 for none), what is wrong with it, the row of the write that shows it (-1: none), and whether a write is its
    transaction's last of the key. `observed`: by transaction, whether anything was read from it."""

    source: Ids
    problem: npt.NDArray[np.int8]
    witness: Ids
    final: Bools
    observed: Bools


class _Writers(NamedTuple):
    """Who wrote each version without having failed."""

    transaction: Ids  # by version its writer, -1: none, -2: several
    row: Ids  # by version the row of its writer's last write of it
    failed_row: Ids  # by version the row of a failed write of it, -1: none
    nil_written: Bools  # by key whether nil was written


@kernel
def _find_writers(mops, writers, final, last_row):
    for transaction in range(mops.status.shape[0]):
        begin, end = mops.begin[transaction], mops.begin[transaction + 1]
        for row in range(begin, end):
            if not mops.write[row]:
                continue
            # A version belongs to who wrote it without having failed; -2 if several did, so that nobody can tell. What
            # failed is kept apart: to read it is another anomaly than to read what nobody wrote.
            version = mops.version[row]
            last_row[mops.key[row]] = row
            if mops.status[transaction] == FAIL:
                writers.failed_row[version] = row
                continue
            if mops.nil[row]:
                writers.nil_written[mops.key[row]] = True
            if writers.transaction[version] == -1:
                writers.transaction[version] = transaction
            elif writers.transaction[version] != transaction:
                writers.transaction[version] = -2
            writers.row[version] = row
        # last_row is never cleared: it is of this transaction where it points to the row itself.
        for row in range(begin, end):
            final[row] = mops.write[row] and last_row[mops.key[row]] == row


@lean_inline
def _judge_own(mops, row, own_row):
    """A read behind an own write of its key: it must see the last one."""
    if mops.version[own_row] == mops.version[row]:
        return FINE, own_row
    return NOT_MY_OWN_WRITE, own_row


@lean_inline
def _judge_external(mops, transaction, row, writers, final):
    """What is wrong with a read of something that others wrote, the row that shows it, and where it read from."""
    version, initial = mops.version[row], mops.status.shape[0]
    writer, write_row = writers.transaction[version], writers.row[version]
    if mops.nil[row]:
        if writers.nil_written[mops.key[row]]:
            return SEVERAL_WRITERS, write_row, -1
        return FINE, -1, initial
    if writer == -2:
        return SEVERAL_WRITERS, write_row, -1
    if writer == -1:
        if writers.failed_row[version] >= 0:
            return ABORTED_READ, writers.failed_row[version], -1
        return THIN_AIR_READ, -1, -1
    if writer == transaction:
        return FUTURE_READ, write_row, -1
    if not final[write_row]:
        return INTERMEDIATE_READ, write_row, -1
    return FINE, write_row, writer


@kernel
def _wrote_before(mops, begin, row):
    """Whether what a read shows was written between `begin` and it."""
    return (mops.write[begin:row] & (mops.version[begin:row] == mops.version[row])).any()


@kernel
def _match(mops, writers, own_row, matched):
    problem, witness = matched.problem, matched.witness
    for transaction in range(mops.status.shape[0]):
        if mops.status[transaction] != OK:
            continue
        begin, end = mops.begin[transaction], mops.begin[transaction + 1]
        for row in range(begin, end):
            key = mops.key[row]
            if mops.write[row]:
                own_row[key] = row
                continue
            # own_row is never cleared: rows of earlier transactions are below `begin`.
            if own_row[key] >= begin:
                problem[row], witness[row] = _judge_own(mops, row, own_row[key])
                mine = writers.transaction[mops.version[row]] == transaction
                if problem[row] == NOT_MY_OWN_WRITE and mine:
                    problem[row] = NOT_MY_LAST_WRITE if _wrote_before(mops, begin, row) else FUTURE_READ
                continue
            problem[row], witness[row], matched.source[row] = _judge_external(
                mops, transaction, row, writers, matched.final
            )
            writer = writers.transaction[mops.version[row]]
            if writer >= 0 and not mops.nil[row]:
                matched.observed[writer] = True


def match(mops: TransactionRows, keys: int, versions: int) -> Matched:
    """Match every read with its write; linear."""
    rows, transactions = len(mops.key), len(mops.status)
    writer, row, failed_row = (np.full(versions, -1, np.int32) for _ in range(3))
    writers = _Writers(writer, row, failed_row, np.zeros(keys, np.bool_))
    matched = Matched(
        np.full(rows, -1, np.int32),
        np.zeros(rows, np.int8),
        np.full(rows, -1, np.int32),
        np.zeros(rows, np.bool_),
        np.zeros(transactions, np.bool_),
    )
    _find_writers(mops, writers, matched.final, np.full(keys, -1, np.int64))
    own_row = np.full(keys, -1, np.int64)
    _match(mops, writers, own_row, matched)
    return matched


class History(NamedTuple):
    """`rows` (ADDRESS, `invoke`, `value`) sorted by transaction and place, with their numbers in `mops`; `reads` and
    `writes` are those that commit order is about, `read_row` the rows of `reads`; `invoke` is each transaction's index
    in the history, `initial` what keys begin as (`columns.codes.began_as`), `overlap` the first transaction that began
    before an earlier one of its session was over (-1: none), so that their session has no order."""

    rows: Columns
    mops: TransactionRows
    keys: int
    matched: Matched
    reads: Reads
    read_row: Ints
    writes: Writes
    chains: SessionChains
    invoke: Ints
    initial: int | None
    overlap: int


def read_history(rows: Columns, initial: int | None = None) -> History:
    """Number transactions, keys and versions, match reads with writes, and order sessions. Columns that are of no use
    behind that are taken out of the rows, for memory."""
    del rows["size"]
    if not _is_in_order(rows["invoke"], rows["place"]):
        rows = selected(rows, np.lexsort((rows["place"], rows["invoke"])))
    del rows["place"]
    begins = np.flatnonzero(np.diff(rows["invoke"], prepend=-1))
    status, sessions_of, complete = (rows.pop(name)[begins] for name in ("status", "session", "complete"))
    key, version, keys, versions = _numbers(rows)
    begin, write = np.append(begins, len(key)), rows.pop("kind") == WRITE
    mops = TransactionRows(begin, key, version, write, rows["value"] == NIL, status.astype(np.int8))
    matched = match(mops, keys, versions)
    committed = (mops.status == OK) | ((mops.status == INFO) & matched.observed)
    owner = np.repeat(np.arange(len(begins), dtype=np.int32), np.diff(begin))
    reads, read_row = _reads(mops, matched, owner)
    writes = _writes(mops, matched, owner, committed)
    (session, sessions), invoke = packed(*dense(sessions_of)), rows["invoke"][begins]
    chains = _chains(session, sessions, mops.status, committed)
    overlap = int(_find_overlap(session, invoke, complete, mops.status, committed, np.full(sessions, -1)))
    return History(rows, mops, keys, matched, reads, read_row, writes, chains, invoke, initial, overlap)


def _numbers(rows: Columns) -> tuple[Ids, Ids, int, int]:
    """The numbers of keys and of versions by row, and how many there are of each."""
    key, keys = together([rows[name] for name in ADDRESS])
    version, versions = together([key, rows["value"]])
    return key.astype(np.int32), version.astype(np.int32), keys, versions


def _is_in_order(invoke: Ints, place: Ints) -> bool:
    same = invoke[1:] == invoke[:-1]
    return bool(np.where(same, place[1:] > place[:-1], invoke[1:] > invoke[:-1]).all())


def _begins(owner: Ids, count: int) -> Ints:
    begin = np.zeros(count + 1, np.int64)
    np.cumsum(np.bincount(owner, minlength=count), out=begin[1:])
    return begin


def _reads(mops: TransactionRows, matched: Matched, owner: Ids) -> tuple[Reads, Ints]:
    row = np.flatnonzero((matched.source >= 0) & (matched.problem == FINE))
    begin = _begins(owner[row], len(mops.status))
    return Reads(begin, mops.key[row], matched.source[row]), row


def _writes(mops: TransactionRows, matched: Matched, owner: Ids, committed: np.ndarray) -> Writes:
    row = np.flatnonzero(matched.final & committed[owner])
    by_owner_and_key = owner[row] * (np.int64(mops.key.max(initial=0)) + 1) + mops.key[row]
    row = row[np.argsort(by_owner_and_key, kind="stable")]
    return Writes(_begins(owner[row], len(mops.status)), mops.key[row])


class _SessionEnds(NamedTuple):
    """By session: its last transaction that succeeded, the one that its chain ends with so far, whether nothing may
    come behind that, and how many there are."""

    last_ok: Ints
    last: Ids
    ended: np.ndarray
    length: Ids


@kernel
def _chain(session, status, committed, sessions, chains):
    """What took effect in order of sessions. An operation of unknown outcome may take effect late: it comes behind its
    session so far and nothing comes behind it, so that it stays in its session's chain only if it ends it."""
    total = sessions.last.shape[0]
    for transaction in range(session.shape[0]):
        mine = session[transaction]
        chains.before[transaction] = sessions.last[mine] if committed[transaction] else -1
        if not committed[transaction]:
            chains.chain[transaction] = -1
        elif status[transaction] == 0 or (transaction > sessions.last_ok[mine] and not sessions.ended[mine]):
            chains.chain[transaction], chains.place[transaction] = mine, sessions.length[mine]
            sessions.length[mine] += 1
            if status[transaction] == 0:
                sessions.last[mine] = transaction
            else:
                sessions.ended[mine] = True
        else:
            chains.chain[transaction], chains.place[transaction] = total, 0
            total += 1
    return total


def _chains(session: Ints, count: int, status: np.ndarray, committed: np.ndarray) -> SessionChains:
    last_ok = np.full(count, -1, np.int64)
    last_ok[session[status == OK]] = np.flatnonzero(status == OK)
    chain, place, before = (np.zeros(len(session), np.int32) for _ in range(3))
    last, ended, length = np.full(count, -1, np.int32), np.zeros(count, np.bool_), np.zeros(count, np.int32)
    chains = SessionChains(chain, place, before, 0)
    total = _chain(session, status, committed, _SessionEnds(last_ok, last, ended, length), chains)
    return chains._replace(total=total)


@kernel
def _find_overlap(session, invoke, complete, status, committed, over):
    for transaction in range(session.shape[0]):
        if not committed[transaction]:
            continue
        if invoke[transaction] < over[session[transaction]]:
            return transaction
        # What is of unknown outcome comes before nothing in its session (`_chain`).
        if status[transaction] == 0:
            over[session[transaction]] = complete[transaction]
    return -1


def so_wr(history: History) -> tuple[Ids, Ids, Ints]:
    """The edges of so ∪ wr: source, target and the external read behind them (-1: session order). The initial state is
    the node behind all transactions and comes before every session."""
    chains, reads = history.chains, history.reads
    count = len(history.invoke)
    later = np.flatnonzero(chains.before >= 0)
    firsts = np.flatnonzero((chains.chain >= 0) & (chains.before < 0))
    reader = np.repeat(np.arange(count), np.diff(reads.begin))
    source = np.concatenate((chains.before[later], np.full(len(firsts), count), reads.source))
    target = np.concatenate((later, firsts, reader))
    reason = np.concatenate((np.full(len(later) + len(firsts), -1), np.arange(len(reads.source))))
    return source.astype(np.int32), target.astype(np.int32), reason
