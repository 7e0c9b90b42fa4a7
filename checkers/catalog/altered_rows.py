"""Rows of a table that is altered meanwhile: which cells operations on them read and wrote, and whether its versions
are one schema each.

A read or write asks for a column by a wish, a number below 0, and its answer says the id of the column that it got; one
that does not is refused. A write without answer has only its wish. Values are unique: whoever reads one says which
column it went to. What nobody ever read may as well never have been written, and is left out.

A `scan` reads a cell of each of its rows. An `erase` of a row that was there (value 1), or of which nobody knows
whether it was carried out, writes nil to every cell of the row that anybody ever read or wrote; one that found no row
(value 0) read nil in all of them.

Erasures also tell of the row itself, which is one more register (`PRESENCE`): nobody finds a row twice that was written
once. A write makes the row be there, a write of nil perhaps; an erasure that found it took it away.

All of this is about one row at a time, so the rows of a history are judged by many tasks.

A version of the table is one schema, made by one alteration from the one before, and the id of a column is given once.
Versions are told by those who altered the table, and with all its columns by those who asked for them. (Reads and
writes don't depend on that: they tell columns by their ids, and each cell is a register.)
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from checkers.catalog.calls import COLUMN, RESHAPE, Call
from checkers.columns.batches import flat as record_batch
from checkers.columns.codes import CAS, NEVER, NIL, READ, UNSUPPORTED, WRITE, Ints, began_as
from checkers.columns.dense import spread
from checkers.columns.projection import FLAT, Flat, Projection, concatenated, flatten, group, part_of, slices
from checkers.engines.keyed import ROWS_PER_CALL
from checkers.explain.speaker import about_key
from checkers.findings import NO_KEY, PRESENCE, Finding, Findings, Key, merged
from checkers.linearizability.registers.refute_registers import RegisterKernel
from checkers.source import KEY_COLUMNS, top_level

OF_SEVERAL: Final = ("scan", "erase")
"""Operations on several cells; all others are of one micro-operation."""

ROW_OPERATIONS: Final = ("read", "write", "cas", *OF_SEVERAL)
"""The operations that the model `catalog-rows` judges."""

ERASE: Final = 16
"""The kind of an erasure, beside those of registers."""

THERE: Final = 1
"""What the PRESENCE of a row is, or nil."""


@dataclass(frozen=True, slots=True)
class RowsFlow:
    """See `Flow`: all operations on a row meet. `registers` says what its cells are made of."""

    registers: Projection
    kernel: RegisterKernel
    schema: pa.Schema = FLAT
    keys: tuple[str, ...] = ("partition",)
    order: tuple[str, ...] = ("invoke",)

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(top_level(("f", *self.registers.columns())))

    def flatten(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """One row for each cell that is named, and one for each erasure."""
        known = replace(self.registers, kinds={**self.registers.kinds, "erase": ERASE}, initial=None)
        named = batch.column("f").cast(pa.string())
        of_rows = pc.and_(pc.is_in(named, pa.array(ROW_OPERATIONS)), pc.greater_equal(batch.column("process"), 0))
        several = pc.is_in(named, pa.array(OF_SEVERAL))
        alone = batch.filter(pc.and_(of_rows, pc.invert(several)))
        flats = [flatten(part, known) for part in (alone, _one_by_one(batch.filter(pc.and_(of_rows, several))))]
        address, *rest = concatenated(flats)
        columns = dict(zip(KEY_COLUMNS, address, strict=True))
        return record_batch(FLAT, columns | dict(zip(Flat._fields[1:], rest, strict=True)))

    def judge(self, rows: pa.Table) -> Findings:
        """Whether each cell is a register."""
        columns = [rows.column(name).to_numpy() for name in FLAT.names]
        keyed = group(_cells(Flat(tuple(columns[:4]), *columns[4:]), self.registers.initial))
        explain = self.kernel.explain
        return merged([self.kernel(part) for part in slices(keyed, ROWS_PER_CALL)], explain)


def _one_by_one(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Operations of several micro-operations as operations of one each, with the same invocation and completion."""
    lists = batch.column("mops")
    cells = lists.flatten()
    mops = pa.ListArray.from_arrays(pa.array(np.arange(len(cells) + 1), pa.int32()), cells)
    single = batch.take(pc.list_parent_indices(lists))
    return single.set_column(single.schema.get_field_index("mops"), "mops", mops)


