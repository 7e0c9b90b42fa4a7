"""Pictures of a run: latency, rate and faults over one time axis, as a self-contained SVG."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

from checkers.columns.projection import MISMATCH
from harness.errors import ELSEWHERE
from harness.verdict.faults import Fault
from harness.verdict.leaderships import Leadership
from results.saved import OUTCOMES, Points, Saved, decoded
from results.words import OUTCOME_COLORS, fault_name

PALETTE = ("#e07b39", "#c8375b", "#3a7ca5", "#7a5195", "#2f8f7f", "#b5651d", "#8a8d3b")


class Panel(NamedTuple):
    """One panel of the picture: its height, who draws it, its longest labels, and whether faults shade it."""

    height_in: float
    draw: Callable[[Axes], None]
    labels: tuple[str, ...] = ()
    shaded: bool = True


def lanes_in(lanes: int) -> float:
    """The height of a panel with this number of lanes, inches."""
    return 0.35 + 0.34 * lanes


def plain(label: str) -> str:
    """Text that matplotlib does not take for a formula."""
    return label.replace("$", r"\$")


MAX_GROUPS = 8
LEADER_LETTER = 0.007
"""Width of a letter, as a share of the time axis."""


def leader_panel(leaders: Sequence[Leadership], end_s: float) -> Panel:
    """The panel of the first groups by name; tablets go by the first letters of their ids."""
    groups, shown, colors = _led(leaders)

    def draw(axis: Axes) -> None:
        for lane, group in enumerate(shown):
            of_group = [each for each in leaders if each.group == group]
            ends_ns = [*(each.since_ns for each in of_group[1:]), round(end_s * 1e9)]
            for each, end_ns in zip(of_group, ends_ns, strict=True):
                _draw_leadership(axis, lane, each, end_ns, colors[each.node], end_s)
        left = len(groups) - len(shown)
        led = f"{len(shown)} group{'s' * (len(shown) != 1)}"
        title = f"Who led, of {led}" + (f" ({left} more in leaders.json)" if left else "")
        axis.set_yticks(range(len(shown)), [plain(label) for label in shown.values()])
        axis.set_ylim(len(shown) - 0.4, -0.6)
        axis.tick_params(axis="y", length=0)
        axis.set_title(title, loc="left", fontsize=10, fontweight="bold", color="#20272e")

    return Panel(lanes_in(len(shown)), draw, tuple(shown.values()))


def _led(leaders: Sequence[Leadership]) -> tuple[list[str], dict[str, str], dict[str, str]]:
    """All groups, the names of those that are shown, and the nodes' colours."""
    groups = sorted(dict.fromkeys(each.group for each in leaders), key=lambda group: (len(group) > 8, group))
    shown = {group: group if len(group) <= 8 else f"tablet {group[:6]}" for group in groups[:MAX_GROUPS]}
    nodes = sorted(dict.fromkeys(each.node for each in leaders))
    return groups, shown, {node: PALETTE[number % len(PALETTE)] for number, node in enumerate(nodes)}


def leaders_in_lanes(leaders: Sequence[Leadership], end_ns: int) -> list[tuple[str, str, str, int, int, int]]:
    """Of each leadership of the groups that `leader_panel` shows: the group's name, the node with its term, its colour,
    since when it led, until when it was seen to, and when the next one was (ns)."""
    _, shown, colors = _led(leaders)
    found = []
    for group, name in shown.items():
        of_group = [each for each in leaders if each.group == group]
        ends_ns = [*(each.since_ns for each in of_group[1:]), end_ns]
        for each, until_ns in zip(of_group, ends_ns, strict=True):
            label = f"{each.node}, term {each.term}"
            found.append((name, label, colors[each.node], each.since_ns, min(each.seen_ns, until_ns), until_ns))
    return found


def _draw_leadership(axis: Axes, lane: int, led: Leadership, end_ns: int, color: str, end_s: float) -> None:
    """Full while it was seen to lead, pale until the next one was."""
    since_s, until_s = led.since_ns / 1e9, max(end_ns, led.since_ns) / 1e9
    seen_s = min(max(led.seen_ns / 1e9, since_s), until_s)
    axis.barh(lane, until_s - since_s, 0.56, since_s, color=color, alpha=0.55, lw=0)
    axis.barh(lane, seen_s - since_s, 0.56, since_s, color=color, lw=0)
    label = f"{led.node}, term {led.term}"
    for text in (label, led.node):
        if until_s - since_s > (len(text) + 2) * LEADER_LETTER * end_s:
            axis.text(since_s + end_s / 400, lane, plain(text), va="center", fontsize=6.5, color="white", clip_on=True)
            return


