"""The models `queue` and `total-queue`: what goes in comes out (`jepsen.checker/queue` and `total-queue`).

Elements are counted per queue and value. `lost`: acknowledged enqueues beyond the dequeues; `unexpected`: dequeues of
what nobody tried to enqueue; `duplicated`: dequeues beyond the attempts to enqueue; `premature`: dequeues that ended
before the enqueue that they need had begun; `recovered` (no anomaly): dequeues of what was not acknowledged. A drain
counts as dequeues of its elements. Each dequeue of unknown outcome may have taken an element, so as many are not lost.
In a `queue` an enqueue that failed is no attempt, and an element is lost only if the queue was seen to be empty after
its enqueue: by a drain, or by a dequeue that found nothing. `total-queue` is Jepsen's: there a failed enqueue is one,
only lost and unexpected elements are anomalies, and the queue counts as empty at the end.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
from msgspec.structs import replace

from checkers.columns.batches import COLUMNS, OBJECT, column, first_flagged, group_starts, groups_of, key_at
from checkers.columns.codes import FAIL, INFO, NEVER, OK, UNSUPPORTED, Ints
from checkers.engines.api import Engine
from checkers.engines.flows import BatchFlow, findings_of, run_batches
from checkers.explain.conclude import conclude, thing, who, whose
from checkers.explain.speaker import Speaker, opening
from checkers.findings import Finding, Findings, Key, earliest
from checkers.jepsen.cells import CellFlow, by_value, read_cells
from checkers.options import CheckOptions
from checkers.source import Source
from checkers.verdict import Verdict

ENQUEUE, DEQUEUE, DRAIN = 0, 1, 2
_DRAINED: Final = -1 - DRAIN
"""The row of a drain itself."""
_UNKNOWN_DEQUEUE: Final = 3
_FAILED_ENQUEUE: Final = 4
"""One that is no attempt."""

_KINDS: Final = {"enqueue": ENQUEUE, "dequeue": DEQUEUE, "drain": DRAIN}
CLASSES: Final = ("lost", "unexpected", "duplicated", "premature")
_FATAL: Final = {"queue": frozenset(CLASSES), "total-queue": frozenset(("lost", "unexpected"))}
_PROBLEM: Final = "this is neither an enqueue or dequeue of one element nor a drain of several"


class _Emptied(NamedTuple):
    """When a queue was last seen to be empty (the invocation of what saw it, -1: never), and how many dequeues of
    unknown outcome it has."""

    at: int = -1
    crashed: int = 0

    def with_more(self, other: _Emptied) -> _Emptied:
        """What two parts of a history say together."""
        return _Emptied(max(self.at, other.at), self.crashed + other.crashed)


_Queues: TypeAlias = dict[Key, _Emptied]


def _emptied_in(batch: pa.RecordBatch) -> _Queues:
    """What a batch of the history says of queues that were seen to be empty, or that crashed dequeues may have used."""
    rows = read_cells(batch, _KINDS, frozenset({DRAIN}))
    kind, outcome = column(rows, "kind"), column(rows, "outcome")
    crashed = (kind == DEQUEUE) & (outcome == INFO)
    empty = (outcome == OK) & ((kind == _DRAINED) | ((kind == DEQUEUE) & (column(rows, "nil") == 1)))
    chosen = np.flatnonzero(crashed | empty)
    chosen = chosen[np.lexsort([column(rows, name)[chosen] for name in OBJECT])]
    if not len(chosen):
        return {}
    starts = group_starts([column(rows, name)[chosen] for name in OBJECT])
    at = np.maximum.reduceat(np.where(empty, column(rows, "invoke"), -1)[chosen], starts).tolist()
    count = np.add.reduceat(crashed[chosen].astype(np.int64), starts).tolist()
    keys = [key_at(rows, row) for row in chosen[starts].tolist()]
    return {key: _Emptied(*found) for key, *found in zip(keys, at, count, strict=True)}


def _all_emptied(parts: list[_Queues]) -> _Queues:
    found: _Queues = {}
    for part in parts:
        for key, more in part.items():
            found[key] = found.get(key, _Emptied()).with_more(more)
    return found


_EMPTIED: Final = BatchFlow(COLUMNS, _emptied_in, _all_emptied)

_LOST_OF: Final = "lost:"
"""Figures of this name and a queue's address count what was lost of a queue with crashed dequeues."""


def _prepared(rows: pa.RecordBatch, failed_try: bool) -> pa.RecordBatch:
    """What counts of a queue's rows; a failed enqueue is an attempt if `failed_try`."""
    kind, outcome = column(rows, "kind").copy(), column(rows, "outcome")
    out = (kind == DEQUEUE) | (kind == DRAIN)
    kind[out & (outcome == INFO)] = _UNKNOWN_DEQUEUE
    wordless = (kind == DEQUEUE) & (outcome == OK) & (column(rows, "nil") == 1)
    kept = (kind == ENQUEUE) | (out & (outcome == OK) & ~wordless) | (kind == UNSUPPORTED)
    kept |= ((kind == _UNKNOWN_DEQUEUE) | (kind == _DRAINED)) & (outcome == INFO)
    kind[kind == DRAIN] = DEQUEUE
    if not failed_try:
        kind[(kind == ENQUEUE) & (outcome == FAIL)] = _FAILED_ENQUEUE
    place = rows.schema.get_field_index("kind")
    return rows.set_column(place, rows.schema.field(place), pa.array(kind)).filter(pa.array(kept))


