"""How a tablet gets the replicas that it should have, one change of its configuration after the other (M11).

A leader replica has evicted a dead one; its heartbeat shows the leader master a configuration with too few voters, and
the master has the leader add a learner on a server that it chooses, then promote it. Replicas that are reported as
failed or quarantined (G7) are removed and replaced alike, and so are those on a server that is lost, since its node was
heard of as another one. Those on servers that are to leave are replaced first and removed then, and so are voters of a
REGIONAL table that are out of place (`cluster.master.regional`). Members beyond what the table wants, as masters and an
operator add together, are removed; learners that it wants stay learners.

What to do next follows from the committed record alone, so that any later leader goes on from there; and every change
is a compare-and-set on the record's op id (M9), so that of two masters one is refused.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from cluster.master.calls import ServerCall
from cluster.master.contract import Mutation, Operation, carry_out
from cluster.master.locks import LockClass, LockKey
from cluster.master.manager import CatalogManager, LeaderTerm, not_found
from cluster.master.records import ServerRecord, TableRecord, TabletConfig, TabletRecord, TabletState
from cluster.master.regional import (
    at_home,
    beyond,
    has_room,
    is_placed,
    knows_all,
    lacking,
    leads_at_home,
    learners_wanted,
    misplaced,
)
from cluster.master.tservers import ServerEntry, best_placed, replica_load
from cluster.raft.types import ChangeKind
from cluster.wire.messages import (
    FAILED,
    QUARANTINED,
    ChangeReplicas,
    Regional,
    Replica,
    Replicas,
    TabletReport,
    voters_wanted,
)
from cluster.wire.operating import DecommissionReply, DecommissionServer, TransferLeadership
from harness.levels import data_centre_of
from harness.ports.api import node_of

BROKEN = (FAILED, QUARANTINED)
CHANGE_TIMEOUT_S = 2.0
LEAST_VOTERS = 3
MAX_GRACE_NS = 5_000_000_000
GRACE_SHARE = 4
"""A tablet with too few voters, or too many members, is given a share of `replica_dead_ms`, and not long, before
masters change it: whoever removed a replica may be about to add one, and who added one about to remove another. What
is too many is given it with each change anew, and not before a learner has caught up with its addition."""


@dataclass(frozen=True, slots=True)
class Health:
    """What the leader master knows of a tablet's replicas, by server id."""

    broken: Collection[str] = ()
    """Replicas reported as failed or quarantined, or on lost servers."""
    live: Collection[str] = ()
    """Servers heard of lately."""
    leaving: Collection[str] = ()
    """Servers that are to be emptied."""
    overdue: bool = False
    """Whether the tablet has lacked a replica, or had one too many, for longer than the grace."""
    zones: Mapping[str, str] = field(default_factory=dict)
    """Where servers stand."""
    leader: str = ""
    """The server that leads the tablet."""


@dataclass(frozen=True, slots=True)
class NextChange:
    """A change of a tablet's configuration; `replica` is None for a learner whose server is still to be chosen, in
    `zone` if one is named, and for whichever member can best be done without."""

    kind: ChangeKind
    replica: Replica | None = None
    zone: str | None = None


def next_change(config: TabletConfig, wanted: Replicas, health: Health) -> NextChange | None:
    """The change that brings a tablet nearer to whole, None where there is none to make now.

    Voters are never fewer than a majority of as many as there should be, and a replica that works goes only once there
    is one too many.
    """
    # The order is the point: broken replicas go first, as far as a majority stays; one that is to leave goes only once
    # its replacement votes; members too many go before learners are dealt with; additions come last.
    factor, voters = voters_wanted(wanted), config.voters
    broken = next((each for each in config.members if each.node_id in health.broken), None)
    if broken is not None and (broken in config.learners or _can_spare(len(voters), factor)):
        return NextChange(ChangeKind.REMOVE, broken)
    if isinstance(wanted, Regional) and not knows_all(config, health.zones):
        return None
    leaving = _leaving(config, wanted, health)
    if leaving and len(voters) > factor:
        return NextChange(ChangeKind.REMOVE, leaving[0])
    most = factor + (1 if leaving else 0)
    if health.overdue and is_over_replicated(config, most, wanted):
        return NextChange(ChangeKind.REMOVE)
    short = _short_of_voters(config, most, wanted, health)
    if (change := _of_learners(config.learners, short, health)) is not None:
        return change
    if len(config.learners) > learners_wanted(wanted):
        return None
    if short and (health.overdue or len(voters) == factor):
        return _addition(config, short, health)
    return _addition(config, _short_of_learners(config, wanted, health), health) if health.overdue else None


