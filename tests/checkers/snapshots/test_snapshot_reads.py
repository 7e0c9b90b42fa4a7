"""Reads at a timestamp: the definition by trying every commit time that is not known, over thousands of small cells."""

import random
from dataclasses import replace
from itertools import product

import pytest
from session_histories import Row, events_of, flattened, guilty, intervals, side_by_side

from checkers.api import check
from checkers.snapshots.snapshot_order import ANOMALIES
from checkers.snapshots.snapshot_reads import PROJECTION, SnapshotKernel
from harness.history.table import write_parquet

MANY = 1_000_000
NEVER = 10**9


def found_in(histories):
    return SnapshotKernel(MANY)(flattened(side_by_side(histories), PROJECTION))


def guilty_cells(histories):
    return guilty(found_in(histories))


def random_cell(seed):
    """Writes with commit times near their own, and reads at times that are mostly over; most reads are right."""
    random_ = random.Random(seed)
    rows, commits = [], [(-1, None)]
    for begin, end, session in intervals(random_, random_.randint(3, 8), random_.randint(1, 3)):
        if random_.random() < 0.5:
            value = len(commits)
            stamp = 20 * begin + value + random_.choice((0, 0, 0, 10, -20, -40))
            known = random_.random() < 0.8
            commits.append((stamp, value))
            write = (("w", 0, value),)
            rows.append(Row(begin, end if known else None, session, write, "ok" if known else "info", served_ts=stamp))
        else:
            asked = max(1, 20 * begin - random_.choice((0, 20, 40, 60)))
            shown = max((commit for commit in commits if commit[0] <= asked), key=lambda commit: commit[0])[1]
            if random_.random() < 0.15:
                shown = random_.choice(commits)[1]
            rows.append(Row(begin, end, session, (("r", 0, shown),), requested_ts=asked))
    return rows


def right(rows):
    """Whether some commit times of the writes of unknown outcome make every read right and no commit late."""
    writes = [row for row in rows if row.mops[0][0] == "w"]
    reads = [row for row in rows if row.mops[0][0] == "r"]
    unknown = [row for row in writes if row.status == "info"]
    times = {time for row in rows for time in (row.served_ts, row.requested_ts) if time}
    stated = {row.served_ts for row in writes if row.status == "ok"}
    grid = sorted({time + shift for time in times for shift in (-1, 1)} - stated)  # no two commits have one time
    for times in product([*grid, NEVER], repeat=len(unknown)):
        stamp = {row.mops[0][2]: row.served_ts for row in writes if row.status == "ok"}
        stamp |= {row.mops[0][2]: time for row, time in zip(unknown, times, strict=True)}
        if all(_newest(stamp, read.requested_ts) == read.mops[0][2] for read in reads) and not any(
            read.end < write.begin and stamp[write.mops[0][2]] <= read.requested_ts
            for read in reads
            for write in writes
        ):
            return True
    return False


def _newest(stamp, time):
    return max(((at, value) for value, at in stamp.items() if at <= time), default=(0, None))[1]


def test_agrees_with_trying_every_commit_time():
    histories = [random_cell(seed) for seed in range(4000)]
    expected = {number for number, rows in enumerate(histories) if not right(rows)}
    guilty = guilty_cells(histories)
    assert set().union(*guilty.values()) == expected
    assert 300 < len(expected) < 3700
    assert set(guilty) >= {"unequal-snapshots", "missed-commit", "commit-from-the-future", "late-commit"}


def with_repeats(rows, seed):
    """The history, in which a write or two give the cell the value of the write before."""
    random_ = random.Random(seed)
    values = [row.mops[0][2] for row in rows if row.mops[0][0] == "w"]
    repeated = set(random_.sample(values[1:], min(len(values) - 1, random_.randint(1, 2)))) if values else set()

    def renamed(value):
        return value - 1 if value in repeated else value

    return [replace(row, mops=((row.mops[0][0], 0, renamed(row.mops[0][2])),)) for row in rows]


