"""What the checkers found, in words: each class of anomalies with its explained instances."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harness.verdict.faults import Fault
from results.drawing import timeline
from results.graph import cycle_in_words, draw_cycle
from results.markup import Markup, join, parse_markup, table, tag, void
from results.plots import data_uri
from results.words import count, fault_name, op_name, operation, seconds, shown

MAX_EXPLAINED = 5
MAX_OPS = 30


def findings(
    checkers: Mapping[str, Mapping[str, Any]], faults: Sequence[Fault] = (), colors: Mapping[str, str] | None = None
) -> Markup:
    """One block a checker, the ones with anomalies first; `colors` are CSS colours of the kinds of faults."""
    order = sorted(checkers, key=lambda name: {"False": 0, "unknown": 1}.get(str(checkers[name].get("valid")), 2))
    return join(checker_block(name, checkers[name], faults, colors or {}) for name in order)


def checker_block(
    name: str, verdict: Mapping[str, Any], faults: Sequence[Fault] = (), colors: Mapping[str, str] | None = None
) -> Markup:
    """A checker's word, its figures, what it rules out, and its anomalies explained and drawn."""
    word = {"True": "valid", "False": "invalid"}.get(str(verdict.get("valid")), "unknown")
    anomalies = _object(verdict.get("anomalies"))
    counts = _object(verdict.get("counts"))
    kinds = list(dict.fromkeys([*anomalies, *(kind for kind, number in counts.items() if number)]))
    figures = [_judged(verdict)]
    if isinstance(verdict.get("seconds"), int | float):
        figures.append(f"checked in {verdict['seconds']:.2f} s")
    if verdict.get("engine"):
        figures.append(f"by the {verdict['engine']} engine")
    heading = tag(
        "h3", tag("span", word, class_=f"badge {word}"), f" {name} ", tag("small", ", ".join(filter(None, figures)))
    )
    reason = tag("p", verdict["reason"]) if verdict.get("reason") else None
    nothing = tag("p", "Nothing wrong was found.", class_="quiet") if word == "valid" and not kinds else None
    found = [_class(kind, counts.get(kind), anomalies.get(kind), faults, colors or {}) for kind in kinds]
    return tag("section", heading, reason, _models(verdict), nothing, *found, class_="checker")


def _judged(verdict: Mapping[str, Any]) -> str | None:
    """Of how much it is the word: operations, or checks inside the database."""
    checked = _object(_object(verdict.get("details")).get("checked"))
    if checked:
        return f"{count(sum(checked.values()), 'check')} of {count(len(checked), 'invariant')}"
    return f"{verdict['ops']:,} operations" if isinstance(verdict.get("ops"), int) else None


def _models(verdict: Mapping[str, Any]) -> Markup | None:
    """Which consistency models can't hold any more, and which level does."""
    lines = [f"The strongest level that holds: {verdict['strongest']}."] if verdict.get("strongest") else []
    weakest, stronger = (_texts(verdict.get(name)) for name in ("not", "also-not"))
    if weakest:
        also = f"; and so is all that is stronger: {', '.join(stronger)}" if stronger else ""
        lines.append(f"Ruled out: {', '.join(weakest)}{also}.")
    return tag("p", " ".join(lines)) if lines else None


def _texts(value: object) -> list[str]:
    return [str(item) for item in value] if isinstance(value, list | tuple) else []


def _class(kind: str, total: object, explained: object, faults: Sequence[Fault], colors: Mapping[str, str]) -> Markup:
    instances = [item for item in explained if isinstance(item, dict)] if isinstance(explained, list | tuple) else []
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
    details = _object(item.get("details"))
    return tag(
        "article",
        tag("p", item.get("message", "no explanation was saved"), class_="message"),
        _tear(_object(details.get("tear"))),
        _cycle(steps, ops),
        _steps(steps),
        timeline(ops, faults, colors, steps, details),
        _states(details),
        tag("details", tag("summary", count(len(ops), "operation")), _ops(ops, faults)) if ops else None,
        class_="anomaly",
    )


