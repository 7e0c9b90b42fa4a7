"""Signatures, version 1: what findings of one cause have in common, whoever judges them, on whatever nodes, whenever.

    breaches, anomalies, reasons, failures ─> words of the family ─> canonical JSON, sha256 ─> 12 hex digits
                                          └─> words of the detail ─────────────────────────> 12 hex digits

A signature has two levels, for neither does alone. The *family* is the symptom: of safety the earliest broken
invariant, else the strongest symptom that clients saw; of liveness the class of the reason; of the harness the
exception and where in our code it was raised. The *detail* says more of it: the sentence without what a run gives it
(times, numbers, ids, nodes), the operations and edges of the evidence, the kinds of fault in effect then. Two bugs may
have one symptom, and then one family; the detail often tells them apart, and the rate of the family does in the end.

Safety, liveness and harness share none: the kind of a finding is among the words of both. All but `evidence_of` is
pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import islice
from typing import Any, Final, Literal, NamedTuple

import msgspec

from assay.night.records import RunFinding
from harness.errors import shortened
from harness.history.rundir import RunDir
from harness.verdict.facts import load_faults
from harness.verdict.failures import HarnessFailure, place_of
from harness.verdict.faults import FOREVER_NS, Fault
from harness.verdict.run_verdict import CHECKER
from results.causes import window_of, without_particulars

VERSION: Final = 1
DIGITS: Final = 12
_TITLE: Final = 200

SYMPTOMS: Final[Mapping[str, str]] = {
    "unwritten": "read-of-unwritten unwritten-value garbage-read unwritten-row ThinAirRead unexpected unexpected-key "
    "uncommitted-record phantom-table duplicate-elements commit-from-the-future",
    "aborted": "G1a AbortedRead dirty-update future-read FutureRead G1b IntermediateRead",
    "own": "internal NotMyOwnWrite NotMyLastWrite missed-own-write",
    "lost": "lost lost-write missing-row missing-account lost-table vanished-tablet missed-commit nil-balance",
    "returned": "deleted-row-returned deleted-table-seen column-came-back tablet-came-back creation-undone",
    "twice": "duplicated duplicate-id duplicate-row duplicate-revision table-twice tablet-in-two-places",
    "torn": "torn-read torn-whichever-order contradictory-page half-made-table unequal-snapshots inconsistent-read "
    "FracturedReadCO FracturedReadAO long-fork",
    "total": "wrong-total negative-value below-bounds above-bounds wrong-size wrong-timestamp",
    "went-back": "went-back version-went-back schema-went-back tablet-went-back flickering-table snapshot-went-back "
    "resolved-went-back non-monotonic-read NonMonoReadCO NonMonoReadAO NonRepeatableRead stale stale-beyond-bound "
    "row-below-resolved late-commit premature below-minimum ahead-of-clocks session-behind",
    "unasked": "version-without-alter schema-without-alter column-without-alter altering-without-alter schemas-differ",
    "versions": "incompatible-order no-version-order cyclic-versions revision-order wrong-branch divergence",
    "cycle": "G0 G1c CyclicCO COConflictAO ConflictAO G-single-item G-nonadjacent-item G2-item",
    "sessions": "non-monotonic-write write-before-what-was-read contradictory-reads",
    "order": "stale-read read-before-write overlapping-clusters lost-update cas-cycle nonlinearizable no-order",
    "stuck": "no-location ddl-stuck ddl-late blocked-in-vain",
    "panic": "panic",
}
"""What clients can see, the strongest first: what nobody wrote before what is gone, that before what comes late, and
what only an order shows before what only took long. Names of one line come together or for each other in the runs of
one bug, and are one symptom. `-process` and `-realtime` behind a name are left out."""

_SYMPTOM_OF: Final = {name: symptom for symptom, names in SYMPTOMS.items() for name in names.split()}
_STRENGTH: Final = {symptom: place for place, symptom in enumerate(SYMPTOMS)}
_ORDERS: Final = re.compile(r"-(process|realtime)$")

_BEYOND: Final = 1 << 62


def symptom_of(anomaly: str) -> str:
    """The symptom that an anomaly is of; one that no line names is one of its own, weaker than all."""
    stem = _ORDERS.sub("", anomaly)
    return _SYMPTOM_OF.get(stem, stem)


class Evidence(NamedTuple):
    """What signatures are made of: a run's verdict in its saved form, its faults, and when its history began (ns since
    the run did). `nodes` are names that stand for nothing but a node."""

    verdict: Mapping[str, Any]
    faults: Sequence[Fault] = ()
    history_start_ns: int = 0
    nodes: Iterable[str] = ()

    @property
    def names(self) -> frozenset[str]:
        """All nodes that are known by name."""
        hit = (node for fault in self.faults for node in fault.targets)
        asked = _object(_object(_object(self.verdict.get("adequacy")).get("details")).get("each_node"))
        return frozenset({*self.nodes, *hit, *_object(asked.get("reads"))})


def evidence_of(rundir: RunDir, verdict: Mapping[str, Any] | None = None) -> Evidence:
    """The evidence of a saved run (`verdict`: as it was judged again); raises UserError for what can't be read."""
    outcome = _object(rundir.read_json(rundir.outcome_json))
    saved = _object(rundir.read_json(rundir.verdict_json)) if verdict is None else verdict
    return Evidence(saved, load_faults(rundir), int(outcome.get("history_start_ns") or 0))


