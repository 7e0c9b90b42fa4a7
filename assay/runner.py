"""Runs, each made and judged in a child of its own: forked from this process once that has loaded all that a run takes.

    warm ─> fork ─> keeper ─> fork ─> child: make, judge, save ─> its result, into a file in memory that both have open
              └──> parent: waits for the end of children, or of their time or memory ─> a `RunResult` of each

Whatever becomes of a child, the parent has one result of it: only the end of a process is waited for, and what it wrote
is read afterwards. A child that hangs, grows, dies, is killed, writes nothing or what is no result has lost its run
(`Lost`), and costs no other. Its keeper (`assay.keeper`) sees to it that nothing that it started outlives it, or this
process. Children are in process groups of their own, so that only this process tells them to end.
"""

from __future__ import annotations

import atexit
import importlib
import math
import multiprocessing
import os
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import Enum
from functools import partial
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Literal, NoReturn, TypeAlias

import msgspec

from assay.discovery import load_plugins
from assay.keeper import END_ALL, adopt_orphans, begun_at, end_orphans, keep_run, memory_of_run
from assay.night.records import RunMeasures
from assay.options import RunOptions
from assay.telling import say_at_once, unfinished
from harness.atomic_write import abandoned_folders, held_folder
from harness.errors import UNDECODABLE, HarnessError, UserError
from harness.history.arrow import without_pandas
from harness.history.cores import usable_cores
from harness.history.rundir import RunDir, adopt, is_run
from harness.run.spec import Silent
from harness.run.stopping import STOPPING, AskedToEnd, end_runs_from_now_on, in_charge, signals_held, take_no_signals
from harness.verdict.facts import RunAccount
from harness.verdict.run_verdict import CHECKER

GRACE_S = {"sim": 3.0, "docker": 600.0, "ssh": 600.0}
"""How long a child that is told to end may take: a simulation is thrown away, a run in containers heals, is judged, and
removes them."""

_LIMIT_S = {"sim": 300.0, "docker": 3600.0, "ssh": 3600.0}

KEEPER_S = {"sim": 5.0, "docker": 120.0, "ssh": 120.0}
"""How long a keeper may take to end a run with all that it started."""

STEP_GRACE_S = 10.0
"""How long a program may take to end once it was told to."""

_LIMIT_SHARE = 10.0
_USUAL_RATE_HZ = 100.0

SCRATCH = ".seed-"
"""How the names of folders begin in which runs are made."""

ELSEWHERE = "judged-elsewhere"
"""A file there says that Spark has the run's history."""


Judge: TypeAlias = Callable[[RunDir], Mapping[str, Any]]


class Keep(Enum):
    """Which runs stay in the store: none, those that are not valid, or all."""

    NOTHING = "nothing"
    FINDINGS = "findings"
    ALL = "all"


class Lost(msgspec.Struct, frozen=True):
    """How a run was lost with its child: `timed-out` after `number` seconds, ended for its `memory` of `number` MiB,
    `killed` by signal `number`, `exited` with code `number` and no whole result, or `stopped`: told to end by somebody
    else."""

    how: Literal["timed-out", "memory", "killed", "exited", "stopped"]
    number: float = 0.0

    def sentence(self) -> str:
        if self.how == "timed-out":
            return f"it had not ended after {self.number:g} s, and was ended"
        if self.how == "memory":
            return f"its processes had {self.number:g} MiB of memory, and were ended"
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
    `wall_s` and `memory_mb`, the most that was seen, are of its tree of processes; `measures` are of measured runs.
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
    wall_s: float = 0.0
    memory_mb: float = 0.0
    measures: RunMeasures = RunMeasures()


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


@dataclass(frozen=True, slots=True)
class JudgedElsewhere:
    """Histories of more than `rows` rows are judged by the Spark of this `master`; meanwhile another run may begin."""

    rows: int
    master: str


