"""Finds the operations of a tape: one map each, and in it the values of the fields that matter."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from checkers.compiled import lean
from checkers.importers.tape import KEYWORD, MAP, STRING, Tape
from harness.errors import UserError

FIELDS: Final = (
    *("type", "process", "f", "value", "time", "index", "key", "error", "node"),
    *("error-class", "clock", "phase", "mode", "request-id"),
    *("session", "txn", "bound", "page", "requested-ts", "served-ts"),
    *("write-ts", "data-centre", "replication", "replicas"),
)
TYPE, PROCESS, F, VALUE, TIME, INDEX, KEY, ERROR, NODE, ERROR_CLASS, CLOCK = range(11)
ITSELF: Final = len(FIELDS)
"""Column of the operation's own token."""

Tokens = npt.NDArray[np.int64]

_WIDTH: Final = max(len(name) for name in FIELDS)
_NAMES: Final = np.zeros((len(FIELDS), _WIDTH), np.uint8)
for _i, _name in enumerate(FIELDS):
    _NAMES[_i, : len(_name)] = np.frombuffer(_name.encode(), np.uint8)
_LENGTHS: Final = np.array([len(name) for name in FIELDS])


@lean
def _slot(length, first, second):
    """Different for the names of all fields."""
    return (length + 7 * first + 5 * second) & 63


_FIELD_AT: Final = np.full(64, -1)
for _i, _name in enumerate(FIELDS):
    _place = _slot.py_func(len(_name), ord(_name[0]), ord(_name[min(1, len(_name) - 1)]))
    assert _FIELD_AT[_place] < 0
    _FIELD_AT[_place] = _i

_NO_MAP, _TWICE = 1, 2


@lean
def _field(tape, token, names, lengths, field_at):
    """Which field a key token names (a keyword or a string), or -1."""
    start, stop = tape.start[token] + 1, tape.stop[token]
    if tape.kind[token] == STRING:
        stop -= 1
    elif tape.kind[token] != KEYWORD:
        return -1
    size = stop - start
    if size < 1:
        return -1
    field = field_at[_slot(size, tape.text[start], tape.text[start + min(1, size - 1)])]
    if field < 0 or lengths[field] != size:
        return -1
    for i in range(size):
        if tape.text[start + i] != names[field, i]:
            return -1
    return field


@lean
def _find(tape, names, lengths, field_at, found):
    """Fill `found[i]` with the value tokens of map i (-1: absent). Returns (maps, problem, its token)."""
    count, token = 0, 0
    while token < tape.kind.shape[0]:
        if tape.kind[token] != MAP:
            return count, _NO_MAP, token
        for field in range(lengths.shape[0]):
            found[count, field] = -1
        child = token + 1
        while child < tape.after[token]:
            field = _field(tape, child, names, lengths, field_at)
            value = tape.after[child]
            if field >= 0:
                if found[count, field] >= 0:
                    return count, _TWICE, child
                found[count, field] = value
            child = tape.after[value]
        found[count, lengths.shape[0]] = token
        count += 1
        token = tape.after[token]
    return count, 0, 0


@lean
def _count(tape):
    count, token = 0, 0
    while token < tape.kind.shape[0]:
        count += 1
        token = tape.after[token]
    return count


def find_operations(path: Path, tape: Tape) -> Tokens:
    """For each event its field values' tokens, in FIELDS order, and its own token behind them; -1 where absent.

    Raises UserError for what is no map, a field that is there twice, and an event without a type.
    """
    found = np.empty((_count(tape), len(FIELDS) + 1), np.int64)
    _, problem, token = _find(tape, _NAMES, _LENGTHS, _FIELD_AT, found)
    if problem == _NO_MAP:
        raise UserError(f"{path}, line {tape.line(token)}: {tape.raw(token)[:40]!r} is not an operation (a map).")
    if problem == _TWICE:
        raise UserError(f"{path}, line {tape.line(token)}: an operation has {tape.raw(token)} twice.")
    untyped = np.flatnonzero(found[:, TYPE] < 0)
    if len(untyped):
        raise UserError(f"{path}, line {tape.line(int(found[untyped[0], ITSELF]))}: an operation has no :type.")
    return found
