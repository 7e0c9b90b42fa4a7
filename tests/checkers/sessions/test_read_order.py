"""What sessions say of the order of versions: few edges that lead just where the definition's pairs lead."""

import random
from dataclasses import replace

import numpy as np
import pytest
from session_histories import Row, flattened, intervals, side_by_side

from checkers.sessions.judge_sessions import PROJECTION
from checkers.sessions.session_guarantees import CONTRADICTORY, SessionKernel, read_table
from checkers.sessions.session_order import read_order
from tests.support.few_seeds import ranges_of


def random_reads(seed):
    """Reads of one cell, most of them of few versions, by sessions whose reads overlap."""
    random_ = random.Random(seed)
    spans = intervals(random_, random_.randint(2, 12), random_.randint(1, 3), overlapping=random_.random() < 0.9)
    values = random_.randint(2, 9)
    if random_.random() < 0.5:
        return [Row(begin, end, session, (("r", 0, random_.randrange(values)),)) for begin, end, session in spans]
    # Mostly in order, so that there is no contradiction.
    return [
        Row(begin, end, session, (("r", 0, random_.randint(begin, end) // random_.choice((2, 3, 3))),))
        for begin, end, session in spans
    ]


def with_writes(rows, seed):
    """The history, in which some reads have become writes of the values that they showed."""
    random_, written, told = random.Random(seed), set(), []
    for row in rows:
        _, cell, value = row.mops[0]
        writes = value not in written and random_.random() < 0.5
        written |= {value} if writes else set()
        told.append(replace(row, mops=(("w" if writes else "r", cell, value),)))
    return told


def ordered(rows, before="r"):
    """Pairs of values of which one session read (or wrote, by `before`) the one before it asked for the other."""
    return {
        (one.mops[0][2], other.mops[0][2])
        for one in rows
        for other in rows
        if one.session == other.session and one.end < other.begin and one.mops[0][2] != other.mops[0][2]
        if one.mops[0][0] in before and other.mops[0][0] == "r"
    }


def reachable(pairs):
    """Pairs of nodes of which the first leads to the second."""
    closed = set(pairs)
    while True:
        more = {(a, d) for a, b in closed for c, d in closed if b == c} - closed
        if not more:
            return closed
        closed |= more


def is_cyclic(closed):
    return any(a == b for a, b in closed)


def edges_of(histories, before="r"):
    """By history: edges between values and helpers (negative), and how many helpers there are."""
    table = read_table(flattened(side_by_side(histories), PROJECTION))
    versions = len(table.versions.since)
    binding = np.where(table.events.read, "r" in before, "w" in before)
    found = read_order(table.events, np.ones(len(histories), np.bool_), versions, binding)
    cell_of, name = {}, {}
    for row, version in enumerate(table.events.version.tolist()):
        cell_of[version], name[version] = int(table.rows["partition"][row]), int(table.rows["value"][row])
    for helper, cell in enumerate(found.helper_cell.tolist()):
        cell_of[versions + helper], name[versions + helper] = cell, -1 - helper
    edges = [set() for _ in histories]
    for source, target in zip(found.source.tolist(), found.target.tolist(), strict=True):
        assert cell_of[source] == cell_of[target]
        edges[cell_of[source]].add((name[source], name[target]))
    return edges


@pytest.mark.parametrize("before", ["r", "w", "rw"])
@pytest.mark.parametrize("seeds", ranges_of(400, 20_000))
def test_edges_lead_where_sessions_order_versions(seeds, before):
    histories = [random_reads(seed) for seed in seeds]
    histories = [
        with_writes(rows, seed) if "w" in before else rows for seed, rows in zip(seeds, histories, strict=True)
    ]
    cyclic = 0
    for seed, rows, edges in zip(seeds, histories, edges_of(histories, before), strict=True):
        expected, found = reachable(ordered(rows, before)), reachable(edges)
        assert is_cyclic(found) == is_cyclic(expected), seed
        cyclic += is_cyclic(expected)
        if not is_cyclic(expected):
            assert {(a, b) for a, b in found if min(a, b) >= 0} == expected, seed
        visits = {(row.session, row.mops[0][2]) for row in rows}
        assert len(edges) <= 4 * len(visits), seed
    assert len(seeds) // 30 < cyclic < len(seeds) * 9 // 10


def test_edges_of_many_reads_at_once_are_few():
    """All of one half are over before any of the other begins, or all are read again: a million pairs."""
    half = 1_000
    rows = [Row(i, half + i, 0, (("r", 0, i),)) for i in range(half)]
    rows += [Row(2 * half + i, 3 * half + i, 0, (("r", 0, half + i),)) for i in range(half)]
    again = [Row(2 * i, 2 * i + 1, 0, (("r", 0, i % half),)) for i in range(2 * half)]
    assert [len(edges) < 4 * 2 * half for edges in edges_of([rows, again])] == [True, True]


def test_a_contradiction_through_reads_that_overlap_is_explained_by_reads():
    """Session 0 reads 1 and 2 at once and then 3, session 1 reads 3 and then 2."""
    rows = [Row(i, 20 + i, 10 + i, (("w", 0, i + 1),)) for i in range(3)]
    rows += [Row(4, 6, 0, (("r", 0, 1),), mode="ONE"), Row(5, 7, 0, (("r", 0, 2),), mode="ONE")]
    for begin, session, value in ((8, 0, 3), (10, 1, 3), (12, 1, 2)):
        rows.append(Row(begin, begin + 1, session, (("r", 0, value),), mode="ONE"))
    (finding,) = SessionKernel(("monotonic-reads",), 8)(flattened(side_by_side([rows]), PROJECTION)).kept
    assert finding.anomaly == CONTRADICTORY
    told = {(step["kind"], step["value"], step["next"]) for step in finding.facts["steps"]}
    assert told == {("session", 2, 3), ("session", 3, 2)}
    assert all(step["source"] >= 0 <= step["target"] for step in finding.facts["steps"])
