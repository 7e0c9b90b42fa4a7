"""Quorum keyspaces as a table's design (G4): one replica, which stores what coordinators send and reads what they ask.

It knows no leader and asks nobody. What it acknowledges is in the node's shared log, synced (G5); masters count a
tablet as running once all its replicas were reported.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Protocol

from cluster.groups.spec import OnFailure, Transport
from cluster.knobs import Knobs
from cluster.log.view import GroupLog, Quarantined
from cluster.quorum.calls import ReplicaCalls
from cluster.quorum.deletions import Deletion
from cluster.quorum.keys import KeyBytes, tokens_of
from cluster.quorum.messages import ANY_EPOCH, STORING_REQUESTS, QuorumReply, ReplicaRequest
from cluster.quorum.partition_store import PartitionStore
from cluster.quorum.replica_sets import Endpoint, ReplicaSet
from cluster.quorum.slices import Page, Slice
from cluster.quorum.sorted.live import SortedOptions
from cluster.quorum.sorted.records import Ledger
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
from harness.ports.api import Ports

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


class PartitionReplica:
    """A `cluster.tserver.strategy.Strategy` for tablets without leaders, whose design is `replication`."""

    def __init__(self, ports: Ports, created: CreateTablet, knobs: Knobs, replication: Replication) -> None:
        self.created, self._ports, self._knobs = created, ports, knobs
        self._replication = replication
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
            options=SortedOptions(memtable_bytes=self._knobs.memtable_bytes),
            on_quarantined=on_failure,
            ledger=replication.ledger,
        )
        replication.opened(self._store)

    async def close(self) -> None:
        """Stop serving."""
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
        """That of the replica set that this replica belongs to."""
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
            schema_version=self._schema_version,
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

    async def change_configuration(self, request: ChangeReplicas) -> ConfigurationReply | ErrorReply:
        """Replica sets change by Q11, which is not built yet."""
        return ErrorReply("CHANGE_REFUSED", f"tablet {request.group} has no Raft configuration", definite=True)

    async def transfer_leadership(self, request: TransferLeadership) -> LeadershipReply | ErrorReply:
        """There is nothing to hand over."""
        return ErrorReply("INVALID", f"nobody leads tablet {request.group}: its replicas are equals", definite=True)

    async def alter_schema(self, request: AlterTablet) -> DoneReply | ErrorReply:
        """Cells are stored by column id, so that a schema changes nothing here but what is reported."""
        self._schema_version = max(self._schema_version, request.schema_version)
        self._on_change()
        return DoneReply(done=True, version=self._schema_version)


async def _refused(created: CreateTablet) -> bytes:
    message = f"tablet {created.tablet_id} is of the design {created.design!r}: it is written and read at levels"
    return encode(ErrorReply("INVALID", message, definite=True))
