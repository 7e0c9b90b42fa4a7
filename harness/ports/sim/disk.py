"""A machine's disk in the simulator: unsynced tails are lost or torn at a crash, and it can be full, slow, corrupt.

A file system writes dirty pages when it likes, and the file's length apart from them. So of an unsynced stretch each
page may have reached the disk or not, or some of its sectors only, whatever became of those before it (ALICE, OSDI
2014). A page that did not shows zeros, as fresh blocks do.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal, TypeAlias

from harness.ports.api import DiskFull, Failpoints
from harness.ports.failpoints import READING, SYNC, linger, pass_by
from harness.ports.sim.draws import DISK_KINDS, Draws
from harness.ports.sim.incarnation import Incarnation
from harness.ports.sim.loop import SimLoop
from harness.ports.sim.trace import APPEND, FILE, FSYNC, Trace

Tear: TypeAlias = Literal["prefix", "pages", "stale"]
"""`stale` is `pages`, and where a truncation had cut something off, a page that was lost may show that again."""

PAGE_BYTES = 4096
SECTOR_BYTES = 512


def torn(data: bytes, synced: int, tear: Tear, entropy: random.Random, before: bytes = b"") -> bytes:
    """What is left of a file of which the first `synced` bytes are certain; `before` is what stood there once."""
    if tear == "prefix":
        return data[: synced + entropy.randrange(len(data) - synced)]
    length = len(data) if entropy.random() < 0.5 else entropy.randint(synced, len(data))
    image = bytearray(data[:length])
    for page in range(synced - synced % PAGE_BYTES, length, PAGE_BYTES):
        fate = entropy.randrange(3)
        if fate == 0:
            continue
        step = PAGE_BYTES if fate == 1 else SECTOR_BYTES
        old = before if tear == "stale" and entropy.random() < 0.5 else b""
        for start in range(page, min(page + PAGE_BYTES, length), step):
            if fate == 1 or entropy.random() < 0.5:
                # What was synced of this page or sector is certain: it was written with the same content again.
                low, high = max(start, synced), min(start + step, length)
                image[low:high] = old[low:high].ljust(max(0, high - low), b"\0")
    return bytes(image)


@dataclass(frozen=True, slots=True)
class DiskOptions:
    """`sync_ns`: shortest and longest time of a durable operation (uniform), which takes its turn behind those before
    it; `read_ns`: of a read, which waits for nothing but a disk that hangs. At a crash an unsynced tail is lost with
    probability `lose_tail`, torn in the manner of `tear` with `tear_tail`, and survives otherwise.

    A durable operation begins a time in which the disk hangs with probability `hang`: nothing ends before it is over.
    An append or atomic write begins one in which the disk is full with probability `fill`. Both last between the bounds
    of `episode_ns`, and after each the disk is well for as long: one that is written to all the time would hardly ever
    be. At a crash one bit of something synced is flipped with probability `flip`.
    """

    sync_ns: tuple[int, int] = (200_000, 3_000_000)
    read_ns: tuple[int, int] = (20_000, 300_000)
    lose_tail: float = 0.5
    tear_tail: float = 0.3
    tear: Tear = "prefix"
    hang: float = 0.0
    fill: float = 0.0
    episode_ns: tuple[int, int] = (500_000_000, 5_000_000_000)
    flip: float = 0.0
    capacity_bytes: int | None = None


class _Episodes:
    """Times in which something is wrong with a disk; see `DiskOptions`."""

    __slots__ = ("_well_until_ns", "until_ns")

    def __init__(self) -> None:
        self.until_ns = self._well_until_ns = 0

    def may_begin(self, now_ns: int) -> bool:
        return now_ns >= self._well_until_ns

    def begin(self, now_ns: int, length_ns: int) -> None:
        self.until_ns = now_ns + length_ns
        self._well_until_ns = self.until_ns + length_ns


class _SimFile:
    __slots__ = ("before", "data", "named", "synced")

    def __init__(self, data: bytes, synced: int, named: bool) -> None:
        self.before = b""
        self.data = bytearray(data)
        self.synced = synced
        self.named = named


class SimDisk:
    """The files of one machine, which outlive its processes, and the faults its disk can have.

    `key` is what its generators are made of: reads have one of their own, so that they move nothing else. `full`
    refuses every write; `extra_sync_ns` slows durable operations down; `syncs` counts those that ended, `changes` those
    of them that made, moved or removed a file;
    `damaged` says whether anything that was synced was ever corrupted.
    """

    def __init__(self, loop: SimLoop, options: DiskOptions, key: str, trace: Trace, draws: Draws) -> None:
        self.options = options
        self.full = False
        self.extra_sync_ns = 0
        self.syncs = self.changes = 0
        self.damaged = False
        self._loop = loop
        self._sync_times, self._hangs, self._fills, self._endings, self._tears, self._flips = draws.generators(
            key, DISK_KINDS
        )
        self._read_entropy = draws.generator(f"{key}/reads")
        self._trace = trace
        self._files: dict[str, _SimFile] = {}
        self._pending: dict[int, Callable[[], None]] = {}
        self._fsyncs: dict[int, None] = {}
        self._next_token = 0
        self._hung, self._filled = _Episodes(), _Episodes()
        self._free_ns = 0

    # ---- faults and views of the harness ----

    @property
    def disturbed(self) -> bool:
        """Whether it is full, slow or hangs, by a fault or by chance."""
        by_chance = self._loop.now_ns < max(self._hung.until_ns, self._filled.until_ns)
        return self.full or bool(self.extra_sync_ns) or by_chance

    def paths(self) -> list[str]:
        return sorted(self._files)

    def peek(self, path: str) -> bytes:
        """The file as a process would read it now."""
        return bytes(self.file(path).data)

    def synced_length(self, path: str) -> int:
        """How many bytes of the file a crash would certainly leave."""
        return self.file(path).synced

    def certain(self, path: str) -> tuple[bytearray, int]:
        """The file, not to be changed, and how many bytes of it a crash would leave for certain; none if it is gone."""
        file = self._files.get(path)
        return (bytearray(), 0) if file is None else (file.data, file.synced)

    def flip_bit(self, path: str, bit: int) -> None:
        """Corrupt one bit; bit 0 is the lowest of the first byte."""
        self.damaged = True
        self.file(path).data[bit // 8] ^= 1 << (bit % 8)

    def cut_tail(self, path: str, length: int) -> None:
        """Lose everything from byte `length` on, synced or not."""
        file = self.file(path)
        if self.options.tear == "stale" and length < len(file.data):
            file.before = bytes(file.data)
        del file.data[length:]
        file.synced = min(file.synced, length)

    def shorten(self, path: str, length: int) -> None:
        """Corrupt a file: lose what was synced from byte `length` on."""
        self.damaged = True
        self.cut_tail(path, length)

    def wipe(self) -> None:
        """Lose every file; meant for a dead node."""
        self._files.clear()
        self._pending.clear()
        self._fsyncs.clear()

    def used_bytes(self) -> int:
        return sum(len(file.data) for file in self._files.values())

    def crash(self) -> None:
        """The process or the power went: what was under way happened or not, unsynced tails are lost, torn or kept."""
        for operation in list(self._pending.values()):
            if self._endings.random() < 0.5:
                with suppress(OSError):  # its file may be gone by now, and nobody waits for an answer
                    operation()
        self._pending.clear()
        self._fsyncs.clear()
        self._free_ns = 0
        for path, file in list(self._files.items()):
            if len(file.data) > file.synced:
                self._tear(path, file)
            elif not file.named:
                del self._files[path]
        if self.options.flip and self._flips.random() < self.options.flip:
            self._flip_any_bit()

    def _flip_any_bit(self) -> None:
        written = [path for path, file in sorted(self._files.items()) if file.data]
        if written:
            path = self._flips.choice(written)
            self.flip_bit(path, self._flips.randrange(8 * len(self._files[path].data)))

    def _tear(self, path: str, file: _SimFile) -> None:
        options = self.options
        choice = self._tears.random()
        if choice < options.lose_tail:
            del file.data[file.synced :]
        elif choice < options.lose_tail + options.tear_tail:
            file.data[:] = torn(bytes(file.data), file.synced, options.tear, self._tears, file.before)
        file.synced = len(file.data)
        if file.data:
            file.named = True
        elif not file.named:
            del self._files[path]

    # ---- what ports do ----

    def file(self, path: str) -> _SimFile:
        try:
            return self._files[path]
        except KeyError:
            raise FileNotFoundError(path) from None

    async def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        """What the file that is there now holds at the end of the read, whatever takes its name meanwhile."""
        file = self.file(path)
        low, high = self.options.read_ns
        done_ns = max(self._loop.now_ns, self._hung.until_ns) + self._read_entropy.randint(low, high)
        read: asyncio.Future[None] = self._loop.create_future()
        self._loop.post(done_ns, _resolve, (read,))
        await read
        return bytes(file.data[offset : None if length is None else offset + length])

    def matching(self, prefix: str) -> list[str]:
        return sorted(path for path in self._files if path.startswith(prefix))

    def append(self, path: str, data: bytes, tag: int) -> None:
        self._require_space(len(data))
        file = self._files.get(path)
        if file is None:
            file = self._files[path] = _SimFile(b"", 0, named=False)
        file.data += data
        self._trace.record(APPEND, tag, data)

    def fsync(self, path: str, tag: int) -> asyncio.Future[None]:
        """Begin to make what was appended so far durable; the future is done when it is."""
        file = self._files.get(path) or self.file(path)
        self._next_token = token = self._next_token + 1
        length = len(file.data)
        note, record = path.encode(), self._trace.record
        self._fsyncs[token] = None
        future: asyncio.Future[None] = self._loop.create_future()

        def synced() -> None:
            if self._fsyncs.pop(token, self) is None:
                now_held = len(file.data)
                kept = length if length < now_held else now_held
                if kept > file.synced:
                    file.synced = kept
                file.named = True
                self.syncs += 1
                record(FSYNC, tag, note)
                if not future.done():
                    future.set_result(None)

        self._loop.post(self._done_ns(), synced, ())
        return future

    async def change(self, operation: Callable[[], None], tag: int, note: str) -> None:
        """Carry out an atomic, durable operation; it happens when it ends, or by chance if a crash comes first."""
        token = self._token()
        self._pending[token] = operation
        future = self._loop.create_future()

        def changed() -> None:
            if self._pending.pop(token, None) is None:
                return
            self.syncs += 1
            self.changes += 1
            self._trace.record(FILE, tag, note.encode())
            try:
                operation()
            except OSError as error:  # its file went while it was under way
                if not future.done():
                    future.set_exception(error)
            else:
                if not future.done():
                    future.set_result(None)

        self._loop.post(self._done_ns(), changed, ())
        await future

    def put(self, path: str, data: bytes) -> None:
        self._files[path] = _SimFile(data, len(data), named=True)

    def move(self, source: str, target: str) -> None:
        file = self.file(source)
        del self._files[source]
        file.named = True
        self._files[target] = file

    def drop(self, path: str) -> None:
        self._files.pop(path, None)

    def require_space_for(self, path: str, data: bytes) -> None:
        old = self._files.get(path)
        self._require_space(len(data) - (len(old.data) if old is not None else 0))

    def _require_space(self, more: int) -> None:
        if self.options.fill:
            self._fill_by_chance()
        capacity = self.options.capacity_bytes
        if self.full or (capacity is not None and self.used_bytes() + more > capacity):
            raise DiskFull("no space left on the simulated disk")

    def _fill_by_chance(self) -> None:
        now_ns = self._loop.now_ns
        if self._filled.may_begin(now_ns) and self._fills.random() < self.options.fill:
            self._filled.begin(now_ns, self._fills.randint(*self.options.episode_ns))
        if now_ns < self._filled.until_ns:
            raise DiskFull("no space left on the simulated disk")

    def _token(self) -> int:
        self._next_token += 1
        return self._next_token

    def _done_ns(self) -> int:
        """When a durable operation that begins now ends: a disk carries them out one after the other."""
        low, high = self.options.sync_ns
        delay = low + int(self._sync_times.random() * (high - low)) + self.extra_sync_ns
        now_ns = self._loop.now_ns
        if self.options.hang and self._hung.may_begin(now_ns) and self._hangs.random() < self.options.hang:
            self._hung.begin(now_ns, self._hangs.randint(*self.options.episode_ns))
        self._free_ns = max(now_ns, self._hung.until_ns, self._free_ns) + delay
        return self._free_ns


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class SimDiskPort:
    """The disk as one process sees it; it can't touch anything once the process is dead. Implements `Disk`."""

    __slots__ = ("_disk", "_failpoints", "_owner")

    def __init__(self, disk: SimDisk, owner: Incarnation, failpoints: Failpoints) -> None:
        self._disk = disk
        self._owner = owner
        self._failpoints = failpoints

    async def append(self, path: str, data: bytes) -> None:
        if self._owner.dead:
            self._owner.require_alive()
        self._disk.append(path, data, self._owner.tag)

    def fsync(self, path: str) -> Awaitable[None]:
        if self._failpoints.armed:
            return self._fsync_late(path)
        if self._owner.dead:
            self._owner.require_alive()
        return self._disk.fsync(path, self._owner.tag)

    async def _fsync_late(self, path: str) -> None:
        await self._before_sync()
        await self._disk.fsync(path, self._owner.tag)

    async def read(self, path: str) -> bytes:
        await self._before_reading()
        return await self._disk.read(path)

    async def read_at(self, path: str, offset: int, length: int) -> bytes:
        await self._before_reading()
        return await self._disk.read(path, offset, length)

    async def truncate(self, path: str, length: int) -> None:
        await self._before_sync()
        self._disk.file(path)
        await self._disk.change(lambda: self._disk.cut_tail(path, length), self._owner.tag, f"truncate {path} {length}")

    async def rename(self, source: str, target: str) -> None:
        await self._before_sync()
        self._disk.file(source)
        await self._disk.change(lambda: self._disk.move(source, target), self._owner.tag, f"rename {source} {target}")

    async def remove(self, path: str) -> None:
        await self._before_sync()
        await self._disk.change(lambda: self._disk.drop(path), self._owner.tag, f"remove {path}")

    async def write_atomic(self, path: str, data: bytes) -> None:
        await self._before_sync()
        self._disk.require_space_for(path, data)
        await self._disk.change(lambda: self._disk.put(path, data), self._owner.tag, f"write {path} {len(data)}")

    def list(self, prefix: str) -> list[str]:
        self._owner.require_alive()
        return self._disk.matching(prefix)

    async def _before_reading(self) -> None:
        if self._failpoints.armed:
            await linger(self._failpoints, READING)
        self._owner.require_alive()

    async def _before_sync(self) -> None:
        self._owner.require_alive()
        await pass_by(self._failpoints, SYNC)
        self._owner.require_alive()
