"""`assay check`: judge saved runs and history files, and tell the worst finding by the exit code."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console

from assay.progress import working
from assay.telling import Teller, anomaly_sentences
from checkers.api import check
from checkers.engines.session import SparkOptions, refuse_settings, setting_of
from checkers.importers.detect import suggested
from checkers.models import MODELS
from checkers.options import CheckOptions
from checkers.verdict import Validity, as_object, worst
from harness.errors import HarnessError, UnwritableError, UserError
from harness.history.address import Place, exists, place_of
from harness.history.rundir import is_run, open_run
from harness.own_code import is_own_code, own_code

EXIT_CODES: dict[Validity, int] = {True: 0, False: 1, "unknown": 2}
EXIT_BAD_ARGUMENTS, EXIT_HARNESS = 254, 255
ENGINES = ("auto", "local", "spark")
FAILED_CAS = ("auto", "observed", "absent")
FAILED_CAS_MODELS = ("register", "cas-register")
"""The models to which a failed compare-and-set may say what it found."""
CONSISTENCY_MODELS = ("list-append", "rw-register", "isolation")


@dataclass(frozen=True, slots=True)
class CheckRequest:
    """How the inputs are to be judged; `model` None means all that a run's workload asks for."""

    model: str | None
    format: str
    engine: str
    options: CheckOptions


def check_and_report(
    paths: Sequence[Place | str], request: CheckRequest, json_output: bool, report: Path | None = None
) -> int:
    """Judge every input, print the verdicts, draw them to `report` if given, return the exit code of the worst finding.

    An input that can't be judged costs only itself: the others are judged first; a finding of `invalid` outweighs it.
    """
    if request.model is None:
        require_runs(paths)
    require_place(report)
    objects: list[dict[str, Any]] = []
    errors: list[UserError | HarnessError] = []
    for path in paths:
        try:
            objects.append(judged(path, request))
        except (UserError, HarnessError) as error:
            errors.append(error)
        except Exception as error:  # noqa: BLE001 - a bug of ours must not hide what was found in another input
            words = f"a bug of the harness: {type(error).__name__}: {error} (on {path}; --debug shows the traceback)"
            errors.append(HarnessError(words))
            errors[-1].__cause__ = error
    teller = Teller()
    for line in output(objects, json_output):
        teller.line(line)
    undrawn = 0 if report is None else draw(report, objects, errors)
    code = teller.end(exit_code(objects, errors))
    return undrawn if undrawn and code != EXIT_CODES[False] else code


def require_place(report: Path | None) -> None:
    """Raise UserError for a report that would lie in no directory."""
    if report is not None and not report.parent.is_dir():
        raise UserError(f"There is no directory {report.parent} for the report {report.name}.")


def draw(report: Path, objects: Sequence[dict[str, Any]], errors: Sequence[UserError | HarnessError]) -> int:
    """Write the page on all inputs; 0, or the exit code where that can't be done and nothing was refuted."""
    from results.report import write_check_report  # Plotting takes a second to load.

    try:
        path = write_check_report(report, objects, [str(error) for error in errors])
    except UnwritableError as error:
        print_error(UnwritableError(f"the report could not be made: {error}"))
        return EXIT_BAD_ARGUMENTS
    except Exception as error:  # noqa: BLE001 - a failed drawing never costs the verdict, which is printed already
        print_error(HarnessError(f"the report could not be made: {type(error).__name__}: {error}"))
        return EXIT_HARNESS
    print(f"report: {path}", file=sys.stderr)
    return 0


def require_runs(paths: Sequence[Place | str]) -> None:
    """Raise UserError for a path that is no run directory: its history could be judged only by a named model."""
    for place in map(place_of, paths):
        if not exists(place):
            raise UserError(f"There is no file or run directory {place}.")
        if not isinstance(place, Path) or not is_run(place):
            model = suggested(place)
            such = "" if model is None else f", such as {model}"
            raise UserError(f"{place} is not the directory of a run; name what to check it for with --model{such}.")


def judged(named: Place | str, request: CheckRequest) -> dict[str, Any]:
    """The verdict on one input as the object that `--json` prints."""
    place = place_of(named)
    if not exists(place):
        raise UserError(f"There is no file or run directory {place}.")
    with working(f"checking {place}"):
        if request.model is not None:
            verdict = check(place, request.model, engine=request.engine, format=request.format, options=request.options)
            return whole_or_unknown(place, {"input": str(place), **as_object(verdict)})
        assert isinstance(place, Path)  # `require_runs`
        return judged_run(place, request)


