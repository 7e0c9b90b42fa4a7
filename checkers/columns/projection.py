"""Operations on single objects as flat columns, and in order of key and invocation, as keyed kernels read them.

A projection is literal data: which columns of the history flat ones come from, and how. Both engines evaluate it on
Arrow batches and get the columns of FLAT.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from checkers.columns.batches import (
    SMALL,
    WIDE,
    BatchMops,
    Codes,
    flat_schema,
    ints,
    outcomes,
    read_elements,
    text_codes,
    valid,
)
from checkers.columns.codes import FAIL, INFO, NEVER, NIL, UNSUPPORTED, Ints, RegisterColumns, began_as
from checkers.columns.dense import end_to_end, is_constant
from checkers.compiled import kernel
from checkers.source import KEY_COLUMNS
from harness.history.cores import in_order

MISMATCH: Final = "cas-mismatch"
"""Error class of a compare-and-set that completed and found another value."""

FLAT: Final = flat_schema((*KEY_COLUMNS, "invoke", "complete"), kind=SMALL, value=WIDE, expected=WIDE)
"""`complete` is NEVER where the outcome is unknown, `value` and `expected` are NIL for nil."""


@dataclass(frozen=True, slots=True)
class Projection:
    """How the micro-operations of a model become kinds.

    `kinds` gives the kind of each; `only_ok` are those that say nothing unless they completed; `failed` gives the kind
    of failed ones (left out where there is none) and `mismatched` of those that failed on a mismatch (error class
    MISMATCH or none). `initial` is what registers begin as (`columns.codes.began_as`).
    """

    kinds: Mapping[str, int]
    only_ok: frozenset[str] = frozenset()
    failed: Mapping[str, int] = field(default_factory=dict)
    mismatched: Mapping[str, int] = field(default_factory=dict)
    initial: int | None = None

    def columns(self, key_columns: Sequence[str] = KEY_COLUMNS) -> list[str]:
        """The Parquet columns that are read, with the key columns that can differ from zero."""
        leaves = [
            f"mops.list.element.{name}" for name in ("f", *key_columns, "value", "expected", "values.list.element")
        ]
        always = ["invoke_index", "complete_index", "type", "process", *leaves]
        return [*always, "error_class"] if self.mismatched else always


class Flat(NamedTuple):
    """The columns of FLAT as numpy arrays, in order of invocation; `address` has one row per key column."""

    address: tuple[Ints, Ints, Ints, Ints]
    invoke: Ints
    complete: Ints
    kind: npt.NDArray[np.int8]
    value: Ints
    expected: Ints


DROPPED: Final = -1


def _kind_table(projection: Projection, f: str) -> tuple[int, int, int, int]:
    """Kinds of one micro-operation when ok, indeterminate, failed, failed on a mismatch."""
    if f not in projection.kinds:
        return (UNSUPPORTED,) * 4
    kind = projection.kinds[f]
    failed = projection.failed.get(f, DROPPED)
    return kind, DROPPED if f in projection.only_ok else kind, failed, projection.mismatched.get(f, failed)


_MISMATCHED: Final = 3
"""Beside OK, INFO and FAIL: failed on a mismatch."""


def _outcomes(batch: pa.RecordBatch, projection: Projection) -> Codes:
    outcome = outcomes(batch)
    if projection.mismatched:
        errors = batch.column("error_class")
        missed = pc.or_kleene(pc.is_null(errors), pc.equal(errors, MISMATCH)).fill_null(True)
        outcome[(outcome == FAIL) & missed.to_numpy(zero_copy_only=False)] = _MISMATCHED
    return outcome


def _taken(column: Any, rows: Ints | None) -> Any:
    return column if rows is None else column[rows]


def _rows(batch: pa.RecordBatch, elements: BatchMops) -> tuple[Ints | None, Ints | None]:
    """Which rows are clients' and where their first micro-operations are; None for all, in order."""
    clients = ints(batch.column("process")) >= 0
    if len(clients) and clients.all() and (elements.size == 1).all():
        return None, None
    rows = np.flatnonzero(clients)
    return rows, np.minimum(elements.start[rows], len(elements.columns["f"]) - 1)


