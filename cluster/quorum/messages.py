"""What clients ask coordinators of quorum tables, and coordinators their replicas (Q1, Q2).

On the wire these requests follow a mark, by which tablet servers tell them from all others. Mutations travel as they
were first encoded: what replicas log, what is hinted and what is repaired are such bytes (`cluster.quorum.mutation`).
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from cluster.quorum.slices import Page, Slice
from cluster.wire.messages import Fault

MARK = b"Q"
"""The first byte of these requests; every other one begins with a map."""

BLOCKING, NONE = "blocking", "none"
READ_REPAIRS = (BLOCKING, NONE)
"""What a read does about replicas that lack what it has found."""

# ---- from clients ----


class WritePartition(msgspec.Struct, frozen=True, tag="WritePartition"):
    """Write a mutation of one partition at a level, within so long. Answered by `Written`."""

    table: str
    mutation: bytes
    level: str
    timeout_s: float


class ReadPartition(msgspec.Struct, frozen=True, tag="ReadPartition"):
    """Read one page of a partition at a level, behind the page that gave `token`. Answered by `PageRead`.

    `prefer` names replicas that are to be taken for the nearest, in that order.
    """

    table: str
    slice: Slice
    level: str
    timeout_s: float
    read_repair: str = BLOCKING
    token: bytes | None = None
    prefer: tuple[str, ...] = ()


class ReadReplica(msgspec.Struct, frozen=True, tag="ReadReplica"):
    """Read what this node's own replica holds and nothing else, to compare replicas. Answered by `PageRead`."""

    table: str
    slice: Slice


# ---- from coordinators ----


class StoreMutation(msgspec.Struct, frozen=True, tag="StoreMutation"):
    """Make a mutation durable at this replica. Answered by `Stored`.

    `epoch` is that of the replica set by which the sender goes.
    """

    tablet_id: str
    epoch: int
    mutation: bytes


class FetchRows(msgspec.Struct, frozen=True, tag="FetchRows"):
    """Send what this replica holds of the slice, or only its digest. Answered by `RowsFetched` or `RowsDigest`."""

    tablet_id: str
    epoch: int
    slice: Slice
    digest_only: bool = False


ReplicaRequest: TypeAlias = StoreMutation | FetchRows
"""What coordinators ask of one replica."""

QuorumRequest: TypeAlias = WritePartition | ReadPartition | ReadReplica | StoreMutation | FetchRows

# ---- answers ----


class Written(msgspec.Struct, frozen=True, tag="Written"):
    """The mutation is durable at these replicas, which are enough for its level."""

    replicas: tuple[str, ...]


class PageRead(msgspec.Struct, frozen=True, tag="PageRead"):
    """What was found, deletions included; the replicas whose answers made it; and what continues behind it, if any."""

    page: Page
    replicas: tuple[str, ...]
    token: bytes | None = None


class Stored(msgspec.Struct, frozen=True, tag="Stored"):
    """It is durable here."""


class RowsFetched(msgspec.Struct, frozen=True, tag="RowsFetched"):
    """What the replica holds of the slice, as of one moment."""

    page: Page


class RowsDigest(msgspec.Struct, frozen=True, tag="RowsDigest"):
    """`cluster.quorum.slices.page_digest` of it."""

    digest: bytes


QuorumReply: TypeAlias = Written | PageRead | Stored | RowsFetched | RowsDigest | Fault

_encode = msgspec.msgpack.Encoder().encode
decode_quorum_request = msgspec.msgpack.Decoder(QuorumRequest).decode
decode_quorum_reply = msgspec.msgpack.Decoder(QuorumReply).decode


def encode_quorum_request(request: QuorumRequest) -> bytes:
    """For the wire, behind the mark."""
    return MARK + _encode(request)


def encode_quorum_reply(reply: QuorumReply) -> bytes:
    """For the wire."""
    return _encode(reply)
