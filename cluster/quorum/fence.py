"""What a logged replica takes no more, and what all replicas have: the fence and the low bound (Q6, Q7).

What they admit and allow to be forgotten is pure (`Gate`); `Bounds` keeps them at a replica, for reconciliations.
Both are times of ids (`cluster.quorum.ids`) and only rise. They are durable as one small record, which the replica's
store keeps (`cluster.quorum.partition_store.PartitionStore.note`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable
from hashlib import blake2b

import msgspec

from cluster.knobs import Knobs
from cluster.quorum.calls import ReplicaCalls, Unanswered
from cluster.quorum.deletions import Deletion
from cluster.quorum.ids import LOWEST_TIME, MutationId, encode_id
from cluster.quorum.messages import (
    AskLowBound,
    BoundReply,
    DeliverMutations,
    HashIds,
    IdsHashed,
    IdsListed,
    ListIds,
    LoggedMutation,
    QuorumReply,
    RaiseFenceTo,
    RaiseLowBound,
    ReconcileRequest,
    SendMutations,
    Stored,
)
from cluster.quorum.mutation_log import MutationLog
from cluster.quorum.partition_store import PartitionStore
from cluster.quorum.replica_sets import Endpoint
from cluster.wire.messages import ErrorReply
from harness.ports.api import DiskFull, Ports
from harness.ports.failpoints import pass_by

ACCEPT_BELOW_BOUND = "accept-below-bound"
NS_PER_MS = 1_000_000


class Fence(msgspec.Struct, frozen=True, array_like=True):
    """New mutations below `fence` are refused; every replica has all mutations below `low_bound`."""

    fence: int = LOWEST_TIME
    low_bound: int = LOWEST_TIME


encode_fence = msgspec.msgpack.Encoder().encode
decode_fence = msgspec.msgpack.Decoder(Fence).decode


def taken_ns(deletion: Deletion) -> int:
    """When a deletion counts as taken: by its timestamp or by its coordinator's clock, whichever is later."""
    return max(deletion.timestamp, deletion.local_time_ms * NS_PER_MS)


def purgeable_below(deletion: Deletion, low_bound: int, grace_ms: int) -> bool:
    """Whether a deletion may be forgotten: its grace is over at the low bound, by its own timestamp too (Q8).

    Times of ids count here, and no clock. A deletion's id is never `grace_ms` above its timestamp (`too_old`), nor is
    that of any write. So all that is still to come, being above the bound, is newer than the deletion; the deletion
    itself lies below the bound, and every replica has it.
    """
    return taken_ns(deletion) + grace_ms * NS_PER_MS < low_bound


def too_old(timestamps: Iterable[int], each: MutationId, grace_ms: int) -> bool:
    """Whether a write may come from under a deletion that was purged: it is then refused by everybody alike (Q8)."""
    return any(timestamp + grace_ms * NS_PER_MS <= each.time for timestamp in timestamps)


