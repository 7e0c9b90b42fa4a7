"""The models `list-append` and `rw-register`: which consistency models the dependencies of transactions rule out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Final

import msgspec

from checkers.engines.api import Engine
from checkers.engines.local import LocalEngine
from checkers.engines.spark import SparkEngine
from checkers.options import CheckOptions, initial_setting
from checkers.source import Source
from checkers.transactions.inference.register_accesses import ORDER_REALTIME, ORDER_SESSIONS, ORDER_WFR
from checkers.transactions.lattice import (
    DEFAULT_CONSISTENCY,
    friendly_name,
    implied_models,
    impossible_models,
    needs_realtime,
    needs_sessions,
    prohibited_anomalies,
    ruled_out,
)
from checkers.transactions.polygraph.levels import LevelQuestion
from checkers.transactions.stages.transactions_on_spark import infer_on_spark
from checkers.transactions.transaction_findings import Decided, Found, Inferred, infer_in_process
from checkers.transactions.transaction_sentences import explain_all
from checkers.verdict import Validity, Verdict
from harness.errors import UserError

_SEVERITY: Final = (
    *("garbage-read", "duplicate-elements", "cyclic-versions", "incompatible-order", "G1a", "dirty-update", "G1b"),
    *("internal", "future-read", "lost-update", "G0", "G1c", "G-single-item", "G-nonadjacent-item", "G2-item"),
)


_UNWRITTEN_NOTE: Final = (
    "{} found values that no transaction wrote. As in Elle nothing is concluded from that, since registers may begin "
    "with them; -o initial says what they begin with."
)


def _rank(name: str) -> tuple[int, int, str]:
    for order, suffix in enumerate(("-process", "-realtime")):
        if name.endswith(suffix):
            return _rank(name.removesuffix(suffix))[0], order + 1, name
    return _SEVERITY.index(name) if name in _SEVERITY else len(_SEVERITY), 0, name


def orders_of(consistency: str) -> int:
    """How many orders besides dependencies a model needs: 0, 1 (within processes), 2 (also real time)."""
    return 2 if needs_realtime(consistency) else int(needs_sessions(consistency))


def judge_list_append(source: Source, engine: Engine, options: CheckOptions) -> Verdict:
    """Elle's list-append: `consistency` (default strict-serializable) must not be ruled out (`docs/checking.md`)."""
    return judge_by_each("list-append", source, engine, options, (options.consistency,))[0]


def judge_rw_register(source: Source, engine: Engine, options: CheckOptions) -> Verdict:
    """Elle's rw-register: `consistency` (default strict-serializable) must not be ruled out (`docs/checking.md`).

    Settings, each `true` or `false`: `linearizable-keys` (real time orders the versions of a key; by default true where
    the consistency model implies it), `sequential-keys` (the order within processes does), `wfr-keys` (what a
    transaction read comes before what it wrote). `initial` is what registers begin as.
    """
    return judge_by_each("rw-register", source, engine, options, (options.consistency,))[0]


def judge_by_each(
    model: str, source: Source, engine: Engine, options: CheckOptions, consistencies: Sequence[str | None]
) -> list[Verdict]:
    """The verdict by each of several consistency models (None: strict-serializable), by `list-append` or `rw-register`.

    What does not depend on them is inferred once.
    """
    if model == "rw-register":
        source = replace(source, initial=initial_setting(options))
    asked = [friendly_name(consistency or DEFAULT_CONSISTENCY) for consistency in consistencies]
    wanted = tuple(sorted({orders_of(name) for name in asked}))
    infer = cache(lambda sources: engine.run(_Inference(model, source, wanted, options.explain, sources)))
    verdicts = []
    for name in asked:
        sources = _sources(model, options, name)
        inferred = infer(sources)
        found = inferred.found(orders_of(name), options.explain)
        verdict = verdict_of(model, source, engine, name, found)
        verdicts.append(_completed(verdict, source, inferred, _question(options, name, sources, found), found))
    return verdicts


def _question(options: CheckOptions, consistency: str, sources: int, found: Found) -> LevelQuestion:
    implied = ORDER_REALTIME if needs_realtime(consistency) else 0
    stated = bool(sources & ~implied)
    return LevelQuestion(consistency, tuple(found.counts), stated, options.time_limit_s, options.memory_mib << 20)


