"""Change feeds, by trying every commit time that is not known, for one feed or two: values repeat, cells are deleted or
written several times by one operation, or are lists that it appends several elements to, outcomes are unknown or
failures, rows are lost, doubled, moved or changed, or told before their write began."""

import random
from itertools import product

import numpy as np
import pytest
from session_histories import flattened
from test_change_feed import dealt_and_judged

from checkers.columns.codes import NIL
from checkers.columns.mops import selected
from checkers.snapshots import change_feed
from checkers.snapshots.change_feed import PROJECTION, FeedKernel
from checkers.snapshots.feed_table import MARK, ROW
from harness.history.ops import Mop, Op
from harness.history.table import to_table
from tests.support.few_seeds import ranges_of

LAST = 12
NEVER = 99


def drawn(seed):
    """What writes are (`w` or `append`), operations, as (writes, outcome, timestamp), and feeds, as (beginning, rows
    and marks)."""
    chance, operations, unknown = random.Random(seed), [], 0
    f = chance.choice(("w", "w", "append"))
    cells, several = range(chance.choice((1, 1, 2))), chance.choice((0, 0, 0.3))
    again, nil, tied = chance.choice((0, 0.3)), chance.choice((0, 0.2)), chance.choice((0, 0, 0.1))
    times = chance.sample(range(1, LAST), LAST - 1)
    for number in range(chance.randint(1, 4)):
        writes = []
        for place in range(1 + 2 * (chance.random() < several)):
            value = chance.choice((10, 20)) if chance.random() < again else 10 * (number + 1) + place
            writes.append((chance.choice(cells), None if f == "w" and chance.random() < nil else value))
        outcome = chance.choices(("ok", "info", "fail", "unstamped"), (16, 4, 2, 1))[0]
        outcome = "ok" if unknown == 2 and outcome in ("info", "unstamped") else outcome
        unknown += outcome in ("info", "unstamped")
        stamp = operations[-1][2] if operations and chance.random() < tied else times.pop()
        operations.append((writes, outcome, stamp))
    return f, operations, [_feed(chance, f, operations) for _ in range(chance.choice((1, 1, 2)))]


def left_by(f, writes):
    """By cell what the operation leaves there: the last value, or every element."""
    left = {}
    for cell, value in writes:
        left[cell] = [*dict.fromkeys((*left.get(cell, ()), value))] if f == "append" else [value]
    return left


def _feed(chance, f, operations):
    begin, rows, events = chance.choice((None, None, None, 3)), [], []
    for writes, outcome, stamp in operations:
        if chance.random() >= {"fail": 0.9, "info": 0.4}.get(outcome, 0) and stamp > (begin or 0):
            rows += [("row", stamp, cell, value) for cell, values in left_by(f, writes).items() for value in values]
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


def table_of(f, operations, feeds, late):
    """The last `late` operations begin when all of the feeds has been told."""
    begun = len(operations) - late
    events = _of_clients(f, operations[:begun], [])
    events = _of_feeds(feeds, events)
    return to_table(_of_clients(f, operations[begun:], events))


def _of_clients(f, operations, events):
    for writes, outcome, stamp in operations:
        mops, process = tuple(Mop(f, cell, value) for cell, value in writes), len(events)
        call = Op("invoke", process, "write", mops, index=len(events), time=len(events))
        events.append(call)
        if outcome != "info":
            ended, told = ("fail" if outcome == "fail" else "ok"), (stamp if outcome == "ok" else None)
            events.append(call.complete(ended, index=len(events), time=len(events), served_ts=told))
    return events


def _of_feeds(feeds, events):
    for session, (begin, told) in enumerate(feeds):
        for kind, stamp, *change in told:
            event, mops = ("feed-row", (Mop("w", *change),)) if kind == "row" else ("feed-resolved", ())
            stated = {"session": session, "served_ts": stamp, "requested_ts": begin}
            events.append(Op("info", -2, event, mops, index=len(events), time=len(events), **stated))
    return events


