"""Large histories judged from Parquet to the verdict: in-process, on more cores, on Spark, on a cluster of Spark."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Annotated, Final, TypeAlias

import msgspec
import numpy as np

from bench.histories import HISTORIES, WARM, title, written
from bench.measure import Row, chosen, in_turns, kept_in, peak_memory, spent
from checkers.api import check, judge_source
from checkers.engines.local import LocalEngine
from checkers.importers.detect import open_source
from checkers.importers.transactions import Transactions
from checkers.made.isolation import TransactionShape, transactions, write_transaction_history
from checkers.options import CheckOptions
from checkers.verdict import Verdict
from tests.support.standalone_cluster import Cluster, lacks, standalone_cluster

LEVELS: Final = ("read-committed", "read-atomic", "causal")
ISOLATION_SESSIONS: Final = 10
FEW: Final = (
    "register",
    "cas-register",
    "list-append",
    "rw-register",
    "monotonic-reads",
    "write-atomicity",
    "set-full",
)
"""Whose memory and use of cores is measured where no history is named."""

Count: TypeAlias = Annotated[int, "how long each history is"]
Keys: TypeAlias = Annotated[int, "on how many keys; 0: as many as the history has by default"]
Folder: TypeAlias = Annotated[Path | None, "where histories are kept between runs"]


def judge(*histories: str, count: Count = 1_000_000, keys: Keys = 0, folder: Folder = None) -> Iterator[Row]:
    """Each history, made at that length, is read from Parquet and judged in-process, all kernels compiled."""
    yield from _judged(chosen(histories, HISTORIES), count, keys, "local", folder)


def spark(*histories: str, count: Count = 10_000_000, keys: Keys = 0, folder: Folder = None) -> Iterator[Row]:
    """The same on Spark, its start included: registers unless a history is named; memory is that of all processes."""
    yield from _judged(chosen(histories or ("register",), HISTORIES), count, keys, "spark", folder)


def _judged(names: Sequence[str], count: int, keys: int, engine: str, folder: Path | None) -> Iterator[Row]:
    with kept_in(folder) as place:
        for name in names:
            history = HISTORIES[name]
            check(written(name, WARM, 0, place), history.model, engine="local", options=history.options)
            path = written(name, count, keys, place)
            with peak_memory() as peak, spent() as took:
                verdict = check(path, history.model, engine=engine, options=history.options)
            figures = {
                "s": round(took.wall_s, 2),
                "CPU_s": round(took.cpu_s, 2),
                "judging_s": round(verdict.seconds, 2),
            }
            speed = {"M_per_s": round(count / took.wall_s / 1e6, 2), "peak_GiB": peak.gib}
            said = {"valid": expected(verdict), "details": msgspec.to_builtins(verdict.details)}
            yield {"history": title(name, count, keys), "engine": engine, **figures, **speed, **said}


def expected(verdict: Verdict) -> bool:
    """That it is valid; ends the benchmark otherwise, for figures of a wrong verdict mean nothing."""
    if verdict.valid is not True:
        sys.exit(f"{verdict.model}: {verdict.valid} {verdict.reason or ''}")
    return True


# ---- isolation levels ----


def isolation(
    events: Annotated[int, "reads and writes"] = 5_000_000,
    keys: int = 10_000,
    size: Annotated[int, "of a transaction, in reads and writes"] = 8,
) -> Iterator[Row]:
    """Serializable transactions of ten sessions, of whose operations half read, as Parquet and in AWDIT's and Plume's
    words.

    Processor seconds of the whole check, reading included, and seconds of judging in it.
    """
    with kept_in() as folder:
        for count in (WARM, events):
            shape = TransactionShape(count // size, keys, ISOLATION_SESSIONS, size)
            paths = [Path(folder, f"{count}.{form}") for form in ("parquet", "txt", "plume")]
            write_transaction_history(shape, paths[0])
            write_text(transactions(shape), paths[1])
            write_plume(transactions(shape), paths[2])
            rows = [{"level": level} for level in LEVELS]
            for row, path in product(rows, paths):
                row |= _level(path, str(row["level"]))
    yield from rows  # those of the second round: the first compiled kernels and loaded modules


def _level(path: Path, level: str) -> Row:
    with peak_memory() as peak, spent() as took:
        verdict = check(path, "isolation", engine="local", options=CheckOptions(consistency=level))
    figures = {"CPU_s": round(took.cpu_s, 2), "judging_s": round(verdict.seconds, 2), "peak_GiB": peak.gib}
    figures |= {"valid": expected(verdict)}
    return {f"{path.suffix[1:]}_{name}": figure for name, figure in figures.items()}


def write_text(history: Transactions, path: Path) -> None:
    """The history in AWDIT's words: a session after the other, each with its transactions in their order."""
    begin = np.concatenate(([0], np.cumsum(history.sizes)))
    lines = [
        f"{'w' if write else 'r'} {key} {value}"
        for write, key, value in zip(history.write.tolist(), history.key.tolist(), history.value.tolist(), strict=True)
    ]
    with path.open("w") as file:
        for session in np.unique(history.session).tolist():
            if session:
                file.write("=====\n")
            inside = np.flatnonzero(history.session == session).tolist()
            file.write("\n-----\n".join("\n".join(lines[begin[each] : begin[each + 1]]) for each in inside) + "\n")


