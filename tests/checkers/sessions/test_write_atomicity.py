"""Write atomicity: the axiom by trying every order of the writes, over thousands of small partitions."""

import random
from dataclasses import replace
from itertools import permutations, product

import pytest
from session_histories import Row, events_of, flattened, guilty, intervals, side_by_side

from checkers.api import check
from checkers.sessions.write_atomicity import CIRCULAR, PROJECTION, TORN, PageKernel
from harness.history.table import write_parquet

MANY = 1_000_000

MANY_HISTORIES = [200, pytest.param(20_000, marks=pytest.mark.campaign)]


def partition_verdict(histories):
    return PageKernel(MANY)(flattened(side_by_side(histories), PROJECTION))


def guilty_partitions(histories):
    return guilty(partition_verdict(histories))


def random_partition(seed, timed):
    """Partition writes and page reads; reads mostly show the newest, sometimes an older value of a row."""
    random_ = random.Random(seed)
    rows, held = [], {cell: [None] for cell in range(random_.randint(2, 3))}
    writes = 0
    for begin, end, session in intervals(random_, random_.randint(3, 7), random_.randint(1, 4)):
        cells = random_.sample(sorted(held), random_.randint(1, len(held)))
        if random_.random() < 0.5 and writes < 5:
            writes += 1
            status = random_.choices(("ok", "info"), (9, 0 if timed else 1))[0]
            stamp = 10 * begin + random_.choice((0, 0, 15, -15)) if timed else None
            mops = tuple(("w", cell, 10 * writes + cell) for cell in cells)
            rows.append(Row(begin, end if status == "ok" else None, session, mops, status, served_ts=stamp))
            for _, cell, value in mops:
                held[cell].append(value)
        else:
            mops = tuple(("r", cell, random_.choice(held[cell][-random_.choice((1, 1, 1, 2)) :])) for cell in cells)
            rows.append(Row(begin, end, session, mops))
    return rows


def some_order_fits(rows):
    writes = [row for row in rows if row.mops[0][0] == "w"]
    origin = {mop[1:]: row for row in writes for mop in row.mops}
    reads = [row for row in rows if row.mops[0][0] == "r"]
    seen = {id(origin[mop[1:]]) for row in reads for mop in row.mops if mop[1:] in origin}
    stamps = [row.served_ts for row in writes if row.status == "ok" or id(row) in seen]
    timed = bool(stamps) and None not in stamps

    def there(write):
        ends = [r.end for r in reads for mop in r.mops if mop[1:] in origin and origin[mop[1:]] is write]
        return min([*ends, write.end if write.end is not None else 10**9])

    def certain(one, other):
        return one.served_ts < other.served_ts if timed else there(one) < other.begin <= there(other)

    demands = set()
    for read in reads:
        for _, cell, value in read.mops:
            writer = origin.get((cell, value))
            for _, other_cell, other_value in read.mops:
                if writer is None or other_cell not in {mop[1] for mop in writer.mops}:
                    continue
                other = origin.get((other_cell, other_value))
                if other is None:
                    return False
                if other is not writer:
                    demands.add((writes.index(writer), writes.index(other)))
    demands |= {
        (i, j)
        for i, one in enumerate(writes)
        for j, other in enumerate(writes)
        if i != j and {id(one), id(other)} <= seen and certain(one, other)
    }
    return any(all(order.index(a) < order.index(b) for a, b in demands) for order in permutations(range(len(writes))))


@pytest.mark.parametrize("timed", [False, True])
@pytest.mark.parametrize("many", MANY_HISTORIES)
def test_agrees_with_trying_every_order_of_writes(timed, many):
    histories = [random_partition(seed, timed) for seed in range(many)]
    expected = {number for number, rows in enumerate(histories) if not some_order_fits(rows)}
    guilty = guilty_partitions(histories)
    assert set().union(*guilty.values()) == expected
    assert many // 20 < len(expected) < many - many // 20
    assert set(guilty) <= {TORN, CIRCULAR}
    assert timed or len(guilty[CIRCULAR]) > many // 1_200


