"""`assay gate`: whether nights allow a release, a line and a number for each condition of a policy.

    policy.toml ─┐
    nights      ─┼─> conditions ─> PASS | FAIL | UNKNOWN name: measured, limit ─> exit code
    triage.toml ─┘

FAIL (exit code 1) is what was found: a finding that nobody has, one that came back, a flaw that was missed, one whose
day is over, a slower cell, a step that failed. UNKNOWN (exit code 2) says that the nights prove nothing: too few runs,
too old, of another commit or judge, open, not as they were written. Zero comes with what it proves. Pure, but for
reading the policy.
"""

from __future__ import annotations

import datetime as dt
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import msgspec

from assay.night.rates import MISSED, in_words, none_of, percent, runs_for
from assay.night.records import CellRecord, Night, RunEnded, StepEnded
from assay.night.trends import LEAST_WALL_NIGHTS, FigureChange, changes_of, values_of
from assay.night.triage import UNCOVERED, Descends, TriageCase, TriageEntry, adequate, adequate_runs, cases_of
from harness.errors import UNDECODABLE, UserError

GateWord: TypeAlias = Literal["PASS", "FAIL", "UNKNOWN"]

USUAL_RATE: Final = 0.2
"""A cell that says no rate is to find its flaw in one run of five."""


class GatePolicy(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="kebab", omit_defaults=True):
    """What a release asks of nights; what is not named is not asked. Counts and shares are the most allowed, but for
    `adequate-runs-per-cell` and `virtual-hours`, the least; `slower` is by how much a figure may be worse (0.1: 10 %),
    `judge` the judge's version, `max-age` such as "36h", `commit` what the nights have to be of, from its beginning."""

    new_findings: int | None = None
    regressed: int | None = None
    missed_flaws: int | None = None
    expired_known: int | None = None
    adequate_runs_per_cell: int | None = None
    judge: str | None = None
    virtual_hours: float | None = None
    unknown_share: float | None = None
    harness_share: float | None = None
    slower: float | None = None
    max_age: str | None = None
    commit: str | None = None
    clean_tree: bool | None = None

    def asked(self) -> dict[str, Any]:
        """The conditions by name."""
        told: dict[str, Any] = msgspec.to_builtins(self)
        return told


class GateLine(msgspec.Struct, frozen=True):
    """One line: a condition, what it came to, what was measured, and its limit."""

    word: GateWord
    name: str
    measured: str
    limit: str

    def __str__(self) -> str:
        return f"{self.word} {self.name}: {self.measured}, limit {self.limit}"


def exit_code(conditions: Sequence[GateLine]) -> int:
    """1 for anything found, else 2 for anything that is not known, else 0."""
    words = {condition.word for condition in conditions}
    return 1 if "FAIL" in words else 2 if "UNKNOWN" in words else 0


def read_policy(path: Path) -> GatePolicy:
    """The policy of a file; raises UserError for an empty one, unknown keys and what is no limit."""
    try:
        told = tomllib.loads(path.read_text(encoding="utf-8"))
        policy = msgspec.convert(told.get("gate", told) if len(told) == 1 else told, GatePolicy)
    except (OSError, *UNDECODABLE, tomllib.TOMLDecodeError) as error:
        raise UserError(f"{path} is no policy: {error}.") from error
    if not policy.asked():
        raise UserError(f"{path} asks for nothing; a gate that nothing has to pass is open.")
    for name, limit in policy.asked().items():
        number = isinstance(limit, int | float) and not isinstance(limit, bool)
        if number and limit < 0:
            raise UserError(f"{path}: {name} is {limit:g}; it can't be negative.")
        if name.endswith("share") and limit > 1:
            raise UserError(f"{path}: {name} is {limit:g}; it is a share, from 0 to 1.")
        if limit is False:
            raise UserError(f"{path}: {name} is false; leave it out where it is not asked for.")
    age_of(policy.max_age or "1h")
    return policy


