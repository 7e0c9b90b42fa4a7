"""What a tablet report changes, as pure decisions (appendix B, "Heartbeat for tablet t"; appendix A for deletions).

Beside them who holds replicas, as tablet servers said to the leader of a term.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from enum import Enum
from typing import Any, NamedTuple

from cluster.master.records import TableRecord, TabletConfig, TabletRecord, TabletState, changed_tablet
from cluster.raft.types import OpId
from cluster.wire.messages import LEADERLESS, DeleteTablet, Replica, TabletReport


class Fate(Enum):
    """What a report means for the replica that sent it."""

    ORPHAN = "orphan"
    """No record of the tablet: case 1 of appendix A, never deleted."""
    DELETE = "delete"
    """The persistent record says that the tablet, or its table, is gone for good: case 2."""
    BURY = "bury"
    """The persistent configuration has it no more: cases 3 and 4, by compare-and-set."""
    KEEP = "keep"


class ReportedReplica(NamedTuple):
    """What a tablet server said of its replica, as far as its fate depends on it; `configured`: it named voters."""

    config_index: int
    awaits_index: int
    configured: bool


def reported(report: TabletReport) -> ReportedReplica:
    return ReportedReplica(report.config_index, report.awaits_index, bool(report.voters))


def fate(
    table: TableRecord | None,
    tablet: TabletRecord | None,
    node_id: str,
    held: ReportedReplica,
    flaws: Collection[str] = (),
) -> Fate:
    """What the catalog says of a reported replica."""
    if tablet is None or table is None:
        return Fate.DELETE if "delete-orphans" in flaws else Fate.ORPHAN
    if tablet.final or table.removed:
        return Fate.DELETE
    return Fate.BURY if superseded(tablet.config, node_id, held) else Fate.KEEP


def superseded(config: TabletConfig | None, node_id: str, held: ReportedReplica) -> bool:
    """Whether the catalog's configuration has the reported replica no more.

    Case 3: what the replica knows lies strictly below. At the same index the replica itself knows that it was removed
    (case 4, whose deletion was lost). Above, the catalog is behind: a report that tells it so is on its way.
    """
    if config is None or node_id in config.member_ids:
        return False
    known = max(held.config_index, held.awaits_index)
    knows_removal = held.configured and held.awaits_index < config.op_index == held.config_index
    return known < config.op_index or knows_removal


def dropped(before: TabletRecord, after: TabletRecord) -> tuple[Replica, ...]:
    """Replicas that the persistent state had and the latest configuration has not: case 4."""
    if before.config is None or after.config is None:
        return ()
    left = after.config.member_ids
    return tuple(each for each in before.config.members if each.node_id not in left)


def next_record(
    record: TabletRecord, node_id: str, report: TabletReport, addresses: Mapping[str, str]
) -> TabletRecord | None:
    """The record after this report, or None if the report changes nothing that is persisted.

    A configuration is replaced only by one with a higher log index (compare-and-set, M9), a leader by one of a higher
    term; `addresses` are those of tservers heard of, by node id.
    """
    if record.config is None or record.final:
        return None
    config = _next_config(record.config, report, addresses)
    changes: dict[str, Any] = {}
    if config is not record.config:
        changes["config"] = config
    confirmed = record.confirmed
    if node_id in config.node_ids and node_id not in confirmed:
        confirmed = changes["confirmed"] = (*confirmed, node_id)
    if report.leader is not None and (record.leader is None or report.term > record.leader_term):
        changes["leader"], changes["leader_term"] = report.leader, report.term
    if record.state == TabletState.CREATING and _serves(report, config, confirmed):
        changes["state"] = TabletState.RUNNING
    return changed_tablet(record, **changes) if changes else None


def _serves(report: TabletReport, config: TabletConfig, confirmed: tuple[str, ...]) -> bool:
    """Whether a tablet runs now: some replica leads it; or its design has no leader (Q1), and all of them are there."""
    if report.state == LEADERLESS:
        return all(node_id in confirmed for node_id in config.node_ids)
    return report.leader is not None


def _next_config(current: TabletConfig, report: TabletReport, addresses: Mapping[str, str]) -> TabletConfig:
    if report.config_index <= current.op_index or not report.voters:
        return current

    def located(replica: Replica) -> Replica:
        return Replica(replica.node_id, addresses.get(replica.node_id, replica.address))

    voters, learners = tuple(map(located, report.voters)), tuple(map(located, report.learners))
    return TabletConfig(report.config_index, voters, learners, report.config_term)


# ---- who holds replicas, and what of that has to go (M9) ----
# A report tells of a change at the tablet server, once. But whether a replica is wanted changes with the catalog too,
# while a report waits for a lock or after it was taken; and a deletion may be lost, or refused at first. So what was
# said is kept until the deletion is acknowledged, and judged by the catalog again in every background scan.


class Holders:
    """By tablet and tablet server what was said of the replica last; soft state of one term."""

    def __init__(self) -> None:
        self._held: dict[str, dict[str, ReportedReplica]] = {}

    def note(self, server_id: str, tablet_id: str, held: ReportedReplica) -> None:
        """A tablet server has a replica."""
        self._held.setdefault(tablet_id, {})[server_id] = held

    def reached(self, server_id: str, tablet_id: str, index: int) -> bool:
        """Whether a tablet server has said that its replica has the configuration at this index, or a later one."""
        held = self._held.get(tablet_id, {}).get(server_id)
        return held is not None and held.config_index >= index

    def deleted(self, server_id: str, request: DeleteTablet) -> None:
        """A deletion was acknowledged; a replica that came back since, to be added once more, is there."""
        holders = self._held.get(request.tablet_id, {})
        held = holders.get(server_id)
        if held is not None and (request.removed_at is None or held.awaits_index < request.removed_at.index):
            del holders[server_id]
        if not holders:
            self._held.pop(request.tablet_id, None)

    def unwanted(
        self, tables: Mapping[str, TableRecord], tablets: Mapping[str, TabletRecord]
    ) -> Iterator[tuple[str, DeleteTablet]]:
        """Which tablet servers are to delete what."""
        for tablet_id, holders in self._held.items():
            tablet = tablets[tablet_id]
            table, config = tables[tablet.table_id], tablet.config
            gone = tablet.final or table.removed
            if not gone and (config is None or holders.keys() <= set(config.member_ids)):
                continue
            for server_id, held in holders.items():
                request = deletion(fate(table, tablet, server_id, held), tablet, server_id)
                if request is not None:
                    yield server_id, request


def deletion(decision: Fate, tablet: TabletRecord, server_id: str) -> DeleteTablet | None:
    """What a tablet server is asked for by the fate of its replica; a burial is a compare-and-set (M9)."""
    if decision == Fate.DELETE:
        return DeleteTablet(tablet.tablet_id, server_id=server_id)
    config = tablet.config
    if decision != Fate.BURY or config is None:
        return None
    return DeleteTablet(tablet.tablet_id, OpId(config.op_term, config.op_index), server_id)
