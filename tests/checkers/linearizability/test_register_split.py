"""A register judged by value, by chain and by ranges of time says what one task says of it."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from random import Random

import numpy as np
import pytest
from bruteforce import linearizable
from register_histories import Row, columns, random_rows

from checkers.columns.codes import NIL, READ, WRITE
from checkers.columns.instances import make_instances
from checkers.columns.projection import Flat
from checkers.engines.api import Rows, SplitFindings, joined
from checkers.findings import Findings
from checkers.linearizability.driver import INVALID, UNDECIDED
from checkers.linearizability.registers.register_zones import ZONE_ANOMALIES, judge_zones
from checkers.linearizability.registers.split_registers import RegisterSplit

_BUCKETS = 3


def flat(rows: list[Row], key: int = 5) -> Flat:
    data = np.array(rows, np.int64).reshape(-1, 5)
    kind, value, expected, invoke, complete = (data[:, i].copy() for i in range(5))
    zero = np.broadcast_to(np.int64(0), len(data))
    return Flat((zero, np.full(len(data), key), zero, zero), invoke, complete, kind.astype(np.int8), value, expected)


def gathered(parts: list[Rows], bucket: int) -> Rows:
    rows = joined(parts)
    return rows.chosen(np.flatnonzero(rows.value % _BUCKETS == bucket))


def split_answer(rows: list[Row], width: int, pieces: int) -> tuple[Findings, SplitFindings]:
    """What many tasks say of a history of one register."""
    split = RegisterSplit(((0, 5, 0, 0),), width, 100)
    cuts = [len(rows) * piece // pieces for piece in range(pieces + 1)]
    read = [split.read(flat(rows[begin:end])) for begin, end in pairwise(cuts)]
    told, zones, chains = [found for _, found in read], [], []
    for bucket in range(_BUCKETS):
        alone, linked, found = split.gather(gathered([part for part, _ in read], bucket))
        zones.append(alone)
        chains.append(linked)
        told.append(found)
    block_zones, found = split.blocks(joined(chains))
    zones.append(block_zones)
    told.append(found)
    every = joined([part.rows for part in zones])
    home, handed = (np.concatenate([part[i] for part in zones]) for i in (1, 2))
    for place in np.unique(home):
        mine = np.flatnonzero(home == place)
        told.append(split.compare(every.chosen(mine), handed[mine]))
    united = split.united([split.united(told[:2]), split.united(told[2:])])
    return split.concluded(united), united


def whole_answer(rows: list[Row]) -> tuple[int, dict[str, int]]:
    out = make_instances(len(ZONE_ANOMALIES), 100)
    answer = int(judge_zones(columns(rows), out)[0])
    return answer, {name: int(n) for name, n in zip(ZONE_ANOMALIES, out.counts, strict=True) if n}


@pytest.mark.parametrize(("first", "count"), [(0, 500), pytest.param(50_000, 30_000, marks=pytest.mark.campaign)])
def test_many_tasks_say_of_a_register_what_one_says(first: int, count: int) -> None:
    seen: Counter[int] = Counter()
    crossing = refuted = 0
    for seed in range(first, first + count):
        random = Random(seed)
        rows = random_rows(random, random.randint(1, 40), unique=seed % 5 > 0)
        answer, counts = whole_answer(rows)
        found, united = split_answer(rows, random.choice((1, 2, 5, 13, 1000)), random.randint(1, 4))
        crossing += len(united.crossing)
        seen[answer] += 1
        if answer == UNDECIDED:
            assert found.counts or united.doubts, rows
            refuted += bool(found.counts)
            assert not found.counts or not linearizable(columns(rows)), rows
        else:
            assert bool(found.counts) is (answer == INVALID), (seed, counts, found.counts, rows)
            assert found.ops == len(rows) and found.keys == 1
    assert min(seen.values()) > count // 10 and crossing > count // 10 and refuted > count // 200, (seen, crossing)


def test_of_the_reads_of_a_value_the_first_to_end_counts_too() -> None:
    """A write that takes long is seen early, overwritten, and seen again."""
    long_write, early_read = (WRITE, 1, NIL, 0, 100), (READ, 1, NIL, 1, 2)
    rows = [long_write, early_read, (WRITE, 2, NIL, 3, 4), (READ, 1, NIL, 5, 6), (READ, 1, NIL, 7, 8)]
    assert whole_answer(rows)[0] == INVALID
    for width in (1, 3, 1_000):
        assert split_answer(rows, width, 2)[0].counts
