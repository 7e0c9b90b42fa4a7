"""What nights cost beside their runs, and how long it takes to look at many of them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from assay.night.journal import begin_night, head_of
from assay.night.records import (
    CellRecord,
    Night,
    NightDone,
    NightHead,
    RunEnded,
    RunFigures,
    RunFinding,
    read_night,
    sealed_line,
)
from bench.measure import Row, finished, kept_in, report

PLAN: Final = """
[night]
budget = {{ runs = {runs} }}
[[cell]]
workload = "register"
nemesis = "partition,kill"
time-limit = 20
seeds = "1..{runs}"
max = {runs}
"""


def night_costs(runs: int = 20, times: int = 3) -> Iterator[Row]:
    """CPU seconds of `assay night` over fixed seeds and of `assay run --seeds` over the same, in turns.

    `runs` are those of the runs themselves, as each measures its own process; the rest is the night's: start, keepers,
    journal, signatures, the twin of the first run (as much as a run), results with the page. `beside` is the share of
    the rest without the twin.
    """
    for number in range(times):
        with kept_in() as folder:
            plan, store = folder / "plan.toml", folder / "night"
            plan.write_text(PLAN.format(runs=runs))
            night = finished("assay.cli", "night", plan, "--store", store).cpu_s
            options = ("register", "--nemesis", "partition,kill", "--time-limit", "20", "--seeds", f"1..{runs}")
            seeds = finished("assay.cli", "run", *options, "--store", folder / "seeds").cpu_s
            (directory,) = (store / "nights").iterdir()
            made = read_night(directory).runs
        own = sum(run.cpu_s for run in made if run.twin is None)
        twins = sum(run.cpu_s for run in made if run.twin is not None)
        beside = {"beside": round((night - own - twins) / night, 3), "against_seeds": round((night - twins) / seeds, 3)}
        told = {"night_CPU_s": round(night, 1), "runs_CPU_s": round(own, 1), "twins_CPU_s": round(twins, 1)}
        yield {"what": f"{runs} runs, turn {number + 1}", **told, "seeds_CPU_s": round(seeds, 1), **beside}


POLICY: Final = """
new-findings = 0
regressed = 0
missed-flaws = 0
expired-known = 0
adequate-runs-per-cell = 1
virtual-hours = 1
unknown-share = 0.1
harness-share = 0.1
slower = 0.1
max-age = "999999h"
"""
CELLS: Final = 40


def night_looks(runs: int = 10_000, nights: int = 20) -> Iterator[Row]:
    """The index of runs in some nights rebuilt, the gate over all of them, the results of the last night made again:
    CPU seconds and seconds on the clock of whole commands, and the size of the page in MB."""
    with kept_in() as folder:
        store = folder / "store"
        report(f"making {runs} runs")
        names = [_made_night(store, number, runs // nights).directory.name for number in range(nights)]
        (folder / "policy.toml").write_text(POLICY)
        gate = ("gate", str(folder / "policy.toml"), *names)
        for what, command in (
            ("index --rebuild", ("index", "--rebuild")),
            ("gate", gate),
            ("night report", ("night", "report")),
        ):
            ended = finished("assay.cli", *command, "--store", store)
            yield {"what": f"assay {what}", "runs": runs, "CPU_s": round(ended.cpu_s, 2), "s": round(ended.wall_s, 2)}
        size = (store / "nights" / names[-1] / "index.html").stat().st_size
        yield {"what": "index.html", "runs": runs, "MB": round(size / 1e6, 2)}


def _made_night(store: Path, number: int, runs: int) -> Night:
    """A night of made runs, as it would lie in a store: a tenth of them kept, and with one of three findings."""
    cells = tuple(
        CellRecord(id=f"{n:012x}", name=f"cell {n}", workload="register", options={"n": n}, command=f"assay run {n}")
        for n in range(CELLS - 1)
    )
    flawed = CellRecord(id="f" * 12, name="f", workload="register", options={}, command="", expect="found", flaw=("f",))
    begun = dt.datetime(2026, 11, 1, tzinfo=dt.UTC) + dt.timedelta(days=number)
    night = begin_night(store, f"made {number:02}", "", lambda id: _head(id, number, (*cells, flawed), begun))
    lines, seal = [], night.seal
    for n in range(runs):
        found = n % 10 == 0
        finding = RunFinding(kind="safety", family=f"{n % 3:012x}", detail=f"{n % 7:012x}", title="a write is lost")
        kept = f"register/{number:02}-{n:05}" if found else None
        if kept:
            (store / kept).mkdir(parents=True)
            (store / kept / "run.json").write_text("{}")
        run = RunEnded(
            run=n, cell=night.head.cells[n % CELLS].id, number=n, seed=1000 * number + n, attempt=1,
            at=begun.isoformat(), word="invalid" if found else "valid", findings=(finding,) * found, kept=kept,
            ops=2000, cpu_s=5.0, wall_s=5.0, virtual_s=60.0, points=tuple(f"point/{n}/{k}" for k in range(20)),
            figures=RunFigures(rate=90.0 + n % 9, p50_ms=3.0 + n % 5, p99_ms=9.0 + n % 7, checker_s=1.0 + n % 3),
        )  # fmt: skip
        line, seal = sealed_line(run, seal)
        lines.append(line)
    line, seal = sealed_line(NightDone(at=begun.isoformat(), why="wall", wall_s=3600.0, cpu_s=5.0 * runs), seal)
    with (night.directory / "night.jsonl").open("ab") as file:
        file.write(b"".join([*lines, line]))
    return night


def _head(id: str, number: int, cells: tuple[CellRecord, ...], begun: dt.datetime) -> NightHead:
    return msgspec.structs.replace(head_of(id, f"made {number:02}", ""), cells=cells, begun=begun.isoformat())