ANYWHERE = None
"""In place of a zone, of a table that names none."""


def _short_of_voters(config: TabletConfig, most: int, wanted: Replicas, health: Health) -> list[str | None]:
    """Zones that lack a voter."""
    if len(config.voters) >= most:
        return []
    if not isinstance(wanted, Regional):
        return [ANYWHERE]
    return [*lacking(config.voters, wanted.voters, health.zones, health.leaving)]


def _short_of_learners(config: TabletConfig, wanted: Replicas, health: Health) -> list[str | None]:
    if not isinstance(wanted, Regional):
        return []
    return [*lacking(config.learners, wanted.learners, health.zones, health.leaving)]


def _addition(config: TabletConfig, zones: Iterable[str | None], health: Health) -> NextChange | None:
    """A learner in the first of these zones that has room for one."""
    for zone in zones:
        if zone is ANYWHERE or has_room(zone, config, health.zones, health.live, health.leaving):
            return NextChange(ChangeKind.ADD_LEARNER, zone=zone)
    return None


def _leaving(config: TabletConfig, wanted: Replicas, health: Health) -> list[Replica]:
    """Voters that are to be replaced: those on servers that are to leave, then those that are out of place."""
    found = [each for each in config.voters if each.node_id in health.leaving]
    if isinstance(wanted, Regional) and knows_all(config, health.zones):
        moving = misplaced(config, wanted, health.zones, health.leaving, health.leader)
        found += [each for each in moving if each not in found]
    return found


def is_over_replicated(config: TabletConfig, most: int, wanted: Replicas) -> bool:
    """Whether there are members beyond `most` voters and the learners that are wanted; while voters are lacking a
    learner is none."""
    return len(config.voters) >= most and len(config.members) > most + learners_wanted(wanted)


def _can_spare(voters: int, replication_factor: int) -> bool:
    return voters >= LEAST_VOTERS and voters - 1 >= replication_factor // 2 + 1


def _of_learners(learners: Iterable[Replica], short: Collection[str | None], health: Health) -> NextChange | None:
    """Promote one that a zone lacks, remove one that is not to stay; its leader evicts one that is dead."""
    for learner in learners:
        if learner.node_id in health.leaving:
            return NextChange(ChangeKind.REMOVE, learner)
        needed = ANYWHERE in short or health.zones.get(learner.node_id) in short
        if needed and learner.node_id in health.live:
            return NextChange(ChangeKind.PROMOTE, learner)
    return None


def newcomer(
    known: Sequence[ServerEntry], eligible: Collection[str], members: Sequence[str], load: Mapping[str, int]
) -> ServerEntry | None:
    """The server for another replica, in a zone with as few of the members as can be, then the least loaded (M8).

    `known` are all servers ever heard of, `eligible` those that may take it; a node holds one replica of a tablet.
    """
    taken = [node_of(member) for member in members]
    free = [each for each in known if each.node_id in eligible and node_of(each.node_id) not in taken]
    zones = [each.zone for each in known if each.node_id in members]
    return best_placed(free, zones, load) if free else None


def surplus(
    known: Sequence[ServerEntry],
    live: Collection[str],
    config: TabletConfig,
    leader: str,
    load: Mapping[str, int],
    wanted: Replicas = 0,
) -> Replica:
    """The member that goes where a tablet has too many: a learner if there is one, else one that is not live, else one
    in the data centre, then the zone, with most of them, then on the most loaded server; its leader only if alone.
    Of a REGIONAL table it is one that its zone has too many of.
    """
    zones = {each.node_id: each.zone for each in known}
    taken = [zones.get(member, "") for member in config.member_ids]
    centres = [data_centre_of(zone) for zone in taken]

    def rank(member: Replica) -> tuple[bool, bool, bool, int, int, int, str]:
        name = member.node_id
        zone = zones.get(name, "")
        beside = (centres.count(data_centre_of(zone)), taken.count(zone))
        return name != leader, member in config.learners, name not in live, *beside, load.get(name, 0), name

    return max(_too_many(config, wanted, zones, leader) or config.members, key=rank)


def _too_many(config: TabletConfig, wanted: Replicas, zones: Mapping[str, str], leader: str) -> Sequence[Replica]:
    if not isinstance(wanted, Regional):
        return ()
    learners = beyond(config.learners, wanted.learners, zones, leader)
    return learners or beyond(config.voters, wanted.voters, zones, leader)


