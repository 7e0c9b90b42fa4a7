"""Anomalies grouped by key and time, each group with its neighbours: all that its keys and processes did around it.

The report shows a group as a picture to zoom into and to point at, and as a table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from checkers.source import EVIDENCE_COLUMNS, Source
from harness.verdict.faults import Fault
from results.markup import Markup, join, parse_markup, table, tag
from results.words import (
    OUTCOME_COLORS,
    count,
    duration,
    fault_name,
    named,
    op_name,
    operation,
    outcome,
    outcome_words,
    seconds,
)

Key = tuple[int, int]
"""Table and partition: what fails together, and what clients name."""

AROUND_NS = 100_000_000
"""So long before and after a group its neighbours are drawn, or half as long as it lasts, if that is more."""
GROUP_GAP_NS = 1_000_000_000
"""Anomalies of one key that are further apart are two groups."""
MOST_GROUPS = 12
_MOP = ("f", "partition", "value", "expected", "values", "table")
MOST_NEIGHBOURS = 240
"""Of more, those nearest to the group's middle."""


@dataclass(slots=True)
class FindingGroup:
    """What was found wrong about some keys in a window of time (ns): classes with how many, and the operations."""

    keys: set[Key]
    begin_ns: int
    end_ns: int
    kinds: dict[str, int] = field(default_factory=dict)
    ops: set[int] = field(default_factory=set)
    processes: set[int] = field(default_factory=set)
    neighbours: list[dict[str, Any]] = field(default_factory=list)
    left_out: int = 0

    @property
    def around(self) -> tuple[int, int]:
        """The window with its margins; nothing was before the start."""
        margin_ns = max(AROUND_NS, (self.end_ns - self.begin_ns) // 2)
        return max(self.begin_ns - margin_ns, min(self.begin_ns, 0)), self.end_ns + margin_ns

    def meets(self, other: FindingGroup) -> bool:
        """Whether it is about a key of the other one at about that time."""
        near = self.begin_ns <= other.end_ns + GROUP_GAP_NS and other.begin_ns <= self.end_ns + GROUP_GAP_NS
        return near and bool(self.keys & other.keys)

    def take(self, other: FindingGroup) -> None:
        """Become one with it."""
        self.keys |= other.keys
        self.ops |= other.ops
        self.processes |= other.processes
        self.begin_ns, self.end_ns = min(self.begin_ns, other.begin_ns), max(self.end_ns, other.end_ns)
        for kind, number in other.kinds.items():
            self.kinds[kind] = self.kinds.get(kind, 0) + number


def grouped(checkers: Mapping[str, Mapping[str, Any]]) -> list[FindingGroup]:
    """The explained anomalies of all checkers that name operations with keys and times; the first ones in time."""
    groups: list[FindingGroup] = []
    for verdict in checkers.values():
        anomalies = verdict.get("anomalies") if isinstance(verdict, Mapping) else None
        for kind, found in anomalies.items() if isinstance(anomalies, Mapping) else ():
            for item in found if isinstance(found, list | tuple) else ():
                if isinstance(item, Mapping) and (group := _of_one(str(kind), item)) is not None:
                    _merge(groups, group)
    return sorted(groups, key=lambda group: (group.begin_ns, sorted(group.keys)))


def _merge(groups: list[FindingGroup], new: FindingGroup) -> None:
    for group in [each for each in groups if each.meets(new)]:
        new.take(group)
        groups.remove(group)
    groups.append(new)


def _of_one(kind: str, anomaly: Mapping[str, Any]) -> FindingGroup | None:
    told = anomaly.get("ops")
    listed = told if isinstance(told, list | tuple) else ()
    ops = [op for op in listed if isinstance(op, Mapping) and isinstance(op.get("op"), int)]
    timed = [op for op in ops if isinstance(op.get("invoke_time"), int)]
    keys = {key for op in timed for key in keys_of(op)}
    if not keys:
        return None
    begins = [op["invoke_time"] for op in timed]
    ends = [op["complete_time"] for op in timed if isinstance(op.get("complete_time"), int)]
    processes = {op["process"] for op in timed if isinstance(op.get("process"), int)}
    return FindingGroup(keys, min(begins), max([*ends, *begins]), {kind: 1}, {op["op"] for op in timed}, processes)


def keys_of(op: Mapping[str, Any]) -> set[Key]:
    """The keys that an operation names."""
    found, mops = set(), op.get("mops")
    for mop in mops if isinstance(mops, list | tuple) else ():
        told = dict(zip(_MOP, mop, strict=False)) if isinstance(mop, list | tuple) else mop
        if isinstance(told, Mapping) and isinstance(told.get("partition"), int):
            found.add((told.get("table") or 0, told["partition"]))
    return found


def find_neighbours(groups: Sequence[FindingGroup], source: Source) -> None:
    """Fill in what clients did about each group's keys, and what its processes did, within its window; one reading."""
    if not groups:
        return
    for batch in source.batches(EVIDENCE_COLUMNS):
        for group in groups:
            _take_from(batch, group)
    for group in groups:
        _keep_nearest(group)


def _take_from(batch: pa.RecordBatch, group: FindingGroup) -> None:
    first_ns, last_ns = group.around
    open_then = pc.fill_null(pc.greater_equal(batch.column("complete_time"), first_ns), True)
    begun = pc.and_(pc.less_equal(batch.column("invoke_time"), last_ns), pc.greater_equal(batch.column("process"), 0))
    rows = batch.filter(pc.and_(begun, open_then))
    for op in rows.to_pylist() if rows.num_rows else ():
        if op["process"] in group.processes or not group.keys.isdisjoint(keys_of(op)):
            group.neighbours.append(op)


def _keep_nearest(group: FindingGroup) -> None:
    middle_ns = (group.begin_ns + group.end_ns) // 2

    def order(op: Mapping[str, Any]) -> tuple[bool, int]:
        return op["op"] not in group.ops, abs(op["invoke_time"] - middle_ns)

    kept = sorted(group.neighbours, key=order)[:MOST_NEIGHBOURS]
    group.left_out = len(group.neighbours) - len(kept)
    group.neighbours = sorted(kept, key=lambda op: (op["process"], op["invoke_time"]))


def lanes(ops: Iterable[Mapping[str, Any]]) -> dict[int, list[Mapping[str, Any]]]:
    """The operations by process, in the order of their first ones."""
    found: dict[int, list[Mapping[str, Any]]] = {}
    for op in sorted(ops, key=lambda op: op["invoke_time"]):
        found.setdefault(op["process"], []).append(op)
    return found


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
        f"Framed: those of the anomalies; pale: of other keys. {named(min(group.ops, default=None))}"
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
        tag("div", _picture(group, faults, colors), class_="scroll wide"),
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
    tip = f"{op_name(op['op'])}: {what} · {outcome_words(op)} · {op['node'] or 'no node'} · {seconds(begin)}, {lasted}"
    shape = {"x": x(begin), "y": top + 4, "width": width, "height": 15, "rx": 2, "data_begin": begin, "data_end": last}
    label = tag("text", what, x=x(begin) + 3, y=top + 15, class_="label", data_begin=begin, data_end=last,
                fill=None if here else "#20272e",
                style=None if len(what) * LETTER < width else "display:none")  # fmt: skip
    bar = tag(
        "rect",
        tag("title", tip),
        **shape,
        fill=OUTCOME_COLORS.get(outcome(op), OUTCOME_COLORS["ok"]),
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
            op_name(op["op"]), op["process"], op["node"], operation(op), outcome_words(op), seconds(op["invoke_time"]),
            seconds(op["complete_time"]), "yes" if op["op"] in group.ops else "",
        )
        for op in sorted(group.neighbours, key=lambda op: op["invoke_time"])
    ]  # fmt: skip
    return table(header, rows, "small")
