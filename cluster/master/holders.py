"""Which tablet servers hold replicas, as they said to the leader of a term; and what of that has to go (M9).

A report tells of a change at the tablet server, once. But whether a replica is wanted changes with the catalog too,
while a report waits for a lock or after it was taken; and a deletion may be lost, or refused at first. So what was said
is kept until the deletion is acknowledged, and judged by the catalog again in every background scan.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cluster.master.records import TableRecord, TabletRecord
from cluster.master.reports import Fate, ReportedReplica, fate
from cluster.raft.types import OpId
from cluster.wire.messages import DeleteTablet


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
