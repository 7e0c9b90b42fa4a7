"""Change feeds: each way to break their promise, and random feeds against a naive reading of it."""

import random

import pytest

from checkers.api import check
from checkers.columns.mops import flatten_mops, joined
from checkers.engines.exchange import united
from checkers.findings import merged
from checkers.snapshots.feed import ANOMALIES, PROJECTION, FeedDealer, FeedKernel
from harness.history.table import to_table, write_parquet
from harness.ops import Mop, Op
from tests.support.few_seeds import ranges_of


def history(*steps):
    """Events: ("w", value, ts) an acknowledged write of its own cell, ("row", value, ts), ("mark", ts)."""
    events = []
    for kind, *rest in steps:
        index = len(events)
        if kind == "w":
            value, stamp = rest
            call = Op("invoke", 0, "write", (Mop("w", value, value),), index=index, time=index)
            events += [call, call.complete("ok", index=index + 1, time=index + 1, served_ts=stamp)]
        elif kind == "row":
            value, stamp = rest
            mops = (Mop("w", value % 1000, value),)
            events.append(Op("info", -2, "feed-row", mops, index=index, time=index, session=7, served_ts=stamp))
        else:
            events.append(Op("info", -2, "feed-resolved", index=index, time=index, session=7, served_ts=rest[0]))
    return events


NAMED = {
    "resolved-went-back": history(("mark", 10), ("mark", 9)),
    "row-below-resolved": history(("w", 1, 10), ("mark", 10), ("row", 1, 10)),
    "duplicate-row": history(("w", 1, 10), ("row", 1, 10), ("row", 1, 10), ("mark", 10)),
    "unwritten-row": history(("row", 1, 10), ("mark", 10)),
    "wrong-timestamp": history(("w", 1, 10), ("row", 1, 12), ("mark", 20)),
    "missing-row": history(("w", 1, 10), ("w", 2, 12), ("row", 1, 10), ("mark", 12)),
}


@pytest.mark.parametrize("name", ANOMALIES)
def test_names_the_anomaly_and_says_why(name, tmp_path):
    path = tmp_path / "history.parquet"
    write_parquet(NAMED[name], path)
    verdict = check(path, "change-feed", engine="local")
    assert verdict.valid is False
    assert list(verdict.counts) == [name]
    (anomaly,) = verdict.anomalies[name]
    assert anomaly.ops and anomaly.message.endswith(".")


def test_a_right_feed_is_valid_and_no_feed_is_unknown(tmp_path):
    path = tmp_path / "history.parquet"
    write_parquet(history(("w", 1, 10), ("row", 1, 10), ("mark", 10), ("w", 2, 11), ("mark", 10)), path)
    verdict = check(path, "change-feed", engine="local")
    assert verdict.valid is True and verdict.details == {"feeds": 1, "rows": 1, "marks": 2}
    assert check(path, "stats", engine="local").valid is True
    write_parquet(history(("w", 1, 10)), path)
    assert check(path, "change-feed", engine="local").valid == "unknown"


def random_feed(seed):
    """A right feed, and half of the time with one step dropped, doubled or moved."""
    random_ = random.Random(seed)
    writes = [("w", value, 10 * value) for value in range(1, random_.randint(2, 6))]
    steps, told = list(writes), 0
    for place, (_, value, stamp) in enumerate(writes):
        steps.append(("row", value, stamp))
        if random_.random() < 0.5 or place == len(writes) - 1:
            steps.append(("mark", stamp))
            told = place
    feed = list(range(len(writes), len(steps)))
    if random_.random() < 0.5 and told:
        chosen = random_.choice(feed)
        change = random_.choice(("drop", "double", "move"))
        step = steps[chosen]
        if change == "double":
            steps.insert(random_.randint(chosen, len(steps)), step)
        else:
            del steps[chosen]
            if change == "move":
                steps.insert(random_.randint(len(writes), len(steps)), step)
    return steps


def kept_its_promise(steps):
    highest, rows = 0, []
    for kind, *rest in steps:
        if kind == "mark":
            if rest[0] < highest:
                return False
            highest = rest[0]
        elif kind == "row":
            if rest[1] <= highest or rest in rows:
                return False
            rows.append(rest)
    return all(rest in rows for kind, *rest in steps if kind == "w" and rest[1] <= highest)


@pytest.mark.parametrize("seeds", ranges_of(400, 4_000))
def test_random_feeds_agree_with_a_naive_reading(seeds):
    broken = 0
    for seed in seeds:
        steps = random_feed(seed)
        rows = joined([flatten_mops(batch, PROJECTION) for batch in to_table(history(*steps)).to_batches()], PROJECTION)
        assert (not FeedKernel(4)(rows).counts) == kept_its_promise(steps), (seed, steps)
        broken += not kept_its_promise(steps)
    assert len(seeds) // 5 < broken < 4 * len(seeds) // 5


def dealt_and_judged(rows, finer):
    """What tasks say together, one cell's here and one there; with `finer` one of them is dealt once more."""
    dealer, parts = FeedDealer(), {}
    names = (*PROJECTION.names, *dealer.names)
    for bucket, data in dealer(rows, 5, False):
        again = dealer(united([data], names), 3, True) if finer and bucket == 2 else [(0, data)]
        for place, more in again:
            parts.setdefault((bucket, place), []).append(more)
    assert len(parts) == 7 if finer else 5
    return merged([FeedKernel(4)(united(mine, names)) for mine in parts.values()], 4)


@pytest.mark.parametrize("seeds", ranges_of(60, 600))
def test_cells_in_many_tasks_are_judged_as_in_one(seeds):
    """Two feeds of two tables; the second one's rows are behind the first one's."""
    broken = 0
    for seed in seeds:
        of_each = [
            joined(
                [flatten_mops(b, PROJECTION) for b in to_table(history(*random_feed(2 * seed + n))).to_batches()],
                PROJECTION,
            )
            for n in range(2)
        ]
        second = {name: column.copy() for name, column in of_each[1].items()}
        for name, more in (("table", 1), ("invoke", 1_000), ("session", 1)):
            second[name] += more
        rows = joined([of_each[0], second], PROJECTION)
        whole = FeedKernel(4)(rows)
        for finer in (False, True):
            told = dealt_and_judged(rows, finer)
            assert (told.counts, told.figures, told.ops) == (whole.counts, whole.figures, whole.ops), seed
            assert {f.ops for f in told.kept} == {f.ops for f in whole.kept}
        broken += bool(whole.counts)
    assert len(seeds) // 4 < broken < 19 * len(seeds) // 20
