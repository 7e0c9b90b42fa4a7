"""Nothing grows on the driver: from n to 10 n operations it gets, holds and sends at most twice as much; and nothing
takes time by more than the length.

In ordinary tests pieces and buckets are small, so that ten times the operations are ten times the tasks, and but for
one model Spark's frames are in this process (`frames_in_memory`); the campaign takes Spark and the sizes of real work.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import growth_histories
import msgspec
import pytest
from frames_in_memory import engine_in_memory
from growth import Growth, corrupted, cost, measured, save, unwritten
from growth_histories import JEPSEN, KINDS, OBJECTS

from checkers.api import judge_source
from checkers.engines import grouped, keyed, shuffle, spark
from checkers.engines.local import LocalEngine
from checkers.engines.spark import SparkEngine
from checkers.importers.detect import open_source
from checkers.made.registers import RegisterShape, register_batches
from checkers.options import CheckOptions
from checkers.snapshots import change_feed
from checkers.transactions.stages import time_segments
from checkers.transactions.stages import transactions_on_spark as transactions
from checkers.transactions.stages.time_segments import Sizes
from checkers.verdict import Verdict

LARGEST = 100_000_000

CAMPAIGN = [(model, share) for model in KINDS for share in (0.0, 0.001, 0.01)]

_MOST = 2.0
_NOISE = {"told": 20_000, "peak": 20_000, "closure": 8_000, "read": 0}
"""Bytes, or operations, that are there whatever is judged: growth below is noise."""

_SHOWN = 1_000
"""Bytes that the driver may hold for each operation of an example, with its part of the explanation. A longer history
has cycles of more classes, up to `--explain` of each: it shows more until there are examples of all."""

_IN_AN_EXAMPLE = 64
"""Operations, of which the longest cycle that was seen has twenty."""

_LITTLE = {"told": 1_000, "peak": 0, "closure": 2_500, "read": 0}
"""Noise of small histories, where four bytes an operation have to show. Sums of up to a thousand counters, and last
reads of as many sets, are told to all tasks."""


def grown(
    model: str, share: float, n: int, folder: Path, engine: SparkEngine, part_rows: int, driver_here: bool = False
) -> tuple[dict[str, tuple[int, int]], Verdict, Path]:
    """What was measured at n and 10 n, and the verdict on the longer history, which is where the path says."""
    kind = KINDS[model]
    found: list[Growth] = []
    for size in (n, 10 * n) if driver_here else (1_000, n, 10 * n):  # the first loads what would be in the next's peak
        place = folder / f"{model}-{len(found)}.parquet"
        save(kind.make(size, share), place, part_rows, kind.dictionary)
        verdict, growth = measured(place, model, engine, CheckOptions(), driver_here)
        found.append(growth)
    if found[-1].peak > _MOST * found[-2].peak:  # what is loaded once is not there again, what grows is
        found[-1].peak = min(found[-1].peak, measured(place, model, engine, CheckOptions(), driver_here)[1].peak)
    assert verdict.valid is (share == 0 or not kind.refuted), verdict.reason
    for examples in verdict.anomalies.values():
        assert len(examples) <= CheckOptions().explain
        assert all(len(each.ops) <= _IN_AN_EXAMPLE for each in examples)
    names = ("told", "peak", "closure", "read", "shown")
    figures = {name: (getattr(found[-2], name), getattr(found[-1], name)) for name in names}
    print(f"{model}, {share:.1%} anomalies, {n} and {10 * n} operations: {figures}")  # for `pytest -rP`
    return figures, verdict, place


def require_flat(found: dict[str, tuple[int, int]], noise: dict[str, int] = _NOISE) -> None:
    """Fail if anything grew more than it may."""
    noise = noise | {"peak": noise["peak"] + _SHOWN * max(0, found["shown"][1] - found["shown"][0])}
    wrong = {name: found[name] for name in noise if found[name][1] > _MOST * found[name][0] + noise[name]}
    assert not wrong, f"grew more than {_MOST} times from n to 10 n: {wrong}"


def test_what_grows_is_found_and_examples_are_granted_to_the_peak_alone() -> None:
    found = {"told": (22_000, 58_000), "peak": (700_000, 2_000_000), "closure": (1_000, 4_900), "read": (9, 18)}
    found["shown"] = (165, 842)
    require_flat(found)
    for name, pair in (
        ("told", (22_000, 65_000)),
        ("peak", (700_000, 2_200_000)),
        ("closure", (1_000, 10_100)),
        ("read", (9, 19)),
        ("shown", (842, 842)),  # and the peak has no reason to grow
    ):
        with pytest.raises(AssertionError, match=name if name != "shown" else "peak"):
            require_flat(found | {name: pair})


@pytest.mark.parametrize(("again", "most"), [(200_000, 200_000), (520_000, 520_000), (900_000, 520_000)])
def test_a_peak_that_is_there_twice_is_growth(
    again: int, most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    peaks = iter((3_000_000, 210_000, 520_000, again))
    told = judge_source(
        open_source(save(KINDS["stats"].make(150, 0.0), tmp_path / "h.parquet", 1_000)),
        "stats",
        LocalEngine(),
        CheckOptions(),
    )
    monkeypatch.setattr(sys.modules[__name__], "measured", lambda *_: (told, Growth(peak=next(peaks))))
    found, _, _ = grown("stats", 0.0, 150, tmp_path, cast(SparkEngine, None), 1_000)
    assert found["peak"] == (210_000, most)


def test_about_the_share_of_the_operations_is_corrupted_and_nothing_else_is_changed() -> None:
    before = list(register_batches(RegisterShape(20_000, keys=20)))
    after = list(corrupted(iter(before), 0.01, unwritten))
    wrong = [mops[0]["value"] for batch in after for mops in batch.column("mops").to_pylist()]
    assert 190 <= sum((value or 0) >= 10**15 for value in wrong) <= 200
    assert [batch.drop_columns(["mops"]) for batch in after] == [batch.drop_columns(["mops"]) for batch in before]
    places = [i for i, value in enumerate(wrong) if (value or 0) >= 10**15]
    assert max(b - a for a, b in pairwise(places)) < 200


def plain(verdict: Verdict) -> Any:
    """All of a verdict but the examples: which are told of many depends on who looked where."""
    return msgspec.structs.replace(verdict, engine="", seconds=0.0, anomalies={})


@pytest.mark.parametrize("model", KINDS)
def test_no_model_grows_on_the_driver_and_many_tasks_say_what_one_process_says(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    share = 0.01 if KINDS[model].refuted else 0.0
    small_tasks(monkeypatch, 750)
    found, verdict, place = grown(model, share, 1_000, tmp_path, engine_in_memory(monkeypatch), 750, driver_here=True)
    assert found["closure"][0] > 0 and found["told"][0] > 0
    require_flat(found, _LITTLE)
    ours = judge_source(open_source(place), model, LocalEngine(), CheckOptions())
    assert plain(verdict) == plain(ours)


@pytest.mark.parametrize("model", KINDS)
def test_the_histories_without_anomalies_are_valid(model: str, tmp_path: Path) -> None:
    kind = KINDS[model]
    place = save(kind.make(150, 0.0), tmp_path / "h.parquet", 1_000, kind.dictionary)
    assert judge_source(open_source(place), model, LocalEngine(), CheckOptions()).valid is True


@pytest.mark.parametrize("model", ("change-feed", "snapshot-reads", "kv-append", *OBJECTS, *JEPSEN))
def test_a_repeated_history_has_the_anomalies_of_each_repetition_alone(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(growth_histories, "_REPEATED", 500)
    kind = KINDS[model]

    def found(n: int, share: float) -> int:
        place = save(kind.make(n, share), tmp_path / f"{n}-{share}.parquet", 1_000, kind.dictionary)
        return sum(judge_source(open_source(place), model, LocalEngine(), CheckOptions()).counts.values())

    assert found(2_000, 0.0) == 0
    assert found(2_000, 0.01) == 4 * found(500, 0.01) > 0


def test_operations_to_be_shown_reach_the_driver_as_one_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    batches = register_batches(RegisterShape(3_000, keys=20))
    source = open_source(save(batches, tmp_path / "h.parquet", part_rows=200, dictionary=["a long word"] * 100))
    wanted = list(range(0, 6_000, 7))
    here = source.operations(wanted)
    small_tasks(monkeypatch, 150)
    engine, collected, came = engine_in_memory(monkeypatch), SparkEngine.collected, list[int]()

    def sizes(self: SparkEngine, frame: Any) -> list[Any]:
        rows = collected(self, frame)
        came.extend(len(row["rows"]) for row in rows)
        return rows

    monkeypatch.setattr(SparkEngine, "collected", sizes)
    assert engine.located(source).operations(wanted) == here
    assert len(here) > 300 and len(came) == 1


@pytest.mark.spark
def test_nothing_grows_on_spark_s_driver(tmp_path: Path, spark: SparkEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    small_tasks(monkeypatch, 3_000)
    require_flat(grown("register", 0.01, 6_000, tmp_path, spark, part_rows=2_000)[0])


def small_tasks(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    for module, name in (
        (shuffle, "_ROWS_PER_PIECE"),
        (keyed, "_ROWS_PER_BUCKET"),
        (grouped, "_ROWS_PER_BUCKET"),
        (spark, "_ROWS_VERIFIED"),
        (transactions, "_ROWS_PER_PIECE"),
        (transactions, "_ROWS_PER_BUCKET"),
    ):
        monkeypatch.setattr(module, name, rows)
    monkeypatch.setattr(spark, "_FEW_ROWS", rows // 3)
    monkeypatch.setattr(time_segments, "SIZES", Sizes(a_home=rows))
    monkeypatch.setattr(shuffle, "CELL_ROWS", 1)
    monkeypatch.setattr(change_feed, "EVENTS_PER_RANGE", rows)


@pytest.fixture
def room(tmp_path: Path) -> Iterator[Path]:
    """A folder for histories that are too large to be kept after the test."""
    yield tmp_path
    shutil.rmtree(tmp_path)


@pytest.mark.spark
@pytest.mark.campaign
@pytest.mark.parametrize(("model", "share"), CAMPAIGN)
def test_nothing_grows_on_the_driver_at_size(model: str, share: float, room: Path, spark: SparkEngine) -> None:
    require_flat(grown(model, share, KINDS[model].most // 10, room, spark, part_rows=500_000)[0])


@pytest.mark.spark
@pytest.mark.campaign
@pytest.mark.timeout(36_000)
@pytest.mark.parametrize("model", [model for model, kind in KINDS.items() if kind.most * 10 >= LARGEST])
def test_nothing_grows_on_the_driver_to_the_largest_size(model: str, room: Path, spark: SparkEngine) -> None:
    require_flat(grown(model, 0.01, LARGEST // 10, room, spark, part_rows=10_000_000)[0])


@pytest.mark.campaign
@pytest.mark.parametrize("model", KINDS)
def test_ten_times_the_operations_take_about_ten_times_as_long(model: str, room: Path) -> None:
    """A hundred times, where time goes by the square; what is there whatever is judged hides some of it, so they are
    many. The shortest of three: beside other programs the same work takes a processor up to three times as long."""
    kind, seconds = KINDS[model], list[float]()
    for size in (1_000, 100_000, 1_000_000):  # the first of them compiles, and loads what judging needs
        place = save(kind.make(size, 0.01), room / f"{size}.parquet", 1_000_000, kind.dictionary)
        judged = [cost(place, model, LocalEngine()) for _ in range(3)]
        assert all(verdict.valid is (not kind.refuted) for verdict, _ in judged)
        seconds.append(min(took for _, took in judged))
    assert seconds[2] <= 20 * seconds[1], seconds
