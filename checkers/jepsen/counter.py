"""The model `counter`: adds (and decrements) go up and down, reads show a possible sum (`jepsen.checker/counter`).

A read may show any sum of all adds acknowledged before it began, and of any of those that began before it ended and
were not: open, indeterminate, or acknowledged meanwhile. Failed adds do not count. With increments only, these bounds
are Jepsen's; decrements widen the lower one as increments widen the upper.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa

from checkers.engines.api import Engine
from checkers.engines.flows import run_flow
from checkers.findings import Finding
from checkers.jepsen.cells import SCHEMA, STRANGE, read_cells, strange_of
from checkers.jepsen.numbers import exact, is_foreign, json_able, large_integers, summable
from checkers.jepsen.parts import Part, earliest, merged
from checkers.jepsen.rows import COLUMNS, FAIL, INFO, OBJECT, OK, column, group_starts, key_at
from checkers.jepsen.settings import int_setting
from checkers.jepsen.words import conclude, thing, who, whose
from checkers.kernels.columns import Ints
from checkers.options import CheckOptions
from checkers.source import Source
from checkers.verdict import Verdict
from checkers.words import Speaker

ADD, SUBTRACT, READ = 0, 1, 2

_KINDS: Final = {
    **dict.fromkeys(("add", "inc", "increment"), ADD),
    **dict.fromkeys(("dec", "decrement", "sub", "subtract"), SUBTRACT),
    **dict.fromkeys(("r", "read"), READ),
}

BELOW: Final = "below-bounds"
ABOVE: Final = "above-bounds"

_PROBLEM: Final = "this is neither an add of an integer nor a read of one"


@dataclass(frozen=True, slots=True)
class CounterFlow:
    """See `Flow`: all operations of a counter meet."""

    initial: int
    large: Mapping[int, int]
    dictionary_size: int
    explain: int
    columns: tuple[str, ...] = COLUMNS
    schema: pa.Schema = SCHEMA
    keys: tuple[str, ...] = OBJECT
    order: tuple[str, ...] = ("invoke",)

    def flatten(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        rows = read_cells(batch, _KINDS)
        kind, outcome = column(rows, "kind"), column(rows, "outcome")
        said = np.isin(kind, (ADD, SUBTRACT)) & (outcome != FAIL) | (kind == READ) & (outcome == OK)
        return rows.filter(pa.array(said | (kind == STRANGE)))

    def judge(self, rows: pa.Table) -> Part:
        kind, value, nil = column(rows, "kind").copy(), column(rows, "value"), column(rows, "nil") == 1
        unreadable = is_foreign(value, self.dictionary_size) & ~np.isin(value, list(self.large) or [0])
        kind[unreadable] = STRANGE
        invoke, complete = column(rows, "invoke"), column(rows, "complete")
        problems = strange_of(kind, invoke, _PROBLEM)
        if problems or not rows.num_rows:
            return Part(problems=problems)
        objects = np.zeros(rows.num_rows, np.int64)
        objects[group_starts([column(rows, name) for name in OBJECT])] = 1
        objects = np.cumsum(objects) - 1
        amount = exact(value, self.large)
        amount = summable(np.where(nil & (kind != READ), 1, amount))
        amount = np.where(kind == SUBTRACT, -amount, amount)
        reads = np.flatnonzero((kind == READ) & ~nil)
        adds = np.flatnonzero(kind != READ)
        bounds = _bounds(objects, amount, invoke, complete, adds, reads)
        low, high = bounds.low + self.initial, bounds.high + self.initial
        blame = {BELOW: (amount[reads] < low).astype(np.bool_), ABOVE: (amount[reads] > high).astype(np.bool_)}
        kept = []
        for name, flags in blame.items():
            for i in np.flatnonzero(flags)[np.argsort(invoke[reads[flags]], kind="stable")][: self.explain].tolist():
                row = int(reads[i])
                witness = (int(invoke[adds[bounds.last_add[i]]]),) if bounds.last_add[i] >= 0 else ()
                facts = {"value": amount[row], "low": low[i], "high": high[i]}
                facts = {key: json_able(int(number)) for key, number in facts.items()}
                kept.append(Finding(name, int(invoke[row]), key_at(rows, row), (int(invoke[row]), *witness), facts))
        open_adds = int((column(rows, "outcome")[adds] == INFO).sum())
        figures = {"reads": len(reads), "adds": len(adds), "indeterminate_adds": open_adds}
        figures["nil_reads"] = int(((kind == READ) & nil).sum())
        counts = {name: int(flags.sum()) for name, flags in blame.items()}
        return Part(rows.num_rows, counts, earliest(kept, self.explain), figures)


@dataclass(frozen=True, slots=True)
class _Bounds:
    """What each read may show; `last_add` is the last add acknowledged before it began, or -1."""

    low: Any
    high: Any
    last_add: Ints


def _bounds(objects: Ints, amount: Any, invoke: Ints, complete: Ints, adds: Ints, reads: Ints) -> _Bounds:
    begun = _Prefix(objects[adds], invoke[adds], amount[adds])
    done = _Prefix(objects[adds], complete[adds], amount[adds])
    at_end = begun.place(objects[reads], complete[reads])
    at_begin = done.place(objects[reads], invoke[reads])
    low = done.rises[at_begin] - done.rises[done.base(objects[reads])]
    low = low + begun.falls[at_end] - begun.falls[begun.base(objects[reads])]
    high = done.falls[at_begin] - done.falls[done.base(objects[reads])]
    high = high + begun.rises[at_end] - begun.rises[begun.base(objects[reads])]
    last = np.where(at_begin > done.base(objects[reads]), at_begin - 1, -1)
    return _Bounds(low, high, np.where(last >= 0, np.append(done.order, -1)[last], -1))


class _Prefix:
    """Running sums of rises and falls in order of (object, moment)."""

    def __init__(self, objects: Ints, moment: Ints, amount: Any) -> None:
        self.order = np.lexsort((moment, objects))
        self._objects, self._moment = objects[self.order], moment[self.order]
        ordered = amount[self.order]
        self.rises = _running(np.where(ordered > 0, ordered, 0))
        self.falls = _running(np.where(ordered < 0, ordered, 0))

    def base(self, objects: Ints) -> Ints:
        """Where each object begins."""
        found: Ints = np.searchsorted(self._objects, objects)
        return found

    def place(self, objects: Ints, moment: Ints) -> Ints:
        """How many rows are of earlier objects, or of that object and before the moment."""
        every = np.concatenate((self._objects, objects))
        moments = np.concatenate((self._moment, moment))
        is_query = np.concatenate((np.zeros(len(self._objects), np.int8), np.ones(len(objects), np.int8)))
        order = np.lexsort((-is_query, moments, every))
        before = np.empty(len(every), np.int64)
        before[order] = np.cumsum(1 - is_query[order])
        return before[len(self._objects) :]


def _running(values: Any) -> Any:
    return np.concatenate((np.zeros(1, values.dtype), np.cumsum(values, dtype=values.dtype)))


def judge_counter(source: Source, engine: Engine, options: CheckOptions) -> Verdict:
    """Every read lies between what must and what can have been added by then."""
    large = large_integers(source)
    initial = int_setting(options, "initial") or 0
    flow = CounterFlow(initial, large, len(source.dictionary), options.explain)
    part = run_flow(engine, source, flow, partial(merged, explain=options.explain))
    doubts: tuple[str, ...] = ()
    nil_reads = part.figures.get("nil_reads", 0)
    if nil_reads:
        doubts = (f"{nil_reads} reads returned nil, which is no state of a counter.",)
    return conclude("counter", source, engine, part, _SENTENCES, doubts)


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
