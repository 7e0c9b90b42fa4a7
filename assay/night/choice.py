"""Which run comes next: pure, and told of all that began and ended, so that a night goes on as if it had not stopped.

In this order:

1. what is owed: runs that have a beginning and no end, since the night was killed;
2. twins: one simulated run in a hundred, the first among them, again under another hash seed;
3. of something new its seed again, and ten others of its cell;
4. fixed seeds, then the least number of runs of each cell, in turn;
5. of what the budget has left a fifth evenly, the rest to where new points of coverage come for the fewest CPU seconds.

The number of a run in its cell decides its seed. So which cell is next may depend on clocks, but never which run.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final, TypeAlias

from assay.night.records import CellRecord, NightHead, RunBegan, RunEnded, RunFinding

EVEN_SHARE: Final = 0.2
TWIN_EVERY: Final = 100
OTHERS: Final = 10
"""Seeds of a cell that are tried once something new was found in it."""
ATTEMPTS: Final = 3
RECENT_RUNS: Final = 20
"""Of a cell: those by which it is told how many points a CPU second brings."""


Known: TypeAlias = Callable[[RunFinding, CellRecord], bool]


def nothing_known(finding: RunFinding, cell: CellRecord) -> bool:
    """Where nobody has said what is known."""
    return False


def fresh_seed(night: str, cell: str, number: int) -> int:
    """The seed of a run: 63 bits, its own in every night."""
    return int.from_bytes(blake2b(f"{night} {cell} {number}".encode(), digest_size=8).digest()) >> 1


def fixed_seeds(cell: CellRecord) -> int:
    """How many fixed seeds a cell has."""
    return sum(last - first + 1 for first, last in cell.seeds)


def seed_of(night: str, cell: CellRecord, number: int) -> int:
    """The seed of the run of this number: fixed ones first."""
    left = number
    for first, last in cell.seeds:
        if left <= last - first:
            return first + left
        left -= last - first + 1
    return fresh_seed(night, cell.id, number)


@dataclass(frozen=True, slots=True)
class ChosenRun:
    """A run that is to be made; the fields are those of `RunBegan`."""

    run: int
    cell: CellRecord
    number: int
    seed: int
    attempt: int = 1
    twin: int | None = None
    retries: int | None = None


@dataclass(slots=True)
class _CellState:
    """What a cell did: its own `begun` runs, without twins and repetitions; how many are `wanted` for something new;
    the new points and CPU seconds of its `recent` runs, and the `families` that it found. `even_s` are CPU seconds that
    it got in its turn."""

    cell: CellRecord
    begun: int = 0
    wanted: int = 0
    even_s: float = 0.0
    recent: deque[tuple[int, float]] = field(default_factory=lambda: deque(maxlen=RECENT_RUNS))
    families: set[str] = field(default_factory=set)

    @property
    def is_full(self) -> bool:
        return self.cell.most is not None and self.begun >= self.cell.most

    @property
    def promise(self) -> float:
        """New points for a CPU second, of the last runs, by the cell's share; who found none is not without hope."""
        points = sum(found for found, _ in self.recent) + 0.5
        return self.cell.share * points / max(sum(spent for _, spent in self.recent), 0.1)


