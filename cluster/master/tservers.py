"""The tserver map: who has heartbeated to this master, and when (M3); warm in every master, never persisted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from cluster.master.records import TabletRecord
from cluster.wire.messages import Heartbeat, Regional, Replica, Replicas
from harness.levels import data_centre_of


@dataclass(frozen=True, slots=True)
class ServerEntry:
    """One tserver as its latest heartbeat stated it."""

    node_id: str
    """Its server id: another one after its disk was lost."""
    address: str
    """Where it listens."""
    zone: str
    """Where it stands, maybe with its data centre in front (`harness.levels.data_centre_of`)."""
    incarnation: int
    """Which of its process's lives this is; never falls here."""
    sequence: int
    """The number of that heartbeat within this life; never falls within it."""
    heard_ns: int
    """When its heartbeat came, by this master's monotonic clock."""


class ServerMap:
    """Tservers by node id; one is live while its last heartbeat is younger than `live_ns`, and nobody else was heard of
    at its address since: a node whose disk was lost begins anew as another server, and the one before won't return.
    """

    def __init__(self, live_ns: int) -> None:
        self._live_ns = live_ns
        self._servers: dict[str, ServerEntry] = {}
        """By server id, all that were ever heard of."""
        self._last_at: dict[str, str] = {}
        """By address who was heard of there last."""

    def observe(self, heartbeat: Heartbeat, now_ns: int) -> bool:
        """Take a heartbeat's identity and time; False for one that was overtaken, which changes nothing: by a later one
        of its server, or by one of a later life of its machine, whose disk was lost meanwhile.

        Incarnations rise on a machine, whatever becomes of its disk (`cluster.node.next_incarnation`).
        """
        known, said = self._servers.get(heartbeat.node_id), (heartbeat.incarnation, heartbeat.sequence)
        there = self._servers.get(self._last_at.get(heartbeat.address, ""))
        if known is not None and (known.incarnation, known.sequence) > said:
            return False
        if there is not None and there.incarnation > heartbeat.incarnation:
            return False
        self._servers[heartbeat.node_id] = ServerEntry(
            heartbeat.node_id, heartbeat.address, heartbeat.zone, *said, heard_ns=now_ns
        )
        self._last_at[heartbeat.address] = heartbeat.node_id
        return True

    def is_latest(self, heartbeat: Heartbeat) -> bool:
        """Whether no later one of its server was taken since."""
        known = self._servers[heartbeat.node_id]
        return (known.incarnation, known.sequence) == (heartbeat.incarnation, heartbeat.sequence)

    def entries(self) -> list[ServerEntry]:
        return [self._servers[node_id] for node_id in sorted(self._servers)]

    def live(self, now_ns: int) -> list[ServerEntry]:
        """Live tservers by node id."""
        return [entry for entry in self.entries() if self.is_live(entry.node_id, now_ns)]

    def is_live(self, node_id: str, now_ns: int) -> bool:
        entry = self._servers.get(node_id)
        if entry is None or not self._is_at(entry):
            return False
        return now_ns - entry.heard_ns <= self._live_ns

    def lost(self) -> tuple[str, ...]:
        """Tservers at whose address another one was heard of since: they won't return, nor will what they held."""
        return tuple(node_id for node_id, entry in self._servers.items() if not self._is_at(entry))

    def _is_at(self, entry: ServerEntry) -> bool:
        return self._last_at[entry.address] == entry.node_id

    def zones(self) -> dict[str, str]:
        """The zone that each tserver last stated, by node id."""
        return {node_id: entry.zone for node_id, entry in self._servers.items()}

    def addresses(self) -> dict[str, str]:
        """The address that each tserver last stated, by node id."""
        return {node_id: entry.address for node_id, entry in self._servers.items()}

    def located(self, replica: Replica) -> Replica:
        """The replica at the address its tserver last stated, or the one the catalog knows."""
        entry = self._servers.get(replica.node_id)
        return replica if entry is None else Replica(entry.node_id, entry.address)


def replica_load(tablets: Iterable[TabletRecord]) -> dict[str, int]:
    """Replicas assigned to each tserver, over tablets that are not final."""
    load: dict[str, int] = {}
    for tablet in tablets:
        if tablet.config is not None and not tablet.final:
            for node_id in tablet.config.member_ids:
                load[node_id] = load.get(node_id, 0) + 1
    return load


def select_replicas(servers: Iterable[ServerEntry], load: Mapping[str, int], count: int) -> tuple[Replica, ...] | None:
    """Choose `count` distinct tservers: data centres spread first, then zones, then the least loaded, then by name.

    `load` is the number of replicas that each tserver is assigned already (M8). None if there are too few tservers.
    """
    remaining = {server.node_id: server for server in servers}
    chosen: list[ServerEntry] = []
    while remaining and len(chosen) < count:
        best = best_placed(remaining.values(), [server.zone for server in chosen], load)
        del remaining[best.node_id]
        chosen.append(best)
    if len(chosen) < count:
        return None
    return tuple(Replica(server.node_id, server.address) for server in chosen)


def founders(servers: Iterable[ServerEntry], load: Mapping[str, int], wanted: Replicas) -> tuple[Replica, ...] | None:
    """A new tablet's voters; those in the home zone first, where zones are told. None if there are too few tservers."""
    if not isinstance(wanted, Regional):
        return select_replicas(servers, load, wanted)
    known = list(servers)
    chosen: tuple[Replica, ...] = ()
    for zone in sorted(wanted.voters, key=lambda zone: zone != wanted.home):
        there = select_replicas([each for each in known if each.zone == zone], load, wanted.voters[zone])
        if there is None:
            return None
        chosen += there
    return chosen


def best_placed(servers: Iterable[ServerEntry], zones: Sequence[str], load: Mapping[str, int]) -> ServerEntry:
    """The server for one more replica beside those in these zones, by the rule of `select_replicas`; there is one."""
    centres = [data_centre_of(zone) for zone in zones]

    def rank(server: ServerEntry) -> tuple[int, int, int, str]:
        beside = (centres.count(data_centre_of(server.zone)), zones.count(server.zone))
        return *beside, load.get(server.node_id, 0), server.node_id

    return min(servers, key=rank)
