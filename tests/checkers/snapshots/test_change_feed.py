"""Change feeds: each way to break their promise, and random feeds against a naive reading of it."""

import random
import statistics
import time
from itertools import product

import numpy as np
import pytest
from session_histories import flattened

from checkers.api import check
from checkers.columns.codes import FAIL, INFO, NIL, OK, WRITE
from checkers.columns.mops import joined, selected
from checkers.engines.exchange import united
from checkers.findings import merged
from checkers.snapshots import change_feed
from checkers.snapshots.change_feed import ANOMALIES, PROJECTION, FeedDealer, FeedKernel
from checkers.snapshots.feed_table import MARK, ROW
from harness.history.ops import Mop, Op
from harness.history.table import to_table, write_parquet
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
    assert verdict.valid is True and verdict.details == {
        "feeds": 1,
        "rows": 1,
        "marks": 2,
        "rows_undecided": 0,
        "writes_undecided": 0,
    }
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


@pytest.mark.parametrize("seeds", ranges_of(100, 4_000))
def test_random_feeds_agree_with_a_naive_reading(seeds):
    broken = 0
    for seed in seeds:
        steps = random_feed(seed)
        rows = flattened(to_table(history(*steps)), PROJECTION)
        assert (not FeedKernel(4)(rows).counts) == kept_its_promise(steps), (seed, steps)
        broken += not kept_its_promise(steps)
    assert len(seeds) // 5 < broken < 4 * len(seeds) // 5


def dealt_and_judged(rows, events, dealt_again):
    """What tasks say together, one cell's here and one there; with `dealt_again` some of them are dealt once more."""
    dealer, parts = FeedDealer(events), {}
    names = (*PROJECTION.names, *dealer.names)
    pieces = np.arange(len(rows["kind"])) * 3 // len(rows["kind"])
    for piece in range(3):
        for bucket, data in dealer(selected(rows, pieces == piece), 5, False):
            again = dealer(united([data], names), 3, True) if dealt_again and bucket % 3 == 2 else [(0, data)]
            for place, more in again:
                parts.setdefault((bucket, place), []).append(more)
    return merged([FeedKernel(4)(united(mine, names)) for mine in parts.values()], 4)


@pytest.mark.parametrize("seeds", ranges_of(20, 600))
def test_cells_and_times_in_many_tasks_are_judged_as_in_one(seeds, monkeypatch):
    """Two feeds of two tables; the second one's rows are behind the first one's."""
    monkeypatch.setattr(change_feed, "EVENTS_PER_RANGE", 4)
    broken = 0
    for seed in seeds:
        of_each = [flattened(to_table(history(*random_feed(2 * seed + n))), PROJECTION) for n in range(2)]
        second = {name: column.copy() for name, column in of_each[1].items()}
        for name, more in (("table", 1), ("invoke", 1_000), ("session", 1)):
            second[name] += more
        rows = joined([of_each[0], second], PROJECTION)
        whole = FeedKernel(4)(rows)
        for dealt_again in (False, True):
            assert FeedDealer(2 * len(rows["kind"])).ranges > 1
            told = dealt_and_judged(rows, (2 * len(rows["kind"]), 1_020)[seed % 2], dealt_again)
            assert (told.counts, told.figures, told.ops) == (whole.counts, whole.figures, whole.ops), seed
            assert {f.ops for f in told.kept} == {f.ops for f in whole.kept}
        broken += bool(whole.counts)
    assert len(seeds) // 4 < broken < 19 * len(seeds) // 20


