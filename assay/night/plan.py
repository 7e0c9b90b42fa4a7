"""A night's plan: `PLAN.toml` read and checked, all its cells resolved, before anything runs."""

from __future__ import annotations

import itertools
import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from fnmatch import fnmatchcase
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

import msgspec
import psutil

from assay.known_commands import CLEAN_COMMANDS, command_of
from assay.night.journal import digest_of, head_of
from assay.night.records import CellRecord, Expectation, NightHead, StepRecord
from assay.options import RunOptions, listed, validate
from assay.seeds import check_jobs, parse_seeds
from cluster.flaws import FLAWS
from harness.errors import UserError

OPTIONS: Final = (
    *("workload", "on", "nemesis", "time-limit", "rate", "concurrency", "masters", "nodes", "zones", "flaw", "swarm"),
    *("world", "keep-journal", "op-timeout", "recovery-budget", "probe-period", "floor", "option", "table"),
)
"""What a cell may say of its runs: the options of `assay run` but seed and store."""
BOUNDS: Final = ("name", "min", "max", "share", "expect", "rate-found", "seeds", "optional", "known")
_LISTS: Final = {"nemesis": "fault", "flaw": "flaw", "world": "key"}
_UNITS: Final = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_MEMORY_SHARE: Final = 0.8
"""Of the machine's memory, for all runs together, where the plan says nothing."""
DISK_MB: Final = 10_000.0
"""What kept runs may take where the plan says nothing."""
MOST_CELLS: Final = 1_000


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="kebab"):
    """A table of a plan: what it does not know is a mistake."""


class _Budget(_Table, frozen=True):
    wall: str | float | None = None
    cpu: str | float | None = None
    runs: int | None = None


class _NightTable(_Table, frozen=True):
    name: str = "night"
    budget: _Budget = _Budget()
    jobs: int = 1
    store: str | None = None
    spark: str | None = None
    notify: tuple[str, ...] = ()


class _Limits(_Table, frozen=True):
    run_time: str | float | None = None
    memory: float | None = None
    disk: float = DISK_MB
    local_rows: int | None = None


class _Seeds(_Table, frozen=True):
    ranges: tuple[str, ...] = ()


class _Step(_Table, frozen=True):
    name: str
    argv: tuple[str, ...]
    limit: str | float


class _PlanFile(_Table, frozen=True):
    night: _NightTable = _NightTable()
    limits: _Limits = _Limits()
    seeds: _Seeds = _Seeds()
    cell: tuple[dict[str, Any], ...] = ()
    step: tuple[_Step, ...] = ()


@dataclass(frozen=True, slots=True)
class NightPlan:
    """A plan that a night can be made by: its text, the cells and steps, and what is told of it before it begins."""

    text: str
    name: str
    store: Path
    budget: Mapping[str, float]
    limits: Mapping[str, float]
    jobs: int
    spark: str | None
    notify: tuple[str, ...]
    cells: tuple[CellRecord, ...]
    steps: tuple[StepRecord, ...] = ()
    remarks: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        return digest_of(self.text)

    def head(self, id: str) -> NightHead:
        """The head of a night by this plan, that begins now."""
        return msgspec.structs.replace(
            head_of(id, self.name, self.text),
            budget=dict(self.budget),
            limits=dict(self.limits),
            jobs=self.jobs,
            spark=self.spark,
            notify=self.notify,
            cells=self.cells,
            steps=self.steps,
        )


SHIPPED: Final = Path(__file__).with_name("reference.toml")
"""The plan that is taken where none is named: an hour of the reference cluster."""


