"""`assay replay RUN`: whether a run happens again, and where it goes another way.

A simulated run is made again from its options, in a process whose hashes are salted otherwise, and the digests of its
steps are compared block by block; with `--against` by the code of another commit, in a worktree. A run in real time is
made again several times: its faults and operations follow from its seed, and how often it shows its finding is a
rate.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import msgspec

from assay.check_command import EXIT_CODES
from assay.options import RunOptions, validate
from assay.progress import working
from assay.reproduce import traced_block
from assay.reproduce.blocks import StepBlock, StepSides, first_difference, first_step, read_steps, read_traced
from assay.reproduce.likelihood import Curve, likelihood
from assay.reproduce.museum import finding_of
from assay.reproduce.rates import SURE, runs_for_one, wilson
from assay.reproduce.saved_run import SavedRun, saved_run
from assay.reproduce.worktrees import from_anywhere, tree_folder, worktree
from assay.runner import Keep, RunOrder, RunResult, run_orders, warm
from assay.telling import Teller
from harness.atomic_write import scratch_folder
from harness.errors import UserError
from harness.history.rundir import RunDir
from harness.ports.sim.loop import MARK_STEPS
from harness.run.provenance import provenance
from harness.run.stopping import AskedToEnd
from results.words import count

HERE: Final = Path(__file__).parent.parent.parent
"""The tree of this code."""

HASH_SEED: Final = 1
"""Of the process that makes a simulated run again: what depends on the order of a set goes another way there."""


@dataclass(frozen=True, slots=True)
class ReplayRequest:
    """Which run is made again: in real time how often, and until how many hits (None: so often in any case); in the
    simulator also by the code of a commit, or for the likelihood of its finding over time, which is drawn into the file
    `to` (None: one named after the run)."""

    path: Path
    times: int | None = None
    until_hits: int | None = None
    jobs: int = 1
    against: str | None = None
    likelihood: bool = False
    to: Path | None = None


class ReplayedSide(msgspec.Struct, frozen=True):
    """What one run came to: its word and finding, the digest of its steps, the commit that made it."""

    overall: str
    family: str | None
    title: str | None
    trace: str | None
    commit: str | None


class Replayed(msgspec.Struct, frozen=True):
    """What came of it. `hits` of `runs` showed the finding of the run (None: it has none); `rate` has the bounds of the
    hit rate. `same`: the steps of the simulation are the same (None: that is not known), else `block` is the first
    that differs and `differs` says what the two were made of that is not the same; `sides` is the first step of
    the block that differs, as this code and another commit's make it."""

    run: str
    before: ReplayedSide
    after: tuple[ReplayedSide, ...]
    reproduced: bool | None
    hits: int
    runs: int
    rate: tuple[float, float] | None
    same: bool | None = None
    block: StepBlock | None = None
    sides: StepSides | None = None
    differs: dict[str, tuple[Any, Any]] = {}
    curve: Curve | None = None

    @property
    def another(self) -> str | None:
        """A finding that turned up and is not that of the run."""
        return next((each.title or "" for each in self.after if each.family not in (None, self.before.family)), None)

    @property
    def exit_code(self) -> int:
        word: dict[bool | None, Any] = {True: False, False: True, None: "unknown"}
        return EXIT_CODES[word[self.reproduced]] if self.another is None else EXIT_CODES[False]

    def lines(self) -> Iterator[str]:
        """What is printed for people."""
        words = {True: "REPRODUCED", False: "NOT REPRODUCED", None: "CAN'T TELL"}
        nothing = self.before.family is None and self.reproduced is False
        word = "IT FOUND NOTHING" if nothing else words[self.reproduced]
        yield f"{word}: {self.run}: {self.before.title or self.before.overall}"
        if self.another is not None:
            yield f"  another finding: {self.another}"
        for after in self.after if self.runs == 1 else ():
            yield f"  made again: {after.overall}" + ("" if after.title is None else f": {after.title}")
        if self.same:
            yield f"  each step is the same: {(self.before.trace or '')[:16]}"
        elif self.same is False:
            yield f"  the steps differ: {self.block.sentence() if self.block else 'nobody kept where they begin to'}"
            if self.sides is not None:
                yield f"    here: {self.sides.here}"
                yield f"    there: {self.sides.there}"
            for name, (was, now) in self.differs.items():
                yield f"    {name}: {was} then, {now} now"
            if not self.differs:
                yield "    commit, versions and options are the same: something that no seed decides goes into the run,"
                yield "    such as the real clock, the order of a set, the id of the process, or a change not committed"
        if self.curve is not None:
            yield "  how often it shows if the simulator decides anew from a time on:"
            yield from self.curve.lines()
        if self.rate is not None:
            low, high = self.rate
            yield f"  {self.hits} of {self.runs} runs show it: {low:.0%} to {high:.0%} of them (95 %)"
            if self.hits:
                yield f"  {count(runs_for_one(self.hits / self.runs), 'run')} for one with {SURE:.0%}"


