"""What Chromium shows of reports, at the widths of a desk and of a telephone; skipped aloud where there is none."""

from __future__ import annotations

import html
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from sample_run import RUN, VERDICT, sample_run

from harness.history.rundir import RunDir
from results.report import build_report

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
SAVED = Path(__file__).parents[1] / "data" / "runs"
WIDTHS = (1400, 500)
GREEN = "rgb(31, 122, 77)"

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is here (Debian: apt-get install chromium)")

MEASURE = """
<script>
addEventListener("load", () => {
  const measured = [...document.querySelectorAll("iframe")].map(frame => {
    const page = frame.contentDocument, width = page.documentElement.clientWidth;
    page.querySelectorAll("details").forEach(e => { e.open = true; });
    const all = [...page.body.querySelectorAll("*")], style = e => frame.contentWindow.getComputedStyle(e);
    const scrolls = e => ["auto", "scroll"].includes(style(e).overflowX);
    const inside = e => { for (let p = e.parentElement; p; p = p.parentElement) if (scrolls(p)) return true; };
    const wide = [...page.querySelectorAll(".wide")].filter(e => e.scrollWidth > e.clientWidth);
    return {
      name: frame.title, shown: width, whole: page.documentElement.scrollWidth,
      lost: all.filter(e => !inside(e) && e.getBoundingClientRect().right > width + 1)
        .map(e => e.outerHTML.slice(0, 99)),
      cut: all.filter(e => style(e).overflowX == "hidden" && !e.closest("svg") && e.scrollWidth > e.clientWidth + 1)
        .map(e => e.outerHTML.slice(0, 99)),
      pictures: [...page.images].map(e => e.complete && e.naturalWidth > 0 && e.clientWidth > 200),
      dangling: [...page.querySelectorAll("a[href^='#']")].map(e => e.getAttribute("href").slice(1))
        .filter(id => !page.getElementById(id)),
      links: page.querySelectorAll("a[href^='#']").length,
      wide: wide.length, bars: wide.map(e => e.offsetHeight - e.clientHeight), hints: wide.map(e =>
        frame.contentWindow.getComputedStyle(e, "::before").content),
      badges: [...page.querySelectorAll(".badge")].map(e => style(e).backgroundColor),
      letters: parseFloat(style(page.body).fontSize), head: page.querySelector("h1").innerText,
    };
  });
  document.body.textContent = JSON.stringify(measured);
});
</script>"""


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
    """By run and width; all pages stand in frames of one, so that Chromium starts once."""
    folder = tmp_path_factory.mktemp("pages")
    pages = {
        name: build_report(SAVED / name, to=folder / f"{name}.html") for name in ("valid", "invalid", "unfinished")
    }
    pages["unknown"] = build_report(unknown_run(folder / "store").path)
    frames = [
        f'<iframe title="{name} {width}" width={width} height=3000 srcdoc="{html.escape(page.read_text())}"></iframe>'
        for name, page in pages.items()
        for width in WIDTHS
    ]
    whole = folder / "all.html"
    whole.write_text(f"<!DOCTYPE html><meta charset=utf-8><body>{''.join(frames)}{MEASURE}")
    command = [str(CHROMIUM), "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
    command += [f"--user-data-dir={folder}/profile", "--dump-dom", whole.as_uri()]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    body = shown[shown.index("<body>") + len("<body>") : shown.index("</body>")]
    told = {each["name"]: each for each in json.loads(html.unescape(body))}
    return {(name, width): told[f"{name} {width}"] for name in pages for width in WIDTHS}


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
