"""Finds pinned seeds again after a change that moves what seeds draw: `python -m tests.support.find_seeds`.

Seeds are pinned where something has to happen in a run. Of *flaws* (`FOUND_BY`) the first of these seeds counts that
shows the flaw as it is to be seen and is valid without it; the figures in `docs/flaws.md` and the commands in documents
are written with it. Of *tests* every one that holds a seed of its own (`seed=7`, `World(7`) is run; where one fails,
the seed in its source is changed until it passes. A test that fails for another reason fails with each: it is told, and
left as it was. What was tried is in a record, so that a search that was broken off goes on.

`--only generic` asks what the flaws' own nemeses are worth: `--nemesis all --swarm` finds each, or not, under the
workload that its own command has; nothing is written.
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from assay.known_commands import command_of
from assay.options import RunOptions
from assay.outcome_records import CampaignOutcome, CampaignRecord, outcome_of
from assay.seeds import parse_seeds
from cluster.flaws import FLAWS, Flaw
from harness.run.provenance import provenance
from tests.support.known_runs import flawed_options, try_seeds

ROOT = Path(__file__).parents[2]
FOUND_BY = ROOT / "tests" / "assay" / "test_campaigns.py"
TRACK_RECORD = ROOT / "docs" / "flaws.md"
FOLDERS = ("assay", "cluster", "harness", "nemesis", "workloads")
"""Folders of `tests` whose seeds are of simulated runs."""
SEED = re.compile(r"(\bseed=|\bWorld\()(\d+)\b")
MOST_SEEDS = 60
"""How many are tried where the first ones don't do."""


# ---- flaws ----


def shows(flaw: Flaw, outcome: CampaignOutcome) -> bool:
    """Whether a run found the flaw, by what is to see it."""
    if flaw.seen_by == "clients":
        return outcome.found and bool(outcome.anomalies)
    return outcome.found and flaw.seen_by in outcome.invariants


def carried_out(runs: Sequence[RunOptions], record: CampaignRecord, jobs: int) -> tuple[CampaignOutcome, ...]:
    """What came of these runs; those that the record has not are made."""
    for result in try_seeds([options for options in runs if options.command() not in record], jobs):
        record.add(outcome_of(result, result.options.command(), record.commit))
    return record.of(options.command() for options in runs)


def tried(flaw: Flaw, seeds: Sequence[int], record: CampaignRecord, jobs: int) -> tuple[CampaignOutcome, ...]:
    """What came of the flaw with these seeds."""
    return carried_out([flawed_options(flaw, seed) for seed in seeds], record, jobs)


def seed_of(flaw: Flaw, seeds: Iterable[int], record: CampaignRecord) -> int | None:
    """The first of the seeds that shows the flaw, and whose run is valid without it."""
    for seed in seeds:
        if all(shows(flaw, each) for each in tried(flaw, [seed], record, 1)):
            clean = carried_out([command_of(flaw).options(seed)], record, 1)
            if clean[0].overall == "valid":
                return seed
    return None


def seen_by(outcomes: Sequence[CampaignOutcome]) -> str:
    """What shows it, the most frequent first: anomalies that clients saw, then invariants in backquotes."""
    anomalies = ", ".join(_most_frequent(each.anomalies for each in outcomes))
    invariants = ", ".join(f"`{name}`" for name in _most_frequent(each.invariants for each in outcomes)[:2])
    return "; ".join(filter(None, (anomalies, invariants)))


def _most_frequent(names: Iterable[tuple[str, ...]]) -> list[str]:
    return [name for name, _ in Counter(name for each in names for name in each).most_common()]


def in_words(outcomes: Sequence[CampaignOutcome]) -> tuple[str, str]:
    """How many of these runs found a flaw, and as what, as `docs/flaws.md` has it."""
    found = [each for each in outcomes if each.found]
    clients = sum(bool(each.anomalies) for each in found)
    by_clients = "" if clients == len(found) else f", clients in {clients or 'none'}"
    return f"{len(found)} of {len(outcomes)}{by_clients}", seen_by(found)


def rewritten(row: str, outcomes: Sequence[CampaignOutcome]) -> str:
    """A row of the track record with these figures."""
    *cells, _, _ = row.strip().removeprefix("| ").removesuffix(" |").split(" | ")
    return f"| {' | '.join((*cells, *in_words(outcomes)))} |"


def write_flaw(flaw: Flaw, seed: int, outcomes: Sequence[CampaignOutcome]) -> None:
    """Put the seed, and the figures, where they are told."""
    source = FOUND_BY.read_text()
    FOUND_BY.write_text(re.sub(rf'^(    "{flaw.name}": )\d+,$', rf"\g<1>{seed},", source, flags=re.MULTILINE))
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        text = page.read_text()
        changed = re.sub(rf"--seed \d+( --flaw {flaw.name}(?![\w-]))", rf"--seed {seed}\1", text)
        if page == TRACK_RECORD:
            lines = changed.splitlines()
            told = f"| `{flaw.name}` |"
            rows = [rewritten(each, outcomes) if each.startswith(told) and "--flaw" in each else each for each in lines]
            changed = "\n".join(rows) + "\n"
        if changed != text:
            page.write_text(changed)


