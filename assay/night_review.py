"""What nights have said: `assay night report`, `assay triage`, `assay gate` and `assay compare`, with files and git."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
import typer

from assay.night.records import Night, nights_in, read_night
from assay.night.triage import (
    TriageEntry,
    entry_of,
    last_day,
    read_triage,
    sightings,
    with_entry,
    write_triage,
)
from harness.atomic_write import atomic_write
from harness.errors import UserError, shortened

if TYPE_CHECKING:
    from assay.night.result import NightAccount

REMEMBERED: Final = 30
"""How many earlier nights are looked at, for states and trends."""

RESULTS: Final = ("night.json", "junit.xml", "summary.md", "index.html")


def today() -> dt.date:
    """The day in UTC, as nights have it."""
    return dt.datetime.now(dt.UTC).date()


def find_night(store: Path, name: str | None) -> Path:
    """The folder of a night: a path, an id or its beginning, the newest if none is named; raises UserError."""
    if name is not None and (Path(name) / "night.jsonl").is_file():
        return Path(name)
    found = nights_in(store)
    if name is not None:
        found = tuple(path for path in found if path.name.startswith(name))
    if not found:
        raise UserError(f"There is no night{'' if name is None else f' {name}'} in {store}.")
    if name is not None and len(found) > 1 and found[0].name != name:
        raise UserError(f"{name} is the beginning of {len(found)} nights in {store}; say more of it.")
    return found[0] if name is not None else found[-1]


def nights_before(directory: Path) -> list[Night]:
    """Earlier nights of the same store, the oldest first; one that can't be read is left out, and told."""
    return earlier_nights({directory.resolve(): None})


def earlier_nights(nights: Mapping[Path, Night | None]) -> list[Night]:
    """The nights before each of these, by their folders, the oldest first, each once; see `nights_before`."""
    found: dict[Path, Night] = {}
    for directory in nights:
        earlier = [path for path in nights_in(directory.parent.parent) if path.name < directory.name]
        for path in (path for path in earlier[-REMEMBERED:] if path not in found):
            try:
                found[path] = nights.get(path) or read_night(path)
            except UserError as error:
                print(f"assay: left out: {error}", file=sys.stderr)
    return [found[path] for path in sorted(found)]


def descends(commit: str, ancestor: str) -> bool:
    """Whether a commit is the other one or comes after it, by the repository that this process is in."""
    if commit.startswith(ancestor):
        return True
    command = ["git", "merge-base", "--is-ancestor", ancestor, commit]
    with suppress(OSError, subprocess.TimeoutExpired):
        return subprocess.run(command, capture_output=True, timeout=30, check=False).returncode == 0
    return False


# ---- results ----


def write_results(directory: Path, triage: Path) -> tuple[NightAccount, tuple[Path, ...]]:
    """Make the results of a night, RESULTS; its account, and where they are."""
    from assay.night.page import page_of
    from assay.night.result import account_of, as_json, as_junit, as_markdown

    nights = [*nights_before(directory), read_night(directory)]
    account = account_of(nights, read_triage(triage), today(), descends)
    made = (
        msgspec.json.format(msgspec.json.encode(as_json(account)), indent=1),
        as_junit(account),
        as_markdown(account).encode(),
        page_of(account).encode(errors="replace"),
    )
    paths = tuple(directory / name for name in RESULTS)
    for path, content in zip(paths, made, strict=True):
        with atomic_write(path, str(path)) as unfinished:
            unfinished.write_bytes(content)
    return account, paths


def report_night(store: Path, name: str | None, triage: Path) -> int:
    """Make the results of a night again, and say where they are."""
    account, paths = write_results(find_night(store, name), triage)
    typer.echo(account.headline)
    for path in paths:
        typer.echo(path)
    return 0


# ---- triage ----


class TriageRequest(NamedTuple):
    """What was said of a signature; None or empty where nothing was."""

    ticket: str | None
    until: str | None
    cells: Sequence[str] = ()
    rate: float | None = None
    fixed: str | None = None


def triage_signature(signature: str | None, asked: TriageRequest, store: Path, file: Path) -> int:
    """Write an entry, or tell all of them where no signature is named."""
    entries = read_triage(file)
    if signature is None:
        if any((asked.ticket, asked.until, asked.cells, asked.rate, asked.fixed)):
            raise UserError("Name the signature that this is about, such as 2d7d4b292b03.")
        for each in entries:
            typer.echo(_line_of(each))
        return 0
    if not asked.ticket or not asked.until:
        raise UserError("A signature is known with a --ticket and a last day, --until 2027-01-31.")
    entry = entry_of(
        signature,
        ticket=asked.ticket,
        until=last_day(asked.until, today()),
        cells=tuple(asked.cells),
        rate=asked.rate,
        fixed=asked.fixed,
        title=_title_of(signature, store),
    )
    write_triage(file, with_entry(entries, entry))
    typer.echo(_line_of(entry))
    return 0


