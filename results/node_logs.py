"""The nodes' logs as a report links them: at the time of an anomaly, with the lines around it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from harness.errors import shortened
from harness.ports.sim.clock import EPOCH_NS
from results.markup import Markup, tag

LARGEST_BYTES: Final = 32 << 20
"""A longer log is linked as a whole."""

_BEFORE, _AFTER = 4, 8
"""Lines that are shown before and after a moment."""

_STAMP: Final = len("2023-11-14T22:13:20.000000+00:00")


@dataclass(slots=True)
class NodeLogs:
    """Logs in `folder` as seen from a page in `page`; `zero_ns` is the wall time (ns) at which the history began, as
    far as that is known: the nodes' own clocks may be off it."""

    folder: Path
    page: Path
    zero_ns: int | None
    _read: dict[str, tuple[list[str], list[tuple[int, int]]]] = field(default_factory=dict)

    def at(self, nodes: Iterable[object], time_ns: int) -> Markup | None:
        """Where these nodes' logs tell of a moment of the history; None where there are none."""
        named = [str(node) for node in dict.fromkeys(nodes) if node]
        found = [(node, path) for node in named if (path := self._path(node)) is not None]
        links = [self._linked(node, path, time_ns) for node, path in found]
        words = tag("span", "Node logs at that time: ", class_="quiet")
        return tag("div", words, *links, class_="logs") if links else None

    def _path(self, node: str) -> Path | None:
        if "/" in node or node in (".", "..") or "\0" in node:
            return None
        try:
            return next((path for path in sorted((self.folder / node).glob("*.log")) if path.is_file()), None)
        except OSError:
            return None

    def _linked(self, node: str, path: Path, time_ns: int) -> Markup:
        href = quote(os.path.relpath(path.resolve(), self.page.resolve()))
        lines, stamps = self._read.setdefault(node, _stamped(path))
        place = self._place(stamps, time_ns)
        if place is None:
            return tag("a", node, href=href)
        first, last = max(place - _BEFORE, 0), place + _AFTER
        excerpt = "\n".join(shortened(line) for line in lines[first:last])
        fragment = quote(lines[place][:_STAMP], safe="").replace("-", "%2D")
        return tag(
            "details",
            tag("summary", f"{node}, line {place + 1:,}"),
            tag("pre", excerpt),
            tag("a", f"all of {path.name}", href=f"{href}#:~:text={fragment}"),
        )

    def _place(self, stamps: list[tuple[int, int]], time_ns: int) -> int | None:
        """The line that was the last by then; None where the log is not of that time."""
        if self.zero_ns is None or not stamps or stamps[-1][0] < self.zero_ns - _SET_UP_NS:
            return None
        wall_ns = self.zero_ns + time_ns
        before = [line for at_ns, line in stamps if at_ns <= wall_ns]
        return before[-1] if before else None


_SET_UP_NS: Final = 900 * 10**9
"""Logs may begin so long before the history."""


def _stamped(path: Path) -> tuple[list[str], list[tuple[int, int]]]:
    """The lines, and of those with a time that time (ns since 1970) and their place."""
    if path.stat().st_size > LARGEST_BYTES:
        return [], []
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    stamps = []
    for place, line in enumerate(lines):
        at = time_of(line[:_STAMP])
        if at is not None and at.tzinfo is not None:
            stamps.append((round(at.timestamp() * 1e6) * 1_000, place))
    return lines, stamps


def time_of(text: object) -> datetime | None:
    """A moment as ISO 8601, None for what is none."""
    try:
        return datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        return None


def wall_zero_ns(run: Mapping[str, Any], outcome: Mapping[str, Any]) -> int | None:
    """The wall time (ns since 1970) at which a run's history began; of a simulated one virtual time."""
    start_ns = outcome.get("history_start_ns")
    if not isinstance(start_ns, int):
        return None
    if run.get("environment") == "sim":
        return EPOCH_NS + start_ns
    started = time_of(run.get("started"))
    if started is None:
        return None
    return round((started if started.tzinfo else started.replace(tzinfo=UTC)).timestamp() * 1e9) + start_ns
