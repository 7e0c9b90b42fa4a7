"""What the checkers found, in words: each class of anomalies with its explained instances."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.errors import MOST_OF_A_SENTENCE, shortened
from harness.verdict.faults import FOREVER_NS, Fault
from harness.verdict.run_verdict import CHECKER
from results.causes import Card, beside, cards_of
from results.drawing import timeline
from results.graph import cycle_in_words, draw_cycle
from results.markup import Markup, join, table, tag, void
from results.node_logs import NodeLogs
from results.plots import data_uri
from results.words import count, fault_name, named, op_name, operation, outcome_words, seconds, shown

MAX_EXPLAINED = 5
MAX_OPS = 30


@dataclass(frozen=True, slots=True)
class Around:
    """What findings are told with: faults and the CSS colours of their kinds, when the history began (ns since the run
    did), the nodes' logs, and whether so little happened that nothing found is no praise."""

    faults: Sequence[Fault] = ()
    colors: Mapping[str, str] = field(default_factory=dict)
    history_start_ns: int = 0
    logs: NodeLogs | None = None
    proves_nothing: bool = False


def findings(checkers: Mapping[str, Mapping[str, Any]], around: Around | None = None) -> Markup:
    """One block a checker, the ones with anomalies first."""
    around = around or Around()
    order = sorted(checkers, key=lambda name: {"False": 0, "unknown": 1}.get(str(checkers[name].get("valid")), 2))
    cards = cards_of({name: checkers[name] for name in order}, around.history_start_ns)
    return join(checker_block(name, checkers[name], cards, around) for name in order)


def checker_block(
    name: str, verdict: Mapping[str, Any], cards: Sequence[Card] = (), around: Around | None = None
) -> Markup:
    """A checker's word, its figures, what it rules out, and its anomalies explained and drawn; `cards` are those of all
    checkers."""
    around = around or Around()
    word = {"True": "valid", "False": "invalid"}.get(str(verdict.get("valid")), "unknown")
    counts, mine = _object(verdict.get("counts")), [card for card in cards if card.checker == name]
    kinds = list(dict.fromkeys([*(card.kind for card in mine), *(kind for kind, number in counts.items() if number)]))
    figures = [_judged(verdict)]
    if isinstance(verdict.get("seconds"), int | float):
        figures.append(f"checked in {verdict['seconds']:.2f} s")
    if verdict.get("engine"):
        figures.append(f"by the {verdict['engine']} engine")
    style = "void" if word == "valid" and around.proves_nothing else word
    heading = tag(
        "h3", tag("span", word, class_=f"badge {style}"), f" {name} ", tag("small", ", ".join(filter(None, figures)))
    )
    reason = tag("p", verdict["reason"]) if verdict.get("reason") else None
    nothing = tag("p", "Nothing wrong was found.", class_="quiet") if word == "valid" and not kinds else None
    found = [_class(kind, counts.get(kind), [c for c in mine if c.kind == kind], cards, around) for kind in kinds]
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


def _class(kind: str, total: object, mine: Sequence[Card], cards: Sequence[Card], around: Around) -> Markup:
    number = total if isinstance(total, int) else sum(len(card.items) for card in mine)
    shown = mine[:MAX_EXPLAINED]
    more = number - sum(len(card.items) for card in shown)
    rest = (
        tag("p", f"… and {count(more, 'further anomaly')} of this class.", class_="quiet")
        if more > 0 and shown
        else None
    )
    heading = tag("h4", f"{kind} ", tag("small", count(number, "anomaly")))
    return tag("div", heading, *(_card(card, cards, around) for card in shown), rest)


def _card(card: Card, cards: Sequence[Card], around: Around) -> Markup:
    """What is wrong in one instance, how many are like it, and what else broke then."""
    item = card.items[0]
    ops = [op for op in item.get("ops") or () if isinstance(op, dict)]
    steps = [step for step in item.get("steps") or () if isinstance(step, dict)]
    details = _object(item.get("details"))
    times = tag("span", f"{len(card.items)} times", class_="badge times") if len(card.items) > 1 else None
    return tag(
        "article",
        tag("p", _message(item), " ", times, class_="message"),
        _tear(_object(details.get("tear"))),
        tag("p", named(ops[0].get("op")), class_="quiet") if ops else None,
        _cycle(steps, ops),
        _steps(steps),
        _scrolling(timeline(ops, around.faults, around.colors, steps, details)),
        _beside(card, cards),
        _states(details),
        tag("details", tag("summary", count(len(ops), "operation")), _ops(ops, around.faults)) if ops else None,
        _logs(card, ops, details, around),
        _alike(card),
        class_="anomaly",
        id=card.anchor,
    )


def _message(item: Mapping[str, Any]) -> str:
    return shortened(str(item.get("message", "no explanation was saved")), MOST_OF_A_SENTENCE)


def _scrolling(picture: Markup | None) -> Markup | None:
    return None if picture is None else tag("div", picture, class_="scroll wide")


def _beside(card: Card, cards: Sequence[Card]) -> Markup | None:
    """Links to what broke at the same time on the other side of the clients' view."""
    met = beside(card, cards)
    if not met:
        return None
    inside = card.checker == CHECKER
    words = "In the window of " if inside else "Meanwhile broke inside the database: "
    links = []
    for at_ns, other in met:
        name = f"{other.checker}: {other.kind}" if inside else other.kind
        links += [", ", tag("a", f"{name} at {seconds(at_ns)}", href=f"#{other.anchor}")]
    return tag("p", words, *links[1:], class_="beside")


def _alike(card: Card) -> Markup | None:
    """The other instances, in their words."""
    others = card.items[1:]
    if not others:
        return None
    lines = [tag("li", _message(item)) for item in others]
    return tag("details", tag("summary", f"{len(others)} more like it"), tag("ul", *lines))


def _logs(card: Card, ops: Sequence[Mapping[str, Any]], details: Mapping[str, Any], around: Around) -> Markup | None:
    """The logs of the nodes that took part, at the end of the first window."""
    if around.logs is None or not card.windows:
        return None
    nodes = [*(op.get("node") for op in ops), *_texts(details.get("nodes"))]
    return around.logs.at(nodes, card.windows[0][1])


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
            outcome_words(op),
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
        if any(last >= begin and (not isinstance(end, int) or first <= end) for first, last in fault.seen(FOREVER_NS))
    ]


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
