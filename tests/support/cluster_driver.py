"""A driver of a standalone cluster in a process of its own: one session for many histories. The process that tests may
have another, and a process has one JVM."""

from __future__ import annotations

import json
import os
import signal
import tempfile
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec

from checkers.api import judge_source
from checkers.engines import shuffle, spark
from checkers.engines.local import LocalEngine
from checkers.engines.session import SparkOptions
from checkers.engines.spark import SparkEngine
from checkers.importers.detect import open_source
from checkers.verdict import Verdict
from harness.history.address import Place
from tests.support.standalone_cluster import Cluster

Event = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Heard:
    """The file in which Spark writes what happens to a session."""

    log: Path

    def of(self, *names: str) -> list[Event]:
        """The events of these names so far, in their order; but for a line that is being written."""
        begins = tuple(f'{{"Event":"SparkListener{name}"' for name in names)
        lines = self.log.read_text().splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.startswith(begins) and line.endswith("\n")]

    def is_judging(self) -> bool:
        """Whether a stage of the second job, which comes after that of verifying, has ended, but not the job."""
        begun, ended = self.of("JobStart"), self.of("JobEnd")
        through = {event["Stage Info"]["Stage ID"] for event in self.of("StageCompleted")}
        return len(begun) == 2 and len(ended) == 1 and not through.isdisjoint(begun[1]["Stage IDs"])


def kill_jvm(driver: int) -> None:
    """Kill the JVM that this process started."""
    tasks = Path("/proc", str(driver), "task").iterdir()
    pids = [pid for task in tasks for pid in (task / "children").read_text().split()]
    jvm = next(pid for pid in pids if "java" in Path("/proc", pid, "cmdline").read_text())
    os.kill(int(jvm), signal.SIGKILL)


def heard_in(folder: Path) -> tuple[tuple[str, str], ...]:
    """Settings with which Spark writes what happens in a file of this folder."""
    how = {"enabled": "true", "dir": folder.as_uri(), "compress": "false", "rolling.enabled": "false"}
    return tuple((f"spark.eventLog.{name}", value) for name, value in how.items())


class Driver:
    """Judges on a cluster with what `assay pack` made, in a session that lasts until `close`."""

    def __init__(self, cluster: Cluster, archive: Path) -> None:
        log = Path(tempfile.mkdtemp(prefix="events-", dir=cluster.home))
        options = SparkOptions(cluster.master, (*cluster.settings(), *heard_in(log)), archive)
        self._pool = ProcessPoolExecutor(1, get_context("spawn"), _begin, (options, str(cluster.lent)))
        self.pid = self._pool.submit(_session).result()
        (file,) = log.iterdir()
        self.heard = Heard(file)

    def judge(self, place: Place, model: str, rows_each: int = 0) -> Future[Verdict]:
        """The verdict, once the history is verified; if `rows_each` tasks have no more operations than that."""
        return self._pool.submit(_judge, place, model, rows_each)

    def close(self) -> None:
        """End the session and the process, if there still is one."""
        with suppress(BrokenProcessPool):
            self._pool.submit(_end)
        self._pool.shutdown()


def judge_here(place: Place, model: str) -> Verdict:
    """The verdict of the engine in this process."""
    return comparable(judge_source(open_source(place), model, LocalEngine()))


def comparable(verdict: Verdict) -> Verdict:
    """All that does not differ with the engine."""
    return msgspec.structs.replace(verdict, engine="", seconds=0.0)


# ---- in the driver's process ----

_engines: list[SparkEngine] = []


def _begin(options: SparkOptions, lent: str) -> None:
    tempfile.tempdir = lent
    _engines.append(SparkEngine(options))


def _session() -> int:
    """This process, once it has a session."""
    assert _engines[0].cores > 0
    return os.getpid()


def _judge(place: Place, model: str, rows_each: int) -> Verdict:
    source, engine = open_source(place, verify=False), _engines[0]
    few, piece = (rows_each - 1, rows_each) if rows_each else (spark._FEW_ROWS, shuffle._ROWS_PER_PIECE)
    with mock.patch.object(spark, "_FEW_ROWS", few), mock.patch.object(shuffle, "_ROWS_PER_PIECE", piece):
        engine.verify(source)
        verdict = judge_source(source, model, engine)
    assert verdict.engine == engine.name
    return comparable(verdict)


def _end() -> None:
    _engines.pop().close()