def drawn_cell(chance):
    """Writes of one cell, which repeat values and are often of unknown outcome, what a feed told of it, and a mark."""
    rows = {name: [] for name in PROJECTION.names}
    times = chance.sample(range(1, 9), 8)
    writes = [(chance.randint(1, 3), times.pop(), chance.choice((OK, OK, INFO))) for _ in range(chance.randint(1, 4))]
    told = [(value, stamp) for value, stamp, status in writes if status == OK or chance.random() < 0.6]
    told = [(v, s) if chance.random() < 0.8 else (chance.randint(1, 3), chance.randint(1, 8)) for v, s in told]
    told = list(dict(reversed(pair) for pair in told).items())
    events = [(WRITE, value, stamp if status == OK else NIL, status) for value, stamp, status in writes]
    events += [(ROW, value, stamp, INFO) for stamp, value in told] + [(MARK, 0, 9, INFO)]
    for place, (kind, value, stamp, status) in enumerate(events):
        row = dict.fromkeys(PROJECTION.names, 0)
        row |= {"kind": kind, "invoke": place, "value": value, "served_ts": stamp, "status": status}
        row |= {"size": int(kind != MARK), "requested_ts": NIL}
        for name, cell in row.items():
            rows[name].append(cell)
    return {name: np.array(column, np.int64) for name, column in rows.items()}


def some_times_fit(rows):
    """Whether some commit times of the writes of unknown outcome make the feed right."""
    every = list(zip(*(rows[name].tolist() for name in ("kind", "value", "served_ts", "status")), strict=True))
    known = {(value, stamp) for kind, value, stamp, status in every if kind == WRITE and status == OK}
    told = {(value, stamp) for kind, value, stamp, _ in every if kind == ROW}
    unknown = [value for kind, value, _, status in every if kind == WRITE and status == INFO]
    for times in product((None, *range(1, 9)), repeat=len(unknown)):
        more = [(value, stamp) for value, stamp in zip(unknown, times, strict=True) if stamp is not None]
        commits = [*known, *more]
        if len({stamp for _, stamp in commits}) == len(commits) and known <= told <= set(commits):
            return True
    return False


@pytest.mark.parametrize("seeds", ranges_of(150, 10_000))
def test_repeated_values_agree_with_trying_every_commit_time(seeds):
    right = 0
    for seed in seeds:
        rows = drawn_cell(random.Random(seed))
        expected = some_times_fit(rows)
        found = FeedKernel(4)(rows)
        assert (not found.counts, found.figures["rows_undecided"]) == (expected, 0), seed
        right += expected
    assert len(seeds) // 5 < right < 4 * len(seeds) // 5


REPEATED = {
    "all told": (True, [("c", 1, 10), ("c", 1, 30), ("r", 1, 10), ("r", 1, 30), ("mark", 40)]),
    "one of them lacking": (False, [("c", 1, 10), ("c", 1, 30), ("r", 1, 10), ("mark", 40)]),
    "told without timestamps": ("unknown", [("c", 1, 10), ("c", 1, 30), ("r", 1, None), ("r", 1, None), ("mark", 40)]),
    "one told without a timestamp": (
        "unknown",
        [("c", 1, 10), ("c", 1, 30), ("r", 1, 10), ("r", 1, None), ("mark", 40)],
    ),
    "at other times": (False, [("c", 1, 10), ("c", 1, 30), ("r", 1, 77), ("r", 1, 99), ("mark", 100)]),
    "another value at its time": (False, [("c", 1, 10), ("c", 2, None), ("r", 2, 10), ("mark", 40)]),
    "once of unknown outcome, told twice": (False, [("c", 2, None), ("r", 2, 10), ("r", 2, 20), ("mark", 40)]),
    "acknowledged without a timestamp, told": (True, [("ok", 1), ("r", 1, 10), ("mark", 40)]),
    "acknowledged without a timestamp, untold": ("unknown", [("ok", 1), ("c", 2, 10), ("r", 2, 10), ("mark", 40)]),
    "one of two without a timestamp, untold": ("unknown", [("ok", 1), ("c", 1, 10), ("r", 1, 10), ("mark", 40)]),
    "after a mark, without a timestamp": ("unknown", [("c", 1, 10), ("mark", 20), ("r", 1, None)]),
}


