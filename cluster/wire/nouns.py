"""What messages are made of: the names of requests, partitions, replicas, tablets and tables."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec

Seconds: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=86_400)]
"""How long something may take, a day at most: what is no such time is no request."""


def is_address(text: str) -> bool:
    """Whether it has the form of an address, `HOST:PORT`."""
    host, _, port = text.rpartition(":")
    return bool(host) and host.isprintable() and port.isdecimal() and 0 < int(port[:6]) < 1 << 16


class RequestId(msgspec.Struct, frozen=True, array_like=True):
    """Names one logical request across retries (G8): `session` was registered with the group that carries it out,
    `sequence` rises within it, and requests below `done_below` are answered for good."""

    session: int
    sequence: int
    done_below: int


class Partition(msgspec.Struct, frozen=True, array_like=True):
    """Hash bucket `bucket` of `buckets`: partition key k lives in the tablet with `k % buckets == bucket`."""

    bucket: int
    buckets: int


class Replica(msgspec.Struct, frozen=True, array_like=True):
    """A tablet server and where it listens."""

    node_id: str
    address: str


class Regional(msgspec.Struct, frozen=True, array_like=True):
    """Where a table's replicas stand (R6): by zone how many voters, a majority of them in the zone `home`, where the
    lease is too, and how many learners, which never vote and serve reads. Without a home the lease is anywhere."""

    home: str
    voters: dict[str, int]
    learners: dict[str, int] = {}


Replicas: TypeAlias = int | Regional
"""What a table wants: a number of voters wherever there is room, or replicas in certain zones."""


def voters_wanted(replicas: Replicas) -> int:
    """A table's replication factor."""
    return sum(replicas.voters.values()) if isinstance(replicas, Regional) else replicas


def describe_replicas(replicas: Replicas) -> str:
    """What a table wants, in words."""
    if not isinstance(replicas, Regional):
        return str(replicas)
    parts = {"voters": replicas.voters, "learners": replicas.learners}
    told = (f"{what} {', '.join(f'{zone}:{count}' for zone, count in zones.items())}" for what, zones in parts.items())
    return "; ".join((f"home {replicas.home or 'anywhere'}", *told))


class TabletLocation(msgspec.Struct, frozen=True, array_like=True):
    """`leader_hint` is the leader as last reported, if any; the client tries it first."""

    tablet_id: str
    partition: Partition
    replicas: tuple[Replica, ...]
    state: str
    leader_hint: str | None


class TableInfo(msgspec.Struct, frozen=True, array_like=True):
    table_id: str
    name: str
    state: str
    version: int
    design: str = "raft"