TYPE_MARKS = {"ok": (3.0, 0.45, "o"), ELSEWHERE: (3.0, 0.45, "o"), "fail": (9.0, 0.8, "x"), "info": (13.0, 0.9, "^")}
TYPE_WORDS = {"ok": "ok", "info": "unknown outcome", ELSEWHERE: "others serve it", "fail": "failed for certain"}
SHADE_ALPHA = 0.16
PHASE_WORDS = {"recover": "recovery", "final": "final reads", "each-node": "final reads of each node"}
MOST_NAMED = 14
"""How many nodes have their names beside the clocks' curves."""
MAX_PANELS = 6
MAX_LABELLED = 60
LETTER = 0.0058
"""Width of a letter of the smallest font, as a share of the time axis."""

STYLE: dict[str, Any] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#8a94a0",
    "axes.labelcolor": "#3c4650",
    "xtick.color": "#5b6670",
    "ytick.color": "#5b6670",
    "svg.hashsalt": "assay",
}


def colors_of(faults: Sequence[Fault], given: Mapping[str, str]) -> dict[str, str]:
    """A colour for each kind of fault: as given, else from the palette in order of appearance."""
    kinds = dict.fromkeys(fault.kind for fault in faults)
    return {kind: given.get(kind, PALETTE[i % len(PALETTE)]) for i, kind in enumerate(kinds)}


def overview(
    points: Points, faults: Sequence[Fault], colors: Mapping[str, str], leaders: Sequence[Leadership] = ()
) -> bytes:
    """Latency by `f`, who led, rate, clocks and faults, one above the other; an SVG."""
    end_s = max(points.end_s, 1e-3)
    panels = _latency_panels(points)
    if leaders:
        panels.append(leader_panel(leaders, end_s))
    panels.append(Panel(1.5, lambda axis: _rate(axis, points)))
    if clocks := clock_readings(points):
        panels.append(Panel(1.5, lambda axis: _clock_offsets(axis, clocks)))
    if colors:
        panels.append(_fault_panel(faults, colors, points, end_s))
    return _drawn(panels, faults, colors, end_s)


def _drawn(panels: Sequence[Panel], faults: Sequence[Fault], colors: Mapping[str, str], end_s: float) -> bytes:
    """Panels one above the other over one time axis, shaded by the faults that were in effect; an SVG."""
    with matplotlib.rc_context(STYLE):
        longest = max(len(label) for panel in panels for label in (*panel.labels, ""))
        figure, axes = _panels([panel.height_in for panel in panels], longest)
        for panel, axis in zip(panels, axes, strict=True):
            if panel.shaded:
                _shade(axis, faults, colors, end_s)
            panel.draw(axis)
        axes[-1].set_xlim(0, end_s * 1.005)
        axes[-1].set_xlabel("seconds since the start")
        return svg_of(figure)


class SharePoint(NamedTuple):
    """How often something was seen at a time, seconds, with the bounds of that share."""

    at_s: float
    share: float
    low: float
    high: float


def shares_over_time(
    title: str, shares: Sequence[SharePoint], rise_s: tuple[float, float] | None, saved: Saved
) -> bytes:
    """Shares with their bounds over the time of a run, where they rise, and who led and which faults there were then;
    an SVG."""
    end_s, colors = max(shares[-1].at_s, 1e-3), colors_of(saved.faults, {})
    panels = [Panel(2.4, lambda axis: _shares(axis, title, shares, rise_s))]
    if saved.leaders:
        panels.append(leader_panel([each for each in saved.leaders if each.since_ns <= end_s * 1e9], end_s))
    if colors and (points := saved.points) is not None:
        panels.append(
            Panel(
                lanes_in(len(colors)),
                lambda axis: _strip(axis, saved.faults, colors, points, end_s),
                tuple(colors),
                False,
            )
        )
    return _drawn(panels, saved.faults, colors, end_s)


