"""Locks by key, for reading or for writing, taken in one order: names, then tables, then tablets (M6, step 1)."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from enum import IntEnum
from types import TracebackType
from typing import NamedTuple


class LockClass(IntEnum):
    """The order of acquisition: table locks come before tablet locks."""

    NAME = 0
    TABLE = 1
    TABLET = 2
    SERVER = 3


class LockKey(NamedTuple):
    """What is locked, and whether others may hold it at once: for reading (`shared`), or for writing."""

    lock_class: LockClass
    key: str
    shared: bool = False


class _Lock:
    """Readers or one writer; who waits is served in order of arrival, so that nobody starves."""

    __slots__ = ("_readers", "_waiting", "_writing")

    def __init__(self) -> None:
        self._readers, self._writing = 0, False
        self._waiting: deque[tuple[bool, asyncio.Future[None]]] = deque()

    @property
    def idle(self) -> bool:
        """Whether nobody holds it or waits for it."""
        return not self._readers and not self._writing and not self._waiting

    async def acquire(self, shared: bool) -> None:
        if not self._waiting and self._free(shared):
            self._take(shared)
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((shared, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._waiting = deque(each for each in self._waiting if each[1] is not turn)
                self._grant()
            else:
                self.release(shared)  # It was granted in the same step.
            raise

    def release(self, shared: bool) -> None:
        if shared:
            self._readers -= 1
        else:
            self._writing = False
        self._grant()

    def _grant(self) -> None:
        """Let those in who wait at the front; one that was cancelled has yet to notice it."""
        while self._waiting and (self._waiting[0][1].cancelled() or self._free(self._waiting[0][0])):
            shared, turn = self._waiting.popleft()
            if not turn.cancelled():
                self._take(shared)
                turn.set_result(None)

    def _free(self, shared: bool) -> bool:
        return not self._writing and (shared or not self._readers)

    def _take(self, shared: bool) -> None:
        if shared:
            self._readers += 1
        else:
            self._writing = True


class KeyLocks:
    """Locks by class and key; they exist only while someone holds or awaits them."""

    def __init__(self) -> None:
        self._locks: dict[tuple[LockClass, str], _Lock] = {}

    def __len__(self) -> int:
        return len(self._locks)

    def hold(self, *keys: LockKey) -> Held:
        """An async context that holds the locks of all these keys, acquired in the order of `LockClass`, then key.

        A key that is given both for reading and for writing is locked for writing.
        """
        modes: dict[tuple[LockClass, str], bool] = {}
        for lock_class, key, shared in keys:
            modes[lock_class, key] = shared and modes.get((lock_class, key), True)
        return Held(self, tuple(LockKey(*name, modes[name]) for name in sorted(modes)))

    async def acquire(self, key: LockKey) -> None:
        name = (key.lock_class, key.key)
        lock = self._locks.setdefault(name, _Lock())
        try:
            await lock.acquire(key.shared)
        except asyncio.CancelledError:
            self._forget(name, lock)
            raise

    def release(self, key: LockKey) -> None:
        name = (key.lock_class, key.key)
        lock = self._locks[name]
        lock.release(key.shared)
        self._forget(name, lock)

    def _forget(self, name: tuple[LockClass, str], lock: _Lock) -> None:
        if lock.idle:
            del self._locks[name]


class Held:
    """The async context of `KeyLocks.hold`; a cancelled acquisition gives back what it already has."""

    def __init__(self, locks: KeyLocks, keys: tuple[LockKey, ...]) -> None:
        self._locks = locks
        self._keys = keys
        self._acquired: list[LockKey] = []

    async def __aenter__(self) -> None:
        try:
            for key in self._keys:
                await self._locks.acquire(key)
                self._acquired.append(key)
        except asyncio.CancelledError:
            self._release_all()
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._release_all()

    def _release_all(self) -> None:
        while self._acquired:
            self._locks.release(self._acquired.pop())


def name_keys(names: Iterable[str]) -> tuple[LockKey, ...]:
    return tuple(LockKey(LockClass.NAME, name) for name in names)


def table_keys(table_ids: Iterable[str], shared: bool = False) -> tuple[LockKey, ...]:
    return tuple(LockKey(LockClass.TABLE, table_id, shared) for table_id in table_ids)


def tablet_keys(tablet_ids: Iterable[str]) -> tuple[LockKey, ...]:
    return tuple(LockKey(LockClass.TABLET, tablet_id) for tablet_id in tablet_ids)
