"""Memory is planned by micro-operations and elements of lists: broad operations make no verdict unknown."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from frames_in_memory import engine_in_memory

from checkers.api import judge_source
from checkers.columns.batches import bucket_batch
from checkers.engines import shuffle
from checkers.engines.local import LocalEngine
from checkers.engines.spark import SparkEngine
from checkers.importers.detect import open_source
from checkers.made.pages import PageShape, write_page_history
from checkers.made.transactions import TxnShape, write_txn_history
from checkers.options import CheckOptions
from checkers.source import Source
from checkers.transactions.stages import time_segments, transactions_on_spark
from checkers.transactions.stages.pieces import Row, pack, unpack
from checkers.transactions.stages.time_segments import SIZES, Union, lay_segments, sizes_for
from checkers.transactions.stages.windows import EXTENTS
from harness.history import breadth
from harness.history.breadth import Breadth, breadth_of_rows
from harness.history.parts import schema, write_history
from harness.history.saved import decode_manifest, encode_manifest, open_saved

MEMORY = 3 << 20
"""Bytes of a task, of which the broad histories here take several times as much."""


def in_small_tasks(place: Path, model: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(SparkEngine, "task_bytes", lambda self: MEMORY)
    return judge_source(open_source(place), model, engine_in_memory(monkeypatch), CheckOptions())


def both(place: Path, model: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    return in_small_tasks(place, model, monkeypatch), judge_source(open_source(place), model, LocalEngine())


@pytest.mark.parametrize("model", ["list-append", "rw-register"])
@pytest.mark.parametrize(("anomaly", "valid"), [(None, True), ("G1c", False)])
def test_transactions_of_many_micro_operations_are_judged(
    model: Any, anomaly: str | None, valid: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Buckets went by transactions: 50 micro-operations in each, and the verdict was unknown without a hot key."""
    place = tmp_path / "h.parquet"
    write_txn_history(TxnShape(4_000, model, workers=4, mops=50, writes_per_key=32, anomaly=anomaly), place)
    ours, theirs = both(place, model, monkeypatch)
    assert theirs.valid is valid and ours.valid == ("unknown" if valid else False), ours.reason
    assert not valid or "one task reads the whole history" in str(ours.reason), "for orders that nobody observed"
    assert (ours.counts, ours.details["dependencies"]) == (theirs.counts, theirs.details["dependencies"])


