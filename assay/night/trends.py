"""Trends: what nights measured, cell by cell, and what has changed.

    nights ─> series (cell × figure) ─┬─> steps: the last nights against those before ─> false discoveries ─> changes
                                      └─> long view: where the whole series changes its level

The runs of a night share its machine, and what else went on there: a figure of the wall clock counts once a night, by
its median, beside nights of the same machine. A figure in virtual time has the noise of its seeds and no other; its
runs count one by one, against each other where both nights ran the same seeds, else by their ranks. Of all series of a
night at most one discovery in twenty is false (Benjamini and Hochberg); and since every night is another look at the
same series, a change has to be as improbable as `ALARM_RUNS` or `ALARM_NIGHTS` by itself. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import expm1, log, sqrt
from statistics import median
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from assay.night.rates import discoveries
from assay.night.records import CellRecord, Night, RunEnded
from assay.night.triage import adequate

Floats = npt.NDArray[np.float64]

BEFORE: Final = 5
"""How many nights before the last one its runs in virtual time are set against."""

RECENT: Final = 4
"""How many nights together are set against all before: four that are all beyond nineteen others come by chance once in
four thousand times."""

ALARM_RUNS: Final = 0.001
ALARM_NIGHTS: Final = 0.003
"""How improbable a change of runs in virtual time, or of nights by the wall clock, has to be by itself: over thirty
mornings one series of twenty-five alarms for nothing, since tests of two nights on end share most of them."""

LEAST_WALL_NIGHTS: Final = 13
"""Of fewer nights, RECENT among them, no order is as improbable as ALARM_NIGHTS."""

LEAST_SIZE: Final = 0.03
"""A change by less is told in no night: nobody would do anything about it."""

LEAST_RUNS: Final = 5
_Z: Final = 1.959964

FIGURES: Final[Mapping[str, tuple[Callable[[RunEnded], float | None], bool, int]]] = {
    "rate": (lambda run: run.figures.rate, True, -1),
    "p50-ms": (lambda run: run.figures.p50_ms, True, 1),
    "p99-ms": (lambda run: run.figures.p99_ms, True, 1),
    "checker-s": (lambda run: run.figures.checker_s, False, 1),
    "checker-mb": (lambda run: run.figures.checker_mb, False, 1),
    "cpu-per-1000": (lambda run: run.figures.cpu_per_1000, False, 1),
}
"""Figures of a run: how to read it, whether it is virtual time in the simulator, and 1 where more is worse."""

_SHARES: Final[Mapping[str, tuple[Callable[[Sequence[RunEnded]], float], int]]] = {
    "unknown-share": (lambda runs: sum(run.word not in ("valid", "invalid") for run in runs) / len(runs), 1),
    "vacuous-share": (lambda runs: sum(run.vacuous for run in runs) / len(runs), 1),
    "coverage": (lambda runs: float(sum(len(run.points) for run in runs)), -1),
}
"""Figures of a night: shares of its runs, and the points of coverage that the cell was the first to come to."""


class NightValue(NamedTuple):
    """What a night gave a series: the runs' values by seed (one value without, of a night's figure)."""

    night: Night
    values: Mapping[int, float]

    @property
    def middle(self) -> float:
        return median(self.values.values())


class FigureSeries(NamedTuple):
    """A figure of a cell over nights, the oldest first; `sign` is 1 where more is worse, `virtual` says that runs may
    be compared one by one."""

    cell: str
    figure: str
    virtual: bool
    sign: int
    nights: tuple[NightValue, ...]

    @property
    def name(self) -> str:
        return f"{self.cell} {self.figure}"

    @property
    def middles(self) -> Floats:
        return np.array([each.middle for each in self.nights])


class FigureChange(NamedTuple):
    """A series that changed with the night `since`: by so much (0.2: 20 % more) with its interval, 95 %, and between
    which commits; `p` is how improbable that is without a change."""

    series: FigureSeries
    since: Night
    before: Night
    size: float
    low: float
    high: float
    p: float

    @property
    def name(self) -> str:
        return self.series.name

    @property
    def worse_by(self) -> float:
        return self.size * self.series.sign

    @property
    def sentence(self) -> str:
        """Such as `register p99-ms: +21.0 % (+15.2 to +26.4 %) since 20261129T…, commits 1f00… to 2e11…`."""
        commits = " to ".join(str(night.head.commit)[:12] for night in (self.before, self.since))
        span = f"{100 * self.low:+.1f} to {100 * self.high:+.1f} %"
        return f"{self.name}: {100 * self.size:+.1f} % ({span}) since {self.since.head.id}, commits {commits}"


# ---- series ----


NightValues: TypeAlias = Mapping[str, Mapping[str, NightValue]]
"""What a night gave, by the cell's id and the figure's name."""

_RECOVERY: Final = "recovery-s "


def values_of(night: Night) -> NightValues:
    """All that a night gives to series."""
    by_cell: dict[str, list[RunEnded]] = {}
    for run in night.runs:
        if run.twin is None:
            by_cell.setdefault(run.cell, []).append(run)
    return {cell: dict(_values(night, runs)) for cell, runs in by_cell.items()}


def _values(night: Night, runs: Sequence[RunEnded]) -> Iterator[tuple[str, NightValue]]:
    counted = [run for run in runs if adequate(run)]
    kinds = dict.fromkeys(kind for run in counted for kind in run.figures.recovery_s)
    readers = {name: read for name, (read, _, _) in FIGURES.items()}
    readers |= {f"{_RECOVERY}{kind}": recovery_of(kind) for kind in kinds}
    for name, read in readers.items():
        if values := {run.seed: value for run in counted if (value := read(run)) is not None}:
            yield name, NightValue(night, values)
    for name, (share, _) in _SHARES.items():
        yield name, NightValue(night, {0: share(runs)})


def series_of(nights: Sequence[Night], values: Sequence[NightValues] = ()) -> tuple[FigureSeries, ...]:
    """All series of the cells of the last night, over the nights that had the same cells; of figures of the wall clock
    over those of its machine. `values` are those of the nights, where somebody has them."""
    last, by_night = nights[-1], values or [values_of(night) for night in nights]
    same = [each for night, each in zip(nights, by_night, strict=True) if night.head.machine == last.head.machine]
    found = []
    for cell in last.head.cells:
        simulated = cell.options.get("on", "sim") == "sim"
        for name, (in_run_time, sign) in _figures_of(cell, by_night).items():
            virtual = in_run_time and simulated
            mine = (each.get(cell.id, {}).get(name) for each in (by_night if virtual else same))
            found.append(FigureSeries(cell.name, name, virtual, sign, tuple(each for each in mine if each)))
    return tuple(found)


def _figures_of(cell: CellRecord, by_night: Sequence[NightValues]) -> dict[str, tuple[bool, int]]:
    """The figures of a cell: whether each is of the run's own time, and 1 where more is worse."""
    names = {name for each in by_night for name in each.get(cell.id, {}) if name.startswith(_RECOVERY)}
    figures = {name: (in_run_time, sign) for name, (_, in_run_time, sign) in FIGURES.items()}
    recoveries = dict.fromkeys(sorted(names), (True, 1))
    return figures | recoveries | {name: (False, sign) for name, (_, sign) in _SHARES.items()}