@pytest.mark.parametrize("name", REPEATED)
def test_a_value_that_is_written_twice_hides_no_row(name, tmp_path):
    valid, steps = REPEATED[name]
    events = []
    for kind, *rest in steps:
        index = len(events)
        if kind == "mark":
            events.append(Op("info", -2, "feed-resolved", index=index, time=index, session=7, served_ts=rest[0]))
        elif kind == "r":
            mops = (Mop("w", 0, rest[0]),)
            events.append(Op("info", -2, "feed-row", mops, index=index, time=index, session=7, served_ts=rest[1]))
        else:
            call = Op("invoke", index, "write", (Mop("w", 0, rest[0]),), index=index, time=index)
            stamp = rest[1] if kind == "c" else None
            outcome = "info" if kind == "c" and stamp is None else "ok"
            done = call.complete(outcome, index=index + 1, time=index + 1, served_ts=stamp)
            events += [call, done]
    events += [Op("invoke", 99, "read", (Mop("r", 5),), index=len(events), time=len(events))]
    events += [events[-1].complete("ok", index=len(events), time=len(events))]
    path = tmp_path / "history.parquet"
    write_parquet(events, path)
    assert check(path, "change-feed", engine="local").valid == valid


def event(index, f, session, stamp, *mops):
    return Op("info", -2, f, mops, index=index, time=index, session=session, served_ts=stamp)


def client(index, *values, outcome="ok", stamp=None, f="w"):
    mops = tuple(Mop(f, 0, value) for value in values)
    call = Op("invoke", index, "write", mops, index=index, time=index)
    return [call, call.complete(outcome, index=index + 1, time=index + 1, served_ts=stamp)]


def rows_and_mark(index, session, *values):
    rows = [event(index + n, "feed-row", session, at, Mop("w", 0, value)) for n, (value, at) in enumerate(values)]
    return [*rows, event(index + len(values), "feed-resolved", session, 40)]


COMMITS = {
    "told by another feed": (
        "missing-row",
        [*client(0, 1, outcome="info"), *rows_and_mark(2, 7, (1, 10)), *rows_and_mark(4, 8)],
        "Feed 7 told that key 0 became 1 at 10, but feed 8 never told it, although its resolved mark 40 of "
        "0.000000004 s covers that time.",
    ),
    "told by both": (
        True,
        [
            *client(0, 1, outcome="info"),
            *rows_and_mark(2, 7, (1, 10)),
            *rows_and_mark(4, 8, (1, 10)),
            *client(6, 2, stamp=50),
        ],
        "",
    ),
    "what its operation left": (True, [*client(0, 1, 2, stamp=10), *rows_and_mark(2, 7, (2, 10))], ""),
    "what its operation left, untimed": (True, [*client(0, 1, 2, stamp=10), *rows_and_mark(2, 7, (2, None))], ""),
    "with a timestamp and without": (
        "duplicate-row",
        [*client(0, 1, stamp=10), *rows_and_mark(2, 7, (1, None), (1, 10))],
        "Feed 7 told at 0.000000003 s that key 0 became 1 at 10, which it had told already at 0.000000002 s.",
    ),
    "what its operation wrote over": (
        "unwritten-row",
        [*client(0, 1, 2, stamp=10), *rows_and_mark(2, 7, (1, 10))],
        "Feed 7 told at 0.000000002 s that key 0 became 1 at 10, but no write that can have taken effect by then "
        "wrote 1 there.",
    ),
    "told before its write began": (
        "unwritten-row",
        [*rows_and_mark(0, 7, (1, 10)), *client(2, 1, stamp=10)],
        "Feed 7 told at 0 s that key 0 became 1 at 10, but no write that can have taken effect by then wrote 1 there.",
    ),
    "told before the write of its time began": (
        "unwritten-row",
        [*client(0, 1, stamp=10), *rows_and_mark(2, 7, (1, 10), (1, 20)), *client(6, 1, stamp=20)],
        "Feed 7 told at 0.000000003 s that key 0 became 1 at 20, but no write that can have taken effect by then "
        "wrote 1 there.",
    ),
    "elements of one write": (
        True,
        [*client(0, 1, 2, stamp=10, f="append"), *rows_and_mark(2, 7, (1, 10), (2, 10))],
        "",
    ),
    "one of two elements": (
        "missing-row",
        [*client(0, 1, 2, f="append", outcome="info"), *rows_and_mark(2, 7, (1, 10))],
        "Process 0's write of 2 to key 0 was committed with an element that was told, but feed 7 never told it, "
        "although its resolved mark 40 of 0.000000003 s covers that time.",
    ),
    "elements of one write at two times": (
        "wrong-timestamp",
        [*client(0, 1, 2, f="append", outcome="info"), *rows_and_mark(2, 7, (1, 10), (2, 20))],
        "Feed 7 told at 0.000000003 s that key 0 became 2 at 20, but it was also told to have become 1 at 10: no "
        "writes did both.",
    ),
    "an element that two appended": (
        "unknown",
        [
            *client(0, 1, 2, stamp=10, f="append"),
            *client(2, 1, stamp=20, f="append"),
            *rows_and_mark(4, 7, (1, 10), (2, 10), (1, 20)),
        ],
        "2 rows of feeds can't be matched: without a timestamp, or of elements that were appended more than once.",
    ),
    "two of one time": (
        "unknown",
        [*client(0, 1, stamp=10), *client(2, 2, stamp=10), *rows_and_mark(4, 7, (1, 10))],
        "Of 2 acknowledged writes nobody knows whether a feed ought to tell them.",
    ),
}


