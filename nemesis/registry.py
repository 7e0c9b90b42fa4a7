"""The one literal registry of nemeses."""

from __future__ import annotations

from dataclasses import dataclass

from nemesis.scripts import SCRIPTS


@dataclass(frozen=True, slots=True)
class PlotStyle:
    """How the report draws a kind: a colour (CSS) for its shading."""

    color: str


@dataclass(frozen=True, slots=True)
class NemesisInfo:
    """A nemesis by name: one line about it, the capabilities it needs, and how it is drawn."""

    name: str
    description: str
    needs: frozenset[str]
    style: PlotStyle


NEMESES: dict[str, NemesisInfo] = {
    info.name: info
    for info in (
        NemesisInfo(
            "partition",
            "cuts the network: one node, halves, ring, bridge, leaders or their clients cut off, one-way",
            frozenset({"partition"}),
            PlotStyle("#e07b39"),
        ),
        NemesisInfo(
            "kill",
            "kill -9 and restart: leader master, leaseholder, one, several or all nodes",
            frozenset({"kill"}),
            PlotStyle("#c8375b"),
        ),
        NemesisInfo(
            "pause",
            "stops processes and lets them go on: leaders, one, a minority, a majority of a group",
            frozenset({"pause"}),
            PlotStyle("#3a7ca5"),
        ),
        *(
            NemesisInfo(name, script.description, script.needs, PlotStyle(script.color))
            for name, script in SCRIPTS.items()
        ),
    )
}