def readings(rows):
    """The history with a value for each write, in every way in which reads may have picked one of several writes."""
    writes = [(100 + number, row) for number, row in enumerate(rows) if row.mops[0][0] == "w"]
    every = []
    for number, row in enumerate(rows):
        alike = [name for name, other in writes if other.mops[0][2] == row.mops[0][2]]
        every.append([100 + number] if row.mops[0][0] == "w" else alike or [row.mops[0][2]])
    for picked in product(*every):
        yield [replace(row, mops=((row.mops[0][0], 0, name),)) for row, name in zip(rows, picked, strict=True)]


@pytest.mark.parametrize("many", [60, pytest.param(2_000, marks=pytest.mark.campaign)])
def test_repeated_values_agree_with_trying_every_commit_time_of_every_write(many):
    histories = [with_repeats(random_cell(seed), seed) for seed in range(many)]
    expected = {number for number, rows in enumerate(histories) if not any(map(right, readings(rows)))}
    guilty = set().union(*guilty_cells(histories).values())
    assert guilty <= expected
    assert all(found_in([histories[number]]).figures["reads_undecided"] for number in expected - guilty)
    assert len(guilty) > 9 * len(expected) // 10
    decided = [number for number, rows in enumerate(histories) if all(row.status == "ok" for row in rows)]
    assert not any(found_in([histories[number]]).figures["reads_undecided"] for number in decided[:200])


def w(begin, end, value, stamp, session=0):
    return Row(begin, end, session, (("w", 0, value),), served_ts=stamp)


def r(begin, end, value, asked=None, session=1, bound=None, served=None, **times):
    cells = (("r", 0, value),)
    return Row(begin, end, session, cells, requested_ts=asked, bound=bound, served_ts=served, times=times)


def maybe(begin, value):
    return Row(begin, None, 10 + begin, (("w", 0, value),), "info")


NAMED = {
    "unequal-snapshots": [w(0, 1, 1, 10), Row(2, None, 3, (("w", 0, 2),), "info"), r(3, 4, 2, 30), r(5, 6, 1, 30)],
    "missed-commit": [w(0, 1, 1, 10), r(2, 3, None, 20)],
    "commit-from-the-future": [w(0, 1, 1, 10), r(2, 3, 1, 5)],
    "snapshot-went-back": [
        Row(0, None, 2, (("w", 0, 1),), "info"),
        Row(1, None, 3, (("w", 0, 2),), "info"),
        r(2, 3, 1, 10),
        r(4, 5, 2, 20),
        r(6, 7, 1, 30),
    ],
    "late-commit": [r(0, 1, None, 20), w(2, 3, 1, 10)],
    "stale-beyond-bound": [w(0, 1, 1, 10), w(2, 3, 2, 20), r(10, 11, 1, bound=500)],
    "below-minimum": [w(0, 1, 1, 10), r(2, 3, 1, served=15, min_ts=16)],
    "ahead-of-clocks": [w(0, 1, 1, 10), r(2, 3, 1, served=15, latest_ts=14)],
    "session-behind": [
        Row(0, 1, 1, (("w", 0, 1),), served_ts=30, times={"latest_ts": 90}),
        Row(2, 3, 1, (("r", 0, None),), mode="anywhere", served_ts=20, times={"latest_ts": 90}),
    ],
    "blocked-in-vain": [w(0, 1, 1, 10), r(2, 3, 1, served=15, min_ts=12, unblocked_ts=12, blocked_ns=1)],
}


def test_what_is_stated_rightly_is_no_anomaly() -> None:
    for times in ({"min_ts": 15, "unblocked_ts": 14, "blocked_ns": 9, "latest_ts": 15}, {"blocked_ns": 9}):
        assert not guilty_cells([[w(0, 1, 1, 10), r(2, 3, 1, served=15, **times)]])


