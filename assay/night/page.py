"""`index.html`: a night on one page, without a network: what to look at, what was not tested, how cells went.

All that is not ours is text: `results.markup` escapes it, and pictures are made of numbers and escaped names. Cells and
nights beyond what a page can show are told, and stand in `night.json`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from assay.night.rates import in_words
from assay.night.records import Night
from assay.night.result import CellAccount, NightAccount
from assay.night.trends import LEAST_WALL_NIGHTS, FigureChange, FigureSeries, levels_of
from assay.night.triage import TriageCase, adequate
from harness.errors import shortened
from results.markup import Markup, join, listing, page, table, tag, void
from results.plots import PALETTE, data_uri, svg_of
from results.words import count

MOST_CASES: Final = 100
MOST_NIGHTS: Final = 30
MOST_CELLS: Final = 300
MOST_LINES: Final = 200
PICTURES_BYTES: Final = 1_000_000
"""Of 2 MB that a page may have."""

_NAME: Final = 160
_MARKS: Final = {
    "invalid": "bad",
    "found": "seen",
    "valid": "fine",
    "missed": "bad",
    "silent": "none",
    "unsure": "part",
}


def page_of(account: NightAccount) -> str:
    """The page, of at most 2 MB."""
    body = join(
        [
            _banner(account),
            tag(
                "main",
                _section("To look at", [*map(_card, account.wrong[:MOST_CASES]), *map(_missed, account.missed)]),
                _more(len(account.wrong) - MOST_CASES, "findings"),
                _section("Not tested", [_lines(account.untested)] if account.untested else []),
                _section("Changed", _changed(account)),
                _section("Known, expected and gone", [_known(account)] if _others(account) else []),
                _section("Cells and nights", [_grid(account)]),
                _section("Over the nights", _pictures(account)),
                _section("This night", [_facts(account)]),
                tag("footer", f"night.json has all of it. Nothing on this page comes from a network. {_legend()}"),
            ),
        ]
    )
    return page(f"{account.night.head.name}: {account.headline}", body)


def _section(title: str, parts: Sequence[object]) -> Markup | None:
    return tag("section", tag("h2", title), *parts) if parts else None


def _banner(account: NightAccount) -> Markup:
    night = account.night
    words = Counter(run.word for run in night.runs)
    runs = ", ".join(f"{number:,} {word}" for word, number in sorted(words.items())) or "no run"
    hours = sum(run.virtual_s for run in night.runs) / 3600
    return tag(
        "div",
        tag("p", f"{night.head.name}, begun {night.head.begun}", class_="subject"),
        tag("h1", account.headline),
        tag("p", f"{runs}; {hours:,.1f} hours of the cluster's time", class_="meaning"),
        tag("p", f"commit {str(night.head.commit)[:12]}{_changed_files(night)}, night {night.head.id}"),
        class_=f"banner {account.word}",
    )


def _changed_files(night: Night) -> str:
    return "" if night.head.clean else " with changed files"


def _card(case: TriageCase) -> Markup:
    """A finding: what, where, how often, since when, and the command that shows it again."""
    seen = (
        f"{in_words(case.shown, case.runs)}; first seen {case.first.night.head.id}, {count(case.times, 'time')} in all"
    )
    kept = list(dict.fromkeys(each.run.kept for each in case.sightings if each.run.kept))
    return tag(
        "article",
        tag("p", tag("span", case.state, class_="badge invalid"), " ", case.title, class_="message"),
        tag("p", f"{case.kind} {case.family} in {', '.join(case.cells)}: {seen}{_because(case)}"),
        tag("pre", case.command),
        tag("p", f"Kept: {', '.join(kept[:5])}", class_="quiet") if kept else None,
        tag("p", f"Details: {_details(case)}", class_="quiet"),
        class_="anomaly",
        id=f"{case.state}-{case.family}",
    )


def _because(case: TriageCase) -> str:
    return f"; {case.because}" if case.because else ""


def _details(case: TriageCase) -> str:
    return ", ".join(f"{detail} {number}×" for detail, number in sorted(case.details.items(), key=lambda d: -d[1])[:8])


def _missed(each: CellAccount) -> Markup:
    assert each.flaw is not None
    return tag(
        "article",
        tag(
            "p",
            tag("span", "missed", class_="badge invalid"),
            f" {each.cell.name} has a flaw: {', '.join(each.cell.flaw)}",
        ),
        tag("p", each.flaw[1]),
        tag("pre", each.cell.command),
        class_="anomaly",
    )


def _more(number: int, what: str) -> Markup | None:
    return tag("p", f"… and {number:,} further {what}, in night.json.", class_="quiet") if number > 0 else None


def _lines(sentences: Sequence[str]) -> Markup:
    return join([listing(sentences[:MOST_LINES]), _more(len(sentences) - MOST_LINES, "sentences")])


def _others(account: NightAccount) -> list[TriageCase]:
    shown = {id(case) for case in account.wrong}
    return [case for case in account.cases if id(case) not in shown]


def _known(account: NightAccount) -> Markup:
    cases = _others(account)
    rows = [
        (
            case.state,
            case.family,
            case.title,
            ", ".join(case.cells or (case.last.cell.name,)),
            *_ticket(case),
            in_words(case.shown, case.runs),
        )
        for case in cases[:MOST_LINES]
    ]
    header = ("state", "signature", "what", "cells", "ticket", "until", "runs")
    return join([table(header, rows, "small"), _more(len(cases) - MOST_LINES, "findings")])


def _ticket(case: TriageCase) -> tuple[str, str]:
    return ("", "") if case.entry is None else (case.entry.ticket, case.entry.until.isoformat())


def _changed(account: NightAccount) -> list[object]:
    return [_lines([f"{'Worse' if c.worse_by > 0 else 'Better'}: {c.sentence}." for c in account.changes])] * bool(
        account.changes
    )


# ---- cells and nights ----


def _grid(account: NightAccount) -> Markup:
    """A line for each cell, a column for each night, the newest first."""
    nights = account.nights[::-1][:MOST_NIGHTS]
    marks = [_marks(night) for night in nights]
    names = list(dict.fromkeys(cell.name for night in nights for cell in night.head.cells))
    header = tag("tr", tag("th", "cell"), *(tag("th", _day(night), title=night.head.id) for night in nights))
    rows = [
        tag("tr", tag("th", shortened(name, _NAME), title=name), *(_mark(each.get(name)) for each in marks))
        for name in names[:MOST_CELLS]
    ]
    grid = tag("table", tag("thead", header), tag("tbody", *rows), class_="grid small")
    return join([tag("div", grid, class_="scroll wide"), _more(len(names) - MOST_CELLS, "cells")])


def _day(night: Night) -> str:
    return night.head.begun[5:10]


def _mark(told: tuple[str, str] | None) -> Markup:
    if told is None:
        return tag("td")
    word, counts = told
    return tag("td", counts, class_=f"mark {_MARKS[word]}", title=word)


def _marks(night: Night) -> dict[str, tuple[str, str]]:
    """Of each cell by name a word, and its runs: how many show something, of how many that count."""
    counted, found, all_runs = Counter[str](), Counter[str](), Counter[str]()
    cells = {cell.id: cell for cell in night.head.cells}
    for run in night.runs:
        if run.twin is None:
            all_runs[run.cell] += 1
            counted[run.cell] += adequate(run)
            found[run.cell] += any(each.kind != "harness" for each in run.findings)
    marks = {}
    for id, cell in cells.items():
        if not counted[id]:
            word = "silent"
        elif cell.expect == "found":
            word = "found" if found[id] else "missed"
        else:
            word = "invalid" if found[id] else "valid" if counted[id] == all_runs[id] else "unsure"
        marks[cell.name] = word, f"{found[id]}/{counted[id]}"
    return marks


def _legend() -> str:
    return "In the table of cells 2/40 says that 2 of 40 runs that count show something."


# ---- trends ----


def _pictures(account: NightAccount) -> list[object]:
    """FigureSeries that changed, then the others by their cells, as far as there is room."""
    changed = {change.name: change for change in account.changes}
    drawn = [each for each in account.series if len(each.nights) >= 2 and each.middles.any()]
    drawn.sort(key=lambda each: each.name not in changed)
    parts: list[object] = []
    size = 0
    for number, series in enumerate(drawn):
        uri = data_uri(svg_of(_picture(series, changed.get(series.name))))
        size += len(uri)
        if size > PICTURES_BYTES:
            parts.append(_more(len(drawn) - number, "series"))
            break
        told = f": {100 * change.size:+.0f} %" if (change := changed.get(series.name)) else ""
        caption = tag("p", shortened(series.cell, _NAME), " ", tag("b", f"{series.figure}{told}"))
        parts.append(tag("div", caption, void("img", src=uri, alt=series.name), class_="panel"))
    pictures = [tag("div", *parts, class_="columns")] if parts else []
    few = len(account.nights) < LEAST_WALL_NIGHTS
    note = f"Figures of the wall clock are compared from {LEAST_WALL_NIGHTS} nights of one machine on."
    return [*pictures, *([tag("p", note, class_="quiet")] if few else [])]


def _picture(series: FigureSeries, change: FigureChange | None) -> Figure:
    figure = Figure(figsize=(4.4, 1.7), layout="constrained")
    axis = figure.add_subplot()
    nights = series.nights[-MOST_NIGHTS:]
    middles = np.array([each.middle for each in nights])
    color = PALETTE[1] if change is not None and change.worse_by > 0 else PALETTE[2]
    axis.plot(range(len(nights)), middles, "o-", color=color, ms=3, lw=1)
    for level in levels_of(series._replace(nights=nights)):
        axis.hlines(level.middle, level.begin - 0.4, level.end - 0.6, color="#67727d", lw=1, ls="--")
    if change is not None:
        place = next((at for at, each in enumerate(nights) if each.night is change.since), None)
        if place is not None:
            axis.axvline(place - 0.5, color=color, lw=1)
    axis.set_ylim(bottom=0 if middles.min() >= 0 else None)
    axis.xaxis.set_major_locator(MaxNLocator(4, integer=True))
    axis.set_xticks([0, len(nights) - 1], [_day(nights[0].night), _day(nights[-1].night)])
    axis.tick_params(labelsize=7)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
    return figure


# ---- facts ----


def _facts(account: NightAccount) -> Markup:
    head, done = account.night.head, account.night.done
    cpu_s = sum(run.cpu_s for run in account.night.runs)
    rows = [
        ("ended", "it is open" if done is None else f"{done.at} ({done.why})"),
        ("CPU hours", f"{cpu_s / 3600:.2f}"),
        ("assay, judge", f"{head.assay}, {head.judge}"),
        ("machine", f"{head.machine.host}, {head.machine.cores} cores, {head.machine.cpu}"),
        ("plan", head.plan),
        ("incidents", "; ".join(_incidents(account.night)) or "none"),
        ("runs let go", len(account.night.let_go)),
    ]
    return table(("", ""), rows)


def _incidents(night: Night) -> Iterable[str]:
    return (f"{each.title} in {len(each.cells)} cells" for each in night.incidents)
