"""Verdicts on quorum tables: the histories that the judges once got wrong, refusals, words, both engines."""

from dataclasses import replace

import msgspec
import pytest
from quorum_histories import Call, events_of, random_history, side_by_side

from checkers.api import check
from checkers.engines.local import LocalEngine
from checkers.importers.detect import open_source
from checkers.models import MODELS
from checkers.options import CheckOptions
from harness.errors import UserError
from harness.history.ops import Op
from harness.history.table import write_parquet

A, B, C, D = ((row, 0) for row in range(4))
JUDGED = ("write-atomicity", "monotonic-reads", "read-your-writes", "sessions", "durable-rows")


@pytest.fixture
def verdict(tmp_path):
    def judged(calls, model):
        path = tmp_path / f"{model}.parquet"
        write_parquet(events_of(calls), path)
        return check(path, model, engine="local")

    return judged


def write(begin, ts, puts=(), gone=(), **fields):
    return Call(begin, begin + 1, 0, ts=ts, puts=tuple(puts), gone=tuple(gone), **fields)


def read(begin, shown=(), bounds=(), **fields):
    return Call(begin, begin + 1, 1, shown=tuple(shown), bounds=tuple(bounds), **fields)


def no_harm(found):
    """Valid, or nothing was compared, which the verdict must then say."""
    compared = found.details.get("comparisons", found.details["pages"])
    return not found.counts and (found.valid is True if compared else "compared" in found.reason)


W1, W2 = write(0, 100, ((A, 1), (B, 2))), write(2, 90, ((B, 3), (C, 4)))
OTHER = write(4, 95, ((D, 5),), status="info")


def test_timestamps_order_writes_whichever_was_acknowledged_first(verdict):
    correct = read(6, ((A, 1), (B, 2), (C, 4), (D, 5)))
    for calls in ((W1, W2, replace(correct, shown=correct.shown[:3])), (W1, W2, OTHER, correct)):
        for model in JUDGED:
            assert no_harm(verdict(calls, model))
    torn = replace(correct, shown=((A, 1), (B, 3), (C, 4)))
    assert set(verdict((W1, W2, OTHER, torn), "write-atomicity").counts) == {"torn-read"}
    assert set(verdict((W1, W2, OTHER, torn), "durable-rows").counts) == {"lost-write"}


def test_of_a_wide_page_the_torn_rows_are_shown(verdict):
    """A hundred rows are before the one that is older: evidence shows 64 micro-operations of an operation."""
    before, others = (tuple(((row, 0), value) for row in range(4, 104)) for value in (7, 8))
    first, second = write(0, 90, (*before, (A, 1), (B, 2))), write(2, 100, (*others, (A, 3), (B, 4)))
    torn = verdict((first, second, read(4, (*others, (A, 3), (B, 2)))), "write-atomicity")
    (anomaly,) = torn.anomalies["torn-read"]
    assert [step["key"] for step in anomaly.steps] == [[0, 0, 4, 0], [0, 0, 1, 0]]
    for op in anomaly.ops:
        assert len(op["mops"]) == 64 and op["left_out"] == 38
        assert [(mop["row"], mop["column"]) for mop in (op["mops"][0], op["mops"][-1])] == [(4, 0), B]


def test_of_a_wide_write_its_deletion_is_shown(verdict):
    """It deletes what a page still shows, after all its puts."""
    puts = tuple(((row, 0), 7) for row in range(4, 104))
    w1, w2 = write(0, 90, ((B, 1), (C, 2))), write(2, 100, puts, gone=((1, 2),))
    torn = verdict((w1, w2, read(4, (*puts, (B, 1)), bounds=((1, 103, None, None),))), "write-atomicity")
    (anomaly,) = torn.anomalies["torn-read"]
    shown = {op["op"]: [mop["f"] for mop in op["mops"]] for op in anomaly.ops}
    assert shown[1] == ["w"] * 63 + ["delete"]
    assert shown[2].count("page") == 1


def test_a_write_of_unknown_outcome_is_seen_whole_or_not_at_all(verdict):
    unknown = write(2, 150, ((A, 7), (B, 8)), status="info")
    unheard = replace(unknown, end=None)
    for late in (unknown, unheard):
        for shown, valid in ((((A, 7), (B, 8)), True), (((A, 1), (B, 2)), True), (((A, 7), (B, 2)), False)):
            assert verdict((W1, late, read(4, shown)), "write-atomicity").valid is valid
            assert verdict((W1, late, read(4, shown)), "durable-rows").valid is True


