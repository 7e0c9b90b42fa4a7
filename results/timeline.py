"""The timeline of a run: operations in rows by thread, key or node, with faults, leaders, logs and what was found, on
canvases that `timeline.js` draws.

A page has its own data: the operations around what was found, of a small run all of them, of a large one how many began
when. Every other operation is in tiles beside the page (`tiles.py`), if it is made with a folder for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec

from checkers.importers.detect import open_source
from checkers.source import Source
from harness.errors import UnwritableError, shortened
from harness.verdict.faults import FOREVER_NS
from results.causes import cards_of, window_of
from results.graph import KIND_COLORS
from results.markup import Markup, join, parse_markup, table, tag
from results.neighbours import MOST_GROUPS, FindingGroup
from results.node_logs import NodeLogs
from results.plots import leaders_in_lanes
from results.saved import OUTCOMES, Saved
from results.tiles import (
    Bar,
    BarMaker,
    as_data,
    few,
    groupings,
    inner_tile,
    plan,
    read_columns,
    write_script,
    write_tiles,
)
from results.words import OUTCOME_COLORS, count, fault_name, named, op_name, operation, outcome_words, seconds

FOLDER: Final = "timeline"
"""Where a page has its tiles, beside it."""

VIEWS: Final = ("process", "key", "node")

_AROUND_NS: Final = 100_000_000
_MOST_WINDOWS: Final = 12
_MOST_OF_A_WINDOW: Final = 240
_MOST_ALIKE: Final = 50
_MOST_FAULTS: Final = 2_000
_MOST_LINES: Final = 600
"""Lines of logs that a page has itself."""

_LINES_OF_A_TILE: Final = 4_000
_MOST_LETTERS: Final = 200

SCRIPT: Final = Path(__file__).parent / "timeline.js"

_LogLine: TypeAlias = tuple[int, str, str]


class _Mark(msgspec.Struct):
    """Something that was found: its class, when it was (ns), its sentence, its operations, and the edges between them
    (from, to, kind, why)."""

    kind: str
    begin: int
    end: int
    message: str
    ops: list[int]
    steps: list[tuple[int, int, str, str]]


@dataclass(frozen=True, slots=True)
class Timeline:
    """The parts of a page: an article for each group of anomalies, the whole run, and the data with the script, which
    stands behind both."""

    articles: Markup | None
    whole: Markup
    script: Markup


def timeline(saved: Saved, colors: Mapping[str, str], logs: NodeLogs, tiles: Path | None) -> Timeline | None:
    """The timeline of a run, with its tiles in the folder `tiles` if there is one; None without a history.

    Raises UnwritableError if these can't be written, UserError for a history that can't be read.
    """
    if saved.points is None or not saved.points.series:
        return None
    source = open_source(saved.rundir.path, verify=False)
    articles = [_article(group) for group in saved.groups[:MOST_GROUPS] if group.neighbours]
    more = len(saved.groups) - MOST_GROUPS
    if articles and more > 0:
        articles.append(tag("p", f"… and {more} more groups.", class_="quiet"))
    data = _data(saved, source, colors, logs, tiles)
    block = tag("script", parse_markup(as_data(data).decode()), type="application/json", id="timeline-data")
    code = tag("script", parse_markup(SCRIPT.read_text(encoding="utf-8")))
    return Timeline(join(articles) if articles else None, _whole(data), join((block, code)))


# ---- what the page shows ----


def _figure(label: str, *above: Markup, **data: object) -> Markup:
    """A canvas with its buttons, and the lines of logs at the cursor below it."""
    buttons = [tag("button", word, type="button", data_zoom=step) for word, step in (("+", "in"), ("−", "out"))]
    buttons += [tag("button", word, type="button", data_zoom=step) for word, step in (("◂", "left"), ("▸", "right"))]
    buttons.append(tag("button", "all", type="button", data_zoom="all"))
    views = (tag("option", f"rows by {view}", value=view) for view in VIEWS)
    buttons.append(tag("select", *views, data_rows="", aria_label="rows"))
    hint = tag("span", "or drag, and turn the wheel with ctrl; a click holds the cursor", class_="quiet")
    return tag(
        "figure",
        tag("div", *buttons, *above, hint, class_="zoom"),
        tag(
            "div",
            tag("canvas", tabindex=0, role="img", aria_label=label),
            tag("div", class_="cursor", hidden=""),
            class_="canvas",
        ),
        tag("div", class_="cursor-logs", hidden=""),
        class_="timeline-of",
        **data,
    )


def _whole(data: Mapping[str, Any]) -> Markup:
    notes = ["Above the rows: what was found, faults as they were seen in effect, and who led."]
    if data["density"] is not None:
        more = "in the tiles beside this page" if data["tiles"] else "with `assay report RUN --to FOLDER`"
        notes.append(f"Shaded: how many operations began; those around what was found are here, all are {more}.")
    found = tag("select", tag("option", "go to …", value=""), data_found="", aria_label="what was found")
    figure = _figure("all operations in time", *([found] if data["found"] else []), data_whole="")
    return tag("div", tag("p", " ".join(notes), class_="quiet"), figure, class_="panel")


def title(group: FindingGroup) -> str:
    """Keys, window and classes in words."""
    keys = ", ".join(f"{partition}" if not of else f"{partition} of table {of}" for of, partition in sorted(group.keys))
    kinds = ", ".join(f"{number} × {kind}" for kind, number in group.kinds.items())
    noun = "key" if len(group.keys) == 1 else "keys"
    return f"{noun} {keys}, {seconds(group.begin_ns)} to {seconds(group.end_ns)}: {kinds}"


def _article(group: FindingGroup) -> Markup:
    left = f", and {group.left_out:,} more further away that are left out" if group.left_out else ""
    words = (
        f"{count(len(group.neighbours), 'operation')} of these keys and of the processes that took part{left}. "
        f"Framed: those of the anomalies. {named(min(group.ops, default=None))}"
    )
    first_ns, last_ns = group.around
    ops = " ".join(str(op["op"]) for op in group.neighbours)
    label = f"{title(group)}; operations in time, listed in the table below"
    return tag(
        "article",
        tag("h4", title(group)),
        tag("p", words, class_="quiet"),
        _figure(label, data_from=first_ns, data_to=last_ns, data_ops=ops),
        tag("details", tag("summary", count(len(group.neighbours), "operation")), _table(group)),
        class_="panel around",
    )


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


# ---- what it is drawn from ----


def _data(
    saved: Saved, source: Source, colors: Mapping[str, str], logs: NodeLogs, tiles: Path | None
) -> dict[str, Any]:
    if tiles is not None:
        _make(tiles)
    columns = read_columns(source)
    threads = saved.run.get("concurrency")
    threads = threads if isinstance(threads, int) and threads > 0 else None
    grouped = groupings(columns, threads, source.shown)
    maker = BarMaker(source, grouped, threads)
    end_ns = max([columns.end_ns, *(each.seen_ns for each in saved.leaders)])
    planned = plan(columns.begin_ns, min(0, int(columns.begin_ns.min())), end_ns)
    start_ns = saved.outcome.get("history_start_ns")
    marks = _marks(saved.checkers, start_ns if isinstance(start_ns, int) else 0)
    windows = _windows(marks)
    root = planned[0]
    if root.leaf:
        bars, dense = few(maker.all()), None
    else:
        bars, dense = few(_around(saved, maker, windows)), inner_tile(columns, grouped, root)
        if tiles is not None:
            write_tiles(tiles, columns, planned, maker)
    lines, chunks = _lines(logs, windows, tiles)
    return {
        "begin": root.begin_ns,
        "end": root.end_ns,
        "labels": {view: grouping.labels for view, grouping in grouped.items()},
        "outcomes": [[name, OUTCOME_COLORS[name]] for name in OUTCOMES],
        "bars": bars,
        "density": dense,
        "tiles": f"{tiles.name}/" if tiles is not None and (dense or chunks) else None,
        "found": marks,
        "edges": KIND_COLORS,
        "faults": list(_faults(saved, colors)),
        "leaders": leaders_in_lanes(saved.leaders, end_ns),
        "logs": {"lines": lines, "chunks": chunks},
    }


def _make(folder: Path) -> None:
    try:
        folder.mkdir(exist_ok=True)
        for old in folder.glob("*.js"):
            old.unlink()
    except OSError as error:
        raise UnwritableError(f"The folder {folder} can't be made: {error.strerror}.") from error


def _around(saved: Saved, maker: BarMaker, windows: Sequence[tuple[int, int]]) -> Iterator[Bar]:
    yield from (maker.bar(op) for group in saved.groups[:MOST_GROUPS] for op in group.neighbours)
    yield from maker.near(windows, _MOST_OF_A_WINDOW)


def _marks(checkers: Mapping[str, Mapping[str, Any]], start_ns: int) -> list[_Mark]:
    """What was found and is known to be of some time, in order of it."""
    marks = []
    for card in cards_of(checkers, start_ns):
        for item, window in ((item, window_of(item, start_ns)) for item in card.items[:_MOST_ALIKE]):
            if window is not None:
                ops = [op.get("op") for op in item.get("ops") or () if isinstance(op, Mapping)]
                message = shortened(str(item.get("message", "")), _MOST_LETTERS)
                numbers = [op for op in ops if isinstance(op, int)]
                marks.append(_Mark(card.kind, *window, message, numbers, list(_edges(item))))
    return sorted(marks, key=lambda mark: mark.begin)


def _edges(item: Mapping[str, Any]) -> Iterator[tuple[int, int, str, str]]:
    for step in item.get("steps") or ():
        if isinstance(step, Mapping) and all(isinstance(step.get(end), int) for end in ("source", "target")):
            why = shortened(str(step.get("why", "")), _MOST_LETTERS)
            yield step["source"], step["target"], str(step.get("kind", "?")), why


def _windows(marks: Sequence[_Mark]) -> list[tuple[int, int]]:
    """Around the first things that were found; those that meet are one."""
    found: list[tuple[int, int]] = []
    for mark in marks:
        first_ns, last_ns = mark.begin - _AROUND_NS, mark.end + _AROUND_NS
        if found and first_ns <= found[-1][1]:
            found[-1] = found[-1][0], max(last_ns, found[-1][1])
        elif len(found) < _MOST_WINDOWS:
            found.append((first_ns, last_ns))
    return found


def _faults(saved: Saved, colors: Mapping[str, str]) -> Iterator[tuple[str, str, str, Sequence[tuple[int, int]]]]:
    """Kind, colour, name with targets, and the spans in which each was seen in effect."""
    for fault in saved.faults[:_MOST_FAULTS]:
        name = shortened(f"{fault_name(fault)} {' '.join(fault.targets)}", _MOST_LETTERS)
        spans = [(first, min(last, 1 << 52)) for first, last in fault.seen(FOREVER_NS)]
        if spans:
            yield fault.kind, colors.get(fault.kind, "#888888"), name, spans


def _lines(
    logs: NodeLogs, windows: Sequence[tuple[int, int]], tiles: Path | None
) -> tuple[list[_LogLine], list[tuple[int, int, str]]]:
    """The nodes' lines that the page has itself: all, if they are few, else the first in the windows of what was found;
    and begin, end and name of the tiles that have the others."""
    every = [(at_ns, node, shortened(text, _MOST_LETTERS)) for at_ns, node, text in logs.lines()]
    if len(every) <= _MOST_LINES:
        return every, []
    if tiles is None:
        inside = [line for line in every if any(first <= line[0] <= last for first, last in windows)]
        return inside[:_MOST_LINES], []
    chunks = []
    for place in range(0, len(every), _LINES_OF_A_TILE):
        part = every[place : place + _LINES_OF_A_TILE]
        name = f"logs{place // _LINES_OF_A_TILE}"
        write_script(tiles, name, {"lines": part})
        chunks.append((part[0][0], part[-1][0], name))
    return [], chunks
