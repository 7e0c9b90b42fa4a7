"""The driver of one Raft group: carries out what the pure state machine asks for, over the node's ports.

Raft steps run synchronously where their cause arrives; the node's log makes `Persist`s durable, everything that
gathered while the last fsync ran as one batch; one timer task wakes the state machine. What a `Ready` says comes
after its `persist` (install, apply, reads) waits until that is durable, in order.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from typing import NamedTuple

from cluster.alarm import Alarm
from cluster.groups.applying import AppliedFor, Applier
from cluster.groups.snapshot_traffic import SnapshotTraffic
from cluster.groups.spec import (
    DISK_FULL,
    DISK_HANGS,
    GroupSpec,
    MachineFailed,
    OnFailure,
    OnLeadership,
    StateMachine,
    Transport,
    group_state,
    part_bytes,
    pass_point,
    recovered_raft,
)
from cluster.groups.waiters import (
    NEVER_NS,
    ChangeRefused,
    NotLeader,
    OutcomeUnknown,
    ProposalQueue,
    QueuedProposal,
    Waiters,
    fail_future,
)
from cluster.log.replay import SnapshotRef
from cluster.log.view import GroupLog
from cluster.nodelog import node_logger
from cluster.raft.core import Raft
from cluster.raft.log import bootstrap
from cluster.raft.types import (
    ChangeKind,
    ChangeMembership,
    Compact,
    Configuration,
    Event,
    HandOver,
    HandOverTo,
    Member,
    Message,
    OpId,
    Persist,
    Persisted,
    Propose,
    Quiescence,
    ReadIndex,
    Ready,
    Reason,
    Receive,
    RequestVoteReply,
    Role,
    Silence,
    SnapshotAck,
    SnapshotChunk,
    SoftState,
    Tick,
    Wake,
)
from cluster.wire.messages import GroupState, Replica
from harness.ports.api import Ports
from harness.ports.failpoints import linger

__all__ = ["ChangeRefused", "Group", "GroupSpec", "NotLeader", "OutcomeUnknown", "StateMachine", "Transport"]


class Listeners(NamedTuple):
    """Who is told when a replica begins or ceases to lead, and what stops it."""

    on_leadership: OnLeadership
    on_failure: OnFailure


class Group:
    """One replica of a Raft group. Made by `open`; after `close` or a failure every call raises NotLeader.

    `term` is Raft's current one; `is_leader` whether this replica believes to lead, deposed without knowing yet or not;
    `ends` knows up to where leases last by promises of the members.
    """

    def __init__(
        self,
        ports: Ports,
        spec: GroupSpec,
        machine: StateMachine,
        transport: Transport,
        log: GroupLog,
        raft: Raft,
        listeners: Listeners,
    ) -> None:
        self._spec, self._machine, self._transport, self._disk = spec, machine, transport, log
        self._clock, self._now_ns = ports.clock, ports.clock.monotonic_ns
        self._failpoints = ports.failpoints
        self._on_leadership, self._on_failure = listeners
        self._observer, self._raft = spec.observer, raft
        self.ends = raft
        self._log = node_logger(spec.node_id)
        self._waiters = Waiters()
        applied_for = AppliedFor(lambda: raft.leader, self._snapshot_if_due, self._panic)
        self._applier = Applier(spec, machine, log, ports, self._waiters, applied_for)
        self._traffic = SnapshotTraffic(
            spec.node_id, spec.knobs, ports.clock, log, self._send, self._step, lambda: raft.commit_index, self._rearm
        )
        self._queue = ProposalQueue(spec.knobs.max_queued_proposals)
        self._events: deque[Event] = deque()
        self._stepping = self._stopped = False
        self.is_leader, self.term = False, raft.term
        self._handing_over: dict[str, None] = {}
        self._wake_ns = 0
        log.attach(self._durable, self._disk_full)
        self._alarm = Alarm(ports.clock, self._tick, self._panic, self._due_ns)

    @classmethod
    async def open(
        cls,
        ports: Ports,
        spec: GroupSpec,
        machine: StateMachine,
        transport: Transport,
        log: GroupLog,
        on_leadership: OnLeadership = lambda _: None,
        on_failure: OnFailure = lambda _: None,
    ) -> Group:
        """Recover the group from its node's log (or begin it there) and run it; raises Quarantined, OSError."""
        found = log.recover()
        if found.blank and spec.founders:
            founders = tuple(Member(replica.node_id, replica.address) for replica in spec.founders)
            found = log.found(*bootstrap(founders))
        raft = recovered_raft(spec, found, ports, transport.liveness)
        meta = found.snapshot.meta if found.snapshot is not None else None
        spec.observer.opened(spec.group_id, spec.node_id, meta, found.entries, found.hard_state)
        group = cls(ports, spec, machine, transport, log, raft, Listeners(on_leadership, on_failure))
        await group._start(found.snapshot)
        return group

    async def _start(self, snapshot: SnapshotRef | None) -> None:
        try:
            if snapshot is not None:
                self._traffic.stored.replace(snapshot)
                await self._applier.restore(snapshot)
        except MachineFailed as error:
            self._panic(error)
        self._step(Tick())

    # ---- what the owner calls ----

    @property
    def leader(self) -> str | None:
        """The leader of the current term as far as known."""
        return self._raft.leader

    @property
    def configuration(self) -> Configuration:
        """Who belongs to the group, as the last entry in this replica's log that says so; it may be uncommitted."""
        return self._raft.configuration

    @property
    def committed_configuration(self) -> Configuration:
        """The last configuration that this replica knows to be committed."""
        return self._raft.committed_configuration

    @property
    def settled(self) -> bool:
        """Whether this replica leads and nothing that was proposed is unapplied, here or in its log."""
        last, raft = self._applier.applied_index, self._raft
        return self.is_leader and not self._applier.installing and last == raft.commit_index == raft.last_index

    @property
    def asleep(self) -> bool:
        """Whether this replica leads a group that is silent: all members have agreed (G6)."""
        return self.is_leader and self._raft.sleeps

    @property
    def installing(self) -> bool:
        """Whether a snapshot is taking the state's place, so that the state is not to be read."""
        return self._applier.installing

    def committed_as_of(self) -> tuple[int, int] | None:
        """What was committed when (M13), see `Raft.committed_as_of`; None once the group is stopped."""
        return None if self._stopped else self._raft.committed_as_of(self._clock.monotonic_ns())

    async def applied(self, index: int, timeout_s: float) -> None:
        """Return once everything up to `index` is applied here; raises OutcomeUnknown at the deadline."""
        if self.applied_index < index:
            context, future = self._waiters.add_read(self._deadline(timeout_s))
            self._waiters.place_read(context, index)
            self._rearm()
            await future

    def contacts(self) -> Mapping[str, int]:
        """When each other member answered last (ns of the monotonic clock); nobody without Raft's lease (M11)."""
        valid = not self._stopped and self._raft.lease_valid(self._clock.monotonic_ns())
        return self._raft.contacts() if valid else {}

    @property
    def applied_index(self) -> int:
        """Index of the last entry applied to the state machine."""
        return self._applier.applied_index

    async def propose(self, command: bytes, timeout_s: float) -> bytes:
        """Replicate a command and return what applying it here gave; raises NotLeader, OutcomeUnknown."""
        return await self.submit(command, timeout_s)

    def submit(self, command: bytes, timeout_s: float) -> asyncio.Future[bytes]:
        """`propose` as a future; commands enter the log in the order of the calls, if they enter it.

        Besides NotLeader it ends with Overloaded or Expired where the command never entered the log.
        """
        return self.submit_stamped(lambda: command, timeout_s, self._deadline(timeout_s))

    def submit_stamped(
        self, stamp: Callable[[], bytes], timeout_s: float, decided_ns: int = NEVER_NS
    ) -> asyncio.Future[bytes]:
        """`submit` what `stamp` gives where its position is fixed, in log order; what entered is decided in the end."""
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        if not self.is_leader or self._disk.full or self._handing_over:
            future.set_exception(self._not_leader())
            return future
        self._queue.add(QueuedProposal(stamp, future, self._deadline(timeout_s), decided_ns))
        self._run()
        return future

    async def read_barrier(self, timeout_s: float) -> bool:
        """Return when the state machine may serve a linearizable read; raises NotLeader, OutcomeUnknown (§6.4).

        With a valid lease no message is sent; without, leadership is confirmed by a round of heartbeats. The answer is
        whether anything else may have happened meanwhile.
        """
        if not self.is_leader:
            raise self._not_leader()
        now_ns = self._clock.monotonic_ns()
        index = self._raft.lease_read_index(now_ns)
        if index is not None:
            self._observer.served_by_lease(self._spec.group_id, self._raft, now_ns)
            if self._applier.applied_index >= index:
                return False
        context, future = self._waiters.add_read(self._deadline(timeout_s))
        if index is None:
            self._step(ReadIndex(context))
        else:
            self._waiters.place_read(context, index)
            self._rearm()
        await future
        await linger(self._failpoints, "group.confirmed")
        return True

    async def change_membership(
        self, kind: ChangeKind, member: Member, expected: OpId, timeout_s: float
    ) -> Configuration:
        """Change the configuration whose op id is `expected`; the one in force once the change is committed (G1).

        Raises ChangeRefused, NotLeader (a later leader has replaced the entry) and OutcomeUnknown.
        """
        if self._stopped:
            raise self._not_leader()
        context, future = self._waiters.add_change(self._deadline(timeout_s))
        self._step(ChangeMembership(context, kind, member, expected))
        await future
        return self._raft.configuration

    def receive(self, messages: tuple[Message, ...]) -> None:
        """Take in messages from another replica of the group."""
        for message in messages:
            if type(message) is SnapshotChunk or type(message) is SnapshotAck:
                if not self._stopped:
                    self._traffic.take(message)
                    self._rearm()
            else:
                self._events.append(Receive(message))
                self._run()

    def transfer_leadership(self, target: str) -> None:
        """Hand leadership over to `target`, if this replica leads (§3.10)."""
        self._step(HandOverTo(target))

    def transfer_refusal(self, target: str) -> tuple[Reason, str] | None:
        """Why leadership can't go to `target` now: see `Raft.transfer_refusal`."""
        return self._raft.transfer_refusal(target, self._now_ns())

    def hand_over(self, reason: str, wanted: bool = True) -> None:
        """Try every healthy voter in turn while there is a reason; nothing is proposed, no lease is held then (G7)."""
        if wanted:
            self._handing_over[reason] = None
        if wanted or self._handing_over.pop(reason, reason) is None:
            self._step(HandOver(bool(self._handing_over)))

    def status(self) -> GroupState:
        """This replica's own view of the group."""
        serves = not self._stopped and self._raft.lease_valid(self._clock.monotonic_ns())
        return group_state(self._spec, self._raft, self.applied_index, serves, self._applier.digest)

    async def close(self) -> None:
        """Stop; what is not yet decided raises OutcomeUnknown at its callers."""
        self._stop()

    # ---- stepping ----

    def _step(self, event: Event) -> None:
        self._events.append(event)
        self._run()

    def _run(self) -> None:
        """Step Raft until nothing is left to do; what a step causes is queued, so that steps never nest.

        Proposals gather while an fsync runs, or a quorum can't be sent more, and go out as one batch after it.
        """
        if self._stepping:
            return
        self._stepping = True
        try:
            while not self._stopped:
                if self._events:
                    self._carry_out(self._raft.step(self._events.popleft(), self._now_ns()))
                elif self._queue.waiting and not self._disk.busy and self._raft.takes_commands:
                    self._propose_batch()
                else:
                    return
        except Exception as error:  # noqa: BLE001 - a bug of ours: memory can't be trusted any more, the disk can
            self._panic(error)
        finally:
            self._stepping = False
            self._rearm()

    def _propose_batch(self) -> None:
        now_ns = self._clock.monotonic_ns()
        batch = self._queue.take(self._spec.knobs.max_batch_entries, now_ns)
        ready = self._raft.step(Propose(tuple([item.stamp() for item in batch])), now_ns)
        if ready.proposed is None:
            for item in batch:
                fail_future(item.future, self._not_leader())
        else:
            for position, item in zip(ready.proposed, batch, strict=True):
                self._waiters.add(position, item.future, item.decided_ns)
        self._carry_out(ready)

    def _carry_out(self, ready: Ready) -> None:
        """What nearly every step asks for; of the others this is a part."""
        if ready.rare or ready.soft_state is not None or self._failpoints.armed:
            self._carry_out_all(ready)
            return
        if ready.apply:
            self._observer.committed(self._spec.group_id, self._raft, ready.apply)
        if ready.send_now:
            self._send(ready.send_now)
        if ready.persist is not None:
            self._disk.put(ready.persist)
        if ready.apply:
            self._applier.put(ready, None)
        self._wake_ns = ready.wake_ns

    def _carry_out_all(self, ready: Ready) -> None:
        state = ready.soft_state
        if state is not None:
            self.is_leader, self.term = state.role is Role.LEADER, state.term
        if ready.apply:
            self._pass_point("before_commit")
            self._observer.committed(self._spec.group_id, self._raft, ready.apply)
        if ready.configuration is not None:
            self._configured(ready.configuration)
        if ready.quiescence is not None:
            self._transport.quiesced(self._spec.group_id, ready.quiescence, self._awake)
            self._spec.on_silence()
        if ready.send_now:
            self._send(ready.send_now)
        if ready.apply:
            self._pass_point("after_commit")
        received = None if ready.install is None else self._traffic.take_received()
        if ready.persist is not None:
            self._before_persist(ready)
            self._disk.put(ready.persist, received)
        if ready.failed_reads:
            self._waiters.fail_reads(ready.failed_reads, self._not_leader())
        if ready.install is not None or ready.apply or ready.reads:
            self._applier.put(ready, received)
        if state is not None:
            self._changed(state)
        self._wake_ns = ready.wake_ns
        for result in ready.changes:
            self._waiters.settle_change(result)
        if ready.send_snapshots:
            self._traffic.begin(ready.send_snapshots)

    def _before_persist(self, ready: Ready) -> None:
        """What the Ready wants to be durable is about to be written: a vote, a leader's entries or its snapshot.

        A point means the same whatever a flaw does there.
        """
        persist = ready.persist
        if persist is None or not self._failpoints.armed:
            return
        if persist.hard_state is not None and any(map(_grants, (*persist.then_send, *ready.send_now))):
            self._pass_point("before_vote")
        if persist.entries and self._raft.role is Role.FOLLOWER:
            self._pass_point("before_accept")
        if ready.install is not None:
            self._pass_point("before_install")

    def _pass_point(self, point: str) -> None:
        pass_point(self._failpoints, self._spec, point)

    def _configured(self, configuration: Configuration) -> None:
        self._pass_point("before_configuration")
        self._transport.learn(Replica(member.server_id, member.address) for member in configuration.members)
        self._observer.configured(self._spec.group_id, self._raft)
        voters, learners = " ".join(configuration.voter_ids), " ".join(configuration.learner_ids)
        self._log.info("%s: voters %s; learners %s", self._spec.group_id, voters or "unknown", learners or "none")

    def _changed(self, soft_state: SoftState) -> None:
        found = (self._spec.group_id, soft_state.role, soft_state.term, soft_state.leader)
        self._log.info("%s: %s in term %d, leader %s", *found)
        if soft_state.role is Role.LEADER:
            self._observer.became_leader(self._spec.group_id, self._raft)
            self._handing_over.clear()
            self.hand_over(DISK_FULL, self._disk.full)
        else:
            self._traffic.stop()
        self._on_leadership(soft_state)

    def _send(self, messages: tuple[Message, ...]) -> None:
        armed = self._failpoints.armed
        if armed:
            self._pass_point("before_send")
        self._observer.leaving(self._spec.group_id, messages)
        self._transport.send(self._spec.group_id, messages)
        if armed:
            self._pass_point("after_send")
            if any(map(_grants, messages)):
                self._pass_point("after_vote")

    def _durable(self, batch: list[Persist]) -> None:
        try:
            self._observer.durable(self._spec.group_id, batch)
            one, last = len(batch) == 1, batch[-1].sequence
            messages = batch[0].then_send if one else tuple([each for item in batch for each in item.then_send])
            if messages:
                self._send(messages)
            if self._handing_over:
                self.hand_over(DISK_HANGS, wanted=False)
            self._applier.durable(last)
            if self._events or self._stepping or self._queue.waiting or not self._raft.persisted_quietly(last):
                self._step(Persisted(last))
            else:
                self._rearm()
        except Exception as error:  # noqa: BLE001 - what a state machine raises harms this replica alone (G7)
            self._panic(error)

    def _snapshot_if_due(self) -> None:
        knobs, applied_index = self._spec.knobs, self._applier.applied_index
        due = self._traffic.stored.due(applied_index, self._disk.log_bytes, knobs.snapshot_entries)
        if due and not self._disk.saving and (meta := self._raft.snapshot_meta(applied_index)) is not None:
            self._disk.save_snapshot(meta, self._machine.freeze(part_bytes(knobs)), self._saved)

    def _saved(self, saved: SnapshotRef) -> None:
        if saved.meta.index > self._traffic.stored.index:
            self._traffic.stored.replace(saved)
            self._step(Compact(saved.meta))

    # ---- refusals and deadlines ----

    def _not_leader(self) -> NotLeader:
        if self._stopped:
            return NotLeader(None, "the group is stopped")
        if self.is_leader and (self._disk.full or self._handing_over):
            return NotLeader(None, f"the leader hands over: {', '.join(self._handing_over) or DISK_FULL}")
        return NotLeader(self._raft.leader)

    def _deadline(self, timeout_s: float) -> int:
        return self._clock.monotonic_ns() + int(timeout_s * 1e9)

    def _rearm(self) -> None:
        """Wake for what comes before the alarm would; most often nothing does, and this is asked after each step."""
        until_ns = self._alarm.sleeps_until_ns
        if (
            self._wake_ns < until_ns
            or self._waiters.next_deadline_ns < until_ns
            or self._queue.next_deadline_ns < until_ns
            or self._traffic.sends
        ):
            self._alarm.set(self._due_ns())

    def _due_ns(self) -> int:
        """When something is to be done without an event."""
        stream_ns = self._traffic.next_wake_ns if self._traffic.sends else None
        due_ns = min(self._wake_ns, self._waiters.next_deadline_ns, self._queue.next_deadline_ns)
        return due_ns if stream_ns is None else min(due_ns, stream_ns)

    def _tick(self) -> None:
        now_ns = self._clock.monotonic_ns()
        self._waiters.expire(now_ns)
        self._queue.expire(now_ns)
        if self.is_leader and self._disk.stalled(now_ns) and DISK_HANGS not in self._handing_over:
            # Nothing becomes durable for too long: no lease is held from now on, until the disk is back (G7).
            self._log.warning("%s: the disk hangs", self._spec.group_id)
            self.hand_over(DISK_HANGS)
            self._queue.refuse(self._not_leader())
        self._traffic.poll(now_ns)
        self._step(Tick())
        if self.is_leader:
            self._spec.on_tick()

    # ---- stopping ----

    def _disk_full(self, full: bool) -> None:
        """While this replica can't take anything in: refuse proposals, and let another one lead."""
        if full:
            self._log.warning("%s: the disk is full", self._spec.group_id)
            self._queue.refuse(self._not_leader())
        self.hand_over(DISK_FULL, full)

    def _panic(self, error: BaseException) -> None:
        if not self._stopped:
            self._log.error("%s: stopped: %r", self._spec.group_id, error)
            self._stop()
            self._on_failure(error)

    def _awake(self) -> None:
        self._step(Wake())

    def _stop(self) -> None:
        self._stopped, self.is_leader = True, False
        self._transport.quiesced(self._spec.group_id, Quiescence(Silence.WITHDRAWN, ()), self._awake)
        self._events.clear()
        self._queue.refuse(self._not_leader())
        self._waiters.abandon()
        self._alarm.cancel()
        self._applier.close()
        self._traffic.close()
        self._disk.close()


def _grants(message: Message) -> bool:
    return isinstance(message, RequestVoteReply) and message.granted