def write_plume(history: Transactions, path: Path) -> None:
    """The history in Plume's words: transactions in their order, numbered from 0."""
    session, transaction = (np.repeat(each, history.sizes) for each in (history.session, range(len(history.sizes))))
    columns = (each.tolist() for each in (history.write, history.key, history.value, session, transaction))
    with path.open("w") as file:
        for write, *numbers in zip(*columns, strict=True):
            file.write(f"{'w' if write else 'r'}({','.join(map(str, numbers))})\n")


# ---- cores ----


def cores(
    *histories: str,
    count: Count = 1_000_000,
    keys: Keys = 0,
    cores: Annotated[Sequence[int], "how many cores judge"] = (1, 2),
    turns: int = 5,
) -> Iterator[Row]:
    """One engine in turns on one core and on more, verified: medians of seconds on the clock and of all threads.

    Compare on a machine that does nothing else: threads find no core that others have.
    """
    with kept_in() as folder:
        for name in chosen(histories or FEW, HISTORIES):
            path = written(name, count, keys, folder)
            first, _, _ = _on_cores(name, path, cores[0])
            times = in_turns(cores, turns, lambda count, _: _on_cores(name, path, count))  # noqa: B023
            row: Row = {"history": title(name, count, keys)}
            for number, found in times.items():
                if any(verdict != first for verdict, _, _ in found):
                    sys.exit(f"{name}: on {number} cores the verdict is another one")
                seconds, used = (round(statistics.median(each), 2) for each in list(zip(*found, strict=True))[1:])
                row |= {f"s_on_{number}": seconds, f"CPU_s_on_{number}": used}
            yield row


def _on_cores(name: str, path: Path, cores: int) -> tuple[Verdict, float, float]:
    with spent() as took:
        engine, source = LocalEngine(cores), open_source(path, verify=False)
        engine.verify(source)
        verdict = judge_source(source, HISTORIES[name].model, engine, HISTORIES[name].options)
    return msgspec.structs.replace(verdict, seconds=0.0), took.wall_s, took.cpu_s


# ---- a standalone cluster of Spark ----


def on_cluster(
    operations: Annotated[int, "of registers; 0: none"] = 100_000_000,
    transactions: Annotated[int, "of list-append; 0: none"] = 10_000_000,
    memory_mib: Annotated[int, "what each worker gives its executor"] = 4096,
) -> Iterator[Row]:
    """The cluster of the tests, a master and two workers of one core in namespaces of their own.

    They see of this machine the history and what `assay pack` made, and nothing else of ours. Seconds are of `assay
    check` as a whole; memory is of driver, master, executors and Python workers together.
    """
    if (reason := lacks()) is not None:
        sys.exit(f"no cluster of namespaces here: {reason}")
    with (
        tempfile.TemporaryDirectory(prefix="assay-bench-") as home,
        standalone_cluster(Path(home), memory_mib=memory_mib) as cluster,
    ):
        archive = Path(home, "pack.tar.gz")
        subprocess.run([sys.executable, "-m", "assay.cli", "pack", "--to", archive], check=True)
        for name, size in (("register", operations), ("list-append", transactions)):
            if size:
                path = written(name, size, 0, cluster.lent)
                yield {"history": title(name, size, 0), **_checked_on(cluster, archive, path, HISTORIES[name].model)}


def _checked_on(cluster: Cluster, archive: Path, path: Path, model: str) -> Row:
    """One check, in a process of its own."""
    settings = [word for name, value in cluster.settings() for word in ("--spark-conf", f"{name}={value}")]
    where = ["--engine", "spark", "--spark-master", cluster.master, *settings, "--spark-archive", str(archive)]
    command = [sys.executable, "-m", "assay.cli", "check", str(path), "--model", model, "--json", *where]
    scratch = os.environ | {"TMPDIR": str(cluster.lent)}
    with peak_memory() as peak, spent() as took:
        printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=scratch).stdout
    return {"s": round(took.wall_s, 1), "peak_GiB": peak.gib, "valid": json.loads(printed.splitlines()[-1])["valid"]}