class Gate:
    """What a replica lets in, between two durable fences: mutations on their way to its log are known here.

    A fence counts from the moment it is asked for. It may be told to others once it is durable and nothing below it is
    on its way any more: only then do the ids that the replica tells stay complete.
    """

    def __init__(self, durable: Fence, flaws: Collection[str] = ()) -> None:
        self.durable = durable
        """What a restart finds."""
        self._open = ACCEPT_BELOW_BOUND in flaws
        """Whether the flaw lets everything in."""
        self._asked = durable.fence
        """The fence that counts; at or above the durable one."""
        self._under_way: dict[MutationId, int] = {}
        """Mutations on their way to the log, and how often each; but for delivered ones none was below `_asked` when it
        came in."""

    @property
    def asked(self) -> int:
        """The fence that counts: the last that was asked for."""
        return self._asked

    def admits(self, each: MutationId) -> bool:
        """Whether a coordinator's new mutation may be taken."""
        return self._open or each.time >= self._asked

    def known_everywhere(self, each: MutationId) -> bool:
        """Whether a delivered mutation is to be passed over: all replicas had it once, and may have purged it (Q8)."""
        return each.time < self.durable.low_bound

    def enter(self, each: MutationId) -> None:
        """A mutation is on its way to the log."""
        self._under_way[each] = self._under_way.get(each, 0) + 1

    def leave(self, each: MutationId) -> None:
        """A mutation is durable and can be told, or will never be."""
        left = self._under_way.pop(each) - 1
        if left:
            self._under_way[each] = left

    def close_below(self, time: int) -> Fence | None:
        """Let nothing new in below a time from now on; what has to be made durable for it, if anything."""
        self._asked = max(self._asked, time)
        return None if time <= self.durable.fence else Fence(self._asked, self.durable.low_bound)

    def quiet_below(self, time: int) -> bool:
        """Whether nothing below it is on its way."""
        return all(each.time >= time for each in self._under_way)

    def raise_bound(self, bound: int) -> Fence | None:
        """What has to be made durable for a bound that all have reached; None if nothing has to.

        Raises ValueError where the replica has no such fence: nobody can have reached it then.
        """
        if bound > self.durable.fence:
            raise ValueError(f"the bound {bound} lies above the fence {self.durable.fence}")
        return None if bound <= self.durable.low_bound else Fence(self._asked, bound)

    def now_durable(self, fence: Fence) -> None:
        """A record is durable; those of steps that overlap may end in any order."""
        self.durable = Fence(max(fence.fence, self.durable.fence), max(fence.low_bound, self.durable.low_bound))


# ---- at a replica ----


_TURN_IDS = 10_000
"""Ids hashed in one turn of the event loop."""
DELIVERY_TIMEOUT_S = 10.0