def _judge_elements(rows: pa.Table, explain: int, queues: _Queues, unless_seen: int) -> Findings:
    """What went wrong with each element of each queue. Queues of which nothing is known count as empty at
    `unless_seen`."""
    kind, outcome = column(rows, "kind"), column(rows, "outcome")
    starts, groups = by_value(rows)
    objects = groups_of([column(rows, name) for name in OBJECT])
    keys = [key_at(rows, row) for row in objects.starts.tolist()]
    about = np.array([queues.get(key, _Emptied(unless_seen)) for key in keys])[objects.of]
    empty, crashed = about[:, 0], about[starts, 1]

    def count(flags: Any) -> Ints:
        return np.add.reduceat(flags.astype(np.int64), starts)

    attempts, acked = count(kind == ENQUEUE), count((kind == ENQUEUE) & (outcome == OK))
    dequeued = count(kind == DEQUEUE)
    gone = count((kind == ENQUEUE) & (outcome == OK) & (column(rows, "complete") < empty))
    lost = np.maximum(gone - dequeued, 0)
    excess = np.maximum(dequeued - attempts, 0)
    instances = {
        "lost": lost,
        "unexpected": np.where(attempts == 0, dequeued, 0),
        "duplicated": np.where(attempts > 0, excess, 0),
        "premature": np.where(attempts > 0, _deepest(rows, groups, len(starts)) - excess, 0),
    }
    kept: list[Finding] = []
    for name, counts in instances.items():
        kept += _shown(name, counts, rows, starts, explain)
    none = _Emptied()
    kept = [replace(each, facts=each.facts | {"crashed": queues.get(each.key, none).crashed}) for each in kept]
    figures = {
        "attempts": int(attempts.sum()),
        "acknowledged": int(acked.sum()),
        "dequeued": int(dequeued.sum()),
        "ok": int(np.minimum(dequeued, attempts).sum()),
        "recovered": int(np.maximum(np.minimum(dequeued, attempts) - acked, 0).sum()),
        "left": int((np.maximum(acked - dequeued, 0) - lost).sum()),
        "unknown_dequeues": int((kind == _UNKNOWN_DEQUEUE).sum()),
        "unknown_drains": int((kind == _DRAINED).sum()),
    }
    for i in np.flatnonzero((lost > 0) & (crashed > 0)).tolist():
        name = _lost_of(keys[objects.of[starts[i]]])
        figures[name] = figures.get(name, 0) + int(lost[i])
    totals = {name: int(counts.sum()) for name, counts in instances.items()}
    return Findings(rows.num_rows, counts=totals, kept=earliest(kept, explain), figures=figures)


def _deepest(rows: pa.Table, groups: Ints, count: int) -> Ints:
    """For each group, how many dequeues at most had ended at some moment beyond the enqueues begun by then."""
    kind = column(rows, "kind")
    used = np.flatnonzero((kind == ENQUEUE) | (kind == DEQUEUE))
    out = kind[used] == DEQUEUE
    moment = np.where(out, column(rows, "complete")[used], column(rows, "invoke")[used])
    order = np.lexsort((moment, groups[used]))
    step = np.where(out, 1, -1)[order]
    mine = groups[used][order]
    running = np.cumsum(step)
    first = group_starts([mine]) if len(mine) else np.zeros(0, np.int64)
    base = np.zeros(len(mine), np.int64)
    base[first] = running[first] - step[first]
    starts = np.zeros(len(mine), np.int64)
    starts[first] = first
    running = running - base[np.maximum.accumulate(starts)] if len(mine) else running
    deepest = np.zeros(count, np.int64)
    np.maximum.at(deepest, mine, running)
    return deepest


def _shown(name: str, counts: Ints, rows: pa.Table, starts: Ints, explain: int) -> list[Finding]:
    """Findings for the groups with instances of a class, those that begin first."""
    kind, invoke, outcome = column(rows, "kind"), column(rows, "invoke"), column(rows, "outcome")
    stops = np.append(starts[1:], rows.num_rows)
    kept = []
    for group in first_flagged(counts, invoke[starts], explain):
        mine = np.arange(starts[group], stops[group])
        wanted = (kind[mine] == ENQUEUE) & ((outcome[mine] == OK) | (name != "lost"))
        enqueues, dequeues = invoke[mine[wanted]].tolist(), invoke[mine[kind[mine] == DEQUEUE]].tolist()
        failed = invoke[mine[kind[mine] == _FAILED_ENQUEUE]].tolist() if name == "unexpected" else []
        ops = tuple(enqueues[:2] if name == "lost" else (*enqueues[:2], *dequeues[:4], *failed[:1]))
        row = int(starts[group])
        nil = bool(column(rows, "nil")[row])
        facts = {
            "element": None if nil else int(column(rows, "value")[row]),
            "enqueues": len(enqueues),
            "shown": len(enqueues[:2]),
            "dequeues": len(dequeues),
            "failed": len(failed),
            "instances": int(counts[group]),
        }
        kept.append(Finding(name, ops[0], key_at(rows, row), ops, facts))
    return kept


