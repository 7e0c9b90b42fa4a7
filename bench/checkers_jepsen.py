"""How long Jepsen's checkers take on large valid histories: `python bench/checkers_jepsen.py [OPERATIONS] [ENGINE]`."""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from checkers.api import check
from checkers.options import CheckOptions
from harness.history.columns import MOP, SCHEMA
from harness.history.parts import schema

ACCOUNTS = 8
READS = 100


def table(fs: list[str], mops: list[str], values: np.ndarray, per_op: np.ndarray, partition: np.ndarray) -> pa.Table:
    """One client whose operations follow each other; all succeed. `per_op` micro-operations each."""
    rows, size = len(fs), len(values)
    fields = {
        "f": pa.array(mops),
        "partition": pa.array(partition),
        "value": pa.array(values),
        "expected": pa.nulls(size, pa.int64()),
        "values": pa.nulls(size, pa.list_(pa.int64())),
    }
    arrays = [fields[f.name] if f.name in fields else pa.array(np.zeros(size, np.int32)).cast(f.type) for f in MOP]
    offsets = np.concatenate(([0], np.cumsum(per_op))).astype(np.int32)
    lists = pa.ListArray.from_arrays(
        pa.array(offsets), pa.StructArray.from_arrays(arrays, fields=list(MOP)), type=pa.list_(MOP)
    )
    index = np.arange(rows)
    known = {
        "op": index,
        "invoke_index": 2 * index,
        "complete_index": 2 * index + 1,
        "invoke_time": 2 * index,
        "complete_time": 2 * index + 1,
        "process": np.zeros(rows, np.int64),
        "type": pa.array(["ok"] * rows),
        "f": pa.array(fs),
        "mops": lists,
    }
    columns = [known[f.name] if f.name in known else pa.nulls(rows, f.type) for f in SCHEMA]
    return pa.Table.from_arrays([pa.array(c) if isinstance(c, np.ndarray) else c for c in columns], schema=schema())


def histories(count: int) -> dict[str, pa.Table]:
    """Tables of about `count` micro-operations by model."""
    half, ones = count // 2, np.ones(count, np.int64)
    zeros = np.zeros(count, np.int64)
    reads = count // ACCOUNTS
    return {
        "bank": table(
            ["read"] * reads,
            ["r"] * (reads * ACCOUNTS),
            np.full(reads * ACCOUNTS, 10),
            np.full(reads, ACCOUNTS),
            np.tile(np.arange(ACCOUNTS), reads),
        ),
        "counter": table(
            ["add", "read"] * half, ["add", "r"] * half, counted(half), ones[: 2 * half], zeros[: 2 * half]
        ),
        "queue": table(
            ["enqueue", "dequeue"] * half,
            ["enqueue", "dequeue"] * half,
            np.repeat(np.arange(half), 2),
            ones[: 2 * half],
            zeros[: 2 * half],
        ),
        "unique-ids": table(["generate"] * count, ["generate"] * count, np.arange(count), ones, zeros),
        "set-full": shown(count),
        "set": shown(count),
    }


def counted(half: int) -> np.ndarray:
    """Adds of 1, each followed by a read of the sum."""
    values = np.ones(2 * half, np.int64)
    values[1::2] = np.arange(half) + 1
    return values


def shown(count: int) -> pa.Table:
    """A set of so many elements that READS reads show about `count` of them in all, in one table of lists."""
    adds = max(READS, 2 * count // READS)
    every = adds // READS
    fs = (["add"] * every + ["read"]) * READS
    plain = table(
        fs,
        ["add" if f == "add" else "r" for f in fs],
        np.zeros(len(fs), np.int64),
        np.ones(len(fs), int),
        np.zeros(len(fs), np.int64),
    )
    element, lists, values = 0, [], []
    for f in fs:
        lists.append(list(range(element)) if f == "read" else None)
        values.append(element if f == "add" else None)
        element += f == "add"
    mops = plain.column("mops").combine_chunks().flatten()
    fields = {"value": pa.array(values, pa.int64()), "values": pa.array(lists, pa.list_(pa.int64()))}
    arrays = [fields.get(f.name, mops.field(i)) for i, f in enumerate(MOP)]
    offsets = pa.array(np.arange(len(fs) + 1, dtype=np.int32))
    column = pa.ListArray.from_arrays(offsets, pa.StructArray.from_arrays(arrays, fields=list(MOP)), type=pa.list_(MOP))
    return plain.set_column(plain.schema.get_field_index("mops"), SCHEMA.field("mops"), column)


def main(count: int, engine: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for model, history in histories(count).items():
            path = Path(folder) / f"{model}.parquet"
            pq.write_table(history, path, row_group_size=1 << 17)
            begin = time.perf_counter()
            verdict = check(path, model, engine=engine, options=CheckOptions())
            took = time.perf_counter() - begin
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
            words = (
                f"{model:<11} {verdict.valid} {verdict.ops} operations, {took:.2f} s ({verdict.seconds:.2f} s judging)"
            )
            print(f"{words}, {peak} MiB at most so far")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000, sys.argv[2] if len(sys.argv) > 2 else "local")
