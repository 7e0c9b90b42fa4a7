"""The reports of a run (`runs.md`, "Run directory") and of `assay check`: one page that opens without a network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from harness.history.rundir import RunDir, open_run, write_atomic
from results import sections
from results.findings import Around, findings
from results.markup import Markup, join, page, table, tag, void
from results.node_logs import NodeLogs, wall_zero_ns
from results.plots import clock_readings, colors_of, data_uri, overview
from results.saved import Saved, load
from results.sections import recoveries
from results.timeline import FOLDER, timeline
from results.words import VERDICT_WORDS, count

PAGE_NAME: Final = "check.html"

_MEANING: Final = {
    "valid": "No check found anything wrong.",
    "invalid": VERDICT_WORDS["invalid"],
    "unknown": "Not everything could be decided; the reasons are below.",
}


def write_check_report(where: Path, judged: Sequence[Mapping[str, Any]], errors: Sequence[str] = ()) -> Path:
    """Write the page (a directory gets a `check.html`) and return its path.

    `judged` are the objects that `assay check --json` prints, `errors` sentences on inputs that could not be judged.
    Raises HarnessError if the page can't be written.
    """
    path = where / PAGE_NAME if where.is_dir() else where
    write_atomic(path, render_check(judged, errors).encode())
    return path


def render_check(judged: Sequence[Mapping[str, Any]], errors: Sequence[str] = ()) -> str:
    """The whole page; what was refuted comes first."""
    order = {"invalid": 0, "unknown": 1, "valid": 2}
    inputs = sorted(judged, key=lambda found: order[word_of(found)])
    words = [*(word_of(found) for found in inputs), *("unknown" for _ in errors)]
    overall = min(words, key=lambda word: order[word], default="unknown")
    subject = str(inputs[0].get("input")) if len(words) == 1 and inputs else count(len(words), "history")
    banner = tag(
        "header",
        tag("p", f"assay check · {subject}", class_="subject"),
        tag("h1", overall.upper()),
        tag("p", _MEANING[overall], class_="meaning"),
        tag("ul", *(tag("li", error) for error in errors)) if errors else None,
        class_=f"banner {overall}",
    )
    several = len(inputs) > 1
    overview = join((tag("h2", "Histories"), _overview(inputs))) if several else None
    told = [(number, found) for number, found in enumerate(inputs) if not several or word_of(found) != "valid"]
    sections = [_section(found, number) for number, found in told]
    return page(f"{overall}: {subject}", join((banner, tag("main", overview, *sections))))


def word_of(found: Mapping[str, Any]) -> str:
    """`valid`, `invalid` or `unknown`."""
    return {"True": "valid", "False": "invalid"}.get(str(found.get("valid")), "unknown")


def _overview(inputs: Sequence[Mapping[str, Any]]) -> Markup:
    rows = [
        (
            tag("span", word_of(found), class_=f"badge {word_of(found)}"),
            _name(found, number),
            tag("span", found.get("model", "?"), class_="name"),
            found.get("ops"),
            ", ".join(f"{name} ({times})" for name, times in _checkers_counts(found)) or "–",
        )
        for number, found in enumerate(inputs)
    ]
    return tag("div", table(("verdict", "history", "model", "operations", "anomalies"), rows, "small"), class_="panel")


def _name(found: Mapping[str, Any], number: int) -> object:
    """The path of a history, leading to what is told of it."""
    name = found.get("input", "?")
    return name if word_of(found) == "valid" else tag("a", name, href=f"#input-{number}")


def _checkers_counts(found: Mapping[str, Any]) -> list[tuple[str, object]]:
    counts = [checker.get("counts") for checker in checkers_of(found).values()]
    return [item for each in counts if isinstance(each, dict) for item in each.items()]


def checkers_of(found: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    """The verdicts by checker: a run's own, or the one on a file by its model."""
    checkers = found.get("checkers")
    return checkers if isinstance(checkers, dict) else {str(found.get("model", "?")): found}


def _section(found: Mapping[str, Any], number: int) -> Markup:
    note = (found.get("details") or {}).get("note") if isinstance(found.get("details"), dict) else None
    return join(
        (
            tag("h2", str(found.get("input", "?")), id=f"input-{number}"),
            tag("p", note, class_="quiet") if note else None,
            findings(checkers_of(found), Around(proves_nothing=found.get("why") == "vacuous")),
        )
    )


def build_report(run: Path, colors: Mapping[str, str] | None = None, to: Path | None = None) -> Path:
    """Write the report of a run directory, into it unless told, and return its path; whatever parts of the run are
    missing, it says so. A folder gets a `report.html`, and beside it all operations of the timeline, as tiles.

    `colors` are CSS colours by kind of fault. Raises UserError if the path is no run directory, HarnessError if the
    report can't be written.
    """
    rundir = open_run(run)
    whole = to is not None and to.is_dir()
    target = rundir.report_html if to is None else to / rundir.report_html.name if whole else to
    page = render(rundir, colors or {}, target.parent, target.parent / FOLDER if whole else None)
    write_atomic(target, page.encode())
    return target


def render(rundir: RunDir, colors: Mapping[str, str], folder: Path, tiles: Path | None = None) -> str:
    """The whole page, which is to lie in this folder; with tiles of the timeline in another, if there is one."""
    saved = load(rundir)
    title = f"{saved.verdict.get('overall', 'unfinished')}: {sections.subject(saved)}"
    return page(title, _body(saved, colors_of(saved.faults, colors), folder, tiles))


def _body(saved: Saved, colors: Mapping[str, str], folder: Path, tiles: Path | None) -> Markup:
    start_ns = saved.outcome.get("history_start_ns")
    clocks = clock_readings(saved.points) if saved.points is not None else {}
    logs = NodeLogs(saved.rundir.nodes, folder, wall_zero_ns(saved.run, saved.outcome), clocks)
    around = Around(
        saved.faults,
        colors,
        start_ns if isinstance(start_ns, int) else 0,
        logs,
        sections.proves_nothing(saved),
    )
    drawn = timeline(saved, colors, logs, tiles)
    found = drawn and drawn.articles
    parts = (
        sections.questions(saved),
        tag("h2", "What was found"),
        findings(saved.checkers, around) if saved.checkers else tag("p", "No checker judged this run."),
        found and join((tag("h2", "Anomalies by key and time, with their neighbours"), found)),
        drawn and join((tag("h2", "Timeline"), drawn.whole)),
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
    return join((sections.banner(saved), tag("main", *parts), drawn and drawn.script))


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
