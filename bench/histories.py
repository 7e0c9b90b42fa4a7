"""The table of large valid histories that benchmarks judge, made at any size."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bench.measure import power
from checkers.made.isolation import TransactionShape, write_transaction_history
from checkers.made.pages import PageShape, write_page_history
from checkers.made.registers import RegisterShape, register_batches, write_register_history
from checkers.made.transactions import TxnShape, write_txn_history
from checkers.options import CheckOptions
from harness.history.columns import MOP, SCHEMA
from harness.history.parts import schema

ACCOUNTS: Final = 8
SET_READS: Final = 100
SMALL_VALUES: Final = 5
WARM: Final = 1_000
"""How many operations a history has that is judged before, so that kernels are compiled and modules loaded."""


class LargeHistory(NamedTuple):
    """`write` makes it of a number of its `unit`, on a number of keys: by default one for each `per_key` (0: none)."""

    model: str
    unit: str
    per_key: int
    write: Callable[[int, int, Path], None]
    settings: Mapping[str, str] = {}

    @property
    def options(self) -> CheckOptions:
        return CheckOptions(settings=dict(self.settings))


def written(name: str, count: int, keys: int, folder: Path) -> Path:
    """The history of that name and size (0 keys: as many as it has by default), which is made if it is not there."""
    keys = keys_of(name, count, keys)
    path = folder / f"{name.replace(':', '-')}-{count}-{keys}.parquet"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        HISTORIES[name].write(count, keys, path)
    return path


def keys_of(name: str, count: int, keys: int) -> int:
    per_key = HISTORIES[name].per_key
    return keys or (max(1, count // per_key) if per_key else 0)


def title(name: str, count: int, keys: int) -> str:
    """The history in words."""
    keys = keys_of(name, count, keys)
    return f"{name}, {power(count)} {HISTORIES[name].unit}" + (f", {power(keys)} key{'s' * (keys > 1)}" if keys else "")


# ---- registers and transactions ----


def _registers(count: int, keys: int, path: Path) -> None:
    write_register_history(RegisterShape(count, keys=keys), path)


def _small_values(count: int, keys: int, path: Path) -> None:
    """Registers that hold one of few values, so that only search can judge them."""
    with pq.ParquetWriter(path, schema(), compression="zstd") as writer:
        for batch in register_batches(RegisterShape(count, keys=keys)):
            mops = batch.column("mops")
            fields = {f.name: mops.flatten().field(i) for i, f in enumerate(MOP)}
            for name in ("value", "expected"):
                fives = pc.multiply(pc.divide(fields[name], SMALL_VALUES), SMALL_VALUES)
                fields[name] = pc.subtract(fields[name], fives)
            structs = pa.StructArray.from_arrays(list(fields.values()), fields=list(MOP))
            column = pa.ListArray.from_arrays(mops.offsets, structs, type=mops.type)
            writer.write_batch(batch.set_column(batch.schema.get_field_index("mops"), "mops", column))


def _lists(count: int, keys: int, path: Path) -> None:
    write_txn_history(TxnShape(count, "list-append"), path)


def _rw_registers(count: int, keys: int, path: Path) -> None:
    write_txn_history(TxnShape(count, "rw-register"), path)


def _transactions(count: int, keys: int, path: Path) -> None:
    write_transaction_history(TransactionShape(count, keys=max(10, keys), sessions=50), path)


# ---- reads of single cells, and of pages of four rows; half of the operations read ----


def _sessions(reads: int, keys: int, path: Path) -> None:
    write_register_history(RegisterShape(2 * reads, keys=keys, clients=50), path)


def _pages(reads: int, partitions: int, path: Path) -> None:
    write_page_history(PageShape(reads // 2, partitions=partitions, clients=50), path)


def _quorum_pages(reads: int, partitions: int, path: Path) -> None:
    write_page_history(PageShape(reads // 2, partitions=partitions, clients=50, quorum=True), path)


# ---- Jepsen's: one client whose operations follow each other and succeed ----


class JepsenOperations(NamedTuple):
    """`each` are the micro-operations that each has, the columns below of these; `lists` are what reads show."""

    fs: Sequence[str]
    each: int
    mop: Sequence[str]
    value: np.ndarray | Sequence[int | None]
    partition: np.ndarray | None = None
    lists: Sequence[list[int] | None] | None = None


def _table(made: JepsenOperations) -> pa.Table:
    rows, size = len(made.fs), len(made.mop)
    fields = {
        "f": pa.array(made.mop),
        "partition": pa.array(np.zeros(size, np.int64) if made.partition is None else made.partition),
        "value": pa.array(made.value, pa.int64()),
        "expected": pa.nulls(size, pa.int64()),
        "values": pa.array(made.lists or [None] * size, pa.list_(pa.int64())),
    }
    zeros = pa.array(np.zeros(size, np.int32))
    columns = [fields[f.name] if f.name in fields else zeros.cast(f.type) for f in MOP]
    structs = pa.StructArray.from_arrays(columns, fields=list(MOP))
    offsets = pa.array((np.arange(rows + 1) * made.each).astype(np.int32))
    index = np.arange(rows)
    known = {
        "op": index,
        "invoke_index": 2 * index,
        "complete_index": 2 * index + 1,
        "invoke_time": 2 * index,
        "complete_time": 2 * index + 1,
        "process": np.zeros(rows, np.int64),
        "type": ["ok"] * rows,
        "f": made.fs,
        "mops": pa.ListArray.from_arrays(offsets, structs, type=pa.list_(MOP)),
    }
    every = [known[f.name] if f.name in known else pa.nulls(rows, f.type) for f in SCHEMA]
    return pa.Table.from_arrays([c if isinstance(c, pa.Array) else pa.array(c) for c in every], schema=schema())


def _bank(count: int) -> JepsenOperations:
    reads = count // ACCOUNTS
    accounts, size = np.tile(np.arange(ACCOUNTS), reads), reads * ACCOUNTS
    return JepsenOperations(["read"] * reads, ACCOUNTS, ["r"] * size, np.full(size, 10), accounts)


def _counter(count: int) -> JepsenOperations:
    """Adds of 1, each followed by a read of the sum."""
    half = count // 2
    values = np.ones(2 * half, np.int64)
    values[1::2] = np.arange(half) + 1
    return JepsenOperations(["add", "read"] * half, 1, ["add", "r"] * half, values)


def _queue(count: int) -> JepsenOperations:
    fs = ["enqueue", "dequeue"] * (count // 2)
    return JepsenOperations(fs, 1, fs, np.repeat(np.arange(count // 2), 2))


def _unique_ids(count: int) -> JepsenOperations:
    return JepsenOperations(["generate"] * count, 1, ["generate"] * count, np.arange(count))


def _set(count: int) -> JepsenOperations:
    """A set whose elements SET_READS reads show, about `count` times in all."""
    every = max(SET_READS, 2 * count // SET_READS) // SET_READS
    fs = (["add"] * every + ["read"]) * SET_READS
    lists, values, element = [], [], 0
    for f in fs:
        lists.append(list(range(element)) if f == "read" else None)
        values.append(element if f == "add" else None)
        element += f == "add"
    return JepsenOperations(fs, 1, ["add" if f == "add" else "r" for f in fs], values, None, lists)


def _saved(made: Callable[[int], JepsenOperations]) -> Callable[[int, int, Path], None]:
    def write(count: int, keys: int, path: Path) -> None:
        pq.write_table(_table(made(count)), path, row_group_size=1 << 17, compression="zstd")

    return write


HISTORIES: Final[Mapping[str, LargeHistory]] = {
    "register": LargeHistory("register", "operations", 1_000, _registers),
    "cas-register": LargeHistory("cas-register", "operations", 100, _small_values),
    "list-append": LargeHistory("list-append", "transactions", 0, _lists),
    "rw-register": LargeHistory("rw-register", "transactions", 0, _rw_registers, {"linearizable-keys": "true"}),
    "monotonic-reads": LargeHistory("monotonic-reads", "reads", 1_000, _sessions),
    "write-atomicity": LargeHistory("write-atomicity", "reads", 4_000, _pages),
    "isolation": LargeHistory("isolation", "transactions", 50, _transactions),
    "quorum:monotonic-reads": LargeHistory("monotonic-reads", "reads", 4_000, _quorum_pages),
    "quorum:write-atomicity": LargeHistory("write-atomicity", "reads", 4_000, _quorum_pages),
    "quorum:sessions": LargeHistory("sessions", "reads", 4_000, _quorum_pages),
    "quorum:durable-rows": LargeHistory("durable-rows", "reads", 4_000, _quorum_pages),
    "bank": LargeHistory("bank", "micro-operations", 0, _saved(_bank)),
    "counter": LargeHistory("counter", "operations", 0, _saved(_counter)),
    "queue": LargeHistory("queue", "operations", 0, _saved(_queue)),
    "unique-ids": LargeHistory("unique-ids", "operations", 0, _saved(_unique_ids)),
    "set": LargeHistory("set", "shown elements", 0, _saved(_set)),
    "set-full": LargeHistory("set-full", "shown elements", 0, _saved(_set)),
}
