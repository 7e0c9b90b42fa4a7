"""What the checkers found, in words: each class of anomalies with its explained instances."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harness.faults import Fault
from results.drawing import timeline
from results.markup import Markup, join, parse_markup, table, tag
from results.saved import Saved
from results.words import count, fault_name, operation, seconds

MAX_EXPLAINED = 5
MAX_OPS = 30


def findings(saved: Saved, colors: Mapping[str, str]) -> Markup:
    """One block a checker, the ones with anomalies first."""
    if not saved.checkers:
        return tag("p", "No checker judged this run.")
    order = sorted(
        saved.checkers, key=lambda name: {"False": 0, "unknown": 1}.get(str(saved.checkers[name].get("valid")), 2)
    )
    return join(_checker(name, saved.checkers[name], saved.faults, colors) for name in order)


def _checker(name: str, verdict: Mapping[str, Any], faults: Sequence[Fault], colors: Mapping[str, str]) -> Markup:
    word = {"True": "valid", "False": "invalid"}.get(str(verdict.get("valid")), "unknown")
    anomalies = _object(verdict.get("anomalies"))
    counts = _object(verdict.get("counts"))
    kinds = list(dict.fromkeys([*anomalies, *(kind for kind, number in counts.items() if number)]))
    figures = [f"{verdict['ops']:,} operations" if isinstance(verdict.get("ops"), int) else None]
    if isinstance(verdict.get("seconds"), int | float):
        figures.append(f"checked in {verdict['seconds']:.2f} s")
    if verdict.get("engine"):
        figures.append(f"by the {verdict['engine']} engine")
    heading = tag(
        "h3", tag("span", word, class_=f"badge {word}"), f" {name} ", tag("small", ", ".join(filter(None, figures)))
    )
    reason = tag("p", verdict["reason"]) if verdict.get("reason") else None
    nothing = tag("p", "Nothing wrong was found.", class_="quiet") if word == "valid" and not kinds else None
    found = [_class(kind, counts.get(kind), anomalies.get(kind), faults, colors) for kind in kinds]
    return tag("section", heading, reason, nothing, *found, class_="checker")


def _class(kind: str, total: object, explained: object, faults: Sequence[Fault], colors: Mapping[str, str]) -> Markup:
    instances = [item for item in explained if isinstance(item, dict)] if isinstance(explained, list) else []
    number = total if isinstance(total, int) else len(instances)
    shown = instances[:MAX_EXPLAINED]
    more = number - len(shown)
    rest = (
        tag("p", f"… and {count(more, 'further anomaly')} of this class.", class_="quiet")
        if more > 0 and shown
        else None
    )
    heading = tag("h4", f"{kind} ", tag("small", count(number, "anomaly")))
    return tag("div", heading, *(_anomaly(item, faults, colors) for item in shown), rest)


def _anomaly(item: Mapping[str, Any], faults: Sequence[Fault], colors: Mapping[str, str]) -> Markup:
    ops = [op for op in item.get("ops") or () if isinstance(op, dict)]
    steps = [step for step in item.get("steps") or () if isinstance(step, dict)]
    return tag(
        "article",
        tag("p", item.get("message", "no explanation was saved"), class_="message"),
        timeline(ops, faults, colors),
        _steps(steps),
        tag("details", tag("summary", count(len(ops), "operation")), _ops(ops, faults)) if ops else None,
        class_="anomaly",
    )


def _steps(steps: Sequence[Mapping[str, Any]]) -> Markup | None:
    if not steps:
        return None
    lines = [
        tag(
            "li",
            tag("b", f"{step.get('source')} → {step.get('target')}"),
            f" ({step.get('kind', '?')}): ",
            step.get("why", ""),
        )
        for step in steps
    ]
    return tag("ol", *lines, class_="steps")


def _ops(ops: Sequence[Mapping[str, Any]], faults: Sequence[Fault]) -> Markup:
    header = ("operation", "process", "node", "what", "type", "invoked", "completed", "index", "faults in effect")
    rows = [
        (
            op.get("op"),
            op.get("process"),
            op.get("node"),
            operation(op),
            op.get("type", parse_markup("")),
            seconds(op.get("invoke_time")),
            seconds(op.get("complete_time")),
            f"{op.get('invoke_index', '?')} – {shown_index(op.get('complete_index'))}",
            ", ".join(in_effect(op, faults)) or "none",
        )
        for op in ops[:MAX_OPS]
    ]
    return table(header, rows)


def shown_index(index: object) -> str:
    """A position in the history, or `never`."""
    return "never" if index is None else str(index)


def in_effect(op: Mapping[str, Any], faults: Sequence[Fault]) -> list[str]:
    """Faults that were in effect at some moment of the operation."""
    begin, end = op.get("invoke_time"), op.get("complete_time")
    if not isinstance(begin, int):
        return []
    return [
        f"{fault_name(fault)} {' '.join(fault.targets)}"
        for fault in faults
        if fault.observed_ns is not None
        and (not isinstance(end, int) or fault.observed_ns <= end)
        and (fault.healed_ns is None or fault.healed_ns >= begin)
    ]


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
