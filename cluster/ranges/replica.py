"""Replicated ranges as a table's design (G4): one replica, with its Raft group, state machine and evaluation."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from cluster.groups.group import Group, GroupSpec, OutcomeUnknown
from cluster.groups.membership import LOOK_S, change_replicas, replicas_of, transfer_leadership
from cluster.groups.sessions import RegisterClient, SessionLimits
from cluster.groups.spec import OnFailure, Transport
from cluster.groups.waiters import NotProposed
from cluster.knobs import Knobs
from cluster.log.view import GroupLog
from cluster.raft.types import Configuration, Member, Message, Role, SoftState
from cluster.ranges.closed_here import ClosedHere
from cluster.ranges.closed_reads import NOT_WAITED, ClosedReads, Waited
from cluster.ranges.evaluation import Evaluation
from cluster.ranges.global_reads import CommitWait, GlobalReads
from cluster.ranges.lease import Holding, refused
from cluster.ranges.lease_record import Lease
from cluster.ranges.observer import RangeObserver
from cluster.ranges.policies import RoundTrips, lag_ns, lead_ns, needed_ns, unmet
from cluster.ranges.promises import SharedClosed
from cluster.ranges.requests import Read, asked_time, by_the_clock, is_plain, is_strong, with_time_fixed
from cluster.ranges.side_transport import Joined, SideTransport
from cluster.ranges.strong_reads import StrongReads
from cluster.ranges.tablet import TabletMachine, schema_of
from cluster.store.intents import Intent, OpenIntent
from cluster.store.node_clock import NodeClock
from cluster.store.schema import key_columns
from cluster.wire.closing import ClosedAt
from cluster.wire.messages import (
    AlterTablet,
    AskReadTime,
    ChangeReplicas,
    CompareAndSet,
    ConfigurationReply,
    CreateTablet,
    DoneReply,
    ErrorReply,
    GroupState,
    HoldCells,
    PushHold,
    ReadCell,
    ReadRows,
    RegisterSession,
    Replica,
    RowRequest,
    SettleHold,
    TabletReport,
    WriteCell,
    WriteCells,
    encode,
)
from cluster.wire.operating import LeadershipReply, RangeState, TransferLeadership
from cluster.wire.rows import ChangeRow, GetRow, ScanRows, TypedRequest
from cluster.wire.staleness import HowServed
from harness.ports.api import CallLost, Ports, Refused, Unreachable

_MS = 1_000_000

_BY_NUMBER = (
    *(ReadCell, WriteCell, CompareAndSet, ReadRows, WriteCells),
    *(HoldCells, SettleHold, PushHold, RegisterSession, AskReadTime),
)
_BY_KEY = (GetRow, ChangeRow, ScanRows, SettleHold, PushHold, RegisterSession, AskReadTime)
"""What a table without and one with a primary key is asked."""


_READS = frozenset({ReadCell, ReadRows, GetRow, ScanRows})
_AT_ONCE = (AskReadTime, PushHold, RegisterSession)
"""What is answered by a time, to another replica that waits for it itself, or by nothing that was written."""


def _drop(messages: tuple[Message, ...]) -> None:
    """What comes before the group is open: Raft sends it again."""


async def _refuse(message: str, kind: str = "INVALID") -> bytes:
    return encode(ErrorReply(kind, message, definite=True))


def _by_other_clocks(read: Any) -> bool:
    """Whether a read's time may be above all that this node has shown and written: another's clock has chosen it."""
    return read.begun is not msgspec.UNSET or (read.bound is not msgspec.UNSET and read.bound.anywhere)


def founders_of(created: CreateTablet) -> tuple[Replica, ...]:
    """The group's first voters, if this replica is one of them."""
    founding = created.founding and created.server_id in [voter.node_id for voter in created.voters]
    return created.voters if founding else ()


class RangeNode(NamedTuple):
    """What a node hands to each of its ranges."""

    ports: Ports
    knobs: Knobs
    clock: NodeClock
    observer: RangeObserver
    transport: SideTransport
    round_trips: RoundTrips


