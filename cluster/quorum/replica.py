"""Quorum keyspaces as a table's design (G4): one replica, which stores what coordinators send and reads what they ask.

It knows no leader and asks nobody. What it acknowledges is in the node's shared log, synced (G5); masters count a
tablet as running once all its replicas were reported.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import ClassVar, Protocol

from cluster.groups.spec import OnFailure, Transport
from cluster.knobs import Knobs
from cluster.log.frames import OtherVersion
from cluster.log.view import GroupLog, Quarantined
from cluster.quorum.calls import ReplicaCalls
from cluster.quorum.deletions import Deletion
from cluster.quorum.fence import NS_PER_MS, Bounds, purgeable_below, taken_ns
from cluster.quorum.ids import LOWEST_TIME, MutationId
from cluster.quorum.keys import KeyBytes, tokens_of
from cluster.quorum.merkle_repair import hash_leaves, stream_span
from cluster.quorum.messages import (
    ANY_EPOCH,
    OTHER_DESIGN,
    RECONCILE_REQUESTS,
    STORING_REQUESTS,
    BelowFence,
    DeliverMutations,
    FetchMutations,
    FetchRows,
    HashLeaves,
    LoggedMutation,
    MutationsFetched,
    PartitionSummary,
    QuorumReply,
    ReadSnapshot,
    ReplicaRequest,
    RowsDigest,
    RowsFetched,
    SnapshotGone,
    SnapshotRead,
    Stored,
    StoreLogged,
    StoreMutation,
    StreamSpan,
    SummarizePartition,
    TakePartitions,
)
from cluster.quorum.mutation import InvalidMutation, decode_mutation
from cluster.quorum.mutation_log import MutationLog
from cluster.quorum.observer import QuorumObserver
from cluster.quorum.partition_store import Arrival, Ledger, PartitionStore
from cluster.quorum.replica_sets import Endpoint, ReplicaSet
from cluster.quorum.slices import Page, Slice, page_digest
from cluster.quorum.sorted.live import sorted_options
from cluster.quorum.sorted.store import SortedStore
from cluster.raft.types import Configuration, Member, Message
from cluster.wire.messages import (
    LEADERLESS,
    AlterTablet,
    ChangeReplicas,
    ConfigurationReply,
    CreateTablet,
    DoneReply,
    ErrorReply,
    GroupState,
    RowRequest,
    TabletReport,
    encode,
)
from cluster.wire.operating import LeadershipReply, TransferLeadership
from harness.ports.api import DiskFull, Ports, node_of
from harness.ports.failpoints import pass_by

_NOT_OPEN = ErrorReply("SHUTTING_DOWN", "this replica is not serving", definite=True)


class Replication(Protocol):
    """What the two designs of quorum tables do differently at a replica, over the same store."""

    @property
    def logged(self) -> bool:
        """Whether mutations have ids, by which replicas are compared and not by their data (Q3)."""

    @property
    def ledger(self) -> Ledger | None:
        """Whom the store tells of mutations."""

    def opened(self, store: PartitionStore) -> None:
        """The store has recovered, and told the ledger what it holds."""

    def purgeable(self, partition: KeyBytes, deletion: Deletion) -> bool:
        """Whether a deletion may be forgotten (`cluster.quorum.partition_store.Purgeable`)."""

    async def answer(self, store: PartitionStore, request: ReplicaRequest, calls: ReplicaCalls) -> QuorumReply:
        """Carry a request out, or refuse one of the other design; raises Quarantined."""


class Leaderless:
    """A replica that takes part in no Raft group, for a `cluster.tserver.strategy.Strategy`: it leads nobody, hears
    nobody, knows no configuration, and refuses what only members of a group carry out.
    """

    def __init__(self, created: CreateTablet) -> None:
        self.created = created

    def refusal(self, request: object) -> ErrorReply:
        """Why a request that only members of a Raft group carry out is refused; each kind says so itself."""
        raise NotImplementedError

    @property
    def leads(self) -> bool:
        """Whether changes of configuration are this replica's to make: they never are."""
        return False

    def configurations(self) -> tuple[Configuration, Configuration]:
        """Empty ones: there is neither a committed configuration nor one in a log."""
        return Configuration(), Configuration()

    def contacts(self) -> tuple[int, Mapping[str, int]]:
        """Nobody, in no term: nobody's silence is this replica's to judge."""
        return 0, {}

    @property
    def policy_in_force(self) -> str:
        """Nothing is closed here."""
        return ""

    def voters(self) -> tuple[Member, ...]:
        """Nobody, for nothing is voted on here."""
        return ()

    def on_fence(self) -> None:
        """Nothing depends on the node's clock here."""

    def range_state(self) -> None:
        """It is no range: nothing is closed here."""

    def receive(self, messages: tuple[Message, ...]) -> None:
        """Raft messages are for none of its kind."""

    async def serve(self, request: RowRequest) -> bytes:
        """Rows are served elsewhere: an encoded refusal."""
        return encode(self.refusal(request))

    async def change_configuration(self, request: ChangeReplicas) -> ConfigurationReply | ErrorReply:
        """There is no configuration to change here: a refusal."""
        return self.refusal(request)

    async def transfer_leadership(self, request: TransferLeadership) -> LeadershipReply | ErrorReply:
        """There is nothing to hand over: a refusal."""
        return self.refusal(request)

    def bare_report(self, state: str, schema_version: int = 0, awaits_index: int = 0) -> TabletReport:
        """What masters are told of it: nothing of term, leader or configuration."""
        created = self.created
        return TabletReport(
            created.tablet_id, created.table_id, state, 0, None, (), (), 0, schema_version, awaits_index=awaits_index
        )

    def bare_status(self, role: str, voters: tuple[str, ...] = (), schema_version: int = 0) -> GroupState:
        """What the node's status says of it: nothing of terms and logs, of which it has none."""
        return GroupState(
            group=self.created.tablet_id,
            role=role,
            term=0,
            leader=None,
            commit_index=0,
            applied_index=0,
            last_index=0,
            first_index=1,
            last_term=0,
            lease_valid=False,
            voters=voters,
            learners=(),
            config_term=0,
            config_index=0,
            digest=0,
            schema_version=schema_version,
        )


