"""Operations, times and verdicts in words for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.faults import Fault

VERDICT_WORDS = {
    "valid": "No check found anything wrong, the requested faults were seen to happen, and the cluster recovered.",
    "invalid": "The system under test broke a promise; see below what and how.",
    "unknown": "This run proves nothing either way; the reasons are below.",
    "unfinished": "This run ended before it was judged.",
}

QUESTIONS: tuple[tuple[str, str, dict[str, str]], ...] = (
    ("safety", "Did the database keep its promises?", {"True": "yes", "False": "no", "unknown": "can't tell"}),
    ("adequacy", "Did the run do enough to mean anything?", {"True": "yes", "False": "no: vacuous"}),
    ("liveness", "Did the cluster recover after the last fault?", {"True": "yes", "False": "no"}),
    ("harness", "Did the harness itself work?", {"True": "yes", "False": "no"}),
)
"""Field of the verdict, the question it answers, and the answers in words (else `can't tell`)."""


def seconds(ns: object) -> str:
    """A time since the run's start, `12.345 s` with an unbreakable space; a dash for none."""
    return f"{ns / 1e9:.3f}\u00a0s" if isinstance(ns, int | float) else "–"


def duration(ns: float) -> str:
    """A length of time with a unit that fits."""
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if ns >= size:
            return f"{ns / size:.3g}\u00a0{unit}"
    return f"{ns:.0f}\u00a0ns"


def operation(op: Mapping[str, Any]) -> str:
    """What an operation of an anomaly did, from its micro-operations."""
    mops = op.get("mops")
    if isinstance(mops, list | tuple) and mops:
        return "; ".join(micro_operation(mop) for mop in mops)
    return str(op.get("f", "?"))


def micro_operation(mop: Any) -> str:
    """One micro-operation, given as an object or in the array form of `harness.ops.Mop`."""
    if isinstance(mop, list | tuple):
        names = ("f", "partition", "value", "expected", "values", "table", "row", "column")
        mop = dict(zip(names, mop, strict=False))
    if not isinstance(mop, Mapping):
        return str(mop)
    f, key, value = mop.get("f"), mop.get("partition"), mop.get("value")
    if mop.get("values") is not None:
        value = list(mop["values"])
    if f == "r":
        return f"read key {key} → {shown(value)}"
    if f == "w":
        return f"write {shown(value)} to key {key}"
    if f == "cas":
        return f"cas key {key} from {shown(mop.get('expected'))} to {shown(value)}"
    return f"{f} key {key} {shown(value)}"


def shown(value: object) -> str:
    """A value; `nil` for none."""
    return "nil" if value is None else str(value)


def count(number: int, noun: str) -> str:
    """`1 anomaly`, `2 anomalies`."""
    if number == 1:
        return f"1 {noun}"
    plural = noun[:-1] + "ies" if noun.endswith("y") else noun + "s"
    return f"{number:,} {plural}"


def fault_name(fault: Fault) -> str:
    """Kind and variant, where the variant says more than the kind."""
    return fault.kind if fault.variant in (None, fault.kind) else f"{fault.kind} {fault.variant}"
