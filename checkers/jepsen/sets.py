"""The model `set`: elements are added, and the last successful read says which survived (`jepsen.checker/set`).

Per object: `lost` elements were acknowledged before the final read began but are not in it, `unexpected` ones are in it
though nobody tried to add them, or every add of them failed; `recovered` ones are in it though their add was of
unknown outcome, which is no anomaly.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
from msgspec.structs import replace

from checkers.columns.batches import (
    COLUMNS,
    OBJECT,
    SMALL,
    WIDE,
    Bools,
    ClientMops,
    Operations,
    column,
    flat,
    flat_schema,
    group_starts,
    key_at,
    read_mops,
    read_operations,
    unknown_rows,
)
from checkers.columns.codes import FAIL, OK, UNSUPPORTED, Ints, unsupported
from checkers.columns.dense import spread
from checkers.columns.projection import places_of
from checkers.engines.api import Engine
from checkers.engines.flows import BatchFlow, findings_of, leaves_cores_idle, run_batches
from checkers.explain.conclude import conclude, thing, who, whose
from checkers.explain.speaker import Speaker
from checkers.findings import Finding, Findings, Key, earliest
from checkers.jepsen.elements import ADD, READ
from checkers.options import CheckOptions
from checkers.source import Source
from checkers.verdict import Verdict

ITEM = 2

_MOST_SETS: Final = 1_000
"""Sets of whose final reads tasks are told; more sets than that are work for many tasks each by itself."""

SCHEMA: Final = flat_schema(OBJECT, kind=SMALL, value=WIDE, outcome=SMALL, invoke=WIDE, complete=WIDE)
"""One row an add, a read (`outcome` 1 if it returned nil) or an element of a read."""

PROBLEM: Final = "this is neither an add of one element nor a read of a list of elements"


@dataclass(frozen=True, slots=True)
class SetRows:
    """The adds and reads of a batch: `adds` and `reads` number micro-operations; elements of reads are `items`,
    `item_of` their reads; `unknown` are micro-operations that a set does not know."""

    operations: Operations
    mops: ClientMops
    adds: Ints
    reads: Ints
    unknown: Ints
    unfit: Ints


def read_set_rows(batch: pa.RecordBatch) -> SetRows:
    """What a batch says about sets: adds of any outcome, and successful reads."""
    operations = read_operations(batch)
    everything = np.ones(len(operations.row), np.bool_)
    mops = read_mops(batch, operations, everything, {"add": ADD, "r": READ, "read": READ})
    outcome = operations.outcome[mops.of]
    adds = mops.kind == ADD
    reads = (mops.kind == READ) & (outcome == OK)
    unknown = (mops.kind == UNSUPPORTED) | (adds & mops.listed) | (reads & ~mops.listed & ~mops.nil)
    if mops.nil_item.any():
        nil_items = np.concatenate(([0], np.cumsum(mops.nil_item)))
        unknown |= reads & mops.listed & (nil_items[mops.list_stop] > nil_items[mops.list_start])
    unknown |= adds & mops.nil
    unfit = np.flatnonzero(operations.unfit & ~((operations.outcome != OK) & operations.named(("read", "r"))))
    return SetRows(
        operations,
        mops,
        np.flatnonzero(adds & ~unknown),
        np.flatnonzero(reads & ~unknown),
        np.flatnonzero(unknown),
        unfit,
    )


def problems_of(table: pa.Table) -> tuple[tuple[int, str], ...]:
    """The operations that a set does not know."""
    return unsupported(column(table, "invoke")[column(table, "kind") == UNSUPPORTED], PROBLEM)


@dataclass(frozen=True, slots=True)
class SetFlow:
    """See `Flow`. Of each batch only the elements of each object's last read go on: no other can be the final one."""

    explain: int
    columns: tuple[str, ...] = COLUMNS
    schema: pa.Schema = SCHEMA
    keys: tuple[str, ...] = OBJECT
    order: tuple[str, ...] = ("invoke",)

    def flatten(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        found = read_set_rows(batch)
        last = _last_reads(found)
        listed = last[found.mops.listed[last]]
        places, which = spread(found.mops.list_start[listed], found.mops.list_stop[listed])
        rows = np.concatenate((found.adds, found.reads, listed[which], found.unknown))
        sizes = (len(found.adds), len(found.reads), len(which), len(found.unknown))
        kind = np.repeat(np.array([ADD, READ, ITEM, UNSUPPORTED], np.int8), sizes)
        value = found.mops.value[rows]
        value[kind == ITEM] = found.mops.items[places]
        # Tasks share a set's rows out by `value` (`ElementFlow`): by their numbers reads don't all come to one.
        value[kind == READ] = found.operations.invoke[found.mops.of[found.reads]]
        return _flat_rows(found, rows, kind, value)

    def judge(self, rows: pa.Table) -> Findings:
        problems = problems_of(rows)
        if problems or not rows.num_rows:
            return Findings(unsupported=problems)
        starts = group_starts([column(rows, name) for name in OBJECT])
        return _judge_objects(rows, starts, _finals_in(rows, starts), self.explain)


class FinalRead(NamedTuple):
    """The read of a set that completed last (-1: there is none), and whether it says nothing of its elements."""

    complete: int = -1
    invoke: int = -1
    silent: bool = True


Finals: TypeAlias = Mapping[Key, FinalRead]


@dataclass(frozen=True, slots=True)
class ElementFlow:
    """See `Flow`: what happened to one element of one set meets, so that many tasks judge a set. They are told the
    final reads of all sets, and of no other do the elements go on."""

    explain: int
    finals: Finals
    columns: tuple[str, ...] = COLUMNS
    schema: pa.Schema = SCHEMA
    keys: tuple[str, ...] = (*OBJECT, "value")
    order: tuple[str, ...] = ("invoke",)

    def flatten(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        rows = SetFlow(self.explain).flatten(batch)
        place = places_of([column(rows, name) for name in OBJECT], list(self.finals))
        final = np.array([-1, *(read.complete for read in self.finals.values())])[place + 1]
        return rows.filter(pa.array((column(rows, "kind") != ITEM) | (column(rows, "complete") == final)))

    def judge(self, rows: pa.Table) -> Findings:
        problems = problems_of(rows)
        if problems or not rows.num_rows:
            return Findings(unsupported=problems)
        starts = group_starts([column(rows, name) for name in OBJECT])
        reads = [self.finals[key_at(rows, int(start))] for start in starts]
        finals = _Finals(*(np.array(part) for part in zip(*reads, strict=True)))
        return _judge_objects(rows, starts, finals, self.explain)


class _Finals(NamedTuple):
    """The final reads of several sets, in order; see `FinalRead`."""

    complete: Ints
    invoke: Ints
    silent: Bools


def _finals_in(rows: pa.Table, starts: Ints) -> _Finals:
    """The final reads of the sets that a table is about, which begin at `starts`."""
    reads = np.flatnonzero(column(rows, "kind") == READ)
    complete, invoke, outcome = (column(rows, name)[reads] for name in ("complete", "invoke", "outcome"))
    objects = np.searchsorted(starts, reads, "right") - 1
    final, began, silent = np.full(len(starts), -1), np.full(len(starts), -1), np.ones(len(starts), np.bool_)
    np.maximum.at(final, objects, complete)
    last = complete == final[objects]
    began[objects[last]], silent[objects[last]] = invoke[last], outcome[last] == 1
    return _Finals(final, began, silent)


def finals_of(batch: pa.RecordBatch) -> Finals | None:
    """The final reads in a batch of a history; None if there are more sets than tasks can be told of."""
    flat_rows = SetFlow(0).flatten(batch)
    kept = flat_rows.filter(pa.array(np.isin(column(flat_rows, "kind"), (ADD, READ))))
    rows = pa.Table.from_batches([kept]).sort_by([(name, "ascending") for name in OBJECT])
    starts = group_starts([column(rows, name) for name in OBJECT])
    if len(starts) > _MOST_SETS:
        return None
    reads = zip(*(part.tolist() for part in _finals_in(rows, starts)), strict=True)
    return {key_at(rows, int(start)): FinalRead(*read) for start, read in zip(starts, reads, strict=True)}


def latest(parts: list[Finals | None]) -> Finals | None:
    """The final reads of several parts of a history as those of all."""
    finals: dict[Key, FinalRead] = {}
    for part in parts:
        if part is None:
            return None
        for key, read in part.items():
            finals[key] = max(finals.get(key, read), read)
    return finals if len(finals) <= _MOST_SETS else None


def _last_reads(found: SetRows) -> Ints:
    """The read of each object that completed last."""
    reads = found.reads
    complete = found.operations.complete[found.mops.of[reads]]
    address = [part[reads] for part in found.mops.address]
    order = np.lexsort((complete, *address))
    if not len(order):
        return reads
    ends = np.append(group_starts([part[order] for part in address])[1:], len(order)) - 1
    return reads[order[ends]]


def _flat_rows(found: SetRows, rows: Ints, kind: Any, value: Ints) -> pa.RecordBatch:
    mops, operations = found.mops, found.operations
    of = mops.of[rows]
    outcome = operations.outcome[of].copy()
    outcome[kind == READ] = mops.nil[rows][kind == READ] & ~mops.listed[rows][kind == READ]
    columns: dict[str, Any] = {name: part[rows] for name, part in zip(OBJECT, mops.address, strict=True)}
    columns |= {"kind": kind, "value": value, "outcome": outcome}
    columns |= {"invoke": operations.invoke[of], "complete": operations.complete[of]}
    return pa.concat_batches([flat(SCHEMA, columns), unknown_rows(SCHEMA, operations.invoke[found.unfit])])


def _judge_objects(table: pa.Table, starts: Ints, finals: _Finals, explain: int) -> Findings:
    """What is wrong with the elements of sets that begin at `starts`; rows in order of set."""
    objects = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, table.num_rows)))
    kind, value, outcome = column(table, "kind"), column(table, "value"), column(table, "outcome")
    invoke, complete = column(table, "invoke"), column(table, "complete")
    final, final_invoke, unread = finals
    mine = ((kind == ADD) | ((kind == ITEM) & (complete == final[objects]))) & ~unread[objects]
    rows = np.flatnonzero(mine)
    rows = rows[np.lexsort((kind[rows], value[rows], objects[rows]))]
    groups = group_starts([objects[rows], value[rows]]) if len(rows) else rows
    adds, item = kind[rows] == ADD, kind[rows] == ITEM
    attempted, seen = _counted(adds, groups) > 0, _counted(item, groups) > 0
    possible = _counted(adds & (outcome[rows] != FAIL), groups) > 0
    acks = adds & (outcome[rows] == OK)
    before = acks & (complete[rows] < final_invoke[objects[rows]])
    acked, due = _counted(acks, groups) > 0, _counted(before, groups) > 0
    flags = {"lost": due & ~seen, "unexpected": seen & ~possible}
    heads = rows[groups]
    kept: list[Finding] = []
    for name, flag in flags.items():
        found = np.flatnonzero(flag)
        if name == "lost":
            place = np.where(before, invoke[rows], np.iinfo(np.int64).max)
            shows = np.minimum.reduceat(place, groups)[found] if len(groups) else found
        else:
            shows = invoke[heads[found]]
        for i in np.argsort(shows, kind="stable")[:explain].tolist():
            row = int(heads[found[i]])
            read = int(final_invoke[objects[row]])
            failed = name == "unexpected" and bool(attempted[found[i]])
            ops = (read,) if name == "unexpected" and not failed else (int(shows[i]), read)
            facts = {"element": int(value[row]), "failed": failed}
            kept.append(Finding(name, ops[0], key_at(table, row), ops, facts))
    sums = {
        "objects": len(starts),
        "unread": int(unread.sum()),
        "attempts": int(attempted.sum()),
        "acknowledged": int(acked.sum()),
        "added_too_late": int((acked & ~due & ~seen).sum()),
        "read": int((seen & possible).sum()),
        "recovered": int((seen & possible & ~acked).sum()),
    }
    counts = {name: int(flag.sum()) for name, flag in flags.items()}
    return Findings(int((kind != ITEM).sum()), counts=counts, kept=earliest(kept, explain), figures=sums)