def _kinds(names: npt.NDArray[np.int32], texts: list[str], outcomes: Any, projection: Projection) -> Any:
    table = np.array([_kind_table(projection, text) for text in texts] + [(UNSUPPORTED,) * 4], np.int8)
    return table.reshape(-1)[names * np.int32(4) + outcomes]


def _reserved(column: pa.Array, filled: Ints, place: Ints | None) -> Any:
    """Which cells hold the very integer that stands for nil."""
    if column.null_count == len(column):
        return np.zeros(len(filled), np.bool_)
    return (filled == NIL) & _taken(valid(column), place)


def _unreadable(fields: Mapping[str, pa.Array], value: Ints, expected: Ints, place: Ints | None) -> Any:
    """What has another value than one integer or nil: a list, whose `value` is null as well, or a reserved integer."""
    listed = _taken(valid(fields["values"]), place)
    return listed | _reserved(fields["value"], value, place) | _reserved(fields["expected"], expected, place)


def flatten(batch: pa.RecordBatch, projection: Projection) -> Flat:
    """Evaluate the projection on a batch of the history table; nemesis operations are left out.

    Key columns that the batch lacks are zero throughout.
    """
    elements = read_elements(batch, least=1)
    rows, place = _rows(batch, elements)
    fields = elements.columns
    names, texts = text_codes(fields["f"])
    outcome = _taken(_outcomes(batch, projection), rows)
    kind = _kinds(_taken(names, place), texts, outcome, projection)
    if rows is not None:
        kind[elements.size[rows] != 1] = UNSUPPORTED
    value, expected = (_taken(elements.ints(name), place) for name in ("value", "expected"))
    kind[_unreadable(fields, value, expected, place)] = UNSUPPORTED
    value, expected = began_as(value, projection.initial), began_as(expected, projection.initial)
    complete = np.where(outcome == INFO, NEVER, _taken(ints(batch.column("complete_index"), NEVER), rows))
    invoke = _taken(ints(batch.column("invoke_index")), rows)
    nowhere = np.broadcast_to(np.int64(0), len(kind))
    t, p, r, c = (_taken(elements.ints(n, 0), place) if n in fields else nowhere for n in KEY_COLUMNS)
    flat = Flat((t, p, r, c), invoke, complete, kind, value, expected)
    return flat if (kind != DROPPED).all() else part_of(flat, kind != DROPPED)


def part_of(flat: Flat, rows: Any) -> Flat:
    """Some rows, copied."""
    table, partition, row, column = (part[rows] if is_constant(part) else part[rows].copy() for part in flat.address)
    value, expected = flat.value[rows].copy(), flat.expected[rows].copy()
    invoke, complete, kind = flat.invoke[rows].copy(), flat.complete[rows].copy(), flat.kind[rows].copy()
    return Flat((table, partition, row, column), invoke, complete, kind, value, expected)


def places_of(address: Sequence[Ints], keys: Sequence[Sequence[int]]) -> Ints:
    """The place of each operation's address among some keys; -1 for others."""
    found = np.full(len(address[0]), -1)
    for place, key in enumerate(keys):
        mine = address[1] == key[1]
        for part in (0, 2, 3):
            if not is_constant(address[part]) or key[part]:
                mine &= address[part] == key[part]
        found[mine] = place
    return found


def concatenated(parts: list[Flat]) -> Flat:
    """The parts one after the other."""
    if not parts:
        nothing = np.empty(0, np.int64)
        return Flat((nothing,) * 4, nothing, nothing, np.empty(0, np.int8), nothing, nothing)
    t, p, r, c = (end_to_end([part.address[i] for part in parts]) for i in range(4))
    rest = [np.concatenate([part[i] for part in parts]) for i in range(1, 6)]
    return Flat((t, p, r, c), *rest)


