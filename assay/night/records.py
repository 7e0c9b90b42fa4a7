"""The journal of a night, `STORE/nights/ID/night.jsonl`: a line for all that happened, which all else is made of.

    {"seal": "9f2c…", "entry": {"entry": "began", "run": 7, …}}

The seal of a line is a digest of its entry's bytes and of the line before, so that lines which are taken out, changed
or exchanged are seen; the last line says that the night is over, so that a shortened journal is an open night. A line
that was torn by a crash can only be the last one, and is no line.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import msgspec

from harness.errors import UNDECODABLE, UserError

VERSION: Final = 1
JOURNAL: Final = "night.jsonl"
PLAN: Final = "plan.toml"
NIGHTS: Final = "nights"
"""The folder of a store that its nights lie in."""

RunWord: TypeAlias = Literal["valid", "invalid", "unknown", "timeout", "memory", "error", "lost"]
"""What came of a run: its verdict's word, or what became of its process: its time or memory was over, it died of itself
or gave no verdict, or was ended by somebody else."""

Expectation: TypeAlias = Literal["valid", "found"]


class RunFinding(msgspec.Struct, frozen=True, kw_only=True):
    """What a run found. `family` and `detail` are its signature, 12 hex digits each; `family_words` are what the family
    is a digest of, `title` is a sentence for people; `step` and `at_s` (virtual seconds) say when, where that is
    known."""

    kind: Literal["safety", "liveness", "harness"]
    family: str
    detail: str
    family_words: dict[str, Any] = {}
    title: str = ""
    step: int | None = None
    at_s: float | None = None

    @property
    def signature(self) -> str:
        return f"{self.family}-{self.detail}"

    @property
    def name(self) -> str:
        """What a command calls it: its invariant, the symptom that clients saw, or the class of what else was wrong."""
        words = self.family_words
        return str(words.get("invariant") or words.get("symptom") or words.get("class") or self.kind)


class FaultCount(msgspec.Struct, frozen=True):
    """How many instances of a kind of fault were asked for, seen in effect, and skipped for want of a victim."""

    asked: int = 0
    seen: int = 0
    skipped: int = 0


class RunFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What a run measured; None where it did not. Operations a second and latencies are in the run's own time, which is
    virtual in the simulator; `recovery_s` is the longest by kind of fault; the checker's seconds are of the wall clock,
    its memory in MiB is the peak of the process that judged; CPU seconds are for 1 000 operations."""

    rate: float | None = None
    p50_ms: float | None = None
    p99_ms: float | None = None
    recovery_s: dict[str, float] = {}
    checker_s: float | None = None
    checker_mb: float | None = None
    cpu_per_1000: float | None = None


class RunMeasures(msgspec.Struct, frozen=True):
    """What a run shows beside its verdict: findings, the points of coverage that it came to, figures, how long it was
    by its own clock, and a finding of each of its `families`, the first of which is among the findings."""

    findings: tuple[RunFinding, ...] = ()
    points: tuple[str, ...] = ()
    figures: RunFigures = RunFigures()
    virtual_s: float = 0.0
    families: tuple[RunFinding, ...] = ()


class CellRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A cell of a night: `options` are all that decide its runs but seed and store, `id` is their digest, `command` is
    `assay run` without them. `rate` is the share of runs that a flaw is expected to be found in; `least` and `most` are
    bounds of its number of runs, `share` weighs it among the others."""

    id: str
    name: str
    workload: str
    options: dict[str, Any]
    command: str
    expect: Expectation = "valid"
    flaw: tuple[str, ...] = ()
    rate: float | None = None
    least: int = 1
    most: int | None = None
    share: float = 1.0
    seeds: tuple[tuple[int, int], ...] = ()
    """Ranges (first, last) of fixed seeds, which run first; the numbers of fresh ones follow on those of these."""


class StepRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A step of a night, which is no run: a program that has to end with 0 within its limit."""

    name: str
    argv: tuple[str, ...]
    limit_s: float


class MachineRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What runs shared: the host as a digest of its name, its cores and the model of its processor."""

    host: str
    cores: int
    cpu: str | None = None


class NightHead(msgspec.Struct, frozen=True, kw_only=True, tag="head", tag_field="entry"):
    """The first line: what the night is. Times are ISO 8601 in UTC; `clean` says that no file differed from the commit.
    `budget` has any of `wall_s`, `cpu_s`, `runs`; `limits` any of `run_time_s`, `memory_mb`, `disk_mb`, `local_rows`;
    `plan` is the digest of the plan's text."""

    version: int = VERSION
    id: str
    name: str
    begun: str
    commit: str | None
    clean: bool | None
    assay: str | None
    judge: str | None
    machine: MachineRecord
    plan: str
    budget: dict[str, float]
    limits: dict[str, float] = {}
    jobs: int = 1
    spark: str | None = None
    """The master of the Spark that judges histories of more than `local_rows` rows."""
    notify: tuple[str, ...] = ()
    cells: tuple[CellRecord, ...] = ()
    steps: tuple[StepRecord, ...] = ()

    def cell(self, id: str) -> CellRecord:
        """The cell of this id; raises UserError if the night has none."""
        for each in self.cells:
            if each.id == id:
                return each
        raise UserError(f"The night {self.id} has no cell {id}.")

    def command(self, cell: str, seed: int) -> str:
        """The shell command that makes a run of a cell again."""
        return f"{self.cell(cell).command} --seed {seed}"


class RunBegan(msgspec.Struct, frozen=True, kw_only=True, tag="began", tag_field="entry"):
    """A run begins: its number in the night and in its cell (both from 0), and which attempt at it this is, from 1.
    `spent_s` is how long the night had lasted by then, in all its sittings, by a clock that nobody sets.

    `twin` says that it repeats the run of that number under another hash seed, `retries` that it was chosen because
    that run found something new: the same seed again, or one of ten others.
    """

    run: int
    cell: str
    number: int
    seed: int
    attempt: int
    at: str
    spent_s: float = 0.0
    twin: int | None = None
    retries: int | None = None


class RunEnded(msgspec.Struct, frozen=True, kw_only=True, tag="ended", tag_field="entry"):
    """A run has ended; the fields of `RunBegan`, and what came of it.

    `why` is that of the table of outcomes, of a verdict that is not valid; `anomalies` are names, `invariants` those
    among them that broke; `ops` counts judged operations; `virtual_s` is how long it was by its own clock; `points` are
    those of coverage that no earlier run of this night had come to; `kept` is where it lies, relative to the store.
    """

    run: int
    cell: str
    number: int
    seed: int
    attempt: int
    at: str
    spent_s: float = 0.0
    word: RunWord
    twin: int | None = None
    retries: int | None = None
    why: str | None = None
    reasons: tuple[str, ...] = ()
    anomalies: tuple[str, ...] = ()
    invariants: tuple[str, ...] = ()
    findings: tuple[RunFinding, ...] = ()
    ops: int = 0
    cpu_s: float = 0.0
    wall_s: float = 0.0
    memory_mb: float = 0.0
    virtual_s: float = 0.0
    trace: str | None = None
    faults: dict[str, FaultCount] = {}
    vacuous: bool = False
    points: tuple[str, ...] = ()
    figures: RunFigures = RunFigures()
    kept: str | None = None


class RunLetGo(msgspec.Struct, frozen=True, kw_only=True, tag="let-go", tag_field="entry"):
    """A kept run is removed from the store, and why: `disk`, or `newer` ones of its signature."""

    run: int
    kept: str
    at: str
    why: Literal["disk", "newer"]


class NightIncident(msgspec.Struct, frozen=True, kw_only=True, tag="incident", tag_field="entry"):
    """Failures of the harness of one family in a third of the cells within an hour are one incident, which is nobody's
    bug but the machine's or ours."""

    at: str
    family: str
    title: str
    cells: tuple[str, ...]
    runs: tuple[int, ...]


class StepEnded(msgspec.Struct, frozen=True, kw_only=True, tag="step", tag_field="entry"):
    """A step has ended: with 0 or another code, by a signal (its number, negative), or its time was over."""

    name: str
    at: str
    spent_s: float
    word: Literal["passed", "failed", "timeout"]
    code: int
    wall_s: float


class NightResumed(msgspec.Struct, frozen=True, kw_only=True, tag="resumed", tag_field="entry"):
    """The night was not ended in order, and goes on; `spent_s` are the seconds of its budget that are used up."""

    at: str
    spent_s: float


class NightDone(msgspec.Struct, frozen=True, kw_only=True, tag="done", tag_field="entry"):
    """The last line, and what ended the night: its budget (`runs`: or that its cells may have no more), somebody, or
    that no run gave a verdict for long. `totals` counts words. One that somebody ended may be resumed."""

    at: str
    why: Literal["wall", "cpu", "runs", "interrupted", "stall"]
    wall_s: float
    cpu_s: float
    totals: dict[str, int] = {}


Entry: TypeAlias = NightHead | RunBegan | RunEnded | RunLetGo | NightIncident | StepEnded | NightResumed | NightDone


class _SealedLine(msgspec.Struct):
    seal: str
    entry: msgspec.Raw