_AGE: Final = re.compile(r"(\d+(?:\.\d+)?)(h|d)")


def age_of(text: str) -> dt.timedelta:
    """A time such as 36h or 2d; raises UserError."""
    found = _AGE.fullmatch(text)
    if found is None:
        raise UserError(f"{text!r} is no age; say 36h or 2d.")
    return dt.timedelta(hours=float(found[1]) * (24 if found[2] == "d" else 1))


class GateInput(NamedTuple):
    """What a gate looks at: the nights of the release, earlier ones of their stores (for `slower`), triage, now."""

    nights: Sequence[Night]
    earlier: Sequence[Night]
    entries: Sequence[TriageEntry]
    now: dt.datetime
    descends: Descends = lambda *_: False


def judge_nights(policy: GatePolicy, given: GateInput) -> tuple[GateLine, ...]:
    """A line for each condition, and for what every night has to be: over, as it was written, with an adequate run of
    every cell, and with every step passed. Raises UserError for a condition of which the nights say nothing."""
    cases = [
        case for night in given.nights for case in cases_of([night], given.entries, given.now.date(), given.descends)
    ]
    look = _Look(given, cases, [run for night in given.nights for run in night.runs if run.twin is None])
    asked = [_CONDITIONS[name](look, limit) for name, limit in policy.asked().items()]
    return (*_whole(given.nights), *asked)


class _Look(NamedTuple):
    """What conditions are measured on: the cases of each night, and all runs that repeat no other."""

    given: GateInput
    cases: Sequence[TriageCase]
    runs: Sequence[RunEnded]

    @property
    def adequate(self) -> int:
        return sum(map(adequate, self.runs))


def _whole(nights: Sequence[Night]) -> Iterator[GateLine]:
    ending = [night.head.id for night in nights if night.is_open]
    damaged = [f"{night.head.id}: {night.damage[0]}" for night in nights if night.damage]
    lacking = [f"{night.head.id}: {len(night.begun)} runs have no end" for night in nights if night.begun]
    idle = [name for night in nights for name, runs in adequate_runs(night).items() if not runs]
    for name, wrong, fine in (
        ("over", ending, f"{len(nights)} of {len(nights)} nights"),
        ("as-written", [*damaged, *lacking], "every line follows the one before"),
        ("tested", [f"no adequate run of {name}" for name in idle], "every cell has an adequate run"),
    ):
        yield GateLine("UNKNOWN" if wrong else "PASS", name, "; ".join(wrong) or fine, "every night")
    failed = [f"{night.head.id}: {step.name} {step.word}" for night in nights for step in failed_steps(night)]
    left_out = [f"{night.head.id}: {name} was not carried out" for night in nights for name in steps_left_out(night)]
    word: GateWord = "FAIL" if failed else "UNKNOWN" if left_out else "PASS"
    yield GateLine(word, "steps", "; ".join([*failed, *left_out]) or "all passed", "every night")


def failed_steps(night: Night) -> tuple[StepEnded, ...]:
    """The steps of a night that did not pass."""
    return tuple(step for step in night.steps if step.word != "passed")


def steps_left_out(night: Night) -> tuple[str, ...]:
    """The names of a night's steps that were not carried out."""
    done = {step.name for step in night.steps}
    return tuple(step.name for step in night.head.steps if step.name not in done)


def _count(name: str, cases: Sequence[TriageCase], look: _Look, limit: int) -> GateLine:
    """How many cases there are; of none what that proves."""
    told = "; ".join(f"{case.family} {case.title}{_because(case)}" for case in cases)
    measured = f"{len(cases)} ({told})" if cases else in_words(0, look.adequate)
    word: GateWord = "FAIL" if len(cases) > limit else "PASS" if cases or look.adequate else "UNKNOWN"
    return GateLine(word, name, measured, str(limit))


def _because(case: TriageCase) -> str:
    return f" ({case.because})" if case.because else ""


