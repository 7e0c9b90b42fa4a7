"""The model `etcd-kv`: puts, deletes, ranges and transactions of etcd, judged by the revisions that its answers state.

    the writes, by revision, are replayed on a map
    each answer is what the map holds at its revision
    what completed before another began has no higher revision, and a lower one than a write
    a revision that no known write has is one of a write whose outcome is unknown

No order is searched for but that of writes of unknown outcome. What refutes a history holds whatever these did: pairs
that they may have written agree with all answers (`etcd_store`). Where no choice of them is found with which all
answers agree, the verdict is `unknown`. Sources: etcd's "KV API guarantees", and the model of its robustness tests.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, Final, NamedTuple

from checkers.columns.codes import NEVER, NIL
from checkers.engines.api import Engine
from checkers.explain.conclude import conclude, who
from checkers.explain.speaker import Speaker
from checkers.findings import NO_KEY, Finding, Findings, counted
from checkers.linearizability.etcd_store import KeyValues, all_hold, applied, operation_parts, range_agrees, text_of
from checkers.linearizability.own_model.calls import calls_of
from checkers.options import CheckOptions
from checkers.source import Source
from checkers.verdict import NO_READS, NO_TIMES, NOTHING_SUCCEEDED, Undecided, Verdict

FIRST: Final = 1
"""The revision of an empty store."""

_MOST_STEPS: Final = 20_000
_MOST_MISSING: Final = 100
"""Steps of the search for what writes of unknown outcome did, and revisions that it fills at most."""


class Request(NamedTuple):
    """An operation: `asked` a range or a transaction (then it has `branches`), `answer` of it or None where its outcome
    is unknown; `revision` is the answer's, `at` the one that a range asked for (or the answer's)."""

    invoke: int
    complete: int
    asked: Mapping[str, Any]
    branches: tuple[Any, Any] | None
    answer: Mapping[str, Any] | None
    revision: int
    at: int
    serializable: bool = False

    @property
    def operations(self) -> Any:
        """The operations of the branch that was taken."""
        assert self.branches is not None and self.answer is not None
        return self.branches[bool(self.answer.get("Failure"))]

    @property
    def writes(self) -> bool:
        """Whether it raised the revision, or, its outcome unknown, may have."""
        if self.branches is None:
            return False
        if self.answer is None:
            return any(kind != "range" for branch in self.branches for kind, _ in operation_parts(branch))
        results = self.answer.get("Results") or []
        parts = zip(operation_parts(self.operations), results, strict=True)
        return any(kind == "put" or (kind == "delete" and result.get("Deleted")) for (kind, _), result in parts)

    @property
    def reads(self) -> bool:
        """Whether its answer tells anything of what is in the store."""
        if self.answer is None or self.branches is None:
            return self.answer is not None
        return bool(self.asked.get("Conditions")) or any(kind != "put" for kind, _ in operation_parts(self.operations))

    @property
    def written(self) -> list[tuple[str, str | None]]:
        """Keys and values that it may write; a deletion has None."""
        parts = [part for branch in self.branches or () for part in operation_parts(branch) if part[0] != "range"]
        return [(asked["Key"], text_of(asked["Value"]) if kind == "put" else None) for kind, asked in parts]


def judge_etcd(source: Source, engine: Engine, options: CheckOptions) -> Verdict:
    """Linearizability of a store whose answers state revisions; reads that are `Serializable` may be late."""
    if not source.real_time:
        raise Undecided(NO_TIMES)
    requests, problems = requests_of(source)
    if not problems and not any(request.answer is not None for request in requests):
        raise Undecided(NOTHING_SUCCEEDED)
    part = Findings(unsupported=tuple(problems)) if problems else judged(requests, options.explain)
    doubts = () if any(request.reads for request in requests) else (NO_READS,)
    return conclude("etcd-kv", source, engine, part, _SENTENCES, doubts)


def requests_of(source: Source) -> tuple[list[Request], list[tuple[int, str]]]:
    """The operations of a history in order of invocation, and those that the model does not know."""
    stamps = _stamps(source)
    requests, problems = list[Request](), list[tuple[int, str]]()
    for call in calls_of(source):
        value = call.value
        if call.f in ("r", "w", "read", "write") and isinstance(call.key, int | str):
            value = _plain(call.f[0], str(call.key), value, *stamps.get(call.invoke, (None, None)))
        try:
            known = call.type == "ok"
            request = _request(call.invoke, NEVER if call.complete is None else call.complete, value, known)
            if request is not None:
                if request.writes and request.revision == FIRST:
                    raise _RefusedError("this wrote at revision 1, which is that of the empty store")
                _ = request.written
                requests.append(request)
        except _RefusedError as refused:
            problems.append((call.invoke, str(refused)))
        except (KeyError, TypeError, ValueError, AttributeError):
            problems.append((call.invoke, "this is no request of etcd's, or its answer"))
    return requests, problems


class _RefusedError(Exception):
    """Why a request of etcd's can't be judged."""


def _stamps(source: Source) -> dict[int, tuple[int | None, int | None]]:
    names = ["invoke_index", "served_ts", "write_ts"]
    tables = [batch.select(names).to_pylist() for batch in source.batches(names)]
    return {row["invoke_index"]: (row["served_ts"], row["write_ts"]) for rows in tables for row in rows}


def _plain(f: str, key: str, value: Any, revision: int | None, mod: int | None) -> Any:
    """A read or a write of a register as the request that it was."""
    if f == "w":
        put = {"Type": "put-operation", "Put": {"Key": key, "Value": str(value)}}
        asked: Any = {"Type": "txn", "Txn": {"OperationsOnSuccess": [put]}}
        return {"input": asked, "output": {"Revision": revision, "Txn": {"Results": [{}]}}}
    pairs = [] if value is None or value == NIL else [{"Key": key, "Value": str(value), "ModRevision": mod}]
    output = {"Revision": revision, "Range": {"KVs": pairs}}
    return {"input": {"Type": "range", "Range": {"Start": key}}, "output": output}


def _request(invoke: int, complete: int, value: Any, known: bool) -> Request | None:
    asked, output = value["input"], value.get("output") if known else None
    kind = asked["Type"]
    if kind == "defragment":
        return None
    if kind not in ("range", "txn"):
        raise _RefusedError(f"this is a {kind}, and of etcd only ranges and transactions are judged")
    if known and (output is None or output.get(kind.capitalize()) is None):
        raise _RefusedError(f"this {kind} succeeded without an answer")
    revision = 0 if output is None else output.get("Revision") or 0
    if kind == "range":
        part = asked["Range"]
        late = bool(part.get("Serializable") or part.get("serializable") or asked.get("serializable"))
        answer = None if output is None else output["Range"]
        return Request(invoke, complete, part, None, answer, revision, part.get("Revision") or revision, late)
    part = asked["Txn"]
    branches = part.get("OperationsOnSuccess") or [], part.get("OperationsOnFailure") or []
    if any(
        kind == "put" and operation.get("LeaseID") for each in branches for kind, operation in operation_parts(each)
    ):
        raise _RefusedError("this puts a key under a lease, and leases are not judged")
    return Request(invoke, complete, part, branches, None if output is None else output["Txn"], revision, revision)


def judged(requests: Sequence[Request], explain: int) -> Findings:
    """What refutes the requests, or why they can't be decided."""
    known = [request for request in requests if request.answer is not None]
    stated = [request for request in known if request.revision >= FIRST]
    found = [*_against_time(stated), *_shared(stated)]
    reasons = []
    if len(stated) < len(known):
        reasons.append(f"{len(known) - len(stated)} of {len(known)} answers state no revision.")
    open_writes = [request for request in requests if request.answer is None and request.writes]
    replay = RevisionReplay(stated, open_writes)
    if not found and len(stated) == len(known):
        found = replay.contradictions()
        if not found and replay.missing and not replay.explained():
            revisions = "revision is" if replay.missing == 1 else "revisions are"
            reasons.append(
                f"{replay.missing} {revisions} of no write that is known to have succeeded, and no choice of "
                "writes of unknown outcome was found that explains all answers."
            )
    return counted(found, explain, ops=len(requests), keys=1, reasons=tuple(reasons))


