"""Closed timestamps hold where they have to, and break where what replicas tell of them contradicts itself."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from watched_cluster import GROUP, Cluster, covered

from cluster.invariants.leases import CLOSED_IN_LEASE, CLOSED_KEPT, LEASE_RECORDS, READS_KEPT, SERVED_CLOSED
from cluster.observer import Observer
from cluster.ranges.lease_record import Lease
from cluster.ranges.side_transport import Joined
from cluster.ranges.tablet import Put, TabletMachine, WriteBatch
from cluster.store.cells import Span, point, rows
from cluster.store.hlc import ClockReading, Timestamp
from cluster.wire.messages import ReadCell, ReadReply, RequestId
from harness.protocols import Breach

FIRST = Lease("a", 1, 1, Timestamp(100), Timestamp(200))
SECOND = Lease("b", 2, 2, Timestamp(201), Timestamp(300), low_water=Timestamp(199))


def batch(timestamp: int, closed: int, writes: bool = True) -> WriteBatch:
    puts = (Put((1, 0, 0), 7),) if writes else ()
    return WriteBatch(RequestId(1, 1, 0), 1, timestamp, closed, ClockReading(timestamp), 100, puts, b"")


def apply(observer: Observer, *batches: WriteBatch) -> None:
    """In a state that carries each out as it should."""
    closed = 0
    for each in batches:
        observer.batch_applied(GROUP, each, closed)
        closed = each.closed


def restored(closed: int) -> TabletMachine:
    machine = TabletMachine(1_000)
    machine.closed = closed
    return machine


def recorded(cluster: Cluster, before: Lease | None, lease: Lease) -> None:
    for observer in (cluster.a, cluster.b, cluster.c):
        observer.lease_recorded(GROUP, before, lease)


def test_batches_write_above_what_is_closed_before_them_in_any_order_above_it(cluster: Cluster) -> None:
    log = (batch(120, 118), batch(119, 119), batch(140, 119), batch(130, 125))
    apply(cluster.a, *log)
    apply(cluster.b, *log[:2])
    cluster.b.restored(GROUP, covered(4, 1), restored(125))
    cluster.b.batch_applied(GROUP, batch(150, 125), 125)
    apply(cluster.life("a", 2), *log)
    assert cluster.breaches == []
    assert cluster.watch.record().checked[CLOSED_KEPT] == 12


def test_nothing_is_written_at_what_is_closed_though_it_may_be_looked_at(cluster: Cluster) -> None:
    apply(cluster.a, batch(120, 118), batch(118, 118, writes=False))
    assert cluster.breaches == []
    cluster.step = 7
    apply(cluster.b, batch(120, 118), batch(118, 118))
    message = "a batch writes at 118, and 118 is closed"
    assert cluster.watch.record().breaches == (Breach(CLOSED_KEPT, message, 70, 7, ("b",), GROUP),)


def test_no_batch_closes_less_than_one_before_it(cluster: Cluster) -> None:
    apply(cluster.b, batch(120, 118), batch(121, 117))
    assert cluster.breaches == [(CLOSED_KEPT, ("b",))]


@pytest.mark.parametrize("snapshot", [False, True])
def test_what_is_closed_in_a_state_does_not_fall(cluster: Cluster, snapshot: bool) -> None:
    apply(cluster.c, batch(120, 118))
    if snapshot:
        cluster.c.restored(GROUP, covered(5, 1), restored(117))
    else:
        cluster.c.batch_applied(GROUP, batch(130, 118), 117)
    assert cluster.breaches == [(CLOSED_KEPT, ("c",))]


def test_a_replica_that_begins_anew_in_the_same_life_has_closed_nothing(cluster: Cluster) -> None:
    apply(cluster.c, batch(120, 118))
    cluster.c.opened(GROUP, "c2", None, ())
    apply(cluster.c, batch(120, 118))
    assert cluster.breaches == []


def test_a_holder_closes_ever_more_and_below_the_expiration_that_it_has_applied(cluster: Cluster) -> None:
    recorded(cluster, None, FIRST)
    for closed in (150, 150, 199):
        cluster.a.timestamp_closed(GROUP, 1, closed, FIRST)
    cluster.a.timestamp_closed(GROUP, 1, 209, replace(FIRST, expiration=Timestamp(210)))
    assert cluster.breaches == []
    cluster.a.timestamp_closed(GROUP, 1, 210, replace(FIRST, expiration=Timestamp(210)))
    assert cluster.breaches == [(CLOSED_IN_LEASE, ("a",))]
    cluster.a.timestamp_closed(GROUP, 1, 208, replace(FIRST, expiration=Timestamp(210)))
    assert cluster.breaches[1:] == [(CLOSED_KEPT, ("a",))]


def test_a_holder_closes_below_what_members_have_promised_of_its_lease(cluster: Cluster) -> None:
    recorded(cluster, None, FIRST)
    cluster.a.lease_extended(GROUP, 1, 400)
    cluster.a.timestamp_closed(GROUP, 1, 399, FIRST)
    assert cluster.breaches == []
    cluster.a.timestamp_closed(GROUP, 1, 400, FIRST)
    assert cluster.breaches == [(CLOSED_IN_LEASE, ("a",))]


def test_a_lease_writes_above_all_that_was_closed_before_it(cluster: Cluster) -> None:
    recorded(cluster, None, FIRST)
    cluster.a.timestamp_closed(GROUP, 1, 199, FIRST)
    recorded(cluster, FIRST, SECOND)
    cluster.a.timestamp_closed(GROUP, 1, 199, FIRST)
    cluster.b.timestamp_closed(GROUP, 2, 199, SECOND)
    assert cluster.breaches == []
    recorded(cluster, SECOND, replace(SECOND, sequence=3, start=Timestamp(301), low_water=Timestamp(198)))
    assert cluster.breaches == [(CLOSED_IN_LEASE, ("b",))]


def test_who_has_lost_its_lease_closes_no_more_than_the_next_one_was_told_of(cluster: Cluster) -> None:
    recorded(cluster, None, FIRST)
    recorded(cluster, FIRST, SECOND)
    cluster.a.timestamp_closed(GROUP, 1, 200, SECOND)
    assert cluster.breaches == [(CLOSED_IN_LEASE, ("a",))]


READ_AT = 10
WRITTEN = [
    (point((1, 0, 0)), READ_AT, False),
    (point((1, 0, 0)), READ_AT + 1, True),
    (point((1, 0, 1)), READ_AT, True),
    (rows(1, 0, None), READ_AT, False),
    (rows(1, 1, None), READ_AT, True),
]


@pytest.mark.parametrize(("span", "written", "fine"), WRITTEN)
def test_nothing_is_written_at_or_below_a_read_of_its_cell(
    cluster: Cluster, span: Span, written: int, fine: bool
) -> None:
    apply(cluster.a, batch(READ_AT - 5, 0))
    cluster.a.read_answered(GROUP, (span,), READ_AT)
    apply(cluster.b, batch(READ_AT - 5, 0))
    assert cluster.breaches == [], "a replica has carried it out before the read"
    apply(cluster.b, batch(written, 0))
    assert [name for name, *_ in cluster.breaches] == ([] if fine else [READS_KEPT])


def test_c_of_a_lease_begins_at_its_low_water_wherever_that_ends(cluster: Cluster) -> None:
    """Of tables that lead the clock low water may lie in the future; and C never falls, over leases too."""
    ahead = replace(SECOND, low_water=Timestamp(400))
    recorded(cluster, None, FIRST)
    cluster.a.timestamp_closed(GROUP, 1, 199, FIRST)
    recorded(cluster, FIRST, ahead)
    cluster.b.timestamp_closed(GROUP, 2, 400, ahead)
    assert cluster.breaches == []
    cluster.b.timestamp_closed(GROUP, 2, 401, ahead)
    assert cluster.breaches == [(CLOSED_IN_LEASE, ("b",))]
    recorded(cluster, ahead, replace(ahead, sequence=3, start=Timestamp(301), low_water=Timestamp(401)))
    cluster.c.timestamp_closed(GROUP, 3, 400, None)
    assert cluster.breaches[1:] == [(CLOSED_KEPT, ("b", "c"))]


def test_what_was_told_by_the_side_transport_is_not_written_under(cluster: Cluster) -> None:
    recorded(cluster, None, FIRST)
    apply(cluster.a, batch(150, 118))
    cluster.a.ranges_closed(160, {GROUP: Joined(1, 7, (), 200)})
    apply(cluster.b, batch(150, 118))
    assert cluster.breaches == [], "somebody had carried it out"
    cluster.b.batch_applied(GROUP, batch(161, 118), 118)
    assert cluster.breaches == []
    cluster.b.batch_applied(GROUP, batch(160, 118), 118)
    assert cluster.breaches == [(CLOSED_KEPT, ("a", "b"))]


def test_quiet_ranges_are_closed_within_their_leases(cluster: Cluster) -> None:
    recorded(cluster, None, FIRST)
    cluster.a.ranges_closed(199, {GROUP: Joined(1, 7, (), 200)})
    assert cluster.breaches == []
    cluster.a.ranges_closed(200, {GROUP: Joined(1, 7, (), 200)})
    assert cluster.breaches == [(CLOSED_IN_LEASE, ("a",))]
    cluster.a.ranges_closed(250, {GROUP: Joined(1, 7, (), None)})
    recorded(cluster, FIRST, replace(SECOND, low_water=Timestamp(250)))
    assert (LEASE_RECORDS, ("a", "b")) in cluster.breaches, "promises let the first one last longer"


def served(cluster: Cluster, timestamp: int, write_index: int) -> None:
    state = restored(0)
    state.write_index = write_index
    read = ReadCell(GROUP, 1, 0, 0, timestamp)
    cluster.b.closed_read_answered(GROUP, read, (point((1, 0, 0)),), timestamp, ReadReply(None, timestamp), state)


def test_a_read_is_served_by_what_is_closed_at_what_its_replica_has_applied(cluster: Cluster) -> None:
    recorded(cluster, None, FIRST)
    cluster.b.batch_applied(GROUP, replace(batch(120, 118), puts=()), 0)
    served(cluster, 118, 3)
    cluster.a.ranges_closed(160, {GROUP: Joined(1, 7, (), 200)})
    served(cluster, 160, 7)
    cluster.a.ranges_closed(140, {GROUP: Joined(1, 5, (), 200)})
    served(cluster, 140, 5)
    assert cluster.breaches == [], "an earlier holder goes on closing what its lease allows"
    served(cluster, 141, 6)
    served(cluster, 161, 8)
    assert cluster.breaches == [(SERVED_CLOSED, ("b",))] * 2
    apply(cluster.c, batch(160, 118))
    assert READS_KEPT in [name for name, _ in cluster.breaches]
