"""One replica of a tablet on a server: its Raft group, its state machine, and what the leaseholder does."""

from __future__ import annotations

from collections.abc import Callable

from cluster.config import Knobs
from cluster.group import Group, GroupSpec, NotLeader, OnFailure, OutcomeUnknown, Transport
from cluster.log.view import GroupLog
from cluster.membership import replicas_of
from cluster.observer import Observer
from cluster.raft.types import Configuration, Member, Message, SoftState
from cluster.ranges.holding import HeldLease, Holding, refused
from cluster.ranges.lease import LeaseTimes
from cluster.ranges.tablet import Change, CompareAndSetCell, TabletMachine, WriteCell
from cluster.store.cells import Key
from cluster.store.hlc import ClockReading, Timestamp, as_timestamp
from cluster.store.node_clock import NodeClock
from cluster.store.sessions import RegisterClient
from cluster.waiters import NotProposed
from cluster.wire.messages import (
    CompareAndSet,
    CreateTablet,
    Fault,
    GroupState,
    ReadReply,
    ReadRow,
    Replica,
    TabletReport,
    WriteRow,
    encode,
)
from harness.ports import Ports

_MS = 1_000_000


def _timed_out(definite: bool) -> bytes:
    return encode(Fault("TIMED_OUT", "no quorum within the deadline", definite=definite))


def founders_of(created: CreateTablet) -> tuple[Replica, ...]:
    """The group's first voters, if this replica is one of them."""
    founding = created.founding and created.server_id in [voter.node_id for voter in created.voters]
    return created.voters if founding else ()


class TabletReplica:
    """Serves reads and changes while it holds the lease; otherwise says who might.

    Nothing is served before the lease record of the own Raft term is applied (R2); whether the holder may still serve
    is then asked of Raft for each read, on the monotonic clock.
    """

    def __init__(
        self,
        ports: Ports,
        created: CreateTablet,
        knobs: Knobs,
        node_clock: NodeClock,
        observer: Observer,
        flaws: frozenset[str] = frozenset(),
    ) -> None:
        self.created, self._flaws = created, flaws
        self._observer = observer
        self._ports, self._node_clock, self._node_id = ports, node_clock, ports.node_id
        self._knobs = knobs
        self._timeout_s = knobs.request_timeout_ms / 1e3
        self._duration_ns = knobs.lease_record_ns
        self._machine = TabletMachine(knobs.version_retention_ms * _MS, flaws)
        self._machine.on_lease = lambda before, lease: observer.lease_recorded(created.tablet_id, before, lease)
        self._holding = Holding(ports, node_clock, self._machine, knobs, flaws)
        self._times: LeaseTimes | None = None
        self._group: Group | None = None
        self._on_change: Callable[[], None] = lambda: None

    async def open(
        self, transport: Transport, log: GroupLog, on_change: Callable[[], None], on_failure: OnFailure
    ) -> None:
        """Recover from the node's log, or begin there; `on_change` is called when what `report` says changes."""
        spec = GroupSpec(
            group_id=self.created.tablet_id,
            node_id=self._node_id,
            founders=founders_of(self.created),
            knobs=self._knobs,
            flaws=self._flaws,
            observer=self._observer,
            on_configured=self._configured,
        )
        group = await Group.open(self._ports, spec, self._machine, transport, log, self._leadership, on_failure)
        self._group = group
        self._on_change = on_change
        self._holding.attach(group, lambda: (Timestamp(0), as_timestamp(self._node_clock.last)))

    async def close(self) -> None:
        """Stop serving."""
        self._holding.close()
        if self._group is not None:
            await self._group.close()

    def voters(self) -> tuple[Member, ...]:
        """Those of the last configuration in this replica's log."""
        return () if self._group is None else self._group.configuration.voters

    async def hand_over(self, target: str) -> bool:
        """Give the lease up and let `target` lead: True if what was promised here is on record (G3)."""
        return await self._holding.hand_over(target)

    def on_fence(self) -> None:
        """The node's clock is fenced, or free again."""
        self._holding.on_fence()

    def receive(self, messages: tuple[Message, ...]) -> None:
        """Take Raft messages in."""
        if self._group is not None:
            for message in messages:
                self._group.receive(message)

    def status(self) -> GroupState | None:
        """The Raft group's own view, once it is open."""
        return None if self._group is None else self._group.status()

    def report(self) -> TabletReport:
        """What masters are told of this replica."""
        created, group = self.created, self._group
        configuration = group.committed_configuration if group else Configuration()
        return TabletReport(
            tablet_id=created.tablet_id,
            table_id=created.table_id,
            state="RUNNING",
            term=group.term if group else 0,
            leader=group.leader if group else None,
            voters=replicas_of(configuration.voters),
            learners=replicas_of(configuration.learners),
            config_index=configuration.index,
            schema_version=created.schema_version,
        )

    @property
    def group(self) -> Group | None:
        """The Raft group, once it is open."""
        return self._group

    async def read(self, request: ReadRow) -> bytes:
        """A strong read: an encoded ReadReply or Fault. Its time is what the clock showed at its arrival."""
        arrived = self._node_clock.now()
        try:
            held = await self._holding.check(arrived)
        except NotLeader as error:
            return refused(error)
        except OutcomeUnknown:
            return _timed_out(definite=True)
        if held is None:
            return self._holding.refusal()
        return self._read_now(held, arrived, request)

    async def change(self, request: WriteRow | CompareAndSet) -> bytes:
        """A write or a compare-and-set (decided where it stands in the log): an encoded Done or Fault."""
        held = self._holding.held()
        if held is None:
            return self._holding.refusal()
        answer = self._machine.answered(request.request_id)
        if answer is not None:
            return answer
        key = (request.partition, request.row, request.column)
        timestamp = self._times_of(held).write_at(key, self._node_clock.reading())
        return await self._replicate(encode(self._command(request, key, held.sequence, timestamp)))

    async def register_session(self) -> bytes:
        """Begin a client session: an encoded SessionReply or Fault (G8)."""
        if self._holding.held() is None:
            return self._holding.refusal()
        return await self._replicate(encode(RegisterClient(self._node_clock.reading(), self._knobs.session_limits)))

    def _command(
        self, request: WriteRow | CompareAndSet, key: Key, lease_sequence: int, timestamp: ClockReading
    ) -> Change:
        request_id, duration_ns = request.request_id, self._duration_ns
        if isinstance(request, WriteRow):
            return WriteCell(request_id, lease_sequence, timestamp, duration_ns, key, request.value)
        return CompareAndSetCell(
            request_id, lease_sequence, timestamp, duration_ns, key, request.expected, request.value
        )

    async def _replicate(self, command: bytes) -> bytes:
        if self._group is None:
            return self._holding.refusal()
        try:
            return await self._group.submit(command, self._timeout_s)
        except NotProposed as error:
            return refused(error)
        except OutcomeUnknown:
            return _timed_out(definite=False)

    def _times_of(self, held: HeldLease) -> LeaseTimes:
        if self._times is None or self._times.sequence != held.sequence:
            self._times = LeaseTimes(held.lease)
        return self._times

    def _read_now(self, held: HeldLease, arrived: Timestamp, request: ReadRow) -> bytes:
        key = (request.partition, request.row, request.column)
        times = self._times_of(held)
        times.settle(self._machine.last_write)
        timestamp = times.read_at(key, arrived)
        version = self._machine.read(key, timestamp)
        return encode(ReadReply(version[1] if version else None, timestamp))

    def _configured(self) -> None:
        self._on_change()

    def _leadership(self, state: SoftState) -> None:
        self._on_change()
        self._holding.on_leadership(state)
