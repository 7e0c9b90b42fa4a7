"""`assay bisect`: which commit brought a run's finding, by runs at commits that `bisection.py` chooses.

    RUN ─> its options, the family of its finding      A..B ─> the commits of its first parents
                        └──────────> commit ─> a worktree, built ─> runs of several seeds ─> hits ─> posterior ─┐
                                       └────────────────────────────────────────────────────────────────────────┘

A hit is a run with a finding of the same family. What was seen is written down after each visit to a commit, so that
the same command goes on where it was stopped.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

import assay
from assay.progress import counting
from assay.reproduce.bisection import CONFIDENCE, Bisection, begun
from assay.reproduce.reduction import OutOfTime
from assay.reproduce.saved_run import saved_run
from assay.reproduce.worktrees import SHORT, NoRun, Worktrees, git, line_of_commits, top_of
from assay.seeds import MOST_SEED
from assay.telling import Teller
from harness.errors import UNDECODABLE, UserError
from harness.history.rundir import write_atomic
from harness.verdict.run_verdict import EXIT_CODES
from results.words import count

EXIT_FOUND: Final = EXIT_CODES["invalid"]
EXIT_CANT_SAY: Final = EXIT_CODES["unknown"]

_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class BisectRequest:
    """Between which commits the one is that brought the finding of `run`: of this repository, or of another system in
    `repository` that the shell command `build` builds. `several` runs are made at each visit to a commit, `jobs` of
    them at once; after `budget_s` seconds it is told what is known. `to` is the record (None: named after the run)."""

    run: Path
    good: str
    bad: str
    build: str | None = None
    repository: Path | None = None
    several: int = 4
    jobs: int = 1
    budget_s: float = 3600.0
    to: Path | None = None


class Visit(msgspec.Struct, frozen=True):
    """A run of a seed at a commit, and whether it hit."""

    commit: str
    seed: int
    hit: bool


class BisectRecord(msgspec.Struct):
    """What `--to` holds: the question, all runs so far, and why commits were left out."""

    version: int
    family: str
    good: str
    bad: str
    build: str | None
    seen: list[Visit] = []
    left_out: dict[str, str] = {}


class CommitRuns(Protocol):
    """Makes runs at commits. Raises OutOfTime when the budget is spent."""

    def why_not(self, commit: str) -> str | None:
        """Why no run can be made of this commit, in a sentence, after trying to build it; None if one can."""

    def hits(self, commit: str, seeds: Sequence[int]) -> list[bool]:
        """Of each seed whether the finding shows at this commit. Raises NoRun."""


@dataclass
class CommitSearch:
    """The search over commits in order; `record` has what was seen before, and gets what is seen."""

    commits: Sequence[str]
    seed: int
    record: BisectRecord
    stopped: bool = False
    known: Bisection = field(init=False)

    def __post_init__(self) -> None:
        self.known = begun(len(self.commits))
        places = {commit: place for place, commit in enumerate(self.commits)}
        for visit in self.record.seen:
            self.known = self.known.seen(places[visit.commit], visit.hit)
        for commit in self.record.left_out:
            self.known = self.known.without(places[commit])

    def steps(self, runs: CommitRuns, several: int) -> Iterator[int]:
        """Visit commits until it is decided; yields how many runs each visit made. Raises UserError if runs can be made
        of too few commits, and what `runs` raises."""
        while True:
            if len(self.known.groups) == 1:
                able, why = len(self.commits) - len(self.known.unbuilt), next(iter(self.record.left_out.values()))
                raise UserError(f"Runs can be made at {able} of these commits, which tells nothing; of another: {why}")
            if self.known.is_decided:
                return
            place = self.known.next_commit
            commit = self.commits[place]
            why_not = runs.why_not(commit)
            if why_not is None:
                first = self.seed + self.known.runs[place]
                seeds = [seed % (MOST_SEED + 1) for seed in range(first, first + several)]
                try:
                    found = runs.hits(commit, seeds)
                except NoRun as error:
                    why_not = str(error)
            if why_not is not None:
                self.record.left_out[commit] = why_not
                self.known = self.known.without(place)
                yield 0
                continue
            for seed, hit in zip(seeds, found, strict=True):
                self.record.seen.append(Visit(commit, seed, hit))
                self.known = self.known.seen(place, hit)
            yield len(found)


def bisect(request: BisectRequest, json_output: bool) -> int:
    """Search, write the record, tell what was found and return 1 if that is one commit (with those before it of which
    no run can be made), else 2. Ctrl-c and the end of the budget leave what is known so far.

    Raises UserError for a run without a finding, commits that are none or in the wrong order, a tree with changes, and
    a record of another question.
    """
    run = saved_run(request.run)
    finding = run.refuted("bisect")
    repository = _repository(request)
    commits = line_of_commits(repository, request.good, request.bad)
    target = request.to or Path(f"{run.path.name}-bisect.json")
    question = BisectRecord(_VERSION, finding.family, commits[0], commits[-1], request.build)
    search = CommitSearch(commits, run.options.seed, _resumed(target, question))
    deadline_s = time.monotonic() + request.budget_s
    trees = Worktrees(repository, request.build, run.options, finding.family, request.jobs, deadline_s)
    with trees as runs, counting("runs", None) as made:
        try:
            for number in search.steps(runs, request.several):
                write_atomic(target, msgspec.json.format(msgspec.json.encode(search.record), indent=1) + b"\n")
                for _ in range(number):
                    made()
        except (OutOfTime, KeyboardInterrupt):
            search.stopped = True
    subjects = {commit: git(repository, "log", "-1", "--format=%s", commit) for commit in commits}
    told = Bisected(search, finding.title, subjects, target)
    teller = Teller()
    for line in [msgspec.json.encode(told.as_object()).decode()] if json_output else told.lines():
        teller.line(line)
    return teller.end(told.code)


# ---- the question ----


def _repository(request: BisectRequest) -> Path:
    """The repository whose commits are tried: this assay's own, or that of what is built."""
    if request.build is None and request.repository is not None:
        raise UserError("--repository is of another system than this one; say with --build how a commit is built.")
    own = Path(assay.__file__).parent.parent
    return top_of(own if request.build is None else request.repository or Path())