def whole_or_unknown(path: Place, found: dict[str, Any]) -> dict[str, Any]:
    """A verdict by a named model; a run that is not valid as a whole is not valid by that either."""
    if not isinstance(path, Path):
        return found
    logs = found["model"] == "logs"  # Those of a history within a run are the run's.
    folder = path.parent if logs and not is_run(path) else path
    if found["valid"] is not True or not is_run(folder):
        return found
    from harness.verdict.facts import conclude_run
    from harness.verdict.run_seal import broken_seal, is_verdict_of

    rundir = open_run(folder)
    if unsealed := broken_seal(rundir, logs=logs) if rundir.outcome_json.exists() else ():
        return {
            **found,
            "valid": "unknown",
            "reason": f"The saved files are not those of one whole run: {unsealed[0]}.",
        }
    whole = conclude_run(rundir, {str(found["model"]): found})
    if whole.overall != "valid":
        return {**found, "valid": "unknown", "reason": f"The run as a whole is not valid: {'; '.join(whole.reasons)}."}
    own = rundir.read_json(rundir.verdict_json)
    if not isinstance(own, dict) or not is_verdict_of(rundir, own):
        told = f"What the run's own models find is not saved with it; assay check {folder} judges by them"
    elif own.get("overall") != "valid":
        told = f"By its own models the run is {own.get('overall')}: {'; '.join(own.get('reasons', ()))}"
    else:
        return found
    return {**found, "valid": "unknown", "reason": f"{told}."}


def judged_run(path: Path, request: CheckRequest) -> dict[str, Any]:
    """All that a run's workload asks for, with the run's own four questions answered anew; its one word answers them
    all, so that a run that did not come to its end is valid by no command."""
    from assay.judging import judge_run  # Workloads, which bring the whole reference cluster with them.
    from harness.verdict.facts import conclude_run, read_record
    from workloads.registry import workload

    rundir = open_run(path)
    if request.format not in ("auto", "journal", "parquet"):
        raise UserError(f"{path} is a run of assay, whose history is not {request.format}; leave --format out.")
    record = read_record(rundir)
    require_consistency(request.options.consistency, workload(record.workload).checkers)
    verdicts = judge_run(rundir, request.options, request.engine)
    concluded = conclude_run(rundir, {name: as_object(verdict) for name, verdict in verdicts.items()})
    checkers = dict(concluded.checkers)
    history = worst([verdict.valid for verdict in verdicts.values()])
    anomalies = {kind: found for checker in checkers.values() for kind, found in checker["anomalies"].items()}
    return {
        "input": str(path),
        "valid": concluded.valid,
        "history": history,
        "model": "+".join(verdicts),
        "anomalies": anomalies,
        "ops": max((verdict.ops for verdict in verdicts.values()), default=0),
        "seconds": round(sum(verdict.seconds for verdict in verdicts.values()), 3),
        "engine": next(iter(verdicts.values())).engine,
        "overall": concluded.overall,
        "why": concluded.why,
        "reasons": list(concluded.reasons),
        "checkers": checkers,
        "floors": record.options.get("floors") or {},
    }


def require_consistency(consistency: str | None, models: Sequence[str]) -> None:
    """Raise UserError for a consistency model that none of a run's checkers would ask for."""
    if consistency is not None and not any(model in CONSISTENCY_MODELS for model in models):
        raise UserError(
            f"--consistency goes with {', '.join(CONSISTENCY_MODELS)}; this run is judged by {', '.join(models)}."
        )


def output(objects: Sequence[dict[str, Any]], json_output: bool) -> Iterator[str]:
    """The lines to print: one JSON object an input, or words."""
    for found in objects:
        if json_output:
            yield msgspec.json.encode(found).decode()
        else:
            yield from in_words(found)


def in_words(found: dict[str, Any]) -> Iterator[str]:
    """One verdict for people."""
    word = {True: "VALID", False: "INVALID"}.get(found["valid"], "UNKNOWN")
    figures = f"{found['ops']} operations, {found['seconds']:.2f} s, engine {found['engine']}"
    yield f"{word}: {found['input']} by {found['model']} ({figures})"
    if found.get("reason"):
        yield f"  {found['reason']}"
    checkers = found.get("checkers", {found["model"]: found})
    for checker in checkers.values():
        if checker is not found and checker.get("reason"):
            yield f"  {checker['model']}: {checker['reason']}"
    for note in dict.fromkeys(checker.get("details", {}).get("note") for checker in checkers.values()):
        if note and note not in (checker.get("reason") for checker in checkers.values()):
            yield f"  {note}"
    for checker in checkers.values():
        yield from levels(checker)
    for sentence in anomaly_sentences(checkers):
        yield f"  * {sentence}"
    if found.get("overall"):
        reasons = f" ({'; '.join(found['reasons'])})" if found["reasons"] else ""
        why = f", {found['why']}" if found["why"] else ""
        yield f"  the run as a whole: {found['overall']}{why}{reasons}"
    if found.get("floors"):
        yield f"  floors set by hand: {', '.join(f'{name}={value}' for name, value in found['floors'].items())}"


