"""How tablets follow an alteration (appendix B, "Altering a table" and "Heartbeating"; M5).

Each tablet is sent AlterTablet after the commit, by the background scan again, and whenever it reports an older schema;
tablets take it up once, whoever sends it how often. What they report is kept in memory: a new leader learns it from the
full reports that it gets (M4). When every tablet has the latest, one batch makes the table RUNNING again.
"""

from __future__ import annotations

from collections.abc import Sequence

from cluster.master.calls import ServerCall
from cluster.master.contract import Mutation, Operation, carry_out
from cluster.master.locks import table_keys
from cluster.master.manager import CatalogManager, LeaderTerm
from cluster.master.queries import replicas_of_tablet
from cluster.master.records import TableRecord, TableState, TabletRecord, TabletState, settled_table
from cluster.wire.messages import AlterTablet, TabletReport


def take_schema(
    manager: CatalogManager, leadership: LeaderTerm, table: TableRecord, node_id: str, report: TabletReport
) -> None:
    """Note the version that a replica has; tell its tablet again if that lags, settle the table if it was the last."""
    leadership.schema_versions.setdefault(report.tablet_id, {})[node_id] = report.schema_version
    tablet = leadership.caches.tablets[report.tablet_id]
    if _lags(leadership, table, tablet):
        manager.tell(leadership, _calls(leadership, table, tablet))
    elif settled(leadership, table):
        manager.wake.set()


def _lags(leadership: LeaderTerm, table: TableRecord, tablet: TabletRecord) -> bool:
    """Whether the tablet is not known to have the table's latest schema.

    In a range one replica tells for all: it has the schema from the log, so every later leader will have it too.
    Elsewhere each tells for itself, but for those that serve nobody: they are broken, or on a server that is lost.
    """
    versions = leadership.schema_versions.get(tablet.tablet_id, {})
    if table.design == "raft":
        return max(versions.values(), default=-1) < table.version
    node_ids = () if tablet.config is None else tablet.config.node_ids
    mute = (*leadership.broken.get(tablet.tablet_id, {}), *leadership.lost())
    return min((versions.get(each, -1) for each in node_ids if each not in mute), default=-1) < table.version


def lagging(leadership: LeaderTerm, table: TableRecord) -> list[TabletRecord]:
    """The table's tablets that are not known to have its latest schema."""
    return [tablet for tablet in leadership.caches.tablets_of(table.table_id) if _lags(leadership, table, tablet)]


def alter_calls(leadership: LeaderTerm, table: TableRecord) -> tuple[ServerCall, ...]:
    """What tablet servers are told so that lagging tablets follow.

    Of a table that is not ALTERING those may lag that came after it was, in the place of others: they tell so.
    """
    if not table.version:
        return ()  # It was never altered: there is nothing to lag behind.
    altering, told = table.state == TableState.ALTERING, leadership.schema_versions
    tablets = [each for each in lagging(leadership, table) if altering or each.tablet_id in told]
    return tuple(call for tablet in tablets for call in _calls(leadership, table, tablet))


def _calls(leadership: LeaderTerm, table: TableRecord, tablet: TabletRecord) -> Sequence[ServerCall]:
    """To the leader as last reported, or to every replica where none was: those that don't lead refuse."""
    if tablet.state != TabletState.RUNNING:
        return ()
    replicas = replicas_of_tablet(leadership, tablet)
    hint = leadership.hints.get(tablet.tablet_id)
    leading = [each for each in replicas if hint is not None and each.node_id == hint.leader]
    request = AlterTablet(tablet.tablet_id, table.name, table.columns, table.version)
    return [ServerCall(each, request) for each in leading or replicas]


async def settle(manager: CatalogManager, leadership: LeaderTerm, table_id: str) -> None:
    """Make the table RUNNING if every tablet has its latest schema; raises Refusal, Conflict if that fails."""

    def mutate(leadership: LeaderTerm) -> Mutation | None:
        table = leadership.caches.tables[table_id]
        return Mutation((settled_table(table),)) if settled(leadership, table) else None

    if settled(leadership, leadership.caches.tables[table_id]):
        keys = table_keys((table_id,))
        await carry_out(manager, leadership, Operation("settle-table", lambda leadership: keys, mutate))


def settled(leadership: LeaderTerm, table: TableRecord) -> bool:
    """Whether an alteration of the table is done, and its record doesn't say so yet."""
    return table.state == TableState.ALTERING and not lagging(leadership, table)
