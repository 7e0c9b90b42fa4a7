"""What a logged replica takes no more, and what all replicas have: the fence and the low bound (Q6, Q7). Pure.

Both are times of ids (`cluster.quorum.ids`) and only rise. They are durable as one small record, which the replica's
store keeps (`cluster.quorum.partition_store.PartitionStore.note`).
"""

from __future__ import annotations

import msgspec

from cluster.quorum.ids import LOWEST_TIME, MutationId


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
