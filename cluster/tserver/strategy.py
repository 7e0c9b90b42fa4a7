"""A table's replication design as a strategy behind the tablet server (G4), and the designs that there are."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from cluster.config import Knobs
from cluster.groups.spec import OnFailure, Transport
from cluster.log.view import GroupLog
from cluster.observer import Observer
from cluster.quorum.replica import LegacyReplica, LoggedReplica, PartitionReplica
from cluster.raft.types import Configuration, Member, Message
from cluster.ranges.replica import RangeReplica
from cluster.store.node_clock import NodeClock
from cluster.wire.messages import (
    QUARANTINED,
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


class Strategy(Protocol):
    """One replica of one tablet under its table's design; the tablet server knows no more of it."""

    created: CreateTablet

    async def open(
        self, transport: Transport, log: GroupLog, on_change: Callable[[], None], on_failure: OnFailure
    ) -> None:
        """Recover from the node's log, or begin there; `on_change` is called when what `report` says changes."""

    async def close(self) -> None:
        """Stop serving; what the log holds of the tablet is its owner's to destroy."""

    def receive(self, messages: tuple[Message, ...]) -> None:
        """Take messages of the other replicas in."""

    def serve(self, request: RowRequest) -> Coroutine[Any, Any, bytes]:
        """Answer a client: an encoded reply or ErrorReply. Raises ClockFenced."""

    async def change_configuration(self, request: ChangeReplicas) -> ConfigurationReply | ErrorReply:
        """Add, promote or remove a replica, as an operator or the leader master asks (G1)."""

    async def transfer_leadership(self, request: TransferLeadership) -> LeadershipReply | ErrorReply:
        """Give the lease up and let another voter lead, as an operator asks (§3.10)."""

    async def alter_schema(self, request: AlterTablet) -> DoneReply | ErrorReply:
        """Take a schema up, as the leader master asks until it is reported; idempotent (M5)."""

    def status(self) -> GroupState | None:
        """This replica's own view of its peers, once it is open."""

    def report(self) -> TabletReport:
        """What masters are told of this replica."""

    def configurations(self) -> tuple[Configuration, Configuration]:
        """The last that this replica knows to be committed, and the last in its log; empty where there is none."""

    def contacts(self) -> tuple[int, Mapping[str, int]]:
        """Its term, and when (ns of the monotonic clock) each other member answered it last; of a leader that holds its
        lease, else nobody."""

    def voters(self) -> tuple[Member, ...]:
        """Whom this replica knows to vote."""

    def members(self) -> tuple[Member, ...]:
        """Whom this replica knows to hold the tablet, or to have held it until lately."""

    @property
    def leads(self) -> bool:
        """Whether changes of configuration are this replica's to make."""

    def on_fence(self) -> None:
        """The node's clock is fenced, or free again."""


@dataclass(frozen=True, slots=True)
class Host:
    """What a tablet server hands to the replicas that it hosts."""

    ports: Ports
    knobs: Knobs
    clock: NodeClock
    observer: Observer
    flaws: frozenset[str]


def _ranges(host: Host, created: CreateTablet) -> Strategy:
    return RangeReplica(host.ports, created, host.knobs, host.clock, host.observer, host.flaws)


MakeReplica: TypeAlias = Callable[[Host, CreateTablet], Strategy]


def _legacy(host: Host, created: CreateTablet) -> Strategy:
    return PartitionReplica(host.ports, created, host.knobs, LegacyReplica(host.ports, created, host.knobs))


def _logged(host: Host, created: CreateTablet) -> Strategy:
    logged = LoggedReplica(host.ports, created, host.knobs, host.observer, host.flaws)
    return PartitionReplica(host.ports, created, host.knobs, logged)


STRATEGIES: dict[str, MakeReplica] = {"raft": _ranges, "legacy": _legacy, "logged": _logged}
"""Who makes the replicas of each design."""


# ---- failed replicas (G7) ----


class FailedReplica:
    """A tablet's place on this server after its replica failed; `state` is FAILED or QUARANTINED."""

    def __init__(self, created: CreateTablet, state: str, reason: str) -> None:
        self.created, self.state, self.reason = created, state, reason

    async def open(
        self, transport: Transport, log: GroupLog, on_change: Callable[[], None], on_failure: OnFailure
    ) -> None:
        """It stays closed."""

    @property
    def leads(self) -> bool:
        """Never."""
        return False

    def configurations(self) -> tuple[Configuration, Configuration]:
        """It knows of none."""
        return Configuration(), Configuration()

    def contacts(self) -> tuple[int, Mapping[str, int]]:
        """It leads nobody."""
        return 0, {}

    def members(self) -> tuple[Member, ...]:
        """It knows nobody."""
        return ()

    def voters(self) -> tuple[Member, ...]:
        """It knows nobody."""
        return ()

    def on_fence(self) -> None:
        """Clocks don't matter to it."""

    def report(self) -> TabletReport:
        """What masters are told: nothing of term, leader or configuration."""
        created = self.created
        return TabletReport(
            tablet_id=created.tablet_id,
            table_id=created.table_id,
            state=self.state,
            term=0,
            leader=None,
            voters=(),
            learners=(),
            config_index=0,
            schema_version=0,
            awaits_index=created.awaits_index,
        )

    def status(self) -> GroupState:
        """Its line in the node's status: the role says what it is."""
        return GroupState(
            group=self.created.tablet_id,
            role=self.state.lower(),
            term=0,
            leader=None,
            commit_index=0,
            applied_index=0,
            last_index=0,
            first_index=1,
            last_term=0,
            lease_valid=False,
            voters=(),
            learners=(),
            config_term=0,
            config_index=0,
            digest=0,
        )

    def receive(self, messages: tuple[Message, ...]) -> None:
        """It hears nothing."""

    async def close(self) -> None:
        """Nothing runs."""

    async def serve(self, request: RowRequest) -> bytes:
        """The answer to every read and change: another replica may serve it."""
        return encode(self._refusal())

    async def change_configuration(self, request: ChangeReplicas) -> ConfigurationReply | ErrorReply:
        """The same answer."""
        return self._refusal()

    async def transfer_leadership(self, request: TransferLeadership) -> LeadershipReply | ErrorReply:
        """The same answer."""
        return self._refusal()

    async def alter_schema(self, request: AlterTablet) -> DoneReply | ErrorReply:
        """The same answer."""
        return self._refusal()

    def _refusal(self) -> ErrorReply:
        return ErrorReply("NOT_THE_LEADER", f"this replica is {self.state}: {self.reason}", definite=True)


def unreadable_report(tablet_id: str) -> TabletReport:
    """What masters are told of a replica whose own record is damaged, so that they have it replaced (M11)."""
    return TabletReport(tablet_id, "", QUARANTINED, 0, None, (), (), 0, 0)
