"""Quorum keyspaces as a table's design (G4): one replica, which stores what coordinators send and reads what they ask.

It knows no leader and asks nobody. What it acknowledges is in the node's shared log, synced (G5); masters count a
tablet as running once all its replicas were reported.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from cluster.config import Knobs
from cluster.group import OnFailure, Transport
from cluster.log.frames import OtherVersion
from cluster.log.view import GroupLog, Quarantined
from cluster.quorum.calls import ReplicaCalls
from cluster.quorum.deletions import Deletion
from cluster.quorum.keys import KeyBytes, tokens_of
from cluster.quorum.logged_replica import LoggedReplica
from cluster.quorum.messages import (
    ANY_EPOCH,
    LOGGED_REQUESTS,
    RECONCILE_REQUESTS,
    STORING_REQUESTS,
    FetchRows,
    HashLeaves,
    QuorumReply,
    ReplicaRequest,
    RowsDigest,
    RowsFetched,
    Stored,
    StoreMutation,
    TakePartitions,
)
from cluster.quorum.mutation import InvalidMutation, decode_mutation
from cluster.quorum.partition_store import PartitionStore
from cluster.quorum.repairing import hash_leaves, stream_span
from cluster.quorum.replica_sets import Endpoint, ReplicaSet
from cluster.quorum.slices import Page, Slice, page_digest
from cluster.raft.types import Configuration, Member, Message
from cluster.store.sorted.live import SortedOptions
from cluster.store.sorted.store import SortedStore
from cluster.wire.messages import (
    LEADERLESS,
    AlterTablet,
    ChangeReplicas,
    ConfigurationReply,
    CreateTablet,
    DoneReply,
    Fault,
    GroupState,
    RowRequest,
    TabletReport,
    encode,
)
from harness.failpoints import pass_by
from harness.ports import DiskFull, Ports

_NS_PER_MS = 1_000_000
_OTHER_DESIGN = Fault("INVALID", "this replica's table has another replication design", definite=True)
_NOT_OPEN = Fault("SHUTTING_DOWN", "this replica is not serving", definite=True)


class PartitionReplica:
    """A `cluster.tserver.strategy.Strategy` for tablets without leaders: `legacy` ones, or `logged` ones."""

    def __init__(self, ports: Ports, created: CreateTablet, knobs: Knobs, logged: LoggedReplica | None = None) -> None:
        self.created, self._ports, self._knobs = created, ports, knobs
        self.logged = logged
        self._store: PartitionStore | None = None
        self._schema_version = created.schema_version
        self._on_change: Callable[[], None] = lambda: None

    async def open(
        self, transport: Transport, log: GroupLog, on_change: Callable[[], None], on_failure: OnFailure
    ) -> None:
        """Recover what is stored, or begin with nothing; raises Quarantined."""
        self._on_change = on_change
        logged = self.logged
        self._store = await SortedStore.open(
            self._ports,
            self._knobs,
            log,
            purgeable=self._after_grace if logged is None else logged.purgeable,
            options=SortedOptions(memtable_bytes=self._knobs.memtable_bytes),
            on_quarantined=on_failure,
            ledger=None if logged is None else logged.log,
        )
        if logged is not None:
            logged.opened(self._store)

    async def close(self) -> None:
        """Stop serving."""
        store, self._store = self._store, None
        if store is not None:
            await store.close()

    # ---- what coordinators ask ----

    async def answer(self, request: ReplicaRequest, calls: ReplicaCalls) -> QuorumReply:
        """Store, read, hash, or stream by `calls`; a Fault that is definite tells that nothing was done."""
        if self._store is None:
            return _NOT_OPEN
        if request.epoch not in (self.epoch, ANY_EPOCH):
            message = f"the replicas of {request.tablet_id} are those of epoch {self.epoch}, not {request.epoch}"
            return Fault("WRONG_EPOCH", message, definite=True)
        try:
            return await self._answer(self._store, request, calls)
        except Quarantined as error:
            # What was being written when the damage was found may be in the log.
            return Fault("QUARANTINED", str(error), definite=not isinstance(request, STORING_REQUESTS))

    async def _answer(self, store: PartitionStore, request: ReplicaRequest, calls: ReplicaCalls) -> QuorumReply:
        if isinstance(request, LOGGED_REQUESTS):
            return _OTHER_DESIGN if self.logged is None else await self.logged.answer(store, request)
        if isinstance(request, RECONCILE_REQUESTS):
            bounds = None if self.logged is None else self.logged.bounds
            return _OTHER_DESIGN if bounds is None else await bounds.answer(request, calls)
        if self.logged is not None:
            return _OTHER_DESIGN
        if isinstance(request, StoreMutation):
            return await self._take(store, (request.mutation,))
        if isinstance(request, FetchRows):
            page = await store.read(request.slice)
            return RowsDigest(page_digest(page)) if request.digest_only else RowsFetched(page)
        if isinstance(request, TakePartitions):
            return await self._take(store, request.mutations)
        if isinstance(request, HashLeaves):
            return await hash_leaves(store, request, self._ports.clock)
        return await stream_span(store, request, calls, self._ports)

    @property
    def epoch(self) -> int:
        """That of the replica set that this replica belongs to."""
        return self.created.awaits_index

    @property
    def replica_set(self) -> ReplicaSet:
        """All replicas of the tablet, by their ids."""
        found = sorted(self.created.voters, key=lambda each: each.node_id)
        endpoints = tuple(Endpoint(each.node_id, each.address, "") for each in found)
        return ReplicaSet(self.created.tablet_id, endpoints, self.epoch)

    @property
    def tokens(self) -> tuple[int, int]:
        """The tokens of the partitions that belong here: the first and the last."""
        return tokens_of(self.created.partition.bucket, self.created.partition.buckets)

    async def read(self, asked: Slice) -> Page | None:
        """What this replica holds of a slice; None while it is not open."""
        return None if self._store is None else await self._store.read(asked)

    def _after_grace(self, partition: KeyBytes, deletion: Deletion) -> bool:
        """Deletions are kept long enough for hints and repair to bring them everywhere, and no longer."""
        age_ms = self._ports.clock.wall_ns() // _NS_PER_MS - deletion.local_time_ms
        return age_ms >= self._knobs.deletion_grace_ms

    async def _take(self, store: PartitionStore, encoded: tuple[bytes, ...]) -> QuorumReply:
        failpoints, tablet_id = self._ports.failpoints, self.created.tablet_id
        try:
            mutations = [decode_mutation(each) for each in encoded]
            if failpoints.armed:
                await pass_by(failpoints, "quorum.before_store", tablet_id)
            await asyncio.gather(*map(store.apply, mutations))
            if failpoints.armed:
                await pass_by(failpoints, "quorum.after_store", tablet_id)
        except (InvalidMutation, OtherVersion) as error:
            return Fault("INVALID", str(error), definite=True)
        except DiskFull:
            return Fault("DISK_FULL", "the disk is full", definite=True)
        return Stored()

    # ---- what the tablet server asks of any design ----

    def report(self) -> TabletReport:
        """What masters are told: it is there, and there is no leader to wait for."""
        created = self.created
        return TabletReport(
            tablet_id=created.tablet_id,
            table_id=created.table_id,
            state=LEADERLESS,
            term=0,
            leader=None,
            voters=(),
            learners=(),
            config_index=0,
            schema_version=self._schema_version,
        )

    def status(self) -> GroupState | None:
        """That it is there, and with whom; nothing of terms and logs, of which it has none."""
        return GroupState(
            group=self.created.tablet_id,
            role="replica",
            term=0,
            leader=None,
            commit_index=0,
            applied_index=0,
            last_index=0,
            first_index=1,
            last_term=0,
            lease_valid=False,
            voters=tuple(replica.node_id for replica in self.created.voters),
            learners=(),
            config_term=0,
            config_index=0,
            digest=0,
        )

    @property
    def leads(self) -> bool:
        """Never: nobody does."""
        return False

    def configurations(self) -> tuple[Configuration, Configuration]:
        """None: its replica set is the catalog's."""
        return Configuration(), Configuration()

    def contacts(self) -> tuple[int, Mapping[str, int]]:
        """Nobody's silence is this replica's to judge."""
        return 0, {}

    def voters(self) -> tuple[Member, ...]:
        """Nobody votes."""
        return ()

    def members(self) -> tuple[Member, ...]:
        """Those of its founding: the catalog says who holds a tablet."""
        return tuple(Member(replica.node_id, replica.address) for replica in self.created.voters)

    def on_fence(self) -> None:
        """Timestamps are the clients'."""

    def receive(self, messages: tuple[Message, ...]) -> None:
        """No Raft messages are for it."""

    def serve(self, request: RowRequest) -> Coroutine[Any, Any, bytes]:
        """Requests of other designs are refused."""
        return _refused(self.created)

    async def change_configuration(self, request: ChangeReplicas) -> ConfigurationReply | Fault:
        """Replica sets change by Q11, which is not built yet."""
        return Fault("CHANGE_REFUSED", f"tablet {request.group} has no Raft configuration", definite=True)

    async def alter_schema(self, request: AlterTablet) -> DoneReply | Fault:
        """Cells are stored by column id, so that a schema changes nothing here but what is reported."""
        self._schema_version = max(self._schema_version, request.schema_version)
        self._on_change()
        return DoneReply(done=True, version=self._schema_version)


async def _refused(created: CreateTablet) -> bytes:
    message = f"tablet {created.tablet_id} is of the design {created.design!r}: it is written and read at levels"
    return encode(Fault("INVALID", message, definite=True))