def judge_queue(model: str, source: Source, engine: Engine, options: CheckOptions) -> Verdict:
    """All that is enqueued comes out, nothing else does, and (but for `total-queue`) nothing twice or too early."""
    # A drain of unknown outcome, wherever it is, excuses what is lost elsewhere.
    queues = run_batches(engine, source, _EMPTIED)
    if model == "total-queue":
        queues = {key: queue._replace(at=NEVER) for key, queue in queues.items()}
    part = _found(model, source, engine, options, queues)
    excused = {
        key: n for key, queue in queues.items() if 0 < (n := part.figures.get(_lost_of(key), 0)) <= queue.crashed
    }
    if excused:
        others = {key: queue._replace(at=-1) if key in excused else queue for key, queue in queues.items()}
        part = _found(model, source, engine, options, others)
    figures = {name: figure for name, figure in part.figures.items() if not name.startswith(_LOST_OF)}
    figures |= {name: part.counts.get(name, 0) for name in CLASSES}
    fatal, doubts = _FATAL[model], []
    if taken := sum(excused.values()):
        doubts.append(f"Dequeues of unknown outcome may have taken what never came out ({taken} in all).")
    if model == "queue" and (left := figures.get("left", 0) - taken):
        doubts.append(f"Nobody saw the queue empty after what never came out was put in ({left} in all).")
    if part.figures.get("unknown_drains") and part.counts.get("lost"):
        fatal = fatal - {"lost"}
        doubts.append(f"A drain of unknown outcome may hold the {part.counts['lost']} elements that never came out.")
    if not part.figures.get("acknowledged") and not part.figures.get("dequeued"):
        doubts.append("No enqueue succeeded and nothing came out, so nothing was compared.")
    counts = {name: count for name, count in part.counts.items() if name in fatal}
    kept = tuple(finding for finding in part.kept if finding.anomaly in fatal)
    judged = replace(part, counts=counts, kept=kept, figures=figures)
    return conclude(model, source, engine, judged, _SENTENCES, doubts)


def _found(model: str, source: Source, engine: Engine, options: CheckOptions, queues: _Queues) -> Findings:
    """What is wrong, given what is known of queues."""
    total = model == "total-queue"
    prepare = partial(_prepared, failed_try=total)
    judge = partial(_judge_elements, queues=queues, unless_seen=NEVER if total else -1)
    flow = CellFlow(_KINDS, _PROBLEM, judge, options.explain, frozenset({DRAIN}), prepare)
    return findings_of(engine, source, flow, options.explain, whole=True)


def _lost_of(key: Key) -> str:
    return f"{_LOST_OF}{key}"


def _element(speaker: Speaker, finding: Finding) -> str:
    return f"element {speaker.source.shown(finding.facts['element'])}"


def _lost(speaker: Speaker, finding: Finding) -> str:
    facts = finding.facts
    first = f"{_element(speaker, finding)} of {thing(speaker, 'queue', finding.key)} was lost"
    first = f"{opening(first)}: {whose(speaker, finding.ops[0], 'enqueue')} succeeded"
    if facts["enqueues"] == 1:
        return f"{first}, but no dequeue or drain ever returned it{_crashes(facts['crashed'])}."
    return f"{first}, one of {facts['enqueues']}, but only {facts['dequeues']} came out{_crashes(facts['crashed'])}."


def _crashes(crashed: int) -> str:
    """What is said of dequeues of unknown outcome, if there are any."""
    return f", and the queue misses more elements than its {crashed} dequeues of unknown outcome" if crashed else ""


def _unexpected(speaker: Speaker, finding: Finding) -> str:
    first = who(speaker, finding.ops[0], f"dequeued {_element(speaker, finding)}")
    if finding.facts["failed"]:
        return f"{first}, which nobody put in: {whose(speaker, finding.ops[-1], 'enqueue')} took no effect."
    return f"{first}, which no operation tried to enqueue in {thing(speaker, 'queue', finding.key)}."


def _duplicated(speaker: Speaker, finding: Finding) -> str:
    facts, last = finding.facts, finding.ops[-1]
    first = who(speaker, last, f"dequeued {_element(speaker, finding)}")
    return (
        f"{first}: it came out {facts['dequeues']} times in all, but only {facts['enqueues']} operations tried to "
        f"enqueue it, such as {whose(speaker, finding.ops[0], 'enqueue')}."
    )


def _premature(speaker: Speaker, finding: Finding) -> str:
    shown = finding.facts["shown"]
    first = who(speaker, finding.ops[shown], f"dequeued {_element(speaker, finding)}")
    return f"{first}, before an enqueue that it can have come from began: {whose(speaker, finding.ops[0], 'enqueue')}."


_SENTENCES: Final = {
    "lost": _lost,
    "unexpected": _unexpected,
    "duplicated": _duplicated,
    "premature": _premature,
}