def read_plan(path: Path, store: Path | None = None, only: Sequence[str] = ()) -> NightPlan:
    """The plan of a file, with `only` of the cells and steps whose names match one of these patterns; `store` goes
    before the one that it names. Raises UserError, in one sentence that names the file, for anything that no night can
    be made of."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no UTF-8"
        raise UserError(f"The plan {path} can't be read: {why}.") from error
    try:
        return parse_plan(text, store, only)
    except UserError as error:
        raise UserError(f"{path}: {error}") from error


def parse_plan(text: str, store: Path | None = None, only: Sequence[str] = ()) -> NightPlan:
    """The plan of a text; see `read_plan`."""
    try:
        file = msgspec.convert(tomllib.loads(text), _PlanFile)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise UserError(f"this is no plan: {str(error).rstrip('.')}.") from error
    night = file.night
    where = store or Path(night.store or "store")
    check_jobs(night.jobs, "sim")
    budget = _budget(night.budget)
    limits = _limits(file.limits, night.jobs)
    if (night.spark is None) != ("local_rows" not in limits):
        raise UserError("limits.local-rows and night.spark, which judges what has more rows, go together.")
    ranges = _ranges(file.seeds.ranges)
    cells, remarks = [], []
    steps = [_step(step) for step in file.step if _is_wanted(step.name, only)]
    for number, table in enumerate(file.cell, 1):
        for cell in _cells(table, number, ranges):
            if not _is_wanted(cell.name, only):
                continue
            if cell.options["on"] == "docker" and (lack := _engine_lacks()):
                if not table.get("optional", False):
                    raise UserError(f"cell {cell.name!r}: {lack}")
                remarks.append(f"the cell {cell.name!r} is left out: {lack}")
                continue
            cells.append(cell)
    if not cells and not steps:
        raise UserError(
            f"this plan has no cell or step that {'is named ' + ' or '.join(only) if only else 'could run'}."
        )
    _require_unequal(cells, steps)
    for cell in cells:
        _require_possible(cell, where)
    text += f"# only: {', '.join(only)}\n" if only else ""
    made = NightPlan(text, night.name, where, budget, limits, night.jobs, night.spark, night.notify, tuple(cells))
    return replace(made, steps=tuple(steps), remarks=tuple(remarks))


def _is_wanted(name: str, only: Sequence[str]) -> bool:
    return not only or any(fnmatchcase(name, pattern) for pattern in only)


def seconds(what: str, value: str | float) -> float:
    """Seconds, as a number or as text with a unit such as `90s`, `20m`, `1h`, `2d`; raises UserError."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhd]?)", str(value))
    if match is None or float(match[1]) <= 0:
        raise UserError(f'{what} is {value!r}; it takes a time above 0, such as 90, "20m" or "1h".')
    return float(match[1]) * _UNITS[match[2] or "s"]


def _positive(what: str, value: float) -> float:
    if not value > 0:
        raise UserError(f"{what} is {value:g}; it has to be above 0.")
    return value


def _budget(asked: _Budget) -> dict[str, float]:
    budget = {}
    if asked.wall is not None:
        budget["wall_s"] = seconds("budget.wall", asked.wall)
    if asked.cpu is not None:
        budget["cpu_s"] = seconds("budget.cpu", asked.cpu)
    if asked.runs is not None:
        budget["runs"] = _positive("budget.runs", asked.runs)
    if not budget:
        raise UserError("a night needs a budget: night.budget has any of wall, cpu and runs.")
    return budget


def memory_share_mb(jobs: int) -> float:
    """MiB that each of `jobs` runs at a time may have where nobody says more."""
    return float(psutil.virtual_memory().total) / (1 << 20) * _MEMORY_SHARE / jobs


def _limits(asked: _Limits, jobs: int) -> dict[str, float]:
    memory_mb = memory_share_mb(jobs) if asked.memory is None else asked.memory
    limits = {"memory_mb": _positive("limits.memory", memory_mb), "disk_mb": _positive("limits.disk", asked.disk)}
    if asked.run_time is not None:
        limits["run_time_s"] = seconds("limits.run-time", asked.run_time)
    if asked.local_rows is not None:
        limits["local_rows"] = _positive("limits.local-rows", asked.local_rows)
    return limits


def _ranges(texts: Sequence[str]) -> tuple[tuple[int, int], ...]:
    found = [parse_seeds(text) for text in texts]
    return tuple((seeds[0], seeds[-1]) for seeds in found)


def _step(step: _Step) -> StepRecord:
    if not step.argv:
        raise UserError(f"the step {step.name!r} has no argv.")
    return StepRecord(
        name=step.name, argv=step.argv, limit_s=seconds(f"the limit of the step {step.name!r}", step.limit)
    )


