"""Values as `[key value]` pairs of `jepsen.independent`: objects of different keys are judged apart, by every model."""

from __future__ import annotations

from pathlib import Path

import pytest

from checkers.api import check, judge_source
from checkers.engines.api import Engine
from checkers.importers.detect import open_source
from checkers.importers.jepsen import ReadingPlan, open_edn
from checkers.options import CheckOptions
from harness.errors import UserError

HERE = Path("history")


def history(*lines: str) -> str:
    """EDN of operations that follow each other: `process f invoked => completed`."""
    events = []
    for line in lines:
        process, f, values = line.split(" ", 2)
        asked, _, told = values.partition(" => ")
        for kind, value in (("invoke", asked), ("ok", told or asked)):
            events.append(f"{{:process {process}, :type :{kind}, :f :{f}, :value {value}}}")
    return "\n".join(events)


OF_TWO_KEYS = {
    "register": (
        history("0 write [1 5]", "0 write [2 6]", "1 read [1 nil] => [1 5]"),
        history("0 write [1 5]", "0 write [2 6]", "1 read [1 nil] => [1 6]"),
    ),
    "cas-register": (
        history("0 write [1 5]", "0 write [2 6]", "1 cas [1 [5 7]]", "1 read [2 nil] => [2 6]"),
        history("0 write [1 5]", "0 write [2 6]", "1 cas [1 [6 7]]", "1 read [2 nil] => [2 6]"),
    ),
    "multi-register": (
        history(
            "0 txn [1 [[:w :x 5] [:w :y 5]]]", "0 txn [2 [[:w :x 6]]]", "1 txn [1 [[:r :x nil]]] => [1 [[:r :x 5]]]"
        ),
        history("0 txn [1 [[:w :x 5]]]", "0 txn [2 [[:w :x 6]]]", "1 txn [1 [[:r :x nil]]] => [1 [[:r :x 6]]]"),
    ),
    "multi-register of maps": (
        history("0 write [1 {:x 5 :y 5}]", "0 write [2 {:x 6 :y 6}]", "1 read [1 nil] => [1 {:x 5 :y 5}]"),
        history("0 write [1 {:x 5 :y 5}]", "0 write [2 {:x 6 :y 6}]", "1 read [1 nil] => [1 {:x 5 :y 6}]"),
    ),
    "list-append": (
        history("0 txn [1 [[:append 7 1]]]", "0 txn [2 [[:append 7 1]]]", "1 txn [1 [[:r 7 nil]]] => [1 [[:r 7 [1]]]]"),
        history(
            "0 txn [1 [[:append 7 1]]]", "0 txn [2 [[:append 7 2]]]", "1 txn [1 [[:r 7 nil]]] => [1 [[:r 7 [1 2]]]]"
        ),
    ),
    "rw-register": (
        history("0 txn [1 [[:w 7 1]]]", "0 txn [2 [[:w 7 1]]]", "1 txn [1 [[:r 7 nil]]] => [1 [[:r 7 1]]]"),
        history("0 txn [1 [[:w 7 1]]]", "1 txn [1 [[:r 7 nil]]] => [1 [[:r 7 nil]]]"),
    ),
    "isolation": (
        history("0 txn [1 [[:w 7 1]]]", "0 txn [2 [[:w 7 1]]]", "1 txn [1 [[:r 7 nil]]] => [1 [[:r 7 1]]]"),
        history("0 txn [1 [[:w 7 1]]]", "0 txn [2 [[:w 7 2]]]", "1 txn [1 [[:r 7 nil]]] => [1 [[:r 7 2]]]"),
    ),
    "monotonic-reads": (
        history(
            "0 txn [1 [[:append 7 1]]]",
            "0 txn [2 [[:append 7 2]]]",
            "1 txn [1 [[:r 7 nil]]] => [1 [[:r 7 [1]]]]",
            "1 txn [2 [[:r 7 nil]]] => [2 [[:r 7 [2]]]]",
        ),
        history(
            "0 txn [1 [[:append 7 1]]]",
            "0 txn [1 [[:append 7 2]]]",
            "1 txn [1 [[:r 7 nil]]] => [1 [[:r 7 [1 2]]]]",
            "1 txn [1 [[:r 7 nil]]] => [1 [[:r 7 [1]]]]",
        ),
    ),
    "write-atomicity": (
        history(
            "0 txn [1 [[:w :x 1] [:w :y 1]]]",
            "0 txn [2 [[:w :x 2] [:w :y 2]]]",
            "1 txn [1 [[:r :x nil] [:r :y nil]]] => [1 [[:r :x 1] [:r :y 1]]]",
        ),
        history(
            "0 txn [1 [[:w :x 1] [:w :y 1]]]",
            "0 txn [1 [[:w :x 2] [:w :y 2]]]",
            "1 txn [1 [[:r :x nil] [:r :y nil]]] => [1 [[:r :x 1] [:r :y 2]]]",
        ),
    ),
    "long-fork": (
        history(
            *(f"0 write [1 {{{key} 1}}]" for key in (1, 2)),
            *(f"0 write [2 {{{key} 1}}]" for key in (1, 2)),
            "1 read [1 [[:r 1 nil] [:r 2 nil]]] => [1 [[:r 1 1] [:r 2 nil]]]",
            "1 read [2 [[:r 1 nil] [:r 2 nil]]] => [2 [[:r 1 nil] [:r 2 1]]]",
            "1 read [1 [[:r 1 nil] [:r 2 nil]]] => [1 [[:r 1 1] [:r 2 1]]]",
        ),
        history(
            *(f"0 write [1 {{{key} 1}}]" for key in (1, 2)),
            "1 read [1 [[:r 1 nil] [:r 2 nil]]] => [1 [[:r 1 1] [:r 2 nil]]]",
            "1 read [1 [[:r 1 nil] [:r 2 nil]]] => [1 [[:r 1 nil] [:r 2 1]]]",
        ),
    ),
    "bank": (
        history(
            "0 read [1 nil] => [1 {:a 5 :b 5}]",
            "0 read [2 nil] => [2 {:a 1 :b 2}]",
            "0 read [2 nil] => [2 {:a 3 :b 0}]",
        ),
        history(
            "0 read [1 nil] => [1 {:a 5 :b 5}]",
            "0 read [2 nil] => [2 {:a 1 :b 2}]",
            "0 read [2 nil] => [2 {:a 5 :b 5}]",
            "0 read [2 nil] => [2 {:a 3 :b 0}]",
        ),
    ),
    "mutex": (
        history("0 acquire [1 nil]", "1 acquire [2 nil]"),
        history("0 acquire [1 nil]", "1 acquire [2 nil]", "1 release [2 nil]", "1 acquire [1 nil]"),
    ),
    "lin-set": (
        history("0 add [1 5]", "0 add [2 6]", "1 read [1 nil] => [1 #{5}]"),
        history("0 add [1 5]", "0 add [2 6]", "1 read [1 nil] => [1 #{5 6}]"),
    ),
    "fifo-queue": (
        history("0 enqueue [1 5]", "0 enqueue [2 6]", "1 dequeue [2 nil] => [2 6]"),
        history("0 enqueue [1 5]", "0 enqueue [2 6]", "1 dequeue [1 nil] => [1 6]"),
    ),
    "lin-queue": (
        history("0 enqueue [1 5]", "1 dequeue [1 nil] => [1 5]"),
        history("0 enqueue [1 5]", "1 dequeue [2 nil] => [2 5]"),
    ),
    "kv-append": (
        history('0 append [1 "a"]', '0 append [2 "b"]', '1 get [1 nil] => [1 "a"]'),
        history('0 append [1 "a"]', '0 append [2 "b"]', '1 get [1 nil] => [1 "ab"]'),
    ),
    "counter": (
        history("0 add [1 5]", "0 add [2 6]", "1 read [1 nil] => [1 5]"),
        history("0 add [1 5]", "0 add [2 6]", "1 read [1 nil] => [1 11]"),
    ),
    "set-full": (
        history("0 add [1 5]", "1 read [1 nil] => [1 #{5}]", "0 add [2 5]", "1 read [2 nil] => [2 #{5}]"),
        history("0 add [1 5]", "0 add [2 5]", "1 read [1 nil] => [1 #{5}]", "1 read [2 nil] => [2 #{}]"),
    ),
    "set": (
        history("0 add [1 5]", "0 add [2 6]", "1 read [1 nil] => [1 #{5}]", "1 read [2 nil] => [2 #{6}]"),
        history("0 add [1 5]", "0 add [2 6]", "1 read [1 nil] => [1 #{5 6}]", "1 read [2 nil] => [2 #{6}]"),
    ),
    "total-queue": (
        history("0 enqueue [1 5]", "0 enqueue [2 5]", "1 dequeue [1 nil] => [1 5]", "1 dequeue [2 nil] => [2 5]"),
        history("0 enqueue [1 5]", "0 enqueue [2 6]", "1 dequeue [1 nil] => [1 6]", "1 dequeue [2 nil] => [2 5]"),
    ),
}


