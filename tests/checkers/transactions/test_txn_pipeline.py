"""The stages of the distributed pipeline against the in-process engine, on random histories cut into tiny parts."""

from __future__ import annotations

import random
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.kernels_alone import find_in

sys.path.insert(0, str(Path(__file__).parent))

from pipeline_in_memory import find_in_pieces, relate_in_memory, run
from weak_store import Txn, hard_to_place, random_history, source_of

from checkers.columns.batches import bucket_batch
from checkers.findings import Findings
from checkers.transactions.inference.register_accesses import ORDER_REALTIME
from checkers.transactions.lattice import implied_anomalies
from checkers.transactions.stages.buckets import FLOATING, TIMES, blocks_of
from checkers.transactions.stages.pieces import FINDINGS, Row, encode_findings, merged_times, pack, times_of, unpack
from checkers.transactions.stages.time_segments import Sizes, Union, lay_segments
from checkers.transactions.stages.windows import merged_extents
from checkers.transactions.transaction_findings import infer_in_process
from harness.errors import HarnessError
from tests.support.few_seeds import ranges_of

SEEDS = ranges_of(20, 300)


@pytest.mark.parametrize("seeds", SEEDS)
@pytest.mark.parametrize("lists", [True, False], ids=["list-append", "rw-register"])
def test_pieces_buckets_and_windows_give_what_one_process_gives(lists, seeds, tmp_path):
    for seed in seeds:
        dice = random.Random(seed)
        history = random_history(seed, lists, txns=dice.randint(5, 60), keys=dice.randint(1, 4))
        history = hard_to_place(history, dice) if seed % 2 else history
        source, orders = source_of(history), dice.randrange(3)
        sources = 0 if lists else dice.choice([0, ORDER_REALTIME])
        parts = {"rows_each": dice.randint(1, 9), "buckets": dice.randint(1, 3), "stride": dice.choice([1, 8, 1000])}
        parts["sizes"] = Sizes(a_task=dice.choice([1, 10, 1000]), a_home=dice.choice([1, 5, 1000]))
        model = "list-append" if lists else "rw-register"
        theirs = find_in_pieces(source, tmp_path, model, orders, sources, **parts)
        assert theirs == find_in(source, model, orders, sources, 2).counts, (seed, parts)


@pytest.mark.parametrize("seeds", SEEDS)
def test_segments_too_long_for_one_task_show_nothing_that_is_not_there_and_are_not_whole(seeds, tmp_path):
    found_in_parts = 0
    for seed in seeds:
        source = source_of(random_history(seed, True, txns=60, keys=2))
        sizes = Sizes(a_task=10, a_piece=40)
        related, _ = relate_in_memory(source, judged_in_one_block(source), 2, 8, sizes)
        ours = find_in(source, "list-append", 2, 0, 2).counts
        assert related.by(2).counts.keys() <= ours.keys() or not related.whole
        for name in related.by(2).counts:
            assert name in ours or implied_anomalies(list(ours)) & {name}, (seed, name)
        found_in_parts += not related.whole and bool(related.by(2).counts)
    assert found_in_parts > len(seeds) // 6


def judged_in_one_block(source):
    """What the second stage makes of a history whose keys are in one bucket, from what one process infers."""
    inferred = infer_in_process(source, "list-append", 0, 2)
    times = times_of(inferred.txns)
    usual = merged_times([times]).usual
    blocks = list(blocks_of(inferred.edges, inferred.txns, inferred.addresses, 0, usual))
    figures = {"floating": sum(len(block.kind) for kind, block in blocks if kind == FLOATING)}
    told = [Row(TIMES, 0, pack([times])), Row(FINDINGS, 0, encode_findings(Findings(figures=figures)))]
    return told + [Row(0, kind, pack(block)) for kind, block in blocks]


def test_floating_edges_that_nobody_has_placed_are_never_just_left_out():
    source = source_of(gap())
    judged = [row for row in judged_in_one_block(source) if row.bucket != FINDINGS]
    nothing_floating = Row(FINDINGS, 0, encode_findings(Findings(figures={"floating": 0})))
    with pytest.raises(HarnessError, match="without a place in time"):
        relate_in_memory(source, [*judged, nothing_floating], 2, 8)


def stale_history(txns, every):
    """One transaction after the other appends to a list of its own and reads it; now and then one misses a value."""
    history = []
    for i in range(txns):
        if i % every == every - 1:
            mops = (("r", i - 1, ()), ("append", i, i))
        else:
            mops = (("append", i, i), ("r", i - 1, (i - 1,)) if i else ("append", -1, 0))
        history.append(Txn(i % 4, "ok", 2 * i, 2 * i + 1, mops))
    return history


def test_what_reaches_the_driver_does_not_grow_with_the_anomalies():
    came = []
    for txns in (4_000, 40_000):
        source = source_of(stale_history(txns, every=50))
        judged = judged_in_one_block(source)
        related, blocks = relate_in_memory(source, judged, 2, 1 << 12, Sizes(a_task=1 << 10, a_piece=5_000, most=64))
        assert related.whole and related.by(2).counts["G-single-item-realtime"] == txns // 50
        came.append(blocks.came)
    assert came[1] <= 2 * came[0]


@pytest.mark.parametrize("most", [1, 2, 3, 100])
def test_a_union_keeps_every_extent_and_no_more_segments_than_asked(most):
    dice = random.Random(most)
    extents = [(low, low + dice.randint(0, 9)) for low in (dice.randint(0, 1000) for _ in range(60))]
    rows = [Row(-3, 0, pack([np.array(extents[i : i + 7])])) for i in range(0, 60, 7)]
    (merged,) = run(Union(2, most), iter([bucket_batch(rows)]))
    found = unpack(merged.data)[0].tolist()
    assert len(found) <= most
    assert all(any(low <= a and b <= high for low, high in found) for a, b in extents)
    assert all(one[1] < other[0] for one, other in pairwise(found))


