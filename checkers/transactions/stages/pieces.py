"""First stage of the pipeline: a worker reads some row groups, judges each transaction by itself, and packs what it
says about each key, by bucket of keys. Lists travel once a piece and key, reads as lengths, arrays as bytes; each piece
says how long its transactions last."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa

from checkers.columns.batches import bucket_batch
from checkers.columns.codes import NEVER, Ints
from checkers.compiled import lean
from checkers.findings import Findings
from checkers.source import Source
from checkers.transactions.inference.list_reader import ListReader
from checkers.transactions.inference.register_reader import RegisterReader
from checkers.transactions.transaction_findings import OWN, TXN_MODELS, instance_findings
from checkers.transactions.transaction_mops import Txns, columns_of, read_batch, take_all
from harness.errors import UserError
from harness.history.saved import HistoryReader


def pack(arrays: Sequence[Any]) -> bytes:
    """Arrays as one string of bytes."""
    return msgspec.msgpack.encode(
        [(array.dtype.str, array.shape, np.ascontiguousarray(array).tobytes()) for array in arrays]
    )


def unpack(packed: bytes) -> list[Any]:
    """The arrays that were packed, to be read only."""
    parts = msgspec.msgpack.decode(packed)
    return [np.frombuffer(data, np.dtype(kind)).reshape(shape) for kind, shape, data in parts]


def address_hashes(addresses: Any) -> Any:
    """A number for each address (row of table, partition, row, column), the same everywhere."""
    mixed = np.zeros(len(addresses), np.uint64)
    with np.errstate(over="ignore"):
        for column, factor in enumerate(
            (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0xD6E8FEB86659FD93)
        ):
            mixed = (mixed ^ addresses[:, column].astype(np.int64).view(np.uint64)) * np.uint64(factor)
            mixed ^= mixed >> np.uint64(31)
    return mixed.view(np.int64)


_LONG: Final = 32


class Times(NamedTuple):
    """Of all client transactions: how many completed, are unknown and failed; of those that completed the sum of their
    durations (in events), the longest and the first completion; and the last invocation."""

    ok: int = 0
    info: int = 0
    fail: int = 0
    total: int = 0
    longest: int = 0
    first: int = NEVER
    last: int = -1

    @property
    def outcomes(self) -> dict[str, int]:
        """How many transactions there are by outcome."""
        return {"ok": self.ok, "info": self.info, "fail": self.fail}

    @property
    def usual(self) -> int:
        """What lasts longer than this is treated like a transaction that never ends."""
        return min(self.longest, _LONG * self.total // max(1, self.ok) + 1)

    @property
    def orderless(self) -> bool:
        """Whether no transaction began after another had completed."""
        return self.last <= self.first


def times_of(txns: Txns) -> Ints:
    """The `Times` of some transactions as an array."""
    ok, info, fail = (int(np.count_nonzero(txns.outcome == code)) for code in range(3))
    completed = txns.outcome == 0
    lasts = (txns.complete - txns.invoke)[completed]
    first = txns.complete[completed].min(initial=NEVER)
    spans = (lasts.sum(), lasts.max(initial=0), first, txns.invoke.max(initial=-1))
    return np.array([ok, info, fail, *spans], np.int64)


def merged_times(parts: Sequence[Any]) -> Times:
    """The times of all, from those of parts."""
    if not parts:
        return Times()
    columns = np.stack(parts).T
    ok, info, fail, total = (int(column.sum()) for column in columns[:4])
    return Times(ok, info, fail, total, int(columns[4].max()), int(columns[5].min()), int(columns[6].max()))


FINDINGS: Final = -1
REFUSED: Final = -2
"""Buckets of what goes to the driver: packed findings, and the sentence of a UserError."""

TIMED: Final = -1
"""Instead of a piece's number: the row holds `times_of` its transactions."""

SCHEMA: Final = "bucket int, piece int, data binary"

