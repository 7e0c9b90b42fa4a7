"""The version order of each list: the longest read, of several equally long the one invoked first; and how far every
other observed list agrees with it.

Where several lists are the longest there is no telling which is right. The others are the order's rivals: what depends
on what is read off each of them too.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from checkers.kernels.compiled import lean
from checkers.kernels.txn_lists import ON_TRUNK, Forks, Ids, Ints, Trunks

MOST_RIVALS: Final = 7
"""Rivals taken up for one key, those read first."""


class Orders(NamedTuple):
    """Key k's versions are `values[offsets[k]:offsets[k + 1]]`, read whole by transaction `first[k]`. Trunks agree with
    them up to `trunk[k]` elements, forks up to `fork[node]`. `nodes[places[k]:places[k + 1]]` are k's fork nodes,
    parents before children. Its rivals are `rival_at[k]:rival_at[k + 1]`; rival r is as long as k's order, stands in
    `rivals` from `rival_begin[r]` on and agrees with the order up to `rival_agreed[r]` elements."""

    offsets: Ints
    values: Ints
    first: Ids
    trunk: Ints
    fork: Ids
    nodes: Ints
    places: Ints
    rival_at: Ints
    rivals: Ints
    rival_begin: Ints
    rival_agreed: Ints


@lean
def _choose(trunks, forks, length, first, best):
    for key in range(length.shape[0]):
        length[key], first[key], best[key] = trunks.length[key], trunks.first[key], ON_TRUNK
    for node in range(forks.count[0]):
        key, depth = forks.key[node], forks.depth[node]
        if depth > length[key] or (depth == length[key] and forks.first[node] < first[key]):
            length[key], first[key], best[key] = depth, forks.first[node], node


@lean
def _write(trunks, pool, forks, keys, begins, ends, leaves, values, trunk):
    """Write out the lists of some keys that end at `leaves`; `trunk` gets how much of each is the key's trunk."""
    for i in range(keys.shape[0]):
        key, node, at = keys[i], np.int64(leaves[i]), ends[i]
        while node >= 0:
            at -= 1
            values[at] = forks.element[node]
            node = forks.parent[node]
        trunk[i] = -1 - node if leaves[i] >= 0 else trunks.length[key]
        for place in range(trunk[i]):
            values[begins[i] + place] = pool[trunks.start[key] + place]


@lean
def _agree(forks, offsets, values, trunk, fork):
    for node in range(forks.count[0]):
        key, parent, depth = forks.key[node], forks.parent[node], forks.depth[node]
        before = min(-1 - parent, trunk[key]) if parent < 0 else np.int64(fork[parent])
        at = offsets[key] + before
        same = before == depth - 1 and at < offsets[key + 1] and values[at] == forks.element[node]
        fork[node] = before + 1 if same else before


def _rivals(trunks: Trunks, forks: Forks, length: Ints, best: Ids) -> tuple[Ints, Ints]:
    """Key and leaf of the lists as long as their key's order, in order of key and of first reader."""
    count, keys = int(forks.count[0]), np.arange(len(best))
    node = np.flatnonzero((forks.depth[:count] == length[forks.key[:count]]) & (forks.depth[:count] > 0))
    node = node[best[forks.key[node]] != node]
    trunk = np.flatnonzero((trunks.length == length) & (best != ON_TRUNK) & (length > 0))
    key = np.concatenate((forks.key[node], keys[trunk]))
    leaf = np.concatenate((node, np.full(len(trunk), ON_TRUNK)))
    first = np.concatenate((forks.first[node], trunks.first[trunk]))
    order = np.lexsort((leaf, first, key))
    rank = np.arange(len(order)) - np.searchsorted(key[order], key[order])
    order = order[rank < MOST_RIVALS]
    return key[order].astype(np.int64), leaf[order].astype(np.int64)


def settle(trunks: Trunks, pool: Ints, forks: Forks) -> Orders:
    """Choose the version orders; linear in the lists stored."""
    keys, count = len(trunks.length), int(forks.count[0])
    length, first, best = np.empty(keys, np.int64), np.empty(keys, np.int32), np.empty(keys, np.int32)
    _choose(trunks, forks, length, first, best)
    offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(length)))
    values, trunk, fork = np.empty(offsets[-1], np.int64), np.empty(keys, np.int64), np.empty(count, np.int32)
    _write(trunks, pool, forks, np.arange(keys), offsets[:-1], offsets[1:], best, values, trunk)
    _agree(forks, offsets, values, trunk, fork)
    nodes = np.argsort(forks.key[:count], kind="stable")
    places: npt.NDArray[np.int64] = np.searchsorted(forks.key[:count][nodes], np.arange(keys + 1))
    key, leaf = _rivals(trunks, forks, length, best)
    ends = np.cumsum(length[key])
    rivals = np.empty(int(length[key].sum()), np.int64)
    _write(trunks, pool, forks, key, ends - length[key], ends, leaf, rivals, np.empty(len(key), np.int64))
    agreed = np.where(leaf == ON_TRUNK, trunk[key], np.append(fork, 0)[leaf])
    rival_at = np.searchsorted(key, np.arange(keys + 1))
    return Orders(
        *(offsets, values, first, trunk, fork, nodes, places),
        *(rival_at, rivals, ends - length[key], agreed.astype(np.int64)),
    )
