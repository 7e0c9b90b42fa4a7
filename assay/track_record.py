"""`assay track-record`: what is known of databases that people use, tried again on Debian's packages, as one table.

A row is a run of which the outcome is known from elsewhere. Each is made some times; a record of outcomes, a line a
run, keeps those that were made, so that a command that is given again makes only what is missing, or was unknown. What
a record has is of one version of assay; a run of another is made anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Final

from assay.discovery import find_database
from assay.options import RunOptions, validate
from assay.outcome_records import CampaignOutcome, CampaignRecord, outcome_of
from assay.runner import Keep, run_all
from harness.atomic_write import atomic_write
from harness.errors import UserError

TIME_LIMIT_S: Final = 20.0
RATE_HZ: Final = 50.0
RECOVERY_S: Final = 10.0
VALID: Final = "valid"


@dataclass(frozen=True, slots=True)
class Known:
    """A run and what is known of it: `expected` is `valid`, or anomalies of which one has to be found; `source` says
    who found it before. `nodes` of 0 are as many as the database has by default; `rate` is in operations
    a second; `recovery_s` is the time that it has to serve again."""

    database: str
    workload: str
    expected: tuple[str, ...]
    source: str
    options: dict[str, str] = field(default_factory=dict)
    workload_options: dict[str, str] = field(default_factory=dict)
    nemesis: tuple[str, ...] = ()
    nodes: int = 0
    rate: float = RATE_HZ
    recovery_s: float = RECOVERY_S

    def run(self, seed: int, store: Path = Path("store")) -> RunOptions:
        """The options of one run of it; raises UserError."""
        return validate(
            RunOptions(
                self.workload,
                database=self.database,
                nodes=self.nodes or find_database(self.database).value.default_nodes,
                on="docker",
                nemesis=self.nemesis,
                time_limit=TIME_LIMIT_S,
                rate=self.rate,
                seed=seed,
                store=store,
                workload_options=self.workload_options,
                database_options=self.options,
                recovery_budget=self.recovery_s,
            )
        )

    def met(self, outcome: CampaignOutcome) -> bool:
        """Whether a run came out as is known."""
        if self.expected == (VALID,):
            return outcome.overall == VALID
        return outcome.found and not set(self.expected).isdisjoint(outcome.anomalies)


_LOST: Final = ("lost", "stale-read", "lost-update", "nonlinearizable")
_LEADER: Final = ("partition(target=leader)", "pause(target=leader)")

KNOWN: Final = (
    Known("etcd", "register", (VALID,), "Jepsen etcd 3.4.3", nemesis=("partition", "kill", "pause")),
    Known("etcd", "multi-register", (VALID,), "Jepsen etcd 3.4.3", nemesis=("partition", "kill", "pause")),
    Known("etcd", "register", ("stale-read",), "etcd, API guarantees", {"read": "serializable"}, {}, ("partition",)),
    Known("etcd", "mutex", ("nonlinearizable",), "Jepsen, etcd#11457", {"lease": "2"}, {"hold": "3"}),
    Known("etcd", "watch", (VALID,), "Jepsen etcd 3.4.3", nemesis=("partition", "kill")),
    Known("redis", "register", _LOST, "Redis, replication", nemesis=_LEADER),
    Known("redis", "set", _LOST, "Redis, replication", nemesis=_LEADER),
    Known("redis", "set", _LOST, "Redis, replication", nemesis=("kill(target=leader)", "packets")),
    Known("redis", "set", _LOST, "Redis, WAIT", {"wait": "1"}, {}, _LEADER),
    Known(
        "redis", "register", (VALID,), "Redis, persistence", {"aof": "always"}, {"keys": "10"}, ("kill(target=one)",), 1
    ),
    Known("redis", "register", _LOST, "Redis, persistence", {"aof": "no"}, {"keys": "10"}, ("kill(target=one)",), 1),
    Known(
        "postgresql",
        "list-append",
        ("G-single-item",),
        "Jepsen PostgreSQL 12.3",
        {"isolation": "read-committed"},
        {"consistency": "serializable"},
    ),
    Known(
        "postgresql",
        "list-append",
        ("G2-item",),
        "Jepsen PostgreSQL 12.3",
        {"isolation": "repeatable-read"},
        {"consistency": "serializable"},
    ),
    Known(
        "postgresql",
        "list-append",
        (VALID,),
        "Jepsen PostgreSQL 12.3",
        {"isolation": "serializable"},
        {"consistency": "serializable"},
    ),
    Known(
        "postgresql",
        "list-append",
        (VALID,),
        "pgsql-bugs 2026, a hunt",
        {"isolation": "serializable", "tables": "3"},
        {"consistency": "serializable"},
    ),
    Known(
        "postgresql",
        "set",
        _LOST,
        "PostgreSQL, 27.2",
        {"standby": "asynchronous"},
        nemesis=("partition(target=leader)",),
        nodes=2,
        recovery_s=30.0,  # who led before takes all data anew
    ),
    Known(
        "postgresql",
        "set",
        (VALID,),
        "PostgreSQL, 27.2",
        {"standby": "synchronous"},
        nemesis=("partition(target=leader)",),
        nodes=2,
        recovery_s=30.0,  # who led before takes all data anew
    ),
    Known(
        "mariadb",
        "list-append",
        ("G-single-item", "G-single-item-realtime", "G-single-item-process", "lost-update", "G-nonadjacent-item"),
        "Jepsen MariaDB Galera 12.1.2",
        {},
        {"consistency": "strong-snapshot-isolation"},
        rate=300.0,
    ),
)


def known_of(databases: Sequence[str]) -> tuple[Known, ...]:
    """The rows of these databases, of all where none is named; raises UserError."""
    names = list(dict.fromkeys(row.database for row in KNOWN))
    for name in databases:
        if name not in names:
            raise UserError(f"There is no track record of {name!r}; choose from: {', '.join(names)}.")
    return tuple(row for row in KNOWN if not databases or row.database in databases)


def make_missing(rows: Sequence[Known], runs: int, record: CampaignRecord, store: Path) -> Iterator[CampaignOutcome]:
    """Make every run of these rows of which the record has no outcome, or `unknown`, one after the other; each outcome
    as it comes."""
    for seed in range(1, runs + 1):
        for row in rows:
            command = row.run(seed).command()
            if all(outcome.overall == "unknown" for outcome in record.of([command])):
                for result in run_all([row.run(seed, store)], 1, Keep.FINDINGS):
                    outcome = outcome_of(result, command, record.commit)
                    record.add(outcome)
                    yield outcome


def table(rows: Sequence[Known], runs: int, record: CampaignRecord) -> Iterator[str]:
    """The lines of the table: a row each, with how many of its runs came out as is known."""
    yield "| database | run | known | seen | as | source |"
    yield "|---|---|---|---|---|---|"
    for row in rows:
        made = record.of(row.run(seed).command() for seed in range(1, runs + 1))
        if not made:
            continue
        met = sum(map(row.met, made))
        found = sorted({name for each in made for name in each.anomalies})
        words = sorted({each.overall for each in made if not row.met(each)})
        expected = row.expected[0] if row.expected == (VALID,) else f"one of {', '.join(row.expected)}"
        told = ", ".join(found) or "–"
        told += f"; also {', '.join(words)}" if words else ""
        yield f"| {row.database} | {in_words(row)} | {expected} | {met} of {len(made)} | {told} | {row.source} |"


def in_words(row: Known) -> str:
    """The run of a row as it is asked for, without what all have in common."""
    words = [row.workload, *(f"-d {key}={value}" for key, value in row.options.items())]
    words += [f"-o {key}={value}" for key, value in row.workload_options.items()]
    words += [f"--rate {row.rate:g}"] if row.rate != RATE_HZ else []
    words += [f"--nemesis '{','.join(row.nemesis)}'"] if row.nemesis else []
    words += [f"--recovery-budget {row.recovery_s:g}"] if row.recovery_s != RECOVERY_S else []
    return f"`{' '.join([*words, *([f'--nodes {row.nodes}'] if row.nodes else [])])}`"


def exit_code(rows: Sequence[Known], runs: int, record: CampaignRecord) -> int:
    """1 where a row that ought to be valid has an invalid run; else 2 where none of a row's runs came out as is known;
    else 0."""
    made = [(row, record.of(row.run(seed).command() for seed in range(1, runs + 1))) for row in rows]
    if any(each.overall == "invalid" for row, outcomes in made if row.expected == (VALID,) for each in outcomes):
        return 1
    return 0 if all(any(map(row.met, outcomes)) for row, outcomes in made) else 2


BEGIN, END = "<!-- table -->", "<!-- end of table -->"


def write_table(path: Path, lines: Sequence[str]) -> None:
    """Put the table in its place in a document; raises UserError for one that has no such place."""
    text = path.read_text() if path.exists() else f"{BEGIN}\n{END}\n"
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise UserError(f"{path} has no place for the table: a line {BEGIN} and one {END}.")
    body = "\n".join(lines)
    with atomic_write(path, path.name) as unfinished:
        unfinished.write_text(f"{before}{BEGIN}\n{body}\n{END}{after}")


def tell_track_record(
    databases: Sequence[str], runs: int, path: Path, store: Path, to: Path | None, only_table: bool
) -> int:
    """Make the runs that are missing, a line each, and print the table, or put it in a document; returns the
    `exit_code`. Raises UserError."""
    rows, record = known_of(databases), CampaignRecord(path, version("assay"))
    for outcome in () if only_table else make_missing(rows, runs, record, store):
        told = ", ".join(outcome.anomalies) or "; ".join(outcome.reasons)
        print(f"{outcome.overall}: {outcome.command}" + (f"\n  {told}" if told else ""), flush=True)
    lines = list(table(rows, runs, record))
    if to is not None:
        write_table(to, lines)
    else:
        print("\n".join(lines))
    return exit_code(rows, runs, record)
