"""The section of the report on anomalies by key and time: a picture to zoom into and to point at, and a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.verdict.faults import Fault
from results.drawing import BAR_COLORS
from results.markup import Markup, join, parse_markup, table, tag
from results.neighbours import MOST_GROUPS, FindingGroup, keys_of, lanes
from results.words import count, duration, fault_name, op_name, operation, seconds

WIDTH, LABEL_WIDTH, LANE, TOP = 1000, 110, 24, 20
MIN_BAR = 3
LETTER = 6.2
"""How wide a letter of a bar's label is."""

SCRIPT = Path(__file__).parent / "zoom.js"


def around(groups: Sequence[FindingGroup], faults: Sequence[Fault], colors: Mapping[str, str]) -> Markup | None:
    """One article a group; None without any."""
    drawn = [_article(group, faults, colors) for group in groups[:MOST_GROUPS] if group.neighbours]
    if not drawn:
        return None
    more = len(groups) - MOST_GROUPS
    rest = tag("p", f"… and {more} more groups.", class_="quiet") if more > 0 else None
    script = tag("script", parse_markup(SCRIPT.read_text(encoding="utf-8")))
    return join((*drawn, rest, script))


def title(group: FindingGroup) -> str:
    """Keys, window and classes in words."""
    keys = ", ".join(f"{partition}" if not of else f"{partition} of table {of}" for of, partition in sorted(group.keys))
    kinds = ", ".join(f"{number} × {kind}" for kind, number in group.kinds.items())
    noun = "key" if len(group.keys) == 1 else "keys"
    return f"{noun} {keys}, {seconds(group.begin_ns)} to {seconds(group.end_ns)}: {kinds}"


def _article(group: FindingGroup, faults: Sequence[Fault], colors: Mapping[str, str]) -> Markup:
    left = f", and {group.left_out:,} more further away that are left out" if group.left_out else ""
    words = (
        f"{count(len(group.neighbours), 'operation')} of these keys and of the processes that took part{left}. "
        "Framed: those of the anomalies; pale: of other keys."
    )
    buttons = [tag("button", label, type="button", data_zoom=step) for label, step in (("+", "in"), ("−", "out"))]
    buttons += [tag("button", label, type="button", data_zoom=step) for label, step in (("◂", "left"), ("▸", "right"))]
    buttons.append(tag("button", "all", type="button", data_zoom="all"))
    hint = tag("span", "or drag, and turn the wheel with ctrl", class_="quiet")
    return tag(
        "article",
        tag("h4", title(group)),
        tag("p", words, class_="quiet"),
        tag("div", *buttons, hint, class_="zoom"),
        tag("div", _picture(group, faults, colors), class_="scroll"),
        tag("details", tag("summary", count(len(group.neighbours), "operation")), _table(group)),
        class_="panel around",
    )


def _picture(group: FindingGroup, faults: Sequence[Fault], colors: Mapping[str, str]) -> Markup:
    begin_ns, end_ns = group.around
    of_process = lanes(group.neighbours)
    height = TOP + LANE * len(of_process) + TOP

    def x(moment_ns: float) -> float:
        share = min(max((moment_ns - begin_ns) / (end_ns - begin_ns), 0.0), 1.0)
        return round(LABEL_WIDTH + share * (WIDTH - LABEL_WIDTH), 1)

    shades = [
        tag("rect", x=x(a), y=0, width=max(x(b) - x(a), 1), height=height - TOP, fill=colors.get(fault.kind, "#888888"),
            opacity=0.14, data_begin=a, data_end=b, data_tip=f"{fault_name(fault)} {' '.join(fault.targets)}")
        for fault in faults
        for a, b in fault.seen(end_ns)
        if b >= begin_ns and a <= end_ns
    ]  # fmt: skip
    bars = [_bar(op, group, TOP + LANE * lane, x) for lane, ops in enumerate(of_process.values()) for op in ops]
    labels = [
        tag("text", f"process {process}", x=LABEL_WIDTH - 8, y=TOP + LANE * lane + 15, text_anchor="end", class_="who")
        for lane, process in enumerate(of_process)
    ]
    axis = [
        tag("text", seconds(moment), x=LABEL_WIDTH if end == "start" else WIDTH - 4, y=height - 5, text_anchor=end,
            class_="who", data_axis=end)
        for moment, end in ((begin_ns, "start"), (end_ns, "end"))
    ]  # fmt: skip
    mask = tag("rect", x=0, y=0, width=LABEL_WIDTH - 2, height=height, fill="#ffffff")
    return tag(
        "svg", tag("g", *shades, *bars), mask, *labels, *axis,
        viewBox=f"0 0 {WIDTH} {height}", class_="timeline zoomable", role="img", tabindex=0,
        data_from=begin_ns, data_to=end_ns, data_left=LABEL_WIDTH, data_width=WIDTH - LABEL_WIDTH,
        aria_label=f"{title(group)}; operations by process, listed in the table below",
    )  # fmt: skip


def _bar(op: Mapping[str, Any], group: FindingGroup, top: int, x: Any) -> Markup:
    begin, end = op["invoke_time"], op["complete_time"]
    last = group.around[1] if end is None else end
    own, here = op["op"] in group.ops, not group.keys.isdisjoint(keys_of(op))
    width = max(x(last) - x(begin), MIN_BAR)
    lasted = "never completed" if end is None else duration(end - begin)
    what = operation(op)
    tip = f"{op_name(op['op'])}: {what} · {op['type']} · {op['node'] or 'no node'} · {seconds(begin)}, {lasted}"
    shape = {"x": x(begin), "y": top + 4, "width": width, "height": 15, "rx": 2, "data_begin": begin, "data_end": last}
    label = tag("text", what, x=x(begin) + 3, y=top + 15, class_="label", data_begin=begin, data_end=last,
                style=None if len(what) * LETTER < width else "display:none")  # fmt: skip
    bar = tag(
        "rect",
        tag("title", tip),
        **shape,
        fill=BAR_COLORS.get(op["type"], BAR_COLORS["ok"]),
        fill_opacity=(0.9 if op["type"] == "ok" else 0.55) if here else 0.2,
        stroke="#b00020" if own else None,
        stroke_width=2.5 if own else None,
        data_tip=tip,
    )
    return join((bar, label))


def _table(group: FindingGroup) -> Markup:
    header = ("operation", "process", "node", "what", "type", "invoked", "completed", "in an anomaly")
    rows = [
        (
            op_name(op["op"]), op["process"], op["node"], operation(op), op["type"], seconds(op["invoke_time"]),
            seconds(op["complete_time"]), "yes" if op["op"] in group.ops else "",
        )
        for op in sorted(group.neighbours, key=lambda op: op["invoke_time"])
    ]  # fmt: skip
    return table(header, rows, "small")
