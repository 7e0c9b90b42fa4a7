"""Small numbers for values: of whole columns, of values that are the same in several, and within kernels.

A kernel's map from values to small numbers (`ValueMap`) is addressed directly where values are dense, else hashed.
Counters are the usual written values; addressing them directly keeps neighbours in time neighbours in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from checkers.columns.codes import Ints
from checkers.compiled import kernel, lean, lean_inline

Places: TypeAlias = npt.NDArray[np.int32]

_PAGE_BITS: Final = 12
_PAGE: Final = 1 << _PAGE_BITS
"""Values in a page, by which `ranked` looks them up."""


def is_constant(column: npt.NDArray[Any]) -> bool:
    """Whether a column is known to hold one value, kept once only."""
    return column.strides == (0,)


def shortened(column: Ints) -> Ints:
    """A column, kept once only if it holds one value throughout."""
    if len(column) > 1 and not is_constant(column) and column[0] == column[-1] and (column == column[0]).all():
        return np.broadcast_to(column[0], len(column))
    return column


def taken(column: Ints, rows: npt.NDArray[Any]) -> Ints:
    """The chosen rows (numbers or flags) of a column."""
    if not is_constant(column):
        return column[rows]
    count = int(np.count_nonzero(rows)) if rows.dtype == np.bool_ else len(rows)
    return np.broadcast_to(column[0], count) if len(column) else column[:0]


def end_to_end(parts: list[Ints]) -> Ints:
    """The parts one after the other; one value if that is all there is."""
    parts = [part for part in parts if len(part)]
    if not parts:
        return np.empty(0, np.int64)
    if all(is_constant(part) and part[0] == parts[0][0] for part in parts):
        return np.broadcast_to(parts[0][0], sum(len(part) for part in parts))
    return np.concatenate(parts)


@kernel
def _number(values, slots, firsts, ids):
    """Number values in order of their first appearance; returns how many there are."""
    mask, count = np.uint64(slots.shape[0] - 1), 0
    for row in range(values.shape[0]):
        mixed = np.uint64(values[row]) * np.uint64(0x9E3779B97F4A7C15)
        slot = (mixed ^ (mixed >> np.uint64(32))) & mask
        while slots[slot] >= 0 and values[firsts[slots[slot]]] != values[row]:
            slot = (slot + np.uint64(1)) & mask
        if slots[slot] < 0:
            slots[slot], firsts[count] = count, row
            count += 1
        ids[row] = slots[slot]
    return count


def numbered(values: Ints) -> tuple[Ints, int]:
    """Ids of values in order of first appearance, by hashing; and how many there are."""
    size = 1 << max(4, int(2 * len(values)).bit_length())
    ids = np.empty(len(values), np.int64)
    count = _number(values, np.full(size, -1, np.int32), np.empty(len(values), np.int64), ids)
    return ids, int(count)


def dense(values: Ints) -> tuple[Ints, int]:
    """Small ids, equal for equal values, and how many ids there may be; linear."""
    if not len(values):
        return values.astype(np.int64), 0
    lowest, highest = int(values.min()), int(values.max())
    if highest - lowest < 4 * len(values) + 1024:
        return values - lowest, highest - lowest + 1
    return numbered(np.ascontiguousarray(values))


@kernel
def _mark_pages(values, lowest, held):
    for row in range(values.shape[0]):
        held[(values[row] >> _PAGE_BITS) - lowest] = True


@kernel
def _mark(values, lowest, begins, used, slots):
    """The slot of each value, of which its page has those from `begins` on; slots that have one are `used`."""
    for row in range(values.shape[0]):
        slot = begins[(values[row] >> _PAGE_BITS) - lowest] + (values[row] & (_PAGE - 1))
        slots[row] = slot
        used[slot] = True


def ranked(values: Ints) -> tuple[Ints, Places]:
    """The distinct values in order, and the place of each value among them; linear if most have others near them."""
    lowest = int(values.min(initial=0)) >> _PAGE_BITS
    pages = (int(values.max(initial=0)) >> _PAGE_BITS) - lowest + 1
    held = np.zeros(pages if pages <= len(values) + _PAGE else 0, np.bool_)
    if len(held):
        _mark_pages(values, lowest, held)
    count = int(np.count_nonzero(held))
    if not 0 < count * _PAGE <= 4 * len(values) + _PAGE:
        distinct, places = np.unique(values, return_inverse=True)
        return distinct, places.astype(np.int32)
    used, slots = np.zeros(count * _PAGE, np.bool_), np.empty(len(values), np.int64)
    _mark(values, lowest, (np.cumsum(held) - 1) << _PAGE_BITS, used, slots)
    found = np.flatnonzero(used)
    distinct = ((np.flatnonzero(held)[found >> _PAGE_BITS] + lowest) << _PAGE_BITS) + (found & (_PAGE - 1))
    return distinct, (np.cumsum(used, dtype=np.int32) - 1)[slots]


def packed(ids: Ints, count: int) -> tuple[Ints, int]:
    """Ids as `dense` gives them, but without gaps: every id below the count is used."""
    used = np.zeros(count, np.bool_)
    used[ids] = True
    if used.all():
        return ids, count
    numbers = np.cumsum(used) - 1
    return numbers[ids], int(used.sum())


def together(columns: Sequence[Ints]) -> tuple[Ints, int]:
    """One id for each combination of values that occurs, without gaps."""
    ids, count = np.zeros(len(columns[0]), np.int64), min(1, len(columns[0]))
    for column in columns:
        if is_constant(column) or (len(column) and column[0] == column[-1] and (column == column[0]).all()):
            continue
        more, width = dense(column)
        if count == 1:
            ids, count = more, width
            continue
        if count * width >= 2**62:
            more, width = packed(more, width)
        ids, count = dense(ids * width + more)
    return packed(ids, count) if len(ids) else (ids, 0)


def spread(low: Ints, high: Ints) -> tuple[Ints, Ints]:
    """All numbers from each `low` to each `high` (excluded), and whose each is."""
    sizes = high - low
    of = np.repeat(np.arange(len(low)), sizes)
    before = np.cumsum(sizes) - sizes
    return np.repeat(low - before, sizes) + np.arange(len(of)), of


class ValueMap(NamedTuple):
    """Open-addressing table; `shape` holds (direct?, lowest value, mask)."""

    keys: npt.NDArray[np.int64]
    ids: npt.NDArray[np.int32]
    shape: npt.NDArray[np.int64]


def make_value_map(entries: int) -> ValueMap:
    """A map with room for `entries` values; `reset` must be called before each use."""
    size = 1 << max(4, int(2 * entries - 1).bit_length())
    return ValueMap(np.empty(size, np.int64), np.empty(size, np.int32), np.zeros(3, np.int64))


@lean_inline
def _slot_of(value, mask):
    mixed = np.uint64(value) * np.uint64(0x9E3779B97F4A7C15)
    return np.int64((mixed >> np.uint64(20)) & np.uint64(mask))


@lean
def reset(table, entries, lowest, highest):
    """Empty the map for `entries` values, all in `lowest..highest`; touches only the part that will be used."""
    room = np.int64(16)
    while room < 2 * entries:
        room *= 2
    span = np.float64(highest) - np.float64(lowest)
    direct = entries > 0 and span + 1.0 <= np.float64(room)
    table.shape[0] = 1 if direct else 0
    table.shape[1] = lowest
    table.shape[2] = room - 1
    for slot in range(room):
        table.ids[slot] = -1


@lean
def lookup(table, value):
    """The value's number, or -1."""
    mask = table.shape[2]
    if table.shape[0] == 1:
        lowest = table.shape[1]
        if value < lowest or np.float64(value) - np.float64(lowest) > np.float64(mask):
            return np.int32(-1)
        return table.ids[value - lowest] if value - lowest <= mask else np.int32(-1)
    slot = _slot_of(value, mask)
    while table.ids[slot] >= 0:
        if table.keys[slot] == value:
            return table.ids[slot]
        slot = (slot + 1) & mask
    return np.int32(-1)


@lean
def insert(table, value, number):
    """Number a new value; returns the number it already has, or -1 if it was new."""
    mask = table.shape[2]
    slot = value - table.shape[1] if table.shape[0] == 1 else _slot_of(value, mask)
    if table.shape[0] == 1:
        if table.ids[slot] >= 0:
            return table.ids[slot]
    else:
        while table.ids[slot] >= 0:
            if table.keys[slot] == value:
                return table.ids[slot]
            slot = (slot + 1) & mask
    table.keys[slot] = value
    table.ids[slot] = number
    return np.int32(-1)
