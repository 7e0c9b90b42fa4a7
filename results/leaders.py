"""Who led when: a lane for each group, a bar for each leadership in the colour of its node."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes

from harness.verdict.leaderships import Leadership
from results.panels import PALETTE, Panel, lanes_in, plain

MAX_GROUPS = 8
LEADER_LETTER = 0.007
"""Width of a letter, as a share of the time axis."""


def leader_panel(leaders: Sequence[Leadership], end_s: float) -> Panel:
    """The panel of the first groups by name; tablets go by the first letters of their ids."""
    groups = sorted(dict.fromkeys(each.group for each in leaders), key=lambda group: (len(group) > 8, group))
    shown = {group: group if len(group) <= 8 else f"tablet {group[:6]}" for group in groups[:MAX_GROUPS]}
    nodes = sorted(dict.fromkeys(each.node for each in leaders))
    colors = {node: PALETTE[number % len(PALETTE)] for number, node in enumerate(nodes)}

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
