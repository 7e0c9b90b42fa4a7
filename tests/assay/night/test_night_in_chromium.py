"""What Chromium shows of a night's page, at the widths of a desk and of a telephone; skipped aloud where there is
none."""

from __future__ import annotations

from typing import Any

import pytest
from made_nights import SCRIPT, TODAY, cell, found, night, run

from assay.night.page import page_of
from assay.night.records import Night, RunFigures
from assay.night.result import account_of
from assay.night.triage import TriageEntry
from tests.support.chromium import WIDTHS, measured_pages, needs_chromium

pytestmark = needs_chromium

LONG = "assay run catalog --nemesis unheard-tablets --time-limit 10 --world tablet-creation-ms=1000,latency=lan"
TITLE = f"read-of-unwritten: process 4 read {'x' * 300} from key 7, which nobody wrote {SCRIPT}"
NAMES = ["register partition,kill", LONG.removeprefix("assay run "), "swarm", "containers", "flawed"]
KNOWN = TriageEntry(family=found("known").family, ticket="https://tracker.example/T-1", until=TODAY, cells=("swarm",))


def busy_nights() -> list[Night]:
    """Sixteen nights; the last has findings, a missed flaw, a cell without a run, and is slower."""
    cells = [cell(name, command=LONG) for name in NAMES[:4]]
    cells.append(cell("flawed", expect="found", flaw=("lose-writes",), rate=0.5, command=LONG))
    nights = []
    for day in range(15, 31):
        last = day == 30
        runs = [
            run(
                n, seed=100 * day + n, of=NAMES[n % 3], figures=RunFigures(p99_ms=(13 if last else 10) + n % 5, rate=90)
            )
            for n in range(36)
        ]
        flawed = [run(40 + n, *([] if last else [found("flaw")]), of="flawed") for n in range(12)]
        seen = [run(60, found(title=TITLE), of=NAMES[1]), run(61, found("known"), of="swarm")] if last else []
        nights.append(night([*runs, *flawed, *seen], cells, day))
    return nights


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, int], Any]:
    folder = tmp_path_factory.mktemp("pages")
    busy = busy_nights()
    accounts = {"busy": account_of(busy, [KNOWN], TODAY), "quiet": account_of([busy[0]], (), TODAY)}
    pages = {name: folder / f"{name}.html" for name in accounts}
    for name, told in accounts.items():
        pages[name].write_text(page_of(told))
    return measured_pages(pages, folder)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", ["busy", "quiet"])
def test_nothing_is_lost_sideways(name: str, width: int, measured: dict[tuple[str, int], Any]) -> None:
    page = measured[name, width]
    assert page["shown"] > width - 40 and page["whole"] <= page["shown"] and page["letters"] >= 14
    assert page["lost"] == [] and page["cut"] == [] and page["dangling"] == []
    assert all(page["pictures"]) and bool(page["pictures"]) is (name == "busy")
    assert page["head"] == ("1 new, 1 missed flaw" if name == "busy" else "Nothing new was found")
