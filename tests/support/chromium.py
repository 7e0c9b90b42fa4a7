"""What Chromium shows of pages, measured: what is cut off, lost sideways, or leads nowhere."""

from __future__ import annotations

import html
import json
import shutil
import subprocess
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
WIDTHS = (1400, 500)
"""Pixels of a desk's screen and, as narrow as a window of Chromium can be, of a telephone's."""

needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is here (Debian: apt-get install chromium)")

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


def measured_pages(pages: Mapping[str, Path], folder: Path) -> dict[tuple[str, int], Any]:
    """By page and width; all pages stand in frames of one in the folder, so that Chromium starts once."""
    frames = [
        f'<iframe title="{name} {width}" width={width} height=3000 srcdoc="{html.escape(page.read_text())}"></iframe>'
        for name, page in pages.items()
        for width in WIDTHS
    ]
    whole = folder / "all.html"
    whole.write_text(f"<!DOCTYPE html><meta charset=utf-8><body>{''.join(frames)}{MEASURE}")
    command = [*headless(folder), "--dump-dom", whole.as_uri()]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    body = shown[shown.index("<body>") + len("<body>") : shown.index("</body>")]
    told = {each["name"]: each for each in json.loads(html.unescape(body))}
    return {(name, width): told[f"{name} {width}"] for name in pages for width in WIDTHS}


def headless(folder: Path) -> list[str]:
    """Chromium without a window, with a profile in the folder."""
    options = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run")
    return [str(CHROMIUM), *options, f"--user-data-dir={folder}/profile"]


def answer_of(page: Path, script: str, folder: Path, width: int = 1400) -> Any:
    """What a script comes to in the page, a body of an async function that may wait for what the page loads."""
    answers: list[bytes] = []

    class Answers(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            answers.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *words: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Answers) as server:
        server.timeout = 60.0
        told = f"body => fetch('http://127.0.0.1:{server.server_port}/', {{method: 'POST', mode: 'no-cors', body}})"
        asked = page.with_name(f"asked-{page.name}")
        question = f"(async () => {{ {script} }})().catch(error => 'failed: ' + error.stack)"
        tail = f"<script>{question}.then(JSON.stringify).then({told})</script></body>"
        asked.write_text(page.read_text().replace("</body>", tail))
        shown = subprocess.Popen(
            [*headless(folder), f"--window-size={width},1200", asked.as_uri()],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            server.handle_request()
        finally:
            shown.terminate()
            shown.wait()
            asked.unlink()
    return json.loads(answers[0])
