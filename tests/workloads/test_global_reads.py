"""Strong reads of a GLOBAL table: what is asked for, what counts for the floors, and whole runs."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from random import Random

import pytest
from msgspec.structs import replace

from assay.compose import carry_out
from assay.judging import judge_saved_run
from assay.options import RunOptions
from harness.generators.core import Context
from harness.history.figures import figures_in_events
from harness.history.ops import Mop, Op
from harness.run.spec import Silent
from workloads.api import resolve_options
from workloads.global_reads import COMMIT_WAITS, MOVED, OFF_LEASEHOLDER, READS, WORKLOAD

FLOORS = (READS, OFF_LEASEHOLDER, MOVED, COMMIT_WAITS)


def test_reads_may_be_served_anywhere_and_a_share_of_the_writes_is_laid_first() -> None:
    generator, context, ops = WORKLOAD.generator(resolve_options(WORKLOAD, {}), Random(3)), Context.initial(3), []
    for _ in range(1_500):
        op, after = generator.step(context)
        assert isinstance(op, Op) and after is not None
        ops.append(op)
        generator = after.update(context, op.complete("ok", mops=(replace(op.mops[0], value=7),)))
    assert {(op.f, op.mode) for op in ops} == {("read", "global"), ("write", None), ("write", "held"), ("cas", None)}
    held = sum(op.mode == "held" for op in ops)
    assert 0.25 < held / sum(op.f == "write" for op in ops) < 0.35


def answered(f: str = "read", mode: str | None = "global", **fields: object) -> list[Op]:
    ask = Op("invoke", 0, f, (Mop("r", 1),), phase="main", index=0, time=0, mode=mode)
    return [ask, ask.complete("ok", **fields, index=1, time=1)]


@pytest.mark.parametrize(
    ("events", "counted"),
    [
        (answered(route="global by log", requested_ts=5, served_ts=5, blocked_ns=0), {READS, OFF_LEASEHOLDER}),
        (answered(route="global by copied", requested_ts=5, served_ts=6), {READS, OFF_LEASEHOLDER, MOVED}),
        (answered(route="global-at-leaseholder by log", requested_ts=5, served_ts=6), {READS, MOVED}),
        (answered(route="leaseholder", requested_ts=5, served_ts=9), {READS}),
        (answered(route="leaseholder", served_ts=9), set()),
        (answered("write", None, requested_ts=3, served_ts=5, blocked_ns=1), {COMMIT_WAITS}),
        (answered("write", "held", requested_ts=3, served_ts=5, blocked_ns=1), {COMMIT_WAITS}),
        (answered("cas", None, requested_ts=3, served_ts=5), set()),
    ],
)
def test_what_counts_for_the_floors(events: list[Op], counted: set[str]) -> None:
    figures = figures_in_events(events, "main")
    assert {name for name in FLOORS if figures[name]} == counted


def test_a_run_is_valid_where_policies_change_and_clocks_jump(tmp_path: Path) -> None:
    world = "latency=wan5,severity=mild"
    nemesis = ("policy-change", "clock-jump(target=all-within)")
    options = RunOptions("global-reads", nemesis=nemesis, time_limit=12.0, seed=2, store=tmp_path, world=world)
    verdict = carry_out(options, judge_saved_run, Silent(), datetime(2026, 1, 1), print).outcome.verdict
    assert (verdict.overall, verdict.reasons) == ("valid", ())
