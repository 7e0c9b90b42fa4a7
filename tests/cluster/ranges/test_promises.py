"""What holders of leases promise about timestamps, kept over lease changes, jumping clocks and any order of steps."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from cluster.groups.sessions import RegisterClient, SessionLimits
from cluster.ranges.lease_record import AcquireLease, HandOverLease, Lease, RenewLease
from cluster.ranges.promises import InFlight, Promises, SharedClosed
from cluster.ranges.tablet import Put, TabletMachine, WriteBatch, decode_command
from cluster.store.cells import Key, Value, point
from cluster.store.hlc import Hlc, Timestamp
from cluster.store.mvcc import LATEST
from cluster.wire.messages import Done, RequestId, encode

KEYS: list[Key] = [(1, 0, 0), (1, 0, 1)]
DURATION = 1 << 20
RETENTION = 1 << 40
TICK = 1 << 16


@dataclass
class Writing:
    """One write of the model: entered, then decided, then placed in the log."""

    key: Key
    in_flight: InFlight
    lease: int
    number: int
    timestamp: int = 0


class Ranges:
    """Holders one after another over one log, each with its own clock; steps of several evaluations in any order.

    As latches see to it, a key has one evaluation at a time from its entry to its application, and no read meanwhile.
    """

    def __init__(self, lag_ns: int) -> None:
        self.lag_ns = lag_ns
        self.machine = TabletMachine(RETENTION)
        self.machine.apply(1, encode(RegisterClient(0, SessionLimits(1 << 60, 10, 1_000))))
        self.holders = self.numbers = 0
        self.index = 1
        self.reads: list[tuple[Key, int, Value]] = []
        self.closed: list[int] = []
        self.take_over(1)

    @property
    def lease(self) -> Lease:
        assert self.machine.lease is not None
        return self.machine.lease

    def hand_over(self) -> None:
        """The holder gives its lease up above what it promised; what it has not placed is lost."""
        closed, read = self.promises.summary()
        command = HandOverLease(self.promises.sequence, self.hlc.last, Timestamp(closed), Timestamp(read))
        while self.placed:
            self.apply()
        self.put(encode(command))

    def take_over(self, wall_ns: int) -> None:
        """What is placed by now is applied or lost with its holder; the model applies it. The new holder begins when
        the old lease is over on its own clock.
        """
        while self.holders and self.placed:
            self.apply()
        self.holders += 1
        self.hlc = Hlc(DURATION)
        before = self.machine.lease
        reading = self.hlc.now(max(wall_ns, before.expiration + TICK if before else 0))
        self.put(encode(AcquireLease(f"h{self.holders}", self.holders, reading, DURATION)))
        lease = self.lease
        assert lease.holder == f"h{self.holders}"
        self.promises = Promises(lease.sequence, lease.low_water, self.machine.closed)
        self.entered: list[Writing] = []
        self.decided: list[Writing] = []
        self.placed: list[bytes] = []
        self.busy: dict[Key, None] = {}

    def put(self, command: bytes) -> None:
        self.index += 1
        before = self.machine.closed
        self.machine.apply(self.index, command)
        assert self.machine.closed >= before
        assert self.machine.closed < self.lease.expiration

    def enter(self, key: Key, wall_ns: int, waited_ns: int) -> None:
        """An evaluation begins; its request came `waited_ns` ago and waited for its latches."""
        if key not in self.busy:
            self.busy[key] = None
            self.numbers += 1
            writing = Writing(
                key, self.promises.enter(self.hlc.now(wall_ns) - waited_ns), self.promises.sequence, self.numbers
            )
            self.entered.append(writing)

    def decide(self, choice: int) -> None:
        if self.entered:
            writing = self.entered.pop(choice % len(self.entered))
            spans = (point(writing.key),)
            newest = self.machine.newest(spans[0])
            writing.timestamp = max(writing.in_flight.timestamp, self.promises.highest_read(spans) + 1, newest + 1)
            self.decided.append(writing)

    def place(self, choice: int, wall_ns: int) -> None:
        if self.decided:
            writing = self.decided.pop(choice % len(self.decided))
            self.promises.leave(writing.in_flight)
            reading = self.hlc.now(wall_ns)
            closed = self.promises.close(min(reading - choice % 3 * self.lag_ns, self.lease.expiration - 1))
            assert all(other.in_flight.timestamp > closed for other in (*self.entered, *self.decided))
            if self.closed:
                assert writing.timestamp > self.closed[-1] or self.closed[-1] == 0
            self.closed.append(closed)
            done = encode(Done(True, None, writing.timestamp))
            puts = (Put(writing.key, writing.number),)
            batch = WriteBatch(
                RequestId(1, writing.number, 0),
                writing.lease,
                writing.timestamp,
                closed,
                reading,
                DURATION,
                puts,
                done,
            )
            self.placed.append(encode(batch))

    def apply(self) -> None:
        if self.placed:
            command = self.placed.pop(0)
            batch = decode(command)
            closed = self.machine.closed
            assert batch.timestamp > closed, "written at or below what was closed earlier in the log"
            self.put(command)
            del self.busy[batch.puts[0].key]

    def write(self, key: Key, wall_ns: int, choice: int) -> None:
        """All steps at once, if nothing else is on its way."""
        if not (self.entered or self.decided or self.placed):
            self.enter(key, wall_ns, choice * TICK)
            self.decide(0)
            self.place(choice, wall_ns)
            self.apply()

    def read(self, key: Key, wall_ns: int) -> None:
        if key in self.busy:
            return
        arrived = self.hlc.now(wall_ns)
        if arrived >= self.lease.expiration:
            self.put(encode(RenewLease(self.promises.sequence, arrived, DURATION)))
        at = max(self.machine.newest(point(key)), arrived)
        self.promises.served((point(key),), at)
        version = self.machine.read(key, at)
        assert version == self.machine.read(key, LATEST)
        self.reads.append((key, at, version.value if version else None))


def decode(command: bytes) -> WriteBatch:
    found = decode_command(command)
    assert isinstance(found, WriteBatch)
    return found


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(("enter", "decide", "place", "apply", "write", "write", "read", "read", "takeover")),
        st.sampled_from((0, 0, 1, 2, 5, -1, 30, -30)),
        st.sampled_from(KEYS),
        st.integers(0, 5),
    ),
    min_size=15,
    max_size=50,
)


@given(events=EVENTS, lag=st.sampled_from((0, 0, TICK, 4 * TICK)))
def test_served_reads_stay_true_and_nothing_is_written_at_or_below_what_is_closed(
    events: list[tuple[str, int, Key, int]], lag: int
) -> None:
    """R3, R4, R5: what was read at T is what a later look at T finds; closed timestamps rise along the log."""
    ranges = Ranges(lag)
    for number, (kind, jump, key, choice) in enumerate(events):
        wall_ns = (100 + number + jump) * TICK
        if kind == "enter":
            ranges.enter(key, wall_ns, choice * TICK)
        elif kind == "write":
            ranges.write(key, wall_ns, choice)
        elif kind == "decide":
            ranges.decide(choice)
        elif kind == "place":
            ranges.place(choice, wall_ns)
        elif kind == "apply":
            ranges.apply()
        elif kind == "read":
            ranges.read(key, wall_ns)
        else:
            if choice % 2:
                ranges.hand_over()
            ranges.take_over(wall_ns)
    while ranges.placed:
        ranges.apply()
    for key, at, value in ranges.reads:
        version = ranges.machine.read(key, at)
        assert (version.value if version else None) == value


def test_a_write_enters_above_the_closed_timestamp_that_was_assigned_last() -> None:
    promises = Promises(1, 0, 50)
    first = promises.enter(10)
    assert first.timestamp == 51
    assert promises.close(1_000) == 50, "what is in flight holds it back"
    promises.leave(first)
    promises.leave(first)
    assert promises.close(1_000) == 1_000
    assert promises.close(10) == 1_000, "it never goes back"
    assert promises.enter(700).timestamp == 1_001
    promises.served((point(KEYS[0]),), 2_000)
    assert promises.summary() == (1_000, 2_000)


def test_with_the_flaw_closed_ignores_inflight_what_is_in_flight_holds_nothing_back() -> None:
    promises = Promises(1, 0, 50, frozenset({"closed-ignores-inflight"}))
    promises.enter(700)
    assert promises.close(1_000) == 1_000


def test_with_the_flaw_closed_goes_back_a_write_enters_below_what_was_told() -> None:
    promises, shared = Promises(1, 0, 50, frozenset({"closed-goes-back"})), SharedClosed(100)
    assert promises.share(shared, lambda: None) and promises.closed == 100
    assert promises.enter(90).timestamp == 90


def test_a_lease_closes_from_what_is_applied_or_was_promised_before_on() -> None:
    assert Promises(2, 70, 50).closed == 70
    assert Promises(2, 50, 70).closed == 70
    assert Promises(2, 70, 50).enter(60).timestamp == 71


def test_quiet_ranges_close_together_until_a_write_enters() -> None:
    shared, left = SharedClosed(80), []
    promises = Promises(1, 0, 50)
    write = promises.enter(90)
    assert not promises.share(shared, lambda: left.append(promises.closed)), "it might still write there"
    promises.leave(write)
    assert promises.share(shared, lambda: left.append(promises.closed))
    shared.closed = 100
    assert promises.closed == 100 and left == []
    assert promises.enter(90).timestamp == 101
    shared.closed = 120
    assert promises.closed == 100 and left == [100], "with what was closed when it left"
    ahead = Promises(1, 0, 130)
    assert ahead.share(shared, lambda: None) and ahead.closed == 130, "C never falls"
    ahead.leave_shared()
    assert ahead.closed == 130
