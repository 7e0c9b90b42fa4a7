"""A map from 64-bit values to small integers for compiled kernels: directly addressed where values are dense, else
hashed.

Counters are the usual written values; addressing them directly keeps neighbours in time neighbours in memory.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from checkers.compiled import lean, lean_inline


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