class Chooser:
    """The choice of a night's runs. `known` says of a finding in a cell that it is nothing new; without `repeats` no
    run is made twice, and nothing that was found changes what is next."""

    def __init__(self, head: NightHead, known: Known = nothing_known, repeats: bool = True) -> None:
        self._head, self._repeats = head, repeats
        self._states = {cell.id: _CellState(cell) for cell in head.cells}
        self._known = known
        self._owed: deque[ChosenRun] = deque()
        self._again: deque[ChosenRun] = deque()
        self._twins: deque[tuple[CellRecord, int, int, int]] = deque()
        self._simulated = 0
        self._points: set[str] = set()
        self.begun = 0
        """Runs that were chosen: the number of the next one."""
        self.cpu_s = 0.0
        self._led_s = 0.0
        self.words: Counter[str] = Counter()

    # ---- what happened ----

    def recall(self, runs: Sequence[RunEnded], begun: Iterable[RunBegan]) -> tuple[RunBegan, ...]:
        """Take in what a night did before it stopped; returns the runs that are given up, after ATTEMPTS."""
        given_up = []
        owed = sorted(begun, key=lambda each: each.run)
        both: list[RunBegan | RunEnded] = [*runs, *owed]
        for one in both:
            self.begun = max(self.begun, one.run + 1)
            if one.twin is None and one.retries is None:
                self._states[one.cell].begun += 1
        for ended in runs:
            self.ended(ended)
        begun_for = {(each.twin, each.retries) for each in both}
        self._twins = deque(each for each in self._twins if (each[1], None) not in begun_for)
        self._again = deque(each for each in self._again if (None, each.retries) not in begun_for)
        for each in owed:
            if each.attempt >= ATTEMPTS:
                given_up.append(each)
                continue
            cell = self._head.cell(each.cell)
            again = ChosenRun(each.run, cell, each.number, each.seed, each.attempt + 1, each.twin, each.retries)
            self._owed.append(again)
        return tuple(given_up)

    def new_points(self, points: Iterable[str]) -> tuple[str, ...]:
        """Which of these points no run of this night came to before."""
        return tuple(sorted(set(points) - self._points))

    def ended(self, run: RunEnded) -> bool:
        """Take in what came of a run; whether it found something new."""
        state = self._states[run.cell]
        self.words[run.word] += 1
        self.cpu_s += run.cpu_s
        state.recent.append((len(run.points), run.cpu_s))
        self._points |= set(run.points)
        if self._repeats and run.twin is None and run.trace is not None:
            self._want_twin(state.cell, run)
        return self._take_findings(state, run)

    def _want_twin(self, cell: CellRecord, run: RunEnded) -> None:
        self._simulated += 1
        if self._simulated % TWIN_EVERY == 1:
            self._twins.append((cell, run.run, run.number, run.seed))

    def _take_findings(self, state: _CellState, run: RunEnded) -> bool:
        found = [each for each in run.findings if each.kind != "harness" and each.family not in state.families]
        expected = state.cell.expect == "found" and not state.families
        state.families |= {each.family for each in found}
        if expected or all(self._known(each, state.cell) for each in found):
            return False
        if not self._repeats:
            return True
        self._again.append(ChosenRun(-1, state.cell, run.number, run.seed, retries=run.run))
        state.wanted = max(state.wanted, state.begun + OTHERS)
        return True

    # ---- what is next ----

    def next_owed(self) -> ChosenRun | None:
        """The next run that is owed, whatever the budget says: a night makes all that it has begun."""
        return self._owed.popleft() if self._owed else None

    def next(self, most_runs: float = float("inf")) -> ChosenRun | None:
        """The next run, which has begun when this returns; None where there is none for now, or at all."""
        if self._owed:
            return self.next_owed()
        if self.begun >= most_runs:
            return None
        if self._twins:
            cell, run, number, seed = self._twins.popleft()
            return self._numbered(ChosenRun(-1, cell, number, seed, twin=run))
        if self._again:
            return self._numbered(self._again.popleft())
        state = self._next_state()
        if state is None:
            return None
        number, state.begun = state.begun, state.begun + 1
        return self._numbered(ChosenRun(-1, state.cell, number, seed_of(self._head.id, state.cell, number)))

    def _numbered(self, choice: ChosenRun) -> ChosenRun:
        run, self.begun = self.begun, self.begun + 1
        return ChosenRun(run, choice.cell, choice.number, choice.seed, choice.attempt, choice.twin, choice.retries)

    def _next_state(self) -> _CellState | None:
        open_ = [state for state in self._states.values() if not state.is_full]
        for bounds in (
            {id: state.wanted for id, state in self._states.items()},
            {id: fixed_seeds(state.cell) for id, state in self._states.items()},
            {id: state.cell.least for id, state in self._states.items()},
        ):
            if short := [state for state in open_ if state.begun < bounds[state.cell.id]]:
                return min(short, key=lambda state: state.begun)
        if not open_:
            return None
        even_s = sum(state.even_s for state in self._states.values())
        if even_s <= EVEN_SHARE * (even_s + self._led_s):
            chosen = min(open_, key=lambda state: state.even_s / state.cell.share)
            chosen.even_s += self._cost_s(chosen)
            return chosen
        chosen = max(open_, key=lambda state: state.promise)
        self._led_s += self._cost_s(chosen)
        return chosen

    @staticmethod
    def _cost_s(state: _CellState) -> float:
        """CPU seconds that a run of the cell is thought to take."""
        spent = [spent for _, spent in state.recent]
        return sum(spent) / len(spent) if spent else 1.0
