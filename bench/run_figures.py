"""How soon a saved run's cluster served, and how soon its faults were in effect, from what the run itself recorded.

`python -m bench.run_figures RUN…`, a JSON line a run (without any, one is made in containers): the seconds of set-up
(containers, programs, tables), and for each kind of fault, of those that were observed, the seconds from the request to
the look that saw it, median and longest. A look counts from where it began: no more is told than it took.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from tempfile import mkdtemp

import msgspec

from assay.compose import carry_out
from assay.judging import judge_saved_run
from assay.options import RunOptions
from bench._measure import machine
from harness.history.rundir import open_run
from harness.run.spec import Silent
from harness.verdict.facts import OutcomeRecord, load_faults
from harness.verdict.faults import Fault

PLAIN = ("partition", "kill", "pause", "stop", "packets", "clock-jump", "clock-strobe", "slow-disk")
LASTS_S = 90.0


def figures(path: Path) -> dict[str, object]:
    """The figures of one run."""
    rundir = open_run(path)
    outcome = msgspec.convert(rundir.read_json(rundir.outcome_json), OutcomeRecord)
    set_up_s = sum(end - begin for name, begin, end in outcome.stages if name == "set up") / 1e9
    return {"run": str(path), "set_up_s": round(set_up_s, 2), "in_effect_after_s": delays(load_faults(rundir))}


def delays(faults: Sequence[Fault]) -> dict[str, dict[str, float]]:
    """By kind; the core of a script is a state that it waits for, and is left out."""
    found: dict[str, list[float]] = {}
    for fault in faults:
        if fault.observed_ns is not None and fault.cores is None:
            found.setdefault(fault.kind, []).append((fault.observed_ns - fault.requested_ns) / 1e9)
    return {
        kind: {"instances": len(each), "median": round(statistics.median(each), 2), "longest": round(max(each), 2)}
        for kind, each in sorted(found.items())
    }


def made() -> Path:
    """A run in containers with kinds that every Linux host can do."""
    options = RunOptions("register", on="docker", nemesis=PLAIN, time_limit=LASTS_S, seed=1, store=Path(mkdtemp()))
    return carry_out(options, judge_saved_run, Silent(), datetime.now(), print_sentence).outcome.rundir.path


def print_sentence(sentence: str) -> None:
    print(sentence, file=sys.stderr)


if __name__ == "__main__":
    for argument in sys.argv[1:] or [str(made())]:
        print(json.dumps({"benchmark": "run_figures", **figures(Path(argument)), "machine": machine()}))
