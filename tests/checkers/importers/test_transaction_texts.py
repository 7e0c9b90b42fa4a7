"""AWDIT's and Plume's texts are read as their lines' regular expressions and Python's integers say."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from checkers.importers.blocks import Data
from checkers.importers.transactions import AWDIT_LINE, PLUME_LINE, open_awdit, open_plume
from checkers.source import Source
from harness.errors import UserError
from harness.history.columns import FOREIGN_BASE

HERE = Path("history.txt")
LINES = st.lists(st.sampled_from(["r", "w", "-", "--", "=====", " ", "\t", "0", "17", "\r", "-5", "x"]), max_size=8)
PARTS = st.lists(st.sampled_from(["r(", "w(0,1", ",", ",-2", "3", ")", " ", "\t", "\r", "-", "x"]), max_size=8)
INTEGERS = st.integers(-(2**62) + 1, 2**63 - 1)
BEYOND = [2**63, -(2**63) - 1, 2**64, 10**19, -(10**19), 92233720368547758080]

Mops = list[tuple[str, int, int]]


def opened(text: str, read: Callable[[Path, Data], Source] = open_awdit) -> Source:
    return read(HERE, text.encode())


def is_line(line: str, among: str, expression: Any, read: Callable[[Path, Data], Source]) -> None:
    """Alone among lines that are some, a line is refused unless the expression takes it."""
    if expression.fullmatch(line.encode()):
        opened(among.format(line), read)
    else:
        with pytest.raises(UserError, match=r"^history\.txt, line 2: "):
            opened(among.format(line), read)


@given(LINES.map("".join))
@example("w 1 --5")
@example("w 1 5 \r")
@example("w 1 5\r ")
@example("w1 5")
@example("w 1-5")
@example("====-")
@example("-----\r\r")
def test_what_awdit_s_expression_takes_is_a_line_and_nothing_else(line: str) -> None:
    is_line(line, "w 1 1\n{}\nw 2 2", AWDIT_LINE, open_awdit)


@given(PARTS.map("".join))
@example(" w( 1 ,\t-5 , 0,-1\t) \r")
@example("w (1,5,0,0)")
@example("w(1,5,0,0")
@example("w(1,5,0)")
@example("w(1,5,0,0,0)")
@example("w(1,5,0,0)\r ")
@example("w(1,- 5,0,0)")
@example("w(1 5,0,0)")
@example("w 1 5")
@example("-----")
def test_what_plume_s_expression_takes_is_a_line_and_nothing_else(line: str) -> None:
    is_line(line, "w(1,1,0,0)\n{}\nw(2,2,0,0)", PLUME_LINE, open_plume)


@given(st.lists(st.tuples(INTEGERS, INTEGERS), min_size=1))
@example([(2**63 - 1, 2**63 - 1)])
def test_numbers_are_python_s(pairs: list[tuple[int, int]]) -> None:
    awdit = opened("".join(f"w {key} {value}\n" for key, value in pairs))
    plume = opened("".join(f"w({key},{value},{key},{value})\n" for key, value in pairs[:1]), open_plume)
    for source, expected in ((awdit, pairs), (plume, pairs[:1])):
        (row,) = source.operations([0]).values()
        assert [(mop["partition"], mop["value"]) for mop in row["mops"]] == expected


@pytest.mark.parametrize("number", BEYOND)
@pytest.mark.parametrize(
    ("line", "read"),
    [("w {} 1", open_awdit), ("r 1 {}", open_awdit)]
    + [(f"r({', '.join(['1'] * place + ['{}'] + ['1'] * (3 - place))})", open_plume) for place in range(4)],
)
def test_a_number_beyond_64_bits_is_refused(number: int, line: str, read: Callable[[Path, Data], Source]) -> None:
    with pytest.raises(UserError, match=r"^history\.txt has a number that does not fit 64 bits"):
        opened(line.format(number), read)
    with pytest.raises(UserError, match=r"^history\.txt has the number -4611686018427387904; the least "):
        opened(line.format(FOREIGN_BASE), read)


def test_a_line_that_is_none_is_told_before_numbers_that_do_not_fit() -> None:
    with pytest.raises(UserError, match=r"^history\.txt, line 2: 'r\(1,2,3\)' is not r\(KEY"):
        opened(f"w({2**63},1,0,0)\nr(1,2,3)", open_plume)


def grouped(lines: list[tuple[str, int, int, int, int]]) -> list[tuple[int, str, Mops]]:
    """The transactions of Plume's lines, session, type and operations of each, as the format's words define them."""
    found: dict[tuple[int, int, int], tuple[int, str, Mops]] = {}
    last: dict[int, int] = {}
    runs: dict[int, int] = {}
    for f, key, value, session, transaction in lines:
        if last.get(session) != transaction:
            runs[session] = runs.get(session, 0) + 1
        last[session] = transaction
        aborted = transaction == -1
        name = (session, transaction, runs[session] if aborted else -1)
        found.setdefault(name, (session, "fail" if aborted else "ok", []))[2].append((f, key, value))
    return list(found.values())


SMALL: Final = st.integers(-2, 3)
OPERATIONS = st.tuples(st.sampled_from("rw"), SMALL, SMALL, SMALL, SMALL)


@given(st.lists(OPERATIONS, max_size=30), st.sampled_from(["\n", "\r\n", "\n\n"]), st.sampled_from(["", "\ufeff"]))
@example([("w", 1, 1, 0, 2**63 - 1), ("w", 1, 2, 0, -1), ("r", 1, 1, 0, 2**63 - 1)], "\n", "")
def test_interleaved_transactions_are_put_together(
    lines: list[tuple[str, int, int, int, int]], end: str, mark: str
) -> None:
    text = mark + "".join(f"{f}({','.join(map(str, numbers))}){end}" for f, *numbers in lines)
    expected = grouped(lines)
    source = opened(text, open_plume)
    rows = [] if source.table is None else source.table.to_pylist()
    found = [
        (row["session"], row["type"], [(mop["f"], mop["partition"], mop["value"]) for mop in row["mops"]])
        for row in rows
    ]
    assert (source.rows, found) == (len(expected), expected)
    assert [row["op"] for row in rows] == list(range(len(expected)))
    assert all(row["clock"] == "sessions" for row in rows)
