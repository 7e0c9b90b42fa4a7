"""Writes histories: one sealed Parquet file, or a folder of such parts with a manifest (`harness.history.saved`)."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from harness.atomic_write import atomic_write, no_scratch, scratch_folder
from harness.errors import UnwritableError, UserError
from harness.history.address import Address, Place, exists, file_system, is_folder, names_in, one_line
from harness.history.breadth import breadth_of_file, breadth_of_rows
from harness.history.columns import (
    DICTIONARY_KEY,
    NO_PURPOSE,
    PURPOSE_KEY,
    SCHEMA,
    SCHEMA_VERSION,
    VERSION_KEY,
    Purpose,
)
from harness.history.saved import (
    ADDRESS_COLUMNS,
    MANIFEST,
    PART_KEY,
    Manifest,
    Part,
    by_statistics,
    encode_manifest,
)
from harness.history.seal import KEY as SEAL_KEY
from harness.history.seal import seal

PART_ROWS: Final = 10_000_000
"""The most operations that a part has, so that a task can read one."""

ROWS_PER_GROUP: Final = 65_536

Dictionary: TypeAlias = bytes | Callable[[], bytes]
"""Interned foreign values as JSON, or what tells them in the end."""

_PARQUET_OPTIONS: Final[dict[str, Any]] = {
    "compression": "zstd",
    "use_dictionary": [
        *("type", "phase", "f", "mode", "node", "clock", "error_class", "error"),
        *("data_centre", "replication", "replicas", "region", "route"),
        *("mops.list.element.f", "mops.list.element.values.list.element"),
    ],
    "write_page_checksum": True,
}


def schema(dictionary: bytes = b"[]") -> pa.Schema:
    """The history schema with the version and the dictionary that files state in their metadata."""
    return SCHEMA.with_metadata({VERSION_KEY: str(SCHEMA_VERSION).encode(), DICTIONARY_KEY: dictionary})


def parquet_writer(path: Path, schema: pa.Schema) -> pq.ParquetWriter:
    """A writer of history tables: compressed, with a checksum of every page, so that damage is found in reading."""
    return pq.ParquetWriter(path, schema, **_PARQUET_OPTIONS)


def write_history(
    batches: Iterable[pa.RecordBatch],
    place: Place,
    *,
    part_rows: int = PART_ROWS,
    dictionary: Dictionary = b"[]",
    purpose: Purpose = NO_PURPOSE,
) -> int:
    """Write batches of the history table in order of invocation, a row group each (several if operations are broad),
    and return the number of rows.

    At a path, what fits into one part is one file, and what does not is a folder of parts; at an address it is always a
    folder. It appears whole or not at all: the manifest is written last. `dictionary` are the interned foreign values
    as JSON; a function is asked for them once all batches are written; `purpose` is what the history says that it was
    made for. Raises UserError for an address at which there is something, UnwritableError if it can't be written.
    """
    if isinstance(place, Path):
        unfinished: Path | None = None
        try:
            with atomic_write(place, f"The history {place}") as unfinished:
                parts = unfinished.with_name(unfinished.name + ".parts")
                return _write_locally(batches, unfinished, _PartsWriter(parts, part_rows, dictionary, purpose))
        except BaseException:
            if unfinished is not None:  # a folder of parts, which could not take the place of what is there
                shutil.rmtree(unfinished, ignore_errors=True)
            raise
    if (is_folder(place) and names_in(place)) or exists(place):
        raise UserError(f"{place} is there already; name another place.")
    with scratch_folder("parts") as folder:
        writer = _PartsWriter(Path(folder), part_rows, dictionary, purpose, always_parts=True)
        return _write_remotely(batches, place, writer)


def _write_locally(batches: Iterable[pa.RecordBatch], unfinished: Path, writer: _PartsWriter) -> int:
    parts: list[Part] = []
    try:
        shutil.rmtree(writer.folder, ignore_errors=True)
        writer.folder.mkdir()
        for part in writer.write(batches):
            parts.append(part)
        manifest = writer.manifest(parts)
        if len(parts) == 1:
            (writer.folder / parts[0].file).replace(unfinished)
        else:
            (writer.folder / MANIFEST).write_bytes(encode_manifest(manifest))
            writer.folder.replace(unfinished)
        return manifest.rows
    finally:
        shutil.rmtree(writer.folder, ignore_errors=True)


def _write_remotely(batches: Iterable[pa.RecordBatch], place: Address, writer: _PartsWriter) -> int:
    system, path = file_system(place)
    parts = []
    with _told_as_unwritable(place), _removed_if_unfinished(system, path):
        system.create_dir(path, recursive=True)
        for part in _kept_for_a_while(writer.write(batches)):
            _upload(writer.folder / part.file, system, f"{path}/{part.file}")
            (writer.folder / part.file).unlink()
            parts.append(part)
        manifest = writer.manifest(parts)
        with system.open_output_stream(f"{path}/{MANIFEST}") as file:
            file.write(encode_manifest(manifest))
    return manifest.rows


@contextmanager
def _removed_if_unfinished(system: Any, path: str) -> Iterator[None]:
    """Parts without their manifest are no history, and would keep the next one from that address."""
    try:
        yield
    except BaseException:
        with suppress(OSError):
            system.delete_dir(path)
        raise


def _kept_for_a_while(parts: Iterator[Part]) -> Iterator[Part]:
    """The parts; that they can't be written here says nothing of the address that they are for."""
    try:
        yield from parts
    except OSError as error:
        raise no_scratch(error) from error


