"""How fast foreign histories become columns: `python -m bench.importers [MEGABYTES] [RUNS]`.

Figures are MB of text a second of CPU time (median of the runs) of the whole reader: text to a table in memory, and to
Parquet on disk; with the peak of the process's memory over all of them.
"""

from __future__ import annotations

import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from checkers.importers.detect import open_source
from checkers.importers.jepsen import ReadingPlan, open_edn, open_jepsen_log, open_json
from checkers.made.registers import RegisterShape, register_batches
from checkers.made.transactions import TxnShape, txn_batches

NAMES = {"r": "read", "w": "write"}
OPENERS: dict[str, Callable[[Path, bytes, ReadingPlan], Any]] = {
    "edn": open_edn,
    "json": open_json,
    "jepsen-log": open_jepsen_log,
}

Event = tuple[int, str, dict[str, Any], Any]
"""Index, type, row, and the value as plain data."""


def events(batches: Iterable[pa.RecordBatch], values: Callable[[dict[str, Any], bool], Any]) -> list[Event]:
    """The events of a synthetic history; a worker whose operation never completed goes on as another process."""
    found: list[Event] = []
    lives: dict[int, int] = {}
    for batch in batches:
        for row in batch.to_pylist():
            worker = row["process"]
            row["process"] = worker + 1000 * lives.get(worker, 0)
            found.append((row["invoke_index"], "invoke", row, values(row, False)))
            if row["complete_index"] is None:
                lives[worker] = lives.get(worker, 0) + 1
            else:
                found.append((row["complete_index"], row["type"], row, values(row, row["type"] == "ok")))
    return sorted(found, key=lambda event: event[0])


def transaction(row: dict[str, Any], done: bool) -> Any:
    """`[[:r 3 [1 2]] [:append 3 5]]`."""
    return [
        [":r", mop["partition"], mop["values"] if done else None]
        if mop["f"] == "r"
        else [":append", mop["partition"], mop["value"]]
        for mop in row["mops"]
    ]


def register(row: dict[str, Any], done: bool) -> Any:
    """`[key value]`, as `jepsen.independent` has it."""
    (mop,) = row["mops"]
    held = [mop["expected"], mop["value"]] if mop["f"] == "cas" else mop["value"]
    return [mop["partition"], None if mop["f"] == "r" and not done else held]


def edn(value: Any) -> str:
    if isinstance(value, list):
        return f"[{' '.join(map(edn, value))}]"
    return "nil" if value is None else str(value)


def as_edn(event: Event) -> str:
    index, kind, row, value = event
    head = f":index {index}, :time {index}, :type :{kind}, :process {row['process']}"
    return f"{{{head}, :f :{NAMES.get(row['f'], row['f'])}, :value {edn(value)}}}\n"


def as_log(event: Event) -> str:
    _, kind, row, value = event
    f = NAMES.get(row["f"], row["f"])
    return f"INFO  jepsen.util - {row['process']}\t:{kind}\t:{f}\t{edn(value)}\n"


def as_json(event: Event) -> bytes:
    index, kind, row, value = event
    f = NAMES.get(row["f"], row["f"])
    found = {"index": index, "time": index, "type": kind, "process": row["process"], "f": f, "value": value}
    return msgspec.json.encode(found)


def written(folder: Path, size: int) -> Iterator[tuple[str, Path]]:
    """Histories of about that many bytes by format, the name of what they hold first."""
    rows = size // 720
    lists = events(txn_batches(TxnShape(rows)), transaction)
    cells = events(register_batches(RegisterShape(size // 175, keys=100)), register)
    for name, found in (("list-append", lists), ("register", cells)):
        text = "".join(map(as_edn, found)).encode()
        yield from saved(folder, f"{name}.edn", text)
        yield from saved(folder, f"{name}.json", b"[" + b",\n".join(map(as_json, found)) + b"]")
        yield from saved(folder, f"{name}.jepsen-log", "".join(map(as_log, found)).encode())


def saved(folder: Path, name: str, text: bytes) -> Iterator[tuple[str, Path]]:
    path = folder / name
    path.write_bytes(text)
    yield name, path


def cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def speed(path: Path, on_disk: bool, runs: int) -> float:
    """Median MB a second of CPU time."""
    seconds = []
    for _ in range(runs):
        begin = cpu_s()
        OPENERS[path.suffix[1:]](path, path.read_bytes(), ReadingPlan(on_disk=on_disk))
        seconds.append(cpu_s() - begin)
    return path.stat().st_size / 1e6 / statistics.median(seconds)


def main() -> None:
    size = int(float(sys.argv[1]) * 1e6) if len(sys.argv) > 1 else 60_000_000
    runs = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    with tempfile.TemporaryDirectory() as folder:
        files = list(written(Path(folder), size))
        for _, path in files[:3]:
            open_source(path, path.suffix[1:])  # Loads the compiled kernels.
        for name, path in files:
            begin = time.perf_counter()
            to_table, to_parquet = speed(path, False, runs), speed(path, True, runs)
            print(
                f"{name}: {path.stat().st_size / 1e6:.0f} MB, to a table {to_table:.1f} MB/CPU s, "
                f"to Parquet {to_parquet:.1f} MB/CPU s ({time.perf_counter() - begin:.1f} s of wall time)",
                flush=True,
            )
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")


if __name__ == "__main__":
    main()
