"""Convergence of quorum tables: row by row, replica by replica, absent rows and missing replicas included."""

import random
from dataclasses import replace

import pytest
from quorum_histories import ROWS, Call, events_of, merged

from checkers.api import check
from harness.history.table import write_parquet

WHOLE = ((None, None, None, None),)


@pytest.fixture
def verdict(tmp_path):
    def judged(calls):
        path = tmp_path / "history.parquet"
        events = events_of(calls)
        write_parquet(events, path)
        return check(path, "convergence", engine="local")

    return judged


def write(begin, ts, puts=(), gone=()):
    return Call(begin, begin + 1, 0, ts=ts, puts=tuple(puts), gone=tuple(gone))


def final(begin, node, shown=(), bounds=WHOLE, **fields):
    fields = {"level": "ONE", "phase": "final"} | fields
    return Call(begin, begin + 1, 1, shown=tuple(shown), bounds=bounds, node=node, **fields)


A, B = (0, 0), (1, 0)
WRITES = (write(0, 10, ((A, 1), (B, 2))), write(2, 20, gone=((1, 1),)))


def reads(*shown, **fields):
    return tuple(final(10 + 2 * i, f"n{i}", cells, **fields) for i, cells in enumerate(shown))


def test_replicas_that_hold_the_same_rows_have_converged(verdict):
    for fields in ({}, {"phase": None}):
        found = verdict((*WRITES, *reads(((A, 1),), ((A, 1),), ((A, 1),), **fields)))
        assert found.valid is True and found.details["compared"] == 2


def test_a_row_that_one_replica_lacks_or_still_has_diverges(verdict):
    for odd in ((), ((A, 1), (B, 2))):
        found = verdict((*WRITES, *reads(((A, 1),), odd, ((A, 1),))))
        assert found.counts == {"divergence": 1}
        assert "replica n1 showed" in found.anomalies["divergence"][0].message
    explicit = reads(((A, 1), (B, None)), ((A, 1), (B, None)), ((A, 1), (B, 2)), bounds=())
    assert verdict((*WRITES, *explicit)).counts == {"divergence": 1}


def test_the_last_read_of_a_replica_counts(verdict):
    early = final(5, "n1", ((A, 1), (B, 2)))
    assert verdict((*WRITES, early, *reads(((A, 1),), ((A, 1),), ((A, 1),)))).valid is True


def test_fewer_replicas_than_there_are_decide_nothing(verdict):
    full = reads(((A, 1),), ((A, 1),), ((A, 1),))
    assert verdict((*WRITES, *full[:2])).valid == "unknown"
    assert verdict((*WRITES, *full[:1])).valid == "unknown"
    assert verdict(WRITES).valid == "unknown"
    narrow = replace(full[2], bounds=((0, 0, None, None),))
    assert verdict((*WRITES, *full[:2], narrow)).valid == "unknown"
    limited = replace(full[2], bounds=((None, None, 1, 0),))
    assert verdict((*WRITES, *full[:2], limited)).valid == "unknown"
    other_partition = replace(WRITES[0], partition=7, begin=4, end=5)
    assert verdict((*WRITES, other_partition, *full)).valid == "unknown"
    assert verdict((*WRITES, *full[:1], replace(full[1], shown=()))).valid is False


def test_rows_that_no_final_read_covers_decide_nothing(verdict):
    first_row = ((0, 0, None, None),)
    assert verdict((*WRITES, *reads(((A, 1),), ((A, 1),), ((A, 1),), bounds=first_row))).valid == "unknown"
    only_first = write(0, 10, ((A, 1),))
    assert verdict((only_first, *reads(((A, 1),), ((A, 1),), ((A, 1),), bounds=first_row))).valid is True
    halves = [reads(*[((A, 1),)] * 3, bounds=((0, end, None, None),)) for end in (0, 1)]
    later = [replace(call, begin=call.begin + 20, end=call.end + 20) for call in halves[1]]
    assert verdict((*WRITES, *halves[0], *later)).valid is True


def test_reads_before_the_last_write_are_not_final_whatever_they_are_called(verdict):
    full = reads(((A, 1),), ((A, 1),), ((A, 1),))
    for status in ("ok", "info"):
        assert verdict((*WRITES, *full, replace(write(30, 30, ((A, 3),)), status=status))).valid == "unknown"
    assert verdict((*WRITES, *full, replace(write(30, 30, ((A, 3),)), status="fail"))).valid is True


def test_answers_of_several_replicas_show_none_of_them(tmp_path):
    path = tmp_path / "history.parquet"
    calls = (*WRITES, *reads(((A, 1),), ((A, 1),), ((A, 1),)))
    for replicas, valid in (("n0,n1", "unknown"), ("n0", "unknown"), (None, True)):
        events = [event.complete(event.type, replicas=replicas) if event.phase else event for event in events_of(calls)]
        write_parquet(events, path)
        assert check(path, "convergence", engine="local").valid == valid


@pytest.mark.parametrize(
    ("level", "valid"), [("QUORUM", "unknown"), ("all", "unknown"), ("LOCAL_ONE", True), (None, True)]
)
def test_a_level_of_several_replicas_shows_none_of_them(verdict, level, valid):
    """Who coordinates such a read shows what all have together, and so does the next who does."""
    stated = {} if level else {"replication": None}
    calls = (*WRITES, *reads(((A, 1),), ((A, 1),), ((A, 1),), level=level))
    assert verdict([replace(call, **stated) for call in calls]).valid == valid


def test_a_partition_read_from_one_replica_is_not_decided_however_many_there_are(verdict):
    calls = [*WRITES, *reads(((A, 1),), ((A, 1),))]
    calls += [replace(write(4, 40, ((A, 7),)), partition=1), replace(final(20, "n0", ((A, 7),)), partition=1)]
    one = [replace(call, replication=None) for call in calls]
    assert verdict(one).valid == "unknown"
    assert verdict([*one, replace(one[-1], begin=30, end=31, node="n1")]).valid is True


def diverges(calls):
    """By definition: the last final page of each replica, cell by cell."""
    held = {}
    for call in calls:
        if call.ts is None:
            for row in ROWS:
                held.setdefault((row, 0), {})[call.node] = dict(call.shown).get((row, 0))
    return any(len(set(by_node.values())) > 1 for by_node in held.values())


@pytest.mark.parametrize("seed", range(40))
def test_random_ends_are_judged_by_the_definition(seed, verdict):
    chance = random.Random(seed)
    writes = [
        write(2 * i, 10 + i, (((row, 0), 10 * i + row + 1) for row in chance.sample(ROWS, 2)))
        if chance.random() < 0.7
        else write(2 * i, 10 + i, gone=((chance.choice(ROWS), None),))
        for i in range(4)
    ]
    ends = []
    for node in range(3):
        known = writes if chance.random() < 0.85 else chance.sample(writes, 3)
        cells = {(row, 0): merged(known, (row, 0)) for row in ROWS}
        ends.append(final(20 + 2 * node, f"n{node}", ((c, v) for c, v in cells.items() if v is not None)))
    assert verdict((*writes, *ends)).valid is (not diverges((*writes, *ends)))
