"""The report of a run: one `report.html` that opens without a network (`runs.md`, "Run directory")."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from harness.history.rundir import RunDir, open_run, write_atomic
from results import sections
from results.findings import findings
from results.markup import Markup, join, page, tag, void
from results.neighbours import around
from results.plots import colors_of, data_uri, overview
from results.saved import Saved, load
from results.sections import recoveries


def build_report(run: Path, colors: Mapping[str, str] | None = None, to: Path | None = None) -> Path:
    """Write the report of a run directory, into it unless told, and return its path; whatever parts of the run are
    missing, it says so.

    `colors` are CSS colours by kind of fault. Raises UserError if the path is no run directory, HarnessError if the
    report can't be written.
    """
    rundir = open_run(run)
    target = to or rundir.report_html
    write_atomic(target, render(rundir, colors or {}).encode())
    return target


def render(rundir: RunDir, colors: Mapping[str, str]) -> str:
    """The whole page."""
    saved = load(rundir)
    title = f"{saved.verdict.get('overall', 'unfinished')}: {sections.subject(saved)}"
    return page(title, _body(saved, colors_of(saved.faults, colors)))


def _body(saved: Saved, colors: Mapping[str, str]) -> Markup:
    parts = (
        sections.questions(saved),
        tag("h2", "What was found"),
        findings(saved.checkers, saved.faults, colors) if saved.checkers else tag("p", "No checker judged this run."),
        _around(saved, colors),
        tag("h2", "What happened"),
        _pictures(saved, colors),
        tag("h2", "Operations"),
        tag("div", sections.operations(saved), class_="panel"),
        tag("h2", "Faults: requested against observed"),
        tag("div", sections.fault_table(saved), class_="panel"),
        _recoveries(saved, colors),
        tag("h2", "Run it again"),
        sections.again(saved),
        tag("footer", f"assay · {saved.rundir.path}"),
    )
    return join((sections.banner(saved), tag("main", *parts)))


def _around(saved: Saved, colors: Mapping[str, str]) -> Markup | None:
    found = around(saved.groups, saved.faults, colors)
    return None if found is None else join((tag("h2", "Anomalies by key and time, with their neighbours"), found))


def _recoveries(saved: Saved, colors: Mapping[str, str]) -> Markup | None:
    found = recoveries(saved, colors)
    return None if found is None else join((tag("h2", "Recovery after each fault"), tag("div", found, class_="panel")))


def _pictures(saved: Saved, colors: Mapping[str, str]) -> Markup:
    points = saved.points
    if points is None or (not points.series and not saved.faults):
        return tag("p", "There is no history to draw.")
    picture = void(
        "img",
        src=data_uri(overview(points, saved.faults, colors, saved.leaders)),
        alt="latency, rate and faults over time",
    )
    notes = [
        "Shaded: a fault was observed in effect. In the bottom lanes a pale bar runs from request to recovery, a full"
    ]
    notes.append("one from observed to healed; a dashed one was never observed.")
    if saved.leaders:
        notes.append("A leader's bar is full while the node was seen to lead, pale until the next one was.")
    if points.stride > 1:
        notes.append("Points are a sample with the slowest operations kept; counts and rates are exact.")
    return tag(
        "div", tag("div", picture, class_="scroll wide"), tag("p", " ".join(notes), class_="quiet"), class_="panel"
    )
