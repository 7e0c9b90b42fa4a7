"""What a logged replica takes no more, and what all replicas have: the fence and the low bound (Q6, Q7). Pure.

Both are times of ids (`cluster.quorum.ids`) and only rise. They are durable as one small record, which the replica's
store keeps (`cluster.quorum.partition_store.PartitionStore.note`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec

from cluster.quorum.deletions import Deletion
from cluster.quorum.ids import LOWEST_TIME, MutationId

ACCEPT_BELOW_BOUND = "accept-below-bound"
NS_PER_MS = 1_000_000


class Fence(msgspec.Struct, frozen=True, array_like=True):
    """New mutations below `fence` are refused; every replica has all mutations below `low_bound`."""

    fence: int = LOWEST_TIME
    low_bound: int = LOWEST_TIME

    def admits(self, each: MutationId) -> bool:
        """Whether a new mutation may be taken; one that another replica holds is delivered all the same."""
        return each.time >= self.fence


_encode = msgspec.msgpack.Encoder().encode
decode_fence = msgspec.msgpack.Decoder(Fence).decode


def encode_fence(fence: Fence) -> bytes:
    """For the replica's store."""
    return _encode(fence)


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
        self._open = ACCEPT_BELOW_BOUND in flaws
        self._asked = durable.fence
        self._under_way: dict[MutationId, int] = {}

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
        """It is durable and can be told, or will never be."""
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
