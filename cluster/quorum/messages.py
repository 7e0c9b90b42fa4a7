"""What clients ask coordinators of quorum tables, and coordinators their replicas (Q1 to Q5).

On the wire these requests follow a mark, by which tablet servers tell them from all others. Mutations travel as they
were first encoded: what replicas log, what is hinted and what is repaired are such bytes (`cluster.quorum.mutation`).
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from cluster.quorum.ids import MutationId
from cluster.quorum.keys import KeyBytes
from cluster.quorum.slices import Page, Slice
from cluster.quorum.summaries import Summary
from cluster.wire.messages import ErrorReply, Replica
from cluster.wire.nouns import Seconds

MARK = b"Q"
"""The first byte of these requests; every other one begins with a map."""

BLOCKING, NONE = "blocking", "none"
READ_REPAIRS = (BLOCKING, NONE)
"""What a read does about replicas that lack what it has found."""

# ---- from clients ----


class WritePartition(msgspec.Struct, frozen=True, tag=True):
    """Write a mutation of one partition at a level, within `timeout_s`. Answered by `Written`."""

    table: str
    mutation: bytes
    level: str
    timeout_s: Seconds


class ReadPartition(msgspec.Struct, frozen=True, tag=True):
    """Read one page of a partition at a level, behind the page that gave `token`. Answered by `PageRead`.

    `prefer` names replicas that are to be taken for the nearest, in that order.
    """

    table: str
    slice: Slice
    level: str
    timeout_s: Seconds
    read_repair: str = BLOCKING
    token: bytes | None = None
    prefer: tuple[str, ...] = ()


class ReadReplica(msgspec.Struct, frozen=True, tag=True):
    """Read what this node's own replica holds and nothing else, to compare replicas. Answered by `PageRead`."""

    table: str
    slice: Slice


# ---- from coordinators ----


ANY_EPOCH = -1
"""Of what holds whoever the replicas are: hints, which were once for this very replica."""


class ToReplica(msgspec.Struct, frozen=True):
    """What is asked of the replica of one tablet.

    `epoch` is that of the replica set by which the sender goes; a replica of another one refuses (WRONG_EPOCH).
    """

    tablet_id: str
    epoch: int


class StoreMutation(ToReplica, frozen=True, tag=True):
    """Make a mutation durable at this replica. Answered by `Stored`."""

    mutation: bytes


class FetchRows(ToReplica, frozen=True, tag=True):
    """Send what this replica holds of the slice, or only its digest. Answered by `RowsFetched` or `RowsDigest`."""

    slice: Slice
    digest_only: bool = False


# ---- repair ----


class RepairTable(msgspec.Struct, frozen=True, tag=True):
    """Compare and repair the replicas of a legacy table, tablet by tablet, as an operator asks. Answered by `Repaired`.

    One that takes longer than `timeout_s` is given up, and what was streamed by then stays.
    """

    table: str
    timeout_s: Seconds


class StopRepairs(msgspec.Struct, frozen=True, tag=True):
    """Break off all repairs that this node coordinates. Answered by `Stored`."""


class HashLeaves(ToReplica, frozen=True, tag=True):
    """Scan partitions and hash them into the leaves of a tree over `first` to `last` (`cluster.quorum.merkle_repair`).

    Begins with `first_leaf` and answers after a while with as many as are done. Deletions that were taken before
    `deleted_before_ms` are left out. Answered by `LeavesHashed`.
    """

    first: int
    last: int
    depth: int
    first_leaf: int
    deleted_before_ms: int


class StreamSpan(ToReplica, frozen=True, tag=True):
    """Send partitions with tokens from `first` to `last`, whole, to other replicas. Answered by `SpanStreamed`.

    Answers after a while, and says where it has to go on.
    """

    first: int
    last: int
    targets: tuple[Replica, ...]


class TakePartitions(ToReplica, frozen=True, tag=True):
    """Make durable what another replica knows of whole partitions, one mutation for each. Answered by `Stored`."""

    mutations: tuple[bytes, ...]


