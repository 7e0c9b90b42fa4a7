"""Zones and search against a brute-force search, and each anomaly by its name."""

from __future__ import annotations

from collections import Counter
from random import Random

import numpy as np
import pytest
from bruteforce import linearizable
from hypothesis import given
from hypothesis import strategies as st
from register_histories import Row, columns, hard_rows, joined, random_rows

from checkers.columns.codes import CAS, FAILED_CAS, FAILED_WRITE, NEVER, NIL, READ, WRITE
from checkers.columns.instances import make_instances
from checkers.linearizability import search_loop
from checkers.linearizability.configurations import ConfigSet
from checkers.linearizability.driver import INVALID, UNDECIDED, VALID, Budget
from checkers.linearizability.registers import register_search
from checkers.linearizability.registers.prepared_registers import prepare
from checkers.linearizability.registers.register_search import explain_stuck
from checkers.linearizability.registers.register_zones import ZONE_ANOMALIES, judge_zones
from checkers.linearizability.registers.stale_reads import judge_stale
from checkers.linearizability.search_loop import Checkpoints
from tests.support.kernels_alone import judge_search


def zone_answer(rows: list[Row]) -> tuple[int, dict[str, int]]:
    out = make_instances(len(ZONE_ANOMALIES), 4)
    answer = judge_zones(columns(rows), out)[0]
    return int(answer), {name: int(n) for name, n in zip(ZONE_ANOMALIES, out.counts, strict=True) if n}


def search_answer(rows: list[Row]) -> int:
    return int(judge_search(columns(rows), Budget()).answers[0])


@pytest.mark.parametrize(
    ("first", "count"),
    [(0, 6000), pytest.param(100_000, 40_000, marks=pytest.mark.campaign)],
)
def test_zones_search_and_brute_force_agree_on_random_histories(first: int, count: int) -> None:
    seeds = range(first, first + count)
    histories = [random_rows(random := Random(seed), random.randint(0, 8), random.random() < 0.6) for seed in seeds]
    kept = [columns(rows) for rows in histories]
    zones = judge_zones(joined(kept), make_instances(len(ZONE_ANOMALIES), 1))
    stale = judge_stale(prepare(joined(kept)), make_instances(len(ZONE_ANOMALIES), 1))
    found = judge_search(joined(kept), Budget()).answers
    seen: Counter[tuple[bool, int]] = Counter()
    seen_stale: Counter[tuple[bool, bool]] = Counter()
    for number, one in enumerate(kept):
        truth = linearizable(one)
        seen[truth, int(zones[number])] += 1
        seen_stale[truth, bool(stale[number])] += zones[number] == UNDECIDED
        assert not (truth and stale[number]), histories[number]
        assert found[number] == (VALID if truth else INVALID), histories[number]
        assert zones[number] in (UNDECIDED, VALID if truth else INVALID), histories[number]
    assert min(seen[True, VALID], seen[False, INVALID], seen[True, UNDECIDED], seen[False, UNDECIDED]) > 300
    assert min(seen_stale[False, True], seen_stale[False, False]) > 200
    print({f"{'valid' if truth else 'invalid'}, zones say {zone}": many for (truth, zone), many in seen.items()})


def long_rows(seed: int) -> list[Row]:
    """Sixty operations, all completed, of which a late read may have found another value."""
    random = Random(seed)
    while True:
        rows = random_rows(random, 60, unique=False)
        wrong = [place for place, row in enumerate(rows) if row[0] == READ and place > 40]
        if wrong and all(row[4] != NEVER for row in rows) and linearizable(columns(rows)):
            break
    if random.random() < 0.6:
        place = random.choice(wrong)
        rows[place] = (READ, random.randint(1, 4), *rows[place][2:])
    return rows


