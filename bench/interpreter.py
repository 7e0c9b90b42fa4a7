"""How many operations a second the interpreter sustains with a client that does nothing, journal included."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import tempfile
import time
from pathlib import Path

from harness.generators import Chance, Context, clients, draw, invoke, limit, mix, stagger
from harness.history.journal import JournalWriter
from harness.history.ops import Op, read, write
from harness.ports.real.ports import RealClock
from harness.run.interpreter import ProcessIds, Recorder, interpret
from harness.verdict.failures import FailureLog


class NoOpClient:
    async def invoke(self, op: Op) -> Op:
        return op.complete("ok")

    async def close(self) -> None:
        pass


class NoOpClients:
    async def open(self, process: int) -> NoOpClient:
        return NoOpClient()


def _write(context: Context, chance: Chance, count: int) -> Op:
    return invoke("write", write(chance.below(100), count))


def _read(context: Context, chance: Chance, count: int) -> Op:
    return invoke("read", read(chance.below(100)))


async def _run(ops: int, concurrency: int, path: Path) -> tuple[float, float]:
    source = clients(limit(ops, stagger(3, 1e9, mix(1, draw(1, _write), draw(2, _read)))))
    journal = JournalWriter(path)
    recorder = Recorder(journal, RealClock())
    processes = ProcessIds(concurrency)
    started, cpu = time.perf_counter(), time.process_time()
    await interpret(
        source, clients=NoOpClients(), nemesis=None, recorder=recorder, failures=FailureLog(), processes=processes
    )
    journal.close()
    return time.perf_counter() - started, time.process_time() - cpu


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ops", type=int, default=200_000)
    parser.add_argument("--concurrency", type=int, default=100)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        seconds, cpu_s = asyncio.run(_run(arguments.ops, arguments.concurrency, Path(folder) / "journal"))
    figures = {
        "benchmark": "interpreter",
        "ops": arguments.ops,
        "concurrency": arguments.concurrency,
        "seconds": round(seconds, 3),
        "ops_per_second": round(arguments.ops / seconds),
        "ops_per_cpu_second": round(arguments.ops / cpu_s),
        "cores": os.cpu_count(),
        "machine": platform.machine(),
        "python": platform.python_version(),
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
