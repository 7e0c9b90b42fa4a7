"""Pictures of cycles: operations as boxes, and an arrow for each reason why one must come before the next.

One cycle is drawn around an ellipse. Several that share operations, as of choices of which each closes one, are a graph
that networkx lays out.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Final, NamedTuple, TypeAlias

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from results.plots import STYLE, plain, svg_of
from results.words import micro_operation, op_name

Point: TypeAlias = tuple[float, float]

KIND_COLORS: Final[Mapping[str, str]] = {
    "ww": "#b3362b",
    "wr": "#1f7a4d",
    "rw": "#6a3fa0",
    "co": "#a0528b",
    "process": "#b06f00",
    "so": "#b06f00",
    "realtime": "#2f6fab",
}
KIND_WORDS: Final[Mapping[str, str]] = {
    "ww": "ww: one overwrites the other's version",
    "wr": "wr: one reads what the other wrote",
    "rw": "rw: one did not see yet what the other wrote",
    "co": "co: the weakest order that the level allows",
    "process": "process: one after the other in one process",
    "so": "so: one after the other in one session",
    "realtime": "realtime: one completed before the other began",
}
OTHER_COLOR: Final = "#56606a"
MOST_AROUND: Final = 14
"""Boxes of a cycle around an ellipse; a longer one is laid out as a graph."""
MOST_NODES: Final = 40
"""More are told in words only."""

LETTER, LINE, PAD = 0.0705, 0.158, 0.1
"""Inches: width of a letter and height of a line in a box, and the box's margin."""

MOST_LETTERS, MOST_LINES = 34, 6
BEND = 0.16
CLEAR, CAPTION = 0.6, 1.0
"""Inches of an arrow that stay visible beside its caption, and the room for a caption."""


@dataclass(frozen=True, slots=True)
class Box:
    """An operation's lines of text and its size in inches."""

    lines: tuple[str, ...]
    width: float
    height: float


class Arrow(NamedTuple):
    """From one operation to another, bent to a side as matplotlib's arc3 is."""

    source: str
    target: str
    bend: float


class Drawn(NamedTuple):
    """What stands where: boxes and their places, in inches, by operation, and the arrows between them."""

    boxes: Mapping[str, Box]
    places: Mapping[str, Point]
    arrows: Sequence[Arrow]


def cycle_order(steps: Sequence[Mapping[str, Any]]) -> list[str] | None:
    """The operations of a cycle in the order in which the steps go around; None if the steps are no single cycle."""
    following = {str(step.get("source")): str(step.get("target")) for step in steps}
    if len(following) != len(steps) or len(steps) < 2:
        return None
    order = [str(steps[0].get("source"))]
    while len(order) < len(steps) and (after := following.get(order[-1], order[0])) not in order:
        order.append(after)
    return order if len(order) == len(steps) and following.get(order[-1]) == order[0] else None


def draw_cycle(steps: Sequence[Mapping[str, Any]], ops: Sequence[Mapping[str, Any]]) -> bytes | None:
    """The steps as an SVG, its arrows numbered as they are; None where some step is in no cycle, or there are too many
    operations for a picture."""
    nodes = list(dict.fromkeys(str(step.get(end)) for step in steps for end in ("source", "target")))
    if not 1 < len(nodes) <= MOST_NODES or not _all_return(steps):
        return None
    by_id = {str(op.get("op")): op for op in ops}
    boxes = {node: box_of(node, by_id.get(node)) for node in nodes}
    order = cycle_order(steps)
    around = order is not None and len(order) <= MOST_AROUND
    arrows = arrows_of(steps, -0.3 if around and len(nodes) == 2 else -BEND)
    places = layout(ellipse(order) if order and around else _spread(steps), boxes, arrows)
    with matplotlib.rc_context({**STYLE, "font.family": "monospace"}):
        return svg_of(_figure(steps, Drawn(boxes, places, arrows)))


def _all_return(steps: Sequence[Mapping[str, Any]]) -> bool:
    """Whether each step leads to where another one begins, and begins where another one leads."""
    sources, targets = ({str(step.get(end)) for step in steps} for end in ("source", "target"))
    return sources == targets and all(step.get("source") != step.get("target") for step in steps)


def _spread(steps: Sequence[Mapping[str, Any]]) -> dict[str, Point]:
    from results.networks import spread  # networkx, which few pictures need

    return spread(steps)


def arrows_of(steps: Sequence[Mapping[str, Any]], bend: float) -> list[Arrow]:
    """An arrow for each step; of several between the same two operations each is bent more than the one before."""
    before: dict[tuple[str, str], int] = {}
    arrows = []
    for step in steps:
        ends = str(step.get("source")), str(step.get("target"))
        nth = before[ends] = before.get(ends, 0) + 1
        arrows.append(Arrow(*ends, bend * (2 * nth - 1)))
    return arrows


