"""A table's replication design as a strategy behind the tablet server (G4), and the designs that there are.

Beside them what stands in the place of a replica that must not run: its data is damaged, or its state machine or Raft
core failed (G7).
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from cluster.groups.spec import OnFailure, Transport
from cluster.knobs import Knobs
from cluster.log.view import GroupLog
from cluster.observer import Observer
from cluster.quorum.replica import Leaderless, LegacyReplica, LoggedReplica, PartitionReplica
from cluster.raft.types import Configuration, Member, Message
from cluster.ranges.policies import RoundTrips
from cluster.ranges.replica import RangeNode, RangeReplica
from cluster.ranges.side_transport import SideTransport
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
)
from cluster.wire.operating import LeadershipReply, RangeState, TransferLeadership
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
        """The replica's own view of its peers, once it is open."""

    def range_state(self) -> RangeState | None:
        """What this replica knows to be closed, once it is open; None of what is no range."""

    @property
    def policy_in_force(self) -> str:
        """How its table wants it to be closed, and why not so where that can't be; empty if as knobs say (R6)."""

    def report(self) -> TabletReport:
        """What masters are told of this replica."""

    def configurations(self) -> tuple[Configuration, Configuration]:
        """The last that this replica knows to be committed, and the last in its log; empty where there is none."""

    def contacts(self) -> tuple[int, Mapping[str, int]]:
        """The term, and when (ns of the monotonic clock) each other member answered it last; of a leader that holds its
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
    closing: SideTransport
    round_trips: RoundTrips


def _ranges(host: Host, created: CreateTablet) -> Strategy:
    node = RangeNode(host.ports, host.knobs, host.clock, host.observer, host.closing, host.round_trips)
    return RangeReplica(node, created, host.flaws)


MakeReplica: TypeAlias = Callable[[Host, CreateTablet], Strategy]


def _legacy(host: Host, created: CreateTablet) -> Strategy:
    return PartitionReplica(host.ports, created, host.knobs, LegacyReplica(host.ports, created, host.knobs))


def _logged(host: Host, created: CreateTablet) -> Strategy:
    logged = LoggedReplica(host.ports, created, host.knobs, host.observer, host.flaws)
    return PartitionReplica(host.ports, created, host.knobs, logged)


STRATEGIES: dict[str, MakeReplica] = {"raft": _ranges, "legacy": _legacy, "logged": _logged}
"""Who makes the replicas of each design."""


# ---- failed replicas (G7) ----


class FailedReplica(Leaderless):
    """A tablet's place on this server after its replica failed; `state` is FAILED or QUARANTINED.

    It is reported and asked like any other replica, and takes part in nothing: it never votes, acknowledges or serves.
    The node and its other replicas go on.
    """

    def __init__(self, created: CreateTablet, state: str, reason: str) -> None:
        super().__init__(created)
        self.state, self.reason = state, reason

    async def open(
        self, transport: Transport, log: GroupLog, on_change: Callable[[], None], on_failure: OnFailure
    ) -> None:
        """Nothing is opened: what is damaged stays closed."""

    async def close(self) -> None:
        """Nothing runs that would have to end."""

    def report(self) -> TabletReport:
        """What masters are told: its state, and the configuration that it was to be added to."""
        return self.bare_report(self.state, awaits_index=self.created.awaits_index)

    def status(self) -> GroupState | None:
        """What the node's status says: the role tells what it is."""
        return self.bare_status(self.state.lower())

    def members(self) -> tuple[Member, ...]:
        """Nobody: what it knew can't be relied on."""
        return ()

    async def alter_schema(self, request: AlterTablet) -> DoneReply | ErrorReply:
        """No schema is taken up any more: a refusal."""
        return self.refusal(request)

    def refusal(self, request: object) -> ErrorReply:
        """The answer to everything: another replica may serve it."""
        return ErrorReply("NOT_THE_LEADER", f"this replica is {self.state}: {self.reason}", definite=True)


def unreadable_report(tablet_id: str) -> TabletReport:
    """What masters are told of a replica whose own record is damaged, so that they have it replaced (M11)."""
    return TabletReport(tablet_id, "", QUARANTINED, 0, None, (), (), 0, 0)
