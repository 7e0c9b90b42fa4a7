"""Faults are read from nemesis operations: requested, observed, healed, recovered."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.history.ops import Op
from harness.verdict.facts import FaultKinds
from harness.verdict.faults import (
    NO_VICTIM,
    Fault,
    RoleHit,
    asked_s,
    faults_of,
    in_effect_s,
    missed,
    roles_hit,
    unobserved_kinds,
    why_unobserved,
)


def step(time_ns: int, step: str, took_ns: int = 10, process: int = -1, **facts: Any) -> list[Op]:
    """An invocation and completion of a nemesis step."""
    asked = {"fault": facts.pop("fault", "partition"), "instance": facts.pop("instance", 1), "step": step}
    if "variant" in facts:
        asked["variant"] = facts["variant"]
    invocation = Op("invoke", process, f"{step}-fault", value=asked, time=time_ns)
    return [invocation, invocation.complete("info", value={**asked, **facts}, time=time_ns + took_ns)]


def test_a_script_is_observed_when_its_core_was_reached_and_seen() -> None:
    begun = step(100, "begin", observed=True, core=False)
    missed_core = step(200, "step", observed=False, core=True)
    [fault] = faults_of([*begun, *missed_core])
    assert (fault.observed_ns, fault.cores) == (None, 0)
    assert why_unobserved("partition", [fault]).endswith("it began once, its core was never reached")
    [fault] = faults_of([*begun, *missed_core, *step(300, "step", observed=True, core=True)])
    assert (fault.observed_ns, fault.cores) == (310, 1)


def test_why_a_plain_fault_was_not_observed_is_not_about_cores() -> None:
    [fault] = faults_of(step(100, "begin"))
    assert fault.cores is None
    assert why_unobserved("partition", [fault]) == "the fault partition was never observed in effect"


def test_a_fault_that_went_as_it_should() -> None:
    events = [
        *step(
            100, "begin", variant="halves", targets=["t1", "t2"], observed=True, observed_ns=105, evidence={"cut": 4}
        ),
        Op("invoke", 3, "read", time=150),
        *step(200, "end", observed=True, observed_ns=207),
    ]
    fault = Fault("partition", 1, "halves", ("t1", "t2"), 100, 105, 200, 207, {"cut": 4}, begun_ns=105)
    assert faults_of(events) == (fault,)
    assert missed([fault]) == ()


def test_the_end_of_a_fault_tells_what_it_did_and_its_roles_are_kept() -> None:
    role = {"node": "t1", "role": "leaseholder", "group": "g", "term": 3, "held": False}
    [fault] = faults_of(
        [
            *step(100, "begin", observed=True, roles=[role], evidence={"armed": 5}),
            *step(200, "end", observed=True, evidence={"reached": {"log.before_sync": 3}}),
        ]
    )
    assert (fault.evidence, fault.ended) == ({"armed": 5}, {"reached": {"log.before_sync": 3}})
    assert fault.roles == (RoleHit(**role),)
    assert roles_hit("partition", [fault]) == (1, 0)


def test_in_effect_is_what_probes_saw_of_what_was_asked() -> None:
    second = 10**9
    events = [
        *step(0, "begin", observed=True, observed_ns=5, took_ns=10),
        *step(6 * second, "end", observed=True, spans=[[5, second + 5], [4 * second, 6 * second + 9]]),
    ]
    [fault] = faults_of(events)
    assert fault.spans == ((5, second + 5), (4 * second, 6 * second + 9))
    assert fault.effect_s == 3.0  # What a look saw after the heal was asked for does not count.
    assert fault.asked_s == pytest.approx(6.0)
    assert in_effect_s("partition", [fault]) == 3.0


def test_of_a_fault_that_found_nobody_to_hit_no_time_is_asked() -> None:
    """Seeds 42, 64 and 111 of a swarm: no node could be spared, where every one of them led some group."""
    done = [*step(0, "begin", observed=True), *step(10**9, "end", observed=True, spans=[[10, 10**9]])]
    idle = [*step(2 * 10**9, "begin", instance=2, observed=False, idle=True)]
    idle += step(4 * 10**9, "end", instance=2, observed=True, spans=[])
    faults = faults_of([*done, *idle])
    assert asked_s("partition", faults) == pytest.approx(1.0)
    assert [fault.instance for fault in missed(faults)] == [2]
    assert unobserved_kinds(["partition"], faults_of(idle)) == ("partition",)


@pytest.mark.parametrize(
    ("evidence", "why"),
    [({"reason": "no free node led as leader asks"}, "no free node led as leader asks"), ({}, NO_VICTIM)],
)
def test_a_fault_that_found_no_victim_is_skipped(evidence: dict[str, str], why: str) -> None:
    begun = step(0, "begin", observed=False, idle=True, evidence=evidence)
    for end in ([], step(10**9, "end", observed=True, spans=[])):
        [fault] = faults_of([*begun, *end])
        assert (fault.skipped, fault.observed_ns, fault.healed_ns, fault.recovered_ns) == (why, None, None, None)
        assert FaultKinds.of(("partition",), [fault]) == FaultKinds(("partition",), (), ("partition",))
    assert why_unobserved("partition", [fault]) == (
        f"the fault partition was never observed in effect: 1 of 1 skipped ({why})"
    )


def test_a_skipped_fault_does_not_hide_whose_failure_its_end_was() -> None:
    idle = [*step(0, "begin", observed=False, idle=True), *step(100, "end", observed=False, blame="database")]
    [fault] = faults_of(idle)
    assert (fault.blame, fault.healed_ns, fault.recovered_ns) == ("database", None, None)


def test_a_fault_that_was_never_seen_was_asked_for_all_the_same() -> None:
    [fault] = faults_of([*step(0, "begin", observed=False), *step(10**9, "end", observed=True, spans=[])])
    assert (fault.effect_s, fault.asked_s) == (0.0, pytest.approx(1.0))


def test_a_fault_that_probes_saw_later_than_it_was_waited_for_was_observed() -> None:
    """A hang between two steps, which came 8 s after it was armed."""
    late = [*step(0, "begin", observed=False), *step(10**9, "end", observed=True, spans=[[7 * 10**8, 10**9]])]
    [fault] = faults_of(late)
    assert (fault.observed_ns, fault.effect_s) == (7 * 10**8, pytest.approx(0.3))


def test_whose_failure_it_is_that_a_fault_was_not_seen_to_be_gone() -> None:
    [fault] = faults_of([*step(0, "begin", observed=True), *step(100, "end", observed=False, blame="harness")])
    assert (fault.recovered_ns, fault.blame) == (None, "harness")


def test_an_end_that_others_hid_is_told_when_they_are_over() -> None:
    hidden = [
        *step(100, "begin", observed=True),
        *step(200, "end", blame=None, others=[2], evidence={"silent": ["t1"]}),
    ]
    seen = {"fault": "partition", "instance": 1, "observed": True, "observed_ns": 305, "evidence": {"probed": 6}}
    other = step(300, "end", fault="kill", instance=2, observed=True, late=[seen])
    fault, _ = faults_of([*hidden, *other])
    assert (fault.recovered_ns, fault.blame, fault.left, fault.ended) == (305, None, None, {"probed": 6})
    missed = {**seen, "observed": False, "observed_ns": None, "blame": "harness"}
    nothing = step(300, "end", fault="kill", instance=None, observed=True, late=[missed])
    [fault] = faults_of([*hidden, *nothing])
    assert (fault.recovered_ns, fault.blame, fault.left) == (None, "harness", {"probed": 6})


def test_what_was_not_seen_has_no_time() -> None:
    events = [*step(100, "begin", observed=False), *step(200, "end", observed=False)]
    [fault] = faults_of(events)
    assert (fault.observed_ns, fault.healed_ns, fault.recovered_ns) == (None, 200, None)
    assert missed([fault]) == (fault,)
    assert unobserved_kinds(["kill", "partition"], [fault]) == ("kill", "partition")


def test_a_run_that_ended_in_the_middle_of_a_fault() -> None:
    [begun] = faults_of(step(100, "begin", observed=True)[:1])
    assert (begun.requested_ns, begun.observed_ns) == (100, None)
    [never_healed] = faults_of(step(100, "begin", observed=True))
    assert (never_healed.observed_ns, never_healed.healed_ns) == (110, None)


def test_a_time_from_another_clock_is_not_believed() -> None:
    for told in (0, 99, 111, 10**18, "soon", None):
        [fault] = faults_of(step(100, "begin", observed=True, observed_ns=told))
        assert fault.observed_ns == 110


def test_steps_of_a_script_add_targets_and_the_first_effect_counts() -> None:
    events = [
        *step(100, "begin", fault="script", observed=False, targets=["n1"]),
        *step(200, "step", fault="script", observed=True, targets=["n2", "n1"], evidence={"leader": "n2"}),
        *step(300, "step", fault="script", observed=True),
        *step(400, "end", fault="script", observed=True),
    ]
    [fault] = faults_of(events)
    assert fault.targets == ("n1", "n2")
    assert (fault.observed_ns, fault.recovered_ns) == (210, 410)
    assert fault.evidence == {"leader": "n2"}


def test_an_end_may_find_its_instance_only_when_it_is_carried_out() -> None:
    [invocation, completion] = step(200, "end", instance=None, observed=True)
    named = completion.complete("info", value={**completion.value, "instance": 1})
    [fault] = faults_of([*step(100, "begin", observed=True), invocation, named])
    assert (fault.healed_ns, fault.recovered_ns) == (200, 210)
    [untouched] = faults_of([*step(100, "begin", observed=True), invocation, completion])
    assert untouched.healed_ns is None


def test_other_nemesis_operations_are_no_faults() -> None:
    strange = [None, "text", {"fault": "kill"}, {"instance": 1}, 7]
    assert faults_of([Op("invoke", -1, "note", value=value, time=1) for value in strange]) == ()


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["kill", "pause"]), st.integers(1, 3), st.sampled_from(["begin", "end"]), st.booleans()
        ),
        max_size=12,
    )
)
def test_one_entry_for_each_kind_and_instance_with_times_in_order(steps: list[tuple[str, int, str, bool]]) -> None:
    events = []
    for number, (kind, instance, which, observed) in enumerate(steps):
        events += step(100 * number, which, fault=kind, instance=instance, observed=observed)
    faults = faults_of(events)
    asked = [(kind, instance) for kind, instance, _, _ in steps]
    assert [(fault.kind, fault.instance) for fault in faults] == list(dict.fromkeys(asked))
    for fault in faults:
        begun = any(one == (fault.kind, fault.instance, "begin", True) for one in steps)
        assert (fault.observed_ns is not None) == begun
        assert fault.observed_ns is None or fault.observed_ns >= fault.requested_ns
        assert fault.healed_ns is None or fault.healed_ns >= fault.requested_ns
