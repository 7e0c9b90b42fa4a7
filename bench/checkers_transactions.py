"""list-append and rw-register: time and memory, on either engine.

python bench/checkers_transactions.py [--transactions 1000000] [--engine spark] [--model list-append]
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from checkers.api import check
from checkers.options import CheckOptions
from checkers.transactions.synthetic import TxnShape, write_txn_history

MODELS = ("list-append", "rw-register")


def tree(root: int) -> Iterator[int]:
    """A process and all below it."""
    yield root
    for task in Path(f"/proc/{root}/task").glob("*/children"):
        for child in task.read_text().split():
            yield from tree(int(child))


def memory_kib(root: int) -> int:
    """What a process and all below it hold, shared pages counted once; those that end meanwhile are left out."""
    total = 0
    try:
        for process in tree(root):
            for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
                total += int(line.split()[1]) if line.startswith("Pss:") else 0
    except (OSError, IndexError):
        return total
    return total


@contextmanager
def watched(peak: list[int]) -> Iterator[None]:
    """Sample the memory of this process and all below it."""
    stop = threading.Event()

    def watch() -> None:
        while not stop.wait(0.25):
            peak[0] = max(peak[0], memory_kib(os.getpid()))

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    yield
    stop.set()
    watcher.join()


def measure(model: str, transactions: int, engine: str, folder: Path) -> str:
    """One line of figures."""
    path = folder / f"{model}-{transactions}.parquet"
    if not path.exists():
        write_txn_history(TxnShape(transactions, model), path)
    peak, begin = [0], time.perf_counter()
    with watched(peak):
        verdict = check(path, model, engine=engine, options=CheckOptions(settings=settings(model)))
    seconds = time.perf_counter() - begin
    said = f"{model}: {transactions} transactions, {engine}: {verdict.valid} in {seconds:.1f} s"
    return f"{said}, peak {peak[0] >> 10} MiB; {verdict.details['dependencies']}"


def settings(model: str) -> dict[str, str]:
    return {"linearizable-keys": "true"} if model == "rw-register" else {}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--transactions", type=int, default=1_000_000)
    parser.add_argument("--engine", choices=("local", "spark"), default="local")
    parser.add_argument("--model", choices=MODELS, action="append")
    parser.add_argument("--folder", type=Path, help="where histories are kept between runs")
    arguments = parser.parse_args()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 30
    sys.stdout.write(f"machine: {os.cpu_count()} cores, {memory} GiB\n")
    with tempfile.TemporaryDirectory() as scratch:
        for model in arguments.model or MODELS:
            folder = arguments.folder or Path(scratch)
            folder.mkdir(parents=True, exist_ok=True)
            measure(model, 1000, arguments.engine, folder)
            sys.stdout.write(measure(model, arguments.transactions, arguments.engine, folder) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
