"""Numbers object addresses (table, partition, row, column) densely, batch by batch."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from checkers.compiled import lean

Ints = npt.NDArray[np.int64]
Ids = npt.NDArray[np.int32]


class KeyTable(NamedTuple):
    """Row k of `address` is key k's; `slots` is an open-addressing table of key numbers; `used[0]` keys are known."""

    address: Ints
    slots: Ids
    used: Ints


def make_key_table(room: int = 1 << 10) -> KeyTable:
    """A table with room for that many keys."""
    size = 1 << max(4, int(2 * room - 1).bit_length())
    return KeyTable(np.empty((size // 2, 4), np.int64), np.full(size, -1, np.int32), np.zeros(1, np.int64))


@lean
def _mixed(table, partition, row, column):
    mixed = np.uint64(partition) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= (np.uint64(row) + np.uint64(0x632BE59BD9B4E019)) * np.uint64(0xC2B2AE3D27D4EB4F)
    mixed ^= (np.uint64(table) * np.uint64(0x165667B19E3779F9)) ^ (np.uint64(column) * np.uint64(0xD6E8FEB86659FD93))
    return mixed ^ (mixed >> np.uint64(29))


@lean
def _number(keys, tables, partitions, rows, columns, begin, ids):
    """Number addresses from `begin` on; returns where the table was full, or the end."""
    mask = keys.slots.shape[0] - 1
    for i in range(begin, partitions.shape[0]):
        table, partition, row, column = tables[i], partitions[i], rows[i], columns[i]
        slot = np.int64(_mixed(table, partition, row, column) & np.uint64(mask))
        while True:
            known = keys.slots[slot]
            if known < 0:
                if keys.used[0] == keys.address.shape[0]:
                    return i
                known = keys.used[0]
                keys.slots[slot] = known
                keys.address[known, 0], keys.address[known, 1] = table, partition
                keys.address[known, 2], keys.address[known, 3] = row, column
                keys.used[0] += 1
                ids[i] = known
                break
            address = keys.address[known]
            if address[1] == partition and address[2] == row and address[0] == table and address[3] == column:
                ids[i] = known
                break
            slot = (slot + 1) & mask
    return partitions.shape[0]


def number_keys(keys: KeyTable, address: tuple[Ints, Ints, Ints, Ints]) -> tuple[KeyTable, Ids]:
    """The table (grown if need be) and the key number of each address."""
    size = len(address[1])
    ids = np.empty(size, np.int32)
    table, partition, row, column = map(_read_only, address)
    place = _number(keys, table, partition, row, column, 0, ids)
    while place < size:
        count = int(keys.used[0])
        known = [_read_only(part) for part in keys.address[:count].T]
        keys = make_key_table(4 * count)
        _number(keys, *known, 0, np.empty(count, np.int32))
        place = _number(keys, table, partition, row, column, place, ids)
    return keys, ids


def _read_only(part: Ints) -> Ints:
    """The same numbers as the one kind of array that the kernel is compiled for: Arrow's can't be written to."""
    view = np.ascontiguousarray(part).view()
    view.flags.writeable = False
    return view
