"""The leader's background scan (M8): places tablets, replaces those that never came up, nudges unreported replicas."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import msgspec

from cluster.master.calls import ServerCall
from cluster.master.contract import Mutation, Operation, carry_out
from cluster.master.ddl import alter_calls, delete_calls, settle
from cluster.master.locks import LockKey, table_keys, tablet_keys
from cluster.master.manager import CatalogManager, Conflict, LeaderTerm, Refusal
from cluster.master.records import TableRecord, TabletConfig, TabletRecord, TabletState, changed_tablet, new_tablet
from cluster.master.replication import replication_calls
from cluster.master.tservers import ServerEntry, founders, replica_load
from cluster.raft.log import FOUNDING_INDEX
from cluster.wire.messages import CreateTablet, Replica, encode

# ---- where tablets go, as pure decisions (M8) ----


@dataclass(frozen=True, slots=True)
class Placement:
    """One tablet's change: the record that now has replicas, and the one it replaces, if any."""

    placed: TabletRecord
    replaced: TabletRecord | None = None

    @property
    def records(self) -> tuple[TabletRecord, ...]:
        return (self.placed,) if self.replaced is None else (self.replaced, self.placed)


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
        voters = founders(live, load, table.replicas)
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


# ---- the scan ----


SCAN_INTERVAL_S = 1.0
MOST_FOUNDED_AT_ONCE = 15
"""How many tablets may be CREATING for each live tablet server. The rest of a large table waits until these are led:
groups that elect, and those that are not idle yet, cost most, and of a thousand at once none would end in time on
servers that have little to spare."""

PLACEMENT_BATCH_BYTES = 100_000
"""Table-wide work goes on in batches of about this size (M7)."""


async def run_background(manager: CatalogManager) -> None:
    """Scan while leading: when woken, and once a second. Ends only by cancellation."""
    while True:
        await _wait(manager)
        if not manager.leads():
            continue
        try:
            await scan(manager, await manager.lead())
        except (Refusal, Conflict):
            continue  # Not replicated: whoever leads next scans again (M10).


async def _wait(manager: CatalogManager) -> None:
    try:
        async with asyncio.timeout(SCAN_INTERVAL_S):
            await manager.wake.wait()
    except TimeoutError:
        return  # The interval is over.
    manager.wake.clear()


async def scan(manager: CatalogManager, leadership: LeaderTerm) -> None:
    """One pass; raises Refusal or Conflict when a change was not replicated."""
    for table in list(leadership.caches.live_tables.values()):
        if _needs_placement(manager, leadership, table):
            await _place_table(manager, leadership, table.table_id)
        await settle(manager, leadership, table.table_id)
        manager.tell(leadership, alter_calls(leadership, leadership.caches.tables[table.table_id]))
    manager.tell(leadership, replication_calls(manager, leadership))
    _nudge(manager, leadership)


def _needs_placement(manager: CatalogManager, leadership: LeaderTerm, table: TableRecord) -> bool:
    return any(
        tablet.state == TabletState.PREPARING or _expired(manager, leadership, tablet)
        for tablet in leadership.caches.tablets_of(table.table_id)
    )


def _expired(manager: CatalogManager, leadership: LeaderTerm, tablet: TabletRecord) -> bool:
    if tablet.state != TabletState.CREATING:
        leadership.creating_since_ns.pop(tablet.tablet_id, None)
        return False
    now_ns, limit_ns = manager.ports.clock.monotonic_ns(), manager.knobs.tablet_creation_ms * 1_000_000
    return now_ns - leadership.creating_since_ns.setdefault(tablet.tablet_id, now_ns) > limit_ns


async def _place_table(manager: CatalogManager, leadership: LeaderTerm, table_id: str) -> None:
    """Batch by batch, so that any table that could be created can be placed (M7)."""

    def locks(leadership: LeaderTerm) -> tuple[LockKey, ...]:
        tablets = leadership.caches.tablets_of(table_id)
        return (*table_keys((table_id,), shared=True), *tablet_keys(tablet.tablet_id for tablet in tablets))

    def mutate(leadership: LeaderTerm) -> Mutation | None:
        placements = list(fitting(_plan(manager, leadership, table_id)))
        if not placements:
            return None
        table = leadership.caches.tables[table_id]
        calls = (call for placement in placements for call in _calls(manager, leadership, table, placement))
        return Mutation((), tuple(record for each in placements for record in each.records), tuple(calls))

    while await carry_out(manager, leadership, Operation("place-tablets", locks, mutate)) is not None:
        pass


