"""Rows whose columns come and go: what is judged of schemas, and to which column a write without answer belongs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from checkers.catalog.calls import COLUMN, RESHAPE, Call
from checkers.catalog.judge import judged
from checkers.catalog.schemas import ADD, DROP, RENAME
from checkers.engines.local import LocalEngine
from checkers.models import MODELS
from checkers.options import CheckOptions
from checkers.source import Source
from checkers.verdict import Verdict
from harness.history.table import to_table
from harness.ops import Mop, Op, read, write

BASE = (2, 0)
PLENTY = 1 << 40


def shown(order: int, version: int, *columns: tuple[int, int]) -> Call:
    return Call(order, order, order + 1, COLUMN, version=version, columns=(BASE, *columns))


def reshaped(order: int, version: int, step: int, number: int = 0) -> Call:
    return Call(order, order, order + 1, RESHAPE, number, version=version, step=step)


def wrong(*calls: Call) -> set[str]:
    return set(judged(list(calls), 8, PLENTY, PLENTY).counts)


def test_schemas_as_they_should_be() -> None:
    calls = [shown(0, 0), reshaped(2, 1, ADD), shown(4, 1, (5, 1)), reshaped(6, 2, RENAME), shown(8, 2, (5, 2))]
    more = [reshaped(10, 3, ADD), shown(12, 3, (5, 2), (6, 1)), reshaped(14, 4, DROP), shown(16, 4, (5, 2))]
    assert wrong(*calls, *more) == set()


def test_an_alteration_that_did_something_else_is_found() -> None:
    assert wrong(reshaped(0, 1, ADD), shown(2, 1)) == {"schemas-differ"}
    assert wrong(reshaped(0, 1, DROP), shown(2, 1, (5, 1))) == {"schemas-differ"}
    assert wrong(reshaped(0, 1, RENAME), shown(2, 1, (5, 1))) == {"schemas-differ"}
    assert wrong(reshaped(0, 1, ADD), reshaped(2, 1, ADD, 1)) == {"schemas-differ"}, "two of them made one version"
    assert wrong(shown(0, 1, (5, 1), (5, 2))) == {"schemas-differ"}, "an id of two names"


def test_an_id_that_comes_back_is_found_and_so_is_an_old_schema() -> None:
    assert wrong(shown(0, 1, (5, 1)), shown(2, 2), shown(4, 3, (5, 1))) == {"column-came-back"}
    assert wrong(shown(0, 2), shown(2, 1, (5, 1))) == {"schema-went-back"}
    at_once = replace_end(shown(0, 2), 4), shown(2, 1, (5, 1))
    assert wrong(*at_once) == set(), "they overlap"


def replace_end(call: Call, complete: int) -> Call:
    return Call(call.order, call.since, complete, call.kind, version=call.version, columns=call.columns)


# ---- rows ----


def cell(mop: Mop, column: int) -> Mop:
    return replace(mop, column=column)


def rows(*lines: tuple[str, Mop, Mop]) -> Verdict:
    """Operations one after the other: outcome, what was asked for, what was answered."""
    events: list[Op] = []
    for process, (outcome, asked, told) in enumerate(lines):
        f = "read" if asked.f == "r" else "write"
        for kind, mop in (("invoke", asked), (outcome, told)):
            events.append(Op(kind, process, f, (mop,), index=len(events), time=len(events)))  # type: ignore[arg-type]
    table = to_table(events)
    source = Source(Path("test.journal"), "journal", table.num_rows, table=table)
    return MODELS["catalog-rows"].judge(source, LocalEngine(), CheckOptions())


def wrote(value: int, column: int | None, outcome: str = "ok") -> tuple[str, Mop, Mop]:
    asked = cell(write(1, value), -2)
    return outcome, asked, asked if column is None else cell(asked, column)


def saw(value: int | None, column: int) -> tuple[str, Mop, Mop]:
    return "ok", cell(read(1), -2), replace(cell(read(1), column), value=value)


def test_columns_of_one_row_are_registers_of_their_own() -> None:
    assert rows(wrote(1, 5), saw(1, 5), saw(None, 6), wrote(2, 6), saw(1, 5)).valid is True
    assert "stale-read" in rows(wrote(1, 5), wrote(2, 5), saw(1, 5)).counts
    assert "read-of-unwritten" in rows(wrote(1, 5), saw(1, 6)).counts, "cells by name, not by id"
    assert "stale-read" in rows(wrote(1, 5), saw(None, 5)).counts, "a renaming that lost the cell"


def test_a_write_without_answer_is_of_the_column_that_shows_it() -> None:
    lost = wrote(2, None, "info")
    assert rows(wrote(1, 5), lost, saw(1, 5), saw(2, 6), saw(1, 5)).valid is True
    assert rows(wrote(1, 5), lost, saw(1, 5)).valid is True, "nobody ever saw it"
    both: Sequence[tuple[str, Mop, Mop]] = (lost, saw(2, 6), saw(2, 5))
    assert "read-of-unwritten" in rows(*both).counts, "it can't be of two"
    refused = wrote(3, None, "fail")
    assert "read-of-unwritten" in rows(refused, saw(3, 5)).counts
