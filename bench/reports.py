"""Reports of long histories: what they take to be made, and how soon their timeline is seen and zoomed in Chromium."""

from __future__ import annotations

import datetime as dt
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from bench.measure import Row, kept_in, power, spent
from checkers.made.registers import RegisterShape, write_register_history
from harness.history.rundir import create
from results.report import build_report
from tests.support.chromium import CHROMIUM, answer_of

_ZOOM: Final = """
const picture = performance.now();
const figure = document.querySelector("figure[data-whole]"), canvas = figure.querySelector("canvas");
const settled = async () => {
  do { await new Promise(requestAnimationFrame); } while (canvas.dataset.waits !== "0");
  await new Promise(requestAnimationFrame);
};
await settled();
const steps = [];
for (const step of [...Array(12).fill("in"), ...Array(6).fill("right"), ...Array(12).fill("out"), "all"]) {
  const began = performance.now();
  figure.querySelector(`[data-zoom=${step}]`).click();
  const drawn = performance.now() - began;
  await settled();
  steps.push([drawn, performance.now() - began]);
}
return { picture, steps };
"""
"""From where Chromium began to open the page; then each step: until it is drawn from what is there, and until with all
tiles."""


def timeline(operations: int = 1_000_000, keys: int = 1_000) -> Iterator[Row]:
    """The report of a run of registers: its CPU seconds and size in MB as one file and with the tiles of all
    operations; and milliseconds in Chromium until the first picture, and of steps of zooming and moving."""
    with kept_in() as folder:
        run = create(folder / "store", "register", dt.datetime(2026, 1, 1))
        write_register_history(RegisterShape(operations, keys=keys), run.history_parquet)
        run.write_json(run.run_json, {"workload": "register", "concurrency": 10})
        for what, to in (("one file", folder / "report.html"), ("with tiles", folder / "tiles")):
            if what == "with tiles":
                to.mkdir()
            with spent() as took:
                page = build_report(run.path, to=to)
            row = {
                "what": f"{power(operations)} operations, {what}",
                "CPU_s": round(took.cpu_s, 1),
                "MB": _megabytes(to),
            }
            yield row | (_seen(page, folder) if CHROMIUM else {})


def _megabytes(path: Path) -> float:
    files = [path] if path.is_file() else [each for each in path.rglob("*") if each.is_file()]
    return round(sum(each.stat().st_size for each in files) / 1e6, 2)


def _seen(page: Path, folder: Path) -> dict[str, Any]:
    found = answer_of(page, _ZOOM, folder)
    drawn, whole = zip(*found["steps"], strict=True)
    return {
        "picture_ms": round(found["picture"]),
        "zoom_ms": round(statistics.median(drawn), 1),
        "longest_zoom_ms": round(max(drawn), 1),
        "with_all_tiles_ms": round(statistics.median(whole), 1),
        "longest_with_tiles_ms": round(max(whole), 1),
    }
