"""Runs, each made and judged in a child of its own: forked from this process once that has loaded all that a run takes.

    warm ─> fork ─> child: make, judge, keep ─> its result, into a file in memory that both have open
              └──> parent: waits for the end of children, or of their time ─> a `RunResult` of each, as they come

Whatever becomes of a child, the parent has one result of it: only the end of a process is waited for, and what it wrote
is read afterwards. A child that hangs, dies, is killed, writes nothing or what is no result has lost its run (`Lost`),
and costs no other. Children are in process groups of their own, so that only this process tells them to end.
"""

from __future__ import annotations

import atexit
import fcntl
import importlib
import multiprocessing
import os
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from functools import partial
from multiprocessing.connection import wait
from multiprocessing.context import ForkProcess
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Literal

import msgspec

from assay.options import RunOptions
from assay.processes import end_with_parent
from assay.telling import say_at_once, unfinished
from harness.errors import UNDECODABLE, HarnessError, UserError
from harness.history.arrow import without_pandas
from harness.history.cores import usable_cores
from harness.history.rundir import RunDir, adopt, is_run
from harness.run.spec import Silent
from harness.run.stopping import STOPPING, AskedToEnd, end_runs_from_now_on, in_charge, signals_held, take_no_signals
from harness.verdict.facts import RunAccount
from harness.verdict.run_verdict import CHECKER

GRACE_S = {"sim": 3.0, "docker": 600.0}
"""How long a child that is told to end may take: a simulation is thrown away, a run in containers heals, is judged, and
removes them."""

_LIMIT_S = {"sim": 300.0, "docker": 3600.0}
_LIMIT_SHARE = 10.0
_USUAL_RATE_HZ = 100.0

SCRATCH = ".seed-"
"""How the names of folders begin in which runs are made."""


class Keep(Enum):
    """Which runs stay in the store: none, those that are not valid, or all."""

    NOTHING = "nothing"
    FINDINGS = "findings"
    ALL = "all"


class Lost(msgspec.Struct, frozen=True):
    """How a run was lost with its child: `timed-out` after `number` seconds, `killed` by signal `number`, `exited` with
    code `number` and no whole result, or `stopped`: told to end by somebody else."""

    how: Literal["timed-out", "killed", "exited", "stopped"]
    number: float = 0.0

    def sentence(self) -> str:
        if self.how == "timed-out":
            return f"it had not ended after {self.number:g} s, and was ended"
        if self.how == "killed":
            why = " (was it killed, or out of memory?)" if self.number == signal.SIGKILL else ""
            return f"the process that ran it died by signal {self.number:g}{why}"
        if self.how == "exited":
            return f"the process that ran it exited with code {self.number:g} and gave no whole result"
        return "somebody told the process that ran it to end"


class RunResult(msgspec.Struct, frozen=True, tag="result"):
    """What came of one run: the verdict's word and why; where it was `lost`, or the harness itself raised, there is
    neither `account` nor anything but `unknown`.

    `anomalies` are names; `invariants` are those among them that broke. `ops` counts judged operations; `faults` are
    counts by kind as adequacy has them; `run` is where the run is saved (None: a valid one, not kept). CPU
    seconds are of run and judging. `stopped`: it was told to end before its time, and only what it refuted is a result.
    """

    options: RunOptions
    overall: str
    reasons: tuple[str, ...] = ()
    anomalies: tuple[str, ...] = ()
    ops: int = 0
    faults: dict[str, dict[str, Any]] | None = None
    trace: str | None = None
    run: Path | None = None
    report: Path | None = None
    cpu_s: float = 0.0
    invariants: tuple[str, ...] = ()
    stopped: bool = False
    why: str | None = None
    account: RunAccount | None = None
    lost: Lost | None = None


class RefusedRun(msgspec.Struct, frozen=True, tag="refused"):
    """No run can be made of the options, and why."""

    sentence: str


