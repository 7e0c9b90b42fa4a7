"""The result of a night: what to read at eight in the morning, as JSON, JUnit and Markdown (`page` has the HTML).

    nights of a store, triage ─> `NightAccount` ─> night.json · junit.xml · summary.md · index.html

All of it is made from journals and triage at any time, and nothing is read back from it. Pure.
"""

from __future__ import annotations

import datetime as dt
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
from junitparser import Error, Failure, xunit2

from assay.night.gate import GateLine, GateWord, failed_steps, flaw_word, steps_left_out
from assay.night.rates import in_words
from assay.night.records import CellRecord, Night, RunEnded, StepEnded
from assay.night.trends import FigureChange, FigureSeries, changed, series_of
from assay.night.triage import Descends, TriageCase, TriageEntry, adequate, cases_of

VERSION: Final = 1
"""The version of night.json."""

WRONG: Final = ("regressed", "new", "expired", "open", "flaky")
"""States of findings that somebody has to look at, the most urgent first."""

MARKDOWN_BYTES: Final = 900_000
"""CI drops summaries beyond 1 MiB, and says nothing."""


class CellAccount(NamedTuple):
    """A cell in a night: its runs, but for repeats, counted by word; `found` of the `adequate` ones show something of
    the database; `flaw` says of a cell with a flaw whether that was found; `silent` are kinds of fault that were asked
    for and never seen."""

    cell: CellRecord
    words: Mapping[str, int]
    adequate: int
    vacuous: int
    found: int
    flaw: tuple[GateWord, str] | None
    silent: tuple[str, ...]
    cpu_s: float
    virtual_s: float

    @property
    def runs(self) -> int:
        return sum(self.words.values())

    @property
    def undecided(self) -> int:
        """Runs that gave no verdict of use."""
        return self.runs - self.words.get("valid", 0) - self.words.get("invalid", 0)


class NightAccount(NamedTuple):
    """The last of some nights in the light of the others."""

    nights: tuple[Night, ...]
    cells: tuple[CellAccount, ...]
    cases: tuple[TriageCase, ...]
    series: tuple[FigureSeries, ...]
    changes: tuple[FigureChange, ...]
    untested: tuple[str, ...]

    @property
    def night(self) -> Night:
        return self.nights[-1]

    @property
    def wrong(self) -> tuple[TriageCase, ...]:
        """What somebody has to look at."""
        return tuple(case for case in self.cases if case.sightings and case.state in WRONG)

    @property
    def missed(self) -> tuple[CellAccount, ...]:
        """Cells whose flaw was not found, though it should have been."""
        return tuple(each for each in self.cells if each.flaw is not None and each.flaw[0] == "FAIL")

    @property
    def failed_steps(self) -> tuple[StepEnded, ...]:
        return failed_steps(self.night)

    @property
    def word(self) -> str:
        """`invalid` with anything to look at, `unknown` where something was not tested, else `valid`."""
        if self.wrong or self.missed or self.failed_steps:
            return "invalid"
        return "unknown" if self.untested else "valid"

    @property
    def headline(self) -> str:
        """What is new, in a sentence."""
        counts = Counter(case.state for case in self.wrong)
        told = [f"{counts[state]} {state}" for state in WRONG if counts[state]]
        for things, what in ((self.missed, "missed flaw"), (self.failed_steps, "failed step")):
            told += [f"{len(things)} {what}{'s' * (len(things) > 1)}"] if things else []
        return ", ".join(told) or "Nothing new was found"


def account_of(
    nights: Sequence[Night], entries: Sequence[TriageEntry], today: dt.date, descends: Descends = lambda *_: False
) -> NightAccount:
    """The account of the last of these nights, the oldest first."""
    last = nights[-1]
    by_cell: dict[str, list[RunEnded]] = {cell.id: [] for cell in last.head.cells}
    for run in last.runs:
        if run.twin is None:
            by_cell[run.cell].append(run)
    cells = tuple(_cell_account(cell, by_cell[cell.id]) for cell in last.head.cells)
    series = series_of(nights)
    return NightAccount(
        tuple(nights),
        cells,
        cases_of(nights, entries, today, descends),
        series,
        changed(series, last),
        tuple(_untested(last, cells)),
    )