@dataclass(frozen=True, slots=True)
class RunOrder:
    """A run that is to be made, and what of it stays in its store; `number` is for whoever orders it. `measured`: its
    findings, points of coverage and figures are wanted, and no report. With a `hash_seed` an interpreter of its own
    makes it, whose hashes are salted so."""

    options: RunOptions
    keep: Keep = Keep.FINDINGS
    number: int = 0
    measured: bool = False
    hash_seed: int | None = None
    refusal_fails: bool = False
    """That no run can be made of the options is a failure of it, and no UserError."""
    elsewhere: JudgedElsewhere | None = None


@dataclass(frozen=True, slots=True)
class RunLimits:
    """What a run's tree of processes may take: seconds by the wall clock (None: `limit_s` of its options), and MiB of
    resident memory, shared pages counted for each process (None: as much as there is)."""

    time_s: float | None = None
    memory_mb: float | None = None


LOOK_S = 0.5
"""How often the memory of runs is looked at."""


@dataclass(slots=True)
class _Child:
    """A run under way; `process` is its keeper, `sink` the file of its result, `due_s` when its time is over on the
    monotonic clock; it began then on that clock, and `begun_at` as the system has it. `told` why it is to end."""

    order: RunOrder
    process: BaseProcess
    sink: int
    limit_s: float
    due_s: float
    begun_s: float
    begun_at: float | None
    told: Lost | None = None
    memory_mb: float = 0.0

    @property
    def options(self) -> RunOptions:
        return self.order.options

    @property
    def is_judged_elsewhere(self) -> bool:
        """Whether the run is over, and Spark has its history."""
        folders = self.options.store.glob(f"{SCRATCH}{self.process.pid}-*/{ELSEWHERE}")
        return self.order.elsewhere is not None and any(folders)

    def end(self, why: Lost) -> None:
        """It is told to end, and has to, with all that it started, once the time for that is over as well."""
        if self.told is not None:
            self.kill()
        else:
            self.process.terminate()
        grace_s = LOOK_S if why.how == "memory" else GRACE_S[self.options.on]
        self.told, self.due_s = self.told or why, time.monotonic() + grace_s

    def kill(self) -> None:
        """End it with all that it started; a keeper that doesn't is killed itself."""
        with suppress(ProcessLookupError):
            assert self.process.pid is not None
            os.kill(self.process.pid, END_ALL)
        self.process.join(KEEPER_S[self.options.on])
        self.process.kill()

    def look(self) -> None:
        """How much memory its processes have now."""
        assert self.process.pid is not None
        self.memory_mb = max(self.memory_mb, memory_of_run(self.process.pid))


