"""Change feeds: each way to break their promise, and random feeds against a naive reading of it."""

import random

import pytest

from checkers.api import check
from checkers.mops import flatten_mops, joined
from checkers.snapshots.feed import ANOMALIES, PROJECTION, FeedKernel
from harness.history.table import to_table, write_parquet
from harness.ops import Mop, Op


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


def test_random_feeds_agree_with_a_naive_reading():
    broken = 0
    for seed in range(1500):
        steps = random_feed(seed)
        rows = joined([flatten_mops(batch, PROJECTION) for batch in to_table(history(*steps)).to_batches()], PROJECTION)
        assert (not FeedKernel(4)(rows).counts) == kept_its_promise(steps), (seed, steps)
        broken += not kept_its_promise(steps)
    assert 300 < broken < 1200
