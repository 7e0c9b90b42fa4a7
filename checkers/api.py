"""Judging: one call for a history, or for all that a run asks, by the engine that suits it; `checkers.models` is the
registry of models."""

from __future__ import annotations

import os
import shutil
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from checkers.columns.projection import MISMATCH
from checkers.engines.api import Engine, any_succeeded
from checkers.engines.flows import BatchFlow, run_batches
from checkers.engines.local import LocalEngine
from checkers.engines.session import SparkOptions, worker_fault
from checkers.engines.spark import SparkEngine, mapped
from checkers.explain.conclude import doubted_times, readable
from checkers.importers.detect import open_source
from checkers.models import MODELS, OWN, ModelInfo
from checkers.options import CheckOptions
from checkers.source import Source, top_level
from checkers.verdict import NO_READS, NO_TIMES, NOTHING_SUCCEEDED, Undecided, Verdict, as_object
from harness.errors import HarnessError, UserError
from harness.history.address import Place
from harness.history.columns import ModelSettings

_TRANSACTIONS: Final = ("list-append", "rw-register")
"""The models whose verdicts by several consistency models share nearly all work."""


def check(
    path: Place | str, model: str, *, engine: str = "auto", format: str = "auto", options: CheckOptions | None = None
) -> Verdict:
    """Judge one history (file, folder of parts, run directory, or address of one) by one model.

    Raises UserError for an unknown model, format or engine and for input that is no whole history. A checker that
    crashes gives `unknown` with the reason.
    """
    return check_run(path, (model,), engine=engine, format=format, options=options, settings={})[model]


def check_run(
    path: Place | str,
    models: Sequence[str],
    *,
    engine: str = "auto",
    format: str = "auto",
    options: CheckOptions | None = None,
    settings: ModelSettings | None = None,
) -> dict[str, Verdict]:
    """Judge one history by several models, reading and validating it once; see `check`. `settings` of models (None:
    those that the history was made for) hold where the options set nothing else."""
    options = options or CheckOptions()
    require_models_known(models, options)
    return check_source(_unverified(path, format, options), models, engine=engine, options=options, settings=settings)


def check_by_each(
    path: Place | str,
    model: str,
    consistencies: Sequence[str | None],
    *,
    engine: str = "auto",
    format: str = "auto",
    options: CheckOptions | None = None,
) -> list[Verdict]:
    """Judge one history by one model and each of several consistency models (None: the model's own), reading and
    validating it once; see `check`."""
    options = options or CheckOptions()
    require_models_known((model,), options)
    with _verified(_unverified(path, format, options), engine, options) as (source, chosen):
        if len(consistencies) > 1:
            return judge_source_by_each(source, model, chosen, options, consistencies)
        return [judge_source(source, model, chosen, replace(options, consistency=name)) for name in consistencies]


def _unverified(path: Place | str, format: str, options: CheckOptions) -> Source:
    return open_source(path, format, verify=False, alone=options.alone, stated=options.settings.get("versions"))


def require_models_known(models: Sequence[str], options: CheckOptions | None = None) -> None:
    """Raise UserError for a name that is none of a model, nor that of one's own in the options."""
    own = None if options is None or options.code is None else options.code.spec
    for model in models:
        if model not in MODELS and model != own:
            raise UserError(f"There is no model {model!r}; the models are {', '.join(MODELS)}.")


def check_source(
    source: Source,
    models: Sequence[str],
    *,
    engine: str = "auto",
    options: CheckOptions | None = None,
    settings: ModelSettings | None = None,
) -> dict[str, Verdict]:
    """Judge an opened history, in which nobody may have looked yet, by several models; see `check_run`."""
    options = options or CheckOptions()
    if settings is None:
        settings = {} if source.saved is None else source.saved.manifest.purpose.settings
    with _verified(source, engine, options) as (whole, chosen):
        return {model: judge_source(whole, model, chosen, with_settings(options, model, settings)) for model in models}


def with_settings(options: CheckOptions, model: str, settings: ModelSettings) -> CheckOptions:
    """The options with what is set for a model, where they say nothing else."""
    mine = dict(settings.get(model, {}))
    consistency = mine.pop("consistency", None)
    return replace(options, consistency=options.consistency or consistency, settings={**mine, **options.settings})


@contextmanager
def _verified(source: Source, engine: str, options: CheckOptions) -> Iterator[tuple[Source, Engine]]:
    """A history that is whole, and the engine that judges it."""
    chosen = choose_engine(engine, source, options.spark, options.cores)
    try:
        chosen.verify(source)
        yield source, chosen
    finally:
        chosen.close()


RunToJudge: TypeAlias = tuple[Path, tuple[str, ...], ModelSettings]
"""A run, or a history, with the models to judge it by and how these are set."""

Runs: TypeAlias = Sequence[RunToJudge]


class Judged(msgspec.Struct, frozen=True):
    """What came of one run: its verdicts as JSON has them, by model, or in a sentence why there are none; `bug` says
    that this is a fault of ours."""

    checkers: dict[str, Any] = {}
    error: str | None = None
    bug: bool = False


