"""The report of `assay check`: one page on any number of judged histories, each with its verdict and drawings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from harness.history.rundir import write_atomic
from results.findings import findings
from results.markup import Markup, join, page, table, tag
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
            findings(checkers_of(found)),
        )
    )
