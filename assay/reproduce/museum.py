"""The museum: the smallest run of each bug that was found, kept so that it is made again, `results/museum/NAME/`.

    inputs.json, operations.jsonl, decisions.msgpack     the inputs of the run (assay.reproduce.inputs)
    entry.toml                                           its family, where it comes from, and `reach`

An entry of a known flaw is made with it and without it: with it it must show its family, without it nothing. Code moves
schedules, and an entry may no longer come to what made it break. `reach` is what must have happened for it to mean
anything; an entry that does not reach, or whose flaw does not show, is *stale*, which is told, and is never passed.
"""

from __future__ import annotations

import json
import shutil
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Final, Literal, NamedTuple, TypeAlias

import msgspec

import results
from assay.night.records import RunFinding
from assay.reproduce.inputs import DECISIONS, INPUTS, OPERATIONS, Inputs, load_inputs, save_inputs
from assay.reproduce.saved_run import SavedRun
from assay.runner import Keep, RunOrder, RunResult, run_orders
from assay.telling import Teller
from harness.atomic_write import scratch_folder
from harness.errors import UserError
from harness.history.rundir import write_atomic
from harness.run.provenance import provenance
from harness.run.stopping import AskedToEnd

MUSEUM: Final = Path(results.__file__).parent / "museum"
ENTRY: Final = "entry.toml"
LARGEST_BYTES: Final = 100_000
QUICK_S: Final = 2.5
"""CPU seconds that an entry of `make test` takes at most."""

Fate: TypeAlias = Literal["passed", "stale", "found"]
EXIT_CODES: Final[dict[Fate, int]] = {"passed": 0, "found": 1, "stale": 2}


class Reach(msgspec.Struct, frozen=True):
    """What a run has to have done: instances of each kind of fault that were seen in effect (of a script: its core),
    and operations that were judged."""

    faults: dict[str, int] = {}
    operations: int = 0

    def lacking(self, result: RunResult) -> str | None:
        """What the run did not do, None if it did all of it."""
        for kind, count in self.faults.items():
            seen = int((result.faults or {}).get(kind, {}).get("observed", 0))
            if seen < count:
                return f"{kind} was seen in effect {seen} of {count} times"
        return None if result.ops >= self.operations else f"{result.ops} of {self.operations} operations were judged"


class MuseumEntry(msgspec.Struct, frozen=True, kw_only=True):
    """`entry.toml`: the `family` of the finding and its `title`, the flaw that makes it (empty: a bug that is mended),
    the command and commit of the run that it was, a `ticket`, what it has to reach, and what it takes."""

    family: str
    title: str
    flaw: str = ""
    command: str
    commit: str = ""
    ticket: str = ""
    cpu_s: float
    reach: Reach

    @property
    def quick(self) -> bool:
        return self.cpu_s <= QUICK_S


class Exhibit(NamedTuple):
    """An entry and where it lies."""

    folder: Path
    entry: MuseumEntry

    @property
    def name(self) -> str:
        return self.folder.name


class ExhibitOutcome(msgspec.Struct, frozen=True):
    """What became of an entry, in words; `key` of chance with which it passed, if not with its own."""

    name: str
    fate: Fate
    why: str = ""
    key: str | None = None


def exhibit(folder: Path) -> Exhibit:
    """The entry that lies there; raises UserError for what is none, and for one that reaches nothing."""
    try:
        entry = msgspec.convert(tomllib.loads((folder / ENTRY).read_text()), MuseumEntry)
    except OSError as error:
        raise UserError(f"The museum has no {folder.name}: {error.strerror} ({folder / ENTRY}).") from error
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise UserError(f"{folder / ENTRY} can't be read: {error}.") from error
    if not entry.reach.faults and not entry.reach.operations:
        raise UserError(f"{folder / ENTRY} has nothing in reach, so that it would pass whatever happens.")
    return Exhibit(folder, entry)


def exhibits(names: Sequence[str] = (), museum: Path = MUSEUM) -> list[Exhibit]:
    """The entries of these names, or all; raises UserError, also where there is none: nothing is no pass."""
    found = sorted(path for path in museum.iterdir() if path.is_dir()) if museum.is_dir() else []
    if not found:
        raise UserError(f"There is nothing in the museum {museum}.")
    folders = [museum / name for name in names] or found
    return [exhibit(folder) for folder in folders]


# ---- making them again ----


def tried(shown: Exhibit, keys: int = 0, jobs: int = 1, asked: AskedToEnd | None = None) -> ExhibitOutcome:
    """Make an entry again; while it is stale, with up to `keys` other keys of chance."""
    inputs = load_inputs(shown.folder)
    outcome = _tried(shown, inputs, jobs, asked)
    for number in range(1, keys + 1):
        if outcome.fate != "stale":
            break
        other = _tried(shown, replace(inputs, key=f"museum-{number}"), jobs, asked)
        if other.fate != "stale":
            outcome = msgspec.structs.replace(other, key=f"museum-{number}")
    return outcome