@dataclass(frozen=True, slots=True)
class RunsJudge:
    """Picklable: judges runs by their numbers, each by itself and in one process."""

    runs: Runs
    options: CheckOptions

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in (number for batch in batches for number in batch.column(0).to_pylist()):
            data = msgspec.json.encode(self.judged(number))
            yield pa.record_batch({"run": pa.array([number], pa.int32()), "data": pa.array([data], pa.binary())})

    def judged(self, number: int) -> Judged:
        """What came of one of them; raises nothing."""
        run, models, settings = self.runs[number]
        try:
            verdicts = check_run(run, models, engine="local", options=self.options, settings=settings)
        except (UserError, HarnessError) as error:
            return Judged(error=str(error))
        except Exception as error:  # noqa: BLE001 - a bug of ours must not hide what is found in another run
            return Judged(error=f"a bug of the harness: {type(error).__name__}: {error}", bug=True)
        return Judged({name: as_object(verdict) for name, verdict in verdicts.items()})


def judge_runs(runs: Runs, engine: str, options: CheckOptions) -> Iterator[Judged]:
    """Judge many runs, each by its models, in order: a task each on Spark where a master is named, else one after the
    other by this process. Raises UserError for an unknown engine, or a Spark that refuses."""
    if engine not in ENGINES:
        raise UserError(f"There is no engine {engine!r}; the engines are {', '.join(ENGINES)}.")
    if engine == "local" or not (engine == "spark" or options.spark.names_a_master):
        judge = RunsJudge(tuple(runs), options)
        yield from map(judge.judged, range(len(runs)))
        return
    spark = SparkEngine(options.spark)
    try:
        yield from check_by_tasks(spark, runs, options)
    finally:
        spark.close()


def check_by_tasks(spark: SparkEngine, runs: Runs, options: CheckOptions) -> Iterator[Judged]:
    """What came of each run, in order, judged by a task each; see `judge_runs`."""
    stage = RunsJudge(tuple(runs), replace(options, cores=1, spark=SparkOptions()))
    rows = spark.collected(mapped(spark.numbers(len(runs), len(runs)), stage, "run int, data binary"))
    for row in sorted(rows, key=lambda row: row["run"]):
        yield msgspec.json.decode(bytes(row["data"]), type=Judged)


def judge_source(source: Source, model: str, engine: Engine, options: CheckOptions | None = None) -> Verdict:
    """Judge an opened history on a given engine, which stays open; see `check`."""
    return _judged(MODELS.get(model) or replace(OWN, name=model), source, engine, options or CheckOptions())


def judge_source_by_each(
    source: Source, model: str, engine: Engine, options: CheckOptions, consistencies: Sequence[str | None]
) -> list[Verdict]:
    """Judge an opened history by each of several consistency models, of which transactions are looked at only once."""
    if model in _TRANSACTIONS and len(consistencies) > 1:
        from checkers.transactions.judge_transactions import (
            judge_by_each,  # the code of a model is loaded once it judges
        )

        begin = time.perf_counter()
        engine.skipped.clear()
        try:
            judged = judge_by_each(model, engine.located(source), engine, _explaining(options), consistencies)
            verdicts = [_of_what_was_judged(verdict, engine) for verdict in judged]
        except UserError:
            raise
        except Exception:  # noqa: BLE001 - judged one by one, each that the checker dies of is its own unknown
            return _one_by_one(source, model, engine, options, consistencies)
        seconds = (time.perf_counter() - begin) / len(verdicts)
        return [_finished(verdict, MODELS[model], source, engine, options, seconds) for verdict in verdicts]
    return _one_by_one(source, model, engine, options, consistencies)


def _one_by_one(
    source: Source, model: str, engine: Engine, options: CheckOptions, consistencies: Sequence[str | None]
) -> list[Verdict]:
    return [judge_source(source, model, engine, replace(options, consistency=name)) for name in consistencies]


def _judged(model: ModelInfo, source: Source, engine: Engine, options: CheckOptions) -> Verdict:
    begin = time.perf_counter()
    engine.skipped.clear()
    try:
        if not model.timeless and not source.real_time:
            raise Undecided(NO_TIMES)
        verdict = _of_what_was_judged(model.judge(engine.located(source), engine, _explaining(options)), engine)
    except UserError:
        raise
    except Undecided as error:
        verdict = Verdict("unknown", model.name, ops=source.rows, engine=engine.name, reason=str(error))
    except Exception as error:
        source.require_whole()
        if fault := worker_fault(error):
            raise fault from error
        verdict = _crashed(model, engine, error, options)
    return _finished(verdict, model, source, engine, options, time.perf_counter() - begin)


def _explaining(options: CheckOptions) -> CheckOptions:
    """The options by which models judge: each keeps an anomaly of every class, so that no verdict hangs on how many are
    to be explained."""
    return replace(options, explain=max(1, options.explain))


def _of_what_was_judged(verdict: Verdict, engine: Engine) -> Verdict:
    """What was refuted stays refuted; nothing else is said of a history of which some was not judged, nor a level."""
    if not engine.skipped:
        return verdict
    if verdict.valid is False:
        return msgspec.structs.replace(verdict, strongest=None)
    return _undecided(verdict, " ".join(sorted(set(engine.skipped))))


