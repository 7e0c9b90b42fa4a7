"""Where leases end by one node's clock (G3), and what a node says of its earlier lives."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.knobs import Knobs
from cluster.ranges.lease import Holding, NodeLeaseEnds, latest_end

MS = 1_000_000
KNOBS = Knobs(tablet_lease_ms=900, support_ms=700, max_clock_offset_ms=500)
SUPPORT_NS, OFFSET_NS = 700 * MS, 500 * MS


class Wall:
    """As much of a node's clock as is asked for."""

    def __init__(self, now_ns: int, fenced: bool = False) -> None:
        self.now_ns = self.last = now_ns
        self.fenced = "unproven" if fenced else None

    def shown(self) -> int:
        return self.now_ns


def ends(clock: Any) -> NodeLeaseEnds:
    return NodeLeaseEnds(clock, KNOBS)


def test_a_heartbeat_asks_for_support_from_the_last_reading_on() -> None:
    """While the clock is fenced that stands still, wherever the wall clock has jumped to."""
    clock = Wall(5_000)
    found = ends(clock)
    clock.now_ns = 10**18
    assert found.next_end() == 5_000 + SUPPORT_NS


def test_what_was_promised_before_is_not_known_until_the_clock_is_proven_and_stays_then() -> None:
    clock = Wall(1_000, fenced=True)
    found = ends(clock)
    clock.fenced = None
    assert found.before_start() is None, "it has no peers yet to be measured against"
    clock.fenced = "unproven"
    found.begin()
    assert found.before_start() is None
    clock.now_ns, clock.fenced = 9_000, None
    found.look()
    clock.now_ns, clock.fenced = 80_000, "jumped"
    assert found.before_start() == 9_000 + SUPPORT_NS + 2 * OFFSET_NS


@given(
    sender=st.integers(0, OFFSET_NS),
    led=st.integers(0, OFFSET_NS),
    receiver=st.integers(0, OFFSET_NS),
    down_ns=st.integers(0, 10**10),
)
def test_nothing_that_was_promised_before_a_restart_is_above_what_is_said_after_it(
    sender: int, led: int, receiver: int, down_ns: int
) -> None:
    """Clocks lie within the maximum offset of each other; the sender's may have been led by as much by a clock that was
    not yet fenced. Ends that a trusted receiver would have refused were not promised."""
    now_ns = 10**12
    until = now_ns + sender + led + SUPPORT_NS
    clock: Any = Wall(now_ns + down_ns + receiver)
    assert latest_end(clock, KNOBS) >= until


@pytest.mark.parametrize("earlier", [None, 123])
def test_a_leader_whose_voters_cant_tell_waits_for_the_longest_that_there_may_be(earlier: int | None) -> None:
    clock: Any = Wall(1_000)
    holding: Any = SimpleNamespace(_clock=clock, _knobs=KNOBS, _flaws=frozenset(), _guessed=(0, 0), _used=0)
    group: Any = SimpleNamespace(term=3, ends=SimpleNamespace(earlier_until=earlier))
    found = [Holding._earlier_until(holding, group)]
    clock.now_ns = 70_000
    found.append(Holding._earlier_until(holding, group))
    assert found == [earlier or 1_000 + SUPPORT_NS + 2 * OFFSET_NS] * 2, (
        "guessed once in a term, or it would never be over"
    )
    holding._flaws = frozenset({"support-not-waited-out"})
    assert Holding._earlier_until(holding, group) == 0


def test_what_was_used_since_counts_where_a_voter_could_not_tell() -> None:
    """A leader that gave a lease up, without a record of it, and leads on began the next one within its use."""
    group: Any = SimpleNamespace(term=3, ends=SimpleNamespace(earlier_until=None, lease_extension=0))
    clock: Any = Wall(1_000)
    holding: Any = SimpleNamespace(_clock=clock, _knobs=KNOBS, _flaws=frozenset(), _guessed=(0, 0), _used=0)
    holding._group, holding.on_extended = group, lambda *_: None
    guessed = Holding._earlier_until(holding, group)
    group.ends.lease_extension = guessed + 5
    assert Holding._earlier_until(holding, group) == guessed, "or a leader that falls silent would wait for ever"
    lease: Any = SimpleNamespace(sequence=1, expiration=10)
    assert Holding.end(holding, lease) == Holding._earlier_until(holding, group) == guessed + 5