def _shares(axis: Axes, title: str, shares: Sequence[SharePoint], rise_s: tuple[float, float] | None) -> None:
    times = [each.at_s for each in shares]
    below, above = [each.share - each.low for each in shares], [each.high - each.share for each in shares]
    axis.errorbar(
        times, [each.share for each in shares], (below, above),
        fmt="o-", color="#16334f", ecolor="#8a94a0", elinewidth=0.9, linewidth=1.1, markersize=3.5, capsize=2,
    )  # fmt: skip
    if rise_s is not None:
        axis.axvspan(*rise_s, color=PALETTE[1], alpha=2 * SHADE_ALPHA, linewidth=0, zorder=0)
        words = f"rises from {rise_s[0]:.2f} to {rise_s[1]:.2f} s"
        axis.annotate(words, (rise_s[1], 0.5), (5, 0), "data", "offset points", va="center", fontsize=8)
    axis.set_ylim(-0.03, 1.03)
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g} %"))
    axis.set_title(plain(title), loc="left", fontsize=10, fontweight="bold", color="#20272e")
    axis.grid(axis="y", color="#e3e7eb", linewidth=0.6)


def _latency_panels(points: Points) -> list[Panel]:
    def panel(f: str) -> Panel:
        return Panel(2.1, lambda axis: _latency(axis, points, f))

    return [panel(f) for f in points.fs[:MAX_PANELS]]


def _panels(heights_in: Sequence[float], longest_label: int) -> tuple[Figure, list[Axes]]:
    """A figure with axes of these heights, inches, one above the other over one time axis. Their places are computed
    from the longest label, since asking every text for its size takes as long as drawing."""
    left, right, above, below, width = max(0.75, 0.2 + 0.075 * longest_label), 0.15, 0.36, 0.5, 11.0
    height = sum(heights_in) + above * len(heights_in) + below
    figure = Figure(figsize=(width, height))
    axes: list[Axes] = []
    top = height
    for panel in heights_in:
        top -= above + panel
        place = (left / width, top / height, (width - left - right) / width, panel / height)
        axes.append(figure.add_axes(place, sharex=axes[0] if axes else None))
    for axis in axes[:-1]:
        axis.tick_params(labelbottom=False)
    return figure, axes


def data_uri(svg: bytes) -> str:
    """A picture as an address that needs no network."""
    return "data:image/svg+xml;base64," + base64.b64encode(svg).decode()


def svg_of(figure: Figure) -> bytes:
    """A figure as an SVG that is the same for the same figure."""
    buffer = io.BytesIO()
    FigureCanvasSVG(figure).print_svg(buffer, metadata={"Date": None})
    return buffer.getvalue()


def _type_words(points: Points, f: str, type: str) -> str:
    """How these operations ended; those that failed may have found another value, which is no error."""
    unmet = points.count_class(f, MISMATCH)
    if type != "fail" or not unmet:
        return TYPE_WORDS[type]
    return "found another value" + (", or failed" if points.count(f, "fail") > unmet else "")


def _latency(axis: Axes, points: Points, f: str) -> None:
    for type in OUTCOMES:
        series = points.series.get((f, type))
        if series is None:
            continue
        times_s, latencies_s = series.sample()
        size, alpha, marker = TYPE_MARKS[type]
        axis.scatter(
            times_s,
            np.maximum(latencies_s, 1e-6) * 1e3,
            s=size,
            c=OUTCOME_COLORS[type],
            alpha=alpha,
            marker=marker,
            linewidths=0.8 if marker == "x" else 0,
            label=f"{_type_words(points, f, type)} ({series.count:,})",
            rasterized=True,
        )
        if type == "ok":
            _quantiles(axis, times_s, latencies_s * 1e3)
    axis.set_yscale("log")
    low, high = np.log10(axis.get_ylim())
    if np.ceil(low) > high:  # no power of ten in between, so no tick would have a number
        axis.set_ylim(10 ** np.floor(low), 10 ** np.ceil(high))
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.yaxis.set_minor_locator(NullLocator())
    axis.set_ylabel("ms")
    axis.set_title(f"Latency of {plain(f)}", loc="left", fontsize=10, fontweight="bold", color="#20272e")
    axis.grid(axis="y", color="#e3e7eb", linewidth=0.6)
    axis.legend(
        loc="lower right", bbox_to_anchor=(1.0, 1.0), ncol=6, fontsize=8, frameon=False, markerscale=1.6, borderpad=0
    )


