"""HTML by construction: everything that is not already markup is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from string import Template


class Markup(str):
    """A string that is HTML already; only the functions of this module make it."""

    __slots__ = ()


def text(value: object) -> Markup:
    """A value as escaped text; markup stays as it is."""
    return value if isinstance(value, Markup) else Markup(escape(str(value)))


def tag(name: str, *children: object, **attributes: object) -> Markup:
    """An element; children are escaped unless they are markup, `class_` stands for `class`, None leaves one out."""
    shown = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{name}{shown}>{join(children)}</{name}>")


def void(name: str, **attributes: object) -> Markup:
    """An element without content, such as `img`."""
    return Markup(tag(name, **attributes).removesuffix(f"</{name}>"))


def join(children: Iterable[object]) -> Markup:
    """Children one after another; None is nothing."""
    return Markup("".join(text(child) for child in children if child is not None))


def table(header: Sequence[object], rows: Sequence[Sequence[object]], class_: str | None = None) -> Markup:
    """A table; columns of numbers are aligned as such."""
    numeric = [bool(rows) and all(_is_number(row[i]) for row in rows) for i in range(len(header))]
    style = ["number" if number else None for number in numeric]
    head = tag("tr", *(tag("th", title, class_=style[i]) for i, title in enumerate(header)))
    body = [tag("tr", *(tag("td", _shown(value), class_=style[i]) for i, value in enumerate(row))) for row in rows]
    return tag("div", tag("table", tag("thead", head), tag("tbody", *body), class_=class_), class_="scroll")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _shown(value: object) -> object:
    if value is None:
        return ""
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else value


def listing(items: Iterable[object]) -> Markup:
    """A bulleted list."""
    return tag("ul", *(tag("li", item) for item in items))


def parse_markup(source: str) -> Markup:
    """Markup written by hand in this project (style sheets, templates); never for anything read from a run."""
    return Markup(source)


PAGE = Path(__file__).parent / "page.html"


def page(title: str, body: Markup) -> str:
    """A whole HTML document with our style sheet."""
    return Template(PAGE.read_text(encoding="utf-8")).substitute(title=text(title), body=body)
