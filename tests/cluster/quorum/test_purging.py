"""Which deletions of logged tables may be forgotten, and which writes are refused for it, whoever decides (Q8)."""

from __future__ import annotations

from itertools import product

import pytest

from cluster.knobs import Knobs
from cluster.observer import Observer
from cluster.quorum.deletions import Deletion
from cluster.quorum.fence import NS_PER_MS, Fence, Gate, purgeable_below, too_old
from cluster.quorum.ids import MutationId
from cluster.quorum.replica import LoggedReplica
from cluster.wire.messages import CreateTablet, Partition
from harness.ports.sim.world import World

TIMES, GRACES = range(7), range(4)


def ns(milliseconds: int) -> int:
    return milliseconds * NS_PER_MS


def test_what_may_still_come_is_newer_than_every_deletion_that_was_forgotten() -> None:
    """What is new, or delivered because somebody lacked it, has an id from the bound on; nobody needs to agree."""
    cases = 0
    for deleted_at, local_ms, low_bound, grace_ms in product(TIMES, TIMES, TIMES, GRACES):
        if not purgeable_below(Deletion(ns(deleted_at), local_ms), ns(low_bound), grace_ms):
            continue
        for id_ms, written_at in product(range(low_bound, 8), TIMES):
            if not too_old([ns(written_at)], MutationId(ns(id_ms), "t1"), grace_ms):
                cases += 1
                assert written_at > deleted_at
    assert cases > 500


def test_a_deletion_that_is_forgotten_lies_below_the_bound_itself() -> None:
    cases = 0
    for deleted_at, local_ms, low_bound, id_ms, grace_ms in product(TIMES, TIMES, TIMES, TIMES, GRACES):
        each = MutationId(ns(id_ms), "t1")
        purged = purgeable_below(Deletion(ns(deleted_at), local_ms), ns(low_bound), grace_ms)
        if purged and not too_old([ns(deleted_at)], each, grace_ms):
            cases += 1
            assert each.time < ns(low_bound)
    assert cases > 100


def test_the_grace_period_counts_from_the_later_of_timestamp_and_clock() -> None:
    for deletion in (Deletion(ns(100), 40), Deletion(ns(40), 100)):
        assert not purgeable_below(deletion, ns(110), 10)
        assert purgeable_below(deletion, ns(110) + 1, 10)


class Purged(Observer):
    """Remembers what was forgotten."""

    def __init__(self) -> None:
        self.taken_ns: list[int] = []

    def deletion_purged(self, group: str, taken_ns: int) -> None:
        self.taken_ns.append(taken_ns)


def test_a_deletion_with_an_old_timestamp_is_told_of_as_young_as_it_is() -> None:
    """Its client may have chosen the timestamp long before the bound; it was made above it all the same."""
    with World(1) as world:
        ports, told = world.harness_ports("t1"), Purged()
        now_ms = ports.clock.wall_ns() // NS_PER_MS
        created = CreateTablet("t1", True, "tablet", "table", "name", Partition(0, 1), (), 0, (), "logged")
        for flaws, forgotten in (((), []), (("purge-unreconciled",), [ns(now_ms - 5)])):
            replica = LoggedReplica(ports, created, Knobs(deletion_grace_ms=5), told, flaws)
            assert replica.purgeable(b"p", Deletion(1, now_ms - 5)) == bool(flaws)
            assert told.taken_ns == forgotten


def test_each_timestamp_of_a_write_counts() -> None:
    each = MutationId(ns(10), "t1")
    assert not too_old([], each, 5) and not too_old([ns(6), ns(20)], each, 5)
    assert too_old([ns(5), ns(20)], each, 5) and too_old([ns(20), ns(5)], each, 5)


def test_a_bound_needs_a_durable_fence_and_each_record_tells_both() -> None:
    """A restarted gate is what the last record said."""
    gate = Gate(Fence(5, 3))
    fence = gate.close_below(9)
    with pytest.raises(ValueError, match="above the fence"):
        gate.raise_bound(9)
    assert gate.raise_bound(5) == Fence(9, 5) and gate.raise_bound(3) is None
    gate.now_durable(Fence(9, 5))
    assert fence == Fence(9, 3) and gate.close_below(12) == Fence(12, 5)
    again = Gate(gate.durable)
    assert again.asked == 9 and not again.admits(MutationId(8, "t1")) and again.raise_bound(9) == Fence(9, 9)


def test_a_gate_refuses_from_the_moment_a_fence_is_asked_for_and_never_goes_back() -> None:
    gate = Gate(Fence(5, 3))
    below, above = MutationId(8, "t1"), MutationId(9, "t1")
    assert gate.admits(below) and gate.quiet_below(9)
    gate.enter(below)
    fence = gate.close_below(9)
    assert fence == Fence(9, 3) and not gate.admits(below) and gate.admits(above)
    assert not gate.quiet_below(9) and gate.quiet_below(8)
    gate.leave(below)
    assert gate.quiet_below(9)
    gate.now_durable(Fence(9, 3))
    gate.now_durable(Fence(7, 4))
    assert gate.durable == Fence(9, 4) and gate.close_below(6) is None and not gate.admits(below)
    assert gate.known_everywhere(MutationId(3, "t1")) and not gate.known_everywhere(MutationId(4, "t1"))
