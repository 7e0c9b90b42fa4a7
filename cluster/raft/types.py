"""What goes into and comes out of the Raft state machine.

Section numbers are of Ongaro's thesis ("Consensus: Bridging Theory and Practice", 2014). The order that safety needs
is in the types: a `Ready`'s `send_now` may leave at once, its `persist` must be durable before `persist.then_send`
leaves, and `apply` holds committed entries only.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum
from typing import Protocol, TypeAlias

import msgspec

NodeId: TypeAlias = str


class InvariantBroken(Exception):
    """What no correct cluster does was asked of this node: it must stop and touch nothing more."""


class OpId(msgspec.Struct, frozen=True, array_like=True):
    """Names one log entry for good: no two entries share term and index (§3.5)."""

    term: int
    index: int


class EntryKind(IntEnum):
    """`LEADER` is the empty entry a new leader appends in its own term (§6.4); `COMMAND` is the state machine's;
    `CONFIG` sets the group's configuration (§4.1)."""

    LEADER = 0
    COMMAND = 1
    CONFIG = 2


class Role(StrEnum):
    FOLLOWER = "follower"
    PRE_CANDIDATE = "pre-candidate"
    CANDIDATE = "candidate"
    LEADER = "leader"


class Entry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One log entry; `index` counts from 1."""

    term: int
    index: int
    kind: int
    data: bytes


class HardState(msgspec.Struct, frozen=True, array_like=True):
    """What must survive a crash besides the log (§3.8): current term and vote. `commit` is only a hint at restart."""

    term: int = 0
    vote: NodeId | None = None
    commit: int = 0


class Member(msgspec.Struct, frozen=True, array_like=True):
    """A server of a group; Raft carries the address and doesn't read it."""

    server_id: NodeId
    address: str


class Configuration(msgspec.Struct, frozen=True, array_like=True):
    """Who belongs to a group (§4.1); `index` and `term` are the op id of the entry that set it, 0 if none did.

    Learners are the thesis's non-voting servers (§4.2.1): they get entries and snapshots and count for nothing.
    """

    voters: tuple[Member, ...] = ()
    learners: tuple[Member, ...] = ()
    index: int = 0
    term: int = 0

    @property
    def members(self) -> tuple[Member, ...]:
        """Voters, then learners."""
        return self.voters + self.learners

    @property
    def voter_ids(self) -> tuple[NodeId, ...]:
        return tuple(member.server_id for member in self.voters)

    @property
    def learner_ids(self) -> tuple[NodeId, ...]:
        return tuple(member.server_id for member in self.learners)

    @property
    def op_id(self) -> OpId:
        return OpId(self.term, self.index)


class SnapshotMeta(msgspec.Struct, frozen=True, array_like=True):
    """The last entry a snapshot covers, and the configuration in force there (§5.1)."""

    index: int
    term: int
    configuration: Configuration


class PersistentState(msgspec.Struct, frozen=True):
    """What storage holds of a node of a group, and all that says who belongs to it (§3.2, §5.1): `entries` follow the
    snapshot."""

    hard_state: HardState
    snapshot: SnapshotMeta | None
    entries: tuple[Entry, ...] = ()


class Persist(msgspec.Struct, frozen=True):
    """To be made durable, as one unit, before `then_send` may leave; answered with `Persisted(sequence)`.

    An empty one only keeps `then_send` behind what came before.
    """

    # Counts from 1; persists are made durable in this order.
    sequence: int
    hard_state: HardState | None
    # They replace everything in the stored log from `entries[0].index` on.
    entries: tuple[Entry, ...]
    # The received one. It precedes `entries`, and replaces the stored snapshot and the *whole* stored log (§5.1: what
    # it does not cover may conflict with it).
    snapshot: SnapshotMeta | None
    then_send: tuple[Message, ...]


class ReadReady(msgspec.Struct, frozen=True):
    """A linearizable read with this context may be served once everything up to `index` is applied (§6.4)."""

    context: int
    index: int


class SoftState(msgspec.Struct, frozen=True):
    """Who leads, as this node sees it; given in a Ready when it changed."""

    role: Role
    term: int
    leader: NodeId | None


class ChangeKind(StrEnum):
    """What an operator may do to a group's configuration; each makes at most one voter more or less (§4.1)."""

    ADD_LEARNER = "add-learner"
    PROMOTE = "promote"
    DEMOTE = "demote"
    REMOVE = "remove"


