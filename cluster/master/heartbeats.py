"""Heartbeats (M3, M4): every master notes who lives, the leader takes the tablet reports."""

from __future__ import annotations

import asyncio

from cluster.master.calls import ServerCall
from cluster.master.contract import Mutation, Operation, carry_out
from cluster.master.ddl import take_schema
from cluster.master.locks import table_keys, tablet_keys
from cluster.master.manager import CatalogManager, Conflict, LeaderTerm, Refusal, invalid
from cluster.master.replication import keep_members, note_health
from cluster.master.reports import Fate, deletion, dropped, fate, next_record, reported
from cluster.wire.messages import (
    DeleteTablet,
    Heartbeat,
    HeartbeatReply,
    Replica,
    TabletReport,
    decode_reports,
)
from harness.errors import UNDECODABLE


async def heartbeat(manager: CatalogManager, request: Heartbeat) -> HeartbeatReply:
    """Take a heartbeat; a leader answers only when what the reports changed is replicated.

    Raises Refusal if it could not be, so that the tserver reports it again. Followers, and masters that can't prove
    that they lead, refresh liveness and ignore the reports (KUDU-1358). One that was overtaken on its way says nothing.
    """
    ignored = HeartbeatReply(manager.ports.node_id, None, False)
    if not manager.servers.observe(request, manager.ports.clock.monotonic_ns()):
        return ignored
    if request.full:
        manager.reported[request.node_id] = request.incarnation
    if not manager.leads():
        return ignored
    try:
        leadership = await manager.lead()
    except Refusal:
        return ignored
    if not manager.servers.is_latest(request):  # whoever sent it had given it up, and says it all again
        return ignored
    taken = await _take_reports(manager, leadership, request)
    if not taken:
        manager.reported.pop(request.node_id, None)
    need_full = manager.reported.get(request.node_id) != request.incarnation
    return HeartbeatReply(manager.ports.node_id, leadership.term, need_full)


async def _take_reports(manager: CatalogManager, leadership: LeaderTerm, request: Heartbeat) -> bool:
    """Take reports side by side, one replication for each tablet that changed (M7).

    False if an earlier change of unknown outcome took effect after all: a full report must go on from there.
    """
    try:
        reports = decode_reports(request.reports)
    except UNDECODABLE as error:
        raise invalid(f"these are no tablet reports: {error}") from error
    changed = [report for report in reports if _take_report(manager, leadership, request, report)]
    persisting = [_persist_report(manager, leadership, request.node_id, report) for report in changed]
    results = await asyncio.gather(*persisting) if persisting else []
    for result in results:
        if isinstance(result, Refusal):
            raise result
    return not any(isinstance(result, Conflict) for result in results)


def _take_report(manager: CatalogManager, leadership: LeaderTerm, request: Heartbeat, report: TabletReport) -> bool:
    """Carry out what needs no replication; True if the tablet's record has to change."""
    tablet = leadership.caches.tablets.get(report.tablet_id)
    table = None if tablet is None else leadership.caches.tables.get(tablet.table_id)
    replica, held = Replica(request.node_id, request.address), reported(report)
    decision = fate(table, tablet, request.node_id, held, manager.flaws)
    if tablet is None or table is None:
        if decision == Fate.DELETE:
            manager.tell(leadership, (ServerCall(replica, DeleteTablet(report.tablet_id, server_id=replica.node_id)),))
        return False
    leadership.holders.note(request.node_id, report.tablet_id, held)
    if (deletes := deletion(decision, tablet, replica.node_id)) is not None:
        manager.tell(leadership, (ServerCall(replica, deletes),))
    if decision != Fate.KEEP:
        return False
    if "cold-replica-map" in leadership.flaws:
        heard_of = leadership.heard_of.setdefault(report.tablet_id, {})
        heard_of[request.node_id] = Replica(request.node_id, request.address)
    if note_health(leadership, request.node_id, report):
        manager.wake.set()
    take_schema(manager, leadership, table, request.node_id, report)
    return next_record(tablet, request.node_id, report, {}) is not None


async def _persist_report(
    manager: CatalogManager, leadership: LeaderTerm, node_id: str, report: TabletReport
) -> Refusal | Conflict | None:
    """Replicate what a report changes; a failure is the answer, for whoever asked may be gone by then."""
    table_id = leadership.caches.tablets[report.tablet_id].table_id
    keys = (*table_keys((table_id,), shared=True), *tablet_keys((report.tablet_id,)))

    def mutate(leadership: LeaderTerm) -> Mutation | None:
        record = leadership.caches.tablets[report.tablet_id]
        changed = next_record(record, node_id, report, manager.servers.addresses())
        if changed is None:
            return None
        buried = [(each, deletion(Fate.BURY, changed, each.node_id)) for each in dropped(record, changed)]
        burials = tuple(ServerCall(each, request) for each, request in buried if request is not None)
        return Mutation((), (changed,), burials)

    try:
        before = leadership.caches.tablets[report.tablet_id].state
        await carry_out(manager, leadership, Operation("take-report", lambda leadership: keys, mutate))
        if before != leadership.caches.tablets[report.tablet_id].state:
            _note_founded(manager, leadership)
        if not keep_members(leadership, report.tablet_id):
            manager.wake.set()
    except (Refusal, Conflict) as error:
        return error
    return None


def _note_founded(manager: CatalogManager, leadership: LeaderTerm) -> None:
    """A tablet runs: once it is some of them, others of their large table can be placed (M8)."""
    if leadership.founded_until_scan:
        leadership.founded_until_scan -= 1
        if not leadership.founded_until_scan:
            manager.wake.set()