def _new(look: _Look, limit: int) -> GateLine:
    return _count("new-findings", [case for case in look.cases if case.state in UNCOVERED], look, limit)


def _regressed(look: _Look, limit: int) -> GateLine:
    return _count("regressed", [case for case in look.cases if case.state == "regressed"], look, limit)


def _expired(look: _Look, limit: int) -> GateLine:
    return _count("expired-known", [case for case in look.cases if case.state == "expired"], look, limit)


def _missed(look: _Look, limit: int) -> GateLine:
    cells = [(night, cell) for night in look.given.nights for cell in night.head.cells if cell.expect == "found"]
    if not cells:
        raise UserError("missed-flaws: no cell of these nights has a flaw to find.")
    words = [(cell.name, *flaw_word(cell, [run for run in night.runs if run.cell == cell.id])) for night, cell in cells]
    missed = [f"{name}: {why}" for name, word, why in words if word == "FAIL"]
    unsure = [f"{name}: {why}" for name, word, why in words if word == "UNKNOWN"]
    word: GateWord = "FAIL" if len(missed) > limit else "UNKNOWN" if unsure else "PASS"
    told = "; ".join([*missed, *unsure]) or "all were found"
    return GateLine(word, "missed-flaws", f"{len(missed)} of {len(cells)} ({told})", str(limit))


def flaw_word(cell: CellRecord, runs: Sequence[RunEnded]) -> tuple[GateWord, str]:
    """Whether a cell's flaw was found; FAIL only if its rate leaves less than MISSED for none of its runs."""
    counted, rate = [run for run in runs if adequate(run)], cell.rate or USUAL_RATE
    found = sum(any(each.kind != "harness" for each in run.findings) for run in counted)
    if found:
        return "PASS", in_words(found, len(counted))
    chance = none_of(len(counted), rate)
    told = f"0 of {len(counted)} runs at a rate of {percent(rate)}, by chance {100 * chance:.2g} %"
    return ("FAIL", told) if chance < MISSED else ("UNKNOWN", f"{told}; {runs_for(rate, MISSED)} runs would tell")


def _per_cell(look: _Look, limit: int) -> GateLine:
    counts: dict[str, int] = {}
    for night in look.given.nights:
        for name, runs in adequate_runs(night).items():
            counts[name] = counts.get(name, 0) + runs
    few = {name: runs for name, runs in counts.items() if runs < limit}
    told = "; ".join(f"{name} {runs}" for name, runs in few.items()) or f"{min(counts.values(), default=0)} or more"
    return GateLine("UNKNOWN" if few or not counts else "PASS", "adequate-runs-per-cell", told, str(limit))


def _judge(look: _Look, limit: str) -> GateLine:
    return _same("judge", [night.head.judge for night in look.given.nights], limit, lambda told: told == limit)


def _commit(look: _Look, limit: str) -> GateLine:
    if re.fullmatch("[0-9a-f]{7,64}", limit) is None:
        raise UserError(f"commit: {limit!r} is no commit; say 7 hex digits of it at least.")
    return _same(
        "commit", [night.head.commit for night in look.given.nights], limit, lambda told: told.startswith(limit)
    )


def _same(name: str, told: Sequence[str | None], limit: str, holds: Callable[[str], bool]) -> GateLine:
    known = [each for each in told if each is not None]
    if len(known) < len(told):
        raise UserError(f"{name}: a night does not say of which {name} it is.")
    word: GateWord = "PASS" if all(map(holds, known)) else "UNKNOWN"
    return GateLine(word, name, ", ".join(dict.fromkeys(known)), limit)


def _hours(look: _Look, limit: float) -> GateLine:
    hours = sum(run.virtual_s for run in look.runs if adequate(run)) / 3600
    return GateLine("PASS" if hours >= limit else "UNKNOWN", "virtual-hours", f"{hours:.2f}", f"{limit:g}")