def _tried(shown: Exhibit, inputs: Inputs, jobs: int, asked: AskedToEnd | None) -> ExhibitOutcome:
    well, broken = results_of(inputs, jobs, asked)
    name, entry = shown.name, shown.entry
    if (found := finding_of(well)) is not None:
        return ExhibitOutcome(name, "found", found.title)
    if well.lost is not None or well.why == "harness":
        return ExhibitOutcome(name, "stale", "; ".join(well.reasons))
    if (lacking := entry.reach.lacking(well)) is not None:
        return ExhibitOutcome(name, "stale", lacking)
    if broken is not None and _shown(broken, entry.family) is None:
        found = finding_of(broken)
        return ExhibitOutcome(name, "stale", f"its flaw shows {'nothing' if found is None else found.title}")
    return ExhibitOutcome(name, "passed")


def results_of(inputs: Inputs, jobs: int = 1, asked: AskedToEnd | None = None) -> tuple[RunResult, RunResult | None]:
    """What comes of these inputs without their flaws, and with them (None: they have none)."""
    with scratch_folder("museum") as scratch:
        folder = Path(scratch) / "inputs"
        save_inputs(inputs, folder)
        options = replace(inputs.options, inputs=folder, store=Path(scratch))
        variants = [replace(options, flaw=()), *([options] if options.flaw else [])]
        orders = [RunOrder(each, Keep.NOTHING, number, True) for number, each in enumerate(variants)]
        with closing(run_orders(orders, jobs, asked=asked)) as found:
            made = {order.number: result for order, result in found}
    return made[0], made.get(1)


def finding_of(result: RunResult) -> RunFinding | None:
    """What a run found of the database."""
    return next((each for each in result.measures.findings if each.kind != "harness"), None)


def _shown(result: RunResult, family: str) -> RunFinding | None:
    """What a run found of a family, whatever it found before that."""
    return next((each for each in result.measures.families if each.family == family), None)


def museum_command(names: Sequence[str], keys: int, jobs: int, json_output: bool) -> int:
    """Make entries again and tell what became of each: 1 if one shows a finding without its flaw, 2 if one is stale."""
    asked, teller = AskedToEnd(), Teller()
    fates: list[Fate] = []
    with asked.in_charge():
        for shown in exhibits(names):
            outcome = tried(shown, keys, jobs, asked)
            fates.append(outcome.fate)
            for line in [msgspec.json.encode(outcome).decode()] if json_output else _lines(outcome):
                teller.line(line)
    if not json_output:
        counts = ", ".join(f"{fates.count(fate)} {fate}" for fate in EXIT_CODES)
        teller.line(f"{len(fates)} entries: {counts}")
    return teller.end(1 if "found" in fates else 2 if "stale" in fates else 0)


def _lines(outcome: ExhibitOutcome) -> Iterator[str]:
    key = "" if outcome.key is None else f" (with key {outcome.key})"
    yield f"{outcome.fate.upper()}: {outcome.name}{key}" + (f": {outcome.why}" if outcome.why else "")


# ---- new ones ----


def write_entry(name: str, inputs: Inputs, run: SavedRun, wanted: RunFinding, museum: Path = MUSEUM) -> Exhibit:
    """Put the smallest inputs of a run into the museum; raises UserError for inputs that are too large, and for those
    that don't show the wanted finding with their flaw, or show one without it."""
    folder = museum / name
    if folder.exists():
        raise UserError(f"The museum has {name} already.")
    well, broken = results_of(inputs)
    shown = _shown(broken if broken is not None else well, wanted.family)
    if shown is None:
        raise UserError(f"The inputs of {name} don't show what {run.path} found, so they are not kept.")
    if broken is not None and (other := finding_of(well)) is not None:
        raise UserError(f"The inputs of {name} break without their flaw as well ({other.title}), so they are not kept.")
    entry = MuseumEntry(
        family=wanted.family,
        title=shown.title,
        flaw=",".join(inputs.options.flaw),
        command=replace(run.options, store=Path("store")).command(),
        commit=str(provenance().get("git_commit") or ""),
        ticket="docs/flaws.md" if inputs.options.flaw else "",
        cpu_s=round(well.cpu_s + (broken.cpu_s if broken else 0.0), 2),
        reach=_reach(well, broken or well),
    )
    save_inputs(inputs, folder)
    write_atomic(folder / ENTRY, _toml(entry).encode())
    size = sum((folder / file).stat().st_size for file in (INPUTS, OPERATIONS, DECISIONS))
    if size > LARGEST_BYTES:
        shutil.rmtree(folder)
        raise UserError(f"The inputs of {name} have {size:,} bytes; the museum keeps {LARGEST_BYTES:,} at most.")
    return exhibit(folder)


def _toml(entry: MuseumEntry) -> str:
    """The entry as a table; JSON writes strings and numbers as TOML does."""
    values = msgspec.to_builtins(entry)
    reach = values.pop("reach")
    faults = "".join(f"{json.dumps(kind)} = {count}\n" for kind, count in reach["faults"].items())
    head = "".join(f"{name} = {json.dumps(value)}\n" for name, value in values.items())
    return f"{head}\n[reach]\noperations = {reach['operations']}\n\n[reach.faults]\n{faults}"


def _reach(well: RunResult, broken: RunResult) -> Reach:
    """What both runs did, of operations a half: others may be as good."""
    seen = {
        kind: min(int(each.get("observed", 0)) for each in ((well.faults or {})[kind], (broken.faults or {})[kind]))
        for kind in (well.faults or {})
        if kind in (broken.faults or {})
    }
    operations = max(1, min(well.ops, broken.ops) // 2)
    return Reach({kind: count for kind, count in seen.items() if count}, operations)
