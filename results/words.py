"""Operations, times and verdicts in words for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.errors import ELSEWHERE, shortened
from harness.verdict.faults import Fault

MOST_ITEMS = 16
"""Items of a list that are shown."""

PREPOSITIONS = {"dequeue": "from", "drain": "from", "remove": "from", "generate": "for", "read": "from"}
"""How a micro-operation's value goes with its key, where not by `to`."""

OUTCOME_COLORS = {"ok": "#2f6fab", "info": "#e0962a", ELSEWHERE: "#8a94a0", "fail": "#b23a6b"}
"""How an operation is drawn, by its outcome."""

VERDICT_WORDS = {
    "valid": "No check found anything wrong, the requested faults were seen to happen, and the cluster recovered.",
    "invalid": "The system under test broke a promise; see below what and how.",
    "unknown": "This run proves nothing either way; the reasons are below.",
    "unfinished": "This run ended before it was judged.",
}

WHY_WORDS = {
    "refuted": "A checker refuted the history, or an invariant broke.",
    "not-recovered": "The cluster did not recover within its budget.",
    "vacuous": "Too little happened.",
    "undecided": "A checker, or the look at the recovery, could not tell.",
    "interrupted": "The run was stopped before its end.",
    "harness": "Our own parts failed, or the files are not those of one whole run.",
}
"""What `why` says of a word that is not valid."""

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
        more = f"; … {op['left_out']:,} more" if op.get("left_out") else ""
        return "; ".join(micro_operation(mop) for mop in mops) + more
    return str(op.get("f", "?"))


def outcome(op: Mapping[str, Any]) -> str:
    """How an operation ended: its type, but that a node which says that others serve has answered (ELSEWHERE)."""
    return ELSEWHERE if op.get("error_class") == ELSEWHERE else str(op.get("type", "ok"))


def outcome_words(op: Mapping[str, Any]) -> str:
    """`ok`, `others serve it`, or `fail: timed out` with what it was told."""
    if outcome(op) == ELSEWHERE:
        return "others serve it"
    told = op.get("error") or op.get("error_class")
    return str(op.get("type", "")) + (f": {shown(told)}" if told else "")


def micro_operation(mop: Any) -> str:
    """One micro-operation, given as an object or in the array form of `harness.history.ops.Mop`."""
    if isinstance(mop, list | tuple):
        names = ("f", "partition", "value", "expected", "values", "table", "row", "column")
        mop = dict(zip(names, mop, strict=False))
    if not isinstance(mop, Mapping):
        return str(mop)
    f, key, value = mop.get("f"), address(mop), mop.get("value")
    if f == "page":
        return f"page of {key}{_bounds(mop.get('values'))}"
    if mop.get("values") is not None:
        value = list(mop["values"])
    left_out = mop.get("left_out", 0)
    if f == "r":
        return f"read {key} → {shown(value, left_out)}"
    if f == "w":
        return f"write {shown(value, left_out)} to {key}"
    if f == "cas":
        return f"cas {key} from {shown(mop.get('expected'))} to {shown(value)}"
    if value is None:
        return f"{f} {key}"
    return f"{f} {shown(value, left_out)} {PREPOSITIONS.get(str(f), 'to')} {key}"


def _bounds(values: object) -> str:
    """What a page covers: `, rows 2 to 5, limit 3`, as far as it was said."""
    first, last, limit, _ = (*values, *4 * (None,))[:4] if isinstance(values, list | tuple) else 4 * (None,)
    rows = "" if first is None and last is None else f", rows {first if first is not None else '…'} to "
    rows += "" if not rows else str(last if last is not None else "…")
    return rows + ("" if limit is None else f", limit {limit}")


def address(mop: Mapping[str, Any]) -> str:
    """`key 5`, with row, column and table where they are not the first."""
    words = f"key {shown(mop.get('partition'))}"
    words += "".join(f" {name} {shown(mop[name])}" for name in ("row", "column", "table") if mop.get(name))
    return words


def shown(value: object, left_out: int = 0) -> str:
    """A value, `shortened`; `nil` for none, `[1 2 3]` for a list, of which a long one shows its ends; `left_out`
    elements of it are not here, in its middle."""
    if isinstance(value, list | tuple):
        if left_out or len(value) > MOST_ITEMS:
            more = len(value) - MOST_ITEMS + 4 + left_out
            items = [*map(shown, value[:4]), f"… {more} more …", *map(shown, value[8 - MOST_ITEMS :])]
        else:
            items = [shown(item) for item in value]
        return f"[{' '.join(items)}]"
    return "nil" if value is None else shortened(str(value))


def op_name(op: object) -> str:
    """An operation by its number, as the explanations name it."""
    return "the initial state" if str(op) == "-1" else f"T{op}"


def named(op: object) -> str:
    """What the name of an operation stands for, in a sentence; nothing for none."""
    return "" if op is None else f"{op_name(op)} is the operation with the number {op} in the history."


def count(number: int, noun: str) -> str:
    """`1 anomaly`, `2 anomalies`."""
    if number == 1:
        return f"1 {noun}"
    plural = noun[:-1] + "ies" if noun.endswith("y") else noun + "s"
    return f"{number:,} {plural}"


def fault_name(fault: Fault) -> str:
    """Kind and variant, where the variant says more than the kind."""
    return fault.kind if fault.variant in (None, fault.kind) else f"{fault.kind} {fault.variant}"
