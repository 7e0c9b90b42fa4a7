"""Second stage of the pipeline: all that was said of some keys comes together, and the kernels infer anomalies of
single keys and dependencies. Dependencies travel as blocks, sorted by time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from checkers.columns.batches import bucket_batch
from checkers.columns.codes import NEVER, Ints
from checkers.columns.dense import ranked
from checkers.columns.instances import Instances, make_instances
from checkers.compiled import lean
from checkers.engines.shuffle import TOO_LARGE, within
from checkers.findings import Findings, Key
from checkers.transactions.graph.edges import Edges
from checkers.transactions.inference.list_accesses import CLASSES as LIST_CLASSES
from checkers.transactions.inference.list_accesses import Store, settle
from checkers.transactions.inference.list_reader import group_accesses, infer, make_room, no_trunks
from checkers.transactions.inference.prefix_trees import (
    ON_TRUNK,
    ObservedLists,
    Trunks,
    grown_forks,
    make_forks,
    observe,
)
from checkers.transactions.inference.register_accesses import CLASSES as REGISTER_CLASSES
from checkers.transactions.inference.register_reader import group_registers, infer_edges
from checkers.transactions.stages.pieces import (
    FINDINGS,
    TIMED,
    Row,
    address_hashes,
    by_bucket,
    encode_findings,
    merged_times,
    pack,
    rows_of,
    unpack,
)
from checkers.transactions.transaction_findings import OWN, instance_findings
from checkers.transactions.transaction_mops import KeyTable, Txns, make_key_table, number_keys

HELPER: Final = -2
"""Duration of a helper node, whose number is negative."""

UNKNOWN: Final = -1
"""Duration of a transaction whose outcome is unknown."""

COPIES: Final = -5
"""Bucket of what goes to the driver: a value written twice (address and two invocation indices), or a place among the
versions stated twice (and 1, else -1)."""

TIMES: Final = -6
"""Bucket of what goes to the driver: the times of all transactions, once from each bucket."""

SKIPPED: Final = -9
"""Bucket of what goes to the driver: why a bucket of keys was not judged."""

FIXED: Final = 0
FLOATING: Final = 1
PLACED: Final = 2
"""Instead of a piece's number, what a block's edges are: with both ends in their own place, with a floating end, and
with both ends' intervals (as `floating_intervals.Placed`)."""

_BLOCK: Final = 1 << 18
"""Edges in one block."""


class Block(NamedTuple):
    """Dependencies: invocation index and duration (in events; UNKNOWN, HELPER) of both ends, kind, and the key's
    `address_hashes` number."""

    source: Any
    source_lasts: Any
    target: Any
    target_lasts: Any
    kind: Any
    key: Any


@dataclass(frozen=True, slots=True)
class BucketJudge:
    """Picklable: turns the rows of whole buckets, sorted by bucket and piece, into the times of all transactions,
    blocks (as rows of their bucket), and findings, whose figures count `floating_intervals` edges. One of more than
    `most_bytes` is `SKIPPED`."""

    model: str
    sources: int
    explain: int
    most_bytes: int = NEVER

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for bucket, group in by_bucket(rows_of(batches)):
            if bucket < 0:
                yield bucket_batch(list(group))
                continue
            told, parts, size = list[bytes](), list[bytes](), 0
            for timed, rows_alike in groupby(group, key=lambda row: row.piece == TIMED):
                strings = (row.data for row in rows_alike)
                if timed:
                    told = list(strings)
                else:
                    parts, size = within(self.most_bytes, strings, len)
            times = merged_times([unpack(data)[0] for data in told])
            yield bucket_batch([Row(TIMES, bucket, pack([np.array(times)]))])
            if size > self.most_bytes:
                reason = TOO_LARGE.format(size, self.most_bytes)
                yield bucket_batch([Row(SKIPPED, bucket, reason.encode())])
            elif parts:
                for row in self._judge(bucket, [unpack(data) for data in parts], times.usual):
                    yield bucket_batch([row])

    def _judge(self, bucket: int, parts: list[list[Any]], usual: int) -> Iterator[Row]:
        judged = _judge_lists(parts, self.explain) if self.model == "list-append" else self._judge_registers(parts)
        if judged.problem[0] >= 0:
            key = Key.of(judged.addresses[judged.problem[0]])
            told = [*key, *(int(judged.txns.invoke[txn]) for txn in judged.problem[1:3]), judged.problem[3]]
            yield Row(COPIES, bucket, pack([np.array(told)]))
            return
        counts = {name: int(n) for name, n in zip(judged.classes, judged.out.counts, strict=True) if n}
        kept = instance_findings(judged.out, judged.classes, judged.addresses, judged.txns, OWN)
        kinds = np.bincount(judged.edges.kind, minlength=3)
        figures = {"keys": len(judged.addresses), "ww": int(kinds[0]), "wr": int(kinds[1]), "rw": int(kinds[2])}
        figures["open"], figures["floating"] = int(judged.edges.used[2]), 0
        for kind, block in blocks_of(judged.edges, judged.txns, judged.addresses, bucket, usual):
            figures["floating"] += len(block.kind) if kind == FLOATING else 0
            yield Row(bucket, kind, pack(block))
        yield Row(FINDINGS, bucket, encode_findings(Findings(counts=counts, kept=kept, figures=figures)))

    def _judge_registers(self, parts: list[list[Any]]) -> _Judged:
        return _judge_registers(parts, self.sources, self.explain)