class Reason(StrEnum):
    """Why a change of the configuration was refused or abandoned; the configuration is as it was."""

    NOT_THE_LEADER = "not-the-leader"
    NO_OWN_COMMIT = "no-own-commit"
    BUSY = "busy"
    STALE = "stale"
    INVALID = "invalid"
    LOSES_QUORUM = "loses-quorum"
    NOT_CAUGHT_UP = "not-caught-up"


class ChangeResult(msgspec.Struct, frozen=True):
    """The fate of a `ChangeMembership`: the position of its CONFIG entry, which may still not be committed, or why not.

    `message` is one sentence for the operator.
    """

    context: int
    position: OpId | None
    reason: Reason | None = None
    message: str = ""


class SendSnapshot(msgspec.Struct, frozen=True):
    """Stream the stored snapshot `meta` to `target`, and tell Raft with `SnapshotSent` what came of it."""

    target: NodeId
    term: int
    meta: SnapshotMeta


class Silence(StrEnum):
    """What a replica's silence has come to (`cluster.raft.quiescence`).

    LEADS and FOLLOWS begin one; RESUMED ends it in agreement with its leader; WITHDRAWN ends it otherwise, and the node
    must tell the others before it answers another of their heartbeats.
    """

    LEADS = "leads"
    FOLLOWS = "follows"
    RESUMED = "resumed"
    WITHDRAWN = "withdrawn"


class Quiescence(msgspec.Struct, frozen=True):
    """A change of a replica's silence; `servers` are those at the other ends of one that begins."""

    silence: Silence
    servers: tuple[NodeId, ...]


class Liveness(Protocol):
    """What heartbeats between nodes tell; times are of this node's monotonic clock, far in the past for never.

    Ends of leases are data timestamps, which Raft only compares; 0 for none.
    """

    def heard_ns(self, server: NodeId) -> int:
        """When the last heartbeat of that node came in."""

    def echoed_ns(self, server: NodeId) -> int:
        """When this node sent the newest heartbeat that the other has answered with unbroken support."""

    def promised(self, server: NodeId) -> int:
        """Up to where this node lets leases of that node last: the highest end that it has echoed. Never lowered."""

    def supported(self, server: NodeId) -> int:
        """Up to where that node lets leases of this one last: the highest end that it has echoed, support unbroken."""

    def before_start(self) -> int | None:
        """No earlier life of this node has promised more; None while its clock can't tell."""


class Ready(msgspec.Struct, frozen=True):
    """All that a step asks of its driver, in this order: send_now, persist (then its sends), install, apply, reads."""

    # May leave before anything of this step is durable.
    send_now: tuple[Message, ...] = ()
    persist: Persist | None = None
    # The received snapshot that takes the state machine's place, once it is persisted and before `apply`.
    install: SnapshotMeta | None = None
    # Committed entries, each handed out once in a node's life; they follow those of the Ready before (or `install`).
    apply: tuple[Entry, ...] = ()
    reads: tuple[ReadReady, ...] = ()
    # Contexts of reads that are given up: leadership is lost.
    failed_reads: tuple[int, ...] = ()
    # Given where role, term or known leader changed.
    soft_state: SoftState | None = None
    # The (term, index) of each command of this step's `Propose`; None if they were refused (not the leader).
    proposed: tuple[tuple[int, int], ...] | None = None
    # When the next tick is needed (monotonic); there is no need for one before.
    wake_ns: int = 0
    # Answers to `ChangeMembership`.
    changes: tuple[ChangeResult, ...] = ()
    # Given where the one in force changed.
    configuration: Configuration | None = None
    # Streams to begin; a later one to the same target replaces it.
    send_snapshots: tuple[SendSnapshot, ...] = ()
    # Comes before everything else.
    quiescence: Quiescence | None = None
    # Whether it asks for more than `send_now`, `persist`, `apply` and a change of `soft_state`.
    rare: bool = False


# ---- events (local events are messages too) ----


class Tick(msgspec.Struct, frozen=True):
    """Time has come to `now_ns`."""


class Wake(msgspec.Struct, frozen=True):
    """The heartbeats between nodes carry this group's silence no longer."""


class Receive(msgspec.Struct, frozen=True):
    """A message from another node."""

    message: Message


class Propose(msgspec.Struct, frozen=True):
    """Append commands at the leader; `Ready.proposed` holds a (term, index) for each, or None when refused."""

    commands: tuple[bytes, ...]


class Persisted(msgspec.Struct, frozen=True):
    """Every `Persist` up to this sequence is durable."""

    sequence: int


class ReadIndex(msgspec.Struct, frozen=True):
    """Ask for a linearizable read point; answered by a `ReadReady` or in `failed_reads` with the same context."""

    context: int


