"""Puts flat operations in order of key and invocation, as keyed kernels read them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from checkers.columns.codes import Ints, RegisterColumns
from checkers.columns.projection import Flat, is_zero
from checkers.compiled import kernel
from harness.history.cores import in_order


class KeyedOps(NamedTuple):
    """`columns` of many keys, sorted; row k of `addresses` is key k's (table, partition, row, column)."""

    addresses: Ints
    columns: RegisterColumns


@kernel
def _count_keys(ids, counts):
    for key in ids:
        counts[key + 1] += 1


@kernel
def _place_rows(ids, fill, order):
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
        if not is_zero(part) and len(part) and (part != part[0]).any():
            more, width = _dense(part)
            if count * width >= 2**62:
                ids, count = np.unique(ids, return_inverse=True)[1].astype(np.int64), len(ids)
            ids, count = _dense(ids * width + more)
    return ids, count


def group(flat: Flat, threads: int = 1) -> KeyedOps:
    """Sort by key, keeping the order of invocation within keys; linear in the number of operations. Columns are moved
    by so many threads."""
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
    """The keys in turn, so many at a time that they have at most so many operations (or are one key); at least one
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
