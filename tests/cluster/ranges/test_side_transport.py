"""The side transport of one node: what a tick costs, when ranges leave, and what is told."""

from __future__ import annotations

from collections.abc import Callable

from cluster.knobs import Knobs
from cluster.ranges.observer import RangeObserver
from cluster.ranges.promises import Promises, SharedClosed
from cluster.ranges.side_transport import Joined, SideTransport
from cluster.store.clock_guard import ClockLimits
from cluster.store.node_clock import NodeClock
from cluster.wire.closing import ClosedAt, ClosedUpdate, decode_side
from harness.ports.api import Peer
from harness.ports.sim.world import World

S = 1_000_000_000
KNOBS = Knobs(closed_lag_ms=1_000, side_transport_ms=200)


class Range:
    """A leaseholder's side of a range: silent, or with a record that ends."""

    def __init__(self, range_id: str, end: int | None = None) -> None:
        self.range_id, self.end, self.policy, self.leads = range_id, end, S, True
        self.promises, self.asked, self.kept = Promises(1, 0, 0), 0, list[ClosedAt]()

    def join(self, shared: SharedClosed, on_leave: Callable[[], None]) -> Joined | None:
        self.asked += 1
        if self.end is not None and shared.closed >= self.end:
            return None
        joined = Joined(1, 7, ("t2",), self.end)
        return joined if self.promises.share(shared, on_leave) else None

    def leave(self) -> None:
        self.promises.leave_shared()

    def keep(self, known: ClosedAt) -> None:
        self.kept.append(known)


class Posted:
    """Streams that lead nowhere: what was sent."""

    def __init__(self) -> None:
        self.sent: list[ClosedUpdate] = []
        self.until = 1 << 62

    def post_aside(self, target: str, message: bytes) -> None:
        update = decode_side(message)
        assert target == "t2" and isinstance(update, ClosedUpdate)
        self.sent.append(update)

    def supported(self, server: str) -> int:
        return self.until

    def refuses(self, peer: Peer, source: str) -> bool:
        return False


def ticking(ranges: list[Range], scenario: Callable[[Posted, Callable[[float], None], NodeClock], None]) -> None:
    """With these ranges on a node; `go_on` lets time pass."""
    with World(1) as world:
        ports, posted = world.harness_ports("t1"), Posted()
        clock = NodeClock(ports.clock, ClockLimits.of(KNOBS))
        transport = SideTransport(ports, KNOBS, clock, posted, RangeObserver(), frozenset())
        for each in ranges:
            transport.attend(each)
            transport.consider(each.range_id)
        transport.start()

        def go_on(seconds: float) -> None:
            world.run(ports.clock.sleep(seconds))

        scenario(posted, go_on, clock)
        transport.close()


def test_a_tick_costs_what_changed() -> None:
    ranges = [Range(f"r{number}") for number in range(1_000)]

    def scenario(posted: Posted, go_on: Callable[[float], None], clock: NodeClock) -> None:
        go_on(1.1)
        assert [each.asked for each in ranges] == [1] * 1_000 and len(posted.sent[0].added) == 1_000
        go_on(2)
        assert [each.asked for each in ranges] == [1] * 1_000
        assert [(each.added, each.removed) for each in posted.sent[1:]] == [((), ())] * (len(posted.sent) - 1)
        assert len({each.promises.closed for each in ranges}) == 1
        entered = ranges[3].promises.enter(0).timestamp
        ranges[3].promises.leave(ranges[3].promises.enter(0))
        posted.sent.clear()
        go_on(0.21)
        assert posted.sent[0].removed == ("r3",) and sum(each.asked for each in ranges) == 1_001
        assert dict(posted.sent[0].times)[S] > entered

    ticking(ranges, scenario)


def test_nothing_is_closed_beyond_the_end_of_a_record_or_of_what_is_promised() -> None:
    awake, silent = Range("awake"), Range("silent")

    def scenario(posted: Posted, go_on: Callable[[float], None], clock: NodeClock) -> None:
        awake.end = clock.shown() + S
        go_on(1.1)
        assert awake.promises.closed == silent.promises.closed > 0
        posted.until = silent.promises.closed + S // 2
        go_on(3)
        assert silent.promises.closed == posted.until - 1
        posted.until = 1 << 62
        go_on(3)
        assert awake.promises.closed < awake.end <= silent.promises.closed

    ticking([awake, silent], scenario)


def test_what_a_range_has_closed_when_it_leaves_is_kept_and_told_no_further() -> None:
    left = Range("left")

    def scenario(posted: Posted, go_on: Callable[[float], None], clock: NodeClock) -> None:
        go_on(1.1)
        left.leads = False
        left.leave()
        closed = left.promises.closed
        go_on(1)
        assert left.promises.closed == closed and left.kept == [ClosedAt("left", 7, closed)]
        assert [update.removed for update in posted.sent if update.removed] == [("left",)]

    ticking([left], scenario)
