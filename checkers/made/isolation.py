"""Transactions that are serializable by construction, at any size, or with one injected anomaly.

Each transaction of a session reads and writes a few keys, one after the other in one global order; written values are
unique. Nothing is injected for "none"; see `TransactionShape`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from checkers.compiled import kernel
from checkers.importers.transactions import Transactions, transactions_source
from harness.history.table import write_batches

Anomaly: TypeAlias = Literal["none", "ThinAirRead", "AbortedRead", "fractured", "causal"]

_ROWS_PER_GROUP: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class TransactionShape:
    """Transactions of `size` micro-operations, half of them reads (which come first); `lag` is how many transactions
    ago what reads show was written at most (0: the newest). One anomaly: a read of an unwritten value, of a failed
    transaction's, of half a transaction, or of what a transaction's own past had replaced."""

    transactions: int
    keys: int = 1000
    sessions: int = 20
    size: int = 4
    anomaly: Anomaly = "none"
    seed: int = 0


@kernel
def _fill_reads(size, key, write, value, held):  # type: ignore[no-untyped-def]
    for row in range(key.shape[0]):
        if write[row]:
            held[key[row]] = value[row]
        else:
            value[row] = held[key[row]]


def transactions(shape: TransactionShape) -> Transactions:
    """The history; every key is written by a first transaction of its own session."""
    random = np.random.default_rng(shape.seed)
    reads = shape.size // 2
    count = shape.transactions
    write = np.tile(np.arange(shape.size) >= reads, count)
    key = random.integers(0, shape.keys, count * shape.size)
    key = np.concatenate((np.arange(shape.keys), key))
    write = np.concatenate((np.ones(shape.keys, np.bool_), write))
    value = np.arange(1, len(key) + 1)
    sizes = np.concatenate(([shape.keys], np.full(count, shape.size)))
    session = np.concatenate(([0], 1 + random.integers(0, shape.sessions, count)))
    _fill_reads(shape.size, key, write, value, np.zeros(shape.keys, np.int64))
    made = Transactions(sizes, session, np.zeros(count + 1, np.bool_), write, key, value)
    return made if shape.anomaly == "none" else _injected(shape, made)


def _appended(made: Transactions, more: list[tuple[int, bool, list[tuple[bool, int, int]]]]) -> Transactions:
    """With further transactions (session, failed, micro-operations) at the end."""
    mops = [mop for _, _, inside in more for mop in inside]
    extra: list[npt.NDArray[np.int64]] = [np.array([mop[i] for mop in mops], np.int64) for i in range(3)]
    return Transactions(
        np.append(made.sizes, [len(inside) for _, _, inside in more]),
        np.append(made.session, [session for session, _, _ in more]),
        np.append(made.failed, [failed for _, failed, _ in more]),
        np.append(made.write, extra[0].astype(np.bool_)),
        np.append(made.key, extra[1]),
        np.append(made.value, extra[2]),
    )


def _injected(shape: TransactionShape, made: Transactions) -> Transactions:
    """A few transactions of new keys and sessions at the end that break one rule and no weaker one."""
    new, base = shape.keys, 10 * len(made.key)
    session = shape.sessions + 1
    first = (session, False, [(True, new, base + 1), (True, new + 1, base + 2)])
    if shape.anomaly == "ThinAirRead":
        return _appended(made, [(session, False, [(False, new, base)])])
    if shape.anomaly == "AbortedRead":
        return _appended(made, [(session, True, first[2]), (session + 1, False, [(False, new, base + 1)])])
    second = (session, False, [(True, new, base + 3), (True, new + 1, base + 4)])
    if shape.anomaly == "fractured":
        third = [(False, new, base + 1), (False, new + 1, base + 4)]
        return _appended(made, [first, second, (session + 1, False, third)])
    relay = (session + 1, False, [(False, new, base + 3), (True, new + 2, base + 5)])
    late = (session + 2, False, [(False, new + 2, base + 5), (False, new + 1, base + 2)])
    return _appended(made, [first, second, relay, late])


def write_transaction_history(shape: TransactionShape, path: Path) -> None:
    """Write the history as Parquet."""
    table = transactions_source(path, "parquet", transactions(shape)).table
    assert table is not None
    write_batches(table.to_batches(max_chunksize=_ROWS_PER_GROUP), path)
