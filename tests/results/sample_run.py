"""A made-up run directory: a minute of reads and writes under faults, with a stale read in it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from random import Random
from typing import Any

from harness.history.ops import Op, cas, read, write
from harness.history.rundir import RunDir, create
from harness.history.table import write_parquet
from harness.verdict.faults import faults_of
from harness.verdict.run_seal import sealed_verdict

SECOND_NS = 1_000_000_000
FAULTS = (
    ("partition", "leaseholder", ["t2"], 4.0, 4.6, 9.0, 9.4),
    ("kill", "leader-master", ["m1"], 14.0, 14.01, 19.0, 20.2),
    ("partition", "halves", ["m1", "m2", "t1", "t3"], 26.0, None, 31.0, 31.1),
    ("pause", "one", ["t4"], 38.0, 38.02, 43.0, 43.1),
    ("partition", "majorities-ring", ["m1", "m2", "m3", "t1", "t2", "t3"], 46.0, 46.5, 52.0, 52.2),
    ("kill", "all", ["m1", "m2", "m3", "t1", "t2", "t3"], 48.0, 48.1, 53.0, None),
)


def nemesis_events() -> Iterator[Op]:
    for number, (kind, variant, targets, requested_s, observed_s, healed_s, recovered_s) in enumerate(FAULTS):
        value: dict[str, Any] = {"fault": kind, "variant": variant, "instance": number, "step": "begin"}
        begun = Op("invoke", -1, f"start-{kind}", value=value, time=int(requested_s * SECOND_NS))
        evidence = {"probed": 56, "cut": 14} if kind == "partition" else {"states": dict.fromkeys(targets, "dead")}
        seen = {**value, "targets": targets, "observed": observed_s is not None, "evidence": evidence}
        yield begun
        yield begun.complete("info", value=seen, time=int((observed_s or requested_s + 5) * SECOND_NS))
        value = {**value, "step": "end"}
        ended = Op("invoke", -1, f"stop-{kind}", value=value, time=int(healed_s * SECOND_NS))
        yield ended
        seen = {**value, "observed": recovered_s is not None, "evidence": {}}
        yield ended.complete("info", value=seen, time=int((recovered_s or healed_s + 3) * SECOND_NS))


def client_events(seed: int, rate_hz: int, seconds: int) -> Iterator[tuple[Op, Op | None]]:
    entropy = Random(seed)
    for number in range(rate_hz * seconds):
        begin_s = number / rate_hz
        hurt = any(f[4] is not None and f[4] <= begin_s <= f[5] for f in FAULTS)
        f, mop = entropy.choice((("read", read(3)), ("write", write(3, number)), ("cas", cas(3, number - 1, number))))
        latency_s = entropy.lognormvariate(-5.3, 0.5) * (entropy.choice((1, 1, 40, 200)) if hurt else 1)
        op = Op("invoke", number % 10, f, (mop,), time=int(begin_s * SECOND_NS), phase="main")
        kind = "ok" if not hurt else entropy.choices(("ok", "fail", "info"), (8, 2, 1))[0]
        if latency_s > 2:
            yield op, None if entropy.random() < 0.3 else op.complete("info", time=op.time + 2 * SECOND_NS)
        else:
            yield op, op.complete(kind, time=op.time + int(latency_s * SECOND_NS), node=f"t{number % 3 + 1}")


def events(seed: int = 1, rate_hz: int = 100, seconds: int = 60) -> list[Op]:
    """Everything in order of time, with indices; every client operation has a process of its own."""
    timeline = list(nemesis_events())
    for number, (invocation, completion) in enumerate(client_events(seed, rate_hz, seconds)):
        timeline.append(invocation.complete("invoke", process=number))
        if completion is not None:
            timeline.append(completion.complete(completion.type, process=number))
    timeline.sort(key=lambda op: op.time)
    return [op.complete(op.type, index=index) for index, op in enumerate(timeline)]


STALE = {
    "message": "Operation 412 read 17 of key 3 after operation 398 had read 18, which was written later: "
    "process 4 was answered by t2, which had been cut off and deposed.",
    "key": 3,
    "ops": [
        {"op": 390, "process": 1, "f": "write", "mops": [{"f": "w", "partition": 3, "value": 17}], "type": "ok",
         "invoke_index": 800, "complete_index": 803, "invoke_time": 4_900_000_000, "complete_time": 4_904_000_000,
         "node": "t2"},
        {"op": 395, "process": 2, "f": "cas", "mops": [{"f": "cas", "partition": 3, "expected": 17, "value": 18}],
         "type": "ok", "invoke_index": 806, "complete_index": 811, "invoke_time": 4_905_500_000,
         "complete_time": 4_912_000_000, "node": "t3"},
        {"op": 398, "process": 7, "f": "read", "mops": [["r", 3, 18, None, None, 0, 0, 0]], "type": "ok",
         "invoke_index": 812, "complete_index": 815, "invoke_time": 4_913_000_000, "complete_time": 4_914_500_000,
         "node": "t3"},
        {"op": 412, "process": 4, "f": "read", "mops": [{"f": "r", "partition": 3, "value": 17}], "type": "ok",
         "invoke_index": 820, "complete_index": 823, "invoke_time": 4_915_000_000, "complete_time": 4_916_000_000,
         "node": "t2"},
        {"op": 413, "process": 5, "f": "write", "mops": [{"f": "w", "partition": 3, "value": None}], "type": "info",
         "invoke_index": 821, "complete_index": None, "invoke_time": 4_915_300_000, "complete_time": None,
         "node": None},
    ],
    "steps": [
        {"source": 398, "target": 412, "kind": "realtime", "why": "operation 398 ended before operation 412 began"},
        {"source": 412, "target": 395, "kind": "rw", "why": "412 read 17, which 395 replaced by 18"},
    ],
}  # fmt: skip

RUN = {
    "name": "register", "workload": "register", "fs": ["read", "write", "cas"], "concurrency": 10,
    "time_limit_s": 60.0, "rate_hz": 100.0, "floors": {}, "recovery_budget_s": 10.0,
    "requested_faults": ["partition", "kill", "pause"], "final_reads": True, "environment": "sim",
    "database": "reference", "started": "2026-02-03T04:05:06",
    "options": {"workload": "register", "on": "sim", "nemesis": ["partition", "kill", "pause"], "time_limit": 60.0,
                "rate": 100.0, "seed": 42, "flaw": ["read-without-lease"], "workload_options": {"keys": "12"}},
    "provenance": {"versions": {"python": "3.11.2", "numpy": "2.2.0"}, "platform": "Linux", "git_commit": "abc123"},
}  # fmt: skip

OUTCOME = {
    "recovery": {"recovered": True, "budget_s": 10.0, "seconds": 1.4}, "load_s": 60.0, "interrupted": False,
    "failures": [{"stage": "logs", "error": "OSError: t3 <gone>", "times": 2}],
    "stages": [["set up", 0, 2 * SECOND_NS], ["load", 2 * SECOND_NS, 62 * SECOND_NS]], "history_start_ns": 0,
}  # fmt: skip

VERDICT = {
    "valid": False, "overall": "invalid", "reasons": ["register found the history invalid"],
    "safety": {"answer": False, "reasons": ["register found the history invalid"], "details": {}},
    "adequacy": {"answer": True, "reasons": [], "details": {"rate_hz": 91.2, "rate_asked_hz": 100.0}},
    "liveness": {"answer": True, "reasons": [], "details": {"seconds": 1.4, "budget_s": 10.0}},
    "harness": {"answer": True, "reasons": [], "details": {}},
    "checkers": {
        "stats": {"valid": True, "model": "stats", "ops": 6000},
        "register": {"valid": False, "model": "register", "ops": 6000, "seconds": 0.21, "engine": "local",
                     "anomalies": {"stale-read": [STALE]}, "counts": {"stale-read": 7}},
    },
}  # fmt: skip


def sample_run(store: Path, rate_hz: int = 100) -> RunDir:
    """A whole run directory."""
    rundir = create(store, "register", datetime(2026, 2, 3, 4, 5, 6))
    history = events(rate_hz=rate_hz)
    rundir.write_json(rundir.run_json, RUN)
    write_parquet(history, rundir.history_parquet)
    rundir.write_json(rundir.faults_json, faults_of(nemesis_events()))
    rundir.write_json(rundir.outcome_json, OUTCOME)
    rundir.write_json(rundir.verdict_json, sealed_verdict(rundir, VERDICT))
    return rundir
