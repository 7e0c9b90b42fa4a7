"""The workload of the catalog: what its clients ask, that it is judged, and that a run of it is valid."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

import pytest
from msgspec.structs import replace

from assay.options import RunOptions
from assay.runner import Keep, run_seed
from checkers.catalog import calls
from checkers.catalog.altered_rows import ROW_OPERATIONS
from cluster.deploy.catalog_ops import FS, TABLE_STATES, TABLET_STATES
from cluster.master import queries
from cluster.master.manager import CatalogManager, LeaderTerm
from cluster.wire.messages import DoneReply, IsAlterTableDone
from harness.generators import limit
from harness.generators.core import Context
from harness.history.ops import Op
from tests.support.known_runs import try_seed
from workloads.api import resolve_options
from workloads.catalog import AGES_NS, NAMELESS, PAGES, QUESTIONS, RARE, ROW_SHARES, WISHES, WORKLOAD


def played(seed: int, count: int, varied: float = 0.0) -> list[Op]:
    """Invocations, each of which is answered at once as if everything succeeded."""
    generator = limit(count, WORKLOAD.generator(resolve_options(WORKLOAD, {"varied": varied}), Random(seed)))
    context, ops = Context.initial(3), []
    while generator is not None:
        op, generator = generator.step(context)
        if not isinstance(op, Op):
            break
        ops.append(op)
        if generator is not None:
            generator = generator.update(context, op.complete("ok"))
    return ops


def test_every_operation_comes_up_about_names_that_there_are() -> None:
    ops = played(3, 4_000)
    counts = Counter(op.f for op in ops)
    assert set(counts) == {*WORKLOAD.fs, RARE}
    assert 0.45 < sum(counts[f] for f, _ in ROW_SHARES) / len(ops) < 0.55
    for op in ops:
        names = [op.mops[0].partition, op.mops[0].row] if op.f == "rename" else [mop.partition for mop in op.mops]
        assert op.f in ROW_OPERATIONS or all(0 <= name < 5 for name in names)
        assert op.f != "rename" or names[0] != names[1]
    wishes = Counter(op.mops[0].column for op in ops if op.f in ("read", "write"))
    assert set(wishes) == set(range(-1 - WISHES, 0)) and wishes[-1] < sum(wishes.values()) / 2
    written = [op.mops[0].value for op in ops if op.f == "write"]
    assert len(set(written)) == len(written)
    lists = [op for op in ops if op.f == "list"]
    assert {op.bound for op in lists if op.value is not None} == {*AGES_NS}, "by single masters, also while faults last"
    assert 0.3 < sum(op.value is not None for op in lists) / len(lists) < 0.5
    assert ops == played(3, 4_000)


def test_questions_of_any_kind_and_scans_are_varied_by_a_chance_of_their_own() -> None:
    plain, varied = played(3, 4_000), played(3, 4_000, varied=0.5)
    assert [replace(op, value=None, bound=None) for op in plain] == [
        replace(op, value=None, bound=None) for op in varied
    ]
    moved = [now for was, now in zip(plain, varied, strict=True) if was != now]
    asked = {f: [op for op in moved if op.f == f] for f in (*QUESTIONS, "scan")}
    assert sum(map(len, asked.values())) == len(moved) and all(map(len, asked.values()))
    assert {op.value["page"] for op in asked.pop("scan")} == {*PAGES}
    for ops in asked.values():
        assert {op.bound for op in ops if "master" in op.value} == {*AGES_NS[1:]}, "a follower is never of the present"
        assert {op.bound for op in ops if op.value == {}} == {*AGES_NS}


@pytest.mark.parametrize(
    ("varied", "found"),
    [(0.7, "masters-answer-the-catalog"), pytest.param(0.0, "", marks=pytest.mark.campaign, id="nobody-asks-it")],
)
def test_what_a_follower_says_wrongly_is_found_by_whom_it_is_asked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, varied: float, found: str
) -> None:
    """Planted: a master that does not lead takes every table for altered to its end."""
    answered = queries._reply

    def planted(manager: CatalogManager, leadership: LeaderTerm, query: queries.Query) -> queries.Answer:
        reply = answered(manager, leadership, query)
        if isinstance(query, IsAlterTableDone) and isinstance(reply, DoneReply) and not manager.leads():
            return DoneReply(True, reply.table_id, reply.version)
        return reply

    monkeypatch.setattr(queries, "_reply", planted)
    varying = {"varied": f"{varied}"}
    options = RunOptions(
        "catalog", nemesis=("heartbeat-loss",), time_limit=10.0, seed=1, workload_options=varying, store=tmp_path
    )
    result = run_seed(options, Keep.NOTHING)  # in this process, which has the plant
    assert (result.overall, result.anomalies) == (("invalid", (found,)) if found else ("valid", ())), result.reasons


def test_clients_and_checker_speak_of_the_same() -> None:
    assert (TABLE_STATES, TABLET_STATES) == (calls.TABLE_STATES, calls.TABLET_STATES)
    assert {*WORKLOAD.fs, RARE} == {*(f for f, _ in ROW_SHARES), *FS}
    assert set(calls.MOP_KINDS) == {*FS, "table", "tablet", "known", "unknown", "column"} - {*NAMELESS}


@pytest.mark.parametrize("nemesis", ["master-kill", "heartbeat-loss"])
def test_a_run_beside_faults_is_valid(nemesis: str) -> None:
    result = try_seed(RunOptions("catalog", nemesis=(nemesis,), time_limit=20.0, seed=1))
    assert result.overall == "valid", result.reasons
    assert result.ops > 1_000


def test_once_all_is_healed_changes_are_tried_and_each_master_is_asked() -> None:
    options = resolve_options(WORKLOAD, {})
    generator, context, ops = WORKLOAD.final_generator(options, Random(1)), Context.initial(3), []
    while generator is not None:
        op, generator = generator.step(context)
        if not isinstance(op, Op):
            break
        ops.append(op)
        generator = None if generator is None else generator.update(context, op.complete("ok"))
    changes = [op.f for op in ops if op.f in ("create", "alter", "rename", "delete")]
    assert changes == ["create"] * 2 + ["alter"] * 2 + ["rename"] * 2 + ["delete"] * 2
    assert all(op.mops[0].partition >= 5 for op in ops if op.f in changes), "names that the load never uses"
    tail = ops[-6:]
    assert [op.f for op in tail] == ["list"] * 6
    assert [op.value for op in tail] == [*({"master": number} for number in range(5)), None]
    assert all(op.bound for op in tail[:5]) and tail[5].bound is None, "followers may be old, the leader may not"