RepairRequest: TypeAlias = HashLeaves | StreamSpan | TakePartitions
"""What repairs ask of replicas."""

# ---- logged replication (Q3 to Q5) ----


class LoggedMutation(msgspec.Struct, frozen=True, array_like=True):
    """A mutation, encoded, under its id."""

    id: MutationId
    mutation: bytes


class StoreLogged(ToReplica, frozen=True, tag=True):
    """Make a new mutation durable at this replica. Answered by `Stored`, or `BelowFence` where it was not taken."""

    mutation: LoggedMutation


class DeliverMutations(ToReplica, frozen=True, tag=True):
    """Make mutations durable that another replica holds, whatever the fence says. Answered by `Stored`."""

    mutations: tuple[LoggedMutation, ...]


class ReadSnapshot(ToReplica, frozen=True, tag=True):
    """Send the rows of the slice and a plain summary of its partition, as of one moment. Answered by `SnapshotRead`.

    With `as_of`, the moment of an earlier answer, also every mutation of the partition that was applied since; or
    answered by `SnapshotGone`, where that can't be told any more.
    """

    slice: Slice
    as_of: int | None = None


class SummarizePartition(ToReplica, frozen=True, tag=True):
    """Send a summary of what was applied to a partition, from a bound on (or this replica's own, if that is higher).

    `detail` is the size of its sketch (`cluster.quorum.summaries`); with `as_of` it is of the moment of an earlier
    snapshot. Answered by `PartitionSummary`, or `SnapshotGone` where that snapshot lacked something below the bound.
    """

    partition: KeyBytes
    bound: int = 0
    detail: int = 0
    as_of: int | None = None


class FetchMutations(ToReplica, frozen=True, tag=True):
    """Send whole mutations. Answered by `MutationsFetched`; those that every replica has by now may be missing."""

    ids: tuple[MutationId, ...]


LoggedRequest: TypeAlias = StoreLogged | DeliverMutations | ReadSnapshot | SummarizePartition | FetchMutations
"""What coordinators ask of replicas of logged tables."""

# ---- reconciliation (Q6) ----


class AskLowBound(ToReplica, frozen=True, tag=True):
    """Tell the low bound and the clock. Answered by `BoundReply`."""


class RaiseFenceTo(ToReplica, frozen=True, tag=True):
    """Refuse new mutations below `time`; answered by `BoundReply` when nothing below it can come to be here."""

    time: int


class HashIds(ToReplica, frozen=True, tag=True):
    """Hash the ids that were applied here, with times from `low` on and below `high`. Answered by `IdsHashed`."""

    low: int
    high: int


class ListIds(ToReplica, frozen=True, tag=True):
    """List the ids that `HashIds` hashes, or the first of them. Answered by `IdsListed`."""

    low: int
    high: int


class SendMutations(ToReplica, frozen=True, tag=True):
    """Deliver mutations that are here to another replica. Answered by `Stored` when they are durable there."""

    ids: tuple[MutationId, ...]
    target: Replica


class RaiseLowBound(ToReplica, frozen=True, tag=True):
    """All replicas have everything below `bound`. Answered by `Stored`."""

    bound: int


ReconcileRequest: TypeAlias = AskLowBound | RaiseFenceTo | HashIds | ListIds | SendMutations | RaiseLowBound
"""What reconciliation asks of replicas of logged tables."""

RECONCILE_REQUESTS = (AskLowBound, RaiseFenceTo, HashIds, ListIds, SendMutations, RaiseLowBound)

STORING_REQUESTS = (StoreMutation, TakePartitions, StoreLogged, DeliverMutations)
"""Of these something may have come though their answer says otherwise."""

ReplicaRequest: TypeAlias = StoreMutation | FetchRows | RepairRequest | LoggedRequest | ReconcileRequest
"""What coordinators ask of one replica."""

QuorumRequest: TypeAlias = WritePartition | ReadPartition | ReadReplica | RepairTable | StopRepairs | ReplicaRequest

# ---- answers ----


class Written(msgspec.Struct, frozen=True, tag=True):
    """The mutation is durable at these replicas, which are enough for its level."""

    replicas: tuple[str, ...]


