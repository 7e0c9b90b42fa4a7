"""Where tablets go, as pure decisions (M8): PREPARING → CREATING, and replacements of tablets that never came up."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from cluster.master.records import TableRecord, TabletConfig, TabletRecord, TabletState, changed_tablet, new_tablet
from cluster.master.tservers import ServerEntry, select_replicas
from cluster.wire.messages import Replica


@dataclass(frozen=True, slots=True)
class Placement:
    """One tablet's change: the record that now has replicas, and the one it replaces, if any."""

    placed: TabletRecord
    replaced: TabletRecord | None = None

    @property
    def records(self) -> tuple[TabletRecord, ...]:
        return (self.placed,) if self.replaced is None else (self.replaced, self.placed)


def replica_load(tablets: Iterable[TabletRecord]) -> dict[str, int]:
    """Replicas assigned to each tserver, over tablets that are not final."""
    load: dict[str, int] = {}
    for tablet in tablets:
        if tablet.config is not None and not tablet.final:
            for node_id in tablet.config.member_ids:
                load[node_id] = load.get(node_id, 0) + 1
    return load


def place(
    table: TableRecord,
    tablets: Sequence[TabletRecord],
    live: Sequence[ServerEntry],
    load: dict[str, int],
    expired: Callable[[TabletRecord], bool],
    new_id: Callable[[], str],
) -> list[Placement]:
    """Placements for the table's tablets that need one; none for those that too few live tservers could take.

    `load` is updated as replicas are assigned. `expired` says of a CREATING tablet that its time is over.
    """
    placements = []
    for tablet in tablets:
        stuck = tablet.state == TabletState.CREATING and expired(tablet)
        if not stuck and tablet.state != TabletState.PREPARING:
            continue
        voters = select_replicas(live, load, table.replication_factor)
        if voters is None:
            break
        for voter in voters:
            load[voter.node_id] = load.get(voter.node_id, 0) + 1
        placements.append(_replacement(tablet, voters, new_id()) if stuck else Placement(_placed(tablet, voters)))
    return placements


def _placed(tablet: TabletRecord, voters: tuple[Replica, ...]) -> TabletRecord:
    return changed_tablet(tablet, state=TabletState.CREATING, config=TabletConfig(0, voters))


def _replacement(tablet: TabletRecord, voters: tuple[Replica, ...], new_id: str) -> Placement:
    """The new record is at its first revision and has its replicas at once: nothing of it was visible before (M6)."""
    fresh = new_tablet(new_id, tablet.table_id, tablet.partition)
    placed = TabletRecord(
        fresh.tablet_id, 1, fresh.table_id, fresh.partition, TabletState.CREATING, TabletConfig(0, voters), ()
    )
    return Placement(placed, changed_tablet(tablet, state=TabletState.REPLACED))
