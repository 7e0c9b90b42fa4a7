"""The nemeses by name, and packages that compose them: who carries faults out, when, and how everything is healed."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from random import Random

from harness.capabilities import Capability
from harness.errors import UserError
from harness.generators.core import Generator
from harness.protocols import Database, Environment, Nemesis, failover_of, tuning_of
from harness.run.extended_load import wanted_faults
from harness.verdict.adequacy import Floors
from nemesis.asked import ALL, Asked, expand, parse_all, scripted
from nemesis.kinds.api import Action
from nemesis.kinds.damage import REPLACEABLE_MASTERS, REPLACEABLE_VOTERS
from nemesis.nemesis import FaultNemesis, Patience
from nemesis.registry import JOINING, KINDS, NEMESES
from nemesis.schedule import SEED_BITS, AskedKind, CyclePace, Schedule, Steps, Timed, end_op
from nemesis.scripts.catalogs import TABLES_MADE
from nemesis.scripts.quorum import LEADERLESS, LOGGED

MISSING: Mapping[str, str] = {
    Capability.TERMS: "the database has no terms, by which to tell whether a node led when it was hit",
    Capability.MASTERS: "it is about the roles of the reference cluster",
    LEADERLESS: "the workload's tables have leaders; a quorum workload's have none",
    LOGGED: "the workload's table logs no mutations; one with -o table=logged does",
    TABLES_MADE: "the workload makes no tables while it runs; `catalog` does",
    REPLACEABLE_MASTERS: "masters are fewer than three",
    REPLACEABLE_VOTERS: "followers get too few entries at a time for a new one to catch up while clients write",
}
"""What is to be said where the workload, or the database as it is set up, does not bring what a nemesis needs."""


@dataclass(frozen=True, slots=True)
class NemesisOptions:
    """`interval_s` sets the pace (see `CyclePace`); `time_limit_s`, where known, lets the first round end within it.

    `drawn` says that nobody asked for just these kinds: each is given time to last, and to reach its core. `probe_s` is
    how far apart the looks at a fault are while it lasts. A kind that lies below one of the `floors` has other turns.
    `pinned` are actions by instance (see `FaultNemesis`).
    """

    interval_s: float = 5.0
    probe_s: float = 0.5
    time_limit_s: float | None = None
    drawn: bool = False
    floors: Floors = field(default_factory=Floors)
    pinned: Mapping[int, Action] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NemesisPackage:
    """What a run needs of its nemeses; each of `kinds` must be observed at least once.

    `unavailable`: targets were asked for that can't be served meanwhile.
    """

    nemesis: Nemesis
    generator: Generator
    final_generator: Generator
    kinds: tuple[str, ...]
    unavailable: bool = False


FIRST_ROUND_SHARE = 0.7
"""Of the time limit: by then every kind has had its first instance."""


LEAST_S = 2.0
"""How long each fault lasts at least that `all` drew."""

COST_S = {True: 12.0, False: 4.5}
"""How long a cycle of the first round may take of what `all` drew: of scripts, and of others."""

DRAWN_SHARE = 0.8
"""Of the time limit, that first turns of what `all` drew may take: what was missed then has another turn."""

SCRIPT_S = Patience().script_s
"""How long scripts wait for a state at least; longer where a fail-over takes longer."""

EXTEND_S = 10.0
"""How long a script that `all` drew may go on until its core is reached."""


JOINING_SHARE = 0.2
"""Of the runs with `all` that have no time for every kind, those that a kind of `JOINING` joins."""


def package(
    parts: Sequence[str], database: Database, environment: Environment, options: NemesisOptions, entropy: Random
) -> NemesisPackage:
    """Compose nemeses (see `nemesis.asked`); `all` stands for every kind that can be done here, `none` for none.

    Of what `all` stands for only as many kinds are drawn as have time for an instance that lasts. Raises UserError for
    unknown names, for what this environment can't do, and for options out of range.
    """
    if not 0.1 <= options.interval_s <= 3600:
        raise UserError(f"The nemesis interval must lie between 0.1 and 3600 seconds, not {options.interval_s:g}.")
    offered = frozenset(database.capabilities | environment.capabilities)
    asked = parse_all(parts)
    everything = any(each.name == ALL for each in asked)
    chosen = expand(asked, offered, tuning_of(database))
    if everything:
        named = [each.name for each in asked]
        others, joining = parted(chosen, named)
        drawn = fitting(others, named, options.time_limit_s, entropy)
        stream = copy(entropy).getrandbits(SEED_BITS)
        chosen = (*drawn, *joining) if drawn == others else joined(drawn, joining, named, stream)
    if asked and not chosen:
        raise UserError("None of the faults that there are can be made here; say --nemesis none for a run without.")
    for each in chosen:
        _require_known_names(each, database)
    _require_time(chosen, options.time_limit_s)
    failover_s = failover_of(database)
    kinds = tuple(_kind(each, offered, len(database.nodes), options.time_limit_s) for each in chosen)
    pace = _pace(options, everything or options.drawn, failover_s)
    lacking = wanted_faults(tuple(kind.name for kind in kinds), options.floors)
    patience = Patience(probe_s=options.probe_s, script_s=max(SCRIPT_S, failover_s))
    return NemesisPackage(
        FaultNemesis(database, environment, patience, options.pinned),
        Schedule(kinds, pace, entropy.getrandbits(SEED_BITS), wanted=lacking),
        Steps(tuple(Timed(0.0, end_op(kind.name, None)) for kind in kinds)),
        tuple(kind.name for kind in kinds),
        any(KINDS[each.name].variants[v].unavailable for each in chosen for v in each.variants),
    )


def _pace(options: NemesisOptions, drawn: bool, failover_s: float) -> CyclePace:
    first_round_s = FIRST_ROUND_SHARE * min(options.time_limit_s or 20.0, 20.0)
    if drawn:
        return CyclePace(options.interval_s, first_round_s, LEAST_S, EXTEND_S, failover_s)
    return CyclePace(options.interval_s, first_round_s, failover_s=failover_s)


def fitting(
    kinds: Sequence[Asked], named: Sequence[str], time_limit_s: float | None, entropy: Random
) -> tuple[Asked, ...]:
    """As many of the kinds, those named first, as have time for an instance each; in the order given, at least one."""
    if time_limit_s is None:
        return tuple(kinds)
    drawn: list[Asked] = []
    left_s = DRAWN_SHARE * time_limit_s
    order = entropy.sample(list(kinds), len(kinds))
    for each in sorted(order, key=lambda kind: kind.name not in named):
        left_s -= cost_s(each)
        if left_s >= 0 or not drawn or each.name in named:
            drawn.append(each)
    return tuple(each for each in kinds if each in drawn)


def parted(kinds: Sequence[Asked], named: Collection[str]) -> tuple[tuple[Asked, ...], tuple[Asked, ...]]:
    """The kinds that are drawn together, and those of `JOINING` that nobody has named."""
    joining = tuple(each for each in kinds if each.name in JOINING and each.name not in named)
    return tuple(each for each in kinds if each not in joining), joining


def joined(
    drawn: Sequence[Asked], joining: Sequence[Asked], named: Collection[str], stream: object
) -> tuple[Asked, ...]:
    """What was drawn, where by streams of their own some kinds take the place of one that nobody has named and that
    takes as long."""
    found = list(drawn)
    for each in joining:
        own, kept = Random(f"{stream}/{each.name}"), (*named, *JOINING)
        places = [i for i, kind in enumerate(found) if kind.name not in kept and cost_s(kind) >= cost_s(each)]
        if places and own.random() < JOINING_SHARE:
            found[own.choice(places)] = each
    return tuple(found)


def cost_s(asked: Asked) -> float:
    """How long the kind's cycle in the first round may take."""
    return asked.every_s or COST_S[scripted(asked.name)]


