"""The local store of a quorum keyspace's replica: memtable, sorted files, and the node's log in front of them (Q1, G5).

A mutation goes to the node's log, with everything that waits there, and into the memtable when it is durable: so what
was read never vanishes in a crash. A full memtable is written to a file, the manifest then names the file and the last
mutation in it, and only then may the log forget. After a restart the memtable is what the log has behind that mutation.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias, TypeVar

from cluster.knobs import Knobs
from cluster.log.envelope import CorruptLog
from cluster.log.paced import Pace
from cluster.log.snapshots import files_prefix
from cluster.log.view import GroupLog, Quarantined
from cluster.quorum.ids import ID_BYTES, MutationId, decode_id, encode_id
from cluster.quorum.journal import Journal, JournalFull
from cluster.quorum.keys import LOWEST_KEY, TOKENS, KeyBytes, place_of
from cluster.quorum.mutation import QUORUM_FORMAT, PartitionMutation, decode_mutation, encode_mutation, partition_in
from cluster.quorum.partition_store import Arrival, Ledger, Purgeable, StoreStats, keep_all
from cluster.quorum.rows import oldest_timestamp
from cluster.quorum.slices import Page, Slice
from cluster.quorum.sorted.blocks import Place
from cluster.quorum.sorted.compaction import HIGHEST_PLACE, LOWEST_PLACE, Forgetting, choose_inputs, compact
from cluster.quorum.sorted.files import SetAside, SortedFile
from cluster.quorum.sorted.live import LiveFiles, SortedOptions
from cluster.quorum.sorted.memtable import MemoryCursor, Memtable
from cluster.quorum.sorted.reading import SliceRead, TokenScan, Turns
from harness.ports.api import DiskFull, Ports

# ---- records in the log ----
# The first byte of a record tells what it is. A mutation without an id stands as it is encoded, and begins with its
# own format.


_NAMED, _NOTE = b"\x80", b"\x81"
_PLAIN = bytes((QUORUM_FORMAT,))


@dataclass(frozen=True, slots=True)
class MutationRecord:
    """A mutation, encoded, and its id if it has one."""

    id: MutationId | None
    mutation: bytes


@dataclass(frozen=True, slots=True)
class NoteRecord:
    """What the store's owner keeps beside the mutations; it replaces the note before."""

    note: bytes


StoreRecord: TypeAlias = MutationRecord | NoteRecord


def encode_record(record: StoreRecord) -> bytes:
    """For the log; raises ValueError where an id can't be encoded."""
    if isinstance(record, NoteRecord):
        return _NOTE + record.note
    return record.mutation if record.id is None else _NAMED + encode_id(record.id) + record.mutation


def decode_record(data: bytes) -> StoreRecord:
    """What `encode_record` made bytes of; raises CorruptLog."""
    kind = data[:1]
    if kind == _NOTE:
        return NoteRecord(data[1:])
    if kind == _NAMED and len(data) > ID_BYTES:
        return MutationRecord(decode_id(data[1 : 1 + ID_BYTES]), data[1 + ID_BYTES :])
    if kind == _PLAIN:
        return MutationRecord(None, data)
    raise CorruptLog(f"the log holds a record that begins with {kind.hex() or 'nothing'}")


def note_in(data: bytes) -> bytes | None:
    """The note of an encoded record that is one."""
    return data[1:] if data[:1] == _NOTE else None


def mutation_in(data: bytes) -> bytes | None:
    """The mutation of an encoded record that is one."""
    kind = data[:1]
    if kind == _NAMED:
        return data[1 + ID_BYTES :]
    return data if kind == _PLAIN else None


# ---- the store ----


T = TypeVar("T")

_COMING_BYTES = 1 << 18
"""Mutations on their way to the log; more wait. One turn of the event loop merges all that one fsync made durable."""
_FULL_TABLES = 2
"""Full memtables that wait to be flushed; with more, writes wait."""
_LOG_TABLES = 4
"""How many memtables' worth of the log may be held back by what is not reconciled."""
_REPLAY_TURN = 256
"""Mutations merged in one turn at a restart."""

MOST_NOTES = 256
"""After how many notes what is in memory is flushed, however little it is."""