def cycle_in_words(steps: Sequence[Mapping[str, Any]]) -> str:
    """The cycle in a line, for those who can't see it: `T1 -ww-> T2 -rw-> T1`."""
    order = [f"{op_name(step.get('source'))} -{step.get('kind', '?')}->" for step in steps]
    return f"cycle: {' '.join(order)} {op_name(steps[0].get('source'))}"


def box_of(node: str, op: Mapping[str, Any] | None) -> Box:
    """What is written of an operation: its name, process and node, and its micro-operations, shortened."""
    lines = [op_name(node)]
    if op is not None:
        lines[0] += f" · process {op.get('process', '?')}" + (f" · {op['node']}" if op.get("node") else "")
        mops = op.get("mops")
        words = [micro_operation(mop) for mop in mops] if isinstance(mops, list | tuple) else [str(op.get("f", "?"))]
        wrapped = [line for word in words for line in _wrapped(word)]
        lines += wrapped if len(wrapped) <= MOST_LINES else [*wrapped[: MOST_LINES - 1], "…"]
    width = max(len(line) for line in lines) * LETTER + 2 * PAD
    return Box(tuple(lines), width, len(lines) * LINE + 2 * PAD)


def _wrapped(words: str) -> list[str]:
    wrapped = textwrap.wrap(words, MOST_LETTERS, subsequent_indent="  ") or [""]
    return wrapped if len(wrapped) <= 3 else [*wrapped[:2], "  … " + wrapped[-1].strip()]


def ellipse(order: Sequence[str]) -> dict[str, Point]:
    """Clockwise on an ellipse from the top (two: side by side)."""
    turn = np.pi / 2 if len(order) > 2 else np.pi
    angles = {node: turn - 2 * np.pi * place / len(order) for place, node in enumerate(order)}
    return {node: (1.25 * float(np.cos(a)), 0.8 * float(np.sin(a))) for node, a in angles.items()}


def layout(shape: Mapping[str, Point], boxes: Mapping[str, Box], arrows: Sequence[Arrow]) -> dict[str, Point]:
    """A shape as small as boxes and arrows allow; in inches."""
    wide = 1.0
    while True:
        places = {node: (wide * x, wide * y) for node, (x, y) in shape.items()}
        if wide > 40 or _is_clear(Drawn(boxes, places, arrows)):
            return places
        wide *= 1.06


def _is_clear(drawn: Drawn) -> bool:
    boxes, places = drawn.boxes, drawn.places
    apart = all(_are_apart(places[a], boxes[a], places[b], boxes[b]) for a, b in combinations(places, 2))
    if not apart or not all(_has_room(_visible(arrow, drawn)) for arrow in drawn.arrows):
        return False
    middles = [_middle(arrow, drawn) for arrow in drawn.arrows]
    return all(abs(a[0] - b[0]) > CAPTION or abs(a[1] - b[1]) > LINE for a, b in combinations(middles, 2))


def _are_apart(a: Point, one: Box, b: Point, other: Box) -> bool:
    gap_x = abs(a[0] - b[0]) - (one.width + other.width) / 2
    gap_y = abs(a[1] - b[1]) - (one.height + other.height) / 2
    return gap_x > 0.35 or gap_y > 0.3


def _has_room(points: np.ndarray[Any, Any]) -> bool:
    """Whether the visible part of an arrow is long enough for its caption, which lies across a steep one."""
    if len(points) < 2:
        return False
    length = float(np.hypot(*np.diff(points, axis=0).T).sum())
    flat = abs(points[-1][0] - points[0][0]) / length
    return length > CLEAR + flat * CAPTION


def _visible(arrow: Arrow, drawn: Drawn) -> np.ndarray[Any, Any]:
    """Points of the arrow (matplotlib's arc3) that lie outside of both boxes."""
    ends = (arrow.source, arrow.target)
    (x1, y1), (x2, y2) = (drawn.places[node] for node in ends)
    control = ((x1 + x2) / 2 + arrow.bend * (y2 - y1), (y1 + y2) / 2 - arrow.bend * (x2 - x1))
    t = np.linspace(0, 1, 60)[:, None]
    points = (1 - t) ** 2 * (x1, y1) + 2 * t * (1 - t) * control + t**2 * (x2, y2)
    outside = np.ones(len(points), bool)
    for node in ends:
        (x, y), box = drawn.places[node], drawn.boxes[node]
        outside &= (abs(points[:, 0] - x) > box.width / 2) | (abs(points[:, 1] - y) > box.height / 2)
    shown: np.ndarray[Any, Any] = points[outside]
    return shown


