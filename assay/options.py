"""The options of a run, checked before anything is started."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from assay.discovery import REFERENCE, find_database, load_named, load_plugins, resolve_database_options, workload_names
from assay.worlds import draw_world, given_knobs
from cluster.flaws import FLAWS
from harness.env.hosts_file import read_hosts
from harness.errors import UserError
from harness.history.rundir import require_store
from harness.verdict.adequacy import parse_floors
from nemesis.asked import parse_all, split

ENVIRONMENTS = ("sim", "docker", "ssh")


LONGEST_PROBE_PERIOD_S = 2.0
"""Faults last some seconds: what ends between two looks that are further apart would count as in effect."""
PROBE_PERIOD_S = 0.5


PLACES = ("store", "hosts", "inputs", "record")
"""Options that name files or folders."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Everything that decides a run; times in seconds, rate in operations a second over all clients.

    `zones` is None where the environment has its own: as many as its network has regions, three in containers.
    `database` names another than the reference cluster (see `assay.discovery`), `plugins` are files that are loaded
    beside it, `image` is what its nodes are made of instead of what its plugin says, `database_options` what `-d` says;
    `hosts` is the file of the machines that they are, on which `install` has what lacks installed. Of another database
    `masters`, `flaw` and `world` mean nothing. `inputs` is a folder of inputs that are carried out, of which the other
    options are then a part, each fault on its node or on who has the `role` then; `record` is where inputs are saved.
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
    database: str = ""
    image: str = ""
    hosts: Path | None = None
    install: bool = False
    plugins: tuple[str, ...] = ()
    database_options: dict[str, str] = field(default_factory=dict)
    inputs: Path | None = None
    targets: str = "node"
    record: Path | None = None

    def as_dict(self) -> dict[str, Any]:
        """The options as JSON-able values, for `run.json`."""
        lists = {name: list(getattr(self, name)) for name in ("nemesis", "flaw", "plugins")}
        places = {name: None if (path := getattr(self, name)) is None else str(path) for name in PLACES}
        known = {**asdict(self), **lists, **places}
        of_others = ("masters", "flaw", "world", "swarm") if self.database else ()
        return {name: value for name, value in known.items() if name not in of_others}

    def command(self) -> str:
        """The shell command that runs the same again."""
        if self.inputs is not None:
            return self._command_with_inputs(self.inputs)
        words = ["assay", "run", self.workload, "--on", self.on]
        words += ["--database", self.database] if self.database else []
        words += ["--image", self.image] if self.image else []
        words += ["--hosts", str(self.hosts)] if self.hosts is not None else []
        for plugin in self.plugins:
            words += ["--plugin", plugin]
        for key, value in self.database_options.items():
            words += ["-d", f"{key}={value}"]
        if self.nemesis:
            words += ["--nemesis", ",".join(self.nemesis)]
        for name in ("time_limit", "rate", "concurrency", "masters", "nodes", "seed", "op_timeout", "recovery_budget"):
            if name == "masters" and self.database:
                continue
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

    def _command_with_inputs(self, inputs: Path) -> str:
        words = ["assay", "run", "--inputs", str(inputs)]
        words += ["--targets", self.targets] if self.targets != "node" else []
        words += ["--store", str(self.store)] if self.store != Path("store") else []
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
    load_plugins(options.plugins)
    known("workload", options.workload, workload_names(options.workload))
    known("environment", options.on, ENVIRONMENTS)
    load_named("nemeses", [part.partition("(")[0].strip() for part in options.nemesis])
    parse_all(options.nemesis)
    for name in options.flaw:
        known("flaw", name, list(FLAWS))
    within("--time-limit", options.time_limit, 1, 7 * 24 * 3600)
    within("--rate", options.rate, 0.1, 1_000_000)
    within("--concurrency", options.concurrency, 1, 10_000)
    within("--masters", options.masters, 1, 9)
    within("--nodes", options.nodes, 1 if options.database else 3, 50)
    if options.zones is not None:
        within("--zones", options.zones, 1, options.nodes)
    within("--op-timeout", options.op_timeout, 0.1, 600)
    within("--recovery-budget", options.recovery_budget, 0.1, 3600)
    within("--probe-period", options.probe_period, 0.05, LONGEST_PROBE_PERIOD_S)
    within("--seed", options.seed, 0, 2**63 - 1)
    _validate_hosts(options)
    if options.database:
        _validate_database(options)
    elif options.database_options or options.image:
        given = "-d" if options.database_options else "--image"
        raise UserError(f"{given} is of another database than the reference cluster; name it with --database.")
    elif options.on == "sim":
        draw_world(options.seed, options.world)
    else:
        given_knobs(options.world)
    parse_floors(options.floors)
    require_store(options.store)
    known("--targets", options.targets, ("node", "role"))
    if options.masters % 2 == 0:
        raise UserError(f"--masters is {options.masters}; a Raft configuration needs an odd number, such as 3.")
    return options


