"""Reads at a timestamp, by trying every commit time that is not known and every order of commits that state the same.

Operations write a cell once or several times, delete it, repeat values and fail; some reads show what nobody wrote, and
some ask for no time and say at which they were served.
"""

import random
from itertools import permutations, product

import pytest
from session_histories import Row, events_of, flattened, intervals, side_by_side

from checkers.api import check
from checkers.snapshots.snapshot_reads import PROJECTION, SnapshotKernel
from harness.history.table import write_parquet
from tests.support.few_seeds import ranges_of

NEVER = 10**9
MODEL = "snapshot-reads"


def drawn(seed):
    chance, rows, commits, unknown = random.Random(seed), [], [(-1, None)], 0
    again, nil, several = chance.choice((0, 0, 0.2)), chance.choice((0, 0.15)), chance.choice((0, 0, 0.3))
    tied, nobodys, wrong = chance.choice((0, 0, 0.2)), chance.choice((0, 0, 0.1)), chance.choice((0, 0.15, 0.3))
    for begin, end, session in intervals(chance, chance.randint(2, 7), chance.randint(1, 3)):
        if chance.random() < 0.5:
            values = [100 + 10 * len(rows) + place for place in range(1 + (chance.random() < several))]
            if chance.random() < again:
                values[-1] = chance.choice([value for _, value in commits if value] or values)
            elif chance.random() < nil:
                values[-1] = None
            stamp = 20 * begin + len(commits) + chance.choice((0, 0, 0, 10, -20, -40))
            if chance.random() < tied and len(commits) > 1:
                stamp = chance.choice(commits[1:])[0]
            status = chance.choices(("ok", "info", "fail", "unstamped"), (16, 4, 2, 1))[0]
            status = "ok" if unknown == 2 and status in ("info", "unstamped") else status
            unknown += status in ("info", "unstamped")
            commits += [(stamp, values[-chance.choice((1, 1, 1, 2)) :][0])] if status != "fail" else []
            told = stamp if status == "ok" else None
            end, status = (None, status) if status == "info" else (end, status.replace("unstamped", "ok"))
            mops = tuple(("w", 0, value) for value in values)
            rows.append(Row(begin, end, session, mops, status, served_ts=told))
        else:
            asked = max(1, 20 * begin - chance.choice((0, 20, 40, 60)))
            value = max((one for one in commits if one[0] <= asked), key=lambda one: one[0])[1]
            value = chance.choice(commits)[1] if chance.random() < wrong else value
            value = chance.choice((777, 110 + 10 * len(rows))) if chance.random() < nobodys else value
            time = {"served_ts" if begin % 2 else "requested_ts": asked}
            rows.append(Row(begin, end, session, (("r", 0, value),), **time))
    return rows


def time_of(read):
    return read.requested_ts or read.served_ts


def is_right(rows):
    """Whether some times, and some order of commits of one time, make every read right and no commit late."""
    writes = [row for row in rows if row.mops[0][0] == "w" and row.status != "fail"]
    reads = [row for row in rows if row.mops[0][0] == "r"]
    stated = {row.served_ts for row in writes} - {None}
    times = stated | {time_of(row) for row in reads}
    grid = sorted({time + shift for time in times for shift in (-2, -1, 0, 1, 2)} - stated)
    choices = [[*grid, NEVER] if row.served_ts is None else [row.served_ts] for row in writes]
    for at in product(*choices):
        tried = [time for time, row in zip(at, writes, strict=True) if row.served_ts is None and time != NEVER]
        if len(set(tried)) == len(tried) and any(_is_right(writes, reads, order) for order in _orders(at)):
            return True
    return False


def _orders(at):
    """The writes, as (time, number), in every order that their times allow."""
    times = sorted(set(at) - {NEVER})
    alike = [[(time, number) for number, one in enumerate(at) if one == time] for time in times]
    for picked in product(*(permutations(group) for group in alike)):
        yield [commit for group in picked for commit in group]


def _is_right(writes, reads, order):
    for read in reads:
        seen = [number for time, number in order if time <= time_of(read)]
        if (writes[seen[-1]].mops[-1][2] if seen else None) != read.mops[0][2]:
            return False
        if any(read.end < writes[number].begin for number in seen):
            return False
    return True