@pytest.mark.parametrize(
    ("first", "count"),
    [(0, 40), pytest.param(10_000, 2000, marks=pytest.mark.campaign)],
)
def test_a_narrow_beam_that_goes_back_is_right(monkeypatch: pytest.MonkeyPatch, first: int, count: int) -> None:
    back: Counter[int] = Counter()

    def counted(checkpoints: Checkpoints, cursor: np.record, frontier: ConfigSet, beam: int) -> int:
        level = int(compiled(checkpoints, cursor, frontier, beam))
        back[int(cursor.fresh)] += 1
        return level

    compiled, start = search_loop.backtrack, register_search._start
    monkeypatch.setattr(register_search, "_start", lambda prepared, beam: start(prepared, min(beam, 2)))
    monkeypatch.setattr(search_loop, "backtrack", counted)
    monkeypatch.setattr(register_search, "search_keys", register_search.search_keys.py_func)
    seen: Counter[bool] = Counter()
    for seed in range(first, first + count):
        rows = long_rows(seed)
        truth = linearizable(columns(rows))
        seen[truth] += 1
        answers = judge_search(columns(rows), Budget()).answers
        assert answers.tolist() == [VALID if truth else INVALID], rows
    assert min(seen[True], seen[False]) > count // 6, seen
    assert back[0] > 0, "never taken up again from a checkpoint"
    print(f"{seen[True]} valid and {seen[False]} invalid; back to checkpoints {back[0]} times, to the start {back[1]}")


@given(st.integers(0, 2**32), st.integers(9, 12), st.booleans())
def test_they_agree_on_longer_histories(seed: int, operations: int, unique: bool) -> None:
    rows = random_rows(Random(seed), operations, unique)
    truth = VALID if linearizable(columns(rows)) else INVALID
    assert search_answer(rows) == truth
    assert zone_answer(rows)[0] in (truth, UNDECIDED)


@pytest.mark.parametrize(
    ("anomaly", "rows"),
    [
        ("stale-read", [(WRITE, 1, NIL, 0, 1), (WRITE, 2, NIL, 2, 3), (READ, 1, NIL, 4, 5)]),
        ("stale-read", [(WRITE, 1, NIL, 0, 1), (READ, NIL, NIL, 2, 3)]),
        ("stale-read", [(WRITE, 1, NIL, 0, 1), (CAS, 2, 1, 2, 3), (READ, 1, NIL, 4, 5)]),
        ("read-of-unwritten", [(WRITE, 1, NIL, 0, 1), (READ, 7, NIL, 2, 3)]),
        ("read-of-unwritten", [(FAILED_WRITE, 7, NIL, 0, 1), (READ, 7, NIL, 2, 3)]),
        ("read-of-unwritten", [(CAS, 2, 7, 0, 1)]),
        ("read-of-unwritten", [(CAS, 2, 7, 0, NEVER), (READ, 2, NIL, 1, 2)]),
        ("read-before-write", [(READ, 1, NIL, 0, 1), (WRITE, 1, NIL, 2, 3)]),
        ("read-before-write", [(READ, 1, NIL, 0, 1), (WRITE, 1, NIL, 2, NEVER)]),
        ("lost-update", [(WRITE, 1, NIL, 0, 1), (CAS, 2, 1, 2, 5), (CAS, 3, 1, 3, 4)]),
        ("cas-cycle", [(CAS, 2, 1, 0, 3), (CAS, 1, 2, 1, 2)]),
        (
            "overlapping-clusters",
            [
                *[(WRITE, 1, NIL, 0, 20), (WRITE, 2, NIL, 1, 21), (READ, 1, NIL, 2, 3), (READ, 2, NIL, 4, 5)],
                *[(READ, 1, NIL, 6, 7), (READ, 2, NIL, 8, 9)],
            ],
        ),
    ],
)
def test_each_anomaly_is_named(anomaly: str, rows: list[Row]) -> None:
    assert zone_answer(rows) == (INVALID, {anomaly: 1})
    assert not linearizable(columns(rows))


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [(READ, NIL, NIL, 0, 1)],
        [(WRITE, 1, NIL, 0, NEVER), (READ, NIL, NIL, 1, 2)],
        [(WRITE, 1, NIL, 0, NEVER), (WRITE, 2, NIL, 1, 2), (READ, 2, NIL, 3, 4), (READ, 1, NIL, 5, 6)],
        [(CAS, 2, 7, 0, NEVER), (READ, NIL, NIL, 1, 2)],
        [(WRITE, 1, NIL, 0, 1), (CAS, 2, 1, 2, NEVER), (READ, 1, NIL, 3, 4), (READ, 2, NIL, 5, 6)],
        [(WRITE, 2**63 - 1, NIL, 0, 1), (READ, 2**63 - 1, NIL, 2, 3), (CAS, -(2**62), 2**63 - 1, 4, 5)],
    ],
)
def test_valid_histories_are_valid(rows: list[Row]) -> None:
    assert zone_answer(rows) == (VALID, {})
    assert search_answer(rows) == VALID