def test_deletions_are_versions(verdict):
    w1, w2 = write(0, 10, ((A, 1), (B, 2), (C, 9))), write(2, 20, ((B, 3), (C, None)))
    row, rest, whole = (replace(w2, puts=((B, 3),), gone=(bounds,)) for bounds in ((2, 2), (2, None), (None, None)))
    row_of_old = replace(whole, puts=(), ts=5)
    for model in ("write-atomicity", "durable-rows"):
        for gone in (w2, row, rest):
            assert verdict((w1, gone, read(4, ((A, 1), (B, 3), (C, None)))), model).valid is True
            assert verdict((w1, gone, read(4, ((A, 1), (B, 3), (C, 9)))), model).valid is False
        assert verdict((w1, row_of_old, read(4, ((A, 1), (B, 2), (C, 9)))), model).valid is True
    back = (w1, row, read(4, ((C, None),)), read(6, ((C, 9),)))
    assert set(verdict(back, "durable-rows").counts) == {"deleted-row-returned"}
    assert set(verdict(back, "monotonic-reads").counts) == {"non-monotonic-read"}
    unheard = (w1, replace(row, status="info"), *back[2:])
    assert no_harm(verdict(unheard, "durable-rows"))
    assert set(verdict(unheard, "monotonic-reads").counts) == {"non-monotonic-read"}, "its absence was that deletion"
    never = (replace(w1, level="ONE"), *unheard[1:])
    assert no_harm(verdict(never, "monotonic-reads")), "what was absent may never have been there"
    again = (*back[:2], replace(back[3], begin=4, end=5), replace(back[2], begin=6, end=7), read(8, ((C, 9),)))
    assert set(verdict(again, "monotonic-reads").counts) == {"non-monotonic-read"}
    assert verdict(again[:4], "monotonic-reads").valid is True


def test_a_page_of_many_rows_binds_each_of_them(verdict):
    """More cells than a group's list of them has room for at first."""
    cells = [(row, 0) for row in range(2_500)]
    old = tuple((cell, cell[0]) for cell in cells)
    new = tuple((cell, 10_000 + cell[0]) for cell in cells)
    calls = (write(0, 100, old), write(2, 200, new, status="info"), read(4, new))
    assert verdict((*calls, read(6, new)), "monotonic-reads").valid is True
    for row in (0, 1_023, 1_024, 2_048):
        stale = read(6, new[:row] + old[row : row + 1] + new[row + 1 :])
        assert verdict((*calls, stale), "monotonic-reads").counts == {"non-monotonic-read": 1}, row
        alone = read(6, old[row : row + 1])
        assert verdict((*calls, alone), "monotonic-reads").counts == {"non-monotonic-read": 1}, row


def test_rows_absent_inside_a_page_are_seen_as_absent(verdict):
    whole = (None, None, None, None)
    assert verdict((W1, read(4, ((A, 1), (B, 2)), (whole,))), "write-atomicity").valid is True
    missing = verdict((W1, read(4, ((A, 1),), (whole,))), "write-atomicity")
    assert missing.valid is False
    assert "row 1 of key 0" in missing.anomalies["torn-read"][0].message
    assert "absent within the page's bounds" in missing.anomalies["torn-read"][0].message
    for bounds in ((None, 0, None, None), (None, None, 1, 0), (2, None, None, None)):
        assert verdict((W1, read(4, ((A, 1),), (bounds,))), "write-atomicity").valid is True
    assert set(verdict((W1, read(4, (), (whole,))), "durable-rows").counts) == {"lost-write"}
    deleted = write(2, 110, gone=((1, 1),))
    assert verdict((W1, deleted, read(4, ((A, 1),), (whole,))), "write-atomicity").valid is True


def test_a_deletion_that_accounts_for_an_absence_must_be_whole_itself(verdict):
    deletes_both = write(2, 110, gone=((0, 1),), status="info")
    assert verdict((W1, deletes_both, read(4, ((A, 1), (B, None)))), "write-atomicity").valid is False
    with_write = write(2, 110, ((C, 8),), gone=((1, 1),), status="info")
    calls = (W1, with_write, read(4, ((A, 1), (B, None), (C, None))))
    assert verdict(calls, "write-atomicity").valid is False
    covered = replace(write(2, 120, gone=((2, 2),), status="info"), begin=1, end=None, session=5)
    assert verdict((*calls, covered), "write-atomicity").valid is True
    assert verdict((*calls, replace(covered, begin=8)), "write-atomicity").valid is False


