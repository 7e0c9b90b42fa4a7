"""Frames of a node's log: what one fsync makes durable is one frame, and a frame is whole, repairable or nothing (G5).

    header | index | bodies | guard | trailer

The header and its copy, the trailer, name the frame's own offset, its sizes and the checksum of the index. The index
lists the records by group, each with the checksum of its body. The guard holds a checksum for every 512 bytes of index
and bodies, and the exclusive or of all their kilobytes, with which any run of 512 damaged bytes is repaired.

**The synced extent.** A frame is written only after everything before it was synced, and one frame is on its way at a
time. So the offset in a header or trailer *is* the synced extent as of its writing, and needs no fsync of its own: a
valid header or trailer of a frame that begins at S proves that [0, S) was durable, also if the rest of its frame is
torn. `scan` decides by that alone, from the front:

1. a frame that is whole, or is repaired from its guard, counts; whether its fsync ever ended does not matter, since
   keeping what was not acknowledged is allowed (its reader syncs it before it acts on it);
2. a stretch [P, S) that can't be read, with a valid header or trailer of a frame at S > P behind it, was synced: it is
   damage of what was acknowledged (`Hole`);
3. a stretch that can't be read, with no such proof behind it, is the last frame: it was torn, and is cut. Whatever
   pages of it reached the disk, in whatever order, nothing in it can be taken for a later frame: offsets, sizes and
   the segment's salt are part of each checksum.

Case 3 alone could be wrong: the last frame's own durability can't be proven by a later one. Protocol-aware recovery
(Alagappan et al., FAST 2018, section 3.3.3) states that with one fsync a crash and damage of the last entry can't be
told apart. The guard answers it here: a flipped bit, or any damage of up to 512 bytes in a row, in the last frame is
repaired, so that it is never taken for a torn one. The header is safe by its copy. What remains is wider damage of the
last synced frame: `cluster.log.node` closes that window with an empty frame when the log falls idle.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Collection, Generator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import msgspec

LOG_VERSION = 3

_HEAD, _TAIL = b"\xa5\x4c", b"\xa5\x54"
_FIELDS = struct.Struct("<2sBQIIII")
"""Magic, version, offset of the frame, lengths of index and bodies, checksum of the index, checksum of the fields."""
_CHECKED = struct.Struct("<2sBQIII")
"""The fields but for their checksum."""
HEAD_BYTES = _FIELDS.size
_SUM = struct.Struct("<I")
_MARK = b"\xa5"
CHUNK = 512
_BLOCK = 2 * CHUNK
_TURN = 512 * _BLOCK

SegmentBytes: TypeAlias = bytes | bytearray
"""A segment's contents."""


class OtherVersion(Exception):
    """A file was written by a program of another format version; the message names it where it is known."""


class Slot(msgspec.Struct, frozen=True, array_like=True):
    """A record's line in the index: its group, its number there (consecutive), kind, and its body's checksum.

    Written as the tuple that it is read from.
    """

    group: str
    number: int
    kind: int
    length: int
    crc: int


class LogRecord(msgspec.Struct, frozen=True):
    """One record of one group; `kind` is of `cluster.log.replay`."""

    group: str
    number: int
    kind: int
    body: bytes


@dataclass(frozen=True, slots=True)
class Frame:
    """A readable frame at `offset`; `repaired` if its guard was needed."""

    offset: int
    end: int
    records: tuple[LogRecord, ...]
    repaired: bool = False


@dataclass(frozen=True, slots=True)
class Hole:
    """A synced stretch that can't be read; `lost` are the records known to be in it, or None where that is unknown.

    `records` are those of the stretch that could still be read.
    """

    offset: int
    end: int
    lost: tuple[tuple[str, int], ...] | None
    records: tuple[LogRecord, ...] = ()


@dataclass(frozen=True, slots=True)
class Scan:
    """A segment's contents in order; `length` is where its synced or readable part ends."""

    parts: tuple[Frame | Hole, ...]
    length: int


