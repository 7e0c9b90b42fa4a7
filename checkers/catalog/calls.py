"""The catalog as one object: its operations, from the columns of the history to calls, and what each call does to it.

How operations stand in the history (`mops`; names are partition keys, table and tablet ids integers):

- `create`, `delete`, `alter`: `(f, name, value = id of the table)`; no value where the answer does not tell the id. Of
  a creation `column` is how many partitions were asked for (0: not stated) and `values` how many replicas; of an
  alteration `values` is the version after it.
- `rename`: the same as `alter`; the new name stands in `row`.
- `list`: one `table` a table: name, id, `row` = schema version, `column` = state.
- `schema`, `created`, `altered`: `(f, name, value = id, row = version)`; no value where the answer tells only that
  there is such a table, or with `column` = 1 that there is none. `values` of `created` and `altered` is whether it is
  done, of `schema` the table's state, its replication factor and the version that all its tablets are known to have
  while it is ALTERING, else 0.
- `locations`: `(f, name, value = id, column = how many partitions)`, no value where there is no such table; then one
  `tablet` each: `partition` = bucket, `value` = its id, `column` = state, `row` = how many replicas are told.
- `reshape`, an alteration of the table whose rows are read and written: `partition` = the number of a column, `column`
  = what is done to it, `row` = the version after that. `columns` tells of all columns: one `column` each, `value` = id,
  `row` = version, `column` = its name by number (`checkers.catalog.altered_rows`).
- `tablets`, a question for single ones: `known` (`value` = id, `column` = state) or `unknown` (`value` = id) each.

A failed `create` of class `already-present` has seen the name taken; one of the others of class `not-found` has seen it
free; a failed `rename` of class `already-present` has seen the new name taken. Other failures say only that nothing was
changed. What of the cluster's answers is judged, and what is not and why, is a table in `docs/checking.md`. Operations
with other micro-operations (reads and writes of rows) are none of this model's business.

The model that `catalog` searches with: its state maps names to tables (id, schema version). One object it must be. A
rename takes a table from one name to another in one step, and a list shows all names at one moment: as registers, one a
name, both could be torn and each register still be linearizable. Nor will registers written together do, for what a
rename writes depends on what it finds.

- `create`: the name is free; a new table stands there, at version 0, under an id that was never used.
- `delete`, `alter`: there is a table; it is gone, or its version is one higher.
- `rename`: there is a table under the old name and none under the new; it moves.
- An observation: what it tells of names is so; a list tells all of them.

A table whose creation was never acknowledged has an id that nobody knows: ANONYMOUS until an answer shows it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from checkers.columns.batches import (
    COLUMNS,
    SMALL,
    WIDE,
    flat,
    flat_schema,
    ints,
    lists_of,
    read_mops,
    read_operations,
    text_codes,
)
from checkers.columns.codes import FAIL, INFO, NEVER, OK

CREATE, DELETE, ALTER, RENAME, LIST, SCHEMA, LOCATIONS, TABLE, TABLET, KNOWN, UNKNOWN, COLUMN, RESHAPE = range(13)
CREATED, ALTERED = 13, 14

MOP_KINDS: Final = {
    "create": CREATE,
    "delete": DELETE,
    "alter": ALTER,
    "rename": RENAME,
    "table": TABLE,
    "tablet": TABLET,
    "schema": SCHEMA,
    "created": CREATED,
    "altered": ALTERED,
    "locations": LOCATIONS,
    "known": KNOWN,
    "unknown": UNKNOWN,
    "column": COLUMN,
    "reshape": RESHAPE,
}
CHANGES: Final = (CREATE, DELETE, ALTER, RENAME)
"""Kinds of operations that change the catalog."""

TABLE_STATES: Final = ("UNKNOWN", "PREPARING", "RUNNING", "ALTERING", "REMOVED")
TABLET_STATES: Final = ("UNKNOWN", "PREPARING", "CREATING", "RUNNING", "REPLACED", "DELETED")
"""States by the numbers that stand for them in histories."""

UNRECORDED: Final = -1

TAKEN, FREE, NO_WORD = 0, 1, 2
_CLASSES: Final = {"already-present": TAKEN, "not-found": FREE}

SCHEMA_OF_ROWS: Final = flat_schema(
    ("invoke", "complete", "begin_ns", "end_ns", "bound", "place", "name", "value", "row", "column"),
    **dict.fromkeys(("one", "outcome", "word", "final", "kind", "nil"), SMALL),
    values=pa.list_(WIDE),
)
"""One row a micro-operation, and one of kind LIST for each list itself. `word` is what a failure says; `bound` is the
age that the answer may have (ns), 0 where it must be of the present."""

INPUT_COLUMNS: Final = (*COLUMNS, "error_class", "phase", "bound", "invoke_time", "complete_time")


@dataclass(frozen=True, slots=True)
class TableSeen:
    """What an answer says of one name: a table with this id at this version (None: not told), or none at all."""

    name: int
    absent: bool
    id: int | None = None
    version: int | None = None


@dataclass(frozen=True, slots=True)
class Tablet:
    """A tablet as an answer shows it; state UNRECORDED: that there is no record of it."""

    bucket: int
    id: int
    state: int
    replicas: int


@dataclass(frozen=True, slots=True)
class Call:
    """One operation. A change has a `name`, a rename also `new`, and an answer may tell its table's `id`.

    An observation has `seen`; where it is `total`, names that are not in it are free. `since` is the event after which
    the state that it shows existed: its invocation, or earlier where an old answer will do. `complete` is NEVER for a
    change that may yet take effect. `order` is the event of its invocation, which names it. `version` is the one after
    an alteration, None where that is not told. `states` are those of the tables seen, as far as they are told.
    `buckets` and `replicas` are how many a creation asked for and an answer shows, 0 where not told; `done` is whether
    a creation is; `applied` the version that all tablets are known to have. `step` and `columns` (id and name each) are
    of the table whose rows are read and written, and so is `version` of these.
    """

    order: int
    since: int
    complete: int
    kind: int
    name: int = 0
    new: int = 0
    id: int | None = None
    total: bool = False
    seen: tuple[TableSeen, ...] = ()
    states: tuple[int, ...] = ()
    buckets: int = 0
    replicas: int = 0
    done: bool | None = None
    applied: int = 0
    tablets: tuple[Tablet, ...] = ()
    version: int | None = None
    step: int = 0
    columns: tuple[tuple[int, int], ...] = ()
    final: bool = False
    duration_ns: int = 0

    @property
    def changes(self) -> bool:
        return self.kind in CHANGES and not self.seen


def flatten_calls(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows of a batch that are of the catalog."""
    operations = read_operations(batch)
    mops = read_mops(batch, operations, np.ones(len(operations.row), np.bool_), MOP_KINDS)
    kept = np.flatnonzero(np.isin(mops.kind, list(MOP_KINDS.values())))
    lists = np.flatnonzero(operations.named(("list",)))
    of = np.concatenate((mops.of[kept], lists))
    zeros = np.zeros(len(lists), np.int64)
    address = [np.concatenate((part[kept], zeros)) for part in mops.address]
    classes, names = text_codes(batch.column("error_class"))
    words = np.array([_CLASSES.get(name, NO_WORD) for name in names] + [NO_WORD], np.int8)
    phases, phase_names = text_codes(batch.column("phase"))
    final = np.array([str(name).startswith("final") for name in phase_names] + [False])
    row = operations.row[of]
    no_lists = pa.array([[]] * len(lists), pa.list_(WIDE))
    columns: dict[str, Any] = {
        "values": pa.concat_arrays([lists_of(mops, kept), no_lists]),
        "one": np.zeros(len(of), np.int8),
        "invoke": operations.invoke[of],
        "complete": operations.complete[of],
        "begin_ns": ints(batch.column("invoke_time"))[row],
        "end_ns": ints(batch.column("complete_time"))[row],
        "outcome": operations.outcome[of],
        "word": words[classes[row]],
        "final": final[phases[row]].astype(np.int8),
        "bound": ints(batch.column("bound"))[row],
        "place": np.concatenate((np.arange(len(kept)), np.full(len(lists), -1))),
        "kind": np.concatenate((mops.kind[kept], np.full(len(lists), LIST))).astype(np.int8),
        "name": address[1],
        "value": np.concatenate((mops.value[kept], zeros)),
        "nil": np.concatenate((mops.nil[kept], np.ones(len(lists), np.bool_))).astype(np.int8),
        "row": address[2],
        "column": address[3],
    }
    return flat(SCHEMA_OF_ROWS, columns)