def _cells(rows: Flat, initial: int | None) -> Flat:
    """Of rows in order of partition and invocation what was done to cells, in order of invocation."""
    table, partition, row, _ = rows.address
    column = _columns(rows)
    nowhere = np.isin(rows.kind, (READ, WRITE, CAS)) & (column < 0)
    kind = np.where(nowhere & (rows.complete != NEVER), UNSUPPORTED, rows.kind)
    # Any cell may be the one that a write of nil without answer unset.
    erasing = (kind == ERASE) | ((kind == WRITE) & nowhere & (rows.value == NIL))
    rows = rows._replace(address=(table, partition, row, column), kind=kind)
    known = part_of(rows, ~erasing & ((column >= 0) | (rows.kind == UNSUPPORTED)))
    cells = concatenated([known, _erased(part_of(rows, erasing), known), _presence(rows)])
    cells = cells._replace(value=began_as(cells.value, initial), expected=began_as(cells.expected, initial))
    return part_of(cells, np.argsort(cells.invoke, kind="stable"))


def _columns(rows: Flat) -> Ints:
    """The column of each; below 0 where nothing says it."""
    _, partition, _, column = rows.address
    column = column.copy()
    stated = np.flatnonzero((rows.kind == READ) & (column >= 0) & (rows.value != NIL))
    seen: dict[tuple[int, int], int] = {}
    lost = np.flatnonzero(np.isin(rows.kind, (WRITE, CAS)) & (column < 0) & (rows.complete == NEVER))
    if len(lost):
        for place in stated.tolist():
            seen.setdefault((int(partition[place]), int(rows.value[place])), int(column[place]))
    for place in lost.tolist():
        column[place] = seen.get((int(partition[place]), int(rows.value[place])), -1)
    return column


def _erased(erasures: Flat, known: Flat) -> Flat:
    """What erasures did to the cells of their rows that are known."""
    partitions, columns = np.unique(np.stack((known.address[1], known.address[3])), axis=1)
    begin, end = (np.searchsorted(partitions, erasures.address[1], side) for side in ("left", "right"))
    place, each = spread(begin, end)
    found_none = (erasures.complete != NEVER) & ((erasures.value == 0) | (erasures.value == NIL))
    nil = np.full(len(each), NIL)
    kind = np.where(found_none, READ, WRITE).astype(np.int8)
    table, partition, row, _ = (part[each] for part in erasures.address)
    address = (table, partition, row, columns[place])
    return Flat(address, erasures.invoke[each], erasures.complete[each], kind[each], nil, nil)


def _presence(rows: Flat) -> Flat:
    """What was done to the rows of which an erasure found one: of others their cells tell as much."""
    found = (rows.kind == ERASE) & (rows.complete != NEVER) & (rows.value != 0) & (rows.value != NIL)
    changes = np.isin(rows.kind, (WRITE, CAS, ERASE)) & np.isin(rows.address[1], rows.address[1][found])
    taken, of = found[changes], part_of(rows, changes)
    table, partition, row, column = of.address
    unset = (of.kind == WRITE) & (of.value == NIL)
    gone = of.kind == ERASE
    none = gone & (of.complete != NEVER) & ~taken
    kind = np.select([taken, none], [CAS, READ], WRITE).astype(np.int8)
    value, expected = np.where(gone, NIL, THERE), np.where(taken, THERE, NIL)
    address = (table, partition, row, np.full_like(column, PRESENCE))
    return Flat(address, of.invoke, np.where(unset, NEVER, of.complete), kind, value, expected)


