"""The workload of reads as of earlier times: what its clients look at, and that their looks repeat."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.options import RunOptions
from assay.runner import Keep, run_seed
from cluster.deploy.adapter import ranges_of
from cluster.ranges import requests
from cluster.wire.messages import RowRange
from harness.generators import limit
from harness.generators.core import Context
from harness.history.ops import Op
from tests.support.few_seeds import few_examples
from workloads.api import resolve_options
from workloads.snapshots import WORKLOAD


def played(seed: int, count: int, looks: float = 0.4, **given: float) -> list[Op]:
    """Invocations, each of which is answered at once, at the time of its number."""
    generator = limit(count, WORKLOAD.generator(resolve_options(WORKLOAD, {"looks": looks, **given}), Random(seed)))
    context, ops = Context.initial(3), []
    while generator is not None:
        op, generator = generator.step(context)
        if not isinstance(op, Op):
            break
        ops.append(op)
        if generator is not None:
            generator = generator.update(context, op.complete("ok", served_ts=1_000 + len(ops)))
    return ops


@few_examples(30)
@given(st.integers(0, 2**32))
def test_looks_are_at_times_that_were_served_or_before_and_values_are_unique(seed: int) -> None:
    ops = played(seed, 200)
    assert len(ops) == 200
    for number, op in enumerate(ops):
        assert [mop.row for mop in op.mops] == ([0, 1] if op.f == "span" else [op.mops[0].row])
        if op.requested_ts is None:
            assert op.f != "look"
        elif op.mode == "exact":
            served = ops[op.requested_ts - 1_001]
            assert op.requested_ts - 1_001 < number and served.mops[0].partition == op.mops[0].partition
        else:
            assert op.mode == "past" and 0 < op.requested_ts <= 1_000 + number
    written = [op.mops[0].value for op in ops if op.f in ("write", "cas")]
    assert len(set(written)) == len(written)
    assert ops == played(seed, 200)


def test_spans_leave_inner_registers_out_by_a_chance_of_their_own() -> None:
    plain, gapped = played(5, 500, rows=4), played(5, 500, rows=4, gaps=0.5)
    assert [(op.f, op.requested_ts) for op in plain] == [(op.f, op.requested_ts) for op in gapped]
    rows = {tuple(mop.row for mop in op.mops) for op in gapped if op.f == "span"}
    assert rows == {(0, 1, 2, 3), (0, 2, 3), (0, 1, 3)}
    assert ranges_of((0, 1, 3)) == (RowRange(0, 2), RowRange(3, 4)) and ranges_of((2,)) == (RowRange(2, 3),)


@pytest.mark.parametrize(
    ("gaps", "found"), [("0.5", True), pytest.param("0", False, marks=pytest.mark.campaign, id="none-is-left-out")]
)
def test_a_span_of_which_the_second_range_is_forgotten_is_found_by_who_asks_for_two(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, gaps: str, found: bool
) -> None:
    whole = requests.spans_of
    monkeypatch.setattr(requests, "spans_of", lambda read: whole(read)[:1])
    told = {"rows": "4", "keys": "3", "spans": "0.6", "gaps": gaps}
    options = RunOptions("snapshots", nemesis=("kill",), time_limit=6.0, seed=1, workload_options=told, store=tmp_path)
    result = run_seed(options, Keep.NOTHING)  # in this process, which has the plant
    assert (result.overall, bool(result.anomalies)) == (("invalid", True) if found else ("valid", False))


def test_every_operation_comes_up_and_times_are_looked_at_again() -> None:
    ops = played(5, 3_000)
    assert {op.f for op in ops} == set(WORKLOAD.fs)
    times = [op.requested_ts for op in ops if op.requested_ts is not None]
    assert 0.35 < len(times) / 3_000 < 0.45
    assert len(times) - len(set(times)) > 200
    assert {op.mode for op in ops if op.f == "span"} == {None, "exact", "past"}
