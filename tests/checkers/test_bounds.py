"""Bounds on work, memory and what is shown: none of them hides a violation."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from frames_in_memory import engine_in_memory
from growth import Row, corrupted, save, unwritten
from growth_histories import KINDS, Behind, moved

from checkers.api import judge_source
from checkers.catalog import judge as catalog
from checkers.engines import components, grouped, shuffle
from checkers.engines import spark as engine_of_spark
from checkers.engines.local import LocalEngine
from checkers.engines.session import planned_task_bytes
from checkers.engines.spark import SparkEngine
from checkers.importers.detect import open_source
from checkers.isolation import judge_isolation as isolation
from checkers.jepsen import logs
from checkers.linearizability.objects import refute_objects as objects
from checkers.made.injection import INJECTED, history_of
from checkers.made.registers import RegisterShape, register_batches
from checkers.options import CheckOptions
from checkers.source import Source
from checkers.transactions.graph import cycle_anomalies
from checkers.transactions.judge_transactions import judge_list_append
from checkers.transactions.stages import transactions_on_spark
from checkers.transactions.stages.time_segments import SIZES
from checkers.verdict import Verdict

CONSISTENCIES = ("read-committed", "snapshot-isolation", "serializable", "strict-serializable")


def judged(anomaly: str, consistency: str) -> object:
    table = history_of(INJECTED["list-append"][anomaly])
    source = Source(Path("injected"), "test", table.num_rows, table=table)
    return judge_list_append(source, LocalEngine(), CheckOptions(consistency=consistency)).valid


@pytest.mark.parametrize("anomaly", INJECTED["list-append"])
def test_a_cycle_search_that_ends_early_never_makes_valid(anomaly: str, monkeypatch: pytest.MonkeyPatch) -> None:
    told = {name: judged(anomaly, name) for name in CONSISTENCIES}
    monkeypatch.setattr(cycle_anomalies, "_MOST_WORK", -1)
    for name in CONSISTENCIES:
        if told[name] is False:
            assert judged(anomaly, name) is not True, f"{anomaly} is hidden from {name}"


def test_some_injected_anomaly_was_hidden_by_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the test above tests something: with nothing searched there are unknown verdicts."""
    monkeypatch.setattr(cycle_anomalies, "_MOST_WORK", -1)
    assert "unknown" in {judged(anomaly, name) for anomaly in INJECTED["list-append"] for name in CONSISTENCIES}


@pytest.mark.parametrize("before", range((1 << 16) - 6, 1 << 16))
def test_a_panic_across_the_pieces_of_a_long_line_is_found(
    before: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "_MOST_BYTES", 1 << 16)
    path = tmp_path / "node.log"
    path.write_bytes(b"fine\n" + b"." * before + b" PANIC here\n" + b"fine\n")
    assert [match.line for match in logs.searched(path, "n1", re.compile(rb"\bPANIC\b")).matches] == [2]


