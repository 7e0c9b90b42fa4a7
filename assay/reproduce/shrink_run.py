"""`assay shrink RUN`: the smallest inputs of which a simulated run breaks in the same family, as files and in words.

record the run ─> passes (smaller_inputs), from coarse to fine, until none helps ─> twice with one digest
                    each candidate: runs by up to 4 keys, in children (assay.runner); what they found is kept

TO/inputs/        the best so far, at any moment
TO/answers.jsonl  what came of each candidate, so that a search that was stopped goes on where it was
TO/others/FAMILY/ inputs of candidates that broke in another family
TO/shrunk.json    what the search came to
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from shlex import quote
from typing import Any, Final

import msgspec

from assay.check_command import EXIT_CODES
from assay.night.records import RunFinding
from assay.options import validate
from assay.progress import working
from assay.reproduce.inputs import Inputs, load_inputs, save_inputs
from assay.reproduce.museum import MUSEUM, finding_of, write_entry
from assay.reproduce.reduction import OutOfTime, Pass, Trials, reduced
from assay.reproduce.saved_run import SavedRun, saved_run
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
from assay.runner import Keep, RunOrder, RunResult, run_orders, warm
from assay.telling import Teller
from harness.errors import HarnessError, UserError
from harness.history.rundir import write_atomic
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

INPUTS_FOLDER, OTHERS, ANSWERS, SHRUNK = "inputs", "others", "answers.jsonl", "shrunk.json"


@dataclass(frozen=True, slots=True)
class ShrinkRunRequest:
    """Which run is to be made smaller, for how long, by how many processes, and into which folder (None: one named
    after the run); the name that the museum is to keep it by, if that is wanted."""

    path: Path
    budget_s: float = 600.0
    jobs: int = 1
    to: Path | None = None
    museum: str | None = None


class CandidateAnswer(msgspec.Struct, frozen=True):
    """What came of a candidate, named by the digest of its inputs without their key: the `key` with which it broke in
    the wanted family, if it did with any."""

    name: str
    key: str | None = None


@dataclass
class RunSearch:
    """Looks for the smallest inputs that break in the family of `wanted`. `runs` counts those that were made, `seen`
    are findings of other families, each in a sentence."""

    wanted: RunFinding
    to: Path
    budget_s: float
    jobs: int
    asked: AskedToEnd
    seen: dict[str, str] = field(default_factory=dict)
    runs: int = 0
    smallest: bool = False

    def __post_init__(self) -> None:
        self.trials: Trials[Inputs] = Trials(self._breaks, name_of, self.budget_s)
        self._answers = {answer.name: answer for answer in _saved_answers(self.to / ANSWERS)}

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
            with (self.to / ANSWERS).open("ab") as file:
                file.write(msgspec.json.encode(answer) + b"\n")
        if answer.key is None:
            return False
        save_inputs(replace(candidate, key=answer.key), self.to / INPUTS_FOLDER)
        return True

    def _key_that_breaks(self, candidate: Inputs) -> str | None:
        last = KEYS[0] if self.trials.best is None else self.keyed(self.trials.best).key
        for number, result in self.results(replace(candidate, key=key) for key in _keys(last)):
            found = finding_of(result)
            if found is not None and found.family == self.wanted.family:
                return _keys(last)[number]
            if found is not None and found.family not in self.seen:
                self.seen[found.family] = found.title
                save_inputs(replace(candidate, key=_keys(last)[number]), self.to / OTHERS / found.family)
        return None

    def results(self, candidates: Iterator[Inputs] | Sequence[Inputs]) -> Iterator[tuple[int, RunResult]]:
        """What comes of runs of these inputs, as they end, with the place of each; who closes this ends the others."""
        scratch = self.to / ".candidates"
        try:
            orders = (self._order(scratch, number, each) for number, each in enumerate(candidates))
            with closing(run_orders(orders, self.jobs, asked=self.asked)) as found:
                for order, result in found:
                    self.runs += 1
                    yield order.number, result
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    def _order(self, scratch: Path, number: int, inputs: Inputs) -> RunOrder:
        folder = scratch / str(number)
        save_inputs(inputs, folder)
        options = replace(inputs.options, inputs=folder, store=scratch)
        return RunOrder(options, Keep.NOTHING, number, measured=True, refusal_fails=True)


def _keys(last: str) -> tuple[str, ...]:
    """The keys, the one that was of use before first."""
    return (last, *(key for key in KEYS if key != last))


def name_of(inputs: Inputs) -> str:
    """A candidate's name: its inputs, whatever their key."""
    return replace(inputs, key="").digest()


