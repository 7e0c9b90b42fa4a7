"""EDN in parts: a folder of files that are one text end to end, with a manifest that says so.

A part holds whole lines, those of a bounded number of operations; the manifest, which is written last, names the parts
in order with their sizes and checksums. So `cat part-*.edn` is the history as other tools read it, and none of them can
go missing, be exchanged or be damaged unnoticed.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from checkers.importers.blocks import Data
from checkers.importers.jepsen import IN_MEMORY_BYTES, on_disk
from harness.errors import UNDECODABLE, UserError

MANIFEST: Final = "parts.json"
"""Not that of a saved history, which has parts in Parquet."""

_VERSION: Final = 1
_CHUNK: Final = 1 << 22


class TextPart(msgspec.Struct, frozen=True):
    """One file: its size, and its checksum."""

    file: str
    bytes: int
    crc32: int


class _Manifest(msgspec.Struct, frozen=True):
    parts: tuple[TextPart, ...]
    crc32: int
    """Of all that is above, for a manifest can be damaged too."""

    version: int = _VERSION


def write_text_parts(folder: Path, cuts: Iterable[Iterable[str]]) -> None:
    """Write the lines of each part (without their ends), and the manifest; OSError if they can't be written."""
    folder.mkdir()
    parts = tuple(_written(folder / f"part-{number:05d}.edn", lines) for number, lines in enumerate(cuts))
    (folder / MANIFEST).write_bytes(msgspec.json.encode(_Manifest(parts, _checksum(parts))) + b"\n")


def _written(path: Path, lines: Iterable[str]) -> TextPart:
    size = crc = 0
    with path.open("wb") as file:
        for line in lines:
            data = f"{line}\n".encode()
            size, crc = size + file.write(data), zlib.crc32(data, crc)
    return TextPart(path.name, size, crc)


def _checksum(parts: tuple[TextPart, ...]) -> int:
    return zlib.crc32(msgspec.json.encode(parts))


def has_text_parts(path: Path) -> bool:
    """Whether a path is a folder of parts of a text; raises UserError where nobody may look into it."""
    try:
        return (path / MANIFEST).is_file()
    except PermissionError as error:
        raise UserError(f"{path} can't be read: {error.strerror}.") from error


def text_of_parts(path: Path) -> Data:
    """The whole text, on disk if it is long; raises UserError for parts that are missing or not those that the manifest
    means, and for others beside them."""
    parts = _parts(path)
    known = {part.file for part in parts}
    for other in sorted(path.glob("*.edn")):
        if other.name not in known:
            raise UserError(f"{path} holds {other.name}, which its manifest does not name.")
    pieces = (piece for part in parts for piece in _pieces(path / part.file, part))
    return on_disk(pieces) if sum(part.bytes for part in parts) > IN_MEMORY_BYTES else b"".join(pieces)


def _parts(path: Path) -> tuple[TextPart, ...]:
    try:
        manifest = msgspec.json.decode((path / MANIFEST).read_bytes(), type=_Manifest)
    except OSError as error:
        raise UserError(f"{path / MANIFEST} can't be read: {error.strerror}.") from error
    except UNDECODABLE as error:
        raise UserError(f"{path} has a manifest that can't be read: {error}.") from error
    if manifest.version != _VERSION:
        raise UserError(f"{path} was written by another version of assay; this one reads version {_VERSION}.")
    if not manifest.parts or _checksum(manifest.parts) != manifest.crc32:
        raise UserError(f"{path} is damaged: its manifest's checksum does not match.")
    return manifest.parts


def _pieces(path: Path, part: TextPart) -> Iterator[bytes]:
    size = crc = 0
    try:
        with path.open("rb") as file:
            while piece := file.read(_CHUNK):
                size, crc = size + len(piece), zlib.crc32(piece, crc)
                yield piece
    except FileNotFoundError as error:
        raise UserError(f"{path} is missing.") from error
    except OSError as error:
        raise UserError(f"{path} can't be read: {error.strerror}.") from error
    if (size, crc) != (part.bytes, part.crc32):
        raise UserError(f"{path} is not the part that the manifest means, or it is damaged: its checksum is another.")
