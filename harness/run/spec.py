"""What one run is made of and what comes of it: plain data, composed on the command line's side."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar, Protocol, TypeAlias

from harness.generators import Source
from harness.history.columns import ModelSettings
from harness.history.ops import Op
from harness.history.rundir import RunDir
from harness.protocols import Database, Environment, Nemesis
from harness.run.interpreter import HardLimits
from harness.verdict.adequacy import FloorOf, Floors
from harness.verdict.facts import RunAccount
from harness.verdict.failures import HarnessFailure
from harness.verdict.run_verdict import RunVerdict

Judge: TypeAlias = Callable[[RunDir], Mapping[str, Any]]
"""Runs the checkers on a saved run: their verdicts by name, each JSON-able with `valid` (and `reason` if unknown)."""


class RunListener(Protocol):
    """Who is told how a run goes."""

    def stage(self, name: str) -> None:
        """A stage begins: `set up`, `load`, `heal`, `heal for certain`, `recover`, `final reads`, `logs`, …"""

    def waits(self, what: str) -> None:
        """The stage waits for something that may take long, such as `tablet servers to be ready`."""

    def event(self, op: Op) -> None:
        """An event entered the history; called for every one, so it has to be quick."""

    def stopping(self, stage: str, longest_s: float | None) -> None:
        """The user wishes, during a stage, to stop; what is done in any case takes at most so long, if that is known.
        Called by a handler of signals, as is `given_up`."""

    def given_up(self, rundir: RunDir, logs_left: str) -> None:
        """The user wishes it once more: whoever runs nothing else may end the process."""


class Silent:
    """A listener that does nothing."""

    def stage(self, name: str) -> None:
        """Does nothing with it."""

    def waits(self, what: str) -> None:
        """Does nothing with it."""

    def event(self, op: Op) -> None:
        """Does nothing with it."""

    def stopping(self, stage: str, longest_s: float | None) -> None:
        """Does nothing with it."""

    def given_up(self, rundir: RunDir, logs_left: str) -> None:
        """Does nothing with it."""


@dataclass(frozen=True, slots=True)
class Test:
    """Everything of one run. `models` are those that its history is made for; `keep_journal` keeps the journal beside
    the table.

    `generator` is the clients' endless or finite work: the run itself staggers it to `rate_hz` (None: as fast as it
    goes, or `timed`, where the generator has times of its own) and ends it after `time_limit_s`, or up to `extra_s`
    later while too little was seen (`extended_load`).
    `final_generator` is finite: the final reads; the recovery probe cycles through it too; `each_node` has them sent to
    every node that holds data. `nemesis_generator` gives the faults during the load, `heal_generator` the steps that
    end them.
    `fs` must each succeed, `requested_faults` each be observed; `floors` and `own_floors` say how much is enough.
    `options` is all that the user gave, with seed and flaws, `world` what the simulated world was drawn to be, for
    `run.json`; `logs_left` says where the nodes' logs are should the harness be killed. `plugin` says where a database
    comes from that is not ours, `packages` which of its nodes' packages it is made of, whose versions are noted.
    `unpromised` says why, by model, the database may break what that judges with no fault of its code; `settings` are
    the models' own.
    """

    __test__: ClassVar[bool] = False

    name: str
    workload: str
    environment: Environment
    database: Database
    nemesis: Nemesis
    generator: Source
    started: datetime
    seed: int
    concurrency: int
    time_limit_s: float
    extra_s: float = 0.0
    rate_hz: float | None = None
    timed: bool = False
    final_generator: Source = None
    each_node: bool = True
    nemesis_generator: Source = None
    heal_generator: Source = None
    fs: tuple[str, ...] = ()
    requested_faults: tuple[str, ...] = ()
    floors: Floors = field(default_factory=Floors)
    own_floors: tuple[FloorOf, ...] = ()
    op_timeout_s: float = 5.0
    recovery_budget_s: float = 10.0
    setup_timeout_s: float = 900.0
    ready_timeout_s: float = 60.0
    final_limit_s: float = 60.0
    limits: HardLimits = field(default_factory=HardLimits)
    workload_options: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    world: Mapping[str, Any] = field(default_factory=dict)
    logs_left: str = ""
    unpromised: Mapping[str, str] = field(default_factory=dict)
    models: tuple[str, ...] = ()
    settings: ModelSettings = field(default_factory=dict)
    plugin: Mapping[str, Any] = field(default_factory=dict)
    packages: tuple[str, ...] = ()
    keep_journal: bool = False


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """What came of a run: where it is saved, the verdict, whether it was stopped, the harness's own failures, and what
    it says of itself beside."""

    rundir: RunDir
    verdict: RunVerdict
    interrupted: bool
    failures: tuple[HarnessFailure, ...]
    account: RunAccount