def _cycle(steps: Sequence[Mapping[str, Any]], ops: Sequence[Mapping[str, Any]]) -> Markup | None:
    """A picture of the steps if they are a cycle."""
    picture = draw_cycle(steps, ops)
    if picture is None:
        return None
    image = void("img", src=data_uri(picture), alt=cycle_in_words(steps), class_="cycle")
    return tag("div", image, class_="scroll picture")


def _steps(steps: Sequence[Mapping[str, Any]]) -> Markup | None:
    if not steps:
        return None
    lines = [
        tag(
            "li",
            tag("b", f"{op_name(step.get('source'))} → {op_name(step.get('target'))}"),
            f" ({step.get('kind', '?')}): ",
            step.get("why", ""),
        )
        for step in steps
    ]
    return tag("ol", *lines, class_="steps")


MARKS: Mapping[str, tuple[str, str]] = {
    "the write": ("shown", "shown"),
    "gone": ("shown", "gone"),
    "older": ("older", "older"),
    "newer": ("newer", "newer"),
    "nothing": ("older", "absent"),
    "not asked": ("unasked", ""),
}
"""How a cell of a torn mutation is drawn that a page shows so: its style, and the word in it."""

WRITTEN: Mapping[str, str] = {"the write": "written", "gone": "deleted"}
"""What stands in the line of the mutation itself."""


def _tear(tear: Mapping[str, Any]) -> Markup | None:
    """Which rows of a torn write were seen and which not: the write, then reads as they began, the torn one last."""
    lines = [line for line in tear.get("lines") or () if isinstance(line, dict)]
    if not lines:
        return None
    header = tag("tr", tag("th", "what was seen of the write"), *(tag("th", name) for name in _texts(tear["columns"])))
    body = []
    for number, line in enumerate(lines):
        name = tag("b", op_name(line.get("op")))
        cells = [MARKS.get(mark, ("unasked", mark)) for mark in _texts(line.get("marks"))]
        words = [word for _, word in cells]
        if number == 0:
            words = [WRITTEN.get(mark, mark) for mark in _texts(line.get("marks"))]
        drawn = (tag("td", word, class_=f"cell {style}") for (style, _), word in zip(cells, words, strict=True))
        torn = "torn" if number == len(lines) - 1 else None
        body.append(tag("tr", tag("td", name, " ", line.get("what", "")), *drawn, class_=torn))
    return tag("div", tag("table", tag("thead", header), tag("tbody", *body), class_="tear"), class_="scroll")


def _states(details: Mapping[str, Any]) -> Markup | None:
    """What a stuck search could be in, and why nothing can go next."""
    states = details.get("states")
    states = [state for state in states if isinstance(state, dict)] if isinstance(states, list | tuple) else []
    if not states:
        return None
    rows = [[shown(state.get("state")), _names(state.get("done")), state.get("why", "")] for state in states[:MAX_OPS]]
    header = ["the state may be", "open operations that have taken effect in it", "why none can go next"]
    if not any("done" in state for state in states):
        header, rows = [header[0], header[2]], [[state, why] for state, _, why in rows]
    return table(header, rows, "small")


def _names(ops: object) -> str:
    return ", ".join(op_name(op) for op in ops) or "none" if isinstance(ops, list | tuple) else "none"


def _ops(ops: Sequence[Mapping[str, Any]], faults: Sequence[Fault]) -> Markup:
    header = ("operation", "process", "node", "what", "type", "invoked", "completed", "index", "faults in effect")
    rows = [
        (
            op_name(op.get("op")),
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


FOREVER_NS = 2**63 - 1
"""Until when a fault lasts that never ended."""


def in_effect(op: Mapping[str, Any], faults: Sequence[Fault]) -> list[str]:
    """Faults that were in effect at some moment of the operation."""
    begin, end = op.get("invoke_time"), op.get("complete_time")
    if not isinstance(begin, int):
        return []
    return [
        f"{fault_name(fault)} {' '.join(fault.targets)}"
        for fault in faults
        if any(last >= begin and (not isinstance(end, int) or first <= end) for first, last in fault.seen(FOREVER_NS))
    ]


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
