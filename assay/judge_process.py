"""One process that judges a run and makes its report: it loads what that takes while the run is still going on."""

from __future__ import annotations

import importlib
import multiprocessing
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.loading import loading
from assay.subprocesses import begin_subprocess
from harness.errors import HarnessError
from harness.history.rundir import RunDir


@dataclass(frozen=True, slots=True)
class JudgeProcess:
    """`judge` and `report` are `assay.judging.judge_saved_run` and `assay.reporting.report_of`, carried out there.

    Both raise what those raise, and HarnessError if the process died.
    """

    judge: Callable[[RunDir], Mapping[str, Any]]
    report: Callable[[RunDir], Path | None]


@contextmanager
def judge_process() -> Iterator[JudgeProcess]:
    """Start the process; it ends with the context, and at once where that is left by an exception."""
    with loading(for_good=False):
        _load_shared()
    context = multiprocessing.get_context("fork" if _may_fork() else "spawn")
    with ProcessPoolExecutor(1, mp_context=context, initializer=begin_subprocess) as pool:
        others = multiprocessing.active_children()
        pool.submit(_load)

        def judge(rundir: RunDir) -> Mapping[str, Any]:
            try:
                return pool.submit(_judge, rundir).result()
            except BrokenProcessPool as error:
                raise HarnessError("the process that judges died (was it killed, or out of memory?)") from error

        def report(rundir: RunDir) -> Path | None:
            try:
                return pool.submit(_report, rundir).result()
            except BrokenProcessPool as error:
                raise HarnessError("the process that makes the report died") from error

        try:
            yield JudgeProcess(judge, report)
        except BaseException:  # nothing is to be judged any more, and the pool would wait for all to be loaded
            for process in set(multiprocessing.active_children()) - set(others):
                process.kill()
            raise


def _may_fork() -> bool:
    """Whether the process may begin with all that this one has loaded: no thread but this one may hold a lock."""
    return sys.platform == "linux" and threading.active_count() == 1


def _load_shared() -> None:
    """What both processes need is loaded once, before there are two."""
    import numpy  # noqa: F401

    from harness.history.arrow import without_pandas

    without_pandas()


def _load() -> None:
    with loading(for_good=True):
        _load_shared()
        for module in ("assay.judging", "assay.reporting", "results.report", "checkers.compiled"):
            importlib.import_module(module)


def _judge(rundir: RunDir) -> Mapping[str, Any]:
    from assay.judging import judge_saved_run

    return judge_saved_run(rundir)


def _report(rundir: RunDir) -> Path | None:
    from assay.reporting import report_of

    return report_of(rundir)
