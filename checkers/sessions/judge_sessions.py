"""The models `monotonic-reads`, `read-your-writes`, `monotonic-writes`, `writes-follow-reads`; `sessions` is all four.

Each cell is an object of its own: what one cell's version tells about another's is causal consistency's business.
Monotonic reads hold within each session for all reads, and for strong reads (mode null, strong, QUORUM, ALL, …) also
across sessions in real time, as CEP-45 puts it: a read that starts after another returned omits nothing that the other
saw. Which versions are older is read from the data, see `columns.versions`; what it does not tell is not concluded.
"""

from __future__ import annotations

from typing import Any, Final

from checkers.columns.codes import NIL, READ, WRITE
from checkers.columns.mops import ADDRESS, MopProjection
from checkers.columns.versions import APPEND, ELEMENT, LIST_READ
from checkers.engines.api import Engine
from checkers.engines.grouped import SLICES, judge_mops
from checkers.explain.conclude import Steps, explained_in_steps
from checkers.explain.speaker import Speaker, opening
from checkers.findings import Finding, refuse_unsupported
from checkers.options import CheckOptions
from checkers.quorum.judge_quorum import judge_session_model
from checkers.quorum.quorum_history import read_quorum_history
from checkers.sessions.session_guarantees import SessionKernel
from checkers.sessions.session_lists import verdict_of
from checkers.sessions.session_order import GUARANTEES
from checkers.source import Source
from checkers.verdict import Verdict

PROJECTION: Final = MopProjection(
    {"r": READ, "w": WRITE, "cas": WRITE, "append": APPEND},
    extras=("session", "strong", "served_ts"),
    list_kinds=(LIST_READ, ELEMENT),
    keep_failed=False,
)

SESSIONS: Final = "sessions"


def judge_guarantees(model: str, source: Source, engine: Engine, options: CheckOptions) -> Verdict:
    """The guarantee of that name, or all of them for `sessions`; unknown if nothing was read, for all show in reads,
    or if nothing is refuted of lists that are not judged in full."""
    wanted = GUARANTEES if model == SESSIONS else (model,)
    kernel = SessionKernel(wanted, options.explain)
    reading = read_quorum_history(source, engine)
    if reading is not None:
        return judge_session_model(model, reading, source, engine, options)
    found = judge_mops(engine, source, PROJECTION, ADDRESS, kernel, options.explain, SLICES)
    refuse_unsupported(found, source.path, model)
    valid, reason = verdict_of(found)
    return Verdict(
        valid,
        model,
        explained_in_steps(source, found.kept, _said),
        found.counts,
        found.ops,
        engine=engine.name,
        reason=reason,
        details={"cells": found.keys} | found.figures,
    )


CONTRADICTORY: Final = "contradictory-reads"

_VERBS: Final = {
    "non-monotonic-read": ("read", "read"),
    "missed-own-write": ("read", "wrote"),
    "non-monotonic-write": ("wrote", "wrote"),
    "write-before-what-was-read": ("wrote", "read"),
}
"""What was done late, and what had been done before."""

_DISPLACED: Final = ("non-monotonic-write", "write-before-what-was-read")


def _said(speaker: Speaker, finding: Finding) -> tuple[str, Steps]:
    return (_contradictory if finding.anomaly == CONTRADICTORY else _direct)(speaker, finding)


def _what(speaker: Speaker, shown: dict[str, Any]) -> str:
    if shown["list"]:
        return f"a list of {shown['value']}"
    return speaker.source.shown(shown["value"])


def _direct(speaker: Speaker, finding: Finding) -> tuple[str, Steps]:
    late, early = finding.ops[:2]
    mine, earlier = finding.facts["mine"], finding.facts["earlier"]
    do, did = _VERBS[finding.anomaly]
    where = speaker.key(finding.key)
    node = f" on node {speaker.rows[late]['node']}" if speaker.rows[late]["node"] else ""
    order = f"after {speaker.process(early)} {did} {_what(speaker, earlier)} there, which {speaker.ended(early)}"
    scope = "in the same session" if finding.facts["in_session"] else "in real time"
    first = (
        f"{opening(speaker.process(late))} {do} {_what(speaker, mine)} of {where} "
        f"at {speaker.when(late, 'invoke')}{node}, {order} ({scope})."
    )
    why = f"{speaker.process(early)} {speaker.ended(early)}, before {speaker.process(late)} {speaker.began(late)}"
    kind = "process" if finding.facts["in_session"] else "realtime"
    step = {"source": speaker.rows[early]["op"], "target": speaker.rows[late]["op"], "kind": kind, "why": why}
    return f"{first} {_older(speaker, finding, mine, earlier)}", (step,)


