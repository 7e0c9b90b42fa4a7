"""Session guarantees: naive definitions over thousands of small histories, words, odd inputs, both engines."""

import random
from dataclasses import replace
from itertools import permutations, product

import pytest
from session_histories import Row, events_of, flattened, guilty, intervals, side_by_side

from checkers.api import check
from checkers.sessions.judge_sessions import PROJECTION
from checkers.sessions.session_guarantees import ANOMALIES, CONTRADICTORY, SessionKernel
from checkers.sessions.session_lists import READS_UNCLEAR
from checkers.sessions.session_order import GUARANTEES
from harness.history.table import write_parquet

MANY = 1_000_000

MANY_HISTORIES = [800, pytest.param(20_000, marks=pytest.mark.campaign)]


def judged(histories, wanted=("monotonic-reads",)):
    return SessionKernel(wanted, MANY)(flattened(side_by_side(histories), PROJECTION))


def guilty_histories(histories, wanted=("monotonic-reads",)):
    """Which of the histories break which guarantee, by the kernel: {anomaly: set of history numbers}."""
    return guilty(judged(histories, wanted))


def random_registers(seed, timed=False, overlapping=False):
    """Reads and unique writes of one cell; reads see nearly anything, so that most orders of versions occur."""
    random_ = random.Random(seed)
    rows, values = [], [None]
    modes = random_.choice(((None, "QUORUM", "ONE"), ("ONE",))) if overlapping else (None, "QUORUM", "ONE")
    for begin, end, session in intervals(random_, random_.randint(3, 7), random_.randint(1, 3), overlapping):
        mode = random_.choice(modes)
        if random_.random() < 0.4 and len(values) < 5:
            values.append(len(values))
            status = random_.choices(("ok", "info"), (9, 0 if timed else 1))[0]
            stamp = 10 * begin + random_.choice((0, 0, 0, 25, -25)) if timed else None
            rows.append(
                Row(begin, end if status == "ok" else None, session, (("w", 0, values[-1]),), status, mode, stamp)
            )
        else:
            known = values[-random_.randint(1, 3) :] if random_.random() < 0.95 else [77]
            rows.append(Row(begin, end, session, (("r", 0, random_.choice(known)),), "ok", mode))
    if random_.random() < 0.2 and len(rows) > 2:
        rows[0] = Row(rows[0].begin, rows[0].end, rows[0].session, (("w", 0, 1),), served_ts=5 if timed else None)
    return rows


def writes_of(rows):
    return {row.mops[0][2]: row for row in rows if row.mops[0][0] == "w"}


def unclear_reads(rows):
    written = [row.mops[0][2] for row in rows if row.mops[0][0] == "w"]
    return [row for row in rows if row.mops[0][0] == "r" and written.count(row.mops[0][2]) > 1]


def readings(rows):
    """The history with a value for each write, in every way in which reads may have picked one of several writes."""
    names, writers = {}, {}
    for number, row in enumerate(rows):
        if row.mops[0][0] == "w":
            mine = writers.setdefault(row.mops[0][2], [])
            names[number] = row.mops[0][2] if not mine else 100 + number
            mine.append((row.begin, names[number]))
    picks = {}
    for number, row in enumerate(rows):
        value = row.mops[0][2]
        if row.mops[0][0] == "r":
            begun = [name for begin, name in writers.get(value, ()) if begin < row.end]
            picks[number] = begun or [name for _, name in writers.get(value, ())] or [value]
    for picked in product(*picks.values()):
        told = names | dict(zip(picks, picked, strict=True))
        yield [replace(row, mops=((row.mops[0][0], 0, told[number]),)) for number, row in enumerate(rows)]


def older(rows):
    """The certain order of versions, from its definition: a predicate."""
    writes = writes_of(rows)
    acknowledged_or_read = {row.mops[0][2] for row in rows if row.mops[0][0] == "r" or row.status == "ok"} - {None}
    stamps = {value: writes[value].served_ts if value in writes else None for value in acknowledged_or_read}
    if stamps and None not in stamps.values():
        return lambda a, b: a != b and (a is None or (b is not None and stamps.get(a, 0) < stamps.get(b, 0)))

    def there(value):
        ends = [row.end for row in rows if row.end is not None and row.mops[0][2] == value]
        return min(ends, default=10**9)

    # Where some timestamps contradict real time neither tells an order.
    stamped = [row for row in rows if row.served_ts is not None]
    told = not any(a.end < b.begin and a.served_ts > b.served_ts for a in stamped for b in stamped)

    def before(a, b):
        if a is None or b is None:
            return a is None and b is not None
        return told and a != b and b in writes and there(a) < writes[b].begin <= there(b)

    return before