@dataclass(frozen=True, slots=True)
class _FrameHead:
    offset: int
    index_length: int
    body_length: int
    index_crc: int

    @property
    def payload_length(self) -> int:
        return self.index_length + self.body_length

    @property
    def trailer(self) -> int:
        """Where the trailer stands."""
        size = self.payload_length
        return self.offset + _FIELDS.size + size + 4 * -(-size // CHUNK) + min(size, _BLOCK)

    @property
    def end(self) -> int:
        return self.trailer + _FIELDS.size


_encode = msgspec.msgpack.Encoder().encode
_decode_index = msgspec.msgpack.Decoder(list[Slot]).decode


def build(records: Sequence[LogRecord], offset: int, salt: int) -> bytes:
    """The frame of a batch of records, to be written at `offset` of a segment."""
    slots, bodies = [], []
    for record in records:
        body = record.body
        slots.append((record.group, record.number, record.kind, len(body), zlib.crc32(body)))
        bodies.append(body)
    index = _encode(slots)
    payload = index + b"".join(bodies)
    return _frame(index, payload, _guard(payload), offset, salt)


def build_in_turns(records: Sequence[LogRecord], offset: int, salt: int) -> Generator[None, None, bytes]:
    """`build` for a large batch: yields wherever some milliseconds have gone by."""
    slots = []
    for record in records:
        slots.append((record.group, record.number, record.kind, len(record.body), zlib.crc32(record.body)))
        if len(record.body) >= _TURN:
            yield
    index = _encode(slots)
    payload = b"".join((index, *(record.body for record in records)))
    yield
    sums: list[int] = []
    folded = 0
    for start in range(0, len(payload), _TURN):
        part = payload[start : start + _TURN]
        sums += _sums(part)
        folded ^= _folded(part)
        yield
    guard = struct.pack(f"<{len(sums)}I", *sums) + folded.to_bytes(min(len(payload), _BLOCK), "little")
    return _frame(index, payload, guard, offset, salt)


def _frame(index: bytes, payload: bytes, guard: bytes, offset: int, salt: int) -> bytes:
    length = len(index)
    head = _CHECKED.pack(_HEAD, LOG_VERSION, offset, length, len(payload) - length, zlib.crc32(index))
    tail = _TAIL + head[len(_HEAD) :]
    sums = _SUM.pack(zlib.crc32(head, salt)), _SUM.pack(zlib.crc32(tail, salt))
    return b"".join((head, sums[0], payload, guard, tail, sums[1]))


def scan(data: bytes, salt: int, sealed: bool, flaws: Collection[str] = ()) -> Scan:
    """Everything in a segment; `sealed` if a later one exists, so that all of it was synced. Raises OtherVersion."""
    parts: list[Frame | Hole] = []
    position = 0
    while position < len(data):
        part = _part_at(data, position, salt, sealed, flaws)
        if part is None:
            break
        parts.append(part)
        position = part.end
    return Scan(tuple(parts), position)


def frame_at(data: SegmentBytes, position: int, salt: int) -> Frame | None:
    """The frame that begins there, as it is or repaired; None where none does that can be read. Raises OtherVersion."""
    head = _head_of(data, position, salt)
    part = None if head is None or head.end > len(data) else _read(data, head)
    return part if isinstance(part, Frame) else None


def begins(data: bytes, salt: int) -> bool:
    """Whether a segment begins with a whole header, as far as `HEAD_BYTES` of it tell; raises OtherVersion."""
    return _head_at(data, 0, salt) is not None


def _part_at(data: bytes, position: int, salt: int, sealed: bool, flaws: Collection[str]) -> Frame | Hole | None:
    """What stands at `position`: a frame (rule 1), a hole (rule 2), or a torn tail (rule 3: None)."""
    head = _head_of(data, position, salt)
    part = None if head is None or head.end > len(data) else _read(data, head)
    if isinstance(part, Frame):
        return part
    beyond = _next_start(data, position, salt)
    if beyond is None:
        if "torn-frame-is-damage" in flaws and part is not None and _head_at(data, position, salt) is None:
            return part
        return (part or Hole(position, len(data), None)) if sealed else None
    return part if part is not None and part.end <= beyond else Hole(position, beyond, None)


def _guard(payload: bytes) -> bytes:
    if len(payload) <= CHUNK:
        return _SUM.pack(zlib.crc32(payload)) + payload if payload else b""
    sums = _sums(payload)
    return struct.pack(f"<{len(sums)}I", *sums) + _parity(payload)


def _sums(payload: bytes) -> list[int]:
    return [zlib.crc32(payload[start : start + CHUNK]) for start in range(0, len(payload), CHUNK)]


def _parity(payload: bytes) -> bytes:
    """The exclusive or of the payload's blocks; of a payload shorter than a block, the payload."""
    if len(payload) <= _BLOCK:
        return payload
    return _folded(payload).to_bytes(_BLOCK, "little")


def _folded(payload: bytes) -> int:
    folded = 0
    for start in range(0, len(payload), _BLOCK):
        folded ^= int.from_bytes(payload[start : start + _BLOCK], "little")
    return folded


def _head_at(data: SegmentBytes, position: int, salt: int) -> _FrameHead | None:
    """The frame that a valid header or trailer at this position belongs to."""
    if position + _FIELDS.size > len(data):
        return None
    magic, version, offset, index_length, body_length, index_crc, check = _FIELDS.unpack_from(data, position)
    if magic not in (_HEAD, _TAIL):
        return None
    if zlib.crc32(data[position : position + _CHECKED.size], salt) != check:
        return None
    if version != LOG_VERSION:
        raise OtherVersion(f"the log has format version {version}; this program reads {LOG_VERSION}")
    head = _FrameHead(offset, index_length, body_length, index_crc)
    return head if position == (offset if magic == _HEAD else head.trailer) else None


def _next_head(data: SegmentBytes, position: int, salt: int) -> tuple[int, _FrameHead] | None:
    """The first valid header or trailer at or behind `position`, and where it stands."""
    probe = data.find(_MARK, position)
    while probe >= 0:
        head = _head_at(data, probe, salt)
        if head is not None:
            return probe, head
        probe = data.find(_MARK, probe + 1)
    return None


def _head_of(data: SegmentBytes, position: int, salt: int) -> _FrameHead | None:
    """Header or else trailer of the frame that begins at `position`."""
    found = _next_head(data, position, salt)
    return found[1] if found is not None and found[1].offset == position else None


def _next_start(data: bytes, position: int, salt: int) -> int | None:
    """Where the next frame behind `position` begins, if a header or trailer of it is left: all before was synced."""
    found = _next_head(data, position + 1, salt)
    while found is not None and found[1].offset <= position:
        found = _next_head(data, found[0] + 1, salt)
    return None if found is None else found[1].offset


def _read(data: SegmentBytes, head: _FrameHead) -> Frame | Hole:
    """The frame of a valid header, as it is or repaired; a Hole with what can be read of it otherwise."""
    start = head.offset + _FIELDS.size
    payload = bytes(data[start : start + head.payload_length])
    good, lost = _records(payload, head)
    if lost == ():
        return Frame(head.offset, head.end, good)
    repaired = _repaired(payload, bytes(data[start + head.payload_length : head.trailer]))
    if repaired is not None:
        restored, missing = _records(repaired, head)
        if missing == ():
            return Frame(head.offset, head.end, restored, repaired=True)
    return Hole(head.offset, head.end, lost, good)


def _records(payload: bytes, head: _FrameHead) -> tuple[tuple[LogRecord, ...], tuple[tuple[str, int], ...] | None]:
    """Records whose bodies are whole, and (group, number) of those that are not; None if the index is damaged."""
    index = payload[: head.index_length]
    if zlib.crc32(index) != head.index_crc:
        return (), None
    good: list[LogRecord] = []
    lost: list[tuple[str, int]] = []
    start = head.index_length
    for slot in _decode_index(index):
        body = payload[start : start + slot.length]
        start += slot.length
        if zlib.crc32(body) == slot.crc:
            good.append(LogRecord(slot.group, slot.number, slot.kind, body))
        else:
            lost.append((slot.group, slot.number))
    return tuple(good), tuple(lost)


def _repaired(payload: bytes, guard: bytes) -> bytes | None:
    """The payload with up to one damaged chunk of even and one of odd number restored; None if there are more.

    The parities of what was written and of what is read differ by just the damage: in one half for a chunk of even
    number, in the other for one of odd. Whether the result is right is decided by the records' checksums.
    """
    sums = _sums(payload)
    written = struct.unpack_from(f"<{len(sums)}I", guard)
    bad = [number for number, (one, other) in enumerate(zip(sums, written, strict=True)) if one != other]
    if len(bad) > 2 or (len(bad) == 2 and bad[0] % 2 == bad[1] % 2):
        return None
    parity = guard[4 * len(sums) :]
    damage = bytes(one ^ other for one, other in zip(_parity(payload), parity, strict=True))
    restored = bytearray(payload)
    for number in bad:
        half = damage[:CHUNK] if number % 2 == 0 else damage[CHUNK:]
        for place, flips in enumerate(half[: len(payload) - number * CHUNK], number * CHUNK):
            restored[place] ^= flips
    return bytes(restored)
