"""Primary keys as bytes: several typed columns in one string that sorts as they do, column by column. Pure.

Integers are big-endian with their sign bit turned, in the width of their type. Text (as UTF-8, which sorts as its code
points do) and bytes end with two zero bytes, and a zero byte within is followed by 0xFF: so no key is the beginning of
another one, and a shorter value sorts before those that it begins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from zlib import crc32

from cluster.store.cells import Value
from cluster.store.schema import Column, InvalidSchema, fits

_WIDTHS = {"int32": 4, "int64": 8, "timestamp": 8}
_END, _ZERO = b"\x00\x00", b"\x00\xff"


def key_columns(columns: Sequence[Column]) -> tuple[Column, ...]:
    """The columns of the primary key, in its order."""
    return tuple(column for column in columns if column.key)


def encode_key(columns: Sequence[Column], values: Mapping[str, Value]) -> bytes:
    """The key of the row that has these values in its key columns; raises InvalidSchema."""
    return encode_prefix(columns, [_value(column, values) for column in key_columns(columns)])


def encode_prefix(columns: Sequence[Column], values: Sequence[Value]) -> bytes:
    """The beginning that the keys of all rows share whose first key columns have these values; raises InvalidSchema."""
    keys = key_columns(columns)
    if len(values) > len(keys):
        raise InvalidSchema(f"the key has {len(keys)} columns, and {len(values)} values are given")
    return b"".join(_encode(column, value) for column, value in zip(keys, values, strict=False))


def decode_key(columns: Sequence[Column], key: bytes) -> tuple[Value, ...]:
    """The values of the key columns; raises InvalidSchema where the bytes are no key of theirs."""
    values, at = [], 0
    for column in key_columns(columns):
        value, at = _decode(column, key, at)
        values.append(value)
    if at != len(key):
        raise InvalidSchema("the key is longer than its columns")
    return tuple(values)


def bucket_of(key: bytes, buckets: int) -> int:
    """The hash bucket of a row, the same in every process and for ever."""
    return crc32(key) % buckets


def after(prefix: bytes) -> bytes | None:
    """The first key behind all that begin with this; None where there is none."""
    rest = prefix.rstrip(b"\xff")
    return rest[:-1] + bytes([rest[-1] + 1]) if rest else None


def _value(column: Column, values: Mapping[str, Value]) -> Value:
    if column.name not in values:
        raise InvalidSchema(f"the key column {column.name!r} has no value")
    return values[column.name]


def _encode(column: Column, value: Value) -> bytes:
    if value is None or not fits(column, value):
        raise InvalidSchema(f"the key column {column.name!r} is a {column.type} and can't hold {value!r}")
    if isinstance(value, int):
        width = _WIDTHS[column.type]
        return (value + (1 << (8 * width - 1))).to_bytes(width, "big")
    if isinstance(value, str):
        value = value.encode()
    assert isinstance(value, bytes)
    return value.replace(b"\x00", _ZERO) + _END


def _decode(column: Column, key: bytes, at: int) -> tuple[Value, int]:
    width = _WIDTHS.get(column.type)
    if width is not None:
        if len(key) < at + width:
            raise InvalidSchema(f"the key ends within {column.name!r}")
        return int.from_bytes(key[at : at + width], "big") - (1 << (8 * width - 1)), at + width
    end = _end(key, at)
    raw = key[at:end].replace(_ZERO, b"\x00")
    try:
        return (raw.decode() if column.type == "string" else raw), end + 2
    except UnicodeDecodeError as error:
        raise InvalidSchema(f"the key column {column.name!r} holds no text") from error


def _end(key: bytes, at: int) -> int:
    """Where the value that begins at `at` ends: at the first zero byte that no 0xFF follows."""
    while True:
        at = key.find(b"\x00", at)
        if at < 0 or at + 1 >= len(key) or key[at + 1] not in (0x00, 0xFF):
            raise InvalidSchema("the key is cut off")
        if key[at + 1] == 0x00:
            return at
        at += 2
