"""Known commands: what finds each flaw, and what has to be valid without any; nights and tests take them from here."""

from __future__ import annotations

from dataclasses import dataclass

from assay.options import RunOptions
from cluster.flaws import FLAWS, LONG_TAILS, Flaw
from nemesis.asked import split
from nemesis.registry import SCRIPTS
from nemesis.scripts.catalogs import TABLES_MADE
from nemesis.scripts.quorum import LEADERLESS

TIME_LIMIT_S = 20.0
SCRIPT_LIMIT_S = 40.0
"""A script waits for a state, and for another chance where the first one passed."""


@dataclass(frozen=True, slots=True)
class Command:
    """What is run with many seeds."""

    workload: str
    nemesis: tuple[str, ...]
    world: str = ""
    time_limit_s: float = TIME_LIMIT_S
    workload_options: str = ""

    def options(self, seed: int, flaw: str | None = None) -> RunOptions:
        return RunOptions(
            self.workload,
            nemesis=self.nemesis,
            time_limit=self.time_limit_s,
            seed=seed,
            flaw=() if flaw is None else (flaw,),
            world=self.world,
            workload_options=dict(each.split("=", 1) for each in split(self.workload_options)),
        )

    def __str__(self) -> str:
        """The short command, without flaw and seed."""
        words = ["assay run", self.workload, "--nemesis", ",".join(self.nemesis), f"--time-limit {self.time_limit_s:g}"]
        words += [f"-o {each}" for each in split(self.workload_options)]
        return " ".join([*words, *(["--world", self.world] if self.world else [])])


def command_of(flaw: Flaw) -> Command:
    """The command that finds a flaw."""
    return Command(flaw.workload, split(flaw.nemesis), flaw.world, flaw.time_limit_s, flaw.options)


SCRIPT_WORLDS = {
    "snapshot-race": "snapshot-entries=20,retained-entries=16",
    "leader-returns": LONG_TAILS,
}
"""Told to a script that others would keep from its core: 10 000 writes take too long in some worlds."""

OF_LEGACY_TABLES = ("short-read",)
"""What they show is torn by design (`tests/assay/test_quorum_matrix.py`), but monotonic; logged tables hardly come to
their core, nor does any table of which few reads have limits."""


def command_of_script(script: str) -> Command:
    """A script under a workload that it can be reached with, and that keeps what it promises."""
    needs = SCRIPTS[script].needs
    workload = "write-atomicity" if LEADERLESS in needs else "catalog" if TABLES_MADE in needs else "register"
    options = "table=logged" if LEADERLESS in needs else ""
    return Command(workload, (script,), SCRIPT_WORLDS.get(script, ""), SCRIPT_LIMIT_S, options)


COMBINED: tuple[Command, ...] = (
    Command("register", ("stop", "crash-loop", "rolling-restart", "tserver-kill")),
    Command("register", ("clock-strobe", "clock-drift", "packets")),
    Command("register", ("slow-disk", "hung-disk", "full-disk")),
    Command("register", ("bit-flip", "truncate")),
    Command("register", ("failpoint", "leadership")),
    Command("catalog", ("master-pause", "master-clock", "master-membership")),
    Command("catalog", ("lost-answer", "power-cut", "snapshot-race"), SCRIPT_WORLDS["snapshot-race"]),
    Command("monotonic-reads", OF_LEGACY_TABLES, "", SCRIPT_LIMIT_S, "slices=0,limits=0.8"),
    Command("catalog", ("protocol-step", "held-message")),
    Command("follower-reads", ("region-loss", "region-partition", "learner-lag"), "latency=wan5"),
    Command("bounded-staleness", ("side-transport", "placement-change", "client-clock"), "latency=wan5"),
    Command("global-reads", ("policy-change", "partition"), "latency=wan5"),
    Command("register", ("decommission", "tserver-kill"), "max-batch-entries=64,max-inflight=32"),
)
"""Kinds that no other clean command has, a few in each run, and scripts that hit the masters' group as well."""

CLEAN_COMMANDS: tuple[Command, ...] = tuple(
    dict.fromkeys(
        (
            Command("register", ("partition", "kill")),
            Command("register", ("partition", "kill", "pause")),
            Command("register", ("partition",)),
            *(command_of_script(script) for script in SCRIPTS if script not in OF_LEGACY_TABLES),
            *map(command_of, FLAWS.values()),
            *COMBINED,
        )
    )
)
"""What must stay valid without a flaw: mixed faults, every nemesis, and what finds the flaws."""
