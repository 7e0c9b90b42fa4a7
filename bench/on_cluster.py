"""Histories judged on a standalone Spark cluster: `python -m bench.on_cluster [--operations 1e8] [--transactions 1e7]`.

The cluster is that of the tests: a master and two workers of one core in namespaces of their own, which see of this
machine the history and what `assay pack` made, and nothing else of ours (root is needed). A JSON line a model: seconds
of `assay check` as a whole, and the peak memory of driver, master, executors and Python workers together.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench._measure import machine, peak_memory
from checkers.made.registers import RegisterShape, write_register_history
from checkers.made.transactions import TxnShape, write_txn_history
from tests.support.standalone_cluster import Cluster, lacks, standalone_cluster


def check(cluster: Cluster, archive: Path, path: Path, model: str) -> dict[str, object]:
    """The figures of one check, in a process of its own."""
    settings = [word for name, value in cluster.settings() for word in ("--spark-conf", f"{name}={value}")]
    where = ["--engine", "spark", "--spark-master", cluster.master, *settings, "--spark-archive", str(archive)]
    command = [sys.executable, "-m", "assay.cli", "check", str(path), "--model", model, "--json", *where]
    began = time.perf_counter()
    with peak_memory() as peak:
        told = subprocess.run(
            command, check=True, stdout=subprocess.PIPE, env=os.environ | {"TMPDIR": str(cluster.lent)}
        ).stdout
    seconds = time.perf_counter() - began
    verdict = json.loads(told.splitlines()[-1])
    figures = {"valid": verdict["valid"], "seconds": round(seconds, 1), "memory": str(peak), "machine": machine()}
    return {"benchmark": "on_cluster", "model": model} | figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--operations", type=float, default=1e8, help="of registers, on a thousandth as many keys")
    parser.add_argument("--transactions", type=float, default=1e7, help="of list-append")
    parser.add_argument("--memory-mib", type=int, default=4096, help="what each worker gives its executor")
    arguments = parser.parse_args()
    if (reason := lacks()) is not None:
        sys.exit(f"no cluster of namespaces here: {reason}")
    operations, transactions = int(arguments.operations), int(arguments.transactions)
    histories: dict[str, tuple[int, Callable[[Path], None]]] = {
        "register": (
            operations,
            lambda path: write_register_history(RegisterShape(operations, max(1, operations // 1000)), path),
        ),
        "list-append": (transactions, lambda path: write_txn_history(TxnShape(transactions, "list-append"), path)),
    }
    with (
        tempfile.TemporaryDirectory(prefix="assay-bench-") as home,
        standalone_cluster(Path(home), memory_mib=arguments.memory_mib) as cluster,
    ):
        archive = Path(home, "pack.tar.gz")
        subprocess.run([sys.executable, "-m", "assay.cli", "pack", "--to", archive], check=True)
        for model, (size, write) in histories.items():
            if size:
                write(path := cluster.lent / f"{model}.parquet")
                print(json.dumps(check(cluster, archive, path, model) | {"operations": size}), flush=True)


if __name__ == "__main__":
    main()
