"""Judges by code of the user's own: a model, or an analyzer whose dependencies are searched for cycles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
import numpy as np

from checkers.columns.codes import INFO, NEVER, OK
from checkers.engines.api import Engine
from checkers.explain.speaker import Speaker, opening
from checkers.findings import NO_KEY, Finding
from checkers.linearizability.own_model.calls import RawCall
from checkers.linearizability.own_model.judge_own import asked_own, verdict_of_model
from checkers.linearizability.own_model.own_graph import OwnGraph
from checkers.options import CheckOptions
from checkers.source import Source
from checkers.transactions.graph.cycle_anomalies import Cycle, find_cycles
from checkers.transactions.graph.edges import PROCESS, REALTIME, Edges
from checkers.transactions.judge_transactions import orders_of, verdict_of
from checkers.transactions.lattice import DEFAULT_CONSISTENCY, friendly_name
from checkers.transactions.transaction_findings import Found, edge_counts
from checkers.transactions.transaction_mops import Txns
from checkers.transactions.transaction_sentences import KIND_NAMES
from checkers.verdict import Anomaly, Undecided, Verdict
from harness.own_code import OwnCode

_TOLD: Final = 4
"""Steps of a cycle that are put into words."""


def judge_code(source: Source, engine: Engine, options: CheckOptions) -> Verdict:
    """The verdict by the code that `options.code` names: linearizability by its `step`, or, by the cycles of its
    `graph`, the consistency model that must hold (default strict-serializable)."""
    code = options.code
    assert code is not None
    found = asked_own(source, engine, options)
    if not isinstance(found, tuple):
        return verdict_of_model(code, source, engine, found)
    return _of_graph(code, source, engine, options, *found)


def _of_graph(
    code: OwnCode, source: Source, engine: Engine, options: CheckOptions, calls: list[RawCall], graph: OwnGraph
) -> Verdict:
    if not graph.edges:
        raise Undecided(f"{code.spec} names no dependency, so there was nothing to judge.")
    consistency = friendly_name(options.consistency or DEFAULT_CONSISTENCY)
    txns = Txns(
        np.array([call.invoke for call in calls], np.int64),
        np.array([NEVER if call.complete is None else call.complete for call in calls], np.int64),
        np.array([OK if call.type == "ok" else INFO for call in calls], np.uint8),
        np.array([call.process for call in calls], np.int64),
    )
    apart = [edge for edge in graph.edges if edge[0] != edge[1]]
    begin, end, kind = (np.array([edge[i] for edge in apart], np.int32) for i in range(3))
    key = np.arange(len(apart), dtype=np.int32)
    edges = Edges(begin, end, kind.astype(np.uint8), key, np.array([len(apart), len(calls)]))
    cycles = find_cycles(edges, txns, orders_of(consistency), options.explain)
    findings = [_finding(name, cycle, calls) for name, kept in cycles.kept.items() for cycle in kept]
    figures = {"code": code.details, "dependencies": edge_counts(edges)}
    found = Found(cycles.counts, (), False, len(calls), figures, cycles.whole)
    verdict = verdict_of(code.spec, source, engine, consistency, found)
    return msgspec.structs.replace(verdict, anomalies=_explained(source, findings, [edge[3] for edge in apart]))


def _finding(name: str, cycle: Cycle, calls: Sequence[RawCall]) -> Finding:
    ops = tuple(calls[txn].invoke for txn in cycle.txns)
    return Finding(name, min(ops), NO_KEY, ops, {"kinds": list(cycle.kinds), "edges": list(cycle.keys)})


def _explained(source: Source, findings: Sequence[Finding], whys: Sequence[str]) -> dict[str, tuple[Anomaly, ...]]:
    """Each cycle in the analyzer's own sentences, with its operations."""
    speaker = Speaker(source, source.operations([index for finding in findings for index in finding.ops]))
    by_class: dict[str, tuple[Anomaly, ...]] = {}
    for finding in sorted(findings, key=lambda finding: finding.order):
        ends = zip(finding.ops, (*finding.ops[1:], finding.ops[0]), strict=True)
        steps = [
            _step(speaker, one, other, kind, whys[edge] if edge >= 0 else None)
            for (one, other), kind, edge in zip(ends, finding.facts["kinds"], finding.facts["edges"], strict=True)
        ]
        told = [opening(step["why"]) for step in steps[:_TOLD]]
        more = f", and so on over {len(steps) - _TOLD} more" if len(steps) > _TOLD else ""
        ops = tuple(speaker.rows[index] for index in dict.fromkeys(finding.ops))
        anomaly = Anomaly(f"{'. '.join(told)}{more}: a cycle.", None, ops, tuple(steps))
        by_class[finding.anomaly] = (*by_class.get(finding.anomaly, ()), anomaly)
    return by_class


def _step(speaker: Speaker, source: int, target: int, kind: int, why: str | None) -> dict[str, Any]:
    one, other = (f"the operation of event {index}" for index in (source, target))
    if why is None and kind == PROCESS:
        why = f"process {speaker.rows[source]['process']} ran {one} and then {other}"
    if kind == REALTIME:
        why = f"{one} {speaker.ended(source)}, before {other} {speaker.began(target)}"
    ends = {"source": speaker.rows[source]["op"], "target": speaker.rows[target]["op"]}
    return ends | {"kind": KIND_NAMES[kind], "why": why or f"{one} comes before {other}"}
