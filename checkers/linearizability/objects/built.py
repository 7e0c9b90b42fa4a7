"""From micro-operations to the operations of objects that the search reads: what all models share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from checkers.columns.codes import NEVER, Ints
from checkers.columns.dense import together
from checkers.columns.mops import ADDRESS, Columns
from checkers.columns.projection import KeyedOps
from checkers.linearizability.objects.kinds import OBSERVERS, ROW, SET, STRING, ObjectOps


@dataclass(frozen=True, slots=True)
class Built:
    """`ops` for the search; `addresses[k]` names object k; `values` says what a symbol of a state stands for (None:
    nothing in particular) and `nodes` which string a node is; `cells` are the addresses of registers, row by row."""

    ops: ObjectOps
    addresses: Ints
    values: dict[int, int | None] = field(default_factory=dict)
    nodes: tuple[str, ...] = ()
    cells: Ints = field(default_factory=lambda: np.empty((0, 4), np.int64))


class RegisterProjections(NamedTuple):
    """Registers that are linearizable if their objects are: their operations, of which object each is, and the objects
    that are linearizable if their only register is; and whether it pays to search them."""

    keyed: KeyedOps
    of: Ints
    decided: Ints
    searched: bool = True


def sorted_rows(rows: Columns) -> Columns:
    """The rows with their `object` (a number an address), in order of object, invocation and place."""
    address, _ = together([rows[name] for name in ADDRESS])
    order = np.lexsort((rows["place"], rows["invoke"], address))
    return {name: column[order] for name, column in rows.items()} | {"object": address[order]}


def taken(rows: Columns, chosen: npt.NDArray[Any]) -> Columns:
    """Some of the rows."""
    return {name: column[chosen] for name, column in rows.items()}


def addresses_of(rows: Columns) -> Ints:
    """The address of each object, from its first row."""
    _, first = np.unique(rows["object"], return_index=True)
    found: Ints = np.stack([rows[name][first] for name in ADDRESS], axis=1)
    return found


class Slices(NamedTuple):
    """By row `items[first:last]`."""

    first: Ints
    last: Ints
    items: npt.NDArray[np.int32]


def make_ops(model: int, rows: Columns, kind: Ints, value: Ints, items: Slices | None = None) -> ObjectOps:
    """What all kinds of objects share, from one row an operation, sorted; `items` is what else an operation says."""
    objects, key = np.unique(rows["object"], return_inverse=True)
    return ObjectOps(
        model=model,
        offsets=np.searchsorted(key, np.arange(len(objects) + 1)).astype(np.int64),
        kind=kind.astype(np.uint8),
        value=value.astype(np.int32),
        invoke=rows["invoke"],
        complete=rows["complete"],
        order=np.lexsort((rows["complete"], key)),
        alike=_alike(kind, value, items),
    )


def _alike(kind: Ints, value: Ints, items: Slices | None) -> Ints:
    """A number for each operation, equal for those that do the same; what changes nothing need not be told apart."""
    words, content = {b"": 0}, np.zeros(len(kind), np.int64)
    if items is not None:
        for row in np.flatnonzero((items.last > items.first) & ~np.isin(kind, OBSERVERS)).tolist():
            word = items.items[items.first[row] : items.last[row]].tobytes()
            content[row] = words.setdefault(word, len(words))
    ids, _ = together([kind, value, content])
    return ids


def without(ops: ObjectOps, useless: npt.NDArray[np.bool_]) -> ObjectOps:
    """The operations but the useless ones; objects keep their places, even if nothing is left of them."""
    offsets = np.concatenate(([0], np.cumsum(~useless)))[ops.offsets]
    return _chosen(ops, np.flatnonzero(~useless), offsets)


def only(ops: ObjectOps, keys: Ints) -> tuple[ObjectOps, Ints]:
    """The operations of some objects, and which rows of the given ones they were."""
    sizes = np.diff(ops.offsets)[keys]
    offsets = np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
    rows = np.repeat(ops.offsets[keys] - offsets[:-1], sizes) + np.arange(offsets[-1])
    found = _chosen(ops, rows, offsets)
    if ops.model == STRING:
        found = found._replace(strings=found.strings._replace(root=ops.strings.root[keys]))
    if ops.model == ROW:
        found = found._replace(rows=found.rows._replace(width=ops.rows.width[keys]))
    return found, rows


def _chosen(ops: ObjectOps, rows: Ints, offsets: Ints) -> ObjectOps:
    """Some of the rows, of which each object has those between its offsets. What is not by row stays as it is."""
    complete = ops.complete[rows]
    sets, strings, registers = ops.sets, ops.strings, ops.rows
    if ops.model == SET:
        sets = sets._replace(first=sets.first[rows], last=sets.last[rows])
    if ops.model == STRING:
        by_row = ("next_put", "next_get", "next_first", "next_last")
        strings = strings._replace(**{name: getattr(strings, name)[rows] for name in by_row})
    if ops.model == ROW:
        registers = registers._replace(first=registers.first[rows], last=registers.last[rows])
    return ops._replace(
        offsets=offsets,
        kind=ops.kind[rows],
        value=ops.value[rows],
        invoke=ops.invoke[rows],
        complete=complete,
        order=np.lexsort((complete, np.repeat(np.arange(len(offsets) - 1), np.diff(offsets)))),
        alike=ops.alike[rows],
        sets=sets,
        strings=strings,
        rows=registers,
    )


def highest(ids: Ints, values: Ints, count: int, default: int) -> Ints:
    """The highest value of each id."""
    found = np.full(count, default, np.int64)
    np.maximum.at(found, ids, values)
    return found


def lowest(ids: Ints, values: Ints, count: int) -> Ints:
    """The lowest value of each id, NEVER where it has none."""
    found = np.full(count, NEVER, np.int64)
    np.minimum.at(found, ids, values)
    return found
