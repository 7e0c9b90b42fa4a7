"""Verdicts and their evidence: every finding as a sentence, with the operations that show it.

Operations stand there as people know them: foreign keys and values by the text that the history has for them, and
without what would fill pages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import is_
from typing import Any, Final, TypeAlias

import msgspec

from checkers.columns.codes import NIL
from checkers.engines.api import Engine
from checkers.explain.speaker import Speaker, key_in
from checkers.findings import NO_KEY, Finding, Findings, Key, refuse_unsupported
from checkers.source import AGAINST_ORDER, Source
from checkers.verdict import Anomaly, Validity, Verdict
from harness.errors import MOST_CHARACTERS, MOST_OF_A_SENTENCE, shortened
from harness.history.columns import FOREIGN_BASE

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
        anomaly = Anomaly(sentences[finding.anomaly](speaker, finding), source.shown_key(finding.key), ops)
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
        anomaly = Anomaly(message, source.shown_key(finding.key), ops, steps)
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
    fate = {"ok": "acknowledged", "fail": speaker.failed(index), "info": "of unknown outcome"}[row["type"]]
    if row["type"] != "info":
        fate = f"{fate} at {speaker.when(index, 'complete')}"
    return f"process {row['process']}'s {what} (invoked at {speaker.when(index, 'invoke')}, {fate})"


_NUMBERS: Final = ("partition", "row", "column", "value", "expected")

_OF_MANY_ROWS: Final = ("page", "delete")
"""Micro-operations that state bounds of rows, which may be what the anomaly is about, whichever row that is."""

_MOST_SHOWN: Final = 64
"""Micro-operations of an operation that evidence shows, those that the anomaly is about before others, and elements of
a list, its first and last ones."""


def readable(verdict: Verdict, source: Source) -> Verdict:
    """A verdict, its operations without interned numbers and shortened: `left_out` of an operation counts the
    micro-operations besides those shown, `left_out` of a micro-operation the elements in the middle."""
    if not verdict.anomalies:
        return verdict
    anomalies = {name: tuple(_anomaly(found, source) for found in all) for name, all in verdict.anomalies.items()}
    return msgspec.structs.replace(verdict, anomalies=anomalies)


def doubted_times(verdict: Verdict) -> str | None:
    """What is said where evidence has times that contradict the order of its events; of a history that is streamed no
    other times are compared."""
    ops = (op for found in verdict.anomalies.values() for anomaly in found for op in anomaly.ops)
    if not any(op.get("clock") == AGAINST_ORDER for op in ops):
        return None
    return "Times of operations named here contradict the order of their events, by which the history was judged."


def _anomaly(anomaly: Anomaly, source: Source) -> Anomaly:
    keys = [anomaly.key, *(step[name] for step in anomaly.steps for name in ("key", "seen_key") if name in step)]
    return msgspec.structs.replace(
        anomaly,
        message=shortened(anomaly.message, MOST_OF_A_SENTENCE),
        ops=tuple(_operation(op, keys, source) for op in anomaly.ops),
        steps=_sentences_shortened(anomaly.steps),
        details=_sentences_shortened(anomaly.details),
    )


def _sentences_shortened(told: Any) -> Any:
    """The same data, its texts no longer than a sentence may be."""
    if isinstance(told, str):
        return shortened(told, MOST_OF_A_SENTENCE)
    if isinstance(told, dict):
        return {name: _sentences_shortened(each) for name, each in told.items()}
    if isinstance(told, list | tuple):
        return (tuple if isinstance(told, tuple) else list)(map(_sentences_shortened, told))
    return told


def _operation(op: dict[str, Any], keys: Sequence[Any], source: Source) -> dict[str, Any]:
    """The operation itself where it is readable as it is: evidence is not held twice."""
    texts = {name: text for name, text in op.items() if isinstance(text, str)}
    long = {name: shortened(text) for name, text in texts.items() if len(text) > MOST_CHARACTERS}
    op = op | long if long else op
    mops = op.get("mops") or []
    if len(mops) > _MOST_SHOWN:
        shown = [_mop(mop, source) for mop in _telling(mops, keys, source)]
        return op | {"mops": shown, "left_out": len(mops) - _MOST_SHOWN}
    shown = [_mop(mop, source) for mop in mops]
    return op if all(map(is_, shown, mops)) else op | {"mops": shown}


def _telling(mops: Sequence[dict[str, Any]], keys: Sequence[Any], source: Source) -> list[dict[str, Any]]:
    """As many as are shown, in their order: those of the keys and bounds before others, the first ones of each."""
    about = [mop["f"] in _OF_MANY_ROWS or source.shown_key(key_in(mop)) in keys for mop in mops]
    chosen = sorted(range(len(mops)), key=lambda place: not about[place])[:_MOST_SHOWN]
    return [mops[place] for place in sorted(chosen)]


def _mop(mop: dict[str, Any], source: Source) -> dict[str, Any]:
    shown: dict[str, Any] = {name: _shown(mop[name], source) for name in _NUMBERS if name in mop}
    values = kept = mop.get("values") or []
    if len(values) > _MOST_SHOWN:
        kept = [*values[: _MOST_SHOWN // 2], *values[-_MOST_SHOWN // 2 :]]
        shown["left_out"] = len(values) - _MOST_SHOWN
    elements = [_shown(value, source) for value in kept]
    if kept is not values or not all(map(is_, elements, values)):
        shown["values"] = elements
    return mop if all(name in mop and value is mop[name] for name, value in shown.items()) else mop | shown


def _shown(value: Any, source: Source) -> Any:
    if value == NIL:  # an element of a list that is nil
        return None
    return source.shown(value) if isinstance(value, int) and value < FOREIGN_BASE else value