class RangeReplica:
    """Serves reads and changes while it holds the lease; otherwise says who might.

    Nothing is served before the lease record of the own Raft term is applied (R2); whether the holder may still serve
    is then asked of Raft for each read, on the monotonic clock.
    """

    def __init__(self, node: RangeNode, created: CreateTablet, flaws: frozenset[str] = frozenset()) -> None:
        ports, knobs, node_clock, observer, transport, self._round_trips = node
        self.created = created
        self.range_id, self.policy = created.tablet_id, knobs.closed_lag_ms * _MS
        self.leads_clock = False
        """Whether its table wants it to be closed ahead of time, whether that can be or not."""
        self._unmet: str | None = None
        """Why the range is not closed as its table wants it."""
        self._side = transport
        self._ports, self._knobs, self._flaws, self._observer = ports, knobs, flaws, observer
        self._clock = node_clock
        schema = schema_of(created.schema_version, created.columns, created.policy or "")
        self._machine = TabletMachine(knobs.version_retention_ms * _MS, flaws, schema)
        self._keyed = bool(key_columns(created.columns))
        self._served = _BY_KEY if self._keyed else _BY_NUMBER
        self._machine.on_lease = self._on_lease
        self._machine.on_batch = partial(observer.batch_applied, created.tablet_id)
        self._machine.on_hold = partial(observer.hold_applied, created.tablet_id)
        self._machine.on_schema = self._altered
        self._timeout_s = knobs.request_timeout_ms / 1e3
        self._holding = Holding(ports, node_clock, self._machine, knobs, flaws)
        self._holding.on_extended = partial(observer.lease_extended, created.tablet_id)
        self._machine.on_over = self._holding.on_over
        self._evaluation = Evaluation(ports, knobs, node_clock, self._machine, self._holding, flaws)
        self._evaluation.observer = observer
        self._closed = ClosedHere(self._machine, partial(transport.known, created.tablet_id))
        held = lambda: self._holding.held() is not None  # noqa: E731
        self._reads = ClosedReads(node_clock, self._machine, self._closed, held, self._evaluation.read, flaws)
        self._reads.observer = observer
        self._reads.on_held_back = self._held_back
        self._push_after_ns = knobs.push_after_ms * _MS
        self._pushing: dict[str, asyncio.Task[None]] = {}
        """By transaction the push that is under way for reads within a bound."""
        self._strong = StrongReads(ports, self._machine, self._closed, observer, self._timeout_s)
        offset_ns, by_lease = knobs.max_clock_offset_ms * _MS, self._evaluation.read
        self._global = GlobalReads(offset_ns, self._machine, self._closed, held, by_lease, flaws)
        self._global.observer = observer
        self._commit_wait = CommitWait(node_clock, ports.clock, self._timeout_s, flaws)
        self._group: Group | None = None
        self.receive: Callable[[tuple[Message, ...]], None] = _drop
        self._on_change: Callable[[], None] = lambda: None

    async def open(
        self, transport: Transport, log: GroupLog, on_change: Callable[[], None], on_failure: OnFailure
    ) -> None:
        """Recover from the node's log, or begin there; `on_change` is called when what `report` says changes."""
        spec = GroupSpec(
            group_id=self.created.tablet_id,
            node_id=self._ports.node_id,
            founders=founders_of(self.created),
            knobs=self._knobs,
            flaws=self._flaws,
            observer=self._observer,
            on_configured=self._configured,
            on_tick=self._holding.on_tick,
            on_silence=self.leave,
        )
        group = await Group.open(self._ports, spec, self._machine, transport, log, self._leadership, on_failure)
        self._group, self.receive = group, group.receive
        self._on_change = on_change
        self._evaluation.attach(group, spec.group_id)
        self._reads.attach(group, spec.group_id)
        self._strong.attach(group, spec.group_id)
        self._global.attach(group, spec.group_id)
        self._take_policy()
        self._side.attend(self)
        if group.is_leader:
            self._side.consider(self.range_id)
        self._holding.attach(group, self._evaluation.promised)

    async def close(self) -> None:
        """Stop serving: the group is closed too."""
        self._side.forget(self)
        self._round_trips.unwatch(self.range_id)
        for task in list(self._pushing.values()):
            task.cancel()
        self._holding.close()
        self._evaluation.close()
        if self._group is not None:
            await self._group.close()

    def configurations(self) -> tuple[Configuration, Configuration]:
        """The last that this replica knows to be committed, and the last in its log."""
        if self._group is None:
            return Configuration(), Configuration()
        return self._group.committed_configuration, self._group.configuration

    def contacts(self) -> tuple[int, Mapping[str, int]]:
        """Its term, and when each other member answered last, if it leads and holds the lease."""
        return (0, {}) if self._group is None else (self._group.term, self._group.contacts())

    def voters(self) -> tuple[Member, ...]:
        """Voters of the last configuration in this replica's log."""
        return () if self._group is None else self._group.configuration.voters

    def members(self) -> tuple[Member, ...]:
        """Members of the committed configuration and of the last one in this replica's log."""
        if self._group is None:
            return ()
        return tuple(dict.fromkeys((*self._group.committed_configuration.members, *self._group.configuration.members)))

    def on_fence(self) -> None:
        """The node's clock is fenced, or free again."""
        self._holding.on_fence()

    def status(self) -> GroupState | None:
        """The Raft group's own view, once it is open."""
        if self._group is None:
            return None
        machine = self._machine
        sequence = 0 if machine.lease is None else machine.lease.sequence
        return replace(
            self._group.status(),
            schema_version=self._logged_version,
            lease_sequence=sequence,
            write_index=machine.write_index,
        )

    def range_state(self) -> RangeState | None:
        """What this replica knows to be closed, once it is open."""
        if self._group is None:
            return None
        closed, configuration = self._closed.highest(), self._group.committed_configuration
        return RangeState(
            range_id=self.range_id,
            holder=self._holding.held() is not None,
            lag_ns=self.policy,
            assigned=self._evaluation.assigned,
            pushed=self._evaluation.pushed,
            closed=closed,
            resolved=min([closed, *(each.timestamp - 1 for each in self._machine.open_intents.values())]),
            answered={str(name): count for name, count in self._closed.answered.items()},
            voters=tuple(member.server_id for member in configuration.voters),
            learners=tuple(member.server_id for member in configuration.learners),
        )

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
            schema_version=self._logged_version,
            config_term=configuration.term,
            awaits_index=created.awaits_index,
        )

    @property
    def _logged_version(self) -> int:
        """The version of the schema in the log. A replica may have been created under a later one than its peers: only
        what is in the log do all of them have.
        """
        return 0 if self._machine.schema is None else self._machine.schema.version

    async def alter_schema(self, request: AlterTablet) -> DoneReply | ErrorReply:
        """Replicate a schema and a policy through the tablet's log, once however often it is asked for (M5)."""
        if request.only_asks:
            problem = self._problem(request.policy or "", self._others())
            return DoneReply(True) if problem is None else ErrorReply("POLICY_UNMET", problem, definite=True)
        if self._group is None or not self.leads:
            leader = self._group.leader if self._group else None
            return ErrorReply("NOT_THE_LEADER", "another replica leads this tablet", definite=True, leader=leader)
        if self._logged_version < request.schema_version:
            command = encode(schema_of(request.schema_version, request.columns, request.policy or ""))
            try:
                await self._group.submit(command, self._timeout_s)
            except NotProposed as error:
                return ErrorReply(error.kind, str(error), definite=True)
            except OutcomeUnknown:
                return ErrorReply("TIMED_OUT", "no quorum within the deadline", definite=False)
        return DoneReply(done=True, version=self._logged_version)

    @property
    def leads(self) -> bool:
        """Whether changes of configuration are this replica's to make."""
        return self._group is not None and self._group.is_leader

    def serve(self, request: RowRequest) -> Coroutine[Any, Any, bytes]:
        """Answer a client: an encoded reply or ErrorReply. Raises ClockFenced."""
        if type(request) not in self._served:
            return _refuse("this table is addressed by " + ("its primary key" if self._keyed else "integers"))
        if self._keyed and isinstance(request, TypedRequest) and request.table_id != self.created.table_id:
            return _refuse(f"the tablet {request.tablet_id} is of another table", "SCHEMA_CHANGED")
        return self._carried_out(request) if type(request) in _AT_ONCE else self._in_its_time(request)

    async def _in_its_time(self, request: RowRequest) -> bytes:
        """The answer, not before this node's clock has passed what it shows.

        Nothing that was written here is above what was applied last; only another node's clock is.
        """
        answer = await self._carried_out(request)
        if self._machine.last_write > self._clock.last or (type(request) in _READS and _by_other_clocks(request)):
            answer = await self._commit_wait.over(answer, self.policy < 0)
        self._observer.answer_leaves(request, answer)
        return answer

    def _carried_out(self, request: RowRequest) -> Coroutine[Any, Any, bytes]:
        if type(request) is WriteCell:  # looked for first: what an object is not an instance of takes long to find out
            return self._evaluation.change(request)
        if isinstance(request, (ReadCell, ReadRows, GetRow, ScanRows)):
            return self._read(request)
        if isinstance(request, AskReadTime):
            return self._evaluation.read_time(request.read)
        if isinstance(request, PushHold):
            return self._evaluation.push(request)
        if isinstance(request, RegisterSession):
            return self._register_session()
        return self._evaluation.change(request)

    async def _read(self, read: Read) -> bytes:
        if by_the_clock(read):
            read = with_time_fixed(read, self._clock.now())
        elif self.leads_clock and is_plain(read) and read.begun is msgspec.UNSET:
            read = msgspec.structs.replace(read, begun=self._clock.now())
        try:
            return await self._read_once(read)
        except OpenIntent as met:
            return await self._read_past(read, met.intent, met.as_of)

    async def _read_past(self, read: Read, met: Intent, timestamp: int) -> bytes:
        """Read what a transaction holds just now: once it is settled, or pushed above the read, or not at all.

        The read's time stays what it was when it met the intent, also of a strong read: at a later one it would meet
        again what was pushed above the first.
        """
        began_ns, pushed, unblocked = self._ports.clock.monotonic_ns(), False, met.timestamp - 1
        asked, above = asked_time(read), timestamp
        if is_plain(read) and read.begun is not msgspec.UNSET:
            asked, above = read.begun, max(timestamp, self._global.limit(read.begun))
        while (waited_ns := self._ports.clock.monotonic_ns() - began_ns) < 2 * self._push_after_ns:
            if waited_ns >= self._push_after_ns and not pushed:
                pushed = True
                await self._push(met.transaction, above)
            else:
                await self._ports.clock.sleep(min(LOOK_S, self._push_after_ns / 4e9))
            try:
                waited = Waited(self._ports.clock.monotonic_ns() - began_ns, unblocked)
                return await self._read_once(read, waited, timestamp)
            except OpenIntent as again:
                met = again.intent
        message = "a transaction that is not decided yet has an intent there"
        return encode(ErrorReply("INTENT_OPEN", message, definite=True, served=HowServed(asked=asked)))

    async def _push(self, transaction: str, above: int) -> None:
        """Have what a transaction holds pushed above a time, or ended; whatever comes of it."""
        push, leader = PushHold(self.range_id, transaction, above), self._strong.leader()
        with suppress(Unreachable, CallLost, Refused):
            if self._holding.held() is not None:
                await self._evaluation.push(push)
            elif leader is not None:
                await self._ports.network.call(leader, encode(push), self._timeout_s)

    def _held_back(self, transaction: str, closed: int) -> None:
        """Reads within a bound wait for nobody; what holds them back is pushed meanwhile, once at a time."""
        if self._push_after_ns and transaction not in self._pushing:
            task = asyncio.create_task(self._push(transaction, closed), name=f"{self.range_id}.push")
            self._pushing[transaction] = task
            task.add_done_callback(lambda _: self._pushing.pop(transaction, None))

    def _read_once(
        self, read: Read, waited: Waited = NOT_WAITED, timestamp: int | None = None
    ) -> Coroutine[Any, Any, bytes]:
        """One attempt; a strong read has a `timestamp` if an earlier one had it, and has waited since."""
        if not is_strong(read):
            return self._reads.read(read, waited)
        if read.begun is not msgspec.UNSET and is_plain(read) and (self.leads_clock or self._holding.held() is None):
            return self._global.read(read, read.begun, waited.blocked_ns)
        if read.bound is not msgspec.UNSET and read.bound.anywhere and self._holding.held() is None:
            return self._strong.read(read, timestamp, waited.blocked_ns)
        return self._evaluation.read(read, arrived=timestamp)

    async def change_configuration(self, request: ChangeReplicas) -> ConfigurationReply | ErrorReply:
        """Add, promote or remove a replica (G1)."""
        if self._group is None:
            return ErrorReply("NOT_FOUND", f"tablet {request.group} is not open", definite=True)
        if self.leads and not await self._holding.recorded(request.timeout_s):
            message = "what the members have promised of the lease is not in its record yet"
            return ErrorReply("CHANGE_REFUSED", message, definite=True, leader=self._group.leader)
        return await change_replicas(self._group, request)

    async def transfer_leadership(self, request: TransferLeadership) -> LeadershipReply | ErrorReply:
        """Give the lease up, with a record of what was promised here, and let another voter lead (G3).

        A leader that nobody took over from acquires the lease anew.
        """
        if self._group is None:
            return ErrorReply("NOT_FOUND", f"tablet {request.group} is not open", definite=True)
        reply = await transfer_leadership(self._group, self._ports.clock, request, self._holding.hand_over)
        self._holding.on_fence()
        return reply

    async def _register_session(self) -> bytes:
        """Begin a client session: an encoded SessionReply or ErrorReply (G8)."""
        if self._group is None or self._holding.held() is None:
            return self._holding.refusal()
        command = RegisterClient(self._clock.reading(), SessionLimits.of(self._knobs))
        try:
            return await self._group.submit(encode(command), self._timeout_s)
        except NotProposed as error:
            return refused(error)
        except OutcomeUnknown:
            return encode(ErrorReply("TIMED_OUT", "no quorum within the deadline", definite=False))

    def _configured(self) -> None:
        self.leave()
        self._take_policy()
        self._on_change()

    # ---- the policy (R6) ----

    @property
    def policy_in_force(self) -> str:
        """How its table wants it to be closed, and why not so where that can't be; empty if as knobs say."""
        policy = self._machine.schema_in_force.policy
        return policy if self._unmet is None else f"{policy}: {self._unmet}"

    def _altered(self) -> None:
        self._take_policy()
        self._on_change()

    def _others(self) -> tuple[str, ...]:
        return tuple(each.address for each in self.members() if each.server_id != self._ports.node_id)

    def _problem(self, policy: str, others: tuple[str, ...]) -> str | None:
        """Why it can't be closed so now."""
        if lag_ns(policy, self._knobs) is not None:
            return None
        longest = self._round_trips.longest(others) if others else 0
        return "no round trip is known yet" if longest is None else unmet(policy, self._knobs, longest)

    def _take_policy(self) -> None:
        """Close as the table wants it, by the round trips that are known by now; by the lag of the knobs where that
        can't be."""
        policy, others = self._machine.schema_in_force.policy, self._others()
        lag, self._unmet = lag_ns(policy, self._knobs), self._problem(policy, others)
        self._holding.ahead_ns, self.leads_clock = 0, lag is None
        if lag is not None:
            self._round_trips.unwatch(self.range_id)
        else:
            self._round_trips.watch(self.range_id, others, self._take_policy)
            lag = self._knobs.closed_lag_ms * _MS
            if self._unmet is None:
                longest = self._round_trips.longest(others) or 0
                lag, self._holding.ahead_ns = -lead_ns(self._knobs, longest), needed_ns(self._knobs, longest)
        if lag != self.policy:
            self.policy = self._evaluation.lag_ns = lag
            self.leave()

    def _leadership(self, state: SoftState) -> None:
        self._on_change()
        self.leave()
        self._holding.on_leadership(state)
        if state.role is Role.LEADER:
            self._side.consider(self.range_id)

    def _on_lease(self, before: Lease | None, lease: Lease) -> None:
        self.leave()
        self._observer.lease_recorded(self.range_id, before, lease)

    # ---- what the side transport asks (R4) ----

    def join(self, shared: SharedClosed, on_leave: Callable[[], None]) -> Joined | None:
        """Close what these ranges have closed and go on with them, if that may be done now."""
        joined = self._evaluation.join(shared, on_leave)
        if joined is None:
            return None
        own, write_index = self._ports.node_id, self._machine.write_index
        others = tuple(member.server_id for member in self.members() if member.server_id != own)
        return Joined(joined[0], write_index, others, joined[1])

    def leave(self) -> None:
        """Close alone again."""
        self._evaluation.leave()

    def keep(self, known: ClosedAt) -> None:
        """How far another node has closed the range."""
        self._closed.keep(known)
