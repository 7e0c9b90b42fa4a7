"""What a run shows beside its verdict: its findings, points of coverage, and figures, read from its saved files.

A point of coverage is a word such as `fault/kill/leader-master/leader`: a state or a kind of event that a run came to.
Counters are points by powers of two, for the first election in a run shows something, and the ninth beside the eighth
does not. What is counted besides are the lines of the nodes' logs by their shape, so that a rare event that a node
tells of is a point though nobody listed it.
"""

from __future__ import annotations

import math
import resource
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec
import numpy as np

from assay.night.records import RunFigures, RunMeasures
from assay.night.signature import Evidence, families_of, signatures_of
from harness.errors import UserError
from harness.history.rundir import RunDir
from harness.history.summary import HistorySummary, served_in_parquet
from harness.protocols import InvariantsRecord
from harness.verdict.facts import (
    OutcomeRecord,
    RunRecord,
    load_faults,
    load_invariants,
    load_leaderships,
    load_summary,
    read_record,
)
from harness.verdict.faults import Fault
from harness.verdict.leaderships import Leadership
from harness.verdict.run_verdict import RunVerdict, saved_form
from results.causes import without_particulars

_SHAPE_CHARACTERS: Final = 60


def measures_of(rundir: RunDir, verdict: RunVerdict, cpu_s: float = 0.0) -> RunMeasures:
    """The measures of a run that lies there and was judged so; what can't be read shows nothing. `cpu_s` is what it
    took so far."""
    saved = saved_form(verdict)
    try:
        record, outcome = read_record(rundir), rundir.read_json(rundir.outcome_json)
        told = None if outcome is None else msgspec.convert(outcome, OutcomeRecord)
        faults, leaders, summary = load_faults(rundir), load_leaderships(rundir), load_summary(rundir)
        invariants = load_invariants(rundir) or InvariantsRecord({})
    except (UserError, msgspec.ValidationError):
        evidence = Evidence(saved)
        return RunMeasures(signatures_of(evidence), families=families_of(evidence))
    start_ns = 0 if told is None else told.history_start_ns
    virtual_s = 0.0 if told is None else (told.duration_s or 0.0)
    evidence = Evidence(saved, faults, start_ns, tuple(record.serving_nodes))
    return RunMeasures(
        signatures_of(evidence),
        tuple(sorted({*points_of(record, faults, leaders, summary, invariants), *_log_points(rundir)})),
        figures_of(rundir, record, saved, cpu_s),
        virtual_s,
        families_of(evidence),
    )


def points_of(
    record: RunRecord,
    faults: Iterable[Fault],
    leaders: Iterable[Leadership],
    summary: HistorySummary,
    invariants: InvariantsRecord,
) -> Iterator[str]:
    """The points that a run came to, some of them more than once."""
    for fault in faults:
        if fault.observed_ns is None:
            continue
        roles = [role.role for role in fault.roles if role.held] or ["-"]
        yield from (f"fault/{fault.kind}/{fault.variant or '-'}/{role}" for role in roles)
        if fault.cores:
            yield f"core/{fault.kind}"
        for evidence in (fault.evidence, fault.ended):
            reached = evidence.get("reached") if isinstance(evidence, Mapping) else None
            yield from (f"failpoint/{point}/{fault.variant}" for point in reached or ())
    yield from (f"invariant/{name}/{bucket(count)}" for name, count in invariants.checked.items() if count)
    for f, by_type in summary.of_phase("main").items():
        yield from (f"outcome/{f}/{type}/{bucket(count)}" for type, count in by_type.items() if count)
    yield from (f"world/{key}/{value_point(value)}" for key, value in record.world.items())
    elections = Counter("catalog" if each.group == "catalog" else "tablet" for each in leaders)
    yield from (f"elections/{where}/{bucket(count)}" for where, count in elections.items())


def bucket(count: float) -> int:
    """The power of two that a positive count reaches."""
    return math.floor(math.log2(count))


def value_point(value: Any) -> str:
    """A value of a world as a point: words as they are, numbers by their power of two."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return "0" if value <= 0 else f"2^{bucket(value)}"


def _log_points(rundir: RunDir) -> Iterator[str]:
    shapes = Counter[str]()
    for path in sorted(rundir.nodes.glob("*/node.log")):
        for line in path.read_text(errors="replace").splitlines():
            shapes[shape_of(line)] += 1
    yield from (f"log/{shape}/{bucket(count)}" for shape, count in shapes.items() if shape)


def shape_of(line: str) -> str:
    """A line of a node's log without its time, the node, and what differs between runs."""
    _, _, told = line.partition(" cluster.")
    _, _, sentence = told.partition(" ")
    return without_particulars(sentence, ())[:_SHAPE_CHARACTERS]


def figures_of(rundir: RunDir, record: RunRecord, verdict: Mapping[str, Any], cpu_s: float) -> RunFigures:
    """The figures of a run whose verdict, in its saved form, is this."""
    details, liveness = verdict["adequacy"]["details"], verdict["liveness"]["details"]
    recovery_s: dict[str, float] = {}
    for each in liveness.get("faults", ()):
        if each["first_s"] is not None:
            recovery_s[each["kind"]] = max(each["first_s"], recovery_s.get(each["kind"], 0.0))
    checkers = verdict["checkers"].values()
    ops = max((each.get("ops", 0) for each in checkers), default=0)
    load_s = details.get("load_s", {}).get("lasted", 0.0)
    p50_ms, p99_ms = _latencies_ms(rundir, record, load_s)
    return RunFigures(
        rate=details.get("rate_hz"),
        p50_ms=p50_ms,
        p99_ms=p99_ms,
        recovery_s=recovery_s,
        checker_s=round(sum(each.get("seconds", 0.0) for each in checkers), 3),
        checker_mb=round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
        cpu_per_1000=round(1000 * cpu_s / ops, 3) if ops and cpu_s else None,
    )


def _latencies_ms(rundir: RunDir, record: RunRecord, load_s: float) -> tuple[float | None, float | None]:
    """The median and the 99th percentile of the operations of the load that succeeded."""
    if not rundir.history_parquet.exists():
        return None, None
    try:
        served = served_in_parquet(rundir.history_parquet, "main", record.shards, int(load_s * 1e9))
    except UserError:
        return None, None
    if not served.ok.any():
        return None, None
    taken = (served.completed_ns - served.invoked_ns)[served.ok] / 1e6
    p50, p99 = np.percentile(taken, [50, 99])
    return round(float(p50), 3), round(float(p99), 3)