def replay(request: ReplayRequest, json_output: bool) -> int:
    """Make the run again and tell what came of it: 1 if it shows its finding, 0 if not, 2 if nobody can tell.

    Raises UserError for a run that did not end, and for what can't be asked of it.
    """
    run = saved_run(request.path)
    simulated = run.options.on == "sim"
    if simulated and (request.times is not None or request.until_hits is not None):
        raise UserError(
            "--times and --until-hits are for runs in real time: one in the simulator is the same each time."
        )
    if not simulated:
        run.refuted("reproduce")
        if request.against is not None or request.likelihood:
            raise UserError("--against and --likelihood are for runs in the simulator.")
    elif request.likelihood:
        run.refuted("follow")
    elif request.to is not None:
        raise UserError("--to is for the picture of --likelihood.")
    picture = _picture_of(request, run)
    validate(run.options)
    asked, teller = AskedToEnd(), Teller()
    with asked.in_charge(), working(f"replaying {request.path}"):
        if not simulated:
            replayed = _many(run, request, asked)
        elif request.against is None:
            replayed = _again(run, asked)
            if request.likelihood and replayed.reproduced:
                replayed = msgspec.structs.replace(replayed, curve=likelihood(run, request.jobs, asked, picture))
        else:
            replayed = _against(run, request.against)
    for line in [msgspec.json.encode(replayed).decode()] if json_output else replayed.lines():
        teller.line(line)
    return teller.end(replayed.exit_code)


def _picture_of(request: ReplayRequest, run: SavedRun) -> Path:
    """Where the picture goes; raises UserError where nothing can be written."""
    picture = request.to or Path(f"{run.path.name}-likelihood.svg")
    if not picture.absolute().parent.is_dir():
        raise UserError(f"There is no directory {picture.parent} for the picture {picture.name}.")
    return picture


# ---- the simulator ----


def _again(run: SavedRun, asked: AskedToEnd) -> Replayed:
    """Made again here, by this code."""
    with scratch_folder("replay") as scratch:
        warm(run.options.workload)
        options = replace(run.options, store=Path(scratch), record=None)
        order = RunOrder(options, Keep.ALL, measured=True, hash_seed=HASH_SEED)
        with closing(run_orders([order], 1, asked=asked)) as found:
            ((_, result),) = found
        return _compared(run, _side(result, provenance().get("git_commit")), result.run, provenance())


def _against(run: SavedRun, commit: str) -> Replayed:
    """Made again by the code of another commit, in a process of its own."""
    with tree_folder() as folder, worktree(HERE, commit, folder / "tree") as tree:
        return _made_there(run, commit, tree)


def _made_there(run: SavedRun, commit: str, tree: Path) -> Replayed:
    with scratch_folder("replay") as scratch:
        ended = _run_there(tree, replace(run.options, store=Path(scratch), record=None))
        made = [path.parent for path in Path(scratch).glob("*/*/verdict.json") if not path.parent.is_symlink()]
        if not made:
            raise UserError(f"{commit} makes no such run: {(ended.stderr.strip().splitlines() or ['no word'])[-1]}")
        other = saved_run(made[0])
        replayed = _compared(run, _side_of(other), made[0], other.record.provenance)
    if replayed.block is None:
        return replayed
    return msgspec.structs.replace(replayed, sides=_sides(run.options, replayed.block, tree))


