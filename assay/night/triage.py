"""Triage: which findings are known, and what has become of them.

    triage.toml ─> entries ─┐
    nights, the oldest first ├─> a `TriageCase` for each signature: who covers it, when and where it was seen, its state

An entry says that a finding is somebody's: it has a ticket and a last day, and holds for a family, for details (none:
all), for cells (by name; none: all), and up to a rate. What it covers is known. What no entry covers is new, or open
once an earlier night has shown it; so is a family in another cell, a detail that is not listed, and what comes more
often than the entry says, for two bugs may have one symptom. Pure, but for reading and writing the file.
"""

from __future__ import annotations

import datetime as dt
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import msgspec

from assay.night.rates import GONE, interval, none_of, too_many
from assay.night.records import CellRecord, Night, RunEnded, RunFinding
from harness.atomic_write import atomic_write
from harness.errors import UNDECODABLE, UserError

TRIAGE: Final = "triage.toml"

State: TypeAlias = Literal["new", "open", "flaky", "known", "expired", "regressed", "fixed", "gone", "expected"]
"""What has become of a finding: `new` was never seen before tonight, or comes more often than its entry says; `open`
was, and nobody took it; `flaky` is open in containers alone, where a seed does not decide everything; `known` has an
entry, `expired` one whose last day is over; `regressed` was seen again at a descendant of the commit that fixed it,
`fixed` not; `gone` was not seen in as many adequate runs as would have shown it; `expected` is what the flaw of a cell
shows."""

UNCOVERED: Final = frozenset({"new", "open", "flaky"})
"""States of what nobody has taken yet."""

Descends: TypeAlias = Callable[[str, str], bool]
"""Whether a commit is another one or comes after it."""

_SIGNATURE: Final = re.compile(r"([0-9a-f]{12})(?:-([0-9a-f]{12}))?")


class TriageEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What somebody knows of a family. `details` and `cells` (names) are those it holds for, none of them: all; `rate`
    is the share of runs that show it at most, None: any; `until` is the last day on which it holds; `fixed` is the
    commit at which it was mended."""

    family: str
    ticket: str
    until: dt.date
    details: tuple[str, ...] = ()
    cells: tuple[str, ...] = ()
    rate: float | None = None
    fixed: str | None = None
    title: str = ""

    def covers(self, finding: RunFinding, cell: str) -> bool:
        """Whether it is about such a finding in the cell of this name."""
        return (
            finding.family == self.family
            and (not self.details or finding.detail in self.details)
            and (not self.cells or cell in self.cells)
        )


class _TriageFile(msgspec.Struct, forbid_unknown_fields=True):
    known: tuple[TriageEntry, ...] = ()


def read_triage(path: Path) -> tuple[TriageEntry, ...]:
    """The entries of a file, none where there is no file; raises UserError for what is none, such as one without a
    ticket or a last day."""
    try:
        told = tomllib.loads(path.read_text(encoding="utf-8"))
        entries = msgspec.convert(told, _TriageFile).known
    except FileNotFoundError:
        return ()
    except (OSError, *UNDECODABLE, tomllib.TOMLDecodeError) as error:
        raise UserError(f"{path} is no triage file: {error}.") from error
    for entry in entries:
        _require(entry, str(path))
    return entries


def _require(entry: TriageEntry, where: str) -> None:
    if not entry.ticket.strip():
        raise UserError(f"{where}: the entry of {entry.family} has no ticket.")
    if _SIGNATURE.fullmatch(entry.family) is None or not all(re.fullmatch("[0-9a-f]{12}", d) for d in entry.details):
        raise UserError(f"{where}: {entry.family} is no signature; one is 12 hex digits, and -12 more for a detail.")
    if entry.rate is not None and not 0 < entry.rate <= 1:
        raise UserError(f"{where}: the rate of {entry.family} is {entry.rate:g}; it has to lie between 0 and 1.")


def with_entry(entries: Sequence[TriageEntry], entry: TriageEntry) -> tuple[TriageEntry, ...]:
    """The entries with this one, in the place of that of the same family, details and cells."""
    _require(entry, "triage")
    same = (entry.family, entry.details, entry.cells)
    others = [each for each in entries if (each.family, each.details, each.cells) != same]
    return tuple(sorted((*others, entry), key=lambda each: (each.family, each.details, each.cells)))


def write_triage(path: Path, entries: Iterable[TriageEntry]) -> None:
    """Write the file whole or not at all; raises UnwritableError."""
    blocks = [_block(entry) for entry in entries]
    head = "# What is known of findings of nights; `assay triage` writes it.\n"
    with atomic_write(path, path.name) as unfinished:
        unfinished.write_text("\n".join([head, *blocks]), encoding="utf-8")


def _block(entry: TriageEntry) -> str:
    told = msgspec.to_builtins(entry, builtin_types=(dt.date,))
    lines = [f"{name} = {_toml(value)}" for name, value in told.items() if value not in (None, (), [], "")]
    return "\n".join(["[[known]]", *lines, ""])


def _toml(value: Any) -> str:
    """A text as TOML's basic string is one of JSON, but for DEL, which must be escaped there."""
    if isinstance(value, dt.date):
        return value.isoformat()
    return msgspec.json.encode(value).decode().replace("\x7f", "\\u007f")


