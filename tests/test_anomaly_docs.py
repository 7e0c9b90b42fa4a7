"""docs/anomalies.md is true: every example shows its anomaly, every sentence is the checker's, every class is there.

`ASSAY_WRITE_DOCS=1` writes the document anew.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TypeAlias

import pytest
from anomaly_examples import DOCUMENT, ROOT, document, verdict_of

from checkers.made.examples import EXAMPLES, Example, ExampleGroup, events_of, groups
from checkers.models import MODELS
from checkers.transactions.graph.cycle_anomalies import BASES, ORDERS
from checkers.verdict import Verdict

REGISTRIES = ("_SENTENCES", "_EXPLAIN", "ANOMALIES", "CLASSES", "READ_ANOMALIES", "ZONE_ANOMALIES", "CYCLE_ANOMALIES")
"""Module constants of the checkers that list classes of anomalies: as keys, or as items."""

NAMES = (
    *("DIVERGENCE", "DUPLICATE", "LONG_FORK", "PANIC", "BELOW", "ABOVE", "TORN", "CIRCULAR", "CONTRADICTORY"),
    *("NONLINEARIZABLE", "CYCLIC_CO", "NON_REPEATABLE_READ", "BACK"),
)
"""Module constants that are the name of one class."""

ALL = tuple(example for group in groups() for example in group.examples)


def strings(node: ast.AST | None) -> set[str]:
    return (
        {leaf.value for leaf in ast.walk(node) if isinstance(leaf, ast.Constant) and isinstance(leaf.value, str)}
        if (node)
        else set()
    )


def listed(value: ast.expr | None) -> set[str]:
    """The names in a tuple, in the values of a level's dictionary, or else the dictionary's keys."""
    if isinstance(value, ast.Dict):
        tuples = [item for item in value.values if isinstance(item, ast.Tuple)]
        return {name for item in (tuples or [key for key in value.keys if key]) for name in strings(item)}
    return strings(value) if isinstance(value, ast.Tuple) else set()


def names_in(path: Path) -> set[str]:
    """The classes of anomalies that a module's literal registries hold."""
    found: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        target = node.target if isinstance(node, ast.AnnAssign) else None
        if isinstance(target, ast.Name) and isinstance(node, ast.AnnAssign):
            if target.id in REGISTRIES:
                found |= listed(node.value)
            elif target.id in NAMES:
                found |= strings(node.value)
    return found - {""}


def names_in_code() -> set[str]:
    modules = (ROOT / "checkers").rglob("*.py")
    cycles = {base + order for base in (*BASES, "cyclic-versions") for order in ORDERS}
    return cycles.union(*(names_in(path) for path in modules))


Judge: TypeAlias = Callable[[Example], Verdict]


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Judge:
    scratch = tmp_path_factory.mktemp("examples")
    return cache(lambda example: verdict_of(example, scratch))


@pytest.mark.parametrize("example", ALL, ids=lambda example: f"{example.model}-{example.anomaly}")
def test_an_example_shows_its_anomaly(example: Example, judge: Judge) -> None:
    verdict = judge(example)
    assert verdict.valid is False
    assert set(verdict.counts) == {example.anomaly, *example.also}
    assert set(verdict.anomalies) == set(verdict.counts)


def test_the_document_is_true(judge: Judge) -> None:
    text = document({example: judge(example) for example in ALL})
    if os.environ.get("ASSAY_WRITE_DOCS"):
        DOCUMENT.write_text(text)
    assert DOCUMENT.read_text() == text, "run: ASSAY_WRITE_DOCS=1 python -m pytest tests/test_anomaly_docs.py"


def test_every_class_in_the_code_is_documented() -> None:
    assert len(names_in_code()) > 60
    assert names_in_code() - {example.anomaly for example in ALL} == set()


def test_every_documented_class_is_in_the_code() -> None:
    assert {example.anomaly for example in ALL} - names_in_code() == set()


def test_every_model_is_documented() -> None:
    documented = [model for group in groups() for model in group.models]
    assert sorted(documented) == sorted(MODELS)


@pytest.mark.parametrize("group", groups(), ids=lambda group: group.title)
def test_examples_belong_to_their_group(group: ExampleGroup) -> None:
    assert {example.model for example in group.examples} <= set(group.models)


def test_no_example_lies_about_unused() -> None:
    present = {str(path.relative_to(EXAMPLES)) for path in EXAMPLES.glob("*/*")}
    assert present == {example.file for example in ALL}


def test_an_example_in_text_is_read_as_it_is_meant() -> None:
    events = events_of("0-3 1 ok read r(1,2)=[5 6] r(7)=nil mode=strong node=t1\n1- 2 info write w(1)=4\n")
    assert [(event.type, event.process) for event in events] == [("invoke", 1), ("invoke", 2), ("ok", 1)]
    begun, _, done = events
    assert begun.mops[0].values is None
    assert (done.mops[0].partition, done.mops[0].row, done.mops[0].values) == (1, 2, (5, 6))
    assert (done.mode, done.node, begun.mode, begun.node) == ("strong", "t1", "strong", None)
