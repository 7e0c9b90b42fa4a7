"""What a night leaves to be read: JSON, JUnit, Markdown, the page; nothing in it that was not ours is markup."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from command_line import assay
from lxml import etree
from made_nights import SCRIPT, TODAY, cell, found, night, run, runs, write_night

from assay.night.page import page_of
from assay.night.records import FaultCount, Night, RunFigures, StepEnded, StepRecord
from assay.night.result import MARKDOWN_BYTES, NightAccount, account_of, as_json, as_junit, as_markdown, md, xml_text
from assay.night.triage import TriageEntry

SCHEMA = etree.XMLSchema(etree.parse(Path(__file__).parents[2] / "data" / "junit.xsd"))
MARKDOWN = "[a](http://x) ![b](http://y) `c` **d** # e | f @everyone &amp; \x00\x1b[31m \ud800"
HOSTILE = f"{SCRIPT} \"' </pre> {MARKDOWN}"
PAGE_BYTES = 2_000_000

VALID = runs(20)
FLAWED = cell("flawed", expect="found", flaw=("lose-writes",), rate=0.5)


def account(*made: Any, cells: Any = (), entries: Any = (), **other: Any) -> NightAccount:
    return account_of([night([*VALID, *made], cells or [cell()], **other)], entries, TODAY)


def junit(found: NightAccount) -> Any:
    document = etree.fromstring(as_junit(found))
    SCHEMA.assertValid(document)
    return document


CASES: dict[str, tuple[NightAccount, str, set[str]]] = {
    "nothing": (account(), "valid", set()),
    "a finding": (account(run(30, found())), "invalid", {"failure"}),
    "a known one": (
        account(run(30, found()), entries=[TriageEntry(family=found().family, ticket="T", until=TODAY)]),
        "valid", set(),
    ),
    "a vacuous run": (account(run(30, word="unknown", why="vacuous", vacuous=True)), "valid", {"error"}),
    "a timeout": (account(run(30, found("t", kind="harness"), word="timeout")), "invalid", {"failure", "error"}),
    "nothing but vacuous runs": (
        account(run(30, of="idle", word="unknown", why="vacuous", vacuous=True), cells=(cell(), cell("idle"))),
        "unknown", {"error"},
    ),
    "a cell without a run": (account(cells=(cell(), cell("idle"))), "unknown", {"error"}),
    "a fault that was asked for and never seen": (
        account(*runs(3, 40, "idle", faults={"partition": FaultCount(2, 0, 2)}), cells=(cell(), cell("idle"))),
        "unknown", set(),
    ),
    "fewer runs than its least": (account(cells=(cell(least=30),)), "unknown", set()),
    "a missed flaw": (account(*runs(20, 40, "flawed"), cells=(cell(), FLAWED)), "invalid", {"failure"}),
    "too few runs for a flaw": (account(*runs(2, 40, "flawed"), cells=(cell(), FLAWED)), "unknown", {"error"}),
    "a flaw that is found": (account(run(40, found("f"), of="flawed"), cells=(cell(), FLAWED)), "valid", set()),
    "an open night": (account(done=None), "unknown", set()),
    "lines that do not follow": (account(damage=("line 3 does not follow",)), "unknown", set()),
    "a twin that went another way": (account(run(30, word="valid", twin=0, trace="other")), "unknown", set()),
    "a step that failed": (
        account(steps=(StepEnded(name="s", at="", spent_s=1.0, word="timeout", code=-15, wall_s=9.0),),
                head={"steps": (StepRecord(name="s", argv=("x",), limit_s=9.0),)}),
        "invalid", set(),
    ),
    "a step that was not carried out": (
        account(head={"steps": (StepRecord(name="s", argv=("x",), limit_s=9.0),)}), "unknown", set(),
    ),
}  # fmt: skip
"""A night, its word, and which results its JUnit has; nothing that proves too little is green."""


@pytest.mark.parametrize(("found", "word", "results"), CASES.values(), ids=CASES)
def test_the_word_of_a_night(found: NightAccount, word: str, results: set[str]) -> None:
    assert found.word == word
    assert {each.tag for each in junit(found).iter("failure", "error", "skipped")} == results
    assert (word == "unknown") <= bool(found.untested)
    shown = json.loads(json.dumps(as_json(found)))
    assert (shown["version"], shown["word"], shown["untested"]) == (1, word, list(found.untested))
    for sentence in found.untested:
        assert md(sentence) in as_markdown(found)


class Text(HTMLParser):
    """The elements of a page with their attributes, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def hostile() -> NightAccount:
    """A night of which every name and text that comes from elsewhere would be markup."""
    named = cell(HOSTILE, command=HOSTILE)
    seen = run(1, found(title=HOSTILE), of=HOSTILE, kept=HOSTILE, faults={HOSTILE: FaultCount(1, 0, 0)})
    entry = TriageEntry(family=found("k").family, ticket=HOSTILE, until=TODAY)
    others = [*runs(5, 2, HOSTILE), run(9, found("k", title=HOSTILE), of=HOSTILE)]
    head = {"assay": HOSTILE, "judge": HOSTILE}
    return account_of([night([seen, *others], [named], head=head, damage=(HOSTILE,))], [entry], TODAY)


