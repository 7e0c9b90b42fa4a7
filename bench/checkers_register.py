"""Measures the register checker: `python -m bench.checkers_register [local|keys|spark|loaded|search|all]`.

Prints one line a measurement, with the machine it was measured on. Histories are made in a temporary directory unless
`--folder` names one.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from bench._measure import machine, peak_memory
from checkers.api import check
from checkers.columns.codes import CAS, NIL, READ, WRITE, RegisterColumns
from checkers.columns.projection import KeyedOps, concatenated, flatten, group
from checkers.engines.local import LocalEngine
from checkers.importers.detect import open_source
from checkers.linearizability.driver import Budget
from checkers.linearizability.registers.refute_registers import RegisterKernel, projection
from checkers.made.registers import RegisterShape, write_register_history
from checkers.options import CheckOptions


def say(what: str, seconds: float, operations: int, more: str = "") -> None:
    """One measurement on a line."""
    print(f"{what}: {seconds:.2f} s, {operations / seconds / 1e6:.2f} M op/s{more}  [{machine()}]", flush=True)


def judged(what: str, shape: RegisterShape, engine: str, kept: Path | None) -> None:
    """Make a history, judge it from Parquet to verdict, print time and peak memory."""
    with tempfile.TemporaryDirectory(prefix="assay-bench-") as folder:
        warm = Path(folder) / "warm.parquet"
        write_register_history(RegisterShape(10_000, keys=min(shape.keys, 100)), warm)
        check(warm, "register", engine="local")
        path = (kept or Path(folder)) / f"register-{shape.operations}-{shape.keys}.parquet"
        if not path.exists():
            write_register_history(shape, path)
        begin = time.perf_counter()
        with peak_memory() as peak:
            verdict = check(path, "register", engine=engine)
        seconds = time.perf_counter() - begin
        if verdict.valid is not True:
            sys.exit(f"wrong verdict: {verdict}")
        say(what, seconds, shape.operations, f", {peak}, checker {verdict.seconds:.2f} s")


def repeated_values(operations: int, keys: int, clients: int) -> KeyedOps:
    """A cas-register with five values that behaves, `clients` operations of a key in flight at once."""
    random, each = np.random.default_rng(1), operations // keys
    kind = random.choice(np.array([READ, WRITE, CAS], np.uint8), operations)
    value, expected = random.integers(0, 5, operations), np.full(operations, NIL)
    for key in range(keys):
        state = NIL
        for row in range(key * each, (key + 1) * each):
            if kind[row] == READ:
                value[row] = state
            else:
                expected[row] = state if kind[row] == CAS else NIL
                state = value[row]
    turn = np.tile(np.arange(each), keys)
    invoke = turn // clients * 2 * clients + turn % clients
    offsets, addresses = np.arange(keys + 1) * each, np.zeros((keys, 4), np.int64)
    addresses[:, 1] = np.arange(keys)
    return KeyedOps(addresses, RegisterColumns(offsets, kind, value, expected, invoke, invoke + clients))


def searched(operations: int) -> None:
    """Non-unique values: the search, after compilation, without loading."""
    kernel, engine = RegisterKernel(CheckOptions().explain, Budget()), LocalEngine()
    kernel(repeated_values(1000, 10, 10))
    for keys, clients in ((operations // 100, 10), (1, 10), (1, 50)):
        many = operations if keys > 1 else operations // 10
        keyed = repeated_values(many, keys, clients)
        begin = time.perf_counter()
        found = engine.judge_grouped(keyed, kernel, kernel.explain)
        seconds = time.perf_counter() - begin
        if found.counts or found.undecided:
            sys.exit(f"wrong verdict: {found}")
        say(f"search, 5 values, {many} operations, {keys} keys, {clients} clients", seconds, many)


def loaded(operations: int, keys: int = 100) -> None:
    """Unique values, from columns in memory to the findings: the median of five."""
    asked = projection(failed_cas_observed=False)
    with tempfile.TemporaryDirectory(prefix="assay-bench-") as folder:
        path = Path(folder) / "history.parquet"
        write_register_history(RegisterShape(operations, keys=keys), path)
        source = open_source(path)
        batches = source.batches(asked.columns(source.key_columns()))
        flat = concatenated([flatten(batch, asked) for batch in batches])
    kernel, engine, times = RegisterKernel(CheckOptions().explain, Budget()), LocalEngine(), []
    for _ in range(6):
        begin = time.perf_counter()
        keyed = group(flat, engine.threads(operations))
        found = engine.judge_grouped(keyed, kernel, kernel.explain)
        times.append(time.perf_counter() - begin)
        if found.counts or found.undecided:
            sys.exit(f"wrong verdict: {found}")
    say(f"loaded, {operations} operations on {keys} keys", statistics.median(times[1:]), operations)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="?", default="all", choices=["local", "keys", "spark", "loaded", "search", "all"])
    parser.add_argument("--operations", type=lambda text: int(float(text)), default=10_000_000)
    parser.add_argument("--keys", type=lambda text: int(float(text)), default=10_000)
    parser.add_argument("--folder", type=Path, help="where histories are kept between runs")
    args = parser.parse_args()
    many: int = args.operations
    keys: int = args.keys
    if args.what in ("local", "all"):
        judged(f"local, {many} operations on one key", RegisterShape(many), "local", args.folder)
    if args.what in ("keys", "all"):
        judged(f"local, {many} operations on {keys} keys", RegisterShape(many, keys=keys), "local", args.folder)
    if args.what in ("spark", "all"):
        judged(f"Spark, {many} operations on {keys} keys", RegisterShape(many, keys=keys), "spark", args.folder)
    if args.what in ("loaded", "all"):
        loaded(many // 10)
    if args.what in ("search", "all"):
        searched(many // 10)


if __name__ == "__main__":
    main()
