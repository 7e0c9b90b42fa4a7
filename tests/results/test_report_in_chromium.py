"""What Chromium shows of reports, at the widths of a desk and of a telephone; skipped aloud where there is none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sample_run import RUN, VERDICT, sample_run

from harness.history.rundir import RunDir
from results.report import build_report
from tests.support.chromium import WIDTHS, measured_pages, needs_chromium

SAVED = Path(__file__).parents[1] / "data" / "runs"
GREEN = "rgb(31, 122, 77)"

pytestmark = needs_chromium


def unknown_run(store: Path) -> RunDir:
    """A run of which one kind of fault never happened, so that nothing that was found in it is worth praise."""
    run = sample_run(store, rate_hz=5)
    run.write_json(run.run_json, {**RUN, "requested_faults": [*RUN["requested_faults"], "clock-jump"]})
    checkers = {name: {"valid": True, "ops": 6000} for name in VERDICT["checkers"]}
    adequacy = {"answer": False, "reasons": ["the fault clock-jump was never observed in effect"], "details": {}}
    safety = {"answer": True, "reasons": [], "details": {}}
    told = {"overall": "unknown", "why": "vacuous", "checkers": checkers, "adequacy": adequacy, "safety": safety}
    run.write_json(run.verdict_json, {**VERDICT, **told, "reasons": adequacy["reasons"]})
    return run


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, int], Any]:
    """By run and width."""
    folder = tmp_path_factory.mktemp("pages")
    pages = {
        name: build_report(SAVED / name, to=folder / f"{name}.html") for name in ("valid", "invalid", "unfinished")
    }
    pages["unknown"] = build_report(unknown_run(folder / "store").path)
    return measured_pages(pages, folder)


RUNS = ("valid", "invalid", "unknown", "unfinished")


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", RUNS)
def test_nothing_is_lost_sideways_and_all_links_lead_somewhere(
    name: str, width: int, measured: dict[tuple[str, int], Any]
) -> None:
    page = measured[name, width]
    assert page["head"] == name.upper() and page["letters"] >= 14
    assert page["shown"] > width - 40 and page["whole"] <= page["shown"]
    assert page["lost"] == [] and page["cut"] == []
    assert page["pictures"] and all(page["pictures"])
    assert page["dangling"] == [] and (page["links"] > 0) is (name == "invalid")


@pytest.mark.parametrize("name", RUNS)
def test_plots_scroll_visibly_where_the_screen_is_narrow(name: str, measured: dict[tuple[str, int], Any]) -> None:
    assert measured[name, 1400]["wide"] == 0, "there all of it is to be seen"
    page = measured[name, 500]
    assert page["wide"] > 0 and min(page["bars"]) >= 8, "a scroll bar that is to be seen"
    assert all("sideways" in hint for hint in page["hints"])


def test_only_what_proves_something_is_green(measured: dict[tuple[str, int], Any]) -> None:
    assert GREEN in measured["valid", 1400]["badges"]
    assert measured["unknown", 1400]["badges"] and GREEN not in measured["unknown", 1400]["badges"]
