"""What the search for cycles costs where a history shows many anomalies: in proportion to it, and nothing is missed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from growth import Row, corrupted, shortened
from growth_histories import shown_older
from weak_store import random_history, source_of

from checkers.made.transactions import TxnShape, txn_batches
from checkers.source import Source
from checkers.transactions.graph import cycle_anomalies, projections
from checkers.transactions.inference.register_accesses import ORDER_WFR
from checkers.transactions.transaction_findings import Found
from tests.support.kernels_alone import find_in

LISTS = ("list-append", shortened)
REGISTERS = ("rw-register", shown_older)


def find(source: Source, model: str, orders: int) -> Found:
    return find_in(source, model, orders, ORDER_WFR, 4)


def with_anomalies(model: Any, transactions: int, change: Callable[[Row], bool]) -> Source:
    """One transaction in a hundred was shown an older state than there was."""
    batches = txn_batches(TxnShape(transactions, model, info_share=0.05))
    table = pa.Table.from_batches(corrupted(batches, 0.01, change))
    return Source(Path("made"), "test", table.num_rows, table=table)


def work_of(source: Source, model: str, orders: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """Edges that all searches together look at."""
    work, search = list[int](), cycle_anomalies.search

    def counting(*asked: Any) -> Any:
        walks = search(*asked)
        work.append(int(walks.used[1]))
        return walks

    with monkeypatch.context() as patched:
        patched.setattr(cycle_anomalies, "search", counting)
        assert find(source, model, orders).counts
    return sum(work)


def leave_nothing_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have each search look at all that is later."""
    ranks = projections.ranks

    def flat(projection: projections.GraphProjection, realtime: bool) -> projections.Ranks:
        return ranks(projection, realtime)._replace(depth=np.zeros(len(projection.node), np.int64))

    monkeypatch.setattr(cycle_anomalies, "ranks", flat)
    monkeypatch.setattr(projections, "_late_end", lambda late_at, _, group, __: late_at[group + 1])


@pytest.mark.parametrize("orders", [0, 2])
def test_the_search_costs_in_proportion_to_the_history(orders, monkeypatch):
    model, change = LISTS  # versions of registers are hardly known well enough for cycles through many
    small, large = (work_of(with_anomalies(model, n, change), model, orders, monkeypatch) for n in (4_000, 16_000))
    assert 0 < large < 8 * small


@pytest.mark.parametrize("orders", range(3))
def test_what_is_left_out_leads_nowhere(orders, monkeypatch):
    sources = [
        (source_of(random_history(seed, model == "list-append")), model)
        for seed in range(150)
        for model, _ in (LISTS, REGISTERS)
    ]
    sources += [(with_anomalies(model, 1_000, change), model) for model, change in (LISTS, REGISTERS)]
    found = [find(source, model, orders) for source, model in sources]
    leave_nothing_out(monkeypatch)
    assert [find(source, model, orders) for source, model in sources] == found
    assert sum("G-single-item" in each.counts for each in found) > 15