def is_right(f, operations, feeds, late):
    """Whether some times make every feed right; each cell of an operation of unknown outcome has a time of its own, and
    two commits of a cell have two."""
    writes = [
        (cell, values, stamp if outcome == "ok" else None, number >= len(operations) - late)
        for number, (of_op, outcome, stamp) in enumerate(operations)
        for cell, values in (left_by(f, of_op).items() if outcome != "fail" else ())
    ]
    choices = [[*range(1, LAST + 2), NEVER] if stamp is None else [stamp] for _, _, stamp, _ in writes]
    for times in product(*choices):
        made = [(write, at) for write, at in zip(writes, times, strict=True) if at != NEVER]
        commits = {(cell, at, value, begun_late) for (cell, values, _, begun_late), at in made for value in values}
        apart = len({(write[0], at) for write, at in made}) == len(made)
        if apart and all(_tells(commits, *feed) for feed in feeds):
            return True
    return False


def _tells(commits, begin, events):
    marks = [event[1] for event in events if event[0] == "mark"]
    choices = []
    for place, (kind, stamp, *change) in enumerate(events):
        below = max((event[1] for event in events[:place] if event[0] == "mark"), default=0)
        if kind == "row":
            alike = [key for key in commits if [key[0], key[2], key[3]] == [*change, False] and stamp in (None, key[1])]
            choices.append([key for key in alike if key[1] > below])
    due = {key for key in commits if (begin or 0) < key[1] <= max(marks, default=0)}
    told = (set(picked) for picked in product(*choices) if len(set(picked)) == len(picked))
    return marks == sorted(marks) and any(due <= picked for picked in told)


@pytest.mark.parametrize("seeds", ranges_of(150, 20_000))
def test_no_feed_is_called_other_than_by_the_definition(seeds):
    said = {True: 0, False: 0, "unknown": 0}
    for seed in seeds:
        f, operations, feeds = drawn(seed)
        late = seed % 10 == 0
        found = FeedKernel(4)(flattened(table_of(f, operations, feeds, late), PROJECTION, 1 + seed % 7))
        undecided = found.figures["rows_undecided"] or found.figures["writes_undecided"]
        valid = False if found.counts else "unknown" if undecided else True
        assert valid in (is_right(f, operations, feeds, late), "unknown"), seed
        said[valid] += 1
    assert said["unknown"] < len(seeds) // 8 and said[False] > len(seeds) // 10, said


def changed(chance, rows):
    """The rows with each mark three times, where some events of feeds lack their timestamps, or state others, a
    beginning or a table."""
    marks = np.flatnonzero(rows["kind"] == MARK)
    places = np.concatenate((np.arange(len(rows["kind"])), marks, marks))
    rows = {name: column[places] for name, column in rows.items()}
    rows["invoke"] = 3 * rows["invoke"] + np.repeat((0, 1, 2), (len(places) - 2 * len(marks), len(marks), len(marks)))
    rows = selected(rows, np.argsort(rows["invoke"], kind="stable"))
    for place in np.flatnonzero(np.isin(rows["kind"], (ROW, MARK))):
        for name, value in (("served_ts", NIL), ("served_ts", chance.randint(1, LAST)), ("requested_ts", 3)):
            if chance.random() < 0.1:
                rows[name][place] = value
        if chance.random() < 0.2:
            rows["size"][place], rows["table"][place] = 1, chance.choice((0, 0, 1))
    return rows


@pytest.mark.parametrize("seeds", ranges_of(20, 2_000))
def test_any_feed_is_judged_in_many_tasks_as_in_one(seeds, monkeypatch):
    monkeypatch.setattr(change_feed, "EVENTS_PER_RANGE", 3)
    broken = 0
    for seed in seeds:
        rows = flattened(table_of(*drawn(seed), seed % 10 == 0), PROJECTION)
        for every in (rows, changed(random.Random(seed), rows)):
            whole = FeedKernel(4)(every)
            for dealt_again in (False, True):
                told = dealt_and_judged(every, int(every["invoke"].max()) + 1 + seed % 3, dealt_again)
                assert (told.counts, told.figures, told.ops) == (whole.counts, whole.figures, whole.ops), seed
                assert {(f.anomaly, f.ops) for f in told.kept} == {(f.anomaly, f.ops) for f in whole.kept}, seed
            broken += bool(whole.counts)
    assert broken > len(seeds) // 2