def _saved_answers(path: Path) -> Iterator[CandidateAnswer]:
    try:
        lines = path.read_bytes().splitlines()
    except FileNotFoundError:
        return
    for line in lines:
        try:
            yield msgspec.json.decode(line, type=CandidateAnswer)
        except (msgspec.DecodeError, msgspec.ValidationError):  # torn when the search was killed
            continue


# ---- the command ----


class ShrunkRun(msgspec.Struct, frozen=True):
    """`shrunk.json`. `runs` were made this time, in `seconds`; `digest` is that of the steps of two runs of the
    smallest inputs (None: they differ, or none was made); `keys` with which these break, of `tried`; `others` are
    findings of other families, by these."""

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
    digest: str | None
    keys: int
    tried: int
    others: dict[str, str]
    saved: str

    def lines(self) -> Iterator[str]:
        """What is printed for people."""
        was = ", ".join(f"{value:,} {name}".replace("_", " ") for name, value in self.before.items())
        now = ", ".join(f"{value:,} {name}".replace("_", " ") for name, value in self.after.items())
        yield f"INVALID: {self.run}: {self.title}"
        yield f"  was: {was}"
        yield f"  now: {now} ({count(self.runs, 'run')} in {self.seconds:.1f} s)"
        yield from (f"  fault {fault}" for fault in self.faults)
        if self.necessary:
            yield "  Each fault, client, block of operations and key of the world is necessary: without one it is gone."
        else:
            yield "  Not the smallest: the search was stopped, or its --budget was spent, and this is the best so far."
        if self.tried:
            vary = "whatever the simulator decides" if self.keys == self.tried else "what the simulator decides matters"
            yield f"  With other chance it shows in {self.keys} of {self.tried}: {vary}."
        if self.digest is not None:
            yield f"  Made twice, with one digest of all steps: {self.digest[:16]}"
        for family, title in self.others.items():
            yield f"  Also found, and not followed ({OTHERS}/{family}): {title}"
        yield f"  saved: {self.saved}"
        yield f"  again: assay run --inputs {quote(str(Path(self.saved) / INPUTS_FOLDER))}"


def shrink_run(request: ShrinkRunRequest, json_output: bool) -> int:
    """Make the run's inputs smaller, save and tell them, and return 1, for they break; 2 if the run could not be made
    again, or not in the time.

    Raises UserError for a run that is valid, did not end or was not made in the simulator, and for a folder that is not
    this run's.
    """
    run = saved_run(request.path)
    wanted = run.refuted("shrink")
    if run.options.on != "sim":
        raise UserError(f"{request.path} was made on {run.options.on}; only runs in the simulator can be shrunk.")
    validate(run.options)
    to = _folder(request, run)
    asked = AskedToEnd(lambda times: None)
    search = RunSearch(wanted, to, request.budget_s, request.jobs, asked)
    teller = Teller()
    with asked.in_charge():
        warm(run.options.workload)
        with working(f"shrinking {request.path}"):
            whole = explicit(_recorded(run, to, search), run.load_s)
            hint_s = None if wanted.at_s is None else max(0.0, wanted.at_s - _history_start_s(run))
            best = search.run(whole, hint_s)
            shrunk = None if best is None else _concluded(run, whole, best, search)
    if shrunk is None:
        why = "its inputs don't break, or were not tried in time" if search.runs else "the search was stopped"
        teller.line(f"UNKNOWN: {request.path}: {why}: {wanted.title}")
        return teller.end(EXIT_CODES["unknown"])
    if request.museum is not None and best is not None:
        write_entry(request.museum, best, run)
    for line in [msgspec.json.encode(shrunk).decode()] if json_output else shrunk.lines():
        teller.line(line)
    return teller.end(EXIT_CODES[False])


