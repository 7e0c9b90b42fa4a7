"""Reads that any replica may serve: what workloads ask for, what counts for their floors, and whole runs of them."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import pytest
from msgspec.structs import replace

from assay.compose import carry_out
from assay.judging import judge_saved_run
from assay.options import RunOptions
from cluster.deploy.adapter import everywhere
from cluster.deploy.row_ops import BASE as BASE_COLUMN
from cluster.deploy.row_ops import COLUMNS, of_base_column
from harness.generators import limit
from harness.generators.core import Chance, Context, Generator, invoke
from harness.history.figures import FIGURES, figures_in_events, figures_in_parquet, figures_of, reads_cut_off
from harness.history.ops import Mop, Op, OpType
from harness.history.table import write_parquet
from harness.run.spec import Silent
from harness.verdict.adequacy import FloorOf, Floors, WorkDone, shortfalls
from workloads.api import Workload, resolve_options
from workloads.replica_reads import BASE, HELD_NS, PAGES, PAIRS, WORKLOADS, LateChanges, MixedModes, Past, S

FOLLOWER_READS, BOUNDED_STALENESS, MIXED_MODES, STRONG_ANYWHERE = WORKLOADS


@patch("workloads.replica_reads.HOLD_EVERY_NS", 7 * S)
def played(workload: Workload, seed: int, count: int, **given: object) -> list[Op]:
    """Invocations, one each second, answered at once where what is closed by then is 7 s more than the run's time."""
    generator: Generator | None = limit(count, workload.generator(resolve_options(workload, given), Random(seed)))
    context, ops = Context.initial(3), list[Op]()
    while generator is not None:
        context = replace(context, time_ns=len(ops) * S)
        op, generator = generator.step(context)
        if not isinstance(op, Op):
            break
        ops.append(op)
        if generator is not None:
            now, closed = context.time_ns, context.time_ns + 7 * S
            told = {} if op.mode is None else {"route": "follower", "closed_ts": closed}
            generator = generator.update(context, op.complete("ok", served_ts=closed, time=now, **told))
    return ops