@pytest.mark.parametrize("seeds", ranges_of(150, 20_000))
def test_no_history_is_called_other_than_by_the_definition(seeds):
    said = {True: 0, False: 0, "unknown": 0}
    for seed in seeds:
        rows = drawn(seed)
        found = SnapshotKernel(4)(flattened(side_by_side([rows]), PROJECTION, 1 + seed % 4))
        if found.figures["snapshot_reads"]:
            valid = _valid(found)
            assert valid in (is_right(rows), "unknown"), seed
            said[valid] += 1
    assert said["unknown"] < len(seeds) // 8 and said[False] > len(seeds) // 10, said


def _valid(found):
    open_ones = ("reads_undecided", "reads_of_ties", "reads_intermediate", "values_unwritten")
    return False if found.counts else "unknown" if any(found.figures[name] for name in open_ones) else True


def w(begin, value, stamp, *more):
    return Row(begin, begin + 1, 0, tuple(("w", 0, one) for one in (value, *more)), served_ts=stamp)


def r(begin, value, asked=None, bound=None, served=None):
    return Row(begin, begin + 1, 1, (("r", 0, value),), requested_ts=asked, bound=bound, served_ts=served)


def failed(begin, value):
    return Row(begin, begin + 1, 2, (("w", 0, value),), "fail")


BY_HAND = {
    "nobody's, in spite of a commit": ([w(0, 1, 10), r(2, 99, 25)], False),
    "nobody's, before any commit": ([w(0, 1, 10), r(2, 99, 5)], "unknown"),
    "nobody's, within a bound": ([w(0, 1, 10), w(2, 2, 20), r(10, 99, bound=500)], "unknown"),
    "of two orders, within a bound": ([w(0, 1, 20), w(2, 2, 10), w(4, 3, None), r(18, 1, bound=1)], "unknown"),
    "under which a commit slipped": ([w(0, 1, 10), r(2, 1, served=30), w(4, 2, 20)], "late-commit"),
    "of a write that failed": ([w(0, 1, 10), failed(2, 99), r(4, 99, 25)], False),
    "what its operation wrote over": ([w(0, 1, 10, 2), r(2, 1, 20)], False),
    "what its operation wrote over, within a bound": ([w(0, 1, 10, 2), r(2, 1, bound=500)], "unknown"),
    "what its operation left": ([w(0, 1, 10, 2), r(2, 2, 20)], True),
    "of unknown outcome, what it wrote over": (
        [Row(0, None, 3, (("w", 0, 1), ("w", 0, 2)), "info"), r(2, 1, 20)],
        "unknown",
    ),
    "of commits that state one timestamp": (
        [w(0, 1, 10), w(2, 2, 10), r(4, 1, 10), r(6, 2, 20), r(8, 1, 30)],
        "unknown",
    ),
    "of a time that nobody asked for": ([w(0, 1, 10), w(2, 2, 20), r(4, 1, served=30)], "missed-commit"),
    "of a time that nobody asked for, as it was": ([w(0, 1, 10), r(2, 1, served=15), w(4, 2, 20)], True),
    "of a time within a bound": ([w(0, 1, 10), w(2, 2, 20), r(4, 1, bound=10**9, served=30)], "missed-commit"),
    "of another time than was asked for": ([w(0, 1, 10), w(2, 2, 20), r(4, 1, 15, served=30)], "unknown"),
    "beside commits that state one timestamp": ([w(0, 1, 10), w(2, 2, 10), w(4, 3, 15), r(6, 3, 20)], True),
}


@pytest.mark.parametrize("name", BY_HAND)
def test_what_no_commit_left_is_never_valid(name, tmp_path):
    rows, expected = BY_HAND[name]
    anomaly = expected if str(expected).endswith("commit") else None if expected else "missed-commit"
    valid = False if anomaly else expected
    write_parquet(events_of(rows), tmp_path / "history.parquet")
    verdict = check(tmp_path / "history.parquet", MODEL, engine="local")
    assert (verdict.valid, list(verdict.counts)) == (valid, [anomaly] if anomaly else [])
    assert expected is not False or verdict.anomalies["missed-commit"][0].message.endswith(
        "what was read is no commit's value."
    )