def _line_of(entry: TriageEntry) -> str:
    where = f" in {', '.join(entry.cells)}" if entry.cells else ""
    often = "" if entry.rate is None else f", up to {100 * entry.rate:g} % of runs"
    mended = "" if entry.fixed is None else f", fixed at {entry.fixed[:12]}"
    signature = "-".join((entry.family, *entry.details))
    return f"{signature}{where}: {entry.ticket} until {entry.until.isoformat()}{often}{mended} {entry.title}".rstrip()


def _title_of(signature: str, store: Path) -> str:
    """What the newest night that has seen it says of it; it is told where none has."""
    for path in reversed(nights_in(store)[-REMEMBERED:]):
        with suppress(UserError):
            for each in sightings(read_night(path)):
                if each.finding.signature.startswith(signature):
                    return shortened(each.finding.title, 100)
    print(f"assay: no night in {store} has seen {signature}.", file=sys.stderr)
    return ""


# ---- gate ----


class GateRequest(NamedTuple):
    """The files and nights that a gate is asked about, and how it is told."""

    policy: Path
    nights: Sequence[str]
    store: Path
    triage: Path
    json: bool
    junit: Path | None


def gate(request: GateRequest) -> int:
    """Tell a line for each condition; 1 for what was found, else 2 for what is not known, else 0."""
    from assay.night.gate import GateInput, exit_code, judge_nights, read_policy

    policy = read_policy(request.policy)
    names: Sequence[str | None] = request.nights or (None,)
    paths = [find_night(request.store, name) for name in names]
    nights = {path: read_night(path) for path in dict.fromkeys(path.resolve() for path in paths)}
    if len({night.head.id for night in nights.values()}) < len(nights):
        raise UserError("Two of these nights are one and the same, in two folders; each counts once.")
    earlier = [] if policy.slower is None else earlier_nights(nights)
    now = dt.datetime.now(dt.UTC)
    conditions = judge_nights(
        policy, GateInput(tuple(nights.values()), earlier, read_triage(request.triage), now, descends)
    )
    code = exit_code(conditions)
    if request.junit is not None:
        from assay.night.result import gate_junit

        with atomic_write(request.junit, str(request.junit)) as unfinished:
            unfinished.write_bytes(gate_junit(conditions))
    if request.json:
        told = {"code": code, "nights": [night.head.id for night in nights.values()], "conditions": conditions}
        typer.echo(msgspec.json.encode(told).decode())
    else:
        for condition in conditions:
            typer.echo(str(condition))
    return code


# ---- compare ----


def compare(first: str, second: str, store: Path, json_output: bool) -> int:
    """Tell what is different between two runs, nights or commits."""
    from assay.night.compare import differences

    found = list(differences(_side(first, store), _side(second, store)))
    if json_output:
        typer.echo(msgspec.json.encode([each._asdict() for each in found]).decode())
        return 0
    cell = None
    for each in found:
        if each.cell != cell:
            cell = each.cell
            typer.echo(cell)
        change = f"  [{each.change}]" if each.change else ""
        typer.echo(f"  {each.what}: {each.first} | {each.second}{change}")
    return 0


def _side(name: str, store: Path) -> Any:
    from assay.night.compare import side_of_nights
    from harness.history.rundir import is_run

    if is_run(Path(name)):
        return _side_of_run(Path(name))
    with suppress(UserError):
        night = read_night(find_night(store, name))
        return side_of_nights(night.head.id, [night])
    nights = [read_night(path) for path in nights_in(store)]
    mine = [night for night in nights if len(name) >= 7 and (night.head.commit or "").startswith(name)]
    if not mine:
        raise UserError(f"{name} is no run, no night in {store}, and no commit that one of its nights is of.")
    return side_of_nights(name, mine)


def _side_of_run(path: Path) -> Any:
    """A saved run as a side of one cell."""
    from assay.night.compare import Side, SideCell
    from assay.night.measures import measures_of
    from assay.night.records import FaultCount, RunEnded
    from harness.history.rundir import open_run
    from harness.verdict.facts import read_record
    from harness.verdict.run_verdict import RunVerdict

    rundir = open_run(path)
    record, saved = read_record(rundir), rundir.read_json(rundir.verdict_json)
    try:
        verdict = msgspec.convert(saved, RunVerdict)
    except msgspec.ValidationError as error:
        raise UserError(f"{path} has no whole verdict; judge it with `assay check`.") from error
    measured = measures_of(rundir, verdict)
    faults = verdict.adequacy.details.get("faults", {})
    run = RunEnded(
        run=0,
        cell=record.workload,
        number=0,
        seed=int(record.options.get("seed") or 0),
        attempt=1,
        at=record.started,
        word=verdict.overall,
        why=verdict.why,
        findings=measured.findings,
        vacuous=verdict.adequacy.answer is False,
        points=measured.points,
        figures=measured.figures,
        faults={kind: FaultCount(told["requested"], told["observed"]) for kind, told in faults.items()},
    )
    cell = SideCell(record.workload, record.options, record.world, [run])
    return Side(str(path), {record.workload: cell})