class PartitionReplica(Leaderless):
    """A `cluster.tserver.strategy.Strategy` for tablets without leaders, whose design is `replication`."""

    def __init__(self, ports: Ports, created: CreateTablet, knobs: Knobs, replication: Replication) -> None:
        super().__init__(created)
        self._ports, self._knobs, self._replication = ports, knobs, replication
        self._store: PartitionStore | None = None
        self._schema_version = created.schema_version
        self._on_change: Callable[[], None] = lambda: None

    async def open(
        self, transport: Transport, log: GroupLog, on_change: Callable[[], None], on_failure: OnFailure
    ) -> None:
        """Recover what is stored, or begin with nothing; raises Quarantined."""
        self._on_change = on_change
        replication = self._replication
        self._store = await SortedStore.open(
            self._ports,
            self._knobs,
            log,
            purgeable=replication.purgeable,
            options=sorted_options(self._knobs),
            on_quarantined=on_failure,
            ledger=replication.ledger,
        )
        replication.opened(self._store)

    async def close(self) -> None:
        """Stop serving; what was acknowledged is found again."""
        store, self._store = self._store, None
        if store is not None:
            await store.close()

    # ---- what coordinators ask ----

    async def answer(self, request: ReplicaRequest, calls: ReplicaCalls) -> QuorumReply:
        """Store, read, hash, or stream by `calls`; an ErrorReply that is definite tells that nothing was done."""
        if self._store is None:
            return _NOT_OPEN
        if request.epoch not in (self.epoch, ANY_EPOCH):
            message = f"the replicas of {request.tablet_id} are those of epoch {self.epoch}, not {request.epoch}"
            return ErrorReply("WRONG_EPOCH", message, definite=True)
        try:
            return await self._replication.answer(self._store, request, calls)
        except Quarantined as error:
            # What was being written when the damage was found may be in the log.
            return ErrorReply("QUARANTINED", str(error), definite=not isinstance(request, STORING_REQUESTS))

    @property
    def logged(self) -> bool:
        """Whether its table is logged, and not legacy."""
        return self._replication.logged

    @property
    def epoch(self) -> int:
        """The epoch of the replica set that this replica belongs to."""
        return self.created.awaits_index

    @property
    def replica_set(self) -> ReplicaSet:
        """All replicas of the tablet, by their ids."""
        found = sorted(self.created.voters, key=lambda each: each.node_id)
        endpoints = tuple(Endpoint(each.node_id, each.address) for each in found)
        return ReplicaSet(self.created.tablet_id, endpoints, self.epoch)

    @property
    def tokens(self) -> tuple[int, int]:
        """The tokens of the partitions that belong here: the first and the last."""
        return tokens_of(self.created.partition.bucket, self.created.partition.buckets)

    async def read(self, asked: Slice) -> Page | None:
        """What this replica holds of a slice; None while it is not open."""
        return None if self._store is None else await self._store.read(asked)

    # ---- what the tablet server asks of any design ----

    def report(self) -> TabletReport:
        """What masters are told: it is there, and there is no leader to wait for."""
        return self.bare_report(LEADERLESS, self._schema_version)

    def status(self) -> GroupState | None:
        """What the node's status says: it is there, and with whom."""
        voters = tuple(replica.node_id for replica in self.created.voters)
        return self.bare_status("replica", voters, self._schema_version)

    def members(self) -> tuple[Member, ...]:
        """The members of its founding: the catalog says who holds a tablet."""
        return tuple(Member(replica.node_id, replica.address) for replica in self.created.voters)

    def refusal(self, request: object) -> ErrorReply:
        """Replica sets change by Q11, which is not built yet; its replicas are equals, written and read at levels."""
        if isinstance(request, ChangeReplicas):
            return ErrorReply("CHANGE_REFUSED", f"tablet {request.group} has no Raft configuration", definite=True)
        if isinstance(request, TransferLeadership):
            message = f"nobody leads tablet {request.group}: its replicas are equals"
            return ErrorReply("INVALID", message, definite=True)
        created = self.created
        message = f"tablet {created.tablet_id} is of the design {created.design!r}: it is written and read at levels"
        return ErrorReply("INVALID", message, definite=True)

    async def alter_schema(self, request: AlterTablet) -> DoneReply | ErrorReply:
        """Cells are stored by column id, so that a schema changes nothing here but what is reported."""
        self._schema_version = max(self._schema_version, request.schema_version)
        self._on_change()
        return DoneReply(done=True, version=self._schema_version)


# ---- legacy ----


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
            return await stream_span(store, request, calls, self._ports, self._knobs.sent_bytes)
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


# ---- logged ----


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
            self._knobs,
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
            self._observer.deletion_purged(self._tablet_id, taken_ns(deletion))
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
        """Rows and summary are of one moment: a store's read is of the turn in which it is called, in which the summary
        is taken, however long the disk takes."""
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
