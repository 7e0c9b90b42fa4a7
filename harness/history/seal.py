"""The seal of a Parquet file: a checksum of the whole of it, kept between its last page and its footer.

Pages can carry checksums of their own, but their headers and the file's footer have none, and a damaged footer can
stop a reader of Parquet altogether. Readers find footer and pages by their positions, so they never look at the seal.
"""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from typing import BinaryIO

from harness.errors import UserError

KEY = b"assay.history.sealed"
"""Metadata key of files that have a seal, so that one can't get lost unnoticed."""

_MAGIC = b"ASSAYCRC"
_SEAL = struct.Struct("<8sI")
_TAIL = struct.Struct("<I4s")
_CHUNK = 1 << 22


def _checksum(file: BinaryIO, begin: int, end: int, so_far: int = 0) -> int:
    file.seek(begin)
    while begin < end:
        chunk = file.read(min(_CHUNK, end - begin))
        so_far, begin = zlib.crc32(chunk, so_far), begin + len(chunk)
        if not chunk:
            break
    return so_far


def _footer(file: BinaryIO) -> tuple[int, int]:
    """Where the footer begins and the file ends; the former is negative if there is none."""
    size = file.seek(0, 2)
    if size < _TAIL.size:
        return -1, size
    file.seek(size - _TAIL.size)
    length, magic = _TAIL.unpack(file.read(_TAIL.size))
    return (size - _TAIL.size - length if magic == b"PAR1" else -1), size


def seal(path: Path) -> None:
    """Put the seal into a Parquet file that was just written; OSError if it can't be written."""
    with path.open("r+b") as file:
        begin, size = _footer(file)
        checksum = _checksum(file, begin, size, _checksum(file, 0, begin))
        file.seek(begin)
        footer = file.read()
        file.seek(begin)
        file.write(_SEAL.pack(_MAGIC, checksum) + footer)


def sealed_checksum(path: Path) -> int | None:
    """What the file's seal says, unchecked; None if it has none, OSError if it can't be read."""
    with path.open("rb") as file:
        return _sealed(file, _footer(file)[0])


def check_seal(path: Path) -> bool:
    """Whether the file has a seal; raises UserError if what it says is not so, OSError if it can't be read."""
    with path.open("rb") as file:
        begin, size = _footer(file)
        checksum = _sealed(file, begin)
        if checksum is None:
            return False
        if _checksum(file, begin, size, _checksum(file, 0, begin - _SEAL.size)) != checksum:
            raise UserError(f"{path} is damaged: its checksum does not match.")
    return True


def _sealed(file: BinaryIO, footer: int) -> int | None:
    """The checksum in the seal before the footer; None if there is no seal."""
    if footer < _SEAL.size:
        return None
    file.seek(footer - _SEAL.size)
    magic, checksum = _SEAL.unpack(file.read(_SEAL.size))
    return int(checksum) if magic == _MAGIC else None