def test_what_comes_from_elsewhere_stays_text() -> None:
    told = hostile()
    page = Text(page_of(told))
    own = Text(page_of(account()))
    assert page.text.count(SCRIPT) >= 6
    assert {tag for tag, _ in page.elements if tag in ("script", "iframe", "object")} <= {t for t, _ in own.elements}
    for tag, attributes in page.elements:
        assert not any(name.startswith("on") for name in attributes), (tag, attributes)
        for name in ("src", "href"):
            assert (attributes.get(name) or "#").startswith(("#", "data:")), (tag, attributes)
    markdown = as_markdown(told)
    assert "<" not in markdown and not re.search(r"(?<!\\)[\[`*!]", markdown.replace("# ", "").replace("|", ""))
    assert "@everyone" not in markdown and "\x1b" not in markdown
    assert xml_text("\ud800\x00\t\uffff") == "\ufffd\ufffd\t\ufffd"
    (suite,) = junit(told)
    assert suite.get("name") == xml_text(HOSTILE) and "\ufffd" in suite.get("name")


def large() -> list[Night]:
    """Thirty nights of 400 cells, of which the last has 3 000 signatures with long titles."""
    cells = [cell(f"cell {n} {'x' * 150}") for n in range(400)]
    names = [each.name for each in cells]
    findings = [run(n, found(f"s{n}", title="x" * 200), of=names[n % 400]) for n in range(3_000)]
    nights = []
    for day in range(2, 31):
        figures = [RunFigures(rate=day + n, p99_ms=day + n, checker_s=1.0 + n) for n in range(2)]
        nights.append(night([run(n, of=names[n], figures=figures[n % 2]) for n in range(60)], cells, day))
    return [*nights, night([*findings, *(run(3_000 + n, of=names[n]) for n in range(60))], cells, 31)]


def test_a_page_and_a_summary_have_bounds_and_say_what_they_leave_out() -> None:
    told = account_of(large(), (), TODAY)
    page, markdown = page_of(told), as_markdown(told)
    assert len(page.encode()) <= PAGE_BYTES and "further findings, in night.json" in page
    assert len(markdown.encode()) <= MARKDOWN_BYTES < 1 << 20 and "further lines: see night.json" in markdown[-200:]
    assert len(as_json(told)["findings"]) == 3_000


def test_the_results_are_made_again_by_a_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the newest night, or one that is named by its beginning; one that is not there is told."""
    store = tmp_path / "store"
    for day in (29, 30):
        folder = write_night(store, night([*VALID, run(50, found())], day=day))
    words = ("--store", str(store), "--triage", str(tmp_path / "none.toml"))
    answer = assay(capsys, "night", "report", *words)
    assert (answer.code, answer.out.splitlines()[0]) == (0, "1 open")
    assert {path.name for path in folder.iterdir()} == {
        *("night.jsonl", "index.html", "night.json", "junit.xml", "summary.md"),
    }
    assert assay(capsys, "night", "report", "20261229", *words).out.splitlines()[0] == "1 new"
    assert assay(capsys, "night", "report", "2026", *words).code == 254
    assert assay(capsys, "night", "report", "1999", *words).code == 254
