"""The model `isolation`: the strongest of read committed, read atomic and causal that a history reaches,
and in words what keeps it from the next: the operations, and why each must come before the other.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from checkers.columns.codes import READ, WRITE
from checkers.columns.mops import MopProjection
from checkers.engines.api import Engine
from checkers.engines.grouped import Sharing, judge_mops
from checkers.explain.conclude import Steps, explained_in_steps
from checkers.explain.speaker import Speaker, opening
from checkers.findings import Finding, Findings, Key, refuse_unsupported
from checkers.isolation.isolation_levels import LEVELS, REACHED, IsolationKernel
from checkers.options import CheckOptions, initial_setting
from checkers.source import Source
from checkers.verdict import Validity, Verdict
from harness.errors import UserError

PROJECTION: Final = MopProjection({"r": READ, "w": WRITE}, extras=("session",))

EXPANDED: Final = 12
"""To judge a transaction of three reads and writes takes 600 bytes, to shuffle it 62 (`bench task_memory`)."""

ALIASES: Final = {"causal-consistency": "causal", "cc": "causal", "ra": "read-atomic", "rc": "read-committed"}
"""What people write; capitals don't matter."""

OTHER_NAMES: Final = {
    "ThinAirRead": "garbage read",
    "AbortedRead": "G1a",
    "FutureRead": "future-read",
    "NotMyOwnWrite": "internal",
    "NotMyLastWrite": "internal",
    "IntermediateRead": "G1b",
    "CyclicCO": "G1c-process",
    "NonRepeatableRead": "G-single",
    "FracturedReadCO": "G-single",
}
"""What Elle calls (roughly) the same."""


def judge_isolation(source: Source, engine: Engine, options: CheckOptions) -> Verdict:
    """Valid if the strongest level is at least `--consistency` (default causal), above which none is tried; `strongest`
    names it where it is known.

    Where reads have several possible writers nothing is concluded from them; a history that is refuted without them is
    refuted, one that is not is unknown.
    """
    asked = _asked(options.consistency)
    initial = initial_setting(options)
    kernel = IsolationKernel(options.explain, initial, LEVELS.index(asked))
    projection = replace(PROJECTION, initial=initial)
    found = judge_mops(engine, source, projection, (), kernel, options.explain, Sharing(expanded=EXPANDED))
    refuse_unsupported(found, source.path, "isolation")
    facts = next((finding.facts for finding in found.kept if finding.anomaly == REACHED), {"level": len(LEVELS) - 1})
    strongest, unclear = LEVELS[facts["level"]], facts.get("unclear_reads", 0)
    valid: Validity = LEVELS.index(strongest) >= LEVELS.index(asked)
    if valid and unclear:
        return _unknown(found, engine, strongest, unclear)
    return _verdict(replace(source, initial=initial), engine, found, valid, strongest, facts)


def _asked(consistency: str | None) -> str:
    name = (consistency or "causal").lower()
    asked = ALIASES.get(name, name)
    if asked not in LEVELS:
        others = ", ".join(f"{alias} ({level})" for alias, level in ALIASES.items())
        known = f"{', '.join(LEVELS)}, also called {others}"
        raise UserError(f"The model isolation knows the levels {known}, not {consistency!r}.")
    return asked


def _unknown(found: Findings, engine: Engine, strongest: str, unclear: int) -> Verdict:
    reads = f"{unclear} read{'s' if unclear > 1 else ''}"
    told = (
        f"the history is at most {strongest}" if strongest == LEVELS[-1] else f"{strongest} is not refuted without them"
    )
    reason = f"{reads} of values that several transactions wrote can't be matched: {told}."
    details: dict[str, Any] = {"keys": found.keys, "unclear_reads": unclear}
    if strongest == LEVELS[-1]:
        details["at_most"] = strongest
    return Verdict("unknown", "isolation", ops=found.ops, engine=engine.name, reason=reason, details=details)


