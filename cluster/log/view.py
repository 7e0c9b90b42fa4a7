"""One group's view of its node's log: what it finds there, and the queue of what it wants to be durable (G5)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from cluster.log.envelope import CorruptLog
from cluster.log.frames import Record
from cluster.log.replay import APPEND, Append, Base, Image, SnapshotRef, encode_body
from cluster.raft.types import Entry, HardState, Persist, Snapshot, SnapshotMeta

OnStored: TypeAlias = Callable[[SnapshotRef], None]
OnDurable: TypeAlias = Callable[[list[Persist]], None]


@dataclass(frozen=True, slots=True)
class Recovered:
    """What a group finds in its node's log; `fresh` if it never ran here."""

    hard_state: HardState
    snapshot: Snapshot | None
    entries: tuple[Entry, ...]
    fresh: bool

    @property
    def blank(self) -> bool:
        """Whether this replica has taken part in nothing: it has no term, no log and no snapshot."""
        return self.hard_state == HardState() and self.snapshot is None and not self.entries


class Quarantined(CorruptLog):
    """This replica lost something that it had acknowledged: it must not run until its data was discarded (G7)."""


class Owner(Protocol):
    """What a view needs of its `cluster.log.node.NodeLog`; see there."""

    full: bool

    def stalled(self, now_ns: int) -> bool: ...

    def wake(self, view: GroupLog) -> None: ...

    def store_snapshot(self, view: GroupLog, meta: SnapshotMeta, chunks: Iterator[bytes], done: OnStored) -> None: ...

    async def read_snapshot(self, image: Image) -> bytes: ...

    def discard(self, path: str) -> None: ...

    def restate(self, image: Image) -> None: ...


@dataclass(slots=True)
class _Work:
    """Something to be written in its turn: a `Persist`, or (None) the base of an own snapshot.

    `waits` while the snapshot file that it names is still being written; `obsolete` is a file that it replaces.
    """

    persist: Persist | None
    ref: SnapshotRef | None = None
    waits: bool = False
    obsolete: str | None = None
    on_done: Callable[[], None] | None = None