def constraints(rows):
    """Pairs of values read one after the other, by one session or by strong reads in real time."""
    reads = [row for row in rows if row.mops[0][0] == "r"]
    for one in reads:
        for other in reads:
            strong = one.mode != "ONE" and other.mode != "ONE"
            if one.end < other.begin and (strong or one.session == other.session):
                yield one.mops[0][2], other.mops[0][2]


def some_order_fits(rows):
    before, pairs = older(rows), set(constraints(rows))
    values = {value for pair in pairs for value in pair}
    if len(values) < 2:
        return True
    for order in permutations(values):
        place = {value: i for i, value in enumerate(order)}
        fits = all(place[a] <= place[b] for a, b in pairs)
        if fits and not any(before(b, a) for i, a in enumerate(order) for b in order[i:]):
            return True
    return False


@pytest.mark.parametrize("overlapping", [False, True])
@pytest.mark.parametrize("timed", [False, True])
@pytest.mark.parametrize("many", MANY_HISTORIES)
def test_monotonic_reads_agree_with_trying_every_order_of_versions(timed, overlapping, many):
    histories = [random_registers(seed, timed, overlapping) for seed in range(many)]
    expected = {n for n, rows in enumerate(histories) if not any(map(some_order_fits, readings(rows)))}
    guilty = guilty_histories(histories)
    assert_agree(set().union(*guilty.values()), expected, histories)
    assert many // 20 < len(expected) < many - many // 20
    assert set(guilty) <= {ANOMALIES[0], CONTRADICTORY}
    assert timed or len(guilty[CONTRADICTORY]) > many // 1000


def assert_agree(guilty, expected, histories):
    """What is refuted is broken however reads are matched; what is broken is refuted, or has reads that can't be."""
    assert guilty <= expected
    assert not [number for number in expected - guilty if not unclear_reads(histories[number])]
    repeated = [number for number in expected & guilty if unclear_reads(histories[number])]
    assert len(repeated) >= len(expected & guilty) // 100
    assert judged(histories).figures[READS_UNCLEAR] == sum(len(unclear_reads(rows)) for rows in histories)


@pytest.mark.parametrize("overlapping", [False, True])
@pytest.mark.parametrize("timed", [False, True])
@pytest.mark.parametrize("many", MANY_HISTORIES)
def test_other_guarantees_agree_with_their_definitions(timed, overlapping, many):
    histories = [random_registers(seed, timed, overlapping) for seed in range(many)]
    kinds = {"read-your-writes": "wr", "monotonic-writes": "ww", "writes-follow-reads": "rw"}
    for name, kind in kinds.items():
        expected = {n for n, rows in enumerate(histories) if all(breaks(told, *kind) for told in readings(rows))}
        guilty = guilty_histories(histories, (name,))
        # Those are of several reads together (`test_any_order`).
        assert not guilty.pop(CONTRADICTORY, set()) & expected
        assert_agree(guilty.pop(ANOMALIES[GUARANTEES.index(name)], set()), expected, histories)
        assert not guilty
        assert expected or not timed


def breaks(rows, first, second):
    before = older(rows)
    return any(
        one.mops[0][0] == first
        and other.mops[0][0] == second
        and one.session == other.session
        and one.end is not None
        and one.status == "ok"
        and one.end < other.begin
        and before(other.mops[0][2], one.mops[0][2])
        for one in rows
        for other in rows
    )


def w(begin, end, value, session=0, **more):
    return Row(begin, end, session, (("w", 0, value),), **more)


def r(begin, end, value, session=1, **more):
    return Row(begin, end, session, (("r", 0, value),), **more)


