"""Registers that begin with a value (`-o initial=0`): what that makes valid, and what stays wrong."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from bruteforce import some_order

from checkers.api import judge_source
from checkers.columns.codes import NEVER
from checkers.engines.local import LocalEngine
from checkers.importers.detect import open_source
from checkers.options import CheckOptions
from checkers.verdict import Verdict
from harness.errors import UserError

Call = tuple[str, int | None, int | None]
"""What a register is asked: read, write or cas, the value, and what a cas expects."""

Timed = tuple[Call, int, int]

VALUES = (None, 0, 1, 2)


def judged(place: Path, text: str, model: str, initial: int | None = 0) -> Verdict:
    path = place / "history.edn"
    path.write_text(text)
    settings = {} if initial is None else {"initial": str(initial)}
    return judge_source(open_source(path), model, LocalEngine(), CheckOptions(settings=settings))


def random_calls(random: Random) -> list[Timed]:
    """Calls of three clients on one register, with their events' indices."""
    calls: list[Timed] = []
    ends: list[tuple[int, int]] = []
    event = 0
    for _ in range(random.randint(2, 6)):
        while ends and (len(ends) == 3 or random.random() < 0.5):
            number, _ = ends.pop(random.randrange(len(ends)))
            calls[number] = (*calls[number][:2], event)
            event += 1
        kind = random.choice(("read", "read", "write", "cas"))
        value, expected = random.choice(VALUES), random.choice(VALUES[1:])
        calls.append(((kind, value if kind == "read" else random.choice(VALUES[1:]), expected), event, NEVER))
        ends.append((len(calls) - 1, event))
        event += 1
    for number, _ in ends:
        if random.random() < 0.7:
            calls[number] = (*calls[number][:2], event)
            event += 1
    return calls


def step(state: int | None, call: Call) -> list[int | None]:
    kind, value, expected = call
    if kind == "write":
        return [value]
    if kind == "read":
        return [state] if state == value else []
    return [value] if state == expected else []


def edn(calls: list[Timed]) -> str:
    lines: dict[int, str] = {}
    for process, ((kind, value, expected), begin, end) in enumerate(calls):
        shown = "nil" if value is None else value
        content = f"[{expected} {value}]" if kind == "cas" else shown
        asked = "nil" if kind == "read" else content
        lines[begin] = f"{{:process {process} :type :invoke :f :{kind} :value {asked}}}"
        if end != NEVER:
            lines[end] = f"{{:process {process} :type :ok :f :{kind} :value {content}}}"
    return "\n".join(lines[event] for event in sorted(lines))


@pytest.mark.parametrize("initial", [0, None])
def test_every_order_says_the_same_of_registers_that_begin_with_a_value(tmp_path: Path, initial: int | None) -> None:
    random, seen = Random(7), set()
    for _ in range(150):
        calls = [call for call in random_calls(random) if call[0][0] != "read" or call[2] != NEVER]
        if all(call[0] == "write" or end == NEVER for call, _, end in calls):
            continue  # nothing is said of a history in which nothing was read
        expected = some_order(calls, initial, step)
        assert judged(tmp_path, edn(calls), "register", initial).valid is expected, edn(calls)
        seen.add(expected)
    assert seen == {True, False}


NIL_AT_THE_END = """
{:process 0 :type :invoke :f :write :value 3}
{:process 0 :type :ok :f :write :value 3}
{:process 0 :type :invoke :f :read :value nil}
{:process 0 :type :ok :f :read :value nil}
"""


@pytest.mark.parametrize("model", ["register", "cas-register", "multi-register"])
def test_nil_is_a_value_like_any_other_where_registers_begin_with_one(tmp_path: Path, model: str) -> None:
    assert judged(tmp_path, NIL_AT_THE_END, model).valid is False


REPEATED = """
{:process 0 :type :invoke :f :write :value 1}
{:process 1 :type :invoke :f :write :value 0}
{:process 2 :type :invoke :f :read :value nil}
{:process 2 :type :ok :f :read :value 1}
{:process 2 :type :invoke :f :read :value nil}
{:process 2 :type :ok :f :read :value 0}
{:process 2 :type :invoke :f :read :value nil}
{:process 2 :type :ok :f :read :value 1}
{:process 0 :type :ok :f :write :value 1}
{:process 1 :type :ok :f :write :value 0}
"""


def test_what_a_register_could_hold_is_told_by_its_own_values(tmp_path: Path) -> None:
    found = judged(tmp_path, REPEATED, "register").anomalies["nonlinearizable"][0]
    assert "could hold only 0 " in found.message
    assert [state["state"] for state in found.details["states"]] == ["0"]


TRANSACTIONS = """
{:process 0 :type :invoke :f :txn :value [[:r 1 nil] [:w 2 5]]}
{:process 0 :type :ok :f :txn :value [[:r 1 0] [:w 2 5]]}
{:process 0 :type :invoke :f :txn :value [[:r 1 nil] [:r 2 nil]]}
{:process 0 :type :ok :f :txn :value [[:r 1 0] [:r 2 VALUE]]}
"""


@pytest.mark.parametrize("model", ["rw-register", "isolation", "multi-register"])
def test_transactions_on_registers_that_begin_with_a_value(tmp_path: Path, model: str) -> None:
    fresh, old, never = (judged(tmp_path, TRANSACTIONS.replace("VALUE", value), model) for value in ("5", "0", "nil"))
    assert (fresh.valid, old.valid) == (True, False)
    assert never.valid is False
    assert judged(tmp_path, TRANSACTIONS.replace("VALUE", "5"), model, None).valid is False


def test_a_thin_air_read_is_told_by_its_own_value(tmp_path: Path) -> None:
    found = judged(tmp_path, TRANSACTIONS.replace("VALUE", "nil"), "isolation").anomalies["ThinAirRead"]
    assert " nil " in found[0].message


def test_what_registers_begin_with_is_not_written_again_by_transactions(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"event 0: a write of 5, as which registers begin, so the model rw-register"):
        judged(tmp_path, TRANSACTIONS.replace("VALUE", "5"), "rw-register", 5)


@pytest.mark.parametrize("text", [str(2**63), str(-(2**63)), "x"])
def test_what_registers_can_not_begin_with_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "history.edn"
    path.write_text(REPEATED)
    with pytest.raises(UserError, match="-o initial takes an integer"):
        judge_source(open_source(path), "register", LocalEngine(), CheckOptions(settings={"initial": text}))


KNOSSOS = """
{:process 0 :type :invoke :f :txn :value [[:write :x 1] [:write :y 2]]}
{:process 0 :type :ok :f :txn :value [[:write :x 1] [:write :y 2]]}
{:process 0 :type :invoke :f :txn :value [[:read :x nil] [:read :y nil]]}
{:process 0 :type :ok :f :txn :value [[:read :x 1] [:read :y VALUE]]}
"""


def test_rows_of_registers_in_the_words_of_knossos(tmp_path: Path) -> None:
    assert judged(tmp_path, KNOSSOS.replace("VALUE", "2"), "multi-register", None).valid is True
    assert judged(tmp_path, KNOSSOS.replace("VALUE", "nil"), "multi-register", None).valid is False
