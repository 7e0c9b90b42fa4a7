"""`assay shrink RUN` of a run in real time: fewer kinds of faults, fewer faults and less time, at the same hit rate.

    faults of the history ─> hit rate of the whole ─> kinds, end, faults, gaps (smaller_inputs) ─> hit rate of the
                             smallest; each candidate: runs until its rate holds, or does not (rates)

Nothing decides in real time what becomes of a run, so that one run says little of a candidate. Faults come at their
times and choose whom they hit as ever; operations follow from the seed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

from assay.check_command import EXIT_CODES
from assay.progress import working
from assay.reproduce.candidates import (
    INPUTS_FOLDER,
    CandidateRuns,
    SearchResult,
    ShrinkRunRequest,
    candidates_of,
    fault_words,
    save_answer,
    save_shrunk,
    saved_answers,
    size_words,
)
from assay.reproduce.inputs import Inputs, inputs_in_real_time, save_inputs
from assay.reproduce.rates import NONE, Hits, holds
from assay.reproduce.reduction import OutOfTime, Pass, Trials, reduced
from assay.reproduce.saved_run import SavedRun
from assay.reproduce.smaller_inputs import by_end, by_faults, by_gaps, by_kinds, explicit, size_of
from assay.runner import warm
from assay.telling import Teller
from harness.errors import UserError
from harness.run.provenance import provenance
from harness.run.stopping import AskedToEnd
from results.words import count

ENOUGH_HITS: Final = 3
MOST_RUNS: Final = 8
"""The whole and the smallest are run until one of both, for their rates."""

SIZES: Final = ("faults", "nodes", "seconds")
"""Of all sizes of inputs those that say something of a run in real time."""

Shows: TypeAlias = Callable[[Inputs], bool | None]
"""Makes a run and says whether it shows the finding; None if nobody can tell."""


class RateAnswer(msgspec.Struct, frozen=True):
    """What runs of a candidate came to, by the digest of its inputs."""

    name: str
    hits: int
    runs: int


@dataclass
class RateSearch:
    """Looks for the smallest inputs with the hit rate of the whole. `before` are the hits of the whole, `after` those
    of the smallest, in runs of their own."""

    shows: Shows
    to: Path
    budget_s: float
    before: Hits = NONE
    after: Hits = NONE
    smallest: bool = False

    def __post_init__(self) -> None:
        self.trials: Trials[Inputs] = Trials(self._breaks, Inputs.digest, self.budget_s)
        self._answers = {each.name: Hits(each.hits, each.runs) for each in saved_answers(self.to, RateAnswer)}

    def run(self, whole: Inputs, hint_s: float | None) -> Inputs | None:
        """The smallest that was found; None if the finding did not show in the whole. Ends early, with the best so far,
        at a wish to end and when its time is over."""
        passes: list[Pass[Inputs]] = [by_kinds, by_faults, by_gaps]
        passes.insert(1, lambda inputs, breaks: by_end(inputs, breaks, hint_s))
        try:
            self.before = self._rate("whole", whole)
            if self.before.hits:
                reduced(whole, passes, self.trials)
                self.smallest = True
        except OutOfTime:
            pass
        except KeyboardInterrupt:
            return self._best(whole)
        with suppress(KeyboardInterrupt):
            best = self.trials.best
            self.after = self.before if best is None else self._rate(f"again {best.digest()}", best)
        return self._best(whole)

    def _best(self, whole: Inputs) -> Inputs | None:
        return (self.trials.best or whole) if self.before.hits else None

    def _rate(self, name: str, inputs: Inputs) -> Hits:
        """How often these inputs show the finding, by ENOUGH_HITS or MOST_RUNS."""
        save_inputs(inputs, self.to / INPUTS_FOLDER)
        return self._seen(name, inputs, lambda seen: seen.hits == ENOUGH_HITS or seen.runs == MOST_RUNS)

    def _breaks(self, candidate: Inputs) -> bool:
        usual = self.before.likely
        seen = self._seen(candidate.digest(), candidate, lambda seen: holds(seen, usual) is not None)
        if not holds(seen, usual):
            return False
        save_inputs(candidate, self.to / INPUTS_FOLDER)
        return True

    def _seen(self, name: str, inputs: Inputs, enough: Callable[[Hits], bool]) -> Hits:
        """Runs of these inputs until there are enough, or as many as MOST_RUNS of which nobody can tell."""
        if (known := self._answers.get(name)) is not None:
            return known
        seen, lost = NONE, 0
        while not enough(seen) and lost < MOST_RUNS:
            hit = self.shows(inputs)
            seen, lost = (seen, lost + 1) if hit is None else (seen.seen(hit), lost)
        self._answers[name] = seen
        save_answer(self.to, RateAnswer(name, *seen))
        return seen


# ---- the command ----


class ShrunkByRate(SearchResult, frozen=True, kw_only=True):
    """Of a run in real time: `rate_before` and `rate_after` are hits of runs of the whole and of the smallest."""

    rate_before: Hits
    rate_after: Hits

    def lines(self) -> Iterator[str]:
        """What is printed for people."""
        yield f"INVALID: {self.run}: {self.title}"
        yield f"  was: {size_words(self.before.items())}; shown by {self.rate_before.words()}"
        yield f"  now: {size_words(self.after.items())}; shown by {self.rate_after.words()}"
        yield f"  {count(self.runs, 'run')} in {self.seconds:.0f} s"
        yield from self.reached("Without any one of the faults, or in less time, it shows less often.")
        yield from self.kept()


def shrink_by_rate(request: ShrinkRunRequest, run: SavedRun, json_output: bool) -> int:
    """Make the inputs of a refuted run in real time smaller, save and tell them, and return 1; 2 where its finding did
    not show again. Raises UserError for what can't be asked of such a run, and for a folder that is not this run's."""
    wanted = run.refuted("shrink", request.anomaly)
    if request.museum is not None:
        raise UserError("--museum is for runs in the simulator.")
    if request.jobs > 1:
        raise UserError("--jobs above 1 is for the simulator: runs in real time would slow each other down.")
    asked, teller = AskedToEnd(), Teller()
    runs = candidates_of(request, run, asked)
    search = RateSearch(in_real_time(runs), runs.to, request.budget_s)
    with asked.in_charge(), working(f"shrinking {request.path}"):
        warm(run.options.workload)
        whole = explicit(inputs_in_real_time(run.rundir, run.options), run.load_s)
        hint_s = None if wanted.at_s is None else max(0.0, wanted.at_s - run.history_start_s)
        best = search.run(whole, hint_s)
    if best is None:
        teller.line(f"UNKNOWN: {request.path}: {_not_shown(search.before)}: {wanted.title}")
        return teller.end(EXIT_CODES["unknown"])
    shrunk = ShrunkByRate(
        run=str(run.path),
        commit=provenance().get("git_commit"),
        family=wanted.family,
        title=wanted.title,
        before=_size(whole),
        after=_size(best),
        rate_before=search.before,
        rate_after=search.after,
        necessary=search.smallest,
        faults=tuple(fault_words(best)),
        runs=runs.made,
        seconds=round(search.trials.seconds, 1),
        others=runs.seen,
        beside=run.beside(wanted),
        saved=str(runs.to),
    )
    save_shrunk(runs.to, shrunk)
    for line in [msgspec.json.encode(shrunk).decode()] if json_output else shrunk.lines():
        teller.line(line)
    return teller.end(EXIT_CODES[False])


def in_real_time(runs: CandidateRuns) -> Shows:
    """Makes one run after another; of one that was lost, or in which the harness failed, nobody can tell."""

    def shows(inputs: Inputs) -> bool | None:
        with closing(runs.results([inputs])) as found:
            result = next(found)[1]
        if runs.shows(result, inputs):
            return True
        return None if result.lost is not None or result.why == "harness" else False

    return shows


def _not_shown(before: Hits) -> str:
    if not before.runs:
        return "no run of the same faults ended, or the search was stopped before"
    return f"none of {before.runs} runs with the same faults showed it, so that no rate can be kept"


def _size(inputs: Inputs) -> Mapping[str, int | float]:
    sizes = size_of(inputs)
    return {"kinds": len(inputs.options.nemesis), **{name: sizes[name] for name in SIZES}}
