"""The verdict on a run: four questions, never one (`runs.md`, "Verdict"). Pure functions.

Overall: invalid if safety is invalid or the cluster did not recover; else unknown if safety is unknown, the run is
vacuous, or the harness failed; else valid; `outcome_of` says why. Invariants that were checked while the system ran
stand among the checkers (G10).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

import msgspec

from harness.protocols import Breach, Examination, InvariantsRecord
from harness.verdict.adequacy import (
    Floors,
    WorkDone,
    fault_shortfall,
    final_shortfall,
    hurt_shortfall,
    node_shortfall,
    shortfalls,
)
from harness.verdict.failures import HarnessFailure
from harness.verdict.faults import Fault, missed, skips
from harness.verdict.recovery import Hurt

CHECKER = "invariants"
"""Under this name they stand among the checkers of a verdict."""

MAX_EXPLAINED = 5
"""Breaches kept of each invariant; the others are counted."""


END_STATE = "end-state"
"""Broken where the parts of a system don't agree once all faults are healed and it has had time to settle."""


def with_examination(record: InvariantsRecord, found: Examination) -> InvariantsRecord:
    """The record with what the examination found as one more invariant."""
    breaches = [Breach(END_STATE, problem, 0, 0, ()) for problem in found.problems[:MAX_EXPLAINED]]
    broken = {END_STATE: len(found.problems)} if found.problems else {}
    return InvariantsRecord(
        {**record.checked, END_STATE: 1}, {**record.broken, **broken}, (*record.breaches, *breaches)
    )


def as_checker(record: InvariantsRecord) -> dict[str, Any]:
    """The record in the shape of a checker's verdict: an anomaly a breach, named by its invariant."""
    anomalies: dict[str, list[dict[str, Any]]] = {}
    for breach in record.breaches:
        anomalies.setdefault(breach.invariant, []).append({"message": _sentence(breach), "details": _details(breach)})
    found: dict[str, Any] = {
        "valid": False if record.broken else (True if any(record.checked.values()) else "unknown"),
        "model": CHECKER,
        "anomalies": anomalies,
        "counts": dict(record.broken),
        "ops": 0,
        "details": {"checked": dict(record.checked)},
    }
    if found["valid"] == "unknown":
        found["reason"] = "the database told nothing that an invariant could be checked on"
    return found


def _sentence(breach: Breach) -> str:
    where = ", ".join(breach.nodes)
    group = f" in group {breach.group}" if breach.group is not None else ""
    steps = f"; at {breach.time_ns / 1e9:.6f} s of virtual time, step {breach.step}" if breach.step else ""
    told = f"{where}{group}{steps}".removeprefix(" ").removeprefix("; ")
    return f"{breach.message} ({told})" if told else breach.message


def _details(breach: Breach) -> dict[str, Any]:
    return {"time_ns": breach.time_ns, "step": breach.step, "nodes": list(breach.nodes), "group": breach.group}


Validity: TypeAlias = Literal[True, False, "unknown"]

Overall: TypeAlias = Literal["valid", "invalid", "unknown"]
Why: TypeAlias = Literal["refuted", "not-recovered", "interrupted", "harness", "vacuous", "undecided"]
"""What kept a run from being valid; where several did, the first of them: what a word proves comes before what it does
not, and a cause before what follows from it."""

EXIT_CODES: dict[str, int] = {"valid": 0, "invalid": 1, "unknown": 2}

AFTERMATH = frozenset({"logs", "tear down", "progress"})
"""Stages whose failures are told but cost nothing: the history is complete, and judged, without them."""


class Recovery(msgspec.Struct, frozen=True):
    """Whether the cluster recovered after the last heal: None when that was not observed, and `reason` says why."""

    recovered: bool | None
    budget_s: float
    seconds: float | None = None
    reason: str | None = None


class Facts(msgspec.Struct, frozen=True):
    """What is known of a run beside the checkers' verdicts: what it did and the floors of that, faults, failures.

    `invariants` are those that were checked meanwhile, if the database has any; `unsealed` says of the saved files
    which are not as the run left them, `unpromised` why the database may break what a model judges by its design.
    """

    done: WorkDone
    floors: Floors
    requested_faults: tuple[str, ...]
    faults: tuple[Fault, ...]
    recovery: Recovery
    failures: tuple[HarnessFailure, ...] = ()
    interrupted: bool = False
    ended: bool = True
    logs_left: str = ""
    unsealed: tuple[str, ...] = ()
    invariants: InvariantsRecord | None = None
    hurt: Hurt | None = None
    unpromised: Mapping[str, str] = {}


class Answer(msgspec.Struct, frozen=True):
    """The answer to one question: True, False or unknown, why, and the figures behind it."""

    answer: Validity
    reasons: tuple[str, ...] = ()
    details: Mapping[str, Any] = {}