def lost_run(options: RunOptions, lost: Lost) -> RunResult:
    """The result of a run of which there is none."""
    why = "interrupted" if lost.how == "stopped" else "harness"
    return RunResult(options, "unknown", (lost.sentence(),), why=why, stopped=lost.how == "stopped", lost=lost)


def limit_s(options: RunOptions) -> float:
    """How long a run may take by the wall clock: several times what the slowest were seen to take."""
    work = max(1.0, options.rate / _USUAL_RATE_HZ)
    return _LIMIT_S[options.on] + _LIMIT_SHARE * options.time_limit * work


# ---- the parent ----


@dataclass(slots=True)
class _Child:
    """A run under way; `sink` is the file of its result, `due_s` when its time is over on the monotonic clock, `told`
    that it was told so."""

    options: RunOptions
    process: ForkProcess
    sink: int
    limit_s: float
    due_s: float
    told: bool = False

    def end_of_time(self) -> None:
        """Its time is over: it is told to end, and has to, once the time for that is over as well."""
        if self.told:
            self.process.kill()
        self.process.terminate()
        self.told, self.due_s = True, time.monotonic() + GRACE_S[self.options.on]


@dataclass(slots=True)
class _Children:
    """All runs under way. Signals are held wherever one begins or ends, so that none is ever lost from sight."""

    keep: Keep
    cores: int | None
    limit_s: float | None
    all: list[_Child] = field(default_factory=list)

    def begin(self, options: RunOptions) -> None:
        """Raises HarnessError where this machine has no room for another process."""
        limit = limit_s(options) if self.limit_s is None else self.limit_s
        with signals_held():
            try:
                sink = os.memfd_create("result")
                sinks = [*(child.sink for child in self.all), sink]
                process = multiprocessing.get_context("fork").Process(
                    target=_in_child, args=(sinks, options, self.keep, self.cores)
                )
                process.start()
            except OSError as error:
                raise HarnessError(f"no process can be started: {error.strerror}") from error
            self.all.append(_Child(options, process, sink, limit, time.monotonic() + limit))

    def await_any(self) -> None:
        """Until one has ended, or its time is over."""
        due_s = min(child.due_s for child in self.all)
        wait([child.process.sentinel for child in self.all], max(0.0, due_s - time.monotonic()))

    def ended(self) -> Iterator[RunResult | RefusedRun]:
        """What came of those that have ended; the others that have no time left are told to end."""
        for child in tuple(self.all):
            if not child.process.is_alive():
                with signals_held():
                    self.all.remove(child)
                    answer = _answer_of(child)
                yield answer
            elif child.due_s <= time.monotonic():
                child.end_of_time()

    def tell_to_end(self) -> None:
        for child in self.all:
            if child.process.is_alive() and not child.told:
                child.end_of_time()

    def kill(self) -> None:
        """End all at once; a history that took real time to come about stays in the store, where it can be judged."""
        with signals_held():
            for child in self.all:
                child.process.kill()
            while self.all:
                child = self.all.pop()
                child.process.join()
                if child.options.on != "sim":
                    _save_histories(child)
                _answer_of(child)