def _counted(flags: Any, groups: Ints) -> Ints:
    """How many rows of each group have the flag."""
    return np.add.reduceat(flags.astype(np.int64), groups) if len(groups) else np.zeros(0, np.int64)


_FINALS: Final = BatchFlow(COLUMNS, finals_of, latest)


def judge_set(source: Source, engine: Engine, options: CheckOptions) -> Verdict:
    """The final read holds every acknowledged element and nothing that nobody tried to add."""
    explain, flow = options.explain, SetFlow(options.explain)
    finals = run_batches(engine, source, _FINALS) if leaves_cores_idle(engine, source, flow) else None
    if finals is None:
        part = findings_of(engine, source, flow, explain)
    else:
        part = findings_of(engine, source, ElementFlow(explain, finals), explain)
        sets = {"objects": len(finals), "unread": sum(read.silent for read in finals.values())}
        part = replace(part, figures=part.figures | sets) if finals else part
    doubts: tuple[str, ...] = ()
    unread = part.figures.get("unread", 0)
    if not part.figures.get("objects"):
        doubts = ("The set was never read.",)
    elif unread:
        several = part.figures["objects"] > 1
        doubts = (f"{unread} sets were never read." if several else "The set was never read.",)
    elif part.figures["acknowledged"] == part.figures["added_too_late"] and not part.figures["read"]:
        doubts = ("No add succeeded before the final read, which shows no element, so nothing was compared.",)
    return conclude("set", source, engine, part, _SENTENCES, doubts)


def _lost(speaker: Speaker, finding: Finding) -> str:
    element, (add, read) = speaker.source.shown(finding.facts["element"]), finding.ops
    first = f"Element {element} of {thing(speaker, 'set', finding.key)} was lost: {whose(speaker, add, 'add')}"
    return f"{first} succeeded, but the final read, {whose(speaker, read, 'read')}, does not show it."


def _unexpected(speaker: Speaker, finding: Finding) -> str:
    element = speaker.source.shown(finding.facts["element"])
    first = who(speaker, finding.ops[-1], f"saw element {element} in {thing(speaker, 'set', finding.key)}")
    if finding.facts["failed"]:
        return f"{first}, though {whose(speaker, finding.ops[0], 'add')} had it, and failed."
    return f"{first}, which no operation tried to add."


_SENTENCES: Final = {"lost": _lost, "unexpected": _unexpected}