def signatures_of(evidence: Evidence) -> tuple[RunFinding, ...]:
    """What a run found: at most one finding about the database, of safety or else of liveness, which follows from
    what broke before; and one of the harness for each of its failures that is unlike the others."""
    ours = {found.signature: found for found in reversed(tuple(_harness(evidence)))}
    return (*islice(_database(evidence), 1), *reversed(ours.values()))


def families_of(evidence: Evidence) -> tuple[RunFinding, ...]:
    """A finding of each family that a run shows of the database. The first is the run's; most of the others follow from
    it, and some are of another bug."""
    return tuple(_database(evidence))


def _database(evidence: Evidence) -> Iterator[RunFinding]:
    yield from _safety(evidence)
    yield from _liveness(evidence)


def crash_signature(error: BaseException) -> RunFinding:
    """The finding of an exception of ours that left no verdict."""
    return _of_failure("run", f"{type(error).__name__}: {error}", place_of(error))


def process_signature(word: Literal["timeout", "memory", "error"], how: str = "") -> RunFinding:
    """The finding of a run whose process went over its time or memory, or died of itself: `how`, such as SIGSEGV."""
    words = {"class": word} | ({"how": how} if how else {})
    title = {"timeout": "the run went over its time", "memory": "the run went over its memory"}.get(word)
    return _finding("harness", words, {}, title or f"the process of the run ended by {how or 'itself'}")


def unnamed_signature(why: str | None) -> RunFinding:
    """The finding of a refuted run whose files show none: what refuted it is somebody's to look at all the same."""
    return _finding(
        "safety", {"class": why or "refuted"}, {}, "the run was refuted, and what it saved does not say by what"
    )


# ---- safety ----


def _safety(evidence: Evidence) -> Iterator[RunFinding]:
    """The earliest breach of each invariant in the order of steps, then what clients saw, the strongest first."""
    checkers = _object(evidence.verdict.get("checkers"))
    earliest: dict[str, _Breach] = {}
    for breach in sorted(_breaches(_object(checkers.get(CHECKER))), key=lambda each: each[:3]):
        earliest.setdefault(breach.invariant, breach)
    yield from (_of_breach(breach, evidence) for breach in earliest.values())
    seen = {
        (_STRENGTH.get(symptom, len(_STRENGTH)), symptom, model)
        for model, verdict in checkers.items()
        if model != CHECKER and _object(verdict).get("valid") is False
        for symptom in map(symptom_of, _object(verdict.get("anomalies")) or ("nonlinearizable",))
    }
    yield from (_of_symptom(symptom, model, evidence) for _, symptom, model in sorted(seen))


class _Breach(NamedTuple):
    """In the order of steps; those that were found when all was over have none, and come last. Of one step the first
    by name, for who is looked at first is a matter of nodes' names."""

    step: int
    invariant: str
    message: str
    item: Mapping[str, Any]


def _breaches(verdict: Mapping[str, Any]) -> Iterator[_Breach]:
    for invariant, items in _object(verdict.get("anomalies")).items():
        for item in items:
            step = _object(item.get("details")).get("step") or _BEYOND
            yield _Breach(step, invariant, str(item.get("message")), item)


def _of_breach(breach: _Breach, evidence: Evidence) -> RunFinding:
    details = _object(breach.item.get("details"))
    nodes, group = details.get("nodes") or (), details.get("group")
    where = f" ({', '.join(nodes)}" if nodes else " (in group" if group else None
    message = breach.message.rpartition(where)[0] if where and where in breach.message else breach.message
    step, at_ns = details.get("step") or None, details.get("time_ns") or None
    words = {
        "sentence": _sentence(message, {*evidence.names, *(node.split(" ")[0] for node in nodes)}),
        "group": None if group is None else without_particulars(group, ()),
        "faults": _kinds(evidence, window_of(breach.item, evidence.history_start_ns)),
    }
    title = f"{breach.invariant}: {message}"
    return _finding("safety", {"invariant": breach.invariant}, words, title, step, at_ns and at_ns / 1e9)


