"""The files of a store that are in use: a manifest that is replaced whole, and files kept as long as anyone reads them.

The manifest names the files in use and the number of the last mutation that is in them. It is written atomically after
the files it names are durable, and files that it no longer names are removed after that. So a crash at any point leaves
the old set or the new one, and perhaps files that nobody names, which the next start removes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from cluster.knobs import Knobs
from cluster.log.envelope import CorruptLog, read_twice, twice
from cluster.log.frames import OtherVersion
from cluster.log.paced import Pace, PacedFile, until_space
from cluster.quorum.ids import MutationId
from cluster.quorum.keys import KeyBytes
from cluster.quorum.partition_store import StoreStats
from cluster.quorum.sorted.blocks import SORTED_FORMAT, BlockPacker
from cluster.quorum.sorted.files import (
    Aside,
    AsideRef,
    FileRef,
    FileWriter,
    SortedFile,
    open_aside,
    open_file,
    write_aside,
)
from harness.ports.api import Ports

_MANIFEST_KIND = 13
_MANIFEST = "manifest"


class StoreManifest(msgspec.Struct, frozen=True, array_like=True):
    """The files in use; mutations up to number `flushed` are in them, or were covered by what is.

    `asides` hold mutations that are not reconciled and that the log may have forgotten.
    """

    version: int
    flushed: int
    files: tuple[FileRef, ...]
    asides: tuple[AsideRef, ...] = ()


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(StoreManifest).decode


@dataclass(frozen=True, slots=True)
class SortedOptions:
    """Sizes of a store. A memtable is flushed when its mutations have taken `memtable_bytes` of the log.

    A block is read whole; of it only the chunks that a reader needs are decoded and merged. Files of similar sizes are
    compacted when there are `fan_in`, at most `most_inputs` at once.
    """

    memtable_bytes: int = 4 << 20
    block_bytes: int = 16 << 10
    chunk_bytes: int = 2 << 10
    fan_in: int = 4
    most_inputs: int = 8


def sorted_options(knobs: Knobs) -> SortedOptions:
    """The sizes that the knobs give."""
    usual = SortedOptions()
    chunk_bytes = min(usual.chunk_bytes, max(1, knobs.block_bytes // 8))
    return replace(usual, memtable_bytes=knobs.memtable_bytes, block_bytes=knobs.block_bytes, chunk_bytes=chunk_bytes)


class LiveFiles:
    """Made by `open`. `files` is the current set; whoever reads pins it first."""

    def __init__(
        self,
        ports: Ports,
        prefix: str,
        pace: Pace,
        stats: StoreStats,
        spawn: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        self._disk, self._clock, self._prefix, self._pace, self.stats = ports.disk, ports.clock, prefix, pace, stats
        self._incarnation, self._spawn = ports.incarnation, spawn
        self._made = 0
        """Files that this life of the node has begun: their names are never used twice."""
        self._pins: dict[str, int] = {}
        """By path how many read a file; no entry is 0."""
        self._obsolete: dict[str, None] = {}
        """Files that the manifest names no more and that somebody reads."""
        self._turn = asyncio.Lock()
        """Held while the manifest is replaced."""
        self.files: tuple[SortedFile, ...] = ()
        """What the durable manifest names."""
        self.asides: tuple[Aside, ...] = ()
        """What it names of mutations that were set aside."""
        self.flushed = 0
        """The number of the last mutation that is in `files`; only rises."""

    async def open(self, leftovers: bool) -> None:
        """Open what the manifest names and remove everything else, or all of it if it is `leftovers` of another life.

        Raises CorruptLog, OtherVersion.
        """
        paths = self._disk.list(self._prefix)
        manifest = None if leftovers or self._manifest_path not in paths else await self._read_manifest()
        named: list[str] = []
        if manifest is not None:
            named = [*(ref.path for ref in manifest.files), *(ref.path for ref in manifest.asides)]
        keep = frozenset([*named, *([] if manifest is None else [self._manifest_path])])
        # A manifest whose replica is gone goes first: it names files that would be missing.
        for path in sorted(paths, key=lambda path: path != self._manifest_path):
            if path not in keep:
                await self._disk.remove(path)
        if manifest is not None:
            self.flushed = manifest.flushed
            self.files = tuple([await open_file(self._disk, ref, self.stats) for ref in manifest.files])
            self.asides = tuple([await open_aside(self._disk, ref, self.stats) for ref in manifest.asides])

    def writer(self, options: SortedOptions) -> FileWriter:
        """A new file, at a path that was never used before."""
        packer = BlockPacker(options.block_bytes, options.chunk_bytes)
        return FileWriter(self._disk, self._new_file(), packer, self.stats)

    async def set_aside(self, mutations: Iterable[tuple[int, MutationId, KeyBytes, bytes]]) -> Aside | None:
        """Keep mutations, by number, in a file beside the others; None if there are none."""
        made = await write_aside(self._new_file(), self._disk, mutations, self.stats)
        if made is not None:
            async with self._turn:
                await self._replace_manifest(self.files, (*self.asides, made), self.flushed)
        return made

    async def drop_asides(self, bound: int) -> None:
        """What every replica has is kept aside no more."""
        async with self._turn:
            gone = [each for each in self.asides if each.ref.above <= bound]
            if not gone:
                return
            kept = tuple(each for each in self.asides if each.ref.above > bound)
            await self._replace_manifest(self.files, kept, self.flushed)
        for each in gone:
            await self._disk.remove(each.ref.path)

    def aside(self, number: int) -> Aside | None:
        """The file in which the mutation of this number was set aside."""
        return next((each for each in self.asides if number in each), None)

    def _new_file(self) -> PacedFile:
        self._made += 1
        path = f"{self._prefix}{self._incarnation:08d}-{self._made:08d}"
        return PacedFile(self._disk, self._clock, path, self._pace)

    async def install(self, added: SortedFile | None, replaced: Sequence[SortedFile], flushed: int | None) -> None:
        """Use a file, in the place of others, once the manifest says so durably."""
        async with self._turn:
            gone = frozenset(file.ref.path for file in replaced)
            files = [file for file in self.files if file.ref.path not in gone]
            files += [] if added is None else [added]
            number = self.flushed if flushed is None else flushed
            await self._replace_manifest(tuple(files), self.asides, number)
        for file in replaced:
            self._obsolete[file.ref.path] = None
            self._remove_unread(file.ref.path)

    def pin(self) -> tuple[SortedFile, ...]:
        """The current files, kept on the disk until they were unpinned."""
        for file in self.files:
            self._pins[file.ref.path] = self._pins.get(file.ref.path, 0) + 1
        return self.files

    def unpin(self, files: Sequence[SortedFile]) -> None:
        """One reader less."""
        for file in files:
            path = file.ref.path
            self._pins[path] -= 1
            if not self._pins[path]:
                del self._pins[path]
                self._remove_unread(path)

    def oldest_elsewhere(self, place: bytes, beside: Sequence[SortedFile]) -> int | None:
        """The lowest timestamp that other files than these may hold of the partition at a place."""
        paths = frozenset(file.ref.path for file in beside)
        others = [file for file in self.files if file.ref.path not in paths and file.may_hold(place)]
        return min((file.footer.oldest for file in others), default=None)

    async def _replace_manifest(self, files: tuple[SortedFile, ...], asides: tuple[Aside, ...], flushed: int) -> None:
        """Durable first, and then in use."""
        refs = tuple([file.ref for file in files])
        data = twice(
            _MANIFEST_KIND, _encode(StoreManifest(SORTED_FORMAT, flushed, refs, tuple([a.ref for a in asides])))
        )
        await until_space(lambda: self._disk.write_atomic(self._manifest_path, data), self._clock, self._pace.retry_s)
        self.stats.written_bytes += len(data)
        self.files, self.asides, self.flushed = files, asides, flushed

    @property
    def _manifest_path(self) -> str:
        return self._prefix + _MANIFEST

    async def _read_manifest(self) -> StoreManifest:
        path = self._manifest_path
        try:
            manifest = _decode(await read_twice(self._disk, path, _MANIFEST_KIND))
        except msgspec.MsgspecError as error:
            raise CorruptLog(f"{path}: {error}") from error
        if manifest.version != SORTED_FORMAT:
            raise OtherVersion(f"{path}: it has format {manifest.version}; this program reads {SORTED_FORMAT}")
        return manifest

    def _remove_unread(self, path: str) -> None:
        if path in self._obsolete and path not in self._pins:
            del self._obsolete[path]
            self._spawn(self._disk.remove(path))