_ENTRIES: Final = msgspec.json.Decoder(Entry)
_LINES: Final = msgspec.json.Decoder(_SealedLine)


def sealed_line(entry: Entry, before: str) -> tuple[bytes, str]:
    """The line of an entry behind the line with the seal `before` ("" at the head), and its seal."""
    body = msgspec.json.encode(entry)
    seal = _seal(body, before)
    return msgspec.json.encode(_SealedLine(seal, msgspec.Raw(body))) + b"\n", seal


def _seal(body: bytes, before: str) -> str:
    return blake2b(before.encode() + body, digest_size=8).hexdigest()


@dataclass(frozen=True, slots=True)
class Night:
    """A night as its journal tells it. `begun` are the last beginnings of runs without an end, by number; `damage` says
    in sentences which lines do not follow those before them; `whole_bytes` is how long the journal is without a torn
    end, `seal` that of the last whole line."""

    directory: Path
    head: NightHead
    runs: tuple[RunEnded, ...] = ()
    spent_s: float = 0.0
    begun: Mapping[int, RunBegan] = field(default_factory=dict)
    let_go: tuple[RunLetGo, ...] = ()
    incidents: tuple[NightIncident, ...] = ()
    steps: tuple[StepEnded, ...] = ()
    resumed: tuple[NightResumed, ...] = ()
    done: NightDone | None = None
    damage: tuple[str, ...] = ()
    whole_bytes: int = 0
    seal: str = ""

    @property
    def store(self) -> Path:
        return self.directory.parent.parent

    @property
    def is_open(self) -> bool:
        """Whether it may go on: it is under way, was killed, or somebody ended it."""
        return self.done is None or self.done.why == "interrupted"


def read_night(directory: Path) -> Night:
    """The night of a folder; raises UserError for one of a newer version, and for a journal that can't be read or is
    damaged before its end."""
    path = directory / JOURNAL
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UserError(
            f"{directory} is no night: {JOURNAL} can't be read ({os.strerror(error.errno or 0)})."
        ) from error
    whole = content[: content.rfind(b"\n") + 1]
    entries: list[Entry] = []
    damage: list[str] = []
    seal = ""
    for number, line, entry in _entries(path, whole):
        if line.seal != _seal(bytes(line.entry), seal):
            damage.append(f"line {number} of {JOURNAL} does not follow the line before it")
        entries.append(entry)
        seal = line.seal
    if not entries or not isinstance(entries[0], NightHead):
        raise UserError(f"{path} does not begin with the head of a night.")
    return _night(directory, entries, tuple(damage), len(whole), seal)


def _entries(path: Path, whole: bytes) -> Iterator[tuple[int, _SealedLine, Entry]]:
    for number, text in enumerate(whole.splitlines(), 1):
        try:
            line = _LINES.decode(text)
            if number == 1:
                _require_version(path, line.entry)
            yield number, line, _ENTRIES.decode(line.entry)
        except UNDECODABLE as error:
            raise UserError(f"{path}, line {number}, is damaged: it is no line of a night ({error}).") from error


class _Versioned(msgspec.Struct):
    version: int


def _require_version(path: Path, head: msgspec.Raw) -> None:
    version = msgspec.json.decode(head, type=_Versioned).version
    if version > VERSION:
        raise UserError(f"{path} is of version {version}; this assay reads nights up to version {VERSION}.")


def _night(directory: Path, entries: list[Entry], damage: tuple[str, ...], whole_bytes: int, seal: str) -> Night:
    head = entries[0]
    assert isinstance(head, NightHead)
    begun: dict[int, RunBegan] = {}
    runs: dict[int, RunEnded] = {}
    for entry in entries:
        if isinstance(entry, RunBegan):
            begun[entry.run] = entry
        elif isinstance(entry, RunEnded):
            begun.pop(entry.run, None)
            runs[entry.run] = entry
    last = entries[-1]
    return Night(
        directory,
        head,
        tuple(runs.values()),
        max((each.spent_s for each in entries if isinstance(each, RunBegan | RunEnded | StepEnded)), default=0.0),
        begun,
        tuple(each for each in entries if isinstance(each, RunLetGo)),
        tuple(each for each in entries if isinstance(each, NightIncident)),
        tuple({each.name: each for each in entries if isinstance(each, StepEnded)}.values()),
        tuple(each for each in entries if isinstance(each, NightResumed)),
        last if isinstance(last, NightDone) else None,
        damage,
        whole_bytes,
        seal,
    )


def nights_in(store: Path) -> tuple[Path, ...]:
    """The folders of the nights of a store, the oldest first."""
    return tuple(sorted(path.parent for path in (store / NIGHTS).glob(f"*/{JOURNAL}")))
