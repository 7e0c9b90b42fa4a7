"""What a table's cells are called and hold: keys, spans of keys, typed values; and digests of it all. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias
from zlib import crc32

import msgspec

Key: TypeAlias = tuple[int, int | bytes, int]
"""(partition, row, column); the rows of one tablet are all integers, or all primary keys (`cluster.store.schema`)."""

Span: TypeAlias = tuple[Key, Key]
"""Keys from the first (inclusive) to the second (exclusive), in one partition."""

LOWEST = -(1 << 63)
"""Below every row and column."""

if TYPE_CHECKING:
    Value: TypeAlias = int | str | bytes | float | bool | None
else:
    # MessagePack tells text from bytes, msgspec's unions don't: values are decoded as they come, and `is_value` says
    # whether a request's are of a column's types.
    Value = Any


_VALUE_TYPES = (int, str, bytes, float, type(None))


def is_value(value: object) -> bool:
    """Whether a cell can hold this."""
    return isinstance(value, _VALUE_TYPES)


def value_bytes(value: Value) -> int:
    """About what a value takes beside what every value does."""
    return len(value) if isinstance(value, bytes | str) else 0


def same_value(one: Value, other: Value) -> bool:
    """Equality that keeps types apart: 1, 1.0 and True are three values, and NaN is none."""
    return type(one) is type(other) and one == other


def point(key: Key) -> Span:
    """The span of one cell."""
    return key, (key[0], key[1], key[2] + 1)


def rows(partition: int, first: int, last: int | None) -> Span:
    """The span of whole rows from `first` (inclusive) to `last` (exclusive; None is the partition's end)."""
    start = (partition, first, LOWEST)
    return (start, (partition + 1, LOWEST, LOWEST)) if last is None else (start, (partition, last, LOWEST))


def is_point(span: Span) -> bool:
    """Whether the span is one cell's."""
    start, end = span
    return start[0] == end[0] and start[1] == end[1] and start[2] + 1 == end[2]


def overlap(one: Span, other: Span) -> bool:
    """Whether two spans share a key."""
    return one[0] < other[1] and other[0] < one[1]


# ---- digests of replicated state (G10) ----

# A digest is the sum of the fingerprints of what the state holds, so that a change costs what it changes: a multiset
# hash (Clarke et al., 2003) with addition modulo 2^64. It guards against bugs, not against adversaries: equal contents
# give equal digests in whatever order they came, and different ones differ but for a chance of about 2^-32.

MASK = (1 << 64) - 1
ODD = 0x9E3779B97F4A7C15

_encode = msgspec.msgpack.Encoder().encode


def fingerprint(item: object) -> int:
    """64 bits of one item that MessagePack can encode; the same in every process.

    The square is what keeps sums of CRCs, which are linear over bits, from cancelling each other out.
    """
    crc = crc32(_encode(item))
    return crc * crc * ODD + crc & MASK
