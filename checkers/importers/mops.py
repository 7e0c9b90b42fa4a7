"""Turns the values of operations into micro-operations, compiled: scalars, pairs, transactions, lists, maps.

A value may belong to one of several independent objects: it is a pair `[key value]` (a tuple of `jepsen.independent`),
or the operation states a `:key`. The key is then the partition; what a transaction or a map inside names is the row.
Elsewhere what transactions and maps name is the partition. A key that is written as four numbers is a whole address:
`[partition row column table]`, as our own export has it.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from checkers.columns.codes import NIL
from checkers.compiled import lean
from checkers.importers.tape import INTEGER, KEYWORD, LIST, MAP, NULL, STRING, VECTOR, Tape

Ints = npt.NDArray[np.int64]

ITSELF: Final = -1
"""As `name`: the micro-operation is called as the operation's own `f`."""

PLAIN, PAIR, TUPLE = 0, 1, 2
"""What a value is by its looks: no pair of a key and something, such a pair, or one that can be nothing else."""

_MOST_SMALL: Final = 2**31


class MopColumns(NamedTuple):
    """Micro-operations in the making. `of` is the event, `name` the token of its f (or ITSELF); partition, row, column
    and table are its address; lists are `items[list_start:list_stop]`, none where list_start is -1; `counts` is
    (micro-operations, items, micro-operations that are within one of several independent objects)."""

    of: Ints
    name: Ints
    partition: Ints
    row: Ints
    column: Ints
    table: Ints
    value: Ints
    expected: Ints
    list_start: Ints
    list_stop: Ints
    items: Ints
    counts: Ints


def make_mops(tokens: int, events: int) -> MopColumns:
    """Room for the micro-operations of that many tokens and events."""
    of, name, partition, value, expected, start, stop = (np.empty(tokens + events, np.int64) for _ in range(7))
    row, column, table = (np.zeros(tokens + events, np.int64) for _ in range(3))
    items, counts = np.empty(tokens, np.int64), np.zeros(3, np.int64)
    return MopColumns(of, name, partition, row, column, table, value, expected, start, stop, items, counts)


@lean
def _is_atom(tape, token):
    return tape.kind[token] < VECTOR


@lean
def _size(tape, token):
    count, child = 0, token + 1
    while child < tape.after[token]:
        count += 1
        child = tape.after[child]
    return count


@lean
def _only_atoms(tape, token):
    child = token + 1
    while child < tape.after[token] and _is_atom(tape, child):
        child += 1
    return child == tape.after[token]


@lean
def _is_address(tape, token):
    """A key `[partition row column table]` of small integers that are not just a partition."""
    if tape.kind[token] != VECTOR or tape.after[token] != token + 5:
        return False
    for child in range(token + 1, token + 5):
        if tape.kind[child] != INTEGER:
            return False
    row, column, table = tape.number[token + 2], tape.number[token + 3], tape.number[token + 4]
    small = -_MOST_SMALL <= column < _MOST_SMALL and -_MOST_SMALL <= table < _MOST_SMALL
    return small and (row != 0 or column != 0 or table != 0)


@lean
def _is_key(tape, token):
    return _is_atom(tape, token) or _is_address(tape, token)


@lean
def _is_name(tape, token):
    return tape.kind[token] == KEYWORD or tape.kind[token] == STRING


@lean
def _is_cas(tape, token):
    """Whether a micro-operation's name is cas."""
    start = tape.start[token] + 1
    size = tape.stop[token] - start - (1 if tape.kind[token] == STRING else 0)
    text = tape.text
    return size == 3 and text[start] == 99 and text[start + 1] == 97 and text[start + 2] == 115


@lean
def _is_transaction(tape, token):
    """A vector of [f key value] vectors."""
    if (tape.kind[token] != VECTOR and tape.kind[token] != LIST) or token + 1 >= tape.after[token]:
        return False
    child = token + 1
    while child < tape.after[token]:
        if tape.kind[child] != VECTOR or _size(tape, child) != 3 or not _is_name(tape, child + 1):
            return False
        if not _is_key(tape, child + 2):
            return False
        child = tape.after[child]
    return True


@lean
def _shape(tape, token, is_cas):
    """PLAIN, PAIR or TUPLE; see there."""
    if tape.kind[token] != VECTOR or token + 1 >= tape.after[token] or not _is_key(tape, token + 1):
        return PLAIN
    second = tape.after[token + 1]
    if second >= tape.after[token] or tape.after[second] != tape.after[token]:
        return PLAIN
    kind = tape.kind[second]
    if is_cas:
        return TUPLE if kind in (VECTOR, LIST) else PLAIN
    if kind in (MAP, NULL) or not _is_atom(tape, token + 1) or _is_transaction(tape, second):
        return TUPLE
    return PAIR


@lean
def shapes(tape, values, is_cas, found):
    """What each value is by its looks."""
    for i in range(values.shape[0]):
        found[i] = PLAIN if values[i] < 0 else _shape(tape, values[i], is_cas[i])


