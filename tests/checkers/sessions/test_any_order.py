"""Reads that no order of versions fits, by any of the session guarantees: against their definitions, and in words."""

import pytest
from naive_sessions import drawn, is_broken
from session_histories import Row, flattened, side_by_side
from test_appended_lists import judged
from test_monotonic_reads import r, w

from checkers.sessions.judge_sessions import PROJECTION
from checkers.sessions.session_guarantees import SessionKernel
from checkers.sessions.session_lists import verdict_of
from checkers.sessions.session_order import GUARANTEES
from tests.support.few_seeds import ranges_of

OVER = Row(0, 1, 0, (("w", 0, 1), ("w", 0, 2)))
CROSSED = [w(0, 5, 1, 0), w(1, 6, 2, 1), r(7, 9, 2, 0, mode="ONE"), r(8, 10, 1, 1, mode="ONE")]
UNSEEN = [
    *(w(0, 11, 2, 1), w(1, 2, 3, 2), w(3, 10, 1, 0)),
    *(r(12, 14, 2, 0, mode="ONE"), r(13, 15, 3, 1, mode="ONE")),
]
REFUTED = {
    "two sessions whose writes overlap": ("read-your-writes", CROSSED, "process 2's session wrote 1 and then read 2."),
    "by way of a write that nobody read": (
        "read-your-writes",
        UNSEEN,
        "3 was there before process 2's write of 1 began",
    ),
    "what an operation wrote over": ("monotonic-reads", [OVER, r(2, 3, 2), r(4, 5, 1)], "wrote 1 and then 2;"),
    "what the session itself wrote over": ("read-your-writes", [OVER, r(2, 3, 1, 0)], "wrote 1 and then 2."),
    "the same with timestamps": (
        "monotonic-reads",
        [Row(0, 1, 0, OVER.mops, served_ts=5), r(2, 3, 2), r(4, 5, 1)],
        "wrote 1 and then 2;",
    ),
}


@pytest.mark.parametrize("name", REFUTED)
def test_names_the_order_that_reads_ask_for(name, tmp_path):
    model, rows, word = REFUTED[name]
    for asked in (model, "sessions"):
        verdict = judged(rows, tmp_path, (asked,))[asked]
        assert verdict.counts == {"contradictory-reads": 1}
        (anomaly,) = verdict.anomalies["contradictory-reads"]
        assert word in anomaly.message and all(step["source"] >= 0 for step in anomaly.steps)


FINE = {
    "read once as it was written over": [OVER, r(2, 3, 1), r(4, 5, 2)],
    "one session only": [*CROSSED[:3], r(8, 10, 2, 1, mode="ONE")],
    "of unknown outcome": [w(0, None, 1, 0, status="info"), *CROSSED[1:]],
}


@pytest.mark.parametrize("name", FINE)
def test_what_some_order_fits_is_valid(name, tmp_path):
    assert judged(FINE[name], tmp_path, ("sessions",))["sessions"].valid is True


@pytest.mark.parametrize("model", [*GUARANTEES, "sessions", "write-atomicity"])
def test_timestamps_against_real_time_are_not_passed_over(model, tmp_path):
    """Where the write of something that was read states none, neither orders the cell."""
    rows = [w(0, 1, 1, served_ts=20), w(2, 3, 2, served_ts=10), Row(4, None, 3, (("w", 0, 3),), "info"), r(5, 6, 3, 2)]
    verdict = judged([*rows, r(7, 8, 2, 2), r(9, 10, 1, 2)], tmp_path, (model,))[model]
    assert (verdict.valid, verdict.details["writes_untimely"]) == ("unknown", 1)
    assert str(verdict.reason).startswith("1 write states a timestamp below that of a write that came before")
    rows[1] = w(2, 3, 2, served_ts=30)
    assert judged(rows, tmp_path, (model,))[model].valid is True


@pytest.mark.parametrize("seeds", ranges_of(80, 20_000))
def test_no_history_is_called_other_than_by_the_definitions(seeds):
    said = {True: 0, False: 0, "unknown": 0}
    for seed in seeds:
        rows = drawn(seed)
        columns = flattened(side_by_side([rows]), PROJECTION, 1 + seed % 4)
        for wanted in (*((name,) for name in GUARANTEES), GUARANTEES):
            broken = is_broken(rows, wanted)
            valid, _ = verdict_of(SessionKernel(wanted, 4)(columns))
            assert broken is None or valid in (not broken, "unknown"), (seed, wanted)
            said[valid] += 1
    assert said["unknown"] < len(seeds) and said[False] > len(seeds) // 5, said
