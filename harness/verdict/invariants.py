"""Invariants of the system under test that were checked while it ran, and how what broke enters the verdict (G10)."""

from __future__ import annotations

from typing import Any

from harness.protocols import Breach, Examination, InvariantsRecord

CHECKER = "invariants"
"""Under this name they stand among the checkers of a verdict."""

MAX_EXPLAINED = 5
"""Breaches kept of each invariant; the others are counted."""


END_STATE = "end-state"
"""Broken where the parts of a system don't agree once all faults are healed and it has had time to settle."""


def with_examination(record: InvariantsRecord, found: Examination) -> InvariantsRecord:
    """The record with what the examination found as one more invariant."""
    breaches = [Breach(END_STATE, problem, 0, 0, ()) for problem in found.problems[:MAX_EXPLAINED]]
    broken = {END_STATE: len(found.problems)} if found.problems else {}
    return InvariantsRecord(
        {**record.checked, END_STATE: 1}, {**record.broken, **broken}, (*record.breaches, *breaches)
    )


def as_checker(record: InvariantsRecord) -> dict[str, Any]:
    """The record in the shape of a checker's verdict: an anomaly a breach, named by its invariant."""
    anomalies: dict[str, list[dict[str, Any]]] = {}
    for breach in record.breaches:
        anomalies.setdefault(breach.invariant, []).append({"message": _sentence(breach), "details": _details(breach)})
    found: dict[str, Any] = {
        "valid": False if record.broken else (True if any(record.checked.values()) else "unknown"),
        "model": CHECKER,
        "anomalies": anomalies,
        "counts": dict(record.broken),
        "ops": 0,
        "details": {"checked": dict(record.checked)},
    }
    if found["valid"] == "unknown":
        found["reason"] = "the database told nothing that an invariant could be checked on"
    return found


def _sentence(breach: Breach) -> str:
    where = ", ".join(breach.nodes)
    group = f" in group {breach.group}" if breach.group is not None else ""
    steps = f"; at {breach.time_ns / 1e9:.6f} s of virtual time, step {breach.step}" if breach.step else ""
    told = f"{where}{group}{steps}"
    return f"{breach.message} ({told})" if told else breach.message


def _details(breach: Breach) -> dict[str, Any]:
    return {"time_ns": breach.time_ns, "step": breach.step, "nodes": list(breach.nodes), "group": breach.group}
