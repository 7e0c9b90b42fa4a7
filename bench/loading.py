"""What comes before judging: kernels that are compiled, and foreign histories that become columns."""

from __future__ import annotations

import resource
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec
import pyarrow as pa

from bench.measure import Row, chosen, finished, kept_in, used_s
from checkers.importers.detect import open_source
from checkers.importers.jepsen import ReadingPlan, open_edn, open_jepsen_log, open_json
from checkers.made.examples import EXAMPLES
from checkers.made.registers import RegisterShape, register_batches
from checkers.made.transactions import TxnShape, txn_batches
from checkers.models import MODELS

# ---- whole commands ----

COMMANDS: Final = (
    f"check {EXAMPLES}/register/read-before-write.edn --model register",
    "run register --time-limit 1 --seed 1 --store FOLDER/store",
    "run register --time-limit 1 --seeds 1..21 --store FOLDER/store",
    "generate register --to FOLDER/h.parquet --operations 1000000 --keys 1000",
    "generate list-append --to FOLDER/h.parquet --operations 200000",
    "generate list-append --to FOLDER/h.parquet --operations 1000000",
    "generate queue --to FOLDER/h.parquet --operations 50000 --keys 100",
)


def commands(times: int = 11) -> Iterator[Row]:
    """`assay` from its start to its end, kernels and bytecode cached: medians of seconds and of CPU seconds."""
    for command in COMMANDS:
        took = []
        for _ in range(times + 1):  # the first fills caches
            with kept_in() as folder:
                took.append(_timed(("assay.cli", *command.replace("FOLDER", str(folder)).split()), None))
        figures = {what: statistics.median(each[what] for each in took[1:]) for what in took[0]}
        yield {"command": f"assay {command.replace('FOLDER/', '')}".replace(f"{EXAMPLES}/", ""), **figures}


# ---- nothing compiled ----


def compiling(*models: str) -> Iterator[Row]:
    """A first and a second check of the first worked example of a model, each a process, with a cache of their own.

    `kernels` are what Python calls, `parts` what kernels call; one that is compiled for several types counts each time.
    Last comes the whole table of examples (`python -m checkers.compile_all`), as many processes as there are cores.
    """
    for model in chosen(models, MODELS):
        examples = sorted((EXAMPLES / model).glob("*.edn"))
        if examples:
            yield {"model": model} | _compiled(2, "assay.cli", "check", examples[0], "--model", model)
    if not models:
        yield {"model": "all examples"} | _compiled(1, "checkers.compile_all")


def _compiled(times: int, *command: str | Path) -> Row:
    with kept_in() as cache:
        took = [_timed(command, cache) for _ in range(times)]
        files = list((cache / "kernels").glob("*-*"))
    names = [path.name.rpartition("-")[0] for path in files]
    kernels = Counter(name for name in names if not name.endswith(".part"))
    seconds = {f"{when}{what}": took[at][what] for at, when in enumerate(("", "again_")[:times]) for what in took[at]}
    counted: Row = {"kernels": kernels.total(), "parts": len(names) - kernels.total()}
    return seconds | counted | {"several_times": [name for name, count in kernels.items() if count > 1]}


def _timed(command: Sequence[str | Path], cache: Path | None) -> dict[str, float]:
    ended = finished(*command, cache=cache)
    return {"CPU_s": round(ended.cpu_s, 2), "s": round(ended.wall_s, 2)}


# ---- other tools' histories ----

NAMES: Final = {"r": "read", "w": "write"}
OPENERS: Final[dict[str, Callable[[Path, bytes, ReadingPlan], Any]]] = {
    "edn": open_edn,
    "json": open_json,
    "jepsen-log": open_jepsen_log,
}

Event: TypeAlias = tuple[int, str, dict[str, Any], Any]
"""Index, type, row, and the value as plain data."""


def importers(megabytes: float = 60.0, runs: int = 5) -> Iterator[Row]:
    """MB of text a second of CPU time, the median of the runs: to a table in memory, and to Parquet on disk."""
    with kept_in() as folder:
        files = list(texts(folder, int(megabytes * 1e6)))
        for path in files[:3]:
            open_source(path, path.suffix[1:])  # loads the compiled kernels
        for path in files:
            speeds = {"to_a_table_MB_per_CPU_s": _speed(path, False, runs)}
            speeds |= {"to_Parquet_MB_per_CPU_s": _speed(path, True, runs)}
            peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            yield {"text": path.name, "MB": round(path.stat().st_size / 1e6, 2), **speeds, "peak_MiB": peak_kib // 1024}


def _speed(path: Path, on_disk: bool, runs: int) -> float:
    seconds = []
    for _ in range(runs):
        begin = used_s(resource.RUSAGE_SELF)
        OPENERS[path.suffix[1:]](path, path.read_bytes(), ReadingPlan(on_disk=on_disk))
        seconds.append(used_s(resource.RUSAGE_SELF) - begin)
    return round(path.stat().st_size / 1e6 / statistics.median(seconds), 1)


def texts(folder: Path, size: int) -> Iterator[Path]:
    """Histories of about that many bytes by format, named by what they hold."""
    lists = events(txn_batches(TxnShape(size // 720)), transaction)
    cells = events(register_batches(RegisterShape(size // 175, keys=100)), register)
    for name, found in (("list-append", lists), ("register", cells)):
        for kind, text in (
            ("edn", "".join(map(as_edn, found)).encode()),
            ("json", b"[" + b",\n".join(map(as_json, found)) + b"]"),
            ("jepsen-log", "".join(map(as_log, found)).encode()),
        ):
            path = folder / f"{name}.{kind}"
            path.write_bytes(text)
            yield path


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
    return f"INFO  jepsen.util - {row['process']}\t:{kind}\t:{NAMES.get(row['f'], row['f'])}\t{edn(value)}\n"


def as_json(event: Event) -> bytes:
    index, kind, row, value = event
    found = {"index": index, "time": index, "type": kind, "process": row["process"]}
    return msgspec.json.encode({**found, "f": NAMES.get(row["f"], row["f"]), "value": value})
