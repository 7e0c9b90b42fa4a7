"""How many bugs that nobody named does the harness find, and where does it lose the others?

First a pool of clean runs, the *twins*: a fixed mix of workloads, each with the lines of the cluster that it ran, its
trace digest and steps. A mutant runs in seeds whose twin ran its statement, for in the others it is the same run; at
most `--seeds` of them, and until the first finding. Limits are three times the twin's steps and CPU time.
"""

from __future__ import annotations

import argparse
import os
import pickle
import resource
import signal
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, Final, TypeVar

import msgspec

from assay.options import RunOptions
from assay.runner import Keep, RunResult, run_seed
from cluster.invariants.watch import NO_PANIC
from harness.ports.sim import loop as loops
from tests.support.mutation import AREAS, PLANTED, ROOT, Site, all_sites, plant, sample

T = TypeVar("T")

MIX: Final[tuple[tuple[str, dict[str, str]], ...]] = (
    ("register", {}),
    ("snapshots", {}),
    ("catalog", {}),
    ("durable-rows", {"table": "legacy"}),
    ("monotonic-reads", {"table": "logged"}),
    ("write-atomicity", {"table": "logged"}),
    ("convergence", {"table": "logged"}),
)
TIME_LIMIT_S: Final = 20.0
TWIN_SEEDS: Final = range(1, 21)
SLACK: Final = 3
EQUIVALENT: Final = ROOT / "tests/data/equivalent-mutants.toml"
LOST: Final = ("not reached", "nothing changed", "believed")
FOUND: Final = ("clients", "invariant", "liveness", "exception or spin")


class Twin(msgspec.Struct, frozen=True):
    """A clean run: what made it, its word, trace digest, steps, CPU time in seconds, and by file the lines that ran."""

    workload: str
    options: dict[str, str]
    seed: int
    overall: str
    trace: str | None
    steps: int
    cpu_s: float
    lines: dict[str, list[int]]

    def runs(self, site: Site) -> bool:
        return not set(self.lines.get(site.path, ())).isdisjoint(range(site.first, site.last + 1))


class Tried(msgspec.Struct, frozen=True):
    """What came of a mutant: where it was lost or by what it was found, in which run, the words of that, how many runs
    were made and changed, and their CPU time; `by_tests`: no run found it, but the quick tests of the cluster do."""

    name: str
    fate: str
    runs: int = 0
    changed: int = 0
    cpu_s: float = 0.0
    run: str = ""
    words: tuple[str, ...] = ()
    by_tests: bool = False


def run_options(workload: str, options: dict[str, str], seed: int, store: Path) -> RunOptions:
    """The run of the one generic command."""
    return RunOptions(
        *(workload, "sim", ("all",), TIME_LIMIT_S),
        seed=seed,
        swarm=True,
        store=store,
        workload_options=options,
    )


# ---- children ----


def in_children(work: Sequence[Callable[[], T]], jobs: int) -> Iterator[tuple[int, T | None]]:
    """Each piece of work in a forked child of its own; what it returned, None if it died, with its index."""
    waiting, under_way = list(enumerate(work))[::-1], dict[int, tuple[int, Path]]()
    with TemporaryDirectory(prefix="assay-mutants-") as folder:
        while waiting or under_way:
            while waiting and len(under_way) < jobs:
                index, each = waiting.pop()
                answer = Path(folder, str(index))
                under_way[_forked(each, answer)] = index, answer
            child, _ = os.wait()
            if child not in under_way:  # an orphan that this process has adopted
                continue
            index, answer = under_way.pop(child)
            yield index, pickle.loads(answer.read_bytes()) if answer.exists() else None


def _forked(work: Callable[[], Any], answer: Path) -> int:
    sys.stdout.flush()
    if child := os.fork():
        return child
    try:
        os.setsid()
        found = pickle.dumps(work())
        answer.with_suffix(".part").write_bytes(found)
        answer.with_suffix(".part").rename(answer)
    finally:
        os._exit(0)


def _limited(cpu_s: float, steps: int) -> None:
    """From here on the process ends after `cpu_s` more of CPU time, and a simulation after `steps` in all."""
    spent = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
    resource.setrlimit(resource.RLIMIT_CPU, (int(spent + cpu_s) + 1, int(spent + cpu_s) + 2))
    signal.signal(signal.SIGXCPU, signal.SIG_DFL)
    loops.NO_LIMIT = steps


def _counted() -> list[loops.SimLoop]:
    """The simulations that begin from now on."""
    made: list[loops.SimLoop] = []
    begin = loops.SimLoop.__init__

    def begin_counted(self: loops.SimLoop, *arguments: Any, **named: Any) -> None:
        made.append(self)
        begin(self, *arguments, **named)

    loops.SimLoop.__init__ = begin_counted  # type: ignore[method-assign]
    return made


