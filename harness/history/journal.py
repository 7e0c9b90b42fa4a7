"""The journal: an append-only file of sealed blocks that survives `kill -9` of the harness (`runs.md`, "Histories").

Layout: MAGIC, then one header block, then event blocks, then one empty block when the journal was closed properly.
A block is a little-endian `(payload length, CRC-32, event count)` and its payload; the CRC starts from the count. The
header's payload is JSON with the format version and the field names of an event; an event block's payload is
MessagePack, an array of events, each an array of the values of those fields.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import GenericAlias
from typing import Any, BinaryIO, get_type_hints

import msgspec

from harness.errors import UNDECODABLE, HarnessError, UserError
from harness.history.ops import Op

MAGIC = b"ASSAYJNL"
JOURNAL_VERSION = 1

MAX_UNSEALED_EVENTS = 1024
"""An operation has at most two events, so this also bounds the operations that a crash of the harness can lose."""

MAX_UNSEALED_NS = 1_000_000_000

_FRAME = struct.Struct("<III")
_MAX_PAYLOAD_BYTES = 1 << 30
_FIELDS = Op.__struct_fields__
_HINTS = get_type_hints(Op)


class _Header(msgspec.Struct, frozen=True):
    version: int
    fields: tuple[str, ...]


def _frame(payload: bytes, count: int) -> bytes:
    return _FRAME.pack(len(payload), zlib.crc32(payload, count), count) + payload


class JournalWriter:
    """Appends events in order; at most 1 024 of them or one second (of event time) stay unsealed.

    A sealed block has been handed to the operating system, so that only the machine's own crash can lose it. Raises
    UserError if the file can't be made (or is already there), HarnessError if it can no longer be written. Once a
    write failed, every later one does: a history may end early, but never has a hole.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._unsealed: list[Op] = []
        self._oldest_ns = 0
        self._failed: str | None = None
        self._encode = msgspec.msgpack.Encoder().encode
        try:
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
        except OSError as error:
            raise UserError(f"The journal {path} can't be written: {error.strerror}.") from error
        header = msgspec.json.encode(_Header(JOURNAL_VERSION, _FIELDS))
        self._write(MAGIC + _frame(header, 0))

    @property
    def unsealed(self) -> int:
        """How many events a crash would lose now."""
        return len(self._unsealed)

    def append(self, event: Op) -> None:
        """Take one event; seals by itself when the bounds are reached."""
        unsealed = self._unsealed
        if not unsealed:
            self._oldest_ns = event.time
        unsealed.append(event)
        if len(unsealed) >= MAX_UNSEALED_EVENTS or event.time - self._oldest_ns >= MAX_UNSEALED_NS:
            self.seal()

    def seal_due(self, now_ns: int) -> None:
        """Seal if the oldest unsealed event is a second old at `now_ns` (the time base of the events)."""
        if self._unsealed and now_ns - self._oldest_ns >= MAX_UNSEALED_NS:
            self.seal()

    def seal(self) -> None:
        """Write what is unsealed as one block."""
        if not self._unsealed:
            return
        rows = [msgspec.structs.astuple(event) for event in self._unsealed]
        payload = self._encode(rows)
        count = len(self._unsealed)
        self._unsealed = []
        self._write(_frame(payload, count))

    def close(self) -> None:
        """Seal, mark the end, and make it durable; safe to call twice."""
        if self._file < 0:
            return
        try:
            self.seal()
            self._write(_frame(b"", 0))
            os.fsync(self._file)
        finally:
            os.close(self._file)
            self._file = -1

    def _write(self, data: bytes) -> None:
        if self._failed is not None:
            raise HarnessError(self._failed)
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._file, view) :]
        except OSError as error:
            self._failed = f"The journal {self.path} can't be written any more: {error.strerror}."
            raise HarnessError(self._failed) from error


