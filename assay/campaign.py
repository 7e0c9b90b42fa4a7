"""`make torture`: every flaw has to be found within its seeds, and clean seeds have to be valid and never vacuous.

Each run is a line in a file of outcomes (`--record`). A campaign that is begun again, or for other seeds, leaves out
what it has; the tables are of all that the file knows.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
from rich.console import Console
from rich.progress import track
from rich.table import Table

from assay.options import RunOptions, validate
from assay.runner import Keep, RunResult, run_all
from assay.seeds import parse_seeds
from cluster.flaws import FLAWS, LONG_TAILS, Flaw
from harness.errors import UNDECODABLE, UserError
from harness.history.cores import usable_cores
from harness.run.provenance import provenance
from nemesis.asked import split
from nemesis.registry import SCRIPTS
from nemesis.scripts.catalogs import TABLES_MADE
from nemesis.scripts.quorum import LEADERLESS


class CampaignOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one run; `command`, without its store, is what it is known by. `anomalies` are what clients saw,
    `invariants` those that broke; a run of another `commit` (None: not known) is not this one."""

    command: str
    commit: str | None
    overall: str
    anomalies: tuple[str, ...] = ()
    invariants: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    ops: int = 0
    cpu_s: float = 0.0

    @property
    def found(self) -> bool:
        """Whether a checker refuted the run (a cluster that merely did not recover proves no flaw)."""
        return self.overall == "invalid" and bool(self.anomalies or self.invariants)


def outcome_of(result: RunResult, command: str, commit: str | None) -> CampaignOutcome:
    """The line of a result."""
    return CampaignOutcome(
        command=command,
        commit=commit,
        overall=result.overall,
        anomalies=tuple(name for name in result.anomalies if name not in result.invariants),
        invariants=result.invariants,
        reasons=result.reasons,
        ops=result.ops,
        cpu_s=round(result.cpu_s, 2),
    )


