"""The model `counter`: adds (and decrements) go up and down, reads show a possible sum (`jepsen.checker/counter`).

A read may show any sum of all adds acknowledged before it began, and of any of those that began before it ended and
were not: open, indeterminate, or acknowledged meanwhile. Failed adds do not count. With increments only, these bounds
are Jepsen's; decrements widen the lower one as increments widen the upper. A counter that nobody read is valid, as in
Jepsen.

Each bound is a running sum up to one moment. So a long history of few counters is judged by ranges of time, each by a
task that is told what came before. Where a read begins in one range and ends in another, each judges its half, and the
two meet when answers are put together (`checkers.jepsen.counter_ranges`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from checkers.columns.codes import FAIL, INFO, NEVER, OK, UNSUPPORTED, Ints, unsupported
from checkers.columns.rows import COLUMNS, OBJECT, column, flat, group_starts, key_at
from checkers.engines.api import Engine
from checkers.engines.flows import BatchFlow, leaves_cores_idle, run_batches, run_flow
from checkers.explain.conclude import conclude, thing, who, whose
from checkers.explain.speaker import Speaker
from checkers.findings import Finding, Findings, earliest
from checkers.jepsen.cells import read_cells
from checkers.jepsen.counter_ranges import (
    ABOVE,
    BELOW,
    MOST_TOLD,
    CounterPart,
    Half,
    Sums,
    Totals,
    before_each,
    found_of,
    range_width,
    summed,
    united,
)
from checkers.jepsen.numbers import exact, is_foreign, large_integers, summable
from checkers.options import CheckOptions
from checkers.settings import int_setting
from checkers.source import Source
from checkers.verdict import Verdict

ADD, SUBTRACT, READ = 0, 1, 2

_KINDS: Final = {
    **dict.fromkeys(("add", "inc", "increment"), ADD),
    **dict.fromkeys(("dec", "decrement", "sub", "subtract"), SUBTRACT),
    **dict.fromkeys(("r", "read"), READ),
}

NIL_READ, BEGINS, ENDS, BEGUN, DONE = 0, 1, 2, 3, 4
"""Kinds of rows: a read of nil, a read at the event that begins it and at the one that ends it, an add likewise. Of one
event's rows those of reads come first: an add counts for what comes behind it."""