NEW, OLD = ((A, 6),), ((A, 1),)
TWO_WRITES = (write(0, 10, OLD, level="ALL"), write(2, 20, NEW, level="ONE", status="info"))


@pytest.mark.parametrize(
    ("first", "second", "replication", "bound"),
    [
        (("ONE", "a"), ("ONE", "a"), "a:3", False),
        (("LOCAL_QUORUM", "a"), ("LOCAL_QUORUM", "a"), "a:3,b:3", True),
        (("LOCAL_QUORUM", "a"), ("LOCAL_QUORUM", "b"), "a:3,b:3", False),
        (("ALL", "a"), ("ONE", "a"), "a:3,b:3", True),
        (("TWO", "a"), ("TWO", "a"), "a:3", True),
        (("TWO", "a"), ("TWO", "a"), "a:3,b:3", False),
        (("QUORUM", "a"), ("LOCAL_QUORUM", "a"), "a:3,b:3", False),
        (("EACH_QUORUM", "a"), ("LOCAL_QUORUM", "b"), "a:3,b:3", True),
    ],
)
def test_reads_that_go_back_are_wrong_only_where_levels_bind(verdict, first, second, replication, bound):
    calls = [replace(call, replication=replication) for call in TWO_WRITES]
    for begin, shown, (level, here) in ((4, NEW, first), (6, OLD, second)):
        calls.append(read(begin, shown, level=level, here=here, replication=replication))
    for model in ("monotonic-reads", "sessions"):
        found = verdict(calls, model)
        assert found.valid is False if bound else no_harm(found)
    assert no_harm(verdict([*calls[:2], replace(calls[2], shown=OLD), replace(calls[3], shown=NEW)], "sessions"))


def test_what_nobody_wrote_is_wrong_in_every_model(verdict):
    failed = write(2, 110, ((A, 8),), status="fail")
    late = replace(write(8, 120, ((A, 9),)))
    for value, why in ((8, "failed"), (9, "began only after"), (77, "no operation wrote")):
        for model in JUDGED:
            found = verdict((W1, failed, read(4, ((A, value),)), late), model)
            assert set(found.counts) == {"unwritten-value"}
            assert why in found.anomalies["unwritten-value"][0].message
    retried = write(6, 110, ((A, 8),))
    assert verdict((W1, failed, retried, read(8, ((A, 8), (B, 2)))), "durable-rows").valid is True


def test_a_value_that_its_own_operation_wrote_later_was_not_there(tmp_path):
    """It was taken for one that somebody had written by then."""
    mixed = write(4, 110, ((A, 8),), shown=((A, 8),))
    for model in JUDGED:
        for first, counts in (("w", {}), ("r", {"unwritten-value": 1})):
            events = events_of((W1, mixed))
            told = sorted(events[-1].mops, key=lambda mop: mop.f != first)
            path = tmp_path / "history.parquet"
            write_parquet([*events[:-1], msgspec.structs.replace(events[-1], mops=tuple(told))], path)
            found = check(path, model, engine="local")
            assert found.counts == counts, (model, first)
            if counts:
                assert "wrote only afterwards." in found.anomalies["unwritten-value"][0].message


REFUSED = {
    "same timestamp": (W1, replace(W2, ts=100)),
    "one cell twice": (write(0, 1, ((A, 1),), gone=((0, 0),)),),
    "the same value": (W1, replace(W2, puts=((A, 1),))),
}


@pytest.mark.parametrize("says", REFUSED)
def test_what_can_not_be_judged_is_refused_in_a_sentence(verdict, says):
    for model in JUDGED:
        with pytest.raises(UserError, match=says):
            verdict((*REFUSED[says], read(6, ((B, 2),))), model)


def test_levels_and_timestamps_must_be_stated_and_possible(verdict, tmp_path):
    with pytest.raises(UserError, match="THREE asks for 3"):
        verdict((replace(W1, level="THREE", replication="a:2"),), "durable-rows")
    with pytest.raises(UserError, match="no consistency level"):
        verdict((W1, read(4, ((A, 1),), level=None)), "sessions")
    events = [msgspec.structs.replace(event, write_ts=None) for event in events_of((W1, read(4, ((A, 1),))))]
    write_parquet(events, tmp_path / "untimed.parquet")
    with pytest.raises(UserError, match="states no write timestamp"):
        check(tmp_path / "untimed.parquet", "write-atomicity", engine="local")
    plain = [msgspec.structs.replace(event, data_centre=None, replication=None) for event in events]
    write_parquet(plain, tmp_path / "plain.parquet")
    with pytest.raises(UserError, match="write_ts"):
        check(tmp_path / "plain.parquet", "durable-rows", engine="local")