@dataclass(slots=True)
class _Children:
    """All runs under way, being made or judged. Signals are held wherever one begins or ends, so that none is ever lost
    from sight."""

    cores: int | None
    limits: RunLimits
    all: list[_Child] = field(default_factory=list)
    looked_s: float = 0.0

    def has_room(self, jobs: int) -> bool:
        """Whether fewer than `jobs` runs are being made, and not as many again are judged elsewhere."""
        return len(self.all) < jobs or (
            len(self.all) < 2 * jobs and sum(not each.is_judged_elsewhere for each in self.all) < jobs
        )

    @property
    def look_again_s(self) -> float:
        """How long nothing but an end of a run may be waited for."""
        return LOOK_S if any(each.order.elsewhere for each in self.all) else math.inf

    def begin(self, order: RunOrder) -> None:
        """Raises HarnessError where this machine has no room for another process."""
        limit = limit_s(order.options) if self.limits.time_s is None else self.limits.time_s
        with signals_held():
            try:
                sink = os.memfd_create("result")
                sinks = [*(child.sink for child in self.all), sink]
                made = partial(_in_child, sinks, order, self.cores)
                arguments = (made, order.options.on, os.getpid())
                process = multiprocessing.get_context("fork").Process(target=keep_run, args=arguments)
                process.start()
            except OSError as error:
                raise HarnessError(f"no process can be started: {error.strerror}") from error
            now_s = time.monotonic()
            self.all.append(_Child(order, process, sink, limit, now_s + limit, now_s, begun_at(process.pid)))

    def await_any(self, most_s: float = math.inf) -> None:
        """Until one has ended, its time is over, or it has too much memory; at most so long."""
        until_s = time.monotonic() + most_s
        while True:
            now_s = time.monotonic()
            if self.limits.memory_mb is not None and now_s - self.looked_s >= LOOK_S:
                self.looked_s = now_s
                for child in self.all:
                    child.look()
            wake_s = min(until_s, *(child.due_s for child in self.all))
            if self.limits.memory_mb is not None:
                wake_s = min(wake_s, self.looked_s + LOOK_S)
            ended = wait([child.process.sentinel for child in self.all], max(0.0, wake_s - time.monotonic()))
            if ended or time.monotonic() >= until_s or any(map(self._is_over, self.all)):
                return

    def _is_over(self, child: _Child) -> bool:
        return child.due_s <= time.monotonic() or self._too_much(child)

    def _too_much(self, child: _Child) -> bool:
        return child.told is None and self.limits.memory_mb is not None and child.memory_mb > self.limits.memory_mb

    def ended(self) -> Iterator[tuple[RunOrder, RunResult | RefusedRun]]:
        """What came of those that have ended; the others that have no time left, or too much memory, are told to."""
        for child in tuple(self.all):
            if not child.process.is_alive():
                with signals_held():
                    self.all.remove(child)
                    answer = self._answer_of(child)
                yield child.order, answer
            elif self._too_much(child):
                child.end(Lost("memory", round(child.memory_mb)))
            elif child.due_s <= time.monotonic():
                child.end(Lost("timed-out", child.limit_s))

    def _answer_of(self, child: _Child) -> RunResult | RefusedRun:
        if child.process.exitcode == -signal.SIGKILL and child.process.pid is not None and child.begun_at is not None:
            others = [each.process.pid for each in self.all if each.process.pid is not None]
            end_orphans(child.process.pid, child.begun_at, others)
        return _answer_of(child)

    def tell_to_end(self) -> None:
        for child in self.all:
            if child.process.is_alive() and child.told is None:
                child.end(Lost("stopped"))

    def kill(self) -> None:
        """End all at once; a history that took real time to come about stays in the store, where it can be judged."""
        with signals_held():
            for child in self.all:
                child.told = child.told or Lost("stopped")
                child.kill()
            while self.all:
                child = self.all.pop()
                child.process.join()
                if child.options.on != "sim":
                    _save_histories(child)
                self._answer_of(child)


def run_all(
    runs: Iterable[RunOptions],
    jobs: int,
    keep: Keep = Keep.FINDINGS,
    limit_s: float | None = None,
    asked: AskedToEnd | None = None,
) -> Generator[RunResult, None, None]:
    """What comes of every run, as they end, `jobs` of them at a time; see `run_orders`."""
    orders = (RunOrder(options, keep) for options in runs)
    with closing(run_orders(orders, jobs, RunLimits(limit_s), asked)) as found:
        for _, result in found:
            yield result


