"""Torn partition writes in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from checkers.explain.speaker import Speaker, listed
from checkers.findings import Finding, Key
from checkers.source import Source
from checkers.verdict import Anomaly


def explain_all(source: Source, findings: Sequence[Finding]) -> dict[str, tuple[Anomaly, ...]]:
    """Every finding as an anomaly with its operations, by class; reads just those operations from the source."""
    speaker = Speaker(source, source.operations([index for finding in findings for index in finding.ops]))
    explained: dict[str, tuple[Anomaly, ...]] = {}
    for finding in findings:
        ops = tuple(speaker.rows[index] for index in dict.fromkeys(finding.ops) if index >= 0)
        message, steps = _torn(speaker, finding)
        anomaly = Anomaly(message, source.shown_key(finding.key), ops, steps)
        explained[finding.anomaly] = (*explained.get(finding.anomaly, ()), anomaly)
    return explained


def _value(speaker: Speaker, told: dict[str, Any]) -> str:
    return f"a list of {told['value']}" if told["list"] else speaker.source.shown(told["value"])


def _cell(speaker: Speaker, cell: Sequence[int]) -> str:
    """`row 2 of key 14`."""
    key = Key(*cell)
    name = f"row {key.row}" if key.column == 0 else f"row {key.row}, column {key.column}"
    return f"{name} of {speaker.key(Key(key.table, key.partition))}"


def _torn(speaker: Speaker, finding: Finding) -> tuple[str, tuple[dict[str, Any], ...]]:
    reader, writer = finding.ops[:2]
    facts = finding.facts
    shown, lacking = facts["shown"], facts["lacking"]
    wrote = speaker.source.shown(facts["written"]["value"])
    here, there = (_cell(speaker, told["cell"]) for told in (shown, lacking))
    node = f" on node {speaker.rows[reader]['node']}" if speaker.rows[reader]["node"] else ""
    by = f"process {speaker.rows[writer]['process']}'s write"
    first = (
        f"Process {speaker.rows[reader]['process']}'s read at {speaker.when(reader, 'invoke')}{node} shows {by} in "
        f"{here} ({_value(speaker, shown)}), but in {there}, where that wrote {wrote}, {_value(speaker, lacking)}."
    )
    sees = f"the read shows {_value(speaker, shown)} of {here}, which {by} wrote"
    lacks = f"the read shows {_value(speaker, lacking)} of {there}, which {by} replaced by {wrote}"
    source, target = speaker.rows[writer]["op"], speaker.rows[reader]["op"]
    seen, lacking_key = (speaker.source.shown_key(told["cell"]) for told in (shown, lacking))
    steps = (
        {"source": source, "target": target, "kind": "wr", "why": sees, "key": seen},
        {"source": target, "target": source, "kind": "rw", "why": lacks, "key": lacking_key},
    )
    return f"{first} {_order(speaker, finding)}", steps


def _order(speaker: Speaker, finding: Finding) -> str:
    facts, older = finding.facts, finding.ops[2]
    old, new = _value(speaker, facts["lacking"]), speaker.source.shown(facts["written"]["value"])
    if finding.anomaly != "torn-read":
        names = [f"process {speaker.rows[index]['process']}'s" for index in finding.ops[2:]]
        return (
            f"Reads and real time ask for a circle of the writes ({listed(names)}), so whichever way they are ordered, "
            "some read shows a part of one only."
        )
    if facts["lacking"]["list"]:
        return f"The element {new} is missing there: one page shows a part of the write only."
    if older == finding.ops[1]:
        return f"The same write put {new} in the place of {old}, so the page shows a part of the write only."
    if older < 0 and "settled" in facts:
        return (
            f"All writes of {old} there are older than {new} (they were there at {facts['settled']}, and the write of "
            f"{new} is of {facts['since']} at the earliest), so the page shows a part of the write only."
        )
    if older < 0 or facts["lacking"]["value"] is None:
        return "That row was unset only before everything, so the page shows a part of the write only."
    return (
        f"{old} is older than {new} (it was there at {facts['settled']}, and the write of {new} is of {facts['since']} "
        "at the earliest), so the page shows a part of the write only."
    )
