"""Verdicts of these checkers and their evidence: every finding as a sentence, with the operations that show it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from checkers.engines.api import Engine
from checkers.explain.speaker import Speaker
from checkers.findings import NO_KEY, Finding, Findings, Key, refuse_unsupported
from checkers.source import Source
from checkers.verdict import Anomaly, Validity, Verdict

Say: TypeAlias = Callable[[Speaker, Finding], str]


def conclude(
    model: str,
    source: Source,
    engine: Engine,
    part: Findings,
    sentences: Mapping[str, Say],
    doubts: Sequence[str] = (),
    details: Mapping[str, Any] | None = None,
) -> Verdict:
    """The verdict: invalid if anything was found, else unknown if there are doubts, else valid.

    Raises UserError for an operation that the model does not know.
    """
    refuse_unsupported(part, source.path, model)
    reasons = (*doubts, *part.reasons)
    valid: Validity = False if part.counts else "unknown" if reasons else True
    return Verdict(
        valid,
        model,
        explained(source, part.kept, sentences),
        part.counts,
        part.ops,
        engine=engine.name,
        reason=" ".join(reasons) if valid == "unknown" else None,
        details={**part.figures, **(details or {})},
    )


def explained(
    source: Source, findings: Sequence[Finding], sentences: Mapping[str, Say]
) -> dict[str, tuple[Anomaly, ...]]:
    """Every finding as an anomaly with its operations, by class; reads just those operations from the source."""
    speaker = Speaker(source, source.operations([index for finding in findings for index in finding.ops]))
    by_class: dict[str, tuple[Anomaly, ...]] = {}
    for finding in findings:
        ops = tuple(speaker.rows[index] for index in dict.fromkeys(finding.ops) if index >= 0)
        anomaly = Anomaly(sentences[finding.anomaly](speaker, finding), source.told_key(finding.key), ops)
        by_class[finding.anomaly] = (*by_class.get(finding.anomaly, ()), anomaly)
    return by_class


Steps: TypeAlias = tuple[dict[str, Any], ...]
"""Steps of an anomaly, as data; see `Anomaly`."""


def explained_in_steps(
    source: Source, findings: Sequence[Finding], say: Callable[[Speaker, Finding], tuple[str, Steps]]
) -> dict[str, tuple[Anomaly, ...]]:
    """Every finding as an anomaly with its operations and the steps that `say` sees in it, by class."""
    by_class: dict[str, tuple[Anomaly, ...]] = {}
    speaker = Speaker(source, source.operations([index for finding in findings for index in finding.ops]))
    for finding in findings:
        ops = tuple(speaker.rows[index] for index in dict.fromkeys(finding.ops) if index >= 0)
        message, steps = say(speaker, finding)
        anomaly = Anomaly(message, source.told_key(finding.key), ops, steps)
        by_class[finding.anomaly] = (*by_class.get(finding.anomaly, ()), anomaly)
    return by_class


def thing(speaker: Speaker, kind: str, key: Key) -> str:
    """`the set`, or `the set of key 5` where there are several."""
    return f"the {kind}" if key == NO_KEY else f"the {kind} of {speaker.key(key)}"


def who(speaker: Speaker, index: int, did: str) -> str:
    """`Process 3 <did> at 12.031 s on node t2`, the moment being that of its invocation."""
    row = speaker.rows[index]
    node = f" on node {row['node']}" if row["node"] else ""
    return f"Process {row['process']} {did} at {speaker.when(index, 'invoke')}{node}"


def whose(speaker: Speaker, index: int, what: str) -> str:
    """`process 3's <what> (invoked at 11.2 s, acknowledged at 11.3 s)`, or what became of it."""
    row = speaker.rows[index]
    fate = {"ok": "acknowledged", "fail": "failed", "info": "of unknown outcome"}[row["type"]]
    if row["type"] != "info":
        fate = f"{fate} at {speaker.when(index, 'complete')}"
    return f"process {row['process']}'s {what} (invoked at {speaker.when(index, 'invoke')}, {fate})"
