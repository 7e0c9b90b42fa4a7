"""What verdicts show of the operations that refute a history."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from assay.check_command import in_words
from assay.history_commands import import_history
from checkers.api import check
from checkers.explain.conclude import readable
from checkers.importers.detect import open_source
from checkers.options import CheckOptions
from checkers.verdict import Anomaly, Verdict, as_object
from harness.errors import UserError
from results.report import render_check
from results.words import operation

_ELEMENTS = 100
_MOST = 64


def _history(folder: Path, name: str, mops: list[str]) -> Path:
    """Transactions one after the other, in Jepsen's words."""
    lines = (
        f"{{:type {kind}, :process {process}, :f :txn, :value [{value}], :index {2 * process + edge}}}"
        for process, value in enumerate(mops)
        for edge, kind in enumerate((":invoke", ":ok"))
    )
    path = folder / name
    path.write_text("\n".join(lines))
    return path


def _refuted(folder: Path) -> Path:
    """Two reads of a hundred elements that differ in the 81st; the second is the last of a hundred micro-operations."""
    elements = [str(element) for element in range(1, _ELEMENTS + 1)]
    swapped = [*elements[:80], elements[81], elements[80], *elements[82:]]
    others = " ".join(f"[:r {key} []]" for key in range(1_000, 1_000 + _ELEMENTS - 1))
    return _history(
        folder,
        "refuted.edn",
        [
            *(f"[:append 5 {element}]" for element in elements),
            f"[:r 5 [{' '.join(elements)}]]",
            f"{others} [:r 5 [{' '.join(swapped)}]]",
        ],
    )


def test_long_transactions_and_lists_are_shown_in_part_and_told_in_full(tmp_path: Path) -> None:
    verdict = check(_refuted(tmp_path), "list-append", engine="local")
    assert verdict.valid is False
    (anomaly,) = verdict.anomalies["incompatible-order"]
    shown = {op["process"]: op for op in anomaly.ops}
    one, other = shown[_ELEMENTS], shown[_ELEMENTS + 1]
    (read,) = one["mops"]
    assert read["values"] == [*range(1, 33), *range(69, 101)] and read["left_out"] == _ELEMENTS - _MOST
    assert operation(one) == "read key 5 → [1 2 3 4 … 88 more … 93 94 95 96 97 98 99 100]"
    assert len(other["mops"]) == _MOST and other["left_out"] == _ELEMENTS - _MOST
    assert operation(other).endswith(f"read key 1062 → []; {operation(one)}; … 36 more")
    assert "left_out" not in one and [mop.get("left_out") for mop in other["mops"]] == [None] * 63 + [36]
    assert "82" in anomaly.message and "81" in anomaly.message  # where they differ, which isn't among what is shown


def test_all_evidence_is_shortened_whatever_model_shows_it(tmp_path: Path) -> None:
    verdict = check(_refuted(tmp_path), "list-append", engine="local")
    for anomalies in verdict.anomalies.values():
        for op in (op for anomaly in anomalies for op in anomaly.ops):
            assert len(op["mops"]) <= _MOST
            assert all(len(mop["values"] or ()) <= _MOST for mop in op["mops"])


def test_a_long_transaction_of_a_cycle_shows_what_the_cycle_is_about(tmp_path: Path) -> None:
    """Two transactions that miss each other's writes, each among many reads of other keys."""
    padding = [" ".join(f"[:r {key} []]" for key in range(first, first + _ELEMENTS)) for first in (1_000, 2_000)]
    value = "{{:type {}, :process {}, :f :txn, :value [{}], :index {}}}"
    mops = [f"{padding[0]} [:r 5 []] [:append 6 1]", f"{padding[1]} [:r 6 []] [:append 5 1]"]
    later = "[:r 5 [1]] [:r 6 [1]]"
    events = [(":invoke", 0), (":invoke", 1), (":ok", 0), (":ok", 1), (":invoke", 2), (":ok", 2)]
    path = tmp_path / "skew.edn"
    lines = (value.format(kind, of, [*mops, later][of], index) for index, (kind, of) in enumerate(events))
    path.write_text("\n".join(lines))
    verdict = check(path, "list-append", engine="local")
    assert verdict.valid is False
    (anomaly,) = verdict.anomalies["G2-item"]
    for op in anomaly.ops:
        assert len(op["mops"]) == _MOST and op["left_out"] == _ELEMENTS + 2 - _MOST
        assert {mop["partition"] for mop in op["mops"][-2:]} == {5, 6}
        first = op["mops"][0]["partition"]
        assert [mop["partition"] for mop in op["mops"][:-2]] == list(range(first, first + _MOST - 2))


def test_a_long_transaction_shows_what_it_was_seen_by(tmp_path: Path) -> None:
    """A transaction that saw one of two writes, at the end of many reads."""
    others = " ".join(f"[:r {key} nil]" for key in range(1_000, 1_000 + _ELEMENTS))
    history = _history(tmp_path, "seen.edn", ["[:w 5 1] [:w 6 1]", f"{others} [:r 5 1] [:r 6 nil]"])
    verdict = check(history, "isolation", engine="local")
    ((anomaly,),) = verdict.anomalies.values()
    step = anomaly.steps[0]
    assert (step["key"], step["seen_key"]) == (6, 5)
    (reader,) = (op for op in anomaly.ops if op["op"] == 1)
    assert len(reader["mops"]) == _MOST and [mop["partition"] for mop in reader["mops"][-2:]] == [5, 6]


def _mop(value: Any, values: list[Any] | None = None) -> dict[str, Any]:
    return {"f": "r", "partition": 1, "row": 0, "column": 0, "value": value, "expected": None, "values": values}


