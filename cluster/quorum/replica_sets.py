"""Who holds a partition, and who is near: replica sets, where partitions live, and a snitch (Q1)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from cluster.client.client import ClusterClient
from cluster.quorum.keys import KeyBytes, bucket_of, tokens_of
from cluster.wire.messages import ErrorReply, TableLocationsReply, TabletLocation
from harness.errors import DefiniteError, IndefiniteError
from harness.levels import data_centre_of
from harness.ports.api import Clock

_SMOOTHING = 0.25
"""What the latest round trip counts in the average of them."""


UNPLACED = ""
"""The data centre of replicas of which nobody says where they stand; no data centre is called so."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A tablet server that holds a replica: where it listens and where it stands, None where nobody says."""

    node_id: str
    address: str
    zone: str | None = None

    @property
    def data_centre(self) -> str:
        """The one that its zone belongs to, or UNPLACED."""
        return UNPLACED if self.zone is None else data_centre_of(self.zone)


@dataclass(frozen=True, slots=True)
class ReplicaSet:
    """The replicas of a tablet. `epoch` rises with each change: what spans replicas belongs to one epoch (Q6, Q11).

    `logged` tells its table's replication design: `logged`, or else `legacy`.
    """

    tablet_id: str
    endpoints: tuple[Endpoint, ...]
    epoch: int = 0
    logged: bool = False

    @property
    def factors(self) -> dict[str, int]:
        """How many replicas each data centre has, UNPLACED among them if need be."""
        found: dict[str, int] = {}
        for endpoint in self.endpoints:
            found[endpoint.data_centre] = found.get(endpoint.data_centre, 0) + 1
        return found

    def named(self, node_id: str) -> Endpoint:
        """The replica on this node; raises KeyError."""
        for endpoint in self.endpoints:
            if endpoint.node_id == node_id:
                return endpoint
        raise KeyError(node_id)

    def data_centres(self, node_ids: Iterable[str]) -> list[str]:
        """Where these replicas stand, one entry each; nodes that hold none are left out."""
        at = {endpoint.node_id: endpoint.data_centre for endpoint in self.endpoints}
        return [at[node_id] for node_id in node_ids if node_id in at]


class Snitch:
    """How near other nodes are to one: itself, its zone, its data centre, then what calls to them have taken lately."""

    def __init__(self, node_id: str, zone: str) -> None:
        self._node_id, self._zone = node_id, zone
        self._round_trips_s: dict[str, float] = {}

    def took(self, node_id: str, seconds: float) -> None:
        """A call to this node was answered, or given up, after so long."""
        before = self._round_trips_s.get(node_id, seconds)
        self._round_trips_s[node_id] = before + _SMOOTHING * (seconds - before)

    def ordered(self, endpoints: Iterable[Endpoint], preferred: Sequence[str] = ()) -> list[Endpoint]:
        """The endpoints, nearest first; `preferred` ones come before all others, in the order given."""
        rank = {node_id: place for place, node_id in enumerate(preferred)}
        return sorted(endpoints, key=lambda each: (rank.get(each.node_id, len(rank)), *self._distance(each)))

    def _distance(self, endpoint: Endpoint) -> tuple[bool, bool, bool, float, str]:
        return (
            endpoint.node_id != self._node_id,
            endpoint.data_centre != data_centre_of(self._zone),
            endpoint.zone != self._zone,
            self._round_trips_s.get(endpoint.node_id, 0.0),
            endpoint.node_id,
        )


# ---- where they are ----


_NO_TABLE = "not-found"
"""The kind of the masters' answer that there is none."""

_FRESH_NS = 5_000_000_000
"""What the masters said within this time is not asked again, whatever happens."""


class NotLocated(Exception):
    """The masters did not say where the partition is: there is no such table, it is not up, or they don't answer."""

    @property
    def error_reply(self) -> ErrorReply:
        """Nothing was sent to any replica."""
        return ErrorReply("NOT_LOCATED", str(self), definite=True)