def levels(checker: dict[str, Any]) -> Iterator[str]:
    """Which consistency models are ruled out, and which level holds."""
    if checker.get("strongest"):
        yield f"  The strongest level that holds: {checker['strongest']}."
    if checker.get("not"):
        yield f"  Ruled out: {', '.join(checker['not'])}, and all that is stronger."


def exit_code(objects: Sequence[dict[str, Any]], errors: Sequence[UserError | HarnessError]) -> int:
    """The worst finding: invalid, then an input that could not be judged (raised), then unknown, then valid."""
    validity = worst([found["valid"] for found in objects]) if objects else True
    if errors and validity is not False:
        raise errors[0]
    for error in errors:
        print_error(error)
    return EXIT_CODES[validity]


def print_error(error: Exception) -> None:
    """A sentence about an input that could not be judged, on standard error."""
    Console(stderr=True, highlight=False, soft_wrap=True).print(f"assay: {error}", markup=False)


def one_kind_of_input(
    paths: Sequence[Place | str], manifest: Path | None, model: str | None, format: str, report: Path | None
) -> None:
    """Raise UserError unless there are histories or a table, not both; a table names its models and formats, and its
    verdicts are compared, not drawn."""
    if manifest is None and not paths:
        raise UserError("Name a run directory or history file to check, or a table of them with --manifest.")
    if manifest is not None and (paths or model is not None or format != "auto"):
        raise UserError("A table of --manifest names files, models and formats itself; leave those arguments out.")
    if manifest is not None and report is not None:
        raise UserError("--report draws histories named one by one, not a table of --manifest; leave one of them out.")


def known_settings(model: str | None) -> tuple[str, ...]:
    """What `-o` can set of a model; of any, where runs or a table name the models."""
    if model is None:
        return tuple(dict.fromkeys(name for info in MODELS.values() for name in info.settings))
    return MODELS[model].settings if model in MODELS else ()


def spark_options(engine: str, master: str | None, conf: Sequence[str], archive: Path | None) -> SparkOptions:
    """Where Spark judges; raises UserError for settings that are none, or that no Spark would use."""
    if engine == "local" and (master is not None or conf or archive is not None):
        raise UserError("--spark-master, --spark-conf and --spark-archive go with --engine spark or auto.")
    settings = tuple(setting_of(text) for text in conf)
    if master is not None:
        refuse_settings(master, dict(settings))
    return SparkOptions(master, settings, archive)


def check_options(
    failed_cas: str,
    consistency: str | None,
    debug: bool,
    model: str | None = None,
    settings: Sequence[str] = (),
    spark: SparkOptions | None = None,
) -> CheckOptions:
    """The checkers' options; raises UserError for an unknown word, or a setting (KEY=VALUE) the model doesn't know."""
    if failed_cas not in FAILED_CAS:
        raise UserError(f"--failed-cas takes {', '.join(FAILED_CAS)}, not {failed_cas!r}.")
    if consistency is not None and model is not None and model not in CONSISTENCY_MODELS and not is_own_code(model):
        raise UserError(
            f"--consistency goes with {', '.join(CONSISTENCY_MODELS)}; the model {model} has no such choice."
        )
    if failed_cas != "auto" and model is not None and model not in FAILED_CAS_MODELS:
        raise UserError(f"--failed-cas goes with {', '.join(FAILED_CAS_MODELS)}; to {model} a failed one says nothing.")
    meaning = None if failed_cas == "auto" else failed_cas
    values = _values(settings)
    for name in values:
        if name not in known_settings(model):
            takes = f"it takes {', '.join(known_settings(model)) or 'none'}"
            raise UserError(
                f"There is no setting {name!r} of {f'the model {model}' if model else 'any model'}: {takes}."
            )
    where = spark or SparkOptions()
    code = own_code(model) if model is not None and is_own_code(model) else None
    return CheckOptions(meaning, consistency, debug=debug, settings=values, spark=where, code=code)  # type: ignore[arg-type]


def _values(settings: Sequence[str]) -> dict[str, str]:
    if not settings:
        return {}
    from assay.options import key_values  # Options of runs, which bring the reference cluster with them.

    return key_values(settings)