def _of_symptom(symptom: str, model: str, evidence: Evidence) -> RunFinding:
    verdict = _object(_object(evidence.verdict["checkers"])[model])
    items = [
        (window_of(item, evidence.history_start_ns) or (_BEYOND, _BEYOND), name, str(item.get("message")), item)
        for name, found in _object(verdict.get("anomalies")).items()
        if symptom_of(name) == symptom
        for item in found
    ]
    if not items:
        return _finding("safety", {"model": model, "symptom": symptom}, {}, f"{model}: {symptom}")
    window, name, message, item = min(items, key=lambda each: each[:3])
    ops = [op for op in item.get("ops") or () if isinstance(op, Mapping)]
    steps = [step for step in item.get("steps") or () if isinstance(step, Mapping)]
    words = {
        "anomaly": _ORDERS.sub("", name),
        "sentence": _sentence(message, {*evidence.names, *(str(op["node"]) for op in ops if op.get("node"))}),
        "f": sorted({str(op.get("f")) for op in ops}),
        "edges": sorted({str(step.get("kind")) for step in steps}),
        "faults": _kinds(evidence, window if window[0] < _BEYOND else None),
    }
    at_s = window[0] / 1e9 if window[0] < _BEYOND else None
    return _finding("safety", {"model": model, "symptom": symptom}, words, f"{name}: {message}", None, at_s)


def _kinds(evidence: Evidence, window: tuple[int, int] | None) -> list[str]:
    """The kinds of fault that were seen in effect in the window; none where it is not known."""
    if window is None:
        return []
    begin, end = window
    hit = (f.kind for f in evidence.faults if any(b <= end and begin <= e for b, e in f.seen(FOREVER_NS)))
    return sorted(set(hit))


# ---- liveness ----

_NOT_BACK: Final = re.compile(r"what (\S+) \d+ hit .*did not come back")
_NOT_RECOVERED: Final = re.compile(r"did not recover within \S+ s of the last heal(?:: (.*))?", re.DOTALL)


def _liveness(evidence: Evidence) -> Iterator[RunFinding]:
    """At most one: what did not come back is no news where nothing recovered."""
    answer = _object(evidence.verdict.get("liveness"))
    if answer.get("answer") is not False:
        return
    reasons = [str(reason) for reason in answer.get("reasons") or ()]
    for reason in reasons:
        if found := _NOT_RECOVERED.search(reason):
            words = {"sentence": _sentence(found[1] or "", evidence.names)}
            yield _finding("liveness", {"class": "not-recovered"}, words, reason)
            return
    kinds = sorted({found[1] for reason in reasons if (found := _NOT_BACK.search(reason))})
    yield _finding("liveness", {"class": "not-back"}, {"faults": kinds}, "; ".join(reasons))


# ---- the harness ----

_NOT_GONE: Final = re.compile(r"(\S+) \d+ was healed and not seen to be gone")
_UNSEALED: Final = "the saved files are not those of one whole run"
_ENDED_EARLY: Final = "the harness ended before the run did"


def _harness(evidence: Evidence) -> Iterator[RunFinding]:
    answer = _object(evidence.verdict.get("harness"))
    for failure in _object(answer.get("details")).get("failures") or ():
        saved = msgspec.convert(failure, HarnessFailure)
        yield _of_failure(saved.stage, saved.error, saved.where, evidence.names)
    for reason in map(str, answer.get("reasons") or ()):
        if found := _NOT_GONE.match(reason):
            yield _finding(
                "harness", {"class": "not-gone", "fault": found[1]}, {}, f"{found[1]} was not seen to be gone"
            )
        elif reason.startswith(_UNSEALED):
            yield _finding("harness", {"class": "unsealed"}, {}, _UNSEALED)
        elif reason.startswith(_ENDED_EARLY):
            yield _finding("harness", {"class": "ended-early"}, {}, _ENDED_EARLY)


def _of_failure(stage: str, error: str, where: str, names: Iterable[str] = ()) -> RunFinding:
    exception, _, message = error.partition(": ")
    words = {"exception": exception, "where": where or f"stage {stage}"}
    sentence = _sentence(message, names)
    return _finding(
        "harness", words, {"stage": stage, "sentence": sentence}, f"{exception} in {words['where']}: {sentence}"
    )


# ---- words and digests ----


def _sentence(message: str, names: Iterable[str]) -> str:
    """The first sentence without its particulars: the others explain this instance of it."""
    return without_particulars(message.partition(". ")[0], names)


def _finding(
    kind: Literal["safety", "liveness", "harness"],
    family: Mapping[str, Any],
    detail: Mapping[str, Any],
    title: str,
    step: int | None = None,
    at_s: float | None = None,
) -> RunFinding:
    words = {"version": VERSION, "kind": kind, **family}
    return RunFinding(
        kind=kind,
        family=digest(words),
        detail=digest({**words, "detail": detail}),
        family_words=words,
        title=shortened(title, _TITLE),
        step=step,
        at_s=at_s,
    )


def digest(words: Mapping[str, Any]) -> str:
    """12 hex digits of canonical JSON."""
    return sha256(msgspec.json.encode(words, order="deterministic")).hexdigest()[:DIGITS]


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