OnQuarantined = Callable[[Quarantined], None]


def ignore_quarantine(_: Quarantined) -> None:
    """For owners that learn of damage from their next call."""


@dataclass(slots=True)
class _Coming:
    """Mutations that are not durable yet, in the order of the log, with what they take there."""

    mutations: deque[tuple[PartitionMutation, MutationId | None, int]] = field(default_factory=deque)
    bytes: int = 0

    def add(self, mutation: PartitionMutation, each: MutationId | None, size: int) -> None:
        """One more, the last."""
        self.mutations.append((mutation, each, size))
        self.bytes += size

    def first(self) -> tuple[PartitionMutation, MutationId | None, int]:
        """The first, which is durable now."""
        found = self.mutations.popleft()
        self.bytes -= found[2]
        return found

    def take_back(self) -> None:
        """The last was not taken by the log."""
        self.bytes -= self.mutations.pop()[2]


class Signal:
    """What some wait for that others bring about, maybe before anybody waits: waiters look again at what they need."""

    def __init__(self) -> None:
        self._future: asyncio.Future[None] | None = None

    async def wait(self) -> None:
        """Wait until it is told next."""
        if self._future is None:
            self._future = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._future)

    def tell(self) -> None:
        """Wake all that wait."""
        future, self._future = self._future, None
        if future is not None and not future.done():
            future.set_result(None)


