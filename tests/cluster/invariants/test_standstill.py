"""What never moves in a healthy cluster is told, once it was healthy for longer than that may take."""

from __future__ import annotations

import pytest
from watched_cluster import GROUP, SECOND, TestClock

from cluster.invariants.findings import BreachLog
from cluster.invariants.standstill import LOOK_NS, STANDS_STILL, IdleBounds, Standstill
from cluster.invariants.watch import Watch
from cluster.knobs import Knobs

PATIENCE = IdleBounds.of(Knobs(reconcile_period_ms=500, closed_lag_ms=0, snapshot_entries=10, side_transport_ms=0))


class Rig:
    """A watch of what stands still, in a cluster that is healthy or not."""

    def __init__(self, patience: IdleBounds = PATIENCE) -> None:
        self.now_ns = 0
        self.down: tuple[str, ...] | None = ()
        self.findings = BreachLog(lambda: (self.now_ns, 0))
        self.life = self.findings.lives.begin("a", 1)
        self.watch = Standstill(self.findings, lambda: (self.now_ns, 0), lambda: self.down, patience)

    def go_on(self, seconds: float) -> int:
        """Time passes, with a look every quarter of a second; how many breaches there are by then."""
        until_ns = self.now_ns + int(seconds * SECOND)
        while self.now_ns < until_ns:
            self.now_ns += LOOK_NS
            self.watch.look()
        return self.findings.record().broken.get(STANDS_STILL, 0)


def test_a_low_bound_that_does_not_rise_is_told_once() -> None:
    rig = Rig()
    for bound in (1, 2):
        rig.watch.bound(GROUP, bound)
        assert rig.go_on(3) == 0
    assert rig.go_on(3) == 1 and rig.go_on(9) == 1
    assert rig.findings.record().checked[STANDS_STILL] > 10


def test_a_low_bound_waits_for_a_clock_that_was_set_back() -> None:
    rig = Rig(IdleBounds.of(Knobs(reconcile_period_ms=500, max_clock_offset_ms=4000)))
    rig.watch.bound(GROUP, 1)
    assert rig.go_on(11) == 0 and rig.go_on(2) == 1


def test_a_range_is_closed_whether_anybody_writes_to_it_or_not() -> None:
    rig = Rig(IdleBounds.of(Knobs(closed_lag_ms=3_000, side_transport_ms=200)))
    wall_ns = 1_000 * SECOND
    rig.watch.leased(GROUP, 1)
    for _ in range(5):
        rig.watch.closes(GROUP, wall_ns + rig.now_ns - 3 * SECOND, wall_ns + rig.now_ns)
        assert rig.go_on(4) == 0
    rig.watch.closes(GROUP, wall_ns, wall_ns + rig.now_ns)
    assert rig.go_on(0.25) == 0, "what was closed once stays closed"
    assert rig.go_on(4) == 1 and rig.go_on(9) == 1


@pytest.mark.parametrize(
    ("down", "failed", "breaches"),
    [((), "", 1), (("c",), "", 1), (("b", "c"), "", 0), (("c",), "b", 0), (("c",), "c", 1), (None, "", 0)],
)
def test_a_range_is_closed_while_most_of_its_voters_run(
    down: tuple[str, ...] | None, failed: str, breaches: int
) -> None:
    patience = IdleBounds.of(Knobs(closed_lag_ms=3_000, side_transport_ms=200))
    rig = Rig(patience)
    rig.watch.leased(GROUP, 1)
    rig.watch.configured(GROUP, ("a", "b", "c"))
    for server in ("a", "b", "c"):
        rig.watch.opened(GROUP, server)
    if failed:
        rig.watch.closed_for_good(GROUP, failed)
    rig.down = down
    rig.watch.bound(GROUP, 1)  # is not asked for while a node is down
    idle_s, lease_s = patience.idle_closed_ns / SECOND, patience.lease_ns / SECOND
    assert rig.go_on(idle_s + (lease_s if down else 0)) == 0
    assert rig.go_on(1) == breaches


def test_who_was_down_is_waited_for_anew_and_has_to_open_its_replica() -> None:
    rig = Rig(IdleBounds.of(Knobs(closed_lag_ms=3_000, side_transport_ms=200)))
    rig.watch.leased(GROUP, 1)
    rig.watch.configured(GROUP, ("a", "b", "c"))
    for server in ("a", "b", "c"):
        rig.watch.opened(GROUP, server)
    for node in ("a", "b", "c") * 3:
        rig.down = (node,)
        assert rig.go_on(7) == 0
    rig.watch.began("a")
    assert rig.go_on(60) == 0
    rig.watch.opened(GROUP, "a")
    assert rig.go_on(1) == 1


def test_a_leader_gets_its_lease() -> None:
    rig = Rig()
    rig.watch.leased(GROUP, 1)
    rig.watch.leads(GROUP, 2, rig.life)
    rig.watch.leads("masters", 5, rig.life)
    assert rig.go_on(PATIENCE.lease_ns / SECOND - 1) == 0
    rig.watch.leased(GROUP, 2)
    assert rig.go_on(30) == 0
    rig.watch.leads(GROUP, 3, rig.life)
    assert rig.go_on(30) == 1
    rig.watch.leads("gone", 3, rig.life)
    rig.watch.leased("gone", 2)
    rig.watch.ended("gone")
    assert rig.go_on(30) == 1


@pytest.mark.parametrize(("behind_s", "seconds", "breaches"), [(1, 30, 0), (30, 1, 0), (30, 30, 1)])
def test_what_is_closed_follows_the_time(behind_s: int, seconds: int, breaches: int) -> None:
    rig = Rig()
    rig.go_on(seconds)
    rig.watch.closed(rig.life, GROUP, 900 * SECOND, (900 + behind_s) * SECOND)
    assert rig.findings.record().broken.get(STANDS_STILL, 0) == breaches


@pytest.mark.parametrize(("snapshot", "seconds", "breaches"), [(800, 30, 0), (10, 1, 0), (10, 30, 1)])
def test_a_log_is_cut_behind_snapshots(snapshot: int, seconds: int, breaches: int) -> None:
    rig = Rig()
    rig.go_on(seconds)
    rig.watch.logged(rig.life, "a", GROUP, 900, snapshot)
    assert rig.findings.record().broken.get(STANDS_STILL, 0) == breaches


def test_it_is_looked_at_where_all_groups_are_silent() -> None:
    """What servers go on to report is heard by masters: no message of a silent group leaves any more."""
    now_ns = 0
    watch = Watch(lambda: (now_ns, 0), down=tuple, knobs=Knobs(side_transport_ms=0))
    master = watch.observer("m1", 1, TestClock())
    watch.standstill.leased(GROUP, 2)
    watch.standstill.leads(GROUP, 3, 0)
    for _ in range(120):
        now_ns += LOOK_NS
        master.master_asked(object())
    assert watch.findings.record().broken == {STANDS_STILL: 1}


def test_nothing_is_expected_while_anything_is_disturbed() -> None:
    rig = Rig()
    rig.watch.bound(GROUP, 1)
    for _ in range(9):
        rig.go_on(3)
        rig.watch.began("a")
        rig.go_on(1)
        rig.down = None if rig.down == () else ()
    assert rig.findings.record().broken == {}
