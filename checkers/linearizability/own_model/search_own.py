"""Judges operations by a model of the user's own, in the process that runs it."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Final

import numpy as np

from checkers.columns.codes import NEVER, Ints
from checkers.findings import NO_KEY, Finding, Findings
from checkers.linearizability.driver import (
    INVALID,
    MOST_SLOTS,
    UNDECIDED,
    Budget,
    answers_of,
    drive,
    most_open,
    narrow,
)
from checkers.linearizability.own_model.calls import OwnCall, RawCall
from checkers.linearizability.own_model.own_graph import OwnGraph, graph_of
from checkers.linearizability.own_model.steps import ModelSteps, loaded, numbered
from checkers.linearizability.own_model.table_search import TableOps, begin, grown, make_transitions
from checkers.linearizability.search_loop import FIRST_BEAM
from harness.own_code import OwnCode

NONLINEARIZABLE: Final = "nonlinearizable"

REFUSING: Final = "refusing"
"""Figure: how many searches met a step that is refused, or could have met one."""

_SHOWN: Final = 16
"""States and operations that are told of a refuted partition at most."""


def partitions_of(code: OwnCode, calls: list[RawCall]) -> list[int] | OwnGraph:
    """By call the number of its partition, as they appear; of an analyzer its graph."""
    own, model = [call.call() for call in calls], loaded(code)
    if callable(getattr(model, "graph", None)):
        return graph_of(code, model.graph, own)
    steps, numbers = ModelSteps(code, model), dict[Hashable, int]()
    return [numbers.setdefault(steps.partition(call), len(numbers)) for call in own]


def judged(code: OwnCode, calls: list[RawCall], budget: Budget, explain: int) -> Findings | OwnGraph:
    """What the model refutes of operations in order of invocation, whichever partitions they are of; of an analyzer
    its graph."""
    own, model = [call.call() for call in calls], loaded(code)
    if callable(getattr(model, "graph", None)):
        return graph_of(code, model.graph, own)
    steps = ModelSteps(code, model)
    names: dict[Hashable, int] = {}
    key = np.array([names.setdefault(steps.partition(call), len(names)) for call in own], np.int64)
    ops, firsts = _table(calls, key, len(names))
    start = np.full(len(names), steps.first())
    table = make_transitions(len(firsts))

    def answers(state: int, number: int) -> list[int]:
        return steps.after(state, own[firsts[number]])

    stuck, width = np.full(len(names), -1), most_open(ops)
    searched = narrow(width)
    ops = _only(ops, searched)
    found = answers_of(
        stuck, ops.order, drive(begin(ops, start, table, answers, FIRST_BEAM), len(names), budget, stuck)
    )
    found.answers[~searched] = UNDECIDED
    refuted = np.flatnonzero(found.answers == INVALID)
    texts = [repr(name) for name in names]
    kept = []
    for k in sorted(refuted.tolist(), key=lambda k: int(ops.invoke[found.stuck[k]]))[:explain]:
        finding = _finding(ops, k, found.stuck, (steps, answers, start, table), budget)
        kept.append(_named(finding, texts[k]) if steps.partitioned else finding)
    refusing = bool(len(refuted)) or _refusing(steps, [own[first] for first in firsts])
    steps.ask_again()
    undecided = int((found.answers == UNDECIDED).sum())
    wide = f"{width.max()} operations of one partition are open at once, and the search takes {MOST_SLOTS}"
    reasons = ((found.why or wide),) if undecided else ()
    counts = {NONLINEARIZABLE: len(refuted)} if len(refuted) else {}
    figures = {REFUSING: int(refusing)}
    return Findings(len(calls), len(names), counts, tuple(kept), undecided, reasons, len(names), figures=figures)


def _refusing(steps: ModelSteps, calls: list[OwnCall]) -> bool:
    """Whether the model could have refused anything, in some partition."""
    partitions: dict[Hashable, list[OwnCall]] = {}
    for call in calls:
        partitions.setdefault(steps.partition(call), []).append(call)
    return any(steps.could_refuse(each) for each in partitions.values())


def _table(calls: list[RawCall], key: Ints, keys: int) -> tuple[TableOps, list[int]]:
    """The columns that the search reads, and by number of what is called the first that does."""
    numbers, firsts = numbered([call.alike for call in calls])
    invoke = np.array([call.invoke for call in calls], np.int64)
    complete = np.array([NEVER if call.complete is None else call.complete for call in calls], np.int64)
    rows = np.lexsort((invoke, key))
    offsets = np.searchsorted(key[rows], np.arange(keys + 1))
    ops = TableOps(offsets, np.array(numbers, np.int64)[rows], invoke[rows], complete[rows], np.empty(0, np.int64))
    return ops._replace(order=np.lexsort((ops.complete, key[rows]))), firsts


def _only(ops: TableOps, searched: Any) -> TableOps:
    """The operations, of which keys that can't be searched have none."""
    if searched.all():
        return ops
    sizes = np.diff(ops.offsets)
    rows = np.flatnonzero(np.repeat(searched, sizes))
    offsets = np.concatenate(([0], np.cumsum(np.where(searched, sizes, 0))))
    chosen = ops._replace(offsets=offsets, alike=ops.alike[rows], invoke=ops.invoke[rows], complete=ops.complete[rows])
    key = np.repeat(np.arange(len(sizes)), np.diff(offsets))
    return chosen._replace(order=np.lexsort((chosen.complete, key)))