def test_segments_are_cut_with_an_overlap_where_they_are_too_long():
    laid = lay_segments(np.array([(0, 5), (10, 60), (90, 95)]), Sizes(a_task=10, a_piece=20), 8)
    assert laid.low.tolist() == [0, 10, 22, 34, 46, 90] and laid.high.tolist() == [5, 30, 42, 54, 60, 95]
    assert not laid.whole and (np.diff(laid.bucket) >= 0).all()
    assert lay_segments(np.array([(0, 5), (10, 60)]), Sizes(), 8).whole


FAR = 4_000
"""Events between what belongs together: far more than four usual durations."""


def filled(*txns):
    """The transactions at their places (process, invocation, completion or None, micro-operations), amid a short one of
    its own list every ten events."""
    history = [Txn(process, "ok" if end else "info", begin, end, mops) for process, begin, end, mops in txns]
    last = max(txn.complete or txn.invoke for txn in history)
    taken = {event for txn in history for event in (txn.invoke, txn.complete)}
    for begin in range(2, last, 10):
        if not taken & {begin, begin + 1}:
            history.append(Txn(0, "ok", begin, begin + 1, (("append", 10**6 + begin, begin),)))
    return sorted(history, key=lambda txn: txn.invoke)


def chain(length, dice):
    """A read that comes long after one which depends on what it does not see, through that many transactions of unknown
    outcome, begun anywhere and read in the end."""
    begins = dice.sample(range(5, FAR, 10), length)
    told = [(i + 1, begins[i], None, (("append", i, 2 * i), ("append", i + 1, 2 * i + 1))) for i in range(length)]
    told.append((500, 2 * FAR + 4, 2 * FAR + 5, (("r", length, (2 * length - 1,)),)))
    told.append((501, 3 * FAR + 4, 3 * FAR + 5, (("r", 0, ()),)))
    ends = [(0,), *((2 * i - 1, 2 * i) for i in range(1, length))]
    told += [(502, 4 * FAR + 20 * i + 4, 4 * FAR + 20 * i + 5, (("r", i, end),)) for i, end in enumerate(ends)]
    return filled(*told)


def crossed():
    """Two transactions of unknown outcome, far from each other and from what reads them: each is before the other."""
    first, second = (("append", 1, 1), ("append", 2, 1)), (("append", 1, 2), ("append", 2, 2))
    reads = ("r", 1, (1, 2)), ("r", 2, (2, 1))
    end = 2 * FAR + 4
    return filled((1, 5, None, first), (2, FAR + 5, None, second), (3, end, end + 1, reads))


def gap():
    """A transaction of unknown outcome that one saw long before another did not."""
    late = FAR + 4
    return filled((1, 0, None, (("append", 7, 1),)), (2, 4, 5, (("r", 7, (1,)),)), (3, late, late + 1, (("r", 7, ()),)))


@pytest.mark.parametrize(
    ("history", "anomaly"),
    [
        (gap(), "G-single-item-realtime"),
        (chain(2, random.Random(1)), "G-single-item-realtime"),
        (chain(12, random.Random(2)), "G-single-item-realtime"),
        (crossed(), "G0"),
    ],
    ids=["gap", "short chain", "long chain", "crossed"],
)
@pytest.mark.parametrize("a_home", [1, 1_000])
def test_cycles_through_transactions_without_a_place_are_found_however_far_their_ends_are(
    history, anomaly, a_home, tmp_path
):
    source = source_of(history)
    parts = {"rows_each": 1_000, "buckets": 2, "stride": 8, "sizes": Sizes(a_task=1, a_home=a_home)}
    found = find_in_pieces(source, tmp_path, "list-append", 2, 0, **parts)
    assert found == find_in(source, "list-append", 2, 0, 2).counts == {anomaly: 1}


@pytest.mark.parametrize("a_home", [1, 1_000])
def test_readers_far_behind_many_writers_that_they_do_not_see_are_found(a_home, tmp_path):
    writes = [(i, 10 * i + 4, 10 * i + 5, (("w", 1, i),)) for i in range(1, 61)]
    reads = [(100 + i, FAR + 10 * i + 4, FAR + 10 * i + 5, (("r", 1, None),)) for i in range(1, 61)]
    source = source_of([txn._replace(mops=_as_registers(txn.mops)) for txn in filled(*writes, *reads)])
    assert infer_in_process(source, "rw-register", 0, 2).edges.used[1] > source.rows, "helper nodes stand for pairs"
    parts = {"rows_each": 1_000, "buckets": 2, "stride": 8, "sizes": Sizes(a_task=1, a_home=a_home)}
    found = find_in_pieces(source, tmp_path, "rw-register", 2, 0, **parts)
    assert found == find_in(source, "rw-register", 2, 0, 2).counts == {"G-single-item-realtime": 1}


def _as_registers(mops):
    return tuple(("w" if f == "append" else f, key, value) for f, key, value in mops)


@given(st.lists(st.tuples(st.integers(0, 300), st.integers(0, 40)), min_size=1, max_size=40), st.integers(0, 9))
def test_merged_extents_hold_each_moment_near_one_and_no_other(pairs: list[tuple[int, int]], pad: int) -> None:
    extents = np.array([(low, low + length) for low, length in pairs])
    merged = merged_extents(extents, pad)
    inside = {moment for low, high in extents.tolist() for moment in range(low - pad, high + pad + 1)}
    assert {moment for low, high in merged.tolist() for moment in range(low, high + 1)} == inside
    assert (merged[1:, 0] > merged[:-1, 1]).all()
