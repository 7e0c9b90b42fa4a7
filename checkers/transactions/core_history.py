"""The part of a history that refutes it: the transactions of an anomaly, as a history of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from checkers.columns.codes import FAIL, OK
from checkers.source import EVIDENCE_COLUMNS, KEY_COLUMNS, Source
from checkers.transactions.transaction_findings import TXN_MODELS
from checkers.transactions.transaction_mops import read_all
from harness.history.columns import SCHEMA

Written: TypeAlias = tuple[tuple[int, ...], int]
"""An address and a value."""

Row: TypeAlias = dict[str, Any]


def core_of(source: Source, model: str, ops: Iterable[int], refuted: Callable[[Source], bool]) -> Source | None:
    """The history of the operations with some invocation indices, by which `refuted` holds; None if there is none.

    What they read of others is left out. That makes no history worse: whatever explains the whole one explains this
    part of it. Where nothing is wrong with the part, those that wrote what it read are added, and those that show how
    the writes follow each other, then those that read what it wrote, until something is.
    """
    kept = frozenset(ops)
    while kept:
        rows = source.operations(tuple(kept), [name for name in SCHEMA.names if name not in EVIDENCE_COLUMNS])
        writers = _writers(source, model, {pair for row in rows.values() for pair in _read(row)})
        part = _part(source, [_among(rows[op], writers, kept) for op in sorted(rows)])
        if refuted(part):
            return part
        more = kept | set(writers.values()) | _longest(source, model, {pair[0] for pair in writers})
        if more == kept:
            more = kept | _readers(source, model, {pair for row in rows.values() for pair in _wrote(row)})
        if more == kept:
            return None
        kept = more
    return None


def _part(source: Source, rows: list[Row]) -> Source:
    table = pa.Table.from_pylist([row | {"op": number} for number, row in enumerate(rows)], schema=SCHEMA)
    texts = source.interned.texts
    return replace(source, rows=len(rows), saved=None, table=table, dictionary=texts, located=None)


def _address(mop: Mapping[str, Any]) -> tuple[int, ...]:
    return tuple(mop[name] for name in KEY_COLUMNS)


def _read(row: Row) -> Iterator[Written]:
    for mop in row["mops"] if row["type"] == "ok" else ():
        if mop["f"] == "r":
            found = mop["values"] if mop["values"] is not None else [mop["value"]]
            yield from ((_address(mop), value) for value in found if value is not None)


def _wrote(row: Row) -> Iterator[Written]:
    return ((_address(mop), mop["value"]) for mop in row["mops"] if mop["f"] != "r")


def _among(row: Row, writers: Mapping[Written, int], kept: frozenset[int]) -> Row:
    """The row without what it read of operations that are not kept."""
    mops = []
    for mop in row["mops"]:
        if mop["f"] != "r" or row["type"] != "ok":
            mops.append(mop)
        elif mop["values"] is not None:
            left = [value for value in mop["values"] if writers.get((_address(mop), value), -1) in (*kept, -1)]
            mops.append(mop | {"values": left})
        elif writers.get((_address(mop), mop["value"]), -1) in (*kept, -1):
            mops.append(mop)
    return row | {"mops": mops}


def _writers(source: Source, model: str, read: set[Written]) -> dict[Written, int]:
    """The invocation index of who wrote each value that was read, if anybody did; of one that failed and one that did
    not the latter."""
    values = np.array(sorted({value for _, value in read}), np.int64)
    found: dict[Written, tuple[bool, int]] = {}
    dialect = TXN_MODELS[model].dialect
    for txns, mops in read_all(source, dialect):
        places = np.flatnonzero((mops.f != dialect.codes["r"]) & np.isin(mops.value, values))
        rows = np.searchsorted(mops.offsets, places, side="right") - 1
        for place, row in zip(places.tolist(), rows.tolist(), strict=True):
            pair = (tuple(int(part[place]) for part in mops.address), int(mops.value[place]))
            told = bool(txns.outcome[row] == FAIL), int(txns.invoke[row])
            if pair in read and (pair not in found or told < found[pair]):
                found[pair] = told
    return {pair: invoke for pair, (_, invoke) in found.items()}


def _readers(source: Source, model: str, written: set[Written]) -> set[int]:
    """The invocation indices of those that read a value, or a list that ends with it."""
    values, dialect = np.array(sorted({value for _, value in written}), np.int64), TXN_MODELS[model].dialect
    found = set()
    for txns, mops in read_all(source, dialect):
        last = np.where(mops.listed & (mops.stop > mops.start), np.append(mops.values, 0)[mops.stop - 1], mops.value)
        places = np.flatnonzero((mops.f == dialect.codes["r"]) & np.isin(last, values))
        rows = np.searchsorted(mops.offsets, places, side="right") - 1
        for place, row in zip(places.tolist(), rows.tolist(), strict=True):
            if (tuple(int(part[place]) for part in mops.address), int(last[place])) in written:
                found.add(int(txns.invoke[row]))
    return found


def _longest(source: Source, model: str, addresses: set[tuple[int, ...]]) -> set[int]:
    """The invocation indices of those that read the longest list at each address."""
    longest: dict[tuple[int, ...], tuple[int, int]] = {}
    partitions = np.array(sorted({address[1] for address in addresses}), np.int64)
    for txns, mops in read_all(source, TXN_MODELS[model].dialect):
        places = np.flatnonzero(mops.listed & np.isin(mops.address[1], partitions))
        rows = np.searchsorted(mops.offsets, places, side="right") - 1
        for place, row in zip(places.tolist(), rows.tolist(), strict=True):
            address = tuple(int(part[place]) for part in mops.address)
            told = (int(mops.stop[place] - mops.start[place]), int(txns.invoke[row]))
            if address in addresses and txns.outcome[row] == OK and told > longest.get(address, (0, 0)):
                longest[address] = told
    return {invoke for _, invoke in longest.values()}
