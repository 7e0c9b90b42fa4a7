"""What clients ask coordinators of quorum tables, and coordinators their replicas (Q1, Q2).

On the wire these requests follow a mark, by which tablet servers tell them from all others. Mutations travel as they
were first encoded: what replicas log, what is hinted and what is repaired are such bytes (`cluster.quorum.mutation`).
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from cluster.quorum.slices import Page, Slice
from cluster.wire.messages import Fault, Replica

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


ANY_EPOCH = -1
"""Of what holds whoever the replicas are: hints, which were once for this very replica."""


class StoreMutation(msgspec.Struct, frozen=True, tag="StoreMutation"):
    """Make a mutation durable at this replica. Answered by `Stored`.

    `epoch` is that of the replica set by which the sender goes; a replica of another one refuses (WRONG_EPOCH).
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


# ---- repair ----


class RepairTable(msgspec.Struct, frozen=True, tag="RepairTable"):
    """Compare and repair the replicas of a legacy table, tablet by tablet, as an operator asks. Answered by `Repaired`.

    One that takes longer than `timeout_s` is given up, and what was streamed by then stays.
    """

    table: str
    timeout_s: float


class StopRepairs(msgspec.Struct, frozen=True, tag="StopRepairs"):
    """Break off all repairs that this node coordinates. Answered by `Stored`."""


class HashLeaves(msgspec.Struct, frozen=True, tag="HashLeaves"):
    """Scan partitions and hash them into the leaves of a tree over `first` to `last` (`cluster.quorum.merkle`).

    Begins with `first_leaf` and answers after a while with as many as are done. Deletions that were taken before
    `deleted_before_ms` are left out. Answered by `LeavesHashed`.
    """

    tablet_id: str
    epoch: int
    first: int
    last: int
    depth: int
    first_leaf: int
    deleted_before_ms: int


class StreamSpan(msgspec.Struct, frozen=True, tag="StreamSpan"):
    """Send partitions with tokens from `first` to `last`, whole, to other replicas. Answered by `SpanStreamed`.

    Answers after a while, and says where it has to go on.
    """

    tablet_id: str
    epoch: int
    first: int
    last: int
    targets: tuple[Replica, ...]


class TakePartitions(msgspec.Struct, frozen=True, tag="TakePartitions"):
    """Make durable what another replica knows of whole partitions, one mutation for each. Answered by `Stored`."""

    tablet_id: str
    epoch: int
    mutations: tuple[bytes, ...]


RepairRequest: TypeAlias = HashLeaves | StreamSpan | TakePartitions
"""What repairs ask of replicas."""

ReplicaRequest: TypeAlias = StoreMutation | FetchRows | HashLeaves | StreamSpan | TakePartitions
"""What coordinators ask of one replica."""

QuorumRequest: TypeAlias = WritePartition | ReadPartition | ReadReplica | RepairTable | StopRepairs | ReplicaRequest

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


class LeavesHashed(msgspec.Struct, frozen=True, tag="LeavesHashed"):
    """The hashes of the next leaves, at least one; what they hold, and what was read from the disk for them."""

    hashes: tuple[bytes, ...]
    partitions: int
    read_bytes: int


class SpanStreamed(msgspec.Struct, frozen=True, tag="SpanStreamed"):
    """So many partitions of so many bytes are durable at each target; `next_token` goes on, None at the end."""

    partitions: int
    sent_bytes: int
    next_token: int | None


class Repaired(msgspec.Struct, frozen=True, tag="Repaired"):
    """What a repair has done: `read_bytes` from disks of all replicas to compare them, `sent_bytes` between them.

    `leaves` are those that differed; `partitions` counts each as often as it was sent.
    """

    tablets: int = 0
    leaves: int = 0
    partitions: int = 0
    read_bytes: int = 0
    sent_bytes: int = 0


QuorumReply: TypeAlias = (
    Written | PageRead | Stored | RowsFetched | RowsDigest | LeavesHashed | SpanStreamed | Repaired | Fault
)

_encode = msgspec.msgpack.Encoder().encode
decode_quorum_request = msgspec.msgpack.Decoder(QuorumRequest).decode
decode_quorum_reply = msgspec.msgpack.Decoder(QuorumReply).decode


def encode_quorum_request(request: QuorumRequest) -> bytes:
    """For the wire, behind the mark."""
    return MARK + _encode(request)


def encode_quorum_reply(reply: QuorumReply) -> bytes:
    """For the wire."""
    return _encode(reply)
