"""Peak memory of the local engine against the size of the columns it reads: `python -m bench.checkers_memory`.

Each model judges its history in a process of its own that has judged a small one before. What is measured is the most
that the process holds above what it held when it began (`VmHWM`, reset through `clear_refs`), and the Arrow bytes of
the batches it was given, decompressed.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bench._measure import machine, status_bytes
from bench.checkers_jepsen import shown
from bench.checkers_transactions import settings
from checkers.api import judge_source
from checkers.engines.local import LocalEngine
from checkers.made.pages import PageShape, write_page_history
from checkers.made.registers import RegisterShape, register_batches, write_register_history
from checkers.made.transactions import TxnShape, write_txn_history
from checkers.options import CheckOptions
from checkers.source import Source
from harness.history.columns import MOP
from harness.history.parts import schema
from harness.history.saved import open_saved

SMALL_VALUES: Final = 5
WARM: Final = 20_000


R = TypeVar("R")


class Metered(Source):
    """A source that adds up the bytes of what it hands out; the last column list it was asked for counts."""

    __slots__ = ()

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        total = 0
        for batch in Source.batches(self, columns):
            total += batch.nbytes
            yield batch
        READ[tuple(columns)] = total

    def mapped(self, columns: Sequence[str], work: Callable[[pa.RecordBatch], R], threads: int) -> Iterator[R]:
        def sized(batch: pa.RecordBatch) -> tuple[int, R]:
            return batch.nbytes, work(batch)

        total = 0
        for size, found in Source.mapped(self, columns, sized, threads):
            total += size
            yield found
        READ[tuple(columns)] = total


READ: dict[tuple[str, ...], int] = {}


def write_registers(count: int, path: Path) -> None:
    write_register_history(RegisterShape(count, keys=max(1, count // 10_000)), path)


def write_small_values(count: int, path: Path) -> None:
    """A valid history of registers that hold one of few values, so that only search can judge it."""
    with pq.ParquetWriter(path, schema(), compression="zstd") as writer:
        for batch in register_batches(RegisterShape(count, keys=max(1, count // 100))):
            mops = batch.column("mops")
            fields = {f.name: mops.flatten().field(i) for i, f in enumerate(MOP)}
            for name in ("value", "expected"):
                fields[name] = pc.subtract(
                    fields[name], pc.multiply(pc.divide(fields[name], SMALL_VALUES), SMALL_VALUES)
                )
            structs = pa.StructArray.from_arrays(list(fields.values()), fields=list(MOP))
            column = pa.ListArray.from_arrays(mops.offsets, structs, type=mops.type)
            writer.write_batch(batch.set_column(batch.schema.get_field_index("mops"), "mops", column))


def write_sessions(count: int, path: Path) -> None:
    write_register_history(RegisterShape(count, keys=max(1, count // 2000), clients=50), path)


def write_pages(count: int, path: Path) -> None:
    write_page_history(PageShape(count // 4, partitions=max(1, count // 4000), clients=50), path)


def write_sets(count: int, path: Path) -> None:
    pq.write_table(shown(count), path, row_group_size=1 << 17, compression="zstd")


HISTORIES: Final[Mapping[str, Callable[[int, Path], None]]] = {
    "register": write_registers,
    "cas-register": write_small_values,
    "list-append": lambda count, path: write_txn_history(TxnShape(count, "list-append"), path),
    "rw-register": lambda count, path: write_txn_history(TxnShape(count, "rw-register"), path),
    "monotonic-reads": write_sessions,
    "write-atomicity": write_pages,
    "set-full": write_sets,
}


def _judge(model: str, path: Path, cores: int | None) -> None:
    source = Metered(path, "parquet", pq.read_metadata(path).num_rows, saved=open_saved(path))
    verdict = judge_source(source, model, LocalEngine(cores), CheckOptions(settings=settings(model)))
    if verdict.valid is not True:
        raise SystemExit(f"{model}: {verdict.valid} {verdict.reason or ''}")


def child(model: str, warm: Path, path: Path, cores: int | None) -> None:
    """What the parent prints."""
    _judge(model, warm, cores)
    Path("/proc/self/clear_refs").write_text("5")
    READ.clear()
    before = status_bytes("VmRSS")
    _judge(model, path, cores)
    grown, read = status_bytes("VmHWM") - before, sum(READ.values())
    words = f"{model:<16} columns {read / 1e6:7.1f} MB, peak {grown / 1e6:7.1f} MB above {before / 1e6:.0f} MB"
    sys.stdout.write(f"{words}: {grown / read:.2f} times\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--operations", type=int, default=1_000_000)
    parser.add_argument("--model", choices=tuple(HISTORIES), action="append")
    parser.add_argument("--folder", type=Path, help="where histories are kept between runs")
    parser.add_argument("--cores", type=int, help="how many cores judge, else all")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments.child[0], Path(arguments.child[1]), Path(arguments.child[2]), arguments.cores)
        return
    sys.stdout.write(f"machine: {machine()}\n")
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.folder or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        for model in arguments.model or HISTORIES:
            paths = [folder / f"memory-{model}-{count}.parquet" for count in (WARM, arguments.operations)]
            for count, path in zip((WARM, arguments.operations), paths, strict=True):
                if not path.exists():
                    HISTORIES[model](count, path)
            sys.stdout.flush()
            command = [sys.executable, "-m", "bench.checkers_memory", "--child", model, *map(str, paths)]
            cores = [] if arguments.cores is None else ["--cores", str(arguments.cores)]
            subprocess.run([*command, *cores], check=True)


if __name__ == "__main__":
    main()