class RunVerdict(msgspec.Struct, frozen=True):
    """The one word, why it is not `valid` (else None), the reasons, and the four answers. `checkers` are the checkers'
    own verdicts, by name."""

    overall: Overall
    why: Why | None
    reasons: tuple[str, ...]
    safety: Answer
    adequacy: Answer
    liveness: Answer
    harness: Answer
    checkers: Mapping[str, Any]
    aftermath: tuple[HarnessFailure, ...] = ()

    @property
    def valid(self) -> Validity:
        """As `valid` stands in `--json` output."""
        return {"valid": True, "invalid": False}.get(self.overall, "unknown")

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.overall]


def conclude(facts: Facts, checkers: Mapping[str, Any]) -> RunVerdict:
    """The verdict from the facts of a run and its checkers' verdicts (JSON-able, each with `valid`, maybe `reason`).

    Invariants that were checked during the run stand among the checkers.
    """
    if facts.invariants is not None:
        checkers = {**checkers, CHECKER: as_checker(facts.invariants)}
    safety, adequacy = judge_safety(checkers, facts.unpromised), judge_adequacy(facts)
    liveness, harness = judge_liveness(facts), judge_harness(facts)
    answers = (safety, adequacy, liveness, harness)
    overall, why = outcome_of(*answers, facts.interrupted)
    causes_first = (safety, liveness, harness, adequacy)
    reasons = tuple(reason for answer in causes_first for reason in answer.reasons)
    aftermath = tuple(failure for failure in facts.failures if failure.stage in AFTERMATH)
    return RunVerdict(overall, why, reasons, safety, adequacy, liveness, harness, dict(checkers), aftermath)


def outcome_of(
    safety: Answer, adequacy: Answer, liveness: Answer, harness: Answer, interrupted: bool
) -> tuple[Overall, Why | None]:
    """The row of the table of outcomes (`checking.md`) that four answers come to."""
    if safety.answer is False:
        return "invalid", "refuted"
    if liveness.answer is False:
        return "invalid", "not-recovered"
    if interrupted:
        return "unknown", "interrupted"
    if harness.answer is not True:
        return "unknown", "harness"
    if adequacy.answer is not True:
        return "unknown", "vacuous"
    if safety.answer is not True or liveness.answer is not True:
        return "unknown", "undecided"
    return "valid", None


def saved_form(verdict: RunVerdict) -> dict[str, Any]:
    """The verdict as `verdict.json` holds it: its fields, and `valid` as in `--json` output."""
    return {"valid": verdict.valid, **msgspec.to_builtins(verdict)}


def judge_safety(checkers: Mapping[str, Any], unpromised: Mapping[str, str] | None = None) -> Answer:
    """Question 1: what the checkers say, the worst first; what was not promised is invalid too, and told so."""
    if not checkers:
        return Answer("unknown", ("no checker judged the history",))
    words = {name: _validity(verdict) for name, verdict in checkers.items()}
    designs = {name: f" ({why})" for name, why in (unpromised or {}).items()}
    reasons = [_finding(name, checkers[name]) + designs.get(name, "") for name, word in words.items() if word is False]
    for name, word in words.items():
        if word == "unknown":
            why = checkers[name].get("reason") or "it does not say why"
            reasons.append(f"{name} can't tell: {why}")
    if any(word is False for word in words.values()):
        return Answer(False, tuple(reasons))
    return Answer("unknown" if reasons else True, tuple(reasons))


def judge_adequacy(facts: Facts) -> Answer:
    """Question 2: did the run do enough to mean anything? False is a vacuous run."""
    done = facts.done
    reasons = list(shortfalls(done, facts.floors))
    for kind in facts.requested_faults:
        reasons += fault_shortfall(kind, facts.faults, facts.floors)
    observed = [fault for fault in facts.faults if fault.observed_ns is not None]
    if facts.hurt is not None and observed:
        lasting = any(fault.cores is None for fault in observed)
        reasons += hurt_shortfall(facts.hurt, facts.floors, lasting)
    if facts.recovery.recovered:
        reasons += [*final_shortfall(done, facts.floors), *node_shortfall(done, facts.floors)]
    if not done.asked and not done.load_s:
        reasons = ["no load was put on the database"]  # What else was missed follows from that.
    if facts.interrupted:
        reasons.append("the run was stopped before its end")
    details = {
        "ok_by_f": {f: by_type.get("ok", 0) for f, by_type in done.counts.items()},
        "operations": {"asked": done.asked, "ok": done.ok, "served": done.served},
        "keys": None if done.keys is None else {"asked": done.keys[0], "answered": done.keys[1]},
        "groups": None if done.groups is None else {"there_are": done.groups[0], "answered": done.groups[1]},
        "final_reads": None if done.final_counts is None else dict(done.final_counts),
        "final_keys": done.final_keys,
        "each_node": None if done.each_node is None else msgspec.to_builtins(done.each_node),
        "load_s": {"asked": done.time_limit_s, "lasted": round(done.load_s, 3)},
        "rate_hz": round(done.ok_rate_hz, 3),
        "rate_asked_hz": done.rate_hz,
        "hurt": None if facts.hurt is None else _without_recoveries(facts.hurt),
        "floors": msgspec.to_builtins(facts.floors),
        "faults": _fault_counts(facts),
        "missed": [{"kind": fault.kind, "instance": fault.instance} for fault in missed(facts.faults)],
    }
    if done.own_floors:
        details["own"] = {"figures": dict(done.figures), "floors": msgspec.to_builtins(done.own_floors)}
    return Answer(not reasons, tuple(reasons), details)


