"""What goes with an operation that is left out of a history, by the rule of each model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from checkers.made.examples import events_of
from checkers.models import MODELS
from checkers.options import CheckOptions
from checkers.removal.needs import Needs
from checkers.removal.rules import REMOVALS, JudgedHistory
from checkers.removal.units import part_of_history, read_units
from checkers.source import Source
from harness.history.table import to_table

REGISTER = """0-1 0 ok write w(1)=5
2-3 1 ok read r(1)=5
4-5 0 ok write w(1)=6"""
REPEATED = """0-1 0 ok write w(1)=5
2-3 0 ok write w(1)=6
4-5 0 ok write w(1)=5
6-7 1 ok read r(1)=5"""
LISTS = """0-1 0 ok txn append(1)=1
2-3 0 ok txn append(1)=2
4-5 1 ok txn r(1)=[1 2] append(2)=1"""
LOCK = """0-1 0 ok acquire acquire(1)=nil
2-3 0 ok release release(1)=nil
4-5 1 ok acquire acquire(1)=nil"""
SUMS = """0-1 0 ok add add(1)=2
2-3 0 ok dec dec(1)=2
4-5 0 ok add add(1)=1
6-7 1 ok read r(1)=1"""
STRING = """0-1 0 ok append append(1)=1
2-3 0 ok append append(1)=2"""
QUEUE = """0-1 0 ok enqueue enqueue(1)=1
2-3 1 ok dequeue dequeue(1)=1
4-5 0 ok enqueue enqueue(1)=2
6-7 1 ok dequeue dequeue(1)=nil"""
SET = """0-1 0 ok add add(1)=1
2-3 1 ok read r(1)=[]
4-5 1 ok read r(1)=[1]"""
PAGES = """0-1 0 ok write w(1,1)=1 w(1,2)=2
2-3 0 ok write w(1,1)=nil
4-5 1 ok read r(1,1)=nil r(1,2)=2"""
FEED = """0-1 0 ok write w(1)=5 served_ts=10
2-2 -2 info feed-row w(1)=5 served_ts=10 session=7
3-3 -2 info feed-resolved served_ts=20 session=7"""
CATALOG = """0-1 0 ok create create(1)=500
2-3 1 ok schema schema(1)=500
4-5 0 ok create create(2)=501
6-7 0 ok rename rename(2,3)=501
8-9 1 ok schema schema(3)=501"""
BANK = """0-1 0 ok read r(1)=5 r(2)=5
2-3 0 ok read r(1)=4 r(2)=6"""


def prepared(model: str, text: str, consistency: str | None) -> tuple[Source, Needs]:
    table = to_table([op.complete(op.type, index=index) for index, op in enumerate(events_of(text))])
    source = Source(Path("history"), "journal", table.num_rows, table=table)
    asked = JudgedHistory(source, read_units(source), model, CheckOptions(consistency=consistency))
    return source, REMOVALS[MODELS[model].removal].needs(asked)


@pytest.mark.parametrize(
    ("model", "text", "without", "left"),
    [
        ("register", REGISTER, 0, [2]),
        ("register", REGISTER, 1, [0, 2]),
        ("register", REGISTER, 2, [0, 1]),
        ("register", REPEATED, 0, [1, 2, 3]),
        ("register", REPEATED, 2, [0, 1]),
        ("list-append", LISTS, 0, [1, 2]),
        ("list-append at update-atomic", LISTS, 0, [2]),
        ("list-append at read-atomic", LISTS, 2, [0, 1]),
        ("mutex", LOCK, 0, [2]),
        ("mutex", LOCK, 2, [0, 1]),
        ("counter", SUMS, 0, [2, 3]),
        ("counter", SUMS, 2, [0, 1]),
        ("kv-append", STRING, 0, []),
        ("owner-mutex", LOCK, 0, [2]),
        ("owner-mutex", LOCK, 2, [0, 1]),
        ("fifo-queue", QUEUE, 1, [2, 3]),
        ("fifo-queue", QUEUE, 3, [0, 1, 2]),
        ("set", SET, 0, [1, 2]),
        ("set", SET, 1, [0, 2]),
        ("set", SET, 2, [0]),
        ("lin-set", SET, 2, [0, 1]),
        ("sessions", PAGES, 1, [0, 2]),
        ("sessions", PAGES, 2, [0, 1]),
        ("change-feed", FEED, 0, []),
        ("change-feed", FEED, 2, [0, 1]),
        ("catalog", CATALOG, 0, [2, 3, 4]),
        ("catalog", CATALOG, 1, [0, 2, 3, 4]),
        ("catalog", CATALOG, 3, [0, 1]),
        ("bank", BANK, 0, [1]),
    ],
)
def test_what_needs_an_operation_goes_with_it(model: str, text: str, without: int, left: list[int]) -> None:
    model, _, consistency = model.partition(" at ")
    source, needs = prepared(model, text, consistency or None)
    part = part_of_history(source, needs.units, needs.kept(needs.within(needs.units.op != without)))
    assert part.table is not None
    assert source.table is not None
    placed = source.table.column("invoke_index").to_pylist()
    assert [placed.index(index) for index in part.table.column("invoke_index").to_pylist()] == left


def test_elements_and_cells_are_left_out_alone() -> None:
    source, needs = prepared("list-append", LISTS, None)
    part = part_of_history(source, needs.units, needs.kept(needs.within(needs.units.op != 0)))
    assert part.table is not None
    assert [mop["values"] for mop in part.table.column("mops").to_pylist()[1]] == [[2], None]
    source, needs = prepared("sessions", PAGES, None)
    part = part_of_history(source, needs.units, needs.kept(needs.within(needs.units.op != 1)))
    assert part.table is not None
    assert [(mop["row"], mop["value"]) for mop in part.table.column("mops").to_pylist()[1]] == [(2, 2)]


def test_what_is_under_way_at_the_end_shows_nothing() -> None:
    source, needs = prepared("register", REGISTER, None)
    every = np.ones(len(needs.units), np.bool_)
    part = part_of_history(source, needs.units, needs.kept(every, end=3))
    assert part.table is not None
    last = part.table.to_pylist()[-1]
    assert (part.rows, last["type"], last["complete_index"], last["mops"][0]["value"]) == (2, "info", None, None)


def test_around_brings_what_is_needed() -> None:
    _, needs = prepared("register", REPEATED, None)
    assert np.flatnonzero(needs.around(needs.units.op == 3)).tolist() == [2, 3]
    _, needs = prepared("list-append", LISTS, None)
    assert needs.around(needs.units.op == 2).sum() == 2
    assert needs.beside(needs.units.op == 2).sum() == 4
