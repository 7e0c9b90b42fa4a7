"""Drawings of anomalies in time: operations as bars, the reasons as arrows, the faults in effect behind them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from checkers.source import AGAINST_ORDER, NO_CLOCK, SESSIONS_CLOCK
from harness.verdict.faults import Fault
from results.graph import KIND_COLORS, OTHER_COLOR
from results.markup import Markup, tag
from results.words import OUTCOME_COLORS, duration, fault_name, operation, outcome

WIDTH, LABEL_WIDTH, ROW_HEIGHT, MARGIN = 1000, 330, 28, 22
MIN_BAR = 4
MAX_ROWS = 40
FOCUS = 20
"""How many times longer the whole must last than what is certain, for only the latter's surroundings to be drawn."""
MAX_LABEL = 42
"""Letters of an operation beside its bar; the whole of it is in the tooltip and in the table below."""

STUCK_COLOR, BEFORE_COLOR = "#b00020", "#8fa3b5"
ROLE_WORDS: Final = {"stuck": "can't go next", "before": "has taken effect", "open": "still open"}
ROLE_COLORS: Final = {"stuck": STUCK_COLOR, "before": BEFORE_COLOR}
ORDERS: Final = ("realtime", "process", "so", "session")
"""Kinds of steps that are orders of time."""

UNTIMED: Final = (NO_CLOCK, SESSIONS_CLOCK, AGAINST_ORDER)
"""`clock` of operations that are drawn by the order of events."""


@dataclass(frozen=True, slots=True)
class Scale:
    """Where a moment (ns, or the index of an event where there are no times) lies on the drawing."""

    begin: float
    length: float
    by_index: bool

    def x(self, moment: float) -> float:
        share = min(max((moment - self.begin) / self.length, 0.0), 1.0)
        return round(LABEL_WIDTH + share * (WIDTH - LABEL_WIDTH - 8), 1)

    def began(self, op: Mapping[str, Any]) -> float:
        found = op.get("invoke_index" if self.by_index else "invoke_time")
        return float(found) if isinstance(found, int) else self.begin

    def ended(self, op: Mapping[str, Any]) -> float | None:
        """None for an operation that never completed, or whose completion says nothing."""
        found = op.get("complete_index" if self.by_index else "complete_time")
        return float(found) if isinstance(found, int) else None


def timeline(
    ops: Sequence[Mapping[str, Any]],
    faults: Sequence[Fault],
    colors: Mapping[str, str],
    steps: Sequence[Mapping[str, Any]] = (),
    details: Mapping[str, Any] | None = None,
) -> Markup | None:
    """One row an operation, in order of invocation; None when there are no times and no event indices to draw by.

    `steps` are drawn as arrows. `details` of a stuck search (`checkers.verdict.Anomaly`) give operations their roles.
    """
    roles = roles_of(details or {})
    by_index = any(op.get("clock") in UNTIMED or not isinstance(op.get("invoke_time"), int) for op in ops)
    begin_of = "invoke_index" if by_index else "invoke_time"
    timed = sorted((op for op in ops if isinstance(op.get(begin_of), int)), key=lambda op: (op[begin_of], str(op)))
    if not timed:
        return None
    timed = _most_telling(timed, roles)
    scale = scale_of(timed, by_index)
    height = MARGIN * 2 + ROW_HEIGHT * len(timed)
    shades = [] if by_index else _shades(faults, colors, scale, height)
    rows = [_row(op, number, scale, roles.get(str(op.get("op")))) for number, op in enumerate(timed)]
    places = {str(op.get("op")): (number, op) for number, op in enumerate(timed)}
    arrows = [_arrow(step, places, scale) for step in steps]
    return tag(
        "svg",
        *shades,
        *rows,
        *(arrow for arrow in arrows if arrow is not None),
        _stuck_line(timed, roles, scale, height),
        *_axis(scale, height),
        viewBox=f"0 0 {WIDTH} {height}",
        class_="timeline",
        role="img",
        aria_label=f"{len(timed)} operations in time, one a row; the table below lists them",
    )


def roles_of(details: Mapping[str, Any]) -> dict[str, str]:
    """`stuck`, `before` or `open` by operation, from an anomaly's details."""
    roles: dict[str, str] = {}
    for role in ("before", "open"):
        found = details.get(role)
        roles |= {str(op): role for op in found} if isinstance(found, list | tuple) else {}
    return roles | ({str(details["stuck"]): "stuck"} if details.get("stuck") is not None else {})


