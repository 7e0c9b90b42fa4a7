"""The model `counter`: adds (and decrements) go up and down, reads show a possible sum (`jepsen.checker/counter`).

A read may show any sum of all adds acknowledged before it began, and of any of those that began before it ended and
were not: open, indeterminate, or acknowledged meanwhile. Failed adds do not count. With increments only, these bounds
are Jepsen's; decrements widen the lower one as increments widen the upper.

Of two reads that follow each other the later shows no less than the earlier, but for decrements that can lie between:
those that had begun when the later ended, without those acknowledged when the earlier began. Nor does it show more, but
for such increments. Where a read is within its bounds and breaks this, it `went-back`.

Each bound is a running sum up to one moment. So a long history of few counters is judged by ranges of time, each by a
task that is told what came before. Where a read begins in one range and ends in another, each judges its half, and the
two meet when answers are put together (`united`). Reads that follow each other are compared counter by counter.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
from msgspec import structs

from checkers.columns.batches import (
    COLUMNS,
    OBJECT,
    SMALL,
    Groups,
    column,
    first_flagged,
    flat,
    flat_schema,
    groups_of,
    key_at,
)
from checkers.columns.codes import FAIL, INFO, NEVER, OK, UNSUPPORTED, Ints, unsupported
from checkers.engines.api import Engine
from checkers.engines.flows import BatchFlow, leaves_cores_idle, run_batches, run_flow
from checkers.explain.conclude import conclude, thing, who, whose
from checkers.explain.speaker import Speaker
from checkers.findings import Finding, Findings, Key, earliest, merged
from checkers.jepsen.cells import exact, is_foreign, json_able, large_integers, read_cells, summable
from checkers.options import CheckOptions, int_setting
from checkers.source import Source
from checkers.verdict import NO_READS, Verdict

BELOW: Final = "below-bounds"
ABOVE: Final = "above-bounds"
BACK: Final = "went-back"

_ROWS_PER_RANGE: Final = 1 << 20
"""Operations in a range of time, which has two events of each."""

_MOST_RANGES: Final = 1 << 12
"""Ranges of longer histories are longer, so that what tasks are told of them stays small."""

MOST_SUMS: Final = 1 << 14
"""Sums by counter and range that every task is told; more counters than that are work for many tasks each by itself."""


_MOST_COUNTERS: Final = 1_000
"""Counters that are split by time; of more each is judged by itself, and nobody is told of sums."""

ADD, SUBTRACT, READ = 0, 1, 2

_KINDS: Final = {
    **dict.fromkeys(("add", "inc", "increment"), ADD),
    **dict.fromkeys(("dec", "decrement", "sub", "subtract"), SUBTRACT),
    **dict.fromkeys(("r", "read"), READ),
}

NIL_READ, BEGINS, ENDS, BEGUN, DONE = 0, 1, 2, 3, 4
"""Kinds of rows: a read of nil, a read at the event that begins it and at the one that ends it, an add likewise. Of one
event's rows those of reads come first: an add counts for what comes behind it."""

_SCHEMA: Final = flat_schema(
    (*OBJECT, "range", "moment", "value", "invoke"), kind=SMALL, sign=SMALL, whole=pa.bool_(), outcome=SMALL
)
"""A row for each event of an operation: `whole` says that both of them are in one range of time."""

_SAFE: Final = 1 << 60

_PROBLEM: Final = "this is neither an add of an integer nor a read of one"