def run_orders(
    orders: Iterable[RunOrder | None], jobs: int, limits: RunLimits = RunLimits(), asked: AskedToEnd | None = None
) -> Generator[tuple[RunOrder, RunResult], None, None]:
    """What comes of every run that is ordered, as they end, `jobs` of them at a time; orders are taken as they are
    needed. None is no order yet: it is asked again when a run has ended, and after a while.

    Raises UserError where no run can be made of options, and KeyboardInterrupt when `asked` to end: then what was
    refuted by then still comes, and what is under way is ended and removed. Asked once more, that happens at once.
    """
    asked = asked or AskedToEnd()
    pending = iter(orders)
    children = _Children(None if jobs == 1 else max(1, usable_cores() // jobs), limits)
    adopt_orphans()
    try:
        while True:
            with asked.heard():
                pass
            order: RunOrder | None = None
            over = False
            while children.has_room(jobs):
                try:
                    order = next(pending)
                except StopIteration:
                    over = True
                if over or order is None:
                    break
                warm(order.options.workload)
                children.begin(order)
            if not children.all and over:
                return
            with asked.heard():
                if children.all:
                    children.await_any(LOOK_S if children.has_room(jobs) and not over else children.look_again_s)
                else:
                    time.sleep(LOOK_S)
            answers = list(children.ended())
            yield from _results(answers)
            for _, answer in answers:
                if isinstance(answer, RefusedRun):
                    raise UserError(answer.sentence)
    except KeyboardInterrupt:
        asked.answered()
        yield from (each for each in _results(_end(children, asked)) if each[1].lost is None)
        raise
    finally:
        if children.all:
            _end(children, asked)


def run_step(argv: Sequence[str], limit_s: float) -> tuple[Literal["passed", "failed", "timeout"], int]:
    """Carry a program out under a keeper of its own, which leaves nothing of it; whether it ended with 0 in time, and
    its code (negative: the signal that ended it)."""

    def become() -> None:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)
        try:
            os.execvp(argv[0], list(argv))
        except OSError as error:
            say_at_once(f"{argv[0]} can't be started: {error.strerror}.")
            os._exit(127)

    adopt_orphans()
    with signals_held():
        process = multiprocessing.get_context("fork").Process(target=keep_run, args=(become, "step", os.getpid()))
        process.start()
    assert process.pid is not None
    try:
        process.join(limit_s)
        in_time = process.exitcode is not None
        if not in_time:
            process.terminate()
            process.join(STEP_GRACE_S)
    finally:
        if process.exitcode is None:
            os.kill(process.pid, END_ALL)
        process.join()
    assert process.exitcode is not None
    if not in_time:
        return "timeout", process.exitcode
    return ("failed" if process.exitcode else "passed"), process.exitcode


_Answers: TypeAlias = Iterable[tuple[RunOrder, RunResult | RefusedRun]]


def _results(answers: _Answers) -> Iterator[tuple[RunOrder, RunResult]]:
    return ((order, each) for order, each in answers if isinstance(each, RunResult))


def _end(children: _Children, asked: AskedToEnd) -> list[tuple[RunOrder, RunResult | RefusedRun]]:
    """Tell all to end, and end those that don't in time: a simulation may spin for ever; what came of them."""
    answers: list[tuple[RunOrder, RunResult | RefusedRun]] = []
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
    if answer is None or not (refuted or (code == 0 and child.told is None)):
        assert code is not None
        answer = lost_run(child.options, child.told or (Lost("killed", -code) if code < 0 else Lost("exited", code)))
    if isinstance(answer, RefusedRun):
        if not child.order.refusal_fails:
            return answer
        answer = RunResult(child.options, "unknown", (answer.sentence,), why="harness")
    wall_s = time.monotonic() - child.begun_s
    return msgspec.structs.replace(answer, options=child.options, wall_s=wall_s, memory_mb=child.memory_mb)


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


def _in_child(sinks: list[int], order: RunOrder, cores: int | None) -> None:
    """Make a run and write what came of it into the last of these files; the others are for other children. Nothing
    that it prints is taken for what the command says."""
    *others, sink = sinks
    for other in others:
        os.close(other)
    options = order.options
    if order.hash_seed is not None:
        _remake(sink, order, cores)
    atexit._clear()  # what is to be done at the end of the parent
    (end_runs_from_now_on if options.on == "sim" else take_no_signals)()
    sys.stdout = sys.stderr
    with suppress(OSError):
        os.dup2(2, 1)
    answer: RunResult | RefusedRun = lost_run(options, Lost("stopped"))
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)
        answer = run_seed(options, order.keep, cores, order.measured, order.elsewhere)
    except UserError as error:
        answer = RefusedRun(str(error))
    except KeyboardInterrupt:
        pass
    signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
    with os.fdopen(sink, "wb") as file:
        file.write(msgspec.msgpack.encode(answer, enc_hook=str))
    atexit._run_exitfuncs()
    os._exit(0)  # no thread that was left is waited for


