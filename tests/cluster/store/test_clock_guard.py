from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.store.clock_guard import ClockFence, ClockGuard, ClockLimits, Measurement

MS = 1_000_000
SECOND = 1_000 * MS
LIMITS = ClockLimits(500 * MS, 0.01)
PEERS = ("b", "c")


@dataclass
class Clocks:
    """A node's wall clock, `offset_ns` from true time, its monotonic clock, and the guard; peers have offsets too."""

    offset_ns: int = 0
    now_ns: int = 1_000 * SECOND
    peers: dict[str, int] = field(default_factory=lambda: dict.fromkeys(PEERS, 0))

    def __post_init__(self) -> None:
        self.guard = ClockGuard(LIMITS, self.wall_ns, self.now_ns)
        self.guard.expect(self.peers)

    @property
    def wall_ns(self) -> int:
        return self.now_ns + self.offset_ns

    def judge(self) -> ClockFence | None:
        return self.guard.judge(self.wall_ns, self.now_ns)

    def measure(self, *peers: str, error_ns: int = 5 * MS, shift_ns: int = 0) -> None:
        """`shift_ns` is how wrong the measurement is, within its error."""
        self.judge()
        for peer in peers or tuple(self.peers):
            offset_ns = self.peers[peer] - self.offset_ns + shift_ns
            lead_ns = self.wall_ns - self.now_ns
            self.guard.measured(peer, Measurement(offset_ns, error_ns, lead_ns, self.now_ns))

    def wait(self, seconds: float) -> None:
        self.now_ns += int(seconds * SECOND)


def trusted(offset_ns: int = 0) -> Clocks:
    clocks = Clocks(offset_ns)
    clocks.measure()
    assert clocks.judge() is None
    return clocks


def test_a_clock_is_fenced_until_a_quorum_has_proven_it() -> None:
    clocks = Clocks()
    assert clocks.judge() is ClockFence.UNPROVEN
    clocks.measure("b")
    assert clocks.judge() is None


@pytest.mark.parametrize("sign", [1, -1])
def test_a_jump_above_half_the_maximum_offset_fences_and_a_smaller_one_does_not(sign: int) -> None:
    clocks = trusted()
    clocks.offset_ns += sign * 240 * MS
    assert clocks.judge() is None
    clocks.offset_ns += sign * 260 * MS
    assert clocks.judge() is ClockFence.JUMPED


def test_many_small_jumps_are_found_by_what_the_peers_show() -> None:
    clocks = trusted()
    for _ in range(2):
        clocks.offset_ns += 240 * MS
        assert clocks.judge() is None
        clocks.wait(0.1)
    clocks.offset_ns += 240 * MS
    assert clocks.judge() is ClockFence.UNPROVEN


def test_a_clock_that_jumps_back_to_where_it_was_is_trusted_again() -> None:
    clocks = trusted()
    clocks.offset_ns += 10 * SECOND
    assert clocks.judge() is ClockFence.JUMPED
    clocks.measure()
    assert clocks.judge() is ClockFence.JUMPED
    clocks.offset_ns -= 10 * SECOND
    assert clocks.judge() is None


def test_a_jump_that_the_peers_agree_with_is_accepted_for_good() -> None:
    clocks = trusted(offset_ns=-400 * MS)
    clocks.offset_ns = 0
    assert clocks.judge() is ClockFence.JUMPED, "what was measured before the jump proves nothing"
    clocks.measure()
    assert clocks.judge() is None
    clocks.wait(1.0)
    assert clocks.judge() is None


def test_a_jump_that_the_peers_contradict_stays_fenced_for_ever() -> None:
    clocks = trusted()
    clocks.offset_ns = -2 * SECOND
    for _ in range(100):
        clocks.wait(1.0)
        clocks.measure()
        assert clocks.judge() is ClockFence.JUMPED


def test_where_there_are_no_peers_jumps_alone_fence() -> None:
    clocks = Clocks(peers={})
    assert clocks.judge() is None
    clocks.offset_ns = 10 * SECOND
    assert clocks.judge() is ClockFence.JUMPED
    clocks.offset_ns = 0
    assert clocks.judge() is None


