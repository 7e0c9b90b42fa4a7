"""A table's schema: typed columns, what an alteration makes of them, and primary keys as bytes. Pure.

Cells are stored by column id, and an id is given once in the life of a table: so a name that was dropped and added
again reads its default, and a renamed column keeps its cells.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import TypeAlias
from zlib import crc32

import msgspec

from cluster.store.cells import Value

UNASSIGNED = -1
"""The id of a column that the masters have yet to give one."""


class Column(msgspec.Struct, frozen=True, array_like=True):
    """One column: `type` is one of `TYPES`; `default` is what rows read that were written without it.

    `key` columns, in their order, are the primary key; a table without any is addressed by integers.
    """

    id: int
    name: str
    type: str
    nullable: bool = True
    default: Value = None
    key: bool = False


class AddColumn(msgspec.Struct, frozen=True, tag=True):
    """Add a column; its id is given by the masters. One that is not nullable needs a default."""

    column: Column


class DropColumn(msgspec.Struct, frozen=True, tag=True):
    """Drop a column that is no key, with all that it holds."""

    name: str


class RenameColumn(msgspec.Struct, frozen=True, tag=True):
    """Give a column another name; its cells stay."""

    name: str
    new_name: str


AlterStep: TypeAlias = AddColumn | DropColumn | RenameColumn

MAX_COLUMNS = 300
MAX_STEPS = 1_000
MAX_NAME_CHARACTERS = 256
"""Of a column's name, and of a table's."""

MAX_SCHEMA_BYTES = 1 << 16
"""All columns with their names and defaults: whatever a table's tablets take, a batch has room for these (M7)."""

MAX_GIVEN_ID = (1 << 31) - 1
"""The highest id that whoever creates a table may give a column: those of columns added later lie above."""


class InvalidSchema(ValueError):
    """What is wrong with a schema, or with an alteration of it, in one sentence."""


def _integer(bits: int) -> Callable[[object], bool]:
    limit = 1 << (bits - 1)
    return lambda value: type(value) is int and -limit <= value < limit


def _text(value: object) -> bool:
    """Text that UTF-8 can express: single surrogates can't."""
    return type(value) is str and not any("\ud800" <= character <= "\udfff" for character in value)


_FITS: dict[str, Callable[[object], bool]] = {
    "int32": _integer(32),
    "int64": _integer(64),
    "timestamp": _integer(64),
    "float": lambda value: type(value) is float,
    "double": lambda value: type(value) is float,
    "bool": lambda value: type(value) is bool,
    "string": _text,
    "binary": lambda value: type(value) is bytes,
}

TYPES = tuple(_FITS)
"""Timestamps are microseconds since 1970, UTC; floats are kept as they are given, in double precision."""

KEY_TYPES = ("int32", "int64", "timestamp", "string", "binary")
"""Types that a key column can have: those with one order and one representation of equal values."""


def fits(column: Column, value: Value) -> bool:
    """Whether a cell of the column can hold the value."""
    return column.nullable if value is None else _FITS[column.type](value)


def check_schema(columns: Sequence[Column]) -> None:
    """Raises InvalidSchema unless these can be a table's columns."""
    if not columns:
        raise InvalidSchema("a table needs columns")
    _check_count(columns)
    _check_distinct("name", [column.name for column in columns])
    _check_distinct("id", [str(column.id) for column in columns])
    for column in columns:
        _check_column(column)
    if not all(before.key or not after.key for before, after in pairwise(columns)):
        raise InvalidSchema("key columns come before the others")
    size = len(msgspec.msgpack.encode(columns))
    if size > MAX_SCHEMA_BYTES:
        raise InvalidSchema(f"the names and defaults of the columns take {size} bytes; the limit is {MAX_SCHEMA_BYTES}")


def altered(columns: Sequence[Column], next_id: int, steps: Sequence[AlterStep]) -> tuple[tuple[Column, ...], int]:
    """The columns after these steps, in their order, and the next column id; raises InvalidSchema."""
    if len(steps) > MAX_STEPS:
        raise InvalidSchema(f"an alteration has at most {MAX_STEPS} steps, not {len(steps)}")
    changed = list(columns)
    for step in steps:
        if isinstance(step, AddColumn):
            _check_added(changed, step.column)
            changed.append(msgspec.structs.replace(step.column, id=next_id))
            _check_count(changed)
            next_id += 1
            continue
        at = _position(changed, step.name)
        if isinstance(step, DropColumn):
            if changed[at].key:
                raise InvalidSchema(f"the key column {step.name!r} can't be dropped")
            del changed[at]
        else:
            changed[at] = msgspec.structs.replace(changed[at], name=step.new_name)
    check_schema(changed)
    return tuple(changed), next_id


def _check_count(columns: Sequence[Column]) -> None:
    if len(columns) > MAX_COLUMNS:
        raise InvalidSchema(f"a table has at most {MAX_COLUMNS} columns, not {len(columns)}")


def _check_added(columns: Sequence[Column], column: Column) -> None:
    if column.key:
        raise InvalidSchema(f"the column {column.name!r} can't be added to the key")
    if not column.nullable and column.default is None:
        raise InvalidSchema(f"the column {column.name!r} needs a default: rows without it must not be null")
    if any(column.name == other.name for other in columns):
        raise InvalidSchema(f"there is a column {column.name!r} already")


def _position(columns: Sequence[Column], name: str) -> int:
    for at, column in enumerate(columns):
        if column.name == name:
            return at
    raise InvalidSchema(f"there is no column {name!r}")


def _check_column(column: Column) -> None:
    if not column.name:
        raise InvalidSchema("a column needs a name")
    if len(column.name) > MAX_NAME_CHARACTERS:
        raise InvalidSchema(f"a column's name has at most {MAX_NAME_CHARACTERS} characters, not {len(column.name)}")
    if column.type not in _FITS:
        raise InvalidSchema(f"the column {column.name!r} has the type {column.type!r}; types are {', '.join(TYPES)}")
    if column.default is not None and not fits(column, column.default):
        raise InvalidSchema(f"the default {column.default!r} of the column {column.name!r} is no {column.type}")
    if not column.key:
        return
    if column.type not in KEY_TYPES:
        raise InvalidSchema(f"the key column {column.name!r} is a {column.type}; keys are {', '.join(KEY_TYPES)}")
    if column.nullable or column.default is not None:
        raise InvalidSchema(f"the key column {column.name!r} can be neither nullable nor have a default")


def _check_distinct(what: str, given: Sequence[str]) -> None:
    if len(given) != len(dict.fromkeys(given)):
        twice = next(each for each in given if given.count(each) > 1)
        raise InvalidSchema(f"two columns have the {what} {twice!r}")


# ---- primary keys ----

# Several typed columns in one string that sorts as they do, column by column. Integers are big-endian with their sign
# bit turned, in the width of their type. Text (as UTF-8, which sorts as its code points do) and bytes end with two zero
# bytes, and a zero byte within is followed by 0xFF: so no key is the beginning of another one, and a shorter value
# sorts before those that it begins.

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
