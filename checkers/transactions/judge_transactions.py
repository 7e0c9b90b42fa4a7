"""The models `list-append` and `rw-register`: which consistency models the dependencies of transactions rule out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Final

from msgspec.structs import replace as replaced

from checkers.engines.api import Engine
from checkers.engines.local import LocalEngine
from checkers.engines.spark import SparkEngine
from checkers.findings import Finding
from checkers.options import CheckOptions, initial_setting
from checkers.source import Source
from checkers.transactions.graph.cycle_anomalies import BASES, ORDERS
from checkers.transactions.inference.register_accesses import ORDER_REALTIME, ORDER_SESSIONS, ORDER_STATED, ORDER_WFR
from checkers.transactions.lattice import (
    DEFAULT_CONSISTENCY,
    MODELS,
    friendly_name,
    implied_anomalies,
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
from checkers.verdict import NO_TIMES, Validity, Verdict
from harness.errors import UserError

_SEVERITY: Final = (
    *("garbage-read", "duplicate-elements", "cyclic-versions", "incompatible-order", "G1a", "dirty-update", "G1b"),
    *("internal", "future-read", "lost-update", "G0", "G1c", "G-single-item", "G-nonadjacent-item", "G2-item"),
)


GARBAGE: Final = "garbage-read"

_ORDERED: Final = frozenset({*BASES, "cyclic-versions"})
"""Anomalies whose names say on which orders besides dependencies they rest."""


def _rank(name: str) -> tuple[int, int, str]:
    stem, order = _stem(name)
    return _SEVERITY.index(stem) if stem in _SEVERITY else len(_SEVERITY), order, name


def _stem(name: str) -> tuple[str, int]:
    """An anomaly without its suffix, and how many orders besides dependencies that names."""
    for order, suffix in enumerate(ORDERS[1:], start=1):
        if name.endswith(suffix):
            return name.removesuffix(suffix), order
    return name, 0


def orders_of(consistency: str) -> int:
    """How many orders besides dependencies a model needs: 0, 1 (within processes), 2 (also real time)."""
    return 2 if needs_realtime(consistency) else int(needs_sessions(consistency))


def judge_list_append(source: Source, engine: Engine, options: CheckOptions) -> Verdict:
    """Elle's list-append: `consistency` (default strict-serializable) must not be ruled out (`docs/checking.md`)."""
    return judge_by_each("list-append", source, engine, options, (options.consistency,))[0]


def judge_rw_register(source: Source, engine: Engine, options: CheckOptions) -> Verdict:
    """Elle's rw-register: `consistency` (default strict-serializable) must not be ruled out (`docs/checking.md`).

    Settings, each `true` or `false`: `linearizable-keys` (real time orders the versions of a key) and `sequential-keys`
    (the order within processes does), by default true where the consistency model implies it; `wfr-keys` (what a
    transaction read comes before what it wrote). `versions` names the field of operations by which the versions of a
    key follow each other. What is set is taken for granted, at any consistency model. `initial` is what registers begin
    as.
    """
    return judge_by_each("rw-register", source, engine, options, (options.consistency,))[0]


def judge_by_each(
    model: str, source: Source, engine: Engine, options: CheckOptions, consistencies: Sequence[str | None]
) -> list[Verdict]:
    """The verdict by each of several consistency models (None: strict-serializable), by `list-append` or `rw-register`.

    What does not depend on them is inferred once. Where the history states no real time, what needs it is refuted by
    the rest or unknown.
    """
    if model == "rw-register":
        source = replace(source, initial=initial_setting(options), versions=_versions(source, options))
        _require_times(source, options)
    given = {"settings": dict(options.settings)} if options.settings else {}
    asked = [friendly_name(consistency or DEFAULT_CONSISTENCY) for consistency in consistencies]
    most = 2 if source.real_time else 1
    wanted = tuple(sorted({min(orders_of(name), most) for name in asked}))
    infer = cache(lambda sources, orders: engine.run(_Inference(model, source, orders, options.explain, sources)))
    find = cache(lambda sources, orders, wanted: infer(sources, wanted).found(orders, options.explain))
    verdicts = []
    for name in asked:
        sources = [_sources(model, options, name, orders) for orders in range(min(orders_of(name), most) + 1)]
        found = _by_orders(find, sources, wanted, options.explain)
        verdict = verdict_of(model, source, engine, name, found)
        stated = sources[-1] & ~_sources(model, replace(options, settings={}), name, len(sources) - 1)
        question = LevelQuestion(
            _within(name, most),
            tuple(found.counts),
            bool(stated),
            most == 2,
            options.time_limit_s,
            options.memory_mib << 20,
        )
        verdict = _completed(verdict, source, infer(sources[-1], wanted), question, found)
        verdict = _of_real_time(verdict, name, most)
        verdicts.append(replaced(verdict, details=verdict.details | given))
    return verdicts


def _within(consistency: str, most: int) -> str:
    """The strongest of a model's forms that needs at most `most` orders besides dependencies; itself if none does."""
    weaker = consistency.replace("strong-", "strong-session-", 1)
    return weaker if orders_of(consistency) > most and weaker in MODELS else consistency


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
        return replaced(verdict, valid="unknown", reason=answer.reason or verdict.reason)
    by = {} if answer.level in ("", consistency) else {"holds": answer.level}
    return replaced(verdict, valid=True, reason=None, details=verdict.details | by)