def _quantiles(axis: Axes, times_s: np.ndarray[Any, Any], latencies_ms: np.ndarray[Any, Any]) -> None:
    """Median and 99th percentile over windows of a fiftieth of the run with at least 8 operations."""
    if len(times_s) < 50:
        return
    edges = np.linspace(0, times_s.max() + 1e-9, 51)
    window = np.digitize(times_s, edges) - 1
    middles = (edges[:-1] + edges[1:]) / 2
    for share, style in ((0.5, "-"), (0.99, ":")):
        levels = [
            np.quantile(latencies_ms[window == i], share) if (window == i).sum() >= 8 else np.nan for i in range(50)
        ]
        word = "median" if share == 0.5 else "99 %"
        axis.plot(middles, levels, style, color="#16334f", linewidth=1.1, label=word)


def _rate(axis: Axes, points: Points) -> None:
    seconds = int(np.ceil(points.end_s)) + 1
    step = max(1, seconds // 600)
    totals = {type: np.zeros(seconds + step) for type in OUTCOMES}
    for (_, type), series in points.series.items():
        counts = series.per_second[:seconds]
        totals.setdefault(type, np.zeros(seconds + step))[: len(counts)] += counts
    times = np.arange(0, seconds, step)
    stacked = [np.add.reduceat(totals[type][:seconds], times) / step for type in OUTCOMES]
    axis.stackplot(
        times, stacked, colors=[OUTCOME_COLORS[type] for type in OUTCOMES], alpha=0.75, linewidth=0, step="post"
    )
    axis.set_ylim(bottom=0)
    axis.set_ylabel("operations/s")
    axis.set_title("Operations begun each second", loc="left", fontsize=10, fontweight="bold", color="#20272e")
    _phases(axis, points)
    axis.grid(axis="y", color="#e3e7eb", linewidth=0.6)


def _phases(axis: Axes, points: Points) -> None:
    """A line where each phase after the load begins, and their names beside the first."""
    after = sorted((begin_s, phase) for phase, begin_s in points.begins_s.items() if phase != "main")
    for begin_s, _ in after:
        axis.axvline(begin_s, color="#20272e", linewidth=0.8, linestyle="--")
    if after and "main" in points.begins_s:
        words = f"after the load: {', '.join(plain(PHASE_WORDS.get(phase, phase)) for _, phase in after)}"
        axis.annotate(
            words, (after[0][0], 1.0), (-4, -4), ("data", "axes fraction"), "offset points", ha="right", va="top",
            fontsize=7.5, color="#20272e",
        )  # fmt: skip


def _shade(axis: Axes, faults: Sequence[Fault], colors: Mapping[str, str], end_s: float) -> None:
    for fault in faults:
        for begin_ns, until_ns in fault.seen(round(end_s * 1e9)):
            axis.axvspan(
                begin_ns / 1e9, until_ns / 1e9, color=colors[fault.kind], alpha=SHADE_ALPHA, linewidth=0, zorder=0
            )


def clock_readings(points: Points) -> dict[str, list[list[tuple[float, float]]]]:
    """By node, for each fault that set its clock, times and offsets (both s) as probes read them in the node."""
    found: dict[str, list[list[tuple[float, float]]]] = {}
    for row in points.steps:
        readings = decoded(row.get("value")).get("readings")
        for name, read in readings.items() if isinstance(readings, dict) else ():
            found.setdefault(str(name), []).append([(at_ns / 1e9, offset_ns / 1e9) for at_ns, offset_ns in read])
    return dict(sorted(found.items()))


def _clock_offsets(axis: Axes, clocks: Mapping[str, Sequence[Sequence[tuple[float, float]]]]) -> None:
    """A curve a node; between two faults nothing was read, and nothing is drawn."""
    for number, (name, curves) in enumerate(clocks.items()):
        color = PALETTE[number % len(PALETTE)]
        for curve in curves:
            label = plain(name) if curve is curves[0] and number < MOST_NAMED else None
            axis.plot(*zip(*curve, strict=True), ".-", color=color, linewidth=0.9, markersize=3, label=label)
    axis.axhline(0, color="#8a94a0", linewidth=0.6)
    axis.set_ylabel("s")
    title = "Wall clocks, ahead of the harness's"
    axis.set_title(title, loc="left", fontsize=10, fontweight="bold", color="#20272e")
    axis.grid(axis="y", color="#e3e7eb", linewidth=0.6)
    axis.legend(
        loc="lower right", bbox_to_anchor=(1.0, 1.0), ncol=MOST_NAMED, fontsize=7, frameon=False, borderpad=0,
        handlelength=1.0, columnspacing=0.9, handletextpad=0.4,
    )  # fmt: skip


def _fault_panel(faults: Sequence[Fault], colors: Mapping[str, str], points: Points, end_s: float) -> Panel:
    lanes = tuple(colors)
    return Panel(lanes_in(len(lanes)), lambda axis: _strip(axis, faults, colors, points, end_s), lanes, False)


def _strip(axis: Axes, faults: Sequence[Fault], colors: Mapping[str, str], points: Points, end_s: float) -> None:
    """One lane a kind: from request (pale) over in effect (full) to recovered (pale); never observed is dashed."""
    lanes = {kind: number for number, kind in enumerate(colors)}
    labelled = len(faults) <= MAX_LABELLED
    for fault in faults:
        _bar(axis, fault, lanes[fault.kind], colors[fault.kind], end_s, labelled)
    for fault, words in targets_named(faults, end_s) if labelled else ():
        place = (fault.requested_ns / 1e9, lanes[fault.kind] + 0.27)
        axis.text(*place, plain(words), va="top", fontsize=6.5, color="#3c4650", clip_on=True)
    for row in points.steps:
        kind = str(row["f"]).removeprefix("step-")
        if str(row["f"]).startswith("step-") and kind in lanes:
            axis.plot([row["invoke_time"] / 1e9], [lanes[kind] - 0.33], "|", color="#20272e", markersize=4)
    axis.set_yticks(list(lanes.values()), [plain(kind) for kind in lanes])
    axis.set_ylim(len(lanes) - 0.4, -0.6)
    axis.tick_params(axis="y", length=0)
    axis.set_title("Faults, requested and observed", loc="left", fontsize=10, fontweight="bold", color="#20272e")


def targets_named(faults: Sequence[Fault], end_s: float) -> list[tuple[Fault, str]]:
    """The nodes that each fault hit, by name where there is room before the next of its kind, else how many."""
    told = []
    for number, fault in enumerate(faults):
        later = (other.requested_ns / 1e9 for other in faults[number + 1 :] if other.kind == fault.kind)
        room_s = min(later, default=end_s) - fault.requested_ns / 1e9
        names = dict.fromkeys(fault.targets)
        fitting = (words for words in (" ".join(names), f"{len(names)} nodes") if len(words) * LETTER * end_s <= room_s)
        if names and (words := next(fitting, None)):
            told.append((fault, words))
    return told


def _bar(axis: Axes, fault: Fault, lane: int, color: str, end_s: float, labelled: bool) -> None:
    requested_s = fault.requested_ns / 1e9
    until_s = _until_s(fault, end_s)
    recovered_s = fault.recovered_ns / 1e9 if fault.recovered_ns is not None else until_s
    if fault.observed_ns is None:
        width_s = max(until_s - requested_s, end_s / 200)
        axis.barh(lane, width_s, 0.5, requested_s, fc="none", ec=color, ls="--", lw=1)
        axis.plot([requested_s], [lane], "x", color="#b00020", markersize=6)
        return
    observed_s = fault.observed_ns / 1e9
    axis.barh(lane, recovered_s - requested_s, 0.5, requested_s, color=color, alpha=0.3, lw=0)
    for first_ns, last_ns in fault.seen(round(end_s * 1e9)):
        axis.barh(lane, max((last_ns - first_ns) / 1e9, end_s / 400), 0.5, first_ns / 1e9, color=color, lw=0)
    label = fault_name(fault).removeprefix(fault.kind).strip()
    if labelled and label and until_s - observed_s > (len(label) + 2) * LETTER * end_s:
        axis.text(
            observed_s + end_s / 400,
            lane,
            plain(label),
            va="center",
            fontsize=6.5,
            color="white",
            clip_on=True,
        )


def _until_s(fault: Fault, end_s: float) -> float:
    """When it was healed (or the end, if it never was); a skipped one takes no time."""
    if fault.skipped is not None:
        return fault.requested_ns / 1e9
    return fault.healed_ns / 1e9 if fault.healed_ns is not None else max(end_s, fault.requested_ns / 1e9)
