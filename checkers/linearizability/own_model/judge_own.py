"""The model FILE.py:NAME: linearizability by a sequential specification of the user's own (`docs/own-model.md`)."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from checkers.engines.api import Engine
from checkers.engines.local import LocalEngine
from checkers.engines.spark import SparkEngine, mapped, placed
from checkers.explain.speaker import Speaker
from checkers.findings import Finding, Findings, merged
from checkers.linearizability.driver import Budget
from checkers.linearizability.own_model.calls import RawCall, calls_of
from checkers.linearizability.own_model.child import ChildQuestion, answer_of
from checkers.linearizability.own_model.own_graph import OwnGraph
from checkers.linearizability.own_model.search_own import REFUSING, judged, partitions_of, warm
from checkers.options import CheckOptions
from checkers.source import Source
from checkers.verdict import NOTHING_SUCCEEDED, Anomaly, Undecided, Verdict
from harness.errors import UserError
from harness.own_code import OwnCode

_NOTHING_REFUSED = (
    "{} allows each of the operations in every state that was reached, so it would take them in any order, and nothing "
    "was compared."
)

_NAMED = 3
"""States and operations that a sentence names at most."""


def asked_own(source: Source, engine: Engine, options: CheckOptions) -> Findings | tuple[list[RawCall], OwnGraph]:
    """What the code that `options.code` names says: of a model what it refutes, of an analyzer the operations and their
    graph. Raises Undecided where there is nothing to ask about."""
    assert options.code is not None
    calls = calls_of(source)
    if all(call.type == "info" for call in calls):
        raise Undecided(NOTHING_SUCCEEDED)
    budget = Budget(options.time_limit_s, options.memory_mib << 20)
    found = engine.run(_OwnWork(options.code, calls, budget, options.explain))
    return (calls, found) if isinstance(found, OwnGraph) else found


def verdict_of_model(code: OwnCode, source: Source, engine: Engine, found: Findings) -> Verdict:
    """Linearizability of every partition by a model."""
    valid: Any = False if found.counts else "unknown" if found.undecided else True
    reason = f"{found.undecided} of {found.keys} partitions could not be decided: {'; '.join(found.reasons)}."
    if valid is True and not found.figures.get(REFUSING):
        valid, reason = "unknown", _NOTHING_REFUSED.format(code.spec)
    return Verdict(
        valid,
        code.spec,
        explained(source, found.kept),
        found.counts,
        found.ops,
        engine=engine.name,
        reason=reason if valid == "unknown" else None,
        details={"code": code.details, "partitions": found.keys},
    )


def explained(source: Source, kept: tuple[Finding, ...]) -> dict[str, tuple[Anomaly, ...]]:
    """Each finding in words, with the operations that show it."""
    speaker = Speaker(source, source.operations([index for finding in kept for index in finding.ops]))
    by_class: dict[str, tuple[Anomaly, ...]] = {}
    for finding in kept:
        ops = tuple(speaker.rows[index] for index in dict.fromkeys(finding.ops))
        told = Anomaly(_sentence(speaker, finding), finding.facts.get("partition"), ops, (), _details(speaker, finding))
        by_class[finding.anomaly] = (*by_class.get(finding.anomaly, ()), told)
    return by_class


def _noun(speaker: Speaker, index: int) -> str:
    row = speaker.rows[index]
    return f"process {row['process']}'s {row['f']} (invoked at {speaker.when(index, 'invoke')})"


def _sentence(speaker: Speaker, finding: Finding) -> str:
    facts, stuck = finding.facts, finding.facts["stuck"]
    of = f" of partition {facts['partition']}" if "partition" in facts else ""
    first = f"P{_noun(speaker, stuck)[1:]} fits into no order of the operations{of}."
    if not facts["states"]:
        return first
    states = list(dict.fromkeys(found["state"] for found in facts["states"]))
    could = " or ".join(states[:_NAMED]) + (" or others" if len(states) > _NAMED else "")
    second = f"When it completed at {speaker.when(stuck, 'complete')}, the state could only be {could}"
    opened = [_noun(speaker, index) for index in facts["open"][:_NAMED]]
    others = f", nor does it fit after what was open with it ({', '.join(opened)})" if opened else ""
    return f"{first} {second}, in which no step allows it{others}."


def _details(speaker: Speaker, finding: Finding) -> dict[str, Any]:
    facts, rows = finding.facts, speaker.rows
    states = [
        {
            "state": found["state"],
            "done": [rows[index]["op"] for index in found["done"] if index in rows],
            "why": "no step allows it",
        }
        for found in facts["states"]
    ]
    told = {name: [rows[index]["op"] for index in facts[name]] for name in ("before", "open")}
    return {"stuck": rows[facts["stuck"]]["op"], **told, "states": states}


@dataclass(frozen=True, slots=True)
class _OwnWork:
    """See `Work`: one process judges all, or on Spark a task each partition."""

    code: OwnCode
    calls: list[RawCall]
    budget: Budget
    explain: int

    def here(self, local: LocalEngine) -> Findings | OwnGraph:
        return self.asked(self.calls)

    def asked(self, calls: list[RawCall]) -> Findings | OwnGraph:
        """What a process of its own says of calls."""
        question = ChildQuestion(self.code, judged, (calls, self.budget, self.explain), warm)
        found: Findings | OwnGraph = answer_of(question, self.budget.time_s)
        return found

    def on_spark(self, spark: SparkEngine) -> Findings | OwnGraph:
        numbers = answer_of(ChildQuestion(self.code, partitions_of, (self.calls,)), self.budget.time_s)
        if isinstance(numbers, OwnGraph):
            return numbers
        groups: dict[int, list[RawCall]] = {}
        for number, call in zip(numbers, self.calls, strict=True):
            groups.setdefault(number, []).append(call)
        rows = spark.table(
            {"bucket": list(groups), "data": [pickle.dumps(list(map(tuple, group))) for group in groups.values()]}
        )
        found = mapped(placed(rows, len(groups)), _Task(replace(self, calls=[])), "data binary")
        answers = [pickle.loads(row["data"]) for row in spark.collected(found)]
        for answer in answers:
            if isinstance(answer, UserError | Undecided):
                raise answer
        return merged(answers, self.explain)


@dataclass(frozen=True, slots=True)
class _Task:
    """A stage that judges each partition that it is handed, in a process of its own."""

    work: _OwnWork

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for data in batch.column("data").to_pylist():
                yield pa.RecordBatch.from_pydict({"data": [pickle.dumps(self._judged(data))]})

    def _judged(self, data: bytes) -> Any:
        try:
            return self.work.asked([RawCall(*call) for call in pickle.loads(data)])
        except (UserError, Undecided) as error:
            return error