def note_health(leadership: LeaderTerm, node_id: str, report: TabletReport) -> bool:
    """Note whether a reported replica is broken; True if that is news."""
    known = leadership.broken.get(report.tablet_id, {})
    if report.state not in BROKEN:
        _note_broken(leadership, report.tablet_id, [each for each in known if each != node_id])
        return False
    _note_broken(leadership, report.tablet_id, [*known, node_id])
    return node_id not in known


def _note_broken(leadership: LeaderTerm, tablet_id: str, node_ids: Iterable[str]) -> None:
    broken = dict.fromkeys(node_ids)
    if broken:
        leadership.broken[tablet_id] = broken
    else:
        leadership.broken.pop(tablet_id, None)


def replication_calls(manager: CatalogManager, leadership: LeaderTerm) -> list[ServerCall]:
    """What the leaders of tablets that are not whole are asked for now."""
    now_ns = manager.ports.clock.monotonic_ns()
    live = [entry.node_id for entry in manager.servers.live(now_ns)]
    leaving, lost, zones = leadership.caches.leaving, manager.servers.lost(), manager.servers.zones()
    load: dict[str, int] | None = None
    calls: list[ServerCall] = []
    for tablet, table in _not_whole(leadership, lost):
        config = tablet.config
        if config is None or (leader := _leader(config, tablet)) is None:
            continue
        broken = (*leadership.broken.get(tablet.tablet_id, {}), *lost)
        health = Health(broken, live, leaving, zones=zones, leader=leader.node_id)
        health = replace(health, overdue=_overdue(manager, leadership, tablet, table, health, now_ns))
        change = next_change(config, table.replicas, health)
        if change is None or change.replica == leader:
            calls += _sent_home(tablet.tablet_id, config, table.replicas, leader, health)
        if change is None:
            continue
        replica = change.replica
        if replica is None:
            load = replica_load(leadership.caches.live_tablets.values()) if load is None else load
            replica = _chosen(manager.servers.entries(), health, config, change, table.replicas, load)
            if replica is None:
                continue
        calls.append(ServerCall(leader, _request(tablet.tablet_id, config, change.kind, replica)))
    return calls


def _sent_home(
    tablet_id: str, config: TabletConfig, wanted: Replicas, leader: Replica, health: Health
) -> list[ServerCall]:
    """The leader of a REGIONAL tablet that stands elsewhere is asked to hand over to a voter at home."""
    if not isinstance(wanted, Regional) or leads_at_home(leader.node_id, wanted, health.zones):
        return []
    target = at_home(config, wanted, health.zones, health.live)
    if target is None:
        return []
    return [ServerCall(leader, TransferLeadership(tablet_id, target.node_id, CHANGE_TIMEOUT_S))]


def _chosen(
    known: Sequence[ServerEntry],
    health: Health,
    config: TabletConfig,
    change: NextChange,
    wanted: Replicas,
    load: dict[str, int],
) -> Replica | None:
    """Who is to be added or removed where that is open; `load` counts who is added."""
    if change.kind is ChangeKind.REMOVE:
        return surplus(known, health.live, config, health.leader, load, wanted)
    eligible = [
        server_id
        for server_id in health.live
        if server_id not in health.leaving and change.zone in (ANYWHERE, health.zones.get(server_id))
    ]
    chosen = newcomer(known, eligible, config.member_ids, load)
    if chosen is None:
        return None
    load[chosen.node_id] = load.get(chosen.node_id, 0) + 1
    return Replica(chosen.node_id, chosen.address)


def is_whole(leadership: LeaderTerm, tablet: TabletRecord, unfit: Collection[str]) -> bool:
    """Whether a tablet has the voters that it should have, none on servers that are lost or to leave (`unfit`), no
    other learners, no broken replica; if it runs."""
    config, wanted = tablet.config, leadership.caches.tables[tablet.table_id].replicas
    if config is None or tablet.state != TabletState.RUNNING:
        return True
    if tablet.tablet_id in leadership.broken:
        return False
    if isinstance(wanted, Regional):
        return is_placed(config, wanted, leadership.zones(), unfit, tablet.leader)
    if config.learners:
        return False
    if unfit and any(server_id in unfit for server_id in config.node_ids):
        return False
    return len(config.voters) == wanted


