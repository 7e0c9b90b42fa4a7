"""The log and snapshots of a group: what survives a crash at any byte, and what is told apart as damage."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.log.storage import CorruptLog, GroupStorage, Recovered
from cluster.raft.configurations import bootstrap, configuration_of
from cluster.raft.types import Entry, HardState, Member, Persist, Snapshot, SnapshotMeta

T = TypeVar("T")
VOTERS = configuration_of(bootstrap([Member(name, f"{name}:7") for name in "abc"])[1])


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


class PowerCut(Exception):
    """The disk stops at a chosen operation."""


class MemoryDisk:
    """A Disk whose unsynced tails can be cut anywhere; `operations_left` makes it stop in mid-work."""

    def __init__(self) -> None:
        self.files: dict[str, bytearray] = {}
        self.synced: dict[str, int] = {}
        self.operations_left = 1_000_000

    def _count(self) -> None:
        if self.operations_left == 0:
            raise PowerCut
        self.operations_left -= 1

    async def append(self, path: str, data: bytes) -> None:
        self._count()
        self.files.setdefault(path, bytearray()).extend(data)

    async def fsync(self, path: str) -> None:
        self._count()
        self.synced[path] = len(self.files[path])

    async def read(self, path: str) -> bytes:
        if path not in self.files:
            raise FileNotFoundError(path)
        return bytes(self.files[path])

    async def truncate(self, path: str, length: int) -> None:
        self._count()
        del self.files[path][length:]
        self.synced[path] = length

    async def rename(self, source: str, target: str) -> None:
        self._count()
        self.files[target] = self.files.pop(source)

    async def remove(self, path: str) -> None:
        self._count()
        self.files.pop(path, None)

    async def write_atomic(self, path: str, data: bytes) -> None:
        self._count()
        self.files[path] = bytearray(data)
        self.synced[path] = len(data)

    def list(self, prefix: str) -> list[str]:
        return sorted(path for path in self.files if path.startswith(prefix))

    def segment(self) -> str:
        return max(self.list("g/wal-"))


def entry(index: int, term: int, data: bytes = b"x") -> Entry:
    return Entry(term, index, 1, data)


def persist(sequence: int, entries: tuple[Entry, ...] = (), hard: HardState | None = None) -> Persist:
    return Persist(sequence, hard, entries, None, ())


def snapshot(index: int, term: int) -> Snapshot:
    return Snapshot(SnapshotMeta(index, term, VOTERS), b"state at %d" % index)


async def opened(disk: MemoryDisk) -> tuple[GroupStorage, Recovered]:
    storage = GroupStorage(disk, "g")
    return storage, await storage.recover()


def state(found: Recovered) -> tuple[HardState, Snapshot | None, tuple[Entry, ...]]:
    return found.hard_state, found.snapshot, found.entries


class Model:
    """What storage holds after each step, kept the plain way."""

    def __init__(self) -> None:
        self.hard = HardState()
        self.snapshot: Snapshot | None = None
        self.entries: list[Entry] = []

    def state(self) -> tuple[HardState, Snapshot | None, tuple[Entry, ...]]:
        return self.hard, self.snapshot, tuple(self.entries)

    @property
    def base(self) -> int:
        return self.snapshot.meta.index if self.snapshot else 0

    def append(self, item: Persist) -> None:
        self.hard = item.hard_state or self.hard
        if item.entries:
            first = item.entries[0].index
            self.entries = [old for old in self.entries if old.index < first] + list(item.entries)

    def save(self, new: Snapshot) -> None:
        self.snapshot = new
        self.entries = [old for old in self.entries if old.index > new.meta.index]

    def install(self, new: Snapshot) -> None:
        matches = any(old.index == new.meta.index and old.term == new.meta.term for old in self.entries)
        self.snapshot = new
        self.entries = [old for old in self.entries if old.index > new.meta.index] if matches else []


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, 3), st.integers(0, 4)),
        st.tuples(st.just("hard"), st.integers(1, 9), st.just(0)),
        st.tuples(st.just("sync"), st.just(0), st.just(0)),
        st.tuples(st.just("save"), st.integers(1, 5), st.just(0)),
        st.tuples(st.just("install"), st.integers(1, 5), st.integers(0, 1)),
        st.tuples(st.just("restart"), st.just(0), st.just(0)),
    ),
    max_size=25,
)


class Driver:
    """Plays steps into storage and model; `history` holds the states since the last durable one."""

    def __init__(self, disk: MemoryDisk, storage: GroupStorage) -> None:
        self.disk, self.storage, self.model = disk, storage, Model()
        self.history = [self.model.state()]
        self.sequence = 0

    async def play(self, step: tuple[str, int, int]) -> None:
        kind, one, two = step
        self.sequence += 1
        model = self.model
        last = model.entries[-1].index if model.entries else model.base
        if kind == "append":
            first = max(model.base + 1, last + 1 - one)
            term = self.sequence
            item = persist(self.sequence, tuple(entry(first + n, term, bytes(two)) for n in range(two)))
            await self.write(item)
        elif kind == "hard":
            await self.write(persist(self.sequence, (), HardState(one, "a", 0)))
        elif kind == "sync":
            await self.storage.sync()
            self.history = [model.state()]
        elif kind == "save" and model.entries:
            chosen = model.entries[min(one, len(model.entries)) - 1]
            await self.atomically(snapshot(chosen.index, chosen.term), install=False)
        elif kind == "install":
            await self.atomically(snapshot(last + one - 2 * two if last > 2 else last + one, 99), install=True)
        elif kind == "restart":
            await self.storage.sync()
            self.storage, found = await opened(self.disk)
            assert state(found) == model.state()
            self.history = [model.state()]

    async def write(self, item: Persist) -> None:
        await self.storage.append([item])
        self.model.append(item)
        self.history.append(self.model.state())

    async def atomically(self, new: Snapshot, install: bool) -> None:
        if new.meta.index <= self.model.base:
            return
        if install:
            await self.storage.install((new, Persist(self.sequence, None, (), new.meta, ())))
            self.model.install(new)
        else:
            await self.storage.save_snapshot(new)
            self.model.save(new)
        self.history = [self.model.state()]


@settings(deadline=None, max_examples=150)
@given(steps=STEPS, cut=st.floats(0, 1))
def test_a_crash_at_any_byte_of_the_unsynced_tail_leaves_a_state_since_the_last_fsync(
    steps: list[tuple[str, int, int]], cut: float
) -> None:
    async def check() -> None:
        disk = MemoryDisk()
        driver = Driver(disk, (await opened(disk))[0])
        for step in steps:
            await driver.play(step)
        path = disk.segment()
        synced, size = disk.synced[path], len(disk.files[path])
        del disk.files[path][synced + round(cut * (size - synced)) :]
        _, found = await opened(disk)
        assert state(found) in driver.history
        again = (await opened(disk))[1]
        assert state(again) == state(found)

    run(check())


@settings(deadline=None, max_examples=100)
@given(steps=STEPS, operations=st.integers(0, 8))
def test_a_crash_between_any_two_disk_operations_leaves_the_old_state_or_the_new(
    steps: list[tuple[str, int, int]], operations: int
) -> None:
    async def check() -> None:
        disk = MemoryDisk()
        driver = Driver(disk, (await opened(disk))[0])
        for step in steps:
            await driver.play(step)
        await driver.storage.sync()
        before = driver.model.state()
        await driver.write(persist(999, (entry(driver.model.base + 1, 999),)))
        await driver.storage.sync()
        middle = driver.model.state()
        disk.operations_left = operations
        new = snapshot(driver.model.base + 1, 999)
        with contextlib.suppress(PowerCut):
            await driver.storage.save_snapshot(new)
        driver.model.save(new)
        disk.operations_left = 1_000_000
        _, found = await opened(disk)
        assert state(found) in (middle, driver.model.state())
        assert state(found) != before
        assert len(disk.files) == (2 if found.snapshot else 1)

    run(check())


async def written(records: int) -> MemoryDisk:
    disk = MemoryDisk()
    storage, _ = await opened(disk)
    for number in range(1, records + 1):
        await storage.append([persist(number, (entry(number, 1, b"payload-%d" % number),))])
        await storage.sync()
    return disk


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_a_flipped_bit_before_the_last_record_stops_the_node(data: st.DataObject) -> None:
    disk = run(written(4))
    path = disk.segment()
    short = run(written(3))
    position = data.draw(st.integers(0, len(short.files[path]) - 1))
    disk.files[path][position] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(CorruptLog):
        run(opened(disk))


def test_a_torn_last_record_is_cut_and_the_log_goes_on_behind_it() -> None:
    async def check() -> None:
        disk = await written(3)
        whole = bytes(disk.files[disk.segment()])
        shorter = bytes((await written(2)).files[disk.segment()])
        for length in range(len(shorter), len(whole)):
            disk.files[disk.segment()] = bytearray(whole[:length])
            storage, found = await opened(disk)
            assert [item.index for item in found.entries] == [1, 2]
            await storage.append([persist(9, (entry(3, 2),))])
            await storage.sync()
            assert [(item.index, item.term) for item in (await opened(disk))[1].entries] == [(1, 1), (2, 1), (3, 2)]

    run(check())


def test_a_damaged_or_missing_snapshot_stops_the_node() -> None:
    async def stored() -> MemoryDisk:
        disk = await written(5)
        storage, _ = await opened(disk)
        await storage.save_snapshot(snapshot(3, 1))
        return disk

    disk = run(stored())
    path = disk.list("g/snap-")[0]
    disk.files[path][-1] ^= 1
    with pytest.raises(CorruptLog, match="damaged"):
        run(opened(disk))
    del disk.files[path]
    with pytest.raises(CorruptLog, match="missing"):
        run(opened(disk))


def test_records_of_another_format_version_are_refused_by_name() -> None:
    import struct
    import zlib

    disk = run(written(1))
    payload = b"whatever"
    crc = zlib.crc32(payload, zlib.crc32(struct.pack("<BBI", 9, 2, len(payload))))
    disk.files[disk.segment()] += struct.pack("<2sBBII", b"\xa5\x57", 9, 2, len(payload), crc) + payload
    with pytest.raises(CorruptLog, match="version 9"):
        run(opened(disk))


def test_a_new_directory_is_fresh_and_any_other_is_not() -> None:
    disk = MemoryDisk()
    assert run(opened(disk))[1].fresh
    assert not run(opened(disk))[1].fresh


def test_an_entry_behind_a_hole_is_refused() -> None:
    async def check() -> None:
        storage, _ = await opened(MemoryDisk())
        await storage.append([persist(1, (entry(5, 1),))])

    with pytest.raises(CorruptLog, match="misses entries"):
        run(check())


@pytest.mark.parametrize(("term", "kept"), [(1, [3, 4]), (7, [])])
def test_an_installed_snapshot_keeps_the_log_behind_it_only_where_they_agree(term: int, kept: list[int]) -> None:
    """§7: a snapshot whose last entry the log does not hold replaces the whole log."""

    async def check() -> None:
        disk = await written(4)
        storage, _ = await opened(disk)
        received = snapshot(2, term)
        await storage.install((received, Persist(9, HardState(7, "b", 2), (), received.meta, ())))
        _, found = await opened(disk)
        assert found.snapshot == snapshot(2, term)
        assert [item.index for item in found.entries] == kept
        assert found.hard_state == HardState(7, "b", 2)

    run(check())


def test_entries_that_come_with_a_snapshot_follow_it() -> None:
    async def check() -> None:
        disk = await written(2)
        storage, _ = await opened(disk)
        received = snapshot(7, 5)
        await storage.install((received, Persist(9, None, (entry(8, 5), entry(9, 5)), received.meta, ())))
        await storage.append([persist(10, (entry(9, 6), entry(10, 6)))])
        await storage.sync()
        _, found = await opened(disk)
        assert [(item.index, item.term) for item in found.entries] == [(8, 5), (9, 6), (10, 6)]

    run(check())
