"""The frame of every page that we write: one HTML file that opens without a network."""

from __future__ import annotations

from pathlib import Path
from string import Template

from results.markup import Markup, text

PAGE = Path(__file__).parent / "page.html"


def page(title: str, body: Markup) -> str:
    """A whole HTML document with our style sheet."""
    return Template(PAGE.read_text(encoding="utf-8")).substitute(title=text(title), body=body)
