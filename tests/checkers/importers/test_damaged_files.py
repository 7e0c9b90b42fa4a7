"""A saved history of which any bit was flipped is refused with one sentence, before anything is made of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pyarrow.parquet as pq
import pytest

from checkers.api import check
from checkers.importers.detect import open_source
from checkers.made.isolation import TransactionShape, write_transaction_history
from checkers.made.pages import PageShape, write_page_history
from checkers.made.registers import RegisterShape, write_register_history
from checkers.made.transactions import TxnShape, write_txn_history
from harness.errors import UserError
from harness.history.ops import Op, read, write
from harness.history.parts import parquet_writer, schema
from harness.history.seal import check_seal
from harness.history.table import to_table, write_parquet

EVENTS = [
    event
    for i in range(400)
    for begun in [Op("invoke", i % 5, "write" if i % 2 else "read", (write(i % 3, i) if i % 2 else read(i % 3),))]
    for event in (
        begun.complete("invoke", index=2 * i, time=20 * i),
        begun.complete("fail", index=2 * i + 1, time=20 * i + 9, node=f"n{i % 4}"),
    )
]


def saved(folder: Path) -> Path:
    path = folder / "history.parquet"
    assert write_parquet(EVENTS, path, rows_per_group=150) == 400
    return path


def flipped(path: Path, place: int, bit: int) -> Path:
    data = bytearray(path.read_bytes())
    data[place] ^= 1 << bit
    damaged = path.with_name("damaged.parquet")
    damaged.write_bytes(data)
    return damaged


def test_a_sealed_file_is_plain_parquet(tmp_path: Path) -> None:
    path = saved(tmp_path)
    assert check_seal(path) and pq.read_table(path).num_rows == 400
    verdict = check(path, "register")
    assert verdict.valid == "unknown" and verdict.ops == 200, (
        "it was read whole; that nothing succeeded is another matter"
    )


@pytest.mark.parametrize(
    ("write", "shape"),
    [
        (write_register_history, RegisterShape(300)),
        (write_txn_history, TxnShape(300)),
        (write_page_history, PageShape(300)),
        (write_transaction_history, TransactionShape(300)),
    ],
)
def test_made_histories_are_sealed_too(tmp_path: Path, write: Callable[[Any, Path], None], shape: Any) -> None:
    path = tmp_path / "history.parquet"
    write(shape, path)
    assert check_seal(path) and open_source(path).rows == pq.read_metadata(path).num_rows > 0
    with pytest.raises(UserError, match=r"is damaged: its checksum does not match\.$"):
        open_source(flipped(path, path.stat().st_size // 2, 0))


@pytest.mark.parametrize("seed", range(4))
def test_no_flipped_bit_goes_unnoticed(tmp_path: Path, seed: int) -> None:
    path, random = saved(tmp_path), Random(seed)
    size = path.stat().st_size
    places = {*random.sample(range(size), 150), *range(seed, 16, 4), *range(size - 16 + seed, size, 4)}
    for place in sorted(places):
        with pytest.raises(UserError) as refused:
            check(flipped(path, place, random.randrange(8)), "register", engine="local")
        assert "\n" not in str(refused.value), place


@pytest.mark.spark
@pytest.mark.usefixtures("spark_runs")
def test_nor_on_spark(tmp_path: Path) -> None:
    path = saved(tmp_path)
    for place in (100, path.stat().st_size // 2, path.stat().st_size - 200):
        with pytest.raises(UserError, match=r"is damaged: its checksum does not match\.$"):
            check(flipped(path, place, 3), "register", engine="spark")


def test_a_file_cut_short_is_refused(tmp_path: Path) -> None:
    path = saved(tmp_path)
    whole = path.read_bytes()
    for size in (0, 3, 4, 11, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(UserError):
            check(path, "register")


def test_pages_have_checksums_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "unsealed.parquet"
    with parquet_writer(path, schema()) as writer:
        writer.write_table(to_table(EVENTS))
    with pq.ParquetFile(path) as file:
        column = file.metadata.row_group(0).column(1)
        end = column.data_page_offset + 5
        assert file.read().num_rows == 400
    place = max(end, column.data_page_offset + column.total_compressed_size // 2)
    with pytest.raises(UserError, match="is damaged: it can't be read to its end"):
        check(flipped(path, place, 0), "register")