class _Judged(NamedTuple):
    addresses: Ints
    txns: Txns
    edges: Edges
    out: Instances
    classes: tuple[str, ...]
    problem: Ints


def is_floating(lasts: Any, usual: int) -> Any:
    """Whether nodes that last so long have no place in time of their own (see `floating_intervals`)."""
    return (lasts < 0) | (lasts > usual)


def blocks_of(edges: Edges, txns: Txns, addresses: Ints, bucket: int, usual: int) -> Iterator[tuple[int, Block]]:
    """Dependencies by invocation indices, sorted by time, in blocks: FIXED or FLOATING."""
    lasts = np.where(txns.complete == NEVER, UNKNOWN, txns.complete - txns.invoke)
    helpers = int(edges.used[1]) - txns.size
    invoke = np.concatenate((txns.invoke, -1 - (np.int64(bucket) << 32) - np.arange(helpers)))
    lasts = np.concatenate((lasts, np.full(helpers, HELPER)))
    astray = is_floating(lasts, usual)
    order = np.argsort(np.maximum(invoke[edges.source], invoke[edges.target]), kind="stable")
    floating = (astray[edges.source] | astray[edges.target])[order]
    hashes = np.append(address_hashes(addresses), 0)
    for kind, chosen in ((FIXED, order[~floating]), (FLOATING, order[floating])):
        for begin in range(0, len(chosen), _BLOCK):
            mine = chosen[begin : begin + _BLOCK]
            source, target = edges.source[mine], edges.target[mine]
            ends = (invoke[source], lasts[source], invoke[target], lasts[target])
            yield kind, Block(*ends, edges.kind[mine], hashes[edges.key[mine]])


def _numbered(parts: Sequence[tuple[Any, Any]]) -> tuple[Txns, list[Any]]:
    """Transactions in order of invocation, and the numbers of those in each part (invocations, completions)."""
    invoke = np.concatenate([part[0] for part in parts])
    complete = np.concatenate([part[1] for part in parts])
    known, numbers = ranked(invoke)
    completes = np.empty(len(known), np.int64)
    completes[numbers] = complete
    cuts = np.cumsum([len(part[0]) for part in parts])[:-1]
    nothing = np.zeros(len(known), np.uint8)
    return Txns(known, completes, nothing, np.zeros(len(known), np.int64)), np.split(numbers, cuts)


def _key_numbers(parts: list[list[Any]]) -> tuple[KeyTable, list[Any]]:
    keys, numbers = make_key_table(), []
    for part in parts:
        columns = tuple(np.ascontiguousarray(part[0][:, i]) for i in range(4))
        keys, ids = number_keys(keys, columns)  # type: ignore[arg-type]
        numbers.append(ids)
    return keys, numbers


