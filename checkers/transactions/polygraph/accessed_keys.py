"""What registers and lists were accessed, as a polygraph is made of it."""

from __future__ import annotations

from typing import Final

import numpy as np

from checkers.columns.codes import FAIL, NIL, OK, Bools, Ints
from checkers.transactions.graph.edges import WW, Edges
from checkers.transactions.inference.list_accesses import Accesses, Store
from checkers.transactions.inference.prefix_trees import FINAL, ON_TRUNK
from checkers.transactions.inference.register_accesses import RegisterAccesses
from checkers.transactions.polygraph.history_polygraph import INITIAL, Accessed, unique_rows

_NOBODY: Final = -2


def _keys_of(at: Ints) -> Ints:
    return np.repeat(np.arange(len(at) - 1), np.diff(at))


def _matched(keys: Ints, values: Ints, other_keys: Ints, other_values: Ints) -> Ints:
    """For each of the others the place of the same key and value among the first, which differ; -1: none."""
    count = len(keys)
    key, value = np.concatenate((keys, other_keys)), np.concatenate((values, other_values))
    order = np.lexsort((value, key))
    new = np.append(True, (key[order[1:]] != key[order[:-1]]) | (value[order[1:]] != value[order[:-1]]))
    group = np.empty(len(order), np.int64)
    group[order] = np.cumsum(new[: len(order)]) - 1
    place = np.full(int(new.sum()), -1)
    place[group[:count]] = np.arange(count)
    return place[group[count:]]


def register_accesses_of(accesses: RegisterAccesses, edges: Edges | None) -> Accessed:
    """Who wrote and read each register; `edges` has, as ww, what is stated of version orders besides (None: nothing).

    A read of what nobody made of the register as a whole (an aborted or intermediate value, or nobody's) is left out.
    """
    final: Bools = (accesses.write_outcome != FAIL) & (accesses.write_flags & FINAL != 0)
    key, txn = _keys_of(accesses.write_at)[final], accesses.write_txn[final].astype(np.int64)
    read_key = _keys_of(accesses.read_at)
    found = _matched(key, accesses.written[final], read_key, accesses.value)
    source = np.where(found >= 0, np.append(txn, 0)[found], _NOBODY)
    source[accesses.value == NIL] = INITIAL
    told = source != _NOBODY
    reads = np.stack((read_key, accesses.read_txn, source))[:, told]
    follows = orders = np.empty((3, 0), np.int64)
    if edges is not None:
        orders = _ww_rows(edges)
        if len(accesses.write_stated):
            follows = _stated_chains(key, txn, accesses.write_stated[final], accesses.write_outcome[final] == OK)
    return Accessed(len(accesses.write_at) - 1, unique_rows(np.stack((key, txn))), reads, follows, orders)


def _stated_chains(key: Ints, txn: Ints, stated: Ints, committed: Bools) -> Ints:
    """Who comes right behind whom (or INITIAL) by what writers state, in keys whose writers all committed."""
    whole = np.ones(int(key.max(initial=-1)) + 1, np.bool_)
    whole[key[~committed]] = False
    mine = np.flatnonzero(whole[key])
    mine = mine[np.lexsort((stated[mine], key[mine]))]
    key, txn = key[mine], txn[mine]
    first = np.append(True, key[1:] != key[:-1])[: len(key)]
    return np.stack((key, np.where(first, INITIAL, np.append(0, txn[:-1])[: len(key)]), txn))


def _ww_rows(edges: Edges) -> Ints:
    ww = edges.kind == WW
    return np.stack((edges.key[ww], edges.source[ww], edges.target[ww])).astype(np.int64)


def list_accesses_of(accesses: Accesses, store: Store) -> Accessed:
    """Who appended to each list and read it; of its version order what committed reads show.

    Reads that contradict the version order are left out.
    """
    orders = store.orders
    held = accesses.append_outcome != FAIL
    append_key, append_txn = _keys_of(accesses.append_at)[held], accesses.append_txn[held].astype(np.int64)
    read_key, size = _keys_of(accesses.read_at), accesses.length.astype(np.int64)
    fork = np.maximum(accesses.fork, 0)
    on_trunk = accesses.fork == ON_TRUNK
    agreed = np.where(on_trunk, np.minimum(size, orders.trunk[read_key]), np.append(orders.fork, 0)[fork])
    committed = (accesses.read_outcome == OK) & (agreed == size)
    shown = np.zeros(len(accesses.append_at) - 1, np.int64)
    np.maximum.at(shown, read_key[committed], size[committed])
    element_key = _keys_of(orders.offsets)
    place = np.arange(len(orders.values)) - orders.offsets[element_key]
    inside = place < shown[element_key]
    found = _matched(append_key, accesses.value[held], element_key[inside], orders.values[inside])
    writer = np.full(len(orders.values), _NOBODY)
    writer[inside] = np.where(found >= 0, np.append(append_txn, 0)[found], _NOBODY)
    reads = _list_reads(orders.offsets, writer, (read_key, accesses.read_txn.astype(np.int64), size), committed)
    read = np.zeros(len(append_key), np.bool_)
    read[found[found >= 0]] = True
    follows, last = _version_chains(len(shown), element_key, writer)
    unread = np.stack((append_key, last[append_key], append_txn))[:, ~read & (last[append_key] >= 0)]
    writes = unique_rows(np.stack((append_key, append_txn)))
    at = np.full(len(append_key), -1)
    at[found[found >= 0]] = place[inside][found >= 0]
    known = np.concatenate((unread[:, unread[1] != unread[2]], _torn(append_key, append_txn, at)), axis=1)
    return Accessed(len(shown), writes, reads, follows, known)


def _torn(key: Ints, txn: Ints, at: Ints) -> Ints:
    """A transaction before itself, where its appends to a list do not stand one right behind the other (`at`: where
    each stands, -1: nowhere): nobody can have seen such a list."""
    same = (key[1:] == key[:-1]) & (txn[1:] == txn[:-1])
    torn = np.flatnonzero(same & (at[1:] >= 0) & ((at[:-1] < 0) | (at[1:] != at[:-1] + 1)))
    return np.stack((key[torn], txn[torn], txn[torn]))


def _list_reads(offsets: Ints, writer: Ints, read: tuple[Ints, Ints, Ints], committed: Bools) -> Ints:
    """Whose version each read found: that of the last element which is not of its own transaction."""
    key, txn, size = (column[committed] for column in read)
    at = offsets[key] + size - 1
    while len(own := np.flatnonzero((at >= offsets[key]) & (np.append(writer, _NOBODY)[at] == txn))):
        at[own] -= 1
    source = np.where(at >= offsets[key], np.append(writer, _NOBODY)[at], INITIAL)
    told = source != _NOBODY
    return np.stack((key, txn, source))[:, told]


def _version_chains(keys: int, key: Ints, writer: Ints) -> tuple[Ints, Ints]:
    """Who comes right behind whom in the version order of each key, and by key the last."""
    held = np.flatnonzero(writer >= 0)
    key, writer = key[held], writer[held]
    first = np.append(True, key[1:] != key[:-1])[: len(key)]
    before = np.where(first, INITIAL, np.append(0, writer[:-1])[: len(key)])
    moved = before != writer
    last = np.full(keys, _NOBODY)
    last[key] = writer
    return np.stack((key[moved], before[moved], writer[moved])), last