def _share(name: str, look: _Look, limit: float, counts: Callable[[RunEnded], bool]) -> GateLine:
    mine, of = sum(map(counts, look.runs)), len(look.runs)
    word: GateWord = "PASS" if of and mine <= limit * of else "UNKNOWN"
    measured = f"{percent(mine / of)} ({in_words(mine, of)})" if of else "no run"
    return GateLine(word, name, measured, percent(limit))


def _unknown(look: _Look, limit: float) -> GateLine:
    return _share("unknown-share", look, limit, lambda run: run.word not in ("valid", "invalid"))


def _harness(look: _Look, limit: float) -> GateLine:
    return _share("harness-share", look, limit, is_harness)


def is_harness(run: RunEnded) -> bool:
    """Whether we failed in it: our own code or machine, not the database."""
    return run.word in ("timeout", "memory", "error") or run.why == "harness"


def _slower(look: _Look, limit: float) -> GateLine:
    given = look.given
    changes = {change.name: change for change in _changes(given)}
    beyond = [change for change in changes.values() if change.worse_by > limit]
    if beyond:
        told = "; ".join(change.sentence for change in beyond)
        return GateLine("FAIL", "slower", f"{len(beyond)} ({told})", percent(limit))
    if unsure := [
        night.head.id for night in given.nights if len(_comparable(night, given.earlier)) < LEAST_WALL_NIGHTS - 1
    ]:
        told = f"fewer than {LEAST_WALL_NIGHTS - 1} earlier nights of one machine before {', '.join(unsure)}"
        return GateLine("UNKNOWN", "slower", told, percent(limit))
    worst = max((change.worse_by for change in changes.values()), default=0.0)
    return GateLine("PASS", "slower", f"{percent(max(worst, 0.0))} at most" if changes else "no change", percent(limit))


def _changes(given: GateInput) -> Iterator[FigureChange]:
    """What changed by each night, against all before it."""
    nights = sorted({each.head.id: each for each in (*given.earlier, *given.nights)}.values(), key=_begun)
    values = [values_of(night) for night in nights]
    for night in given.nights:
        until = sum(_begun(each) < _begun(night) for each in nights)
        mine = next(each for each, other in zip(values, nights, strict=True) if other.head.id == night.head.id)
        yield from changes_of((*nights[:until], night), (*values[:until], mine))


def _begun(night: Night) -> str:
    return night.head.begun


def _comparable(night: Night, earlier: Sequence[Night]) -> list[Night]:
    mine = night.head
    return [each for each in earlier if each.head.begun < mine.begun and each.head.machine == mine.machine]


def _age(look: _Look, limit: str) -> GateLine:
    oldest = min(dt.datetime.fromisoformat(night.head.begun) for night in look.given.nights)
    age = look.given.now - oldest
    word: GateWord = "PASS" if dt.timedelta() <= age <= age_of(limit) else "UNKNOWN"
    return GateLine(word, "max-age", f"{age.total_seconds() / 3600:.1f} h", limit)


def _clean(look: _Look, limit: bool) -> GateLine:
    told = [night.head.clean for night in look.given.nights]
    if None in told:
        raise UserError("clean-tree: a night does not say whether files differed from its commit.")
    changed = [night.head.id for night in look.given.nights if not night.head.clean]
    return GateLine(
        "UNKNOWN" if changed else "PASS",
        "clean-tree",
        f"files were changed: {', '.join(changed)}" if changed else "clean",
        "clean",
    )


_CONDITIONS: Final[Mapping[str, Callable[[_Look, Any], GateLine]]] = {
    "new-findings": _new,
    "regressed": _regressed,
    "missed-flaws": _missed,
    "expired-known": _expired,
    "adequate-runs-per-cell": _per_cell,
    "judge": _judge,
    "virtual-hours": _hours,
    "unknown-share": _unknown,
    "harness-share": _harness,
    "slower": _slower,
    "max-age": _age,
    "commit": _commit,
    "clean-tree": _clean,
}