@lean
def _take_up(known, keys, lengths, values, first, became):
    """Observe lists; `became` gets the fork of each."""
    begin = 0
    for i in range(keys.shape[0]):
        became[i] = ON_TRUNK
        if lengths[i] > 0:
            became[i] = observe(known, keys[i], first[i], values, begin, begin + lengths[i])
        begin += lengths[i]


@lean
def _rebase(forks, trunk_became, fork_became, key, length, fork):
    """Forks of reads after their piece's trunks and forks were taken up."""
    for i in range(key.shape[0]):
        if fork[i] >= 0:
            fork[i] = fork_became[fork[i]]
            continue
        node = np.int64(trunk_became[key[i]])
        while node >= 0 and forks.depth[node] > length[i]:
            node = forks.parent[node]
        fork[i] = node if node >= 0 else ON_TRUNK


class _Merger:
    """Puts the lists of several pieces together; see `inference.list_reader`."""

    def __init__(self, keys: int) -> None:
        self.trunks = no_trunks(keys)
        self.pool: Ints = np.empty(1 << 12, np.int64)
        self.forks = make_forks(1 << 10)
        self._used = 0

    def take(self, keys: Any, lengths: Any, values: Any, first: Any) -> Any:
        """Observe lists; returns the fork of each, or ON_TRUNK."""
        longest = np.zeros(len(self.trunks.length), np.int64)
        np.maximum.at(longest, keys, lengths)
        self.pool, self._used = make_room(self.trunks, longest, self.pool, self._used)
        need = int(self.forks.used[0]) + len(values)
        if need > len(self.forks.parent):
            self.forks = grown_forks(self.forks, 2 * need)
        became = np.empty(len(keys), np.int32)
        _take_up(ObservedLists(self.trunks, self.pool, self.forks), keys, lengths, values.copy(), first, became)
        return became


def _judge_lists(parts: list[list[Any]], explain: int) -> _Judged:
    keys, numbers = _key_numbers(parts)
    timed = [(part[9], part[10]) for part in parts] + [(part[15], part[16]) for part in parts]
    txns, txn = _numbered(timed)
    merger, appends, reads = _Merger(int(keys.used[0])), [], []
    for i, part in enumerate(parts):
        key = numbers[i]
        firsts = [np.searchsorted(txns.invoke, part[place]).astype(np.int32) for place in (3, 7)]
        trunk_became = merger.take(key, part[1], part[2], firsts[0])
        fork_became = merger.take(key[part[4]], part[5], part[6], firsts[1])
        appends.append((key[part[8]], txn[i], *part[11:14]))
        fork = part[20].astype(np.int32)
        _rebase(merger.forks, trunk_became, fork_became, part[14], part[19], fork)
        reads.append((key[part[14]], txn[len(parts) + i], *part[17:20], fork))
    out = make_instances(len(LIST_CLASSES), max(1, explain))
    trunks = Trunks(*merger.trunks)
    store = Store(trunks, merger.pool, merger.forks, settle(trunks, merger.pool, merger.forks))
    edges, problem = infer(group_accesses(int(keys.used[0]), appends, reads), store, txns.size, out)
    return _Judged(keys.address[: int(keys.used[0])], txns, edges, out, LIST_CLASSES, problem)


def _judge_registers(parts: list[list[Any]], sources: int, explain: int) -> _Judged:
    keys, numbers = _key_numbers(parts)
    txns, txn = _numbered([(part[5], part[6]) for part in parts] + [(part[11], part[12]) for part in parts])
    writes, reads = [], []
    for i, part in enumerate(parts):
        writes.append((numbers[i][part[1]], txn[i], *part[2:8], *part[14:]))
        reads.append((numbers[i][part[8]], txn[len(parts) + i], *part[9:14]))
    out = make_instances(len(REGISTER_CLASSES), max(1, explain))
    edges, problem = infer_edges(group_registers(int(keys.used[0]), writes, reads), txns.size, sources, out)
    return _Judged(keys.address[: int(keys.used[0])], txns, edges, out, REGISTER_CLASSES, problem)
