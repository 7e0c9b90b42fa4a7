"""Commits of a repository, and runs at each: a worktree, what is built there, and whether a finding shows."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from shlex import split
from tempfile import gettempdir
from typing import Final

import msgspec

from assay.night.signature import evidence_of, signatures_of
from assay.options import RunOptions
from assay.reproduce.inputs import load_inputs, save_inputs
from assay.reproduce.reduction import OutOfTime
from assay.runner import GRACE_S, limit_s
from harness.atomic_write import abandoned_folders, held_folder
from harness.errors import UNDECODABLE, UserError, shortened
from harness.history.rundir import RunDir
from harness.verdict.run_verdict import EXIT_CODES

SHORT: Final = 12
"""Digits of a commit that are shown."""

TREES: Final = "assay-trees-"
"""How the names of folders begin that have worktrees."""

_ASSAY: Final = (sys.executable, "-m", "assay.cli")


class NoRun(Exception):
    """A commit that builds, and of which no run can be made."""


# ---- git ----


def top_of(directory: Path) -> Path:
    """The top of the repository that a directory is in; raises UserError where there is none, or it has changes."""
    if not directory.is_dir():
        raise UserError(f"There is no directory {directory}.")
    top = Path(git(directory, "rev-parse", "--show-toplevel"))
    if git(top, "status", "--porcelain", "--untracked-files=no"):
        raise UserError(f"{top} has changes that are of no commit; commit or stash them first.")
    return top


def line_of_commits(repository: Path, good: str, bad: str) -> list[str]:
    """The commits from the good one to the bad one, along first parents; raises UserError for what is no such line."""
    first, last = (_commit(repository, name) for name in (good, bad))
    if first == last:
        raise UserError(f"{good} and {bad} are the same commit; there is nothing between them.")
    if git(repository, "merge-base", first, last, fails="") != first:
        turned = git(repository, "merge-base", first, last, fails="") == last
        why = "the commits are in the wrong order" if turned else "it is not before that one"
        raise UserError(f"{good} can't be good and {bad} bad: {why}.")
    between = git(repository, "rev-list", "--first-parent", "--reverse", f"{first}..{last}").split()
    return [first, *between]


def _commit(repository: Path, name: str) -> str:
    found = git(repository, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}", fails="")
    if not found:
        raise UserError(f"There is no commit {name} in {repository}.")
    return found


def git(repository: Path, *words: str, fails: str | None = None) -> str:
    """What git says; raises UserError, with its own last word, where it fails, unless told what that means."""
    try:
        ended = subprocess.run(["git", "-C", str(repository), *words], capture_output=True, text=True, check=False)
    except OSError as error:
        raise UserError(f"git can't be run: {error.strerror}.") from error
    if ended.returncode != 0 and fails is None:
        raise UserError(f"git {words[0]} in {repository}: {_last_line(ended.stderr)}.")
    return ended.stdout.strip() if ended.returncode == 0 else str(fails)


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return shortened(lines[-1].rstrip("."), 200) if lines else "it says nothing"


@contextmanager
def worktree(repository: Path, commit: str, tree: Path) -> Iterator[Path]:
    """A checkout of a commit, for a while; raises UserError where there is no such commit."""
    git(repository, "worktree", "add", "--detach", "--force", str(tree), _commit(repository, commit))
    try:
        yield tree
    finally:
        git(repository, "worktree", "remove", "--force", "--force", str(tree), fails="")
        shutil.rmtree(tree, ignore_errors=True)
        git(repository, "worktree", "prune", fails="")


def tree_folder() -> AbstractContextManager[Path]:
    """A folder for worktrees, which goes with this process, or is named and removed by `assay doctor`."""
    return held_folder(TREES, Path(gettempdir()))


def abandoned_trees(remove: bool = False) -> tuple[Path, ...]:
    """Folders of worktrees whose process is gone; removed, if that is wanted, and their repositories told."""
    return abandoned_folders(TREES, Path(gettempdir()), _remove_trees if remove else None)


def _remove_trees(folder: Path) -> None:
    trees = [path.parent for path in folder.glob("*/.git")]
    repositories = {git(tree, "rev-parse", "--path-format=absolute", "--git-common-dir", fails="") for tree in trees}
    shutil.rmtree(folder, ignore_errors=True)
    for repository in sorted(repositories - {""}):
        git(Path(repository), "worktree", "prune", fails="")


# ---- runs ----


@dataclass
class Worktrees:
    """A worktree for each commit that was visited, in a folder of their own that goes with them, and runs there: by the
    commit's own assay, or by this one of what was built there, whose place the variable ASSAY_TREE names."""

    repository: Path
    build: str | None
    options: RunOptions
    family: str
    jobs: int
    deadline_s: float
    folder: Path = field(init=False)
    _built: set[str] = field(default_factory=set)
    _trees: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> Worktrees:
        self.folder = self._trees.enter_context(tree_folder())
        return self

    def __exit__(self, *raised: object) -> None:
        self._trees.close()

    def why_not(self, commit: str) -> str | None:
        """Why no run can be made of this commit, in a sentence, after trying to build it; None if one can."""
        if commit in self._built:
            return None
        tree = self._tree(commit)
        build = ["sh", "-c", self.build] if self.build else [*_ASSAY, "list", "workloads"]
        ended = self._ended([self._begun(build, tree, tree)], None)[0]
        self._built = set() if self.build else self._built
        if not ended.code:
            self._built.add(commit)
        return f"{_last_line(ended.told)} (exit code {ended.code})." if ended.code else None

    def hits(self, commit: str, seeds: Sequence[int]) -> list[bool]:
        """Of each seed whether the finding shows at this commit; raises NoRun, and OutOfTime."""
        tree, found = self._tree(commit), list[bool]()
        for place in range(0, len(seeds), self.jobs):
            stores = {seed: self.folder / f"store-{seed}" for seed in seeds[place : place + self.jobs]}
            processes = [self._begun_run(tree, seed, store) for seed, store in stores.items()]
            try:
                found += [self._is_hit(ended) for ended in self._ended(processes, 1.5 * limit_s(self.options))]
            finally:
                for store in stores.values():
                    shutil.rmtree(store, ignore_errors=True)
        return found

    def _tree(self, commit: str) -> Path:
        tree = self.folder / commit[:SHORT]
        if not tree.exists():
            self._trees.enter_context(worktree(self.repository, commit, tree))
        return tree

    def _begun_run(self, tree: Path, seed: int, store: Path) -> subprocess.Popen[str]:
        words = [*_ASSAY, *split(self.options_for(seed, store).command())[1:], "--json"]
        return self._begun(words, tree, tree if self.build is None else Path())

    def options_for(self, seed: int, store: Path) -> RunOptions:
        """The options of the run of a seed, to be carried out from any directory."""
        return from_anywhere(replace(self.options, seed=seed, store=store, inputs=self._inputs_for(seed)))

    def _inputs_for(self, seed: int) -> Path | None:
        """Of a run by inputs those for another seed: the same faults and operations, and other chance."""
        if self.options.inputs is None or seed == self.options.seed:
            return self.options.inputs
        folder = self.folder / f"inputs-{seed}"
        save_inputs(replace(load_inputs(self.options.inputs), decisions={}, key=f"seed-{seed}"), folder)
        return folder

    def _begun(self, words: Sequence[str], tree: Path, where: Path) -> subprocess.Popen[str]:
        surroundings = {**os.environ, "ASSAY_TREE": str(tree)}
        if self.build is None:
            surroundings["PYTHONPATH"] = str(tree)
        told = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL}
        return subprocess.Popen(words, cwd=where, env=surroundings, text=True, start_new_session=True, **told)  # type: ignore[call-overload,no-any-return]

    def _ended(self, processes: Sequence[subprocess.Popen[str]], limit: float | None) -> list[_Ended]:
        """What they said, once all have ended; whatever is raised, none goes on. Raises NoRun for one that takes longer
        than the limit, seconds."""
        limit_at_s = float("inf") if limit is None else time.monotonic() + limit
        try:
            return [self._awaited(process, limit_at_s) for process in processes]
        except subprocess.TimeoutExpired as error:
            if time.monotonic() >= self.deadline_s:
                raise OutOfTime from error
            raise NoRun(f"a run of it had not ended after {limit:g} s.") from error
        finally:
            _end(processes, GRACE_S[self.options.on])

    def _awaited(self, process: subprocess.Popen[str], limit_at_s: float) -> _Ended:
        left_s = min(limit_at_s, self.deadline_s) - time.monotonic()
        out, told = process.communicate(timeout=max(left_s, 0.0))
        return _Ended(process.returncode, out, told or out)

    def _is_hit(self, ended: _Ended) -> bool:
        """Whether the run shows the finding, by its saved verdict; raises NoRun where there is none."""
        if ended.code not in EXIT_CODES.values():
            raise NoRun(f"no run can be made of it: {_last_line(ended.told)} (exit code {ended.code}).")
        try:
            path = msgspec.json.decode(ended.out.strip().splitlines()[-1])["run"]
            found = signatures_of(evidence_of(RunDir(Path(path))))
        except (*UNDECODABLE, LookupError, TypeError, OSError, UserError) as error:
            raise NoRun(f"what its assay says of a run can't be read: {type(error).__name__}: {error}.") from error
        return self.family in {each.family for each in found}


@dataclass(frozen=True, slots=True)
class _Ended:
    """The exit code of a process, what it printed, and what it said of itself."""

    code: int
    out: str
    told: str


def from_anywhere(options: RunOptions) -> RunOptions:
    """The options with the files that they name found from any directory."""

    def whole(name: str) -> str:
        path, colon, rest = name.partition(".py:")
        file = Path(f"{path}.py" if colon else name)
        return f"{file.absolute()}{f':{rest}' if colon else ''}" if file.is_file() else name

    hosts, inputs = (None if path is None else path.absolute() for path in (options.hosts, options.inputs))
    plugins = tuple(map(whole, options.plugins))
    return replace(options, database=whole(options.database), plugins=plugins, hosts=hosts, inputs=inputs)


def _end(processes: Sequence[subprocess.Popen[str]], grace_s: float) -> None:
    """See to it that they have ended, with all that they started: told to, then killed."""
    alive = [process for process in processes if process.poll() is None]
    for process in alive:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
    for process in alive:
        with suppress(subprocess.TimeoutExpired):
            process.wait(grace_s)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