def calls_of(rows: pa.Table) -> list[Call]:
    """The calls, by invocation, of rows that are sorted by (`invoke`, `place`); what can't say anything is left out."""
    columns = {name: rows.column(name).to_pylist() for name in rows.column_names}
    ends = _Ends.of(columns["end_ns"], columns["complete"])
    starts: dict[int, list[int]] = {}
    for place, invoke in enumerate(columns["invoke"]):
        starts.setdefault(invoke, []).append(place)
    calls = []
    for places in starts.values():
        call = _call([{name: column[place] for name, column in columns.items()} for place in places], ends)
        if call is not None:
            calls.append(call)
    return calls


@dataclass(frozen=True, slots=True)
class _Ends:
    """When operations completed, in order of time, and the last event up to each of these times."""

    times_ns: list[int]
    last: list[int]

    @staticmethod
    def of(times_ns: list[int], events: list[int]) -> _Ends:
        ends = sorted((time_ns, event) for time_ns, event in zip(times_ns, events, strict=True) if event != NEVER)
        return _Ends([time_ns for time_ns, _ in ends], list(accumulate((event for _, event in ends), max)))

    def before(self, time_ns: int) -> int:
        """The last event that was over before this time, -1 if there is none."""
        place = bisect_left(self.times_ns, time_ns)
        return self.last[place - 1] if place else -1