class PageRead(msgspec.Struct, frozen=True, tag=True):
    """What was found, deletions included; the replicas whose answers made it; and what continues behind it, if any."""

    page: Page
    replicas: tuple[str, ...]
    token: bytes | None = None


class Stored(msgspec.Struct, frozen=True, tag=True):
    """What was sent is durable at this replica."""


class RowsFetched(msgspec.Struct, frozen=True, tag=True):
    """What the replica holds of the slice, as of one moment."""

    page: Page


class RowsDigest(msgspec.Struct, frozen=True, tag=True):
    """`cluster.quorum.slices.page_digest` of it."""

    digest: bytes


class LeavesHashed(msgspec.Struct, frozen=True, tag=True):
    """The hashes of the next leaves, at least one; what they hold, and what was read from the disk for them."""

    hashes: tuple[bytes, ...]
    partitions: int
    read_bytes: int


class SpanStreamed(msgspec.Struct, frozen=True, tag=True):
    """How many partitions, of how many bytes, are durable at each target; `next_token` goes on, None at the end."""

    partitions: int
    sent_bytes: int
    next_token: int | None


class Repaired(msgspec.Struct, frozen=True, tag=True):
    """What a repair has done: `read_bytes` from disks of all replicas to compare them, `sent_bytes` between them.

    `leaves` are those that differed; `partitions` counts each as often as it was sent.
    """

    tablets: int = 0
    leaves: int = 0
    partitions: int = 0
    read_bytes: int = 0
    sent_bytes: int = 0


class BelowFence(msgspec.Struct, frozen=True, tag=True):
    """A new mutation was not taken: its id lies below this time (Q7)."""

    fence: int


class SnapshotRead(msgspec.Struct, frozen=True, tag=True):
    """Rows and the summary of one moment, which `as_of` names; `newer` are mutations since the moment asked for."""

    page: Page
    summary: Summary
    as_of: int
    newer: tuple[LoggedMutation, ...] = ()


class SnapshotGone(msgspec.Struct, frozen=True, tag=True):
    """Of the moment that was asked for not enough is known any more: read anew."""


class PartitionSummary(msgspec.Struct, frozen=True, tag=True):
    """The summary of a partition that was asked for."""

    summary: Summary


class MutationsFetched(msgspec.Struct, frozen=True, tag=True):
    """The mutations that were asked for, as far as they are here."""

    mutations: tuple[LoggedMutation, ...]


LoggedReply: TypeAlias = BelowFence | SnapshotRead | SnapshotGone | PartitionSummary | MutationsFetched


class BoundReply(msgspec.Struct, frozen=True, tag=True):
    """The replica's low bound, and what its clock shows."""

    low_bound: int
    clock_ns: int


class IdsHashed(msgspec.Struct, frozen=True, tag=True):
    """16 bytes: equal for equal sets of ids, different otherwise."""

    hashed: bytes


class IdsListed(msgspec.Struct, frozen=True, tag=True):
    """The ids that were asked for, as far as below this time."""

    ids: tuple[MutationId, ...]
    complete_below: int


ReconcileReply: TypeAlias = BoundReply | IdsHashed | IdsListed
RepairReply: TypeAlias = LeavesHashed | SpanStreamed | Repaired

QuorumReply: TypeAlias = (
    Written | PageRead | Stored | RowsFetched | RowsDigest | RepairReply | LoggedReply | ReconcileReply | ErrorReply
)

OTHER_DESIGN = ErrorReply("INVALID", "this replica's table has another replication design", definite=True)
"""What a replica says to a request of a design that is not its table's."""

encode_quorum_reply = msgspec.msgpack.Encoder().encode
decode_quorum_request = msgspec.msgpack.Decoder(QuorumRequest).decode
decode_quorum_reply = msgspec.msgpack.Decoder(QuorumReply).decode


def encode_quorum_request(request: QuorumRequest) -> bytes:
    """For the wire, behind the mark."""
    return MARK + encode_quorum_reply(request)
