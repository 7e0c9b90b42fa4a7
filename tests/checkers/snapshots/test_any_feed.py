"""Change feeds, by trying every commit time that is not known, for one feed or two: values repeat, cells are deleted or
written several times by one operation, outcomes are unknown or failures, rows are lost, doubled, moved or changed."""

import random
from itertools import product

import pytest

from checkers.columns.mops import flatten_mops, joined
from checkers.snapshots.feed import PROJECTION, FeedKernel
from harness.history.table import to_table
from harness.ops import Mop, Op
from tests.support.few_seeds import ranges_of

LAST = 12
NEVER = 99


def drawn(seed):
    """Operations, as (writes, outcome, timestamp), and feeds, as (beginning, rows and marks)."""
    chance, operations, unknown = random.Random(seed), [], 0
    cells, several = range(chance.choice((1, 1, 2))), chance.choice((0, 0, 0.3))
    again, nil, tied = chance.choice((0, 0.3)), chance.choice((0, 0.2)), chance.choice((0, 0, 0.1))
    times = chance.sample(range(1, LAST), LAST - 1)
    for number in range(chance.randint(1, 4)):
        writes = []
        for place in range(1 + (chance.random() < several)):
            value = chance.choice((10, 20)) if chance.random() < again else 10 * (number + 1) + place
            writes.append((chance.choice(cells), None if chance.random() < nil else value))
        outcome = chance.choices(("ok", "info", "fail", "unstamped"), (16, 4, 2, 1))[0]
        outcome = "ok" if unknown == 2 and outcome in ("info", "unstamped") else outcome
        unknown += outcome in ("info", "unstamped")
        stamp = operations[-1][2] if operations and chance.random() < tied else times.pop()
        operations.append((writes, outcome, stamp))
    return operations, [_feed(chance, operations) for _ in range(chance.choice((1, 1, 2)))]


def _feed(chance, operations):
    begin, rows, events = chance.choice((None, None, None, 3)), [], []
    for writes, outcome, stamp in operations:
        if chance.random() >= {"fail": 0.9, "info": 0.4}.get(outcome, 0) and stamp > (begin or 0):
            rows += [("row", stamp, cell, value) for cell, value in dict(writes).items()]
    rows.sort(key=lambda row: row[1])
    for place, row in enumerate(rows):
        events.append(row)
        ends = place + 1 == len(rows) or rows[place + 1][1] > row[1]
        events += [("mark", row[1])] if ends and chance.random() < 0.3 else []
    events += [("mark", LAST)] if chance.random() < 0.85 else []
    if events and chance.random() < 0.4:
        _spoil(chance, events)
    return begin, events


def _spoil(chance, events):
    place, how = chance.randrange(len(events)), chance.choice(("drop", "double", "move", "value", "time", "untimed"))
    kind, stamp, *told = events[place]
    if how == "double":
        events.insert(chance.randint(place, len(events)), events[place])
    elif how in ("drop", "move"):
        event = events.pop(place)
        if how == "move":
            events.insert(chance.randint(0, len(events)), event)
    elif kind == "row":
        told[1] = chance.choice((10, 20, None, 77)) if how == "value" else told[1]
        stamp = {"time": chance.randint(1, LAST), "untimed": None}.get(how, stamp)
        events[place] = (kind, stamp, *told)


def table_of(operations, feeds):
    events = []
    for process, (writes, outcome, stamp) in enumerate(operations):
        mops = tuple(Mop("w", cell, value) for cell, value in writes)
        call = Op("invoke", process, "write", mops, index=len(events), time=len(events))
        events.append(call)
        if outcome != "info":
            ended, told = ("fail" if outcome == "fail" else "ok"), (stamp if outcome == "ok" else None)
            events.append(call.complete(ended, index=len(events), time=len(events), served_ts=told))
    for session, (begin, told) in enumerate(feeds):
        for kind, stamp, *change in told:
            f, mops = ("feed-row", (Mop("w", *change),)) if kind == "row" else ("feed-resolved", ())
            stated = {"session": session, "served_ts": stamp, "requested_ts": begin}
            events.append(Op("info", -2, f, mops, index=len(events), time=len(events), **stated))
    return to_table(events)


def is_right(operations, feeds):
    """Whether some times make every feed right; each cell of an operation of unknown outcome has a time of its own, and
    two commits of a cell have two."""
    writes = [
        (cell, value, stamp if outcome == "ok" else None)
        for of_op, outcome, stamp in operations
        for cell, value in (dict(of_op).items() if outcome != "fail" else ())
    ]
    choices = [[*range(1, LAST + 2), NEVER] if stamp is None else [stamp] for _, _, stamp in writes]
    for times in product(*choices):
        made = [((cell, at), value) for (cell, value, _), at in zip(writes, times, strict=True) if at != NEVER]
        if len(dict(made)) == len(made) and all(_tells(dict(made), *feed) for feed in feeds):
            return True
    return False


def _tells(commits, begin, events):
    marks = [event[1] for event in events if event[0] == "mark"]
    choices = []
    for place, (kind, stamp, *change) in enumerate(events):
        below = max((event[1] for event in events[:place] if event[0] == "mark"), default=0)
        if kind == "row":
            alike = [key for key, value in commits.items() if [key[0], value] == change and stamp in (None, key[1])]
            choices.append([key for key in alike if key[1] > below])
    due = {key for key in commits if (begin or 0) < key[1] <= max(marks, default=0)}
    told = (set(picked) for picked in product(*choices) if len(set(picked)) == len(picked))
    return marks == sorted(marks) and any(due <= picked for picked in told)


@pytest.mark.parametrize("seeds", ranges_of(500, 20_000))
def test_no_feed_is_called_other_than_by_the_definition(seeds):
    said = {True: 0, False: 0, "unknown": 0}
    for seed in seeds:
        operations, feeds = drawn(seed)
        batches = table_of(operations, feeds).to_batches(max_chunksize=1 + seed % 7)
        found = FeedKernel(4)(joined([flatten_mops(batch, PROJECTION) for batch in batches], PROJECTION))
        undecided = found.figures["rows_undecided"] or found.figures["writes_undecided"]
        valid = False if found.counts else "unknown" if undecided else True
        assert valid in (is_right(operations, feeds), "unknown"), seed
        said[valid] += 1
    assert said["unknown"] < len(seeds) // 8 and said[False] > len(seeds) // 10, said