@pytest.mark.parametrize(
    ("engine", "expected"),
    [
        ("local", True),
        ("local", False),
        pytest.param("spark", True, marks=pytest.mark.spark),
        pytest.param("spark", False, marks=[pytest.mark.spark, pytest.mark.campaign]),
    ],
)
@pytest.mark.parametrize("name", OF_TWO_KEYS)
def test_objects_of_different_keys_are_judged_apart(
    tmp_path: Path, engines: dict[str, Engine], name: str, engine: str, expected: bool
) -> None:
    """What is valid would not be if the keys were one; Spark is asked of what is refuted in campaigns."""
    model, path = name.split(" ", 1)[0], tmp_path / "history.edn"
    text = OF_TWO_KEYS[name][0 if expected else 1]
    path.write_text(text)
    verdict = judge_source(open_source(path), model, engines[engine])
    assert (verdict.valid, verdict.engine) == (expected, engine), text


def test_a_key_field_does_the_same(tmp_path: Path) -> None:
    path = tmp_path / "h.edn"
    for told, valid in ((5, True), (6, False)):
        path.write_text(
            "{:process 0 :type :invoke :f :txn :key 1 :value [[:w :x 5]]} {:process 0 :type :ok :f :txn :key 1}"
            "{:process 0 :type :invoke :f :txn :key 2 :value [[:w :x 6]]} {:process 0 :type :ok :f :txn :key 2}"
            "{:process 0 :type :invoke :f :txn :key 1 :value [[:r :x nil]]}"
            f"{{:process 0 :type :ok :f :txn :key 1 :value [[:r :x {told}]]}}"
        )
        assert check(path, "multi-register").valid is valid


