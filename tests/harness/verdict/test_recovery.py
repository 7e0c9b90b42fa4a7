"""What faults did to clients, and how soon they were served again."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from harness.history.ops import Op, read
from harness.history.summary import Served, served_in_events
from harness.verdict.adequacy import Floors, hurt_shortfall
from harness.verdict.faults import Fault
from harness.verdict.leaderships import Leadership
from harness.verdict.recovery import (
    Hurt,
    open_seconds,
    overlapping,
    recoveries,
    unmet_kinds,
    used_instances,
    used_nodes,
)

S = 1_000_000_000
END_NS = 60 * S


def fault(number: int, begin_s: float, end_s: float, kind: str = "kill", targets: tuple[str, ...] = ("t1",)) -> Fault:
    begin, end = int(begin_s * S), int(end_s * S)
    return Fault(kind, number, "one", targets, begin, begin, end, end, begun_ns=begin, spans=((begin, end),))


def served(completed_s: list[float], groups: int = 1, lasted_s: float = 0.01) -> Served:
    """Successful operations; their groups in turn."""
    completed = (np.array(completed_s) * S).astype(np.int64)
    invoked = completed - int(lasted_s * S)
    return Served(invoked, completed, np.ones(len(completed), dtype=bool), np.arange(len(completed)) % groups)


def steady(begin_s: float, end_s: float, rate_hz: float = 10.0) -> list[float]:
    return list(np.arange(begin_s, end_s, 1 / rate_hz))


def test_recovery_is_the_first_success_on_the_last_group_and_the_rate_before() -> None:
    slow = [22.0 + 0.5 * i for i in range(16)]
    one = fault(0, 10, 20)
    [found] = recoveries(served([*steady(0, 10), *slow, *steady(30, 60)], groups=4), [one], 4, END_NS)
    assert found.before_hz == pytest.approx(10.0)
    assert found.first_s == pytest.approx(3.5)
    assert found.rate_s == pytest.approx(10.0, abs=0.3)


def test_a_group_that_never_answers_again_has_no_recovery() -> None:
    some = served(steady(0, 60), groups=2)
    [found] = recoveries(some, [fault(0, 10, 20)], 3, END_NS)
    assert found.first_s is None


def test_what_the_next_fault_cut_short_is_not_known() -> None:
    first, second = fault(0, 10, 20), fault(1, 21, 30, "pause")
    found = recoveries(served([*steady(0, 10), *steady(25, 60)]), [first, second], 1, END_NS)
    assert (found[0].first_s, found[0].rate_s) == (None, None)
    assert found[1].first_s == pytest.approx(0.0, abs=0.11)
    within = recoveries(served(steady(0, 60)), [fault(0, 10, 20), fault(1, 15, 40)], 1, END_NS)
    assert (within[0].first_s, within[0].rate_s) == (None, None)


def test_operations_overlap_a_fault_only_where_it_was_seen() -> None:
    seen = Fault("partition", 0, None, (), 0, 10 * S, 20 * S, None, spans=((10 * S, 11 * S),))
    assert overlapping(served(steady(0, 30), lasted_s=0.0), [seen], END_NS) == pytest.approx(11, abs=1)
    assert overlapping(served(steady(12, 20), lasted_s=0.0), [seen], END_NS) == 0


def test_a_kind_that_was_in_effect_only_while_no_client_worked_is_told() -> None:
    """Another kind overlapped enough for both; a script's core is a moment that may fall between two operations."""
    faults = [fault(0, 10, 20), fault(1, 31, 40, "pause"), msgspec.structs.replace(fault(2, 41, 42, "script"), cores=1)]
    some = served(steady(0, 30))
    assert unmet_kinds(some, faults, END_NS) == ("pause",)
    assert unmet_kinds(some, [*faults, fault(3, 5, 6, "pause")], END_NS) == ()
    hurt = Hurt(300, 100, 2, 2, unmet=("pause",))
    assert list(hurt_shortfall(hurt, Floors(), True)) == ["no operation was open while pause was in effect"]


def test_a_fault_on_nodes_that_nobody_uses_is_counted_as_such() -> None:
    faults = [fault(0, 1, 2, targets=("t4",)), fault(1, 3, 4, targets=("m1",)), fault(2, 5, 6, targets=("t4", "t1"))]
    assert used_instances(faults, ("t1", "t4"), ("t1",)) == (3, 2)
    assert used_instances(faults[:1], ("t1", "t4"), ("t1",)) == (1, 0)


def test_who_keeps_replicas_for_a_leader_that_answered_is_used() -> None:
    """`snapshot-race`, seed 201: its followers had answered no client themselves."""
    led = [Leadership("a", 1, "t1", 0, 9, ("t1", "t2", "t3")), Leadership("b", 1, "t4", 0, 9, ("t3", "t4", "t5"))]
    assert used_nodes({"t1"}, led) == {"t1", "t2", "t3"}
    assert used_nodes(set(), led) == set()
    faults = [fault(0, 1, 2, targets=("t2",)), fault(1, 1, 2, targets=("t5",))]
    assert used_instances(faults, ("t2", "t5"), used_nodes({"t1"}, led)) == (2, 1)


def test_faults_that_passed_the_clients_by_are_told() -> None:
    assert list(hurt_shortfall(Hurt(1000, 300, 4, 4), Floors(), True)) == []
    assert list(hurt_shortfall(Hurt(1000, 3, 4, 4), Floors(), False)) == []
    assert list(hurt_shortfall(Hurt(1000, 3, 4, 0), Floors(), True)) == [
        "only 3 of 1000 operations were open while a fault was in effect; the floor is 1%",
        "only 0 of 4 faults hit a node that clients used; the floor is 25%",
    ]


def test_clients_whom_a_fault_keeps_waiting_are_hurt_though_they_begin_little() -> None:
    """Seed 38 of a swarm: three clients waited for a dead leaseholder, in 12 of 2 419 operations."""
    quick, slow = served(steady(0, 50, rate_hz=48)), served([13.0, 13.0, 13.0], lasted_s=3.0)
    both = Served(*(np.concatenate([getattr(each, name) for each in (quick, slow)]) for name in Served.__slots__))
    kill, again = fault(0, 10, 13), fault(1, 11, 12, "pause")
    open_s, hurt_s = open_seconds(both, [kill, again], END_NS)
    assert open_s == pytest.approx(24 + 9, abs=0.1)
    assert hurt_s == pytest.approx(9 + 3 * 0.48, abs=0.1), "what two faults hurt counts once"
    hurt = Hurt(2403, 12, 1, 1, (), open_s, hurt_s)
    assert list(hurt_shortfall(hurt, Floors(), True)) == []
    brief = Hurt(2400, 12, 1, 1, (), *open_seconds(quick, [fault(0, 10, 10.2)], END_NS))
    assert len(list(hurt_shortfall(brief, Floors(), True))) == 1, "a brief fault that kept nobody waiting"


def test_times_and_groups_are_read_from_a_history() -> None:
    events = []
    for number in range(4):
        asked = Op("invoke", number, "read", mops=(read(number),), time=number, phase="main")
        events.append(asked)
        if number < 3:
            events.append(asked.complete("ok" if number else "fail", time=number + 10))
    found = served_in_events(events, "main", 3, 99)
    assert found.invoked_ns.tolist() == [0, 1, 2, 3]
    assert found.completed_ns.tolist() == [10, 11, 12, 99]
    assert found.ok.tolist() == [False, True, True, False]
    assert found.group.tolist() == [0, 1, 2, 0]