class HandOverTo(msgspec.Struct, frozen=True):
    """Give the lease up and hand leadership to `target` (§3.10)."""

    target: NodeId


class HandOver(msgspec.Struct, frozen=True):
    """Transfer leadership to one healthy voter after the other until one takes over; `wanted=False` ends the search.

    A follower refuses leadership that others hand to it from the one to the other. Who is elected is told anew.
    """

    wanted: bool


class ChangeMembership(msgspec.Struct, frozen=True):
    """Change the configuration whose op id is `expected` (compare-and-set); answered by a `ChangeResult`.

    `member.address` matters to ADD_LEARNER only.
    """

    context: int
    kind: ChangeKind
    member: Member
    expected: OpId


class Compact(msgspec.Struct, frozen=True):
    """The driver has a durable snapshot as of `meta.index`, which it has applied: drop the log up to there."""

    meta: SnapshotMeta


class SnapshotSent(msgspec.Struct, frozen=True):
    """The stream of a snapshot ended: the target has every chunk (`delivered`), or it was given up."""

    target: NodeId
    index: int
    delivered: bool


class SnapshotReceived(msgspec.Struct, frozen=True):
    """Every chunk of a snapshot is here, sent by the leader `source` of `term`; `Ready.install` asks for its use."""

    source: NodeId
    term: int
    meta: SnapshotMeta


Event: TypeAlias = (
    Tick
    | Wake
    | Receive
    | Propose
    | Persisted
    | ReadIndex
    | HandOverTo
    | HandOver
    | ChangeMembership
    | Compact
    | SnapshotSent
    | SnapshotReceived
)


# ---- messages ----


class PreVote(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Would you vote for me in `term`? (§9.6); changes nobody's term."""

    source: NodeId
    target: NodeId
    term: int
    last_index: int
    last_term: int


class PreVoteReply(msgspec.Struct, frozen=True, array_like=True, tag=2):
    source: NodeId
    target: NodeId
    term: int
    granted: bool


class RequestVote(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """RequestVote RPC (figure 3.1); `transfer` lets it through the voters' lease check after TimeoutNow (§4.2.3)."""

    source: NodeId
    target: NodeId
    term: int
    last_index: int
    last_term: int
    transfer: bool


class RequestVoteReply(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """`until`: up to where this replica has let leases of earlier leaders last while the group was silent; None where
    it has restarted and its clock can't tell yet."""

    source: NodeId
    target: NodeId
    term: int
    granted: bool
    until: int | None = 0


class AppendEntries(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """AppendEntries RPC (figure 3.1); heartbeats are empty ones. `sent_ns` is the leader's monotonic send time, echoed
    in the reply to time its lease; `read_round` likewise confirms leadership for reads. `quiesce` asks the follower to
    fall silent."""

    source: NodeId
    target: NodeId
    term: int
    prev_index: int
    prev_term: int
    entries: tuple[Entry, ...]
    commit: int
    sent_ns: int
    read_round: int
    quiesce: bool = False


class AppendReply(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """`match` is the last index known to agree and durable; on refusal it is the refused `prev_index`, and
    `hint_index`/`hint_term` let the leader skip a term. A reply to an earlier term echoes no time and no round.
    `quiesced`: this follower is silent from now on."""

    source: NodeId
    target: NodeId
    term: int
    success: bool
    match: int
    hint_index: int
    hint_term: int
    sent_ns: int
    read_round: int
    quiesced: bool = False


class SnapshotChunk(msgspec.Struct, frozen=True, array_like=True, tag=7):
    """Part of a snapshot's file (§5, figure 5.3) from byte `offset` on, as a leader's driver sends it; `last` ends it.

    An empty one that is not the last is an offer: the acknowledgement says from where on bytes are wanted.
    """

    source: NodeId
    target: NodeId
    term: int
    meta: SnapshotMeta
    offset: int
    data: bytes
    last: bool


class SnapshotAck(msgspec.Struct, frozen=True, array_like=True, tag=8):
    """The receiver has everything below `offset` of the snapshot up to (`index`, `meta_term`); `done`: all it needs."""

    source: NodeId
    target: NodeId
    term: int
    index: int
    meta_term: int
    offset: int
    done: bool


class TimeoutNow(msgspec.Struct, frozen=True, array_like=True, tag=9):
    """Start an election at once (§3.10)."""

    source: NodeId
    target: NodeId
    term: int


Message: TypeAlias = (
    PreVote
    | PreVoteReply
    | RequestVote
    | RequestVoteReply
    | AppendEntries
    | AppendReply
    | SnapshotChunk
    | SnapshotAck
    | TimeoutNow
)
