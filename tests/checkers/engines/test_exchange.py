"""Rows as bytes between workers: nothing is lost or changed, and equal keys meet."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkers.columns.mops import Columns
from checkers.engines import spark as on_spark
from checkers.engines.exchange import buckets_of, split, united
from checkers.engines.spark import SparkEngine, gathered, placed

EXTREMES = st.sampled_from([-(2**63), -1, 0, 1, 255, 256, 2**16, 2**32, 2**62, 2**63 - 1])
NUMBERS = st.one_of(EXTREMES, st.integers(-(2**63), 2**63 - 1), st.integers(0, 3))
ROWS = st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS), max_size=60)


def columns(rows: list[tuple[int, int, int]]) -> Columns:
    names = ("kind", "key", "value")
    return {name: np.array([row[i] for row in rows], np.int64) for i, name in enumerate(names)}


def as_rows(columns: Columns) -> list[tuple[int, ...]]:
    return list(zip(*(columns[name].tolist() for name in ("kind", "key", "value")), strict=True))


@given(st.lists(ROWS, max_size=4), st.integers(1, 9))
def test_rows_arrive_whole_in_order_and_with_their_keys(pieces: list[list[tuple[int, int, int]]], buckets: int) -> None:
    parts: dict[int, list[bytes]] = {}
    for piece in pieces:
        for bucket, data in split(columns(piece), ("key",), buckets):
            parts.setdefault(bucket, []).append(data)
    arrived = {bucket: as_rows(united(mine, ("kind", "key", "value"))) for bucket, mine in parts.items()}
    sent = [row for piece in pieces for row in piece]
    assert sorted(row for rows in arrived.values() for row in rows) == sorted(sent)
    for key in {row[1] for row in sent}:
        homes = [rows for rows in arrived.values() if any(row[1] == key for row in rows)]
        assert len(homes) == 1
        assert [row for row in homes[0] if row[1] == key] == [row for row in sent if row[1] == key]


def test_a_constant_column_is_kept_once_and_takes_the_bucket_of_a_plain_one() -> None:
    plain = columns([(0, 7, 1), (0, 7, 2)])
    short = plain | {"key": np.broadcast_to(np.int64(7), 2)}
    assert buckets_of(plain, ("key",), 97).tolist() == buckets_of(short, ("key",), 97).tolist()
    ((_, data),) = split(short, ("key",), 1)
    assert united([data, data], ("key",))["key"].strides == (0,)


@pytest.mark.parametrize("buckets", [2, 40])
def test_buckets_of_many_keys_are_of_a_size(buckets: int) -> None:
    keys = np.arange(100_000)
    sizes = np.bincount(buckets_of({"kind": keys, "key": keys}, ("key",), buckets), minlength=buckets)
    assert sizes.min() > 0.8 * sizes.mean()


def test_every_key_tells_rows_apart() -> None:
    """However many there are: one queue's elements have the sixth."""
    names = [f"key{number}" for number in range(7)]
    for name in names:
        rows = {other: np.zeros(1_000, np.int64) for other in (*names, "kind")} | {name: np.arange(1_000)}
        assert len(np.unique(buckets_of(rows, names, 10))) == 10, name


@given(st.lists(st.integers(0, 9), max_size=30))
def test_small_batches_go_to_the_jvm_together_and_in_order(sizes: list[int]) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(on_spark, "_BATCH_BYTES", 100)
        numbers = iter(range(sum(sizes)))
        batches = [
            pa.record_batch([pa.array([next(numbers) for _ in range(size)], pa.int64())], ["n"]) for size in sizes
        ]
        sent = list(gathered(iter(batches)))
    assert [number for batch in sent for number in batch.column(0).to_pylist()] == list(range(sum(sizes)))
    assert all(batch.nbytes <= 100 for batch in sent)
    assert all(one.nbytes + other.nbytes > 100 for one, other in pairwise(sent))


def test_a_batch_that_is_large_by_itself_goes_alone() -> None:
    small, large = (pa.record_batch([pa.array([b"." * size])], ["data"]) for size in (10, 5 << 20))
    assert [batch.num_rows for batch in gathered(iter([small, small, large, small]))] == [2, 1, 1]


@pytest.mark.spark
def test_equal_buckets_meet_and_each_task_has_as_many_as_the_others(spark: SparkEngine) -> None:
    """Buckets below nought tell of something, and those of `split_keys` are beyond 32 bits."""
    buckets = [*range(8), -1, -2, -3, (1 << 41) + 5, -(1 << 41) - 7]
    rows = spark.numbers(3, 3).selectExpr(f"explode(array({', '.join(f'{n}L' for n in buckets)})) as bucket")
    told = placed(rows, 4).selectExpr("bucket", "spark_partition_id() as task").collect()
    assert sorted((row.bucket, row.task) for row in told) == sorted((n, n % 4) for n in buckets for _ in range(3))