def _refuted(verdict: Verdict, source: Source, answer: Decided, found: Found) -> Verdict:
    assert answer.finding is not None
    weakest, stronger = ruled_out(found.counts, (answer.level,))
    explained = explain_all(source, [answer.finding])
    return replaced(
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


def _sources(model: str, options: CheckOptions, consistency: str, orders: int) -> int:
    """Where version orders of registers come from (`register_accesses.ORDER_…` added up), where `orders` orders count
    besides dependencies: from settings, and from what the consistency model implies. Lists tell theirs.

    A read of what is older than what its session, or a transaction that had completed, left there is a cycle with one
    rw: a model that prohibits it implies the order. Real time holds that of sessions.
    """
    if model == "list-append":
        return 0
    prohibited = prohibited_anomalies(consistency)
    realtime = _flag(options, "linearizable-keys", orders == 2 and "G-single-item-realtime" in prohibited)
    sessions = orders >= 1 and not realtime and "G-single-item-process" in prohibited
    chosen = {
        ORDER_REALTIME: realtime,
        ORDER_SESSIONS: _flag(options, "sequential-keys", sessions),
        ORDER_WFR: _flag(options, "wfr-keys", False),
        ORDER_STATED: "versions" in options.settings,
    }
    return sum(order for order, used in chosen.items() if used)


_STATED: Final = ("served_ts", "write_ts")
"""Columns of the history table by which a database states where an operation's versions stand."""


def _versions(source: Source, options: CheckOptions) -> str | None:
    """The column that orders versions, if one is to; raises UserError for a field that the history can't have."""
    field = options.settings.get("versions")
    if field is None:
        return None
    if (column := field.replace("-", "_")) in _STATED:
        return column
    if source.stated != field:
        raise UserError(
            f"{source.path} is {source.format}, of whose operations -o versions takes served-ts or write-ts, not "
            f"{field!r}."
        )
    return _STATED[0]


def _require_times(source: Source, options: CheckOptions) -> None:
    """Raise UserError if versions are to be ordered by real time that the history does not state."""
    if _flag(options, "linearizable-keys", False) and not source.real_time:
        raise UserError(f"{source.path} states no times, so -o linearizable-keys=true has nothing to go by.")


def _by_orders(
    find: Callable[[int, int, tuple[int, ...]], Found], sources: list[int], wanted: tuple[int, ...], most: int
) -> Found:
    """Anomalies, each named by the fewest orders that it rests on; `sources[k]` says what orders versions if `k` orders
    count besides dependencies."""
    own = len(sources) - 1
    found = find(sources[own], own, wanted)
    less = [orders for orders in range(own) if sources[orders] != sources[orders + 1]]
    if not less or not any(_stem(anomaly)[0] in _ORDERED for anomaly in found.counts):
        return found
    every = [*(find(sources[orders], orders, (orders,)) for orders in less), found]
    return _by_least_orders(every, [sources.index(sources[orders]) for orders in (*less, own)], most)


def _by_least_orders(found: Sequence[Found], rests_on: Sequence[int], most: int) -> Found:
    """What was found by fewer orders and by more as one, the last being by all, at most `most` examples of each. Where
    versions are ordered by `rests_on` orders, so is each anomaly that shows only then, and its name says so."""
    counts: Counter[str] = Counter()
    kept: dict[str, list[Finding]] = {}
    for each, least in zip(found, rests_on, strict=True):
        names = {name: _resting_on(name, least) for name in each.counts}
        known = implied_anomalies(counts)
        names = {name: new for name, new in names.items() if new not in (known if new != name else counts)}
        counts.update({new: sum(each.counts[n] for n in names if names[n] == new) for new in names.values()})
        for finding in each.findings:
            if finding.anomaly in names:
                new = names[finding.anomaly]
                kept.setdefault(new, []).append(replaced(finding, anomaly=new))
    examples = tuple(finding for few in kept.values() for finding in few[:most])
    return found[-1]._replace(counts=dict(counts), findings=examples, whole=all(each.whole for each in found))


def _resting_on(name: str, least: int) -> str:
    stem, orders = _stem(name)
    return stem + ORDERS[max(orders, least)] if stem in _ORDERED else name


def _of_real_time(verdict: Verdict, consistency: str, most: int) -> Verdict:
    """The verdict, which is not valid by real time that the history does not state."""
    if verdict.valid is not True or orders_of(consistency) <= most:
        return verdict
    return replaced(verdict, valid="unknown", reason=NO_TIMES)


def _flag(options: CheckOptions, name: str, default: bool) -> bool:
    text = options.settings.get(name, str(default).lower()).lower()
    if text not in ("true", "false"):
        raise UserError(f"The setting {name} is true or false, not {text!r}.")
    return text == "true"


def verdict_of(model: str, source: Source, engine: Engine, consistency: str, found: Found) -> Verdict:
    """Invalid if an anomaly was found that the consistency model prohibits; unknown if it prohibits none, if nothing
    relates any two transactions, for then there is nothing to judge, and if reads found what nobody wrote, of which the
    model says nothing, or which may be in what a crash has cut off."""
    counts = {name: found.counts[name] for name in sorted(found.counts, key=_rank)}
    findings = [finding for finding in found.findings if finding.anomaly in counts]
    if source.cut_short is not None and counts.pop(GARBAGE, 0):
        findings = [finding for finding in findings if finding.anomaly != GARBAGE]
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
    if valid is True and (garbage := counts.get(GARBAGE)):
        reads = "1 read" if garbage == 1 else f"{garbage} reads"
        valid, reason = "unknown", f"{reads} found what no transaction wrote, of which {consistency} says nothing."
    return Verdict(
        valid,
        model,
        explain_all(source, sorted(findings, key=lambda finding: (_rank(finding.anomaly), finding.order))),
        counts,
        found.txns,
        engine=engine.name,
        reason=reason,
        rules_out=weakest,
        also_rules_out=stronger,
        details=details,
    )
