"""The version order of each list: the longest read, of several equally long the one invoked first; and how far every
other observed list agrees with it.

Where several lists are the longest there is no telling which is right. Dependencies are read off one of them only, for
those of two together belong to no single order of versions. Of what the others would say all but G0 is ruled out by
`incompatible-order` already; and a G0 that every choice has, this one has too.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from checkers.compiled import lean
from checkers.transactions.inference.prefix_trees import ON_TRUNK, Forks, Ids, Ints, Trunks


class Orders(NamedTuple):
    """Key k's versions are `values[offsets[k]:offsets[k + 1]]`, read whole by transaction `first[k]`. Trunks agree with
    them up to `trunk[k]` elements, forks up to `fork[node]`. `nodes[places[k]:places[k + 1]]` are k's fork nodes,
    parents before children."""

    offsets: Ints
    values: Ints
    first: Ids
    trunk: Ints
    fork: Ids
    nodes: Ints
    places: Ints


@lean
def _choose(trunks, forks, length, first, best):
    for key in range(length.shape[0]):
        length[key], first[key], best[key] = trunks.length[key], trunks.first[key], ON_TRUNK
    for node in range(forks.used[0]):
        key, depth = forks.key[node], forks.depth[node]
        if depth > length[key] or (depth == length[key] and forks.first[node] < first[key]):
            length[key], first[key], best[key] = depth, forks.first[node], node


@lean
def _write(trunks, pool, forks, offsets, best, values, trunk):
    """Write out the lists that end at `best`; `trunk` gets how much of each is the key's trunk."""
    for key in range(best.shape[0]):
        node, at = np.int64(best[key]), offsets[key + 1]
        while node >= 0:
            at -= 1
            values[at] = forks.element[node]
            node = forks.parent[node]
        trunk[key] = -1 - node if best[key] >= 0 else trunks.length[key]
        for place in range(trunk[key]):
            values[offsets[key] + place] = pool[trunks.start[key] + place]


@lean
def _agree(forks, offsets, values, trunk, fork):
    for node in range(forks.used[0]):
        key, parent, depth = forks.key[node], forks.parent[node], forks.depth[node]
        before = min(-1 - parent, trunk[key]) if parent < 0 else np.int64(fork[parent])
        at = offsets[key] + before
        same = before == depth - 1 and at < offsets[key + 1] and values[at] == forks.element[node]
        fork[node] = before + 1 if same else before


def settle(trunks: Trunks, pool: Ints, forks: Forks) -> Orders:
    """Choose the version orders; linear in the lists stored."""
    keys, count = len(trunks.length), int(forks.used[0])
    length, first, best = np.empty(keys, np.int64), np.empty(keys, np.int32), np.empty(keys, np.int32)
    _choose(trunks, forks, length, first, best)
    offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(length)))
    values, trunk, fork = np.empty(offsets[-1], np.int64), np.empty(keys, np.int64), np.empty(count, np.int32)
    _write(trunks, pool, forks, offsets, best, values, trunk)
    _agree(forks, offsets, values, trunk, fork)
    nodes = np.argsort(forks.key[:count], kind="stable")
    places: npt.NDArray[np.int64] = np.searchsorted(forks.key[:count][nodes], np.arange(keys + 1))
    return Orders(offsets, values, first, trunk, fork, nodes, places)