def run_all(
    runs: Iterable[RunOptions],
    jobs: int,
    keep: Keep = Keep.FINDINGS,
    limit_s: float | None = None,
    asked: AskedToEnd | None = None,
) -> Generator[RunResult, None, None]:
    """What comes of every run, as they end, `jobs` of them at a time; runs are taken as they are needed.

    `limit_s` is how long one may take (None: `limit_s` of its options). Raises UserError where no run can be made of
    options, and KeyboardInterrupt when `asked` to end: then what was refuted by then still comes, and what is under way
    is ended and removed. Asked once more, that happens at once.
    """
    asked = asked or AskedToEnd()
    pending = iter(runs)
    children = _Children(keep, None if jobs == 1 else max(1, usable_cores() // jobs), limit_s)
    try:
        while True:
            with asked.heard():
                pass
            while len(children.all) < jobs and (options := next(pending, None)) is not None:
                warm(options.workload)
                children.begin(options)
            if not children.all:
                return
            with asked.heard():
                children.await_any()
            answers = list(children.ended())
            yield from _results(answers)
            if refused := [each for each in answers if isinstance(each, RefusedRun)]:
                raise UserError(refused[0].sentence)
    except KeyboardInterrupt:
        asked.answered()
        yield from (each for each in _results(_end(children, asked)) if each.lost is None)
        raise
    finally:
        if children.all:
            _end(children, asked)


def _results(answers: Iterable[RunResult | RefusedRun]) -> Iterator[RunResult]:
    return (each for each in answers if isinstance(each, RunResult))


def _end(children: _Children, asked: AskedToEnd) -> list[RunResult | RefusedRun]:
    """Tell all to end, and end those that don't in time: a simulation may spin for ever; what came of them."""
    answers: list[RunResult | RefusedRun] = []
    try:
        children.tell_to_end()
        while children.all:
            with asked.heard():
                children.await_any()
            answers += children.ended()
    except KeyboardInterrupt:
        children.kill()
    return answers


def _answer_of(child: _Child) -> RunResult | RefusedRun:
    """What came of a child that is no more; nothing of it is left. Only what it refuted stands whatever became of it
    then."""
    child.process.join()
    code = child.process.exitcode
    answer = _read(child.sink)
    os.close(child.sink)
    for folder in child.options.store.glob(f"{SCRATCH}{child.process.pid}-*"):
        shutil.rmtree(folder, ignore_errors=True)
    child.process.close()
    refuted = isinstance(answer, RunResult) and answer.overall == "invalid"
    if answer is not None and (refuted or (code == 0 and not child.told)):
        return answer if isinstance(answer, RefusedRun) else msgspec.structs.replace(answer, options=child.options)
    if child.told:
        return lost_run(child.options, Lost("timed-out", child.limit_s))
    assert code is not None
    return lost_run(child.options, Lost("killed", -code) if code < 0 else Lost("exited", code))


def _read(sink: int) -> RunResult | RefusedRun | None:
    """What a child wrote; None for what is no whole result."""
    os.lseek(sink, 0, os.SEEK_SET)
    with os.fdopen(os.dup(sink), "rb") as file:
        try:
            return msgspec.msgpack.decode(file.read(), type=RunResult | RefusedRun, dec_hook=_as_path)
        except UNDECODABLE:
            return None


def _as_path(kind: type, value: Any) -> Any:
    """Paths are text there."""
    return kind(value)


def _save_histories(child: _Child) -> None:
    """Move what a killed child had recorded to where runs lie, and say so."""
    for path in child.options.store.glob(f"{SCRATCH}{child.process.pid}-*/{child.options.workload}/*"):
        if not path.is_symlink() and is_run(path):
            with suppress(HarnessError):
                kept = adopt(RunDir(path), child.options.store, child.options.workload)
                say_at_once(f"{unfinished(kept)}.")


def warm(workload: str) -> None:
    """Load what a run of this workload takes, so that no child has to; what can't be is missing there."""
    from checkers.models import MODELS
    from workloads.registry import WORKLOADS

    without_pandas()
    for module in ("assay.compose", "assay.judging", "cluster.master.master", "cluster.tserver.server"):
        importlib.import_module(module)
    for name in WORKLOADS[workload].checkers if workload in WORKLOADS else ():
        _ = MODELS[name].judge


# ---- the child ----


def _in_child(sinks: list[int], options: RunOptions, keep: Keep, cores: int | None) -> None:
    """Make a run and write what came of it into the last of these files; the others are for other children. Nothing
    that it prints is taken for what the command says."""
    *others, sink = sinks
    for other in others:
        os.close(other)
    os.setpgrp()
    atexit._clear()  # what is to be done at the end of the parent
    (end_runs_from_now_on if options.on == "sim" else take_no_signals)()
    end_with_parent()
    sys.stdout = sys.stderr
    with suppress(OSError):
        os.dup2(2, 1)
    answer: RunResult | RefusedRun = lost_run(options, Lost("stopped"))
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)
        answer = run_seed(options, keep, cores)
    except UserError as error:
        answer = RefusedRun(str(error))
    except KeyboardInterrupt:
        pass
    signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
    with os.fdopen(sink, "wb") as file:
        file.write(msgspec.msgpack.encode(answer, enc_hook=str))
    atexit._run_exitfuncs()
    os._exit(0)  # no thread that was left is waited for


def run_seed(options: RunOptions, keep: Keep = Keep.FINDINGS, cores: int | None = None) -> RunResult:
    """One run, judged on `cores` cores (None: all); what `keep` names is saved in its store, with a report unless it is
    valid. Raises UserError for options that no run can be made of, and nothing else: a failure of the harness is a
    result."""
    began_s = time.process_time()
    ends = in_charge()
    try:
        with scratch_in(options.store) as scratch, nullcontext() if ends is None else ends.run():
            result = _run_in(scratch, options, keep, cores)
    except UserError:
        raise
    except Exception as error:  # noqa: BLE001  the other runs go on, and this one is not lost
        result = RunResult(options, "unknown", (_words(error),), why="harness")
    return msgspec.structs.replace(result, cpu_s=time.process_time() - began_s)


def _words(error: Exception) -> str:
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({Path(last.filename).name}:{last.lineno})"


@contextmanager
def scratch_in(store: Path) -> Iterator[Path]:
    """A folder for a run in the making, on the store's own volume, locked for as long as this process lives."""
    store.mkdir(parents=True, exist_ok=True)
    while True:
        folder = Path(mkdtemp(prefix=f"{SCRATCH}{os.getpid()}-", dir=store))
        lock = os.open(folder, os.O_RDONLY)
        fcntl.flock(lock, fcntl.LOCK_EX)
        if folder.exists():  # else somebody took it for an abandoned one before it was locked
            break
        os.close(lock)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def abandoned_in(store: Path, remove: bool = False) -> tuple[Path, ...]:
    """Folders of runs in the making whose process is gone, for a living one's is locked; removed, if that is wanted."""
    found = []
    for folder in sorted(store.glob(f"{SCRATCH}*")):
        try:
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if remove:
                shutil.rmtree(folder, ignore_errors=True)
            found.append(folder)
        except BlockingIOError:
            continue
        finally:
            os.close(lock)
    return tuple(found)


def _run_in(scratch: Path, options: RunOptions, keep: Keep, cores: int | None) -> RunResult:
    from assay.compose import carry_out
    from assay.judging import judge_saved_run, report_of

    judge = partial(judge_saved_run, cores=cores)
    finished = carry_out(options, judge, Silent(), datetime.now(), lambda _: None, scratch)
    verdict, rundir = finished.outcome.verdict, finished.outcome.rundir
    if finished.outcome.interrupted and verdict.overall != "invalid":
        raise KeyboardInterrupt
    finding = verdict.overall != "valid"
    kept: RunDir | None = None
    lost: tuple[str, ...] = ()
    if keep is Keep.ALL or (finding and keep is Keep.FINDINGS):
        try:
            kept = adopt(rundir, options.store, options.workload)
        except HarnessError as error:  # what was found stands
            lost = (f"the run could not be kept: {error}",)
    return RunResult(
        options,
        "unknown" if lost and not finding else verdict.overall,
        (*verdict.reasons, *lost),
        anomaly_names(verdict.checkers),
        max((checker.get("ops", 0) for checker in verdict.checkers.values()), default=0),
        dict(verdict.adequacy.details.get("faults", {})),
        finished.trace,
        None if kept is None else kept.path,
        report_of(kept) if kept is not None and finding else None,
        invariants=anomaly_names({CHECKER: verdict.checkers.get(CHECKER, {})}),
        stopped=finished.outcome.interrupted,
        why="harness" if lost and not finding else verdict.why,
        account=finished.outcome.account,
    )


def anomaly_names(checkers: Any) -> tuple[str, ...]:
    """The names of all anomalies that the checkers found, each once."""
    return tuple(dict.fromkeys(name for checker in checkers.values() for name in checker.get("anomalies", {})))
