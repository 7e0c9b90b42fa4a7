"""Who wrote what was read, in histories of plain read and write transactions, and reads that no level allows.

Rows are micro-operations in order of transaction and place. A version is a pair of key and value; with unique writes it
has one writer. The rules are those that Biswas and Enea (2019) and AWDIT (2025) ask of any history, with the names that
Plume gives to their violations.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from checkers.columns.codes import FAIL, OK
from checkers.compiled import kernel, lean_inline

FINE: Final = 0
THIN_AIR_READ: Final = 1
ABORTED_READ: Final = 2
FUTURE_READ: Final = 3
NOT_MY_OWN_WRITE: Final = 4
NOT_MY_LAST_WRITE: Final = 5
INTERMEDIATE_READ: Final = 6
SEVERAL_WRITERS: Final = 7
"""Not an anomaly: nothing can be concluded from this read."""

Int32s = npt.NDArray[np.int32]


class TransactionRows(NamedTuple):
    """Transaction t owns the rows `begin[t]:begin[t + 1]`; `key` and `version` are dense numbers, `write` and `nil`
    flags; `status` is the transaction's."""

    begin: npt.NDArray[np.int64]
    key: Int32s
    version: Int32s
    write: npt.NDArray[np.bool_]
    nil: npt.NDArray[np.bool_]
    status: npt.NDArray[np.int8]


class Matched(NamedTuple):
    """By row: the transaction that an external read read from (the number of transactions stands for the initial state,
    -1 for none), what is wrong with it, the row of the write that shows it (-1: none), and whether a write is its
    transaction's last of the key. `observed`: by transaction, whether anything was read from it."""

    source: Int32s
    problem: npt.NDArray[np.int8]
    witness: Int32s
    final: npt.NDArray[np.bool_]
    observed: npt.NDArray[np.bool_]


class _Writers(NamedTuple):
    """By version: its writer (-1: none, -2: several), the row of its last write there, the row of a failed write of it;
    by key: whether nil was written."""

    transaction: Int32s
    row: Int32s
    failed_row: Int32s
    nil_written: npt.NDArray[np.bool_]


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