def _completed(verdict: Verdict, source: Source, inferred: Inferred, question: LevelQuestion, found: Found) -> Verdict:
    """The verdict, by the orders of versions that nobody observed where no anomaly that was found rules the model out.

    Cycles of observed dependencies refute, but where some order is open none of them proves nothing.
    """
    consistency = question.consistency
    if verdict.valid is False or consistency in impossible_models(found.counts):
        return verdict
    looked_for = bool(prohibited_anomalies(consistency))
    if verdict.valid is not True and looked_for and found.whole:
        return verdict
    answer = inferred.decided(question)
    if answer.finding is not None:
        return _refuted(verdict, source, answer, found)
    if answer.valid is None or (verdict.valid is not True and not answer.level):
        return msgspec.structs.replace(verdict, valid="unknown", reason=answer.reason or verdict.reason)
    by = {} if answer.level in ("", consistency) else {"holds": answer.level}
    return msgspec.structs.replace(verdict, valid=True, reason=None, details=verdict.details | by)


def _refuted(verdict: Verdict, source: Source, answer: Decided, found: Found) -> Verdict:
    assert answer.finding is not None
    weakest, stronger = ruled_out(found.counts, (answer.level,))
    explained = explain_all(source, [answer.finding])
    return msgspec.structs.replace(
        verdict,
        valid=False,
        reason=None,
        anomalies=explained | verdict.anomalies,
        counts={answer.finding.anomaly: 1, **verdict.counts},
        rules_out=weakest,
        also_rules_out=stronger,
    )


@dataclass(frozen=True, slots=True)
class _Inference:
    """See `Work`. `orders` are those that will be asked for, `sources` those of registers' version orders."""

    model: str
    source: Source
    orders: tuple[int, ...]
    explain: int
    sources: int

    def here(self, local: LocalEngine) -> Inferred:
        return infer_in_process(self.source, self.model, self.sources, self.explain, local.threads(self.source.rows))

    def on_spark(self, spark: SparkEngine) -> Inferred:
        return infer_on_spark(self.source, spark, self.model, self.sources, self.orders, self.explain)


def _sources(model: str, options: CheckOptions, consistency: str) -> int:
    """Where version orders of registers come from (`register_accesses.ORDER_…` added up); lists tell theirs."""
    if model == "list-append":
        return 0
    linearizable = "linearizable" in implied_models(consistency)
    chosen = {
        ORDER_REALTIME: _flag(options, "linearizable-keys", linearizable),
        ORDER_SESSIONS: _flag(options, "sequential-keys", False),
        ORDER_WFR: _flag(options, "wfr-keys", False),
    }
    return sum(order for order, used in chosen.items() if used)


def _flag(options: CheckOptions, name: str, default: bool) -> bool:
    text = options.settings.get(name, str(default).lower()).lower()
    if text not in ("true", "false"):
        raise UserError(f"The setting {name} is true or false, not {text!r}.")
    return text == "true"


def verdict_of(model: str, source: Source, engine: Engine, consistency: str, found: Found) -> Verdict:
    """Invalid if an anomaly was found that the consistency model prohibits; unknown if it prohibits none, if nothing
    relates any two transactions, for then there is nothing to judge, and if reads found what can't have been there, of
    which Elle concludes nothing."""
    counts = {name: found.counts[name] for name in sorted(found.counts, key=_rank)}
    prohibited = prohibited_anomalies(consistency)
    allowed = [name for name in counts if name not in prohibited]
    valid: Validity = len(allowed) == len(counts)
    reason = None
    if not prohibited:
        valid, reason = "unknown", f"No anomaly that is looked for rules out {consistency}, so nothing could refute it."
    if valid is True and found.orderless:
        valid, reason = "unknown", "No transaction depends on another or follows it, so there is nothing to judge."
    if valid is True and not found.whole:
        valid, reason = (
            "unknown",
            "So many transactions run at a time, or are tied by cycles, that they were not searched to the end.",
        )
    weakest, stronger = ruled_out(counts)
    details = {"consistency": consistency, **found.figures} | ({"allowed": allowed} if allowed else {})
    if unwritten := found.figures.get("reads_of_unwritten_values"):
        reads = "1 read" if unwritten == 1 else f"{unwritten} reads"
        if source.initial is None:
            details["note"] = _UNWRITTEN_NOTE.format(reads)
        elif valid is True:
            valid, reason = "unknown", f"{reads} found values that nobody wrote and that registers do not begin with."
    return Verdict(
        valid,
        model,
        explain_all(source, sorted(found.findings, key=lambda finding: (_rank(finding.anomaly), finding.order))),
        counts,
        found.txns,
        engine=engine.name,
        reason=reason,
        rules_out=weakest,
        also_rules_out=stronger,
        details=details,
    )
