"""The page on rules is kept true: every place that it names is there, and every test is one."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "design" / "rules.md"
ROW = re.compile(r"\| ([GRMQ][0-9]+) \| (.+) \| (.+) \| (.+) \|")


def rows() -> list[tuple[str, str, list[str], list[str]]]:
    """(Mechanism, rule, places, tests) of each row."""
    found = [match.groups() for line in PAGE.read_text().splitlines() if (match := ROW.fullmatch(line))]
    return [(name, rule, named(where), named(tests)) for name, rule, where, tests in found]


def named(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def functions_in(path: Path) -> list[str]:
    tests = ast.FunctionDef | ast.AsyncFunctionDef
    return [node.name for node in ast.parse(path.read_text()).body if isinstance(node, tests)]


def test_every_rule_names_places_and_tests_that_exist() -> None:
    for name, rule, places, tests in rows():
        assert places and tests, (name, rule)
        assert [place for place in places if not (ROOT / place).is_file()] == [], (name, rule)
        for each in tests:
            path, _, test = each.partition("::")
            assert test.startswith("test_") and test in functions_in(ROOT / path), each


def test_every_mechanism_that_is_built_has_rules() -> None:
    built = {"G": 10, "R": 8, "M": 14, "Q": 8}
    expected = [f"{letter}{number}" for letter, count in built.items() for number in range(1, count + 1)]
    assert sorted({name for name, *_ in rows()}) == sorted(expected)
    begins = tuple(f"| {letter}" for letter in built)
    assert len(rows()) == sum(line.startswith(begins) for line in PAGE.read_text().splitlines())
