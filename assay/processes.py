"""Processes that work for a command: what they load, how they begin and end, and the one that judges a run."""

from __future__ import annotations

import gc
import importlib
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import HarnessError
from harness.history.rundir import RunDir

PARENT_LOOK_S = 0.5


@contextmanager
def loading(for_good: bool) -> Iterator[None]:
    """Nothing is collected within, where modules are loaded and nothing else is done.

    `for_good`: all that there is afterwards stays until the process ends, and collections never look at it again. That
    is for processes which are ours alone: in any other, somebody's garbage would stay too.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if for_good:
            gc.freeze()
        if enabled:
            gc.enable()


def begin_subprocess() -> None:
    """The initializer of every pool of ours. Ctrl-c, a closed terminal and `timeout` tell the whole process group to
    end; but what was found until then is still to be judged."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    end_with_parent()


def end_with_parent() -> None:
    """A parent that was killed tells nobody: without this its children would wait, or work, for ever. Pipes to it are
    not asked, for its other children have them too."""
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    while parent is not None and os.getppid() == parent.pid:
        time.sleep(PARENT_LOOK_S)
    os._exit(1)


@dataclass(frozen=True, slots=True)
class JudgeProcess:
    """`judge` and `report` are `assay.judging.judge_saved_run` and `assay.judging.report_of`, carried out there.

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
        for module in ("assay.judging", "results.report", "checkers.compiled"):
            importlib.import_module(module)


def _judge(rundir: RunDir) -> Mapping[str, Any]:
    from assay.judging import judge_saved_run

    return judge_saved_run(rundir)


def _report(rundir: RunDir) -> Path | None:
    from assay.judging import report_of

    return report_of(rundir)