class JournalReader:
    """Iterates over the events of a journal's sealed prefix, in bounded memory.

    After (or during) the iteration `complete` says whether the journal was closed properly, and `ended_early` in words
    why it was not (None if it was). Raises UserError, naming the file, if it is no journal, can't be read or is damaged
    in its middle.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.complete = False
        self.ended_early: str | None = "the end mark is missing"
        self.events = 0

    def __iter__(self) -> Iterator[Op]:
        try:
            file = self.path.open("rb")
        except OSError as error:
            raise UserError(f"The journal {self.path} can't be read: {error.strerror}.") from error
        with file:
            decoder = _event_decoder(self.path, _read_header(self.path, file))
            self.complete, self.events = False, 0
            while (block := self._block(file)) is not None:
                for row in self._decode(decoder, block):
                    self.events += 1
                    yield Op(*row)

    def _block(self, file: BinaryIO) -> bytes | None:
        """The next sealed block's payload, or None at the end of the sealed prefix (with the reason noted)."""
        begin = file.tell()
        block = _read_block(file)
        if isinstance(block, str):
            if _sealed_behind(file, begin):
                raise UserError(
                    f"The journal {self.path} is damaged at byte {begin} ({block}): sealed blocks stand behind it."
                )
            self.ended_early = block
            return None
        payload, count = block
        if not payload and count == 0:
            self.complete, self.ended_early = True, None
            return None
        return payload

    def _decode(self, decoder: msgspec.msgpack.Decoder[Any], payload: bytes) -> list[Any]:
        try:
            rows: list[Any] = decoder.decode(payload)
        except UNDECODABLE as error:
            raise UserError(f"The journal {self.path} has a block that is not made of events: {error}.") from error
        return rows


def is_journal(path: Path) -> bool:
    """Whether the file begins as a journal does."""
    try:
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def read_journal(path: Path) -> JournalReader:
    """The events of the sealed prefix of a journal, as an iterable that tells how the journal ended."""
    return JournalReader(path)


def _read_block(file: BinaryIO) -> tuple[bytes, int] | str:
    """One block, or in words why there is no further sealed one."""
    frame = file.read(_FRAME.size)
    if not frame:
        return "the end mark is missing"
    if len(frame) < _FRAME.size:
        return "the last block is torn"
    length, checksum, count = _FRAME.unpack(frame)
    if length > _MAX_PAYLOAD_BYTES:
        return "a block's length is damaged"
    payload = file.read(length)
    if len(payload) < length:
        return "the last block is torn"
    if zlib.crc32(payload, count) != checksum:
        return "a block's checksum does not match"
    return payload, count


def _sealed_behind(file: BinaryIO, begin: int) -> bool:
    """Whether anything sealed follows the unreadable block at `begin`.

    Blocks are appended in order, so that a crash leaves a prefix of them: with a sealed one behind it, or the end mark,
    an unreadable block is damage, not the end.
    """
    file.seek(begin + 1)
    rest = file.read()
    if len(rest) >= _FRAME.size and rest.endswith(_frame(b"", 0)):
        return True
    for at in range(len(rest) - _FRAME.size):
        length, checksum, count = _FRAME.unpack_from(rest, at)
        end = at + _FRAME.size + length
        plausible = 0 < count <= min(length, MAX_UNSEALED_EVENTS) and end <= len(rest)
        if plausible and zlib.crc32(memoryview(rest)[at + _FRAME.size : end], count) == checksum:
            return True
    return False


def _read_header(path: Path, file: BinaryIO) -> _Header:
    if file.read(len(MAGIC)) != MAGIC:
        raise UserError(f"{path} is not a journal of assay.")
    block = _read_block(file)
    if isinstance(block, str):
        raise UserError(f"The journal {path} has no readable header ({block}).")
    try:
        header = msgspec.json.decode(block[0], type=_Header)
    except UNDECODABLE as error:
        raise UserError(f"The journal {path} has a header that can't be read: {error}.") from error
    if header.version != JOURNAL_VERSION:
        raise UserError(f"The journal {path} has format version {header.version}; this assay reads {JOURNAL_VERSION}.")
    return header


def _event_decoder(path: Path, header: _Header) -> msgspec.msgpack.Decoder[Any]:
    """Journals written before a field was added to Op stay readable: their fields are a prefix of ours."""
    fields = header.fields
    if fields != _FIELDS[: len(fields)]:
        raise UserError(f"The journal {path} has event fields that this assay does not know: {', '.join(fields)}.")
    row = GenericAlias(tuple, tuple(_HINTS[name] for name in fields))
    return msgspec.msgpack.Decoder(GenericAlias(list, (row,)))
