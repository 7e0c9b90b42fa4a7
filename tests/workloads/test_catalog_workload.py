"""The workload of the catalog: what its clients ask, that it is judged, and that a run of it is valid."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from assay.options import RunOptions
from checkers.catalog import calls
from checkers.catalog.altered_rows import ROW_OPERATIONS
from cluster.deploy.catalog_ops import FS, TABLE_STATES, TABLET_STATES
from harness.generators import limit
from harness.generators.core import Context
from harness.history.ops import Op
from tests.support.known_runs import try_seed
from workloads.api import resolve_options
from workloads.catalog import AGES_NS, NAMELESS, RARE, ROW_SHARES, WISHES, WORKLOAD


def played(seed: int, count: int) -> list[Op]:
    """Invocations, each of which is answered at once as if everything succeeded."""
    generator = limit(count, WORKLOAD.generator(resolve_options(WORKLOAD, {}), Random(seed)))
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
