"""A replica that must not run: its data is damaged, or its state machine or Raft core failed (G7).

It stands in the place of a `Strategy`, is reported and asked like one, and takes part in nothing: it never votes,
never acknowledges, never serves. The node and its other replicas go on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from cluster.groups.spec import OnFailure, Transport
from cluster.log.view import GroupLog
from cluster.raft.types import Configuration, Member, Message
from cluster.wire.messages import FAILED as FAILED
from cluster.wire.messages import QUARANTINED as QUARANTINED
from cluster.wire.messages import (
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
