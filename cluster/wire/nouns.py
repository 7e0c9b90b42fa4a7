"""What messages are made of: the names of requests, partitions, replicas, tablets and tables."""

from __future__ import annotations

import msgspec


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
