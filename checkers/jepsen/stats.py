"""The checker `stats`: how often each operation succeeded; one that never did makes a run say nothing."""

from __future__ import annotations

from typing import Any

from checkers.engines.api import Engine
from checkers.options import CheckOptions
from checkers.source import Source
from checkers.verdict import Verdict


def judge_stats(source: Source, engine: Engine, options: CheckOptions) -> Verdict:
    """Valid if there are client operations and every `f` succeeded at least once, else unknown (vacuous)."""
    tally = engine.tally(source)
    by_f: dict[str, Any] = {}
    for (f, outcome), count in sorted(tally.items()):
        by_f.setdefault(f, {"ok": 0, "fail": 0, "info": 0})[outcome] += count
    never = [f for f, counts in by_f.items() if counts["ok"] == 0]
    reason = None
    if not by_f:
        reason = "The history has no client operations."
    elif never:
        reason = f"No operation of these kinds ever succeeded: {', '.join(never)}."
    details = {"by_f": by_f}
    return Verdict(
        reason is None or "unknown",
        "stats",
        ops=sum(tally.values()),
        engine=engine.name,
        reason=reason,
        details=details,
    )
