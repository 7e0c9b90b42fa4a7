"""Small files and parts of files that are one checked record each: identity, tablet records, chunks of snapshots.

Record: magic (2 bytes), format version (1), kind (1), payload length (4, little-endian), CRC-32 (4) of version, kind,
length and payload, payload.
"""

from __future__ import annotations

import struct
import zlib

from harness.ports import Disk

FORMAT_VERSION = 1

HEADER = struct.Struct("<2sBBII")
"""Magic, version, kind, payload length, checksum."""

_MAGIC = b"\xa5\x57"
_CHECKED = struct.Struct("<BBI")


class CorruptLog(Exception):
    """Stored data is damaged where no crash can have damaged it; starting on it would lose what was acknowledged."""


def frame(kind: int, payload: bytes) -> bytes:
    """One record, ready to be written."""
    size = len(payload)
    crc = zlib.crc32(payload, zlib.crc32(_CHECKED.pack(FORMAT_VERSION, kind, size)))
    return HEADER.pack(_MAGIC, FORMAT_VERSION, kind, size, crc) + payload


def twice(kind: int, payload: bytes) -> bytes:
    """A whole small file: the record and a copy of it, so that damage of one of them harms nobody (G7)."""
    return frame(kind, payload) * 2


def either(kind: int, data: bytes) -> bytes:
    """The payload of a file that `twice` made; raises CorruptLog where both copies are damaged."""
    try:
        return unframe(kind, data)
    except CorruptLog:
        return unframe(kind, data[len(data) // 2 :])


async def read_twice(disk: Disk, path: str, kind: int) -> bytes:
    """The payload of a file that `twice` made; raises CorruptLog with its path where both copies are damaged."""
    data = await disk.read(path)
    try:
        return either(kind, data)
    except CorruptLog as error:
        raise CorruptLog(f"{path}: {error}") from error


def unframe(kind: int, data: bytes) -> bytes:
    """The payload of a record of this kind with which `data` begins; raises CorruptLog."""
    if len(data) < HEADER.size:
        raise CorruptLog("the record is cut short")
    magic, version, found, size, crc = HEADER.unpack_from(data)
    payload = data[HEADER.size : HEADER.size + size]
    if magic != _MAGIC or len(payload) != size:
        raise CorruptLog("the record is damaged")
    if zlib.crc32(payload, zlib.crc32(_CHECKED.pack(version, found, size))) != crc:
        raise CorruptLog("the record is damaged")
    if version != FORMAT_VERSION:
        raise CorruptLog(f"the record has format version {version}; this program reads {FORMAT_VERSION}")
    if found != kind:
        raise CorruptLog(f"a record of kind {found} where one of kind {kind} belongs")
    return payload
