"""The model `isolation`: the strongest of read committed, read atomic and causal that a history reaches."""

from __future__ import annotations

from typing import Any, Final

from checkers.engines.api import Engine
from checkers.engines.grouped import judge_mops
from checkers.findings import Findings
from checkers.isolation.history import READ, WRITE
from checkers.isolation.levels import LEVELS, REACHED, IsolationKernel
from checkers.isolation.words import explain_all
from checkers.mops import MopProjection
from checkers.options import CheckOptions
from checkers.source import Source
from checkers.verdict import Validity, Verdict
from harness.errors import UserError

PROJECTION: Final = MopProjection({"r": READ, "w": WRITE}, extras=("session",))

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
    """Valid if the strongest level is at least `--consistency` (default causal); `strongest` names it.

    Where reads have several possible writers nothing is concluded from them; a history that is refuted without them is
    refuted, one that is not is unknown.
    """
    asked = _asked(options.consistency)
    found = judge_mops(engine, source, PROJECTION, (), IsolationKernel(options.explain), options.explain)
    if found.unsupported:
        raise UserError(
            f"{source.path}, event {found.unsupported[0]}: not a transaction of plain reads and writes of integer "
            "cells, so the model isolation can't judge it."
        )
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
    reason = f"{reads} of values that several transactions wrote can't be matched: the history is at most {strongest}."
    details = {"keys": found.keys, "unclear_reads": unclear, "at_most": strongest}
    return Verdict("unknown", "isolation", ops=found.ops, engine=engine.name, reason=reason, details=details)


def _verdict(
    source: Source, engine: Engine, found: Findings, valid: Validity, strongest: str, facts: dict[str, Any]
) -> Verdict:
    """What breaks levels that need not hold is told in the details."""
    counts = {name: count for name, count in found.counts.items() if name != REACHED}
    kept = [finding for finding in found.kept if finding.anomaly != REACHED]
    details: dict[str, Any] = {"keys": found.keys, "sessions": facts.get("sessions", 0)}
    if facts.get("unclear_reads"):
        details["unclear_reads"] = facts["unclear_reads"]
    if valid and counts:
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
        strongest=strongest,
        details=details,
    )
