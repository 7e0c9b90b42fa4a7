"""A completion that says another operation than was invoked is refused, whatever the format; what was found is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from checkers.importers.jepsen import open_edn, open_jepsen_log, open_json
from harness.errors import UserError

PATH = Path("history")

OTHERS = [
    ("txn", "[[:append 2 6] [:append 3 6]]", "[[:append 2 6]]", "more or fewer micro-operations"),
    ("txn", "[[:append 2 6]]", "[[:append 2 6] [:r 2 [6]]]", "more or fewer micro-operations"),
    ("txn", "[[:append 2 6] [:r 3 nil]]", "[[:append 2 6] [:append 3 1]]", "another micro-operation"),
    ("txn", "[[:r 3 nil]]", "[[:r 4 nil]]", "another micro-operation"),
    ("txn", "[[:w 3 1]]", "[[:w 3 2]]", "another value of a micro-operation"),
    ("txn", "[[:w 3 1]]", "[[:w 3 nil]]", "another value of a micro-operation"),
    ("txn", "[[:cas 3 [1 2]]]", "[[:cas 3 [1 4]]]", "another value of a micro-operation"),
    ("txn", "[[:w 3 1]]", "7", "another value than"),
    ("txn", "[1 [[:w 3 1]]]", "[1 [[:w 3 2]]]", "another value of a micro-operation"),
    ("txn", "[1 [[:w 3 1]]]", "[2 [[:w 3 1]]]", "another value than"),
    ("cas", "[1 2]", "[1 3]", "another value than"),
    ("write", "1", "2", "another value than"),
    ("write", '"1"', "1", "another value than"),
    ("write", "[1 1]", "[2 1]", "another value than"),
    ("add", "1", "2", "another value than"),
    ("remove", "1", "2", "another value than"),
    ("enqueue", "1", "2", "another value than"),
    ("transfer", "{:from 0 :to 1 :amount 5}", "{:from 0 :to 1 :amount 6}", "another value than"),
]

ALIKE = [
    ("txn", "[[:append 2 6] [:r 2 nil]]", "[[:append 2 6] [:r 2 [6]]]"),
    ("txn", "[[:append 2 6]]", "([:append 2 6])"),
    ("txn", "[[:append 2 6]]", "nil"),
    ("cas", "[1 2]", "(1 2)"),
    ("write", "1", "nil"),
    ("read", "nil", "5"),
    ("read", "[7 nil]", "[7 5]"),
    ("read", "5", "6"),
    ("acquire", "1", "8"),
    ("acquire", "1", "nil"),
    ("read", "nil", "nil"),
    ("read", "[7 nil]", "nil"),
]


def history(f: str, asked: str, found: str, kind: str = "ok") -> bytes:
    events = (("invoke", asked), (kind, found))
    return "\n".join(f"{{:process 0 :type :{t} :f :{f} :value {value}}}" for t, value in events).encode()


@pytest.mark.parametrize(("f", "asked", "found", "words"), OTHERS)
def test_another_operation_is_refused(f: str, asked: str, found: str, words: str) -> None:
    with pytest.raises(UserError, match=f"^history, line 2: an operation completes with {words}"):
        open_edn(PATH, history(f, asked, found))
    for kind in ("fail", "info"):  # whose values say nothing
        assert open_edn(PATH, history(f, asked, found, kind)).rows == 1


@pytest.mark.parametrize(("f", "asked", "found"), ALIKE)
def test_what_was_found_is_no_other_operation(f: str, asked: str, found: str) -> None:
    assert open_edn(PATH, history(f, asked, found)).rows == 1


@pytest.mark.parametrize(("f", "asked"), [("read", "5"), ("read", "[7 5]"), ("dequeue", "1"), ("get", '"a"')])
def test_a_read_finds_no_value_that_it_is_asked_with(f: str, asked: str) -> None:
    """It was taken to have found that, where it found nothing."""
    with pytest.raises(UserError, match="line 1: a read is invoked with a value, and completes with none"):
        open_edn(PATH, history(f, asked, "nil"))


def test_other_formats_refuse_it_too() -> None:
    json = b'[{"process":0,"type":"invoke","f":"txn","value":[["append",2,6]]},'
    with pytest.raises(UserError, match="line 2: an operation completes with another micro-operation"):
        open_json(PATH, json + b'\n{"process":0,"type":"ok","f":"txn","value":[["r",2,null]]}]')
    lines = b"INFO  jepsen.util - 0\t:invoke\t:write\t1\nINFO  jepsen.util - 0\t:ok\t:write\t2\n"
    with pytest.raises(UserError, match="line 2: an operation completes with another value"):
        open_jepsen_log(PATH, lines)