def _older(speaker: Speaker, finding: Finding, mine: dict[str, Any], earlier: dict[str, Any]) -> str:
    """Why the late operation's version is certainly older than the earlier one's."""
    facts = finding.facts
    if "element" in facts and finding.anomaly in _DISPLACED:
        return _displaced(speaker, finding)
    if "element" in facts and finding.anomaly == "non-monotonic-read":
        return f"The later list lacks {speaker.source.shown(facts['element'])}, which the earlier one had."
    if facts["listed"]:
        return _shorter(finding, mine, earlier)
    old, new = _what(speaker, mine), _what(speaker, earlier)
    if mine["value"] is None and mine["settled"] == NIL:
        return f"The cell was unset only before everything that was written, so {new} was lost from sight."
    if facts["timed"]:
        return f"By their commit timestamps {old} ({mine['since']}) is older than {new} ({earlier['since']})."
    writer = finding.ops[3]
    begun = (
        f"{speaker.process(writer)}'s write of {new} {speaker.began(writer)}" if writer >= 0 else f"{new} was written"
    )
    return f"{old} is older than {new}: it was there at event {mine['settled']}, before {begun}."


def _displaced(speaker: Speaker, finding: Finding) -> str:
    """Who read a list that shows an append, and not before it what its session had appended or read."""
    late, early = (speaker.source.shown(value) for value in (finding.facts["mine"]["value"], finding.facts["element"]))
    return f"Yet {speaker.process(finding.ops[2])} read a list that shows {late} and does not show {early} before it."


def _shorter(finding: Finding, mine: dict[str, Any], earlier: dict[str, Any]) -> str:
    if finding.anomaly == "non-monotonic-read":
        return "The later list is a shorter prefix of the same list: elements that were seen are missing."
    if finding.anomaly == "missed-own-write":
        return "The appended element is not in the list that the same session read afterwards."
    if finding.anomaly == "non-monotonic-write":
        return "Yet the later of the two appended elements stands before the earlier one, or alone, in the list."
    return "Yet the appended element stands among those that the session had read before it appended."


def _contradictory(speaker: Speaker, finding: Finding) -> tuple[str, Steps]:
    steps = finding.facts["steps"]
    values = [speaker.source.shown(step["value"]) for step in steps]
    around = " before ".join([*values, values[0]])
    reasons = [_reason(speaker, step) for step in steps]
    own = any(step["did"] == "wrote" and step["kind"] == "session" for step in steps)
    late = "shows an older version than its session had written" if own else "went back to an older version"
    message = (
        f"The versions of {speaker.key(finding.key)} would have to come in the order {around}: {'; '.join(reasons)}. "
        f"Whichever order they were written in, some read {late}."
    )
    told = tuple(
        {
            "source": speaker.rows[step["source"]]["op"] if step["source"] >= 0 else -1,
            "target": speaker.rows[step["target"]]["op"] if step["target"] >= 0 else -1,
            "kind": step["kind"],
            "why": why,
        }
        for step, why in zip(steps, reasons, strict=True)
    )
    return message, told


def _reason(speaker: Speaker, step: dict[str, Any]) -> str:
    old, new = speaker.source.shown(step["value"]), speaker.source.shown(step["next"])
    source, target = step["source"], step["target"]
    if step["did"] == "replaced":
        return f"{speaker.process(source)}'s operation wrote {old} and then {new}"
    if step["kind"] == "certain":
        if source < 0 or target < 0:
            return f"{old} was there before {new} was written"
        return f"{old} was there before {speaker.process(target)}'s write of {new} {speaker.began(target)}"
    if source < 0 or target < 0:
        return f"{old} was read before {new}"
    if step["did"] == "wrote":
        return f"{speaker.process(target)}'s session wrote {old} and then read {new}"
    if step["kind"] == "session":
        return f"{speaker.process(target)} read {old} and then {new}"
    return (
        f"{speaker.process(source)}'s read of {old} {speaker.ended(source)}, before "
        f"{speaker.process(target)}'s read of {new} {speaker.began(target)}"
    )
