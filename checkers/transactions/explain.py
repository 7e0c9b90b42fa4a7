"""Anomalies of transactions in sentences: what each transaction did, and why one comes before the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from checkers.explain.speaker import opening
from checkers.findings import Finding, Key
from checkers.source import Source
from checkers.transactions.graph.edges import PROCESS, REALTIME, RW, WR, WW
from checkers.transactions.sentences import TxnSpeaker
from checkers.verdict import Anomaly

KIND_NAMES: Final = {WW: "ww", WR: "wr", RW: "rw", PROCESS: "process", REALTIME: "realtime"}

_SENSE: Final = {
    "G0": "their writes can't be put in one order (write cycle)",
    "G1c": "each depends on what the other wrote (circular information flow)",
    "G-single-item": "one of them saw the other's effects only in part (read skew)",
    "G-nonadjacent-item": "they saw the same writes in different orders (long fork)",
    "G2-item": "each missed what the other wrote (anti-dependency cycle, as in write skew)",
}

_MOST_STEPS: Final = 4
"""Steps of a cycle that are put into words."""

Explain: TypeAlias = Callable[[TxnSpeaker, Finding], str]


def explain_all(source: Source, findings: Sequence[Finding]) -> dict[str, tuple[Anomaly, ...]]:
    """Every finding as an anomaly with its operations, by class; reads just those operations from the source."""
    rows = source.operations([index for finding in findings for index in finding.ops])
    explained: dict[str, tuple[Anomaly, ...]] = {}
    for finding in findings:
        speaker = TxnSpeaker.of(source, rows, finding.ops)
        ops = tuple(rows[index] for index in dict.fromkeys(finding.ops))
        if "kinds" in finding.facts:
            message, steps = _cycle(speaker, finding)
            anomaly = Anomaly(message, None, ops, steps)
        else:
            anomaly = Anomaly(_EXPLAIN[finding.anomaly](speaker, finding), speaker.plain_key(finding.key), ops)
        explained[finding.anomaly] = (*explained.get(finding.anomaly, ()), anomaly)
    return explained


def _cycle(speaker: TxnSpeaker, finding: Finding) -> tuple[str, tuple[dict[str, Any], ...]]:
    ops = finding.ops
    steps = []
    for source, target, kind, address in zip(
        ops, (*ops[1:], ops[0]), finding.facts["kinds"], finding.facts["keys"], strict=True
    ):
        key = Key(*address) if address is not None else None
        why = (
            f"{_why(speaker, source, target, kind, key)}, so {speaker.name(source)} comes before {speaker.name(target)}"
        )
        ends = {"source": speaker.rows[source]["op"], "target": speaker.rows[target]["op"]}
        about = {} if key is None else {"key": speaker.plain_key(key)}
        steps.append(ends | {"kind": KIND_NAMES[kind], "why": why} | about)
    who = "; ".join(speaker.introduced(index) for index in ops[:_MOST_STEPS])
    told = [opening(step["why"]) for step in steps]
    if len(told) > _MOST_STEPS:
        told = [*told[: _MOST_STEPS - 1], f"and so on over {len(told) - _MOST_STEPS} more", told[-1]]
    base = finding.anomaly.removesuffix("-process").removesuffix("-realtime")
    sense = _SENSE.get(base, "they can't be put in one order")
    end = "" if len(ops) <= _MOST_STEPS else "; …"
    return f"{'. '.join(told)}: a cycle; {sense}. {who}{end}.", tuple(steps)


def _why(speaker: TxnSpeaker, source: int, target: int, kind: int, key: Key | None) -> str:
    one, other = speaker.name(source), speaker.name(target)
    if kind == PROCESS:
        return f"process {speaker.rows[source]['process']} ran {one} and then {other}"
    if kind == REALTIME:
        return f"{one} {speaker.speaker.ended(source)}, before {other} {speaker.speaker.began(target)}"
    assert key is not None
    where = speaker.speaker.key(key)
    if speaker.is_register(source, target, key):
        return _why_register(speaker, source, target, kind, key, where)
    if kind == WR:
        seen, end = speaker.read_of(target, source, key)
        return f"{other} read {seen} of {where}, whose last element {end} {one} appended"
    if kind == WW:
        first, then = speaker.written(source, key)[-1], speaker.written(target, key)[0]
        return f"{one} appended {first} to {where}, and {other} appended {then} after that"
    seen, last, missed = speaker.read_without(source, target, key)
    if last is None:
        return f"{one} read {where} while it was empty, and {other} appended {missed} to it"
    return f"{one} read {seen} of {where}, and {other} appended {missed} after {last}"


def _why_register(speaker: TxnSpeaker, source: int, target: int, kind: int, key: Key, where: str) -> str:
    one, other = speaker.name(source), speaker.name(target)
    if kind == WR:
        value = speaker.written(source, key)[-1]
        return f"{one} wrote {value} to {where}, and {other} read it"
    then = speaker.written(target, key)[-1]
    if kind == WW:
        first = speaker.written(source, key)[-1]
        return f"{one} wrote {first} to {where}, and {other} wrote {then}, which is a later version"
    seen = speaker.first_read(source, key)
    return f"{one} read {seen} from {where}, and {other} wrote {then}, which is a later version"


def _internal(speaker: TxnSpeaker, finding: Finding) -> str:
    (op,) = finding.ops
    done, read = speaker.history_in(op, finding.key, finding.facts["mop"])
    return (
        f"{speaker.began(op)} {done} and then read {read}, all of {speaker.speaker.key(finding.key)}. "
        "A transaction must read what it itself wrote or read of a key last."
    )


def _future_read(speaker: TxnSpeaker, finding: Finding) -> str:
    (op,) = finding.ops
    value = speaker.mop_value(op, finding.facts["mop"])
    verb = "wrote" if speaker.is_register(op, op, finding.key) else "appended"
    return (
        f"{speaker.began(op)} read {value} from {speaker.speaker.key(finding.key)} before it {verb} that. "
        "Nothing can be read before it is written."
    )


def _aborted(speaker: TxnSpeaker, finding: Finding) -> str:
    reader, writer = finding.ops[0], finding.ops[-1]
    values = ", ".join(speaker.seen_from(reader, writer, finding.key))
    return (
        f"{speaker.began(reader)} read {values} from {speaker.speaker.key(finding.key)}. "
        f"{speaker.began(writer)} wrote that and failed, so nobody may ever see it."
    )


def _intermediate(speaker: TxnSpeaker, finding: Finding) -> str:
    reader, writer = finding.ops[0], finding.ops[-1]
    written = speaker.written(writer, finding.key)
    return (
        f"{speaker.began(reader)} read a state of {speaker.speaker.key(finding.key)} that ends with "
        f"{speaker.last_seen(reader, writer, finding.key)}. {speaker.began(writer)} wrote {', '.join(written)} in one "
        "transaction, so only the last of these may be seen by others."
    )


def _dirty(speaker: TxnSpeaker, finding: Finding) -> str:
    aborted, later = finding.ops
    where = speaker.speaker.key(finding.key)
    return (
        f"{speaker.began(aborted)} wrote {', '.join(speaker.written(aborted, finding.key))} to {where} and failed, yet "
        f"{speaker.began(later, upper=False)} built on it: its {', '.join(speaker.written(later, finding.key))} comes "
        "behind it in what was read."
    )


def _lost(speaker: TxnSpeaker, finding: Finding) -> str:
    one, other = finding.ops
    where = speaker.speaker.key(finding.key)
    return (
        f"{speaker.began(one)} and {speaker.began(other, upper=False)} both read "
        f"{speaker.first_read(one, finding.key)} "
        f"from {where} and then wrote it ({', '.join(speaker.written(one, finding.key))} and "
        f"{', '.join(speaker.written(other, finding.key))}): one of them overwrote an update that it had not seen."
    )


def _duplicate(speaker: TxnSpeaker, finding: Finding) -> str:
    (op,) = finding.ops
    element, seen = speaker.duplicate(op, finding.key)
    return (
        f"{speaker.began(op)} read {seen} of {speaker.speaker.key(finding.key)}, where {element} comes twice. "
        "It was appended once."
    )


def _incompatible(speaker: TxnSpeaker, finding: Finding) -> str:
    reader, longest = finding.ops[0], finding.ops[-1]
    mine, other = speaker.clash(reader, longest, finding.key)
    return (
        f"{speaker.began(reader)} read {mine} of {speaker.speaker.key(finding.key)}, and "
        f"{speaker.began(longest, upper=False)} read {other}. Neither list is a prefix of the other, so no order of "
        "appends explains both."
    )


def _garbage(speaker: TxnSpeaker, finding: Finding) -> str:
    (op,) = finding.ops
    return (
        f"{speaker.began(op)} read {speaker.first_read(op, finding.key)} of {speaker.speaker.key(finding.key)}, where "
        "at least one element was never appended by any transaction of the history."
    )


def _cyclic_versions(speaker: TxnSpeaker, finding: Finding) -> str:
    where, ops = speaker.speaker.key(finding.key), finding.ops
    if len(ops) == 1:
        return f"What processes and transactions did one after the other gives the versions of {where} no order."
    if len(ops) == 2:
        early, late = ops
        return (
            f"{speaker.began(early)} had {where} at {speaker.left_at(early, finding.key)} and had completed "
            f"before {speaker.began(late, upper=False)} found it unset again."
        )
    pairs = ((ops[0], ops[1]), (ops[2], ops[3]))
    told = [
        f"{speaker.began(done)} had {where} at {speaker.left_at(done, finding.key)} and had completed before "
        f"{speaker.began(late, upper=False)} had it at {speaker.found_at(late, finding.key)}"
        for done, late in pairs
    ]
    return f"{told[0]}. Yet {told[1][0].lower()}{told[1][1:]}: each of the two versions would have to be the older one."


_EXPLAIN: Final[dict[str, Explain]] = {
    "internal": _internal,
    "future-read": _future_read,
    "G1a": _aborted,
    "G1b": _intermediate,
    "dirty-update": _dirty,
    "lost-update": _lost,
    "duplicate-elements": _duplicate,
    "incompatible-order": _incompatible,
    "garbage-read": _garbage,
    "cyclic-versions": _cyclic_versions,
}
