"""The loop of a night: runs are chosen, begun, made, ended and told, one line each; `assay run --seeds` is one as well.

chooser ─> began, in the journal ─> runner ─> ended, in the journal ─> chooser
                                                   └─> notification, what is kept, an incident
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections import deque
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import msgspec

from assay.night.choice import Chooser, ChosenRun, Known, nothing_known
from assay.night.journal import NightJournal, now_text
from assay.night.plan import options_of
from assay.night.records import (
    CellRecord,
    FaultCount,
    Night,
    NightDone,
    NightIncident,
    RunBegan,
    RunEnded,
    RunLetGo,
    RunWord,
    StepEnded,
    StepRecord,
)
from assay.night.signature import crash_signature, process_signature, unnamed_signature
from assay.night.store import KeptRuns
from assay.runner import JudgedElsewhere, Keep, Lost, RunLimits, RunOrder, RunResult, limit_s, run_orders, run_step
from assay.telling import say_at_once
from harness.errors import HarnessError
from harness.run.stopping import AskedToEnd

NOTIFY_S: Final = 30.0
STALL_S: Final = 1_800.0
"""For so long, or twice as long as the longest run may take, no run has a verdict: nights are looked after then."""
STALLS: Final = 4
"""After this number of stalls on end the night ends."""
INCIDENT_S: Final = 3_600.0
INCIDENT_SHARE: Final = 1 / 3
LAST_FLUSH_S: Final = 60.0
DIED: Final = frozenset({4, 6, 7, 8, 11})
"""Signals by which a process dies of itself: SIGILL, SIGABRT, SIGBUS, SIGFPE, SIGSEGV."""

Why = Literal["wall", "cpu", "runs", "interrupted", "stall"]


class NotTheSameRun(HarnessError):
    """A simulated run with the seed of an earlier one of its cell gave another trace."""


@dataclass(frozen=True, slots=True)
class NightWork:
    """A night that is to be made, or to go on: its record so far, where lines go, what it `owes`, and what of its runs
    stays. `bounded`: kept runs are let go again as `KeptRuns` has it; `repeats`: some runs are made again (`Chooser`).
    `known` says of a finding in a cell that it is nothing new."""

    night: Night
    journal: NightJournal
    owed: tuple[RunBegan, ...] = ()
    keep: Keep = Keep.FINDINGS
    bounded: bool = True
    repeats: bool = True
    known: Known = nothing_known
    refusals_end: bool = False
    """A seed of which no run can be made ends it (UserError); else it is a run that failed."""


def carry_out_night(
    work: NightWork, asked: AskedToEnd | None = None
) -> Generator[tuple[RunEnded, RunResult], None, NightDone]:
    """Every run as it ends, with its line; returns how the night ended, whose last line is written by then.

    Raises what `run_orders` raises. One that is closed before its end has had all that was wanted of it.
    """
    loop = _Loop(work)
    head = work.night.head
    limits = RunLimits(head.limits.get("run_time_s"), head.limits.get("memory_mb"))
    try:
        loop.give_up()
        with closing(run_orders(loop.orders(), head.jobs, limits, asked)) as found:
            for order, result in found:
                yield loop.take(order, result), result
        loop.carry_out_steps()
    except GeneratorExit:
        loop.end("runs")
        raise
    except BaseException:
        loop.end("interrupted")
        raise
    return loop.end(loop.why)


@dataclass(slots=True)
class _Loop:
    work: NightWork
    chooser: Chooser = field(init=False)
    kept: KeptRuns = field(init=False)
    begun_s: float = field(init=False)
    running: dict[int, ChosenRun] = field(default_factory=dict)
    held: ChosenRun | None = None
    traces: dict[tuple[str, int], str] = field(default_factory=dict)
    failures: deque[tuple[float, str, str, int]] = field(default_factory=deque)
    """Of the last hour: when, cell, family and run of what failed of the harness."""
    incidents: dict[str, float] = field(default_factory=dict)
    notes: list[tuple[subprocess.Popen[bytes], float]] = field(default_factory=list)
    verdict_s: float = 0.0
    stall_s: float = STALL_S
    stalls: int = 0
    trouble: str | None = None
    why: Why = "runs"

    def __post_init__(self) -> None:
        night = self.work.night
        self.chooser = Chooser(night.head, self.work.known, self.work.repeats)
        self.kept = KeptRuns(night.store, night.head.limits.get("disk_mb"))
        self.begun_s = time.monotonic() - night.spent_s
        self.verdict_s = time.monotonic()
        longest_s = max((limit_s(options_of(cell, 0, night.store)) for cell in night.head.cells), default=0.0)
        self.stall_s = max(STALL_S, 2 * night.head.limits.get("run_time_s", longest_s))
        for run in night.runs:
            self._remember(run)
            self.kept.add(run)
        for gone in night.let_go:
            self.kept.forget(gone.kept)

    # ---- before runs ----

    @property
    def spent_s(self) -> float:
        return round(time.monotonic() - self.begun_s, 3)

    def give_up(self) -> None:
        """Recall what the night did; what began too often is lost, and said so."""
        for began in self.chooser.recall(self.work.night.runs, self.work.owed):
            reason = f"the night ended {began.attempt} times while it ran"
            ended = RunEnded(**_place(began, self.spent_s), word="lost", why="interrupted", reasons=(reason,))
            self.work.journal.append(ended)
            self.chooser.ended(ended)

    def orders(self) -> Iterator[RunOrder | None]:
        """Runs as they are wanted; None where none can begin now."""
        while True:
            self._look_after()
            choice = self.held or self._choose()
            if choice is None and not self.running:
                return
            if choice is None or not self._may_begin(choice):
                self.held = choice
                yield None
                continue
            self.held = None
            self.running[choice.run] = choice
            options = options_of(choice.cell, choice.seed, self.work.night.store)
            salt = None if choice.twin is None else 1 + choice.run
            yield RunOrder(options, self.work.keep, choice.run, True, salt, not self.work.refusals_end, self._elsewhere)

    @property
    def _elsewhere(self) -> JudgedElsewhere | None:
        head = self.work.night.head
        return None if head.spark is None else JudgedElsewhere(int(head.limits["local_rows"]), head.spark)

    def _choose(self) -> ChosenRun | None:
        budget = self.work.night.head.budget
        if self.stalls >= STALLS:
            self.why = "stall"
            return self.chooser.next_owed()
        for name, spent in (("wall", self.spent_s), ("cpu", self.chooser.cpu_s)):
            if spent >= budget.get(f"{name}_s", float("inf")):
                self.why = "wall" if name == "wall" else "cpu"
                return self.chooser.next_owed()
        choice = self.chooser.next(budget.get("runs", float("inf")))
        if choice is not None:
            self.work.journal.append(RunBegan(**_place(choice, self.spent_s)))
        return choice

    def _may_begin(self, choice: ChosenRun) -> bool:
        """Its line is on the disk; and containers get the machine for themselves, for they run in real time."""
        alone = [each.cell.options["on"] != "sim" for each in (choice, *self.running.values())]
        return self.work.journal.flush() and not (self.running and any(alone))

    def _look_after(self) -> None:
        """Waiting lines, a stall, and commands that were told something and have not ended."""
        if not self.work.journal.flush() and self.work.journal.trouble != self.trouble:
            say_at_once(f"the store takes nothing: {self.work.journal.trouble}; the night goes on when it does.")
        self.trouble = self.work.journal.trouble
        if time.monotonic() - self.verdict_s >= self.stall_s * (self.stalls + 1):
            self.stalls += 1
            self._notify("stall", {"seconds": round(time.monotonic() - self.verdict_s)})
        for process, until_s in tuple(self.notes):
            if process.poll() is not None or time.monotonic() >= until_s:
                process.kill()
                process.wait()
                self.notes.remove((process, until_s))

    # ---- after runs ----

    def take(self, order: RunOrder, result: RunResult) -> RunEnded:
        """The line of a run that has ended, which is written, and what follows from it."""
        choice = self.running.pop(order.number)
        ended = self._ended(choice, result)
        self._remember(ended)
        self.work.journal.append(ended)
        if result.lost is None:
            self.verdict_s, self.stalls = time.monotonic(), 0
        if self.chooser.ended(ended):
            self._notify("finding", {"run": msgspec.to_builtins(ended), "command": result.options.command()})
        if incident := self._incident(ended):
            self.work.journal.append(incident)
            self._notify("incident", msgspec.to_builtins(incident))
        self.kept.add(ended)
        if self.work.bounded:
            for gone, why in self.kept.let_go():
                self.work.journal.append(RunLetGo(run=gone.run, kept=gone.kept, at=now_text(), why=why))
        return ended

    def carry_out_steps(self) -> None:
        """The steps that have not passed yet, one after the other; what they print is the night's own."""
        passed = {step.name for step in self.work.night.steps if step.word == "passed"}
        for step in self.work.night.head.steps:
            if step.name not in passed:
                self.work.journal.append(self._carry_out(step))

    def _carry_out(self, step: StepRecord) -> StepEnded:
        begun_s = time.monotonic()
        word, code = run_step(step.argv, step.limit_s)
        told_s = round(time.monotonic() - begun_s, 3)
        return StepEnded(name=step.name, at=now_text(), spent_s=self.spent_s, word=word, code=code, wall_s=told_s)

    def _remember(self, run: RunEnded) -> None:
        if run.trace is not None:
            self.traces.setdefault((run.cell, run.seed), run.trace)

    def _ended(self, choice: ChosenRun, result: RunResult) -> RunEnded:
        word, findings, reasons = word_of(result), result.measures.findings, result.reasons
        before = self.traces.get((choice.cell.id, choice.seed))
        if result.trace is not None and before not in (None, result.trace):
            salted = "" if choice.twin is None else " under another hash seed"
            told = NotTheSameRun(f"the same seed{salted} gave the trace {result.trace}, not {before}")
            word, findings, reasons = "error", (*findings, crash_signature(told)), (str(told), *reasons)
        elif result.lost is not None and word in ("timeout", "memory", "error"):
            findings = (process_signature(word, _how(result.lost)),)
        elif word == "invalid" and all(each.kind == "harness" for each in findings):
            findings = (unnamed_signature(result.why), *findings)
        return RunEnded(
            **_place(choice, self.spent_s),
            word=word,
            why=result.why,
            reasons=reasons,
            anomalies=result.anomalies,
            invariants=result.invariants,
            findings=findings,
            ops=result.ops,
            cpu_s=round(result.cpu_s, 3),
            wall_s=round(result.wall_s, 3),
            memory_mb=round(result.memory_mb, 1),
            virtual_s=result.measures.virtual_s,
            trace=result.trace,
            faults={kind: _count(counts) for kind, counts in (result.faults or {}).items()},
            vacuous=result.why == "vacuous",
            points=self.chooser.new_points(result.measures.points),
            figures=result.measures.figures,
            kept=None if result.run is None else _relative(result, self.work.night),
        )

    def _incident(self, run: RunEnded) -> NightIncident | None:
        """What the harness failed of in a third of the cells within an hour, told once in that hour."""
        now_s = run.spent_s
        self.failures.extend((now_s, run.cell, each.family, run.run) for each in run.findings if each.kind == "harness")
        while self.failures and self.failures[0][0] < now_s - INCIDENT_S:
            self.failures.popleft()
        for finding in run.findings:
            of = [each for each in self.failures if each[2] == finding.family]
            cells = tuple(dict.fromkeys(each[1] for each in of))
            many = len(cells) >= max(2.0, INCIDENT_SHARE * len(self.work.night.head.cells))
            if many and now_s - self.incidents.get(finding.family, -INCIDENT_S) >= INCIDENT_S:
                self.incidents[finding.family] = now_s
                runs = tuple(each[3] for each in of)
                return NightIncident(at=now_text(), family=finding.family, title=finding.title, cells=cells, runs=runs)
        return None

    def _notify(self, what: str, told: Mapping[str, Any]) -> None:
        """Tell the command, which gets NOTIFY_S; one that can't be started is said so, and costs nothing."""
        if not self.work.night.head.notify:
            return
        text = msgspec.json.encode({"what": what, "night": self.work.night.head.id, "at": now_text(), **told})
        try:
            process = subprocess.Popen(self.work.night.head.notify, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        except OSError as error:
            print(
                f"assay: the night's command {self.work.night.head.notify[0]} can't be started: {error.strerror}",
                file=sys.stderr,
            )
            return
        assert process.stdin is not None
        with suppress(OSError):
            process.stdin.write(text)
            process.stdin.close()
        self.notes.append((process, time.monotonic() + NOTIFY_S))

    def end(self, why: Why) -> NightDone:
        """Write the last line."""
        done = NightDone(
            at=now_text(),
            why=why,
            wall_s=self.spent_s,
            cpu_s=round(self.chooser.cpu_s, 3),
            totals=dict(self.chooser.words),
        )
        self.work.journal.append(done)
        if not self.work.journal.flush_for_long(LAST_FLUSH_S):
            say_at_once(f"the night's last lines could not be written: {self.work.journal.trouble}.")
        self._notify("end", msgspec.to_builtins(done))
        for process, until_s in self.notes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, until_s - time.monotonic()))
            process.kill()
            process.wait()
        return done


def word_of(result: RunResult) -> RunWord:
    """The verdict's word, or what became of the run's process."""
    lost = result.lost
    if lost is None:
        return result.overall  # type: ignore[return-value]  # one of three words
    if lost.how in ("timed-out", "memory"):
        return "timeout" if lost.how == "timed-out" else "memory"
    return "error" if lost.how == "exited" or (lost.how == "killed" and lost.number in DIED) else "lost"


def _how(lost: Lost) -> str:
    return f"{lost.how} {lost.number:g}" if lost.how in ("killed", "exited") else ""


def _place(of: ChosenRun | RunBegan, spent_s: float) -> dict[str, Any]:
    """The fields that a run's lines share."""
    cell = of.cell.id if isinstance(of.cell, CellRecord) else of.cell
    same = {name: getattr(of, name) for name in ("run", "number", "seed", "attempt", "twin", "retries")}
    return {**same, "cell": cell, "at": now_text(), "spent_s": spent_s}


def _count(counts: Mapping[str, Any]) -> FaultCount:
    return FaultCount(counts["requested"], counts["observed"], counts.get("skipped", 0))


def _relative(result: RunResult, night: Night) -> str:
    assert result.run is not None
    return str(result.run.resolve().relative_to(night.store.resolve()))
