"""The timeline: its rows, its tree over time, its bars, what the page has itself, and logs by each node's clock."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sample_run import VERDICT, sample_run

from checkers.importers.detect import open_source
from harness.errors import UnwritableError
from harness.history.ops import Op, read, write
from harness.history.rundir import RunDir
from harness.history.table import write_parquet
from results.node_logs import times_of
from results.report import build_report
from results.tiles import BINS, MOST_BARS, MOST_ROWS, density, groupings, plan, read_columns
from tests.support.chromium import answer_of, needs_chromium

SAVED = Path(__file__).parents[1] / "data" / "runs"
SECOND = 1_000_000_000
EVIL = "</script><script>document.title='taken'</script><!--"


def data_of(page: Path) -> Any:
    (found,) = re.findall(r'id="timeline-data">(.*?)</script>', page.read_text(), re.DOTALL)
    return json.loads(found)


def tiles_of(folder: Path) -> dict[str, Any]:
    texts = {path.stem: path.read_text() for path in folder.glob("*.js")}
    return {name: json.loads(text[text.index(",") + 1 : -3]) for name, text in texts.items()}


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunDir, Path]:
    """A run of 36 000 operations, and its page with tiles."""
    folder = tmp_path_factory.mktemp("pages")
    run = sample_run(folder / "store", rate_hz=600)
    return run, build_report(run.path, to=folder)


@pytest.mark.parametrize("ends_s", [(), (5.0,), (0.0, 0.0), tuple(np.linspace(0, 1, 9))])
def test_the_leaves_are_all_of_the_time_and_all_operations(ends_s: tuple[float, ...]) -> None:
    """Wherever operations crowd: a leaf may have too many only where they began at once."""
    crowds = [np.full(3 * MOST_BARS, int(at_s * SECOND)) for at_s in ends_s]
    begin = np.sort(np.concatenate([np.random.default_rng(1).integers(0, 9 * SECOND, 20_000), *crowds]))
    tiles = plan(begin, 0, 9 * SECOND)
    leaves = [tile for tile in tiles if tile.leaf]
    assert [tile.first for tile in leaves] == [0, *(tile.last for tile in leaves[:-1])]
    assert [tile.begin_ns for tile in leaves] == [0, *(tile.end_ns for tile in leaves[:-1])]
    assert (leaves[-1].last, leaves[-1].end_ns) == (len(begin), 9 * SECOND)
    assert all(tile.last - tile.first <= MOST_BARS or tile.end_ns - tile.begin_ns < 100 for tile in leaves)


def test_density_counts_what_began_in_each_row_and_part(large: tuple[RunDir, Path]) -> None:
    columns = read_columns(open_source(large[0].path))
    grouped = groupings(columns, 10, str)
    tile = plan(columns.begin_ns, 0, columns.end_ns)[0]
    rows = len(grouped["process"].labels)
    levels = np.frombuffer(base64.b64decode(density(columns, grouped, tile)["process"]), np.uint8)
    counts = np.where(levels > 0, 2.0 ** ((levels - 1.0) / 8), 0).reshape(2, rows, BINS)
    for row in range(rows):
        own = columns.begin_ns[columns.process % 10 == row]
        exact, _ = np.histogram(own, BINS, (0, columns.end_ns))
        assert np.all(np.abs(counts[0, row] - exact) <= 0.1 * exact + 1.5)
        bad = int(columns.bad[columns.process % 10 == row].sum())
        assert counts[1, row].sum() == pytest.approx(bad, rel=0.1)


def test_many_values_share_rows_in_order(tmp_path: Path) -> None:
    mops = [read(key) for key in range(500)]
    ops = [Op("invoke", key, "read", (mop,), index=2 * key, time=2 * key) for key, mop in enumerate(mops)]
    pairs = [each for op in ops for each in (op, op.complete("ok", index=op.index + 1, time=op.time + 1))]
    write_parquet(pairs, tmp_path / "history.parquet")
    found = groupings(read_columns(open_source(tmp_path / "history.parquet")), None, str)["key"]
    rows = [found.row_of[0, key] for key in range(500)]
    assert rows == sorted(rows) and len(set(rows)) == MOST_ROWS == len(found.labels)
    assert found.labels[0] == "key 0 … key 12"


def test_a_folder_gets_every_operation_in_tiles(large: tuple[RunDir, Path]) -> None:
    run, page = large
    assert page.name == "report.html" and data_of(page)["tiles"] == "timeline/"
    tiles = tiles_of(page.parent / "timeline")
    leaves = [tile for tile in tiles.values() if "bars" in tile]
    begun = [bar[0] for tile in leaves for bar in tile["bars"] if tile["begin"] <= bar[1] < tile["end"]]
    source = open_source(run.path)
    rows = [row for batch in source.batches(["op", "process"]) for row in batch.to_pylist() if row["process"] >= 0]
    assert sorted(begun) == sorted(row["op"] for row in rows)
    for tile in leaves:
        assert all(bar[1] < tile["end"] and bar[1] + (bar[2] or 0) >= tile["begin"] for bar in tile["bars"])


def test_a_page_of_its_own_is_bounded(large: tuple[RunDir, Path], tmp_path: Path) -> None:
    run, _ = large
    alone = data_of(build_report(run.path, to=tmp_path / "alone.html"))
    assert alone["tiles"] is None and alone["density"] and not (tmp_path / "timeline").exists()
    assert all(bar[1] < 5.1 * SECOND and bar[1] + (bar[2] or SECOND) > 4.7 * SECOND for bar in alone["bars"])
    assert 100 < len(alone["bars"]) <= MOST_BARS and len(json.dumps(alone)) < 300_000
    assert [mark["kind"] for mark in alone["found"]] == ["stale-read"] and len(alone["found"][0]["steps"]) == 2
    whole = data_of(build_report(sample_run(tmp_path / "store", rate_hz=20).path))
    assert whole["density"] is None and len(whole["bars"]) == 1_200


@pytest.mark.parametrize(
    ("walls_s", "curves", "times_s"),
    [
        ((-1, 0, 5), [], (-1, 0, 5)),
        ((1, 3.5, 4.5, 7), [[(3.0, 0.5), (6.0, 0.5)]], (1, 3, 4, 7)),  # half a second ahead, then set back
        ((1.9, 1.2, 2.5), [[(2.0, -1.0), (9.0, -1.0)]], (1.9, 2.2, 3.5)),  # a second behind: shown again, later
        ((10.0, 10.75, 11.5), [[(10.0, 0.0), (11.0, 0.5)]], (10, 10.5, 11)),  # drifting
        ((20.3,), [[(20.0, 5.0), (21.0, 5.0)]], (20.3,)),  # shown by nobody's reckoning: as it stands
    ],
)
def test_lines_are_placed_by_the_clock_that_wrote_them(
    walls_s: tuple[float, ...], curves: list[list[tuple[float, float]]], times_s: tuple[float, ...]
) -> None:
    found = times_of([round(wall_s * SECOND) for wall_s in walls_s], curves)
    assert found == [round(time_s * SECOND) for time_s in times_s]


def test_a_folder_that_can_not_be_written_is_said(tmp_path: Path, large: tuple[RunDir, Path]) -> None:
    (tmp_path / "timeline").write_text("in the way")
    with pytest.raises(UnwritableError, match="timeline can't be made"):
        build_report(large[0].path, to=tmp_path)


def evil_run(store: Path) -> RunDir:
    """A run whose node, error, log, anomaly and leader are scripts."""
    run = sample_run(store, rate_hz=20)
    ops = [Op("invoke", 0, "write", (write(3, 1),), index=0, time=0)]
    ops.append(ops[0].complete("fail", index=1, time=9, node=EVIL, error_class=EVIL, error=EVIL))
    write_parquet(ops, run.history_parquet)
    run.write_json(run.faults_json, [{"kind": EVIL, "instance": 0, "variant": None, "targets": [EVIL],
                                      "requested_ns": 1, "observed_ns": 2}])  # fmt: skip
    run.write_json(run.leaders_json, [{"group": EVIL, "term": 1, "node": EVIL, "since_ns": 0, "seen_ns": 9}])
    stale = {"message": EVIL, "ops": [{"op": 0, "process": 0, "invoke_time": 0, "complete_time": 9,
             "mops": [["w", 3, 1, None, None, 0, 0, 0]]}],
             "steps": [{"source": 0, "target": 0, "kind": EVIL, "why": EVIL}]}  # fmt: skip
    found = {EVIL: {"valid": False, "anomalies": {EVIL: [stale]}, "counts": {}}}
    run.write_json(run.verdict_json, {**VERDICT, "checkers": found})
    run.write_logs({"t1/node.log": f"2023-11-14T22:13:20.000000+00:00 {EVIL}".encode()})
    return run


def test_what_a_history_says_is_never_markup(tmp_path: Path) -> None:
    page = build_report(evil_run(tmp_path / "store").path)
    assert EVIL not in page.read_text() and page.read_text().count("<script") == 2
    assert json.dumps(data_of(page)).count(json.dumps(EVIL)[1:-1]) >= 9, "it is there, as text"


LOOK = """
const figure = document.querySelector("figure[data-whole]"), canvas = figure.querySelector("canvas");
const settled = async () => {
  do { await new Promise(requestAnimationFrame); } while (canvas.dataset.waits !== "0");
  await new Promise(requestAnimationFrame);
  return Object.fromEntries(Object.entries(canvas.dataset).map(([name, value]) => [name, Number(value)]));
};
const zoom = async (step, times) => {
  for (let i = 0; i < times; i++) figure.querySelector(`[data-zoom=${step}]`).click();
  return settled();
};
const point = (x, y) => {
  const box = canvas.getBoundingClientRect();
  canvas.dispatchEvent(new PointerEvent("pointermove", { clientX: box.left + x, clientY: box.top + y }));
};
"""


@needs_chromium
def test_density_becomes_bars_where_there_are_few_enough(large: tuple[RunDir, Path], tmp_path: Path) -> None:
    script = "return [await settled(), await zoom('in', 3), await zoom('in', 3), await zoom('all', 1)];"
    whole, some, near, again = answer_of(large[1], LOOK + script, tmp_path)
    assert whole["bars"] == 0 and whole["cells"] == 1 and again == whole
    assert some["cells"] + some["bars"] > 0 and near["cells"] == 0 and 100 < near["bars"] < MOST_BARS


@needs_chromium
def test_the_anomaly_is_found_with_its_edges_and_what_is_pointed_at(tmp_path: Path) -> None:
    script = """
    const places = figure.querySelector("[data-found]");
    places.value = "0";
    places.dispatchEvent(new Event("change"));
    const found = await settled(), tips = new Set(), tip = document.querySelector(".tip");
    for (let y = 0; y < canvas.clientHeight; y += 3) {
      for (let x = 150; x < canvas.clientWidth; x += 8) { point(x, y); tips.add(tip.textContent); }
    }
    return [found, places.options[1].textContent, [...tips]];"""
    page = build_report(SAVED / "invalid", to=tmp_path / "invalid.html")
    found, option, tips = answer_of(page, LOOK + script, tmp_path)
    assert option == "5.549\u00a0s stale-read" and (found["edges"], found["cells"]) == (1, 0)
    assert any(re.match(r"T\d+: read key 17 → nil · ok · t\d · process \d+ · 5\.", tip) for tip in tips)
    assert any(tip.startswith("catalog was led by m1, term 2") for tip in tips)


@needs_chromium
@pytest.mark.parametrize("width", [1400, 500])
def test_scripts_in_a_history_are_shown_and_not_run(width: int, tmp_path: Path) -> None:
    page = build_report(evil_run(tmp_path / "store").path)
    script = """
    await settled();
    for (let y = 0; y < canvas.clientHeight; y += 3) for (let x = 0; x < canvas.clientWidth; x += 40) point(x, y);
    const texts = [figure.querySelector(".cursor-logs").textContent, figure.querySelector("[data-found]").textContent];
    return [document.title, document.scripts.length, texts];"""
    title, scripts, texts = answer_of(page, LOOK + script, tmp_path, width)
    assert title != "taken" and scripts == 3 and all(EVIL in text for text in texts)