class ReplicaLocator:
    """Replica sets by table and partition key; one question to the masters at a time for each table."""

    def __init__(self, clock: Clock, client: Callable[[], ClusterClient]) -> None:
        self._clock, self._make_client = clock, client
        self._client: ClusterClient | None = None
        self._tables: dict[str, dict[int, ReplicaSet]] = {}
        """By table and bucket the replicas of each tablet that runs."""
        self._buckets: dict[str, int] = {}
        """How many tablets each of these tables has."""
        self._zones: dict[str, str] = {}
        """By server id where it stands, as masters ever said: those that were restarted don't know of all."""
        self._asked_ns: dict[str, int] = {}
        """When the masters last answered for a table, by the monotonic clock."""
        self._asking: dict[str, asyncio.Lock] = {}
        """Held by the one question for a table that is under way."""
        self._doubted: dict[str, None] = {}
        """Tables of which what is known may be out of date."""

    async def locate(self, table: str, partition: KeyBytes) -> ReplicaSet:
        """The replicas of a partition; raises NotLocated."""
        await self._know(table)
        bucket = bucket_of(partition, self._buckets[table])
        found = self._tables[table].get(bucket)
        if found is None:
            self.doubt(table)
            raise NotLocated(f"tablet {bucket} of {table!r} is not running")
        if UNPLACED in found.factors:
            self.doubt(table)
        return found

    async def tablets(self, table: str) -> list[tuple[ReplicaSet, tuple[int, int]]]:
        """All tablets of a table, each with the first and the last of its tokens; raises NotLocated."""
        await self._know(table)
        buckets, found = self._buckets[table], self._tables[table]
        if len(found) < buckets:
            self.doubt(table)
            raise NotLocated(f"of {buckets} tablets of {table!r} {len(found)} are running")
        return [(found[bucket], tokens_of(bucket, buckets)) for bucket in sorted(found)]

    async def _know(self, table: str) -> None:
        """While the masters are asked again, and where they don't answer, what is known is gone by: replicas of
        another epoch refuse."""
        asking = self._asking.setdefault(table, asyncio.Lock())
        if table in self._tables and (table not in self._doubted or asking.locked()):
            return
        async with asking:
            if table not in self._tables or table in self._doubted:
                await self._ask(table)

    def doubt(self, table: str) -> None:
        """What is known of the table may be out of date: ask again at next need, unless that was just done."""
        if self._clock.monotonic_ns() - self._asked_ns.get(table, -_FRESH_NS) >= _FRESH_NS:
            self._doubted[table] = None

    def address(self, node_id: str) -> str | None:
        """Where a node listens, as far as any replica set tells."""
        for sets in self._tables.values():
            for each in sets.values():
                for endpoint in each.endpoints:
                    if endpoint.node_id == node_id:
                        return endpoint.address
        return None

    async def _ask(self, table: str) -> None:
        client = self._client = self._client or self._make_client()
        try:
            reply = await client.table_locations(table)
            servers = await client.tablet_servers()
        except (DefiniteError, IndefiniteError) as error:
            if error.kind == _NO_TABLE:
                self._tables.pop(table, None)
            if table not in self._tables:
                raise NotLocated(str(error)) from error
            self._asked(table)
            return
        # Masters that were restarted don't know of servers that are down.
        self._zones |= {server.node_id: zone for server, zone in zip(servers.servers, servers.zones, strict=True)}
        self._remember(table, reply)

    def _asked(self, table: str) -> None:
        self._asked_ns[table] = self._clock.monotonic_ns()
        self._doubted.pop(table, None)

    def _remember(self, table: str, reply: TableLocationsReply) -> None:
        self._asked(table)
        self._buckets[table] = max((tablet.partition.buckets for tablet in reply.tablets), default=1)
        running = [tablet for tablet in reply.tablets if tablet.replicas]
        logged = reply.design == "logged"
        self._tables[table] = {tablet.partition.bucket: _replicas(tablet, self._zones, logged) for tablet in running}


def _replicas(tablet: TabletLocation, zones: dict[str, str], logged: bool) -> ReplicaSet:
    """The replicas of a tablet, where `zones` says of each where it stands, if anybody knows."""
    found = (Endpoint(each.node_id, each.address, zones.get(each.node_id)) for each in tablet.replicas)
    return ReplicaSet(tablet.tablet_id, tuple(found), logged=logged)
