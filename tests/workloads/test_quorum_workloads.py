"""The workloads of quorum tables: timestamps are unique, operations state what judges need, schemas differ."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from msgspec.structs import replace

from assay.options import RunOptions
from assay.runner import Keep, run_seed
from cluster.deploy.partitions import row_keys
from cluster.quorum import coordinator
from cluster.quorum.keys import ABOVE
from cluster.quorum.slices import Slice, resumed
from harness.errors import UserError
from harness.generators import limit
from harness.generators.core import Context
from harness.history.ops import Op
from harness.levels import LEVELS
from workloads.api import Workload, resolve_options
from workloads.quorum import WORKLOADS, unpromised

DURABLE_ROWS = next(each for each in WORKLOADS if each.name == "durable-rows")


def played(workload: Workload, seed: int, count: int, **given: object) -> list[Op]:
    """Invocations a millisecond apart, each of which is answered at once."""
    options = resolve_options(workload, {name.replace("_", "-"): value for name, value in given.items()})
    generator, ops = limit(count, workload.generator(options, Random(seed))), []
    while generator is not None:
        op, generator = generator.step(Context(len(ops) * 1_000_000, (0, 1, 2), 14, 14))
        if not isinstance(op, Op):
            break
        ops.append(op)
    return ops


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.name)
def test_operations_state_what_judges_need_and_timestamps_are_unique(workload: Workload) -> None:
    ops = played(workload, 3, 2_000, data_centres=2, replication=3)
    assert ops == played(workload, 3, 2_000, data_centres=2, replication=3)
    assert {op.f for op in ops} == set(workload.fs)
    assert all(op.mode in LEVELS and op.data_centre in ("dc1", "dc2") for op in ops)
    assert {op.replication for op in ops} == {"dc1:3,dc2:3"}
    writes = [op for op in ops if op.f != "read"]
    stamps = [op.write_ts for op in writes]
    assert None not in stamps and len(set(stamps)) == len(stamps) and min(stamps) > 0
    assert stamps != sorted(stamps), "clients' clocks are not in the order of real time"
    assert all(op.write_ts is None and op.mops[0].f == "page" for op in ops if op.f == "read")
    for op in writes:
        cells = [(mop.partition, mop.row, mop.column) for mop in op.mops if mop.f == "w"]
        assert len(set(cells)) == len(cells) and len({mop.partition for mop in op.mops}) == 1
        assert op.f == "delete" or 2 <= len({mop.row for mop in op.mops}) <= 50


def test_reads_are_of_slices_with_limits_or_of_all_as_they_were_asked_for() -> None:
    (atomicity, *_) = WORKLOADS
    drawn = [op.mops[0].values for op in played(atomicity, 1, 1_000) if op.f == "read"]
    assert len({tuple(each or ()) for each in drawn}) > 30
    wide = played(atomicity, 1, 1_000, slices=0, limits=0)
    assert {op.mops[0].values for op in wide if op.f == "read"} == {(None, None, None, None)}
    with pytest.raises(UserError, match="'read-repair' is one of blocking, none, not 'later'"):
        resolve_options(atomicity, {"read-repair": "later"})


def test_reads_go_on_behind_earlier_pages_by_a_chance_of_their_own() -> None:
    for workload in WORKLOADS:
        plain, paged = played(workload, 1, 500), played(workload, 1, 500, pages=0.5)
        assert plain == [replace(op, value=None) for op in paged] and not any(op.value for op in plain)
        assert {op.f for op in paged if op.value} == {"read"}


@pytest.mark.parametrize(
    ("pages", "found"),
    [("0.6", ("lost-write",)), pytest.param("0", (), marks=pytest.mark.campaign, id="nobody-goes-on")],
)
def test_a_page_that_begins_one_row_too_late_is_found_by_who_goes_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, pages: str, found: tuple[str, ...]
) -> None:
    keys = row_keys(resolve_options(DURABLE_ROWS, {}))

    def planted(table: str, asked: Slice, token: bytes) -> Slice:
        (first, last), *more = resumed(table, asked, token).spans
        later = keys.key_of(keys.row_of(first.removesuffix(ABOVE)) + 1) + ABOVE
        return replace(asked, spans=((later, last), *more))

    monkeypatch.setattr(coordinator, "resumed", planted)
    told = {"limits": "0.6", "table": "logged", "pages": pages}
    options = RunOptions(
        "durable-rows", nemesis=("partition",), time_limit=8.0, seed=1, workload_options=told, store=tmp_path
    )
    result = run_seed(options, Keep.NOTHING)  # in this process, which has the plant
    assert result.anomalies == found, result.reasons


@pytest.mark.parametrize(
    ("chosen", "models"),
    [
        ({}, {"convergence", "write-atomicity"}),
        ({"slices": 0, "limits": 0.2}, {"convergence", "write-atomicity"}),
        ({"slices": 0.2, "limits": 0}, {"convergence", "write-atomicity"}),
        ({"slices": 0, "limits": 0}, {"convergence"}),
        ({"read-repair": "none", "limits": 0}, {"convergence", "monotonic-reads"}),
        ({"read-repair": "none", "limits": 0.2}, {"convergence", "monotonic-reads", "write-atomicity"}),
        ({"table": "logged"}, set()),
    ],
)
def test_each_table_says_what_its_design_breaks(chosen: dict[str, object], models: set[str]) -> None:
    (atomicity, *_) = WORKLOADS
    assert set(unpromised(resolve_options(atomicity, chosen))) == models


def test_a_logged_table_has_no_read_repair_to_leave_out() -> None:
    for workload in WORKLOADS:
        options = resolve_options(workload, {"table": "logged", "read-repair": "none"})
        with pytest.raises(UserError, match="read-repair=none is for table=legacy"):
            workload.generator(options, Random(1))
