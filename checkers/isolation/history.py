"""A history of plain read and write transactions as small numbers: external reads, last writes, session chains."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from checkers.columns.codes import INFO, NIL, OK, WRITE, Ints
from checkers.columns.dense import dense, packed, together
from checkers.columns.mops import ADDRESS, Columns, selected
from checkers.compiled import kernel
from checkers.isolation.weak_edges import Int32s, Reads, SessionChains, Writes
from checkers.isolation.wr import FINE, Matched, TransactionRows, match


class History(NamedTuple):
    """`rows` sorted by transaction and place, with their numbers in `mops`; `reads` and `writes` are those that commit
    order is about, `read_row` the rows of `reads`; `invoke` is each transaction's index in the history, `initial` what
    keys begin as (`columns.codes.began_as`), `overlap` the first transaction that began before an earlier one of its
    session was over (-1: none), so that their session has no order."""

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
    """Number transactions, keys and versions, match reads with writes, and order sessions."""
    if not _is_in_order(rows["invoke"], rows["place"]):
        rows = selected(rows, np.lexsort((rows["place"], rows["invoke"])))
    begins = np.flatnonzero(np.diff(rows["invoke"], prepend=-1))
    begin = np.append(begins, len(rows["invoke"]))
    key, keys = together([rows[name] for name in ADDRESS])
    version, versions = together([key, rows["value"]])
    mops = TransactionRows(
        begin,
        key.astype(np.int32),
        version.astype(np.int32),
        rows["kind"] == WRITE,
        rows["value"] == NIL,
        rows["status"][begins].astype(np.int8),
    )
    matched = match(mops, keys, versions)
    committed = (mops.status == OK) | ((mops.status == INFO) & matched.observed)
    owner = np.repeat(np.arange(len(begins)), np.diff(begin))
    reads, read_row = _reads(mops, matched, owner)
    writes = _writes(mops, matched, owner, committed)
    (session, sessions), invoke = packed(*dense(rows["session"][begins])), rows["invoke"][begins]
    chains = _chains(session, sessions, mops.status, committed)
    overlap = int(
        _find_overlap(session, invoke, rows["complete"][begins], mops.status, committed, np.full(sessions, -1))
    )
    return History(rows, mops, keys, matched, reads, read_row, writes, chains, invoke, initial, overlap)


def _is_in_order(invoke: Ints, place: Ints) -> bool:
    same = invoke[1:] == invoke[:-1]
    return bool(np.where(same, place[1:] > place[:-1], invoke[1:] > invoke[:-1]).all())


def _begins(owner: Ints, count: int) -> Ints:
    begin = np.zeros(count + 1, np.int64)
    np.cumsum(np.bincount(owner, minlength=count), out=begin[1:])
    return begin


def _reads(mops: TransactionRows, matched: Matched, owner: Ints) -> tuple[Reads, Ints]:
    row = np.flatnonzero((matched.source >= 0) & (matched.problem == FINE))
    begin = _begins(owner[row], len(mops.status))
    return Reads(begin, mops.key[row], matched.source[row]), row


def _writes(mops: TransactionRows, matched: Matched, owner: Ints, committed: np.ndarray) -> Writes:
    row = np.flatnonzero(matched.final & committed[owner])
    by_owner_and_key = owner[row] * (int(mops.key.max(initial=0)) + 1) + mops.key[row]
    row = row[np.argsort(by_owner_and_key, kind="stable")]
    return Writes(_begins(owner[row], len(mops.status)), mops.key[row])


class _SessionEnds(NamedTuple):
    """By session: its last transaction that succeeded, the one that its chain ends with so far, whether nothing may
    come behind that, and how many there are."""

    last_ok: Ints
    last: Int32s
    ended: np.ndarray
    length: Int32s


@kernel
def _chain(session, status, committed, sessions, chains):  # type: ignore[no-untyped-def]
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
def _find_overlap(session, invoke, complete, status, committed, over):  # type: ignore[no-untyped-def]
    for transaction in range(session.shape[0]):
        if not committed[transaction]:
            continue
        if invoke[transaction] < over[session[transaction]]:
            return transaction
        # What is of unknown outcome comes before nothing in its session (`_chain`).
        if status[transaction] == 0:
            over[session[transaction]] = complete[transaction]
    return -1


def so_wr(history: History) -> tuple[Int32s, Int32s, Ints]:
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
