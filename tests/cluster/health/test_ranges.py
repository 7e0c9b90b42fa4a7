"""What `assay cluster ranges` makes of what nodes say, and of a whole cluster in the simulator."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec
import pytest

from assay.cluster_command import as_json
from cluster.health.ranges import RangesReport, look_at_ranges, ranges_text, report_of
from cluster.wire.messages import Regional, Replicas
from cluster.wire.operating import RangesReply, RangeState
from harness.cell_address import CellAddress
from harness.errors import DefiniteError
from tests.cluster.table_rig import KNOBS, TableRig, play

MS = 1_000_000
ZONES = {"t1": "z1", "t2": "z2", "t3": "z3"}


def said(node: str, shown: int, **fields: Any) -> RangesReply:
    told = {"holder": False, "lag_ns": 300 * MS, "assigned": 0, "pushed": 0, "closed": 0, "resolved": 0}
    state = RangeState("r1", answered={"log": 1}, voters=("t1", "t2"), learners=("t3",), **{**told, **fields})
    return RangesReply(node, shown * MS, (state,))


HOLDER = said("t1", 1_000, holder=True, assigned=700 * MS, closed=600 * MS, resolved=500 * MS, pushed=4)
OTHERS = (said("t2", 1_010, closed=600 * MS, resolved=600 * MS), said("t3", 990))


@pytest.mark.parametrize(
    ("wanted", "as_wanted"),
    [
        (2, True),
        (3, False),
        (Regional("z1", {"z1": 1, "z2": 1}, {"z3": 1}), True),
        (Regional("z2", {"z1": 1, "z2": 1}, {"z3": 1}), False),
        (Regional("", {"z1": 1, "z3": 1}, {"z2": 1}), False),
    ],
)
def test_a_range_is_told_by_its_holder_and_each_replica_by_itself(wanted: Replicas, as_wanted: bool) -> None:
    found = report_of("r1", "orders", wanted, (HOLDER, *OTHERS), ZONES)
    assert (found.holder, found.policy_lag_ms, found.c_lag_ms, found.pushed) == ("t1", 300.0, 300.0, 4)
    assert found.as_wanted == as_wanted and found.stands == "lease in z1; voters z1:1, z2:1; learners z3:1"
    told = [(each.node, each.zone, each.role, each.closed_lag_ms, each.resolved_lag_ms) for each in found.replicas]
    assert told == [
        ("t1", "z1", "holder", 400.0, 500.0),
        ("t2", "z2", "voter", 410.0, 410.0),
        ("t3", "z3", "learner", None, None),
    ]


def test_of_two_holders_the_one_that_closed_more_is_it_and_without_one_nobody() -> None:
    deposed = said("t2", 1_000, holder=True, assigned=1)
    assert report_of("r1", "orders", 2, (deposed, HOLDER), ZONES).holder == "t1"
    lonely = report_of("r1", "orders", 2, OTHERS, ZONES)
    assert lonely.holder is None and not RangesReport((lonely,)).served
    gone = report_of("r1", "orders", 2, (), ZONES)
    assert gone.replicas == () and not gone.as_wanted
    text = ranges_text(RangesReport((lonely, gone), ("t9",)))
    assert "nobody" in text and text.endswith("No answer: t9")
    assert ranges_text(RangesReport(())) == "There are no ranges."


def test_a_policy_that_leads_the_clock_is_told_as_a_lead() -> None:
    leading = said("t1", 1_000, holder=True, lag_ns=-800 * MS, assigned=1_700 * MS)
    text = ranges_text(RangesReport((report_of("r1", "orders", 2, (leading,), ZONES),)))
    assert "lead 800 ms" in text and "700 ms ahead" in text


def test_a_cluster_tells_its_ranges() -> None:
    async def scenario(rig: TableRig) -> None:
        await rig.begin()
        client = rig.database.admin_client(5)
        closed = (await client.write("registers", CellAddress(0), 1)).reply.timestamp
        await asyncio.sleep(2)
        await client.read("registers", CellAddress(0), as_of=closed)
        await client.write("registers", CellAddress(0), 2, closed)
        report = await look_at_ranges(client, "registers")
        (found,) = report.ranges
        assert report.served and not report.silent and found.as_wanted and found.wanted == "3"
        assert found.policy_lag_ms == 300 and found.c_lag_ms is not None and 300 <= found.c_lag_ms < 600
        assert found.pushed == 1 and sum(sum(each.answered.values()) for each in found.replicas) > 0
        assert len(found.replicas) == 3
        lags = [each.closed_lag_ms for each in found.replicas]
        assert all(lag is not None and 300 <= lag < 1_000 for lag in lags)
        assert json.loads(as_json(report))["ranges"][0]["table"] == "registers"
        assert (await look_at_ranges(client)).ranges[0].range_id == found.range_id
        with pytest.raises(DefiniteError) as refused:
            await look_at_ranges(client, "orders")
        assert refused.value.kind == "not-found"

    play(scenario, knobs=msgspec.structs.replace(KNOBS, closed_lag_ms=300))
