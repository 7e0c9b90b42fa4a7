"""Findings made again and made small: runs by their inputs, short histories, the smallest run of each flaw."""

from __future__ import annotations

import json
import re
import shlex
import statistics
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from assay.options import RunOptions
from assay.reproduce.inputs import load_inputs
from assay.runner import Keep, RunOrder, run_orders, warm
from bench.measure import Row, chosen, finished, in_turns, kept_in
from cluster.flaws import FLAWS

# ---- runs by their inputs ----

RUNS: Final[Mapping[str, RunOptions]] = {
    "register, partition,kill": RunOptions("register", nemesis=("partition", "kill"), seed=1),
    "catalog, master-partition": RunOptions("catalog", nemesis=("master-partition",), seed=1),
    "monotonic-reads, partition": RunOptions(
        "monotonic-reads", nemesis=("partition",), seed=1, workload_options={"table": "logged"}
    ),
}


def by_inputs(*runs: str, seconds: float = 20.0, turns: int = 5) -> Iterator[Row]:
    """CPU seconds of simulated runs, of the same recorded, and of the same by their inputs, in turns, judging included:
    medians, and medians of what they are to the run of their turn."""
    for name in chosen(runs, RUNS):
        with kept_in() as folder:
            took = _took(replace(RUNS[name], time_limit=seconds, store=folder), turns)
        row: Row = {f"{variant}_CPU_s": round(statistics.median(each), 2) for variant, each in took.items()}
        for variant in ("recorded", "by_inputs"):
            ratios = [one / run for one, run in zip(took[variant], took["run"], strict=True)]
            row[variant] = round(statistics.median(ratios), 3)
        yield {"run": f"{name}, {seconds:g} s", **row}


def _took(plain: RunOptions, turns: int) -> dict[str, list[float]]:
    """CPU seconds of each turn by what was run."""
    warm(plain.workload)
    inputs = plain.store / "inputs"
    _cpu_s(replace(plain, record=inputs))
    played = replace(load_inputs(inputs).options, inputs=inputs, store=plain.store)

    def measured(variant: str, turn: int) -> float:
        recorded = replace(plain, record=plain.store / f"inputs-{turn}")
        return _cpu_s({"run": plain, "recorded": recorded, "by_inputs": played}[variant])

    return in_turns(("run", "recorded", "by_inputs"), turns, measured)


def _cpu_s(options: RunOptions) -> float:
    with closing(run_orders([RunOrder(options, Keep.NOTHING)], 1)) as found:
        return next(found)[1].cpu_s


# ---- histories ----


class MadeWith(NamedTuple):
    """How a refuted history is made: its anomaly, operations, and keys (None: as the model has them)."""

    anomaly: str
    operations: int
    keys: int | None = None


HISTORIES: Final[Mapping[str, MadeWith]] = {
    "register": MadeWith("stale-read", 1_000_000, 1_000),
    "list-append": MadeWith("G-single-item", 100_000),
    "bank": MadeWith("wrong-total", 100_000),
}


def shrink_histories(*models: str, operations: int | None = None, keys: int | None = None) -> Iterator[Row]:
    """Histories with one injected anomaly from the file to the smallest part: CPU seconds of the whole command, with
    loading and the first verdict."""
    for model in chosen(models, HISTORIES):
        anomaly, most, own_keys = HISTORIES[model]
        on = ["--keys", str(keys or own_keys)] if keys or own_keys else []
        words = ["generate", model, "--operations", str(operations or most), *on, "--anomaly", anomaly]
        with kept_in() as folder:
            finished("assay.cli", *words, "--to", folder / "h.parquet")
            ended = finished("assay.cli", "shrink", folder / "h.parquet", "--to", folder / "small", "--json")
        found = json.loads(ended.out)
        size = found["operations"]
        figures: Row = {"operations": size["whole"], "left": size["smallest"], "parts_judged": found["judged"]}
        yield {"history": f"`assay {shlex.join(words)}`", **figures, "CPU_s": round(ended.cpu_s, 1)}


# ---- smallest runs ----

TRACK_RECORD: Final = Path(__file__).parent.parent / "docs" / "flaws.md"


def shrink_runs(*flaws: str, budget: str = "10m", museum: bool = False) -> Iterator[Row]:
    """The search for the smallest run that shows a flaw, from its command in `docs/flaws.md`: how many runs it makes,
    CPU seconds, and what is left. With `--museum` the smallest is kept there by the flaw's name."""
    for flaw in chosen(flaws, FLAWS):
        with kept_in() as folder:
            finished("assay.cli", *_command_of(flaw), "--store", folder)
            kept = ["--museum", flaw] if museum else []
            to = ("--to", folder / "small", "--budget", budget, "--json")
            ended = finished("assay.cli", "shrink", folder / "latest", *to, *kept)
        yield {"flaw": flaw, **_sizes(json.loads(ended.out or "{}")), "CPU_s": round(ended.cpu_s, 1)}


def _command_of(flaw: str) -> list[str]:
    """The words of the command that finds a flaw, behind `assay`."""
    found = re.search(rf"`assay (run [^`]*--flaw {flaw}(?![\w-])[^`]*)`", TRACK_RECORD.read_text())
    assert found is not None, f"{TRACK_RECORD} has a command for each flaw"
    return shlex.split(found[1])


def _sizes(found: Mapping[str, Any]) -> Row:
    """Nothing was found where the run's inputs did not break."""
    after = found.get("after", {})
    sizes: Row = {name: after.get(name) for name in ("faults", "operations", "clients")}
    return {"runs": found.get("runs"), **sizes, "ended": "by itself" if found.get("necessary") else "by its budget"}
