"""Runs of candidates in a search for the smallest inputs: made in children, and what they found kept.

TO/search.json    of which run and commit the search is
TO/inputs/        the best so far, at any moment
TO/answers.jsonl  what came of each candidate, so that a search that was stopped goes on where it was
TO/others/FAMILY/ inputs of candidates that broke in another family
TO/shrunk.json    what the search came to
"""

from __future__ import annotations

import shutil
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import takewhile
from pathlib import Path
from shlex import quote
from typing import Any, TypeVar

import msgspec

from assay.night.records import RunFinding
from assay.reproduce.inputs import Inputs, save_inputs
from assay.reproduce.museum import MUSEUM
from assay.reproduce.saved_run import SavedRun
from assay.runner import Keep, RunOrder, RunResult, run_orders
from harness.errors import UserError
from harness.history.rundir import write_atomic
from harness.run.provenance import provenance
from harness.run.stopping import AskedToEnd

A = TypeVar("A", bound=msgspec.Struct)

INPUTS_FOLDER, OTHERS, ANSWERS, SHRUNK = "inputs", "others", "answers.jsonl", "shrunk.json"


@dataclass(frozen=True, slots=True)
class ShrinkRunRequest:
    """Which run is to be made smaller, for how long, by how many processes, and into which folder (None: one named
    after the run); the name that the museum is to keep it by, if that is wanted, and the finding that is followed
    (None: the run's own)."""

    path: Path
    budget_s: float = 600.0
    jobs: int = 1
    to: Path | None = None
    museum: str | None = None
    anomaly: str | None = None


@dataclass
class CandidateRuns:
    """Makes runs of candidates, `jobs` at a time, in the folder `to`. `made` counts them; `seen` are findings of other
    families than that of `wanted`, each in a sentence. `before` are the families that came before it in the run."""

    wanted: RunFinding
    to: Path
    jobs: int
    asked: AskedToEnd
    before: frozenset[str] = frozenset()
    made: int = 0
    seen: dict[str, str] = field(default_factory=dict)

    def results(self, candidates: Iterable[Inputs]) -> Generator[tuple[int, RunResult], None, None]:
        """What comes of runs of these inputs, as they end, with the place of each; who closes this ends the others."""
        scratch = self.to / ".candidates"
        try:
            orders = (self._order(scratch, number, each) for number, each in enumerate(candidates))
            with closing(run_orders(orders, self.jobs, asked=self.asked)) as found:
                for order, result in found:
                    self.made += 1
                    yield order.number, result
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    def _order(self, scratch: Path, number: int, inputs: Inputs) -> RunOrder:
        folder = scratch / str(number)
        save_inputs(inputs, folder)
        options = replace(inputs.options, inputs=folder, store=scratch)
        return RunOrder(options, Keep.NOTHING, number, measured=True, refusal_fails=True)

    def shows(self, result: RunResult, inputs: Inputs) -> bool:
        """Whether it broke in the wanted family, and before that in none in which the run had not; inputs that broke
        otherwise are kept."""
        found = {each.family: each for each in result.measures.families}
        ahead = takewhile(lambda family: family != self.wanted.family, found)
        others = [family for family in ahead if family not in self.before]
        if others and others[0] not in self.seen:
            self.seen[others[0]] = found[others[0]].title
            save_inputs(inputs, self.to / OTHERS / others[0])
        return self.wanted.family in found and not others


