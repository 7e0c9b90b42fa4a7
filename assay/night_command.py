"""`assay night`, `assay night status` and `assay index`: a night by its plan, told as it goes, and what came of it."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import typer

from assay.night.journal import NightJournal, begin_night, open_night, resume_night, sole_night
from assay.night.loop import NightWork, carry_out_night
from assay.night.plan import SHIPPED, NightPlan, read_plan, seconds
from assay.night.records import Night, NightHead, RunBegan, RunEnded, nights_in, read_night
from assay.night.result import NightAccount
from assay.night.store import open_index, rebuild_index
from assay.night.triage import TRIAGE, adequate, known, read_triage
from assay.night_review import today, write_results
from assay.processes import loading
from assay.progress import live_line
from assay.runner import warm
from assay.seeds import say_ending
from assay.telling import Teller
from harness.errors import UserError
from harness.history.arrow import without_pandas
from harness.run.stopping import AskedToEnd

EXIT_CODES = {"valid": 0, "invalid": 1, "unknown": 2}


@dataclass(frozen=True, slots=True)
class NightRequest:
    """What was said at the command line: a plan (None: the shipped one), whether an open night goes on, the store if it
    is not the plan's, patterns of names of the cells and steps that are wanted, and the file of what is known."""

    plan: Path | None
    resume: bool
    store: Path | None
    only: Sequence[str] = ()
    triage: Path = Path(TRIAGE)


def run_night(request: NightRequest, for_good: bool = False) -> int:
    """Make a night or go on with one, tell it, and return its exit code (EXIT_CODES)."""
    without_pandas()
    entries = read_triage(request.triage)
    if request.resume and request.plan is None:
        plan, store = None, request.store or Path("store")
    else:
        plan = read_plan(request.plan or SHIPPED, request.store, request.only)
        store = plan.store
    for remark in plan.remarks if plan else ():
        print(f"assay: {remark}", file=sys.stderr)
    with sole_night(store):
        night, journal, owed = _night_of(plan, store, request.resume)
        asked = AskedToEnd(lambda times: say_ending("sim", times))
        with asked.in_charge():
            with loading(for_good):
                for workload in dict.fromkeys(cell.workload for cell in night.head.cells):
                    warm(workload)
            work = NightWork(night, journal, owed, known=lambda found, cell: known(found, cell.name, entries, today()))
            return _tell_night(work, asked, request.triage)


def _night_of(plan: NightPlan | None, store: Path, resume: bool) -> tuple[Night, NightJournal, tuple[RunBegan, ...]]:
    """The night that is wanted: one that is open, if that is asked for and there is one, or a new one."""
    night = open_night(store, plan.digest if plan else None) if resume else None
    if night is None and plan is None:
        raise UserError(f"No night in {store} could go on; begin one with `assay night`.")
    if night is not None and (plan is None or night.head.commit == plan.head("").commit):
        journal, owed = resume_night(night)
        print(f"assay: the night {night.head.id} goes on after {len(night.runs)} runs.", file=sys.stderr)
        return night, journal, owed
    assert plan is not None
    night = begin_night(store, plan.name, plan.text, plan.head)
    return night, NightJournal(night.directory, night.whole_bytes, night.seal), ()


def _tell_night(work: NightWork, asked: AskedToEnd, triage: Path) -> int:
    head = work.night.head
    teller, words = Teller(), Counter(run.word for run in work.night.runs)
    teller.line(f"night {head.id}: {len(head.cells)} cells, {len(head.steps)} steps; {budget_words(head)}")
    interrupted = False
    try:
        with live_line() as show, closing(carry_out_night(work, asked)) as found:
            for ended, _ in found:
                words[ended.word] += 1
                if show is None or ended.word != "valid":
                    if show is not None:
                        show("")
                    teller.line(line_of_run(head, ended))
                if show is not None:
                    counts = ", ".join(f"{count} {word}" for word, count in sorted(words.items()))
                    show(f"{ended.spent_s / 60:.0f} min, {counts}; {head.cell(ended.cell).name}")
    except KeyboardInterrupt:
        interrupted = True
    open_index(work.night.store).close()
    account, written = write_results(work.night.directory, triage)
    for line in (*account_lines(account), *map(str, written)):
        teller.line(line)
    if interrupted:
        print("assay: stopped; what was under way is removed, and `assay night --resume` goes on.", file=sys.stderr)
    return teller.end(EXIT_CODES[account.word])


