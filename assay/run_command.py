"""`assay run` and `assay report`: one run from its options to its verdict on the terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from assay.options import RunOptions, once, validate, within
from assay.processes import loading
from assay.progress import RunProgress
from assay.telling import Teller, anomaly_sentences, skipped_words
from harness.errors import HarnessError, UserError
from harness.history.arrow import without_pandas
from harness.history.rundir import RunDir
from harness.verdict.advice import advice

if TYPE_CHECKING:
    from assay.compose import Finished
    from assay.processes import JudgeProcess
    from assay.seeds import SeedPlan


@dataclass(frozen=True, slots=True)
class Many:
    """What was said of running many seeds; `seeds` are the ranges that were named, at most one. `one_seed` says that a
    first one was."""

    seeds: Sequence[str] | None
    jobs: int
    keep_valid: bool
    one_seed: bool
    until_invalid: bool = False
    test_count: int | None = None
    seed_timeout: float | None = None


def run_or_runs(
    options: RunOptions, many: Many, json_output: bool, judge: JudgeProcess | None, for_good: bool = False
) -> int:
    """One run, which the process `judge` judges, or one for each seed of a range; returns the exit code. See
    `assay.processes` for `for_good`."""
    if judge is not None:
        if many.jobs != 1 or many.keep_valid or many.seed_timeout is not None:
            raise UserError("--jobs, --keep-valid and --seed-timeout go with --seeds, --until-invalid or --test-count.")
        return run_and_report(validate(options), json_output, judge, for_good)
    without_pandas()
    from assay.seeds import run_seeds

    plan = _plan_of(options, many)
    warn_of_leftovers(options)
    return run_seeds(options, plan, json_output, for_good)


def carried_out(options: RunOptions, many: Many) -> RunOptions:
    """The options, of which those of `--inputs` are a part; raises UserError for others beside them, where a workload
    is lacking, and for what can't be recorded."""
    several = bool(many.seeds) or many.until_invalid or many.test_count is not None
    if options.record is not None:
        if several or options.on != "sim":
            raise UserError("--record is for one run in the simulator.")
        if options.record.exists():
            raise UserError(f"{options.record} is there already; name another folder with --record.")
    if options.inputs is None:
        if options.targets != "node":
            raise UserError("--targets goes with --inputs.")
        if not options.workload:
            raise UserError("Name a workload (see `assay list workloads`), or the inputs of a run with --inputs.")
        return options
    own = {name: getattr(options, name) for name in ("inputs", "targets", "record", "store", "keep_journal")}
    if several or many.one_seed or options != replace(RunOptions(""), **own):
        raise UserError("--inputs says all of a run: leave the workload and other options out, or edit the inputs.")
    from assay.reproduce.inputs import load_inputs

    return replace(load_inputs(options.inputs).options, **own)


def _plan_of(options: RunOptions, many: Many) -> SeedPlan:
    """The seeds that were asked for; raises UserError for options that contradict each other."""
    from assay.runner import Keep
    from assay.seeds import SeedPlan, parse_seeds, seeds_from

    named = once("--seeds", "range", many.seeds)
    if named is not None and many.one_seed:
        raise UserError("--seed and --seeds exclude each other.")
    if named is not None and many.test_count is not None:
        raise UserError("--test-count and --seeds exclude each other: name the first seed with --seed.")
    if options.on == "ssh" and many.jobs > 1:
        raise UserError("Hosts take one run at a time: leave --jobs out with --on ssh.")
    if many.seed_timeout is not None:
        within("--seed-timeout", many.seed_timeout, 1, 7 * 24 * 3600)
    return SeedPlan(
        seeds_from(options.seed, many.test_count) if named is None else parse_seeds(named),
        many.jobs,
        Keep.ALL if many.keep_valid else Keep.FINDINGS,
        many.seed_timeout,
        until_invalid=many.until_invalid or many.test_count is not None,
        endless=named is None and many.test_count is None,
    )


def run_and_report(options: RunOptions, json_output: bool, process: JudgeProcess, for_good: bool = False) -> int:
    """Make one run, print its verdict and where it is saved, and return its exit code."""
    with loading(for_good):
        from assay.compose import carry_out
    if options.on == "docker":
        warn_of_leftovers(options)
    with RunProgress(options.time_limit) as progress:
        finished = carry_out(options, process.judge, progress, datetime.now(UTC), tell)
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


def warn_of_leftovers(options: RunOptions) -> None:
    """Say what runs that were killed left: folders in the store, and, before one that makes more of it, what is in the
    engine."""
    from assay.runner import abandoned_in

    if options.on == "docker" or abandoned_in(options.store):
        from assay.doctor_command import warn_of_leftovers

        warn_of_leftovers(options.store, options.on == "docker", tell)


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
    skipped = skipped_words(counts)
    return (
        f"{counts['requested']} requested, {counts['observed']} observed in effect{share}, "
        f"{counts['recovered']} observed healed" + (f", {skipped}" if skipped else "")
    )
