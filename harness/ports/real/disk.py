"""Files under one directory, with explicit durability. Implements `harness.ports.api.Disk`."""

from __future__ import annotations

import asyncio
import errno
import itertools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from harness.ports.api import DiskFull, Failpoints
from harness.ports.failpoints import SYNC, pass_by

T = TypeVar("T")

_TEMPORARY = ".new"
_THREADS = 2
_LARGE_BYTES = 1 << 20
"""From here on even a write to the page cache takes long."""


class _File:
    """An open file: `size` bytes of it are written, `tail` is still in the process (torture mode only).

    `fd` is None until something is written; `named` once its directory entry is durable.
    """

    __slots__ = ("fd", "lock", "named", "size", "tail")

    def __init__(self, fd: int | None, size: int, named: bool) -> None:
        self.fd = fd
        self.size = size
        self.named = named
        self.tail = bytearray()
        self.lock = asyncio.Lock()


class RealDisk:
    """A data directory, used by one process at a time.

    In torture mode what was appended stays in the process until `fsync`, so that SIGKILL loses it as a power cut would
    (the page cache alone survives a kill). Durable operations run on a small thread pool.
    """

    def __init__(self, directory: Path, torture: bool = False, failpoints: Failpoints | None = None) -> None:
        self._root = directory
        self._torture = torture
        self._failpoints = failpoints
        self._files: dict[str, _File] = {}
        self._serial = itertools.count()
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="disk")
        directory.mkdir(parents=True, exist_ok=True)
        for leftover in directory.rglob(f"*{_TEMPORARY}"):
            leftover.unlink()

    async def append(self, path: str, data: bytes) -> None:
        file = self._files.get(path) or self._open(path, create=True)
        if self._torture:
            self._require_space(len(file.tail) + len(data))
            file.tail += data
        else:
            async with file.lock:  # an fsync or truncation under way works on the size as it was
                if len(data) < _LARGE_BYTES:
                    self._write(path, file, data)
                else:
                    await self._in_thread(lambda: self._write(path, file, data))
                file.size += len(data)

    async def fsync(self, path: str) -> None:
        file = self._files.get(path) or self._open(path)
        async with file.lock:
            data = bytes(file.tail)
            await self._durably(lambda: self._write_and_sync(path, file, data))
            file.size += len(data)
            del file.tail[: len(data)]

    async def read(self, path: str) -> bytes:
        file = self._files.get(path) or self._open(path)
        written = _read(file.fd, file.size) if file.fd is not None else b""
        return written + bytes(file.tail)

    async def read_at(self, path: str, offset: int, length: int) -> bytes:
        file = self._files.get(path) or self._open(path)
        size, tail = file.size, bytes(file.tail[max(0, offset - file.size) : max(0, offset + length - file.size)])
        if file.fd is None or offset >= size:
            return tail
        fd = file.fd
        return await self._in_thread(lambda: _read(fd, min(offset + length, size), offset)) + tail

    async def truncate(self, path: str, length: int) -> None:
        file = self._files.get(path) or self._open(path)
        async with file.lock:
            if length < file.size:
                fd = self._descriptor(path, file)
                await self._durably(lambda: _cut(fd, length))
                file.size = length
                file.tail.clear()
            else:
                del file.tail[length - file.size :]

    async def rename(self, source: str, target: str) -> None:
        file = self._files.get(source) or self._open(source)
        async with file.lock:
            self._descriptor(source, file)
            await self._durably(lambda: self._rename(source, target))
            file.named = True
            self._forget(target)
            self._files[target] = self._files.pop(source)

    async def remove(self, path: str) -> None:
        file = self._files.get(path)
        if file is None:
            await self._durably(lambda: self._unlink(path))
            return
        async with file.lock:
            await self._durably(lambda: self._unlink(path))
            self._forget(path)

    async def write_atomic(self, path: str, data: bytes) -> None:
        file = self._files.get(path) or _File(None, 0, named=False)
        async with file.lock:
            await self._durably(lambda: self._replace(path, data))
            self._forget(path)

    def list(self, prefix: str) -> list[str]:
        found = {path: None for path, file in self._files.items() if file.fd is None}
        for folder, _, names in os.walk(self._root):
            inside = os.path.relpath(folder, self._root)
            found.update({os.path.normpath(os.path.join(inside, name)): None for name in names})
        return sorted(path for path in found if path.startswith(prefix) and not path.endswith(_TEMPORARY))

    def close(self) -> None:
        """Let go of the files; what was not synced in torture mode is lost."""
        self._threads.shutdown(wait=True)
        for path in list(self._files):
            self._forget(path)

    # ---- files ----

    def _place(self, path: str) -> Path:
        if path.startswith("/") or ".." in path.split("/") or path.endswith(_TEMPORARY):
            raise ValueError(f"{path!r} is no path of this disk")
        return self._root / path

    def _open(self, path: str, create: bool = False) -> _File:
        place = self._place(path)
        if place.exists():
            fd = os.open(place, os.O_RDWR | os.O_APPEND)
            file = _File(fd, os.fstat(fd).st_size, named=True)
        elif create:
            file = _File(None, 0, named=False)
        else:
            raise FileNotFoundError(path)
        self._files[path] = file
        return file

    def _descriptor(self, path: str, file: _File) -> int:
        if file.fd is None:
            place = self._place(path)
            _make_directory(place.parent)
            file.fd = os.open(place, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
        return file.fd

    def _forget(self, path: str) -> None:
        file = self._files.pop(path, None)
        if file is not None and file.fd is not None:
            os.close(file.fd)

    def _write(self, path: str, file: _File, data: bytes) -> None:
        fd = self._descriptor(path, file)
        try:
            _write_all(fd, data)
        except OSError as error:
            os.ftruncate(fd, file.size)
            raise _disk_error(error) from error

    def _require_space(self, more: int) -> None:
        state = os.statvfs(self._root)
        if state.f_bavail * state.f_frsize < more:
            raise DiskFull(errno.ENOSPC, "no space left on the data directory's file system")

    # ---- in threads ----

    async def _durably(self, work: Callable[[], T]) -> T:
        if self._failpoints is not None:
            await pass_by(self._failpoints, SYNC)
        return await self._in_thread(work)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def _write_and_sync(self, path: str, file: _File, data: bytes) -> None:
        if data:
            self._write(path, file, data)
        fd = self._descriptor(path, file)
        os.fsync(fd)
        if not file.named:
            _sync_directory(self._place(path).parent)
            file.named = True

    def _rename(self, source: str, target: str) -> None:
        place = self._place(target)
        _make_directory(place.parent)
        os.replace(self._place(source), place)
        _sync_directory(place.parent)
        if self._place(source).parent != place.parent:
            _sync_directory(self._place(source).parent)

    def _unlink(self, path: str) -> None:
        place = self._place(path)
        if place.exists():
            place.unlink()
            _sync_directory(place.parent)

    def _replace(self, path: str, data: bytes) -> None:
        place = self._place(path)
        new = place.with_name(f"{place.name}.{next(self._serial)}{_TEMPORARY}")
        _make_directory(place.parent)
        fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        try:
            _write_all(fd, data)
            os.fsync(fd)
        except OSError as error:
            new.unlink()
            raise _disk_error(error) from error
        finally:
            os.close(fd)
        os.replace(new, place)
        _sync_directory(place.parent)


def _disk_error(error: OSError) -> OSError:
    return DiskFull(*error.args) if error.errno in (errno.ENOSPC, errno.EDQUOT) else error


def _write_all(fd: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]


def _read(fd: int, end: int, offset: int = 0) -> bytes:
    parts: list[bytes] = []
    while offset < end and (part := os.pread(fd, end - offset, offset)):
        parts.append(part)
        offset += len(part)
    return b"".join(parts)


def _cut(fd: int, length: int) -> None:
    os.ftruncate(fd, length)
    os.fsync(fd)


def _make_directory(directory: Path) -> None:
    """Make a directory and those above it, durably."""
    missing = [place for place in (directory, *directory.parents) if not place.exists()]
    for place in reversed(missing):
        place.mkdir(exist_ok=True)
        _sync_directory(place.parent)


def _sync_directory(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
