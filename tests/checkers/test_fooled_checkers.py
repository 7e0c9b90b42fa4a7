"""Histories that might talk a checker into `valid`: answers that nobody can have been given, in values of every kind,
and histories that say nothing of what the model promises."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from checkers.api import judge_source
from checkers.engines.local import LocalEngine
from checkers.importers.detect import open_source
from checkers.made.examples import events_of
from checkers.source import Source
from checkers.verdict import Validity, Verdict
from harness.errors import UserError
from harness.history.table import to_table

Asked = tuple[str, str, str]
"""An operation that succeeds: its f, its value when it is invoked and when it completes."""

VALUES = (
    *("1", "2", "nil", "true", "1.0", "-0.0", '"1"', ":1", "9007199254740993", "9223372036854775808"),
    *("-4611686018427387905", '"\u00e9"', '"e\u0301"', "[1 2]", "[1 3]", "(5 6 7)", "[]", "#{1}", "{:a [1]}", "{}"),
)
"""No two of them are equal."""


def edn(*operations: Asked) -> str:
    """Operations of one process."""
    lines = []
    for f, asked, told in operations:
        lines.append(f"{{:process 0 :type :invoke :f :{f} :value {asked}}}")
        lines.append(f"{{:process 0 :type :ok :f :{f} :value {told}}}")
    return "\n".join(lines)


def judged(folder: Path, model: str, text: str) -> Validity | None:
    """The verdict; None if the history is refused."""
    path = folder / "history.edn"
    path.write_text(text)
    try:
        return judge_source(open_source(path), model, LocalEngine()).valid
    except UserError:
        return None


def written(put: str, get: str) -> Callable[[str, str], str]:
    return lambda one, other: edn((put, one, one), (get, "nil", other))


def transaction(write: str, read: str) -> Callable[[str, str], str]:
    """Of which the second reads what the first wrote, in the words of `write` and `read`."""
    return lambda one, other: edn(
        ("txn", f"[[{write} 7 {one}]]", f"[[{write} 7 {one}]]"), ("txn", "[[:r 7 nil]]", f"[[:r 7 {read % other}]]")
    )


PUT_AND_GET = {
    "register": written("write", "read"),
    "cas-register": written("write", "read"),
    "kv-append": written("put", "get"),
    "fifo-queue": written("enqueue", "dequeue"),
    "lin-queue": written("enqueue", "dequeue"),
    "total-queue": written("enqueue", "dequeue"),
    "isolation": transaction(":w", "%s"),
    "multi-register": transaction(":w", "%s"),
    "list-append": transaction(":append", "[%s]"),
    "set": lambda one, other: edn(("add", one, one), ("read", "nil", f"[{other}]")),
    "lin-set": lambda one, other: edn(("add", one, one), ("read", "nil", f"[{other}]")),
}
"""By model, a history in which one value goes in and, later, another comes out."""

EMPTY = ("nil", "{}")
"""What is said of a queue by a dequeue that found nothing: that nobody may have put anything in before."""


@pytest.mark.parametrize("model", PUT_AND_GET)
def test_what_comes_out_is_what_went_in(tmp_path: Path, model: str) -> None:
    fooled = []
    for place, one in enumerate(VALUES):
        for other in VALUES[place % 3 :: 3]:
            if one != other and judged(tmp_path, model, PUT_AND_GET[model](one, other)) is True:
                fooled.append((one, other))
    assert [pair for pair in fooled if pair[0] not in EMPTY] == []


def test_values_are_told_apart_and_found_again(tmp_path: Path) -> None:
    """So that the test above tests something: the same histories are valid where the same comes out."""
    plain = [value for value in VALUES if value[0] not in "[({#n"]
    for model, history in PUT_AND_GET.items():
        assert [value for value in plain if judged(tmp_path, model, history(value, value)) is not True] == [], model


@pytest.mark.parametrize("shown", ["[1 3]", "[]", "#{1}", "(5 6)", "{}"])
def test_a_list_is_no_value_of_a_register(tmp_path: Path, shown: str) -> None:
    """Each was judged as nil: whatever was written and read so was valid."""
    for text in (edn(("write", "[1 2]", "[1 2]"), ("read", "nil", shown)), edn(("read", "nil", shown))):
        for model in ("register", "cas-register"):
            assert judged(tmp_path, model, text) is None


@pytest.mark.parametrize(
    ("model", "operation"),
    [
        ("fifo-queue", ("dequeue", "nil", "{}")),
        ("lin-queue", ("dequeue", "nil", "{}")),
        ("kv-append", ("get", "nil", "{}")),
        ("lin-set", ("read", "nil", "{}")),
    ],
)
def test_an_answer_of_nothing_at_all_is_none_that_the_model_knows(tmp_path: Path, model: str, operation: Asked) -> None:
    assert judged(tmp_path, model, edn(operation)) is None


def test_a_read_of_a_set_shows_no_element_that_is_nil(tmp_path: Path) -> None:
    """Elements that no read shows are all alike to the search, and stood for what a read of nil shows."""
    two = (("add", "1", "1"), ("add", "2", "2"))
    assert judged(tmp_path, "lin-set", edn(*two, ("read", "nil", "[2 1]"))) is True
    for shown in ("[1 nil]", "[nil]", "[nil nil]"):
        assert judged(tmp_path, "lin-set", edn(*two, ("read", "nil", shown))) is None


def test_a_read_of_a_set_shows_each_element_once(tmp_path: Path) -> None:
    """What it shows twice was taken for one element."""
    two = (("add", "1", "1"), ("add", "2", "2"))
    for shown in ("[1 1 2]", "[2 1 2]", "[1 2 1 2]"):
        assert judged(tmp_path, "lin-set", edn(*two, ("read", "nil", shown))) is False
    assert judged(tmp_path, "lin-set", edn(two[0], ("read", "nil", "[1 1]"))) is False


def test_a_fenced_lock_that_tells_no_token_is_unknown(tmp_path: Path) -> None:
    held = (("acquire", "nil", "nil"), ("release", "nil", "nil"))
    assert judged(tmp_path, "fenced-mutex", edn(*held, *held)) == "unknown"
    assert judged(tmp_path, "fenced-mutex", edn(("acquire", "nil", "1"), held[1], *held)) is True
    assert judged(tmp_path, "fenced-mutex", edn(*held, held[0], held[0])) is False


WRITES = edn(("write", "1", "1"), ("write", "2", "2"))
PLAIN_READS = edn(("write", "1", "1"), ("read", "nil", "1"))
TRANSFER = ("transfer", "{:from 1 :to 2 :amount 3}", "{:from 1 :to 2 :amount 3}")
FORK_WRITES = (("txn", "[[:w 1 1]]", "[[:w 1 1]]"), ("txn", "[[:w 2 1]]", "[[:w 2 1]]"))
FORK_READ = ("txn", "[[:r 1 nil] [:r 2 nil]]", "[[:r 1 1] [:r 2 nil]]")


@pytest.mark.parametrize(
    ("model", "text"),
    [
        *((model, WRITES) for model in ("monotonic-reads", "read-your-writes", "monotonic-writes", "sessions")),
        ("writes-follow-reads", WRITES),
        ("write-atomicity", WRITES),
        ("snapshot-reads", PLAIN_READS),
        ("catalog-rows", edn(("enqueue", "1", "1"), ("noop", "nil", "nil"))),
        ("change-feed", PLAIN_READS),
        ("catalog", PLAIN_READS),
        ("long-fork", PLAIN_READS),
        ("long-fork", edn(*FORK_WRITES)),
        ("long-fork", edn(*FORK_WRITES, FORK_READ)),
        ("bank", edn(TRANSFER)),
        ("bank", edn(("read", "nil", "{}"), ("read", "nil", "{}"))),
        ("bank", edn(("read", "nil", "{1 5 2 5}"), TRANSFER)),
        ("set", edn(("add", "1", "1"), ("read", "nil", "nil"))),
        ("set", edn(("read", "nil", "[]"))),
        ("set-full", edn(("add", "1", "1"))),
        ("queue", edn(("dequeue", "nil", "nil"))),
        ("total-queue", edn(("drain", "nil", "[]"))),
        ("unique-ids", edn(("generate", "nil", "1"))),
        ("convergence", PLAIN_READS),
    ],
)
def test_a_history_that_says_nothing_of_the_promise_is_unknown(tmp_path: Path, model: str, text: str) -> None:
    assert judged(tmp_path, model, text) == "unknown"


def test_changes_of_which_none_was_answered_say_nothing_of_a_catalog() -> None:
    text = "0- 0 info create create(1)=nil\n2- 1 info delete delete(1)=nil\n4-5 2 ok read r(1)=1\n"
    assert verdict_on("catalog", text).valid == "unknown"
    assert verdict_on("catalog", text + "6-7 3 ok list table(1,0,2)=7\n").valid is True


WRITES_ONLY = {
    "change-feed": "0-1 0 ok write w(1)=5 served_ts=10",
    "durable-rows": "0-1 0 ok write w(1)=5 write_ts=10",
    "convergence": "0-1 0 ok write w(1)=5",
    "monotonic-writes": "0-1 0 ok write w(1)=5\n2-3 0 ok write w(1)=6",
    "snapshot-reads": "0-1 0 ok write w(1)=5 served_ts=10",
    "catalog-rows": "0-1 0 ok create create(1)=7\n2-3 1 ok write w(1)=5",
}


@pytest.mark.parametrize("model", WRITES_ONLY)
def test_writes_that_nobody_read_make_nothing_valid(model: str) -> None:
    assert verdict_on(model, WRITES_ONLY[model]).valid == "unknown"


def verdict_on(model: str, text: str) -> Verdict:
    """Of a history in the words of `checkers.made.examples`."""
    table = to_table([op.complete(op.type, index=index) for index, op in enumerate(events_of(text))])
    return judge_source(Source(Path("worked"), "journal", table.num_rows, table=table), model, LocalEngine())


def found_in(model: str, text: str) -> set[str]:
    """The anomalies of such a history."""
    return set(verdict_on(model, text).counts)


STALE_IN_ONE_CELL = """
0-1 0 ok write w(1)=1
2-3 0 ok write w(2)=1
4-5 0 ok write w(3)=1
6-7 0 ok write w(STALE)=2
50-51 1 ok read r(1)=ONE bound=1000000
52-53 1 ok read r(2)=TWO bound=1000000
54-55 1 ok read r(3)=THREE bound=1000000
"""


@pytest.mark.parametrize("stale", ["1", "2", "3"])
def test_a_bound_is_judged_in_every_cell(stale: str) -> None:
    """A cell's reads are compared with its own writes, whichever of several it is."""
    shown = {"1": "ONE", "2": "TWO", "3": "THREE"}
    text = STALE_IN_ONE_CELL.replace("STALE", stale)
    fresh = text
    for cell, word in shown.items():
        text, fresh = text.replace(word, "1"), fresh.replace(word, "2" if cell == stale else "1")
    assert (found_in("snapshot-reads", text), found_in("snapshot-reads", fresh)) == ({"stale-beyond-bound"}, set())