def _cell_account(cell: CellRecord, runs: Sequence[RunEnded]) -> CellAccount:
    counted = [run for run in runs if adequate(run)]
    asked, seen = Counter[str](), Counter[str]()
    for run in runs:
        for kind, count in run.faults.items():
            asked[kind] += count.asked
            seen[kind] += count.seen
    return CellAccount(
        cell,
        Counter(run.word for run in runs),
        len(counted),
        sum(run.vacuous for run in runs),
        sum(any(each.kind != "harness" for each in run.findings) for run in counted),
        flaw_word(cell, runs) if cell.expect == "found" else None,
        tuple(kind for kind in asked if not seen[kind]),
        sum(run.cpu_s for run in runs),
        sum(run.virtual_s for run in runs),
    )


_STEP_WORDS: Final = {"failed": "failed", "timeout": "took too long"}


def _untested(night: Night, cells: Iterable[CellAccount]) -> Iterator[str]:
    """In sentences what this night says nothing of."""
    if night.is_open:
        yield "The night is open: it is under way, or was ended before its time."
    yield from (f"{sentence}." for sentence in night.damage)
    if night.begun:
        yield f"{len(night.begun)} runs have begun and not ended."
    for each in cells:
        name = each.cell.name
        if not each.adequate:
            yield f"{name}: none of {each.runs} runs was adequate."
        elif each.adequate < each.cell.least:
            yield f"{name}: {each.adequate} adequate runs, of {each.cell.least} at least."
        if each.silent:
            yield f"{name}: never seen in effect, though asked for: {', '.join(each.silent)}."
        if each.flaw is not None and each.flaw[0] == "UNKNOWN":
            yield f"{name}: its flaw was not found ({each.flaw[1]})."
    first = {run.run: run for run in night.runs}
    for run in night.runs:
        if run.twin in first and run.trace != first[run.twin].trace:
            yield f"Run {run.run} repeats run {run.twin} under another hash seed and went another way."
    yield from (f"The step {name} was not carried out." for name in steps_left_out(night))
    yield from (f"The step {each.name} {_STEP_WORDS[each.word]} (code {each.code})." for each in failed_steps(night))
    if of_disk := sum(each.why == "disk" for each in night.let_go):
        yield f"{of_disk} runs were let go for want of room on the disk."


# ---- JSON ----


def as_json(account: NightAccount) -> dict[str, Any]:
    """`night.json`, with a version of its own."""
    head = account.night.head
    facts = ("id", "name", "begun", "commit", "clean", "assay", "judge", "machine", "plan", "budget")
    return {
        "version": VERSION,
        **{name: msgspec.to_builtins(getattr(head, name)) for name in facts},
        "word": account.word,
        "headline": account.headline,
        "done": msgspec.to_builtins(account.night.done),
        "findings": [_finding_object(case) for case in account.cases],
        "untested": list(account.untested),
        "cells": [_cell_object(each) for each in account.cells],
        "changes": [_change_object(each) for each in account.changes],
        "incidents": msgspec.to_builtins(account.night.incidents),
        "let_go": msgspec.to_builtins(account.night.let_go),
        "damage": list(account.night.damage),
    }


def _finding_object(case: TriageCase) -> dict[str, Any]:
    low, high = case.rate
    return {
        "state": case.state,
        "because": case.because,
        "signature": case.family,
        "kind": case.kind,
        "title": case.title,
        "details": dict(case.details),
        "cells": list(case.cells),
        "runs": case.runs,
        "shown": case.shown,
        "rate": [low, high],
        "first_seen": case.first.night.head.id,
        "last_seen": case.last.night.head.id,
        "times": case.times,
        "smallest_seed": case.smallest.run.seed,
        "command": case.command,
        "ticket": None if case.entry is None else case.entry.ticket,
        "kept": list(dict.fromkeys(each.run.kept for each in case.sightings if each.run.kept)),
    }