def _verdict(
    source: Source, engine: Engine, found: Findings, valid: Validity, strongest: str, facts: dict[str, Any]
) -> Verdict:
    """Levels that need not hold are told in the details."""
    counts = {name: count for name, count in found.counts.items() if name != REACHED}
    kept = [finding for finding in found.kept if finding.anomaly != REACHED]
    details: dict[str, Any] = {"keys": found.keys, "sessions": facts.get("sessions", 0)}
    if facts.get("unclear_reads"):
        details["unclear_reads"] = facts["unclear_reads"]
    not_tried = LEVELS[LEVELS.index(strongest) + 1 :] if valid and not counts else ()
    if not_tried:
        details["not_tried"] = not_tried
    elif valid and counts:
        details["breaks_stronger_levels"] = counts
    if not valid:
        details["also_called"] = {name: OTHER_NAMES[name] for name in counts if name in OTHER_NAMES}
    return Verdict(
        valid,
        "isolation",
        {} if valid else explained_in_steps(source, kept, _said),
        {} if valid else counts,
        found.ops,
        engine=engine.name,
        strongest=None if not_tried else strongest,
        details=details,
    )


_LEVEL_WORDS: Final = {
    "none": "Any isolation level allows only orders in which sessions and reads agree with what came before",
    "read-committed": "Read committed lets a transaction go on only to what is not older than what it has read",
    "read-atomic": "Read atomic shows a transaction all of another's writes or none",
    "causal": "Causal consistency shows a transaction everything that came before it",
}


def _said(speaker: Speaker, finding: Finding) -> tuple[str, Steps]:
    return _cycle(speaker, finding) if "steps" in finding.facts else (_bad_read(speaker, finding), ())


def _name(speaker: Speaker, index: int) -> str:
    return f"T{speaker.rows[index]['op']}" if index >= 0 else "the initial state"


def _bad_read(speaker: Speaker, finding: Finding) -> str:
    reader, writer = finding.ops
    facts = finding.facts
    value, where = speaker.source.shown(facts["value"]), speaker.key(finding.key)
    mine = _name(speaker, reader)
    first = f"{mine} (process {speaker.rows[reader]['process']}) read {value} from {where}"
    written = speaker.source.shown(facts.get("written"))
    other, failed = (_name(speaker, writer), speaker.failed(writer)) if writer >= 0 else ("", "")
    second = {
        "ThinAirRead": f"but no transaction in the whole history wrote that value.{speaker.initially(facts['value'])}",
        "AbortedRead": f"but only {other} wrote that value, and it {failed}, so it must never be seen.",
        "FutureRead": f"but it wrote {value} there only afterwards, in the same transaction.",
        "NotMyOwnWrite": f"although it had itself written {written} there before.",
        "NotMyLastWrite": f"which it had written there itself, although it had written {written} there since.",
        "IntermediateRead": f"but {other}, which wrote that value, went on to write "
        f"{speaker.source.shown(facts.get('replaced_by'))} there, so nobody else must see what it had in between.",
    }[finding.anomaly]
    return f"{first}, {second}"


def _cycle(speaker: Speaker, finding: Finding) -> tuple[str, Steps]:
    steps = finding.facts["steps"]
    around = " before ".join(_name(speaker, step["source"]) for step in steps)
    reasons = [_why(speaker, step) for step in steps]
    message = (
        f"{opening(around)} before {_name(speaker, steps[0]['source'])} again: {'; '.join(reasons)}. "
        f"{_LEVEL_WORDS[finding.facts['level']]}, and no order of the transactions does."
    )
    return message, tuple(_shown_step(speaker, step, why) for step, why in zip(steps, reasons, strict=True))


def _shown_step(speaker: Speaker, step: dict[str, Any], why: str) -> dict[str, Any]:
    about = {name: speaker.source.shown_key(step[name]) for name in ("key", "seen_key") if name in step}
    ends = {"source": _op(speaker, step["source"]), "target": _op(speaker, step["target"])}
    return ends | {"kind": step["kind"], "why": why} | about


def _op(speaker: Speaker, index: int) -> int:
    return int(speaker.rows[index]["op"]) if index >= 0 else -1


def _why(speaker: Speaker, step: dict[str, Any]) -> str:
    source, target = _name(speaker, step["source"]), _name(speaker, step["target"])
    if step["kind"] == "so":
        if step["source"] < 0:
            return f"{source} comes before {target}"
        return f"{source} came before {target} in one session"
    key, value = speaker.key(Key(*step["key"])), speaker.source.shown(step["value"])
    if step["kind"] == "wr":
        return f"{target} read {value} of {key} from {source}"
    reader = _name(speaker, step["reader"])
    if step["seen_by"] == "read":
        seen = f"read {speaker.key(Key(*step['seen_key']))} from it"
    elif step["seen_by"] == "session":
        seen = "came behind it in its session"
    else:
        seen = "came behind it by sessions and reads"
    return f"{reader} read {value} of {key} from {target} although {source} wrote {key} too and {reader} {seen}"
