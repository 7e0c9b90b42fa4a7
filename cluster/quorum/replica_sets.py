"""Who holds a partition, and who is near: replica sets with their data centres, and a snitch (Q1)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from harness.levels import data_centre_of

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


def replica_set(
    tablet_id: str, replicas: Mapping[str, str], zones: Mapping[str, str], logged: bool = False
) -> ReplicaSet:
    """The set of these replicas, addresses by node id, where `zones` says of each where it stands, if anybody knows."""
    found = (Endpoint(node_id, address, zones.get(node_id)) for node_id, address in replicas.items())
    return ReplicaSet(tablet_id, tuple(found), logged=logged)