def _finding(name: str, request: Request, other: int = -1, **facts: Any) -> Finding:
    return Finding(name, request.invoke, NO_KEY, (request.invoke, other), {"revision": request.revision, **facts})


def _later(one: Request, other: Request) -> Request:
    return other if other.revision > one.revision else one


def _against_time(requests: Sequence[Request]) -> list[Finding]:
    """Requests whose revision is too low for what had completed before they began."""
    ended = sorted(requests, key=lambda request: request.complete)
    times = [request.complete for request in ended]
    highest: list[Request] = list(accumulate(ended, _later))
    found = []
    for request in requests:
        place = bisect_left(times, request.invoke)
        if place == 0 or request.serializable:
            continue
        before = highest[place - 1]
        if request.revision + (not request.writes) > before.revision:
            continue
        name = "stale-read" if not request.writes else "revision-order" if before.writes else "read-before-write"
        found.append(_finding(name, request, before.invoke, seen=before.revision))
    return found


def _shared(requests: Sequence[Request]) -> list[Finding]:
    """Writes that have the revision of another."""
    first: dict[int, Request] = {}
    writes = [request for request in requests if request.writes]
    pairs = [(request, first.setdefault(request.revision, request)) for request in writes]
    return [_finding("duplicate-revision", one, other.invoke) for one, other in pairs if one is not other]


