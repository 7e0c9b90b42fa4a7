"""Locks by key, taken in one order: names, then tables, then tablets (contract of seed 001, step 1)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum
from types import TracebackType
from typing import TypeAlias


class LockClass(IntEnum):
    """The order of acquisition: table locks come before tablet locks."""

    NAME = 0
    TABLE = 1
    TABLET = 2


LockKey: TypeAlias = tuple[LockClass, str]


@dataclass(slots=True)
class _Entry:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: int = 0


class KeyLocks:
    """Exclusive locks by (class, key); entries exist only while someone holds or awaits them."""

    def __init__(self) -> None:
        self._entries: dict[LockKey, _Entry] = {}

    def locked(self, lock_class: LockClass, key: str) -> bool:
        entry = self._entries.get((lock_class, key))
        return entry is not None and entry.lock.locked()

    def hold(self, *keys: LockKey) -> Held:
        """An async context that holds the locks of all these keys, acquired in the order of `LockClass`, then key."""
        return Held(self, tuple(sorted(dict.fromkeys(keys))))

    async def acquire(self, key: LockKey) -> None:
        entry = self._entries.setdefault(key, _Entry())
        entry.users += 1
        try:
            await entry.lock.acquire()
        except asyncio.CancelledError:
            self._forget(key, entry)
            raise

    def release(self, key: LockKey) -> None:
        entry = self._entries[key]
        entry.lock.release()
        self._forget(key, entry)

    def _forget(self, key: LockKey, entry: _Entry) -> None:
        entry.users -= 1
        if entry.users == 0:
            del self._entries[key]


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


def table_keys(table_ids: Iterable[str]) -> tuple[LockKey, ...]:
    return tuple((LockClass.TABLE, table_id) for table_id in table_ids)


def tablet_keys(tablet_ids: Iterable[str]) -> tuple[LockKey, ...]:
    return tuple((LockClass.TABLET, tablet_id) for tablet_id in tablet_ids)