@lean
def _emit(out, event, name, value, expected):
    place = out.counts[0]
    out.of[place], out.name[place] = event, name
    out.value[place], out.expected[place] = value, expected
    out.list_start[place], out.list_stop[place] = -1, -1
    out.counts[0] += 1


@lean
def _address(tape, out, first, key, outer):
    """Give the micro-operations from `first` on the key (a token, -1: none), within the outer one if there is one."""
    for place in range(first, out.counts[0]):
        out.partition[place] = 0
        if key >= 0 and not _is_atom(tape, key):
            out.partition[place], out.row[place] = tape.number[key + 1], tape.number[key + 2]
            out.column[place], out.table[place] = tape.number[key + 3], tape.number[key + 4]
        elif outer >= 0:
            out.partition[place], out.row[place] = tape.number[outer], tape.number[key]
            out.counts[2] += 1
        elif key >= 0:
            out.partition[place] = tape.number[key]


@lean
def _emit_value(tape, out, event, name, token, is_cas):
    """One micro-operation with a scalar, a flat list or, for a cas, what it replaces by what; False for others."""
    if is_cas:
        if _is_atom(tape, token) or not _only_atoms(tape, token) or tape.after[token] != token + 3:
            return False
        _emit(out, event, name, tape.number[token + 2], tape.number[token + 1])
        return True
    if _is_atom(tape, token):
        _emit(out, event, name, tape.number[token], NIL)
        return True
    if tape.kind[token] == MAP or not _only_atoms(tape, token):
        return False
    _emit(out, event, name, NIL, NIL)
    place = out.counts[0] - 1
    out.list_start[place] = out.counts[1]
    for child in range(token + 1, tape.after[token]):
        out.items[out.counts[1]] = tape.number[child]
        out.counts[1] += 1
    out.list_stop[place] = out.counts[1]
    return True


@lean
def _emit_map(tape, out, event, token, outer):
    """One micro-operation an entry."""
    if not _only_atoms(tape, token):
        return False
    child = token + 1
    while child < tape.after[token]:
        first = out.counts[0]
        _emit(out, event, ITSELF, tape.number[child + 1], NIL)
        _address(tape, out, first, child, outer)
        child += 2
    return True


@lean
def _emit_transaction(tape, out, event, token, outer):
    child = token + 1
    while child < tape.after[token]:
        key, first = child + 2, out.counts[0]
        is_cas = _is_cas(tape, child + 1)
        if outer >= 0 and not (_is_atom(tape, key) and _is_atom(tape, outer)):
            return False
        if not _emit_value(tape, out, event, child + 1, tape.after[key], is_cas):
            return False
        _address(tape, out, first, key, outer)
        child = tape.after[child]
    return True


@lean
def _emit_event(tape, out, event, token, outer, is_cas):
    """The micro-operations of one value within the object of that key (a token, -1: none); False if it fits none of
    the shapes."""
    first = out.counts[0]
    if token < 0:
        _emit(out, event, ITSELF, NIL, NIL)
        _address(tape, out, first, outer, -1)
        return not is_cas
    if tape.kind[token] == MAP:
        return (outer < 0 or _is_atom(tape, outer)) and _emit_map(tape, out, event, token, outer)
    if not is_cas and _is_transaction(tape, token):
        return _emit_transaction(tape, out, event, token, outer)
    if not _emit_value(tape, out, event, ITSELF, token, is_cas):
        return False
    _address(tape, out, first, outer, -1)
    return True


@lean
def _emit_all(tape, out, values, keys, is_cas, keyed, fits):
    for event in range(values.shape[0]):
        token, outer = values[event], keys[event]
        if keyed:
            if token < 0 or _shape(tape, token, is_cas[event]) == PLAIN:
                fits[event] = False
                continue
            outer = token + 1
            token = tape.after[outer]
        before, items, within = out.counts[0], out.counts[1], out.counts[2]
        fits[event] = _emit_event(tape, out, event, token, outer, is_cas[event])
        if not fits[event]:
            out.row[before : out.counts[0]], out.column[before : out.counts[0]] = 0, 0
            out.table[before : out.counts[0]] = 0
            out.counts[0], out.counts[1], out.counts[2] = before, items, within


def emit_mops(
    tape: Tape, values: Ints, keys: Ints, is_cas: npt.NDArray[np.bool_], keyed: bool
) -> tuple[MopColumns, npt.NDArray[np.bool_]]:
    """The micro-operations of events by the tokens of their values and keys (-1: none), and which values fitted.

    `keyed` says that every value is a pair of a key and the value proper (Jepsen's independent keys).
    """
    out, fits = make_mops(len(tape.kind), len(values)), np.ones(len(values), np.bool_)
    _emit_all(tape, out, values, keys, is_cas, keyed, fits)
    count, items = int(out.counts[0]), int(out.counts[1])
    columns = {name: column[:count] for name, column in zip(out._fields[:10], out[:10], strict=True)}
    return MopColumns(**columns, items=out.items[:items], counts=out.counts), fits