def _upload(source: Path, system: Any, target: str) -> None:
    with source.open("rb") as file, system.open_output_stream(target) as out:
        shutil.copyfileobj(file, out, 1 << 22)


@contextmanager
def _told_as_unwritable(place: Place) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UnwritableError(f"The history {place} can't be written: {one_line(error)}.") from error


class _PartsWriter:
    """Writes parts to a folder one after the other; a history of one part is marked as whole unless `always_parts`."""

    def __init__(
        self, folder: Path, part_rows: int, dictionary: Dictionary, purpose: Purpose, always_parts: bool = False
    ) -> None:
        self.folder, self._part_rows, self._dictionary = folder, max(1, part_rows), dictionary
        self._purpose, self._always = purpose, always_parts
        self._varies, self._states = {"partition"}, set[str]()

    def write(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Part]:
        """The parts, each when it is whole; at least one."""
        number = 0
        source = _cut(batches, self._part_rows)
        following = next(source, None)
        while following is not None or not number:
            path = self.folder / f"part-{number:05d}.parquet"
            told = _Told()
            plain = {VERSION_KEY: str(SCHEMA_VERSION).encode(), SEAL_KEY: b"crc32"}
            with parquet_writer(path, SCHEMA.with_metadata(plain)) as writer:
                while following is not None and told.rows + following.num_rows <= self._part_rows:
                    batch = following.cast(SCHEMA.with_metadata(plain))
                    writer.write_batch(
                        batch, row_group_size=breadth_of_rows(batch).rows_at_once(max(1, batch.num_rows))
                    )
                    told.add(batch)
                    following = next(source, None)
                whole = not number and following is None and not self._always
                writer.add_key_value_metadata(self._marks(number, whole))
            yield self._part(path, told)
            number += 1

    def _told_dictionary(self) -> str:
        told = self._dictionary if isinstance(self._dictionary, bytes) else self._dictionary()
        return told.decode()

    def _marks(self, number: int, whole: bool) -> dict[str, str]:
        if whole:
            purpose = msgspec.json.encode(self._purpose).decode()
            return {DICTIONARY_KEY.decode(): self._told_dictionary(), PURPOSE_KEY.decode(): purpose}
        return {DICTIONARY_KEY.decode(): "[]", PART_KEY.decode(): str(number)}

    def _part(self, path: Path, told: _Told) -> Part:
        footer = pq.read_metadata(path)
        varies, states = by_statistics(footer)
        self._varies.update(varies)
        self._states.update(states)
        _, mops, values = breadth_of_file(footer)
        span = (told.first, told.last, told.highest)
        return Part(path.name, told.rows, footer.num_row_groups, *span, seal(path, _ranges(footer)), mops, values)

    def manifest(self, parts: list[Part]) -> Manifest:
        """The manifest of the parts that were written."""
        varies = tuple(name for name in ADDRESS_COLUMNS if name in self._varies)
        states = tuple(sorted(self._states))
        return Manifest(tuple(parts), self._told_dictionary(), varies, states, purpose=self._purpose)


def _ranges(footer: Any) -> list[tuple[int, int]]:
    """Where the bytes of each row group begin and end."""
    found = []
    for group in map(footer.row_group, range(footer.num_row_groups)):
        chunks = [group.column(place) for place in range(group.num_columns)]
        begins = [chunk.dictionary_page_offset or chunk.data_page_offset for chunk in chunks]
        ends = [begin + chunk.total_compressed_size for begin, chunk in zip(begins, chunks, strict=True)]
        found.append((min(begins), max(ends)))
    return found


class _Told:
    """What a manifest says of a part's operations."""

    def __init__(self) -> None:
        self.rows, self.first, self.last, self.highest = 0, -1, -1, -1

    def add(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        invoke = batch.column("invoke_index")
        self.rows += batch.num_rows
        self.first = self.first if self.first >= 0 else invoke[0].as_py()
        self.last = invoke[-1].as_py()
        completed = pc.max(batch.column("complete_index")).as_py()
        self.highest = max(self.highest, self.last, -1 if completed is None else completed)


def _cut(batches: Iterable[pa.RecordBatch], part_rows: int) -> Iterator[pa.RecordBatch]:
    """The batches, cut where a part is full."""
    room = part_rows
    for batch in batches:
        while batch.num_rows > room:
            if room:
                yield batch.slice(0, room)
            batch, room = batch.slice(room), part_rows
        if batch.num_rows:
            yield batch
            room -= batch.num_rows
