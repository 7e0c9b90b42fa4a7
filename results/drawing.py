"""Drawings of anomalies: the operations that show one as bars in time, with the faults in effect behind them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harness.faults import Fault
from results.markup import Markup, tag
from results.words import duration, fault_name, operation

WIDTH, LABEL_WIDTH, ROW_HEIGHT, MARGIN = 1000, 290, 26, 22
MIN_BAR = 4
MAX_ROWS = 40
BAR_COLORS = {"ok": "#2f6fab", "info": "#e0962a", "fail": "#b23a6b"}


def timeline(ops: Sequence[Mapping[str, Any]], faults: Sequence[Fault], colors: Mapping[str, str]) -> Markup | None:
    """One row an operation, in order of invocation; None when there are no times to draw."""
    timed = [op for op in ops if isinstance(op.get("invoke_time"), int)]
    timed = sorted(timed, key=lambda op: (op["invoke_time"], op.get("op", 0)))[:MAX_ROWS]
    if not timed:
        return None
    begin_ns = min(op["invoke_time"] for op in timed)
    ends = [op["complete_time"] for op in timed if isinstance(op.get("complete_time"), int)]
    end_ns = max([*ends, *(op["invoke_time"] for op in timed)])
    length_ns = max(end_ns - begin_ns, 1_000)
    scale = Scale(begin_ns - length_ns // 20, length_ns * 11 // 10)
    height = MARGIN * 2 + ROW_HEIGHT * len(timed)
    shades = [_shade(fault, colors, scale, height) for fault in faults]
    rows = [_row(op, number, scale) for number, op in enumerate(timed)]
    return tag(
        "svg",
        *(shade for shade in shades if shade is not None),
        *rows,
        *_axis(scale, begin_ns, begin_ns + length_ns, height),
        viewBox=f"0 0 {WIDTH} {height}",
        class_="timeline",
        role="img",
        aria_label="the operations of this anomaly in time",
    )


class Scale:
    """Where a time lies on the drawing."""

    def __init__(self, begin_ns: int, length_ns: int) -> None:
        self.begin_ns, self.length_ns = begin_ns, length_ns

    def x(self, ns: float) -> float:
        share = min(max((ns - self.begin_ns) / self.length_ns, 0.0), 1.0)
        return round(LABEL_WIDTH + share * (WIDTH - LABEL_WIDTH - 8), 1)


def _row(op: Mapping[str, Any], number: int, scale: Scale) -> Markup:
    top = MARGIN + number * ROW_HEIGHT
    left = scale.x(op["invoke_time"])
    completed = isinstance(op.get("complete_time"), int)
    right = scale.x(op["complete_time"]) if completed else scale.x(scale.begin_ns + scale.length_ns)
    color = BAR_COLORS.get(str(op.get("type", "ok")), BAR_COLORS["ok"])
    label = operation(op)
    who = f"operation {op.get('op', '?')}, process {op.get('process', '?')}" + (
        f", {op['node']}" if op.get("node") else ""
    )
    lasted = duration(op["complete_time"] - op["invoke_time"]) if completed else "never completed"
    return tag(
        "g",
        tag("title", f"{who}: {label}, {lasted}"),
        tag("text", label, x=LABEL_WIDTH - 12, y=top + 11, text_anchor="end", class_="op"),
        tag("text", who, x=LABEL_WIDTH - 12, y=top + 21, text_anchor="end", class_="who"),
        tag("line", x1=LABEL_WIDTH, x2=WIDTH - 8, y1=top + 12, y2=top + 12, stroke="#dde2e7"),
        tag(
            "rect",
            x=left,
            y=top + 5,
            width=max(right - left, MIN_BAR),
            height=14,
            rx=3,
            fill=color,
            fill_opacity=1 if completed else 0.45,
        ),
    )


def _shade(fault: Fault, colors: Mapping[str, str], scale: Scale, height: int) -> Markup | None:
    if fault.observed_ns is None:
        return None
    until_ns = fault.healed_ns if fault.healed_ns is not None else scale.begin_ns + scale.length_ns
    if until_ns < scale.begin_ns or fault.observed_ns > scale.begin_ns + scale.length_ns:
        return None
    left, right = scale.x(fault.observed_ns), scale.x(until_ns)
    box = tag(
        "rect", x=left, y=4, width=max(right - left, 1), height=height - MARGIN, fill=colors[fault.kind], opacity=0.16
    )
    label = tag("text", fault_name(fault), x=left + 3, y=14, class_="who")
    return tag("g", box, label)


def _axis(scale: Scale, begin_ns: int, end_ns: int, height: int) -> list[Markup]:
    labels = [(begin_ns, f"{begin_ns / 1e9:.4f} s"), (end_ns, f"+ {duration(end_ns - begin_ns)}")]
    return [tag("text", label, x=scale.x(ns), y=height - 6, text_anchor="middle", class_="who") for ns, label in labels]