# ---- cells ----


def _cells(table: Mapping[str, Any], number: int, ranges: tuple[tuple[int, int], ...]) -> Iterator[CellRecord]:
    """The cells of a table: one for each choice among its lists."""
    told = f"cell {table.get('name') or number}"
    for key in table:
        if key not in (*OPTIONS, *BOUNDS):
            raise UserError(f"{told} has {key!r}, which is no option of `assay run`, nor {', '.join(BOUNDS)}.")
    try:
        if "known" in table:
            yield from _known_cells(table, ranges)
            return
        if "workload" not in table:
            raise UserError("it names no workload.")
        axes = [(key, _choices(table[key])) for key in OPTIONS if key in table]
        varied = [key for key, values in axes if len(values) > 1]
        for values in itertools.product(*(values for _, values in axes)):
            chosen = dict(zip((key for key, _ in axes), values, strict=True))
            for key, value in chosen.items():
                if isinstance(value, list | tuple):
                    raise UserError(f"{key} has a list within a list.")
            options = _options(chosen)
            name = str(table.get("name") or " ".join([options.workload, ",".join(options.nemesis)]).strip())
            told_anyway = () if "name" in table else ("workload", "nemesis")
            name = " ".join([name, *(f"{key}={_text(chosen[key])}" for key in varied if key not in told_anyway)])
            yield _cell(table, name, options, ranges)
    except UserError as error:
        raise UserError(f"{told}: {error}") from error


def _choices(value: Any) -> list[Any]:
    """The values of an option: those of a list, and of a table every choice among the lists in it."""
    if isinstance(value, list):
        if not value:
            raise UserError("a list without values makes no cell.")
        return value
    if isinstance(value, dict):
        keys = list(value)
        parts = [each if isinstance(each, list) else [each] for each in value.values()]
        return [dict(zip(keys, each, strict=True)) for each in itertools.product(*parts)]
    return [value]


def _text(value: Any) -> str:
    return ",".join(f"{key}={each}" for key, each in value.items()) if isinstance(value, dict) else str(value)


def _options(chosen: Mapping[str, Any]) -> RunOptions:
    """What `assay run` makes of the same words."""
    fields: dict[str, Any] = {}
    for key, value in chosen.items():
        if key in _LISTS:
            parts = listed(key, _LISTS[key], [str(value)])
            fields[key] = ",".join(parts) if key == "world" else parts
        elif key == "floor":
            fields["floors"] = {name: str(each) for name, each in _pairs(key, value).items()}
        elif key == "option":
            given = {name: str(each) for name, each in _pairs(key, value).items()}
            fields["workload_options"] = {**given, **fields.get("workload_options", {})}
        elif key == "table":
            fields["workload_options"] = {**fields.get("workload_options", {}), "table": str(value)}
        else:
            fields[key.replace("-", "_")] = value
    try:
        return msgspec.convert(fields, RunOptions, strict=True)
    except msgspec.ValidationError as error:
        raise UserError(f"an option is of another kind than `assay run` takes: {error}.") from error