@pytest.mark.parametrize("seed", range(3))
def test_reads_as_of_a_time_are_near_what_is_closed_or_at_what_was_served(seed: int) -> None:
    ops = played(FOLLOWER_READS, seed, 400)
    for number, op in enumerate(ops):
        if op.f in ("look", "span"):
            assert (op.mode, op.requested_ts is None) in {("exact", False), ("ago", True)}
            assert op.requested_ts is None or op.requested_ts <= 7 * S + number * S, "it is closed by now"
    exact = [(number, op.requested_ts) for number, op in enumerate(ops) if op.requested_ts is not None]
    again = [time for _, time in exact if time % S == 0]
    near = [time for number, time in exact if 0 < 7 * S + number * S - time < S]
    assert len(again) > 30 and len(near) > len(exact) / 3
    assert {op.f for op in ops} == {"look", "span", "write", "cas", "hold", "settle"}
    turns = [(number // 2 % 3, op.mops[0].partition % 3) for number, op in enumerate(ops) if op.f in ("write", "cas")]
    assert sum(turn == group for turn, group in turns) > 0.8 * len(turns), "the others are quiet"


def test_bounded_reads_have_one_bound_and_minima_were_seen() -> None:
    ops = played(BOUNDED_STALENESS, 1, 400)
    for number, op in enumerate(ops):
        if op.mode == "minimum":
            assert op.min_ts is not None and op.min_ts <= 7 * S + number * S and op.bound is None
        elif op.mode is not None:
            assert op.min_ts is None and op.bound is not None
    assert {(op.f, op.mode) for op in ops} == {
        *((f, None) for f in ("write", "hold", "settle")),
        *((f, mode) for f in ("read", "scan") for mode in ("minimum", "nearest", "staleness")),
    }


def test_bounded_reads_are_varied_by_a_chance_of_their_own() -> None:
    plain, varied = played(BOUNDED_STALENESS, 1, 600), played(BOUNDED_STALENESS, 1, 600, varied=0.5)
    assert [(op.f, op.mops) for op in plain] == [(op.f, op.mops) for op in varied]
    moved = [now for was, now in zip(plain, varied, strict=True) if was != now]
    paged, exact = [op for op in moved if op.f == "scan" and op.value], [op for op in moved if op.mode == "exact"]
    assert {op.value["page"] for op in paged} == {*PAGES} and {op.f for op in exact} == {"read", "scan"}
    assert len({*map(id, (*paged, *exact))}) == len(moved)
    assert all(op.requested_ts is not None and op.bound is None and op.min_ts is None for op in exact)


def test_invocations_name_the_cells_that_they_may_change() -> None:
    """What a write of unknown outcome left was taken for nobody's: its cell had another column in the history."""
    assert COLUMNS[BASE].name == BASE_COLUMN
    for op in played(BOUNDED_STALENESS, 1, 100):
        assert {mop.column for mop in op.mops} <= {BASE}
        assert {mop.column for mop in of_base_column(op).mops} <= {-1}


def test_strong_reads_alone_are_asked_of_any_replica() -> None:
    ops = played(STRONG_ANYWHERE, 1, 200)
    assert {(op.f, op.mode) for op in ops} == {("read", "anywhere"), ("write", None), ("cas", None)}


def laid(type: OpType, transaction: str = "x1") -> Op:
    named = {"transaction": transaction, "partition": 2, "row": 1, "value": 7}
    return Op(type, 0, "hold", value=named, time=5, served_ts=9)


def test_what_a_transaction_has_laid_is_committed_once_and_let_go_where_nobody_knows() -> None:
    late = LateChanges().after(laid("ok")).after(laid("info", "x2")).after(laid("fail", "x3"))
    after_ns = 5 + HELD_NS[0]
    assert late.due(after_ns - 1) is None
    committed, let_go = late.due(after_ns), late.held[1]
    assert committed is not None and [each.transaction for each in late.held] == ["x1", "x2"]
    settle = late.settle(committed, BASE)
    assert settle.mops == (Mop("w", 2, 7, row=1, column=BASE),) and settle.value["transaction"] == "x1"
    assert settle.value["commits"] and not late.settle(let_go).value["commits"]
    assert late.without(committed).due(5 + HELD_NS[1]) is let_go


def test_late_changes_ask_for_a_time_that_is_closed_or_before_another_rows_change() -> None:
    read = Op("ok", 0, "look", (Mop("r", 2),), route="follower", closed_ts=50 * S)
    changed = Op("ok", 0, "write", (Mop("w", 2, 3, row=0),), served_ts=60 * S)
    late, other_row = LateChanges().after(read).after(changed), invoke("write", Mop("w", 2, 4, row=1))
    asked = [late.earlier(Chance(seed), other_row) for seed in range(50)]
    assert {(op.closed_ts, op.value["seen"]) for op in asked} == {(50 * S, 60 * S)}
    assert {round((op.requested_ts or 0) / S) for op in asked} == {50, 60}
    assert {round((late.earlier(Chance(n), changed).requested_ts or 0) / S) for n in range(50)} == {50}
    assert LateChanges().earlier(Chance(1), other_row) == other_row
    assert late.hold(Mop("w", 2, 8, row=1)).requested_ts == 50 * S
    assert late.may_hold(0) and not late.after(replace(laid("ok"), type="invoke", time=0)).may_hold(S - 1)


def test_every_pair_of_modes_comes_up_alike_often_and_counts_for_its_floor() -> None:
    events = []
    for number, op in enumerate(played(MIXED_MODES, 1, 1_000)):
        asked = replace(op, index=2 * number, time=number, phase="main")
        assert op.mode != "minimum" or op.min_ts is not None
        events += [asked, asked.complete("ok", index=2 * number + 1, served_ts=1)]
    counts = figures_in_events(events, "main")
    assert {floor.figure for floor in MIXED_MODES.own_floors} == set(PAIRS) <= set(counts)
    assert all(20 <= counts[pair] <= 30 for pair in PAIRS)


def test_pairs_that_fail_do_not_count_and_the_highest_time_of_a_session_stands() -> None:
    begun = MixedModes({"keys": 1.0}, 1, past={0: Past("strong", 0, time=5, highest=9)})
    op, asked = begun.step(Context.initial(1))
    assert isinstance(op, Op) and op.value == {"after": "strong"} and isinstance(asked, MixedModes)
    assert list(asked.pairs.values()) == [1] and asked.update(Context.initial(1), op) == asked
    failed = asked.update(Context.initial(1), op.complete("fail"))
    assert isinstance(failed, MixedModes) and list(failed.pairs.values()) == [0] and not failed.past
    went_on = asked.update(Context.initial(1), op.complete("ok", served_ts=7, mops=(Mop("r", 0),)))
    assert isinstance(went_on, MixedModes) and went_on.past[0].highest == 9


@pytest.mark.parametrize(
    ("zones", "home", "voters", "learners"),
    [
        ("z1 z2 z3 z4 z5", "", {"z1": 1, "z2": 1, "z3": 1}, {"z4": 1, "z5": 1}),
        ("z1 z1 z1 z1", "", {"z1": 3}, {"z1": 1}),
        ("z1 z2 z1 z2 z3", "z1", {"z1": 2, "z2": 1}, {"z2": 1, "z3": 1}),
        ("z1 z2 z3 z4", "z1", {"z1": 1, "z2": 1, "z3": 1}, {"z4": 1}),
    ],
)
def test_every_server_has_a_replica(zones: str, home: str, voters: dict[str, int], learners: dict[str, int]) -> None:
    wanted = everywhere(zones.split(), home)
    assert (wanted.voters, wanted.learners) == (voters, learners)
    assert wanted.home == (home if voters.get(home, 0) > 1 else "")


def answered(**fields: Any) -> list[Op]:
    ask = Op("invoke", 0, fields.pop("f", "look"), (Mop("r", 1),), phase="main", index=0, time=0)
    return [ask, ask.complete("ok", mode=fields.pop("mode", "exact"), **fields, index=1, time=1)]


@pytest.mark.parametrize(
    ("events", "counted"),
    [
        (answered(route="follower by log", served_ts=5, closed_ts=5 + 2 * S), {0, 1}),
        (answered(route="follower by side-transport", served_ts=5, closed_ts=9), {0, 1, 2, 3}),
        (answered(route="closed-at-leaseholder by copied", served_ts=5, closed_ts=9, blocked_ns=1), {0, 3, 5}),
        (answered(route="leaseholder", served_ts=5, mode=None), set()),
        (answered(f="scan", route="follower", served_ts=5, min_ts=4, closed_ts=6), {0, 1, 3, 4}),
        (answered(f="write", mode=None, requested_ts=3, served_ts=5), {6}),
        (answered(f="write", mode=None, requested_ts=3, served_ts=5, closed_ts=2), {6}),
        (answered(f="hold", mode=None, requested_ts=3, served_ts=5, closed_ts=4), {6, 9}),
        (answered(f="settle", mode=None, served_ts=5, value={"seen": 6, "transaction": "x"}), {10}),
        (answered(f="settle", mode=None, served_ts=5, value={"seen": 5, "transaction": "x"}), set()),
        (answered(route="strong-anywhere", mode="anywhere", served_ts=5, closed_ts=3, blocked_ns=1), {0, 1, 3, 7}),
        (answered(route="follower", mode="minimum", served_ts=5, closed_ts=9, unblocked_ts=5), {0, 1, 3, 8}),
    ],
)
def test_what_counts_for_floors(events: list[Op], counted: set[int], tmp_path: Path) -> None:
    names = list(FIGURES)
    expected = {name: int(number in counted) for number, name in enumerate(names)}
    write_parquet(events, tmp_path / "history.parquet")
    assert figures_in_events(events, "main") == figures_in_parquet(tmp_path / "history.parquet", "main") == expected
    assert figures_in_events(events, "final") == dict.fromkeys(names, 0)
    assert dict(figures_of(events[1:])) == expected


@pytest.mark.parametrize(
    ("node", "route", "spans", "count"),
    [
        ("t1", "follower by log", [(0, 2)], 1),
        ("t1", "follower by log", [(0, 1), (5, 9)], 0),
        ("t2", "follower by log", [(0, 2)], 0),
        ("t1", "leaseholder", [(0, 2)], 0),
    ],
)
def test_reads_by_nodes_that_are_cut_off_are_those_within_their_spans(
    node: str, route: str, spans: list[tuple[int, int]], count: int
) -> None:
    found = figures_in_events(answered(route=route, served_ts=5, node=node), "main", {"cut": {"t1": spans}})
    assert found[reads_cut_off("cut")] == count


@pytest.mark.parametrize(
    ("floor", "reason"),
    [
        (FloorOf("a", 3), "only 2 a; the floor is 3"),
        (FloorOf("a", 2), None),
        (FloorOf("a", 0.5, of="b"), "only 2 a among 5 b; the floor is 50%"),
        (FloorOf("a", 0.4, of="b"), None),
        (FloorOf("a", 0.4, of="none"), "only 2 a among 0 none; the floor is 40%"),
    ],
)
def test_a_floor_of_a_workloads_own_is_a_count_or_a_share(floor: FloorOf, reason: str | None) -> None:
    done = WorkDone((), {}, 1.0, None, own_floors=(floor,), figures={"a": 2, "b": 5})
    found = [each for each in shortfalls(done, Floors()) if " a" in each]
    assert found == ([] if reason is None else [reason])


def run_of(workload: str, world: str, store: Path) -> tuple[str, tuple[str, ...]]:
    options = RunOptions(workload, time_limit=5.0, seed=1, store=store, world=f"latency=wan5,severity=mild,{world}")
    verdict = carry_out(options, judge_saved_run, Silent(), datetime(2026, 1, 1), print).outcome.verdict
    return verdict.overall, verdict.reasons


@pytest.mark.parametrize("workload", [each.name for each in (FOLLOWER_READS, BOUNDED_STALENESS)])
def test_a_run_is_valid_where_replicas_serve_and_vacuous_where_nothing_is_closed(workload: str, tmp_path: Path) -> None:
    assert run_of(workload, "closed-lag-ms=1000", tmp_path) == ("valid", ())
    overall, reasons = run_of(workload, "closed-lag-ms=60000", tmp_path)
    assert overall == "unknown" and any("; the floor is" in reason for reason in reasons)