def _most_telling(timed: Sequence[Mapping[str, Any]], roles: Mapping[str, str]) -> list[Mapping[str, Any]]:
    """The last operations, where there are too many, and what is stuck or open in any case."""
    if len(timed) <= MAX_ROWS:
        return list(timed)
    telling = [op for op in timed if roles.get(str(op.get("op"))) in ("stuck", "open")][:MAX_ROWS]
    rest = [op for op in timed if op not in telling]
    kept = [*rest[len(rest) + len(telling) - MAX_ROWS :], *telling]
    return [op for op in timed if op in kept]


def scale_of(timed: Sequence[Mapping[str, Any]], by_index: bool) -> Scale:
    """From the first invocation to the last event, with a margin; only around those known to have completed where the
    others would make them too small to see."""
    certain = [op for op in timed if op.get("type", "ok") == "ok"]
    whole, near = _extent(timed, by_index), _extent(certain, by_index)
    begin, end = near if certain and (near[1] - near[0]) * FOCUS < whole[1] - whole[0] else whole
    length = max(end - begin, 1 if by_index else 1_000)
    return Scale(begin - length / 20, length * 1.1, by_index)


def _extent(ops: Sequence[Mapping[str, Any]], by_index: bool) -> tuple[float, float]:
    plain = Scale(0, 1, by_index)
    moments = [plain.began(op) for op in ops] + [end for op in ops if (end := plain.ended(op)) is not None]
    return min(moments, default=0), max(moments, default=0)


def _row(op: Mapping[str, Any], number: int, scale: Scale, role: str | None) -> Markup:
    top = MARGIN + number * ROW_HEIGHT
    end = scale.ended(op)
    open_end = end is None or op.get("type") == "info"
    left, right = scale.x(scale.began(op)), scale.x(scale.begin + scale.length if end is None else end)
    color = ROLE_COLORS.get(role or "", OUTCOME_COLORS.get(outcome(op), OUTCOME_COLORS["ok"]))
    label = operation(op)
    who = f"T{op.get('op', '?')}, process {op.get('process', '?')}" + (f", {op['node']}" if op.get("node") else "")
    who += f" · {ROLE_WORDS[role]}" if role else ""
    bar = {"x": left, "y": top + 5, "width": max(right - left, MIN_BAR), "height": 14, "rx": 3}
    earlier = scale.began(op) < scale.begin
    tail = None
    if open_end and end is not None:
        tail = tag("line", x1=right, x2=WIDTH - 8, y1=top + 12, y2=top + 12, stroke=color, stroke_dasharray="3 4")
    return tag(
        "g",
        tag("title", f"{who}: {label}, {_lasted(op, scale)}"),
        tag("text", _short(label), x=LABEL_WIDTH - 12, y=top + 11, text_anchor="end", class_="op"),
        tag("text", who, x=LABEL_WIDTH - 12, y=top + 22, text_anchor="end", class_="who"),
        tag("line", x1=LABEL_WIDTH, x2=WIDTH - 8, y1=top + 12, y2=top + 12, stroke="#e6eaee"),
        tail,
        tag("rect", **bar, fill=color, fill_opacity=0.45 if open_end else 1),
        tag("text", "◂", x=LABEL_WIDTH - 9, y=top + 16, class_="who") if earlier else None,
    )


def _short(label: str) -> str:
    return label if len(label) <= MAX_LABEL else label[: MAX_LABEL - 1] + "…"


def _lasted(op: Mapping[str, Any], scale: Scale) -> str:
    end = scale.ended(op)
    if end is None:
        return "never completed"
    if scale.by_index:
        return f"events {op.get('invoke_index')} to {op.get('complete_index')}"
    return duration(end - scale.began(op))


