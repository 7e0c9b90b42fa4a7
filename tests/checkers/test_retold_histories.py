"""A history told otherwise is judged the same: under other names, side by side with another, in parts, by many tasks,
after an export, and in JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import edn_format
import pytest
from frames_in_memory import engine_in_memory

from checkers.api import judge_source
from checkers.engines import spark as engine_of_spark
from checkers.engines.api import Engine
from checkers.engines.local import LocalEngine
from checkers.exporters.edn import write_edn
from checkers.importers.detect import open_source
from checkers.source import Source
from harness.errors import UserError
from harness.history.parts import write_history
from tests.support.retold import ONE_OBJECT, beside, table_of, ways_of
from tests.support.small_histories import SMALL

FEW = range(30_000, 30_002)
MANY = range(40_000, 40_150)


def judged(source: Source, model: str, engine: Engine) -> tuple[object, object, frozenset[str]]:
    """The verdict and the kinds of anomalies."""
    verdict = judge_source(source, model, engine)
    return verdict.valid, verdict.strongest, frozenset(verdict.counts)


def retold(source: Source, rows: list[dict[str, object]]) -> Source:
    return replace(source, table=table_of(rows), rows=len(rows))


@cache
def small(model: str, seed: int) -> Source:
    return SMALL[model](seed).source


def differences(model: str, seed: int, folder: Path, tasks: Engine) -> list[str]:
    """In which ways of telling a history it is judged otherwise than as it is."""
    source, here = small(model, seed), LocalEngine()
    if source.rows == 0:
        return []
    rows, expected = source.table.to_pylist(), judged(source, model, here)
    others = {way.__name__: judged(retold(source, way(rows)), model, here) for way in ways_of(model)}
    others["many tasks"] = judged(source, model, tasks)
    others["in parts"] = judged(in_parts(source, folder / f"{model}-{seed}"), model, tasks)
    if exported := as_edn(source, folder / f"{model}-{seed}.edn"):
        others["exported"] = judged(replace(exported, failed_cas=source.failed_cas), model, here)
        if told_in_json := as_json(exported.path):
            others["in JSON"] = judged(replace(told_in_json, failed_cas=source.failed_cas), model, here)
    found = [f"{model}, seed {seed}, {way}: {got}, not {expected}" for way, got in others.items() if got != expected]
    return found + ([] if model in ONE_OBJECT else side_by_side(model, seed, rows, expected))


def side_by_side(
    model: str, seed: int, rows: list[dict[str, object]], expected: tuple[object, object, object]
) -> list[str]:
    source, second = small(model, seed), small(model, seed + 2)
    both = judged(retold(source, beside(rows, second.table.to_pylist())), model, LocalEngine())
    words = (expected[0], judged(second, model, LocalEngine())[0])
    worse = False if False in words else True if True in words else "unknown"
    return (
        [] if both[0] is worse or both[0] == worse else [f"{model}, seeds {seed} and {seed + 2}: {both}, not {worse}"]
    )


def in_parts(source: Source, place: Path) -> Source:
    """The history saved in parts of three operations."""
    dictionary = b"[" + b",".join(b'"%s"' % text.encode() for text in source.dictionary) + b"]"
    write_history(source.table.to_batches(), place, part_rows=3, dictionary=dictionary)
    return replace(open_source(place), failed_cas=source.failed_cas)


def as_edn(source: Source, path: Path) -> Source | None:
    """The history exported and read again; None if EDN can't say it."""
    try:
        write_edn(source, path)
    except UserError:
        return None
    return open_source(path)


def as_json(edn: Path) -> Source | None:
    """The exported history in JSON, read again; None where a map has keys that are not names."""
    try:
        events = [plain(edn_format.loads(line)) for line in edn.read_text().splitlines()]
    except NotInJson:
        return None
    path = edn.with_suffix(".json")
    path.write_text(json.dumps(events))
    return open_source(path, "json")


class NotInJson(Exception):
    """EDN says something that JSON has no word for."""


def plain(value: Any) -> Any:
    """What JSON says for a value: names for keywords, lists for sets."""
    if isinstance(value, edn_format.Keyword):
        return value.name
    if isinstance(value, Mapping):
        if not all(isinstance(key, edn_format.Keyword) for key in value):
            raise NotInJson
        return {key.name: plain(item) for key, item in value.items()}
    if isinstance(value, (frozenset, set, tuple, list, edn_format.ImmutableList)):
        return [plain(item) for item in value]
    return value


@pytest.fixture
def tasks(monkeypatch: pytest.MonkeyPatch) -> Engine:
    monkeypatch.setattr(engine_of_spark, "_FEW_ROWS", 0)
    return engine_in_memory(monkeypatch)


@pytest.mark.parametrize("seeds", [FEW, pytest.param(MANY, marks=pytest.mark.campaign)])
@pytest.mark.parametrize("model", SMALL)
def test_a_history_told_otherwise_is_judged_the_same(model: str, seeds: range, tmp_path: Path, tasks: Engine) -> None:
    assert [line for seed in seeds for line in differences(model, seed, tmp_path, tasks)] == []