def _named(finding: Finding, partition: str) -> Finding:
    return Finding(finding.anomaly, finding.order, finding.key, finding.ops, finding.facts | {"partition": partition})


def _finding(ops: TableOps, key: int, stuck: Ints, asked: tuple[Any, ...], budget: Budget) -> Finding:
    """Where the search of a refuted partition ends if it follows everything, with the states that were possible."""
    steps, answers, start, table = asked
    first, last = int(ops.offsets[key]), int(ops.offsets[key + 1])
    alone = TableOps(
        np.array([0, last - first]),
        ops.alike[first:last],
        ops.invoke[first:last],
        ops.complete[first:last],
        ops.order[first:last] - first,
    )
    row = int(stuck[key]) - first
    run, ends = begin(alone, start[key : key + 1], table, answers, 0), np.full(1, -1)
    facts: dict[str, Any] = {"stuck": int(alone.invoke[row]), "open": [], "before": [], "states": []}
    if drive(run, 1, budget, ends).why is None and ends[0] >= 0:
        facts |= _where(run.search, alone, int(ends[0]), steps)
    return Finding(NONLINEARIZABLE, facts["stuck"], NO_KEY, (facts["stuck"], *facts["open"], *facts["before"]), facts)


def _where(search: Any, ops: TableOps, row: int, steps: ModelSteps) -> dict[str, Any]:
    window, frontier = search.window, search.frontier
    slots = [slot for slot in range(int(window.top[0])) if window.row[slot] >= 0]
    opened = sorted(int(window.row[slot]) for slot in slots if window.row[slot] != row)
    past = [int(r) for r in ops.order if ops.complete[r] < ops.complete[row]]
    live = [place for place in range(int(frontier.tally.used)) if frontier.state[place] >= 0]
    states = [
        {
            "state": steps.described(int(frontier.state[place])),
            "done": [
                int(ops.invoke[window.row[slot]])
                for slot in slots
                if not int(frontier.available[place, slot >> 6]) >> (slot & 63) & 1
            ],
        }
        for place in live[:_SHOWN]
    ]
    return {
        "stuck": int(ops.invoke[row]),
        "open": [int(ops.invoke[r]) for r in opened[:_SHOWN]],
        "before": [int(ops.invoke[r]) for r in past[-3:]],
        "states": states,
        "configurations": len(live),
    }


def warm() -> None:
    """Compile the search, by which nothing is judged."""
    row, zero = np.array([NEVER - 1]), np.zeros(1, np.int64)
    ops = TableOps(np.array([0, 1]), zero, zero, row, zero)
    run = begin(ops, zero, make_transitions(1, 4), lambda state, call: [0], FIRST_BEAM)
    drive(run, 1, Budget(), np.full(1, -1))
    grown(run.search.table)
