"""What the panels of a run's picture share: heights, colours, and text as it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from matplotlib.axes import Axes

PALETTE = ("#e07b39", "#c8375b", "#3a7ca5", "#7a5195", "#2f8f7f", "#b5651d", "#8a8d3b")


class Panel(NamedTuple):
    """One panel of the picture: its height, who draws it, its longest labels, and whether faults shade it."""

    height_in: float
    draw: Callable[[Axes], None]
    labels: tuple[str, ...] = ()
    shaded: bool = True


def lanes_in(lanes: int) -> float:
    """The height of a panel with so many lanes, inches."""
    return 0.35 + 0.34 * lanes


def plain(label: str) -> str:
    """Text that matplotlib does not take for a formula."""
    return label.replace("$", r"\$")