def entry_of(signature: str, **more: Any) -> TriageEntry:
    """The entry that a command line asks for; raises UserError."""
    found = _SIGNATURE.fullmatch(signature)
    if found is None:
        raise UserError(f"{signature!r} is no signature; one is 12 hex digits, and -12 more for a detail.")
    details = more.pop("details", ()) or (() if found[2] is None else (found[2],))
    return TriageEntry(family=found[1], details=tuple(details), **more)


def last_day(text: str, today: dt.date) -> dt.date:
    """A day such as 2027-01-31 that is not over; raises UserError."""
    try:
        day = dt.date.fromisoformat(text)
    except ValueError as error:
        raise UserError(f"--until takes a day such as 2027-01-31, not {text!r}.") from error
    if day < today:
        raise UserError(f"--until {text} is over; today is {today.isoformat()}.")
    return day


# ---- runs of a night ----


def adequate(run: RunEnded) -> bool:
    """Whether a run counts: it gave a verdict and was not vacuous, and repeats no other for its digest alone."""
    return run.twin is None and run.word in ("valid", "invalid") and not run.vacuous


def is_expected(finding: RunFinding, cell: CellRecord) -> bool:
    """Whether it is what the flaw of the cell is there to show; failures of ours never are."""
    return cell.expect == "found" and finding.kind != "harness"


class Sighting(NamedTuple):
    """A finding in a run of a night."""

    night: Night
    cell: CellRecord
    run: RunEnded
    finding: RunFinding


def sightings(night: Night) -> Iterator[Sighting]:
    """All findings of a night, in the order of its runs; of a twin what its first run has not shown is told too."""
    cells = {cell.id: cell for cell in night.head.cells}
    for run in sorted(night.runs, key=lambda each: each.run):
        for finding in run.findings:
            yield Sighting(night, cells[run.cell], run, finding)


class TriageCase(NamedTuple):
    """A signature in the light of all nights, as the last one has it. `entry` covers it; `sightings` are those of the
    last night, `first`, `last` and `smallest` of all nights; `runs` are the adequate ones of its cells in the last
    night, `shown` how many of them show it; `because` says why an entry does not hold."""

    state: State
    family: str
    kind: str
    title: str
    entry: TriageEntry | None
    details: Mapping[str, int]
    sightings: tuple[Sighting, ...]
    first: Sighting
    last: Sighting
    smallest: Sighting
    times: int
    runs: int
    shown: int
    because: str = ""

    @property
    def cells(self) -> tuple[str, ...]:
        """Names of the cells of the last night that showed it."""
        return tuple(dict.fromkeys(each.cell.name for each in self.sightings))

    @property
    def command(self) -> str:
        """Makes the run of the smallest seed again."""
        return self.smallest.night.head.command(self.smallest.cell.id, self.smallest.run.seed)

    @property
    def rate(self) -> tuple[float, float]:
        """The share of runs that show it, as an interval."""
        return interval(self.shown, self.runs)


class _Light(NamedTuple):
    """What a case is seen in: all nights, how many adequate runs each cell (by name) had in each, the day, commits."""

    nights: Sequence[Night]
    adequate: Sequence[Mapping[str, int]]
    today: dt.date
    descends: Descends

    def runs(self, names: Iterable[str], night: int = -1) -> int:
        return sum(self.adequate[night].get(name, 0) for name in names)


def adequate_runs(night: Night) -> dict[str, int]:
    """How many runs of each cell, by its name, count."""
    counts = Counter(run.cell for run in night.runs if adequate(run))
    return {cell.name: counts[cell.id] for cell in night.head.cells}


