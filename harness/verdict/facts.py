"""The facts of a saved run, loaded from its directory, also when the harness was killed in mid-run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from harness.errors import UserError
from harness.history.columns import ModelSettings
from harness.history.figures import figures_in_events, figures_in_parquet
from harness.history.journal import read_journal
from harness.history.rundir import RunDir
from harness.history.summary import (
    HistorySummary,
    served_in_events,
    served_in_parquet,
    summarise_events,
    summarise_parquet,
)
from harness.ports.api import node_of
from harness.protocols import InvariantsRecord
from harness.verdict.adequacy import KEY_ASKED_OFTEN, FloorOf, Floors, NodesAsked, WorkDone
from harness.verdict.failures import HarnessFailure
from harness.verdict.faults import Fault, faults_of
from harness.verdict.leaderships import Leadership
from harness.verdict.recovery import (
    Hurt,
    open_seconds,
    overlapping,
    recoveries,
    unmet_kinds,
    used_instances,
    used_nodes,
)
from harness.verdict.run_seal import broken_seal, sealed_verdict
from harness.verdict.run_verdict import Facts, Recovery, RunVerdict, conclude, saved_form

EACH_NODE = "each-node"
"""The phase in which final reads go to each node in turn."""


class RunRecord(msgspec.Struct, frozen=True):
    """`run.json`: what was asked. `options` is all that the command line gave, to run it again, `world` the
    keys and values of the simulated world. `watched` says that invariants were to be checked, so that a run whose
    record of them is gone is not taken for one that broke none; `serving_nodes` are those that final reads went to one
    by one, `shards` the groups that keys are spread over, `logs_left` where the nodes' logs are if the harness was
    killed, `unpromised` why the database may break what a model judges with no fault of its code, `settings` how models
    are set, `plugin` where the database comes from if it is not ours, `facts` what it said of itself once it had been
    started, `own_floors` what the workload wants of its history."""

    name: str
    workload: str
    fs: tuple[str, ...]
    concurrency: int
    time_limit_s: float
    rate_hz: float | None
    floors: Floors
    recovery_budget_s: float
    requested_faults: tuple[str, ...]
    final_reads: bool
    environment: str
    database: str
    options: dict[str, Any]
    started: str
    provenance: dict[str, Any]
    world: dict[str, Any] = {}
    watched: bool = False
    serving_nodes: tuple[str, ...] = ()
    shards: int = 1
    logs_left: str = ""
    unpromised: dict[str, str] = {}
    settings: ModelSettings = {}
    plugin: dict[str, Any] = {}
    facts: dict[str, Any] = {}
    own_floors: tuple[FloorOf, ...] = ()


class FaultKinds(msgspec.Struct, frozen=True):
    """The kinds of fault that were asked for, seen in effect, and skipped for want of a victim."""

    asked: tuple[str, ...] = ()
    seen: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()

    @classmethod
    def of(cls, asked: tuple[str, ...], faults: Sequence[Fault]) -> FaultKinds:
        """What came of the kinds that were asked for; one of several instances may be skipped and another seen."""
        seen = dict.fromkeys(fault.kind for fault in faults if fault.observed_ns is not None)
        skipped = dict.fromkeys(fault.kind for fault in faults if fault.skipped is not None)
        return cls(asked, tuple(seen), tuple(skipped))


class RunAccount(msgspec.Struct, frozen=True, kw_only=True):
    """What a run says of itself whatever its verdict is: of which commit and version it is, and whether files of that
    were `changed`; when it began, in UTC, and how long it took until it was saved, by its own clock."""

    commit: str | None = None
    version: str | None = None
    changed: bool | None = None
    started: str | None = None
    duration_s: float | None = None
    workload: str | None = None
    environment: str | None = None
    faults: FaultKinds = FaultKinds()


def account_of(record: RunRecord, faults: Sequence[Fault], duration_s: float) -> RunAccount:
    """The account of a run from what was asked of it and the faults that came of it."""
    provenance = record.provenance
    return RunAccount(
        commit=provenance.get("git_commit"),
        version=provenance.get("versions", {}).get("assay"),
        changed=provenance.get("git_dirty"),
        started=datetime.fromisoformat(record.started).astimezone(UTC).isoformat(timespec="seconds"),
        duration_s=round(duration_s, 3),
        workload=record.workload,
        environment=record.environment,
        faults=FaultKinds.of(record.requested_faults, faults),
    )


class OutcomeRecord(RunAccount, frozen=True, kw_only=True):
    """`outcome.json`: the account of the run, and what it went through. `stages` are (name, begin, end) in ns since the
    run began, as is `history_start_ns`, the zero of the history's times."""

    recovery: Recovery
    load_s: float
    interrupted: bool
    failures: tuple[HarnessFailure, ...]
    stages: tuple[tuple[str, int, int], ...]
    history_start_ns: int


