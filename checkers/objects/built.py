"""From micro-operations to the operations of objects that the search reads: what all models share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from checkers.grouping import KeyedOps
from checkers.kernels.columns import NEVER, Ints
from checkers.kernels.dense import together
from checkers.kernels.objects import OBSERVERS, ObjectOps
from checkers.mops import ADDRESS, Columns

Key: TypeAlias = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class Built:
    """`ops` for the search; `addresses[k]` names object k; `values` says what a letter of a state stands for (None:
    nothing in particular) and `nodes` which string a node is; `cells` are the addresses of registers, row by row."""

    ops: ObjectOps
    addresses: Ints
    values: dict[int, int | None] = field(default_factory=dict)
    nodes: tuple[str, ...] = ()
    cells: Ints = field(default_factory=lambda: np.empty((0, 4), np.int64))


class Registers(NamedTuple):
    """Registers that are linearizable if their objects are: their operations, of which object each is, and the objects
    that are linearizable if their only register is; and whether it pays to search them."""

    keyed: KeyedOps
    of: Ints
    decided: Ints
    searched: bool = True


_NONE = np.empty(0, np.int64)
_BY_ROW: Final = ("kind", "value", "first", "last", "invoke", "complete", "next_put", "next_get", "alike")


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


def make_ops(model: int, rows: Columns, kind: Ints, value: Ints, **more: Any) -> ObjectOps:
    """Operations of objects from one row each, sorted; `more` are further columns of ObjectOps."""
    objects, key = np.unique(rows["object"], return_inverse=True)
    count = len(objects)
    offsets = np.searchsorted(key, np.arange(count + 1)).astype(np.int64)
    nothing = np.zeros(len(kind), np.int64)
    fields: dict[str, Any] = {
        "first": nothing,
        "last": nothing,
        "items": _NONE.astype(np.int32),
        "width": np.zeros(count, np.int64),
        "early": _NONE,
        "late": _NONE,
        "barrier": _NONE,
        "edge_first": _NONE,
        "edge_piece": _NONE.astype(np.int32),
        "edge_target": _NONE.astype(np.int32),
        "next_put": nothing,
        "next_get": nothing,
        "gone": _NONE,
    } | more
    fields["alike"] = _alike(kind, value, fields["first"], fields["last"], fields["items"])
    return ObjectOps(
        model=model,
        offsets=offsets,
        kind=kind.astype(np.uint8),
        value=value.astype(np.int32),
        invoke=rows["invoke"],
        complete=rows["complete"],
        order=np.lexsort((rows["complete"], key)),
        **fields,
    )


def _alike(kind: Ints, value: Ints, first: Ints, last: Ints, items: npt.NDArray[np.int32]) -> Ints:
    """A number for each operation, equal for those that do the same; what changes nothing need not be told apart."""
    words, content = {b"": 0}, np.zeros(len(kind), np.int64)
    for row in np.flatnonzero((last > first) & ~np.isin(kind, OBSERVERS)).tolist():
        content[row] = words.setdefault(items[first[row] : last[row]].tobytes(), len(words))
    ids, _ = together([kind, value, content])
    return ids


def without(ops: ObjectOps, useless: npt.NDArray[np.bool_]) -> ObjectOps:
    """The operations but the useless ones; objects keep their places, even if nothing is left of them."""
    by_row = {name: getattr(ops, name)[~useless] for name in _BY_ROW}
    offsets = np.concatenate(([0], np.cumsum(~useless)))[ops.offsets]
    order = np.lexsort((by_row["complete"], np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))))
    return ops._replace(offsets=offsets, order=order, **by_row)


def only(ops: ObjectOps, keys: Ints) -> tuple[ObjectOps, Ints]:
    """The operations of some objects, and which rows of the given ones they were."""
    sizes = np.diff(ops.offsets)[keys]
    offsets = np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
    rows = np.repeat(ops.offsets[keys] - offsets[:-1], sizes) + np.arange(offsets[-1])
    by_row = {name: getattr(ops, name)[rows] for name in _BY_ROW}
    order = np.lexsort((by_row["complete"], np.repeat(np.arange(len(keys)), sizes)))
    return ops._replace(offsets=offsets, order=order, width=ops.width[keys], **by_row), rows


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