def cases_of(
    nights: Sequence[Night], entries: Sequence[TriageEntry], today: dt.date, descends: Descends = lambda *_: False
) -> tuple[TriageCase, ...]:
    """The cases of the last of these nights, the most urgent first; those that it did not show follow."""
    groups: dict[tuple[str, str, int | None], list[Sighting]] = {}
    for night in nights:
        for each in sightings(night):
            groups.setdefault(_group_of(each, entries), []).append(each)
    light = _Light(nights, [adequate_runs(night) for night in nights], today, descends)
    cases = [_case(seen, None if key[2] is None else entries[key[2]], light) for key, seen in groups.items()]
    return tuple(sorted(cases, key=lambda case: (_URGENCY[case.state], -case.shown, case.family)))


_URGENCY: Final[Mapping[str, int]] = {
    name: place
    for place, name in enumerate(("regressed", "new", "expired", "open", "flaky", "known", "expected", "fixed", "gone"))
}


def _group_of(seen: Sighting, entries: Sequence[TriageEntry]) -> tuple[str, str, int | None]:
    """The family, whether its cell is to find it, and the entry that covers it."""
    if is_expected(seen.finding, seen.cell):
        return seen.finding.family, "expected", None
    covering = (number for number, entry in enumerate(entries) if entry.covers(seen.finding, seen.cell.name))
    return seen.finding.family, "", next(covering, None)


def _case(seen: Sequence[Sighting], entry: TriageEntry | None, light: _Light) -> TriageCase:
    mine = tuple(each for each in seen if each.night is light.nights[-1])
    names = {each.cell.name for each in mine or seen} if entry is None or not entry.cells else set(entry.cells)
    shown = len({each.run.run for each in mine if each.run.twin is None})
    runs = max(light.runs(names), shown)
    state, because = _state_of(mine, seen, entry, (shown, runs), light)
    if not mine and state != "fixed" and _is_gone(seen, names, light):
        state = "gone"
    return TriageCase(
        state=state,
        family=seen[0].finding.family,
        kind=seen[0].finding.kind,
        title=(mine or seen)[-1].finding.title,
        entry=entry,
        details=Counter(each.finding.detail for each in mine or seen),
        sightings=mine,
        first=seen[0],
        last=seen[-1],
        smallest=min(mine or seen, key=lambda each: each.run.seed),
        times=len(seen),
        runs=runs,
        shown=shown,
        because=because,
    )


def _state_of(
    mine: Sequence[Sighting],
    seen: Sequence[Sighting],
    entry: TriageEntry | None,
    counts: tuple[int, int],
    light: _Light,
) -> tuple[State, str]:
    """The state, and why an entry does not hold; `counts` are the runs that showed it, and of how many."""
    if is_expected(seen[-1].finding, seen[-1].cell):
        return "expected", ""
    if entry is not None:
        return _by_entry(entry, mine, counts, light)
    if mine and len(mine) == len(seen):
        return "new", ""
    docker = all(each.cell.options.get("on") == "docker" for each in seen)
    return ("flaky" if docker else "open"), ""


def _by_entry(
    entry: TriageEntry, mine: Sequence[Sighting], counts: tuple[int, int], light: _Light
) -> tuple[State, str]:
    if entry.fixed is not None:
        commits = {each.night.head.commit for each in mine}
        if any(commit and light.descends(commit, entry.fixed) for commit in commits):
            return "regressed", f"it was fixed at {entry.fixed[:12]}"
        return ("known" if mine else "fixed"), ""
    if mine and entry.rate is not None and too_many(*counts, entry.rate):
        return "new", f"{counts[0]} of {counts[1]} runs are more than {100 * entry.rate:g} % of them"
    if entry.until < light.today:
        return "expired", f"{entry.ticket} held until {entry.until.isoformat()}"
    return "known", ""


def _is_gone(seen: Sequence[Sighting], names: Iterable[str], light: _Light) -> bool:
    """Whether it would have been seen since, by its rate up to the night that saw it last."""
    place = max(number for number, night in enumerate(light.nights) if night is seen[-1].night)
    until = sum(light.runs(names, night) for night in range(place + 1))
    since = sum(light.runs(names, night) for night in range(place + 1, len(light.nights)))
    return until > 0 and none_of(since, min(1.0, len(seen) / until)) < GONE


def known(finding: RunFinding, cell: str, entries: Sequence[TriageEntry], today: dt.date) -> bool:
    """Whether somebody has it: an entry covers it, and its last day is not over."""
    return any(entry.covers(finding, cell) and entry.until >= today and entry.fixed is None for entry in entries)
