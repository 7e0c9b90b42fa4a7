"""Orders of versions that nobody observed: what it takes to find one, or to say why there is none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from time import perf_counter
from typing import Final, NamedTuple

import numpy as np

from bench.measure import Row, peak_memory, power, spent
from checkers.columns.codes import Ints
from checkers.transactions.polygraph.conditions import CONDITIONS
from checkers.transactions.polygraph.decide import DecisionBudget, Holds, Refuted, decide
from checkers.transactions.polygraph.history_polygraph import (
    INITIAL,
    Accessed,
    Polygraph,
    TxnTimes,
    make_polygraph,
    unique_rows,
)


class DrawnLoad(NamedTuple):
    """A load of transactions on registers; `blind` is the share of writes whose transaction did not read the key,
    `reads` that of reads among the operations."""

    operations: int
    keys: int
    zipf: bool
    blind: float
    reads: float = 0.5


LOADS: Final = {
    "10 % blind": DrawnLoad(15, 1_000, True, 0.1),
    "all blind": DrawnLoad(15, 1_000, True, 1.0),
    "BlindW-RW": DrawnLoad(8, 10_000, False, 1.0),
    "GeneralWH": DrawnLoad(8, 10_000, False, 1.0, reads=0.3),
}
_SIZES: Final = (*((name, 10_000) for name in LOADS), ("10 % blind", 100_000))
"""Loads, and of how many transactions."""

_SESSIONS: Final = 20


def version_orders(count: int | None = None) -> Iterator[Row]:
    """Histories of 20 sessions whose clocks say nothing: valid ones, and with one stale read; or all of `count`
    transactions."""
    for broken in (False, True):
        for name, size in _SIZES if count is None else ((name, count) for name in LOADS):
            load = LOADS[name]
            polygraph = drawn(load, size, broken)
            for level in ("strong-session-serializable", "strong-session-snapshot-isolation"):
                condition, form = CONDITIONS[level]
                decide(drawn(load, 100, broken), condition, form, DecisionBudget())  # compiles what is not
                with peak_memory() as peak, spent() as took:
                    found = decide(polygraph, condition, form, DecisionBudget(perf_counter() + 600, 4 << 30))
                said = "valid" if isinstance(found, Holds) else "invalid" if isinstance(found, Refuted) else "unknown"
                figures = {"CPU_s": round(took.cpu_s, 2), "peak_GiB": peak.gib, "said": said}
                yield {"history": f"{name}, {power(size)}", "stale": str(broken), "level": level, **figures}


def drawn(load: DrawnLoad, count: int, broken: bool) -> Polygraph:
    """Transactions that take place one after the other, told session by session; `broken`: one read is of an early
    version."""
    dice = np.random.default_rng(1)
    weight = 1 / np.arange(1, load.keys + 1) if load.zipf else np.ones(load.keys)
    session = dice.integers(0, _SESSIONS, count)
    number = np.empty(count, np.int64)
    number[np.argsort(session, kind="stable")] = np.arange(count)
    writes, reads = list[tuple[int, int]](), list[tuple[int, int, int]]()
    last = dict[int, int]()
    for txn, own in enumerate(number.tolist()):
        keys = dice.choice(load.keys, load.operations, p=weight / weight.sum()).tolist()
        reading = dice.random(load.operations) < load.reads
        seeing = reading | (dice.random(load.operations) >= load.blind)
        written = {key for key, read in zip(keys, reading, strict=True) if not read}
        stale = broken and txn == count // 2
        for key in {key for key, sees in zip(keys, seeing, strict=True) if sees}:
            reads.append((key, own, INITIAL if stale else last.get(key, INITIAL)))
        writes += [(key, own) for key in written]
        last.update(dict.fromkeys(written, own))
    nothing, event = np.empty((3, 0), np.int64), 2 * np.arange(count)
    times = TxnTimes(np.zeros(count, np.uint8), np.sort(session), event, event + 1)
    accessed = Accessed(load.keys, _rows(writes), _rows(reads), nothing, nothing)
    return make_polygraph(times, accessed)


def _rows(told: Sequence[tuple[int, ...]]) -> Ints:
    return unique_rows(np.array(told, np.int64).T)
