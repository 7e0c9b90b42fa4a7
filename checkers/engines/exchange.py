"""How rows travel from where they are read to where their group is judged: split into buckets of groups, as bytes.

A few large strings of bytes pass through a shuffle many times faster than their millions of rows would. Rows with equal
keys fall into the same bucket wherever they are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import cycle
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from checkers.columns.codes import Ints
from checkers.columns.dense import is_constant
from checkers.columns.mops import Columns

MOST_BUCKETS: Final = 1 << 16

_NARROW: Final = (np.uint8, np.uint16, np.uint32)

_FACTORS: Final = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0xD6E8FEB86659FD93)


class _Narrowed(NamedTuple):
    """A column as `base` and what is to be added to it; None where it is constant."""

    base: int
    more: npt.NDArray[Any] | None


class _Column(msgspec.Struct, array_like=True):
    base: int
    kind: str
    data: bytes


class _Packed(msgspec.Struct, array_like=True):
    count: int
    columns: dict[str, _Column]


def _narrowed(column: Ints) -> _Narrowed:
    if is_constant(column) or not len(column):
        return _Narrowed(int(column[0]) if len(column) else 0, None)
    lowest, highest = int(column.min()), int(column.max())
    if lowest == highest:
        return _Narrowed(lowest, None)
    for kind in _NARROW:
        if highest - lowest <= np.iinfo(kind).max:
            return _Narrowed(lowest, (column - lowest).astype(kind))
    return _Narrowed(0, column)


def _packed(columns: dict[str, _Narrowed], chosen: slice) -> bytes:
    parts = {}
    for name, (base, more) in columns.items():
        parts[name] = _Column(base, "", b"") if more is None else _Column(base, more.dtype.str, more[chosen].tobytes())
    return msgspec.msgpack.encode(_Packed(chosen.stop - chosen.start, parts))


def buckets_of(rows: Columns, keys: Sequence[str], buckets: int, again: bool = False) -> npt.NDArray[np.uint16]:
    """The bucket of each row: the same wherever the keys are; `again`, by other buckets than the rows are in."""
    mixed = _mixed(rows, keys)
    if again:
        with np.errstate(over="ignore"):
            mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(_FACTORS[0])
    return ((mixed >> np.uint64(8)) % np.uint64(buckets)).astype(np.uint16)


def numbers_of(rows: Columns, keys: Sequence[str]) -> Ints:
    """A number of 64 bits for the keys of each row: the same wherever they are. Others may share it, if hardly ever."""
    return _mixed(rows, keys).view(np.int64)


def _mixed(rows: Columns, keys: Sequence[str]) -> npt.NDArray[np.uint64]:
    mixed = np.zeros(len(rows["kind"]), np.uint64)
    with np.errstate(over="ignore"):
        for key, factor in zip(keys, cycle(_FACTORS), strict=False):
            mixed = (mixed ^ rows[key].view(np.uint64)) * np.uint64(factor)
            mixed ^= mixed >> np.uint64(31)
    return mixed


def split(rows: Columns, keys: Sequence[str], buckets: int, again: bool = False) -> Iterator[tuple[int, bytes]]:
    """The rows by bucket (at most MOST_BUCKETS), in their order, as bytes; empty buckets are left out; `again`, the
    rows of one bucket by others."""
    count = len(rows["kind"])
    columns = {name: _narrowed(column) for name, column in rows.items()}
    if not count:
        return
    if buckets == 1:
        yield 0, _packed(columns, slice(0, count))
        return
    yield from _scattered(columns, buckets_of(rows, keys, buckets, again))


def scattered(rows: Columns, places: npt.NDArray[Any]) -> Iterator[tuple[int, bytes]]:
    """The rows by the place that each goes to (any whole numbers), in their order, as bytes."""
    yield from _scattered({name: _narrowed(column) for name, column in rows.items()}, places)


def _scattered(columns: dict[str, _Narrowed], places: npt.NDArray[Any]) -> Iterator[tuple[int, bytes]]:
    order = np.argsort(places, kind="stable")
    sorted_places = places[order]
    moved = {n: _Narrowed(base, None if more is None else more[order]) for n, (base, more) in columns.items()}
    ends = np.append(np.flatnonzero(sorted_places[1:] != sorted_places[:-1]) + 1, len(order))
    begin = 0
    for end in ends.tolist() if len(order) else ():
        yield int(sorted_places[begin]), _packed(moved, slice(begin, end))
        begin = end


def united(parts: Sequence[bytes], names: Sequence[str]) -> Columns:
    """The rows of all parts, one after the other."""
    every = [msgspec.msgpack.decode(part, type=_Packed) for part in parts]
    return {name: _end_to_end([(part.count, part.columns[name]) for part in every]) for name in names}


def _end_to_end(parts: list[tuple[int, _Column]]) -> Ints:
    total = sum(count for count, _ in parts)
    if parts and all(not column.kind and column.base == parts[0][1].base for _, column in parts):
        return np.broadcast_to(np.int64(parts[0][1].base), total)
    out, place = np.empty(total, np.int64), 0
    for count, column in parts:
        more = np.frombuffer(column.data, np.dtype(column.kind)) if column.kind else 0
        np.add(more, column.base, out=out[place : place + count], dtype=np.int64, casting="unsafe")
        place += count
    return out