class CampaignRecord:
    """The outcomes of one commit's runs by command, and the file that each new one is appended to."""

    def __init__(self, path: Path, commit: str | None) -> None:
        self._path, self.commit = path, commit
        self._known: dict[str, CampaignOutcome] = {}
        for number, line in enumerate(path.read_bytes().splitlines() if path.exists() else (), 1):
            try:
                outcome = msgspec.json.decode(line, type=CampaignOutcome)
            except UNDECODABLE as error:
                raise UserError(f"{path}, line {number}, is no outcome of a campaign: {error}.") from error
            if outcome.commit == commit:
                self._known[outcome.command] = outcome

    def __contains__(self, command: str) -> bool:
        return command in self._known

    def add(self, outcome: CampaignOutcome) -> None:
        """Keep it, in the file first."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("ab") as file:
            file.write(msgspec.json.encode(outcome) + b"\n")
        self._known[outcome.command] = outcome

    def of(self, commands: Iterable[str]) -> tuple[CampaignOutcome, ...]:
        """The outcomes of the commands among these that are known, in their order."""
        return tuple(self._known[command] for command in commands if command in self._known)


def seen_by(outcomes: Sequence[CampaignOutcome]) -> str:
    """What shows it, the most frequent first: anomalies that clients saw, then invariants in backquotes."""
    return "; ".join(
        part
        for part in (
            ", ".join(_most_frequent(each.anomalies for each in outcomes)),
            ", ".join(f"`{name}`" for name in _most_frequent(each.invariants for each in outcomes)[:2]),
        )
        if part
    )


def _most_frequent(names: Iterable[tuple[str, ...]]) -> list[str]:
    counts: dict[str, int] = {}
    for each in names:
        for name in each:
            counts[name] = counts.get(name, 0) + 1
    return sorted(counts, key=lambda name: -counts[name])


TIME_LIMIT_S = 20.0
SCRIPT_LIMIT_S = 40.0
"""A script waits for a state, and for another chance where the first one passed."""


@dataclass(frozen=True, slots=True)
class Command:
    """What is run with many seeds."""

    workload: str
    nemesis: tuple[str, ...]
    world: str = ""
    time_limit_s: float = TIME_LIMIT_S
    workload_options: str = ""

    def options(self, seed: int, flaw: str | None = None) -> RunOptions:
        return RunOptions(
            self.workload,
            nemesis=self.nemesis,
            time_limit=self.time_limit_s,
            seed=seed,
            flaw=() if flaw is None else (flaw,),
            world=self.world,
            workload_options=dict(each.split("=", 1) for each in split(self.workload_options)),
        )

    def __str__(self) -> str:
        """The short command, without flaw and seed."""
        words = ["assay run", self.workload, "--nemesis", ",".join(self.nemesis), f"--time-limit {self.time_limit_s:g}"]
        words += [f"-o {each}" for each in split(self.workload_options)]
        return " ".join([*words, *(["--world", self.world] if self.world else [])])


def command_of(flaw: Flaw) -> Command:
    """The command that finds a flaw."""
    return Command(flaw.workload, split(flaw.nemesis), flaw.world, flaw.time_limit_s, flaw.options)


SCRIPT_WORLDS = {
    "snapshot-race": "snapshot-entries=20,retained-entries=16",
    "leader-returns": LONG_TAILS,
}
"""Told to a script that others would keep from its core: 10 000 writes take too long in some worlds."""

OF_LEGACY_TABLES = ("short-read",)
"""What they show is torn by design (`tests/assay/test_quorum_matrix.py`), but monotonic; logged tables hardly come to
their core, nor does any table of which few reads have limits."""


def command_of_script(script: str) -> Command:
    """A script under a workload that it can be reached with, and that keeps what it promises."""
    needs = SCRIPTS[script].needs
    workload = "write-atomicity" if LEADERLESS in needs else "catalog" if TABLES_MADE in needs else "register"
    options = "table=logged" if LEADERLESS in needs else ""
    return Command(workload, (script,), SCRIPT_WORLDS.get(script, ""), SCRIPT_LIMIT_S, options)


COMBINED: tuple[Command, ...] = (
    Command("register", ("stop", "crash-loop", "rolling-restart", "tserver-kill")),
    Command("register", ("clock-strobe", "clock-drift", "packets")),
    Command("register", ("slow-disk", "hung-disk", "full-disk")),
    Command("register", ("bit-flip", "truncate")),
    Command("register", ("failpoint", "leadership")),
    Command("catalog", ("master-pause", "master-clock", "master-membership")),
    Command("catalog", ("lost-answer", "power-cut", "snapshot-race"), SCRIPT_WORLDS["snapshot-race"]),
    Command("monotonic-reads", OF_LEGACY_TABLES, "", SCRIPT_LIMIT_S, "slices=0,limits=0.8"),
)
"""Kinds that no other clean command has, a few in each run, and scripts that hit the masters' group as well."""

CLEAN_COMMANDS: tuple[Command, ...] = tuple(
    dict.fromkeys(
        (
            Command("register", ("partition", "kill")),
            Command("register", ("partition", "kill", "pause")),
            Command("register", ("partition",)),
            *(command_of_script(script) for script in SCRIPTS if script not in OF_LEGACY_TABLES),
            *map(command_of, FLAWS.values()),
            *COMBINED,
        )
    )
)
"""What must stay valid without a flaw: mixed faults, every nemesis, and what finds the flaws."""


SEED_STRIDE = 1_000
"""Each clean command has seeds of its own, so that one odd world does not stand for all of them."""


def clean_commands(flaws: Sequence[str] | None) -> Sequence[Command]:
    """The commands that find the flaws of these names, each once; all of them if none is named."""
    return CLEAN_COMMANDS if flaws is None else tuple(dict.fromkeys(command_of(FLAWS[name]) for name in flaws))


def clean_run(command: Command, seed: int) -> RunOptions:
    """The run of a clean command for a campaign's seed."""
    return command.options(SEED_STRIDE * CLEAN_COMMANDS.index(command) + seed)


def flawed_options(flaw: Flaw, seed: int) -> RunOptions:
    """The run that finds a flaw."""
    return command_of(flaw).options(seed, flaw.name)