@pytest.mark.parametrize("name", COMMITS)
def test_every_commit_is_fed_once_and_nothing_else(name, tmp_path):
    expected, events, words = COMMITS[name]
    write_parquet(events, tmp_path / "history.parquet")
    verdict = check(tmp_path / "history.parquet", "change-feed", engine="local")
    if expected in (True, "unknown"):
        assert (verdict.valid, verdict.reason or "") == (expected, words)
        return
    assert verdict.counts == {expected: 1}
    assert verdict.anomalies[expected][0].message == words


def many_feeds(feeds, writes=20):
    """A table for each feed, of whose writes it tells all but one, and then a mark."""
    kind = np.tile(np.repeat([WRITE, ROW, MARK], (writes, writes - 1, 1)), feeds)
    step = np.tile(np.concatenate((np.arange(writes), np.arange(writes - 1), [writes - 1])), feeds)
    feed = np.repeat(np.arange(feeds), 2 * writes)
    rows = {name: np.zeros(len(kind), np.int64) for name in PROJECTION.names}
    rows |= {"kind": kind, "invoke": np.arange(len(kind)), "session": feed, "table": feed, "value": step}
    rows |= {"served_ts": step + 1, "status": np.full(len(kind), OK), "requested_ts": np.full(len(kind), NIL)}
    return rows | {"size": np.ones(len(kind), np.int64)}


def cost_s(rows):
    began = time.process_time()
    found = FeedKernel(4)(rows)
    seconds = time.process_time() - began
    assert found.counts == {"missing-row": found.figures["feeds"]}
    return seconds


def test_eight_times_the_feeds_take_about_eight_times_as_long():
    """Many times as long, if each feed looks at all rows."""
    one, eight = many_feeds(1_000), many_feeds(8_000)
    cost_s(many_feeds(10))  # compiles
    ratio = statistics.median(cost_s(eight) / cost_s(one) for _ in range(5))
    assert ratio < 16, ratio


def drawn_rows(chance):
    """Events of some feeds that name tables or none, begin anywhere, repeat marks and leave out timestamps."""
    rows = {name: [] for name in PROJECTION.names}
    for place in range(chance.randint(1, 40)):
        kind = chance.choice((WRITE, WRITE, ROW, ROW, MARK))
        stamp = chance.choice((NIL, *range(1, 9)))
        row = dict.fromkeys(PROJECTION.names, 0) | {"kind": kind, "invoke": place, "served_ts": stamp}
        row |= {"table": chance.randint(0, 2), "row": chance.randint(0, 1), "value": chance.randint(1, 6)}
        row |= {"status": chance.choice((OK, OK, FAIL, INFO)) if kind == WRITE else INFO}
        row |= {"session": chance.randint(0, 3), "requested_ts": chance.choice((NIL, NIL, NIL, 2, 5))}
        row |= {"size": 1 if kind != MARK else chance.choice((0, 0, 1))}
        if kind == MARK and not row["size"]:
            row["table"] = 0
        for name, value in row.items():
            rows[name].append(value)
    return {name: np.array(column, np.int64) for name, column in rows.items()}