def _pairs(key: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise UserError(f"{key} is a table of names and values, not {value!r}.")
    return value


def _cell(
    table: Mapping[str, Any], name: str, options: RunOptions, ranges: tuple[tuple[int, int], ...], **more: Any
) -> CellRecord:
    expect = table.get("expect", more.get("expect", "valid"))
    if expect not in ("valid", "found"):
        raise UserError(f'expect is {expect!r}; it is "valid" or "found".')
    seeds = table.get("seeds", ())
    own = _ranges([seeds] if isinstance(seeds, str) else seeds)
    least, most, share = table.get("min", 1), table.get("max"), table.get("share", 1)
    rate = table.get("rate-found")
    if not isinstance(least, int) or least < 0 or not isinstance(most, int | None) or (most is not None and most < 1):
        raise UserError("min and max are numbers of runs: min from 0, max from 1.")
    if most is not None and most < least:
        raise UserError(f"min is {least} and max {most}: no number of runs is both.")
    if not isinstance(share, int | float) or not share > 0:
        raise UserError(f"share is {share!r}; it has to be a number above 0.")
    if rate is not None and not (isinstance(rate, int | float) and 0 < rate <= 1):
        raise UserError(f"rate-found is {rate!r}; it is a share of runs, above 0 and at most 1.")
    return cell_of(options, name, expect, seeds=own or ranges, least=least, most=most, share=float(share), rate=rate)


def cell_of(options: RunOptions, name: str, expect: Expectation = "valid", **fields: Any) -> CellRecord:
    """The cell of runs with these options, whose seed and store don't matter."""
    decided = {key: value for key, value in options.as_dict().items() if key not in ("seed", "store")}
    canonical = msgspec.json.encode(decided, order="deterministic")
    words = replace(options, seed=0, store=Path("store")).command().split(" --seed 0")
    return CellRecord(
        id=blake2b(canonical, digest_size=6).hexdigest(),
        name=name,
        workload=options.workload,
        options=decided,
        command="".join(words),
        expect=expect,
        flaw=options.flaw,
        **fields,
    )


def options_of(cell: CellRecord, seed: int, store: Path) -> RunOptions:
    """The options of a cell's run."""
    return replace(msgspec.convert(cell.options, RunOptions), seed=seed, store=store)


def _known_cells(table: Mapping[str, Any], ranges: tuple[tuple[int, int], ...]) -> Iterator[CellRecord]:
    """A cell for each known flaw, with the command that finds it, or for each command that has to be valid."""
    if beside := [key for key in table if key in OPTIONS and key != "flaw"]:
        raise UserError(f"known brings options of its own; {beside[0]} can't be told beside it.")
    if table["known"] == "flaws":
        names = table.get("flaw", list(FLAWS))
        for name in [names] if isinstance(names, str) else names:
            if name not in FLAWS:
                raise UserError(f"There is no flaw {name!r}; see `assay list flaws`.")
            yield _cell(table, name, command_of(FLAWS[name]).options(0, name), ranges, expect="found")
    elif table["known"] == "clean":
        for command in CLEAN_COMMANDS:
            yield _cell(table, str(command).removeprefix("assay run "), command.options(0), ranges)
    else:
        raise UserError(f'known is {table["known"]!r}; it is "flaws" or "clean".')


def _require_unequal(cells: Sequence[CellRecord], steps: Sequence[StepRecord]) -> None:
    """Raise UserError for cells or steps that nobody could tell apart."""
    seen: dict[str, str] = {}
    for cell in cells:
        if cell.id in seen:
            raise UserError(f"the cells {seen[cell.id]!r} and {cell.name!r} are equal: `{cell.command}`.")
        seen[cell.id] = cell.name
    for what, names in (("cells", [*seen.values()]), ("steps", [step.name for step in steps])):
        if several := [name for name, count in Counter(names).items() if count > 1]:
            raise UserError(f"several {what} are named {several[0]!r}; give each a name of its own.")
    if len(cells) > MOST_CELLS:
        raise UserError(f"this plan has {len(cells)} cells; a night has at most {MOST_CELLS}.")


def _require_possible(cell: CellRecord, store: Path) -> None:
    """Raise UserError for a cell that no run can be made of, as far as can be seen without making one."""
    from assay.compose import make_test, make_world, simulated_database, swarmed
    from assay.worlds import draw_world
    from harness.env.sim import SimEnvironment

    options = options_of(cell, cell.seeds[0][0] if cell.seeds else 0, store)
    try:
        validate(options)
        if options.on != "sim":
            return
        options = swarmed(options) if options.swarm else options
        spec = draw_world(options.seed, options.world)
        with make_world(options, spec) as world:
            database = simulated_database(world, options, spec)
            make_test(options, SimEnvironment(world), database, datetime(2000, 1, 1))
    except UserError as error:
        raise UserError(f"no run can be made of the cell {cell.name!r}: {error}") from error


def _engine_lacks() -> str | None:
    """Why nothing can run in containers here; None where it can."""
    from harness.env.docker.engine import connect_engine

    try:
        connect_engine().close()
    except UserError as error:
        return str(error)
    return None
