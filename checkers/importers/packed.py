"""What is no history as it lies there: compressed files are unpacked, archives and bytes refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa

from checkers.importers.blocks import Data
from checkers.importers.jepsen import IN_MEMORY_BYTES, on_disk
from harness.errors import UserError

HEAD_BYTES: Final = 1 << 16
"""First bytes of a file, by which its format is known."""

_CODECS: Final = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
_OTHERS: Final = {
    b"PK\x03\x04": "a zip archive",
    b"PK\x05\x06": "a zip archive",
    b"7z\xbc\xaf\x27\x1c": "a 7z archive",
    b"Rar!": "a rar archive",
    b"\xfd7zXZ\0": "compressed with xz",
    b"BZh": "compressed with bzip2",
    b"\x89PNG": "a picture",
    b"%PDF": "a PDF",
    b"\x7fELF": "a program",
    b"SQLite format 3\0": "a database of SQLite",
    b"JEPSEN": "Jepsen's own binary form, which only it reads; it keeps history.edn beside it",
}
_TAR: Final = slice(257, 262)
_CHUNK: Final = 4 << 20


def codec_of(head: bytes) -> str | None:
    """What a file that begins so is compressed with, None for nothing that can be unpacked."""
    return next((codec for magic, codec in _CODECS.items() if head.startswith(magic)), None)


def refuse_foreign(path: Path, head: bytes) -> None:
    """Raise UserError for what begins as no history does."""
    what = next((what for magic, what in _OTHERS.items() if head.startswith(magic)), None)
    what = "a tar archive" if head[_TAR] == b"ustar" else what
    if what is not None:
        raise UserError(f"{path} is {what}, not a history; unpack it and name the history in it.")


def first_bytes(path: Path, codec: str) -> bytes:
    """The first bytes of what a compressed file holds."""
    return next(_pieces(path, codec, HEAD_BYTES), b"")


def unpacked(path: Path, data: Data) -> Data:
    """What a file holds, unpacked if it is compressed; raises UserError for one that is cut off or damaged."""
    codec = codec_of(bytes(data[:8]))
    if codec is None:
        return data
    pieces, held, size = _pieces(path, codec, _CHUNK), list[bytes](), 0
    for piece in pieces:
        held.append(piece)
        size += len(piece)
        if size > IN_MEMORY_BYTES:
            return on_disk(_all(held, pieces))
    return b"".join(held)


def _all(held: list[bytes], pieces: Iterator[bytes]) -> Iterator[bytes]:
    yield from held
    yield from pieces


def _pieces(path: Path, codec: str, size: int) -> Iterator[bytes]:
    try:
        with pa.OSFile(str(path)) as file, pa.CompressedInputStream(file, codec) as stream:
            while piece := stream.read(size):
                yield piece
    except OSError as error:
        raise UserError(f"{path} can't be unpacked by {codec}; it is cut off or damaged.") from error
