"""The catalog: what tablet servers are told is committed by then, and a name belongs to one table (M6, M9).

Masters are watched through the records that they have applied; `Caches` that differ from them are another invariant.
"""

from __future__ import annotations

from collections.abc import Mapping

from cluster.invariants.findings import Findings
from cluster.master.records import TableRecord, TabletRecord
from cluster.wire.messages import AlterTablet, CreateTablet, DeleteTablet

CALLS_COMMITTED = "calls-are-committed"
ONE_NAME = "one-table-a-name"

Tables = Mapping[str, TableRecord]
Tablets = Mapping[str, TabletRecord]


class CatalogInvariants:
    """Fed with what leader masters send, and with the records that masters have applied."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._seen = 0

    def called(self, life: int, server: str, request: object, tables: Tables, tablets: Tablets) -> None:
        """A tablet server is told to create, alter or delete a replica: step 7 of the contract, after the commit."""
        if not isinstance(request, CreateTablet | AlterTablet | DeleteTablet):
            return
        self._findings.checked[CALLS_COMMITTED] += 1
        reason = premature(server, request, tables, tablets)
        if reason is not None:
            self._findings.tell(CALLS_COMMITTED, reason, (life,), request.tablet_id)

    def applied(self, life: int, index: int, tables: Tables) -> None:
        """Records as of this entry of the catalog; looked at once."""
        if index <= self._seen:
            return
        self._seen = index
        self._findings.checked[ONE_NAME] += 1
        owners: dict[str, str] = {}
        for table in tables.values():
            other = None if table.removed else owners.setdefault(table.name, table.table_id)
            if other is not None and other != table.table_id:
                message = f"the tables {other} and {table.table_id} are both called {table.name!r} at entry {index}"
                self._findings.tell(ONE_NAME, message, (life,), None)


def premature(
    server: str, request: CreateTablet | AlterTablet | DeleteTablet, tables: Tables, tablets: Tablets
) -> str | None:
    """Why the committed records do not ask for this call, or None."""
    tablet = tablets.get(request.tablet_id)
    table = None if tablet is None else tables.get(tablet.table_id)
    if tablet is None or table is None:
        return f"{server} is sent {type(request).__name__} for a tablet of which nothing is committed"
    if isinstance(request, CreateTablet):
        members = () if tablet.config is None else tablet.config.member_ids
        wanted = not tablet.final and server in members
        return None if wanted else f"{server} is to create a replica that no committed configuration has there"
    if isinstance(request, AlterTablet):
        wanted = table.version >= request.schema_version
        return None if wanted else f"{server} is sent schema version {request.schema_version} before it is committed"
    wanted = tablet.final or table.removed or request.removed_at is not None
    return (
        None if wanted else f"{server} is to delete a replica of a tablet that is not deleted by any committed record"
    )