def of_cell(row: dict[str, Any], key: Key) -> dict[str, Any]:
    """What an operation did to one cell: of an erasure that it wrote nil, or read it; in the column that it got."""
    row = about_key(row, key)
    if len(row["mops"]) != 1:
        return row
    mop = row["mops"][0]
    of_row = key.column == PRESENCE
    if mop["f"] == "erase":
        answered = row["type"] == "ok"
        f = "w" if not answered or (mop["value"] and not of_row) else "cas" if mop["value"] else "r"
        mop = {**mop, "f": f, "value": None, "expected": THERE if f == "cas" else None}
    elif of_row:
        mop = {**mop, "f": "w", "value": THERE}
    return {**row, "mops": [{**mop, "column": key.column}]}


SCHEMAS_DIFFER, COLUMN_BACK, SCHEMA_BACK = "schemas-differ", "column-came-back", "schema-went-back"
SCHEMA_UNASKED, COLUMN_UNASKED = "schema-without-alter", "column-without-alter"

ADD, DROP, RENAME, DROP_SECOND = range(4)
"""What a reshaping does (`Call.step`) to the column that it names by number: number n is first called 2n + 1 (`xn`),
and 2n + 2 (`yn`) once it was renamed; either may be dropped."""


def schema_findings(calls: Sequence[Call]) -> Iterator[Finding]:
    """What is wrong with the schemas that were told."""
    stated = [call for call in calls if call.kind in (COLUMN, RESHAPE) and call.version is not None]
    yield from _versions(stated)
    yield from _went_back(stated)
    yield from _came_back([call for call in stated if call.kind == COLUMN])


def _finding(name: str, calls: Sequence[Call], **facts: int) -> Finding:
    ops = tuple(call.order for call in calls)
    return Finding(name, max(ops), NO_KEY, ops, facts)


def _versions(stated: Sequence[Call]) -> Iterator[Finding]:
    """A version is one schema, made by one alteration, and has what this was for."""
    shown: dict[int, Call] = {}
    made: dict[int, Call] = {}
    for call in stated:
        assert call.version is not None
        first = (shown if call.kind == COLUMN else made).setdefault(call.version, call)
        same = first is call if call.kind == RESHAPE else sorted(first.columns) == sorted(call.columns)
        if not same:
            yield _finding(SCHEMAS_DIFFER, [first, call], version=call.version)
    for version, call in shown.items():
        ids, names = ([each[place] for each in call.columns] for place in (0, 1))
        if len(set(ids)) < len(ids) or len(set(names)) < len(names):
            yield _finding(SCHEMAS_DIFFER, [call], version=version)
        elif version in made and not _done(made[version], set(names)):
            yield _finding(SCHEMAS_DIFFER, [made[version], call], version=version)


def _done(change: Call, names: set[int]) -> bool:
    old, new = 2 * change.name + 1, 2 * change.name + 2
    done = {ADD: old in names, DROP: old not in names, RENAME: new in names and old not in names}
    return done.get(change.step, new not in names)


def _went_back(stated: Sequence[Call]) -> Iterator[Finding]:
    """Who asks after a version was told is not told an earlier one."""
    ended = sorted(stated, key=lambda call: call.complete)
    newest = list(accumulate(ended, _newer))
    place = 0
    for call in sorted(stated, key=lambda call: call.since):
        while place < len(ended) and ended[place].complete < call.since:
            place += 1
        if place and _version(newest[place - 1]) > _version(call):
            facts = {"was": _version(newest[place - 1]), "now": _version(call)}
            yield _finding(SCHEMA_BACK, [newest[place - 1], call], **facts)
            return


def _newer(one: Call, other: Call) -> Call:
    return other if _version(other) > _version(one) else one


def _version(call: Call) -> int:
    return -1 if call.version is None else call.version


