"""The options of a run, checked before anything is started."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from assay.worlds import draw_world, given_knobs
from cluster.flaws import FLAWS
from harness.errors import UserError
from harness.history.rundir import require_store
from harness.verdict.adequacy import parse_floors
from nemesis.asked import parse_all, split
from workloads.registry import WORKLOADS

ENVIRONMENTS = ("sim", "docker")


LONGEST_PROBE_PERIOD_S = 2.0
"""Faults last some seconds: what ends between two looks that are further apart would count as in effect."""
PROBE_PERIOD_S = 0.5


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Everything that decides a run; times in seconds, rate in operations a second over all clients.

    `zones` is None where the environment has its own: as many as its network has regions, three in containers.
    """

    workload: str
    on: str = "sim"
    nemesis: tuple[str, ...] = ()
    time_limit: float = 60.0
    rate: float = 100.0
    concurrency: int = 10
    masters: int = 3
    nodes: int = 5
    zones: int | None = None
    seed: int = 0
    flaw: tuple[str, ...] = ()
    world: str = ""
    store: Path = Path("store")
    op_timeout: float = 5.0
    recovery_budget: float = 10.0
    probe_period: float = PROBE_PERIOD_S
    floors: dict[str, str] = field(default_factory=dict)
    workload_options: dict[str, str] = field(default_factory=dict)
    swarm: bool = False
    keep_journal: bool = False

    def as_dict(self) -> dict[str, Any]:
        """The options as JSON-able values, for `run.json`."""
        return {**asdict(self), "nemesis": list(self.nemesis), "flaw": list(self.flaw), "store": str(self.store)}

    def command(self) -> str:
        """The shell command that runs the same again."""
        words = ["assay", "run", self.workload, "--on", self.on]
        if self.nemesis:
            words += ["--nemesis", ",".join(self.nemesis)]
        for name in ("time_limit", "rate", "concurrency", "masters", "nodes", "seed", "op_timeout", "recovery_budget"):
            words += [f"--{name.replace('_', '-')}", f"{getattr(self, name):g}" if name != "seed" else str(self.seed)]
        if self.zones is not None:
            words += ["--zones", str(self.zones)]
        words += ["--swarm"] * self.swarm + ["--keep-journal"] * self.keep_journal
        if self.probe_period != PROBE_PERIOD_S:
            words += ["--probe-period", f"{self.probe_period:g}"]
        if self.flaw:
            words += ["--flaw", ",".join(self.flaw)]
        if self.world:
            words += ["--world", self.world]
        for key, value in self.floors.items():
            words += ["--floor", f"{key}={value}"]
        for key, value in self.workload_options.items():
            words += ["-o", f"{key}={value}"]
        if self.store != Path("store"):
            words += ["--store", str(self.store)]
        return shlex.join(words)


def known(what: str, name: str, names: Sequence[str]) -> str:
    """`name` if it is one of `names`; raises UserError with the list otherwise."""
    if name not in names:
        raise UserError(f"There is no {what} {name!r}; choose from: {', '.join(names)}.")
    return name


def within(what: str, value: float, low: float, high: float) -> None:
    """Raise UserError unless low <= value <= high."""
    if not low <= value <= high:
        raise UserError(f"{what} is {value:.12g}; it has to lie between {low:.12g} and {high:.12g}.")


def validate(options: RunOptions) -> RunOptions:
    """The same options if a run can be made of them; raises UserError with one sentence otherwise."""
    known("workload", options.workload, list(WORKLOADS))
    known("environment", options.on, ENVIRONMENTS)
    parse_all(options.nemesis)
    for name in options.flaw:
        known("flaw", name, list(FLAWS))
    within("--time-limit", options.time_limit, 1, 7 * 24 * 3600)
    within("--rate", options.rate, 0.1, 1_000_000)
    within("--concurrency", options.concurrency, 1, 10_000)
    within("--masters", options.masters, 1, 9)
    within("--nodes", options.nodes, 3, 50)
    if options.zones is not None:
        within("--zones", options.zones, 1, options.nodes)
    within("--op-timeout", options.op_timeout, 0.1, 600)
    within("--recovery-budget", options.recovery_budget, 0.1, 3600)
    within("--probe-period", options.probe_period, 0.05, LONGEST_PROBE_PERIOD_S)
    within("--seed", options.seed, 0, 2**63 - 1)
    if options.on == "sim":
        draw_world(options.seed, options.world)
    else:
        given_knobs(options.world)
    parse_floors(options.floors)
    require_store(options.store)
    if options.masters % 2 == 0:
        raise UserError(f"--masters is {options.masters}; a Raft configuration needs an odd number, such as 3.")
    return options


def listed(option: str, what: str, texts: Sequence[str] | None) -> tuple[str, ...]:
    """The parts of an option that is a list separated by commas, and may be given several times; none only where it
    was not given.

    One that names nothing is a mistake, such as a variable of a script that was never set: the run would pass without
    the fault, say. Raises UserError for it.
    """
    parts = [split(text) for text in texts or ()]
    if not all(parts):
        raise UserError(f"{option} names no {what}; leave it out for a run without.")
    return tuple(dict.fromkeys(chain.from_iterable(parts)))


def once(option: str, what: str, texts: Sequence[str] | None) -> str | None:
    """The text of an option that may be given once; raises UserError, where the parser would take the last."""
    if texts and len(texts) > 1:
        raise UserError(f"{option} is given more than once; give one {what}.")
    return texts[0] if texts else None


def key_values(pairs: Sequence[str], option: str = "-o") -> dict[str, str]:
    """`KEY=VALUE` arguments as a dict; raises UserError for one without `=`, and for a key with two values."""
    found: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise UserError(f"{option} takes KEY=VALUE, not {pair!r}.")
        if found.get(key, value) != value:
            raise UserError(f"{option} gives {key} twice, as {found[key]!r} and as {value!r}.")
        found[key] = value
    return found