BY_MARKS = ("resolved-went-back", "row-below-resolved", "missing-row")


def tells(row, write, every):
    """Whether a row of a feed tells of a write to its cell."""
    names = ("table", "row", "value")
    alike = [w for w in every if w["kind"] == WRITE and w["status"] != FAIL and all(w[n] == write[n] for n in names)]
    by_value = row["value"] == write["value"] and (len(alike) == 1 or row["served_ts"] == NIL)
    return by_value or row["served_ts"] == write["served_ts"]


def due_naively(every):
    """Acknowledged writes with timestamps, and the first row of each commit whose time only feeds tell."""

    def cell(row):
        return row["table"], row["row"]

    writes = [row for row in every if row["kind"] == WRITE and row["status"] != FAIL]
    stamped = [row for row in writes if row["status"] == OK and row["served_ts"] != NIL]
    known = {(cell(row), row["served_ts"]) for row in stamped}
    untimed = [(cell(row), row["value"], row["invoke"]) for row in writes if row not in stamped]
    told = []
    for row in every:
        commit = cell(row), row["served_ts"]
        begun = any(write[:2] == (cell(row), row["value"]) and write[2] < row["invoke"] for write in untimed)
        if begun and row["kind"] == ROW and row["served_ts"] != NIL and commit not in known:
            known.add(commit)
            told.append(row)
    return stamped + told


def fed_naively(rows):
    """How often each kind of anomaly is there that has to do with marks, feed by feed and pair by pair."""
    every = [dict(zip(rows, values, strict=True)) for values in zip(*(c.tolist() for c in rows.values()), strict=True)]
    counts = dict.fromkeys(BY_MARKS, 0)
    for feed in {row["session"] for row in every if row["kind"] in (ROW, MARK)}:
        mine = [row for row in every if row["kind"] in (ROW, MARK) and row["session"] == feed]
        for place, row in enumerate(mine):
            marks = [m["served_ts"] for m in mine[:place] if m["kind"] == MARK and m["served_ts"] != NIL]
            if marks and row["served_ts"] != NIL:
                counts["resolved-went-back"] += row["kind"] == MARK and row["served_ts"] < max(marks)
                counts["row-below-resolved"] += row["kind"] == ROW and row["served_ts"] <= max(marks)
        tables = {row["table"] for row in mine if row["size"]}
        begin = max(row["requested_ts"] for row in mine)
        last = max((m["served_ts"] for m in mine if m["kind"] == MARK), default=NIL)
        told = [row for row in mine if row["kind"] == ROW]
        for write in due_naively(every):
            if not max(begin, NIL) < write["served_ts"] <= last:
                continue
            if not tables or write["table"] in tables:
                same = [row for row in told if (row["table"], row["row"]) == (write["table"], write["row"])]
                counts["missing-row"] += not any(tells(row, write, every) for row in same)
    return {name: count for name, count in counts.items() if count}


@pytest.mark.parametrize("seeds", ranges_of(250, 10_000))
def test_feeds_of_any_tables_and_beginnings_agree_with_looking_at_every_pair(seeds):
    several = 0
    for seed in seeds:
        rows = drawn_rows(random.Random(seed))
        counts = FeedKernel(4)(rows).counts
        expected = fed_naively(rows)
        assert {name: count for name, count in counts.items() if name in BY_MARKS} == expected, seed
        several += len(expected) > 1
    assert several > len(seeds) // 10