Stage: TypeAlias = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""What workers make of rows; picklable."""

_BATCH_ROWS: Final = 1 << 16


class Row(NamedTuple):
    """One row between stages."""

    bucket: int
    piece: int
    data: bytes


def rows_of(batches: Iterator[pa.RecordBatch]) -> Iterator[Row]:
    """The rows of batches, one by one."""
    return (Row(*row) for batch in batches for row in zip(*batch.to_pydict().values(), strict=True))


def by_bucket(rows: Iterable[Row]) -> Iterator[tuple[int, Iterator[Row]]]:
    """Each bucket with its rows, which are sorted by it."""
    return groupby(rows, key=lambda row: row.bucket)


@dataclass(frozen=True, slots=True)
class PieceReader:
    """Picklable: turns the numbers of pieces of the history, of which there are `pieces`, into rows."""

    source: Source
    reader: HistoryReader
    pieces: int
    buckets: int
    model: str
    explain: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for piece in batch.column(0).to_pylist():
                yield bucket_batch(self._rows(int(piece)))

    def _rows(self, piece: int) -> list[Row]:
        try:
            return self._read(piece)
        except UserError as error:
            return [Row(REFUSED, piece, str(error).encode())]

    def _batches(self, piece: int) -> Iterator[pa.RecordBatch]:
        return self.reader.batches(columns_of(self.source), self.reader.groups_of(piece, self.pieces), _BATCH_ROWS)

    def _read(self, piece: int) -> list[Row]:
        model = TXN_MODELS[self.model]
        reader = model.reader(max(1, self.explain))
        txns = take_all(reader, (read_batch(self.source, model.dialect, batch) for batch in self._batches(piece)))
        found = _findings(reader.out, model.classes, reader.addresses, txns)
        return [
            Row(FINDINGS, piece, found),
            *self._times(txns),
            *_PACKED[self.model](reader, txns, self.buckets, piece),
        ]

    def _times(self, txns: Txns) -> list[Row]:
        """What each bucket is told of the piece's transactions, ahead of its rows."""
        data = pack([times_of(txns)])
        return [Row(bucket, TIMED, data) for bucket in range(self.buckets)]


def _findings(out: Any, classes: tuple[str, ...], addresses: Ints, txns: Txns) -> bytes:
    counts = {name: int(n) for name, n in zip(classes, out.counts, strict=True) if n}
    return encode_findings(Findings(counts=counts, kept=instance_findings(out, classes, addresses, txns, OWN)))


def encode_findings(findings: Findings) -> bytes:
    """Findings as bytes."""
    import msgspec

    return msgspec.msgpack.encode(findings)


@lean
def _fork_list(trunk, pool, forks, node, values, end):
    """Write the list that ends at a fork's node so that it ends at `end`; returns where it begins."""
    while node >= 0:
        end -= 1
        values[end] = forks.element[node]
        node = forks.parent[node]
    for i in range(-1 - node):
        values[end - (-1 - node) + i] = pool[trunk + i]
    return end - (-1 - node)


@lean
def _trunk_lists(start, length, pool, values):
    place = 0
    for key in range(start.shape[0]):
        for i in range(length[key]):
            values[place] = pool[start[key] + i]
            place += 1


def _columns(parts: list[tuple[Any, ...]], count: int) -> list[Any]:
    if not parts:
        return [np.empty(0, np.int64)] * count
    return [np.concatenate([part[i] for part in parts]) for i in range(count)]


def _txn_columns(txns: Txns, txn: Any) -> tuple[Any, Any]:
    """Invocation indices and completions of some transactions."""
    return txns.invoke[txn], txns.complete[txn]


class _KeysByBucket(NamedTuple):
    """Keys by bucket: `mine[b]` are bucket b's keys, `place[key]` a key's number among them."""

    mine: list[Any]
    place: Any
    bucket: Any


