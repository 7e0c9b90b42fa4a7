"""Takes up a list-append history batch by batch and infers what its accesses say."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from checkers.columns.codes import INFO, READ, Codes, Ids, Ints
from checkers.columns.dense import make_value_map
from checkers.columns.instances import Instances, make_instances
from checkers.compiled import kernel
from checkers.transactions.graph.edges import Edges, grown_edges, make_edges, written
from checkers.transactions.inference.list_accesses import (
    CLASSES,
    Accesses,
    ListScratch,
    Store,
    edge_bound,
    infer_keys,
    settle,
)
from checkers.transactions.inference.prefix_trees import (
    APPEND,
    NOBODY,
    SKIPPED,
    MopBatch,
    ObservedLists,
    Scratch,
    SeenMops,
    Trunks,
    grown_forks,
    longest_lists,
    make_forks,
    move_trunks,
    observe_batch,
)
from checkers.transactions.transaction_mops import Dialect, Mops, Txns, make_key_table, number_keys, txn_of_mops


def _problem(mops: Mops, outcome: Codes) -> Codes:
    problem = np.zeros(len(mops.f), np.uint8)
    problem[(mops.f == READ) & mops.valued] = 2
    problem[(mops.f == APPEND) & (~mops.valued | mops.listed)] = 3
    return problem


LIST_APPEND: Final = Dialect(
    "list-append",
    {"r": READ, "append": APPEND},
    _problem,
    (
        "a micro-operation is neither a read (r) nor an append",
        "a read returns a single value instead of a list",
        "an append has no single value",
    ),
)


@kernel
def sort_by_key(keys, count):
    """Offsets by key, and the rows in order of key, else as they were."""
    offsets = np.zeros(count + 1, np.int64)
    for key in keys:
        offsets[key + 1] += 1
    for key in range(count):
        offsets[key + 1] += offsets[key]
    fill, order = offsets[:-1].copy(), np.empty(keys.shape[0], np.int64)
    for row in range(keys.shape[0]):
        order[fill[keys[row]]] = row
        fill[keys[row]] += 1
    return offsets, order


class ListReader:
    """Collects the accesses of a history and its lists; `explain` instances of each anomaly are kept. `grouped` and
    `observed` are all of them, once something was inferred."""

    grouped: Accesses
    observed: Store

    def __init__(self, explain: int) -> None:
        self.out = make_instances(len(CLASSES), explain)
        self._keys = make_key_table()
        self._trunks = no_trunks(0)
        self._pool: Ints = np.empty(1 << 12, np.int64)
        self._used = 0
        self._forks = make_forks(1 << 10)
        self._by_key = _no_scratch(0)
        self._appends: list[tuple[Any, ...]] = []
        self._reads: list[tuple[Any, ...]] = []
        self._txns = 0

    @property
    def addresses(self) -> Ints:
        """Row k is key k's (table, partition, row, column)."""
        return self._keys.address[: int(self._keys.used[0])]

    def take(self, txns: Txns, mops: Mops) -> None:
        """Take up the next transactions."""
        self._keys, key = number_keys(self._keys, mops.address)
        rows = txn_of_mops(mops)
        outcome = txns.outcome[rows]
        silent = (outcome == INFO) & ~mops.listed | (outcome > INFO)
        f = np.where((mops.f == READ) & silent, np.uint8(SKIPPED), mops.f)
        batch = MopBatch(mops.offsets, txns.outcome, f, key, mops.value, mops.start, mops.stop, mops.values, self._txns)
        self._make_room(batch)
        seen = self._observe(batch)
        txn = (rows + self._txns).astype(np.int32)
        is_append, is_read = f == APPEND, f == READ
        self._appends.append(
            (key[is_append], txn[is_append], outcome[is_append], seen.flags[is_append], mops.value[is_append])
        )
        columns = (key, txn, outcome, seen.flags, seen.length, seen.fork)
        self._reads.append(tuple(column[is_read] for column in columns))
        self._txns += txns.size

    def _make_room(self, batch: MopBatch) -> None:
        count = int(self._keys.used[0])
        more = count - len(self._trunks.length)
        if more:
            self._trunks = Trunks(*_extended(self._trunks, no_trunks(max(more, count // 2))))
            self._by_key = Scratch(*_extended(self._by_key, _no_scratch(max(more, count // 2))))
        longest = np.zeros(len(self._trunks.length), np.int64)
        longest_lists(batch, longest)
        self._pool, self._used = make_room(self._trunks, longest, self._pool, self._used)

    def _observe(self, batch: MopBatch) -> SeenMops:
        size, txns = len(batch.f), len(batch.offsets) - 1
        seen = SeenMops(np.zeros(size, np.uint8), np.empty(size, np.int32), np.empty(size, np.int32))
        scratch = self._by_key._replace(before=np.empty(size, np.int64))
        done = 0
        while True:
            lists = ObservedLists(self._trunks, self._pool, self._forks)
            done = observe_batch(batch, lists, scratch, seen, self.out, done)
            if done == txns:
                return seen
            mops = slice(batch.offsets[done], batch.offsets[done + 1])
            most = int((batch.stop[mops] - batch.start[mops]).sum())
            self._forks = grown_forks(self._forks, 2 * int(self._forks.used[0]) + most)

    def store(self) -> Store:
        """The lists observed so far and their version orders."""
        keys = int(self._keys.used[0])
        trunks = Trunks(*[column[:keys] for column in list[Any](self._trunks)])
        return Store(trunks, self._pool, self._forks, settle(trunks, self._pool, self._forks))

    def accesses(self) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
        """What was collected, for `group_accesses`: appends and reads, by batch; the reader forgets them."""
        collected = self._appends, self._reads
        self._appends, self._reads = [], []
        return collected

    def infer(self, sources: int) -> tuple[Edges, Ints]:
        """All dependencies, whatever the `sources` of version orders, for lists tell theirs; and (key, transaction,
        transaction) of a value that two appends share (or -1s)."""
        self.grouped, self.observed = group_accesses(int(self._keys.used[0]), *self.accesses()), self.store()
        return infer(self.grouped, self.observed, self._txns, self.out)


def group_accesses(keys: int, appends: list[tuple[Any, ...]], reads: list[tuple[Any, ...]]) -> Accesses:
    """Sort accesses by key; within keys they stay in order."""
    append = joined_columns(appends, (np.int32, np.int32, np.uint8, np.uint8, np.int64))
    read = joined_columns(reads, (np.int32, np.int32, np.uint8, np.uint8, np.int32, np.int32))
    return Accesses(*sorted_by_key(append, keys), *sorted_by_key(read, keys))


def sorted_by_key(columns: list[Any], keys: int) -> list[Any]:
    """Offsets by key, and the columns but the first, which is the key, in that order."""
    offsets, order = sort_by_key(columns[0], keys)
    return [offsets, *(column[order] for column in columns[1:])]


def infer(accesses: Accesses, store: Store, txns: int, out: Instances) -> tuple[Edges, Ints]:
    """See `ListReader.infer`; helper nodes are numbered from `txns`."""
    work = _make_scratch(accesses, store, txns)
    keys, problem = len(accesses.append_at) - 1, np.full(4, -1)
    edges = make_edges(len(accesses.append_txn) + 2 * len(accesses.read_txn) + 1024, txns)
    done = 0
    while True:
        done = infer_keys(work, accesses, store, done, edges, out, problem)
        if done == keys:
            return written(edges), problem
        edges = grown_edges(edges, edge_bound(accesses, done))


def _make_scratch(accesses: Accesses, store: Store, txns: int) -> ListScratch:
    appends = int(np.diff(accesses.append_at).max(initial=0))
    reads = int(np.diff(accesses.read_at).max(initial=0))
    places = int(np.diff(store.orders.offsets).max(initial=0)) + 1
    forks = int(store.forks.used[0])
    return ListScratch(
        make_value_map(max(1, appends)),
        np.empty(appends, np.int64),
        np.empty(places, np.int64),
        np.empty(places, np.int64),
        np.empty(int(store.trunks.length.max(initial=0)) + 1, np.int32),
        np.empty(forks, np.int32),
        np.empty((forks, 4), np.int64),
        np.empty(appends, np.int64),
        np.empty(reads, np.int32),
        np.empty(appends, np.int32),
        np.full(txns, -1),
        np.empty(4, np.int64),
    )


def joined_columns(parts: list[tuple[Any, ...]], types: tuple[Any, ...]) -> list[Any]:
    """The parts' columns one after the other, of these types if there are none."""
    if not parts:
        return [np.empty(0, type) for type in types]
    return [np.concatenate([part[i] for part in parts]) for i in range(len(types))]


def _extended(columns: Any, more: Any) -> list[Any]:
    return [np.concatenate((column, extra)) for column, extra in zip(columns, more, strict=True)]


def no_trunks(keys: int) -> Trunks:
    """Empty trunks of that many keys."""
    start, length, room = np.zeros((3, keys), np.int64)
    return Trunks(start, length, room, np.full(keys, NOBODY, np.int32))


def make_room(trunks: Trunks, longest: Ints, pool: Ints, used: int) -> tuple[Ints, int]:
    """Give each key's trunk room for its longest list, in the same pool or in a larger one; returns the pool and how
    much of it is used then."""
    after = int(move_trunks(trunks, longest, pool, used))
    if after >= 0:
        return pool, after
    larger = np.empty(max(-after, 2 * len(pool)), np.int64)
    larger[:used] = pool[:used]
    return larger, int(move_trunks(trunks, longest, larger, used))


def _no_scratch(keys: int) -> Scratch:
    txn: Ids = np.full(keys, -1, np.int32)
    opened, last, appended = np.zeros((3, keys), np.int64)
    return Scratch(txn, opened, last, appended, np.empty(0, np.int64))