def test_what_a_long_line_or_a_missing_log_hides_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pattern may match across more than a piece and the end of the one before."""
    log = tmp_path / "nodes" / "n1" / "node.log"
    log.parent.mkdir(parents=True)
    (tmp_path / "run.json").write_text("{}")
    source = Source(tmp_path, "test", 0)
    log.write_bytes(b"fine\nassertion " + b"." * 70_000 + b" failed\n")
    assert logs.judge_logs(source, LocalEngine(), CheckOptions()).valid is False
    monkeypatch.setattr(logs, "_MOST_BYTES", 1 << 16)
    verdict = logs.judge_logs(source, LocalEngine(), CheckOptions())
    assert verdict.valid == "unknown" and "Line 2 of n1's node.log" in str(verdict.reason)
    log.write_bytes(b"fine\n" + b"." * 60_000 + b"\n")
    assert logs.judge_logs(source, LocalEngine(), CheckOptions()).valid is True
    (tmp_path / "run.json").write_text('{"serving_nodes": ["n1", "n2"]}')
    verdict = logs.judge_logs(source, LocalEngine(), CheckOptions())
    assert verdict.valid == "unknown" and "no log of n2" in str(verdict.reason), "nobody looked at it"


EXPANDED_OTHERWISE = {
    "isolation": isolation.EXPANDED,
    "catalog": catalog.EXPANDED,
    "multi-register": objects.EXPANDED,
    "monotonic-reads": grouped.SLICES.expanded,
    "list-append": transactions_on_spark._EXPANDED,
}


@pytest.mark.parametrize("model", ["register", "list-append", "queue", *EXPANDED_OTHERWISE])
def test_what_one_task_does_not_take_is_unknown(model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(components, "_EXPANDED", 1)
    verdict = judged_by_tasks_of(1_000, model, 0.0, 2_000, tmp_path, monkeypatch)
    most = 1_000 * shuffle.EXPANDED // EXPANDED_OTHERWISE.get(model, shuffle.EXPANDED)
    assert verdict.valid == "unknown" and f"one task takes {most} by" in str(verdict.reason)


@pytest.mark.parametrize(("share", "valid"), [(0.0, "unknown"), (0.01, False)])
def test_chains_of_one_key_that_one_task_does_not_take_are_unknown_unless_refuted(
    share: float, valid: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_at_most(10_000, monkeypatch)
    hot = corrupted(register_batches(RegisterShape(6_000, keys=1, cas_share=0.9)), share, unwritten)
    place = save(hot, tmp_path / "h.parquet", 1_000)
    verdict = judge_source(open_source(place), "register", engine_in_memory(monkeypatch), CheckOptions())
    assert verdict.valid == valid
    assert share or "that compare-and-sets link" in str(verdict.reason)


def test_what_other_buckets_of_keys_refute_stays_refuted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first bucket is just small enough; without anomalies in it nothing is said."""
    monkeypatch.setattr(transactions_on_spark, "_EXPANDED", shuffle.EXPANDED)
    monkeypatch.setattr(transactions_on_spark, "planned_buckets", lambda engine, source, parts, *asked: parts)
    monkeypatch.setattr(transactions_on_spark, "sizes_for", lambda *asked: SIZES)
    told = str(judged_by_tasks_of(100, "list-append", 0.0, 3_000, tmp_path, monkeypatch).reason)
    most = int(re.findall(r"takes (\d+) bytes", told)[0])
    clean, spoilt = (
        judged_by_tasks_of(most, "list-append", share, 3_000, tmp_path, monkeypatch) for share in (0.0, 0.01)
    )
    assert clean.valid == "unknown" and f"one task takes {most}" in str(clean.reason)
    assert spoilt.valid is False and spoilt.counts


