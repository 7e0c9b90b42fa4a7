"""The log of a node, shared by all its groups: one writer, one fsync for everything that waits (G5).

What gathers while an fsync runs goes out as one frame after it. Segments that no group needs are removed from the
front; where dead records are a fifth of the log, the groups that need its front are stated anew at its end, so that a
cold one never keeps a segment and the log stays below twice what is alive (and three segments). When the log falls idle
another frame proves the last one durable (`cluster.log.frames`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterator, Sequence
from typing import TypeAlias

from cluster.alarm import Alarm
from cluster.knobs import Knobs
from cluster.log.envelope import CorruptLog
from cluster.log.frames import LogRecord, Scan
from cluster.log.paced import Pace
from cluster.log.replay import BASE, DESTROY, DIRECTORY, QUARANTINE, Image, Replay, SnapshotRef, encode_body
from cluster.log.segments import ASIDE_PATH, Segment, Segments, keep_aside
from cluster.log.snapshots import (
    SNAPSHOTS_PATH,
    SnapshotFile,
    check,
    files_prefix,
    group_prefix,
    load,
    pieces,
    read_piece,
    snapshot_path,
)
from cluster.log.view import GroupLog, OnStored, Quarantined, TakePart
from cluster.nodelog import node_logger
from cluster.raft.types import HardState, OpId, SnapshotMeta
from harness.ports.api import DiskFull, Ports
from harness.ports.failpoints import pass_by

__all__ = ["ASIDE_PATH", "CorruptLog", "NodeLog", "Quarantined"]

_MS = 1_000_000
_FRAME_BYTES = 2 << 20
_RESETS = (BASE, QUARANTINE, DESTROY)
"""Where more waits, it takes several frames: no turn of the event loop is long because of one."""

OnFailure: TypeAlias = Callable[[BaseException], None]
Spawn: TypeAlias = Callable[[Coroutine[None, None, None]], asyncio.Task[None]]


def ignore_failure(_: BaseException) -> None:
    """For owners that look at the log's failures elsewhere."""


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class NodeLog:
    """Made by `open`; `on_failure` is called once if the disk fails, since what is durable is unknown then.

    While the disk is full everything waits and is tried again: nothing is reported durable, `full` is set, and every
    view's `on_full` was called. `kind` prefixes the names of the failpoints.
    """

    def __init__(
        self, ports: Ports, knobs: Knobs, kind: str, on_failure: OnFailure, flaws: Collection[str] = ()
    ) -> None:
        self._disk, self._clock, self._failpoints = ports.disk, ports.clock, ports.failpoints
        self._knobs, self._kind, self._flaws = knobs, kind, flaws
        self._log = node_logger(ports.node_id)
        self._on_failure: OnFailure | None = on_failure
        self._segments = Segments(ports.disk, ports.clock, ports.entropy)
        self._images: dict[str, Image] = {}
        self._views: dict[str, GroupLog] = {}
        self._waiting: dict[str, GroupLog] = {}
        self._records: list[LogRecord] = []
        self._settling: list[Callable[[], None]] = []
        self._directory_due = self._unproven = True
        self._rewriting = False
        self._rewrite_to = 0
        self._rewritten_bytes = 0
        self._rewrite_below = 0
        self._attempt, self._attempts = ports.incarnation, 0
        self._snapshot_turn = asyncio.Lock()
        self._rubbish: dict[str, None] = {}
        self._pins: dict[str, int] = {}
        self._wakes: asyncio.Future[None] | None = None
        self._tasks: dict[asyncio.Task[None], str] = {}
        self._collecting = False
        self._began_ns: int | None = None
        self._idle = Alarm(ports.clock, self._when_idle, self._failed)
        self.full = False

    @classmethod
    async def open(
        cls,
        ports: Ports,
        knobs: Knobs,
        kind: str,
        groups: Sequence[str],
        on_failure: OnFailure = ignore_failure,
        flaws: Collection[str] = (),
    ) -> NodeLog:
        """Read the log once, begin one where there is none, and run it; `groups` are those that ever began here.

        Raises OtherVersion, OSError. Damage is told by the views of the groups that it harmed.
        """
        log = cls(ports, knobs, kind, on_failure, flaws)
        await log._recover(groups)
        log.spawn(log._write(), "")
        log._idle.set(log._clock.monotonic_ns())
        return log

    def group(self, group: str) -> GroupLog:
        """The view of one group, which begins here if the log doesn't know it."""
        image = self._images.get(group)
        fresh = image is None
        if image is None:
            image = self._images[group] = Image(group, base_segment=self._segments.current.number)
            self.restate(image)
        view = self._views[group] = GroupLog(self, image, fresh)
        return view

    def knows(self, group: str) -> bool:
        """Whether the log holds anything of this group."""
        return group in self._images

    async def close(self) -> None:
        """Stop; what is not durable yet may be lost."""
        self._on_failure = None
        self._collecting = True  # nothing is removed any more
        self._idle.cancel()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def remains(self, group: str) -> tuple[HardState, OpId]:
        """Term, vote and the end of the log of a group that was closed: what was told to others of these is in it."""
        image = self._images.get(group)
        if image is None or image.damage is not None:
            return HardState(), OpId(0, 0)
        last = image.entries[-1] if image.entries else None
        meta = image.snapshot.meta if image.snapshot is not None else None
        if last is not None:
            return image.hard_state, OpId(last.term, last.index)
        return image.hard_state, OpId(0, 0) if meta is None else OpId(meta.term, meta.index)

    async def destroy(self, group: str) -> None:
        """Make everything of a group void, durably, and remove its snapshots and the files beside its log."""
        view, image = self._views.pop(group, None), self._images.pop(group, None)
        self._waiting.pop(group, None)
        if view is not None:
            view.close()
        for task in [task for task, owner in self._tasks.items() if owner == group]:
            task.cancel()
        if image is not None:
            self._records.append(image.record(DESTROY, b""))
            durable: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._settling.append(lambda: _resolve(durable))
            self._wake()
            await durable
        for path in (*self._disk.list(group_prefix(group)), *self._disk.list(files_prefix(group))):
            await self._disk.remove(path)

    # ---- what views call ----

    def stalled(self, now_ns: int) -> bool:
        """Whether the write under way has taken longer than `disk_stall_ms`."""
        return self._began_ns is not None and now_ns - self._began_ns >= self._knobs.disk_stall_ms * _MS

    def wake(self, view: GroupLog) -> None:
        """The view has something to be written."""
        self._waiting[view.group] = view
        self._wake()

    async def store_snapshot(self, group: str, meta: SnapshotMeta, parts: Iterator[bytes], done: OnStored) -> None:
        """Write a snapshot file beside everything else, one at a time; `done` is told where it is."""
        async with self._snapshot_turn:
            ref = await self.snapshot_file(group, meta).write_all(pieces(meta, parts))
        done(ref)

    def snapshot_file(self, group: str, meta: SnapshotMeta) -> SnapshotFile:
        """A new snapshot file."""
        self._attempts += 1
        path = snapshot_path(group, meta, f"{self._attempt}.{self._attempts}")
        pace = Pace(self._knobs.bulk_bytes_per_s, self._knobs.disk_retry_ms / 1e3)
        return SnapshotFile(self._disk, self._clock, path, meta, pace, self._pass)

    async def load_snapshot(self, image: Image, ref: SnapshotRef, take: TakePart) -> None:
        """Hand every part of a snapshot to `take`; raises Quarantined, for good, where it is damaged."""
        try:
            await load(self._disk, self._clock, ref, take)
        except CorruptLog as error:
            self.quarantine(image, str(error))
            raise Quarantined(f"{image.group}: {error}") from error

    async def read_snapshot(self, ref: SnapshotRef, offset: int, limit: int) -> bytes:
        """A piece of a snapshot file; raises CorruptLog."""
        piece = await read_piece(self._disk, ref, offset, limit)
        check(piece)
        return piece

    def restate(self, image: Image) -> None:
        """State a group anew, ahead of everything that waits."""
        self._records.append(image.restated())
        self._wake()

    def quarantine(self, image: Image, reason: str) -> None:
        """What a group has stored is damaged: nothing of it counts any more, over restarts too (G7)."""
        self._log.error("%s: quarantined: %s", image.group, reason)
        image.quarantine(reason)
        self.restate(image)

    def discard(self, path: str) -> None:
        """A snapshot file that no group stands on any more; it is removed once nobody reads it."""
        self._rubbish[path] = None
        self._collect()

    def pin(self, path: str) -> None:
        """Keep a file while it is read."""
        self._pins[path] = self._pins.get(path, 0) + 1

    def unpin(self, path: str) -> None:
        """One reader less."""
        self._pins[path] -= 1
        if not self._pins[path]:
            del self._pins[path]
            self._collect()

    # ---- recovery ----

    async def _recover(self, groups: Sequence[str]) -> None:
        replay = Replay()
        aside: dict[str, bytes] = {}

        def take(segment: Segment, contents: Scan, data: bytes) -> None:
            replay.take(segment.number, contents)
            if segment.number in replay.damaged_segments:
                aside[segment.path] = data
            elif segment.number in replay.repaired_segments:
                self._log.warning("%s was damaged, and is repaired: nothing is lost", segment.path)

        await self._segments.read(take, self._flaws)
        harmed = replay.finish(groups)
        self._images = replay.images
        self._rewrite_below = max((*replay.repaired_segments, *replay.damaged_segments), default=0) + 1
        for path, data in aside.items():
            self._log.warning(
                "%s is damaged, or one before it is missing; %s", path, await keep_aside(self._disk, path, data)
            )
        for group in harmed:
            self.quarantine(self._images[group], self._images[group].damage or "")
        await self._tidy_snapshots()
        if not self._segments.exist:
            await self._begin()
            self._directory_due = self._unproven = False

    async def _begin(self) -> None:
        """Write the first segment of an empty disk, once there is room for it."""
        while not self._segments.exist:
            try:
                await self._segments.roll([self._directory()])
            except DiskFull:
                await self._clock.sleep(self._knobs.disk_retry_ms / 1e3)

    async def _tidy_snapshots(self) -> None:
        """Remove what a crash left unfinished or unneeded; keep what a quarantined group had."""
        needed = {image.snapshot.path for image in self._images.values() if image.snapshot is not None}
        damaged = tuple(group_prefix(image.group) for image in self._images.values() if image.damage is not None)
        for path in self._disk.list(f"{SNAPSHOTS_PATH}/"):
            if path.startswith(damaged):
                await self._disk.rename(path, f"{ASIDE_PATH}/{path.replace('/', '-')}")
            elif path not in needed:
                await self._disk.remove(path)

    def _directory(self) -> LogRecord:
        """Each group with its last record that is written: one that waits has a number, and a crash may take it."""
        numbers = {group: image.number for group, image in self._images.items()}
        for record in reversed(self._records):
            numbers[record.group] = record.number - 1
        return LogRecord("", 0, DIRECTORY, encode_body({group: last for group, last in numbers.items() if last}))

    # ---- writing ----

    async def _write(self) -> None:
        """Write what is waiting, for ever; raises OSError when the disk fails."""
        loop = asyncio.get_running_loop()
        while True:
            if self._waiting or self._records or self._rewriting or self._directory_due:
                await self._write_frame()
            else:
                self._wakes = loop.create_future()
                await self._wakes

    def _wake(self) -> None:
        wakes, self._wakes = self._wakes, None
        if wakes is not None:
            _resolve(wakes)

    async def _write_frame(self) -> None:
        """One frame, one fsync; then tell everybody whose records were in it."""
        views, self._waiting = list(self._waiting.values()), {}
        records, settling = self._compose(views)
        if records:
            self._began_ns = self._clock.monotonic_ns()
            await self._make_durable(records)
            self._began_ns = None
            self._unproven = len(records) > 1 or records[0].kind != DIRECTORY
        for view in views:
            view.settle()
        for settle in settling:
            settle()
        self._note_bases(records)
        segment = self._segments.current
        if segment.size >= self._knobs.log_segment_bytes or segment.number < self._rewrite_below:
            await self._pass("before_roll")
            await self._roll()
            await self._pass("after_roll")
            self._unproven = False
            self._weigh()

    async def _make_durable(self, records: list[LogRecord]) -> None:
        """Append and sync; a write that was put off may find the disk full as late as in its fsync."""
        appended, armed = False, self._failpoints.armed
        while True:
            try:
                if not appended:
                    if armed:
                        await self._pass("before_append")
                    await self._segments.append(records)
                    appended = True
                if armed:
                    await self._pass("before_fsync")
                await self._segments.sync()
                break
            except DiskFull:
                await self._wait_for_space()
        self._tell_full(False)
        if armed:
            await self._pass("after_fsync")

    async def _pass(self, point: str) -> None:
        await pass_by(self._failpoints, f"{self._kind}.{point}")

    def _compose(self, views: list[GroupLog]) -> tuple[list[LogRecord], list[Callable[[], None]]]:
        """Everything that waits, up to a limit; groups that keep old segments are stated anew behind it."""
        records, self._records = self._records, []
        settling, self._settling = self._settling, []
        room = _FRAME_BYTES
        for record in records:
            room -= len(record.body)
        for view in views:
            room = view.take(records, room)
            if room <= 0 and view.waits:
                self._waiting[view.group] = view
        if self._rewriting:
            restated = self._oldest_restated(sum(len(record.body) for record in records))
            records += restated
            self._rewriting = bool(restated)
        if self._directory_due:
            records.append(self._directory())
        self._directory_due = False
        return records, settling

    async def _roll(self) -> None:
        """Begin the next segment."""
        while True:
            try:
                await self._segments.roll([self._directory()])
                break
            except DiskFull:
                await self._wait_for_space()
        self._tell_full(False)

    async def _wait_for_space(self) -> None:
        """A write has found the disk full, and nothing of it was kept: it is tried again after a while."""
        self._tell_full(True)
        await self._clock.sleep(self._knobs.disk_retry_ms / 1e3)

    def _tell_full(self, full: bool) -> None:
        """Tell every group of a change, whosever records found the disk full: one of an idle group has none."""
        if full is not self.full:
            self.full = full
            self._log.warning("the disk is full" if full else "the disk has room again")
            for view in list(self._views.values()):
                view.disk_full(full)

    def _when_idle(self) -> None:
        """The last frame has no later one that proves it durable: write one (see `cluster.log.frames`)."""
        self._directory_due = self._directory_due or (self._unproven and not self._waiting and not self._records)
        self._wake()
        self._idle.set(self._clock.monotonic_ns() + self._knobs.log_idle_ms * _MS)

    # ---- collection ----

    def _floor(self) -> int:
        """The oldest segment that a group needs."""
        return min((image.base_segment for image in self._images.values()), default=self._segments.current.number)

    def _weigh(self) -> None:
        """Rewrite the log while what is alive is too small a part of it, or a damaged segment is still in use.

        What frames and directories add is not got rid of so: a log that is too long though every group was stated anew
        grows first, or it would be rewritten for ever.
        """
        floor, size = self._floor(), 0
        alive = sum(image.live_bytes for image in self._images.values())
        spare = alive // 4 + 2 * self._knobs.log_segment_bytes
        if floor < self._segments.current.number:
            size = self._segments.bytes_from(floor)
        damaged = size > 0 and floor < self._rewrite_below
        if not damaged and size <= alive + spare:
            self._rewriting, self._rewritten_bytes = False, 0
        elif not self._rewriting:
            self._rewriting = damaged or size > self._rewritten_bytes + spare
            self._rewrite_to = self._segments.current.number
        elif floor >= self._rewrite_to:
            self._rewriting, self._rewritten_bytes = False, size

    def _oldest_restated(self, new_bytes: int) -> list[LogRecord]:
        """New bases for the groups that need the oldest segments, at the pace at which the log grows."""
        limit, size = max(new_bytes, self._knobs.log_segment_bytes // 4), 0
        records: list[LogRecord] = []
        for image in sorted(self._images.values(), key=lambda image: image.base_segment):
            if size >= limit or image.base_segment >= self._rewrite_to:
                break
            records.append(image.restated())
            size += image.live_bytes
        return records

    def _note_bases(self, records: list[LogRecord]) -> None:
        """Bases that are durable now let older segments go."""
        resets = False
        for record in records:
            if record.kind in _RESETS:
                resets = True
                image = self._images.get(record.group)
                if record.kind != DESTROY and image is not None:
                    image.base_segment = self._segments.current.number
        if resets:
            if self._rewriting:
                self._weigh()
            self._collect()

    def _collect(self) -> None:
        if not self._collecting and (self._segments.first < self._floor() or self._unread_rubbish() is not None):
            self._collecting = True
            self.spawn(self._remove_unneeded(), "")

    async def _remove_unneeded(self) -> None:
        while True:
            path = self._unread_rubbish()
            if path is None and self._segments.first >= self._floor():
                break
            await self._pass("before_collect")
            if path is not None:
                del self._rubbish[path]
                await self._disk.remove(path)
            else:
                await self._segments.remove_first()
            await self._pass("after_collect")
        self._collecting = False

    def _unread_rubbish(self) -> str | None:
        """A file to be removed that nobody reads."""
        return next((path for path in self._rubbish if path not in self._pins), None)

    # ---- tasks ----

    def spawn(self, work: Coroutine[None, None, None], group: str) -> asyncio.Task[None]:
        """Run work until it ends, its group (if it is one's) is destroyed or the log is closed.

        An exception in it stops the node: nobody else would miss the task.
        """
        task = asyncio.create_task(work, name=f"{self._kind}.log.{group}")
        self._tasks[task] = group
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._failed(error)

    def _failed(self, error: BaseException) -> None:
        if self._on_failure is not None:
            on_failure, self._on_failure = self._on_failure, None
            self._log.error("the log, or a task on it, stopped: %r", error)
            on_failure(error)