@dataclass(frozen=True, slots=True)
class CounterFlow:
    """See `Flow`: all events of a counter in a range of time meet. A range has `width` events, and `before` has what
    came before it."""

    initial: int
    large: Mapping[int, int]
    dictionary_size: int
    explain: int
    width: int = NEVER
    before: Totals = field(default_factory=dict)
    columns: tuple[str, ...] = COLUMNS
    schema: pa.Schema = _SCHEMA
    keys: tuple[str, ...] = (*OBJECT, "range")
    order: tuple[str, ...] = ("moment", "kind")

    def flatten(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        rows = read_cells(batch, _KINDS)
        kind, outcome, nil = (column(rows, name) for name in ("kind", "outcome", "nil"))
        adds = np.isin(kind, (ADD, SUBTRACT)) & (outcome != FAIL)
        reads = (kind == READ) & (outcome == OK)
        first = np.flatnonzero(adds | reads | (kind == UNSUPPORTED))
        last = np.flatnonzero((adds | (reads & (nil == 0))) & (column(rows, "complete") != NEVER))
        began = np.select([kind == UNSUPPORTED, adds, nil == 1], [UNSUPPORTED, BEGUN, NIL_READ], BEGINS)[first]
        chosen = np.concatenate((first, last))
        columns: dict[str, Any] = {name: column(rows, name)[chosen] for name in (*OBJECT, "outcome", "invoke")}
        invoke, complete = column(rows, "invoke"), column(rows, "complete")
        columns["kind"] = np.concatenate((began, np.where(adds, DONE, ENDS)[last]))
        columns["moment"] = np.concatenate((invoke[first], complete[last]))
        columns["range"] = columns["moment"] // self.width
        columns["whole"] = (invoke // self.width == complete // self.width)[chosen]
        columns["sign"] = np.where(kind == SUBTRACT, -1, 1)[chosen]
        columns["value"] = np.where(adds & (nil == 1), 1, column(rows, "value"))[chosen]
        return flat(_SCHEMA, columns)

    def judge(self, rows: pa.Table) -> CounterPart:
        events = self._events(rows)
        problems = unsupported(column(rows, "invoke")[events.kind == UNSUPPORTED], _PROBLEM)
        if problems or not rows.num_rows:
            return CounterPart(Findings(unsupported=problems))
        bounds = self._bounds(rows, events)
        kind, outcome = events.kind, column(rows, "outcome")
        begins, ends = np.flatnonzero(kind == BEGINS), np.flatnonzero(kind == ENDS)
        reads, counts, kept = self._whole_reads(rows, events, bounds, begins, ends)
        if self.width == NEVER:
            back = self._went_back(rows, events, bounds, reads)
            counts, kept = counts | {BACK: len(back)}, kept + back[: self.explain]
        figures = {"reads": len(begins), "adds": int((kind == BEGUN).sum()), "nil_reads": int((kind == NIL_READ).sum())}
        figures["indeterminate_adds"] = int(((kind == BEGUN) & (outcome == INFO)).sum())
        ops = sum(figures[name] for name in ("reads", "adds", "nil_reads"))
        found = Findings(ops, counts=counts, kept=earliest(kept, self.explain), figures=figures)
        whole = column(rows, "whole")
        halves = [self._half(rows, events, bounds, row) for row in begins[~whole[begins]].tolist()]
        halves += [self._half(rows, events, bounds, row) for row in ends[~whole[ends]].tolist()]
        return CounterPart(found, tuple(halves))

    def sums(self, batch: pa.RecordBatch) -> Totals | None:
        """The sums of a batch of the history by counter and range; None if there are too many to tell tasks of."""
        rows = pa.Table.from_batches([self.flatten(batch)])
        if not rows.num_rows:
            return {}
        rows = rows.sort_by([(name, "ascending") for name in (*self.keys, *self.order)])
        events = self._events(rows)
        starts, sizes, _ = events.groups
        if len(starts) > MOST_SUMS:
            return None
        found: dict[Any, Sums] = {}
        done = np.where(events.kind == DONE, np.arange(rows.num_rows), -1)
        parts = (*_amounts(events, BEGUN), *_amounts(events, DONE))
        for start, stop in zip(starts.tolist(), (starts + sizes).tolist(), strict=True):
            row = int(done[start:stop].max())
            latest = (-1, -1) if row < 0 else (column(rows, "moment")[row].item(), column(rows, "invoke")[row].item())
            rise, fall, done_rise, done_fall = (int(part[start:stop].sum()) for part in parts)
            sums = Sums(rise, fall, done_rise, done_fall, latest)
            found[key_at(rows, start), column(rows, "range")[start].item()] = sums
        return found

    def _events(self, rows: pa.Table) -> _CounterEvents:
        value, kind = column(rows, "value"), column(rows, "kind").copy()
        unreadable = is_foreign(value, self.dictionary_size) & ~np.isin(value, list(self.large) or [0])
        kind[unreadable] = UNSUPPORTED
        amount = summable(exact(value, self.large)) * column(rows, "sign")
        return _CounterEvents(kind, amount, groups_of([column(rows, name) for name in self.keys]))

    def _bounds(self, rows: pa.Table, events: _CounterEvents) -> _Bounds:
        """The sums at every event, beginning with what came before its range."""
        starts, sizes, _ = events.groups
        bases = [Sums()] * len(starts)
        if self.before:
            ranges = column(rows, "range")
            places = ((key_at(rows, row), ranges[row].item()) for row in starts.tolist())
            bases = [self.before.get(place, Sums()) for place in places]
        running = []
        for place, part in enumerate((*_amounts(events, BEGUN), *_amounts(events, DONE))):
            total = np.cumsum(part)
            base = np.array([sums[place] for sums in bases], self._kind_of_sums(bases))
            running.append(total + np.repeat(base - (total - part)[starts], sizes))
        row = np.maximum.accumulate(np.where(events.kind == DONE, np.arange(rows.num_rows), -1))
        here = row >= np.repeat(starts, sizes)
        earlier = np.repeat(np.array([sums.latest[1] for sums in bases], np.int64), sizes)
        begun_rise, begun_fall, done_rise, done_fall = running
        latest = np.where(here, column(rows, "invoke")[row], earlier)
        return _Bounds(begun_rise, begun_fall, done_rise, done_fall, latest)

    def _whole_reads(
        self, rows: pa.Table, events: _CounterEvents, bounds: _Bounds, begins: Ints, ends: Ints
    ) -> tuple[_CounterReads, dict[str, int], list[Finding]]:
        """What is wrong with reads of which both events are here. Those of one read are at the same place among them in
        order of invocation, for reads that one operation begins and ends have the same bounds."""
        whole, invoke = column(rows, "whole"), column(rows, "invoke")
        begins, ends = begins[whole[begins]], ends[whole[ends]]
        ends = ends[np.lexsort((invoke[ends], events.groups.of[ends]))]
        low = bounds.done_rise[begins] + bounds.begun_fall[ends] + self.initial
        high = bounds.done_fall[begins] + bounds.begun_rise[ends] + self.initial
        value = events.amount[begins]
        blame = {BELOW: (value < low).astype(np.bool_), ABOVE: (value > high).astype(np.bool_)}
        kept = []
        for name, flags in blame.items():
            for i in first_flagged(flags, invoke[begins], self.explain):
                row = int(begins[i])
                numbers = (value[i], low[i], high[i])
                kept.append(found_of(name, key_at(rows, row), int(invoke[row]), int(bounds.latest[row]), numbers))
        reads = _CounterReads(begins, ends, ~(blame[BELOW] | blame[ABOVE]))
        return reads, {name: int(flags.sum()) for name, flags in blame.items()}, kept

    def _went_back(
        self, rows: pa.Table, events: _CounterEvents, bounds: _Bounds, reads: _CounterReads
    ) -> list[Finding]:
        """Reads within their bounds that show less, or more, than an earlier one left them, in order."""
        begins, ends = reads.begins[reads.sound], reads.ends[reads.sound]
        of, value, moment = events.groups.of[begins], events.amount[begins], column(rows, "moment")
        spans = _ReadTimes(of, moment[begins], moment[ends])
        lower = _beyond(spans, value - bounds.done_fall[begins], value - bounds.begun_fall[ends])
        higher = _beyond(spans, bounds.done_rise[begins] - value, bounds.begun_rise[ends] - value)
        earlier = np.where(lower >= 0, lower, higher)
        invoke, found = column(rows, "invoke")[begins], []
        for i in np.flatnonzero(earlier >= 0).tolist():
            facts = {name: json_able(int(value[place])) for name, place in (("value", i), ("earlier", earlier[i]))}
            ops = (int(invoke[i]), int(invoke[earlier[i]]))
            found.append(Finding(BACK, ops[0], key_at(rows, int(begins[i])), ops, facts))
        return sorted(found, key=lambda finding: finding.order)

    def _half(self, rows: pa.Table, events: _CounterEvents, bounds: _Bounds, row: int) -> Half:
        key, invoke, value = key_at(rows, row), column(rows, "invoke")[row].item(), int(events.amount[row])
        if events.kind[row] == ENDS:
            return Half(key, invoke, value, False, int(bounds.begun_rise[row]), int(bounds.begun_fall[row]))
        rise, fall = (int(part[row]) + self.initial for part in (bounds.done_rise, bounds.done_fall))
        return Half(key, invoke, value, True, rise, fall, int(bounds.latest[row]))

    def _kind_of_sums(self, bases: list[Sums]) -> Any:
        """A type in which nothing overflows that adds these to sums of what is `summable`."""
        largest = max(abs(number) for number in (self.initial, *(part for sums in bases for part in sums[:4])))
        return np.int64 if largest < _SAFE else object


class _CounterEvents(NamedTuple):
    """Sorted rows: what each is, how much it adds or shows, and in groups those of a counter in a range."""

    kind: Any
    amount: Any
    groups: Groups


class _CounterReads(NamedTuple):
    """Rows at which reads begin and end, and whether these are within their bounds."""

    begins: Ints
    ends: Ints
    sound: Any


class _ReadTimes(NamedTuple):
    """By read the counter, and the events at which it begins and ends; in order of counters and beginnings."""

    of: Ints
    begin: Ints
    end: Ints


def _beyond(spans: _ReadTimes, left: Any, found: Any) -> Ints:
    """For each read the one that left the most of those of its counter that ended before it began, if that is more than
    what it `found`; else -1."""
    count = len(spans.of)
    by_end = np.lexsort((spans.end, spans.of))
    of, best, shift = spans.of[by_end], np.arange(count), 1
    # best[i] is the place, in order of ends, of the most that was left by those of the counter among the last `shift`
    # up to i; twice as many each turn.
    while shift < count:
        other = best[:-shift]
        more = (of[:-shift] == of[shift:]) & (left[by_end[other]] > left[by_end[best[shift:]]]).astype(np.bool_)
        best[shift:] = np.where(more, other, best[shift:])
        shift *= 2
    ranks = np.unique(np.concatenate((spans.end, spans.begin)), return_inverse=True)[1]
    ended, begun = np.split(ranks + np.tile(spans.of, 2) * (2 * count + 1), [count])
    last = np.searchsorted(ended[by_end], begun) - 1
    some = (last >= 0) & (of[np.maximum(last, 0)] == spans.of)
    earlier = by_end[best[np.maximum(last, 0)]] if count else last
    return np.where(some & (left[earlier] > found).astype(np.bool_), earlier, -1)


class _Bounds(NamedTuple):
    """Sums of adds up to each row; `latest` is the last add acknowledged by then, or -1."""

    begun_rise: Any
    begun_fall: Any
    done_rise: Any
    done_fall: Any
    latest: Ints


def _amounts(events: _CounterEvents, kind: int) -> tuple[Any, Any]:
    """By how much each row of that kind makes the counter rise, and fall."""
    amount = np.where(events.kind == kind, events.amount, 0)
    return np.maximum(amount, 0), np.minimum(amount, 0)


class Sums(NamedTuple):
    """What adds and decrements come to over some time, exactly: of all that began and of all that were
    acknowledged there; `latest` is the last acknowledgement there and the invocation it belongs to (-1: none)."""

    begun_rise: int = 0
    begun_fall: int = 0
    done_rise: int = 0
    done_fall: int = 0
    latest: tuple[int, int] = (-1, -1)

    def with_later(self, other: Sums) -> Sums:
        """The sums over this time and a later one."""
        return Sums(
            self.begun_rise + other.begun_rise,
            self.begun_fall + other.begun_fall,
            self.done_rise + other.done_rise,
            self.done_fall + other.done_fall,
            max(self.latest, other.latest),
        )


Totals: TypeAlias = Mapping[tuple[Key, int], Sums]
"""By counter and range: the sums within it, or before it."""


def range_width(operations: int) -> int:
    """Events in a range of a history with that many operations."""
    return 2 * max(_ROWS_PER_RANGE, -(-operations // _MOST_RANGES))


def summed(parts: list[Totals | None]) -> Totals | None:
    """The sums of several parts of a history; None if there are too many to tell tasks of."""
    total: dict[tuple[Key, int], Sums] = {}
    for part in parts:
        if part is None:
            return None
        for place, sums in part.items():
            total[place] = total[place].with_later(sums) if place in total else sums
    counters = len({key for key, _ in total})
    return total if len(total) <= MOST_SUMS and counters <= _MOST_COUNTERS else None


def before_each(totals: Totals) -> dict[tuple[Key, int], Sums]:
    """What came before each range in which a counter has anything."""
    ranges: dict[Key, list[int]] = {}
    for key, number in sorted(totals):
        ranges.setdefault(key, []).append(number)
    found: dict[tuple[Key, int], Sums] = {}
    for key, numbers in ranges.items():
        sums = accumulate((totals[key, number] for number in numbers), Sums.with_later, initial=Sums())
        found |= {(key, number): before for number, before in zip(numbers, sums, strict=False)}
    return found


class Half(NamedTuple):
    """A read at the moment it began, or else at which it ended: what had risen and fallen by then of adds that were
    acknowledged, or else of those that had begun; `latest` is the last acknowledged add, if the read begins here."""

    key: Key
    invoke: int
    value: int
    begins: bool
    rise: int
    fall: int
    latest: int = -1


@dataclass(frozen=True, slots=True)
class CounterPart:
    """What was found, and halves of reads whose others are elsewhere."""

    part: Findings
    halves: tuple[Half, ...] = ()


def united(parts: Iterable[CounterPart], explain: int) -> CounterPart:
    """All parts as one; halves that meet are judged."""
    every = list(parts)
    waiting: dict[tuple[Key, int, int, bool], list[Half]] = {}
    met: list[Findings] = []
    for half in (half for part in every for half in part.halves):
        others = waiting.get((half.key, half.invoke, half.value, not half.begins))
        if others:
            other = others.pop()
            met.append(_judged(*((half, other) if half.begins else (other, half))))
        else:
            waiting.setdefault((half.key, half.invoke, half.value, half.begins), []).append(half)
    left = tuple(half for halves in waiting.values() for half in halves)
    return CounterPart(merged([*(part.part for part in every), *met], explain), left)


def _judged(begin: Half, end: Half) -> Findings:
    low, high = begin.rise + end.fall, begin.fall + end.rise
    name = BELOW if begin.value < low else ABOVE if begin.value > high else None
    if name is None:
        return Findings()
    found = found_of(name, begin.key, begin.invoke, begin.latest, (begin.value, low, high))
    return Findings(counts={name: 1}, kept=earliest([found], 1))


def found_of(name: str, key: Key, invoke: int, latest: int, numbers: tuple[Any, Any, Any]) -> Finding:
    """A read of a counter that is out of its bounds; `numbers` are its value, the lower and the upper one."""
    facts = {what: json_able(int(number)) for what, number in zip(("value", "low", "high"), numbers, strict=True)}
    return Finding(name, invoke, key, (invoke, latest) if latest >= 0 else (invoke,), facts)


def judge_counter(source: Source, engine: Engine, options: CheckOptions) -> Verdict:
    """Every read lies between what must and what can have been added by then."""
    large = large_integers(source)
    initial = int_setting(options, "initial") or 0
    flow = CounterFlow(initial, large, len(source.dictionary), options.explain)
    unite = partial(united, explain=options.explain)
    part = run_flow(engine, source, flow, unite).part
    ranged = _by_ranges(engine, source, flow) if leaves_cores_idle(engine, source, flow) else flow
    if ranged is not flow:  # whose bounds hold even where a counter was too large for one task
        bounds = run_flow(engine, source, ranged, unite).part
        back = tuple(finding for finding in part.kept if finding.anomaly == BACK)
        counts = bounds.counts | {name: n for name, n in part.counts.items() if name == BACK}
        part = structs.replace(bounds, counts=counts, kept=(*bounds.kept, *back))
    doubts: tuple[str, ...] = ()
    nil_reads = part.figures.get("nil_reads", 0)
    if nil_reads:
        doubts = (f"{nil_reads} reads returned nil, which is no state of a counter.",)
    elif not part.figures.get("reads"):
        doubts = (NO_READS,)
    return conclude("counter", source, engine, part, _SENTENCES, doubts)


def _by_ranges(engine: Engine, source: Source, flow: CounterFlow) -> CounterFlow:
    """The flow that judges ranges of time, or the same one if there are too many counters for that."""
    ranged = replace(flow, width=range_width(source.rows))
    totals = run_batches(engine, source, BatchFlow(COLUMNS, ranged.sums, summed))
    return flow if totals is None else replace(ranged, before=before_each(totals))


def _below(speaker: Speaker, finding: Finding) -> str:
    facts = finding.facts
    first = who(speaker, finding.ops[0], f"read {facts['value']} from {thing(speaker, 'counter', finding.key)}")
    second = f"which must have been at least {facts['low']} (and at most {facts['high']}) by what had been acknowledged"
    if len(finding.ops) < 2:
        return f"{first}, {second}."
    return (
        f"{first}, {second} before; the last of that was {whose(speaker, finding.ops[1], _change(speaker, finding))}."
    )


def _change(speaker: Speaker, finding: Finding) -> str:
    mop = speaker.rows[finding.ops[1]]["mops"][0]
    return f"{mop['f']} of {speaker.source.shown(mop['value'])}"


def _above(speaker: Speaker, finding: Finding) -> str:
    facts = finding.facts
    first = who(speaker, finding.ops[0], f"read {facts['value']} from {thing(speaker, 'counter', finding.key)}")
    return f"{first}, but all that can have been added by then makes at most {facts['high']} (at least {facts['low']})."


def _back(speaker: Speaker, finding: Finding) -> str:
    facts, (later, earlier) = finding.facts, finding.ops
    first = who(speaker, later, f"read {facts['value']} from {thing(speaker, 'counter', finding.key)}")
    second = f"after {whose(speaker, earlier, 'read')} had shown {facts['earlier']}"
    return f"{first}, {second}: no change that can have taken effect between explains that."


_SENTENCES: Final = {BELOW: _below, ABOVE: _above, BACK: _back}