class KeyedOps(NamedTuple):
    """`columns` of many keys, sorted; row k of `addresses` is key k's (table, partition, row, column)."""

    addresses: Ints
    columns: RegisterColumns


@kernel
def _count_keys(ids, counts):  # type: ignore[no-untyped-def]
    for key in ids:
        counts[key + 1] += 1


@kernel
def _place_rows(ids, fill, order):  # type: ignore[no-untyped-def]
    for row in range(ids.shape[0]):
        key = ids[row]
        order[fill[key]] = row
        fill[key] += 1


def _dense(values: Ints) -> tuple[Ints, int]:
    """Small ids with equal ids for equal values, and how many ids there may be."""
    if not len(values):
        return values, 0
    lowest, highest = int(values.min()), int(values.max())
    if highest - lowest < 4 * len(values) + 1024:
        return values - lowest, highest - lowest + 1
    distinct, ids = np.unique(values, return_inverse=True)
    return ids.astype(np.int64), len(distinct)


def _key_ids(flat: Flat) -> tuple[Ints, int]:
    ids, count = _dense(flat.address[1])
    for i in (0, 2, 3):
        part = flat.address[i]
        if not is_constant(part) and len(part) and (part != part[0]).any():
            more, width = _dense(part)
            if count * width >= 2**62:
                ids, count = np.unique(ids, return_inverse=True)[1].astype(np.int64), len(ids)
            ids, count = _dense(ids * width + more)
    return ids, count


def group(flat: Flat, threads: int = 1) -> KeyedOps:
    """Sort by key, keeping the order of invocation within keys; linear in the number of operations. Columns are moved
    by that many threads."""
    ids, count = _key_ids(flat)
    if count == 1:
        order: npt.NDArray[np.int64] | slice = slice(None)
        offsets = np.array([0, len(ids)])
    else:
        counts = np.zeros(count + 1, np.int64)
        _count_keys(ids, counts)
        fill = np.cumsum(counts)
        used = np.flatnonzero(counts[1:])
        offsets = np.concatenate((fill[used], [len(ids)]))
        order = np.empty(len(ids), np.int64)
        _place_rows(ids, fill[:-1].copy(), order)
    return _gathered(flat, order, offsets.astype(np.int64), threads)


def slices(keyed: KeyedOps, rows: int) -> Iterator[KeyedOps]:
    """The keys in turn, as many at a time as have at most `rows` operations together (or one key); at least one
    slice."""
    offsets, begin = keyed.columns.offsets, 0
    keys = len(offsets) - 1
    while begin < keys or begin == 0:
        end = max(begin + 1, int(np.searchsorted(offsets, offsets[begin] + rows, "right")) - 1)
        low, mine = offsets[begin], slice(offsets[begin], offsets[min(end, keys)])
        _, kind, value, expected, invoke, complete = keyed.columns
        columns = (value[mine], expected[mine], invoke[mine], complete[mine])
        shifted = RegisterColumns(offsets[begin : end + 1] - low, kind[mine], *columns)
        yield KeyedOps(keyed.addresses[begin:end], shifted)
        begin = end


def _gathered(flat: Flat, order: npt.NDArray[np.int64] | slice, offsets: Ints, threads: int) -> KeyedOps:
    firsts = offsets[:-1] if isinstance(order, slice) else order[offsets[:-1]]
    addresses = np.stack([part[firsts] for part in flat.address], axis=1)
    columns: list[npt.NDArray[Any]] = [flat.kind, flat.value, flat.expected, flat.invoke, flat.complete]

    def gathered(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return column[order]

    kind, value, expected, invoke, complete = in_order(gathered, columns, threads)
    return KeyedOps(addresses, RegisterColumns(offsets, kind.view(np.uint8), value, expected, invoke, complete))
