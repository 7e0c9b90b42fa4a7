"""`assay check`: judge saved runs and history files, and tell the worst finding by the exit code."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console

from assay.evidence import write_evidence
from assay.progress import working
from assay.telling import Teller, anomaly_sentences
from checkers.api import check_by_each, check_run, check_source, require_models_known
from checkers.engines.session import SparkOptions, refuse_settings, setting_of
from checkers.importers.detect import suggested
from checkers.importers.whole_groups import open_what_is_whole
from checkers.models import MODELS
from checkers.options import CheckOptions
from checkers.verdict import Validity, Verdict, as_object, worst
from harness.errors import HarnessError, UnwritableError, UserError
from harness.history.address import Place, exists, place_of
from harness.history.columns import Purpose
from harness.history.rundir import is_run, open_run
from harness.history.saved import is_history_folder, is_parquet, open_saved
from harness.own_code import is_own_code, own_code
from harness.verdict.advice import CANT_TELL, advice

EXIT_CODES: dict[Validity, int] = {True: 0, False: 1, "unknown": 2}
EXIT_BAD_ARGUMENTS, EXIT_HARNESS = 254, 255
ENGINES = ("auto", "local", "spark")
FAILED_CAS = ("auto", "observed", "absent")
FAILED_CAS_MODELS = ("register", "cas-register")
"""The models to which a failed compare-and-set may say what it found."""
CONSISTENCY_MODELS = ("list-append", "rw-register", "isolation")


@dataclass(frozen=True, slots=True)
class CheckRequest:
    """How the inputs are to be judged; `model` None means all that a run's workload, or a history itself, asks for.
    Each is judged by each of some consistency models (None: the model's own). With `what_is_whole` it is the tables of
    runs and saved histories that are judged, as far as they are whole."""

    model: str | None
    format: str
    engine: str
    options: CheckOptions
    consistencies: tuple[str | None, ...] = (None,)
    report: Path | None = None
    evidence: Path | None = None
    what_is_whole: bool = False


def check_and_report(paths: Sequence[Place | str], request: CheckRequest, json_output: bool) -> int:
    """Judge every input, print the verdicts, write what files are asked for, return the exit code of the worst finding.

    An input that can't be judged costs only itself: the others are judged first; a finding of `invalid` outweighs it.
    """
    if request.model is None:
        require_models(paths)
    require_place(request.report)
    objects: list[dict[str, Any]] = []
    errors: list[UserError | HarnessError] = []
    for path in paths:
        try:
            objects += judged(path, request)
        except (UserError, HarnessError) as error:
            errors.append(error)
        except Exception as error:  # noqa: BLE001 - a bug of ours must not hide what was found in another input
            words = f"a bug of the harness: {type(error).__name__}: {error} (on {path}; --debug shows the traceback)"
            errors.append(HarnessError(words))
            errors[-1].__cause__ = error
    teller = Teller()
    for line in output(objects, json_output):
        teller.line(line)
    unwritten = 0 if request.report is None else draw(request.report, objects, errors)
    unwritten = unwritten or save_evidence(request, paths, objects)
    code = teller.end(exit_code(objects, errors))
    return unwritten if unwritten and code != EXIT_CODES[False] else code


def require_place(report: Path | None) -> None:
    """Raise UserError for a report that would lie in no directory."""
    if report is not None and not report.parent.is_dir():
        raise UserError(f"There is no directory {report.parent} for the report {report.name}.")


def save_evidence(request: CheckRequest, paths: Sequence[Place | str], objects: Sequence[dict[str, Any]]) -> int:
    """Write what refutes the inputs, if asked for; 0, or the exit code where that can't be done."""
    if request.evidence is None:
        return 0
    try:
        print(write_evidence(request.evidence, paths, objects, request), file=sys.stderr)
    except UnwritableError as error:
        print_error(UnwritableError(f"the evidence could not be written: {error}"))
        return EXIT_BAD_ARGUMENTS
    return 0


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


def require_models(paths: Sequence[Place | str]) -> None:
    """Raise UserError for a path that is neither a run nor a history that knows its models."""
    for place in map(place_of, paths):
        if not exists(place):
            raise UserError(f"There is no file or run directory {place}.")
        if not (isinstance(place, Path) and is_run(place)) and not _is_saved(place):
            raise _without_model(place)


def _is_saved(place: Place) -> bool:
    return not isinstance(place, Path) or is_history_folder(place) or is_parquet(place)


def _without_model(place: Place) -> UserError:
    model = suggested(place)
    such = "" if model is None else f", such as {model}"
    return UserError(
        f"{place} is not the directory of a run, nor a history that says what it was made for; name what to check it "
        f"for with --model{such}."
    )


def models_of(place: Place, purpose: Purpose) -> tuple[str, ...]:
    """The models that a saved history says it was made for; raises UserError where it says none, or one that is none
    of ours: what a history names is looked up and nothing else."""
    models = purpose.models
    if not models:
        raise _without_model(place)
    for model in models:
        if model not in MODELS:
            raise UserError(f"{place} was made for the model {model!r}, which there is not; name one with --model.")
    return models


def judged(named: Place | str, request: CheckRequest) -> list[dict[str, Any]]:
    """The verdicts on one input, by each consistency model, as the objects that `--json` prints."""
    place = place_of(named)
    if not exists(place):
        raise UserError(f"There is no file or run directory {place}.")
    with working(f"checking {place}"):
        asked = request.consistencies
        by_each = [replace(request, options=replace(request.options, consistency=name)) for name in asked]
        found = _judged_by_each(place, request, by_each)
    if len(asked) == 1:
        return found
    return [each | {"consistency": name} for each, name in zip(found, asked, strict=True)]


def _judged_by_each(place: Place, request: CheckRequest, by_each: Sequence[CheckRequest]) -> list[dict[str, Any]]:
    if request.what_is_whole:
        whole = [judged_as_far_as_whole(place, each) for each in by_each]
        if whole[0] is not None:
            return [found for found in whole if found is not None]
    if request.model is not None:
        how: dict[str, Any] = {"engine": request.engine, "format": request.format, "options": request.options}
        verdicts = check_by_each(place, request.model, request.consistencies, **how)
        return [whole_or_unknown(place, {"input": str(place), **as_object(verdict)}) for verdict in verdicts]
    if isinstance(place, Path) and is_run(place):
        return [judged_run(place, each) for each in by_each]
    return [judged_by_its_own(place, each) for each in by_each]


def judged_by_its_own(place: Place, request: CheckRequest) -> dict[str, Any]:
    """The verdict on a history by the models that it was made for."""
    models = models_of(place, open_saved(place).manifest.purpose)
    require_consistency(request.options.consistency, models)
    verdicts = check_run(place, models, engine=request.engine, format=request.format, options=request.options)
    return _of_history(place, verdicts)


def judged_as_far_as_whole(place: Place, request: CheckRequest) -> dict[str, Any] | None:
    """The verdict on what is whole of a damaged table, `unknown` at best; a run's is judged by itself. None of one that
    is not damaged, and is judged as ever."""
    if isinstance(place, Path) and is_run(place):
        place = open_run(place).history_parquet
    if not isinstance(place, Path) or not _is_saved(place) or request.format not in ("auto", "parquet"):
        raise UserError(f"{place} is no saved history at a path; --what-is-whole is for these.")
    if (found := open_what_is_whole(place)) is None:
        return None
    source, purpose = found
    models = models_of(place, purpose) if request.model is None else (request.model,)
    require_models_known(models)
    settings = purpose.settings if request.model is None else {}
    verdicts = check_source(source, models, engine=request.engine, options=request.options, settings=settings)
    return _of_history(place, verdicts)


def _of_history(place: Place, verdicts: Mapping[str, Verdict]) -> dict[str, Any]:
    """Verdicts on one history as one object."""
    told = {name: as_object(verdict) for name, verdict in verdicts.items()}
    checkers = {name: whole_or_unknown(place, {"input": str(place), **found}) for name, found in told.items()}
    if len(checkers) == 1:
        return next(iter(checkers.values()))
    valid = worst([found["valid"] for found in checkers.values()])
    return {"input": str(place), "valid": valid, **_together(verdicts, checkers), "checkers": checkers}


def _together(verdicts: Mapping[str, Verdict], checkers: Mapping[str, Any]) -> dict[str, Any]:
    """What several verdicts on one history say of it together."""
    return {
        "model": "+".join(verdicts),
        "anomalies": {kind: found for checker in checkers.values() for kind, found in checker["anomalies"].items()},
        "ops": max((verdict.ops for verdict in verdicts.values()), default=0),
        "seconds": round(sum(verdict.seconds for verdict in verdicts.values()), 3),
        "engine": next(iter(verdicts.values())).engine,
    }


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
    from assay.judging import (
        checkers_of,
        judge_run,  # Workloads, which bring the whole reference cluster with them.
    )
    from harness.verdict.facts import conclude_run, read_record

    rundir = open_run(path)
    if request.format not in ("auto", "journal", "parquet"):
        raise UserError(f"{path} is a run of assay, whose history is not {request.format}; leave --format out.")
    record = read_record(rundir)
    require_consistency(request.options.consistency, checkers_of(record))
    verdicts = judge_run(rundir, request.options, request.engine)
    concluded = conclude_run(rundir, {name: as_object(verdict) for name, verdict in verdicts.items()})
    checkers = dict(concluded.checkers)
    history = worst([verdict.valid for verdict in verdicts.values()])
    return {
        "input": str(path),
        "valid": concluded.valid,
        "history": history,
        **_together(verdicts, checkers),
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
    level = f" at {found['consistency']}" if found.get("consistency") else ""
    yield f"{word}: {found['input']} by {found['model']}{level} ({figures})"
    if found.get("reason"):
        yield f"  {found['reason']}"
        for remedy in advice("unknown", [f"{CANT_TELL}{found['reason']}"] if found["valid"] == "unknown" else ()):
            yield f"  what to change: {remedy}"
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
        for remedy in advice(found["overall"], found["reasons"]):
            yield f"  what to change: {remedy}"
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


def named_model(model: str | None) -> str | None:
    """The model as it is judged by: that of an installed package is the file and the name that it stands for."""
    if model is None or model in MODELS or is_own_code(model):
        return model
    from assay.discovery import installed_model

    return installed_model(model)


def consistencies_of(texts: Sequence[str], model: str | None, manifest: bool) -> tuple[str | None, ...]:
    """The consistency models that are named, separated by commas or one by one; raises UserError if the model has no
    such choice, or the table of a manifest several."""
    named = [name.strip() for text in texts for name in text.split(",") if name.strip()]
    if texts and not named:
        raise UserError("--consistency names no consistency model; `assay list consistency` has all.")
    if named and model is not None and model not in CONSISTENCY_MODELS and not is_own_code(model):
        raise UserError(
            f"--consistency goes with {', '.join(CONSISTENCY_MODELS)}; the model {model} has no such choice."
        )
    if manifest and len(named) > 1:
        raise UserError("A table of --manifest takes one --consistency; its column of that name has more.")
    return tuple(dict.fromkeys(named)) or (None,)


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
