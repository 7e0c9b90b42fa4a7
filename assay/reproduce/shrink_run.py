"""`assay shrink RUN`: the smallest inputs of which a simulated run breaks in the same family, as files and in words.

record the run ─> passes (smaller_inputs), from coarse to fine, until none helps ─> twice with one digest
                    each candidate: runs by up to 4 keys, in children; what they found is kept (candidates)

A run in real time is shrunk by its hit rate instead (`shrink_by_rate`).
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from assay.check_command import EXIT_CODES
from assay.options import validate
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
from assay.reproduce.inputs import Inputs, load_inputs, save_inputs
from assay.reproduce.museum import finding_of, write_entry
from assay.reproduce.reduction import OutOfTime, Pass, Trials, reduced
from assay.reproduce.saved_run import SavedRun, saved_run
from assay.reproduce.shrink_by_rate import shrink_by_rate
from assay.reproduce.smaller_inputs import (
    by_clients,
    by_decisions,
    by_end,
    by_faults,
    by_free_chance,
    by_gaps,
    by_keys,
    by_nodes,
    by_operations,
    by_world,
    explicit,
    size_of,
)
from assay.runner import Keep, RunOrder, run_orders, warm
from assay.telling import Teller
from harness.errors import HarnessError, UserError
from harness.run.provenance import provenance
from harness.run.stopping import AskedToEnd
from results.words import count

KEYS: Final = ("", "1", "2", "3")
"""A candidate whose record leaves something to chance is tried with each of these."""

PASSES: Final[tuple[Pass[Inputs], ...]] = (
    by_free_chance,
    by_faults,
    by_nodes,
    by_world,
    by_clients,
    by_keys,
    by_operations,
    by_decisions,
    by_gaps,
)
"""From coarse to fine; behind the first the load is ended soon after the finding."""


class CandidateAnswer(msgspec.Struct, frozen=True):
    """What came of a candidate, named by the digest of its inputs without their key: the `key` with which it broke in
    the wanted family, if it did with any."""

    name: str
    key: str | None = None


@dataclass
class RunSearch:
    """Looks for the smallest inputs that break in the family that `runs` want."""

    runs: CandidateRuns
    budget_s: float
    smallest: bool = False

    def __post_init__(self) -> None:
        self.trials: Trials[Inputs] = Trials(self._breaks, name_of, self.budget_s)
        self._answers = {answer.name: answer for answer in saved_answers(self.runs.to, CandidateAnswer)}

    def run(self, start: Inputs, hint_s: float | None) -> Inputs | None:
        """The smallest that was found; None if not even the start breaks, or there was no time to see that. Ends early,
        with the best so far, at a wish to end and when its time is over."""
        passes: list[Pass[Inputs]] = [*PASSES]
        passes.insert(1, lambda inputs, breaks: by_end(inputs, breaks, hint_s))
        try:
            if self.trials(start):
                reduced(start, passes, self.trials)
                self.smallest = True
        except (OutOfTime, KeyboardInterrupt):
            pass
        return None if self.trials.best is None else self.keyed(self.trials.best)

    def keyed(self, inputs: Inputs) -> Inputs:
        """Inputs that broke, with the key with which they did."""
        key = self._answers[name_of(inputs)].key
        return inputs if key is None else replace(inputs, key=key)

    def _breaks(self, candidate: Inputs) -> bool:
        name = name_of(candidate)
        answer = self._answers.get(name)
        if answer is None:
            answer = self._answers[name] = CandidateAnswer(name, self._key_that_breaks(candidate))
            save_answer(self.runs.to, answer)
        if answer.key is None:
            return False
        save_inputs(replace(candidate, key=answer.key), self.runs.to / INPUTS_FOLDER)
        return True

    def _key_that_breaks(self, candidate: Inputs) -> str | None:
        last = KEYS[0] if self.trials.best is None else self.keyed(self.trials.best).key
        keyed = [replace(candidate, key=key) for key in _keys(last)]
        with closing(self.runs.results(keyed)) as found:
            return next((keyed[place].key for place, result in found if self.runs.shows(result, keyed[place])), None)


def _keys(last: str) -> tuple[str, ...]:
    """The keys, the one that was of use before first."""
    return (last, *(key for key in KEYS if key != last))


def name_of(inputs: Inputs) -> str:
    """A candidate's name: its inputs, whatever their key."""
    return replace(inputs, key="").digest()


# ---- the command ----


