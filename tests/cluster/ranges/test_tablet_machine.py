from __future__ import annotations

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.ranges.lease import AcquireLease, Lease, LeaseTimes, RenewLease
from cluster.ranges.tablet import Change, CompareAndSetCell, TabletMachine, WriteCell
from cluster.store.cells import Key, Value
from cluster.store.hlc import LOGICAL_BITS, Hlc, as_timestamp
from cluster.store.mvcc import LATEST
from cluster.store.sessions import SESSION_ENDED, RegisterClient, SessionLimits
from cluster.wire.messages import Done, Fault, Reply, RequestId, SessionReply, decode_reply, encode

KEY: Key = (1, 0, 0)
OTHER: Key = (2, 0, 0)
DURATION = 1_000
RETENTION = 1 << 40


SESSIONS = {"c": 1, "d": 2}
LIMITS = SessionLimits(1 << 40, 10, 100)


class Log:
    """Applies commands one after another to a machine; the first two register the sessions of clients c and d."""

    def __init__(self, machine: TabletMachine | None = None) -> None:
        self.machine = machine or TabletMachine(RETENTION)
        self.commands: list[bytes] = []
        if machine is None:
            for session in SESSIONS.values():
                assert self.put(RegisterClient(0, LIMITS)) == SessionReply(session)

    def put(self, command: msgspec.Struct) -> Reply | None:
        self.commands.append(encode(command))
        result = self.machine.apply(len(self.commands), self.commands[-1])
        return decode_reply(result) if result else None

    @property
    def lease(self) -> Lease:
        assert self.machine.lease is not None
        return self.machine.lease

    def value(self, key: Key = KEY) -> Value:
        version = self.machine.read(key, LATEST)
        return None if version is None else version[1]


def leased(holder: str = "a", term: int = 1, start: int = 10_000) -> Log:
    log = Log()
    log.put(AcquireLease(holder, term, start, DURATION))
    return log


def write(sequence: int, at: int, value: int, lease: int = 1, client: str = "c") -> WriteCell:
    return WriteCell(RequestId(SESSIONS[client], sequence, 0), lease, at, DURATION, KEY, value)


def cas(sequence: int, at: int, expected: int | None, value: int, lease: int = 1) -> CompareAndSetCell:
    return CompareAndSetCell(RequestId(SESSIONS["c"], sequence, 0), lease, at, DURATION, KEY, expected, value)


def test_a_compare_and_set_is_decided_where_it_stands_in_the_log() -> None:
    log = leased()
    assert log.put(cas(1, 20_000, None, 5)) == Done(True, None, 20_000)
    assert log.put(cas(2, 20_001, 4, 6)) == Done(False, 5, 20_001)
    assert log.put(cas(3, 20_002, 5, 6)) == Done(True, None, 20_002)
    assert log.value() == 6


def test_a_retry_gets_the_first_answer_and_takes_no_effect_also_under_a_later_lease() -> None:
    log = leased()
    first = log.put(cas(1, 20_000, None, 5))
    log.put(write(2, 20_001, 9))
    assert log.put(cas(1, 20_002, None, 5)) == first
    log.put(AcquireLease("b", 2, 30_000, DURATION))
    assert log.put(cas(1, 40_000, None, 5, lease=2)) == first
    assert log.value() == 9


def test_a_retry_after_a_snapshot_gets_the_first_answer() -> None:
    log = leased()
    first = log.put(cas(1, 20_000, None, 5))
    restored = TabletMachine(RETENTION)
    restored.restore(log.machine.snapshot())
    again = Log(restored)
    again.put(write(2, 20_001, 9))
    assert again.put(cas(1, 20_002, None, 7)) == first
    assert again.value() == 9


def test_a_late_double_of_a_request_the_client_is_done_with_takes_no_effect() -> None:
    log = leased()
    log.put(write(1, 20_000, 1))
    log.put(WriteCell(RequestId(SESSIONS["c"], 2, 2), 1, 20_001, DURATION, KEY, 2))
    reply = log.put(write(1, 20_002, 1))
    assert isinstance(reply, Fault)
    assert not reply.definite
    assert log.value() == 2


def test_a_request_of_a_session_that_ended_is_not_carried_out_again() -> None:
    log = leased()
    limits = SessionLimits(1_000, 10, 100)
    assert log.put(RegisterClient(19_000, limits)) == SessionReply(4)
    request = CompareAndSetCell(RequestId(4, 1, 1), 1, 19_001, DURATION, KEY, None, 5)
    log.put(request)
    assert log.put(RegisterClient(19_500, limits)) == SessionReply(6)
    log.put(WriteCell(RequestId(6, 1, 1), 1, 20_002, DURATION, KEY, None))
    again = msgspec.structs.replace(request, timestamp=20_003)
    assert log.put(again) == decode_reply(SESSION_ENDED)
    assert log.value() is None


def test_commands_of_another_lease_are_refused_for_good() -> None:
    log = Log()
    before = log.put(write(1, 20_000, 1))
    assert isinstance(before, Fault) and before.definite
    log.put(AcquireLease("a", 1, 10_000, DURATION))
    log.put(AcquireLease("b", 2, 11_000, DURATION))
    stale = log.put(write(1, 20_000, 1))
    assert isinstance(stale, Fault) and stale.definite and stale.leader == "b"
    assert log.value() is None
    assert isinstance(log.put(write(1, 20_000, 1, lease=2)), Done)


