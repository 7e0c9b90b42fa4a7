"""`assay run` and `assay report`: one run from its options to its verdict on the terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from assay.options import RunOptions, validate
from assay.processes import loading
from assay.progress import RunProgress
from assay.telling import Teller, anomaly_sentences
from harness.errors import HarnessError, UserError
from harness.history.arrow import without_pandas
from harness.history.rundir import RunDir
from harness.verdict.advice import advice

if TYPE_CHECKING:
    from assay.compose import Finished
    from assay.processes import JudgeProcess


@dataclass(frozen=True, slots=True)
class Many:
    """What was said of running many seeds; `seeds` None: one run. `one_seed` says that a seed was named."""

    seeds: str | None
    jobs: int
    keep_valid: bool
    one_seed: bool


def run_or_runs(
    options: RunOptions, many: Many, json_output: bool, judge: JudgeProcess | None, for_good: bool = False
) -> int:
    """One run, which the process `judge` judges, or one for each seed of a range; returns the exit code. See
    `assay.processes` for `for_good`."""
    if judge is not None:
        if many.jobs != 1 or many.keep_valid:
            raise UserError("--jobs and --keep-valid go with --seeds.")
        return run_and_report(validate(options), json_output, judge, for_good)
    assert many.seeds is not None
    if many.one_seed:
        raise UserError("--seed and --seeds exclude each other.")
    without_pandas()
    from assay.seeds import parse_seeds, run_seeds

    return run_seeds(options, parse_seeds(many.seeds), many.jobs, many.keep_valid, json_output)


def run_and_report(options: RunOptions, json_output: bool, process: JudgeProcess, for_good: bool = False) -> int:
    """Make one run, print its verdict and where it is saved, and return its exit code."""
    with loading(for_good):
        from assay.compose import carry_out
    with RunProgress(options.time_limit) as progress:
        finished = carry_out(options, process.judge, progress, datetime.now(), tell)
    if not finished.outcome.rundir.verdict_json.exists():
        tell(f"assay: the verdict could not be saved in {finished.outcome.rundir.path}; it is told here only.")
    report = report_by(process, finished.outcome.rundir)
    teller = Teller()
    if json_output:
        teller.line(msgspec.json.encode(run_object(options, finished, report)).decode())
    else:
        for line in summary(options, finished, report):
            teller.line(line)
    return teller.end(finished.outcome.verdict.exit_code)


def tell(sentence: str) -> None:
    """A sentence about a step that takes long."""
    print(sentence, file=sys.stderr)


def report_by(process: JudgeProcess, rundir: RunDir) -> Path | None:
    """The report, made by the process that judged; None with a word on standard error if that died."""
    try:
        return process.report(rundir)
    except HarnessError as error:
        tell(f"assay: the report could not be made: {error}")
        return None


def run_object(options: RunOptions, finished: Finished, report: Path | None) -> dict[str, Any]:
    """What `--json` prints of a run: the verdict with its four answers, what the run says of itself, where it and its
    report are, its seed and trace digest."""
    verdict = finished.outcome.verdict
    safety: dict[str, Any] = {}
    for checker in verdict.checkers.values():
        safety |= checker.get("anomalies", {})
    return {
        "valid": verdict.valid,
        "model": options.workload,
        "anomalies": safety,
        "ops": max((checker.get("ops", 0) for checker in verdict.checkers.values()), default=0),
        "seconds": sum(checker.get("seconds", 0.0) for checker in verdict.checkers.values()),
        "engine": next((checker["engine"] for checker in verdict.checkers.values() if "engine" in checker), "local"),
        "overall": verdict.overall,
        "why": verdict.why,
        "reasons": verdict.reasons,
        **{name: msgspec.to_builtins(getattr(verdict, name)) for name in ("safety", "adequacy", "liveness", "harness")},
        **msgspec.to_builtins(finished.outcome.account),
        "run": str(finished.outcome.rundir.path),
        "report": None if report is None else str(report),
        "seed": options.seed,
        "trace": finished.trace,
        "command": options.command(),
    }


def summary(options: RunOptions, finished: Finished, report: Path | None) -> Iterator[str]:
    """The verdict for people."""
    verdict = finished.outcome.verdict
    what = f"{options.workload} on {options.on}, {options.time_limit:g} s, seed {options.seed}"
    yield f"{verdict.overall.upper()}: {what}" + (f" ({verdict.why})" if verdict.why else "")
    for reason in verdict.reasons:
        yield f"  {reason}"
    for remedy in advice(verdict.overall, verdict.reasons):
        yield f"  what to change: {remedy}"
    for sentence in anomaly_sentences(verdict.checkers):
        yield f"  * {sentence}"
    details = verdict.adequacy.details
    by_f = ", ".join(f"{count} {f}" for f, count in dict(details.get("ok_by_f", {})).items())
    yield f"  succeeded: {by_f or 'nothing'}"
    load = details.get("load_s", {"asked": 0.0, "lasted": 0.0})
    if (longer_s := round(load["lasted"] - load["asked"], 1)) > 0:
        yield f"  the load went on for {longer_s} s longer, to see what it had not shown by then"
    if options.floors:
        yield f"  floors set by hand: {', '.join(f'{name}={value}' for name, value in options.floors.items())}"
    for kind, counts in dict(details.get("faults", {})).items():
        yield f"  fault {kind}: {fault_words(counts)}"
    if finished.trace is not None:
        yield f"  trace: {finished.trace[:16]}"
    yield f"  run:    {finished.outcome.rundir.path}"
    if report is not None:
        yield f"  report: {report}"
    yield f"  again:  {options.command()}"


def fault_words(counts: Mapping[str, Any]) -> str:
    """How far the instances of one kind went."""
    share = f" ({counts['in_effect_s']:.1f} of {counts['asked_s']:.1f} s)" if counts.get("asked_s") else ""
    why = "; ".join(counts.get("skipped_because", ()))
    skipped = f", {counts['skipped']} skipped ({why})" if counts.get("skipped") else ""
    return (
        f"{counts['requested']} requested, {counts['observed']} observed in effect{share}, "
        f"{counts['recovered']} observed healed{skipped}"
    )
