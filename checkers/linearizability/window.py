"""The operations open at one moment of a search, in slots."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from checkers.compiled import lean, lean_inline
from checkers.linearizability.frontier import set_bit, unset_bit


class Window(NamedTuple):
    """The open operations by slot: `row` is -1 for a free one, `rivals[s]` are the slots with an operation that does
    the same (`alike` in the operations' columns) and completes earlier; `slot_of` is the slot of a row that is open;
    all slots from `top[0]` on are free. `available` and `owed` have one row, the configuration in work."""

    row: npt.NDArray[np.int64]
    rivals: npt.NDArray[np.uint64]
    available: npt.NDArray[np.uint64]
    owed: npt.NDArray[np.uint64]
    slot_of: npt.NDArray[np.int32]
    top: npt.NDArray[np.int64]


def make_window(slots: int, rows: int) -> Window:
    """Room for `slots` operations open at once (a multiple of 64) and `rows` rows in all."""
    words = slots // 64
    available, owed = (np.zeros((1, words), np.uint64) for _ in range(2))
    rivals, slot_of = np.zeros((slots, words), np.uint64), np.full(rows, -1, np.int32)
    return Window(np.full(slots, -1), rivals, available, owed, slot_of, np.zeros(1, np.int64))


@lean
def vacate(window):
    """Free all slots."""
    window.row[:] = -1
    window.rivals[:] = 0
    window.available[:] = 0
    window.owed[:] = 0
    window.top[0] = 0


@lean
def enter(ops, row, slot, window):
    """Put an open operation into a free slot."""
    window.row[slot] = row
    window.slot_of[row] = slot
    window.top[0] = max(window.top[0], slot + 1)
    for other in range(window.top[0]):
        twin = window.row[other]
        if other == slot or twin < 0 or ops.alike[twin] != ops.alike[row]:
            continue
        # Of two that complete at once, as those that never do, the one that began first counts as the earlier.
        if ops.complete[twin] < ops.complete[row] or (ops.complete[twin] == ops.complete[row] and twin < row):
            set_bit(window.rivals, slot, other)
        else:
            set_bit(window.rivals, other, slot)


@lean_inline
def free_slot(window):
    """The first slot that nothing is in."""
    slot = 0
    while window.row[slot] >= 0:
        slot += 1
    return slot


@lean
def close_slot(slot, window):
    """Free the slot of an operation that is over."""
    window.slot_of[window.row[slot]] = -1
    window.row[slot] = -1
    window.rivals[slot, :] = 0
    for other in range(window.top[0]):
        unset_bit(window.rivals, other, slot)
    while window.top[0] > 0 and window.row[window.top[0] - 1] < 0:
        window.top[0] -= 1
