"""Saved histories and their one reader: a Parquet file, or a folder of parts with a manifest, wherever they are.

A history in parts is one run: each part is a sealed Parquet file (`harness.history.seal`) of consecutive operations,
and the manifest, which is written last, says in which order they come, what is in each and what its checksum is. A part
by itself is no history. Whoever reads a part finds out whether it is the one that the manifest means; a reader is small
and picklable whatever the history's length, for workers read the manifest themselves.
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from harness.errors import UNDECODABLE, UserError
from harness.history.address import Place, info, is_folder, names_in, one_line, opened
from harness.history.breadth import Breadth, breadth_of_file
from harness.history.columns import (
    DICTIONARY_KEY,
    LATER_COLUMNS,
    PURPOSE_KEY,
    SCHEMA,
    SCHEMA_VERSION,
    VERSION_KEY,
    Purpose,
)
from harness.history.cores import in_order
from harness.history.seal import KEY as SEAL_KEY
from harness.history.seal import Seal, check_seal, footer_is_whole, read_seal

R = TypeVar("R")

MANIFEST: Final = "manifest.json"
PART_KEY: Final = b"assay.history.part"
"""Metadata key of files that are parts, so that none of them is taken for a history."""

ADDRESS_COLUMNS: Final = ("table", "partition", "row", "column")
"""What addresses a cell."""

BATCH_ROWS: Final = 1 << 17

_LEAST_BATCH_ROWS: Final = 1 << 13

_MOST_READ_AT_ONCE: Final = 1 << 16
"""Operations in row groups that one thread reads."""

_MANIFEST_VERSION: Final = 1
TEXTS: Final = ("type", "f", "error_class", "mode")
"""Columns of few texts, which are read as dictionaries."""


class Part(msgspec.Struct, frozen=True):
    """One file: its operations and row groups by number, the invocations and the `highest` event that it reaches; its
    seal; and how many micro-operations and elements of lists they have (`Breadth`; -1: only its footer says)."""

    file: str
    rows: int
    groups: int
    first: int
    last: int
    highest: int
    seal: Seal
    mops: int = -1
    values: int = -1


class Manifest(msgspec.Struct, frozen=True):
    """What a history consists of, its parts in order. `varies` are the parts of cells' addresses that are not zero
    throughout, `states` the `LATER_COLUMNS` that are not null throughout; `dictionary` are the interned foreign values
    of all parts, as JSON."""

    parts: tuple[Part, ...]
    dictionary: str
    varies: tuple[str, ...]
    states: tuple[str, ...]
    schema_version: int = SCHEMA_VERSION
    version: int = _MANIFEST_VERSION
    purpose: Purpose = Purpose()

    @property
    def rows(self) -> int:
        """How many operations."""
        return sum(part.rows for part in self.parts)

    @property
    def groups(self) -> int:
        """How many row groups."""
        return sum(part.groups for part in self.parts)


class _Stated(msgspec.Struct, frozen=True):
    """A manifest as it is saved, with its own checksum."""

    manifest: msgspec.Raw
    crc32: int


def encode_manifest(manifest: Manifest) -> bytes:
    """The manifest as its file has it."""
    raw = msgspec.json.encode(manifest)
    return msgspec.json.encode(_Stated(msgspec.Raw(raw), zlib.crc32(raw))) + b"\n"


def decode_manifest(data: bytes, place: Place) -> Manifest:
    """The manifest that its file's bytes are; raises UserError if they are none, or contradict themselves."""
    try:
        stated = msgspec.json.decode(data, type=_Stated)
        if zlib.crc32(stated.manifest) != stated.crc32:
            raise UserError(f"{place} is damaged: its manifest's checksum does not match.")
        manifest = msgspec.json.decode(stated.manifest, type=Manifest)
    except UNDECODABLE as error:
        raise UserError(f"{place} has a manifest that can't be read: {one_line(error)}.") from error
    if manifest.version != _MANIFEST_VERSION or manifest.schema_version != SCHEMA_VERSION:
        raise UserError(f"{place} was written by another version of assay; this one reads version {SCHEMA_VERSION}.")
    names = [part.file for part in manifest.parts]
    if len(set(names)) < len(names) or not names:
        raise UserError(f"{place} has a manifest that names no parts, or one of them twice.")
    if outside := [name for name in names if name != Path(name).name]:
        raise UserError(f"{place} has a manifest that names {outside[0]!r}, which is no file beside it.")
    for before, after in pairwise(part for part in manifest.parts if part.rows):
        if after.first <= before.last:
            raise UserError(f"{place} has a manifest whose parts are not in order: {after.file} begins too early.")
    return manifest