def _split(addresses: Ints, buckets: int) -> _KeysByBucket:
    bucket = (address_hashes(addresses).view(np.uint64) % np.uint64(buckets)).astype(np.int64)
    place = np.empty(len(addresses), np.int32)
    mine = [np.flatnonzero(bucket == number) for number in range(buckets)]
    for keys in mine:
        place[keys] = np.arange(len(keys), dtype=np.int32)
    return _KeysByBucket(mine, place, bucket)


def _by_bucket(split: _KeysByBucket, columns: list[Any], buckets: int) -> list[list[Any]]:
    """Rows (the first column is the key) by bucket, keys renumbered, else in order."""
    owner = split.bucket[columns[0]] if len(columns[0]) else np.empty(0, np.int64)
    order = np.argsort(owner, kind="stable")
    cuts = np.searchsorted(owner[order], np.arange(buckets + 1))
    renumbered = [split.place[columns[0]] if len(columns[0]) else np.empty(0, np.int32), *columns[1:]]
    return [[column[order[cuts[number] : cuts[number + 1]]] for column in renumbered] for number in range(buckets)]


def pack_lists(reader: ListReader, txns: Txns, buckets: int, piece: int) -> Iterator[Row]:
    """One row a bucket: addresses; trunks (lengths, elements, first reader); forks that were read (key, length,
    elements, first reader); appends; reads. Readers are invocation indices."""
    store, (appends, reads) = reader.store(), reader.accesses()
    split = _split(reader.addresses, buckets)
    append_parts = _by_bucket(split, _columns(appends, 5), buckets)
    read_parts = _by_bucket(split, _columns(reads, 6), buckets)
    for bucket, keys in enumerate(split.mine):
        if not len(keys):
            continue
        lengths = store.trunks.length[keys]
        trunks = np.empty(int(lengths.sum()), np.int64)
        _trunk_lists(store.trunks.start[keys], lengths, store.pool, trunks)
        first = np.append(txns.invoke, -1)[np.minimum(store.trunks.first[keys], txns.size)]
        key, txn, outcome, flags, length, fork = read_parts[bucket]
        nodes, numbered = np.unique(fork[fork >= 0], return_inverse=True)
        fork = fork.copy()
        fork[fork >= 0] = numbered
        depths = store.forks.depth[nodes].astype(np.int64)
        ends, forks = np.cumsum(depths), np.empty(int(depths.sum()), np.int64)
        owners = store.forks.key[nodes]
        for i, node in enumerate(nodes.tolist()):
            _fork_list(store.trunks.start[owners[i]], store.pool, store.forks, node, forks, int(ends[i]))
        fork_first = txns.invoke[store.forks.first[nodes]]
        appended = append_parts[bucket]
        packed = (
            *(reader.addresses[keys], lengths, trunks, first),
            *(split.place[owners], depths, forks, fork_first),
            *(appended[0], *_txn_columns(txns, appended[1]), *appended[2:]),
            *(key, *_txn_columns(txns, txn), outcome, flags, length, fork),
        )
        yield Row(bucket, piece, pack(packed))


def pack_registers(reader: RegisterReader, txns: Txns, buckets: int, piece: int) -> Iterator[Row]:
    """One row a bucket: addresses; writes; reads; times and process with each; what writes state of their versions, if
    that is asked for."""
    writes, reads = reader.accesses()
    split = _split(reader.addresses, buckets)
    write_parts = _by_bucket(split, _columns(writes, 8 if txns.stated is None else 9), buckets)
    read_parts = _by_bucket(split, _columns(reads, 7), buckets)
    for bucket, keys in enumerate(split.mine):
        if len(keys):
            write, read = write_parts[bucket], read_parts[bucket]
            packed = (reader.addresses[keys], write[0], *write[2:8], read[0], *read[2:], *write[8:])
            yield Row(bucket, piece, pack(packed))


_PACKED: Final[dict[str, Callable[[Any, Txns, int, int], Iterator[Row]]]] = {
    "list-append": pack_lists,
    "rw-register": pack_registers,
}
"""By model what packs all that a reader has collected, by bucket: `(reader, txns, buckets, piece)`."""
