"""The four questions and the one word they make."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import UserError
from harness.verdict.adequacy import Floors, WorkDone, parse_floors
from harness.verdict.advice import remedy_of
from harness.verdict.failures import HarnessFailure
from harness.verdict.faults import Fault, RoleHit
from harness.verdict.run_verdict import Facts, Recovery, conclude, saved_form

S = 1_000_000_000
CUTS = (
    Fault("partition", 1, "halves", ("n1",), 5, None),
    Fault("partition", 2, "ring", ("n1",), 9, 12, 2 * S, 2 * S + 1),
)
SKIPPED = Fault("partition", 3, "leaseholder", (), 3 * S, skipped="nobody led")
DONE = WorkDone(
    fs=("read", "write"),
    counts={"read": {"ok": 600, "info": 3}, "write": {"ok": 300, "fail": 90}},
    load_s=10.0,
    rate_hz=100.0,
    keys=(30, 29),
    final_counts={"ok": 58, "info": 2},
)
GOOD = Facts(DONE, Floors(), ("partition",), CUTS, Recovery(True, 10.0, 1.5))
VALID = {"register": {"valid": True}, "stats": {"valid": True}}
LOST = RoleHit("t1", "leaseholder", "g", 2, held=False)
OUR_BUG = HarnessFailure("client", "KeyError: x", 3)


def facts(**changes: Any) -> Facts:
    """The good run with some of its facts, or of what it did, changed."""
    done = {name: changes.pop(name) for name in list(changes) if name in WorkDone.__struct_fields__}
    return msgspec.structs.replace(GOOD, done=msgspec.structs.replace(DONE, **done), **changes)


def test_a_good_run_is_valid_and_lists_the_instances_that_missed() -> None:
    verdict = conclude(GOOD, VALID)
    assert (verdict.overall, verdict.valid, verdict.exit_code, verdict.reasons) == ("valid", True, 0, ())
    assert verdict.adequacy.details["missed"] == [{"kind": "partition", "instance": 1}]
    assert verdict.adequacy.details["faults"] == {
        "partition": {"requested": 2, "observed": 1, "healed": 1, "recovered": 1, "asked_s": 0.0, "in_effect_s": 2.0}
    }
    assert verdict.adequacy.details["rate_hz"] == 90.0


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"fs": ("read", "write", "cas")}, "no cas succeeded"),
        ({"counts": {"read": {"info": 5}, "write": {"ok": 900}}}, "no read succeeded"),
        ({"counts": {}}, "no write succeeded"),
        ({"load_s": 100.0}, "only 9.0 operations a second succeeded, of 100 asked; the floor is 20%"),
        ({"load_s": 0.0}, "only 0.0 operations"),
        ({"requested_faults": ("partition", "kill")}, "the fault kill was never observed"),
        ({"faults": GOOD.faults[:1]}, "the fault partition was never observed"),
        ({"faults": (SKIPPED,)}, "the fault partition was never observed in effect: 1 of 1 skipped .nobody led.$"),
        ({"final_counts": {"fail": 5}}, "no final read succeeded"),
        ({"final_counts": {"ok": 1, "info": 59}}, "only 1 of 60 final reads succeeded; the floor is 90%"),
        ({"final_keys": (30, 3)}, "final reads answered for 3 of 30 keys in use; the floor is 90%"),
        ({"counts": {"read": {"ok": 890}, "write": {"ok": 1}}}, "only 1 write succeeded; the floor is 10"),
        ({"keys": (30, 30), "keys_in_all": 500}, "only 30 of 500 keys were asked for as often as 5 times"),
        ({"groups": (3, 1)}, "only 1 of 3 groups of keys ever answered; the floor is 90%"),
        (
            {"counts": {"read": {"ok": 20}, "write": {"ok": 2}}, "rate_hz": 1.0, "load_s": 22.0},
            "only 2 write succeeded; the floor is 3",
        ),
        ({"served": 809}, "only 809 of 900 operations that succeeded say which node answered; the floor is 90%"),
        ({"keys": (30, 20)}, "only 20 of 30 keys ever answered; the floor is 90%"),
        (
            {"counts": {"read": {"ok": 200, "info": 700}, "write": {"ok": 50, "fail": 50}}},
            "only 250 of 1000 operations succeeded; the floor is 30%",
        ),
        ({"faults": (Fault("partition", 1, "ring", (), 0, S, S + S // 10, 2 * S),)}, "in effect for 0.10 s; the floor"),
        ({"time_limit_s": 60.0}, r"the load lasted 10.0 of 60 s; the floor is 90%"),
        (
            {"faults": (Fault("partition", 1, "leaseholder", ("t1",), 0, S, 9 * S, 9 * S, roles=(LOST,)),)},
            "only 0 of 1 partition faults aimed at a role hit a node that held it; the floor is 50%",
        ),
        ({"unsealed": ("faults.json was changed",)}, "not those of one whole run: faults.json was changed"),
        ({"interrupted": True}, "stopped before its end"),
        ({"recovery": Recovery(None, 10.0)}, "recovery was not observed"),
        ({"failures": (OUR_BUG,)}, r"the harness failed \(client\): KeyError: x \(3 times\)"),
        ({"ended": False}, "the harness ended before the run did"),
    ],
)
def test_a_run_that_shows_nothing_is_unknown_and_says_why(changes: dict[str, Any], words: str) -> None:
    verdict = conclude(facts(**changes), VALID)
    assert (verdict.overall, verdict.valid, verdict.exit_code) == ("unknown", "unknown", 2)
    assert verdict.reasons
    assert any(re.search(words, reason) for reason in verdict.reasons)
    assert all(remedy_of(reason) for reason in verdict.reasons), "each says what to change"


def test_a_skipped_fault_costs_nothing_beside_one_that_was_seen_and_is_counted() -> None:
    verdict = conclude(facts(faults=(CUTS[1], SKIPPED)), VALID)
    counts = verdict.adequacy.details["faults"]["partition"]
    told = [counts[name] for name in ("requested", "observed", "healed", "recovered", "skipped", "skipped_because")]
    assert (verdict.overall, told) == ("valid", [2, 1, 1, 1, 1, ["nobody led"]])


def test_no_recovery_is_invalid_and_says_so() -> None:
    verdict = conclude(facts(recovery=Recovery(False, 10.0, None, "no leader")), VALID)
    assert (verdict.overall, verdict.exit_code) == ("invalid", 1)
    assert verdict.reasons == ("the cluster did not recover within 10 s of the last heal: no leader",)


def test_an_unsafe_history_is_invalid_whatever_else_failed() -> None:
    worst = facts(counts={}, failures=(OUR_BUG,), recovery=Recovery(None, 10.0), interrupted=True, ended=False)
    refuted = {"valid": False, "anomalies": {"stale-read": [{}], "lost-update": [{}]}}
    verdict = conclude(worst, {"stats": {"valid": "unknown"}, "register": refuted})
    assert (verdict.overall, verdict.exit_code) == ("invalid", 1)
    assert verdict.reasons[0] == "register found the history invalid: stale-read, lost-update"


def test_what_the_database_does_not_promise_is_invalid_all_the_same_and_told() -> None:
    why = "a legacy table does not promise it"
    lax = facts(unpromised={"write-atomicity": why, "monotonic-reads": why})
    refuted = {"valid": False, "anomalies": {"torn-read": [{}]}}
    verdict = conclude(lax, {"write-atomicity": refuted, "stats": {"valid": True}})
    assert verdict.overall == "invalid"
    assert verdict.reasons == (f"write-atomicity found the history invalid: torn-read ({why})",)
    assert conclude(lax, VALID).reasons == ()


def test_a_checker_that_cannot_tell_or_is_missing_makes_unknown() -> None:
    verdict = conclude(GOOD, {"register": {"valid": True}, "stats": {"valid": "unknown", "reason": "it crashed"}})
    assert (verdict.overall, verdict.reasons) == ("unknown", ("stats can't tell: it crashed",))
    assert conclude(GOOD, {}).overall == "unknown"
    assert conclude(GOOD, {"strange": {}}).overall == "unknown"


def test_failures_after_the_history_was_saved_cost_nothing_but_are_told() -> None:
    after = (HarnessFailure("tear down", "gone"), HarnessFailure("logs", "lost"))
    verdict = conclude(facts(failures=after), VALID)
    assert (verdict.overall, verdict.aftermath) == ("valid", after)


def test_as_fast_as_possible_has_no_rate_floor() -> None:
    assert conclude(facts(rate_hz=None, load_s=1e6), VALID).overall == "valid"


def test_the_saved_form_is_plain_data() -> None:
    saved = saved_form(conclude(facts(failures=(OUR_BUG,)), VALID))
    assert saved["valid"] == "unknown"
    assert saved["harness"]["details"]["failures"] == [
        {"stage": "client", "error": "KeyError: x", "times": 3, "where": ""}
    ]
    assert msgspec.json.decode(msgspec.json.encode(saved))["reasons"] == list(saved["reasons"])


def test_floors_can_be_set() -> None:
    floors = parse_floors({"keys": "0.5", "effect_s": "3"})
    assert (floors.keys, floors.effect_s, floors.rate) == (0.5, 3.0, Floors().rate)
    assert conclude(facts(keys=(30, 20), floors=parse_floors({"keys": "0.5"})), VALID).overall == "valid"
    for pairs in ({"speed": "1"}, {"keys": "2"}, {"keys": "-1"}, {"keys": "many"}):
        with pytest.raises(UserError, match="floor"):
            parse_floors(pairs)


WORDS = st.sampled_from([True, False, "unknown"])


@given(
    safety=st.lists(WORDS, max_size=3),
    recovered=st.sampled_from([True, False, None]),
    adequate=st.booleans(),
    harness=st.booleans(),
)
def test_the_one_word(safety: list[Any], recovered: bool | None, adequate: bool, harness: bool) -> None:
    given_facts = facts(
        recovery=Recovery(recovered, 10.0),
        counts=DONE.counts if adequate else {},
        failures=() if harness else (OUR_BUG,),
    )
    overall = conclude(given_facts, {str(n): {"valid": word} for n, word in enumerate(safety)}).overall
    if False in safety or recovered is False:
        assert overall == "invalid"
    elif safety and "unknown" not in safety and adequate and harness and recovered:
        assert overall == "valid"
    else:
        assert overall == "unknown"


def test_a_fault_that_was_healed_and_is_still_there_is_our_failure() -> None:
    left = {"silent": ["t1->t2"]}
    still = msgspec.structs.replace(CUTS[1], recovered_ns=None, blame="harness", left=left)
    verdict = conclude(facts(faults=(CUTS[0], still)), VALID)
    assert (verdict.overall, verdict.harness.answer, verdict.liveness.answer) == ("unknown", False, True)
    assert verdict.reasons == ("partition 2 was healed and not seen to be gone: nothing arrives over t1->t2",)


def test_a_node_that_does_not_come_back_when_it_is_healed_did_not_recover() -> None:
    lost = msgspec.structs.replace(CUTS[1], kind="kill", recovered_ns=None, blame="database")
    verdict = conclude(facts(faults=(*CUTS, lost)), VALID)
    assert (verdict.overall, verdict.liveness.answer, verdict.harness.answer) == ("invalid", False, True)
    assert verdict.reasons == ("what kill 2 hit (n1) did not come back when it was healed",)


def test_where_the_logs_of_a_killed_run_are_is_told() -> None:
    verdict = conclude(facts(ended=False, logs_left="the nodes' logs stay in the containers"), VALID)
    assert verdict.overall == "unknown"
    assert verdict.reasons[-1].endswith("what it had saved is judged; the nodes' logs stay in the containers")


def test_a_run_that_never_came_to_its_load_says_so_once() -> None:
    """A cluster that did not come up was told in twenty sentences, one for each fault that was asked for."""
    verdict = conclude(facts(counts={}, load_s=0.0, faults=(), requested_faults=("partition", "kill")), VALID)
    assert verdict.overall == "unknown"
    assert verdict.adequacy.reasons == ("no load was put on the database",)