def _call(rows: list[dict[str, Any]], ends: _Ends) -> Call | None:
    first = rows[0]
    kind, outcome = first["kind"], first["outcome"]
    since = first["invoke"] if not first["bound"] else ends.before(first["begin_ns"] - first["bound"])
    common: dict[str, Any] = {
        "order": first["invoke"],
        "since": since,
        "complete": first["complete"],
        "kind": kind,
        "final": bool(first["final"]),
        "duration_ns": first["end_ns"] - first["begin_ns"],
    }
    if kind in (COLUMN, RESHAPE):
        return _shape(common, rows) if outcome == OK or (outcome == INFO and kind == RESHAPE) else None
    if outcome == FAIL:
        seen = _refused(first)
        return None if seen is None else Call(**common, seen=(seen,))
    if kind in CHANGES:
        stated = None if first["nil"] or outcome == INFO else first["value"]
        change = Call(**common, name=first["name"], new=first["row"], id=stated)
        more = next(iter(first["values"]), None) if outcome == OK else None
        if kind == CREATE:
            return replace(change, buckets=first["column"], replicas=more or 0)
        return change if kind == DELETE else replace(change, version=more)
    return None if outcome != OK else _answer(common, kind, rows)


def _shape(common: dict[str, Any], rows: list[dict[str, Any]]) -> Call:
    first = rows[0]
    if first["kind"] == RESHAPE:
        version = first["row"] if first["outcome"] == OK else None
        return Call(**common, name=first["name"], version=version, step=first["column"])
    columns = tuple((row["value"], row["column"]) for row in rows)
    return Call(**common, version=first["row"], columns=columns)


def _refused(row: dict[str, int]) -> TableSeen | None:
    kind, word = row["kind"], row["word"]
    if word == TAKEN and kind in (CREATE, RENAME):
        return TableSeen(row["name"] if kind == CREATE else row["row"], False)
    if word == FREE and kind != CREATE and kind != LIST:
        return TableSeen(row["name"], True)
    return None