def recovery_of(kind: str) -> Callable[[RunEnded], float | None]:
    """Reads a run's recovery from a kind of fault."""
    return lambda run: run.figures.recovery_s.get(kind)


# ---- changes ----


def changes_of(nights: Sequence[Night], values: Sequence[NightValues] = ()) -> tuple[FigureChange, ...]:
    """What changed by the last of these nights, the largest first; see `series_of`."""
    return changed(series_of(nights, values), nights[-1])


def changed(series: Iterable[FigureSeries], last: Night) -> tuple[FigureChange, ...]:
    """Of these series those that are different now, as many at once as may be believed."""
    tested = [step for each in series if each.nights and each.nights[-1].night is last if (step := _step(each))]
    p_values = [step.p for step in tested]
    believed = [
        step
        for step, p, holds in zip(tested, p_values, discoveries(p_values), strict=True)
        if holds and p <= (ALARM_RUNS if step.series.virtual else ALARM_NIGHTS)
    ]
    changes = [
        FigureChange(
            step.series, step.since.night, step.before.night, *size_of(step.first, step.second, step.paired), step.p
        )
        for step in believed
    ]
    return tuple(sorted((c for c in changes if abs(c.size) >= LEAST_SIZE), key=lambda change: -abs(change.size)))


class _RankStep(NamedTuple):
    """Values of a series before and from a night on, paired or not."""

    series: FigureSeries
    before: NightValue
    since: NightValue
    first: Floats
    second: Floats
    paired: bool = False

    @property
    def p(self) -> float:
        """How probable so different ranks are where nothing has changed."""
        if not self.paired and _is_even(self.first, self.second):
            return 1.0
        from scipy.stats import mannwhitneyu, wilcoxon

        if self.paired:
            same = np.array_equal(self.first, self.second)
            return 1.0 if same else float(wilcoxon(self.second, self.first).pvalue)
        return float(mannwhitneyu(self.second, self.first, alternative="two-sided").pvalue)