def keep_members(leadership: LeaderTerm, tablet_id: str) -> bool:
    """Forget what was reported of replicas that the tablet's configuration has no more; whether it is whole."""
    tablet = leadership.caches.tablets[tablet_id]
    known = leadership.broken.get(tablet_id)
    if tablet.config is not None and known:
        _note_broken(leadership, tablet_id, [each for each in known if each in tablet.config.member_ids])
    return is_whole(leadership, tablet, leadership.caches.leaving)


def _not_whole(leadership: LeaderTerm, lost: Collection[str]) -> list[tuple[TabletRecord, TableRecord]]:
    caches, unfit = leadership.caches, (*leadership.caches.leaving, *lost)
    found = [tablet for tablet in caches.live_tablets.values() if not is_whole(leadership, tablet, unfit)]
    amiss = {tablet.tablet_id for tablet in found}
    for tablet_id in [each for each in leadership.amiss_since_ns if each not in amiss]:
        del leadership.amiss_since_ns[tablet_id]
    return [(tablet, caches.tables[tablet.table_id]) for tablet in found]


def _overdue(
    manager: CatalogManager,
    leadership: LeaderTerm,
    tablet: TabletRecord,
    table: TableRecord,
    health: Health,
    now_ns: int,
) -> bool:
    """Whether a tablet has had too few voters, or learners, for longer than the grace, or for as long one configuration
    of too many members, with no learner that is still to get as far."""
    config, wanted, factor = tablet.config, table.replicas, table.replication_factor
    lacks = config is not None and (len(config.voters) < factor or bool(_short_of_learners(config, wanted, health)))
    leaving = config is not None and bool(_leaving(config, wanted, health))
    too_many = (
        config is not None
        and is_over_replicated(config, factor + leaving, wanted)
        and not _catching_up(leadership, tablet, config, health.live)
    )
    if config is None or not (lacks or too_many):
        leadership.amiss_since_ns.pop(tablet.tablet_id, None)
        return False
    amiss = 0 if lacks else config.op_index
    known, since_ns = leadership.amiss_since_ns.get(tablet.tablet_id, (amiss, now_ns))
    since_ns = since_ns if known == amiss else now_ns
    leadership.amiss_since_ns[tablet.tablet_id] = amiss, since_ns
    return now_ns - since_ns >= min(MAX_GRACE_NS, manager.knobs.replica_dead_ms * 1_000_000 // GRACE_SHARE)


def _catching_up(leadership: LeaderTerm, tablet: TabletRecord, config: TabletConfig, live: Collection[str]) -> bool:
    """Whether a learner still gets what the log had before it was added: whoever added it can't promote it by then."""
    learners = [each.node_id for each in config.learners if each.node_id in live]
    return not all(leadership.holders.reached(each, tablet.tablet_id, config.op_index) for each in learners)


def _leader(config: TabletConfig, tablet: TabletRecord) -> Replica | None:
    """The leader replica as last reported: it alone can change the configuration."""
    return next((each for each in config.voters if each.node_id == tablet.leader), None)


def _request(tablet_id: str, config: TabletConfig, kind: ChangeKind, replica: Replica) -> ChangeReplicas:
    return ChangeReplicas(
        tablet_id, kind, replica.node_id, replica.address, config.op_term, config.op_index, CHANGE_TIMEOUT_S
    )


# ---- servers that are to be emptied (M11) ----


async def decommission(manager: CatalogManager, request: DecommissionServer) -> DecommissionReply:
    """Note that a server is to be emptied, or not; the scan moves its replicas (`cluster.master.replication`).

    Raises Refusal (NOT_FOUND, NOT_THE_LEADER: definite; TIMED_OUT: unknown).
    """
    locks = (LockKey(LockClass.SERVER, request.server_id),)

    def mutate(leadership: LeaderTerm) -> Mutation | None:
        known = leadership.caches.servers.get(request.server_id)
        if known is None and request.server_id not in manager.servers.addresses():
            raise not_found(f"no tablet server {request.server_id} was ever heard of")
        if (known is not None and known.leaving) == request.leaving:
            return None
        revision = 1 if known is None else known.revision + 1
        return Mutation(servers=(ServerRecord(request.server_id, revision, request.leaving),))

    leadership = await manager.lead()
    await carry_out(manager, leadership, Operation("decommission", lambda leadership: locks, mutate))
    manager.wake.set()
    return decommission_state(leadership, request.server_id)


def decommission_state(leadership: LeaderTerm, server_id: str) -> DecommissionReply:
    """What is left on the server, by committed configurations."""
    left = replica_load(leadership.caches.live_tablets.values()).get(server_id, 0)
    return DecommissionReply(server_id, server_id in leadership.caches.leaving, left)
