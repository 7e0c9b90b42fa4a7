"""Foreign formats: what they become, what is refused and in which words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkers.api import check
from checkers.importers.blocks import BlockReader
from checkers.importers.detect import detected, open_source
from checkers.importers.jepsen import open_edn, open_jepsen_log, open_json
from checkers.importers.tape import INTEGER, KEYWORD, MAP, NULL, OTHER, SET, STRING, VECTOR, Tape
from checkers.source import Source
from harness.errors import UserError

EDN = b"""; a comment
[{:process 0, :type :invoke, :f :write, :value 1, :time 5, :index 3}
 #jepsen.history.Op{:process 1, :type :invoke, :f :read, :value nil, :time 6, :index 4}
 {:process :nemesis, :type :info, :f :start, :value "cut", :index 5}
 {:process 0, :type :ok, :f :write, :value 1, :time 7, :index 6}
 {:process 1, :type :ok, :f :read, :value 1, :time 9, :index 8 :node "n1" #_ :dropped}
 {:process 2, :type :invoke, :f :cas, :value [1 2], :time 10, :index 9}
 {:process 2, :type :fail, :f :cas, :value [1 2], :error [:precondition "x"], :time 11, :index 10}
 {:process 3, :type :invoke, :f :cas, :value [1 3], :time 12, :index 12}
 {:process 3, :type :info, :f :cas, :value :timed-out, :time 13, :index 13}]
"""

HERE = Path("history")


def rows(source: Source) -> list[dict[str, Any]]:
    assert source.table is not None
    return source.table.to_pylist()


def tape_of(text: bytes, json: bool = False) -> Tape:
    block = BlockReader(HERE, text, json).next()
    assert block.final
    return block.tape


def test_the_tape_holds_every_token() -> None:
    text = b'{:a #_ {1 2} 9223372036854775807 "x" -9223372036854775808 2.5 #{1 nil}} #_ #_ 3 4 9999999999999999999 '
    tape = tape_of(text)
    assert tape.kind.tolist() == [MAP, KEYWORD, INTEGER, STRING, INTEGER, OTHER, SET, INTEGER, NULL, OTHER]
    assert tape.number[[2, 4]].tolist() == [2**63 - 1, -(2**63)]
    assert tape.after.tolist() == [9, 2, 3, 4, 5, 6, 9, 8, 9, 10]
    assert tape_of(b'[[null, true], {"k": "a\\"b"}]', json=True).kind[[0, 1]].tolist() == [VECTOR, NULL]


@pytest.mark.parametrize(
    ("form", "kind"),
    [
        ('#inst "2026-01-01"', OTHER),
        ('#uuid "a"', OTHER),
        ("#my.tag 5", OTHER),
        ("##Inf", OTHER),
        ("\\(", OTHER),
        ('\\"', OTHER),
        ("\\;", OTHER),
        ("\\newline", OTHER),
        ("1/2", OTHER),
        ("1.5e3", OTHER),
        ("1.0M", OTHER),
        ("010", OTHER),
        ("5N", INTEGER),
        ("+5", INTEGER),
        ("-0", INTEGER),
        ("9223372036854775808", OTHER),
        ("-9223372036854775809N", OTHER),
        ("nil", NULL),
        ("nix", OTHER),
        ("nuts", OTHER),
        ("trap", OTHER),
        (":nil", KEYWORD),
        ("#jepsen.history.Op {}", MAP),
        ("#tag #{}", SET),
    ],
)
def test_unusual_forms_are_one_token_each(form: str, kind: int) -> None:
    tape = tape_of(f"[{form} ; a comment\n 17]".encode() + b" ")
    assert tape.kind.tolist() == [kind, INTEGER]
    whole = tape.raw(0) if kind != MAP and kind != SET else form.partition(" ")[2]
    assert form.endswith(whole) and (kind in (SET, MAP) or whole == form)


def test_edn_becomes_our_table() -> None:
    table = rows(open_edn(HERE, EDN))
    assert [row["f"] for row in table] == ["write", "read", "start", "cas", "cas"]
    assert [row["type"] for row in table] == ["ok", "ok", "info", "fail", "info"]
    assert [row["invoke_index"] for row in table] == [3, 4, 5, 9, 12]
    assert [row["complete_index"] for row in table] == [6, 8, 5, 10, 13]
    assert [row["complete_time"] for row in table] == [7, 9, None, 11, 13]
    assert table[1]["mops"][0] | {"f": "r", "value": 1, "partition": 0} == table[1]["mops"][0]
    assert table[4]["mops"][0] | {"f": "cas", "value": 3, "expected": 1} == table[4]["mops"][0]
    assert (table[1]["node"], table[3]["error_class"], table[4]["error_class"]) == ("n1", "precondition", "timed-out")
    assert table[2]["process"] < 0 and table[2]["mops"] is None and table[2]["value"] == '"cut"'


def test_json_says_the_same_as_edn() -> None:
    edn = b"{:process 0 :type :invoke :f :write :value 1}\n{:process 0 :type :ok :f :write :value 1}"
    json = b'[{"process":0,"type":"invoke","f":"write","value":1},{"process":0,"type":"ok","f":"write","value":1}]'
    assert rows(open_json(HERE, json)) == rows(open_edn(HERE, edn))


def test_log_lines_say_that_a_failed_cas_found_another_value(tmp_path: Path) -> None:
    log = (
        b"INFO  jepsen.core - some chatter\n"
        b"INFO  jepsen.util - 0\t:invoke\t:write\t1\nINFO  jepsen.util - 0\t:ok\t:write\t1\n"
        b"INFO  jepsen.util - 1  :invoke  :cas  [1 2]\nINFO  jepsen.util - 1  :fail  :cas  [1 2]\n"
        b"INFO  jepsen.util - 2\t:invoke\t:read\tnil\nINFO  jepsen.util - 2\t:fail\t:read\t:timed-out\n"
    )
    source = open_jepsen_log(HERE, log)
    assert source.failed_cas == "observed"
    assert [row["error_class"] for row in rows(source)] == [None, None, "timed-out"]
    path = tmp_path / "h.log"
    path.write_bytes(log)
    assert check(path, "cas-register").valid is False
    path.write_bytes(log.replace(b":cas  [1 2]", b":cas  [2 1]"))
    assert check(path, "cas-register").valid is True
    path.write_bytes(log.replace(b"1  :fail  :cas  [1 2]", b"1  :fail  :cas  :timed-out"))
    assert check(path, "cas-register").valid == "unknown"


def test_independent_keys_are_told_from_pairs() -> None:
    keyed = b"""{:process 0 :type :invoke :f :cas :value [7 [1 2]]} {:process 0 :type :ok :f :cas :value [7 [1 2]]}
                {:process 0 :type :invoke :f :read :value [7 nil]} {:process 0 :type :ok :f :read :value [7 2]}"""
    cas, read = (row["mops"][0] for row in rows(open_edn(HERE, keyed)))
    assert (cas["partition"], cas["expected"], cas["value"]) == (7, 1, 2)
    assert (read["partition"], read["value"]) == (7, 2)
    plain = b"{:process 0 :type :invoke :f :cas :value [7 8]} {:process 0 :type :ok :f :cas :value [7 8]}"
    (mop,) = rows(open_edn(HERE, plain))[0]["mops"]
    assert (mop["partition"], mop["expected"], mop["value"]) == (0, 7, 8)


def test_values_of_every_shape() -> None:
    text = b"""{:process 0 :type :invoke :f :txn :value [[:append :x 1] [:r "y" nil]]}
               {:process 0 :type :ok :f :txn :value [[:append :x 1] [:r "y" [3 4]]]}
               {:process 1 :type :invoke :f :read} {:process 1 :type :ok :f :read :value #{5 6}}
               {:process 2 :type :invoke :f :read} {:process 2 :type :ok :f :read :value {:a 1, :b 2}}
               {:process 3 :type :invoke :f :put :value "v"}
               {:process 4 :type :invoke :f :odd :value {:a [1 {:b nil}]}}
               {:process 5 :type :invoke :value [[:append 1 -9223372036854775808]]}"""
    source = open_edn(HERE, text)
    txn, whole, entries, put, odd, extreme = rows(source)
    assert [(mop["f"], source.shown(mop["partition"]), mop["value"], mop["values"]) for mop in txn["mops"]] == [
        ("append", ":x", 1, None),
        ("r", "y", None, [3, 4]),
    ]
    assert (whole["mops"][0]["f"], whole["mops"][0]["values"]) == ("r", [5, 6])
    assert [(source.shown(mop["partition"]), mop["value"]) for mop in entries["mops"]] == [(":a", 1), (":b", 2)]
    assert (put["mops"][0]["f"], source.shown(put["mops"][0]["value"]), put["type"]) == ("w", "v", "info")
    assert (odd["mops"], odd["value"]) == (None, '{":a":[1,{":b":null}]}')
    assert (extreme["f"], source.shown(extreme["mops"][0]["value"])) == ("txn", str(-(2**63)))


def test_string_values_are_judged_and_named(tmp_path: Path) -> None:
    path = tmp_path / "h.edn"
    path.write_text(
        '{:process 0 :type :invoke :f :write :key "k" :value "a"}\n'
        '{:process 0 :type :ok :f :write :key "k" :value "a"}\n'
        '{:process 0 :type :invoke :f :read :key "k" :value nil} {:process 0 :type :ok :f :read :key "k" :value "b"}\n'
    )
    (anomaly,) = check(path, "register").anomalies["read-of-unwritten"]
    assert anomaly.message.startswith("Process 0 read b from key k at event 2")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"[{:process 0 :type :invoke :f :read}", "line 1: the text ends before every bracket is closed"),
        (b'\n{:process 0 :f "rea', "line 2: the text ends inside a string"),
        (b"[{:process 0 :type :invoke :f :read])", "line 1: a closing bracket does not match"),
        (b"{:process 0 :type :invoke :f}", "line 1: a map has a key without a value"),
        (b"{:process 0 :f :read}", "line 1: an operation has no :type"),
        (b"{:process 0 :type :maybe :f :read}", "line 1: 'maybe' is not a type"),
        (b"\n\n17", "line 3: '17' is not an operation"),
        (b"[] []", "line 1: something follows the list"),
        (b"{:process 0 :type :ok :f :read}", "line 1: process 0 completes an operation that it has not invoked"),
        (b"{:process 0 :type :invoke :f :r}\n{:process 0 :type :invoke :f :r}", "line 2: process 0 invokes"),
        (b"{:process 0 :type :invoke :f :r}\n{:process 0 :type :ok :f :w}", "line 2: process 0 completes another"),
        (b"{:process 0 :type :invoke :f :r :index 1}\n{:process 0 :type :ok :f :r :index 1}", "index 1 is used twice"),
        (b"[" * 600, "nested deeper"),
    ],
)
def test_what_is_no_whole_history_is_refused(text: bytes, words: str) -> None:
    with pytest.raises(UserError, match=r"^history, line \d+: ") as raised:
        open_edn(HERE, text)
    assert words in str(raised.value)


def test_json_that_ends_early_is_refused() -> None:
    with pytest.raises(UserError, match="line 2: the text ends inside a string"):
        open_json(HERE, b'[{"process":0,"type":"invoke","f":"read"},\n{"process":0,"ty')
    for text in (b'[{"a" 1}]', b"[{},]", b"[{}{}]", b"[,{}]", b"[{'a': 1}]", b"{}", b"", b'[{"a": 01}]'):
        with pytest.raises(UserError, match="line 1: this is not a JSON array"):
            open_json(HERE, text)


def test_a_log_that_ends_early_is_refused() -> None:
    with pytest.raises(UserError, match="line 1: the last line has no end"):
        open_jepsen_log(HERE, b"INFO  jepsen.util - 0\t:invoke\t:write\t1")


def test_formats_are_detected(tmp_path: Path) -> None:
    path = tmp_path / "some"
    for text, format in ((EDN, "edn"), (b'  [ {"type":', "json"), (b"INFO jepsen.util - 0", "jepsen-log")):
        path.write_bytes(text)
        assert detected(path) == format
    path.write_bytes(b"what is this")
    with pytest.raises(UserError, match="none of the formats"):
        open_source(path)


@given(st.data())
def test_damaged_text_is_read_or_refused_but_never_crashes(data: st.DataObject) -> None:
    text = np.frombuffer(EDN, np.uint8).copy()
    for _ in range(data.draw(st.integers(1, 4))):
        text[data.draw(st.integers(0, len(text) - 1))] = data.draw(st.sampled_from(list(b'[]{}()"\\:#_; 0-9nilN\xff')))
    start = data.draw(st.integers(0, 40))
    for opened in (open_edn, open_jepsen_log, open_json):
        try:
            opened(HERE, text[start : data.draw(st.integers(start, len(text)))].tobytes())
        except UserError as refusal:
            assert "\n" not in str(refusal)


AWDIT = b"""w 1 5
r 2 7
-----
r 1 -5
=====
w 2 7
w 3 8
r 1 5
"""

PLUME = b"""w(1,5,0,0)
w(2,7,1,0)
r(2,7,0,0)
w(3,8,1,0)
r(1,-5,0,1)
r(1,5,1,0)
w(4,9,1,-1)
w(4,10,0,-1)
w(4,11,1,-1)
"""


@pytest.mark.parametrize(("text", "format"), [(AWDIT, "awdit-text"), (PLUME, "plume-text")])
def test_texts_of_plain_transactions_become_one_operation_each(text: bytes, format: str, tmp_path: Path) -> None:
    (tmp_path / "history.txt").write_bytes(text)
    source = open_source(tmp_path / "history.txt", format)
    told = [
        (row["session"], row["type"], [(mop["f"], mop["partition"], mop["value"]) for mop in row["mops"]])
        for row in rows(source)
    ]
    first = (0, "ok", [("w", 1, 5), ("r", 2, 7)])
    other = (1, "ok", [("w", 2, 7), ("w", 3, 8), ("r", 1, 5)])
    last = (0, "ok", [("r", 1, -5)])
    aborted = [(1, "fail", [("w", 4, 9), ("w", 4, 11)]), (0, "fail", [("w", 4, 10)])]
    assert told == ([first, last, other] if text is AWDIT else [first, other, last, *aborted])
    for row in rows(source):
        assert (row["invoke_index"], row["complete_index"]) == (2 * row["op"], 2 * row["op"] + 1)
        assert row["process"] == row["session"]


@pytest.mark.parametrize(
    "text", [b"w 1 5\n--\nr 1 5\n", b"w 1\n", b"w 1 5 7\n", b"x 1 5\n", b"w 1 99999999999999999999\n"]
)
def test_a_line_that_is_no_transaction_s_is_refused(text: bytes, tmp_path: Path) -> None:
    (tmp_path / "history.txt").write_bytes(text)
    with pytest.raises(UserError, match=r"line \d: .* is not an operation|does not fit 64 bits"):
        open_source(tmp_path / "history.txt", "awdit-text")


@pytest.mark.parametrize("value", ["[[1 2] 3]", "[1 [2 [3]]]", "#{[1] 2}", "[[] 1]"])
def test_lists_in_lists_are_not_taken_for_flat_ones(value: str) -> None:
    lines = (f"{{:process 0, :type :{kind}, :f :write, :value {value}}}" for kind in ("invoke", "ok"))
    assert [row["mops"] for row in rows(open_edn(HERE, "\n".join(lines).encode()))] == [None]