def _cell_object(each: CellAccount) -> dict[str, Any]:
    cell = each.cell
    return {
        **{name: getattr(cell, name) for name in ("id", "name", "workload", "command", "expect", "flaw", "least")},
        "words": dict(each.words),
        "adequate": each.adequate,
        "vacuous": each.vacuous,
        "found": each.found,
        "flaw_word": None if each.flaw is None else each.flaw[0],
        "never_seen": list(each.silent),
        "cpu_s": round(each.cpu_s, 3),
        "virtual_s": round(each.virtual_s, 3),
    }


def _change_object(each: FigureChange) -> dict[str, Any]:
    return {
        "cell": each.series.cell,
        "figure": each.series.figure,
        "since": each.since.head.id,
        "commits": [each.before.head.commit, each.since.head.commit],
        "size": each.size,
        "interval": [each.low, each.high],
        "p": each.p,
        "worse": each.worse_by > 0,
    }


# ---- JUnit ----

_FORBIDDEN: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def xml_text(value: object) -> str:
    """The text with U+FFFD for what XML 1.0 has no way to write."""
    return _FORBIDDEN.sub("\ufffd", str(value))


def as_junit(account: NightAccount) -> bytes:
    """`junit.xml`: a suite for each cell, with a case for the cell and one for each of its findings. What is wrong is a
    failure, what was not decided an error; nothing is skipped, which CI shows as fine."""
    suites = xunit2.JUnitXml(xml_text(account.night.head.id))
    for each in account.cells:
        suite = xunit2.TestSuite(xml_text(each.cell.name))
        suite.timestamp = account.night.head.begun[:19]
        suite.add_testcase(_cell_case(each))
        for case in account.cases:
            if each.cell.name in case.cells:
                suite.add_testcase(_finding_case(case, each.cell.name))
        suites.add_testsuite(suite)
    return junit_bytes(suites)


def junit_bytes(suites: xunit2.JUnitXml) -> bytes:
    """The document of suites, which it counts before."""
    import io

    suites.update_statistics()
    buffer = io.BytesIO()
    suites.write(buffer)
    return buffer.getvalue()


def junit_case(name: str, group: str, result: object = None, out: str = "", seconds: float = 0.0) -> Any:
    """A case with at most one result, a failure or an error."""
    case = xunit2.TestCase(xml_text(name), xml_text(group), round(seconds, 3))
    case.result = [] if result is None else [result]
    if out:
        case.system_out = xml_text(out)
    return case


def failure(message: str, kind: str) -> Any:
    return Failure(xml_text(message), xml_text(kind))


def error(message: str, kind: str) -> Any:
    return Error(xml_text(message), xml_text(kind))


def _cell_case(each: CellAccount) -> Any:
    words = ", ".join(f"{count} {word}" for word, count in sorted(each.words.items())) or "no run"
    result = None
    if each.flaw is not None and each.flaw[0] == "FAIL":
        result = failure(f"the flaw {', '.join(each.cell.flaw)} was not found: {each.flaw[1]}", "missed-flaw")
    elif each.flaw is not None and each.flaw[0] == "UNKNOWN":
        result = error(f"the flaw {', '.join(each.cell.flaw)} was not found: {each.flaw[1]}", "missed-flaw")
    elif each.undecided or not each.adequate:
        kind = "vacuous" if each.vacuous else next((w for w in each.words if w not in ("valid", "invalid")), "no-run")
        result = error(f"{each.undecided} of {each.runs} runs gave no verdict of use: {words}", kind)
    return junit_case("runs", each.cell.name, result, f"{words}\n{each.cell.command}", each.cpu_s)


