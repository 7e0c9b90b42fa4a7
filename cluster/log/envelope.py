"""Small files and parts of files that are one checked record each: identity, tablet records, chunks of snapshots.

Record: magic (2 bytes), format version (1), kind (1), payload length (4, little-endian), CRC-32 (4) of version, kind,
length and payload, payload.
"""

from __future__ import annotations

import struct
import zlib

from cluster.log.frames import OtherVersion
from harness.ports.api import Disk

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
    """The payload of a file that `twice` made; raises CorruptLog where both copies are damaged, OtherVersion."""
    try:
        version, found, payload = _record(data)
    except CorruptLog:
        version, found, payload = _record(data[len(data) // 2 :])
    if version != FORMAT_VERSION:
        raise OtherVersion(_other(version))
    return _expected(kind, found, payload)


async def read_twice(disk: Disk, path: str, kind: int) -> bytes:
    """The payload of a file that `twice` made; raises what `either` does, with the path."""
    data = await disk.read(path)
    try:
        return either(kind, data)
    except (CorruptLog, OtherVersion) as error:
        raise type(error)(f"{path}: {error}") from error


def unframe(kind: int, data: bytes) -> bytes:
    """The payload of a record of this kind with which `data` begins; raises CorruptLog, also for another version."""
    version, found, payload = _record(data)
    if version != FORMAT_VERSION:
        raise CorruptLog(_other(version))
    return _expected(kind, found, payload)


def _record(data: bytes) -> tuple[int, int, bytes]:
    """(Version, kind, payload) of the whole record with which `data` begins; raises CorruptLog."""
    if len(data) < HEADER.size:
        raise CorruptLog("the record is cut short")
    magic, version, found, size, crc = HEADER.unpack_from(data)
    payload = data[HEADER.size : HEADER.size + size]
    if magic != _MAGIC or len(payload) != size:
        raise CorruptLog("the record is damaged")
    if zlib.crc32(payload, zlib.crc32(_CHECKED.pack(version, found, size))) != crc:
        raise CorruptLog("the record is damaged")
    return version, found, payload


def _other(version: int) -> str:
    return f"the record has format version {version}; this program reads {FORMAT_VERSION}"


def _expected(kind: int, found: int, payload: bytes) -> bytes:
    if found != kind:
        raise CorruptLog(f"a record of kind {found} where one of kind {kind} belongs")
    return payload