def fitting(placements: Iterable[Placement]) -> Iterator[Placement]:
    """The first placements, at least one, that make a batch of bounded size."""
    size = 0
    for placement in placements:
        size += len(encode(placement.records))
        if size > PLACEMENT_BATCH_BYTES and size > len(encode(placement.records)):
            return
        yield placement


def within(limit: int, known: Iterable[TabletRecord], tablets: Iterable[TabletRecord]) -> list[TabletRecord]:
    """The tablets without the last of those that are PREPARING, so that no more than `limit` are CREATING at once."""
    room = limit - sum(tablet.state == TabletState.CREATING for tablet in known)
    kept: list[TabletRecord] = []
    for tablet in tablets:
        prepares = tablet.state == TabletState.PREPARING
        room -= prepares
        if room >= 0 or not prepares:
            kept.append(tablet)
    return kept


def _plan(manager: CatalogManager, leadership: LeaderTerm, table_id: str) -> list[Placement]:
    caches, servers = leadership.caches, manager.placeable(leadership)
    if caches.tables[table_id].removed:
        return []
    limit, tablets = MOST_FOUNDED_AT_ONCE * len(servers), caches.tablets_of(table_id)
    taken = within(limit, caches.live_tablets.values(), tablets)
    leadership.founded_until_scan = limit // 2 if len(taken) < len(tablets) else 0
    return place(
        caches.tables[table_id],
        taken,
        servers,
        replica_load(caches.live_tablets.values()),
        lambda tablet: _expired(manager, leadership, tablet),
        manager.new_id,
    )


def _calls(
    manager: CatalogManager, leadership: LeaderTerm, table: TableRecord, placement: Placement
) -> Iterator[ServerCall]:
    """Deletions of what is replaced, creations of what is placed."""
    if placement.replaced is not None:
        yield from delete_calls(leadership, placement.replaced)
    for replica in placement.placed.unconfirmed:
        yield ServerCall(replica, create_request(manager, table, placement.placed, replica.node_id))


def _nudge(manager: CatalogManager, leadership: LeaderTerm) -> None:
    """Send CreateTablet for every replica on a live tserver that was never reported, DeleteTablet for every one there
    that was reported and is not wanted.

    Not more often than once an interval, however often scans are woken: what was just created is about to be reported.
    """
    now_ns = manager.ports.clock.monotonic_ns()
    if now_ns < leadership.nudge_after_ns:
        return
    leadership.nudge_after_ns = now_ns + int(SCAN_INTERVAL_S * 1e9)
    for tablet in leadership.caches.live_tablets.values():
        for replica in tablet.unconfirmed:
            if manager.servers.is_live(replica.node_id, now_ns):
                table = leadership.caches.tables[tablet.table_id]
                manager.tell(
                    leadership, (ServerCall(replica, create_request(manager, table, tablet, replica.node_id)),)
                )
    unwanted = leadership.holders.unwanted(leadership.caches.tables, leadership.caches.tablets)
    manager.tell(
        leadership,
        [ServerCall(Replica(name, ""), each) for name, each in unwanted if manager.servers.is_live(name, now_ns)],
    )


def create_request(manager: CatalogManager, table: TableRecord, tablet: TabletRecord, server_id: str) -> CreateTablet:
    """A replica that comes up late still founds the group if nobody has changed the configuration since."""
    voters = () if tablet.config is None else tablet.config.voters
    founding = tablet.config is not None and tablet.config.op_index <= FOUNDING_INDEX
    return CreateTablet(
        server_id,
        founding,
        tablet.tablet_id,
        table.table_id,
        table.name,
        tablet.partition,
        table.columns,
        table.version,
        tuple(manager.servers.located(voter) for voter in voters),
        table.design,
        replication_factor=table.replication_factor,
        policy=table.policy or msgspec.UNSET,
    )
