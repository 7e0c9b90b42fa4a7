"""One group's view of its node's log: what it finds there, and the queue of what it wants to be durable (G5)."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from cluster.log.envelope import CorruptLog
from cluster.log.frames import LogRecord
from cluster.log.replay import APPEND, Append, GroupBase, Image, SnapshotRef, encode_body
from cluster.log.snapshots import SnapshotFile
from cluster.raft.types import Entry, HardState, Persist, SnapshotMeta

if TYPE_CHECKING:
    from cluster.log.node import NodeLog

OnStored: TypeAlias = Callable[[SnapshotRef], None]
OnDurable: TypeAlias = Callable[[list[Persist]], None]
TakePart: TypeAlias = Callable[[bytes], None]


@dataclass(frozen=True, slots=True)
class Recovered:
    """What a group finds in its node's log; `snapshot` is still to be loaded. `fresh` if it never ran here."""

    hard_state: HardState
    snapshot: SnapshotRef | None
    entries: tuple[Entry, ...]
    fresh: bool

    @property
    def blank(self) -> bool:
        """Whether this replica has taken part in nothing: it has no term, no log and no snapshot."""
        return self.hard_state == HardState() and self.snapshot is None and not self.entries


class Quarantined(CorruptLog):
    """This replica lost something that it had acknowledged: it must not run until its data was discarded (G7)."""


class _Work(msgspec.Struct):
    """Something to be written in its turn: a `Persist`, or (None) the base of an own snapshot.

    `ref` is the snapshot file that it names, which is durable; `obsolete` is a file that it replaces.
    """

    persist: Persist | None
    ref: SnapshotRef | None = None
    obsolete: str | None = None
    on_done: Callable[[], None] | None = None


