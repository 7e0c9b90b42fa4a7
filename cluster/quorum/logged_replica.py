"""What a replica of a logged table does: it stores mutations under ids, and tells which it has applied (Q3 to Q5).

The tablet server sees it through `cluster.quorum.replica.PartitionReplica`, as it sees replicas of legacy tables.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from typing import ClassVar

from cluster.knobs import Knobs
from cluster.log.frames import OtherVersion
from cluster.quorum.bounds import Bounds
from cluster.quorum.calls import ReplicaCalls
from cluster.quorum.deletions import Deletion
from cluster.quorum.fence import NS_PER_MS, purgeable_below, taken_ns
from cluster.quorum.ids import LOWEST_TIME, MutationId
from cluster.quorum.keys import KeyBytes
from cluster.quorum.messages import (
    OTHER_DESIGN,
    RECONCILE_REQUESTS,
    BelowFence,
    DeliverMutations,
    FetchMutations,
    LoggedMutation,
    MutationsFetched,
    PartitionSummary,
    QuorumReply,
    ReadSnapshot,
    ReplicaRequest,
    SnapshotGone,
    SnapshotRead,
    Stored,
    StoreLogged,
    SummarizePartition,
)
from cluster.quorum.mutation import InvalidMutation, decode_mutation
from cluster.quorum.mutation_log import MutationLog
from cluster.quorum.observer import QuorumObserver
from cluster.quorum.partition_store import Arrival, PartitionStore
from cluster.wire.messages import CreateTablet, ErrorReply
from harness.ports.api import DiskFull, Ports, node_of
from harness.ports.failpoints import pass_by


class LoggedReplica:
    """The logged part of one replica, over its store; `log` is told by the store what it has applied.

    Implements `cluster.quorum.replica.Replication`.
    """

    logged: ClassVar[bool] = True

    def __init__(
        self, ports: Ports, created: CreateTablet, knobs: Knobs, observer: QuorumObserver, flaws: Collection[str]
    ) -> None:
        self._ports, self._tablet_id, self._knobs, self._flaws = ports, created.tablet_id, knobs, flaws
        self._observer = observer
        replicas = tuple(node_of(replica.node_id) for replica in created.voters)
        self.log = MutationLog(created.tablet_id, replicas, observer)
        self.bounds: Bounds | None = None
        self._coming: dict[MutationId, asyncio.Future[None]] = {}

    @property
    def ledger(self) -> MutationLog:
        """The addressable log: it hears of every mutation in the turn in which it becomes visible."""
        return self.log

    def opened(self, store: PartitionStore) -> None:
        """The store has told what it holds."""
        tablet_id, observer = self._tablet_id, self._observer
        self.bounds = Bounds(
            self._ports,
            store,
            self.log,
            lambda bound: observer.bound_raised(tablet_id, bound),
            self._knobs.max_clock_offset_ms * NS_PER_MS,
            self._flaws,
        )

    def purgeable(self, _: KeyBytes, deletion: Deletion) -> bool:
        """Whether a deletion may be forgotten: after its grace period, and only below what is reconciled (Q8)."""
        grace_ms = self._knobs.deletion_grace_ms
        low_bound = LOWEST_TIME if self.bounds is None else self.bounds.low_bound
        if "purge-unreconciled" in self._flaws:
            over = self._ports.clock.wall_ns() // NS_PER_MS - deletion.local_time_ms >= grace_ms
        else:
            over = purgeable_below(deletion, low_bound, grace_ms)
        if over:
            self._observer.deletion_purged(self._tablet_id, taken_ns(deletion), low_bound)
        return over

    async def answer(self, store: PartitionStore, request: ReplicaRequest, calls: ReplicaCalls) -> QuorumReply:
        """Store, read or reconcile by `calls`; an ErrorReply that is definite tells that nothing was done."""
        if isinstance(request, StoreLogged):
            return await self._take(store, (request.mutation,), new=True)
        if isinstance(request, DeliverMutations):
            return await self._take(store, request.mutations, new=False)
        if isinstance(request, ReadSnapshot):
            return await self._read(store, request)
        if isinstance(request, SummarizePartition):
            found = self.log.summary_of(request.partition, request.bound, request.detail, request.as_of)
            return SnapshotGone() if found is None else PartitionSummary(found)
        if isinstance(request, FetchMutations):
            return MutationsFetched(await self._found(store, request.ids))
        if isinstance(request, RECONCILE_REQUESTS) and self.bounds is not None:
            return await self.bounds.answer(request, calls)
        return OTHER_DESIGN

    # ---- writes ----

    async def _take(self, store: PartitionStore, mutations: Sequence[LoggedMutation], new: bool) -> QuorumReply:
        failpoints, bounds, alone = self._ports.failpoints, self.bounds, False
        assert bounds is not None
        try:
            if failpoints.armed:
                await pass_by(failpoints, "quorum.before_store", self._tablet_id)
            if new and not all(bounds.gate.admits(each.id) for each in mutations):
                return BelowFence(bounds.gate.asked)
            alone = len(mutations) == 1 and mutations[0].id not in self._coming
            lacking = [each for each in mutations if not self._has(each.id, bounds, new)]
            for stored in self._storing(store, lacking, bounds):
                await asyncio.shield(stored)
            if failpoints.armed:
                await pass_by(failpoints, "quorum.after_store", self._tablet_id)
        except (InvalidMutation, OtherVersion) as error:
            return ErrorReply("INVALID", str(error), definite=True)
        except DiskFull:
            return ErrorReply("DISK_FULL", "the disk is full", definite=alone)
        return Stored()

    def _has(self, each: MutationId, bounds: Bounds, new: bool) -> bool:
        """Whether it is here; of a new one that was let in the bound says nothing."""
        return each in self.log.index or (not new and bounds.gate.known_everywhere(each))

    def _storing(
        self, store: PartitionStore, mutations: Sequence[LoggedMutation], bounds: Bounds
    ) -> list[asyncio.Future[None]]:
        """Mutations on their way into the log, in this very turn; each is once, whoever sends it meanwhile."""
        coming = self._coming
        fresh = {
            each.id: Arrival(decode_mutation(each.mutation), each.mutation, each.id)
            for each in mutations
            if each.id not in coming
        }
        waits = dict.fromkeys(coming[each.id] for each in mutations if each.id not in fresh)
        if fresh:
            stored = store.begin_apply(list(fresh.values()))
            waits[stored] = None
            for each in fresh:
                coming[each] = stored
                bounds.gate.enter(each)
            stored.add_done_callback(lambda ended: self._stored(fresh, ended, bounds))
        return list(waits)

    def _stored(self, ids: Collection[MutationId], ended: asyncio.Future[None], bounds: Bounds) -> None:
        for each in ids:
            del self._coming[each]
        bounds.left(ids)
        if not ended.cancelled():
            ended.exception()  # whoever waits is told; if nobody does, nobody needs to know

    # ---- reads ----

    async def _read(self, store: PartitionStore, request: ReadSnapshot) -> QuorumReply:
        """Rows and summary are of one moment: both are taken in one turn of the event loop."""
        partition = request.slice.partition
        summary, as_of = self.log.summary(partition), self.log.last
        newer = () if request.as_of is None else self.log.newer(partition, request.as_of)
        page = await store.read(request.slice)
        self._observer.snapshot_read(self._tablet_id, request.slice, summary, page)
        if self._ports.failpoints.armed:
            await pass_by(self._ports.failpoints, "quorum.after_rows", self._tablet_id)
        if "summary-after-data" in self._flaws:
            summary, as_of = self.log.summary(partition), self.log.last
        if newer is None:
            return SnapshotGone()
        found = await self._found(store, newer)
        # What was forgotten since is reconciled, and can't be sent any more.
        return SnapshotRead(page, summary, as_of, found) if len(found) == len(newer) else SnapshotGone()

    async def _found(self, store: PartitionStore, ids: Sequence[MutationId]) -> tuple[LoggedMutation, ...]:
        found = []
        for each in ids:
            known = self.log.index.get(each)
            data = None if known is None else await store.find(known.place)
            if data is not None:
                found.append(LoggedMutation(each, data))
        return tuple(found)
