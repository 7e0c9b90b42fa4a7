"""What `--nemesis` asks for, as text and as data: `kill(target=leader-master,every=3s),partition`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec

from harness.errors import UserError
from harness.protocols import Tuning
from nemesis.kinds.api import Suits, always
from nemesis.registry import AIMED, KINDS, NEMESES, SCRIPTS
from nemesis.scripts.quorum import LEADERLESS

ALL = "all"
NONE = "none"

UNITS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}

PACED = {
    "every": "how long a cycle of the kind takes, quiet time and fault together, such as 8s",
    "for": "how long an instance lasts, such as 3s",
    "target": "the variants to take, `|` between several; without, each in turn",
}
"""Settings that every kind has (scripts choose their targets themselves)."""


class Asked(msgspec.Struct, frozen=True):
    """A kind, or `all`, with what was said of it: variants (none: each in turn), seconds, values of its settings, and
    for settings that take names those."""

    name: str
    variants: tuple[str, ...] = ()
    every_s: float | None = None
    for_s: float | None = None
    settings: Mapping[str, float] = {}
    names: Mapping[str, tuple[str, ...]] = {}

    def text(self) -> str:
        """What was asked for in the words that `parse` takes."""
        said = [f"target={'|'.join(self.variants)}"] if self.variants else []
        said += [f"every={self.every_s:g}s"] if self.every_s is not None else []
        said += [f"for={self.for_s:g}s"] if self.for_s is not None else []
        said += [f"{name}={value:g}" for name, value in self.settings.items()]
        said += [f"{name}={'|'.join(values)}" for name, values in self.names.items()]
        return f"{self.name}({','.join(said)})" if said else self.name


def split(text: str) -> tuple[str, ...]:
    """The parts of a list separated by commas, but not within brackets; without blanks, empty ones and repetitions."""
    parts = (part.strip() for part in re.split(r",(?![^(]*\))", text))
    return tuple(dict.fromkeys(part for part in parts if part))


def parse(part: str) -> Asked:
    """One part of the list; raises UserError."""
    match = re.fullmatch(r"([^()\s]+)\s*(?:\(([^()]*)\))?", part)
    if match is None:
        raise UserError(f"--nemesis takes names, each maybe with settings, such as kill(every=5s), not {part!r}.")
    name, words = match[1], [word.strip() for word in (match[2] or "").split(",") if word.strip()]
    if name not in (*NEMESES, ALL, NONE):
        raise UserError(f"There is no nemesis {name!r}; choose from: {', '.join((*NEMESES, ALL, NONE))}.")
    if words and name in (ALL, NONE):
        raise UserError(f"The nemesis {name!r} has no settings; name the kinds to give them some.")
    asked, told = Asked(name), set[str]()
    for word in words:
        key, equals, value = (each.strip() for each in word.partition("="))
        if not equals:
            raise UserError(f"A setting of {name!r} is written NAME=VALUE, not {word!r}.")
        if key in told:
            raise UserError(f"{key} of the nemesis {name!r} is given twice.")
        told.add(key)
        asked = _with(asked, key, value)
    return asked


def parse_all(parts: Sequence[str]) -> tuple[Asked, ...]:
    """All parts; `none` stands for nothing. Raises UserError for a kind that is named twice."""
    found = [asked for asked in map(parse, parts) if asked.name != NONE]
    names = [asked.name for asked in found]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UserError(f"The nemesis {twice!r} is named twice; give all its settings at once.")
    return tuple(found)


def _with(asked: Asked, key: str, value: str) -> Asked:
    if key in ("every", "for"):
        seconds = _number(asked.name, key, value, 0.1, 3600.0)
        return msgspec.structs.replace(asked, **{f"{key}_s": seconds})
    if key == "target" and asked.name in KINDS:
        variants = _several(value)
        known = KINDS[asked.name].variants
        for each in variants:
            if each not in known:
                raise UserError(f"The nemesis {asked.name!r} has no target {each!r}; choose from: {', '.join(known)}.")
        return msgspec.structs.replace(asked, variants=variants)
    if asked.name in KINDS and key in KINDS[asked.name].names:
        return msgspec.structs.replace(asked, names={**asked.names, key: _several(value)})
    settings = KINDS[asked.name].settings if asked.name in KINDS else {}
    if key not in settings:
        known_keys = [each for each in PACED if each != "target" or asked.name in KINDS]
        known_keys += [*settings, *(KINDS[asked.name].names if asked.name in KINDS else ())]
        raise UserError(f"The nemesis {asked.name!r} has no setting {key!r}; it has: {', '.join(known_keys)}.")
    chosen = _number(asked.name, key, value, settings[key].low, settings[key].high)
    return msgspec.structs.replace(asked, settings={**asked.settings, key: chosen})


def _several(value: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(each.strip() for each in value.split("|")))


def _number(name: str, key: str, text: str, low: float, high: float) -> float:
    """A number, maybe with a unit of time."""
    match = re.fullmatch(r"(-?\d*\.?\d+)\s*(ms|s|m|h)?", text)
    value = float(match[1]) * UNITS[match[2] or "s"] if match is not None else float("nan")
    if not low <= value <= high:
        raise UserError(f"{key} of the nemesis {name!r} takes a number from {low:g} to {high:g}, not {text!r}.")
    return value


def expand(asked: Sequence[Asked], offered: frozenset[str], tuning: Tuning | None = None) -> tuple[Asked, ...]:
    """The kinds asked for, each once: `all` is every kind, scripts too, that can be done with what is offered.

    Kinds that do at one role what others do anywhere have to be named. Where the tables know no leaders, scripts about
    leaders are left out.
    """
    named = {each.name: each for each in asked if each.name != ALL}
    if len(named) < len(asked):
        able = [name for name, info in NEMESES.items() if info.needs <= offered and _varies(name, offered)]
        able = [name for name in able if _suits(NEMESES[name].suits, tuning)]
        possible = [name for name in able if name not in AIMED]
        if LEADERLESS in offered:
            possible = [name for name in possible if not scripted(name) or LEADERLESS in SCRIPTS[name].needs]
        named |= {name: Asked(name) for name in possible if name not in named}
    return tuple(named.values())


def _suits(suits: Suits, tuning: Tuning | None) -> bool:
    return suits is always or (tuning is not None and suits(tuning))


def _varies(name: str, offered: frozenset[str]) -> bool:
    """Whether one of the nemesis's variants can be done at least."""
    return scripted(name) or any(each.needs <= offered for each in KINDS[name].variants.values())


def scripted(name: str) -> bool:
    """Whether a nemesis is a script."""
    return name in SCRIPTS