class SearchResult(msgspec.Struct, frozen=True, kw_only=True):
    """`shrunk.json`: what every search came to. `before` and `after` are sizes; `runs` were made this time, in
    `seconds`; `necessary`: the search ended by itself. `others` are findings of candidates of other families, by these,
    `beside` those of the run, by their names."""

    run: str
    commit: str | None
    family: str
    title: str
    before: Mapping[str, int | float]
    after: Mapping[str, int | float]
    necessary: bool
    faults: tuple[str, ...]
    runs: int
    seconds: float
    others: dict[str, str]
    beside: dict[str, str]
    saved: str

    def reached(self, why: str) -> Iterator[str]:
        """For people: the faults that are left, and `why` there are no fewer."""
        yield from (f"  fault {fault}" for fault in self.faults)
        stopped = "Not the smallest: the search was stopped, or its --budget was spent, and this is the best so far."
        yield f"  {why if self.necessary else stopped}"

    def kept(self) -> Iterator[str]:
        """For people: what else was found, and where all of it is."""
        for name, title in self.beside.items():
            yield f"  Also found, and not followed (--anomaly {name}): {title}"
        for family, title in self.others.items():
            yield f"  Shown by other inputs, and not followed ({OTHERS}/{family}): {title}"
        yield f"  saved: {self.saved}"
        yield f"  again: assay run --inputs {quote(str(Path(self.saved) / INPUTS_FOLDER))}"


def candidates_of(request: ShrinkRunRequest, run: SavedRun, asked: AskedToEnd, jobs: int = 1) -> CandidateRuns:
    """Runs of candidates for what is asked of a run, in the search's folder; raises UserError where that can't be."""
    wanted = run.refuted("shrink", request.anomaly)
    families = [each.family for each in run.findings]
    before = frozenset(families[: families.index(wanted.family)])
    return CandidateRuns(wanted, folder_of(request, run, wanted), jobs, asked, before)


def folder_of(request: ShrinkRunRequest, run: SavedRun, wanted: RunFinding) -> Path:
    """Where the search saves; one that is there has to be of the same run, commit and finding, and goes on."""
    if request.museum is not None and (MUSEUM / request.museum).exists():
        raise UserError(f"The museum has {request.museum} already.")
    to = request.to or Path(f"{run.path.name}-shrunk")
    if not to.absolute().parent.is_dir():
        raise UserError(f"There is no directory {to.parent} for the folder {to.name}.")
    now = {"run": str(run.path), "commit": provenance().get("git_commit"), "family": wanted.family}
    mark = to / "search.json"
    if to.exists():
        try:
            before = msgspec.json.decode(mark.read_bytes())
        except (OSError, msgspec.DecodeError):
            raise UserError(f"{to} is there already; name another folder with --to.") from None
        if before != now:
            raise UserError(f"{to} is of another run, commit or finding; name another folder with --to.")
        return to
    to.mkdir()
    write_atomic(mark, msgspec.json.encode(now))
    return to


def saved_answers(to: Path, kind: type[A]) -> Iterator[A]:
    """The answers of a search so far."""
    try:
        lines = (to / ANSWERS).read_bytes().splitlines()
    except FileNotFoundError:
        return
    for line in lines:
        try:
            yield msgspec.json.decode(line, type=kind)
        except (msgspec.DecodeError, msgspec.ValidationError):  # torn when the search was killed
            continue


def save_answer(to: Path, answer: msgspec.Struct) -> None:
    """Add an answer to those of the search."""
    with (to / ANSWERS).open("ab") as file:
        file.write(msgspec.json.encode(answer) + b"\n")


def save_shrunk(to: Path, shrunk: SearchResult) -> None:
    """Write what the search came to."""
    write_atomic(to / SHRUNK, msgspec.json.format(msgspec.json.encode(shrunk), indent=2) + b"\n")


def size_words(size: Iterable[tuple[str, int | float]]) -> str:
    """How large inputs are, for people."""
    return ", ".join(f"{value:,} {name}".replace("_", " ") for name, value in size)


def fault_words(inputs: Inputs) -> Iterator[str]:
    """Each fault of inputs, for people."""
    for fault in inputs.faults:
        ends = "the end" if fault.end_ns is None else f"{fault.end_ns / 1e9:.2f} s"
        does: dict[str, Any] = fault.action or {}
        what = ", ".join(f"{name} {value}" for name, value in does.items() if name != "do")
        role = f" ({', '.join(fault.roles)})" if fault.roles else ""
        chosen = "its own steps" if fault.scripted else "on whom it finds"
        yield f"{fault.kind} {fault.variant}, {fault.begin_ns / 1e9:.2f} s to {ends}: {what or chosen}{role}"
