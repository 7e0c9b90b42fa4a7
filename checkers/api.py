"""Judging: the registry of models, and one call for a history or for all that a run asks."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

from checkers.engines.api import Engine
from checkers.engines.choose import choose_engine
from checkers.evidence import readable
from checkers.importers.detect import open_source
from checkers.isolation.judge import judge_isolation
from checkers.jepsen.registry import ENTRIES
from checkers.objects.judge import OBJECT_MODELS, judge_objects
from checkers.options import CheckOptions
from checkers.register import judge_register
from checkers.sessions.judge import GUARANTEE_SUMMARIES, judge_guarantees
from checkers.sessions.pages import judge_write_atomicity
from checkers.snapshots.feed import judge_change_feed
from checkers.snapshots.reads import judge_snapshot_reads
from checkers.source import Source
from checkers.stats import judge_stats
from checkers.transactions.judge import REGISTER_SETTINGS, judge_list_append, judge_rw_register
from checkers.verdict import Verdict
from harness.errors import UserError

Judge: TypeAlias = Callable[[Source, Engine, CheckOptions], Verdict]


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """A way to judge a history: its name, what it says in a line, the function that does it, and which
    `CheckOptions.settings` it knows."""

    name: str
    summary: str
    judge: Judge
    settings: tuple[str, ...] = ()


def _stats(source: Source, engine: Engine, options: CheckOptions) -> Verdict:
    return judge_stats(source, engine)


MODELS: Final[dict[str, ModelInfo]] = {
    info.name: info
    for info in (
        ModelInfo("register", "linearizable reads, writes and cas of cells", partial(judge_register, "register")),
        ModelInfo("cas-register", "the same by Knossos's name", partial(judge_register, "cas-register")),
        *(ModelInfo(name, OBJECT_MODELS[name].summary, partial(judge_objects, name)) for name in OBJECT_MODELS),
        ModelInfo("list-append", "Elle's transactions of reads and appends to lists", judge_list_append),
        ModelInfo("rw-register", "Elle's transactions of reads and writes", judge_rw_register, REGISTER_SETTINGS),
        ModelInfo("isolation", "read committed, read atomic, causal: plain transactions", judge_isolation),
        *(ModelInfo(name, GUARANTEE_SUMMARIES[name], partial(judge_guarantees, name)) for name in GUARANTEE_SUMMARIES),
        *(ModelInfo(*entry) for entry in ENTRIES),
        ModelInfo(
            "write-atomicity", "a partition write is seen whole or not at all in one page", judge_write_atomicity
        ),
        ModelInfo("snapshot-reads", "reads at a timestamp are final and complete", judge_snapshot_reads),
        ModelInfo("change-feed", "every commit once, nothing below a resolved mark", judge_change_feed),
        ModelInfo("stats", "every kind of operation succeeded at least once", _stats),
    )
}


def check(
    path: Path, model: str, *, engine: str = "auto", format: str = "auto", options: CheckOptions | None = None
) -> Verdict:
    """Judge one history (file or run directory) by one model.

    Raises UserError for an unknown model, format or engine and for input that is no whole history. A checker that
    crashes gives `unknown` with the reason.
    """
    return check_run(path, (model,), engine=engine, format=format, options=options)[model]


def check_run(
    path: Path,
    models: Sequence[str],
    *,
    engine: str = "auto",
    format: str = "auto",
    options: CheckOptions | None = None,
) -> dict[str, Verdict]:
    """Judge one history by several models, reading and validating it once; see `check`."""
    for model in models:
        if model not in MODELS:
            raise UserError(f"There is no model {model!r}; the models are {', '.join(MODELS)}.")
    source = open_source(Path(path), format)
    chosen = choose_engine(engine, source)
    try:
        return {model: judge_source(source, model, chosen, options) for model in models}
    finally:
        chosen.close()


def judge_source(source: Source, model: str, engine: Engine, options: CheckOptions | None = None) -> Verdict:
    """Judge an opened history on a given engine, which stays open; see `check`."""
    return _judged(MODELS[model], source, engine, options or CheckOptions())


def _judged(model: ModelInfo, source: Source, engine: Engine, options: CheckOptions) -> Verdict:
    begin = time.perf_counter()
    try:
        verdict = model.judge(source, engine, options)
    except UserError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever a checker dies of is its own unknown, not the end of the others
        verdict = _crashed(model, engine, error, options)
    details = verdict.details if source.note is None else verdict.details | {"note": source.note}
    verdict = readable(verdict, source)
    return msgspec.structs.replace(verdict, seconds=time.perf_counter() - begin, details=details)


def _crashed(model: ModelInfo, engine: Engine, error: Exception, options: CheckOptions) -> Verdict:
    first = (str(error).splitlines() or [""])[0]
    reason = f"The checker {model.name} crashed: {type(error).__name__}: {first}"
    details = {"traceback": "".join(traceback.format_exception(error))} if options.debug else {}
    return Verdict("unknown", model.name, engine=engine.name, reason=reason, details=details)
