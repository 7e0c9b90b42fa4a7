"""The nodes' logs as a report links them: at the time of an anomaly, with the lines around it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import quote

from harness.errors import shortened
from harness.ports.sim.clock import EPOCH_NS
from results.markup import Markup, tag

LARGEST_BYTES: Final = 32 << 20
"""A longer log is linked as a whole."""

_BEFORE, _AFTER = 4, 8
"""Lines that are shown before and after a moment."""

_STAMP: Final = len("2023-11-14T22:13:20.000000+00:00")


ClockReadings: TypeAlias = Sequence[Sequence[tuple[float, float]]]
"""For each fault that set a node's clock, times of the history and how far it was ahead then, both in seconds."""


@dataclass(slots=True)
class NodeLogs:
    """Logs in `folder` as seen from a page in `page`; `zero_ns` is the wall time (ns) at which the history began, as
    far as that is known, and `clocks` how far the nodes' own were seen to be ahead of it."""

    folder: Path
    page: Path
    zero_ns: int | None
    clocks: Mapping[str, ClockReadings] = field(default_factory=dict)
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
        lines, stamps = self._log(node, path)
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

    def lines(self) -> list[tuple[int, str, str]]:
        """Every line with a time, of all nodes, in order of the history: when that was in it (ns), the node, and the
        line without its time."""
        try:
            nodes = sorted(path.name for path in self.folder.iterdir())
        except OSError:
            return []
        found = []
        for node, path in ((node, self._path(node)) for node in nodes):
            lines, stamps = ([], []) if path is None else self._log(node, path)
            if self._is_of_the_history(stamps):
                found += [(at_ns, node, lines[place][_STAMP:].strip()) for at_ns, place in stamps]
        return sorted(found, key=lambda line: line[0])

    def _log(self, node: str, path: Path) -> tuple[list[str], list[tuple[int, int]]]:
        """The lines, and of those with a time when that was in the history (ns) and their place."""
        if node not in self._read:
            lines, stamps = _stamped(path)
            walls_ns = [at_ns - (self.zero_ns or 0) for at_ns, _ in stamps]
            times_ns = times_of(walls_ns, self.clocks.get(node, ()))
            self._read[node] = lines, [(at, place) for at, (_, place) in zip(times_ns, stamps, strict=True)]
        return self._read[node]

    def _is_of_the_history(self, stamps: list[tuple[int, int]]) -> bool:
        return self.zero_ns is not None and bool(stamps) and stamps[-1][0] >= -_SET_UP_NS

    def _place(self, stamps: list[tuple[int, int]], time_ns: int) -> int | None:
        """The line that was the last by then; None where the log is not of that time."""
        before = [line for at_ns, line in stamps if at_ns <= time_ns] if self._is_of_the_history(stamps) else []
        return before[-1] if before else None


def times_of(walls_ns: Sequence[int], curves: ClockReadings) -> list[int]:
    """When (ns of the history) a clock showed these times, one after another, in the history's own time but for how far
    it was ahead. Between two readings that grew evenly; before the first and after the last of a fault it was not."""
    pieces, since_s = list[tuple[float, float, float, float]](), float("-inf")
    for curve in sorted(list(curve) for curve in curves if curve):
        pieces.append((since_s, 0.0, curve[0][0], 0.0))
        pieces += [(*a, *b) for a, b in pairwise(curve)]
        since_s = curve[-1][0]
    pieces.append((since_s, 0.0, float("inf"), 0.0))
    if len(pieces) == 1:
        return list(walls_ns)
    found, last_ns = list[int](), -(1 << 62)
    for wall_ns in walls_ns:
        shown = (_when(wall_ns / 1e9, piece) for piece in pieces)
        able = [round(at_s * 1e9) for at_s in shown if at_s is not None] or [wall_ns]
        last_ns = next((at_ns for at_ns in able if at_ns >= last_ns), max(able))
        found.append(last_ns)
    return found


def _when(wall_s: float, piece: tuple[float, float, float, float]) -> float | None:
    """When within the piece the clock showed this; None if it did not."""
    begin_s, ahead_s, end_s, then_s = piece
    first_s, last_s = begin_s + ahead_s, end_s + then_s
    if not first_s <= wall_s <= last_s:
        return None
    if ahead_s == then_s or last_s == first_s:
        return wall_s - ahead_s
    return begin_s + (wall_s - first_s) / (last_s - first_s) * (end_s - begin_s)


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