def find_flaws(names: Sequence[str], seeds: range, record: CampaignRecord, jobs: int) -> Iterator[str]:
    """Every flaw's seed, written; a line for each."""
    for flaw in (FLAWS[name] for name in names or FLAWS):
        outcomes = tried(flaw, seeds, record, jobs)
        seed = seed_of(flaw, (*seeds, *range(seeds[-1] + 1, MOST_SEEDS + 1)), record)
        if seed is not None and seed not in seeds:
            outcomes = tried(flaw, range(seeds[0], seed + 1), record, jobs)
        words, kinds = in_words(outcomes)
        if seed is None:
            yield f"{flaw.name}: none of {MOST_SEEDS} seeds ({words}: {kinds})"
        else:
            write_flaw(flaw, seed, outcomes)
            yield f"{flaw.name}: {seed} ({words}: {kinds})"


def generic_options(flaw: Flaw, seed: int) -> RunOptions:
    """A run with every nemesis, of which the seed draws some: of the flaw's own command it has the workload, and the
    design of its tables.
    """
    own = command_of(flaw).options(seed, flaw.name)
    table = {name: value for name, value in own.workload_options.items() if name == "table"}
    return RunOptions(
        flaw.workload, nemesis=("all",), swarm=True, time_limit=20.0, seed=seed, flaw=own.flaw, workload_options=table
    )


def find_by_one_command(names: Sequence[str], record: CampaignRecord, jobs: int) -> Iterator[str]:
    """The first seed of `--nemesis all --swarm` that finds each flaw: a line for each, and how many it finds."""
    found = 0
    for flaw in (FLAWS[name] for name in names or FLAWS):
        for seed in range(1, MOST_SEEDS + 1):
            (outcome,) = carried_out([generic_options(flaw, seed)], record, jobs)
            if outcome.found:
                found += 1
                yield f"{flaw.name}: {seed} ({seen_by([outcome])})"
                break
        else:
            yield f"{flaw.name}: none of {MOST_SEEDS} seeds"
    yield f"{found} of {len(names or FLAWS)}"


# ---- tests ----


def pinning(folders: Sequence[str]) -> list[str]:
    """The tests that hold a seed of their own, as pytest names them, without their parameters."""
    found = []
    for path in sorted(path for folder in folders for path in (ROOT / "tests" / folder).rglob("test_*.py")):
        name = path.relative_to(ROOT).as_posix()
        found += [f"{name}::{test}" for test, (begin, end) in _tests(path).items() if _seeds(path, begin, end)]
    return found


def _tests(path: Path) -> dict[str, tuple[int, int]]:
    """The lines of each test, its decorators among them."""
    functions = (
        each for each in ast.parse(path.read_text()).body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    tests = [each for each in functions if each.name.startswith("test_") and each.end_lineno]
    return {
        each.name: (min([each, *each.decorator_list], key=_line).lineno - 1, each.end_lineno or 0) for each in tests
    }


def _line(node: ast.stmt | ast.expr) -> int:
    return node.lineno


def _seeds(path: Path, begin: int, end: int) -> list[str]:
    return [match[2] for match in SEED.finditer("".join(path.read_text().splitlines(keepends=True)[begin:end]))]


def with_seed(text: str, lines: tuple[int, int], seed: int) -> str:
    """A file's text with this as the first seed of a test."""
    parts = text.splitlines(keepends=True)
    begin, end = lines
    body = SEED.sub(rf"\g<1>{seed}", "".join(parts[begin:end]), count=1)
    return "".join([*parts[:begin], body, *parts[end:]])


def failing(tests: Sequence[str]) -> list[str]:
    """The names of tests that fail, without their parameters."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--no-header", "-rf", *tests]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout
    return list(dict.fromkeys(re.findall(r"^(?:FAILED|ERROR) ([^\s\[]+)", told, flags=re.MULTILINE)))


def find_tests(tests: Sequence[str]) -> Iterator[str]:
    """The seeds of the tests that fail, written; a line for each of those."""
    for test in failing(tests):
        path, name = ROOT / test.partition("::")[0], test.rpartition("::")[2]
        before = path.read_text()
        lines = _tests(path).get(name)
        tries = range(1, MOST_SEEDS + 1) if lines is not None and _seeds(path, *lines) else ()
        for seed in tries:
            path.write_text(with_seed(before, lines or (0, 0), seed))
            if not failing([test]):
                yield f"{test}: {seed}"
                break
        else:
            path.write_text(before)
            yield f"{test}: fails, with each of {len(tries)} seeds"


def main(arguments: Sequence[str] | None = None) -> int:
    """Find and write them; what could not be found is told, and is the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.find_seeds", description=__doc__)
    parser.add_argument("--only", choices=("flaws", "tests", "generic"), help="one of the kinds")
    parser.add_argument(
        "--seeds",
        default="1..5",
        help="the seeds whose figures docs/flaws.md has, and more where none of them shows the flaw",
    )
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    parser.add_argument("--record", type=Path, default=Path("store") / "find-seeds", help="what was tried")
    parser.add_argument("names", nargs="*", help="flaws, and tests as pytest names them; all, where there are none")
    options = parser.parse_args(arguments)
    flaws = [name for name in options.names if name in FLAWS]
    tests = [name for name in options.names if name not in FLAWS]
    record = CampaignRecord(options.record, provenance()["git_commit"])
    failed = 0
    found: list[Iterator[str]] = []
    if options.only == "generic":
        found.append(find_by_one_command(flaws, record, options.jobs))
    elif options.only != "tests" and (flaws or not tests):
        found.append(find_flaws(flaws, parse_seeds(options.seeds), record, options.jobs))
    if options.only not in ("flaws", "generic") and (tests or not flaws):
        found.append(find_tests(tests or pinning(FOLDERS)))
    for line in (line for lines in found for line in lines):
        failed += ": none of" in line or ": fails" in line
        print(line, flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