class Bounds:
    """Of one replica: `gate` decides what is let in. What is durable of it is a note in the replica's store.

    `on_bound` is told of each low bound when it is durable. A fence only rises, so one that a wrong clock asks for
    would shut every writer out until clocks come there: it may lie above this replica's clock by `max_clock_offset_ms`.
    """

    def __init__(
        self,
        ports: Ports,
        store: PartitionStore,
        log: MutationLog,
        on_bound: Callable[[int], None],
        knobs: Knobs,
        flaws: Collection[str] = (),
    ) -> None:
        self._ports, self._store, self._log, self._on_bound = ports, store, log, on_bound
        self._knobs = knobs
        durable = Fence() if store.noted is None else decode_fence(store.noted)
        self.gate = Gate(durable, flaws)
        self._noting = asyncio.Lock()
        self._quiet: list[tuple[int, asyncio.Future[None]]] = []
        log.forget_below(durable.low_bound)
        on_bound(durable.low_bound)

    @property
    def low_bound(self) -> int:
        """Every replica has all mutations below it."""
        return self.gate.durable.low_bound

    def left(self, ids: Iterable[MutationId]) -> None:
        """Mutations that entered the gate are durable and known by their ids, or never will be."""
        for each in ids:
            self.gate.leave(each)
        for waiting in list(self._quiet):
            if self.gate.quiet_below(waiting[0]):
                self._quiet.remove(waiting)
                if not waiting[1].done():
                    waiting[1].set_result(None)

    @property
    def busy(self) -> bool:
        """Whether a fence or bound is being raised: that may hang with the disk, and nobody else is to wait for it."""
        return self._noting.locked() or bool(self._quiet)

    async def raise_fence(self, time: int) -> None:
        """Let nothing new in below a time; returns when that is durable and nothing below it is on its way."""
        self.gate.close_below(time)
        async with self._noting:
            fence = self.gate.close_below(time)
            if fence is not None:
                await self._keep(fence)
        if not self.gate.quiet_below(time):
            quiet: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._quiet.append((time, quiet))
            await quiet

    async def raise_bound(self, bound: int) -> None:
        """All replicas have everything below a bound: forget what was kept for them. Raises ValueError."""
        async with self._noting:
            fence = self.gate.raise_bound(bound)
            if fence is not None:
                await self._keep(fence)
        self._on_bound(self.low_bound)
        self._log.forget_below(self.low_bound)
        self._store.release()

    async def _keep(self, fence: Fence) -> None:
        await self._store.note(encode_fence(fence))
        self.gate.now_durable(fence)

    # ---- what reconciliation asks ----

    async def answer(self, request: ReconcileRequest, calls: ReplicaCalls) -> QuorumReply:
        """An ErrorReply tells that nothing was done, or may be done again. Raises Quarantined."""
        try:
            return await self._answer(request, calls)
        except DiskFull:
            return ErrorReply("DISK_FULL", "the disk is full", definite=True)
        except ValueError as error:
            return ErrorReply("INVALID", str(error), definite=True)

    async def _answer(self, request: ReconcileRequest, calls: ReplicaCalls) -> QuorumReply:
        failpoints, tablet_id = self._ports.failpoints, request.tablet_id
        if isinstance(request, RaiseFenceTo | RaiseLowBound) and self.busy:
            return ErrorReply("BUSY", "another reconciliation is being noted here", definite=True)
        if isinstance(request, RaiseFenceTo):
            ahead_ns = request.time - self._ports.clock.wall_ns()
            most_ns = self._knobs.max_clock_offset_ms * NS_PER_MS
            if ahead_ns > most_ns:
                message = f"a fence {ahead_ns} ns ahead of this replica's clock; {most_ns} are allowed"
                return ErrorReply("CLOCK_OFFSET", message, definite=True)
            await pass_by(failpoints, "quorum.before_fence", tablet_id)
            await self.raise_fence(request.time)
            await pass_by(failpoints, "quorum.after_fence", tablet_id)
            return self._bound_reply()
        if isinstance(request, AskLowBound):
            return self._bound_reply()
        if isinstance(request, HashIds):
            return IdsHashed(await self._hashed(request.low, request.high))
        if isinstance(request, ListIds):
            return self._listed(request.low, request.high)
        if isinstance(request, RaiseLowBound):
            await pass_by(failpoints, "quorum.before_bound", tablet_id)
            await self.raise_bound(request.bound)
            return Stored()
        return await self._send(request, calls)

    def _bound_reply(self) -> BoundReply:
        return BoundReply(self.low_bound, self._ports.clock.wall_ns())

    async def _hashed(self, low: int, high: int) -> bytes:
        """Equal for equal sets of ids, different otherwise."""
        ids, total = self._log.index.between(low, high), blake2b(digest_size=16)
        for at in range(0, len(ids), _TURN_IDS):
            total.update(b"".join([encode_id(each) for each in ids[at : at + _TURN_IDS]]))
            await self._ports.clock.sleep(0)
        return total.digest()

    def _listed(self, low: int, high: int) -> IdsListed:
        """The first ids; those of one time are never cut in two."""
        ids = self._log.index.between(low, high)
        if len(ids) <= self._knobs.listed_ids:
            return IdsListed(tuple(ids), high)
        below = ids[self._knobs.listed_ids].time
        if below == ids[0].time:
            below += 1  # All of them are of one time, and whoever asks on from there would get the same again.
        return IdsListed(tuple(self._log.index.between(low, below)), below)

    async def _send(self, request: SendMutations, calls: ReplicaCalls) -> QuorumReply:
        """Send mutations that are here to a replica that lacks them."""
        target = Endpoint(request.target.node_id, request.target.address)
        batch: list[LoggedMutation] = []
        size = 0
        try:
            for each in request.ids:
                if size >= self._knobs.sent_bytes:
                    await self._deliver(request, target, batch, calls)
                    batch, size = [], 0
                known = self._log.index.get(each)
                encoded = None if known is None else await self._store.find(known.place)
                if encoded is None:
                    return ErrorReply("NOT_FOUND", f"{each} is not here, or all have it by now", definite=True)
                batch.append(LoggedMutation(each, encoded))
                size += len(encoded)
            await self._deliver(request, target, batch, calls)
        except Unanswered as error:
            return ErrorReply("UNAVAILABLE", f"{target.node_id} did not take what it lacks: {error}", definite=True)
        return Stored()

    async def _deliver(
        self, request: SendMutations, target: Endpoint, batch: list[LoggedMutation], calls: ReplicaCalls
    ) -> None:
        await pass_by(self._ports.failpoints, "quorum.before_deliver", request.tablet_id)
        await calls.ask(target, DeliverMutations(request.tablet_id, request.epoch, tuple(batch)), DELIVERY_TIMEOUT_S)