def _came_back(shown: Sequence[Call]) -> Iterator[Finding]:
    """An id that a later version has not is no column's any more."""
    known: dict[int, Call] = {}
    gone: dict[int, tuple[Call, Call]] = {}
    for call in sorted(shown, key=_version):
        here = {each for each, _ in call.columns}
        for each in sorted(here & gone.keys()):
            yield _finding(COLUMN_BACK, [*gone.pop(each), call], id=each)
        for each in known.keys() - here - gone.keys():
            gone[each] = (known[each], call)
        for each in here:
            known[each] = call


# ---- schemas that alterations make ----

_Schema: TypeAlias = frozenset[tuple[int, int]]
"""Columns as (name by number, id); _FRESH where the id was given since the last version that was told."""

_FRESH: Final = -1
_BASE: Final = 0
"""The name of the one column that the table begins with, at version 0; nothing alters it."""


def growth_findings(calls: Sequence[Call]) -> Iterator[Finding]:
    """Schemas that no alterations can have made: each is of the next version and does one thing, a renamed column keeps
    its id, and an added one gets an id that no other had (M1, M5)."""
    stated = sorted((call for call in calls if call.version is not None), key=lambda call: (_version(call), call.order))
    changes = [call for call in calls if call.kind == RESHAPE]
    begun = sorted(call.order for call in changes)
    over = sorted(call.complete for call in changes if call.version is not None)
    for call in stated:
        least, most = bisect_left(over, call.since), bisect_left(begun, call.complete)
        if not least <= _version(call) <= most:
            yield _finding(SCHEMA_UNASKED, [call], now=_version(call), least=least, most=most)
            break
    if stated and _version(stated[-1]) > len(changes):
        return  # Some version is nobody's: told above.
    yield from _unmade(stated, [call for call in changes if call.version is None])


def _unmade(stated: Sequence[Call], doubtful: Sequence[Call]) -> Iterator[Finding]:
    """Version by version every schema that there may be is kept. One of unknown outcome may have made any version that
    was told only after it began, however often: that allows too much, and never too little."""
    shown = {_version(call): call for call in reversed(stated) if call.kind == COLUMN}
    made = {_version(call): call for call in stated if call.kind == RESHAPE}
    schemas, ids = {frozenset({(_BASE, _FRESH)})}, set[int]()
    for version in range(1 + max(map(_version, stated), default=-1)):
        told = shown.get(version)
        following = next((shown[later] for later in sorted(shown) if later >= version), None)
        if version:
            steps = (
                [made[version]]
                if version in made
                else [call for call in doubtful if following is None or call.order < following.complete]
            )
            schemas = {after for schema in schemas for step in steps if (after := _altered(schema, step)) is not None}
        if told is not None:
            known = frozenset((name, each) for each, name in told.columns)
            schemas = {known} if any(_same(schema, known, ids) for schema in schemas) else set()
            ids |= {each for each, _ in told.columns}
        if not schemas:
            ops = [call for call in (made.get(version), told) if call is not None]
            yield _finding(COLUMN_UNASKED, ops or stated[-1:], version=version)
            return


def _altered(schema: _Schema, change: Call) -> _Schema | None:
    """The schema after an alteration; None where it is refused."""
    columns, old, new = dict(schema), 2 * change.name + 1, 2 * change.name + 2
    gone = new if change.step == DROP_SECOND else old
    if change.step == ADD:
        return None if old in columns else schema | {(old, _FRESH)}
    if gone not in columns or (change.step == RENAME and new in columns):
        return None
    left = schema - {(gone, columns[gone])}
    return left | {(new, columns[old])} if change.step == RENAME else left


def _same(schema: _Schema, known: _Schema, earlier: set[int]) -> bool:
    """Whether this may be the schema that was told; `earlier` are the ids told of earlier versions."""
    told = dict(known)
    return {name for name, _ in schema} == told.keys() and all(
        told[name] == each or (each == _FRESH and told[name] not in earlier) for name, each in schema
    )