FEED = """
0-1 0 ok write w(1)=5 served_ts=10
2-3 0 ok write w(2)=6 served_ts=20
4-4 -2 info feed-row w(1)=5 session=1 served_ts=10 requested_ts=BEGIN
5-5 -2 info feed-resolved session=1 served_ts=MARK requested_ts=BEGIN
"""


@pytest.mark.parametrize(("begin", "mark", "missing"), [(9, 20, True), (9, 19, False), (9, 21, True), (0, 20, True)])
def test_a_commit_at_the_mark_itself_is_due(begin: int, mark: int, missing: bool) -> None:
    text = FEED.replace("BEGIN", str(begin)).replace("MARK", str(mark))
    assert found_in("change-feed", text) == ({"missing-row"} if missing else set())


def test_a_commit_at_the_beginning_of_a_feed_is_not_due() -> None:
    text = "\n".join(line for line in FEED.splitlines() if "feed-row" not in line)
    due = text.replace("MARK", "15")
    assert found_in("change-feed", due.replace("BEGIN", "10")) == set()
    assert found_in("change-feed", due.replace("BEGIN", "9")) == {"missing-row"}


def test_what_a_session_saw_in_one_cell_says_nothing_of_another() -> None:
    """What a session saw in a cell is remembered while it looks at others."""
    seen = "0-1 0 ok write w(2)=1\n2-3 0 ok write w(2)=2\n4-5 0 ok write w(1)=1\n6-7 0 ok write w(1)=2\n"
    looks = "8-9 1 ok read r(1)=2 mode=one\n10-11 1 ok read r(2)=1 mode=one\n12-13 1 ok read r(2)=2 mode=one\n"
    assert found_in("monotonic-reads", seen + looks) == set()
    assert found_in("monotonic-reads", seen + looks + "14-15 1 ok read r(1)=1 mode=one\n") == {"non-monotonic-read"}