def test_a_clock_that_nobody_measures_any_more_is_fenced_after_a_while() -> None:
    clocks = trusted()
    clocks.wait(20)
    assert clocks.judge() is None
    clocks.wait(10)
    assert clocks.judge() is ClockFence.UNPROVEN
    clocks.measure("c")
    assert clocks.judge() is None


def test_a_measurement_that_is_too_vague_proves_nothing() -> None:
    clocks = Clocks()
    clocks.measure(error_ns=600 * MS)
    assert clocks.judge() is ClockFence.UNPROVEN


def test_a_vague_measurement_does_not_replace_a_precise_one_that_it_agrees_with() -> None:
    clocks = trusted()
    clocks.wait(1.0)
    clocks.measure(error_ns=600 * MS)
    assert clocks.judge() is None


def test_a_peer_that_jumped_is_believed_anew_and_one_of_two_is_outvoted() -> None:
    clocks = trusted()
    clocks.peers["b"] = 10 * SECOND
    clocks.wait(0.1)
    clocks.measure(error_ns=100 * MS)
    assert clocks.judge() is None
    clocks.peers["c"] = 10 * SECOND
    clocks.wait(0.1)
    clocks.measure(error_ns=100 * MS)
    assert clocks.judge() is ClockFence.UNPROVEN


def test_forgotten_peers_count_no_more_and_new_ones_must_be_measured() -> None:
    clocks = trusted()
    clocks.guard.expect(("b", "d", "e"))
    assert clocks.judge() is ClockFence.UNPROVEN
    clocks.guard.expect(("b",))
    assert clocks.judge() is None


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("jump"), st.integers(-2_000, 2_000)),
        st.tuples(st.just("small"), st.integers(-240, 240)),
        st.tuples(st.just("peer"), st.integers(-2_000, 2_000)),
        st.tuples(st.just("wait"), st.integers(1, 8_000)),
        st.tuples(st.just("measure"), st.integers(-40, 40)),
    ),
    min_size=1,
    max_size=40,
)


@given(steps=STEPS, start=st.integers(-1_000, 1_000))
def test_a_trusted_clock_lies_within_the_maximum_offset_of_a_quorum_and_was_never_seen_to_jump(
    steps: list[tuple[str, int]], start: int
) -> None:
    """Peers' clocks stand still but for jumps, and a jump of a peer is known only when it is measured again."""
    clocks = Clocks(start * MS)
    shown = dict(clocks.peers)
    for kind, amount in steps:
        before_ns, was = clocks.offset_ns, clocks.judge()
        if kind in ("jump", "small"):
            clocks.offset_ns += amount * MS
        elif kind == "peer":
            clocks.peers["b"] = amount * MS
        elif kind == "wait":
            clocks.wait(amount / 1e3)
        else:
            clocks.measure(error_ns=abs(amount) * MS + 5 * MS, shift_ns=amount * MS)
            shown = dict(clocks.peers)
        fence = clocks.judge()
        near = sum(abs(offset_ns - clocks.offset_ns) <= LIMITS.max_offset_ns for offset_ns in shown.values())
        assert fence is not None or near >= 1
        if was is None and abs(clocks.offset_ns - before_ns) > LIMITS.max_jump_ns + 2 * MS:
            assert fence is ClockFence.JUMPED


@given(
    offsets=st.lists(st.integers(-225, 225), min_size=3, max_size=3),
    jumps=st.lists(st.integers(-225, 225), max_size=10),
)
def test_within_the_declared_bounds_a_measurement_always_frees_the_clock(offsets: list[int], jumps: list[int]) -> None:
    """Availability: every clock within half the maximum offset of true time is trusted once it was measured."""
    clocks = Clocks(offsets[0] * MS, peers={"b": offsets[1] * MS, "c": offsets[2] * MS})
    for offset in (offsets[0], *jumps):
        clocks.offset_ns = offset * MS
        clocks.wait(0.2)
        clocks.measure()
        assert clocks.judge() is None
