"""What masters answer: the catalog as it was at some entry between the call and the reply (M2, M5, M13).

The watch keeps the records itself, as replicas came to have them entry by entry, and answers each question again. What
is soft is left out: addresses, and who lives. A question that allows an age may be answered by the catalog of then.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Generic, TypeAlias, TypeVar

from cluster.invariants.findings import BreachLog, Moment
from cluster.master.catalog import Catalog
from cluster.master.records import TableRecord, TableState, TabletRecord, TabletState, table_info
from cluster.wire.messages import (
    AlterTable,
    AlterTableReply,
    CreateTable,
    CreateTableReply,
    DeleteTable,
    DeleteTableReply,
    DoneReply,
    ErrorReply,
    GetTableLocations,
    GetTableSchema,
    GetTabletLocations,
    IsAlterTableDone,
    IsCreateTableDone,
    ListTables,
    ListTablesReply,
    PlaceTable,
    TableLocationsReply,
    TableSchemaReply,
    TabletLocation,
    TabletLocationsReply,
)

ANSWERED_AS_APPLIED = "masters-answer-the-catalog"

COMMITS_KEPT = 4_096
AGE_SLACK = 0.05
"""A share of the age that is allowed: clocks run at different rates, and it is counted by those of two nodes."""

Question: TypeAlias = (
    IsCreateTableDone | IsAlterTableDone | ListTables | GetTableSchema | GetTableLocations | GetTabletLocations
)
Ddl: TypeAlias = CreateTable | AlterTable | DeleteTable | PlaceTable
Facts: TypeAlias = tuple[object, ...]
"""What an answer says of the catalog, but for what is soft; empty where there is no such table."""

R = TypeVar("R", TableRecord, TabletRecord)


class RecordHistory(Generic[R]):
    """Records by id, each with the entries that changed it."""

    def __init__(self) -> None:
        self._indexes: dict[str, list[int]] = {}
        self._records: dict[str, list[R]] = {}

    def take(self, index: int, records: Mapping[str, R]) -> bool:
        """All records as of this entry; whether any of them is another than before."""
        changed = False
        for name, record in records.items():
            known = self._records.setdefault(name, [])
            if not known or known[-1].revision != record.revision:
                known.append(record)
                self._indexes.setdefault(name, []).append(index)
                changed = True
        return changed

    def at(self, index: int, name: str) -> R | None:
        """The record as of an entry."""
        place = bisect_right(self._indexes.get(name, ()), index)
        return self._records[name][place - 1] if place else None

    def all_at(self, index: int) -> Iterable[R]:
        """Every record as of an entry."""
        return (record for name in self._records if (record := self.at(index, name)) is not None)


class CatalogAnswers:
    """Fed with the catalog as masters apply it, with what is committed, and with questions and their answers."""

    def __init__(self, findings: BreachLog, moment: Moment) -> None:
        self._findings, self._moment = findings, moment
        self._tables, self._tablets = RecordHistory[TableRecord](), RecordHistory[TabletRecord]()
        self._seen = 0
        self._changes: list[int] = []
        """Entries that changed a record."""
        self._commits: deque[tuple[int, int]] = deque(maxlen=COMMITS_KEPT)
        """When an entry was known to be committed, ns, and its index: both rise."""

    def committed(self, index: int) -> None:
        """Some master knows an entry to be committed."""
        if not self._commits or index > self._commits[-1][1]:
            self._commits.append((self._moment()[0], index))

    def applied(self, index: int, catalog: Catalog) -> None:
        """Records as of this entry, or as of a snapshot up to it; looked at once."""
        if index > self._seen:
            self._seen = index
            tables, tablets = self._tables.take(index, catalog.tables), self._tablets.take(index, catalog.tablets)
            if tables or tablets:
                self._changes.append(index)

    def asked(self, request: object) -> int | None:
        """The lowest entry that an answer to this may be as of, by what is committed now; None if that isn't known."""
        allowed_ms = getattr(request, "max_staleness_ms", None) or 0
        if not allowed_ms:
            return self._commits[-1][1] if self._commits else 0
        since_ns = self._moment()[0] - int(allowed_ms * 1e6 * (1 + AGE_SLACK))
        place = bisect_right(self._commits, since_ns, key=lambda commit: commit[0])
        if not place:
            return 0 if len(self._commits) < COMMITS_KEPT else None
        return self._commits[place - 1][1]

    def answered(self, life: int, request: object, lowest: int | None, reply: object) -> None:
        """A master answers what was asked when this was the lowest entry."""
        if lowest is None or not isinstance(request, Question | Ddl):
            return
        said = _facts(reply)
        if said is None:
            return
        self._findings.checked[ANSWERED_AS_APPLIED] += 1
        entries = [lowest, *self._changes[bisect_right(self._changes, lowest) :]]
        if not any(self._true(request, reply, said, index) for index in entries):
            message = f"{request} is answered {reply}, which the catalog says at none of the entries {entries[:9]}"
            self._findings.tell(ANSWERED_AS_APPLIED, message, (life,), None)

    def _true(self, request: Question | Ddl, reply: object, said: Facts, index: int) -> bool:
        """Whether an answer is right as of an entry."""
        if isinstance(request, Question):
            return said == self._expected(request, index)
        table = self._table(request.name, getattr(request, "table_id", ""), index)
        if isinstance(reply, ErrorReply):
            return self._taken(request, index) if reply.kind == "ALREADY_PRESENT" else table is None
        named = self._tables.at(index, str(said[0]))
        if named is None:
            return False
        if isinstance(reply, AlterTableReply):
            return named.version >= reply.version
        return named.removed or isinstance(reply, CreateTableReply)

    def _taken(self, request: Ddl, index: int) -> bool:
        """Whether the name is in use that a table is to get."""
        name = request.new_name if isinstance(request, AlterTable) else request.name
        return name is not None and self._table(name, "", index) is not None

    def _table(self, name: str, table_id: str, index: int) -> TableRecord | None:
        if table_id:
            found = self._tables.at(index, table_id)
            return found if found is not None and not found.removed and name in ("", found.name) else None
        return next((each for each in self._tables.all_at(index) if each.name == name and not each.removed), None)

    def _expected(self, request: Question, index: int) -> Facts:
        if isinstance(request, ListTables):
            live = [each for each in self._tables.all_at(index) if not each.removed]
            return tuple(table_info(each) for each in sorted(live, key=lambda each: each.name))
        if isinstance(request, GetTabletLocations):
            found = [(name, self._tablets.at(index, name)) for name in request.tablet_ids]
            known = tuple(self._place(tablet, index) for _, tablet in found if tablet is not None)
            return known, tuple(name for name, tablet in found if tablet is None)
        table = self._table(request.name, request.table_id, index)
        if table is None:
            return ()
        if isinstance(request, IsAlterTableDone):
            return table.state != TableState.ALTERING, table.table_id, table.version
        if isinstance(request, GetTableSchema):
            applied = table.fully_applied_columns, table.fully_applied_version
            kept = table.replicas, table.design, table.policy
            return (table.table_id, table.name, str(table.state), table.columns, table.version, *applied, *kept)
        tablets = [each for each in self._tablets.all_at(index) if each.table_id == table.table_id and not each.final]
        if isinstance(request, IsCreateTableDone):
            done = bool(tablets) and all(each.state == TabletState.RUNNING for each in tablets)
            return done, table.table_id, table.version
        tablets.sort(key=lambda each: each.partition.bucket)
        return table.table_id, table.design, table.policy, tuple(self._place(tablet, index) for tablet in tablets)

    def _place(self, tablet: TabletRecord, index: int) -> Facts:
        """Where a tablet is: only that of a running one is told, and learners where the table wants them."""
        config, table = tablet.config, self._tables.at(index, tablet.table_id)
        members: tuple[str, ...] = ()
        if config is not None and table is not None and tablet.state == TabletState.RUNNING:
            members = tuple(each.node_id for each in config.serving(table.replicas))
        return tablet.tablet_id, tablet.partition, members, str(tablet.state), tablet.leader


def _facts(reply: object) -> Facts | None:
    """What a reply says of the catalog; None for one that says nothing of it."""
    match reply:
        case DoneReply():
            return reply.done, reply.table_id, reply.version
        case ListTablesReply():
            return reply.tables
        case TableSchemaReply():
            applied = reply.fully_applied, reply.fully_applied_version
            kept = reply.replicas, reply.design, reply.policy or ""
            return (reply.table_id, reply.name, reply.state, reply.columns, reply.version, *applied, *kept)
        case TableLocationsReply():
            return reply.table_id, reply.design, reply.policy or "", tuple(map(_told_place, reply.tablets))
        case TabletLocationsReply():
            return tuple(map(_told_place, reply.tablets)), reply.unknown
        case CreateTableReply() | AlterTableReply() | DeleteTableReply():
            return (reply.table_id,)
        case ErrorReply() if reply.kind in ("NOT_FOUND", "ALREADY_PRESENT"):
            return ()
        case _:
            return None


def _told_place(location: TabletLocation) -> Facts:
    replicas = tuple(each.node_id for each in location.replicas)
    return location.tablet_id, location.partition, replicas, location.state, location.leader_hint
