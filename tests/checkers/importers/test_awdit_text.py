"""AWDIT's text is read as its lines' regular expression and Python's integers say."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from checkers.importers.transactions import AWDIT_LINE, open_awdit
from checkers.source import Source
from harness.errors import UserError

HERE = Path("history.txt")
LINES = st.lists(st.sampled_from(["r", "w", "-", "--", "=====", " ", "\t", "0", "17", "\r", "-5", "x"]), max_size=8)
INTEGERS = st.integers(-(2**62) + 1, 2**63 - 1)


def opened(text: str) -> Source:
    return open_awdit(HERE, text.encode())


@given(LINES.map("".join))
@example("w 1 --5")
@example("w 1 5 \r")
@example("w 1 5\r ")
@example("w1 5")
@example("====-")
@example("-----\r\r")
def test_what_the_expression_takes_is_a_line_and_nothing_else(line: str) -> None:
    if AWDIT_LINE.fullmatch(line.encode()):
        opened(f"w 1 1\n{line}\nw 2 2")
    else:
        with pytest.raises(UserError, match=r"^history\.txt, line 2: "):
            opened(f"w 1 1\n{line}\nw 2 2")


@given(st.lists(st.tuples(INTEGERS, INTEGERS), min_size=1))
@example([(2**63 - 1, 2**63 - 1)])
def test_numbers_are_python_s(pairs: list[tuple[int, int]]) -> None:
    source = opened("".join(f"w {key} {value}\n" for key, value in pairs))
    (row,) = source.operations([0]).values()
    assert [(mop["partition"], mop["value"]) for mop in row["mops"]] == pairs


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 2**64, 10**19, -(10**19), 92233720368547758080])
@pytest.mark.parametrize("line", ["w {} 1", "r 1 {}"])
def test_a_number_beyond_64_bits_is_refused(number: int, line: str) -> None:
    with pytest.raises(UserError, match=r"^history\.txt has a number that does not fit 64 bits"):
        opened(line.format(number))
