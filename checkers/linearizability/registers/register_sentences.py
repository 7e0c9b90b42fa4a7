"""Register anomalies in two sentences: what was seen, and why no order of the operations allows it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from checkers.explain.speaker import Narrow, Speaker, about_key, listed, opening
from checkers.findings import Finding
from checkers.source import Source
from checkers.verdict import Anomaly

Explain: TypeAlias = Callable[[Speaker, Finding], tuple[str, list[dict[str, Any]]]]


def explain_all(
    source: Source, findings: Sequence[Finding], narrowed: Narrow = about_key
) -> dict[str, tuple[Anomaly, ...]]:
    """Every finding as an anomaly with its operations, by class; reads just those operations from the source."""
    everything = Speaker(source, source.operations([index for finding in findings for index in finding.ops]))
    explained: dict[str, tuple[Anomaly, ...]] = {}
    for finding in findings:
        speaker = everything.about(finding.key, narrowed)
        message, steps = _EXPLAIN[finding.anomaly](speaker, finding)
        ops = tuple(speaker.rows[index] for index in dict.fromkeys(finding.ops) if index >= 0)
        anomaly = Anomaly(message, source.shown_key(finding.key), ops, tuple(steps), _details(speaker, finding))
        explained[finding.anomaly] = (*explained.get(finding.anomaly, ()), anomaly)
    return explained


def _step(speaker: Speaker, source: int, target: int, kind: str, why: str) -> dict[str, Any]:
    return {"source": speaker.rows[source]["op"], "target": speaker.rows[target]["op"], "kind": kind, "why": why}


def _realtime(speaker: Speaker, source: int, target: int) -> dict[str, Any]:
    why = f"{speaker.noun(source)} {speaker.ended(source)}, before {speaker.noun(target)} {speaker.began(target)}"
    return _step(speaker, source, target, "realtime", why)


def _unwritten(speaker: Speaker, finding: Finding) -> tuple[str, list[dict[str, Any]]]:
    op, failed, _, _ = finding.ops
    is_cas = speaker.rows[op]["mops"][0]["f"] == "cas"
    value = speaker.expected(op) if is_cas else speaker.value(op)
    first = f"{speaker.did(op, finding.key)}, but no operation that can have taken effect wrote {value}."
    if failed >= 0:
        wrote = f"The only write of it, {speaker.noun(failed)}, {speaker.failed(failed)}"
        return f"{first} {wrote}, so its value must never be seen.", []
    hint = speaker.initially(speaker.rows[op]["mops"][0]["expected" if is_cas else "value"])
    return f"{first} No write or compare-and-set of this key in the whole history has that value.{hint}", []


def _before_write(speaker: Speaker, finding: Finding) -> tuple[str, list[dict[str, Any]]]:
    seen, write, _, _ = finding.ops
    order = f"{speaker.ended(seen)}, before {speaker.noun(write)} {speaker.began(write)}"
    first = f"{speaker.did(seen, finding.key)} and {order}."
    second = (
        f"{opening(speaker.noun(write))} is what that value comes from, and nobody sees a value before it is written."
    )
    return f"{first} {second}", [_realtime(speaker, seen, write)]


def _stale(speaker: Speaker, finding: Finding) -> tuple[str, list[dict[str, Any]]]:
    late, done, settled, begun = finding.ops
    first = f"{speaker.did(late, finding.key)} although {speaker.noun(done)} {speaker.ended(done)}."
    over = f"Every order of the operations contradicts real time: {speaker.noun(begun)} {speaker.began(begun)}, when"
    begun_mop = speaker.rows[begun]["mops"][0]
    if begun_mop["f"] == "cas" and speaker.expected(begun) == _seen(speaker, late):
        replaced = f"{speaker.noun(begun)} had replaced {_seen(speaker, late)} by then"
        second = f"Every order of the operations contradicts real time: {replaced}."
        return f"{first} {second}", [_realtime(speaker, done, late)]
    if settled >= 0:
        before = f"{speaker.noun(settled)} {speaker.ended(settled)}"
        second = f"{over} {before}, so the older value was replaced for good before it was seen again."
        return f"{first} {second}", [_realtime(speaker, done, late), _realtime(speaker, settled, begun)]
    second = f"Every order of the operations contradicts real time: {_seen(speaker, late)} is older than that value."
    return f"{first} {second}", [_realtime(speaker, done, late)]


def _seen(speaker: Speaker, index: int) -> str:
    mop = speaker.rows[index]["mops"][0]
    return speaker.expected(index) if mop["f"] == "cas" else speaker.value(index)


def _overlap(speaker: Speaker, finding: Finding) -> tuple[str, list[dict[str, Any]]]:
    late, done, settled, begun = finding.ops
    first = f"{speaker.did(late, finding.key)} after {speaker.noun(done)} {speaker.ended(done)}."
    steps = [_realtime(speaker, done, late)]
    if settled < 0:
        return f"{first} Yet the key was unset before everything, and its first value had been seen by then.", steps
    steps.append(_realtime(speaker, settled, begun))
    second = (
        f"Yet {speaker.noun(begun)} {speaker.began(begun)}, after {speaker.noun(settled)} {speaker.ended(settled)}: "
        "each of the two values would have to come wholly before the other."
    )
    return f"{first} {second}", steps


def _lost_update(speaker: Speaker, finding: Finding) -> tuple[str, list[dict[str, Any]]]:
    one, other, _, _ = finding.ops
    first = f"{opening(speaker.noun(one))} of {speaker.key(finding.key)} and {speaker.noun(other)} both took effect."
    value = speaker.expected(one)
    second = f"The key held {value} only once, so the second of them must have found another value: an update was lost."
    return f"{first} {second}", []


def _cycle(speaker: Speaker, finding: Finding) -> tuple[str, list[dict[str, Any]]]:
    one, before, _, _ = finding.ops
    first = f"{opening(speaker.noun(one))} of {speaker.key(finding.key)} builds on {speaker.noun(before)}."
    if one == before:
        return f"{first} It took effect on the value that only it wrote.", []
    return (
        f"{first} That one builds, step by step, on the value that the former wrote, so neither can have been first.",
        [],
    )


def _stuck(speaker: Speaker, finding: Finding) -> tuple[str, list[dict[str, Any]]]:
    op, facts = finding.ops[0], finding.facts
    first = f"{speaker.did(op, finding.key)}, which no order of the operations allows."
    if not facts:
        return f"{first} The search found none; it was not repeated to say where it got stuck.", []
    values = [speaker.source.shown(value) for value in facts["values"]]
    could = listed(values, facts["value_count"] - len(values))
    moment = speaker.when(op, "complete")
    second = f"When it completed at {moment}, the key could hold only {could} by all that completed before"
    open_ops = [speaker.noun(index) for index in finding.ops[1:]]
    if not open_ops:
        return f"{first} {second}, and no other operation was open.", []
    others = listed(open_ops[:4], facts["open_count"] - len(open_ops[:4]))
    return f"{first} {second}, and no order of what was open with it ({others}) makes room for it.", []


def _details(speaker: Speaker, finding: Finding) -> dict[str, Any]:
    """Of a search that got stuck what a drawing needs, see `Anomaly`."""
    if not finding.facts:
        return {}
    stuck, rows = finding.ops[0], speaker.rows
    needed = f"a value other than {_seen(speaker, stuck)}" if rows[stuck]["type"] == "fail" else _seen(speaker, stuck)
    why = f"{speaker.noun(stuck)} needs {needed}, and nothing that is open makes that of it in time"
    states = [{"state": speaker.source.shown(value), "why": why} for value in finding.facts["values"]]
    return {"stuck": rows[stuck]["op"], "open": [rows[index]["op"] for index in finding.ops[1:]], "states": states}


_EXPLAIN: Final[dict[str, Explain]] = {
    "read-of-unwritten": _unwritten,
    "read-before-write": _before_write,
    "stale-read": _stale,
    "overlapping-clusters": _overlap,
    "lost-update": _lost_update,
    "cas-cycle": _cycle,
    "nonlinearizable": _stuck,
}
