"""Keys of quorum tables as bytes that sort like the values in them, spans of them, and the token of a partition. Pure.

A clustering key is a tuple of typed values, one for each clustering column; a partition key likewise. Encoded, keys
compare as bytes, column by column, so that sorted files, slices and range deletions need no schema. The form is that of
FoundationDB's tuple layer: a tag for the type, then bytes whose order is the values'. No encoding holds `ABOVE` where a
tag is expected. So `key + ABOVE` is above everything that begins with `key`, and every bound that a query can state is
the begin or the end of a half-open span of bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from hashlib import blake2b
from typing import TypeAlias

from cluster.store.cells import Value

KeyBytes: TypeAlias = bytes
"""An encoded key, or a bound: a prefix of keys, with or without `ABOVE` behind it."""

KeySpan: TypeAlias = tuple[KeyBytes, KeyBytes]
"""Keys from the first (inclusive) to the second (exclusive)."""

LOWEST_KEY: KeyBytes = b""
ABOVE: KeyBytes = b"\xff"
"""Behind a prefix: above all keys that begin with it. Alone: above all keys."""

EVERYTHING: KeySpan = (LOWEST_KEY, ABOVE)

TOKENS = 1 << 64
"""Tokens are from 0 up to here (exclusive)."""

_BYTES, _TEXT, _INT_ZERO, _FLOAT, _FALSE, _TRUE = 0x01, 0x02, 0x14, 0x21, 0x26, 0x27
_NEGATIVE = 1 << 63
_DOUBLE = struct.Struct(">d")
_WORD = struct.Struct(">Q")


class InvalidKey(ValueError):
    """Values that can't be a key, or bytes that are none."""


def encode_key(values: Iterable[Value]) -> KeyBytes:
    """The values as bytes that sort like them; values of other types sort by type. Raises InvalidKey."""
    return b"".join([_encode_value(value) for value in values])


def decode_key(key: KeyBytes) -> tuple[Value, ...]:
    """The values of an encoded key; raises InvalidKey."""
    values, at = [], 0
    try:
        while at < len(key):
            value, at = _decode_value(key, at)
            values.append(value)
    except (IndexError, struct.error, UnicodeDecodeError, ValueError) as error:
        raise InvalidKey(f"these bytes are no key: {key!r}") from error
    return tuple(values)


def token_of(partition: KeyBytes) -> int:
    """Where a partition lies on the ring: a hash of its key, the same everywhere."""
    return int.from_bytes(blake2b(partition, digest_size=8).digest(), "big")


def bucket_of(partition: KeyBytes, buckets: int) -> int:
    """Which of a table's tablets holds a partition: each has a contiguous range of tokens, all of one length."""
    return token_of(partition) * buckets // TOKENS


def tokens_of(bucket: int, buckets: int) -> tuple[int, int]:
    """The tokens of a tablet, the first and the last."""
    return -(-bucket * TOKENS // buckets), -(-(bucket + 1) * TOKENS // buckets) - 1


def place_of(partition: KeyBytes) -> bytes:
    """Partitions sort by this: by token, then by key."""
    return blake2b(partition, digest_size=8).digest() + partition


def token_at(place: bytes) -> int:
    """The token of the partition at a place."""
    return int.from_bytes(place[:8], "big")


def _encode_value(value: Value) -> bytes:
    if isinstance(value, bool):
        return bytes((_TRUE if value else _FALSE,))
    if isinstance(value, int):
        return _encode_int(value)
    if isinstance(value, float):
        return bytes((_FLOAT,)) + _ordered_float(value)
    if isinstance(value, str):
        return bytes((_TEXT,)) + _terminated(value.encode())
    if isinstance(value, bytes):
        return bytes((_BYTES,)) + _terminated(value)
    raise InvalidKey(f"a key can't hold {value!r}")


def _encode_int(value: int) -> bytes:
    """The tag says sign and length, so that short numbers take few bytes and longer ones are further from zero."""
    size = (abs(value).bit_length() + 7) // 8
    if not -_NEGATIVE <= value < _NEGATIVE:
        raise InvalidKey(f"{value} has more than 64 bits")
    if value >= 0:
        return bytes((_INT_ZERO + size,)) + value.to_bytes(size, "big")
    return bytes((_INT_ZERO - size,)) + (value + (1 << 8 * size) - 1).to_bytes(size, "big")


def _ordered_float(value: float) -> bytes:
    """IEEE 754 sorts by magnitude; negative numbers have all bits flipped, others the sign alone."""
    bits: int = _WORD.unpack(_DOUBLE.pack(value))[0]
    return _WORD.pack(bits ^ (TOKENS - 1) if bits & _NEGATIVE else bits | _NEGATIVE)


def _terminated(data: bytes) -> bytes:
    """A zero ends it; a zero in it is followed by 0xff, which sorts above the tag that follows an end."""
    return data.replace(b"\0", b"\0\xff") + b"\0"


def _decode_value(key: bytes, at: int) -> tuple[Value, int]:
    tag = key[at]
    if tag in (_FALSE, _TRUE):
        return tag == _TRUE, at + 1
    if tag == _FLOAT:
        bits: int = _WORD.unpack_from(key, at + 1)[0]
        bits = bits ^ _NEGATIVE if bits & _NEGATIVE else bits ^ (TOKENS - 1)
        return _DOUBLE.unpack(_WORD.pack(bits))[0], at + 9
    if tag in (_BYTES, _TEXT):
        end = _end_of(key, at + 1)
        data = key[at + 1 : end].replace(b"\0\xff", b"\0")
        return data if tag == _BYTES else data.decode(), end + 1
    size = abs(tag - _INT_ZERO)
    if size > 8 or at + 1 + size > len(key):
        raise InvalidKey(f"{tag} is no type of a key")
    number = int.from_bytes(key[at + 1 : at + 1 + size], "big")
    return number if tag >= _INT_ZERO else number - (1 << 8 * size) + 1, at + 1 + size


def _end_of(key: bytes, at: int) -> int:
    """Where text or bytes end: at a zero that no 0xff follows."""
    while True:
        at = key.index(b"\0", at)
        if key[at + 1 : at + 2] != ABOVE:
            return at
        at += 2
