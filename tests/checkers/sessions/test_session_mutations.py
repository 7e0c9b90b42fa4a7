"""Valid histories, and the same with one read corrupted or one write dropped, against the naive definitions."""

import random
from dataclasses import replace

import pytest
from session_histories import Row, intervals
from test_monotonic_reads import guilty_histories
from test_monotonic_reads import some_order_fits as some_order_of_versions
from test_write_atomicity import guilty_partitions
from test_write_atomicity import some_order_fits as some_order_of_writes

from tests.support.few_seeds import ranges_of


def linearizable(seed, cells, stamped):
    """Operations that take effect one by one, each at its end; reads show all cells they ask for at once."""
    random_ = random.Random(seed)
    rows, held, writes = [], {}, 0
    spans = intervals(random_, random_.randint(4, 8), 3, overlapping=seed % 2 == 1)
    for begin, end, session in sorted(spans, key=lambda span: span[1]):
        chosen = random_.sample(range(cells), random_.randint(1, cells))
        if random_.random() < 0.45 and writes < 4:
            writes += 1
            mops = tuple(("w", cell, 10 * writes + cell) for cell in chosen)
            held |= {cell: value for _, cell, value in mops}
            rows.append(Row(begin, end, session, mops, served_ts=10 * end if stamped else None))
        else:
            rows.append(Row(begin, end, session, tuple(("r", cell, held.get(cell)) for cell in chosen)))
    return sorted(rows, key=lambda row: row.begin)


def mutated(rows, seed):
    """One read shows another value of its cell, or one write never was."""
    random_ = random.Random(seed)
    place = random_.randrange(len(rows))
    row = rows[place]
    if row.mops[0][0] == "w":
        return rows[:place] + rows[place + 1 :]
    corrupted = random_.randrange(len(row.mops))
    f, cell, _ = row.mops[corrupted]
    values = [None] + [mop[2] for other in rows for mop in other.mops if mop[0] == "w" and mop[1] == cell]
    mops = (*row.mops[:corrupted], (f, cell, random_.choice(values)), *row.mops[corrupted + 1 :])
    return [*rows[:place], replace(row, mops=mops), *rows[place + 1 :]]


JUDGES = {
    "monotonic-reads": (1, guilty_histories, some_order_of_versions),
    "write-atomicity": (3, guilty_partitions, some_order_of_writes),
}


@pytest.mark.parametrize("seeds", ranges_of(200, 8_000))
@pytest.mark.parametrize("stamped", [False, True])
@pytest.mark.parametrize("model", JUDGES)
def test_mutations_are_judged_as_the_definition_says(model, stamped, seeds):
    cells, guilty_of, fits = JUDGES[model]
    valid = [linearizable(seed, cells, stamped) for seed in seeds]
    assert guilty_of(valid) == {}
    corrupted = [mutated(rows, seed) for seed, rows in zip(seeds, valid, strict=True)]
    expected = {number for number, rows in enumerate(corrupted) if not without_garbage(rows, fits)}
    assert set().union(*guilty_of(corrupted).values()) == expected
    assert len(expected) > len(seeds) // 30


def without_garbage(rows, fits):
    """Values whose write was dropped tell nothing of partition writes; monotonic reads take them as any others."""
    if fits is some_order_of_versions:
        return fits(rows)
    written = {mop[1:] for row in rows for mop in row.mops if mop[0] == "w"}
    kept = []
    for row in rows:
        mops = tuple(mop for mop in row.mops if mop[0] == "w" or mop[2] is None or mop[1:] in written)
        kept += [replace(row, mops=mops)] if mops else []
    return fits(kept)
