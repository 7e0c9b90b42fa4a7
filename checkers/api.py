"""Judging: one call for a history, or for all that a run asks, by the engine that suits it; `checkers.models` is the
registry of models."""

from __future__ import annotations

import os
import shutil
import time
import traceback
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import msgspec

from checkers.engines.api import Engine, any_succeeded
from checkers.engines.local import LocalEngine
from checkers.engines.session import SparkOptions, worker_fault
from checkers.engines.spark import SparkEngine
from checkers.explain.conclude import readable
from checkers.importers.detect import open_source
from checkers.models import MODELS, OWN, ModelInfo
from checkers.options import CheckOptions
from checkers.source import Source
from checkers.verdict import NOTHING_SUCCEEDED, Undecided, Verdict
from harness.errors import UserError
from harness.history.address import Place

_TRANSACTIONS: Final = ("list-append", "rw-register")
"""The models whose verdicts by several consistency models share nearly all work."""


def check(
    path: Place | str, model: str, *, engine: str = "auto", format: str = "auto", options: CheckOptions | None = None
) -> Verdict:
    """Judge one history (file, folder of parts, run directory, or address of one) by one model.

    Raises UserError for an unknown model, format or engine and for input that is no whole history. A checker that
    crashes gives `unknown` with the reason.
    """
    return check_run(path, (model,), engine=engine, format=format, options=options)[model]


def check_run(
    path: Place | str,
    models: Sequence[str],
    *,
    engine: str = "auto",
    format: str = "auto",
    options: CheckOptions | None = None,
) -> dict[str, Verdict]:
    """Judge one history by several models, reading and validating it once; see `check`."""
    options = options or CheckOptions()
    own = None if options.code is None else options.code.spec
    for model in models:
        if model not in MODELS and model != own:
            raise UserError(f"There is no model {model!r}; the models are {', '.join(MODELS)}.")
    source = open_source(path, format, verify=False, alone=options.alone)
    chosen = choose_engine(engine, source, options.spark, options.cores)
    try:
        chosen.verify(source)
        return {model: judge_source(source, model, chosen, options) for model in models}
    finally:
        chosen.close()


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
        return [_finished(verdict, source, engine, options, seconds) for verdict in verdicts]
    return _one_by_one(source, model, engine, options, consistencies)


def _one_by_one(
    source: Source, model: str, engine: Engine, options: CheckOptions, consistencies: Sequence[str | None]
) -> list[Verdict]:
    return [judge_source(source, model, engine, replace(options, consistency=name)) for name in consistencies]


def _judged(model: ModelInfo, source: Source, engine: Engine, options: CheckOptions) -> Verdict:
    begin = time.perf_counter()
    engine.skipped.clear()
    try:
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
    return _finished(verdict, source, engine, options, time.perf_counter() - begin)


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


def _finished(verdict: Verdict, source: Source, engine: Engine, options: CheckOptions, seconds: float) -> Verdict:
    """The verdict as it is told: `valid` takes a whole history in which something happened."""
    if options.explain < 1:
        verdict = msgspec.structs.replace(verdict, anomalies={})
    if verdict.valid is True and (reason := says_nothing(source, engine)):
        verdict = _undecided(verdict, reason)
    note = source.cut_short or source.note
    details = verdict.details if note is None else verdict.details | {"note": note}
    return msgspec.structs.replace(readable(verdict, source), seconds=seconds, details=details)


def says_nothing(source: Source, engine: Engine) -> str | None:
    """Why a history that nothing refutes is not valid all the same, or None."""
    if source.cut_short is not None:
        return source.cut_short
    return None if any_succeeded(source, engine) else NOTHING_SUCCEEDED


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