@pytest.mark.parametrize("mops", [[], None, [_mop(3)], [_mop(None, [1, 10**12])]])
def test_an_operation_that_is_readable_is_not_copied(tmp_path: Path, mops: list[dict[str, Any]] | None) -> None:
    """What is shown is held once: on Spark's driver it is all that grows, until there are examples of every class."""
    op = {"op": 0, "mops": mops}
    verdict = Verdict(False, "list-append", {"G0": (Anomaly("", None, (op,)),)}, {"G0": 1}, 1, engine="local")
    told = readable(verdict, open_source(_refuted(tmp_path)))
    assert told.anomalies["G0"][0].ops[0] is op


def _register(folder: Path, *events: tuple[str, int, str, str, int]) -> Path:
    """Events of (type, process, f, value and what else is said, time)."""
    path = folder / "register.edn"
    line = "{{:index {}, :type :{}, :process {}, :f :{}, :value {}, :time {}}}"
    path.write_text("\n".join(line.format(index, *event) for index, event in enumerate(events)))
    return path


def _steps(
    *steps: tuple[int, str, str, str], times: tuple[int, ...] | None = None
) -> list[tuple[str, int, str, str, int]]:
    """Operations one after the other, of (process, f, value, how it ended and what else is said)."""
    events = []
    for number, (process, f, value, ended) in enumerate(steps):
        type, _, more = ended.partition(" ")
        begun = "nil" if f == "read" else value
        events += [("invoke", process, f, begun, 2 * number), (type, process, f, value + more, 2 * number + 1)]
    clock = times or [event[-1] * 10**7 for event in events]
    return [(*event[:-1], time) for event, time in zip(events, clock, strict=True)]


def _told(path: Path, model: str, **settings: str) -> tuple[str, str]:
    """What the first anomaly says, and all that is printed and drawn of the history."""
    verdict = check(path, model, engine="local", options=CheckOptions(settings=settings))
    found = {"input": str(path), **as_object(verdict)}
    said = next(iter(verdict.anomalies.values()))[0].message
    return said, "\n".join([*in_words(found), msgspec.json.encode(found).decode(), render_check([found])])


def test_values_end_at_two_hundred_characters_with_their_length_wherever_they_are_told(tmp_path: Path) -> None:
    big = [f'"{"a" * 1_000_000}{number}"' for number in range(2)]
    path = _register(
        tmp_path, *_steps((0, "write", big[0], "ok"), (0, "write", big[1], "ok"), (1, "read", big[0], "ok"))
    )
    said, everything = _told(path, "register")
    assert f"read {'a' * 160}…{'a' * 39}0 (1,000,001 characters) from" in said, "the ends tell them apart"
    assert len(said) < 2_000 and len(everything) < 40_000


def test_a_list_of_many_elements_is_told_by_its_ends(tmp_path: Path) -> None:
    many = " ".join(map(str, range(200_000)))
    path = _history(tmp_path, "many.edn", ["[:append 1 0]", f"[:r 1 [{many}]]", f"[:r 1 [{many} 7]]"])
    said, everything = _told(path, "list-append")
    assert "[0 1 … 199997 199998 199999]" in said and len(everything) < 40_000


WRITES = ((0, "write", "1", "ok"), (0, "write", "2", "ok"))
ZERO = ((1, "read", "0", "ok"), *WRITES)


@pytest.mark.parametrize(
    ("steps", "times", "model", "settings", "words"),
    [
        ((*WRITES, (1, "read", "1", "ok")), None, "register", {}, "at 0.040 s although process 0's write of 2 had"),
        ((*WRITES, (1, "read", "1", "ok")), (10, 20, 40, 50, 20, 30), "register", {}, "at event 4 although"),
        (((0, "write", "7", 'fail , :error "timed out"'), (1, "read", "7", "ok")), None, "register", {},
         "process 0's write of 7, failed (timed out), so"),
        (ZERO, None, "register", {}, "say so: -o initial=0."),
        (ZERO, None, "multi-register", {}, "say so: -o initial=0."),
        (ZERO, None, "isolation", {}, "say so: -o initial=0."),
        (((1, "read", "4", "ok"), *WRITES), None, "register", {}, "has that value."),
        (ZERO, None, "register", {"initial": "5"}, "has that value."),
    ],
)  # fmt: skip
def test_a_sentence_says_what_helps_to_judge_it(
    steps: Any, times: Any, model: str, settings: dict[str, str], words: str, tmp_path: Path
) -> None:
    said, everything = _told(_register(tmp_path, *_steps(*steps, times=times)), model, **settings)
    assert words in said
    assert ("initial=0" in said) is ("initial=0" in words)
    order = "go back once against the order of its events: event 4 (0.00000002 s) comes after event 3 (0.00000005 s)"
    assert (everything.count(order) == 3) is (times is not None), "in words, JSON and report"


def test_a_saved_history_says_so_of_what_it_names(tmp_path: Path) -> None:
    path = _register(tmp_path, *_steps(*WRITES, (1, "read", "1", "ok"), times=(10, 20, 40, 50, 20, 30)))
    list(import_history(path, tmp_path / "saved", "auto"))
    said, everything = _told(tmp_path / "saved", "register")
    assert "at event 4 although" in said and everything.count("contradict the order of their events") == 3


def test_no_text_of_a_history_is_repeated_in_full_where_it_is_refused_or_an_error(tmp_path: Path) -> None:
    big = "b" * 100_000
    with pytest.raises(UserError, match=r"\(100,[0-9]{3} characters\)$") as refused:
        check(_register(tmp_path, (big, 0, "read", "nil", 0)), "register", engine="local")
    assert len(str(refused.value)) < 5_000
    path = _register(tmp_path, *_steps((0, "write", "7", f'fail , :error "{big}"'), (1, "read", "7", "ok")))
    assert len(_told(path, "register")[1]) < 40_000