def make_twin(workload: str, options: dict[str, str], seed: int) -> Twin:
    """The clean run, watched."""
    import coverage

    made = _counted()
    watch = coverage.Coverage(data_file=None, include=[str(ROOT / "cluster" / area / "*") for area in AREAS])
    with TemporaryDirectory(prefix="assay-twin-") as store:
        watch.start()
        result = run_seed(run_options(workload, options, seed, Path(store)), Keep.NOTHING)
        watch.stop()
    data = watch.get_data()
    lines = {str(Path(name).relative_to(ROOT)): sorted(data.lines(name) or ()) for name in data.measured_files()}
    steps = made[0].steps if made else 0
    return Twin(workload, options, seed, result.overall, result.trace, steps, result.cpu_s, lines)


def run_mutant(site: Site, twin: Twin) -> RunResult:
    """The run of the twin with the mutant in it."""
    plant(site)
    _limited(SLACK * twin.cpu_s + 5, SLACK * twin.steps + 100_000)
    with TemporaryDirectory(prefix="assay-mutant-") as store:
        return run_seed(run_options(twin.workload, twin.options, twin.seed, Path(store)), Keep.NOTHING)


# ---- judging them ----


def fate_of(result: RunResult | None, twin: Twin) -> str:
    """What a run of a mutant showed: one of `FOUND`, else of `LOST`."""
    if result is None or any("SimulationStuck" in reason for reason in result.reasons):
        return "exception or spin"
    broken = set(result.invariants)
    if set(result.anomalies) - broken:
        return "clients"
    if broken - {NO_PANIC}:
        return "invariant"
    if broken:
        return "exception or spin"
    if result.overall != "valid" and twin.overall == "valid":
        return "exception or spin" if result.why == "harness" else "liveness"
    return "nothing changed" if result.trace == twin.trace else "believed"


def fitting(site: Site, twins: Sequence[Twin], most: int) -> list[Twin]:
    """The twins to try a mutant in: those that run its statement, the workloads in turn, in an order of its own."""
    entropy, by_workload = Random(site.name), dict[str, list[Twin]]()
    for twin in twins:
        if twin.overall == "valid" and twin.runs(site):
            by_workload.setdefault(f"{twin.workload}{twin.options}", []).append(twin)
    columns = [entropy.sample(column, len(column)) for column in by_workload.values()]
    entropy.shuffle(columns)
    rows = [column[i] for i in range(len(TWIN_SEEDS)) for column in columns if i < len(column)]
    return rows[:most]


def try_mutant(site: Site, twins: Sequence[Twin], most: int) -> Tried:
    """Run a mutant until it is found; each run in a child of this process."""
    runs = changed = 0
    cpu_s, chosen = 0.0, fitting(site, twins, most)
    for twin in chosen:
        (_, result), *_ = in_children([partial(run_mutant, site, twin)], 1)
        runs += 1
        cpu_s += SLACK * twin.cpu_s + 5 if result is None else result.cpu_s
        fate = fate_of(result, twin)
        changed += fate != "nothing changed"
        if fate in FOUND:
            words = ("its process ended without a result",) if result is None else (*result.anomalies, *result.reasons)
            run = f"{twin.workload} {' '.join(f'-o {k}={v}' for k, v in twin.options.items())} --seed {twin.seed}"
            return Tried(site.name, fate, runs, changed, cpu_s, run, tuple(word[:200] for word in words[:8]))
    fate = "not reached" if not chosen else "believed" if changed else "nothing changed"
    return Tried(site.name, fate, runs, changed, cpu_s, by_tests=_tests_fail(site))


def _tests_fail(site: Site) -> bool:
    """Whether a quick test of the cluster fails with the mutant in it."""
    words = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:xdist", "-p", "tests.support.mutation"]
    quick = ["-m", "not campaign and not docker and not spark and not runs and not thousands", "tests/cluster"]
    planted = os.environ | {PLANTED: msgspec.json.encode(site).decode()}
    try:
        ended = subprocess.run([*words, *quick], cwd=ROOT, env=planted, capture_output=True, timeout=600)
    except subprocess.TimeoutExpired:
        return True
    return ended.returncode != 0


# ---- the campaign ----


def twins_of(folder: Path, jobs: int) -> list[Twin]:
    """The pool of clean runs, made once for a commit."""
    saved = folder / "twins.msgpack"
    if saved.exists():
        return msgspec.msgpack.decode(saved.read_bytes(), type=list[Twin])
    work = [partial(make_twin, name, options, seed) for name, options in MIX for seed in TWIN_SEEDS]
    found: list[Twin] = []
    for _, twin in in_children(work, jobs):
        found += [twin] if twin is not None else []
        print(f"\rtwins: {len(found)} of {len(work)}", end="", file=sys.stderr, flush=True)
    found.sort(key=lambda twin: (twin.workload, sorted(twin.options.items()), twin.seed))
    saved.write_bytes(msgspec.msgpack.encode(found))
    return found