def _remake(sink: int, order: RunOrder, cores: int | None) -> NoReturn:
    """Become another interpreter, whose hashes are salted otherwise, and go on there."""
    os.set_inheritable(sink, True)
    told = msgspec.json.encode((sink, replace(order, hash_seed=None), cores), enc_hook=str)
    paths = os.pathsep.join([str(Path(__file__).parent.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONHASHSEED": str(order.hash_seed), "PYTHONPATH": paths}
    program = "import sys; from assay.runner import go_on; go_on(sys.argv[1])"
    os.execve(sys.executable, [sys.executable, "-P", "-c", program, told.decode()], environment)


def go_on(order_text: str) -> None:
    """What a child does that has become another interpreter."""
    sink, order, cores = msgspec.json.decode(order_text, type=tuple[int, RunOrder, int | None], dec_hook=_as_path)
    load_plugins(order.options.plugins)
    _in_child([sink], order, cores)


def run_seed(
    options: RunOptions,
    keep: Keep = Keep.FINDINGS,
    cores: int | None = None,
    measured: bool = False,
    elsewhere: JudgedElsewhere | None = None,
) -> RunResult:
    """One run, judged on `cores` cores (None: all); what `keep` names is saved in its store, with a report unless it is
    valid. Raises UserError for options that no run can be made of, and nothing else: a failure of the harness is a
    result."""
    began_s = time.process_time()
    ends = in_charge()
    try:
        with scratch_in(options.store) as scratch, nullcontext() if ends is None else ends.run():
            judge = partial(_judge, cores=cores, scratch=scratch, elsewhere=elsewhere)
            result = _run_in(scratch, options, keep, judge, measured)
    except UserError:
        raise
    except Exception as error:  # noqa: BLE001  the other runs go on, and this one is not lost
        result = RunResult(options, "unknown", (_words(error),), why="harness")
        if measured:
            from assay.night.signature import crash_signature

            result = msgspec.structs.replace(result, measures=RunMeasures((crash_signature(error),)))
    return msgspec.structs.replace(result, cpu_s=time.process_time() - began_s)


def _words(error: Exception) -> str:
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({Path(last.filename).name}:{last.lineno})"


@contextmanager
def scratch_in(store: Path) -> Iterator[Path]:
    """A folder for a run in the making, on the store's own volume, locked for as long as this process lives."""
    store.mkdir(parents=True, exist_ok=True)
    with held_folder(f"{SCRATCH}{os.getpgrp()}-", store) as folder:  # the group is the keeper's
        yield folder


def abandoned_in(store: Path, remove: bool = False) -> tuple[Path, ...]:
    """Folders of runs in the making whose process is gone; removed, if that is wanted."""
    return abandoned_folders(SCRATCH, store, partial(shutil.rmtree, ignore_errors=True) if remove else None)


def _judge(rundir: RunDir, cores: int | None, scratch: Path, elsewhere: JudgedElsewhere | None) -> Mapping[str, Any]:
    """Judge the run here, or where it is too large for that; the parent is told."""
    from assay.judging import judge_saved_run

    if elsewhere is None or history_rows(rundir) <= elsewhere.rows:
        return judge_saved_run(rundir, cores)
    (scratch / ELSEWHERE).touch()
    return judge_saved_run(rundir, cores, elsewhere.master)


def history_rows(rundir: RunDir) -> int:
    """How many rows the run's history has; 0 where there is none."""
    from pyarrow import parquet

    path = rundir.history_parquet
    return int(parquet.read_metadata(path).num_rows) if path.is_file() else 0


def _run_in(scratch: Path, options: RunOptions, keep: Keep, judge: Judge, measured: bool = False) -> RunResult:
    from assay.compose import carry_out
    from assay.judging import report_of

    finished = carry_out(options, judge, Silent(), datetime.now(), lambda _: None, scratch)
    verdict, rundir = finished.outcome.verdict, finished.outcome.rundir
    if finished.outcome.interrupted and verdict.overall != "invalid":
        raise KeyboardInterrupt
    finding = verdict.overall != "valid"
    measures = RunMeasures()
    if measured:
        from assay.night.measures import measures_of

        measures = measures_of(rundir, verdict, time.process_time())
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
        measures=measures,
    )


def anomaly_names(checkers: Any) -> tuple[str, ...]:
    """The names of all anomalies that the checkers found, each once."""
    return tuple(dict.fromkeys(name for checker in checkers.values() for name in checker.get("anomalies", {})))