class ShrunkRun(SearchResult, frozen=True, kw_only=True):
    """Of a simulated run: `digest` is that of the steps of two runs of the smallest inputs (None: they differ, or none
    was made), `keys` with which these break, of `tried`."""

    digest: str | None
    keys: int
    tried: int

    def lines(self) -> Iterator[str]:
        """What is printed for people."""
        yield f"INVALID: {self.run}: {self.title}"
        yield f"  was: {size_words(self.before.items())}"
        yield f"  now: {size_words(self.after.items())} ({count(self.runs, 'run')} in {self.seconds:.1f} s)"
        each = "Each fault, client, block of operations and key of the world"
        yield from self.reached(f"{each} is necessary: without one it is gone.")
        if self.tried:
            vary = "whatever the simulator decides" if self.keys == self.tried else "what the simulator decides matters"
            yield f"  With other chance it shows in {self.keys} of {self.tried}: {vary}."
        if self.digest is not None:
            yield f"  Made twice, with one digest of all steps: {self.digest[:16]}"
        yield from self.kept()


def shrink_run(request: ShrinkRunRequest, json_output: bool) -> int:
    """Make the run's inputs smaller, save and tell them, and return 1, for they break; 2 if the run could not be made
    again, or not in the time.

    Raises UserError for a run that is valid or did not end, and for a folder that is not this run's.
    """
    run = saved_run(request.path)
    wanted = run.refuted("shrink", request.anomaly)
    validate(run.options)
    if run.options.on != "sim":
        return shrink_by_rate(request, run, json_output)
    asked = AskedToEnd(lambda times: None)
    runs = candidates_of(request, run, asked, request.jobs)
    search = RunSearch(runs, request.budget_s)
    teller = Teller()
    with asked.in_charge():
        warm(run.options.workload)
        with working(f"shrinking {request.path}"):
            whole = explicit(_recorded(run, runs), run.load_s)
            hint_s = None if wanted.at_s is None else max(0.0, wanted.at_s - run.history_start_s)
            best = search.run(whole, hint_s)
            shrunk = None if best is None else _concluded(run, whole, best, search)
    if shrunk is None:
        why = "its inputs don't break, or were not tried in time" if runs.made else "the search was stopped"
        teller.line(f"UNKNOWN: {request.path}: {why}: {wanted.title}")
        return teller.end(EXIT_CODES["unknown"])
    if request.museum is not None and best is not None:
        write_entry(request.museum, best, run, wanted)
    for line in [msgspec.json.encode(shrunk).decode()] if json_output else shrunk.lines():
        teller.line(line)
    return teller.end(EXIT_CODES[False])


def _recorded(run: SavedRun, runs: CandidateRuns) -> Inputs:
    """The inputs of the run, which is made again for them; raises UserError if it doesn't show what it showed."""
    folder = runs.to / "whole"
    if not folder.exists():
        options = replace(run.options, record=folder, store=runs.to / ".candidates")
        with closing(run_orders([RunOrder(options, Keep.NOTHING, measured=True)], 1, asked=runs.asked)) as found:
            result = next(found)[1]
        runs.made += 1
        shutil.rmtree(runs.to / ".candidates", ignore_errors=True)
        finding = finding_of(result)
        if runs.wanted.family not in {each.family for each in result.measures.families}:
            shutil.rmtree(runs.to, ignore_errors=True)
            what = result.overall if finding is None else finding.title
            raise UserError(
                f"{run.path} made again is another run ({what}); `assay replay` says what differs, such as the commit."
            )
    return load_inputs(folder)


def _concluded(run: SavedRun, whole: Inputs, best: Inputs, search: RunSearch) -> ShrunkRun:
    """Makes the smallest again, twice, and with the other keys; saves what came of it."""
    digests: list[str | None] = []
    found: list[bool] = []
    try:
        tries = [best, best, *(replace(best, key=key) for key in KEYS if key != best.key)]
        for number, result in search.runs.results(tries):
            if number < 2:
                digests.append(result.trace)
            if number != 1:
                found.append(search.runs.shows(result, tries[number]))
    except (HarnessError, KeyboardInterrupt):
        pass
    same = len(digests) == 2 and digests[0] == digests[1]
    shrunk = ShrunkRun(
        run=str(run.path),
        commit=provenance().get("git_commit"),
        family=search.runs.wanted.family,
        title=search.runs.wanted.title,
        before=size_of(whole),
        after=size_of(best),
        necessary=search.smallest,
        faults=tuple(fault_words(best)),
        runs=search.runs.made,
        seconds=round(search.trials.seconds, 1),
        digest=digests[0] if same else None,
        keys=sum(found),
        tried=len(found),
        others=search.runs.seen,
        beside=run.beside(search.runs.wanted),
        saved=str(search.runs.to),
    )
    save_shrunk(search.runs.to, shrunk)
    return shrunk