_SCHEMA: Final = pa.schema(
    [
        *(pa.field(name, pa.int64(), nullable=False) for name in OBJECT),
        pa.field("range", pa.int64(), nullable=False),
        pa.field("moment", pa.int64(), nullable=False),
        pa.field("kind", pa.int8(), nullable=False),
        pa.field("sign", pa.int8(), nullable=False),
        pa.field("whole", pa.bool_(), nullable=False),
        pa.field("value", pa.int64(), nullable=False),
        pa.field("outcome", pa.int8(), nullable=False),
        pa.field("invoke", pa.int64(), nullable=False),
    ]
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
        counts, kept = self._told(rows, events, bounds, begins, ends)
        figures = {"reads": len(begins), "adds": int((kind == BEGUN).sum()), "nil_reads": int((kind == NIL_READ).sum())}
        figures["indeterminate_adds"] = int(((kind == BEGUN) & (outcome == INFO)).sum())
        ops = sum(figures[name] for name in ("reads", "adds", "nil_reads"))
        found = Findings(ops, counts=counts, kept=earliest(kept, self.explain), figures=figures)
        whole = column(rows, "whole")
        halves = [self._half(rows, events, bounds, row) for row in begins[~whole[begins]].tolist()]
        halves += [self._half(rows, events, bounds, row) for row in ends[~whole[ends]].tolist()]
        return CounterPart(found, tuple(halves))

    def sums(self, batch: pa.RecordBatch) -> Totals | None:
        """The sums of a batch of the history by counter and range; None if tasks can't be told of so many."""
        rows = pa.Table.from_batches([self.flatten(batch)])
        if not rows.num_rows:
            return {}
        rows = rows.sort_by([(name, "ascending") for name in (*self.keys, *self.order)])
        events = self._events(rows)
        if len(events.starts) > MOST_TOLD:
            return None
        found: dict[Any, Sums] = {}
        stops = np.append(events.starts[1:], rows.num_rows)
        done = np.where(events.kind == DONE, np.arange(rows.num_rows), -1)
        parts = (*_amounts(events, BEGUN), *_amounts(events, DONE))
        for start, stop in zip(events.starts.tolist(), stops.tolist(), strict=True):
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
        return _CounterEvents(kind, amount, group_starts([column(rows, name) for name in self.keys]))

    def _bounds(self, rows: pa.Table, events: _CounterEvents) -> _Bounds:
        """The sums at every event, beginning with what came before its range."""
        bases = [Sums()] * len(events.starts)
        if self.before:
            ranges = column(rows, "range")
            places = ((key_at(rows, row), ranges[row].item()) for row in events.starts.tolist())
            bases = [self.before.get(place, Sums()) for place in places]
        sizes = np.diff(np.append(events.starts, rows.num_rows))
        running = []
        for place, part in enumerate((*_amounts(events, BEGUN), *_amounts(events, DONE))):
            total = np.cumsum(part)
            base = np.array([sums[place] for sums in bases], self._kind_of_sums(bases))
            running.append(total + np.repeat(base - (total - part)[events.starts], sizes))
        row = np.maximum.accumulate(np.where(events.kind == DONE, np.arange(rows.num_rows), -1))
        here = row >= np.repeat(events.starts, sizes)
        earlier = np.repeat(np.array([sums.latest[1] for sums in bases], np.int64), sizes)
        begun_rise, begun_fall, done_rise, done_fall = running
        latest = np.where(here, column(rows, "invoke")[row], earlier)
        return _Bounds(begun_rise, begun_fall, done_rise, done_fall, latest)

    def _told(
        self, rows: pa.Table, events: _CounterEvents, bounds: _Bounds, begins: Ints, ends: Ints
    ) -> tuple[dict[str, int], list[Finding]]:
        """What is wrong with reads of which both events are here. Those of one read are at the same place among them in
        order of invocation, for reads that one operation begins and ends have the same bounds."""
        whole, invoke = column(rows, "whole"), column(rows, "invoke")
        begins, ends = begins[whole[begins]], ends[whole[ends]]
        group = np.repeat(np.arange(len(events.starts)), np.diff(np.append(events.starts, rows.num_rows)))
        ends = ends[np.lexsort((invoke[ends], group[ends]))]
        low = bounds.done_rise[begins] + bounds.begun_fall[ends] + self.initial
        high = bounds.done_fall[begins] + bounds.begun_rise[ends] + self.initial
        value = events.amount[begins]
        blame = {BELOW: (value < low).astype(np.bool_), ABOVE: (value > high).astype(np.bool_)}
        kept = []
        for name, flags in blame.items():
            wrong = np.flatnonzero(flags)
            for i in wrong[np.argsort(invoke[begins[wrong]], kind="stable")][: self.explain].tolist():
                row = int(begins[i])
                numbers = (value[i], low[i], high[i])
                kept.append(found_of(name, key_at(rows, row), int(invoke[row]), int(bounds.latest[row]), numbers))
        return {name: int(flags.sum()) for name, flags in blame.items()}, kept

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
    """Sorted rows: what each is, how much it adds or shows, and where those of a counter in a range begin."""

    kind: Any
    amount: Any
    starts: Ints


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


def judge_counter(source: Source, engine: Engine, options: CheckOptions) -> Verdict:
    """Every read lies between what must and what can have been added by then."""
    large = large_integers(source)
    initial = int_setting(options, "initial") or 0
    flow = CounterFlow(initial, large, len(source.dictionary), options.explain)
    if leaves_cores_idle(engine, source, flow):
        flow = _by_ranges(engine, source, flow)
    part = run_flow(engine, source, flow, partial(united, explain=options.explain)).part
    doubts: tuple[str, ...] = ()
    nil_reads = part.figures.get("nil_reads", 0)
    if nil_reads:
        doubts = (f"{nil_reads} reads returned nil, which is no state of a counter.",)
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


_SENTENCES: Final = {BELOW: _below, ABOVE: _above}
