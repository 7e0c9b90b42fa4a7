"""The model `isolation`: the strongest of read committed, read atomic and causal that a history reaches."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from checkers.columns.codes import READ, WRITE
from checkers.columns.mops import MopProjection
from checkers.engines.api import Engine
from checkers.engines.grouped import Sharing, judge_mops
from checkers.findings import Findings, refuse_unsupported
from checkers.isolation.explain import explain_all
from checkers.isolation.levels import LEVELS, REACHED, IsolationKernel
from checkers.options import CheckOptions
from checkers.settings import initial_setting
from checkers.source import Source
from checkers.verdict import Validity, Verdict
from harness.errors import UserError

PROJECTION: Final = MopProjection({"r": READ, "w": WRITE}, extras=("session",))

EXPANDED: Final = 12
"""A transaction of three accesses takes 62 bytes in a shuffle, and 600 to judge (`python -m bench task_memory`)."""

ALIASES: Final = {"causal-consistency": "causal", "cc": "causal", "ra": "read-atomic", "rc": "read-committed"}

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
    return _verdict(source, engine, found, valid, strongest, facts)


def _asked(consistency: str | None) -> str:
    asked = ALIASES.get(consistency or "causal", consistency or "causal")
    if asked not in LEVELS:
        raise UserError(f"The model isolation knows the levels {', '.join(LEVELS)}, not {consistency!r}.")
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
        {} if valid else explain_all(source, kept),
        {} if valid else counts,
        found.ops,
        engine=engine.name,
        strongest=None if not_tried else strongest,
        details=details,
    )