def asked_of(
    nemesis: Sequence[str] | None,
    flaw: Sequence[str] | None,
    world: Sequence[str] | None,
    floors: Sequence[str] | None,
    settings: Sequence[str] | None,
    table: str | None,
) -> dict[str, Any]:
    """Faults, known bugs, world, floors and the workload's settings as `RunOptions` has them, of what was given; raises
    UserError."""
    return {
        "nemesis": listed("--nemesis", "fault", nemesis),
        "flaw": listed("--flaw", "flaw", flaw),
        "world": ",".join(listed("--world", "key", world)),
        "floors": key_values(floors or [], "--floor"),
        "workload_options": key_values([*(settings or []), *([] if table is None else [f"table={table}"])]),
    }


def system_of(
    database: str | None,
    masters: int | None,
    nodes: int | None,
    plugins: Sequence[str] | None,
    settings: Sequence[str] | None,
    image: str | None,
    hosts: Path | None = None,
) -> dict[str, Any]:
    """The database, its nodes and what is loaded beside, as `RunOptions` has them, of what was given (with
    hosts: all of them); raises UserError."""
    usual = RunOptions("")
    beside = {
        "plugins": tuple(plugins or ()),
        "database_options": key_values(settings or [], "-d"),
        "image": image or "",
        "masters": usual.masters if masters is None else masters,
    }
    if database in (None, REFERENCE):
        return {**beside, "hosts": hosts, "nodes": usual.nodes if nodes is None else nodes}
    if masters is not None:
        raise UserError(f"--masters is of the reference cluster; leave it out with --database {database}.")
    default = find_database(database).value.default_nodes if hosts is None else len(read_hosts(hosts))
    return {**beside, "hosts": hosts, "database": database, "nodes": default if nodes is None else nodes}


def _validate_hosts(options: RunOptions) -> None:
    """Raise UserError unless hosts are given for a run on them, as many as it has nodes, and for no other."""
    if (options.on == "ssh") != (options.hosts is not None):
        raise UserError("--on ssh and --hosts FILE go together.")
    if options.hosts is None:
        if options.install:
            raise UserError("--install is for hosts; say --on ssh --hosts FILE.")
        return
    if not options.database:
        raise UserError("The reference cluster runs in the simulator and in containers; name a --database for hosts.")
    if options.image:
        raise UserError("--image is for containers; leave it out with --on ssh.")
    there = len(read_hosts(options.hosts))
    if options.nodes > there:
        raise UserError(f"--nodes is {options.nodes}, and {options.hosts} names {there}.")


def _validate_database(options: RunOptions) -> None:
    """Raise UserError for what can't be asked of another database than the reference cluster."""
    if options.on == "sim":
        raise UserError(f"The simulator runs the reference cluster only; {options.database} needs --on docker or ssh.")
    for option, given in (("--flaw", options.flaw), ("--world", options.world), ("--swarm", options.swarm)):
        if given:
            raise UserError(f"{option} is of the reference cluster; leave it out with --database {options.database}.")
    found = find_database(options.database)
    resolve_database_options(found.value, options.database_options)


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
