"""Signatures: what may differ between two findings of one signature, and what may not."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from assay.night.signature import (
    SYMPTOMS,
    Evidence,
    crash_signature,
    evidence_of,
    families_of,
    process_signature,
    signatures_of,
    symptom_of,
)
from harness.history.rundir import RunDir
from harness.protocols import Breach, InvariantsRecord
from harness.verdict.failures import FailureLog
from harness.verdict.faults import Fault
from harness.verdict.run_verdict import as_checker
from tests.support.signatures import SeenFinding, Worth, worth

ROOT = Path(__file__).parents[3]
RUNS = ROOT / "tests" / "data" / "runs"
EVIDENCE = "entry {entry} of term 2 is committed, but durable on {node} only"
STALE = "Process 4 read {old} from key {key} at 5.628 s on node {node} although process 1's write of 2 had completed"


def breach(name: str = "committed-on-a-quorum", step: int = 7, **other: Any) -> Breach:
    node, message, group = other.get("node", "m1"), other.get("message", EVIDENCE), other.get("group", "a" * 32)
    return Breach(name, message.format(node=node, entry=step), step * 10, step, (node,), group)


def broken(*breaches: Breach, **other: Any) -> Evidence:
    counts = {each.invariant: 1 for each in breaches}
    checkers = {"invariants": as_checker(InvariantsRecord(counts, counts, breaches)), **other.pop("checkers", {})}
    return Evidence({**other.pop("verdict", {}), "checkers": checkers}, **other)


def stale(old: object = 1, node: str = "t3", f: str = "read", at_s: int = 5, edge: str = "rw") -> dict[str, Any]:
    op = {"f": f, "node": node, "invoke_time": at_s * 10**9, "complete_time": at_s * 10**9 + 1}
    return {"message": STALE.format(old=old, key=7, node=node), "ops": [op], "steps": [{"kind": edge}]}


def seen(name: str = "stale-read", *items: dict[str, Any], model: str = "register", **other: Any) -> Evidence:
    found = {"valid": False, "anomalies": {name: list(items or [stale()])}}
    return Evidence({"checkers": {model: found, "stats": {"valid": True}}}, **other)


def stuck(reason: str, answer: str = "liveness", **other: Any) -> Evidence:
    return Evidence({"checkers": {}, answer: {"answer": False, "reasons": [reason]}}, **other)


def late(why: str) -> str:
    return f"the cluster did not recover within 10 s of the last heal: {why}"


FAULT = Fault("partition", 1, None, ("db-a",), 0, observed_ns=0, healed_ns=100, recovered_ns=101)

SAME = {
    "node, entry, step and group": (broken(breach()), broken(breach(step=9, node="n2", group="b" * 32))),
    "a node without a number": (broken(breach()), broken(breach(node="db-a"))),
    "later breaches": (broken(breach()), broken(breach(), breach("state-digest", 8))),
    "what is found at the end": (broken(breach()), broken(breach("end-state", 0), breach())),
    "two of a step, the other way": (
        broken(breach("a-b"), breach("c-d")),
        broken(breach("c-d"), breach("a-b")),
    ),
    "what clients saw beside a breach": (broken(breach()), broken(breach(), checkers=seen().verdict["checkers"])),
    "values, nodes and times": (seen(), seen("stale-read", stale("nil", "db-a", at_s=9))),
    "the order of a checker's findings": (
        seen("stale-read", stale(at_s=1), stale(f="cas", at_s=2)),
        seen("stale-read", stale(f="cas", at_s=2), stale(at_s=1)),
    ),
    "who was not ready": (stuck(late("t3 does not answer")), stuck(late("db-a does not answer"), nodes=["db-a"])),
    "how long it took": (stuck(late("t1, t2 are down")), stuck(late("t1 are down").replace("10", "30"))),
}  # fmt: skip


@pytest.mark.parametrize(("first", "second"), SAME.values(), ids=SAME)
def test_what_does_not_matter(first: Evidence, second: Evidence) -> None:
    """Judged again, elsewhere, at another time: the same signature."""
    (mine,), (other,) = signatures_of(first), signatures_of(second)
    assert mine.signature == other.signature


FAMILIES = {
    "breach": broken(breach()),
    "another breach": broken(breach("state-digest")),
    "an anomaly": seen(),
    "another symptom": seen("read-of-unwritten"),
    "another model": seen(model="snapshots"),
    "not recovered": stuck(late("t3 does not answer")),
    "not back": stuck("what kill 3 hit (t1 t2) did not come back when it was healed"),
    "a fault that stays": stuck("kill 3 was healed and not seen to be gone: t3 is dead", "harness"),
    "unsealed": stuck("the saved files are not those of one whole run: a.json", "harness"),
}

DETAILS = {
    "breach": broken(breach()),
    "the masters' group": broken(breach(group="catalog")),
    "another sentence": broken(breach(message="entry {entry} is durable nowhere")),
    "under a fault": broken(breach(), faults=[FAULT]),
    "an anomaly": seen(),
    "another f": seen("stale-read", stale(f="cas")),
    "another edge": seen("stale-read", stale(edge="wr")),
    "another name of a symptom": seen("lost-update"),
    "under a long fault": seen(faults=[Fault("kill", 1, None, (), 0, observed_ns=0)]),
}


def test_what_does() -> None:
    """Each family, and each detail, is told from all others."""
    assert len({signatures_of(each)[0].family for each in FAMILIES.values()}) == len(FAMILIES)
    assert len({signatures_of(each)[0].detail for each in DETAILS.values()}) == len(DETAILS)
    assert len({signatures_of(each)[0].family for each in DETAILS.values()}) == 2


def test_first_comes_first() -> None:
    """The earliest step is the family, not the first that is told; nothing is found where nothing is wrong."""
    (found,) = signatures_of(broken(breach("later", 9), breach("first", 3), breach("at-the-end", 0)))
    assert (found.family_words["invariant"], found.step, found.at_s) == ("first", 3, 3e-8)
    assert signatures_of(Evidence({"checkers": {"register": {"valid": True}}})) == ()


def test_each_family_is_there_once_and_the_first_is_the_runs() -> None:
    """Invariants by their steps, then what clients saw by its strength, then liveness."""
    seen_twice = {"valid": False, "anomalies": {"stale-read": [stale()], "lost-update": [stale()], "G1a": [stale()]}}
    breaches = (breach("later", 9), breach("first", 3), breach("first", 5))
    evidence = broken(*breaches, verdict=stuck(late("x")).verdict, checkers={"register": seen_twice})
    names = [each.name for each in families_of(evidence)]
    assert names == ["first", "later", "aborted", "order", "not-recovered"]
    assert families_of(evidence)[0] == signatures_of(evidence)[0]
    assert families_of(seen())[0].name == "order" and families_of(Evidence({"checkers": {}})) == ()


def test_harness_beside_the_database() -> None:
    """Safety comes before liveness, which follows from it; what failed of ours is told beside, once each."""
    log = FailureLog()
    for key, raising in (("t3", "".__getitem__), ("t4", "".__getitem__), ("x", symptom_of)):
        try:
            raising(key if raising is not symptom_of else 3)  # type: ignore[operator]
        except TypeError as error:
            log.record("client", error)
    failed = {"answer": False, "details": {"failures": msgspec.to_builtins(log.failures())}}
    found = signatures_of(broken(breach(), verdict={**stuck(late("x")).verdict, "harness": failed}))
    assert [each.kind for each in found] == ["safety", "harness", "harness"]


def test_where_ours_was_raised() -> None:
    """Module and function of our deepest frame, whatever library raised it, without a line."""
    try:
        symptom_of(3)  # type: ignore[arg-type]
    except TypeError as error:
        words = crash_signature(error).family_words
    assert (words["exception"], words["where"]) == ("TypeError", "assay.night.signature.symptom_of")
    lost = [process_signature("timeout"), process_signature("error", "SIGSEGV"), process_signature("error", "SIGABRT")]
    assert len({each.family for each in lost}) == 3


def test_every_anomaly_has_its_place() -> None:
    """Every class of docs/anomalies.md is of one symptom, and no symptom names another."""
    documented = re.findall(r"^### ([\w-]+)", (ROOT / "docs" / "anomalies.md").read_text(encoding="utf-8"), re.M)
    listed = [name for names in SYMPTOMS.values() for name in names.split()]
    assert len(listed) == len(set(listed))
    assert {re.sub("-(process|realtime)$", "", name) for name in documented} == set(listed)


@pytest.mark.parametrize(("run", "kinds"), [("valid", []), ("invalid", ["safety"]), ("quorum", ["safety"])])
def test_saved_runs(run: str, kinds: list[str]) -> None:
    """Of a run that lies in a store."""
    assert [each.kind for each in signatures_of(evidence_of(RunDir(RUNS / run)))] == kinds


def test_what_signatures_are_worth_is_told_in_pairs() -> None:
    """Three findings of one flaw in two families, and one of another that is taken for one of them."""
    named = [("a", "f", "x"), ("a", "f", "y"), ("a", "g", "x"), ("b", "f", "x")]
    told = worth(SeenFinding(flaw, 1, family, detail) for flaw, family, detail in named)
    assert (told.recall, told.precision, told.merged) == (1 / 3, 0.0, {("a", "b"): 1})
    assert worth([]) == Worth(1.0, 1.0, {})
