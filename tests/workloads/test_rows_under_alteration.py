"""Runs of the workload `catalog` find rows that are wrong under a schema, where the cluster is made to have them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any
from zlib import crc32

import pytest
from msgspec.structs import replace

import cluster.master.ddl as ddl
import cluster.ranges.requests as rules
from assay.options import RunOptions
from tests.support.known_runs import try_seed

Patch = pytest.MonkeyPatch


def by_name(name: str) -> int:
    return 1_000 + crc32(name.encode()) % 1_000_000


def cells_by_name(patch: Patch) -> None:
    """Cells lie under the names of columns: what is renamed is lost, what is added again is not empty."""
    decide, value = rules.decide_row, rules._value

    def decided(change: Any, state: Any, timestamp: int) -> Any:
        puts, done = decide(change, state, timestamp)
        names = {column.id: by_name(column.name) for column in state.schema_in_force.columns}
        return tuple(replace(put, key=(*put.key[:2], names.get(put.key[2], put.key[2]))) for put in puts), done

    patch.setattr(rules, "decide_row", decided)
    patch.setattr(rules, "_value", lambda column, key, *more: value(column, (*key[:2], by_name(column.name)), *more))


def ids_by_name(patch: Patch) -> None:
    """A column that is added again gets the id that it had."""
    altered = ddl.altered

    def numbered(columns: Any, next_id: int, steps: Any) -> Any:
        known = {column.id for column in columns}
        after, following = altered(columns, next_id, steps)
        return tuple(each if each.id in known else replace(each, id=by_name(each.name)) for each in after), following

    patch.setattr(ddl, "altered", numbered)


def no_defaults(patch: Patch) -> None:
    """Rows that are older than a column read null in it."""
    value = rules._value
    patch.setattr(rules, "_value", lambda column, *more: value(replace(column, default=None), *more))


def erasures_leave_cells(patch: Patch) -> None:
    """Only the marker of a row that is erased goes: what it held is there again when the row is."""
    decide = rules.decide_row

    def decided(change: Any, state: Any, timestamp: int) -> Any:
        puts, done = decide(change, state, timestamp)
        erased = change.kind == "delete"
        return tuple(put for put in puts if not erased or put.key[2] == rules.MARKER), done

    def upserted(change: Any, state: Any, timestamp: int) -> Any:
        puts, done = decided(change, state, timestamp)
        given = {each for each, _ in change.cells}
        return tuple(put for put in puts if put.key[2] == rules.MARKER or put.key[2] in given), done

    patch.setattr(rules, "decide_row", upserted)


def erasures_leave_rows(patch: Patch) -> None:
    """Only the cells of a row that is erased go: the row is there still, and is found again by the next erasure."""
    decide = rules.decide_row

    def decided(change: Any, state: Any, timestamp: int) -> Any:
        puts, done = decide(change, state, timestamp)
        erased = change.kind == "delete"
        return tuple(put for put in puts if not erased or put.key[2] != rules.MARKER), done

    patch.setattr(rules, "decide_row", decided)


def pages_lose_their_last_row(patch: Patch) -> None:
    """A scan that goes on after a page begins one row too late."""
    scan = rules.scan_rows

    def scanned(read: Any, versions: Any, timestamp: int) -> Any:
        found = scan(read, versions, timestamp)
        full = getattr(found, "more", False) and len(found.rows) > 1
        return replace(found, rows=(*found.rows[:-2], found.rows[-1])) if full else found

    patch.setattr(rules, "scan_rows", scanned)


PLANTS: dict[Callable[[Patch], None], set[str]] = {
    cells_by_name: {"read-of-unwritten", "stale-read"},
    ids_by_name: {"column-came-back"},
    no_defaults: {"read-of-unwritten"},
    erasures_leave_cells: {"stale-read", "nonlinearizable", "overlapping-clusters"},
    erasures_leave_rows: {"stale-read", "nonlinearizable"},
    pages_lose_their_last_row: {"stale-read", "nonlinearizable", "overlapping-clusters"},
}


QUICK = (cells_by_name, ids_by_name)
"""One of rows and one of columns; the others are for `make torture`."""


@pytest.mark.parametrize(
    "plant",
    [plant if plant in QUICK else pytest.param(plant, marks=pytest.mark.campaign) for plant in PLANTS],
    ids=lambda plant: plant.__name__,
)
def test_rows_that_a_planted_bug_makes_wrong_are_found(plant: Callable[[Patch], None], monkeypatch: Patch) -> None:
    plant(monkeypatch)
    options = RunOptions("catalog", nemesis=("master-kill",), time_limit=10.0, workload_options={"rows": "0.7"})
    tried = (try_seed(dataclasses.replace(options, seed=seed)) for seed in (1, 2, 3, 4))
    assert any(PLANTS[plant] & set(result.anomalies) for result in tried)