@dataclass(frozen=True, slots=True)
class HistoryReader:
    """Picklable: reads a history at `place`, which must be what it was when it had this `stamp`."""

    place: Place
    stamp: str

    @property
    def manifest(self) -> Manifest:
        """What there is to read; of a file by itself, one part."""
        return _manifest(self.place, self.stamp)

    @property
    def dictionary(self) -> tuple[str, ...]:
        """The interned foreign values, as text, which a process decodes once."""
        return _dictionary(self.place, self.stamp)

    def absolute(self) -> HistoryReader:
        """This history as processes find it that have another working directory."""
        return HistoryReader(self.place.resolve(), self.stamp) if isinstance(self.place, Path) else self

    def batches(
        self,
        columns: Sequence[str],
        groups: range | None = None,
        batch_rows: int = BATCH_ROWS,
        texts: Sequence[str] = TEXTS,
    ) -> Iterator[pa.RecordBatch]:
        """The given Parquet columns in order of invocation, of some of the row groups (counted through all parts) or
        all, those in `texts` as dictionaries. Raises UserError for parts that are missing, damaged or not those that
        the manifest means."""
        wanted = groups if groups is not None else range(self.manifest.groups)
        for part, own in self._located(wanted):
            coded = [name for name in texts if name in columns]
            yield from self._of_part(part, own, list(columns), coded, batch_rows)

    def mapped(self, columns: Sequence[str], work: Callable[[pa.RecordBatch], R], threads: int) -> Iterator[R]:
        """What `work` makes of each batch, in order. `threads` read and work on row groups at once, in batches so small
        that all together hold about as much as one of `batches`; a large row group is read by this thread."""
        rows = max(_LEAST_BATCH_ROWS, BATCH_ROWS // (2 * threads))

        def of_several(read: range | pa.RecordBatch) -> deque[R]:
            batches = self.batches(columns, read, rows) if isinstance(read, range) else (read,)
            return deque(work(batch) for batch in batches)

        for found in in_order(of_several, self._read_at_once(columns, rows), threads, ahead=threads):
            while found:
                yield found.popleft()

    def _read_at_once(self, columns: Sequence[str], rows: int) -> Iterator[range | pa.RecordBatch]:
        """The row groups, small ones several together, large ones as batches of `rows` operations."""
        begin, held, stop = 0, 0, self.manifest.groups
        for group in range(stop):
            more = self.rows_of(range(group, group + 1))
            if held + more > _MOST_READ_AT_ONCE and begin < group:
                yield range(begin, group)
                begin, held = group, 0
            if more > _MOST_READ_AT_ONCE:
                yield from self.batches(columns, range(group, group + 1), rows)
                begin = group + 1
            else:
                held += more
        if begin < stop:
            yield range(begin, stop)

    def groups_of(self, piece: int, pieces: int) -> range:
        """The row groups of one of `pieces` pieces of about equal size."""
        count = self.manifest.groups
        return range(count * piece // pieces, count * (piece + 1) // pieces)

    def parts_of(self, groups: range) -> Iterator[tuple[int, range]]:
        """The parts (by number) that hold some row groups, with those of them that are in each."""
        begin = 0
        for number, part in enumerate(self.manifest.parts):
            own = range(max(groups.start, begin), min(groups.stop, begin + part.groups))
            if len(own):
                yield number, own
            begin += part.groups

    def rows_of(self, groups: range) -> int:
        """How many operations some row groups have."""
        return sum(self._footer(part).row_group(group).num_rows for part, own in self._located(groups) for group in own)

    def breadth(self) -> Breadth:
        """How much there is to read."""
        found = Breadth()
        for part in self.manifest.parts:
            told = Breadth(part.rows, part.mops, part.values) if part.mops >= 0 else breadth_of_file(self._footer(part))
            found = found.beside(told)
        return found

    def groups_with(self, indices: Any, groups: range | None = None) -> Iterator[int]:
        """The row groups that may hold one of some invocation indices (sorted), by what footers say."""
        begins = np.cumsum([0, *(part.groups for part in self.manifest.parts)])
        for number, own in self.parts_of(groups if groups is not None else range(self.manifest.groups)):
            part = self.manifest.parts[number]
            if part.first >= 0 and not _between(indices, part.first, part.last):
                continue
            footer = self._footer(part)
            place = _names(footer).index("invoke_index")
            for group in own:
                told = footer.row_group(group - int(begins[number])).column(place).statistics
                if told is None or not told.has_min_max or _between(indices, told.min, told.max):
                    yield group

    def first_of(self, group: int) -> int | None:
        """The first invocation of a row group, as manifest or footer have it; None where neither does."""
        ((part, (own,)),) = self._located(range(group, group + 1))
        if own == 0 and part.first >= 0:
            return part.first
        footer = self._footer(part)
        told = footer.row_group(own).column(_names(footer).index("invoke_index")).statistics
        return int(told.min) if told is not None and told.has_min_max else None

    def _located(self, groups: range) -> Iterator[tuple[Part, list[int]]]:
        """The parts that hold row groups, with their own numbers of these."""
        begins = np.cumsum([0, *(part.groups for part in self.manifest.parts)])
        for number, own in self.parts_of(groups):
            yield self.manifest.parts[number], [group - int(begins[number]) for group in own]

    def _of_part(
        self, part: Part, groups: list[int], columns: list[str], texts: list[str], batch_rows: int
    ) -> Iterator[pa.RecordBatch]:
        place = self.place_of_part(part)
        try:
            with self._opened(part, texts) as file:
                lacking = LATER_COLUMNS.intersection(columns).difference(file.schema_arrow.names)
                if any(name.startswith("mops") for name in columns):
                    batch_rows = min(
                        breadth_of_file(file.metadata, [group]).rows_at_once(batch_rows) for group in groups
                    )
                for batch in file.iter_batches(batch_rows, row_groups=groups, columns=columns):
                    yield _with_nulls(batch, lacking) if lacking else batch
        except FileNotFoundError as error:
            raise UserError(f"{place} is missing.") from error
        except (OSError, pa.ArrowException) as error:
            raise damaged(place, error) from error

    def place_of_part(self, part: Part) -> Place:
        """Where a part is."""
        return self.place / part.file if part.file else self.place

    def _opened(self, part: Part, texts: list[str]) -> pq.ParquetFile:
        """A part whose pages are compared with their checksums as they are read."""
        place = self.place_of_part(part)
        source = str(place) if isinstance(place, Path) else opened(place)
        footer = self._footer(part)
        options = {"read_dictionary": texts, "page_checksum_verification": True, "metadata": footer}
        return pq.ParquetFile(source, pre_buffer=not isinstance(place, Path), **options)

    def _footer(self, part: Part) -> Any:
        place = self.place_of_part(part)
        try:
            footer = _footer_of(place, self.stamp, part.seal)
        except FileNotFoundError as error:
            raise UserError(f"{place} is missing.") from error
        except (OSError, pa.ArrowException) as error:
            raise damaged(place, error) from error
        if (footer.num_rows, footer.num_row_groups) != (part.rows, part.groups):
            raise UserError(f"{place} is not the part that the manifest means: it has {footer.num_rows} operations.")
        return footer


def open_saved(place: Place) -> HistoryReader:
    """The reader of the history at a place; raises UserError for what is none of this version, or a part of one.

    What is within the files is not looked at: see `checkers.importers.integrity`.
    """
    if is_folder(place):
        manifest = place / MANIFEST
        reader = HistoryReader(place, f"crc32:{zlib.crc32(_read(manifest)):08x}")
        _require_no_others(place, reader.manifest)
        return reader
    if isinstance(place, Path):
        _require_sealed(place)
    reader = HistoryReader(place, _stamp(place))
    _ = reader.manifest
    return reader


def open_unsealed(path: Path) -> HistoryReader:
    """The reader of a file whose seal is broken, and whose footer is known to be whole."""
    reader = HistoryReader(path, _stamp(path))
    _ = reader.manifest
    return reader


def _require_sealed(path: Path) -> None:
    """A damaged footer can stop a reader of Parquet altogether, so a file is looked at before it is opened."""
    try:
        check_seal(path)
    except OSError as error:
        raise UserError(f"{path} can't be read: {error.strerror}.") from error


def is_parquet(path: Path) -> bool:
    """Whether a path is a file that begins as Parquet does."""
    try:
        with path.open("rb") as file:
            return file.read(4) == b"PAR1"
    except OSError:
        return False


def is_history_folder(place: Place) -> bool:
    """Whether a place is a folder with the manifest of a history."""
    return is_folder(place) and MANIFEST in names_in(place)


def dictionary_of(manifest: Manifest) -> tuple[str, ...]:
    """The interned foreign values of a history, as text; raises one of `UNDECODABLE` or TypeError if they are none."""
    values = msgspec.json.decode(manifest.dictionary)
    return tuple(v if isinstance(v, str) else msgspec.json.encode(v).decode() for v in values)


def damaged(place: Place, error: BaseException) -> UserError:
    """The sentence on a Parquet file that can't be read to its end."""
    return UserError(f"{place} is damaged: it can't be read to its end as Parquet ({one_line(error)}).")


def _between(indices: Any, low: int, high: int) -> bool:
    return bool(np.searchsorted(indices, low) < np.searchsorted(indices, high, side="right"))


def _with_nulls(batch: pa.RecordBatch, lacking: Iterable[str]) -> pa.RecordBatch:
    """The batch with columns of the schema that its file was written without."""
    for name in sorted(lacking):
        field = SCHEMA.field(name)
        batch = batch.append_column(field, pa.nulls(batch.num_rows, field.type))
    return batch


def _require_no_others(place: Place, manifest: Manifest) -> None:
    known = {part.file for part in manifest.parts}
    others = [name for name in names_in(place) if name.endswith(".parquet") and name not in known]
    if others:
        raise UserError(f"{place} holds {others[0]}, which its manifest does not name.")


def _stamp(place: Place) -> str:
    if isinstance(place, Path):
        try:
            told = place.stat()
        except OSError as error:
            raise UserError(f"{place} can't be read: {error.strerror}.") from error
        return f"{told.st_size}:{told.st_mtime_ns}"
    found = info(place)
    return f"{found.size}:{found.mtime_ns}"


def _read(place: Place) -> bytes:
    try:
        with opened(place) as file:
            return bytes(file.read())
    except FileNotFoundError as error:
        raise UserError(f"{place} is missing, so its folder is no whole history.") from error
    except OSError as error:
        raise UserError(f"{place} can't be read: {one_line(error)}.") from error


@lru_cache(maxsize=4)
def _manifest(place: Place, stamp: str) -> Manifest:
    if stamp.startswith("crc32:"):
        data = _read(place / MANIFEST)
        if f"crc32:{zlib.crc32(data):08x}" != stamp:
            raise UserError(f"{place} was changed while it was being read.")
        return decode_manifest(data, place)
    if _stamp(place) != stamp:
        raise UserError(f"{place} was changed while it was being read.")
    return _single(place, stamp)


@lru_cache(maxsize=2)
def _dictionary(place: Place, stamp: str) -> tuple[str, ...]:
    return dictionary_of(_manifest(place, stamp))


@lru_cache(maxsize=16)
def _footer_of(place: Place, stamp: str, seal: Seal) -> Any:
    """A file's footer, which a process reads once."""
    with opened(place) as raw:
        if seal.footer >= 0 and (raw.size() != seal.size or not footer_is_whole(raw, seal)):
            raise UserError(f"{place} is damaged: its checksum does not match.")
    with _plain(place) as file:
        return file.metadata


def _plain(place: Place, footer: Any = None) -> pq.ParquetFile:
    return pq.ParquetFile(str(place) if isinstance(place, Path) else opened(place), metadata=footer)


def _single(place: Place, stamp: str) -> Manifest:
    """The manifest that a file by itself amounts to."""
    try:
        with opened(place) as file:
            seal = read_seal(file)
    except OSError as error:
        raise UserError(f"{place} can't be read: {error.strerror or one_line(error)}.") from error
    try:
        footer = _footer_of(place, stamp, seal or Seal(-1, 0, 0))
        with _plain(place, footer) as file:
            schema = file.schema_arrow
    except (OSError, pa.ArrowException) as error:
        raise UserError(f"{place} is not a whole Parquet file: {one_line(error)}.") from error
    metadata = footer.metadata or {}
    if seal is None and SEAL_KEY in metadata:
        raise UserError(f"{place} is damaged: its checksum is gone.")
    if PART_KEY in metadata:
        raise UserError(f"{place} is one part of a history; name the folder that it is in.")
    check_schema(place, metadata, schema)
    part = Part("", footer.num_rows, footer.num_row_groups, -1, -1, -1, seal or Seal(-1, 0, 0))
    varies, states = by_statistics(footer)
    dictionary = metadata.get(DICTIONARY_KEY, b"[]").decode(errors="replace")
    return Manifest((part,), dictionary, varies, states, purpose=_purpose_of(place, metadata))


def _purpose_of(place: Place, metadata: dict[bytes, bytes]) -> Purpose:
    try:
        return msgspec.json.decode(metadata.get(PURPOSE_KEY, b"{}"), type=Purpose)
    except UNDECODABLE as error:
        raise UserError(f"{place} says what it was made for in words that can't be read: {one_line(error)}.") from error


def check_schema(place: Place, metadata: dict[bytes, bytes], schema: pa.Schema) -> None:
    """Raise UserError unless a file is a history of this version."""
    version = metadata.get(VERSION_KEY)
    if version is None:
        raise UserError(f"{place} is Parquet but not a history of assay: it states no {VERSION_KEY.decode()}.")
    if version != str(SCHEMA_VERSION).encode():
        shown = version.decode(errors="replace")
        raise UserError(f"{place} has history version {shown}; this assay reads version {SCHEMA_VERSION}.")
    for field in SCHEMA:
        at = schema.get_field_index(field.name)
        if at < 0 and field.name in LATER_COLUMNS:
            continue
        if at < 0 or not schema.field(at).type.equals(field.type):
            found = "is missing" if at < 0 else f"is {schema.field(at).type}, not {field.type}"
            raise UserError(f"{place} is not a history of assay: its column {field.name} {found}.")


def _names(footer: Any) -> list[str]:
    return [footer.schema.column(place).path for place in range(footer.num_columns)]


def by_statistics(footer: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What a footer's statistics say of `Manifest.varies` (the partition always) and `Manifest.states`."""
    varies, states = {"partition"}, set[str]()
    for place, path in enumerate(_names(footer)):
        name = path.rsplit(".", 1)[-1]
        if name not in ADDRESS_COLUMNS and path not in LATER_COLUMNS:
            continue
        for group in map(footer.row_group, range(footer.num_row_groups)):
            column = group.column(place)
            told = column.statistics if column.is_stats_set else None
            if path in LATER_COLUMNS:
                if told is None or not told.has_null_count or told.null_count < group.num_rows:
                    states.add(path)
            elif told is None or not told.has_min_max or not told.min == told.max == 0:
                varies.add(name)
    return tuple(name for name in ADDRESS_COLUMNS if name in varies), tuple(sorted(states))
