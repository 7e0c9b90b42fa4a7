"""`assay compare`: what is different between two runs, two nights, or the nights of two commits.

Each side is a list of cells with their runs; a run alone is a cell of one run. Cells meet by name, or where each side
has one only. What is compared is told with intervals: rates by Wilson's, figures by Hodges and Lehmann's estimate of
their quotient over runs. An interval that has 0 in it tells of no difference. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from assay.night.rates import in_words, interval
from assay.night.records import CellRecord, Night, RunEnded
from assay.night.trends import FIGURES, LEAST_RUNS, recovery_of, size_of

_IGNORED: Final = frozenset({"seed", "store"})


class SideCell(NamedTuple):
    """A cell of a side: its options, the worlds that were drawn or told (where they are known), and its runs."""

    name: str
    options: Mapping[str, Any]
    world: Mapping[str, Any]
    runs: Sequence[RunEnded]


class Side(NamedTuple):
    """What is compared, by its name."""

    name: str
    cells: Mapping[str, SideCell]


class ComparedFact(NamedTuple):
    """One line: a cell, what of it, both values, and how they differ ("" where that is for the eye)."""

    cell: str
    what: str
    first: str
    second: str
    change: str = ""


def side_of_nights(name: str, nights: Sequence[Night]) -> Side:
    """Nights together; a cell of several nights has the runs of all."""
    runs: dict[str, list[RunEnded]] = {}
    cells: dict[str, CellRecord] = {}
    for night in nights:
        names = {cell.id: cell.name for cell in night.head.cells}
        cells |= {cell.name: cell for cell in night.head.cells}
        for run in night.runs:
            if run.twin is None:
                runs.setdefault(names[run.cell], []).append(run)
    return Side(name, {each: SideCell(each, cell.options, {}, runs.get(each, ())) for each, cell in cells.items()})


def differences(first: Side, second: Side) -> Iterator[ComparedFact]:
    """All that differs, cell by cell; rates, figures and findings stand there in any case."""
    for name, a, b in _pairs(first, second):
        if a is None or b is None:
            yield ComparedFact(
                name, "cell", "there" if a else "absent", "there" if b else "absent", "only one side has it"
            )
            continue
        yield from _of_options(name, "option", a.options, b.options)
        yield from _of_options(name, "world", a.world, b.world)
        yield from _of_rates(name, a.runs, b.runs)
        yield from _of_figures(name, a.runs, b.runs)
        yield from _of_faults(name, a.runs, b.runs)
        titles = {each.family: each.title for run in (*a.runs, *b.runs) for each in run.findings}
        yield from _of_sets(name, "finding", _findings(a.runs), _findings(b.runs), titles)
        yield from _of_sets(name, "coverage", _points(a.runs), _points(b.runs), {})


def _pairs(first: Side, second: Side) -> Iterator[tuple[str, SideCell | None, SideCell | None]]:
    if len(first.cells) == len(second.cells) == 1:
        (a,), (b,) = first.cells.values(), second.cells.values()
        yield a.name, a, b
        return
    for name in dict.fromkeys([*first.cells, *second.cells]):
        yield name, first.cells.get(name), second.cells.get(name)


def _of_options(cell: str, what: str, a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[ComparedFact]:
    for key in dict.fromkeys([*a, *b]):
        if key not in _IGNORED and a.get(key) != b.get(key):
            yield ComparedFact(cell, f"{what} {key}", str(a.get(key, "")), str(b.get(key, "")))


def _of_rates(cell: str, a: Sequence[RunEnded], b: Sequence[RunEnded]) -> Iterator[ComparedFact]:
    for what, counts in (
        ("invalid", lambda run: run.word == "invalid"),
        ("undecided", lambda run: run.word not in ("valid", "invalid")),
        ("vacuous", lambda run: run.vacuous),
    ):
        x, y = sum(map(counts, a)), sum(map(counts, b))
        (low, high), (other_low, other_high) = interval(x, len(a)), interval(y, len(b))
        apart = bool(a and b) and (high < other_low or other_high < low)
        yield ComparedFact(cell, what, in_words(x, len(a)), in_words(y, len(b)), "differs" if apart else "")


def _of_figures(cell: str, a: Sequence[RunEnded], b: Sequence[RunEnded]) -> Iterator[ComparedFact]:
    kinds = sorted({kind for run in (*a, *b) for kind in run.figures.recovery_s})
    readers = {name: read for name, (read, _, _) in FIGURES.items()}
    readers |= {f"recovery-s {kind}": recovery_of(kind) for kind in kinds}
    for name, read in readers.items():
        x, y = _values(map(read, a)), _values(map(read, b))
        if len(x) and len(y):
            yield ComparedFact(cell, name, f"{np.median(x):.4g}", f"{np.median(y):.4g}", _size(x, y))


def _values(told: Iterable[float | None]) -> Any:
    return np.array([value for value in told if value is not None])


def _size(x: Any, y: Any) -> str:
    if min(len(x), len(y)) < LEAST_RUNS:
        return (
            f"{100 * (np.median(y) / np.median(x) - 1):+.1f} %, of too few runs for an interval" if np.median(x) else ""
        )
    size, low, high = size_of(x, y)
    return f"{100 * size:+.1f} % ({100 * low:+.1f} to {100 * high:+.1f} %, 95 %)"


def _of_faults(cell: str, a: Sequence[RunEnded], b: Sequence[RunEnded]) -> Iterator[ComparedFact]:
    x, y = _faults(a), _faults(b)
    for kind in sorted({*x, *y}):
        if (one := x.get(kind)) != (other := y.get(kind)):
            yield ComparedFact(cell, f"fault {kind}", one or "none", other or "none")


def _faults(runs: Iterable[RunEnded]) -> dict[str, str]:
    asked, seen = Counter[str](), Counter[str]()
    for run in runs:
        for kind, told in run.faults.items():
            asked[kind] += told.asked
            seen[kind] += told.seen
    return {kind: f"{seen[kind]} of {asked[kind]} seen" for kind in asked}


def _findings(runs: Iterable[RunEnded]) -> Counter[str]:
    return Counter(each.family for run in runs for each in run.findings)


def _points(runs: Iterable[RunEnded]) -> Counter[str]:
    return Counter(point for run in runs for point in run.points)


def _of_sets(
    cell: str, what: str, a: Mapping[str, int], b: Mapping[str, int], titles: Mapping[str, str]
) -> Iterator[ComparedFact]:
    """What one side alone has, and of findings how often each was seen."""
    for name in sorted({*a, *b}):
        alone = not (a.get(name) and b.get(name))
        if alone or name in titles:
            told = f"{what} {name} {titles.get(name, '')}".rstrip()
            yield ComparedFact(cell, told, str(a.get(name, 0)), str(b.get(name, 0)), "only one side has it" * alone)
