"""Both engines give the same verdict, with the same anomalies in the same words; files and runs are judged alike."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from frames_in_memory import engine_in_memory
from jepsen_histories import joined, judge, random_history, source_of

from checkers.api import check, judge_source
from checkers.engines import flows
from checkers.engines import spark as spark_engine
from checkers.engines.local import LocalEngine
from checkers.engines.spark import SparkEngine
from checkers.importers.detect import open_source
from checkers.jepsen import counter, sets
from checkers.made.jepsen import MODELS as GENERATED
from checkers.made.jepsen import Shape, history
from checkers.options import CheckOptions
from checkers.source import Source
from checkers.verdict import Verdict
from harness.errors import UserError
from harness.history.ops import Op, read
from harness.history.parts import write_history
from harness.history.rundir import create
from harness.history.table import to_table, write_parquet
from tests.support.injecting import ANOMALIES, inject


def comparable(verdict: Verdict) -> Verdict:
    return msgspec.structs.replace(verdict, engine="", seconds=0.0)


def random_joined(model: str) -> list[msgspec.Struct]:
    together = 1 if model in ("bank", "convergence") else 12
    return joined([random_history(model, 5000 + seed, key=seed) for seed in range(together)])  # type: ignore[return-value]


@pytest.mark.spark
@pytest.mark.parametrize("model", [name for name in GENERATED if name != "total-queue"])
def test_spark_and_local_agree_in_every_word(model: str, spark: SparkEngine) -> None:
    settings = {"linearizable": "true"} if model == "set-full" else {}
    events = random_joined(model)
    local = judge(model, events, **settings)  # type: ignore[arg-type]
    there = judge(model, events, spark, **settings)  # type: ignore[arg-type]
    assert comparable(there) == comparable(local)
    assert there.engine == "spark"


@pytest.mark.spark
def test_both_engines_agree_on_empty_histories(spark: SparkEngine) -> None:
    for model in ("set", "bank"):
        assert comparable(judge(model, [], spark)) == comparable(judge(model, []))


@pytest.mark.parametrize("model", ["set-full", "queue", "counter", "unique-ids"])
def test_groups_that_span_batches_meet(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What Spark workers do with pieces of the history and buckets of groups, in-process."""
    events = random_joined(model)
    judged: list[int] = []

    def in_pieces(engine: object, source: Source, flow: Any, combine: Any, **_: Any) -> object:
        assert source.table is not None
        plan, parts = flows.FlowPlan(flow, combine), dict[int, list[bytes]]()
        for batch in source.table.select(flow.columns).to_batches(max_chunksize=3):
            for bucket, data in plan.split(iter([batch]), 4):
                parts.setdefault(bucket, []).append(data)
        judged.append(len(parts))
        return combine([plan.judge(mine) for mine in parts.values()])

    whole = judge(model, events)  # type: ignore[arg-type]
    monkeypatch.setattr(counter if model == "counter" else flows, "run_flow", in_pieces)
    assert comparable(judge(model, events)) == comparable(whole)  # type: ignore[arg-type]
    assert judged[0] > 1


def test_parquet_in_many_batches_is_judged_as_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("checkers.source.BATCH_ROWS", 7)
    for model in GENERATED:
        events = random_history(model, 31)
        path = tmp_path / f"{model}.parquet"
        write_parquet(events, path, rows_per_group=16)
        found = check(path, model, engine="local")
        expected = judge(model, events)
        assert found.counts == expected.counts
        assert found.valid == (expected.valid if any(event.type == "ok" for event in events) else "unknown")


def test_logs_of_a_run(tmp_path: Path) -> None:
    run = create(tmp_path, "register", datetime(2026, 1, 1))
    run.write_json(run.run_json, {})
    begun = Op("invoke", 0, "read", (read(1),), index=0, time=0)
    write_parquet([begun, begun.complete("ok", index=1, time=1)], run.history_parquet)
    assert check(run.path, "logs").valid == "unknown"
    run.write_logs({"t1/server.log": b"started\nready\n", "t2/server.log": b"ready\n"})
    assert check(run.path, "logs").valid == "unknown", "the run did not come to its end"
    run.write_json(run.outcome_json, {})
    assert check(run.path, "logs").valid is True
    trace = b"ready\nTraceback (most recent call last):\n  File x\nAssertionError: lost\n"
    run.write_logs({"t2/server.log": trace, "m1/raft/x.log": b"\xff PANIC at the \x00 disco\n" * 20})
    verdict = check(run.path, "logs")
    assert verdict.valid is False
    assert verdict.counts == {"panic": 22}
    assert verdict.details["matches_by_node"] == {"m1": 20, "t1": 0, "t2": 2}
    assert len(verdict.anomalies["panic"]) == 8
    assert verdict.anomalies["panic"][0].message.startswith("Node m1 wrote in x.log, line 1: ")
    only = CheckOptions(settings={"pattern": "^ready$", "files": "server.log"})
    assert check(run.path, "logs", options=only).counts == {"panic": 2}
    with pytest.raises(UserError, match="no regular expression"):
        check(run.path, "logs", options=CheckOptions(settings={"pattern": "("}))


