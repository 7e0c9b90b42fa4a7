"""Transactions and their micro-operations as flat numpy columns, a batch of the history table at a time, and keys as
dense numbers of their addresses (table, partition, row, column)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from checkers.columns.batches import coded, completions, ints, outcomes, read_elements, spans, valid
from checkers.columns.codes import NIL, OK, Bools, Codes, Ids, Ints, began_as
from checkers.compiled import lean
from checkers.source import KEY_COLUMNS, Source
from harness.errors import UserError

_LEAVES: Final = ("f", *KEY_COLUMNS, "value", "values")
COLUMNS: Final = (
    *("invoke_index", "complete_index", "type", "process", "f"),
    *(f"mops.list.element.{leaf}" for leaf in _LEAVES),
)
"""The Parquet columns that transactional models read."""


def columns_of(source: Source) -> tuple[str, ...]:
    """COLUMNS, and the one that orders versions, if there is one."""
    return COLUMNS if source.versions is None else (*COLUMNS, source.versions)


_EMPTY: Final = 255
"""Code of a micro-operation that stands for an empty transaction."""


class Txns(NamedTuple):
    """Client transactions in order of invocation: event indices (completion is NEVER where the outcome is unknown),
    outcome (OK, INFO, FAIL) and process; what each states of the place of its versions (NIL: nothing), if that is asked
    for."""

    invoke: Ints
    complete: Ints
    outcome: Codes
    process: Ints
    stated: Ints | None = None

    @property
    def size(self) -> int:
        return len(self.invoke)


class Mops(NamedTuple):
    """Micro-operations: those of the batch's transaction t are `offsets[t]:offsets[t + 1]`; `f` are codes, lists are
    `values[start:stop]`; `valued` and `listed` say where there is a value or a list."""

    offsets: Ints
    f: Codes
    address: tuple[Ints, Ints, Ints, Ints]
    value: Ints
    valued: Bools
    start: Ints
    stop: Ints
    listed: Bools
    values: Ints


@dataclass(frozen=True, slots=True)
class Dialect:
    """What a model's micro-operations are called and mean: `codes` by name, `problem(mops, outcome by mop)` marks those
    that make no sense with a number into `sentences` (from 1)."""

    model: str
    codes: Mapping[str, int]
    problem: Callable[[Mops, Codes], Codes]
    sentences: tuple[str, ...]


def txn_of_mops(mops: Mops) -> Ints:
    """The batch's transaction of each micro-operation."""
    rows: Ints = np.repeat(np.arange(len(mops.offsets) - 1), np.diff(mops.offsets))
    return rows


def _txns(batch: pa.RecordBatch, versions: str | None) -> Txns:
    outcome = outcomes(batch)
    complete, invoke = completions(batch, outcome), ints(batch.column("invoke_index"))
    stated = None if versions is None else ints(batch.column(versions), NIL)
    return Txns(invoke, complete, outcome.view(np.uint8), ints(batch.column("process")), stated)


def _mops(batch: pa.RecordBatch, names: Mapping[str, int]) -> Mops:
    elements = read_elements(batch)
    listed, start, stop, values = spans(elements.columns["values"])
    return Mops(
        np.concatenate(([0], np.cumsum(elements.size))),
        coded(elements.columns["f"], names, _EMPTY - 1, np.uint8),
        elements.address(),
        elements.ints("value"),
        valid(elements.columns["value"]),
        start,
        stop,
        listed,
        values,
    )


def _check(source: Source, dialect: Dialect, txns: Txns, mops: Mops, unknown: Bools) -> None:
    """Raise UserError for the first operation that is no transaction of this dialect."""
    sentence, row = "", -1
    if unknown.any():
        row, sentence = int(np.flatnonzero(unknown)[0]), "this operation is not a transaction"
    rows = txn_of_mops(mops)
    problems = np.where(mops.f >= _EMPTY - 1, 1, dialect.problem(mops, txns.outcome[rows]))
    problems[mops.f == _EMPTY] = 0
    if problems.any():
        first = int(np.flatnonzero(problems)[0])
        if row < 0 or rows[first] < row:
            row, sentence = int(rows[first]), dialect.sentences[problems[first] - 1]
    if row >= 0:
        event = int(txns.invoke[row])
        raise UserError(f"{source.path}, event {event}: {sentence}, so the model {dialect.model} can't judge it.")


def read_batch(source: Source, dialect: Dialect, batch: pa.RecordBatch) -> tuple[Txns, Mops]:
    """The client transactions of a batch; raises UserError for what the dialect does not know."""
    client = pc.greater_equal(batch.column("process"), 0)
    if not pc.all(client).as_py():
        batch = batch.filter(client)
    names = dict(dialect.codes)
    own = batch.column("f").unique().to_pylist()
    names |= {name: _EMPTY for name in own if name not in names and name is not None}
    txns, mops = _txns(batch, source.versions), _mops(batch, names)
    hollow = (mops.f == _EMPTY) & ~mops.valued & (mops.stop == mops.start)
    mops.f[(mops.f == _EMPTY) & ~hollow] = _EMPTY - 1
    _check(source, dialect, txns, mops, ~valid(batch.column("mops")))
    _require_stated(source, dialect, txns, mops)
    if source.initial is not None:
        mops = _begun(source, dialect, txns, mops)
    return txns, _without(mops, hollow) if hollow.any() else mops