def try_seed(options: RunOptions) -> RunResult:
    """One run in the simulator, saved nowhere."""
    return next(try_seeds([options], jobs=1))


def try_seeds(runs: Sequence[RunOptions], jobs: int) -> Iterator[RunResult]:
    """Runs in the simulator, saved nowhere; results as they come."""
    with tempfile.TemporaryDirectory(prefix="assay-torture-") as store:
        checked = [validate(replace(options, store=Path(store))) for options in runs]
        asked = {options.command(): each for options, each in zip(checked, runs, strict=True)}
        for result in run_all(checked, max(1, min(jobs, len(checked))), Keep.NOTHING):
            yield msgspec.structs.replace(result, options=asked[result.options.command()])


def found(result: RunResult) -> bool:
    """Whether the checkers refuted the run (a cluster that merely did not recover proves no flaw)."""
    return outcome_of(result, "", None).found


def carry_out(runs: Sequence[RunOptions], record: CampaignRecord, jobs: int, what: str) -> tuple[CampaignOutcome, ...]:
    """Make the runs that are not in the record yet; returns the outcomes of all."""
    missing = [options for options in runs if options.command() not in record]
    for result in progress(try_seeds(missing, jobs), what, len(missing)):
        record.add(outcome_of(result, result.options.command(), record.commit))
    return record.of(options.command() for options in runs)


def progress(results: Iterable[RunResult], what: str, total: int) -> Iterator[RunResult]:
    console = Console(stderr=True)
    off = not console.is_terminal  # no thread draws it: processes are forked meanwhile
    yield from track(results, what, total=total, auto_refresh=False, console=console, transient=True, disable=off)


def try_flaw(flaw: Flaw, seeds: Sequence[int], record: CampaignRecord, jobs: int) -> tuple[CampaignOutcome, ...]:
    """Every seed with the flaw, and the first that finds it without."""
    outcomes = carry_out([flawed_options(flaw, seed) for seed in seeds], record, jobs, flaw.name)
    first = first_seed(seeds, outcomes)
    if first is not None:
        carry_out([command_of(flaw).options(first)], record, 1, f"without {flaw.name}")
    return outcomes


def first_seed(seeds: Sequence[int], outcomes: Sequence[CampaignOutcome]) -> int | None:
    """The first that finds the flaw: one that clients see, if there is any."""
    tried = list(zip(seeds, outcomes, strict=True))
    by_clients = [seed for seed, outcome in tried if outcome.found and outcome.anomalies]
    return next(iter(by_clients or [seed for seed, outcome in tried if outcome.found]), None)


def flaw_rows(seeds: Sequence[int], record: CampaignRecord) -> Iterator[tuple[str, ...]]:
    """The track record, as far as it is known."""
    for flaw in FLAWS.values():
        known = [seed for seed in seeds if flawed_options(flaw, seed).command() in record]
        outcomes = record.of(flawed_options(flaw, seed).command() for seed in known)
        if not outcomes:
            continue
        first = first_seed(known, outcomes)
        clean = () if first is None else record.of([command_of(flaw).options(first).command()])
        yield (
            flaw.name,
            str(command_of(flaw)),
            f"{sum(outcome.found for outcome in outcomes)} of {len(outcomes)}",
            f"{sum(outcome.found and bool(outcome.anomalies) for outcome in outcomes)}",
            "none" if first is None else str(first),
            f"{sum(outcome.cpu_s for outcome in outcomes) / len(outcomes):.1f}",
            seen_by([outcome for outcome in outcomes if outcome.found]),
            clean[0].overall if clean else "",
        )


def clean_rows(seeds: Sequence[int], record: CampaignRecord) -> Iterator[tuple[str, ...]]:
    """How the clean commands did."""
    for command in CLEAN_COMMANDS:
        outcomes = record.of(clean_run(command, seed).command() for seed in seeds)
        words = [outcome.overall for outcome in outcomes]
        if outcomes:
            ops, cpu_s = sum(outcome.ops for outcome in outcomes), sum(outcome.cpu_s for outcome in outcomes)
            others = len(words) - words.count("valid") - words.count("invalid")
            yield (str(command), *map(str, (len(words), words.count("invalid"), others, ops)), f"{cpu_s:.0f}")