def with_repeats(rows, seed):
    """The history, in which a write or two give their cells the values of the write before."""
    random_ = random.Random(seed)
    values = sorted({mop[2] // 10 for row in rows for mop in row.mops if mop[0] == "w"})
    repeated = set(random_.sample(values[1:], min(len(values) - 1, random_.randint(1, 2)))) if values else set()

    def renamed(value):
        return value - 10 if value is not None and value // 10 in repeated else value

    return [replace(row, mops=tuple((f, cell, renamed(value)) for f, cell, value in row.mops)) for row in rows]


def readings(rows):
    """The history with a value for each write, in every way in which reads may have picked one of several writes."""
    named, writers = [], {}
    for number, row in enumerate(rows):
        if row.mops[0][0] == "w":
            for mop in row.mops:
                writers.setdefault(mop[1:], []).append((row.begin, 1_000 * (number + 1) + mop[1]))
    for number, row in enumerate(rows):
        for f, cell, value in row.mops:
            each = writers.get((cell, value), [])
            begun = [name for begin, name in each if f == "w" or row.end is None or begin < row.end]
            mine = [1_000 * (number + 1) + cell] if f == "w" else begun or [name for _, name in each] or [value]
            named.append(mine)
    for picked in product(*named):
        left = iter(picked)
        yield [replace(row, mops=tuple((f, cell, next(left)) for f, cell, _ in row.mops)) for row in rows]


@pytest.mark.parametrize("timed", [False, True])
@pytest.mark.parametrize("many", MANY_HISTORIES)
def test_what_is_refuted_of_repeated_values_is_torn_however_reads_are_matched(timed, many):
    histories = [with_repeats(random_partition(seed, timed), seed) for seed in range(many)]
    expected = {number for number, rows in enumerate(histories) if not any(map(some_order_fits, readings(rows)))}
    guilty = set().union(*guilty_partitions(histories).values())
    assert guilty <= expected
    assert all(partition_verdict([histories[number]]).figures["reads_unclear"] for number in expected - guilty)
    assert len(guilty) > len(expected) // 3


PAGE = [Row(4, 5, 0, (("w", 0, 2), ("w", 1, 2))), Row(6, 7, 1, (("r", 0, 2), ("r", 1, 1)))]
REPEATED = {
    "all older": (False, [Row(0, 1, 0, (("w", 0, 1), ("w", 1, 1))), Row(2, 3, 0, (("w", 0, 1), ("w", 1, 1))), *PAGE]),
    "one may be newer": ("unknown", [Row(0, 9, 2, (("w", 1, 1),)), Row(2, 3, 0, (("w", 0, 1), ("w", 1, 1))), *PAGE]),
    "alone on its page": (
        True,
        [Row(0, 9, 2, (("w", 1, 1),)), Row(1, 8, 3, (("w", 1, 1),)), PAGE[0], Row(6, 7, 1, (("r", 1, 1),))],
    ),
    "nothing is written together": (
        True,
        [
            Row(0, 1, 0, (("w", 0, 1),)),
            Row(2, 3, 0, (("w", 0, 1),)),
            Row(4, 5, 0, (("w", 1, 1),)),
            Row(6, 7, 1, (("r", 0, 1), ("r", 1, 1))),
        ],
    ),
    "an element appended twice": (
        "append",
        [
            Row(0, 1, 0, (("append", 0, 1), ("append", 1, 1))),
            Row(2, 3, 0, (("append", 1, 1),)),
            Row(4, 5, 1, (("r", 0, (1,)), ("r", 1, None))),
        ],
    ),
    "lists that contradict each other": (
        False,
        [
            Row(0, 1, 0, (("append", 0, 1), ("append", 1, 1))),
            Row(2, 3, 0, (("append", 0, 2), ("append", 1, 2))),
            Row(4, 5, 0, (("append", 0, 3), ("append", 1, 3))),
            Row(6, 7, 1, (("r", 0, (1, 2, 3)), ("r", 1, (2, 1)))),
            Row(8, 9, 1, (("r", 0, (1, 2, 3)), ("r", 1, (1, 2, 3)))),
        ],
    ),
}


@pytest.mark.parametrize("name", REPEATED)
def test_what_can_not_be_matched_hides_no_tear(name, tmp_path):
    valid, rows = REPEATED[name]
    path = tmp_path / "history.parquet"
    write_parquet(events_of(rows), path)
    verdict = check(path, "write-atomicity", engine="local")
    word = {"unknown": "1 read of ", "append": "1 operation on appended lists "}.get(valid)
    assert verdict.valid == ("unknown" if word else valid), verdict
    assert word is None or verdict.reason.startswith(word)


def random_lists(seed):
    random_ = random.Random(seed)
    rows, held, writes = [], {cell: [] for cell in range(random_.randint(2, 3))}, 0
    wild = random_.choice((0, 0.4))
    for begin, end, session in intervals(random_, random_.randint(3, 8), random_.randint(1, 3)):
        cells = random_.sample(sorted(held), random_.randint(1, len(held)))
        if random_.random() < 0.5:
            writes += 1
            rows.append(Row(begin, end, session, tuple(("append", cell, 10 * writes + cell) for cell in cells)))
            for cell in cells:
                held[cell].append(10 * writes + cell)
        else:
            back = random_.choice((0, 0, 1))
            mops = []
            for cell in cells:
                shown = held[cell][: len(held[cell]) - (back if random_.random() < 0.7 else 0)]
                if random_.random() < wild:
                    random_.shuffle(shown)
                    shown = shown[random_.choice((0, 0, 1)) :]
                mops.append(("r", cell, tuple(shown) if shown or random_.random() < 0.5 else None))
            rows.append(Row(begin, end, session, tuple(mops)))
    return rows


def some_list_is_torn(rows):
    for read in rows:
        for _, cell, value in read.mops if read.mops[0][0] == "r" else ():
            for write in rows:
                wrote = dict(mop[1:] for mop in write.mops) if write.mops[0][0] == "append" else {}
                if cell in wrote and wrote[cell] in (value or ()):
                    others = [mop for mop in read.mops if mop[1] in wrote]
                    if any(wrote[other] not in (shown or ()) for _, other, shown in others):
                        return True
    return False


@pytest.mark.parametrize("many", MANY_HISTORIES)
def test_lists_agree_with_the_definition(many):
    histories = [random_lists(seed) for seed in range(many)]
    expected = {number for number, rows in enumerate(histories) if some_list_is_torn(rows)}
    assert guilty_partitions(histories) == {TORN: expected}
    assert many // 20 < len(expected) < many - many // 20


def test_more_demands_than_there_is_room_for_at_first_are_all_heard():
    """Two writes at the same time are seen in one order, and in some partitions in the other too."""
    writes = [Row(0, 9, 0, (("w", 0, 1), ("w", 1, 1))), Row(1, 8, 1, (("w", 1, 2), ("w", 2, 2)))]
    seen = Row(2, 3, 2, (("r", 0, 1), ("r", 1, 2)))
    otherwise = Row(4, 5, 3, (("r", 1, 1), ("r", 2, 2)))
    circular = {0, *range(1_010, 1_030), 1_099}
    histories = [[*writes, seen, *([otherwise] if number in circular else [])] for number in range(1_100)]
    assert guilty_partitions(histories) == {CIRCULAR: circular}


def test_a_deletion_says_nothing_of_when_its_write_was():
    """Nil is what was there before everything too, so a write of nil is no older for it."""
    correct = [
        Row(0, 1, 0, (("w", 0, 1), ("w", 1, 2))),
        Row(2, 3, 0, (("w", 1, 3), ("w", 2, None))),
        Row(4, 5, 1, (("r", 0, 1), ("r", 1, 3))),
    ]
    torn_before = [*correct[:2], Row(4, 5, 1, (("r", 1, 2), ("r", 2, None), ("r", 0, 1)))]
    torn = [
        Row(0, 1, 0, (("w", 0, 1), ("w", 1, 2), ("w", 2, 9))),
        Row(2, 3, 0, (("w", 1, 3), ("w", 2, None))),
        Row(4, 5, 1, (("r", 1, 3), ("r", 2, 9))),
    ]
    stamped = [
        [Row(*(row.begin, row.end, row.session, row.mops), served_ts=row.begin if row.mops[0][0] == "w" else None)]
        for row in torn
    ]
    histories = [correct, torn_before, torn, [row for (row,) in stamped]]
    assert guilty_partitions(histories) == {TORN: {2, 3}}
