"""What a replica of a legacy table does: it stores mutations, reads, and takes part in repairs (Q2).

The tablet server sees it through `cluster.quorum.replica.PartitionReplica`, as it sees replicas of logged tables.
"""

from __future__ import annotations

from typing import ClassVar

from cluster.knobs import Knobs
from cluster.log.frames import OtherVersion
from cluster.quorum.calls import ReplicaCalls
from cluster.quorum.deletions import Deletion
from cluster.quorum.fence import NS_PER_MS
from cluster.quorum.keys import KeyBytes
from cluster.quorum.messages import (
    OTHER_DESIGN,
    FetchRows,
    HashLeaves,
    QuorumReply,
    ReplicaRequest,
    RowsDigest,
    RowsFetched,
    Stored,
    StoreMutation,
    StreamSpan,
    TakePartitions,
)
from cluster.quorum.mutation import InvalidMutation, decode_mutation
from cluster.quorum.partition_store import Arrival, PartitionStore
from cluster.quorum.repairing import hash_leaves, stream_span
from cluster.quorum.slices import page_digest
from cluster.wire.messages import CreateTablet, ErrorReply
from harness.ports.api import DiskFull, Ports
from harness.ports.failpoints import pass_by


class LegacyReplica:
    """The legacy part of one replica. Implements `cluster.quorum.replica.Replication`."""

    logged: ClassVar[bool] = False
    ledger: ClassVar[None] = None

    def __init__(self, ports: Ports, created: CreateTablet, knobs: Knobs) -> None:
        self._ports, self._tablet_id, self._knobs = ports, created.tablet_id, knobs

    def opened(self, store: PartitionStore) -> None:
        """Nothing is known of mutations beside what the store holds."""

    def purgeable(self, _: KeyBytes, deletion: Deletion) -> bool:
        """Deletions are kept long enough for hints and repair to bring them everywhere, and no longer."""
        age_ms = self._ports.clock.wall_ns() // NS_PER_MS - deletion.local_time_ms
        return age_ms >= self._knobs.deletion_grace_ms

    async def answer(self, store: PartitionStore, request: ReplicaRequest, calls: ReplicaCalls) -> QuorumReply:
        """Store, read, hash, or stream by `calls`; an ErrorReply that is definite tells that nothing was done."""
        if isinstance(request, StoreMutation):
            return await self._take(store, (request.mutation,))
        if isinstance(request, FetchRows):
            page = await store.read(request.slice)
            return RowsDigest(page_digest(page)) if request.digest_only else RowsFetched(page)
        if isinstance(request, TakePartitions):
            return await self._take(store, request.mutations)
        if isinstance(request, HashLeaves):
            return await hash_leaves(store, request, self._ports.clock)
        if isinstance(request, StreamSpan):
            return await stream_span(store, request, calls, self._ports)
        return OTHER_DESIGN

    async def _take(self, store: PartitionStore, encoded: tuple[bytes, ...]) -> QuorumReply:
        failpoints = self._ports.failpoints
        try:
            arrivals = [Arrival(decode_mutation(each), each) for each in encoded]
            if failpoints.armed:
                await pass_by(failpoints, "quorum.before_store", self._tablet_id)
            await store.apply_all(arrivals)
            if failpoints.armed:
                await pass_by(failpoints, "quorum.after_store", self._tablet_id)
        except (InvalidMutation, OtherVersion) as error:
            return ErrorReply("INVALID", str(error), definite=True)
        except DiskFull:
            return ErrorReply("DISK_FULL", "the disk is full", definite=len(encoded) == 1)
        return Stored()