def test_replication_is_stated_throughout_or_not_at_all(verdict):
    with pytest.raises(UserError, match="others don't"):
        verdict((W1, read(4, ((A, 1),), replication=None)), "durable-rows")


def test_without_replication_what_holds_for_every_factor_binds(verdict):
    for level, bound in ((None, True), ("strong", True), ("QUORUM", True), ("ONE", False), ("TWO", False)):
        calls = (*TWO_WRITES, read(4, NEW, level=level), read(6, OLD, level=level))
        found = verdict([replace(call, replication=None, here=None) for call in calls], "sessions")
        assert found.valid is False if bound else no_harm(found)


@pytest.mark.parametrize(("one", "other"), [("a:3,b:3", "b:3,a:3"), ("a:3", " a:3"), ("a:3", "a:03")])
def test_one_replication_in_other_words_is_the_same(verdict, one, other):
    calls = (
        *(replace(call, replication=one) for call in TWO_WRITES),
        read(4, NEW, replication=one),
        read(6, OLD, replication=other),
    )
    assert verdict(calls, "monotonic-reads").valid is False


def test_without_replication_levels_bind_over_the_data_centres_that_are_named(verdict):
    first, second = read(4, NEW, replication=None, level="EACH_QUORUM"), read(6, OLD, replication=None, here="b")
    writes = [replace(call, replication=None) for call in TWO_WRITES]
    for one, other, bound in (
        (first, second, True),
        (first, replace(second, level="LOCAL_QUORUM"), True),
        (replace(first, level="QUORUM"), second, True),
        (replace(first, level="QUORUM"), replace(second, level="LOCAL_QUORUM"), False),
        (replace(first, level="QUORUM"), replace(second, level="LOCAL_QUORUM", here="a"), True),
        (replace(first, level="ALL"), replace(second, level="ONE"), True),
    ):
        found = verdict((*writes, one, other), "monotonic-reads")
        assert found.valid is False if bound else no_harm(found), (one, other)
    elsewhere = read(2, ((B, None),), replication=None, here="b", level="ONE")
    local = replace(second, level="LOCAL_QUORUM", here="a")
    assert no_harm(verdict((*writes, elsewhere, replace(first, level="QUORUM"), local), "monotonic-reads"))


def test_where_no_read_is_bound_nothing_was_judged(verdict):
    calls = (replace(W1, level="ONE"), read(4, ((A, 1),), level="ONE"), read(6, ((A, None),), level="ONE"))
    for model in ("monotonic-reads", "sessions", "durable-rows"):
        found = verdict(calls, model)
        assert found.valid == "unknown" and "No read is bound" in found.reason
    assert verdict(calls, "write-atomicity").valid is True


def test_what_is_too_much_to_judge_is_not_called_nothing_to_judge(verdict, monkeypatch):
    monkeypatch.setattr("checkers.quorum.quorum_table.MOST_TOUCHES", 1)
    calls = (W1, write(2, 110, gone=((None, None),)), read(4, ((A, None), (B, None))))
    for model in JUDGED:
        found = verdict(calls, model)
        assert found.valid == "unknown" and "were not judged" in found.reason
        assert "No read" not in found.reason


def test_the_order_of_a_sessions_writes_is_its_clients(verdict):
    for model in ("monotonic-writes", "writes-follow-reads"):
        found = verdict((W1, W2), model)
        assert found.valid == "unknown" and "client" in found.reason


def test_a_read_that_never_ended_or_failed_tells_nothing(verdict):
    page = read(4, ((A, 77),), ((None, None, None, None),))
    for silent in (replace(page, status="fail"), replace(page, status="info"), replace(page, end=None)):
        for model in JUDGED:
            found = verdict((W1, silent), model)
            assert found.valid == "unknown" and "No read succeeded" in found.reason


def test_words_name_rows_writes_timestamps_and_levels(verdict):
    back = (W1, read(4, ((A, 1),)), read(6, ((A, None),)))
    (anomaly,) = verdict(back, "monotonic-reads").anomalies["non-monotonic-read"]
    for part in ("row 0 of key 0", "1 (timestamp 100)", "at QUORUM in a", "nothing", "No deletion of that row"):
        assert part in anomaly.message
    assert [step["kind"] for step in anomaly.steps] == ["realtime", "rw"]
    assert {op["write_ts"] for op in anomaly.ops} == {100, None}