def test_no_two_commits_of_a_cell_have_one_timestamp() -> None:
    """So a commit of unknown time that was there by 10, when another was made, is the older of the two, whatever other
    times are near."""
    lost = Row(1, None, 1, (("w", 0, 2),), "info", served_ts=11)
    for time, shown, expected in ((10, 2, {"missed-commit"}), (11, 2, set()), (10, 1, set())):
        rows = [w(0, 2, 1, 10), lost, r(3, 4, shown, time)]
        assert set(guilty_cells([rows])) == expected
        assert right(rows) is not bool(expected)


def test_two_commits_that_state_one_timestamp_say_nothing_of_which_is_read() -> None:
    both = [w(0, 1, 1, 10), w(2, 3, 2, 10)]
    assert not guilty_cells([[*both, r(4, 5, 1, 10)]]) and not guilty_cells([[*both, r(4, 5, 2, 10)]])


@pytest.mark.parametrize("name", ANOMALIES)
def test_names_the_anomaly_and_says_why(name, tmp_path):
    path = tmp_path / "history.parquet"
    write_parquet(events_of(NAMED[name]), path)
    verdict = check(path, "snapshot-reads", engine="local")
    assert verdict.valid is False
    assert list(verdict.counts) == [name]
    (anomaly,) = verdict.anomalies[name]
    assert anomaly.ops and anomaly.message.endswith(".")


def test_a_bound_allows_what_is_young_enough(tmp_path):
    path = tmp_path / "history.parquet"
    write_parquet(events_of([w(0, 1, 1, 10), w(2, 3, 2, 20), r(4, 5, 1, bound=20_000)]), path)
    verdict = check(path, "snapshot-reads", engine="local")
    assert verdict.valid is True
    assert verdict.details["bounded_reads"] == 1


REPEATED = {
    "the last commit of them": (True, [w(0, 1, 1, 10), w(2, 3, 1, 20), r(4, 5, 1, 25)]),
    "another commit is newer": (False, [w(0, 1, 1, 10), w(2, 3, 1, 20), w(4, 5, 2, 30), r(6, 7, 1, 35)]),
    "all of them later": (False, [w(0, 1, 1, 10), w(2, 3, 1, 20), r(4, 5, 1, 5)]),
    "two values at one time": (
        False,
        [w(0, 1, 1, 10), maybe(2, 1), maybe(3, 2), r(4, 5, 1, 30), r(6, 7, 2, 30)],
    ),
    "deleted again": (False, [w(0, 1, 1, 10), w(2, 3, None, 20), w(4, 5, 2, 30), r(6, 7, None, 35)]),
    "unset, and deleted later": (True, [w(0, 1, 1, 10), w(2, 3, None, 20), r(4, 5, None, 5)]),
    "maybe written again": (
        "unknown",
        [w(0, 1, 1, 10), maybe(2, 1), w(4, 5, 2, 30), r(6, 7, 1, 35)],
    ),
    "maybe written again, and right": (True, [w(0, 1, 1, 10), maybe(2, 1), r(6, 7, 1, 35)]),
    "bounded, all too old": (False, [w(0, 1, 1, 10), w(2, 3, 1, 20), w(4, 5, 2, 30), r(10, 11, 1, bound=500)]),
    "bounded, one may be new": ("unknown", [w(0, 1, 1, 10), w(2, 9, 1, 20), w(4, 5, 2, None), r(10, 11, 1, bound=500)]),
}


@pytest.mark.parametrize("name", REPEATED)
def test_a_value_that_is_written_twice_hides_nothing(name, tmp_path):
    valid, rows = REPEATED[name]
    path = tmp_path / "history.parquet"
    write_parquet(events_of(rows), path)
    verdict = check(path, "snapshot-reads", engine="local")
    assert verdict.valid == valid, verdict
    assert valid != "unknown" or verdict.reason == "1 read of values that several operations wrote can't be matched."


def test_bounds_can_not_be_judged_without_times(tmp_path):
    path = tmp_path / "history.edn"
    path.write_text(
        "{:process 0 :type :invoke :f :read :value nil :bound 5}\n{:process 0 :type :ok :f :read :value nil :bound 5}\n"
    )
    verdict = check(path, "snapshot-reads", engine="local")
    assert verdict.valid == "unknown" and "states no times" in verdict.reason
