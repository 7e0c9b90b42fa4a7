"""The nemeses by name, and packages that compose them: who carries faults out, when, and how everything is healed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

from harness.errors import UserError
from harness.generators.core import Generator
from harness.protocols import Database, Environment, Nemesis
from nemesis.cycles import SEED_BITS, Kind, Pace, Timed, end_op
from nemesis.nemesis import FaultNemesis, Patience
from nemesis.registry import KINDS, NEMESES, PlotStyle
from nemesis.schedule import Schedule, Steps
from nemesis.scripts import SCRIPTS


@dataclass(frozen=True, slots=True)
class NemesisOptions:
    """`interval_s` sets the pace (see `Pace`); `time_limit_s`, where known, lets the first round end within it."""

    interval_s: float = 5.0
    time_limit_s: float | None = None


@dataclass(frozen=True, slots=True)
class NemesisPackage:
    """What a run needs of its nemeses; each of `kinds` must be observed at least once."""

    nemesis: Nemesis
    generator: Generator
    final_generator: Generator
    kinds: tuple[str, ...]
    styles: Mapping[str, PlotStyle]


FIRST_ROUND_SHARE = 0.7
"""Of the time limit: by then every kind has had its first instance."""


def package(
    names: Sequence[str], database: Database, environment: Environment, options: NemesisOptions, entropy: Random
) -> NemesisPackage:
    """Compose nemeses; `all` stands for every plain kind that can be done here, no names (or `none`) for no faults.

    Raises UserError for unknown names, for what this environment can't do, and for options out of range.
    """
    if not 0.1 <= options.interval_s <= 3600:
        raise UserError(f"The nemesis interval must lie between 0.1 and 3600 seconds, not {options.interval_s:g}.")
    offered = frozenset(database.capabilities | environment.capabilities)
    kinds = tuple(_kind(name, offered, len(database.nodes)) for name in resolve(names, offered))
    pace = Pace(options.interval_s, FIRST_ROUND_SHARE * min(options.time_limit_s or 20.0, 20.0))
    return NemesisPackage(
        FaultNemesis(database, environment, Patience()),
        Schedule(kinds, pace, entropy.getrandbits(SEED_BITS)),
        Steps(tuple(Timed(0.0, end_op(kind.name, None)) for kind in kinds)),
        tuple(kind.name for kind in kinds),
        {kind.name: NEMESES[kind.name].style for kind in kinds},
    )


def wanted(names: Sequence[str]) -> frozenset[str]:
    """The capabilities that these nemeses need, or (`all`) use where they are offered; unknown names want nothing."""
    kinds = [kind for name in names for kind in (KINDS if name == "all" else [name]) if kind in NEMESES]
    return frozenset[str]().union(*(NEMESES[kind].needs for kind in kinds))


def resolve(names: Sequence[str], offered: frozenset[str]) -> tuple[str, ...]:
    """The kinds that names stand for, each once, in the order given; raises UserError."""
    chosen: list[str] = []
    for name in names:
        if name == "none":
            continue
        if name != "all" and name not in NEMESES:
            raise UserError(f"There is no nemesis {name!r}; known are {', '.join(NEMESES)}, all and none.")
        kinds = [kind for kind in KINDS if NEMESES[kind].needs <= offered] if name == "all" else [name]
        chosen += kinds
    return tuple(dict.fromkeys(chosen))


def _kind(name: str, offered: frozenset[str], node_count: int) -> Kind:
    lacking = NEMESES[name].needs - offered
    if lacking:
        raise UserError(
            f"The nemesis {name!r} can't be used here: no {' and no '.join(sorted(lacking))} fault is offered."
        )
    if name in SCRIPTS:
        return Kind(name, (name,), scripted=True)
    variants = KINDS[name].variants
    possible = tuple(v for v in variants if variants[v].needs <= offered and node_count >= variants[v].least_nodes)
    if not possible:
        least = min(variant.least_nodes for variant in variants.values())
        raise UserError(f"The nemesis {name!r} can't be used here: it needs at least {least} nodes.")
    return Kind(name, possible)