def _answer(common: dict[str, Any], kind: int, rows: list[dict[str, Any]]) -> Call:
    if kind == LIST:
        tables = [row for row in rows if row["kind"] == TABLE]
        seen = tuple(TableSeen(row["name"], False, row["value"], row["row"]) for row in tables)
        return Call(**common, total=True, seen=seen, states=tuple(row["column"] for row in tables))
    first = rows[0]
    if kind in (KNOWN, UNKNOWN):
        states = [UNRECORDED if row["kind"] == UNKNOWN else row["column"] for row in rows]
        shown = tuple(Tablet(0, row["value"], state, 0) for row, state in zip(rows, states, strict=True))
        return Call(**common, tablets=shown)
    stated = None if first["nil"] else first["value"]
    absent = stated is None and (kind == LOCATIONS or first["column"] == 1)
    if kind in (SCHEMA, CREATED, ALTERED):
        version = None if stated is None else first["row"]
        seen = (TableSeen(first["name"], absent, stated, version),)
        return Call(**common, seen=seen, **({} if stated is None else _more(kind, first["values"])))
    tablets = tuple(Tablet(row["name"], row["value"], row["column"], row["row"]) for row in rows[1:])
    return Call(**common, seen=(TableSeen(first["name"], absent, stated),), buckets=first["column"], tablets=tablets)


def _more(kind: int, values: Sequence[int]) -> dict[str, Any]:
    """What an answer about a table that there is says beside its id and version."""
    if not values:
        return {}
    if kind == CREATED:
        return {"done": bool(values[0])}
    if kind == ALTERED:
        return {"states": (TABLE_STATES.index("RUNNING" if values[0] else "ALTERING"),)}
    state, replicas, applied = (*values, 0, 0)[:3]
    return {"states": (state,), "replicas": replicas, "applied": applied}


ANONYMOUS: Final = -1

Table: TypeAlias = tuple[int, int] | None
"""Id and schema version; None where the name is free."""

State: TypeAlias = tuple[Table, ...]
"""By name, numbered densely."""

Bindable: TypeAlias = Callable[[int], bool]
"""Whether an anonymous table may turn out to have this id."""

RENAME_ALTERS: Final = 1
"""By how much a rename raises the schema version: it is an AlterTable (appendix B of seed 001, step 3)."""


def never(table_id: int) -> bool:
    """No anonymous table has any id."""
    return False


def after(state: State, call: Call, bindable: Bindable = never) -> State | None:
    """The state after a change, None where it can't be carried out."""
    here = state[call.name]
    if call.kind == CREATE:
        made = ANONYMOUS if call.id is None else call.id
        return None if here is not None else _with(state, call.name, (made, 0))
    if here is None or not _is_or_may_be(here, call.id, bindable):
        return None
    known = here[0] if call.id is None else call.id
    if call.version not in (None, here[1] + 1):
        return None
    if call.kind == DELETE:
        return _with(state, call.name, None)
    if call.kind == ALTER:
        return _with(state, call.name, (known, here[1] + 1))
    assert call.kind == RENAME
    if state[call.new] is not None:
        return None
    return _with(_with(state, call.name, None), call.new, (known, here[1] + RENAME_ALTERS))


def shows(state: State, call: Call, bindable: Bindable = never) -> State | None:
    """The state in which an observation is right: this one, with anonymous tables known by what is seen; or None."""
    found = state
    for seen in call.seen:
        here = found[seen.name]
        if (here is None) != seen.absent:
            return None
        if here is None:
            continue
        if not _is_or_may_be(here, seen.id, bindable) or seen.version not in (None, here[1]):
            return None
        if seen.id is not None and here[0] != seen.id:
            if any(table is not None and table[0] == seen.id for table in found):
                return None
            found = _with(found, seen.name, (seen.id, here[1]))
    if call.total and sum(table is not None for table in found) != len(call.seen):
        return None
    return found


def _is_or_may_be(here: tuple[int, int], stated: int | None, bindable: Bindable) -> bool:
    return stated is None or here[0] == stated or (here[0] == ANONYMOUS and bindable(stated))


def _with(state: State, name: int, table: Table) -> State:
    return (*state[:name], table, *state[name + 1 :])