def _arrow(step: Mapping[str, Any], places: Mapping[str, tuple[int, Mapping[str, Any]]], scale: Scale) -> Markup | None:
    """From the earlier operation's bar to the later one's."""
    source, target = places.get(str(step.get("source"))), places.get(str(step.get("target")))
    if source is None or target is None or source[0] == target[0]:
        return None
    x1, x2 = _ends(step, source[1], target[1], scale)
    y1, y2 = (MARGIN + place * ROW_HEIGHT + 12 for place in (source[0], target[0]))
    color = KIND_COLORS.get(str(step.get("kind")), OTHER_COLOR)
    down = 1 if y2 > y1 else -1
    tip = y2 - down * 8
    path = f"M {x1} {y1} C {x1} {(y1 + tip) / 2}, {x2} {(y1 + tip) / 2}, {x2} {tip - down * 4}"
    return tag(
        "g",
        tag("title", f"{step.get('kind', '?')}: {step.get('why', '')}"),
        tag("path", d=path, fill="none", stroke="#ffffff", stroke_width=4),
        tag("path", d=path, fill="none", stroke=color, stroke_width=1.8),
        tag("circle", cx=x1, cy=y1, r=3, fill=color, stroke="#ffffff"),
        tag("path", d=f"M {x2} {tip} l -3.5 {-6 * down} l 7 0 z", fill=color),
    )


def _ends(
    step: Mapping[str, Any], source: Mapping[str, Any], target: Mapping[str, Any], scale: Scale
) -> tuple[float, float]:
    """Where an arrow leaves and arrives: orders lead from an end to a beginning, dependencies of operations that
    overlap go straight, at a moment when both were open."""
    begins = scale.x(scale.began(source)), scale.x(scale.began(target))
    ends = tuple(
        scale.x(scale.begin + scale.length if (end := scale.ended(op)) is None else end) for op in (source, target)
    )
    if str(step.get("kind")) in ORDERS or ends[0] <= begins[1]:
        return ends[0], begins[1]
    if ends[1] <= begins[0]:
        return begins[0], ends[1]
    middle = round((max(begins) + min(ends)) / 2, 1)
    return middle, middle


def _stuck_line(
    timed: Sequence[Mapping[str, Any]], roles: Mapping[str, str], scale: Scale, height: int
) -> Markup | None:
    """The moment by which the stuck operation had to take effect."""
    for op in timed:
        end = scale.ended(op)
        if roles.get(str(op.get("op"))) == "stuck" and end is not None:
            x = scale.x(end)
            right = x > (LABEL_WIDTH + WIDTH) / 2
            words = tag(
                "text",
                "stuck here",
                x=x - 4 if right else x + 4,
                y=14,
                text_anchor="end" if right else "start",
                class_="who",
            )
            line = tag("line", x1=x, x2=x, y1=6, y2=height - MARGIN, stroke=STUCK_COLOR, stroke_dasharray="4 3")
            return tag("g", line, words)
    return None


def _shades(faults: Sequence[Fault], colors: Mapping[str, str], scale: Scale, height: int) -> list[Markup]:
    """The faults in effect, each with its name, one name below the other."""
    end_ns = int(scale.begin + scale.length)
    drawn: list[Markup] = []
    for fault in faults:
        spans = [span for span in fault.seen(end_ns) if span[1] >= scale.begin and span[0] <= end_ns]
        if spans:
            drawn.append(_shade(fault, spans, colors, scale, height, 14 + 10 * len(drawn)))
    return drawn


def _shade(
    fault: Fault,
    spans: Sequence[tuple[int, int]],
    colors: Mapping[str, str],
    scale: Scale,
    height: int,
    name_y: int,
) -> Markup:
    boxes = [
        tag(
            "rect",
            x=scale.x(first_ns),
            y=4,
            width=max(scale.x(last_ns) - scale.x(first_ns), 1),
            height=height - MARGIN,
            fill=colors[fault.kind],
            opacity=0.16,
        )
        for first_ns, last_ns in spans
    ]
    return tag("g", *boxes, tag("text", fault_name(fault), x=scale.x(spans[0][0]) + 3, y=name_y, class_="who"))


def _axis(scale: Scale, height: int) -> list[Markup]:
    begin = scale.begin + scale.length / 22
    end = begin + scale.length / 1.1
    labels = [(begin, f"{begin / 1e9:.4f} s"), (end, f"+ {duration(end - begin)}")]
    if scale.by_index:
        labels = [(begin, f"event {begin:.0f}"), (end, f"event {end:.0f}")]
    return [
        tag("text", label, x=scale.x(moment), y=height - 6, text_anchor="middle", class_="who")
        for moment, label in labels
    ]