@pytest.mark.parametrize("model", ["monotonic-reads", "read-your-writes", "write-atomicity"])
@pytest.mark.parametrize(("anomaly", "valid"), [("none", True), ("torn-read", False)])
def test_pages_of_a_hundred_rows_are_judged(
    model: str, anomaly: Any, valid: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "h.parquet"
    write_page_history(PageShape(4_000, partitions=200, rows=100, anomaly=anomaly), place)
    ours, theirs = both(place, model, monkeypatch)
    assert ours.valid is theirs.valid, ours.reason
    assert ours.counts == theirs.counts
    assert valid or model != "write-atomicity" or ours.valid is False


def test_a_task_holds_one_bucket_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """It held all that a partition has."""
    held, most = list[int](), list[int]()

    class Plan:
        def judge(self, parts: list[bytes]) -> int:
            most.append(sum(held))
            held.clear()
            return len(parts)

        def combine(self, found: list[int]) -> int:
            return sum(found)

    def messages() -> Iterator[pa.RecordBatch]:
        for bucket in range(20):
            for piece in range(3):
                held.append(100)
                yield shuffle.message(bucket, piece, b"." * 100)

    found = list(shuffle._Judge(Plan(), 10_000)(messages()))  # type: ignore[arg-type]
    assert len(found) == 1 and len(most) == 20 and max(most) <= 400, "one bucket, and the row that ended it"


def test_what_is_read_at_once_gets_fewer_operations_where_they_are_broad(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(breadth, "_MOST_MOPS", 2_000)
    place = tmp_path / "h.parquet"
    write_txn_history(TxnShape(4_000, "rw-register", mops=50), place)
    reader = open_saved(place)
    assert reader.manifest.groups > 20, "row groups are written so"
    sizes = [batch.num_rows for batch in reader.batches(["invoke_index", "mops"])]
    assert max(sizes) < 200 and sum(sizes) == 4_000
    wide = tmp_path / "one-group.parquet"
    pq.write_table(pq.read_table(place).replace_schema_metadata(schema().metadata), wide)
    assert max(batch.num_rows for batch in open_saved(wide).batches(["invoke_index", "mops"])) < 200
    assert max(batch.num_rows for batch in open_saved(wide).batches(["invoke_index"])) > 2_000, "these are narrow"


def test_footers_manifests_and_rows_tell_the_same_breadth(tmp_path: Path) -> None:
    place, parts = tmp_path / "h.parquet", tmp_path / "parts"
    write_txn_history(TxnShape(1_000, mops=6), place)
    rows = pq.read_table(place)
    write_history(rows.to_batches(), parts, part_rows=300)
    of_file, of_parts = open_source(place).breadth, open_source(parts).breadth
    assert of_file == of_parts and of_file.rows == 1_000 and of_file.mops > 3_000
    in_memory = Source(place, "test", 1_000, table=rows).breadth
    assert in_memory[:2] == of_file[:2] and of_file.values / 2 < in_memory.values <= of_file.values
    assert breadth_of_rows(rows.slice(0, 0)) == Breadth()


def test_a_manifest_that_does_not_tell_is_as_good(tmp_path: Path) -> None:
    """Histories of before have none of it: their footers say it."""
    place = tmp_path / "h.parquet"
    write_txn_history(TxnShape(1_000, mops=6), tmp_path / "one.parquet")
    write_history(pq.read_table(tmp_path / "one.parquet").to_batches(), place, part_rows=300)
    told = open_saved(place).breadth()
    manifest = place / "manifest.json"
    raw = manifest.read_bytes()
    parts = tuple(msgspec.structs.replace(part, mops=-1, values=-1) for part in decode_manifest(raw, place).parts)
    manifest.write_bytes(encode_manifest(msgspec.structs.replace(decode_manifest(raw, place), parts=parts)))
    assert open_saved(place).breadth() == told


def test_sizes_of_the_search_follow_breadth_and_memory() -> None:
    usual = sizes_for(3_000, 2_000, 8 << 30)
    assert usual[:5] == SIZES[:5] and usual.most_bytes == 1 << 30
    broad, small = sizes_for(60_000, 2_000, 8 << 30), sizes_for(3_000, 2_000, 1 << 28)
    assert 10 * broad.a_window < usual.a_window and 10 * broad.a_task < usual.a_task
    assert small.a_piece < usual.a_piece / 10 and small.a_home < usual.a_home


@pytest.mark.parametrize("steps", [(1, 1), (1, 30)])
@pytest.mark.parametrize("events", [2 * 10**6, 2 * 10**8, 2 * 10**10])
def test_short_stretches_do_not_become_too_long_for_a_task_however_many_they_are(
    events: int, steps: tuple[int, int]
) -> None:
    """Evenly, or in a first half that was busy and a second that was calm."""
    every, half = max(events // 40_000, 200), events // 2
    begin = np.concatenate([np.arange(half, step=step * every) + n * half for n, step in enumerate(steps)])
    short = np.stack((begin, begin + every // 3), axis=1)
    sizes = sizes_for(events, events, 8 << 30)
    row = next(Union(1, sizes.most)(iter([bucket_batch([Row(EXTENTS, 0, pack([short]))])]))).to_pylist()[0]
    extents = unpack(row["data"])[0]
    assert sizes.most / 4 < len(extents) <= sizes.most
    assert all(np.searchsorted(extents[:, 0], short[:, 0], "right") - 1 == np.searchsorted(extents[:, 1], short[:, 1]))
    assert lay_segments(extents, sizes, 100).whole
    assert len(extents) <= 512 or events > 10**9, "a list that all tasks get is short where it can be"


@pytest.mark.parametrize("stage", ["window", "stretch"])
def test_what_is_too_large_to_be_searched_is_decided_by_orders_of_versions_or_unknown(
    stage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "h.parquet"
    write_txn_history(TxnShape(2_000, anomaly="G1c" if stage == "stretch" else None), place)

    def judged(**limits: float) -> Any:
        return judge_source(open_source(place), "list-append", engine_in_memory(monkeypatch), CheckOptions(**limits))  # type: ignore[arg-type]

    assert judged().valid is (stage == "window")
    if stage == "window":
        monkeypatch.setattr(transactions_on_spark, "sizes_for", lambda *asked: SIZES._replace(most_bytes=10))
    else:
        monkeypatch.setattr(time_segments, "within", lambda most, rows, size_of: ([], most + 1))
    decided = judged()
    assert decided.valid is (stage == "window") and decided.counts == ({} if decided.valid else {"no-version-order": 1})
    assert judged(time_limit_s=0).valid in ("unknown", False)


def test_a_reason_is_told_once_whatever_its_numbers() -> None:
    """A verdict said the same sentence four times, with four sizes."""
    skipped = [shuffle.TOO_LARGE.format(size, 100) for size in (300, 200, 400)]
    told = shuffle.combined([shuffle.TaskAnswer(None, (reason,)) for reason in [*skipped, "Another."]], list)
    assert len(told.skipped) == 2 and "Another." in told.skipped