class SortedStore:
    """Made by `open`. Implements `cluster.quorum.partition_store.PartitionStore`.

    Damage quarantines the replica for good (G7): the log is told, `on_quarantined` is called once, and from then on
    every call raises Quarantined. Its files go with its group (`cluster.log.node.NodeLog.destroy`).
    """

    def __init__(self, ports: Ports, knobs: Knobs, log: GroupLog, options: SortedOptions, purgeable: Purgeable) -> None:
        self.stats = StoreStats()
        self.noted: bytes | None = None
        self._ledger: Ledger | None = None
        self._clock, self._log, self._options, self._purgeable = ports.clock, log, options, purgeable
        pace = Pace(knobs.bulk_bytes_per_s, knobs.disk_retry_ms / 1e3)
        self._live = LiveFiles(ports, files_prefix(log.group), pace, self.stats, self._spawn)
        self._journal = Journal(log, self._durable)
        self._tables: deque[Memtable] = deque([Memtable()])
        """The last takes what is written, those before it are full and wait for their flush; never empty."""
        self._coming = _Coming()
        """What the log was given and is not durable; in the log's order."""
        self._replaying: list[tuple[int, bytes]] | None = []
        """Records that a restart finds, gathered until all are there; None from then on."""
        self._room, self._full, self._added = Signal(), Signal(), Signal()
        """There is room for writes again, a memtable is full, a file was added."""
        self._compacting = asyncio.Lock()
        """Held by the one compaction that runs."""
        self._tasks: dict[asyncio.Task[None], None] = {}
        """What runs in the background."""
        self._damage: Quarantined | None = None
        """Why nothing is served any more; set once."""
        self._on_quarantined: OnQuarantined = ignore_quarantine
        """Told of the damage, once."""
        self._notes = 0
        """Notes since the last memtable was begun for their sake."""
        self._cut_at = 0
        """The log keeps nothing up to this number; at most what is flushed and what the ledger lets go of."""
        self._cutting: int | None = None
        """Up to where the cut goes that is under way."""

    @classmethod
    async def open(
        cls,
        ports: Ports,
        knobs: Knobs,
        log: GroupLog,
        options: SortedOptions | None = None,
        purgeable: Purgeable = keep_all,
        on_quarantined: OnQuarantined = ignore_quarantine,
        ledger: Ledger | None = None,
    ) -> SortedStore:
        """Recover what is stored, or begin; `ledger` hears of mutations with ids. Raises Quarantined, OtherVersion."""
        store = cls(ports, knobs, log, options or SortedOptions(), purgeable)
        store._on_quarantined, store._ledger = on_quarantined, ledger
        await store._recover()
        store._spawn(store._flushing())
        store._spawn(store._compactions())
        return store

    # ---- PartitionStore ----

    async def apply(self, mutation: PartitionMutation, each: MutationId | None = None) -> None:
        """Make a mutation durable, then visible, as a whole; raises DiskFull where it was not taken, Quarantined.

        Whoever is cancelled meanwhile doesn't know: the mutation may become durable.
        """
        await self.apply_all((Arrival(mutation, encode_mutation(mutation), each),))

    async def apply_all(self, arrivals: Sequence[Arrival]) -> None:
        """Make mutations durable, then visible, in this order, as many at once as the way to the log has room for.

        After DiskFull some of several may have been taken.
        """
        at = 0
        while at < len(arrivals):
            while self._congested():
                self._require_whole()
                await self._room.wait()
            taken, durable = self._send(arrivals, at)
            at += taken
            await asyncio.shield(durable)

    def begin_apply(self, arrivals: Sequence[Arrival]) -> asyncio.Future[None]:
        """`apply_all`, begun in this turn where there is room: what comes back is for all who wait (shield it)."""
        if len(arrivals) > 1 or self._congested():
            return asyncio.create_task(self.apply_all(arrivals), name="quorum.store")
        return self._send(arrivals, 0)[1]

    def _congested(self) -> bool:
        return self._coming.bytes >= _COMING_BYTES or len(self._tables) > 1 + _FULL_TABLES

    def _send(self, arrivals: Sequence[Arrival], at: int) -> tuple[int, asyncio.Future[None]]:
        """Hand as many as there is room for on to the log: how many, and what is done when these are visible."""
        self._require_whole()
        records: list[bytes] = []
        while at < len(arrivals) and self._coming.bytes < _COMING_BYTES:
            mutation, encoded, each = arrivals[at]
            record = encode_record(MutationRecord(each, encoded))
            records.append(record)
            self._coming.add(mutation, each, len(record))
            at += 1
        try:
            return len(records), self._journal.begin(records)
        except JournalFull as error:
            for _ in records:
                self._coming.take_back()
            raise DiskFull("the node's log takes nothing now") from error

    def logged(self, number: int) -> bytes | None:
        """The mutation at a place of the log, encoded; None where the log keeps it no more."""
        data = self._journal.read(number)
        return None if data is None else mutation_in(data)

    async def find(self, number: int) -> bytes | None:
        """The mutation at a place of the log, also where it was set aside since; None where it is kept no more.

        Raises Quarantined.
        """
        self._require_whole()
        found, aside = self.logged(number), self._live.aside(number)
        if found is not None or aside is None:
            return found
        try:
            return await aside.read(number)
        except CorruptLog as error:
            if aside not in self._live.asides:
                return None  # it went meanwhile: every replica has it
            raise self._harm(error) from error

    async def note(self, note: bytes) -> None:
        """Keep these bytes durably beside the mutations, in place of those before; raises DiskFull, Quarantined."""
        self._require_whole()
        try:
            await self._journal.put((encode_record(NoteRecord(note)),))
        except JournalFull as error:
            raise DiskFull("the node's log takes nothing now") from error

    def release(self) -> None:
        """The ledger needs less of the log than before."""
        self._cut()
        ledger = self._ledger
        if ledger is not None and any(each.ref.above <= ledger.low_bound for each in self._live.asides):
            self._spawn(self._guarded(partial(self._live.drop_asides, ledger.low_bound)))

    async def read(self, asked: Slice) -> Page:
        """The slice as it was at the moment of the call; raises Quarantined."""
        self._require_whole()
        pinned = self._live.pin()
        try:
            place = place_of(asked.partition)
            files = [file for file in pinned if file.may_hold(place)]
            reading = SliceRead(asked, self._tables, files, self._clock)
            self.stats.reads_from_disk += bool(files)
            return await reading.page()
        except CorruptLog as error:
            raise self._harm(error) from error
        finally:
            self._live.unpin(pinned)

    def scan(self, first: int = 0, last: int = TOKENS - 1) -> TokenScan:
        """Partitions with tokens from `first` to `last`, both included; it has to be read to its end, or closed."""
        self._require_whole()
        low: Place = (first.to_bytes(8, "big"), LOWEST_KEY)
        high: Place = HIGHEST_PLACE if last == TOKENS - 1 else ((last + 1).to_bytes(8, "big"), LOWEST_KEY)
        return TokenScan(self._tables, self._live, (low, high), self._clock, self._harm)

    async def flush(self) -> None:
        """Write what is in memory to a file; returns when the log may forget it. Raises Quarantined."""
        self._require_whole()
        last = max(table.last for table in self._tables)
        if self._tables[-1].logged_bytes:
            self._begin_table()
        while self._live.flushed < last:
            self._require_whole()
            await self._room.wait()

    async def compact_all(self) -> None:
        """Merge all files into one; raises Quarantined."""
        async with self._compacting:
            self._require_whole()
            await self._guarded(partial(self._compact, self._live.files))
        self._require_whole()

    async def close(self) -> None:
        """Stop; what was acknowledged is found again."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._journal.close()

    @property
    def logged_bytes(self) -> int:
        """About how much of the log mutations and notes take."""
        return self._journal.log_bytes

    @property
    def files(self) -> tuple[SortedFile, ...]:
        """The files in use."""
        return self._live.files

    # ---- recovery ----

    async def _recover(self) -> None:
        base: list[bytes] = []
        try:
            await self._live.open(leftovers=self._log.recover().fresh)
            await self._journal.recover(base.append)
            self._cut_at = int.from_bytes(base[0], "big") if base else 0
            self.noted = base[1] if len(base) > 1 else None
            if self._cut_at > self._live.flushed:
                raise CorruptLog("the manifest is older than the log says")
        except Quarantined:
            raise
        except CorruptLog as error:
            raise self._harm(error) from error
        found, self._replaying = self._replaying or [], None
        for aside in self._live.asides:
            await self._in_turns(aside, self._tell_aside)
            if self._ledger is not None:
                self._ledger.set_aside([each.number for each in aside])
        await self._in_turns(found, self._replay)
        if self._ledger is not None:
            self._ledger.recovered(self._journal.durable)
        self._cut()

    async def _in_turns(self, items: Iterable[T], take: Callable[[T], None]) -> None:
        """Take many in, without keeping everybody else on the node waiting."""
        for at, each in enumerate(items, 1):
            take(each)
            if at % _REPLAY_TURN == 0:
                await self._clock.sleep(0)

    def _replay(self, stored: tuple[int, bytes]) -> None:
        """What is in files already is known by its id only."""
        number, data = stored
        record = decode_record(data)
        if isinstance(record, NoteRecord):
            self.noted = record.note
            return
        if number > self._live.flushed:
            mutation = decode_mutation(record.mutation)
            self._merge(number, mutation, len(data))
            self._tell(number, record.id, mutation.partition)
        elif record.id is not None:
            self._tell(number, record.id, partition_in(record.mutation))

    # ---- the log's side ----

    def _durable(self, number: int, data: bytes) -> None:
        """A mutation is durable: it becomes visible, and known by its id in the same turn."""
        if self._replaying is not None:
            self._replaying.append((number, data))
            return
        if (note := note_in(data)) is not None:
            self._take_note(number, note)
            return
        mutation, each, size = self._coming.first()
        self._merge(number, mutation, size)
        self._tell(number, each, mutation.partition)
        self._room.tell()

    def _take_note(self, number: int, note: bytes) -> None:
        """The notes before have no use any more; where nobody writes, nothing else would let the log forget them."""
        self.noted = note
        self._notes += 1
        if self._notes >= MOST_NOTES:
            self._notes = 0
            self._tables[-1].last = number
            self._begin_table()

    def _tell(self, number: int, each: MutationId | None, partition: KeyBytes) -> None:
        if each is not None and self._ledger is not None:
            self._ledger.stored(number, each, partition)

    def _tell_aside(self, each: SetAside) -> None:
        if self._ledger is not None:
            self._ledger.stored(each.number, each.id, each.partition)

    def _merge(self, number: int, mutation: PartitionMutation, size: int) -> None:
        table = self._tables[-1]
        table.apply(number, mutation, size)
        if table.logged_bytes >= self._options.memtable_bytes:
            self._begin_table()

    def _begin_table(self) -> None:
        self._tables.append(Memtable())
        self._full.tell()

    # ---- flushing ----

    async def _flushing(self) -> None:
        """Write full memtables to files, the oldest first, for ever."""
        while True:
            if len(self._tables) > 1:
                await self._guarded(partial(self._flush, self._tables[0]))
            else:
                await self._full.wait()

    async def _flush(self, table: Memtable) -> None:
        writer = self._live.writer(self._options)
        cursor, turns = MemoryCursor(table, LOWEST_PLACE, HIGHEST_PLACE), Turns(self._clock)
        await cursor.advance()
        while cursor.chunk is not None:
            await writer.add(cursor.chunk)
            await turns.took(cursor.chunk)
            await cursor.advance()
        # Until the file is in use the memtable is; for a moment they may both be.
        await self._live.install(await writer.finish(), (), table.last)
        self._tables.popleft()
        self.stats.flushes += 1
        self._cut()
        self._room.tell()
        self._added.tell()
        await self._set_aside()

    async def _set_aside(self) -> None:
        """Where what is not reconciled holds back too much of the log, keep it beside the files."""
        ledger = self._ledger
        if ledger is None or self.logged_bytes < _LOG_TABLES * self._options.memtable_bytes:
            return
        due = [(each, self.logged(each[0])) for each in ledger.needed(self._live.flushed)]
        kept = [(*each, encoded) for each, encoded in due if encoded is not None]
        if await self._live.set_aside(kept) is not None:
            ledger.set_aside([number for number, *_ in kept])
            self._cut()

    def _cut(self) -> None:
        """Let the log forget what is in files, and what the ledger does not need; one cut at a time."""
        number, needed = self._live.flushed, None if self._ledger is None else self._ledger.needs_from
        if needed is not None:
            number = min(number, needed - 1)
        if self._cutting is None and number > self._cut_at:
            self._cutting = number
            base = [number.to_bytes(8, "big"), *([] if self.noted is None else [self.noted])]
            self._journal.cut(number, iter(base), self._was_cut)

    def _was_cut(self) -> None:
        self._cut_at, self._cutting = self._cutting or 0, None
        if self._ledger is not None:
            self._ledger.collected(self._cut_at)
        self._cut()

    # ---- compaction ----

    async def _compactions(self) -> None:
        """Merge files of similar sizes, for ever."""
        while True:
            async with self._compacting:
                inputs = choose_inputs(self._live.files, self._options)
                if inputs:
                    await self._guarded(partial(self._compact, inputs))
            if not inputs:
                await self._added.wait()

    async def _compact(self, inputs: tuple[SortedFile, ...]) -> None:
        def oldest_elsewhere(partition: KeyBytes) -> int | None:
            return self._oldest_elsewhere(partition, inputs)

        forgetting = Forgetting(self._purgeable, oldest_elsewhere)
        made = await compact(inputs, self._live.writer(self._options), forgetting, self._clock)
        await self._live.install(made, inputs, None)
        self.stats.compactions += 1

    def _oldest_elsewhere(self, partition: KeyBytes, inputs: tuple[SortedFile, ...]) -> int | None:
        """The lowest timestamp of a partition in memory, on its way there, or in other files."""
        place = place_of(partition)
        found = [table.oldest(place) for table in self._tables]
        found += [
            oldest_timestamp(each.contents) for each, _, _ in self._coming.mutations if each.partition == partition
        ]
        found.append(self._live.oldest_elsewhere(place, inputs))
        return min((each for each in found if each is not None), default=None)

    # ---- damage ----

    async def _guarded(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Background work that finds damage harms this replica, and nobody else. It is made when its turn comes: a
        task that is cancelled before leaves nothing that was never awaited."""
        try:
            await work()
        except CorruptLog as error:
            self._harm(error)

    def _harm(self, error: CorruptLog) -> Quarantined:
        """What is stored is damaged: this replica must never run on it again (G7)."""
        if self._damage is None:
            self._damage = self._log.quarantine(str(error))
            self._journal.close(self._damage)
            for task in list(self._tasks):
                task.cancel()
            self._room.tell()
            self._on_quarantined(self._damage)
        return self._damage

    def _require_whole(self) -> None:
        if self._damage is not None:
            raise self._damage

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._log.spawn(work)
        self._tasks[task] = None
        task.add_done_callback(lambda ended: self._tasks.pop(ended, None))
