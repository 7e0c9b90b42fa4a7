"""What each isolation level costs to be judged in-process, asked for alone: `python -m bench.checkers_isolation`.

A JSON line for each level and format: processor seconds (reading the history included), of which judging, and peak
memory. Transactions are serializable, of ten sessions; half of their operations read. As AWDIT's text the history is
read by the importer, as Parquet by the reader of ours.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np

from bench._measure import machine, peak_memory
from checkers.api import check
from checkers.importers.transactions import Transactions
from checkers.made.isolation import TransactionShape, transactions, write_transaction_history
from checkers.options import CheckOptions

LEVELS = ("read-committed", "read-atomic", "causal")
SESSIONS = 10


def write_text(told: Transactions, path: Path) -> None:
    """The history in AWDIT's words: a session after the other, each with its transactions in their order."""
    begin = np.concatenate(([0], np.cumsum(told.sizes)))
    lines = [
        f"{'w' if write else 'r'} {key} {value}"
        for write, key, value in zip(told.write.tolist(), told.key.tolist(), told.value.tolist(), strict=True)
    ]
    with path.open("w") as file:
        for session in np.unique(told.session).tolist():
            if session:
                file.write("=====\n")
            inside = np.flatnonzero(told.session == session).tolist()
            file.write("\n-----\n".join("\n".join(lines[begin[each] : begin[each + 1]]) for each in inside) + "\n")


def measure(path: Path, level: str) -> dict[str, object]:
    """The figures of one check."""
    began = time.process_time()
    with peak_memory() as peak:
        verdict = check(path, "isolation", engine="local", options=CheckOptions(consistency=level))
    return {
        "benchmark": "checkers_isolation",
        "level": level,
        "format": path.suffix[1:],
        "verdict": verdict.valid,
        "cpu_s": round(time.process_time() - began, 2),
        "judging_s": round(verdict.seconds, 2),
        "memory": str(peak),
        "machine": machine(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=5_000_000, help="reads and writes")
    parser.add_argument("--keys", type=int, default=10_000)
    parser.add_argument("--size", type=int, default=8, help="of a transaction, in reads and writes")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for events in (1000, arguments.events):
            shape = TransactionShape(events // arguments.size, arguments.keys, SESSIONS, arguments.size)
            parquet, text = Path(folder, f"{events}.parquet"), Path(folder, f"{events}.txt")
            write_transaction_history(shape, parquet)
            write_text(transactions(shape), text)
            for path in (parquet, text):
                for level in LEVELS:
                    figures = measure(path, level)
                    if events == arguments.events:  # the first, of 1 000, has kernels compiled and modules loaded
                        print(json.dumps(figures | {"events": events}), flush=True)


if __name__ == "__main__":
    main()