class GroupLog:
    """Made by `NodeLog.group`. `Persist`s become durable in the order they are put, those of all groups together.

    `attach` says who is told: `on_durable` of the `Persist`s of each fsync, `on_full` (True) when the disk is found
    full and (False) when there is room again.
    """

    def __init__(self, owner: NodeLog, image: Image, fresh: bool) -> None:
        self._owner, self._image, self._fresh = owner, image, fresh
        self.group = image.group
        self._queue: deque[_Work] = deque()
        self._taken: list[_Work] = []
        self._unsynced = 0
        self._on_durable: OnDurable | None = None
        self._on_full: Callable[[bool], None] | None = None
        self._closed = False
        self.saving = False

    @property
    def busy(self) -> bool:
        """Whether a `Persist` is waiting to be durable."""
        return self._unsynced > 0

    @property
    def log_bytes(self) -> int:
        """About how much the entries behind the snapshot take."""
        return self._image.entry_bytes

    @property
    def full(self) -> bool:
        """Whether the disk is full, so that nothing more becomes durable."""
        return self._owner.full

    def entry(self, index: int) -> Entry | None:
        """The entry of this index, as long as no base has taken its place."""
        at = index - self._image.snapshot_index - 1
        return self._image.entries[at] if 0 <= at < len(self._image.entries) else None

    def stalled(self, now_ns: int) -> bool:
        """Whether something waits here while the disk has not answered for `disk_stall_ms`."""
        return self.busy and self._owner.stalled(now_ns)

    def attach(self, on_durable: OnDurable, on_full: Callable[[bool], None]) -> None:
        """Say who is told; nothing was put yet."""
        self._on_durable, self._on_full = on_durable, on_full

    def recover(self) -> Recovered:
        """What is stored of the group; raises Quarantined where the log was found damaged."""
        image = self._image
        if image.damage is not None:
            raise Quarantined(f"{image.group}: {image.damage}")
        return Recovered(image.hard_state, image.snapshot, tuple(image.entries), self._fresh)

    def found(self, hard_state: HardState, first: Entry) -> Recovered:
        """Begin a group here with its first entry (`cluster.raft.log.bootstrap`).

        It precedes every `Persist`. Nothing waits for it: if a crash takes it away, the group begins once more alike.
        """
        self._image.reset(GroupBase(hard_state, None, (first,)))
        self._owner.restate(self._image)
        return Recovered(hard_state, None, (first,), fresh=True)

    def remember(self, hard_state: HardState) -> None:
        """Begin with term and vote of a replica that was here before, where nothing is stored (M9).

        Nothing waits for it: whoever says so keeps it, and says so again after a crash.
        """
        image = self._image
        if image.damage is None and image.hard_state == HardState() and image.snapshot is None and not image.entries:
            image.reset(GroupBase(HardState(hard_state.term, hard_state.vote), None, ()))
            self._fresh = False
            self._owner.restate(image)

    def put(self, persist: Persist, received: SnapshotRef | None = None) -> None:
        """Queue a `Persist`, with the file of the snapshot that it names; `on_durable` tells."""
        self._unsynced += 1
        self._queue.append(_Work(persist, received))
        self._owner.wake(self)

    def quarantine(self, reason: str) -> Quarantined:
        """Files that the group keeps beside its log are damaged: close the view, and never run on this again (G7)."""
        self.close()
        self._owner.quarantine(self._image, reason)
        return Quarantined(f"{self.group}: {reason}")

    def close(self) -> None:
        """Nobody is told any more, and what is not on its way is dropped."""
        self._closed = True
        self._queue.clear()

    # ---- snapshots ----

    def save_snapshot(
        self, meta: SnapshotMeta, parts: Iterator[bytes], on_saved: Callable[[SnapshotRef], None]
    ) -> None:
        """Store a snapshot of applied entries beside all writes and drop the log up to it; one at a time."""
        self.saving = True

        def stored(ref: SnapshotRef) -> None:
            if self._closed:
                self._owner.discard(ref.path)
                return
            self._queue.append(_Work(None, ref, on_done=lambda: on_saved(ref)))
            self._owner.wake(self)

        self.spawn(self._owner.store_snapshot(self.group, meta, parts, stored))

    async def load_snapshot(self, ref: SnapshotRef, take: TakePart) -> None:
        """Hand every part of the snapshot that the group stands on to `take`; raises Quarantined if it is damaged."""
        self._owner.pin(ref.path)
        try:
            await self._owner.load_snapshot(self._image, ref, take)
        finally:
            self._owner.unpin(ref.path)

    async def read_snapshot(self, ref: SnapshotRef, offset: int, limit: int) -> bytes:
        """A piece of a pinned snapshot (`cluster.log.snapshots`), checked; raises CorruptLog."""
        return await self._owner.read_snapshot(ref, offset, limit)

    def snapshot_file(self, meta: SnapshotMeta) -> SnapshotFile:
        """A new file for a snapshot that is received; it is to be put or discarded."""
        return self._owner.snapshot_file(self._image.group, meta)

    def pin(self, ref: SnapshotRef) -> None:
        """Keep the file, whatever replaces it, until it was unpinned as often."""
        self._owner.pin(ref.path)

    def unpin(self, ref: SnapshotRef) -> None:
        """The file is read no more here."""
        self._owner.unpin(ref.path)

    def discard(self, path: str) -> None:
        """A file that was received, but is not to be installed."""
        self._owner.discard(path)

    def spawn(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Run work of the group that ends with the group, or with the log; what it raises stops the node."""
        return self._owner.spawn(work, self._image.group)

    # ---- what the node's log calls ----

    @property
    def waits(self) -> bool:
        """Whether anything is left to be taken."""
        return bool(self._queue)

    def take(self, records: list[LogRecord], room: int) -> int:
        """Add the records of what waits, in order, until there is no room left; how many bytes of room there are then.

        They go out with the next fsync, which ends in `settle`.
        """
        queue, image = self._queue, self._image
        while queue and room > 0:
            work = queue.popleft()
            self._taken.append(work)
            persist = work.persist
            if work.ref is not None:
                bases = self._new_base(work, work.ref)
                room -= sum(len(record.body) for record in bases)
                records += bases
            elif persist is not None and (persist.entries or persist.hard_state is not None):
                image.append(persist.hard_state, persist.entries)
                body = encode_body(Append(persist.hard_state, persist.entries))
                room -= len(body)
                records.append(image.record(APPEND, body))
            # An empty `Persist` needs no record: it is durable with what came before.
        return room

    def settle(self) -> None:
        """What was taken is durable."""
        taken, self._taken = self._taken, []
        persists, rare = [], False
        for work in taken:
            if work.persist is not None:
                persists.append(work.persist)
            if work.ref is not None:
                rare = True
                if work.obsolete is not None:
                    self._owner.discard(work.obsolete)
        self._unsynced -= len(persists)
        if persists and self._on_durable is not None and not self._closed:
            self._on_durable(persists)
        if rare:
            self._tell_saved(taken)

    def _tell_saved(self, taken: list[_Work]) -> None:
        for work in taken:
            if work.on_done is not None and not self._closed:
                self.saving = False
                work.on_done()

    def disk_full(self, full: bool) -> None:
        """The disk was found full, or has room again."""
        if self._on_full is not None and not self._closed:
            self._on_full(full)

    def _new_base(self, work: _Work, ref: SnapshotRef) -> list[LogRecord]:
        """An installed snapshot replaces the whole log (§5.1), an own one what it covers, unless a newer one stands."""
        image, installed = self._image, work.persist
        if installed is None and ref.meta.index <= image.snapshot_index:
            work.obsolete = ref.path
            return []
        work.obsolete = None if image.snapshot is None else image.snapshot.path
        if installed is not None:
            image.reset(GroupBase(installed.hard_state or image.hard_state, ref, installed.entries))
        else:
            image.reset(GroupBase(image.hard_state, ref, image.after(ref.meta.index)))
        return [image.restated()]
