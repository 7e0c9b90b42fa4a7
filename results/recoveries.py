"""How soon clients were served again after each fault, as a table and a picture of the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from results.markup import Markup, join, table, tag, void
from results.panels import plain
from results.plots import STYLE, data_uri, svg_of
from results.saved import Saved

OTHER_COLOR = "#5b6670"
MARKS = {"first_s": ("o", "first success on every group"), "rate_s": ("D", "95 % of the rate before")}


def recoveries(saved: Saved, colors: Mapping[str, str]) -> Markup | None:
    """After each kind of fault; None where no fault's recovery is known."""
    liveness = saved.verdict.get("liveness")
    details = liveness.get("details") if isinstance(liveness, dict) else None
    told = details.get("faults") if isinstance(details, dict) else None
    found = [each for each in told if isinstance(each, dict)] if isinstance(told, list) else []
    if not any(_seconds(each, "first_s") is not None for each in found):
        return None
    kinds = list(dict.fromkeys(str(each.get("kind")) for each in found))
    rows = [(kind, *_row([each for each in found if str(each.get("kind")) == kind])) for kind in kinds]
    header = ("kind", "faults", "known", "first success on every group: median, longest", "95 % of the rate: the same")
    picture = void(
        "img", src=data_uri(drawing(found, kinds, colors)), alt="seconds to recover after each kind of fault"
    )
    note = "Counted from each heal; not known where the next fault, or the end of the load, came first."
    return join((picture, table(header, rows), tag("p", note, class_="quiet")))


def _row(found: Sequence[Mapping[str, Any]]) -> tuple[object, ...]:
    firsts, rates = (sorted(_known(found, key)) for key in MARKS)
    return len(found), len(firsts), _words(firsts), _words(rates)


def _words(seconds: Sequence[float]) -> str:
    return f"{seconds[len(seconds) // 2]:.2f} s, {seconds[-1]:.2f} s" if seconds else "–"


def _known(found: Sequence[Mapping[str, Any]], key: str) -> list[float]:
    return [value for each in found if (value := _seconds(each, key)) is not None]


def _seconds(each: Mapping[str, Any], key: str) -> float | None:
    value = each.get(key)
    return float(value) if isinstance(value, int | float) else None


def drawing(found: Sequence[Mapping[str, Any]], kinds: Sequence[str], colors: Mapping[str, str]) -> bytes:
    """A lane a kind, a mark a fault; an SVG."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(10.5, 0.8 + 0.34 * len(kinds)), layout="constrained")
        axis = figure.add_subplot()
        for lane, kind in enumerate(kinds):
            of_kind = [each for each in found if str(each.get("kind")) == kind]
            for shift, (key, (mark, _)) in zip((-0.15, 0.15), MARKS.items(), strict=True):
                seconds = _known(of_kind, key)
                color = colors.get(kind, OTHER_COLOR)
                axis.plot(seconds, [lane + shift] * len(seconds), mark, color=color, markersize=4, alpha=0.7)
        axis.set_yticks(range(len(kinds)), [plain(kind) for kind in kinds])
        axis.set_ylim(len(kinds) - 0.5, -0.5)
        axis.set_xlim(left=0)
        axis.set_xlabel(f"seconds from the heal (circle: {MARKS['first_s'][1]}; diamond: {MARKS['rate_s'][1]})")
        return svg_of(figure)
