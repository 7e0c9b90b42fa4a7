"""Monotonic reads, write atomicity and isolation levels: time and memory, on either engine.

python -m bench.checkers_sessions [--reads 10000000] [--engine spark] [--model monotonic-reads]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from bench._measure import machine, peak_memory
from checkers.api import check
from checkers.made.isolation import TransactionShape, write_transaction_history
from checkers.made.pages import PageShape, write_page_history
from checkers.made.registers import RegisterShape, write_register_history

MODELS = ("monotonic-reads", "write-atomicity", "isolation")
QUORUM = {f"quorum:{model}": model for model in ("monotonic-reads", "write-atomicity", "durable-rows")}
"""Models on histories of quorum tables, pages of four rows."""


def make(model: str, reads: int, path: Path) -> None:
    """A valid history with that many reads: of single cells, of pages of four rows, or of transactions."""
    if model == "monotonic-reads":
        write_register_history(RegisterShape(2 * reads, keys=max(1, reads // 1000), clients=50), path)
    elif model in QUORUM:
        write_page_history(PageShape(reads // 2, partitions=max(1, reads // 4000), clients=50, quorum=True), path)
    elif model == "write-atomicity":
        write_page_history(PageShape(reads // 2, partitions=max(1, reads // 4000), clients=50), path)
    else:
        write_transaction_history(TransactionShape(reads // 2, keys=max(10, reads // 100), sessions=50), path)


def measure(model: str, reads: int, engine: str, folder: Path) -> str:
    """One line of figures."""
    path = folder / f"{model}-{reads}.parquet"
    if not path.exists():
        make(model, reads, path)
    begin = time.perf_counter()
    with peak_memory() as peak:
        verdict = check(path, QUORUM.get(model, model), engine=engine)
    seconds = time.perf_counter() - begin
    said = f"{model}: {reads} reads, {engine}: {verdict.valid} in {seconds:.1f} s (judging {verdict.seconds:.1f} s)"
    return f"{said}, {peak}; {verdict.details}  [{machine()}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reads", type=int, default=1_000_000)
    parser.add_argument("--engine", choices=("local", "spark"), default="local")
    parser.add_argument("--model", choices=(*MODELS, *QUORUM), action="append")
    parser.add_argument("--folder", type=Path, help="where histories are kept between runs")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        for model in arguments.model or (*MODELS, *QUORUM):
            folder = arguments.folder or Path(scratch)
            folder.mkdir(parents=True, exist_ok=True)
            measure(model, 1000, "local", folder)
            sys.stdout.write(measure(model, arguments.reads, arguments.engine, folder) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