def tell(seeds: Sequence[int], clean_seeds: Sequence[int], record: CampaignRecord) -> None:
    """Both tables, every clean run that was not valid, and how many there were."""
    console = Console(width=200)
    flaws = Table("flaw", "command", "found by", "clients in", "first", "CPU s", "as", "without it", box=None)
    clean = Table("clean seeds of", "runs", "invalid", "unknown", "operations", "CPU s", box=None)
    for table, rows in ((flaws, flaw_rows(seeds, record)), (clean, clean_rows(clean_seeds, record))):
        for row in rows:
            table.add_row(*row)
        console.print(table)
    words = Counter[str]()
    for outcome in clean_outcomes(clean_seeds, record):
        words[outcome.overall] += 1
        if outcome.overall != "valid":
            print(f"{outcome.overall}: {outcome.command}\n  {'; '.join(outcome.reasons)}")
    found = ", ".join(f"{count} {word}" for word, count in sorted(words.items()))
    print(f"clean runs at {record.commit}: {words.total()} ({found or 'none'})")


def clean_outcomes(seeds: Sequence[int], record: CampaignRecord) -> tuple[CampaignOutcome, ...]:
    """Of every clean command and seed that is known."""
    return record.of(clean_run(command, seed).command() for seed in seeds for command in CLEAN_COMMANDS)


def succeeded(flaws: Sequence[Flaw], seeds: Sequence[int], clean_seeds: Sequence[int], record: CampaignRecord) -> bool:
    """Every flaw found that was hunted, every clean seed valid; and there was something."""
    hunted = [record.of(flawed_options(flaw, seed).command() for seed in seeds) for flaw in flaws]
    missed = [outcomes for outcomes in hunted if outcomes and not any(each.found for each in outcomes)]
    clean = clean_outcomes(clean_seeds, record)
    return any((*hunted, clean)) and not missed and all(outcome.overall == "valid" for outcome in clean)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is missing and print the tables; exit code 0 if all is as it has to be."""
    parser = argparse.ArgumentParser(prog="make torture", description=__doc__)
    parser.add_argument(
        "--flaw",
        action="append",
        choices=list(FLAWS),
        help="only these; with --only clean, the commands that find them",
    )
    parser.add_argument("--seeds", type=parse_seeds, default=range(1, 21), help="seeds for each flaw: FIRST..LAST")
    parser.add_argument("--clean-seeds", type=parse_seeds, default=range(1, 11), help="for each command without a flaw")
    parser.add_argument("--only", choices=("flaws", "clean", "tables"), help="leave the other part out, or both")
    parser.add_argument("--record", type=Path, default=Path("store/torture.jsonl"), help="the file of outcomes")
    parser.add_argument("--commit", help="with --only tables: what was recorded at this commit, not at the present one")
    parser.add_argument("--jobs", type=int, default=usable_cores(), help="processes at a time")
    chosen = parser.parse_args(arguments)
    if chosen.commit is not None and chosen.only != "tables":
        parser.error("runs are made at the present commit: --commit goes with --only tables")
    record = CampaignRecord(chosen.record, chosen.commit or provenance()["git_commit"])
    flaws = [FLAWS[name] for name in chosen.flaw or FLAWS] if chosen.only != "clean" else []
    for flaw in flaws if chosen.only != "tables" else ():
        try_flaw(flaw, chosen.seeds, record, chosen.jobs)
    if chosen.only in (None, "clean"):
        commands = clean_commands(chosen.flaw if chosen.only == "clean" else None)
        runs = [clean_run(command, seed) for seed in chosen.clean_seeds for command in commands]
        carry_out(runs, record, chosen.jobs, "clean seeds")
    tell(chosen.seeds, chosen.clean_seeds, record)
    return 0 if succeeded(flaws, chosen.seeds, chosen.clean_seeds, record) else 1


if __name__ == "__main__":
    sys.exit(main())