def judge_liveness(facts: Facts) -> Answer:
    """Question 3: did the cluster recover within its budget after the last heal?"""
    recovery = facts.recovery
    details: dict[str, Any] = {"budget_s": recovery.budget_s, "seconds": recovery.seconds}
    details["faults"] = [msgspec.to_builtins(each) for each in (facts.hurt.recoveries if facts.hurt else ())]
    lost = tuple(
        f"what {fault.kind} {fault.instance} hit ({' '.join(fault.targets)}) did not come back when it was healed"
        for fault in facts.faults
        if fault.blame == "database"
    )
    if recovery.recovered:
        return Answer(not lost, lost, details)
    if recovery.recovered is None:
        reason = recovery.reason or "the run did not get so far"
        return Answer("unknown", (f"recovery was not observed: {reason}",), details)
    reason = f"the cluster did not recover within {recovery.budget_s:g} s of the last heal"
    return Answer(False, (f"{reason}: {recovery.reason}" if recovery.reason else reason,), details)


def judge_harness(facts: Facts) -> Answer:
    """Question 4: did the harness itself work? Failures after the history was complete are left aside."""
    ours = [failure for failure in facts.failures if failure.stage not in AFTERMATH]
    reasons = [
        f"the harness failed ({failure.stage}): {failure.error}" + (f" ({failure.times} times)" * (failure.times > 1))
        for failure in ours
    ]
    reasons += [
        f"{fault.kind} {fault.instance} was healed and not seen to be gone{_still(fault)}"
        for fault in facts.faults
        if fault.blame == "harness"
    ]
    if facts.unsealed:
        reasons.append(f"the saved files are not those of one whole run: {', '.join(facts.unsealed)}")
    if not facts.ended:
        left = f"; {facts.logs_left}" if facts.logs_left else ""
        reasons.append(f"the harness ended before the run did; what it had saved is judged{left}")
    return Answer(not reasons, tuple(reasons), {"failures": [msgspec.to_builtins(failure) for failure in ours]})


def _without_recoveries(hurt: Hurt) -> dict[str, Any]:
    """They stand in the answer on liveness."""
    return {name: value for name, value in msgspec.to_builtins(hurt).items() if name != "recoveries"}


def _still(fault: Fault) -> str:
    """What was still seen of it, in a few words."""
    evidence = fault.left if isinstance(fault.left, dict) else {}
    if "strain" in evidence:
        return f": {evidence['strain']}"
    links = [str(link) for link in evidence.get("silent", [])]
    return f": nothing arrives over {', '.join(links[:6])}{' …' * (len(links) > 6)}" if links else ""


def _finding(name: str, verdict: Any) -> str:
    """What a checker refuted, with the names of what it saw."""
    anomalies = verdict.get("anomalies")
    seen = f": {', '.join(map(str, anomalies))}" if anomalies and isinstance(anomalies, dict) else ""
    return f"an invariant broke during the run{seen}" if name == CHECKER else f"{name} found the history invalid{seen}"


def _validity(verdict: Any) -> Validity:
    word = verdict.get("valid", "unknown")
    return word if word is True or word is False else "unknown"


def _fault_counts(facts: Facts) -> dict[str, dict[str, Any]]:
    """How many instances of each kind went how far, and the seconds asked for and seen (of faults that last)."""
    kinds = dict.fromkeys([*facts.requested_faults, *(fault.kind for fault in facts.faults)])
    return {kind: _counts([fault for fault in facts.faults if fault.kind == kind]) for kind in kinds}


def _counts(faults: Sequence[Fault]) -> dict[str, Any]:
    lasting = [fault for fault in faults if fault.cores is None and fault.healed_ns is not None]
    aimed = [fault for fault in faults if fault.roles]
    held = sum(all(role.held for role in fault.roles) for fault in aimed)
    why = skips(faults)
    return {
        "requested": len(faults),
        "observed": sum(fault.observed_ns is not None for fault in faults),
        "healed": sum(fault.healed_ns is not None for fault in faults),
        "recovered": sum(fault.recovered_ns is not None for fault in faults),
        "asked_s": round(sum(fault.asked_s for fault in lasting), 3),
        "in_effect_s": round(sum(fault.effect_s for fault in lasting), 3),
        **({"aimed": len(aimed), "held": held} if aimed else {}),
        **({"skipped": len(why), "skipped_because": list(dict.fromkeys(why))} if why else {}),
    }
