"""Takes up an rw-register history batch by batch and infers what its accesses say."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from checkers.columns.codes import NIL, OK, READ, WRITE, Codes, Ints
from checkers.columns.dense import make_value_map
from checkers.columns.instances import Instances, make_instances
from checkers.transactions.graph.edges import Edges, grown_edges, make_edges, written
from checkers.transactions.inference.list_reader import joined_columns, sorted_by_key
from checkers.transactions.inference.register_accesses import (
    CLASSES,
    RegisterAccesses,
    RegisterBatch,
    RegisterScratch,
    infer_registers,
    link_registers,
)
from checkers.transactions.transaction_mops import Dialect, Mops, Txns, make_key_table, number_keys, txn_of_mops


def _problem(mops: Mops, outcome: Codes) -> Codes:
    problem = np.zeros(len(mops.f), np.uint8)
    problem[(mops.f == READ) & mops.listed] = 2
    problem[(mops.f == WRITE) & (~mops.valued | mops.listed)] = 3
    problem[mops.valued & (mops.value == NIL)] = 4
    return problem


RW_REGISTER: Final = Dialect(
    "rw-register",
    {"r": READ, "w": WRITE},
    _problem,
    (
        "a micro-operation is neither a read (r) nor a write (w)",
        "a read returns a list instead of a single value",
        "a write has no single value",
        f"it uses the reserved integer {NIL}",
    ),
)

_WRITE_TYPES: Final = (np.int32, np.int32, np.uint8, np.uint8, *(np.int64,) * 4)
_READ_TYPES: Final = (np.int32, np.int32, np.uint8, *(np.int64,) * 4)


class RegisterReader:
    """Collects the accesses of a history; `explain` instances of each anomaly are kept. `grouped` are all of them, once
    something was inferred."""

    grouped: RegisterAccesses

    def __init__(self, explain: int) -> None:
        self.out = make_instances(len(CLASSES), explain)
        self._keys = make_key_table()
        self._by_key: Ints = np.full((0, 4), -1)
        self._writes: list[tuple[Any, ...]] = []
        self._reads: list[tuple[Any, ...]] = []
        self._txns = 0

    @property
    def addresses(self) -> Ints:
        """Row k is key k's (table, partition, row, column)."""
        return self._keys.address[: int(self._keys.used[0])]

    def take(self, txns: Txns, mops: Mops) -> None:
        """Take up the next transactions."""
        self._keys, key = number_keys(self._keys, mops.address)
        more = int(self._keys.used[0]) - len(self._by_key)
        if more > 0:
            self._by_key = np.concatenate((self._by_key, np.full((max(more, len(self._by_key) // 2), 4), -1)))
        rows, is_read = txn_of_mops(mops), mops.f == READ
        flags = np.empty(len(rows), np.uint8)
        batch = RegisterBatch(mops.offsets, txns.outcome, is_read, key, mops.value, self._txns)
        link_registers(batch, self._by_key, flags, self.out)
        outcome, txn = txns.outcome[rows], (rows + self._txns).astype(np.int32)
        times = (txns.invoke[rows], txns.complete[rows], txns.process[rows])
        stated = () if txns.stated is None else (txns.stated[rows],)
        wrote, read = ~is_read, is_read & (outcome == OK)
        self._writes.append(tuple(column[wrote] for column in (key, txn, outcome, flags, mops.value, *times, *stated)))
        self._reads.append(tuple(column[read] for column in (key, txn, flags, mops.value, *times)))
        self._txns += txns.size

    def accesses(self) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
        """What was collected, for `group_registers`: writes (with what they state of their versions, if that is asked
        for) and reads, by batch; the reader forgets them."""
        collected = self._writes, self._reads
        self._writes, self._reads = [], []
        return collected

    def infer(self, sources: int) -> tuple[Edges, Ints]:
        """All dependencies by the given sources of version order (ORDER_… added up), and (key, transaction,
        transaction, whether it is what they state of their versions) of a value that two writes share (or -1s)."""
        self.grouped = group_registers(int(self._keys.used[0]), *self.accesses())
        return infer_edges(self.grouped, self._txns, sources, self.out)


def group_registers(keys: int, writes: list[tuple[Any, ...]], reads: list[tuple[Any, ...]]) -> RegisterAccesses:
    """Sort accesses by key; within keys they stay in order."""
    stated = (np.int64,) if any(len(part) > len(_WRITE_TYPES) for part in writes) else ()
    write, read = joined_columns(writes, (*_WRITE_TYPES, *stated)), joined_columns(reads, _READ_TYPES)
    processes = np.unique(np.concatenate((write[7], read[6])), return_inverse=True)[1]
    write[7], read[6] = processes[: len(write[7])], processes[len(write[7]) :]
    written = sorted_by_key(write, keys)
    none = () if stated else (np.empty(0, np.int64),)
    return RegisterAccesses(*written, *none, *sorted_by_key(read, keys))


def infer_edges(accesses: RegisterAccesses, txns: int, sources: int, out: Instances) -> tuple[Edges, Ints]:
    """See `RegisterReader.infer`; helper nodes are numbered from `txns`."""
    work, problem = _make_scratch(accesses, txns), np.full(4, -1)
    keys, done = len(accesses.write_at) - 1, 0
    edges = make_edges(2 * len(accesses.write_txn) + 3 * len(accesses.read_txn) + 1024, txns)
    while True:
        done = infer_registers(work, accesses, sources, done, edges, out, problem)
        if done == keys:
            return written(edges), problem
        edges = grown_edges(edges, 4096)


def _make_scratch(accesses: RegisterAccesses, txns: int) -> RegisterScratch:
    writes = int(np.diff(accesses.write_at).max(initial=0))
    reads = int(np.diff(accesses.read_at).max(initial=0))
    versions = writes + reads + 1
    processes = int(max(accesses.write_process.max(initial=-1), accesses.read_process.max(initial=-1))) + 1
    return RegisterScratch(
        make_value_map(max(1, writes + reads)),
        np.empty(versions, np.int64),
        np.empty(versions, np.int32),
        np.empty(versions, np.int64),
        np.empty(versions, np.int32),
        np.empty(versions, np.int32),
        np.empty(versions + 1, np.int64),
        np.empty(reads, np.int64),
        np.empty(reads, np.int32),
        np.empty(versions, np.int64),
        np.empty(3 * versions, np.int64),
        np.empty(2 * versions, np.int32),
        np.empty(2 * versions, np.int32),
        np.empty(2 * versions, np.int32),
        np.empty(versions + 2, np.int64),
        np.empty(2 * versions, np.int32),
        np.full(processes, -1),
        np.full(txns, -1),
        np.zeros(4, np.int64),
    )