TWICE = [Row(begin, begin + 1, 0, (("append", 0, 1),)) for begin in (0, 2)]
REPEATED = {
    "all of them overwritten": ("monotonic-reads", False, [w(0, 1, 1), w(2, 3, 1), w(4, 5, 2), r(6, 7, 2), r(8, 9, 1)]),
    "one may be the newest": (
        "monotonic-reads",
        "unknown",
        [w(0, 1, 1), w(2, 5, 1), w(4, 6, 2), r(7, 8, 2), r(9, 10, 1)],
    ),
    "deleted since": ("monotonic-reads", False, [w(0, 1, None), w(2, 3, 1), r(4, 5, 1), r(6, 7, None)]),
    "maybe deleted again": ("monotonic-reads", "unknown", [w(0, 1, 1), w(2, 9, None, 2), r(4, 5, 1), r(6, 7, None)]),
    "nobody reads them": ("sessions", True, [w(0, 1, 1), w(2, 3, 1), w(4, 5, 2), r(6, 7, 2)]),
    "own append": ("read-your-writes", "append", [*TWICE, Row(4, 5, 0, (("r", 0, (1,)),))]),
    "reads of a list": ("monotonic-reads", True, [*TWICE, Row(4, 5, 0, (("r", 0, (1,)),))]),
    "own write": ("read-your-writes", False, [w(0, 1, 2, 5), w(2, 3, 1, 5), w(4, 5, 1), r(6, 7, 2, 0)]),
    "order of writes": ("monotonic-writes", True, [w(0, 1, 1), w(2, 3, 1), w(4, 5, 2), r(6, 7, 1)]),
}


@pytest.mark.parametrize("name", REPEATED)
def test_a_value_that_is_written_twice_hides_nothing(name, tmp_path):
    model, valid, rows = REPEATED[name]
    path = tmp_path / "history.parquet"
    write_parquet(events_of(rows), path)
    verdict = check(path, model, engine="local")
    word = {
        "unknown": "1 read of values that several operations wrote",
        "append": "2 operations on appended lists",
    }.get(valid)
    assert verdict.valid == ("unknown" if word else valid), verdict
    assert word is None or verdict.reason.startswith(word)


def random_lists(seed, overlapping=False):
    random_ = random.Random(seed)
    rows, items = [], []
    for begin, end, session in intervals(random_, random_.randint(3, 8), random_.randint(1, 3), overlapping):
        mode = random_.choice((None, "ONE"))
        if random_.random() < 0.4:
            items.append(len(items) + 1)
            rows.append(Row(begin, end, session, (("append", 0, items[-1]),), mode=mode))
        else:
            shown = list(items[: len(items) - random_.choice((0, 0, 0, 0, 1, 2, len(items)))])
            if random_.random() < 0.1 and len(shown) > 1:
                shown.pop(random_.randrange(len(shown)))
            value = tuple(shown) if shown or random_.random() < 0.5 else None
            rows.append(Row(begin, end, session, (("r", 0, value),), mode=mode))
    return rows


def list_reads(rows):
    return [(row, set(row.mops[0][2] or ())) for row in rows if row.mops[0][0] == "r"]


def omitting(rows):
    """The beginnings of reads that lack what an earlier one had."""
    return {
        other.begin
        for one, seen in list_reads(rows)
        for other, shown in list_reads(rows)
        if one.end < other.begin
        and (one.session == other.session or (one.mode != "ONE" and other.mode != "ONE"))
        and seen - shown
    }


@pytest.mark.parametrize("overlapping", [False, True])
@pytest.mark.parametrize("many", MANY_HISTORIES)
def test_lists_omit_nothing_that_was_seen(overlapping, many):
    histories = [random_lists(seed, overlapping) for seed in range(many)]
    reads = [omitting(rows) for rows in histories]
    expected = {number for number, begins in enumerate(reads) if begins}
    found = judged(histories)
    assert {finding.key[1] for finding in found.kept} == expected
    assert found.counts == {ANOMALIES[0]: sum(map(len, reads))} and len(found.kept) == sum(map(len, reads))
    assert many // 20 < len(expected) < many - many // 20


@pytest.mark.parametrize("nothing", [(), None])
def test_an_empty_list_omits_what_one_beside_the_longest_had(nothing):
    rows = [Row(0, 1, 1, (("r", 0, (1, 2, 3)),), mode="ONE")]
    rows += [Row(2 + 2 * i, 3 + 2 * i, 0, (("r", 0, value),), mode="ONE") for i, value in enumerate([(1, 3), nothing])]
    assert guilty_histories([rows]) == {ANOMALIES[0]: {0}}


def test_no_number_of_harmless_cells_hides_a_violating_one():
    """Lists that contradict each other side by side omit nothing; the last history's do, one after the other."""
    harmless = [Row(0, 3, 0, (("r", 0, (1, 2, 4)),)), Row(1, 2, 1, (("r", 0, (1, 3)),))]
    violating = [Row(0, 1, 0, (("r", 0, (1, 2, 3)),)), Row(2, 3, 1, (("r", 0, (1, 3)),))]
    for many in (0, 4095, 4096, 5000):
        assert guilty_histories([harmless] * many + [violating]) == {ANOMALIES[0]: {many}}