class RevisionReplay:
    """The known writes by revision, and what was seen at each; `missing` counts revisions that none of them has."""

    def __init__(self, requests: Sequence[Request], open_writes: Sequence[Request]) -> None:
        self.writes = {request.revision: request for request in requests if request.writes}
        self.reads: dict[int, list[Request]] = {}
        for request in requests:
            if not request.writes:
                self.reads.setdefault(request.at, []).append(request)
        self.points = sorted({FIRST, *self.writes, *self.reads, *(request.revision for request in requests)})
        self.missing = self.points[-1] - FIRST - len(self.writes.keys() - {FIRST})
        ended = sorted((request.complete, request.revision) for request in requests)
        times, highest = [time for time, _ in ended], [FIRST, *accumulate((each for _, each in ended), max)]
        # A write has a higher revision than all that had completed before it began.
        self.open = [(highest[bisect_left(times, write.invoke)], write) for write in open_writes]
        self.values = {pair for request in (*requests, *open_writes) for pair in request.written}
        self.steps = 0

    def contradictions(self) -> list[Finding]:
        """What no choice of writes of unknown outcome explains."""
        found, store, before = list[Finding](), KeyValues(), FIRST
        for point in self.points:
            gap = point - before - (point in self.writes and point > FIRST)
            if gap > 0:
                able = [write for floor, write in self.open if floor < point]
                store = store.forgetting([key for write in able for key, _ in write.written])
                store = store if len(able) >= gap else KeyValues(blind=True)
            after, wrong = self._at(store, point)
            found += wrong
            store, before = after, point
        return found

    def _at(self, store: KeyValues, revision: int) -> tuple[KeyValues, list[Finding]]:
        """The store at a revision, of the one before, and what contradicts it."""
        found = []
        write = self.writes.get(revision)
        if write is not None:
            found += self._wrong(store, write)
            store = applied(store, write.operations, revision, write.answer["Results"] if write.answer else None)[0]
        for read in self.reads.get(revision, ()):
            found += self._wrong(store, read)
        return store, found

    def _wrong(self, store: KeyValues, request: Request) -> list[Finding]:
        answer = request.answer
        assert answer is not None
        if request.branches is None:
            if request.at <= request.revision and range_agrees(store, request.asked, answer):
                return []
            return [_finding(self._name(answer.get("KVs"), store), request, at=request.at)]
        failure, holds = bool(answer.get("Failure")), all_hold(store, request.asked.get("Conditions") or [])
        if holds is not None and holds == failure:
            return [_finding("wrong-branch" if failure else "lost-update", request, at=request.at)]
        results = answer.get("Results") or []
        _, agree, _ = applied(store, request.operations, request.revision, results)
        pairs = [pair for result in results for pair in result.get("KVs") or []]
        return [] if agree else [_finding(self._name(pairs, store), request, at=request.at)]

    def _name(self, pairs: Sequence[Mapping[str, Any]] | None, store: KeyValues) -> str:
        unwritten = any((pair["Key"], text_of(pair["Value"])) not in self.values for pair in pairs or [])
        return "read-of-unwritten" if unwritten and not store.blind else "inconsistent-read"

    def explained(self) -> bool:
        """Whether some choice of writes of unknown outcome fills all gaps so that every answer agrees."""
        self.steps = 0
        if self.missing > min(len(self.open), _MOST_MISSING):
            return False
        return self._fill(KeyValues(), FIRST, frozenset())

    def _fill(self, store: KeyValues, before: int, used: frozenset[int]) -> bool:
        """Go on from the store at the revision `before`, of whose answers nothing was compared yet if it is the first;
        `used` are places in `open`."""
        if before == FIRST and self._at(store, FIRST)[1]:
            return False
        for revision in range(before + 1, self.points[-1] + 1):
            if revision not in self.writes:
                return any(self._choice(store, revision, place, used) for place in range(len(self.open)))
            store, wrong = self._at(store, revision)
            if wrong:
                return False
        return True

    def _choice(self, store: KeyValues, revision: int, place: int, used: frozenset[int]) -> bool:
        """Whether all can be explained if that open write has this revision."""
        floor, write = self.open[place]
        self.steps += 1
        if place in used or floor >= revision or self.steps > _MOST_STEPS or write.branches is None:
            return False
        branch = write.branches[not all_hold(store, write.asked.get("Conditions") or [])]
        store, _, wrote = applied(store, branch, revision, None)
        return wrote and not self._at(store, revision)[1] and self._fill(store, revision, used | {place})


def _late(speaker: Speaker, finding: Finding) -> str:
    mine, other = finding.ops
    did = who(speaker, mine, f"was answered at revision {finding.facts['revision']}")
    return f"{did}, but {speaker.process(other)} had got revision {finding.facts['seen']} before that began."


def _twice(speaker: Speaker, finding: Finding) -> str:
    mine, other = finding.ops
    did = who(speaker, mine, f"wrote at revision {finding.facts['revision']}")
    return f"{did}, which {speaker.process(other)} was told as its own write's."


def _unlike(what: str) -> Any:
    def say(speaker: Speaker, finding: Finding) -> str:
        did = who(speaker, finding.ops[0], f"was answered at revision {finding.facts['revision']}")
        return f"{did}, but {what} the store of revision {finding.facts['at']}."

    return say


_SENTENCES: Final = {
    "stale-read": _late,
    "revision-order": _late,
    "read-before-write": _late,
    "duplicate-revision": _twice,
    "lost-update": _unlike("its comparisons, which it was told hold, do not hold in"),
    "wrong-branch": _unlike("its comparisons, which it was told do not hold, hold in"),
    "read-of-unwritten": _unlike("it shows a value that nobody put under that key, so it is not"),
    "inconsistent-read": _unlike("what it shows is not"),
}
