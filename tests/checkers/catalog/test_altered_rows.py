"""Rows whose columns come and go: what is judged of schemas, and to which column a write without answer belongs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from random import Random

import pytest
from bruteforce import linearizable
from frames_in_memory import engine_in_memory
from msgspec.structs import replace
from register_histories import columns

from checkers.api import judge_source
from checkers.catalog import judge
from checkers.catalog.altered_rows import ADD, DROP, RENAME
from checkers.catalog.calls import COLUMN, RESHAPE, Call
from checkers.catalog.judge import judged
from checkers.columns.codes import CAS, NEVER, NIL, READ, WRITE
from checkers.engines.api import Engine
from checkers.engines.local import LocalEngine
from checkers.engines.spark import SparkEngine
from checkers.importers.detect import open_source
from checkers.models import MODELS
from checkers.options import CheckOptions
from checkers.source import Source
from checkers.verdict import Verdict
from harness.errors import UserError
from harness.history.ops import Mop, Op, read, write
from harness.history.parts import write_history
from harness.history.table import to_table

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
    lost = tuple(Call(-2, -2, NEVER, RESHAPE, step=step) for step in (ADD, DROP))
    at_once = replace_end(shown(0, 2), 4), shown(2, 1, (5, 1))
    assert wrong(*lost, *at_once) == set(), "they overlap"
    old = shown(4, 1, (5, 1))
    assert wrong(shown(0, 1, (5, 1)), shown(2, 2), old) == {"schema-went-back"}
    assert (
        wrong(*lost, shown(0, 1, (5, 1)), shown(2, 2), Call(4, 1, 5, COLUMN, version=1, columns=old.columns)) == set()
    ), "bounded"


def replace_end(call: Call, complete: int) -> Call:
    return Call(call.order, call.since, complete, call.kind, version=call.version, columns=call.columns)


# ---- rows ----


def cell(mop: Mop, column: int) -> Mop:
    return replace(mop, column=column)


def rows(*lines: tuple[str, Mop, Mop]) -> Verdict:
    """Operations one after the other: outcome, what was asked for, what was answered."""
    events: list[Op] = []
    for process, (outcome, asked, told) in enumerate(lines):
        f = {"r": "read", "w": "write"}.get(asked.f, asked.f)
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
    zero = wrote(0, None, "info")
    assert rows(zero, saw(None, 5), saw(0, 6)).valid is True, "who read nil did not read a zero"


def test_what_else_without_answer_may_have_gone_to_a_column() -> None:
    compared = replace(cell(read(1), -2), f="cas", value=2, expected=1)
    assert rows(wrote(1, 5), ("info", compared, compared), saw(2, 5)).valid is True
    assert "read-of-unwritten" in rows(wrote(1, 5), ("fail", compared, compared), saw(2, 5)).counts
    unset = cell(write(1, None), -2)
    assert rows(wrote(1, 5), wrote(2, 6), ("info", unset, unset), saw(1, 5), saw(None, 6)).valid is True
    assert rows(wrote(1, 5), ("info", unset, unset), saw(None, 5), saw(1, 5)).valid is False, "only once"


@pytest.mark.parametrize("untold", [wrote(1, None), ("ok", cell(read(1), -2), cell(read(1), -2))])
def test_an_answer_that_does_not_say_the_column_is_refused(untold: tuple[str, Mop, Mop]) -> None:
    """What was acknowledged and lost was left out, and valid."""
    with pytest.raises(UserError, match="can't judge it"):
        rows(wrote(7, 5), untold, saw(7, 5))


def erased(there: int | None = 1, outcome: str = "ok") -> tuple[str, Mop, Mop]:
    return outcome, Mop("erase", 1), Mop("erase", 1, there if outcome == "ok" else None)


def test_an_erasure_unsets_every_cell_of_its_row() -> None:
    both = (wrote(1, 5), wrote(2, 6))
    assert rows(*both, erased(), saw(None, 5), saw(None, 6), wrote(3, 5), saw(3, 5)).valid is True
    assert set(rows(*both, erased(), saw(2, 6)).counts) & {"stale-read", "nonlinearizable"}, "one cell was left"
    assert rows(*both, saw(None, 6)).valid is False, "nobody erased it"
    lost = erased(outcome="info")
    assert rows(*both, lost, saw(1, 5), saw(None, 5)).valid is True, "it may take effect late"
    assert rows(*both, lost, saw(None, 5), saw(1, 5)).valid is False, "and only once"
    assert rows(*both, erased(outcome="fail"), saw(None, 5)).valid is False
    assert rows(*both, erased(0)).valid is False, "it told that there is no such row"
    assert rows(erased(0), *both, erased(), erased(0), saw(None, 5)).valid is True
    assert rows(erased(outcome="info")).valid == "unknown", "of cells that nobody ever named nothing is known"


def test_a_row_is_not_found_twice_that_was_written_once() -> None:
    """Its cells were nil both times, so nothing was wrong with them."""
    assert rows(wrote(1, 5), erased(), erased()).valid is False
    assert rows(wrote(1, 5), erased(), wrote(2, 6), erased()).valid is True
    assert rows(wrote(1, 5), erased(), wrote(2, None, "fail"), erased()).valid is False
    assert rows(wrote(1, 5), wrote(2, None, "info"), erased(), erased()).valid is True, "the write may come between"
    assert rows(wrote(1, 5), erased(), wrote(2, None, "info"), erased(), erased()).valid is False, "but once only"
    assert rows(erased()).valid is False, "nobody had written it"
    unset = cell(write(1, None), 5)
    assert rows(wrote(1, 5), erased(), ("ok", unset, unset), erased()).valid is True, "a row of nils is a row"
    assert rows(wrote(1, 5), erased(), ("ok", unset, unset), erased(0)).valid is True, "or is none"
    (anomaly,) = rows(wrote(1, 5), erased(), erased()).anomalies["stale-read"]
    assert anomaly.key == [0, 1, 0, -1]
    assert anomaly.message.startswith(
        "Process 2 changed the presence of key 1 from 1 to nil at 0.000000004 s although process 1's compare-and-set "
        "from 1 to nil had completed"
    )


def test_what_a_scan_told_is_a_read_of_each_row_and_evidence_names_the_row() -> None:
    events: list[Op] = []

    def add(f: str, *answered: Mop) -> None:
        asked = tuple(replace(mop, value=None if f == "scan" else mop.value, column=-1) for mop in answered)
        for kind, mops in (("invoke", asked), ("ok", answered)):
            events.append(Op(kind, 0, f, mops, index=len(events), time=len(events)))  # type: ignore[arg-type]

    def verdict() -> Verdict:
        table = to_table(events)
        source = Source(Path("test.journal"), "journal", table.num_rows, table=table)
        return MODELS["catalog-rows"].judge(source, LocalEngine(), CheckOptions())

    for row in range(3):
        add("write", Mop("w", row, 10 + row, column=2))
    add("scan", *(Mop("r", row, 10 + row, column=2) for row in range(3)))
    assert verdict().valid is True and verdict().ops == 6
    add("scan", Mop("r", 0, 10, column=2), Mop("r", 1, None, column=2), Mop("r", 2, 12, column=2))
    (anomaly,) = verdict().anomalies["stale-read"]
    assert anomaly.key == [0, 1, 0, 2]
    assert "read nil from key 1" in anomaly.message and all(len(op["mops"]) == 1 for op in anomaly.ops)


def test_only_clients_operate_on_rows() -> None:
    asked = cell(write(1, 5), 2)
    table = to_table([Op(kind, -1, "write", (asked,), index=at, time=at) for at, kind in enumerate(("invoke", "info"))])
    source = Source(Path("test.journal"), "journal", table.num_rows, table=table)
    assert MODELS["catalog-rows"].judge(source, LocalEngine(), CheckOptions()).valid == "unknown"


# ---- against trying everything ----


ROW = -9
"""Erasures are of all columns; their value is 1, or 0 where there was no row, None without answer."""

ERASE = 99


@dataclass
class Line:
    """One operation on one row: `column` it was of, None where no answer says so, ROW for an erasure."""

    kind: int
    value: int | None
    column: int | None
    invoke: int
    complete: int = NEVER


def made(random: Random, operations: int = 9) -> list[Line]:
    """A row of two columns that clients read and write at once; some answers are wrong, some never come."""
    lines: list[Line] = []
    opened: list[Line] = []
    cells: dict[int, int | None] = {5: None, 6: None}
    event, wrong = 0, random.choice((0, 0.2, 0.5))
    while len(lines) < operations or opened:
        if len(lines) < operations and (not opened or (len(opened) < 3 and random.random() < 0.5)):
            kind = random.choice((READ, WRITE, READ, WRITE, ERASE))
            column = ROW if kind == ERASE else random.choice((5, 6))
            lines.append(Line(kind, len(lines) + 1 if kind == WRITE else None, column, event))
            opened.append(lines[-1])
        else:
            line = opened.pop(random.randrange(len(opened)))
            _answer(random, lines, line, cells, wrong)
            if line.column is not None and not (line.kind == ERASE and line.value is None):
                line.complete = event
        event += 1
    return lines


def _answer(random: Random, lines: list[Line], line: Line, cells: dict[int, int | None], wrong: float) -> None:
    assert line.column is not None
    if line.kind == READ:
        values = [each.value for each in lines if each.kind == WRITE]
        line.value = random.choice([*values, None]) if random.random() < wrong else cells[line.column]
        return
    lost = random.random() < 0.3
    if line.kind == ERASE:
        _erase(random, line, cells, lost, random.random() < wrong)
        return
    if not lost or random.random() < 0.5:
        cells[line.column] = line.value
    if lost:
        line.column = None


def _erase(random: Random, line: Line, cells: dict[int, int | None], lost: bool, wrong: bool) -> None:
    line.value = None if lost else int(any(value is not None for value in cells.values()) != wrong)
    if not wrong and (not lost or random.random() < 0.5):
        cells.update(dict.fromkeys(cells))


def explained(lines: list[Line]) -> bool:
    """Whether the row itself is linearizable, and columns can be chosen for the writes without answer so that each cell
    is."""
    if not linearizable(
        columns([(*_presence(each), each.invoke, each.complete) for each in lines if each.kind != READ])
    ):
        return False
    unknown = [line for line in lines if line.column is None]
    for chosen in product((5, 6), repeat=len(unknown)):
        of = dict(zip(map(id, unknown), chosen, strict=True))
        if all(_register(lines, of, column) for column in (5, 6)):
            return True
    return False


def _register(lines: list[Line], of: dict[int, int], column: int) -> bool:
    here = [line for line in lines if of.get(id(line), line.column) in (column, ROW)]
    return linearizable(columns([(*_cell(each), NIL, each.invoke, each.complete) for each in here]))


def _cell(line: Line) -> tuple[int, int]:
    """What a line did to a cell: erasures write nil, or have read it where they found no row."""
    if line.kind == ERASE:
        return READ if line.value == 0 else WRITE, NIL
    return line.kind, NIL if line.value is None else line.value


def _presence(line: Line) -> tuple[int, int, int]:
    """What a line did to the row: made it be there, took it away if it was, looked for it."""
    if line.kind == WRITE:
        return WRITE, 1, NIL
    return (CAS, NIL, 1) if line.value else (_cell(line)[0], NIL, NIL)


def judged_rows(lines: list[Line], engine: Engine) -> Verdict:
    events: dict[int, Op] = {}
    for process, line in enumerate(lines):
        f, mop = ("read", read(1)) if line.kind == READ else ("write", write(1, line.value or 0))
        if line.kind == ERASE:
            f, mop = "erase", Mop("erase", 1)
        elif line.kind == READ and process % 2:
            f = "scan"
        asked = Op("invoke", process, f, (cell(mop, 0 if f == "erase" else -2),))
        events[line.invoke] = asked
        if line.complete != NEVER:
            told = replace(mop, value=line.value, column=0 if line.kind == ERASE else line.column)
            events[line.complete] = asked.complete("ok", mops=(told,))
    ordered = [replace(op, index=number, time=number) for number, op in sorted(events.items())]
    table = to_table(ordered)
    source = Source(Path("test.journal"), "journal", table.num_rows, table=table)
    return MODELS["catalog-rows"].judge(source, engine, CheckOptions())


@pytest.mark.parametrize("seeds", [60, pytest.param(2_000, marks=pytest.mark.campaign)])
def test_rows_are_judged_as_trying_every_order_and_every_column_says(seeds: int) -> None:
    words = Counter[bool]()
    for seed in range(seeds):
        lines = made(Random(seed))
        assert judged_rows(lines, LocalEngine()).valid is explained(lines), seed
        words[explained(lines)] += 1
    assert min(words.values()) > seeds // 20


@pytest.mark.spark
@pytest.mark.campaign
def test_rows_are_judged_alike_on_spark(spark: SparkEngine) -> None:
    for seed in range(20):
        lines = made(Random(seed))
        assert judged_rows(lines, spark).valid is explained(lines), seed


@pytest.mark.parametrize(("seen", "valid"), [(99, False), (None, "unknown")])
def test_of_a_row_that_no_task_takes_nothing_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seen: int | None, valid: object
) -> None:
    """What is found in other rows stands; without that the verdict says that a row was left out."""
    events: list[Op] = []

    def add(mop: Mop) -> None:
        f = "read" if mop.f == "r" else "write"
        for kind in ("invoke", "ok"):
            events.append(Op(kind, 0, f, (replace(mop, column=5),), index=len(events), time=len(events)))  # type: ignore[arg-type]

    for value in range(400):
        add(write(1, value))
    add(Mop("r", 2, seen))
    batches = to_table(events).to_batches()
    write_history(batches, tmp_path / "h.parquet")
    engine = engine_in_memory(monkeypatch)
    monkeypatch.setattr(SparkEngine, "task_bytes", lambda self: 8_000 * judge.ROWS_EXPANDED)
    told = judge_source(open_source(tmp_path / "h.parquet"), "catalog-rows", engine, CheckOptions())
    assert told.valid == valid
    assert seen or "task takes" in str(told.reason)