def test_convergence_without_phases_takes_reads_after_the_last_write(tmp_path: Path) -> None:
    lines = []
    steps = (("write", 1, "n1", 1), ("read", 2, "n1", 1), ("read", 3, "n2", 2), ("read", 4, "n3", 1))
    for f, process, node, value in steps:
        lines.append(f"{{:process {process} :type :invoke :f :{f} :value {value if f == 'write' else 'nil'}}}")
        lines.append(f'{{:process {process} :type :ok :f :{f} :value {value} :node "{node}"}}')
    path = tmp_path / "history.edn"
    path.write_text("\n".join(lines))
    verdict = check(path, "convergence")
    assert verdict.counts == {"divergence": 1}
    message = verdict.anomalies["divergence"][0].message
    assert "node n1 showed 1 and node n2 showed 2" in message
    path.write_text("\n".join(line.replace(':node "n', ':port "n') for line in lines))
    assert "which node" in str(check(path, "convergence").reason)
    path.write_text("\n".join(line.replace(':node "n2', ':port "n2') for line in lines))
    some = check(path, "convergence")
    assert some.valid == "unknown" and some.reason == "The history does not say which node served 1 final read."


def test_convergence_says_nothing_of_objects_that_one_node_showed(tmp_path: Path) -> None:
    lines = []
    for process, (key, node) in enumerate(((1, "n1"), (1, "n2"), (2, "n1"))):
        for kind, value in (("invoke", "nil"), ("ok", "3")):
            lines.append(f'{{:process {process} :type :{kind} :f :read :value [{key} {value}] :node "{node}"}}')
    path = tmp_path / "history.edn"
    path.write_text("\n".join(lines))
    verdict = check(path, "convergence")
    assert verdict.valid == "unknown"
    assert verdict.reason == "1 of 2 objects were read from one node only at the end."


def test_keys_of_mixed_types_and_nil_elements(tmp_path: Path) -> None:
    path = tmp_path / "history.edn"
    adds = ('"a"', ":a", "1", "1.5", f"{2**80}", "true")
    lines = [f"{{:process 0 :type {t} :f :add :value {v}}}" for v in adds for t in (":invoke", ":ok")]
    lines += ["{:process 0 :type :invoke :f :read}", f"{{:process 0 :type :ok :f :read :value [{' '.join(adds[1:])}]}}"]
    path.write_text("\n".join(lines))
    verdict = check(path, "set")
    assert verdict.counts == {"lost": 1}
    assert "Element a of the set was lost" in verdict.anomalies["lost"][0].message
    path.write_text("\n".join([*lines[:-1], "{:process 0 :type :ok :f :read :value [1 nil]}"]))
    with pytest.raises(UserError, match="can't judge it"):
        check(path, "set")
    assert source_of(history("set", Shape(10), 0)).rows == 11


@pytest.mark.parametrize("corrupt", [False, True])
def test_one_big_set_is_judged_by_many_tasks(corrupt: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By element, of which no task takes all; the same is said as in-process."""
    big = history("set", Shape(700, info_share=0.05, key=1), 3)
    for anomaly in ANOMALIES["set"] if corrupt else ():
        big = inject("set", anomaly, big)
    events = joined([big, history("set", Shape(60, key=2), 4)])
    table = to_table(events)
    place = tmp_path / "set.parquet"
    write_history(table.to_batches(max_chunksize=50), place, part_rows=200)
    rows: list[int] = []
    judged = sets.ElementFlow.judge
    monkeypatch.setattr(sets.ElementFlow, "judge", lambda self, part: rows.append(part.num_rows) or judged(self, part))
    monkeypatch.setattr(flows, "_ROWS_PER_BUCKET", 100)
    monkeypatch.setattr(spark_engine, "_FEW_ROWS", 100)
    local, there = (
        judge_source(open_source(place), "set", engine, CheckOptions(explain=50))
        for engine in (LocalEngine(), engine_in_memory(monkeypatch))
    )
    assert comparable(there) == comparable(local) and local.valid is not corrupt
    assert len(rows) > 5 and max(rows) < sum(rows) / 3
