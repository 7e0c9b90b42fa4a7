"""What a replica of a logged table does: it stores mutations under ids, and tells which it has applied (Q3 to Q5).

The tablet server sees it through `cluster.quorum.replica.PartitionReplica`, as it sees replicas of legacy tables.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence

from cluster.log.frames import OtherVersion
from cluster.quorum.deletions import Deletion
from cluster.quorum.fence import Fence, decode_fence, encode_fence
from cluster.quorum.ids import MutationId
from cluster.quorum.keys import KeyBytes
from cluster.quorum.messages import (
    BelowFence,
    DeliverMutations,
    LoggedMutation,
    LoggedRequest,
    MutationsFetched,
    PartitionSummary,
    QuorumReply,
    ReadSnapshot,
    SnapshotGone,
    SnapshotRead,
    Stored,
    StoreLogged,
    SummarizePartition,
)
from cluster.quorum.mutation import InvalidMutation, decode_mutation
from cluster.quorum.mutation_log import MutationLog
from cluster.quorum.partition_store import PartitionStore
from cluster.wire.messages import Fault
from harness.failpoints import pass_by
from harness.ports import DiskFull, Ports


class LoggedReplica:
    """The logged part of one replica, over its store; `log` is told by the store what it has applied."""

    def __init__(self, ports: Ports, tablet_id: str, flaws: Collection[str]) -> None:
        self._ports, self._tablet_id, self._flaws = ports, tablet_id, flaws
        self.log = MutationLog()
        self.fence = Fence()
        self._coming: dict[MutationId, asyncio.Task[None]] = {}

    def opened(self, store: PartitionStore) -> None:
        """The store has told what it holds."""
        if store.noted is not None:
            self.fence = decode_fence(store.noted)
            self.log.forget_below(self.fence.low_bound)

    def purgeable(self, partition: KeyBytes, deletion: Deletion) -> bool:
        """Whether a deletion may be forgotten; none yet: only what is reconciled may be (Q8)."""
        return False

    async def answer(self, store: PartitionStore, request: LoggedRequest) -> QuorumReply:
        """Store or read; a Fault that is definite tells that nothing was done."""
        if isinstance(request, StoreLogged):
            return await self._take(store, (request.mutation,), new=True)
        if isinstance(request, DeliverMutations):
            return await self._take(store, request.mutations, new=False)
        if isinstance(request, ReadSnapshot):
            return await self._read(store, request)
        if isinstance(request, SummarizePartition):
            found = self.log.summary_of(request.partition, request.bound, request.detail, request.as_of)
            return SnapshotGone() if found is None else PartitionSummary(found)
        return MutationsFetched(self._found(store, request.ids))

    # ---- writes ----

    async def _take(self, store: PartitionStore, mutations: Sequence[LoggedMutation], new: bool) -> QuorumReply:
        failpoints = self._ports.failpoints
        try:
            if failpoints.armed:
                await pass_by(failpoints, "quorum.before_store", self._tablet_id)
            if new and not all(self.fence.admits(each.id) for each in mutations):
                return BelowFence(self.fence.fence)
            storing = [self._storing(store, each) for each in mutations if not self.log.has(each.id)]
            for task in storing:
                await asyncio.shield(task)
            if failpoints.armed:
                await pass_by(failpoints, "quorum.after_store", self._tablet_id)
        except (InvalidMutation, OtherVersion) as error:
            return Fault("INVALID", str(error), definite=True)
        except DiskFull:
            return Fault("DISK_FULL", "the disk is full", definite=len(mutations) == 1)
        return Stored()

    def _storing(self, store: PartitionStore, each: LoggedMutation) -> asyncio.Task[None]:
        """A mutation on its way into the log, in this very turn; one task for an id, whoever sends it meanwhile."""
        task = self._coming.get(each.id)
        if task is None:
            work = store.apply(decode_mutation(each.mutation), each.id)
            task = self._coming[each.id] = asyncio.create_task(work, name="quorum.store")
            task.add_done_callback(lambda ended: self._stored(each.id, ended))
        return task

    def _stored(self, each: MutationId, ended: asyncio.Task[None]) -> None:
        del self._coming[each]
        if not ended.cancelled():
            ended.exception()  # whoever waits is told; if nobody does, nobody needs to know

    # ---- reads ----

    async def _read(self, store: PartitionStore, request: ReadSnapshot) -> QuorumReply:
        """Rows and summary are of one moment: both are taken in one turn of the event loop."""
        partition = request.slice.partition
        summary, as_of = self.log.summary(partition), self.log.last
        newer = () if request.as_of is None else self.log.newer(partition, request.as_of)
        page = await store.read(request.slice)
        if self._ports.failpoints.armed:
            await pass_by(self._ports.failpoints, "quorum.after_rows", self._tablet_id)
        if "summary-after-data" in self._flaws:
            summary, as_of = self.log.summary(partition), self.log.last
        if newer is None:
            return SnapshotGone()
        found = self._found(store, newer)
        # What was forgotten since is reconciled, and can't be sent any more.
        return SnapshotRead(page, summary, as_of, found) if len(found) == len(newer) else SnapshotGone()

    def _found(self, store: PartitionStore, ids: Sequence[MutationId]) -> tuple[LoggedMutation, ...]:
        found = []
        for each in ids:
            known = self.log.index.get(each)
            data = None if known is None else store.logged(known.place)
            if data is not None:
                found.append(LoggedMutation(each, data))
        return tuple(found)

    # ---- the fence ----

    async def move_fence(self, store: PartitionStore, fence: Fence) -> None:
        """Take up a higher fence or low bound, durably; raises DiskFull.

        When it returns nothing below the fence is on its way here: what was admitted before is in the log.
        """
        moved = Fence(max(fence.fence, self.fence.fence), max(fence.low_bound, self.fence.low_bound))
        self.fence = Fence(moved.fence, self.fence.low_bound)  # nothing below is taken from now on
        before = [task for each, task in self._coming.items() if each.time < moved.fence]
        await asyncio.gather(*(asyncio.shield(task) for task in before), return_exceptions=True)
        await store.note(encode_fence(moved))
        self.fence = Fence(max(moved.fence, self.fence.fence), max(moved.low_bound, self.fence.low_bound))
        self.log.forget_below(self.fence.low_bound)
        store.release()