def _undecided(verdict: Verdict, reason: str) -> Verdict:
    return msgspec.structs.replace(verdict, valid="unknown", strongest=None, reason=reason)


def _finished(
    verdict: Verdict, model: ModelInfo, source: Source, engine: Engine, options: CheckOptions, seconds: float
) -> Verdict:
    """The verdict as it is told: `valid` takes a whole history in which something was compared."""
    if source.cut_short is not None:
        verdict = _of_a_beginning(verdict, source.cut_short)
    if options.explain < 1:
        verdict = msgspec.structs.replace(verdict, anomalies={})
    refused = (options.failed_cas or source.failed_cas) == "observed"
    if verdict.valid is True and (reason := says_nothing(source, engine, Did(model.observers, refused))):
        verdict = _undecided(verdict, reason)
    note = source.cut_short or source.note or doubted_times(verdict)
    details = verdict.details if note is None else verdict.details | {"note": note}
    return msgspec.structs.replace(readable(verdict, source), seconds=seconds, details=details)


def _of_a_beginning(verdict: Verdict, cut_short: str) -> Verdict:
    """The verdict on a history that was cut short: what it never showed may stand in what was cut off, and no level is
    known to hold."""
    never = MODELS[verdict.model].at_the_end if verdict.model in MODELS else ()
    kept = {name: count for name, count in verdict.counts.items() if name not in never}
    verdict = msgspec.structs.replace(verdict, strongest=None)
    if len(kept) == len(verdict.counts):
        return verdict
    told = {name: found for name, found in verdict.anomalies.items() if name in kept}
    verdict = msgspec.structs.replace(verdict, counts=kept, anomalies=told)
    return verdict if kept else _undecided(verdict, cut_short)


def says_nothing(source: Source, engine: Engine, compared: Did) -> str | None:
    """Why a history that nothing refutes is not valid all the same, or None."""
    if source.cut_short is not None:
        return source.cut_short
    if not any_succeeded(source, engine):
        return NOTHING_SUCCEEDED
    return None if not compared.names or any_did(source, engine, compared) else NO_READS


_DONE: Final = ("process", "type", "error_class", "mops.list.element.f")
"""The columns that `Did` reads."""


@dataclass(frozen=True, slots=True)
class Did:
    """Picklable: whether in a batch a client's operation succeeded that had one of some micro-operations; or whether a
    compare-and-set was refused, if that says what it found."""

    names: tuple[str, ...]
    refused_cas: bool

    def __call__(self, batch: pa.RecordBatch) -> bool:
        if not self._done(batch, "ok").isdisjoint(self.names):
            return True
        missed = pc.equal(batch.column("error_class").cast(pa.string()).fill_null(MISMATCH), MISMATCH)
        return self.refused_cas and "cas" in self._done(batch.filter(missed), "fail")

    def _done(self, batch: pa.RecordBatch, type: str) -> set[str]:
        """The micro-operations of clients that ended so."""
        client = pc.greater_equal(batch.column("process"), 0)
        done = pc.and_(client, pc.equal(batch.column("type").cast(pa.string()), type))
        mops = pc.list_flatten(batch.column("mops").filter(done))
        return set(pc.unique(pc.struct_field(mops, "f")).to_pylist())


def any_did(source: Source, engine: Engine, did: Did) -> bool:
    """What `did` says of all of a history. Mostly the first operations say so."""
    first = next(source.batches(_DONE), None)
    if first is None:
        return False
    return did(first.select(top_level(_DONE))) or run_batches(engine, source, BatchFlow(_DONE, did, any))


def _crashed(model: ModelInfo, engine: Engine, error: Exception, options: CheckOptions) -> Verdict:
    first = (str(error).splitlines() or [""])[0]
    reason = f"The checker {model.name} crashed: {type(error).__name__}: {first}"
    details = {"traceback": "".join(traceback.format_exception(error))} if options.debug else {}
    return Verdict("unknown", model.name, engine=engine.name, reason=reason, details=details)


ENGINES: Final = ("auto", "local", "spark")

_BYTES_PER_OPERATION: Final = 160
"""What the local engine takes at its peak for an operation, generously."""


def fits_locally(source: Source) -> bool:
    """Whether the history takes less than half of the machine's memory in-process."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return source.rows * _BYTES_PER_OPERATION < memory // 2


def choose_engine(name: str, source: Source, spark: SparkOptions | None = None, cores: int | None = None) -> Engine:
    """The engine of that name; `auto` is Spark where a master is named, else local for what fits comfortably or where
    there is no Java, else Spark. The local one works on `cores` (None: all that this process may use)."""
    if name not in ENGINES:
        raise UserError(f"There is no engine {name!r}; the engines are {', '.join(ENGINES)}.")
    if name == "spark" or (name == "auto" and spark is not None and spark.names_a_master):
        return SparkEngine(spark)
    if name == "auto" and not fits_locally(source) and shutil.which("java") is not None:
        return SparkEngine(spark)
    return LocalEngine(cores)