class GroupLog:
    """Made by `NodeLog.group`. `Persist`s become durable in the order they are put, those of all groups together.

    `attach` says who is told: `on_durable` of the `Persist`s of each fsync, `on_full` when the disk is found full.
    """

    def __init__(self, owner: Owner, image: Image, fresh: bool) -> None:
        self._owner, self._image, self._fresh = owner, image, fresh
        self._queue: deque[_Work] = deque()
        self._taken: list[_Work] = []
        self._unsynced = 0
        self._on_durable: OnDurable | None = None
        self._on_full: Callable[[], None] | None = None
        self._closed = False
        self.saving = False

    @property
    def group(self) -> str:
        """The group's id."""
        return self._image.group

    @property
    def busy(self) -> bool:
        """Whether a `Persist` is waiting to be durable."""
        return self._unsynced > 0

    @property
    def full(self) -> bool:
        """Whether the disk is full, so that nothing more becomes durable."""
        return self._owner.full

    def stalled(self, now_ns: int) -> bool:
        """Whether something waits here while the disk has not answered for `disk_stall_ms`."""
        return self.busy and self._owner.stalled(now_ns)

    def attach(self, on_durable: OnDurable, on_full: Callable[[], None]) -> None:
        """Say who is told; nothing was put yet."""
        self._on_durable, self._on_full = on_durable, on_full

    async def recover(self) -> Recovered:
        """What is stored of the group; raises Quarantined where some of it is damaged or was found damaged before."""
        image = self._image
        if image.damage is not None:
            raise Quarantined(f"{image.group}: {image.damage}")
        data = await self._owner.read_snapshot(image)
        snapshot = None if image.snapshot is None else Snapshot(image.snapshot.meta, data)
        return Recovered(image.hard_state, snapshot, tuple(image.entries), self._fresh)

    def found(self, hard_state: HardState, first: Entry) -> Recovered:
        """Begin a group here with its first entry (`cluster.raft.configurations.bootstrap`).

        It precedes every `Persist`. Nothing waits for it: if a crash takes it away, the group begins once more alike.
        """
        self._image.reset(Base(hard_state, None, (first,)))
        self._owner.restate(self._image)
        return Recovered(hard_state, None, (first,), fresh=True)

    def put(self, persist: Persist, received: Snapshot | None = None) -> None:
        """Queue a `Persist`, with the snapshot that it names; `on_durable` tells."""
        self._unsynced += 1
        work = _Work(persist)
        self._queue.append(work)
        if received is not None:
            self._install(work, received)
        self._owner.wake(self)

    def save_snapshot(self, meta: SnapshotMeta, chunks: Iterator[bytes], on_saved: Callable[[], None]) -> None:
        """Store a snapshot of applied entries beside all writes and drop the log up to it; one at a time."""
        self.saving = True

        def stored(ref: SnapshotRef) -> None:
            self._ready(_Work(None, on_done=on_saved), ref)

        self._owner.store_snapshot(self, meta, chunks, stored)

    def close(self) -> None:
        """Nobody is told any more, and what is not on its way is dropped."""
        self._closed = True
        self._queue.clear()

    def _install(self, work: _Work, snapshot: Snapshot) -> None:
        work.waits = True

        def stored(ref: SnapshotRef) -> None:
            self._ready(work, ref)

        self._owner.store_snapshot(self, snapshot.meta, iter((snapshot.data,)), stored)

    def _ready(self, work: _Work, ref: SnapshotRef) -> None:
        """The snapshot file of this work is durable."""
        if self._closed:
            self._owner.discard(ref.path)
            return
        work.ref, work.waits = ref, False
        if work.persist is None:
            self._queue.append(work)
        self._owner.wake(self)

    # ---- what the node's log calls ----

    def take(self) -> list[Record]:
        """The records of what is ready, in order; they go out with the next fsync, which ends in `settle`."""
        records: list[Record] = []
        while self._queue and not self._queue[0].waits:
            work = self._queue.popleft()
            self._taken.append(work)
            if work.ref is not None:
                records += self._new_base(work, work.ref)
            elif work.persist is not None:
                records += self._append(work.persist)
        return records

    def settle(self) -> None:
        """What was taken is durable."""
        taken, self._taken = self._taken, []
        for work in taken:
            if work.obsolete is not None:
                self._owner.discard(work.obsolete)
        persists = [work.persist for work in taken if work.persist is not None]
        self._unsynced -= len(persists)
        if persists and self._on_durable is not None and not self._closed:
            self._on_durable(persists)
        for work in taken:
            if work.on_done is not None and not self._closed:
                self.saving = False
                work.on_done()

    def disk_full(self) -> None:
        """The disk was found full."""
        if self._on_full is not None and not self._closed:
            self._on_full()

    def _append(self, persist: Persist) -> list[Record]:
        """An empty `Persist` needs no record: it is durable with what came before."""
        if persist.hard_state is None and not persist.entries:
            return []
        self._image.append(persist.hard_state, persist.entries)
        return [self._image.record(APPEND, encode_body(Append(persist.hard_state, persist.entries)))]

    def _new_base(self, work: _Work, ref: SnapshotRef) -> list[Record]:
        """An installed snapshot replaces the whole log (§5.1), an own one what it covers, unless a newer one stands."""
        image, installed = self._image, work.persist
        if installed is None and ref.meta.index <= image.snapshot_index:
            work.obsolete = ref.path
            return []
        work.obsolete = None if image.snapshot is None else image.snapshot.path
        if installed is not None:
            image.reset(Base(installed.hard_state or image.hard_state, ref, installed.entries))
        else:
            image.reset(Base(image.hard_state, ref, image.after(ref.meta.index)))
        return [image.restated()]