def _require_stated(source: Source, dialect: Dialect, txns: Txns, mops: Mops) -> None:
    """Raise UserError for a committed write that does not state where its version stands, if that was asked for."""
    if txns.stated is None:
        return
    writes = txn_of_mops(mops)[mops.f == dialect.codes["w"]]
    unstated = writes[(txns.outcome[writes] == OK) & (txns.stated[writes] == NIL)]
    if len(unstated):
        field = source.stated or source.versions
        raise UserError(
            f"{source.path}, event {txns.invoke[unstated[0]]}: this transaction wrote and states no {field} (an "
            "integer), so the versions of what it wrote can't be put in order by that."
        )


def _begun(source: Source, dialect: Dialect, txns: Txns, mops: Mops) -> Mops:
    """Registers that begin as the source says, as registers that begin unset; raises UserError for a write of that very
    value, after which a read of it would tell nothing."""
    value = began_as(mops.value, source.initial)
    valued = value != NIL
    again = np.flatnonzero((mops.f == dialect.codes["w"]) & ~valued)
    if len(again):
        event = int(txns.invoke[txn_of_mops(mops)[again[0]]])
        raise UserError(
            f"{source.path}, event {event}: a write of {source.initial}, as which registers begin, so the model "
            f"{dialect.model} can't judge it."
        )
    return mops._replace(value=value, valued=valued)


def _without(mops: Mops, dropped: Bools) -> Mops:
    kept = np.flatnonzero(~dropped)
    before = np.concatenate(([0], np.cumsum(~dropped)))
    address: Any = tuple(part[kept] for part in mops.address)
    return mops._replace(
        offsets=before[mops.offsets],
        address=address,
        **{name: getattr(mops, name)[kept] for name in ("f", "value", "valued", "start", "stop", "listed")},
    )


def read_all(source: Source, dialect: Dialect, threads: int = 1) -> Iterator[tuple[Txns, Mops]]:
    """All batches of a history, in order of invocation, read ahead by `threads` threads."""
    return source.mapped(columns_of(source), partial(read_batch, source, dialect), threads)


class Reader(Protocol):
    """Whoever takes up a history batch by batch."""

    def take(self, txns: Txns, mops: Mops) -> None:
        """Take up the next transactions."""


def take_all(reader: Reader, batches: Iterable[tuple[Txns, Mops]]) -> Txns:
    """Let a reader take up a history; returns its transactions."""
    parts = []
    for txns, mops in batches:
        parts.append(txns)
        reader.take(txns, mops)
    return joined(parts)


def joined(parts: list[Txns]) -> Txns:
    """The parts one after the other."""
    if not parts:
        nothing = np.empty(0, np.int64)
        return Txns(nothing, nothing, np.empty(0, np.uint8), nothing)
    columns: Any = [None if parts[0][i] is None else np.concatenate([part[i] for part in parts]) for i in range(5)]
    return Txns(*columns)


class KeyTable(NamedTuple):
    """Row k of `address` is key k's; `slots` is an open-addressing table of key numbers; `used[0]` keys are known."""

    address: Ints
    slots: Ids
    used: Ints


def make_key_table(room: int = 1 << 10) -> KeyTable:
    """A table with room for that many keys."""
    size = 1 << max(4, int(2 * room - 1).bit_length())
    return KeyTable(np.empty((size // 2, 4), np.int64), np.full(size, -1, np.int32), np.zeros(1, np.int64))


@lean
def _mixed(table, partition, row, column):
    mixed = np.uint64(partition) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= (np.uint64(row) + np.uint64(0x632BE59BD9B4E019)) * np.uint64(0xC2B2AE3D27D4EB4F)
    mixed ^= (np.uint64(table) * np.uint64(0x165667B19E3779F9)) ^ (np.uint64(column) * np.uint64(0xD6E8FEB86659FD93))
    return mixed ^ (mixed >> np.uint64(29))


@lean
def _number(keys, tables, partitions, rows, columns, begin, ids):
    """Number addresses from `begin` on; returns where the table was full, or the end."""
    mask = keys.slots.shape[0] - 1
    for i in range(begin, partitions.shape[0]):
        table, partition, row, column = tables[i], partitions[i], rows[i], columns[i]
        slot = np.int64(_mixed(table, partition, row, column) & np.uint64(mask))
        while True:
            known = keys.slots[slot]
            if known < 0:
                if keys.used[0] == keys.address.shape[0]:
                    return i
                known = keys.used[0]
                keys.slots[slot] = known
                keys.address[known, 0], keys.address[known, 1] = table, partition
                keys.address[known, 2], keys.address[known, 3] = row, column
                keys.used[0] += 1
                ids[i] = known
                break
            address = keys.address[known]
            if address[1] == partition and address[2] == row and address[0] == table and address[3] == column:
                ids[i] = known
                break
            slot = (slot + 1) & mask
    return partitions.shape[0]


def number_keys(keys: KeyTable, address: tuple[Ints, Ints, Ints, Ints]) -> tuple[KeyTable, Ids]:
    """The table (grown if need be) and the key number of each address."""
    size = len(address[1])
    ids = np.empty(size, np.int32)
    table, partition, row, column = map(_read_only, address)
    place = _number(keys, table, partition, row, column, 0, ids)
    while place < size:
        count = int(keys.used[0])
        known = [_read_only(part) for part in keys.address[:count].T]
        keys = make_key_table(4 * count)
        _number(keys, *known, 0, np.empty(count, np.int32))
        place = _number(keys, table, partition, row, column, place, ids)
    return keys, ids


def _read_only(part: Ints) -> Ints:
    """Numbers as the one kind of array that the kernel is compiled for: Arrow's can't be written to."""
    view = np.ascontiguousarray(part).view()
    view.flags.writeable = False
    return view
