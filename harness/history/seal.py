"""The seal of a Parquet file: a checksum of the whole of it, kept between its last page and its footer.

Pages can carry checksums of their own, but their headers and the file's footer have none, and a damaged footer can
stop a reader of Parquet altogether. Readers find footer and pages by their positions, so they never look at the seal.
Before it stand the checksums of each row group and of the footer, and one of these: of a damaged file they tell what is
whole.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from harness.errors import UserError

KEY = b"assay.history.sealed"
"""Metadata key of files that have a seal, so that one can't get lost unnoticed."""

_MAGIC = b"ASSAYCRC"
_SEAL = struct.Struct("<8sI")
_TAIL = struct.Struct("<I4s")
_GROUP = struct.Struct("<QQI")
"""Where the bytes of a row group begin and end, and their checksum."""
_GROUPS_MAGIC = b"ASSAYGRP"
_GROUPS = struct.Struct("<8sIII")
"""Behind the row groups: how many they are, the checksum of the footer, and that of all this before it."""
_CHUNK = 1 << 22


class Seal(NamedTuple):
    """Where the seal of a file of `size` bytes lies, the checksum of all bytes but its own, and that of the footer
    behind it (-1: not known)."""

    at: int
    size: int
    checksum: int
    footer: int = -1

    @property
    def sealed(self) -> int:
        """How many bytes the checksum is of."""
        return self.size - _SEAL.size


def checksum_of(file: Any, seal: Seal, begin: int, end: int) -> int:
    """The checksum of a range of the sealed bytes, counted without the seal; OSError if they can't be read."""
    behind = _SEAL.size
    before = _checksum(file, min(begin, seal.at), min(end, seal.at))
    return _checksum(file, max(begin, seal.at) + behind, max(end, seal.at) + behind, before)


def joined(one: int, other: int, length: int) -> int:
    """The checksum of two ranges end to end, the other of `length` bytes (zlib's `crc32_combine`)."""
    if not length:
        return one
    operator = _ONE_BIT
    length *= 8
    while length:
        if length & 1:
            one = _times(operator, one)
        operator = [_times(operator, column) for column in operator]
        length >>= 1
    return one ^ other


def _times(matrix: list[int], vector: int) -> int:
    """A product over the field of two elements; columns are integers."""
    total, place = 0, 0
    while vector:
        if vector & 1:
            total ^= matrix[place]
        vector >>= 1
        place += 1
    return total


_ONE_BIT = [0xEDB88320, *(1 << place for place in range(31))]
"""What one more bit of nought does to a checksum."""


def _checksum(file: Any, begin: int, end: int, so_far: int = 0) -> int:
    file.seek(begin)
    while begin < end:
        chunk = file.read(min(_CHUNK, end - begin))
        so_far, begin = zlib.crc32(chunk, so_far), begin + len(chunk)
        if not chunk:
            break
    return so_far


def _footer(file: Any) -> tuple[int, int]:
    """Where the footer begins and the file ends; the former is negative if there is none."""
    file.seek(0, 2)
    size = file.tell()
    if size < _TAIL.size:
        return -1, size
    file.seek(size - _TAIL.size)
    length, magic = _TAIL.unpack(file.read(_TAIL.size))
    return (size - _TAIL.size - length if magic == b"PAR1" else -1), size


def seal(path: Path, groups: Sequence[tuple[int, int]] = ()) -> Seal:
    """Put the seal into a Parquet file that was just written, with where its row groups begin and end; OSError if it
    can't be written."""
    with path.open("r+b") as file:
        begin, _ = _footer(file)
        file.seek(begin)
        footer = file.read()
        sums = _sums_of_groups(file, groups, zlib.crc32(footer))
        checksum = zlib.crc32(footer, zlib.crc32(sums, _checksum(file, 0, begin)))
        file.seek(begin)
        file.write(sums + _SEAL.pack(_MAGIC, checksum) + footer)
        at = begin + len(sums)
    return Seal(at, at + _SEAL.size + len(footer), checksum, zlib.crc32(footer))


def _sums_of_groups(file: Any, groups: Sequence[tuple[int, int]], footer: int) -> bytes:
    told = b"".join(_GROUP.pack(begin, end, _checksum(file, begin, end)) for begin, end in groups)
    head = struct.pack("<II", len(groups), footer)
    return told + _GROUPS.pack(_GROUPS_MAGIC, len(groups), footer, zlib.crc32(head, zlib.crc32(told)))


def whole_groups(file: Any, known: Seal | None = None) -> list[bool] | None:
    """Of each row group of an open file, damaged maybe, whether it is whole; None where that can't be told or nothing
    be found, for the file's end is damaged or not what is `known`. OSError if it can't be read."""
    found = read_seal(file)
    if found is None or (known is not None and found[:3] != known[:3]):
        return None
    told_at = found.at - _GROUPS.size
    file.seek(max(told_at, 0))
    magic, count, footer, checksum = _GROUPS.unpack(file.read(_GROUPS.size))
    begin = told_at - count * _GROUP.size
    if magic != _GROUPS_MAGIC or begin < 0:
        return None
    file.seek(begin)
    told = file.read(count * _GROUP.size)
    head = struct.pack("<II", count, footer)
    if zlib.crc32(head, zlib.crc32(told)) != checksum or not footer_is_whole(file, found._replace(footer=footer)):
        return None
    return [_checksum(file, begin, end) == crc for begin, end, crc in _GROUP.iter_unpack(told)]


def footer_is_whole(file: Any, seal: Seal) -> bool:
    """Whether an open file's footer has the checksum that is known of it; OSError if it can't be read."""
    return seal.footer < 0 or _checksum(file, seal.at + _SEAL.size, seal.size) == seal.footer


def read_seal(file: Any) -> Seal | None:
    """The seal of an open file, None if it has none; OSError if it can't be read."""
    begin, size = _footer(file)
    pages = begin - _SEAL.size
    if pages < 0:
        return None
    file.seek(pages)
    magic, checksum = _SEAL.unpack(file.read(_SEAL.size))
    return Seal(pages, size, checksum) if magic == _MAGIC else None


def sealed_checksum(path: Path) -> int | None:
    """What the file's seal says, unchecked; None if it has none, OSError if it can't be read."""
    with path.open("rb") as file:
        found = read_seal(file)
    return None if found is None else found.checksum


def check_seal(path: Path) -> bool:
    """Whether the file has a seal; raises UserError if what it says is not so, OSError if it can't be read."""
    with path.open("rb") as file:
        found = read_seal(file)
        if found is not None and checksum_of(file, found, 0, found.sealed) != found.checksum:
            raise UserError(f"{path} is damaged: its checksum does not match.")
    return found is not None
