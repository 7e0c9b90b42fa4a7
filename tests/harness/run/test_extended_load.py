"""A load goes on past its time while something that it needs has not been seen, and no longer than that may take."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.generators import delay, draw, invoke, sleep
from harness.generators.simulate import simulate
from harness.history.ops import Op, OpType
from harness.run.extended_load import WantedEvidence, WantedFaults, WantedFigures, until_seen, wanted, wanted_faults
from harness.verdict.adequacy import FloorOf, Floors
from tests.harness.run.memory_runs import Setup, kill

SECOND_NS = 1_000_000_000
WORK = draw(0, lambda context, chance, n: invoke("write", value={"after": "strong"}))


def figures(name: str, least: float) -> WantedFigures:
    return WantedFigures((FloorOf(name, least),))


def lasted_s(lacking: WantedEvidence, kinds: list[OpType], extra_s: float = 6.0) -> float:
    """When a load of four operations a second, of 2 s at first, begins its last one, with these ends and then `ok`."""

    def latency(op: Op, number: int) -> tuple[int, OpType]:
        return 1_000_000, kinds[number] if number < len(kinds) else "ok"

    events = simulate(until_seen(2.0, extra_s, lacking, delay(0.25, WORK)), latency=latency)
    return max(event.time for event in events if event.type == "invoke") / 1e9


@pytest.mark.parametrize(
    ("lacking", "ends", "last_s"),
    [
        (WantedEvidence(), [], 1.75),
        (WantedEvidence(successes={"write": 3}), ["ok"] * 3, 1.75),
        (WantedEvidence(successes={"write": 3}), ["ok", *["fail"] * 9], 3.0),
        (WantedEvidence(rate_hz=2.0), ["ok", *["info"] * 7], 3.25),
        (WantedEvidence(successes={"read": 1}), ["ok"], 7.75),
        (WantedEvidence(figures=figures("change after strong", 4)), [], 1.75),
        (WantedEvidence(figures=figures("change after strong", 12)), [], 2.75),
        (WantedEvidence(figures=figures("strong after change", 1)), [], 7.75),
        (WantedEvidence(wanted_faults(("kill",), Floors())), ["ok"], 7.75),
        (WantedEvidence(wanted_faults(("kill",), Floors())), ["fail"] * 100, 1.75),
    ],
)
def test_a_load_goes_on_until_it_has_what_it_lacks(lacking: WantedEvidence, ends: list[OpType], last_s: float) -> None:
    """Not where nothing ever succeeds, and not beyond its bound."""
    assert lasted_s(lacking, ends) == pytest.approx(last_s, abs=0.3)


def fault_step(kind: str, instance: int, step: str, at_s: float, **more: Any) -> list[Op]:
    """A step of a fault that took no time."""
    began = Op(
        "invoke", -1, step, value={"fault": kind, "instance": instance, "step": step}, time=int(at_s * SECOND_NS)
    )
    return [began, began.complete("info", value={**began.value, **more}, time=began.time)]


def lasted(kind: str, instance: int, at_s: float, seen_s: float, asked_s: float, **more: Any) -> list[Op]:
    """A fault from its begin to its end, and for how long probes saw it."""
    spans = [[int(at_s * SECOND_NS), int((at_s + seen_s) * SECOND_NS)]]
    began = fault_step(kind, instance, "begin", at_s, observed=seen_s > 0, **more)
    return [*began, *fault_step(kind, instance, "end", at_s + asked_s, observed=True, spans=spans)]


def after(lacking: WantedFaults, events: list[Op]) -> WantedFaults:
    for event in events:
        lacking = lacking.after(event)
    return lacking


def test_of_a_script_its_core_was_lacking_and_of_other_faults_one_that_came_to_its_end() -> None:
    lacking = wanted_faults(("power-cut", "kill"), Floors())
    for events, left in (
        (fault_step("power-cut", 0, "begin", 1, observed=None, core=False), ("power-cut", "kill")),
        (lasted("kill", 1, 2, 0, 1), ("power-cut", "kill")),
        (fault_step("kill", 2, "begin", 4, observed=True), ("power-cut", "kill")),
        (fault_step("power-cut", 0, "step", 5, observed=True, core=True), ("kill",)),
        (fault_step("kill", 2, "end", 9, observed=True, spans=[[4 * SECOND_NS, 9 * SECOND_NS]]), ()),
    ):
        lacking = after(lacking, events)
        assert lacking.lacking == left


def test_a_kind_lacks_something_until_it_was_seen_for_its_share_of_all_the_time_asked() -> None:
    """On a run of 600 s `clock-drift` was seen for 1.0 of the 2.5 s of its one instance, and the run was unknown."""
    lacking = wanted_faults(("clock-drift", "kill"), Floors())
    for events, left in (
        (lasted("clock-drift", 0, 1, 1.0, 2.5), ("clock-drift", "kill")),
        (lasted("kill", 1, 4, 0.2, 0.2), ("clock-drift", "kill")),
        (lasted("clock-drift", 2, 5, 3.0, 5.4), ("kill",)),
        (lasted("kill", 3, 12, 2.0, 2.0), ()),
        (lasted("clock-drift", 4, 15, 0.0, 3.0), ("clock-drift",)),
        (lasted("clock-drift", 5, 20, 5.0, 5.0), ()),
    ):
        lacking = after(lacking, events)
        assert lacking.lacking == left


def test_a_kind_that_hit_nodes_without_their_role_lacks_something() -> None:
    lost, held = (
        {"roles": [{"node": "m1", "role": "leader", "group": "g", "term": 1, "held": had}]} for had in (False, True)
    )
    lacking = after(wanted_faults(("kill",), Floors()), lasted("kill", 0, 1, 2, 2, **lost))
    assert lacking.lacking == ("kill",)
    assert after(lacking, lasted("kill", 1, 5, 2, 2, **held)).lacking == ()


def test_reads_by_nodes_that_a_fault_cut_off_are_waited_for() -> None:
    """Reads count that began and ended while the fault was seen, by a node that it hit, off the leaseholder."""

    def reads(node: str, *at_s: float, route: str = "follower by log") -> list[Op]:
        begun = [Op("invoke", 3, "read", mode="exact", time=int(each * SECOND_NS)) for each in at_s]
        return [
            event
            for op in begun
            for event in (op, op.complete("ok", node=node, route=route, time=op.time + SECOND_NS // 10))
        ]

    def cut(instance: int, at_s: float, events: list[Op]) -> list[Op]:
        first, last = (
            lasted("kill", instance, at_s, 2.0, 2.0, targets=["t1"])[:2],
            lasted("kill", instance, at_s, 2.0, 2.0)[2:],
        )
        return [*first, *events, *last]

    lacking = wanted(
        (), ("kill",), Floors(rate=0.0), None, (FloorOf("reads", 3, nemesis="kill"), FloorOf("x", 9, nemesis="pause"))
    )
    for events, is_lacking in (
        (reads("t1", 0.1, 0.2, 0.3), True),
        (cut(0, 1, [*reads("t1", 1.5), *reads("t2", 1.6, 1.7), *reads("t1", 1.8, route="leaseholder")]), True),
        (reads("t1", 3.5, 3.6), True),
        (cut(1, 4, reads("t1", 4.5, 5.95)), True),
        (cut(2, 7, reads("t1", 7.5)), False),
    ):
        for event in events:
            lacking = lacking.after(event)
        assert lacking.waited_for(100.0) is is_lacking


def test_a_run_asked_for_safety_only_waits_for_no_successes() -> None:
    bare = Floors(each_f=0.0, rate=0.0)
    assert wanted(("read",), (), bare, 100.0) == WantedEvidence(WantedFaults(floors=bare))
    assert wanted(("read",), ("kill",), Floors(), 100.0).faults.lacking == ("kill",)


def test_a_fault_that_comes_late_is_waited_for_and_the_verdict_counts_the_time(tmp_path: Path) -> None:
    late = [sleep(13), kill("begin"), sleep(1), kill("end"), sleep(60)]
    short = Setup(tmp_path).run(nemesis_generator=late, heal_generator=None)
    assert short.verdict.overall == "unknown"
    longer = Setup(tmp_path / "longer").run(nemesis_generator=late, heal_generator=None, extra_s=20.0)
    load = longer.verdict.adequacy.details["load_s"]
    assert load["asked"] == 10.0 and load["lasted"] == pytest.approx(14.0, abs=0.5)
    assert longer.verdict.overall == "valid"