def load_facts(rundir: RunDir, outcome: OutcomeRecord | None = None) -> Facts:
    """The facts of a run; raises UserError, naming the file, for what can't be read.

    `outcome` is what the run itself knows while it lasts; without, it is read from where the run saved it.
    """
    record = read_record(rundir)
    if outcome is None:
        outcome = _convert(rundir.read_json(rundir.outcome_json), OutcomeRecord | None, rundir, "outcome.json")
    summary = load_summary(rundir)
    ended = outcome is not None
    recovery = outcome.recovery if outcome else Recovery(None, record.recovery_budget_s)
    done = WorkDone(
        fs=record.fs,
        counts=summary.of_phase("main"),
        load_s=outcome.load_s if outcome else summary.ends_ns.get("main", 0) / 1e9,
        rate_hz=record.rate_hz,
        keys=summary.keys_of_phase("main", KEY_ASKED_OFTEN),
        keys_in_all=len(summary.keys.get("main", {})),
        groups=summary.groups_of_phase("main", record.shards),
        final_counts=summary.types_of_phase("final") if record.final_reads else None,
        final_keys=summary.answered_again("main", "final") if record.final_reads else None,
        each_node=_each_node(record, summary),
        served=_served(record, summary),
        time_limit_s=record.time_limit_s,
        own_floors=record.own_floors,
        figures=_figures(rundir, record.own_floors) if record.own_floors else {},
    )
    return Facts(
        done=done,
        floors=record.floors,
        requested_faults=record.requested_faults,
        faults=load_faults(rundir),
        recovery=recovery,
        failures=outcome.failures if outcome else (),
        interrupted=outcome.interrupted if outcome else False,
        ended=ended,
        logs_left=record.logs_left,
        unsealed=broken_seal(rundir) if ended else (),
        hurt=_hurt(rundir, record, summary, done.load_s),
        invariants=load_invariants(rundir) or (InvariantsRecord({}) if record.watched else None),
        unpromised=record.unpromised,
    )


def _figures(rundir: RunDir, floors: Sequence[FloorOf]) -> Mapping[str, int]:
    cut_off: dict[str, dict[str, list[tuple[int, int]]]] = {floor.nemesis: {} for floor in floors if floor.nemesis}
    for fault in load_faults(rundir) if cut_off else ():
        for node in fault.targets if fault.kind in cut_off else ():
            cut_off[fault.kind].setdefault(node, []).extend(fault.spans or ())
    if rundir.history_parquet.exists():
        return figures_in_parquet(rundir.history_parquet, "main", cut_off)
    return figures_in_events(read_journal(rundir.journal), "main", cut_off)