def _folder(request: ShrinkRunRequest, run: SavedRun) -> Path:
    """Where the search saves; one that is there has to be of the same run and commit, and goes on."""
    if request.museum is not None and (MUSEUM / request.museum).exists():
        raise UserError(f"The museum has {request.museum} already.")
    to = request.to or Path(f"{run.path.name}-shrunk")
    if not to.absolute().parent.is_dir():
        raise UserError(f"There is no directory {to.parent} for the folder {to.name}.")
    mark, now = to / "search.json", {"run": str(run.path), "commit": provenance().get("git_commit")}
    if to.exists():
        try:
            before = msgspec.json.decode(mark.read_bytes())
        except (OSError, msgspec.DecodeError):
            raise UserError(f"{to} is there already; name another folder with --to.") from None
        if before != now:
            raise UserError(f"{to} is of another run or commit; name another folder with --to.")
        return to
    to.mkdir()
    write_atomic(mark, msgspec.json.encode(now))
    return to


def _recorded(run: SavedRun, to: Path, search: RunSearch) -> Inputs:
    """The inputs of the run, which is made again for them; raises UserError if it doesn't show what it showed."""
    folder = to / "whole"
    if not folder.exists():
        options = replace(run.options, record=folder, store=to / ".candidates")
        with closing(run_orders([RunOrder(options, Keep.NOTHING, measured=True)], 1, asked=search.asked)) as found:
            result = next(found)[1]
        search.runs += 1
        shutil.rmtree(to / ".candidates", ignore_errors=True)
        finding = finding_of(result)
        if finding is None or finding.family != search.wanted.family:
            shutil.rmtree(to, ignore_errors=True)
            what = result.overall if finding is None else finding.title
            raise UserError(
                f"{run.path} made again is another run ({what}); `assay replay` says what differs, such as the commit."
            )
    return load_inputs(folder)


def _history_start_s(run: SavedRun) -> float:
    outcome = run.rundir.read_json(run.rundir.outcome_json)
    return int((outcome or {}).get("history_start_ns") or 0) / 1e9


def _concluded(run: SavedRun, whole: Inputs, best: Inputs, search: RunSearch) -> ShrunkRun:
    """Makes the smallest again, twice, and with the other keys; saves what came of it."""
    digests: list[str | None] = []
    found: list[bool] = []
    try:
        tries = [best, best, *(replace(best, key=key) for key in KEYS if key != best.key)]
        for number, result in search.results(tries):
            if number < 2:
                digests.append(result.trace)
            if number != 1:
                shown = finding_of(result)
                found.append(shown is not None and shown.family == search.wanted.family)
    except (HarnessError, KeyboardInterrupt):
        pass
    same = len(digests) == 2 and digests[0] == digests[1]
    shrunk = ShrunkRun(
        str(run.path),
        provenance().get("git_commit"),
        search.wanted.family,
        search.wanted.title,
        size_of(whole),
        size_of(best),
        search.smallest,
        tuple(_fault_words(best)),
        search.runs,
        round(search.trials.seconds, 1),
        digests[0] if same else None,
        sum(found),
        len(found),
        search.seen,
        str(search.to),
    )
    write_atomic(search.to / SHRUNK, msgspec.json.format(msgspec.json.encode(shrunk), indent=2) + b"\n")
    return shrunk


def _fault_words(inputs: Inputs) -> Iterator[str]:
    for fault in inputs.faults:
        ends = "the end" if fault.end_ns is None else f"{fault.end_ns / 1e9:.2f} s"
        does: dict[str, Any] = fault.action or {}
        what = ", ".join(f"{name} {value}" for name, value in does.items() if name != "do")
        role = f" ({', '.join(fault.roles)})" if fault.roles else ""
        yield f"{fault.kind} {fault.variant}, {fault.begin_ns / 1e9:.2f} s to {ends}: {what or 'its own steps'}{role}"