def _resumed(target: Path, question: BisectRecord) -> BisectRecord:
    """The record so far; raises UserError for one of another question, or none at all."""
    if not target.absolute().parent.is_dir():
        raise UserError(f"There is no directory {target.parent} for the record {target.name}.")
    if not target.exists():
        return question
    try:
        found = msgspec.json.decode(target.read_bytes(), type=BisectRecord)
    except (OSError, *UNDECODABLE) as error:
        raise UserError(f"{target} is no record of a bisection; name another file with --to.") from error
    if _question_of(found) != question:
        raise UserError(f"{target} is of another bisection; name another file with --to.")
    return found


def _question_of(record: BisectRecord) -> BisectRecord:
    """The question of a record, without what was seen."""
    return msgspec.structs.replace(record, seen=[], left_out={})


# ---- what is told ----


@dataclass(frozen=True, slots=True)
class Bisected:
    """What came of a search: of which finding, with the subjects of all commits and where the record is."""

    search: CommitSearch
    finding: str
    subjects: Mapping[str, str]
    record: Path

    @property
    def places(self) -> tuple[int, ...]:
        """The suspects that are commits after the good one."""
        return tuple(place for place in self.search.known.suspects if 0 < place < len(self.search.commits))

    @property
    def beyond(self) -> bool:
        """Whether that no commit between brought it is among the suspects."""
        return len(self.places) < len(self.search.known.suspects)

    @property
    def code(self) -> int:
        return EXIT_FOUND if self.search.known.is_decided and not self.beyond else EXIT_CANT_SAY

    def share(self, places: Sequence[int]) -> float:
        """What the posterior has of these places."""
        return float(self.search.known.posterior[list(places)].sum())

    def as_object(self) -> dict[str, Any]:
        """What `--json` prints."""
        known, commits = self.search.known, self.search.commits
        shares = known.posterior.tolist()
        return {
            "finding": self.finding,
            "good": commits[0],
            "bad": commits[-1],
            "decided": self.code == EXIT_FOUND,
            "suspects": [{"commit": commits[place], "share": round(shares[place], 4)} for place in self.places],
            "good_has_it": round(shares[0], 4),
            "bad_lacks_it": round(shares[-1], 4),
            "commits": [
                {"commit": commit, "subject": self.subjects[commit], "runs": runs, "hits": hits}
                for commit, runs, hits in zip(commits, known.runs, known.hits, strict=True)
            ],
            "left_out": self.search.record.left_out,
            "stopped": self.search.stopped,
            "record": str(self.record),
        }

    def lines(self) -> Iterator[str]:
        """What is printed for people."""
        known, commits = self.search.known, self.search.commits
        yield self._answer()
        visited = sum(map(bool, known.runs))
        made = f"{count(sum(known.runs), 'run')} at {visited} of {count(len(commits), 'commit')}"
        yield f"  {made}, of which {sum(known.hits)} hit: {self.finding}"
        for place, commit in enumerate(commits):
            if known.runs[place] or place in self.places:
                share = "good" if place == 0 else f"{100 * self.share([place]):.3g} %"
                hits = f"{known.hits[place]} of {known.runs[place]}"
                yield f"    {commit[:SHORT]}  {hits}  {share}  {self.subjects[commit]}"
        for commit, why in self.search.record.left_out.items():
            yield f"  left out: {commit[:SHORT]} {self.subjects[commit]}: {why}"
        if self.search.stopped:
            yield "  Stopped, or the --budget was spent; the same command goes on from here."
        yield f"  record: {self.record}"

    def _answer(self) -> str:
        commits = self.search.commits
        if self.code == EXIT_FOUND:
            told = f"{100 * self.share(self.places):.3g} % sure"
            first = self.subjects[commits[self.places[-1]]]
            if len(self.places) == 1:
                return f"FOUND: {commits[self.places[0]][:SHORT]} brought it, {told}: {first}"
            names = ", ".join(commits[place][:SHORT] for place in self.places)
            return f"FOUND: one of {names}, {told}, of which runs can be made of the last only: {first}"
        if self.search.known.is_decided:
            known, (good, bad) = self.search.known, (commits[0][:SHORT], commits[-1][:SHORT])
            if known.hits[0]:
                return (
                    f"UNKNOWN: {good} is not good: the finding shows there too, in {known.hits[0]} of {known.runs[0]}."
                )
            return f"UNKNOWN: {bad} is not bad: the finding shows there in {known.hits[-1]} of {known.runs[-1]} runs."
        within = f"one of {count(len(self.places), 'commit')} with {100 * CONFIDENCE:.0f} %"
        beyond = "; or it was there before, or is not there now" if self.beyond else ""
        return f"UNKNOWN: {within}{beyond}."
