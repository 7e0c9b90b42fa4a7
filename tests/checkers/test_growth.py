"""Nothing grows on the driver: from n to 10 n operations it gets, holds and sends at most twice as much.

In ordinary tests pieces and buckets are small, so that ten times the operations are ten times the tasks; the campaign
takes the sizes of real work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from growth import Growth, lower_by_one, measured, save, shortened, spoiled, unwritten

from checkers.engines import grouped, keyed, shuffle, spark
from checkers.engines.spark import SparkEngine
from checkers.options import CheckOptions
from checkers.sessions.synthetic import PageShape, page_batches
from checkers.synthetic import RegisterShape, register_batches
from checkers.transactions.synthetic import TxnShape, txn_batches

KINDS: dict[str, tuple[Callable[[int], Iterator[Any]], Callable[[dict[str, Any]], bool]]] = {
    "register": (lambda n: register_batches(RegisterShape(n, keys=max(20, n // 1_000), info_share=0.05)), unwritten),
    "list-append": (lambda n: txn_batches(TxnShape(n, info_share=0.05)), shortened),
    "monotonic-reads": (lambda n: page_batches(PageShape(n, info_share=0.05)), lower_by_one),
    "stats": (lambda n: register_batches(RegisterShape(n, keys=20, info_share=0.05)), unwritten),
}
"""By model: a valid history of so many operations, and how an operation is spoiled."""

CAMPAIGN = [(model, share) for model in KINDS for share in (0.0, 0.001, 0.01)]

_MOST = 2.0
_ALWAYS = 20_000
"""Bytes that are there whatever is judged: growth below is noise."""


def grown(model: str, share: float, n: int, folder: Path, engine: SparkEngine, part_rows: int) -> dict[str, Any]:
    """What was measured at n and 10 n."""
    make, change = KINDS[model]
    found: list[Growth] = []
    for size in (n, 10 * n):
        place = save(spoiled(make(size), share, change), folder / f"{model}-{size}.parquet", part_rows)
        verdict, growth = measured(place, model, engine, CheckOptions())
        assert verdict.valid is (share == 0 or model == "stats"), verdict.reason
        assert verdict.ops >= size * 0.4
        found.append(growth)
    return {name: (getattr(found[0], name), getattr(found[1], name)) for name in ("told", "peak", "closure")}


def require_flat(found: dict[str, Any]) -> None:
    """Fail if anything grew more than it may."""
    wrong = {name: pair for name, pair in found.items() if pair[1] > _MOST * pair[0] + _ALWAYS}
    assert not wrong, f"grew more than {_MOST} times from n to 10 n: {wrong}"


@pytest.mark.spark
@pytest.mark.parametrize(("model", "share"), [("register", 0.01), ("monotonic-reads", 0.01), ("stats", 0.0)])
def test_nothing_grows_on_the_driver(
    model: str, share: float, tmp_path: Path, spark: SparkEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_tasks(monkeypatch)
    require_flat(grown(model, share, 6_000, tmp_path, spark, part_rows=2_000))


def small_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in (
        (shuffle, "_ROWS_PER_PIECE"),
        (keyed, "_ROWS_PER_BUCKET"),
        (grouped, "_ROWS_PER_BUCKET"),
        (spark, "_ROWS_VERIFIED"),
    ):
        monkeypatch.setattr(module, name, 3_000)
    monkeypatch.setattr(spark, "_FEW_ROWS", 1_000)
    monkeypatch.setattr(shuffle, "CELL_ROWS", 1)


@pytest.mark.spark
@pytest.mark.campaign
@pytest.mark.parametrize(("model", "share"), CAMPAIGN)
def test_nothing_grows_on_the_driver_at_size(model: str, share: float, tmp_path: Path, spark: SparkEngine) -> None:
    require_flat(grown(model, share, 1_000_000, tmp_path, spark, part_rows=500_000))