def _figure(steps: Sequence[Mapping[str, Any]], drawn: Drawn) -> Figure:
    boxes, places = drawn.boxes, drawn.places
    middles = [_middle(arrow, drawn) for arrow in drawn.arrows]
    left = min(places[n][0] - b.width / 2 for n, b in boxes.items()) - 0.25
    right = max(places[n][0] + b.width / 2 for n, b in boxes.items()) + 0.25
    low = min(places[n][1] - b.height / 2 for n, b in boxes.items()) - 0.25
    high = max(places[n][1] + b.height / 2 for n, b in boxes.items()) + 0.25
    for step, middle in zip(steps, middles, strict=True):
        half = len(_label(step, 0)) * LETTER / 2 + 0.2
        left, right = min(left, middle[0] - half), max(right, middle[0] + half)
        low, high = min(low, middle[1] - 0.25), max(high, middle[1] + 0.25)
    kinds = list(dict.fromkeys(str(step.get("kind", "?")) for step in steps))
    low -= 0.1 + 0.19 * len(kinds)
    right = max(right, left + 4.2)
    figure = Figure(figsize=(right - left, high - low))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_xlim(left, right)
    axes.set_ylim(low, high)
    axes.set_axis_off()
    for number, step in enumerate(steps, start=1):
        _arrow(axes, drawn.arrows[number - 1], drawn, _color(step))
        _caption(axes, _label(step, number), _color(step), middles[number - 1])
    for node, box in boxes.items():
        _draw_box(axes, box, places[node])
    _legend(axes, kinds, left + 0.15, low + 0.12)
    return figure


def _middle(arrow: Arrow, drawn: Drawn) -> Point:
    points = _visible(arrow, drawn)
    x, y = points[2 * len(points) // 5] if len(points) else drawn.places[arrow.source]
    return float(x), float(y)


def _label(step: Mapping[str, Any], number: int) -> str:
    key = step.get("key")
    return f"{number} {step.get('kind', '?')}" + ("" if key is None else f" key {key}")


def _color(step: Mapping[str, Any]) -> str:
    return KIND_COLORS.get(str(step.get("kind")), OTHER_COLOR)


def _arrow(axes: Axes, arrow: Arrow, drawn: Drawn, color: str) -> None:
    ends = (arrow.source, arrow.target)
    frames = [_frame(drawn.boxes[node], drawn.places[node]) for node in ends]
    for frame in frames:
        frame.set_transform(axes.transData)
    axes.add_patch(
        FancyArrowPatch(
            *(drawn.places[node] for node in ends),
            connectionstyle=f"arc3,rad={arrow.bend}",
            arrowstyle="-|>,head_length=5.5,head_width=3",
            patchA=frames[0],
            patchB=frames[1],
            shrinkA=1,
            shrinkB=3,
            color=color,
            linewidth=1.8,
        )
    )


def _caption(axes: Axes, label: str, color: str, at: Point) -> None:
    axes.text(
        *at,
        plain(label),
        ha="center",
        va="center",
        fontsize=8.5,
        fontweight="bold",
        color=color,
        bbox={"boxstyle": "round,pad=0.25", "facecolor": "white", "edgecolor": "none"},
        zorder=3,
    )


def _frame(box: Box, at: Point) -> FancyBboxPatch:
    corner = (at[0] - box.width / 2, at[1] - box.height / 2)
    style = "round,pad=0,rounding_size=0.07"
    return FancyBboxPatch(corner, box.width, box.height, boxstyle=style, fc="#f3f5f7", ec="#56606a", lw=1.1, zorder=4)


def _draw_box(axes: Axes, box: Box, at: Point) -> None:
    axes.add_patch(_frame(box, at))
    left, top = at[0] - box.width / 2 + PAD, at[1] + box.height / 2 - PAD
    for number, line in enumerate(box.lines):
        weight = "bold" if number == 0 else "normal"
        middle = top - (number + 0.5) * LINE
        axes.text(left, middle, plain(line), fontsize=8.4, fontweight=weight, color="#20272e", va="center", zorder=5)


def _legend(axes: Axes, kinds: Sequence[str], left: float, low: float) -> None:
    for number, kind in enumerate(reversed(kinds)):
        color = KIND_COLORS.get(kind, OTHER_COLOR)
        y = low + 0.19 * number
        axes.plot([left, left + 0.25], [y, y], color=color, linewidth=2.2)
        axes.text(left + 0.35, y, plain(KIND_WORDS.get(kind, kind)), fontsize=8, color="#3c4650", va="center")