def test_a_write_that_does_not_rise_along_the_log_is_refused() -> None:
    log = leased()
    log.put(write(1, 20_000, 1))
    reply = log.put(write(2, 20_000, 2))
    assert isinstance(reply, Fault) and reply.definite
    assert log.value() == 1


def test_writes_and_renewals_move_the_expiration_and_nothing_moves_it_back() -> None:
    log = leased()
    assert log.lease.expiration == 11_000
    log.put(write(1, 20_000, 1))
    assert log.lease.expiration == 21_000
    log.put(RenewLease(1, 20_500, DURATION))
    assert log.lease.expiration == 21_500
    log.put(RenewLease(1, 100, DURATION))
    log.put(RenewLease(7, 90_000, DURATION))
    assert log.lease.expiration == 21_500


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(("read", "write", "apply", "takeover")),
        st.sampled_from((0, 0, 1, -1, 5_000, -5_000)),
        st.sampled_from((KEY, KEY, OTHER)),
    ),
    min_size=3,
    max_size=30,
)


class Ranges:
    """Holders one after another over one log: each reads and writes by its own wall clock, which jumps."""

    def __init__(self) -> None:
        self.log = Log()
        self.holders = 0
        self.reads: list[tuple[Key, int, Value]] = []
        self.pending: list[Change] = []
        self.requests = 0
        self.take_over(50_000)

    def take_over(self, wall_ns: int) -> None:
        """What the old holder proposed is lost; the new one waits until the old lease is over on its own clock."""
        self.holders += 1
        self.pending.clear()
        self.hlc = Hlc(DURATION)
        before = self.log.machine.lease
        reading = self.hlc.now(max(wall_ns, before.expiration + (1 << LOGICAL_BITS) if before else 0))
        self.log.put(AcquireLease(f"h{self.holders}", self.holders, reading, DURATION))
        self.times = LeaseTimes(self.log.lease)

    def write(self, key: Key, wall_ns: int) -> None:
        at = self.times.write_at(key, self.hlc.now(wall_ns))
        self.requests += 1
        request_id = RequestId(SESSIONS["c"], self.requests, 0)
        self.pending.append(WriteCell(request_id, self.log.lease.sequence, at, DURATION, key, self.requests))

    def apply(self) -> None:
        if self.pending:
            assert isinstance(self.log.put(self.pending.pop(0)), Done)

    def read(self, key: Key, wall_ns: int) -> None:
        self.times.settle(self.log.machine.last_write)
        arrived = self.hlc.now(wall_ns)
        if arrived >= self.log.lease.expiration:
            self.log.put(RenewLease(self.log.lease.sequence, arrived, DURATION))
        at = self.times.read_at(key, as_timestamp(arrived))
        version = self.log.machine.read(key, at)
        assert version == self.log.machine.read(key, LATEST)
        self.reads.append((key, at, version[1] if version else None))


@settings(deadline=None, max_examples=500)
@given(events=EVENTS)
def test_no_write_ever_lies_under_a_read_that_was_served(events: list[tuple[str, int, Key]]) -> None:
    """R3 over lease changes and jumping clocks: what was read at T is what a later look at T finds."""
    ranges = Ranges()
    for kind, jump, key in events:
        wall_ns = (100_000 + jump) << 16
        if kind == "read":
            ranges.read(key, wall_ns)
        elif kind == "write":
            ranges.write(key, wall_ns)
        elif kind == "apply":
            ranges.apply()
        else:
            ranges.take_over(wall_ns)
    while ranges.pending:
        ranges.apply()
    for key, at, value in ranges.reads:
        version = ranges.log.machine.read(key, at)
        assert (version[1] if version else None) == value


@settings(deadline=None)
@given(
    steps=st.lists(
        st.tuples(st.integers(0, 3), st.sampled_from("cd"), st.integers(1, 6), st.integers(0, 3)), max_size=30
    ),
    cut=st.integers(0, 30),
)
def test_a_machine_from_a_snapshot_goes_on_exactly_like_the_one_it_was_taken_of(
    steps: list[tuple[int, str, int, int]], cut: int
) -> None:
    log = leased()
    copy = Log()
    for number, (kind, client, sequence, value) in enumerate(steps):
        if number == min(cut, len(steps) - 1):
            copy.machine.restore(log.machine.snapshot())
        at = 20_000 + number
        request_id = RequestId(SESSIONS[client], sequence, 0)
        lease = log.lease.sequence
        command: msgspec.Struct
        if kind == 0:
            command = AcquireLease(client, number + 2, at, DURATION)
        elif kind == 1:
            command = WriteCell(request_id, lease, at, DURATION, KEY, value)
        else:
            command = CompareAndSetCell(request_id, lease, at, DURATION, KEY, value, sequence)
        expected = log.put(command)
        if number >= min(cut, len(steps) - 1):
            assert copy.put(command) == expected
    if steps:
        assert copy.machine.snapshot() == log.machine.snapshot()
