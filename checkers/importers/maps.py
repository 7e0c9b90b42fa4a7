"""Finds the operations of a tape: one map each, and in it the values of the fields that matter."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
from numba import njit

from checkers.importers.tape import LIST, MAP, STRING, VECTOR, Tape
from harness.errors import UserError

FIELDS: Final = ("type", "process", "f", "value", "time", "index", "key", "error", "node")
TYPE, PROCESS, F, VALUE, TIME, INDEX, KEY, ERROR, NODE = range(9)

Tokens = npt.NDArray[np.int64]

_NAMES: Final = np.zeros((len(FIELDS), 8), np.uint8)
for _i, _name in enumerate(FIELDS):
    _NAMES[_i, : len(_name)] = np.frombuffer(_name.encode(), np.uint8)
_LENGTHS: Final = np.array([len(name) for name in FIELDS])


@njit(cache=True)
def _field(tape, token, names, lengths):
    """Which field a key token names (a keyword or a string), or -1."""
    start, stop = tape.start[token] + 1, tape.stop[token]
    if tape.kind[token] == STRING:
        stop -= 1
    for field in range(lengths.shape[0]):
        if lengths[field] != stop - start:
            continue
        same = True
        for i in range(stop - start):
            same &= tape.text[start + i] == names[field, i]
        if same:
            return field
    return -1


@njit(cache=True)
def _find(tape, first, last, names, lengths, found):
    """Fill `found[i]` with the value tokens of map i (-1: absent). Returns (maps, token that is no map or -1)."""
    count, token = 0, first
    while token < last:
        if tape.kind[token] != MAP:
            return count, token
        for field in range(lengths.shape[0]):
            found[count, field] = -1
        child = token + 1
        while child < tape.after[token]:
            field = _field(tape, child, names, lengths)
            if field >= 0:
                found[count, field] = tape.after[child]
            child = tape.after[tape.after[child]]
        found[count, lengths.shape[0]] = token
        count += 1
        token = tape.after[token]
    return count, -1


def find_operations(path: Path, tape: Tape) -> Tokens:
    """For each event its field values' tokens, in FIELDS order, and its own token behind them; -1 where absent.

    The history is one vector or list of maps, or one map after the other. Raises UserError for anything else.
    """
    first, last = 0, len(tape.kind)
    if last and tape.kind[0] in (VECTOR, LIST):
        if tape.after[0] != last:
            line = tape.line(int(tape.after[0]))
            raise UserError(f"{path}, line {line}: something follows the list of operations, so this is not a history.")
        first = 1
    maps = int(np.count_nonzero(tape.kind == MAP))
    found = np.empty((maps, len(FIELDS) + 1), np.int64)
    count, strange = _find(tape, first, last, _NAMES, _LENGTHS, found)
    if strange >= 0:
        raise UserError(f"{path}, line {tape.line(strange)}: {tape.raw(strange)[:40]!r} is not an operation (a map).")
    events = found[:count]
    for field in (TYPE,):
        if count and (events[:, field] < 0).any():
            token = int(events[events[:, field] < 0][0, -1])
            raise UserError(f"{path}, line {tape.line(token)}: an operation has no :{FIELDS[field]}.")
    return events