def _hurt(rundir: RunDir, record: RunRecord, summary: HistorySummary, load_s: float) -> Hurt | None:
    """What the faults did to clients; None in a run without any."""
    faults = load_faults(rundir)
    if not faults:
        return None
    end_ns = int(load_s * 1e9)
    if rundir.history_parquet.exists():
        served = served_in_parquet(rundir.history_parquet, "main", record.shards, end_ns)
    else:
        served = served_in_events(read_journal(rundir.journal), "main", record.shards, end_ns)
    answered = {node_of(name) for name, (_, ok) in summary.nodes.get("main", {}).items() if ok}
    used = used_nodes(answered, load_leaderships(rundir))
    return Hurt(
        len(served.ok),
        overlapping(served, faults, end_ns),
        *used_instances(faults, record.serving_nodes, used),
        recoveries(served, faults, record.shards, end_ns),
        *open_seconds(served, faults, end_ns),
        unmet_kinds(served, faults, end_ns),
    )


def _each_node(record: RunRecord, summary: HistorySummary) -> NodesAsked | None:
    if not (record.final_reads and record.serving_nodes):
        return None
    reads = summary.nodes.get(EACH_NODE, {})
    keys = summary.keys_of_phase(EACH_NODE, often=1) or (0, 0)
    return NodesAsked({name: reads.get(name, (0, 0)) for name in record.serving_nodes}, keys)


def _served(record: RunRecord, summary: HistorySummary) -> int | None:
    """How many operations of the load say that a node which serves them answered; None where none has to."""
    if not record.serving_nodes:
        return None
    nodes = summary.nodes.get("main", {})
    return sum(ok for name, (_, ok) in nodes.items() if node_of(name) in record.serving_nodes)


def read_record(rundir: RunDir) -> RunRecord:
    """What was asked of the run; raises UserError."""
    record: RunRecord = _convert(rundir.read_json(rundir.run_json), RunRecord, rundir, "run.json")
    return record


def load_summary(rundir: RunDir) -> HistorySummary:
    """Counts from the table if there is one, else from the sealed prefix of the journal."""
    if rundir.history_parquet.exists():
        return summarise_parquet(rundir.history_parquet)
    return summarise_events(read_journal(rundir.journal))


def load_faults(rundir: RunDir) -> tuple[Fault, ...]:
    """From `faults.json` if it is there, else from the journal; none where that is gone too, which the seal tells."""
    saved = rundir.read_json(rundir.faults_json)
    if saved is not None:
        faults: tuple[Fault, ...] = _convert(saved, tuple[Fault, ...], rundir, "faults.json")
        return faults
    return faults_of(read_journal(rundir.journal)) if rundir.journal.exists() else ()


def load_leaderships(rundir: RunDir) -> tuple[Leadership, ...]:
    """From `leaders.json`; none if the run saved none."""
    saved = rundir.read_json(rundir.leaders_json)
    led: tuple[Leadership, ...] = _convert(saved or (), tuple[Leadership, ...], rundir, "leaders.json")
    return led


def load_invariants(rundir: RunDir) -> InvariantsRecord | None:
    """From `invariants.json`; None if the run saved none."""
    saved = rundir.read_json(rundir.invariants_json)
    record: InvariantsRecord | None = _convert(saved, InvariantsRecord | None, rundir, "invariants.json")
    return record


def conclude_run(rundir: RunDir, checkers: Mapping[str, Any], outcome: OutcomeRecord | None = None) -> RunVerdict:
    """The verdict on a saved run, from its facts (see `load_facts`) and its checkers' verdicts."""
    return conclude(load_facts(rundir, outcome), checkers)


def write_verdict(rundir: RunDir, verdict: RunVerdict, account: RunAccount, trace: str | None = None) -> None:
    """Write `verdict.json` with its seal, and with the version of the judge, which is the one that made the run;
    `trace` is the digest of a simulation that is over. Raises HarnessError."""
    judge = {"version": account.version, "commit": account.commit, "changed": account.changed}
    saved = {**saved_form(verdict), "trace": trace, "judge": judge}
    rundir.write_json(rundir.verdict_json, sealed_verdict(rundir, saved))


def _convert(value: Any, type: Any, rundir: RunDir, name: str) -> Any:
    try:
        return msgspec.convert(value, type)
    except msgspec.ValidationError as error:
        raise UserError(f"{rundir.path / name} is not what a run of this version saves: {error}.") from error