def equivalent() -> dict[str, str]:
    """By name the mutants that change nothing anybody could see, each with its reason."""
    return dict(tomllib.loads(EQUIVALENT.read_text())) if EQUIVALENT.exists() else {}


def campaign(chosen: Sequence[Site], folder: Path, most: int, jobs: int) -> list[Tried]:
    """Every mutant's fate; those that were tried before are read from the folder."""
    twins, saved = twins_of(folder, jobs), folder / "tried.jsonl"
    lines = saved.read_bytes().splitlines() if saved.exists() else []
    done = {each.name: each for each in (msgspec.json.decode(line, type=Tried) for line in lines)}
    left = [site for site in chosen if site.name not in done]
    with saved.open("ab") as file:
        for index, tried in in_children([partial(try_mutant, site, twins, most) for site in left], jobs):
            tried = Tried(left[index].name, "exception or spin", words=("it died",)) if tried is None else tried
            done[tried.name] = tried
            file.write(msgspec.json.encode(tried) + b"\n")
            file.flush()
            print(_line(left[index], tried), flush=True)
    return [done[site.name] for site in chosen]


def _line(site: Site, tried: Tried) -> str:
    where = f"{site.path}:{site.first} {site.function}: {site.operator}: {site.before} -> {site.after}"
    return f"{tried.name} {tried.fate} ({tried.changed} of {tried.runs} runs changed, {tried.cpu_s:.0f} CPU-s) {where}"


def table(chosen: Iterable[Site], tried: Iterable[Tried]) -> Iterator[str]:
    """The campaign in a table of Markdown, by areas; a sentence below has the shares that matter."""
    excused, kept = equivalent(), list[tuple[Site, Tried]]()
    left_out = 0
    for site, each in zip(chosen, tried, strict=True):
        if site.name in excused and each.fate in LOST:
            left_out += 1
        else:
            kept.append((site, each))
    fates = (*LOST, *FOUND)
    yield f"| area | mutants | {' | '.join(fates)} |"
    yield f"|---|{'---|' * (len(fates) + 1)}"
    for area in (*AREAS, ""):
        counts = Counter(each.fate for site, each in kept if not area or site.area == area)
        row = " | ".join(str(counts[fate] or "") for fate in fates)
        yield f"| {f'`{area}`' if area else '**all**'} | {sum(counts.values())} | {row} |"
    quiet = [each for _, each in kept if each.fate != "exception or spin"]
    found = [each for each in quiet if each.fate in FOUND]
    clients = sum(each.fate == "clients" for each in quiet)
    reached = sum(each.fate != "not reached" for _, each in kept)
    cpu_h = sum(each.cpu_s for _, each in kept) / 3600
    yield ""
    lost = [each for _, each in kept if each.fate in LOST]
    yield (
        f"{len(kept)} mutants and {left_out} equivalent ones: {_share(reached, len(kept))} reached; of those that "
        f"neither raise an exception nor spin {_share(len(found), len(quiet))} found, "
        f"{_share(clients, len(quiet))} by what clients see. Of those that were lost the cluster's quick tests find "
        f"{_share(sum(each.by_tests for each in lost), len(lost))}. {cpu_h:.2f} CPU-hours of runs: "
        f"{len(found) / max(cpu_h, 1e-9):.0f} found in one, exceptions and spins left out."
    )


def _share(part: int, whole: int) -> str:
    return f"{part} of {whole} ({100 * part / max(whole, 1):.0f} %)"


def head() -> str:
    """The commit at hand."""
    return subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sample", type=int, default=150, help="how many mutants")
    parser.add_argument("--draw", default=head(), help="what the sample is drawn by; the commit at hand")
    parser.add_argument("--seeds", type=int, default=20, help="runs of a mutant at most")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--store", type=Path, default=ROOT / "store" / "mutants")
    parser.add_argument("--list", action="store_true", help="name the sample, run nothing")
    given = parser.parse_args()
    all_sites()  # which loads all that can be mutated
    chosen = sample(given.sample, given.draw)
    if given.list:
        print("\n".join(f"{site.name} {replace(site)}" for site in chosen))
        return
    folder = given.store / head()[:12]
    folder.mkdir(parents=True, exist_ok=True)
    tried = campaign(chosen, folder, given.seeds, given.jobs)
    print("\n".join(table(chosen, tried)))


if __name__ == "__main__":
    main()