def _finding_case(case: TriageCase, cell: str) -> Any:
    told = f"{case.state}: {case.title}{f' ({case.because})' if case.because else ''}"
    text = f"{told}\n{in_words(case.shown, case.runs)}\n{case.command}"
    result = failure(told, case.family) if case.state in WRONG else None
    return junit_case(f"{case.family} {case.title}", cell, result, text)


def gate_junit(conditions: Iterable[GateLine]) -> bytes:
    """The conditions of a gate as one suite: FAIL is a failure, UNKNOWN an error."""
    suites = xunit2.JUnitXml("gate")
    suite = xunit2.TestSuite("gate")
    for each in conditions:
        make = {"FAIL": failure, "UNKNOWN": error}.get(each.word)
        suite.add_testcase(junit_case(each.name, "gate", make and make(str(each), each.name), str(each)))
    suites.add_testsuite(suite)
    return junit_bytes(suites)


# ---- Markdown ----

_MARKED: Final = re.compile(r"([\\`*_{}\[\]()#+!|~-])")


def md(value: object) -> str:
    """A value as text in Markdown, on one line: nothing in it is markup, of Markdown or HTML."""
    flat = " ".join(xml_text(value).split())
    flat = flat.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("@", "&#64;")
    return _MARKED.sub(r"\\\1", flat)


def as_markdown(account: NightAccount) -> str:
    """The summary in Markdown, of at most 900 kB: what does not fit is in night.json, which it says."""
    night = account.night
    lines = [
        f"# {md(night.head.name)}: {md(account.headline)}",
        "",
        f"Night {md(night.head.id)}, commit {md(str(night.head.commit)[:12])}, {len(night.runs)} runs.",
        "",
        *_md_table("To look at", ("state", "signature", "what", "cells", "runs", "command"), _md_wrong(account)),
        *_md_list("Not tested", account.untested),
        *_md_list("Changed", (change.sentence for change in account.changes)),
        *_md_table("Known", ("state", "signature", "what", "ticket"), _md_known(account)),
        *_md_table("Cells", ("cell", "runs", "valid", "invalid", "undecided"), _md_cells(account)),
    ]
    return _within(lines, MARKDOWN_BYTES)


def _md_wrong(account: NightAccount) -> Iterator[tuple[object, ...]]:
    for case in account.wrong:
        what = f"{case.title}{f' ({case.because})' if case.because else ''}"
        yield case.state, case.family, what, ", ".join(case.cells), in_words(case.shown, case.runs), case.command
    for each in account.missed:
        assert each.flaw is not None
        yield (
            "missed",
            ", ".join(each.cell.flaw),
            "a flaw that was not found",
            each.cell.name,
            each.flaw[1],
            each.cell.command,
        )


def _md_known(account: NightAccount) -> Iterator[tuple[object, ...]]:
    for case in account.cases:
        if case.state not in WRONG and case.state != "expected":
            yield case.state, case.family, case.title, "" if case.entry is None else case.entry.ticket


def _md_cells(account: NightAccount) -> Iterator[tuple[object, ...]]:
    for each in account.cells:
        yield each.cell.name, each.runs, each.words.get("valid", 0), each.words.get("invalid", 0), each.undecided


def _md_table(title: str, header: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    told = [f"| {' | '.join(map(md, row))} |" for row in rows]
    if not told:
        return []
    return [f"## {title}", "", f"| {' | '.join(header)} |", f"|{'---|' * len(header)}", *told, ""]


def _md_list(title: str, items: Iterable[str]) -> list[str]:
    told = [f"- {md(item)}" for item in items]
    return [f"## {title}", "", *told, ""] if told else []


def _within(lines: Sequence[str], limit: int) -> str:
    """As many lines as fit, and how many do not."""
    kept: list[str] = []
    left = limit - 100
    for number, line in enumerate(lines):
        left -= len(line.encode()) + 1
        if left < 0:
            return "\n".join([*kept, "", f"… {len(lines) - number} further lines: see night.json.", ""])
        kept.append(line)
    return "\n".join(kept)