def test_evidence_names_both_keys(tmp_path: Path) -> None:
    path = tmp_path / "h.edn"
    path.write_text(
        history('0 txn ["a" [[:w :x 1]]]', '0 txn ["a" [[:w :x 2]]]', '1 txn ["a" [[:r :x nil]]] => ["a" [[:r :x 1]]]')
    )
    (anomaly,) = check(path, "multi-register").anomalies["nonlinearizable"]
    assert anomaly.key == ["a", ":x"] and "key :x of a" in anomaly.message


@pytest.mark.parametrize(
    ("lines", "partition", "expected", "value"),
    [
        (["0 cas [1 2]"], 0, 1, 2),
        (["0 cas [1 2]", "1 write 5"], 0, 1, 2),
        (["0 cas [1 [2 3]]"], 1, 2, 3),
        (["0 cas [nil 2]"], 0, None, 2),
        (["0 write [1 2]"], 1, None, 2),
    ],
)
def test_pairs_are_told_from_keys(lines: list[str], partition: int, expected: int | None, value: int) -> None:
    source = open_edn(HERE, history(*lines).encode())
    assert source.table is not None and not source.independent
    (mop,) = source.table.to_pylist()[0]["mops"]
    assert (mop["partition"], mop["expected"], mop["value"]) == (partition, expected, value)


def test_pairs_as_elements_are_no_keys(tmp_path: Path) -> None:
    text = history("0 enqueue [1 2]", "0 dequeue nil => [1 2]")
    source = open_edn(HERE, text.encode())
    assert source.table is not None
    assert [mop["values"] for row in source.table.to_pylist() for mop in row["mops"]] == [[1, 2], [1, 2]]
    (tmp_path / "h.edn").write_text(text)
    with pytest.raises(UserError, match="the model fifo-queue can't judge it"):
        check(tmp_path / "h.edn", "fifo-queue")


@pytest.mark.parametrize(
    "lines",
    [
        ("0 acquire [1 nil]", "1 acquire nil"),
        ("0 read [1 nil] => [1 {:a 5}]", "0 read nil => {:a 4}"),
        ("0 txn [1 [[:r 7 nil]]] => [1 [[:r 7 [1]]]]", "0 txn [[:append 7 1]]"),
        ("0 cas [1 2]", "0 cas [1 [2 3]]"),
    ],
)
def test_what_is_neither_is_refused(lines: tuple[str, ...]) -> None:
    for block_bytes in (None, 1):
        with pytest.raises(UserError, match=r"line \d: this value is a \[key value\] pair of independent keys"):
            open_edn(HERE, history(*lines).encode(), ReadingPlan(block_bytes))


def test_values_that_only_seem_pairs_of_keys_are_read_again_as_values() -> None:
    """Every value of the first blocks could be a key and a value; one of the last can't be."""
    text = history(*(f"0 write [{n} 7]" for n in range(20)), "0 write 5", "1 read nil => [3 7]").encode()
    whole, in_blocks = (open_edn(HERE, text, ReadingPlan(block_bytes)).table for block_bytes in (None, 1))
    assert whole is not None and in_blocks is not None
    assert whole.to_pylist() == in_blocks.to_pylist()
    mops = [mop for row in whole.to_pylist() for mop in row["mops"]]
    assert {mop["partition"] for mop in mops} == {0} and mops[20]["value"] == 5
    assert [mop["values"] for mop in mops[:20]] == [[n, 7] for n in range(20)] and mops[-1]["values"] == [3, 7]


def test_a_completion_on_another_key_is_refused() -> None:
    with pytest.raises(UserError, match="line 2: an operation completes on another key"):
        open_edn(HERE, history("0 read [1 nil] => [2 5]").encode())


def test_keys_of_all_kinds_differ(tmp_path: Path) -> None:
    keys = ("nil", "0", '"nil"', ":nil", '"0"', ":a", '":a"', "true", '"true"', "1.5", '"1.5"', "9223372036854775808")
    lines = [f"{place} write [{key} {place}]" for place, key in enumerate(keys)]
    lines += [f"{place} read [{key} nil] => [{key} {place}]" for place, key in enumerate(keys)]
    path = tmp_path / "h.edn"
    path.write_text(history(*lines))
    verdict = check(path, "register", options=CheckOptions())
    assert verdict.valid is True and verdict.details["keys"] == len(keys)
