"""The replicated state machine of one tablet, and its commands: lease record, cells with versions, client sessions.

Deterministic: everything is decided by the commands and their order in the log. A command carries the sequence of the
lease it was proposed under and is refused at apply under another (R2); a request that took effect gets its first
answer again (R1, G8), also when the double is found here only. Results are encoded replies of `cluster.wire.messages`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Literal, TypeAlias

import msgspec

from cluster.groups.sessions import FORGOTTEN, SESSION_ENDED, FrozenSessions, RegisterClient, SessionRows, Sessions
from cluster.log.snapshots import gathered
from cluster.ranges.lease_record import (
    AcquireLease,
    HandOverLease,
    Lease,
    RenewLease,
    acquired,
    binds,
    extended,
    handed_over,
)
from cluster.store.cells import MASK, Key, Span, Value, fingerprint
from cluster.store.hlc import ClockReading, Timestamp
from cluster.store.intents import Intent, IntentRow
from cluster.store.mvcc import LATEST, FrozenCells, LocalTimeRow, MvccStore, StoreRow, Version
from cluster.store.schema import Column
from cluster.wire.messages import ErrorReply, RequestId, SessionReply, encode


class Put(msgspec.Struct, frozen=True, array_like=True):
    """A new version of one cell; None deletes."""

    key: Key
    value: Value


class WriteBatch(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """What one request changes, not what was asked (G2), all of it at `timestamp`; carried out whole or refused whole.

    `lease_sequence` was fixed at evaluation, `closed` (nothing at or below it is written by later commands) where the
    position in the log was. `answer` is the request's encoded reply, remembered under `request_id`; a request that
    only looked, such as a compare-and-set that failed, has no `puts`. `reading` is what the leaseholder's clock showed
    where the position was fixed: the lease is extended by `duration_ns` from there, and sessions age by it.
    """

    request_id: RequestId
    lease_sequence: int
    timestamp: int
    closed: int
    reading: ClockReading
    duration_ns: int
    puts: tuple[Put, ...]
    answer: bytes


HoldStep: TypeAlias = Literal["lay", "commit", "abort"]


class HoldBatch(msgspec.Struct, frozen=True, array_like=True, tag=21):
    """A step of what a transaction holds in this tablet, carried out whole or refused whole as its batch would be.

    `lay` lays the puts at the batch's timestamp, in place of what it held there; they are held `since` that time of the
    clock. `commit` makes versions of what is held, at that timestamp, which may be closed by now: "可能会有小于
    closed ts 的 commit" (there may be commits below it, only no new intents). `abort` lets it go. A batch without a
    request is of the leaseholder itself, and nobody waits for its answer.
    """

    step: HoldStep
    transaction: str
    since: int
    batch: WriteBatch


NO_REQUEST = RequestId(0, 0, 0)


class AlterSchema(msgspec.Struct, frozen=True, array_like=True, tag=20):
    """The tablet's schema from here on, unless it has a later version already.

    It needs no lease: cells are stored by column id, so what was decided under another schema stays right.
    """

    version: int
    columns: tuple[Column, ...]

    @property
    def policy(self) -> str:
        """How the tablet is closed, if not as knobs say (`cluster.ranges.policies`)."""
        return ""


class AlterPolicy(AlterSchema, frozen=True, array_like=True, tag=22):
    """A schema with a policy. What is closed stays closed, by whichever."""

    policy: str


def schema_of(version: int, columns: tuple[Column, ...], policy: str) -> AlterSchema:
    """The command that gives a tablet these."""
    return AlterPolicy(version, columns, policy) if policy else AlterSchema(version, columns)


TabletCommand: TypeAlias = (
    AcquireLease | RenewLease | HandOverLease | WriteBatch | HoldBatch | RegisterClient | AlterSchema | AlterPolicy
)

decode_command = msgspec.msgpack.Decoder(TabletCommand).decode

SNAPSHOT_VERSION = 6

NO_SCHEMA = AlterSchema(0, ())
"""The schema of a table which is addressed by integers and has no columns: in tests."""


class _Head(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """The first part of a snapshot."""

    version: int
    lease: Lease | None
    last_write: int
    closed: int
    threshold: int
    schema: AlterSchema | AlterPolicy | None
    write_index: int = 0


class _Cells(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """A part of a snapshot: some rows of cells."""

    rows: list[StoreRow]


class _LocalTimes(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """A part of a snapshot: when some versions were written."""

    rows: list[LocalTimeRow]


class _Intents(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """A part of a snapshot: some open intents."""

    rows: list[IntentRow]


class _Clients(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """A part of a snapshot: some sessions."""

    sessions: SessionRows


_decode_part = msgspec.msgpack.Decoder(_Head | _Cells | _LocalTimes | _Intents | _Clients).decode


def _parts(head: _Head, cells: FrozenCells, sessions: FrozenSessions, part_bytes: int) -> Iterator[bytes]:
    yield encode(head)
    for rows in gathered(cells.rows(part_bytes), part_bytes):
        yield encode(_Cells(rows))
    for times in gathered(cells.local_times, part_bytes):
        yield encode(_LocalTimes(times))
    for intents in gathered(cells.intents, part_bytes):
        yield encode(_Intents(intents))
    for part in sessions.parts(part_bytes):
        yield encode(_Clients(part))


_NO_ANSWER = b""


def _refused(holder: str | None) -> bytes:
    return encode(ErrorReply("NOT_THE_LEADER", "proposed under another lease", definite=True, leader=holder))


OnLease: TypeAlias = Callable[[Lease | None, Lease], None]
"""Called with the lease before, as it is by then, and the one that follows it."""


OnBatch: TypeAlias = Callable[[WriteBatch, int], None]
"""Called with a batch that is about to be carried out, and with what is closed before it."""

OnHold: TypeAlias = Callable[[HoldBatch, int], None]
"""Called with a step of what is held that is about to be carried out, and with what is closed before it."""


WrittenState: TypeAlias = tuple[int, int, int, int, int, int]
"""The write index; digests of the store and the schema; last write, closed timestamp, threshold of the store."""


def _ignore(*_: object) -> None:
    return None


class TabletMachine:
    """State of one tablet's replica; read by its server, changed by `apply` alone.

    `last_write` is the highest timestamp of a change applied, whether it wrote or only looked; changes need not rise
    along the log. `closed` does: nothing at or below it is applied any more (R4). `on_lease` is told of every lease
    record that is applied, `on_over` that a lease was handed over, `on_batch` of every batch that is not refused.
    `schema` is the latest that came through the log, None before the first (M5); `on_schema` is called when it changes.

    `write_index` is the index of the last entry that changed what reads find or may find: a batch that was carried
    out, a schema. Leases, sessions, refused commands and empty entries leave it alone (G6). `open_intents` are those of
    transactions, by cell (R9).
    """

    def __init__(
        self, retention_ns: int, flaws: frozenset[str] = frozenset(), created: AlterSchema = NO_SCHEMA
    ) -> None:
        self._retention_ns = retention_ns
        self._created = created
        self._flaws = flaws
        self._store = self._old_store = MvccStore()
        self.open_intents: Mapping[Key, Intent] = self._store.intents.by_key
        self._sessions = Sessions(flaws)
        self.on_lease: OnLease = _ignore
        self.on_batch: OnBatch = _ignore
        self.on_hold: OnHold = _ignore
        self.on_schema: Callable[[], None] = lambda: None
        self.on_over: Callable[[], None] = lambda: None
        self.lease: Lease | None = None
        self.schema: AlterSchema | None = None
        self.last_write = self.closed = self.write_index = 0
        self._note_rare()

    @property
    def digest(self) -> int:
        """64 bits of everything that a snapshot holds (G10)."""
        store, lease = self._store, self.lease
        expiration = 0 if lease is None else lease.expiration
        head = (self._rare_print, expiration, self.write_index, self.last_write, self.closed, store.threshold)
        return fingerprint(head) + store.digest + self._sessions.digest & MASK

    @property
    def written_state(self) -> WrittenState:
        """The write index, and what changes with it alone: all but the lease and the sessions (G10)."""
        store = self._store
        return self.write_index, store.digest, self._schema_print, self.last_write, self.closed, store.threshold

    def _set_lease(self, lease: Lease | None) -> None:
        """Another lease than before, or the end of one; that its expiration moves ahead is `_carry_out`'s."""
        self.lease = lease
        self._note_rare()

    def _note_rare(self) -> None:
        """Fingerprints of what changes rarely: of the schema, and with it of the lease but for its expiration."""
        lease = self.lease and msgspec.structs.replace(self.lease, expiration=Timestamp(0))
        self._schema_print = fingerprint(self.schema)
        self._rare_print = fingerprint((lease, self.schema))

    # ---- what is read ----

    @property
    def schema_in_force(self) -> AlterSchema:
        """The schema from the log, or the one that this replica was created with."""
        return self.schema or self._created

    @property
    def threshold(self) -> int:
        """Below it, versions may be collected already."""
        return self._store.threshold

    def read(self, key: Key, as_of: int = LATEST) -> Version | None:
        """The version in force at `as_of`; raises OpenIntent."""
        return self._store.read(key, as_of)

    def scan(self, span: Span, as_of: int = LATEST) -> list[tuple[Key, Version]]:
        """The cells of a span in force at `as_of`, in order; raises OpenIntent."""
        return self._store.scan(span, as_of)

    def newest(self, span: Span) -> int:
        """The timestamp of the newest version of any cell in the span."""
        return self._store.newest(span)

    def newest_by(self, span: Span, limit: int) -> int:
        """The timestamp of the newest version of any cell in the span that is not above `limit`."""
        return self._store.newest_by(span, limit)

    def lowest_intent(self, spans: Iterable[Span]) -> IntentRow | None:
        """What transactions have open in these spans at the lowest timestamp; None if nothing is."""
        if not self.open_intents:
            return None
        found = [lowest for span in spans if (lowest := self._store.intents.lowest(span)) is not None]
        return min(found, key=lambda row: row[1].timestamp, default=None)

    def held_by(self, transaction: str) -> dict[Key, Intent]:
        """What a transaction holds here."""
        return {key: each for key, each in self.open_intents.items() if each.transaction == transaction}

    def check_intents(self, spans: Iterable[Span]) -> None:
        """Raise OpenIntent if an intent is open in these spans: nothing may be written there (R9)."""
        self._store.check_intents(spans)

    # ---- request ids (R1, G8) ----

    def answered(self, request_id: RequestId) -> bytes | None:
        """The answer to a request that needs no command: it took effect, or its session has ended."""
        return self._sessions.answered(request_id)

    # ---- what changes it ----

    def apply(self, index: int, command: bytes) -> bytes:
        """Apply one committed command; the result is an encoded reply (empty for lease commands)."""
        change: TabletCommand = decode_command(command)
        if isinstance(change, WriteBatch):
            return self._apply_batch(index, change)
        if isinstance(change, HoldBatch):
            return self._apply_batch(index, change.batch, change)
        if isinstance(change, RegisterClient):
            self._sessions.register(index, change)
            return encode(SessionReply(index))
        if isinstance(change, AlterSchema):
            self._alter(index, change)
            return _NO_ANSWER
        if isinstance(change, AcquireLease):
            lease = acquired(self.lease, change, "low-water-not-inherited" not in self._flaws)
            if lease is not None:
                self.on_lease(self.lease, lease)
                self._set_lease(lease)
            return _NO_ANSWER
        if self.lease is None or not binds(self.lease, change.lease_sequence):
            return _refused(self.lease.holder if self.lease else None)
        if isinstance(change, RenewLease):
            self.lease = extended(self.lease, change.reading, change.duration_ns)
            self._sessions.advance(change.reading)
            return _NO_ANSWER
        if isinstance(change, HandOverLease):
            self._set_lease(handed_over(self.lease, change))
            self.on_over()
        return _NO_ANSWER

    def _apply_batch(self, index: int, batch: WriteBatch, hold: HoldBatch | None = None) -> bytes:
        lease = self.lease
        if lease is None or not self._may_apply(lease, batch):
            return self._voided(batch, _refused(lease.holder if lease else None))
        self._sessions.advance(batch.reading)
        if hold is not None and batch.request_id == NO_REQUEST:
            self._carry_out(lease, batch, hold)
            self.write_index = index
            return batch.answer
        answer = self._sessions.answered(batch.request_id)
        if answer is not None and not self._carried_out_twice(answer):
            return self._voided(batch, answer)
        self._carry_out(lease, batch, hold)
        self.write_index = index
        if answer is None:
            self._sessions.record(batch.request_id, batch.answer)
        return batch.answer

    def _voided(self, batch: WriteBatch, answer: bytes) -> bytes:
        """The answer to a batch that is refused, by its lease or as a double: its closed timestamp is void too."""
        if "closed-of-refused" in self._flaws:
            self.closed = max(self.closed, batch.closed)
        return answer

    def _may_apply(self, lease: Lease, batch: WriteBatch) -> bool:
        """Whether it was evaluated under this lease; with the flaw any other will do."""
        return binds(lease, batch.lease_sequence) or "any-lease-sequence" in self._flaws

    def _carried_out_twice(self, answer: bytes) -> bool:
        """A double whose first answer is known; with the flaw it is not looked for."""
        return "double-apply" in self._flaws and answer not in (SESSION_ENDED, FORGOTTEN)

    def _carry_out(self, lease: Lease, batch: WriteBatch, hold: HoldBatch | None) -> None:
        """The whole batch, and what its position has closed."""
        if hold is not None:
            self.on_hold(hold, self.closed)
            self._carry_hold_out(hold)
        else:
            self.on_batch(batch, self.closed)
            for put in batch.puts:
                self._store.write(put.key, batch.timestamp, put.value, batch.reading)
        if batch.timestamp > self.last_write:
            self.last_write = batch.timestamp
        if batch.closed > self.closed:
            self.closed = batch.closed
        self.lease = extended(lease, batch.reading, batch.duration_ns)
        # What is not closed may still be written; nothing is written under what is collected.
        threshold = batch.timestamp - self._retention_ns
        if threshold > self.closed:
            threshold = self.closed
        if threshold > self._store.threshold:
            self._store.threshold = threshold

    def _carry_hold_out(self, hold: HoldBatch) -> None:
        timestamp = hold.batch.timestamp
        for put in hold.batch.puts:
            if hold.step == "lay":
                self._store.lay(put.key, Intent(hold.transaction, timestamp, put.value, hold.since))
            else:
                self._store.resolve(put.key, hold.transaction, timestamp if hold.step == "commit" else None)

    def _alter(self, index: int, schema: AlterSchema) -> None:
        """Once per version, however often it was proposed."""
        if self.schema is None or self.schema.version < schema.version:
            self.write_index = index
            self._set_schema(schema)

    def _set_schema(self, schema: AlterSchema) -> None:
        self.schema = schema
        self._note_rare()
        self.on_schema()

    def freeze(self, part_bytes: int) -> Iterator[bytes]:
        """Everything, client sessions included."""
        closed = 0 if "snapshot-forgets-closed" in self._flaws else self.closed
        times = (self.last_write, closed, self._store.threshold)
        head = _Head(SNAPSHOT_VERSION, self.lease, *times, self.schema, self.write_index)
        return _parts(head, self._store.freeze(), self._sessions.freeze(), part_bytes)

    def restoring(self) -> Callable[[bytes], None]:
        """Empty this; what takes the parts in raises ValueError for another format version.

        The old state goes at the pace at which the new one comes.
        """
        self._old_store = self._store
        self._store, self._sessions = MvccStore(), Sessions(self._flaws)
        self.open_intents = self._store.intents.by_key
        self.last_write = self.closed = self.write_index = 0
        self.schema = None
        self._set_lease(None)
        return self._restore

    def _restore(self, encoded: bytes) -> None:
        part = _decode_part(encoded)
        if isinstance(part, _Cells):
            for row in part.rows:
                self._store.restore(row)
            self._old_store.shed(2 * len(part.rows))
        elif isinstance(part, _LocalTimes):
            for time in part.rows:
                self._store.restore_local_time(time)
        elif isinstance(part, _Intents):
            for intent in part.rows:
                self._store.restore_intent(intent)
        elif isinstance(part, _Clients):
            self._sessions.restore(part.sessions)
            self._old_store = MvccStore()
        elif part.version != SNAPSHOT_VERSION:
            raise ValueError(f"tablet snapshot of format version {part.version}; this program reads {SNAPSHOT_VERSION}")
        else:
            self._store.raise_threshold(part.threshold)
            self.last_write, self.closed, self.write_index = part.last_write, part.closed, part.write_index
            self._set_lease(part.lease)
            if part.schema is not None:
                self._set_schema(part.schema)
