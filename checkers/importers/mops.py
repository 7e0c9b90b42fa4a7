"""Turns the values of operations into micro-operations, compiled: scalars, pairs, transactions, lists, maps."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from checkers.importers.tape import KEYWORD, LIST, MAP, STRING, VECTOR, Tape
from checkers.kernels.columns import NIL

Ints = npt.NDArray[np.int64]

ITSELF: Final = -1
"""As `name`: the micro-operation is called as the operation's own `f`."""


class MopColumns(NamedTuple):
    """Micro-operations in the making. `of` is the event, `name` the token of its f (or ITSELF); lists are
    `items[list_start:list_stop]`, none where list_start is -1; `counts` is (micro-operations, items)."""

    of: Ints
    name: Ints
    partition: Ints
    value: Ints
    expected: Ints
    list_start: Ints
    list_stop: Ints
    items: Ints
    counts: Ints


def make_mops(tokens: int, events: int) -> MopColumns:
    """Room for the micro-operations of that many tokens and events."""
    of, name, partition, value, expected, start, stop = (np.empty(tokens + events, np.int64) for _ in range(7))
    items, counts = np.empty(tokens, np.int64), np.zeros(2, np.int64)
    return MopColumns(of, name, partition, value, expected, start, stop, items, counts)


@njit(cache=True)
def _is_atom(tape, token):
    return tape.kind[token] < VECTOR


@njit(cache=True)
def _size(tape, token):
    count, child = 0, token + 1
    while child < tape.after[token]:
        count += 1
        child = tape.after[child]
    return count


@njit(cache=True)
def _only_atoms(tape, token):
    child = token + 1
    while child < tape.after[token]:
        if not _is_atom(tape, child):
            return False
        child += 1
    return True


@njit(cache=True)
def _emit(out, event, name, partition, value, expected):
    place = out.counts[0]
    out.of[place], out.name[place], out.partition[place] = event, name, partition
    out.value[place], out.expected[place] = value, expected
    out.list_start[place], out.list_stop[place] = -1, -1
    out.counts[0] += 1


@njit(cache=True)
def _emit_value(tape, out, event, name, partition, token):
    """One micro-operation with a scalar or a flat list; False if the value is neither."""
    if _is_atom(tape, token):
        _emit(out, event, name, partition, tape.number[token], NIL)
        return True
    if tape.kind[token] == MAP or not _only_atoms(tape, token):
        return False
    _emit(out, event, name, partition, NIL, NIL)
    place = out.counts[0] - 1
    out.list_start[place] = out.counts[1]
    for child in range(token + 1, tape.after[token]):
        out.items[out.counts[1]] = tape.number[child]
        out.counts[1] += 1
    out.list_stop[place] = out.counts[1]
    return True


@njit(cache=True)
def _is_transaction(tape, token):
    """A vector of [f key value] vectors."""
    if tape.kind[token] != VECTOR and tape.kind[token] != LIST:
        return False
    child = token + 1
    if child >= tape.after[token]:
        return False
    while child < tape.after[token]:
        whole = tape.kind[child] == VECTOR and _size(tape, child) == 3
        if not whole or (tape.kind[child + 1] != KEYWORD and tape.kind[child + 1] != STRING):
            return False
        if not _is_atom(tape, child + 2):
            return False
        child = tape.after[child]
    return True


@njit(cache=True)
def _emit_map(tape, out, event, token):
    """One micro-operation an entry: the key is the partition."""
    if not _only_atoms(tape, token):
        return False
    child = token + 1
    while child < tape.after[token]:
        _emit(out, event, ITSELF, tape.number[child], tape.number[child + 1], NIL)
        child += 2
    return True


@njit(cache=True)
def _emit_event(tape, out, event, token, partition, is_cas):
    """The micro-operations of one value; False if it fits none of the shapes (nothing is emitted then)."""
    before, items = out.counts[0], out.counts[1]
    if token < 0:
        _emit(out, event, ITSELF, partition, NIL, NIL)
        return True
    if is_cas and not _is_atom(tape, token):
        if _size(tape, token) != 2 or not _only_atoms(tape, token):
            return False
        _emit(out, event, ITSELF, partition, tape.number[token + 2], tape.number[token + 1])
        return True
    if tape.kind[token] == MAP:
        return _emit_map(tape, out, event, token)
    if _is_transaction(tape, token):
        child = token + 1
        while child < tape.after[token]:
            if not _emit_value(tape, out, event, child + 1, tape.number[child + 2], child + 3):
                out.counts[0], out.counts[1] = before, items
                return False
            child = tape.after[child]
        return True
    return _emit_value(tape, out, event, ITSELF, partition, token)


@njit(cache=True)
def _emit_all(tape, out, values, keys, is_cas, keyed, fits):
    for event in range(values.shape[0]):
        token, partition = values[event], np.int64(0)
        if keys[event] >= 0:
            partition = tape.number[keys[event]]
        if keyed:
            pair = token >= 0 and tape.kind[token] == VECTOR and _size(tape, token) == 2 and _is_atom(tape, token + 1)
            if not pair:
                fits[event] = False
                continue
            partition = tape.number[token + 1]
            token = np.int64(token + 2)
        fits[event] = _emit_event(tape, out, event, token, partition, is_cas[event])


def emit_mops(
    tape: Tape, values: Ints, keys: Ints, is_cas: npt.NDArray[np.bool_], keyed: bool
) -> tuple[MopColumns, npt.NDArray[np.bool_]]:
    """The micro-operations of events by the tokens of their values (-1: none), and which events' values fitted.

    `keyed` says that every value is a pair of a key and the value proper (Jepsen's independent keys).
    """
    out, fits = make_mops(len(tape.kind), len(values)), np.ones(len(values), np.bool_)
    _emit_all(tape, out, values, keys, is_cas, keyed, fits)
    count, items = int(out.counts[0]), int(out.counts[1])
    of, name, partition, value, expected, start, stop = (column[:count] for column in out[:7])
    return MopColumns(of, name, partition, value, expected, start, stop, out.items[:items], out.counts), fits
