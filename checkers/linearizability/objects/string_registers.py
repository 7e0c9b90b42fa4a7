"""Strings as registers: where each string that is read was made in one way only, its history is that of a register.

Say each string that a get returned, and each that those were made of, has one operation that can have made it: a put of
it, an append to the one before, or nothing for the empty string. Then that operation did, and a register does the same
whose values are these strings: such a put is a write, such an append a compare-and-set from the string before, a get a
read, and whatever else changes the string writes a value that nobody reads. Orders are right for the one as for the
other: by induction the register holds one of these strings exactly if it is the string. An operation that would have to
make two of these strings makes only one of the register's, which is refuted by the other. Written values are unique, so
zones decide (`registers.zones`), however many operations are open at once.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from checkers.columns.codes import CAS, NIL, READ, WRITE, Ints, RegisterColumns
from checkers.columns.dense import together
from checkers.columns.projection import KeyedOps
from checkers.linearizability.objects.built import Built, RegisterProjections
from checkers.linearizability.objects.kinds import APPEND, GET, PUT, UNSEEN


class _Edges(NamedTuple):
    """Where appending leads: object, nodes before and after, and a number for the piece in its object."""

    object: Ints
    source: Ints
    target: Ints
    piece: Ints


def _needed(built: Built, source: Ints, target: Ints) -> Ints:
    """Flags of the nodes that gets returned or that these were made of."""
    needed = np.zeros(len(built.nodes), np.int64)
    needed[built.ops.value[built.ops.kind == GET]] = 1
    sizes = np.array([len(text) for text in built.nodes], np.int64)
    for edge in np.argsort(-sizes[target], kind="stable").tolist():
        needed[source[edge]] |= needed[target[edge]]
    needed[UNSEEN] = 0
    return needed


def _edges(built: Built, key: Ints, node_object: Ints) -> tuple[_Edges, Ints, Ints]:
    """The edges between needed nodes; which nodes are needed; each append's number of its piece."""
    ops = built.ops
    source = np.repeat(np.arange(len(built.nodes)), np.diff(ops.strings.edge_first))
    target, appends = ops.strings.edge_target.astype(np.int64), ops.kind == APPEND
    needed = _needed(built, source, target)
    chosen = np.flatnonzero(needed[target])
    source, target, owner = source[chosen], target[chosen], node_object[source[chosen]]
    pieces = np.concatenate((ops.strings.edge_piece[chosen], ops.value[appends])).astype(np.int64)
    ids, _ = together([np.concatenate((owner, key[appends])), pieces])
    piece = np.full(len(key), -1)
    piece[appends] = ids[len(chosen) :]
    return _Edges(owner, source, target, ids[: len(chosen)]), needed, piece


def string_registers(built: Built, node_object: Ints) -> RegisterProjections:
    """A register for each string of which that much is known; `node_object[n]` is the object of node n."""
    ops, count = built.ops, len(built.ops.offsets) - 1
    key = np.repeat(np.arange(count), np.diff(ops.offsets))
    edges, needed, piece = _edges(built, key, node_object)
    many = int(max(piece.max(initial=-1), edges.piece.max(initial=-1))) + 1
    appended = np.bincount(piece[piece >= 0], minlength=many)
    makers = np.bincount(ops.value[ops.kind == PUT], minlength=len(needed))
    makers[ops.strings.root] += 1
    np.add.at(makers, edges.target, appended[edges.piece])
    clear = np.ones(count, np.bool_)
    clear[node_object[(makers > 1) & (needed == 1)]] = False
    via = np.full(many, -1)
    via[edges.piece] = np.arange(len(edges.piece))
    edge = np.where(piece >= 0, via[piece], -1) if many else piece
    return _registers(built, key, needed, edge, edges, np.flatnonzero(clear))


def _registers(built: Built, key: Ints, needed: Ints, edge: Ints, edges: _Edges, clear: Ints) -> RegisterProjections:
    """The registers of the objects `clear`; `edge` is the one that an append takes, or -1."""
    ops = built.ops
    puts, gets, glued = ops.kind == PUT, ops.kind == GET, edge >= 0
    root = ops.strings.root[key]
    kind, value, expected = (
        np.full(len(key), WRITE, np.uint8),
        len(needed) + np.arange(len(key)),
        np.full(len(key), NIL),
    )
    made = puts & (needed[np.where(puts, ops.value, UNSEEN)] == 1)
    kind[gets], value[gets | made] = READ, ops.value[gets | made]
    kind[glued], value[glued], expected[glued] = CAS, edges.target[edge[glued]], edges.source[edge[glued]]
    value[gets & (value == root)] = NIL
    expected[glued & (expected == root)] = NIL
    columns = RegisterColumns(ops.offsets, kind, value, expected, ops.invoke, ops.complete)
    return RegisterProjections(KeyedOps(built.addresses[clear], columns.select(clear)), clear, clear)
