"""The leader's in-memory caches (M2): tables by id and by name, tablets by id and per table.

They hold immutable records that are replaced whole, and only by batches that were replicated and applied; a new leader
builds them from the catalog. There is no map of replicas that heartbeats alone would fill (KUDU-1353).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from cluster.master.records import ServerRecord, TableRecord, TabletRecord


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
        if tablet.final:
            of_table.pop(tablet.tablet_id, None)
        else:
            of_table[tablet.tablet_id] = tablet

    def _commit_table(self, table: TableRecord) -> None:
        previous = self._tables_by_id.get(table.table_id)
        if previous is not None and self._tables_by_name.get(previous.name) is previous:
            del self._tables_by_name[previous.name]
        self._tables_by_id[table.table_id] = table
        if not table.removed:
            self._tables_by_name[table.name] = table
