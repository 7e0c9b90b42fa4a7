"""list-append and rw-register: time and memory, on either engine.

python -m bench.checkers_transactions [--transactions 1000000] [--engine spark] [--model list-append]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from bench._measure import machine, peak_memory
from checkers.api import check
from checkers.made.transactions import TxnShape, write_txn_history
from checkers.options import CheckOptions

Model: TypeAlias = Literal["list-append", "rw-register"]
MODELS: tuple[Model, ...] = get_args(Model)


def measure(model: Model, transactions: int, engine: str, folder: Path) -> str:
    """One line of figures."""
    path = folder / f"{model}-{transactions}.parquet"
    if not path.exists():
        write_txn_history(TxnShape(transactions, model), path)
    begin = time.perf_counter()
    with peak_memory() as peak:
        verdict = check(path, model, engine=engine, options=CheckOptions(settings=settings(model)))
    seconds = time.perf_counter() - begin
    said = f"{model}: {transactions} transactions, {engine}: {verdict.valid} in {seconds:.1f} s"
    return f"{said}, {peak}; {verdict.details['dependencies']}  [{machine()}]"


def settings(model: str) -> dict[str, str]:
    return {"linearizable-keys": "true"} if model == "rw-register" else {}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--transactions", type=int, default=1_000_000)
    parser.add_argument("--engine", choices=("local", "spark"), default="local")
    parser.add_argument("--model", choices=MODELS, action="append")
    parser.add_argument("--folder", type=Path, help="where histories are kept between runs")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        for model in arguments.model or MODELS:
            folder = arguments.folder or Path(scratch)
            folder.mkdir(parents=True, exist_ok=True)
            measure(model, 1000, arguments.engine, folder)
            sys.stdout.write(measure(model, arguments.transactions, arguments.engine, folder) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
