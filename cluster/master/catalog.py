"""The catalog's replicated state machine: batches of changes, all or nothing (M1, M7), each request once (M14).

Beside it the leader's caches: indexes over what is committed (M2).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias

import msgspec

from cluster.groups.sessions import FrozenSessions, RegisterClient, SessionRows, Sessions
from cluster.master.records import ServerRecord, TableRecord, TabletRecord
from cluster.store.cells import MASK, fingerprint
from cluster.wire.messages import RequestId, SessionReply

CATALOG_FORMAT = 6
"""Version of the batches in the log and of the snapshots."""

_RECORD_BYTES = 512
"""About what a record takes in a snapshot."""


class CatalogBatch(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """One logical operation (M7): every record it changes, at the revision after the one it was made from.

    `time` is the proposer's wall clock (ns), by which client sessions end (G8). `reply` is what
    the request is answered with if the batch is taken; retries of the request get the same.
    """

    format: int
    time: int
    request_id: RequestId | None
    reply: bytes
    tables: tuple[TableRecord, ...]
    tablets: tuple[TabletRecord, ...]
    servers: tuple[ServerRecord, ...] = ()


class BatchOutcome(msgspec.Struct, frozen=True, array_like=True):
    """What became of a batch: `conflict` says why it was refused (nothing of it took effect), else `reply` counts."""

    conflict: str | None
    reply: bytes


class CatalogState(msgspec.Struct, frozen=True, array_like=True):
    """A part of a snapshot: some records, or some sessions."""

    format: int
    tables: tuple[TableRecord, ...] = ()
    tablets: tuple[TabletRecord, ...] = ()
    sessions: SessionRows | None = None
    servers: tuple[ServerRecord, ...] = ()


class UnknownFormat(Exception):
    """A log entry or snapshot of another version: this program must not run on it."""


Record: TypeAlias = TableRecord | TabletRecord | ServerRecord

_encode = msgspec.msgpack.Encoder().encode
_decode_command = msgspec.msgpack.Decoder(CatalogBatch | RegisterClient).decode
_decode_state = msgspec.msgpack.Decoder(CatalogState).decode
decode_outcome = msgspec.msgpack.Decoder(BatchOutcome).decode

Observer: TypeAlias = Callable[[Sequence[TableRecord], Sequence[TabletRecord], Sequence[ServerRecord]], None]
"""Told of the records of every batch that was taken, in log order."""


def encode_batch(
    tables: Sequence[TableRecord],
    tablets: Sequence[TabletRecord],
    request_id: RequestId | None = None,
    reply: bytes = b"",
    time: int = 0,
    servers: Sequence[ServerRecord] = (),
) -> bytes:
    return _encode(CatalogBatch(CATALOG_FORMAT, time, request_id, reply, tuple(tables), tuple(tablets), tuple(servers)))


def _parts(
    tables: list[TableRecord],
    tablets: list[TabletRecord],
    servers: list[ServerRecord],
    sessions: FrozenSessions,
    part_bytes: int,
) -> Iterator[bytes]:
    yield _encode(CatalogState(CATALOG_FORMAT, servers=tuple(servers)))
    at_once = max(1, part_bytes // _RECORD_BYTES)
    for first in range(0, len(tables), at_once):
        yield _encode(CatalogState(CATALOG_FORMAT, tables=tuple(tables[first : first + at_once])))
    for first in range(0, len(tablets), at_once):
        yield _encode(CatalogState(CATALOG_FORMAT, tablets=tuple(tablets[first : first + at_once])))
    for part in sessions.parts(part_bytes):
        yield _encode(CatalogState(CATALOG_FORMAT, sessions=part))


class Catalog:
    """A `cluster.groups.group.StateMachine` over table and tablet records.

    A batch is refused whole if one of its records was made from another revision than the current one, or would give a
    name to a second table: so a leader whose earlier batch had an unknown outcome cannot build on stale caches.
    """

    def __init__(self, flaws: frozenset[str] = frozenset()) -> None:
        self.tables: dict[str, TableRecord] = {}
        """By id, removed ones too."""
        self.tablets: dict[str, TabletRecord] = {}
        """By id, final ones too."""
        self.servers: dict[str, ServerRecord] = {}
        """By id, those that operators have said something of."""
        self.sessions = Sessions(flaws)
        """Client sessions, and the answers that retries get."""
        self.flaws = flaws
        self.observer: Observer | None = None
        """Told of each batch that is taken."""
        self.on_restoring: Callable[[], None] = lambda: None
        """Called before a snapshot takes everything's place."""
        self._records_digest = 0
        """The sum of all records' fingerprints, modulo 2 ** 64."""
        self._owners: dict[str, str] = {}
        """By name the id of the one table that has it; removed tables have none."""

    @property
    def digest(self) -> int:
        """64 bits of everything that a snapshot holds (G10)."""
        return self._records_digest + self.sessions.digest & MASK

    def apply(self, index: int, command: bytes) -> bytes:
        batch = _decode_command(command)
        if isinstance(batch, RegisterClient):
            self.sessions.register(index, batch)
            return _encode(BatchOutcome(None, _encode(SessionReply(index))))
        if batch.format != CATALOG_FORMAT:
            raise UnknownFormat(f"catalog entry {index} has format {batch.format}, expected {CATALOG_FORMAT}")
        return _encode(self._apply_once(batch))

    def freeze(self, part_bytes: int) -> Iterator[bytes]:
        """Everything; records don't change, so that copies of the maps are enough."""
        servers = list(self.servers.values())
        sessions = self.sessions.freeze()
        return _parts(list(self.tables.values()), list(self.tablets.values()), servers, sessions, part_bytes)

    def restoring(self) -> Callable[[bytes], None]:
        """Empty this; what takes the parts in raises UnknownFormat. `on_restoring` is called first."""
        self.on_restoring()
        self.tables, self.tablets, self.servers, self._owners = {}, {}, {}, {}
        self.sessions = Sessions(self.flaws)
        self._records_digest = 0
        return self._restore

    def _restore(self, encoded: bytes) -> None:
        part = _decode_state(encoded)
        if part.format != CATALOG_FORMAT:
            raise UnknownFormat(f"catalog snapshot has format {part.format}, expected {CATALOG_FORMAT}")
        self._take(part)
        if part.sessions is not None:
            self.sessions.restore(part.sessions)

    def _apply_once(self, batch: CatalogBatch) -> BatchOutcome:
        self.sessions.advance(batch.time)
        request_id = batch.request_id
        if request_id is not None and (answer := self.sessions.answered(request_id)) is not None:
            return BatchOutcome(None, answer)
        conflict = self._conflict(batch)
        if conflict is not None:
            return BatchOutcome(conflict, b"")
        self._take(batch)
        if self.observer is not None:
            self.observer(batch.tables, batch.tablets, batch.servers)
        if request_id is not None:
            self.sessions.record(request_id, batch.reply)
        return BatchOutcome(None, batch.reply)

    def _conflict(self, batch: CatalogBatch) -> str | None:
        for table in batch.tables:
            if table.revision != _next_revision(self.tables.get(table.table_id)):
                return f"table {table.table_id} was changed by another operation"
            if not table.removed and self._owners.get(table.name, table.table_id) != table.table_id:
                return f"the name {table.name!r} belongs to another table"
        for tablet in batch.tablets:
            if tablet.revision != _next_revision(self.tablets.get(tablet.tablet_id)):
                return f"tablet {tablet.tablet_id} was changed by another operation"
        for server in batch.servers:
            if server.revision != _next_revision(self.servers.get(server.server_id)):
                return f"server {server.server_id} was changed by another operation"
        return None

    def _take(self, batch: CatalogBatch | CatalogState) -> None:
        for server in batch.servers:
            self._count(self.servers.get(server.server_id), server)
            self.servers[server.server_id] = server
        for tablet in batch.tablets:
            self._count(self.tablets.get(tablet.tablet_id), tablet)
            self.tablets[tablet.tablet_id] = tablet
        for table in batch.tables:
            self._count(self.tables.get(table.table_id), table)
            self._take_table(table)

    def _count(self, before: Record | None, after: Record) -> None:
        gone = 0 if before is None else fingerprint(before)
        self._records_digest = self._records_digest + fingerprint(after) - gone & MASK

    def _take_table(self, table: TableRecord) -> None:
        previous = self.tables.get(table.table_id)
        if previous is not None and not previous.removed:
            del self._owners[previous.name]
        self.tables[table.table_id] = table
        if not table.removed:
            self._owners[table.name] = table.table_id