def test_nothing_and_nearly_nothing(tmp_path):
    path = tmp_path / "history.parquet"
    for events in ([Op("invoke", 0, "txn", write_ts=1, index=0, time=0)], events_of((read(0, ((A, None),)),))):
        write_parquet(events, path)
        for model in JUDGED:
            assert check(path, model, engine="local").valid in (True, "unknown")


@pytest.mark.spark
def test_both_engines_say_the_same(spark, tmp_path):
    path = tmp_path / "history.parquet"
    table = side_by_side([random_history(seed) for seed in range(300)])
    from harness.history.table import write_batches

    write_batches(iter(table.to_batches(max_chunksize=500)), path)
    source = open_source(path)
    for model in JUDGED:
        both = [MODELS[model].judge(source, engine, CheckOptions()) for engine in (LocalEngine(), spark)]
        one, other = (msgspec.structs.replace(found, engine="", seconds=0.0) for found in both)
        assert one == other and one.valid is False


def test_a_tear_is_explained_row_by_row_with_the_read_whose_repair_made_it(verdict):
    before = write(0, 50, ((A, 1), (B, 2), (C, 3)))
    partial = write(2, 100, ((A, 11), (B, 12), (C, 13)), status="info")
    calls = (
        before,
        partial,
        read(4, ((A, 11),), replicas="n1,n2"),
        read(6, ((A, 11), (B, 2), (C, 3)), replicas="n2,n3"),
    )
    (torn,) = verdict(calls, "write-atomicity").anomalies["torn-read"]
    assert "leaves n2 with a part of it" in torn.message
    tear = torn.details["tear"]
    assert tear["columns"] == ["row 0", "rows 1 to 2"]
    assert [line["marks"] for line in tear["lines"]] == [
        ["the write"] * 2,
        ["the write", "not asked"],
        ["the write", "not asked"],
        ["the write", "older"],
    ]
    assert "its repair left n2" in tear["lines"][2]["what"] and tear["lines"][2]["op"] == tear["lines"][1]["op"]
    assert "n2 n3 answered" in tear["lines"][-1]["what"] and "outcome unknown" in tear["lines"][0]["what"]
    alone = verdict((before, partial, calls[3]), "write-atomicity").anomalies["torn-read"][0]
    assert "leaves" not in alone.message, "nothing before explains it"


def test_a_torn_deletion_is_explained_as_one(verdict):
    wide = write(0, 50, tuple(((row, column), 1 + column) for row in range(4) for column in range(2)))
    gone = write(2, 100, gone=((1, 3),), status="info")
    cells = dict(wide.puts)
    first = read(4, [(c, v) for c, v in cells.items() if c[0] == 0], ((0, 1, None, None),), replicas="n1,n2")
    torn = read(6, [(c, v) for c, v in cells.items() if c[0] != 1], ((None, None, None, None),), replicas="n2,n3")
    (told,) = verdict((wide, gone, first, torn), "write-atomicity").anomalies["torn-read"]
    for part in ("deletion of timestamp 100, of unknown outcome,", "row 2 of key 0 as well", "leaves n2"):
        assert part in told.message
    tear = told.details["tear"]
    assert tear["columns"] == ["row 1", "rows 2 to 3"]
    marks = [line["marks"] for line in tear["lines"]]
    assert marks == [["gone", "gone"], ["gone", "not asked"], ["gone", "not asked"], ["gone", "older"]]
    assert "'s deletion" in tear["lines"][0]["what"]
    assert told.steps[0]["source"] == tear["lines"][0]["op"] and "row 2 of key 0" in told.steps[1]["why"]


def test_a_page_of_two_answers_is_explained_as_one_where_only_its_end_shows_the_write(verdict):
    before = write(0, 50, ((A, 1), (B, 2), (C, 3), (D, 4)))
    partial = write(2, 100, ((A, 11), (B, 12), (C, 13), (D, 14)), status="info")
    for shown, told in ((((A, 1), (C, 3), (D, 14)), True), (((A, 11), (C, 3), (D, 4)), False)):
        page = read(4, shown, ((None, None, 3, 3),), replicas="n1,n2")
        gone = write(1, 60, gone=((1, 1),))
        (torn,) = verdict((before, gone, partial, page), "write-atomicity").anomalies["torn-read"]
        assert ("a second answer of n1 or n2" in torn.message) is told
