"""Digests of state: a function of the contents alone, changed by every change, and kept by snapshots."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cluster.groups.sessions import RegisterClient, SessionLimits, SessionRows, Sessions
from cluster.master.catalog import CATALOG_FORMAT, Catalog, CatalogState, encode_batch
from cluster.master.records import changed_table, new_table, new_tablet
from cluster.ranges.lease_record import AcquireLease, RenewLease
from cluster.ranges.tablet import Put, TabletMachine, WriteBatch
from cluster.store.cells import fingerprint
from cluster.store.mvcc import MvccStore
from cluster.wire.messages import Column, Partition, RequestId, encode
from tests.cluster.frozen import frozen, restore, session_rows, sessions_of

RETENTION_NS = 40

KEYS = st.tuples(st.integers(0, 2), st.integers(0, 1), st.just(0))
VALUES = st.none() | st.integers(-3, 3)


@st.composite
def commands(draw: st.DrawFn) -> list[bytes]:
    """A tablet's log: a lease, then changes of few cells by few clients, retries and refused ones among them."""
    register = encode(RegisterClient(100, SessionLimits(60, 3, 2)))
    log = [register, register, encode(AcquireLease("a", 1, 100, 50))]
    timestamp = 200
    for _ in range(draw(st.integers(1, 25))):
        timestamp += draw(st.integers(0, 30))
        sequence = draw(st.integers(1, 6))
        request = RequestId(draw(st.sampled_from((1, 2, len(log)))), sequence, draw(st.integers(0, sequence)))
        lease, key, value = draw(st.integers(1, 2)), draw(KEYS), draw(VALUES)
        kind = draw(st.integers(0, 9))
        if kind == 0:
            log.append(encode(AcquireLease("b", 2, timestamp, 50)))
        elif kind == 2:
            log.append(encode(RegisterClient(timestamp, SessionLimits(60, 3, 2))))
        elif kind == 1:
            log.append(encode(RenewLease(lease, timestamp, 50)))
        else:
            # Latches and the leaseholder's reading of the newest version make a cell's timestamps rise.
            timestamp += 1
            puts, reading = () if kind < 4 else (Put(key, value),), timestamp - draw(st.integers(0, 1))
            log.append(encode(WriteBatch(request, lease, timestamp, timestamp - 20, reading, 50, puts, b"answer")))
    return log


@given(commands(), st.sampled_from((1, 100, 10_000)))
def test_a_restored_tablet_has_the_digest_of_the_state_it_was_taken_of(log: list[bytes], part_bytes: int) -> None:
    machine, other = TabletMachine(RETENTION_NS), TabletMachine(RETENTION_NS)
    for index, command in enumerate(log, 1):
        before, was, data = frozen(machine), machine.digest, machine.written_state
        machine.apply(index, command)
        assert (machine.digest == was) == (frozen(machine) == before)
        assert machine.write_index in (data[0], index)
        assert machine.write_index == index or machine.written_state == data
        restored = TabletMachine(RETENTION_NS)
        restore(restored, frozen(machine, part_bytes))
        assert restored.digest == machine.digest
        assert restored.written_state == machine.written_state
        other.apply(index, command)
        restore(other, frozen(other, part_bytes))
        assert other.digest == machine.digest


def test_answers_that_are_left_out_of_a_snapshot_show() -> None:
    table = Sessions()
    table.register(1, RegisterClient(0, SessionLimits(10, 3, 3)))
    table.record(RequestId(1, 1, 0), b"done")
    table.record(RequestId(1, 2, 0), b"done")
    rows = session_rows(table)
    session, last_use, floor, answers = rows.sessions[0]
    assert sessions_of(rows).digest == table.digest
    for changed in ((session, last_use, floor, answers[1:]), (session, last_use, floor + 1, answers)):
        assert sessions_of(SessionRows(rows.time, rows.limits, (changed,))).digest != table.digest
    assert sessions_of(SessionRows(rows.time, rows.limits, ())).digest != table.digest


def test_values_that_changed_places_show() -> None:
    """Sums of CRCs would cancel out in one of 2^16 such pairs, and in most where values differ in one bit."""
    for value in range(1, 400):
        straight, crossed = MvccStore(), MvccStore()
        for store, values in ((straight, (0, value)), (crossed, (value, 0))):
            store.write((1, 0, 0), 10, values[0])
            store.write((2, 0, 0), 10, values[1])
        assert straight.digest != crossed.digest


def test_fingerprints_are_the_same_in_every_process() -> None:
    assert fingerprint(("a", 1, None, b"x")) == 5380826099054862070


def test_a_catalog_restored_has_the_digest_of_the_state_it_was_taken_of() -> None:
    catalog = Catalog()
    catalog.apply(1, encode(RegisterClient(0, SessionLimits(10, 3, 3))))
    table = new_table("t", "people", (Column(0, "value", "int64"),), 3)
    tablets = [new_tablet(f"{number}", "t", Partition(number, 2)) for number in range(2)]
    digests = [catalog.digest]
    batches = (([table], tablets), ([changed_table(table, name="folk")], []), ([changed_table(table, name="late")], []))
    for index, (tables, of_tables) in enumerate(batches, 1):
        catalog.apply(index, encode_batch(tables, of_tables, RequestId(1, index, 0), b"ok"))
        restored = Catalog()
        restore(restored, frozen(catalog, 600 * index))
        assert restored.digest == catalog.digest
        digests.append(catalog.digest)
    assert len(dict.fromkeys(digests)) == 3, "the last batch conflicts and changes nothing"
    empty = Catalog()
    restore(empty, [encode(CatalogState(CATALOG_FORMAT, (), (), session_rows(catalog.sessions)))])
    assert empty.digest != catalog.digest
