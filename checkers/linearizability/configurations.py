"""Sets of configurations, and the operations open at one moment: what a search knows may be true of a key.

A configuration is (state, available, owed): a state; the open operations that change it and may still be linearized;
the open operations that must still be. Fewer owed and more available is better: a configuration is
*dominated* by another of the same state that owes a subset and has a superset available, because the other can do
whatever it does. Sets keep undominated ones only. Operations are named by the slot of the `Window` that they are in.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from checkers.columns.codes import Ids, Ints, Words
from checkers.compiled import lean, lean_inline, make_record

BUCKETS: Final = 1024

SET_FULL: Final = -1
"""Instead of the work done: a set of configurations is full."""


class ConfigSet(NamedTuple):
    """Configurations in order of insertion, by place: the first `tally.used` places are taken. No live configuration
    dominates another. Buckets chain those of equal state (mod BUCKETS)."""

    state: Ids  # a value's number, or a word of the store; -1: removed, since it was dominated
    available: Words  # by place a mask of slots: what changes the state and may still be linearized
    owed: Words  # likewise: what must still be linearized; what only observes is in this mask alone
    next: Ids  # the place inserted before this one in its bucket, -1 the end; always a lower one
    head: Ids  # by bucket the place inserted last
    head_epoch: Ints  # by bucket when `head` was set: it counts only if that is `tally.epoch`
    tally: np.record  # of TALLY: 0 <= live <= used <= the length of `state`


TALLY: Final = (
    "used",  # places taken, by removed configurations too
    "live",  # configurations that are not removed
    "epoch",  # how often the set was emptied
)


def make_config_set(capacity: int, words: int) -> ConfigSet:
    """An empty set of at most `capacity` insertions, for up to 64 * `words` open operations."""
    available, owed = (np.zeros((capacity, words), np.uint64) for _ in range(2))
    states, links = (np.full(capacity, -1, np.int32) for _ in range(2))
    head, epochs = np.empty(BUCKETS, np.int32), np.full(BUCKETS, -1)
    return ConfigSet(states, available, owed, links, head, epochs, make_record(TALLY))


def grown(old: ConfigSet, capacity: int) -> ConfigSet:
    """A copy with more room."""
    new = make_config_set(capacity, old.available.shape[1])
    used = len(old.state)
    new.state[:used], new.next[:used] = old.state, old.next
    new.available[:used], new.owed[:used] = old.available, old.owed
    new.head[:], new.head_epoch[:] = old.head, old.head_epoch
    new.tally.used, new.tally.live, new.tally.epoch = old.tally.used, old.tally.live, old.tally.epoch
    return new


@lean_inline
def _bit(slot):
    return np.uint64(1) << np.uint64(slot & 63)


@lean_inline
def has_bit(masks, row, slot):
    """Whether a slot is in a row of masks."""
    return (masks[row, slot >> 6] & _bit(slot)) != 0


@lean_inline
def set_bit(masks, row, slot):
    """Put a slot into a row of masks."""
    masks[row, slot >> 6] |= _bit(slot)


@lean_inline
def unset_bit(masks, row, slot):
    """Take a slot out of a row of masks."""
    masks[row, slot >> 6] &= ~_bit(slot)


@lean_inline
def flip_bit(masks, row, slot):
    """Put a slot into a row of masks, or take it out if it is there."""
    masks[row, slot >> 6] ^= _bit(slot)


@lean_inline
def _ones(word):
    """How many bits are set."""
    word -= (word >> np.uint64(1)) & np.uint64(0x5555555555555555)
    word = (word & np.uint64(0x3333333333333333)) + ((word >> np.uint64(2)) & np.uint64(0x3333333333333333))
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((word * np.uint64(0x0101010101010101)) >> np.uint64(56))


@lean_inline
def lowest(word):
    """The place of the lowest bit that is set."""
    return _ones((word & (~word + np.uint64(1))) - np.uint64(1))


@lean
def clear(configs):
    """Empty the set in constant time."""
    configs.tally.used = 0
    configs.tally.live = 0
    configs.tally.epoch += 1


@lean_inline
def _dominates(configs, place, available, owed, row):
    """Whether a configuration of the set owes no more and has no less available than `row` of the given masks."""
    worse = np.uint64(0)
    for word in range(available.shape[1]):
        worse |= configs.owed[place, word] & ~owed[row, word]
        worse |= available[row, word] & ~configs.available[place, word]
    return worse == 0


@lean_inline
def _dominated(configs, place, available, owed, row):
    worse = np.uint64(0)
    for word in range(available.shape[1]):
        worse |= owed[row, word] & ~configs.owed[place, word]
        worse |= configs.available[place, word] & ~available[row, word]
    return worse == 0


@lean_inline
def _make_way(configs, bucket, state, available, owed, row):
    """Unlink what the new configuration dominates. Returns (False if it is dominated itself, how many looked at)."""
    looked = 0
    # `before` is the last configuration of the chain that stays, for the link that removing `current` has to mend.
    before, current = np.int32(-1), configs.head[bucket]
    while current >= 0:
        looked += 1
        after = configs.next[current]
        if configs.state[current] == state:
            if _dominates(configs, current, available, owed, row):
                return False, looked
            if _dominated(configs, current, available, owed, row):
                configs.state[current] = -1
                configs.tally.live -= 1
                if before < 0:
                    configs.head[bucket] = after
                else:
                    configs.next[before] = after
                current = after
                continue
        before, current = current, after
    return True, looked


@lean_inline
def add(configs, state, available, owed, row):
    """Insert a state with the masks in `row` of the given arrays, unless dominated. Returns the work done
    (configurations compared, at least 1), or SET_FULL."""
    bucket = state & (BUCKETS - 1)
    # Emptying the set only counts its epoch up: a bucket of an earlier one is emptied when it is next needed.
    if configs.head_epoch[bucket] != configs.tally.epoch:
        configs.head_epoch[bucket] = configs.tally.epoch
        configs.head[bucket] = -1
    fresh, looked = _make_way(configs, bucket, state, available, owed, row)
    if not fresh:
        return looked + 1
    place = configs.tally.used
    if place >= configs.state.shape[0]:
        return SET_FULL
    configs.state[place] = state
    for word in range(available.shape[1]):
        configs.available[place, word] = available[row, word]
        configs.owed[place, word] = owed[row, word]
    configs.next[place] = configs.head[bucket]
    configs.head[bucket] = place
    configs.tally.used += 1
    configs.tally.live += 1
    return looked + 1


@lean
def is_linearized(configs, slot):
    """Whether the operation in a slot has taken effect in every configuration."""
    for place in range(configs.tally.used):
        held = has_bit(configs.owed, place, slot) or has_bit(configs.available, place, slot)
        if configs.state[place] >= 0 and held:
            return False
    return True


@lean_inline
def _freedom(configs, place):
    """How much a configuration leaves open: what may still be linearized counts twice, less what must be."""
    free = np.int64(0)
    for word in range(configs.owed.shape[1]):
        free += 2 * _ones(configs.available[place, word]) - _ones(configs.owed[place, word])
    return free


@lean
def _threshold(configs, most):
    """The freedom that at most `most` configurations exceed, or one less than any has, if they are no more."""
    if most <= 0 or configs.tally.live <= most:
        return np.int64(-64 * configs.owed.shape[1] - 1)
    # By bisection: more than `most` exceed what is below `low`, at most that many exceed `high`.
    low, high = np.int64(-64 * configs.owed.shape[1] - 1), np.int64(128 * configs.owed.shape[1])
    while low < high:
        middle, freer = (low + high) // 2, 0
        for place in range(configs.tally.used):
            freer += configs.state[place] >= 0 and _freedom(configs, place) > middle
        if freer > most:
            low = middle + 1
        else:
            high = middle
    return low


@lean
def adopt(frontier, after, most):
    """The live configurations of `after`, packed, become the frontier: the `most` that leave most open (0: all).
    Returns 1 if any were left out, else 0."""
    clear(frontier)
    size, least = 0, _threshold(after, most)
    # All that exceed the threshold are no more than `most`; what room is left goes to those that just reach it.
    for exceeding in (True, False):
        for place in range(after.tally.used):
            if after.state[place] < 0 or (most > 0 and size >= most):
                continue
            freedom = _freedom(after, place)
            if freedom < least or (freedom > least) != exceeding:
                continue
            frontier.state[size] = after.state[place]
            for word in range(after.available.shape[1]):
                frontier.available[size, word] = after.available[place, word]
                frontier.owed[size, word] = after.owed[place, word]
            size += 1
    frontier.tally.used = size
    frontier.tally.live = size
    return np.int64(size < after.tally.live)


class Window(NamedTuple):
    """The open operations by slot, and the masks of the configuration in work."""

    row: Ints  # the operation in a slot, -1: the slot is free
    rivals: Words  # by slot a mask: who does the same (`alike`) and completes earlier, so has to go first
    available: Words  # one row: `available` of the configuration in work
    owed: Words  # one row: `owed` of the configuration in work
    slot_of: Ids  # by row its slot while the operation is open: row[slot_of[r]] == r
    top: Ints  # all slots from top[0] on are free, and the one below is not


def make_window(slots: int, rows: int) -> Window:
    """Room for `slots` operations open at once (a multiple of 64) and `rows` rows in all."""
    words = slots // 64
    available, owed = (np.zeros((1, words), np.uint64) for _ in range(2))
    rivals, slot_of = np.zeros((slots, words), np.uint64), np.full(rows, -1, np.int32)
    return Window(np.full(slots, -1), rivals, available, owed, slot_of, np.zeros(1, np.int64))


@lean_inline
def load(configs, place, window):
    """Take the masks of a configuration of a set into work."""
    for word in range(window.owed.shape[1]):
        window.available[0, word] = configs.available[place, word]
        window.owed[0, word] = configs.owed[place, word]


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