def _is_even(first: Floats, second: Floats) -> bool:
    """Whether ranks are so even (below 1.5 deviations) that no test would be worth its time: of a night nearly all."""
    m, n = len(first), len(second)
    above = np.count_nonzero(second[:, None] > first) + np.count_nonzero(second[:, None] == first) / 2
    return bool(abs(above - m * n / 2) < 1.5 * sqrt(m * n * (m + n + 1) / 12))


def _step(series: FigureSeries) -> _RankStep | None:
    """The last nights of a series and those before; None where there are too few."""
    if len(series.nights) < (2 if series.virtual else LEAST_WALL_NIGHTS):
        return None
    if series.virtual:
        return _of_runs(series, series.nights[-1 - BEFORE : -1], series.nights[-1])
    before, after = series.nights[:-RECENT], series.nights[-RECENT:]
    return _RankStep(series, before[-1], after[0], series.middles[:-RECENT], series.middles[-RECENT:])


def _of_runs(series: FigureSeries, before: Sequence[NightValue], after: NightValue) -> _RankStep | None:
    """Runs of the last night and of nights before: pairs of equal seeds, where these are most of them."""
    shared = [seed for seed in after.values if seed in before[-1].values]
    if len(shared) >= LEAST_RUNS and 2 * len(shared) >= len(after.values):
        first = np.array([before[-1].values[seed] for seed in shared])
        second = np.array([after.values[seed] for seed in shared])
        return _RankStep(series, before[-1], after, first, second, paired=True)
    first = np.concatenate([np.array(list(each.values.values())) for each in before])
    second = np.array(list(after.values.values()))
    enough = min(len(first), len(second)) >= LEAST_RUNS
    return _RankStep(series, before[-1], after, first, second) if enough else None


def size_of(first: Floats, second: Floats, paired: bool = False) -> tuple[float, float, float]:
    """By how much the second values are larger, as a share, with its interval, 95 %: the median of all quotients (of
    pairs: of their means, Hodges and Lehmann, 1963), or of differences by the first median where a value is not above
    0; all 0 where that is 0 too."""
    positive = min(first.min(), second.min()) > 0
    scale = 1.0 if positive else abs(float(np.median(first))) or float(np.abs(first).max()) or 1.0
    x, y = (np.log(first), np.log(second)) if positive else (first / scale, second / scale)
    if paired:
        d = y - x
        i, j = np.triu_indices(len(d))
        shifts, n = np.sort((d[i] + d[j]) / 2), len(d)
        spread = sqrt(n * (n + 1) * (2 * n + 1) / 24)
    else:
        shifts = np.sort((y[:, None] - x[None, :]).ravel())
        spread = sqrt(len(x) * len(y) * (len(x) + len(y) + 1) / 12)
    edge = max(0, int(len(shifts) / 2 - _Z * spread))
    told = (float(np.median(shifts)), float(shifts[edge]), float(shifts[-1 - edge]))
    size, low, high = (expm1(each) for each in told) if positive else told
    return size, low, high


# ---- the long view ----


class Level(NamedTuple):
    """A stretch of a series on one level: its nights are `begin` to `end` (exclusive), `middle` is their median."""

    begin: int
    end: int
    middle: float


LONG: Final = 10
"""Fewer nights are no long view."""


def levels_of(series: FigureSeries) -> tuple[Level, ...]:
    """The levels of a series, one after another: where its middles change for good (PELT, Killick et al. 2012); one
    level where it is short, or never does."""
    middles = series.middles
    if len(middles) < LONG:
        return (Level(0, len(middles), float(np.median(middles))),) if len(middles) else ()
    import ruptures

    values = np.log(middles) if middles.min() > 0 else middles
    noise = float(np.median(np.abs(np.diff(values)))) / 0.954 or 1e-9
    penalty = 3.0 * log(len(values))
    ends = ruptures.Pelt(model="l2", min_size=RECENT, jump=1).fit(values / noise).predict(pen=2 * penalty)
    begins = [0, *ends[:-1]]
    return tuple(Level(b, e, float(np.median(middles[b:e]))) for b, e in zip(begins, ends, strict=True))
