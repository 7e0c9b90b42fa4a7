"""The catalog: what tablet servers are told is committed by then, and a name belongs to one table (M6, M9).

What tablet servers do is held against the catalog too, whoever told them: they delete for good only what it says is
deleted, and nobody but an operator makes a tablet have more members than its table should have replicas.

Masters are watched through the records that they have applied; `Caches` that differ from them are another invariant.
"""

from __future__ import annotations

from collections.abc import Mapping

from cluster.invariants.findings import BreachLog
from cluster.master.catalog import Catalog
from cluster.master.records import TableRecord, TabletRecord
from cluster.master.regional import learners_wanted
from cluster.raft.types import ChangeKind, Configuration
from cluster.wire.messages import AlterTablet, CreateTablet, DeleteTablet, Regional
from harness.ports.api import node_of

CALLS_COMMITTED = "calls-are-committed"
ONE_NAME = "one-table-a-name"
DELETIONS_COMMITTED = "deletions-are-committed"
NOT_OVER_REPLICATED = "not-over-replicated"

Tables = Mapping[str, TableRecord]
Tablets = Mapping[str, TabletRecord]


class CatalogInvariants:
    """Fed with what leader masters send, and with the records that masters have applied."""

    def __init__(self, findings: BreachLog) -> None:
        self._findings = findings
        self._seen = 0
        self._tables: Tables = {}
        self._tablets: Tablets = {}
        self._ever_left = False
        self._asked: dict[str, dict[int, None]] = {}
        self._sizes: dict[str, tuple[int, int]] = {}

    def called(self, life: int, server: str, request: object, tables: Tables, tablets: Tablets) -> None:
        """A tablet server is told to create, alter or delete a replica: step 7 of the contract, after the commit."""
        if not isinstance(request, CreateTablet | AlterTablet | DeleteTablet):
            return
        self._findings.checked[CALLS_COMMITTED] += 1
        reason = premature(server, request, tables, tablets)
        if reason is not None:
            self._findings.tell(CALLS_COMMITTED, reason, (life,), request.tablet_id)

    def deleted(self, life: int, server: str, tablet_id: str) -> None:
        """A tablet server deletes a replica for good: by then that is committed, and stays so for ever (case 2)."""
        if not self._seen:
            return  # Nobody keeps a catalog here.
        self._findings.checked[DELETIONS_COMMITTED] += 1
        tablet = self._tablets.get(tablet_id)
        table = None if tablet is None else self._tables.get(tablet.table_id)
        if tablet is None or table is None or not (tablet.final or table.removed):
            known = "knows nothing of it" if tablet is None else f"has it as {tablet.state}"
            message = f"{server} deletes its replica for good, and the catalog {known}"
            self._findings.tell(DELETIONS_COMMITTED, message, (life,), tablet_id)

    def holders(self, tablet_id: str) -> tuple[str, ...]:
        """The nodes that the latest committed record gives a tablet; none where there is no such record."""
        tablet = self._tablets.get(tablet_id)
        return () if tablet is None or tablet.config is None else tuple(map(node_of, tablet.config.node_ids))

    def operated(self, tablet_id: str, change: ChangeKind, index: int) -> None:
        """An operator asks for a change of the configuration at this index, beside the masters."""
        if change is ChangeKind.ADD_LEARNER:
            self._asked.setdefault(tablet_id, {})[index] = None

    def configured(self, life: int, tablet_id: str, configuration: Configuration) -> None:
        """Another configuration of a group is committed.

        Masters add a replica only where one is lacking, and by compare-and-set (M9): so they never make one too many.
        Where a server is to be emptied its replicas are replaced first, and there may be one more; so it is where those
        of a REGIONAL table move. Operators may add what they like; that it does not last is a matter of the end state.
        """
        index, size = self._sizes.get(tablet_id, (-1, 0))
        if configuration.index <= index:
            return  # Another replica hears of it.
        members = configuration.members
        self._sizes[tablet_id] = configuration.index, len(members)
        tablet = self._tablets.get(tablet_id)
        table = None if tablet is None else self._tables.get(tablet.table_id)
        if table is None:
            return
        self._findings.checked[NOT_OVER_REPLICATED] += 1
        moves = self._ever_left or isinstance(table.replicas, Regional)
        wanted = table.replication_factor + learners_wanted(table.replicas) + moves
        if len(members) > max(wanted, size) and index not in self._asked.get(tablet_id, ()):
            named = " ".join(member.server_id for member in members)
            message = f"{named} are members by the configuration at {configuration.index}, and {wanted} should be"
            self._findings.tell(NOT_OVER_REPLICATED, message, (life,), tablet_id)

    def applied(self, life: int, index: int, catalog: Catalog) -> None:
        """Records as of this entry of the catalog; looked at once."""
        if index <= self._seen:
            return
        self._seen = index
        tables = self._tables = catalog.tables
        self._tablets = catalog.tablets
        self._ever_left = self._ever_left or bool(catalog.servers)
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
