"""Transactions of plain reads and writes, told a session at a time, as our table."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from checkers.columns.batches import decoded
from checkers.source import NO_CLOCK, Source
from harness.errors import UserError
from harness.history.columns import DICTIONARY_KEY, FOREIGN_BASE, MOP, SCHEMA, SCHEMA_VERSION, VERSION_KEY

Ints = npt.NDArray[np.int64]

NOTE: Final = "The format states no times: transactions are taken in the order of the file, which only sessions fix."


class Transactions(NamedTuple):
    """Micro-operations in the order of their transactions: `sizes`, `session` and `failed` have one entry a
    transaction; `write`, `key` and `value` one a micro-operation."""

    sizes: Ints
    session: Ints
    failed: npt.NDArray[np.bool_]
    write: npt.NDArray[np.bool_]
    key: Ints
    value: Ints


def integers(path: Path, words: list[bytes]) -> Ints:
    """64-bit integers that can't be mistaken for interned values; UserError for others."""
    try:
        numbers = np.array(words, dtype="S").astype(np.int64) if words else np.empty(0, np.int64)
    except (OverflowError, ValueError) as error:
        raise too_large(path) from error
    require_known(path, numbers)
    return numbers


def too_large(path: Path) -> UserError:
    return UserError(f"{path} has a number that does not fit 64 bits.")


def require_known(path: Path, numbers: Ints) -> None:
    """Raise UserError for integers that could be mistaken for interned values."""
    if len(numbers) and int(numbers.min()) <= FOREIGN_BASE:
        raise UserError(f"{path} has the number {numbers.min()}; the least that can be judged is {FOREIGN_BASE + 1}.")


def transactions_source(path: Path, format: str, told: Transactions) -> Source:
    """A source over transactions, one operation each; sessions are processes."""
    count, mops = len(told.sizes), len(told.key)
    zeros = np.zeros(mops, np.int64)
    fields: dict[str, Any] = {
        "f": decoded(told.write.astype(np.int8), ("r", "w")),
        "table": pa.array(zeros.astype(np.int32)),
        "partition": pa.array(told.key),
        "row": pa.array(zeros),
        "column": pa.array(zeros.astype(np.int32)),
        "value": pa.array(told.value),
        "expected": pa.nulls(mops, pa.int64()),
        "values": pa.nulls(mops, pa.list_(pa.int64())),
    }
    offsets = pa.array(np.concatenate(([0], np.cumsum(told.sizes))).astype(np.int32))
    structs = pa.StructArray.from_arrays([fields[field.name] for field in MOP], fields=list(MOP))
    op = np.arange(count)
    known: dict[str, Any] = {
        "op": pa.array(op),
        "invoke_index": pa.array(2 * op),
        "complete_index": pa.array(2 * op + 1),
        "invoke_time": pa.array(np.zeros(count, np.int64)),
        "type": decoded(told.failed.astype(np.int8), ("ok", "fail")),
        "process": pa.array(_processes(told.session)),
        "session": pa.array(told.session),
        "f": decoded(np.zeros(count, np.int8), ("txn",)),
        "mops": pa.ListArray.from_arrays(offsets, structs, type=pa.list_(MOP)),
        "clock": decoded(np.zeros(count, np.int8), (NO_CLOCK,)),
    }
    arrays = [known.get(field.name, pa.nulls(count, field.type)) for field in SCHEMA]
    metadata = {VERSION_KEY: str(SCHEMA_VERSION).encode(), DICTIONARY_KEY: b"[]"}
    table = pa.Table.from_arrays(arrays, schema=SCHEMA.with_metadata(metadata))
    return Source(path, format, count, table=table, note=NOTE)


def _processes(session: Ints) -> Ints:
    """Sessions as processes: negative ones would be taken for the nemesis."""
    if not len(session) or session.min() >= 0:
        return session
    return np.unique(session, return_inverse=True)[1].astype(np.int64)