def _require_time(chosen: Sequence[Asked], time_limit_s: float | None) -> None:
    """Each kind has its turn once before any has it again: those with a pace of their own must fit in the run."""
    paced = [each for each in chosen if each.every_s is not None]
    round_s = sum(cost_s(each) for each in paced)
    if time_limit_s is not None and len(paced) > 1 and round_s > time_limit_s:
        names = ", ".join(each.name for each in paced)
        raise UserError(f"One cycle each of {names} takes {round_s:g} s; the run lasts {time_limit_s:g} s.")


def wanted(parts: Sequence[str]) -> frozenset[str]:
    """The capabilities that these nemeses need, or (`all`) use where they are offered."""
    every = frozenset[str]().union(*(info.needs for info in NEMESES.values()))
    return frozenset[str]().union(*(NEMESES[each.name].needs for each in expand(parse_all(parts), every)))


def _kind(asked: Asked, offered: frozenset[str], node_count: int, time_limit_s: float | None) -> AskedKind:
    name = asked.name
    lacking = NEMESES[name].needs - offered
    if lacking:
        raise UserError(f"The nemesis {name!r} can't be used here: {_why_not(lacking)}.")
    if asked.every_s is not None and asked.for_s is not None and asked.for_s >= asked.every_s:
        raise UserError(
            f"{asked.text()} leaves no quiet time: an instance lasts as long as its whole cycle, or longer."
        )
    longest_s = max(asked.every_s or 0.0, asked.for_s or 0.0)
    if time_limit_s is not None and longest_s > time_limit_s:
        raise UserError(f"{asked.text()} takes longer than the run, which lasts {time_limit_s:g} s.")
    if scripted(name):
        return AskedKind(name, (name,), True, asked.every_s, asked.for_s)
    variants = KINDS[name].variants
    led = LEADERLESS not in offered
    unnamed = (v for v in variants if not variants[v].named and variants[v].unless.isdisjoint(offered))
    among = asked.variants or tuple(v for v in unnamed if led or not v.startswith("leaseholder"))
    possible = tuple(v for v in among if variants[v].needs <= offered and node_count >= variants[v].least_nodes)
    if not possible:
        least = min(variants[v].least_nodes for v in among)
        what = (
            f"{asked.text()!r} needs at least {least} nodes" if node_count < least else _lacking(name, among, offered)
        )
        raise UserError(f"The nemesis {name!r} can't be used here: {what}.")
    return AskedKind(name, possible, False, asked.every_s, asked.for_s, asked.settings, KINDS[name].alone, asked.names)


def _require_known_names(asked: Asked, database: Database) -> None:
    for setting, given in asked.names.items():
        known = KINDS[asked.name].names[setting].known(database)
        for name in given:
            if name not in known:
                close = difflib.get_close_matches(name, known, 3, 0.5)
                hint = f"; did you mean {' or '.join(close)}?" if close else f"; there are {len(known)}."
                raise UserError(f"{database.name} has nothing named {name!r} for {setting} of {asked.name!r}{hint}")


def _why_not(lacking: frozenset[str], what: str = " fault") -> str:
    """What is missing, in words: tables of another kind, another set up, or what nobody here offers."""
    told = [words for power, words in MISSING.items() if power in lacking]
    others = sorted(lacking - MISSING.keys())
    return "; ".join([*told, *([f"no {' and no '.join(others)}{what} is offered"] if others else [])])


def _lacking(name: str, among: Sequence[str], offered: frozenset[str]) -> str:
    needed = frozenset[str]().union(*(KINDS[name].variants[v].needs for v in among))
    return _why_not(needed - offered, "")