def _sides(options: RunOptions, block: StepBlock, there: Path) -> StepSides | None:
    """The first step of the block that this code makes otherwise than that in a tree; None where they make the same,
    or nothing that can be compared."""
    kept = []
    for tree in (HERE, there):
        with scratch_folder("block") as scratch:
            path = Path(scratch) / "steps.jsonl"
            program = [traced_block.__file__, str(path), str((block.first - 1) // MARK_STEPS)]
            _run_there(tree, replace(options, store=Path(scratch), record=None), program)
            kept.append(read_traced(path))
    one, other = kept
    return None if one is None or other is None else first_step(one, other, block.begin_ns)


def _run_there(
    tree: Path, options: RunOptions, program: Sequence[str] = ("-m", "assay")
) -> subprocess.CompletedProcess[str]:
    """Carry out a run by the program in this tree, or by another with its code."""
    arguments = [*_words_of(options), "--store", str(options.store)]
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    command = [sys.executable, "-P", *program, *arguments]
    return subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)


def _words_of(options: RunOptions) -> Sequence[str]:
    import shlex

    return shlex.split(from_anywhere(replace(options, store=Path("store"))).command())[1:]


def _compared(run: SavedRun, after: ReplayedSide, made: Path | None, of: Mapping[str, Any]) -> Replayed:
    before, block = _side_of(run), None
    same = None if None in (before.trace, after.trace) else before.trace == after.trace
    if same is False and made is not None:
        was, now = read_steps(run.rundir.steps_jsonl), read_steps(RunDir(made).steps_jsonl)
        block = first_difference(was, now) if was is not None and now is not None else None
    then = run.record.provenance
    names = [name for name in {**then, **of} if then.get(name) != of.get(name)]
    differs = {name: (then.get(name), of.get(name)) for name in names}
    hit = before.family is not None and after.family == before.family
    lost = after.trace is None or (after.overall == "unknown" and not hit)
    reproduced = None if lost and not hit else hit
    return Replayed(str(run.path), before, (after,), reproduced, int(hit), 1, None, same, block, None, differs)


def _side_of(run: SavedRun) -> ReplayedSide:
    found, commit = run.finding, run.record.provenance.get("git_commit")
    family, title = (None, None) if found is None else (found.family, found.title)
    return ReplayedSide(run.overall, family, title, run.trace, commit)


def _side(result: RunResult, commit: str | None) -> ReplayedSide:
    found = finding_of(result)
    family, title = (None, None) if found is None else (found.family, found.title)
    return ReplayedSide(result.overall, family, title, result.trace, commit)


# ---- real time ----


def _many(run: SavedRun, request: ReplayRequest, asked: AskedToEnd) -> Replayed:
    """Made again so often; a wish to end leaves those that ended."""
    wanted, times = run.refuted("reproduce"), request.times or 10
    order = RunOrder(replace(run.options, record=None), Keep.FINDINGS, measured=True)
    after: list[ReplayedSide] = []
    hits = 0
    try:
        with closing(run_orders((order for _ in range(times)), request.jobs, asked=asked)) as found:
            for _, result in found:
                side = _side(result, provenance().get("git_commit"))
                if result.lost is not None or (side.overall == "unknown" and side.family is None):
                    continue  # it says nothing of the finding
                after.append(side)
                hits += after[-1].family == wanted.family
                if request.until_hits is not None and hits >= request.until_hits:
                    break
    except KeyboardInterrupt:
        pass
    reproduced = True if hits else False if after else None
    bounds = wilson(hits, len(after))
    return Replayed(str(run.path), _side_of(run), tuple(after), reproduced, hits, len(after), bounds)