def budget_words(head: NightHead) -> str:
    """The budget in words."""
    names = {"wall_s": "{:g} s by the clock", "cpu_s": "{:g} CPU seconds", "runs": "{:g} runs"}
    return ", ".join(names[name].format(value) for name, value in head.budget.items())


def line_of_run(head: NightHead, run: RunEnded) -> str:
    """A run in a line; where it is not valid, why, what was found, and how to make it again below."""
    extra = "".join(
        [f", twin of {run.twin}" * (run.twin is not None), f", again for {run.retries}" * (run.retries is not None)]
    )
    why = f" ({run.why})" if run.why else ""
    line = f"{run.run} {head.cell(run.cell).name}, seed {run.seed}{extra}: {run.word}{why}"
    line += f", {run.ops} operations, {run.cpu_s:.1f} CPU-s"
    if run.word == "valid":
        return line
    more = [*run.reasons, *(f"{each.kind} {each.signature}: {each.title}" for each in run.findings)]
    more += [f"run: {run.kept}"] if run.kept else []
    return "\n".join([line, *(f"  {each}" for each in more), f"  again: {head.command(run.cell, run.seed)}"])


def account_lines(account: NightAccount) -> Iterator[str]:
    """What a night came to, for a log: the headline, what is to be looked at, what was not tested."""
    counts = Counter(run.word for run in account.night.runs)
    told = ", ".join(f"{count} {word}" for word, count in sorted(counts.items())) or "no run"
    yield f"night {account.night.head.id}: {told}; {account.headline}"
    for case in account.wrong:
        yield f"  {case.state} {case.family} in {', '.join(case.cells)}: {case.title}"
    yield from (f"  missed: {each.cell.name}, {each.flaw[1]}" for each in account.missed if each.flaw)
    yield from (f"  {sentence}" for sentence in account.untested)


def show_status(store: Path, max_age: str | None, json_output: bool) -> int:
    """Tell the newest night of a store; 2 if none of its nights had an adequate run within the age. A time that is
    still to come was told by a wrong clock, and counts for nothing."""
    limit_s = None if max_age is None else seconds("--max-age", max_age)
    nights = [read_night(directory) for directory in nights_in(store)]
    now = datetime.now(UTC)
    ages = [now - datetime.fromisoformat(run.at) for night in nights for run in night.runs if adequate(run)]
    age_s = min((age.total_seconds() for age in ages if age >= timedelta()), default=None)
    stopped = limit_s is not None and (age_s is None or age_s > limit_s)
    if json_output:
        typer.echo(msgspec.json.encode(_status_object(store, nights, age_s, stopped)).decode())
    else:
        for line in _status_lines(store, nights, age_s, stopped, max_age):
            typer.echo(line)
    return 2 if stopped else 0


def _status_object(store: Path, nights: Sequence[Night], age_s: float | None, stopped: bool) -> Mapping[str, Any]:
    newest = nights[-1] if nights else None
    return {
        "store": str(store),
        "nights": len(nights),
        "newest": None if newest is None else newest.head.id,
        "done": None if newest is None or newest.done is None else newest.done.why,
        "runs": {} if newest is None else dict(Counter(run.word for run in newest.runs)),
        "age_s": None if age_s is None else round(age_s),
        "stopped": stopped,
    }


def _status_lines(
    store: Path, nights: Sequence[Night], age_s: float | None, stopped: bool, max_age: str | None
) -> Iterator[str]:
    if not nights:
        yield f"no night in {store}"
    else:
        night = nights[-1]
        words = ", ".join(f"{count} {word}" for word, count in sorted(Counter(run.word for run in night.runs).items()))
        how = "under way or killed" if night.done is None else f"ended ({night.done.why})"
        yield f"night {night.head.id}: {how}, {words or 'no run'}, {night.spent_s / 60:.0f} min"
        yield from (f"  {each}" for each in night.damage)
    yield "no run is adequate" if age_s is None else f"the last adequate run ended {age_s / 3600:.1f} h ago"
    if stopped:
        yield f"STOPPED: no run was adequate for {max_age}"


def show_index(store: Path, rebuild: bool) -> int:
    """Bring the index of a store up to date, or make it again, and say what it has."""
    if rebuild:
        nights, runs, saved = rebuild_index(store)
    else:
        if not store.is_dir():
            raise UserError(f"There is no store {store}.")
        with closing(open_index(store)) as index:
            counts = [
                index.execute(f"select count(*) from {name}").fetchone()[0] for name in ("nights", "runs", "saved")
            ]
        nights, runs, saved = counts
    typer.echo(f"{store / 'index.db'}: {nights} nights with {runs} runs, {saved} runs saved")
    return 0