def _next_revision(current: Record | None) -> int:
    return 1 if current is None else current.revision + 1


# ---- the leader's caches (M2) ----
# They hold immutable records that are replaced whole, and only by batches that were replicated and applied; a new
# leader builds them from the catalog. There is no map of replicas that heartbeats alone would fill (KUDU-1353).


class Caches:
    """Indexes over committed records; `commit` is the only way they change."""

    def __init__(
        self,
        tables: Iterable[TableRecord],
        tablets: Iterable[TabletRecord],
        servers: Iterable[ServerRecord] = (),
    ) -> None:
        self._tables_by_id: dict[str, TableRecord] = {}
        self._tables_by_name: dict[str, TableRecord] = {}
        self._tablets_by_id: dict[str, TabletRecord] = {}
        self._live_tables: dict[str, TableRecord] = {}
        self._live_tablets: dict[str, TabletRecord] = {}
        self._tablets_per_table: dict[str, dict[str, TabletRecord]] = {}
        self._servers_by_id: dict[str, ServerRecord] = {}
        self.commit(tuple(tables), tuple(tablets), tuple(servers))

    @property
    def tables(self) -> Mapping[str, TableRecord]:
        """All tables by id, removed ones too."""
        return MappingProxyType(self._tables_by_id)

    @property
    def tablets(self) -> Mapping[str, TabletRecord]:
        """All tablets by id, deleted and replaced ones too."""
        return MappingProxyType(self._tablets_by_id)

    @property
    def live_tables(self) -> Mapping[str, TableRecord]:
        """Tables by id that are not removed: what is done again and again looks at these only."""
        return MappingProxyType(self._live_tables)

    @property
    def live_tablets(self) -> Mapping[str, TabletRecord]:
        """Tablets by id that are neither deleted nor replaced."""
        return MappingProxyType(self._live_tablets)

    @property
    def servers(self) -> Mapping[str, ServerRecord]:
        """Tablet servers that operators have said something of, by id."""
        return MappingProxyType(self._servers_by_id)

    @property
    def leaving(self) -> tuple[str, ...]:
        """Tablet servers that are to be emptied."""
        return tuple(server.server_id for server in self._servers_by_id.values() if server.leaving)

    def table_named(self, name: str) -> TableRecord | None:
        """The table that owns the name; removed tables own none."""
        return self._tables_by_name.get(name)

    def named_tables(self) -> Sequence[TableRecord]:
        """Tables that own a name, by name."""
        return [self._tables_by_name[name] for name in sorted(self._tables_by_name)]

    def tablets_of(self, table_id: str) -> Sequence[TabletRecord]:
        """The table's tablets that are not final, by bucket."""
        tablets = self._tablets_per_table.get(table_id, {})
        return sorted((tablet for tablet in tablets.values()), key=lambda tablet: tablet.partition.bucket)

    def commit(
        self, tables: Sequence[TableRecord], tablets: Sequence[TabletRecord], servers: Sequence[ServerRecord] = ()
    ) -> None:
        """Make replicated records visible: tablets before tables (contract of seed 001, step 5)."""
        for server in servers:
            self._servers_by_id[server.server_id] = server
        for tablet in tablets:
            self._commit_tablet(tablet)
        for table in tables:
            self._commit_table(table)

    def _commit_tablet(self, tablet: TabletRecord) -> None:
        self._tablets_by_id[tablet.tablet_id] = tablet
        of_table = self._tablets_per_table.setdefault(tablet.table_id, {})
        for kept in (of_table, self._live_tablets):
            if tablet.final:
                kept.pop(tablet.tablet_id, None)
            else:
                kept[tablet.tablet_id] = tablet

    def _commit_table(self, table: TableRecord) -> None:
        previous = self._tables_by_id.get(table.table_id)
        if previous is not None and self._tables_by_name.get(previous.name) is previous:
            del self._tables_by_name[previous.name]
        self._tables_by_id[table.table_id] = table
        if table.removed:
            self._live_tables.pop(table.table_id, None)
        else:
            self._live_tables[table.table_id] = self._tables_by_name[table.name] = table
