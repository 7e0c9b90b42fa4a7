"""CONTRIBUTING.md is true: its examples, and the guide's, work as they stand, and what it quotes is in the code."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from command_line import INVALID, VALID, WROTE

from assay.options import RunOptions
from checkers.api import check
from checkers.models import MODELS, ModelInfo
from nemesis.registry import NEMESES, SCRIPTS
from tests.support.known_runs import try_seed
from workloads.registry import WORKLOADS

ROOT = Path(__file__).resolve().parents[2]
BLOCKS = dict(
    found
    for document in ("CONTRIBUTING.md", "docs/own-checker.md")
    for found in re.findall(r"```(?:python|text) (\S+)\n(.*?)```", (ROOT / document).read_text(), re.S)
)
QUOTED = [name for name in BLOCKS if "/" in name]


@pytest.fixture
def example(request: pytest.FixtureRequest) -> Iterator[Any]:
    """The block of this name as a module."""
    module = block(request.param)
    sys.modules[module.__name__] = module
    yield module
    del sys.modules[module.__name__]


def block(name: str) -> ModuleType:
    module = ModuleType(f"checkers.{name}")
    exec(compile(BLOCKS[name], f"the example {name}", "exec"), module.__dict__)
    return module


@pytest.mark.parametrize("example", ["thin_air"], indirect=True)
def test_the_checker_finds_what_it_is_for(example: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(MODELS, "thin-air", ModelInfo("thin-air", "", "thin_air:judge_thin_air"))
    for text, valid in ((WROTE, "unknown"), (VALID, True), (INVALID, False)):
        history = tmp_path / "history.edn"
        history.write_text(text)
        verdict = check(history, "thin-air")
        assert verdict.valid == block("by_hand").judged_by_hand(history, example.judge_thin_air).valid == valid
        assert verdict.counts == ({"thin-air": 1} if valid is False else {})
    (anomaly,) = verdict.anomalies["thin-air"]
    assert anomaly.message.endswith("nobody had written it.")


def test_a_checker_takes_25_lines_of_code() -> None:
    code = re.sub(r'^ *""".*?"""\n', "", BLOCKS["thin_air"], flags=re.M | re.S)
    assert len([line for line in code.splitlines() if line.strip()]) <= 25


@pytest.mark.parametrize("example", ["few_registers"], indirect=True)
def test_the_workload_makes_a_valid_run(example: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(WORKLOADS, "few-registers", example.WORKLOAD)
    result = try_seed(RunOptions("few-registers", nemesis=("kill",), time_limit=15, seed=1))
    assert result.overall == "valid", result.reasons


@pytest.mark.parametrize("example", ["crash_new_leader"], indirect=True)
def test_the_nemesis_reaches_its_core(example: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for table in (SCRIPTS, NEMESES):
        monkeypatch.setitem(table, "crash-new-leader", example.INFO)
    result = try_seed(RunOptions("register", nemesis=("crash-new-leader",), time_limit=20, seed=1))
    assert result.overall == "valid", result.reasons


@pytest.mark.parametrize("name", QUOTED)
def test_what_is_quoted_from_the_code_is_there(name: str) -> None:
    assert BLOCKS[name] in (ROOT / name).read_text()


def test_places_that_it_names_exist() -> None:
    places = re.findall(r"`(\w[\w.]*(?:/[\w.]+)+)", (ROOT / "CONTRIBUTING.md").read_text())
    assert [place for place in places if not (ROOT / place).exists()] == []
    assert len(places) > 10 and len(QUOTED) == 2