def judged_by_tasks_of(
    most: int, model: str, share: float, n: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> Verdict:
    take_at_most(most, monkeypatch)
    monkeypatch.setattr(engine_of_spark, "_FEW_ROWS", 1_000)
    kind = KINDS[model]
    place = save(kind.make(n, share), folder / f"{model}-{share}.parquet", n)
    return judge_source(open_source(place), model, engine_in_memory(monkeypatch), CheckOptions())


def take_at_most(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have tasks take no more than `most` packed bytes from now on."""
    monkeypatch.setattr(SparkEngine, "task_bytes", lambda self: most * shuffle.EXPANDED)


@pytest.mark.parametrize(("share", "cas_share"), [(0.0, 0.0), (0.0, 0.1), (0.002, 0.0), (0.002, 0.1)])
def test_a_key_with_most_operations_is_judged_by_many_tasks(
    share: float, cas_share: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small keys in the bucket of the large one are judged as on one machine."""
    take_at_most(30_000, monkeypatch)
    hot = RegisterShape(6_000, keys=1, info_share=0.05, cas_share=cas_share)
    others = shifted(register_batches(RegisterShape(400, keys=8, info_share=0.05)))
    batches = [*corrupted(register_batches(hot), share, stale), *corrupted(others, 10 * share, unwritten)]
    place = save(batches, tmp_path / "h.parquet", 1_000)
    theirs, ours = (
        judge_source(open_source(place), "register", engine, CheckOptions())
        for engine in (engine_in_memory(monkeypatch), LocalEngine())
    )
    assert theirs.valid is ours.valid is (share == 0), theirs.reason
    assert (theirs.ops, theirs.details) == (ours.ops, ours.details) and theirs.details["keys"] == 9
    assert sum(theirs.counts.values()) >= sum(ours.counts.values())
    assert theirs.counts.get("read-of-unwritten") == ours.counts.get("read-of-unwritten")


def stale(row: Row) -> bool:
    """Let a successful read show what was there 800 changes before."""
    if row["type"] != "ok" or row["f"] != "read" or (row["mops"][0]["value"] or 0) < 900:
        return False
    row["mops"][0]["value"] -= 800
    return True


def test_a_large_key_whose_values_repeat_is_unknown_unless_refuted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_at_most(30_000, monkeypatch)

    def modulo(row: Row) -> bool:
        mop = row["mops"][0]
        for name in ("value", "expected"):
            mop[name] = None if mop[name] is None else mop[name] % 1_500
        return True

    for share, valid in ((0.0, "unknown"), (0.001, False)):
        batches = corrupted(register_batches(RegisterShape(6_000, keys=1, cas_share=0.0)), 1.0, modulo)
        place = save(corrupted(batches, share, unwritten), tmp_path / f"{share}.parquet", 1_000)
        verdict = judge_source(open_source(place), "register", engine_in_memory(monkeypatch), CheckOptions())
        assert verdict.valid == valid and (share or "written twice" in str(verdict.reason))


def shifted(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same about other partitions and behind ten thousand operations."""
    return (moved(batch, Behind(20_000, 10_000, 1_000, 1_000)) for batch in batches)


GIB = 1 << 30


@pytest.mark.parametrize(
    ("settings", "cores", "executors", "expected"),
    [
        ({"spark.master": "local[2]", "spark.driver.memory": "2048m"}, 2, 0, 22 * GIB * 3 // 8),
        ({"spark.master": "local[*]", "spark.driver.memory": "8g"}, 16, 0, GIB * 16 * 3 // 4 // 16),
        ({"spark.executor.memory": "2g", "spark.executor.memoryOverheadFactor": "0.5"}, 8, 2, GIB // 4),
        ({"spark.executor.memory": "1g"}, 4, 4, 384 << 20),
        ({"spark.executor.memoryOverhead": "3g", "spark.executor.pyspark.memory": "1g"}, 8, 4, 2 * GIB),
        ({"spark.executor.memoryOverhead": "3072", "spark.executor.cores": "3"}, 64, 1, GIB),
    ],
)
def test_what_a_task_takes_follows_from_the_session_s_settings(
    settings: dict[str, str], cores: int, executors: int, expected: int
) -> None:
    assert planned_task_bytes(settings, cores, executors, 24 * GIB) == expected


class _Cut:
    """A plan of which only this is asked: a part's bytes fall into that many fragments."""

    def __init__(self, fragments: int) -> None:
        self.fragments = fragments

    def split_again(self, part: bytes) -> Iterator[tuple[int, bytes]]:
        size = len(part) // self.fragments
        return ((place, part[place * size : (place + 1) * size]) for place in range(self.fragments))


@pytest.mark.parametrize(("fragments", "left_out"), [(1, [64_000]), (4, [16_000] * 4), (64, [64_000])])
def test_what_a_task_holds_does_not_grow_with_what_it_does_not_take(fragments: int, left_out: list[int]) -> None:
    bucket, most, held = shuffle._Bucket(_Cut(fragments), None, 1_000), 1_000, list[int]()  # type: ignore[arg-type]
    for piece in range(500):
        bucket.add(piece, b"." * 128)
        held.append(sum(len(data) for mine in _held(bucket) for _, data in mine))
    assert max(held) <= 2 * most + 128
    assert set(bucket.left_out) == set(left_out)
    assert all(sum(map(len, mine)) <= most for mine in bucket.given())


def _held(bucket: shuffle._Bucket) -> list[list[tuple[int, bytes]]]:
    return [bucket._parts, *(bucket._fragments._parts.values() if bucket._fragments is not None else ())]


def test_what_is_split_together_stays_within_memory() -> None:
    usual, some, many = 1 << 19, 1 << 12, 1 << 16
    assert shuffle.rows_held(4, usual, 1 << 40) == usual
    assert shuffle.rows_held(some, usual, 1 << 40) == some * shuffle.CELL_ROWS
    assert shuffle.rows_held(many, usual, 1 << 22) == 1 << 22
    assert shuffle.rows_held(many, usual, 10) == usual