def test_zones_leave_to_the_search_what_they_cannot_decide() -> None:
    twice: list[Row] = [(WRITE, 1, NIL, 0, 1), (WRITE, 1, NIL, 2, 3)]
    nil: list[Row] = [(WRITE, NIL, NIL, 0, 1), (READ, NIL, NIL, 2, 3)]
    refused: list[Row] = [(WRITE, 1, NIL, 0, 1), (FAILED_CAS, NIL, 1, 2, 3)]
    assert [zone_answer(rows)[0] for rows in (twice, nil, refused)] == [UNDECIDED] * 3
    assert [search_answer(rows) for rows in (twice, nil, refused)] == [VALID, VALID, INVALID]


def test_a_stale_read_among_many_open_writes_is_refuted() -> None:
    rows: list[Row] = [(WRITE, 1, NIL, 0, 1), (WRITE, 2, NIL, 2, 3)]
    rows += [(WRITE, 100 + i // 2, NIL, 10 + i, 200 + i) for i in range(24)]
    rows += [(WRITE, 300 + i // 2, NIL, 40 + i, NEVER) for i in range(100)]
    rows.append((READ, 1, NIL, 150, 151))
    answers = judge_search(columns(rows), Budget())
    assert (int(answers.answers[0]), int(answers.stuck[0])) == (INVALID, len(rows) - 1)


def test_a_stuck_search_says_what_was_possible() -> None:
    rows: list[Row] = [(WRITE, 1, NIL, 0, 1), (WRITE, 1, NIL, 2, 3), (WRITE, 5, NIL, 4, NEVER), (READ, 3, NIL, 5, 6)]
    stuck = explain_stuck(columns([*rows, (READ, 5, NIL, 7, 8)]), Budget())
    assert stuck is not None
    assert (stuck.row, stuck.open_rows, stuck.values) == (3, (2,), (1,))


def test_a_search_past_its_budget_is_undecided() -> None:
    rows = hard_rows(40)
    by_memory = judge_search(columns(rows), Budget(memory_bytes=1 << 20))
    assert int(by_memory.answers[0]) == UNDECIDED
    assert by_memory.why is not None and "MiB" in by_memory.why
    by_time = judge_search(columns(rows), Budget(time_s=0.0, memory_bytes=1 << 28))
    assert int(by_time.answers[0]) == UNDECIDED and by_time.why is not None


def test_keys_are_judged_one_by_one() -> None:
    good: list[Row] = [(WRITE, 1, NIL, 0, 1), (READ, 1, NIL, 2, 3)]
    bad: list[Row] = [(WRITE, 1, NIL, 0, 1), (READ, NIL, NIL, 2, 3)]
    out = make_instances(len(ZONE_ANOMALIES), 2)
    many = joined([columns(rows) for rows in (good, bad, [], good, bad, bad)])
    assert judge_zones(many, out).tolist() == [VALID, INVALID, VALID, VALID, INVALID, INVALID]
    assert out.counts.sum() == 3
    assert np.count_nonzero(out.kept[ZONE_ANOMALIES.index("stale-read"), :, 1] >= 0) == 2
