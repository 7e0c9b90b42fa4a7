"""The driver of one Raft group: carries out what the pure state machine asks for, over the node's ports.

Raft steps run synchronously where their cause arrives; one writer task makes `Persist`s durable, everything that
gathered while the last fsync ran as one batch; one timer task wakes the state machine. What a `Ready` says comes
after its `persist` (install, apply, reads) waits until that is durable, in order.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from cluster.alarm import Alarm
from cluster.config import Knobs
from cluster.log.storage import GroupStorage
from cluster.log.writer import LogWriter
from cluster.nodelog import node_logger
from cluster.observer import SILENT, Observer
from cluster.raft.config import RaftConfig
from cluster.raft.core import Raft
from cluster.raft.types import (
    Compact,
    Entry,
    EntryKind,
    Event,
    Message,
    Persist,
    Persisted,
    Propose,
    ReadIndex,
    Ready,
    Receive,
    Role,
    Snapshot,
    SnapshotMeta,
    SoftState,
    Tick,
    TransferLeadership,
)
from cluster.waiters import NotLeader, OutcomeUnknown, Waiters, fail_future
from cluster.wire.messages import GroupState, Replica
from harness.ports import Ports

__all__ = ["FAILPOINTS", "Group", "GroupSpec", "NotLeader", "OutcomeUnknown", "StateMachine", "Transport"]

_MS = 1_000_000
FAILPOINTS = (
    "before_append",
    "before_fsync",
    "after_fsync",
    "before_apply",
    "after_apply",
    "before_snapshot",
    "after_snapshot",
)
"""Points of every group; a failpoint's name is `KIND.POINT`, such as `tablet.before_fsync`."""


class StateMachine(Protocol):
    """What a group replicates; deterministic, and only ever called with committed commands in log order."""

    def apply(self, index: int, command: bytes) -> bytes:
        """Carry a command out; the result goes to whoever proposed it here."""

    def snapshot(self) -> bytes:
        """The whole state after the last applied command."""

    def restore(self, data: bytes) -> None:
        """Replace the state by a snapshot's."""

    @property
    def digest(self) -> int:
        """64 bits of the state: equal states have equal digests, whether applied or restored (G10)."""


class Transport(Protocol):
    """Sends Raft messages to other nodes; may lose, double and reorder them."""

    def send(self, group: str, messages: tuple[Message, ...]) -> None:
        """Send without waiting."""


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """Which group this is, where its files are (`directory`, no trailing slash), and how it is run.

    `kind` prefixes the names of its failpoints (`tablet.before_fsync`, …). `observer` is told what happens (G10).
    """

    group_id: str
    node_id: str
    voters: tuple[Replica, ...]
    directory: str
    knobs: Knobs = field(default_factory=Knobs)
    flaws: frozenset[str] = frozenset()
    kind: str = "tablet"
    observer: Observer = SILENT


OnLeadership: TypeAlias = Callable[[SoftState], None]
"""Called at every change of role, term or known leader; it may `submit`."""

OnFailure: TypeAlias = Callable[[BaseException], None]
"""Called once when the group had to stop (its disk failed, its state machine raised): the node should stop."""


def _ignore(_: object) -> None:
    return None


def raft_config(spec: GroupSpec) -> RaftConfig:
    """Raft's own configuration for a group."""
    knobs = spec.knobs
    return RaftConfig(
        node_id=spec.node_id,
        voters=tuple(replica.node_id for replica in spec.voters),
        election_timeout_ns=knobs.election_timeout_ms * _MS,
        heartbeat_ns=knobs.raft_heartbeat_ms * _MS,
        lease_ns=knobs.lease_ms * _MS,
        max_clock_drift=knobs.max_clock_drift,
        max_batch_entries=knobs.max_batch_entries,
        max_batch_bytes=knobs.max_batch_bytes,
        max_inflight=knobs.max_inflight,
        retained_entries=knobs.retained_entries,
        check_quorum_ns=knobs.check_quorum_ms * _MS,
        flaws=spec.flaws,
    )


@dataclass(slots=True)
class _Proposal:
    command: bytes
    future: asyncio.Future[bytes]
    deadline_ns: int


class Group:
    """One replica of a Raft group. Made by `open`; after `close` or a failure every call raises NotLeader."""

    def __init__(
        self,
        ports: Ports,
        spec: GroupSpec,
        machine: StateMachine,
        transport: Transport,
        storage: GroupStorage,
        raft: Raft,
        on_leadership: OnLeadership,
        on_failure: OnFailure,
    ) -> None:
        self._spec, self._machine, self._transport, self._storage = spec, machine, transport, storage
        self._clock, self._hit = ports.clock, ports.failpoints.hit
        self._on_leadership, self._on_failure = on_leadership, on_failure
        self._observer = spec.observer
        self._raft = raft
        self._log = node_logger(spec.node_id)
        self._applied_index = self._applied_term = self._snapshot_index = 0
        self._waiters = Waiters()
        self._queue: list[_Proposal] = []
        self._events: deque[Event] = deque()
        self._after: deque[tuple[int, Ready]] = deque()
        self._stepping = self._stopped = False
        self._wake_ns = 0
        self._before_apply, self._after_apply = f"{spec.kind}.before_apply", f"{spec.kind}.after_apply"
        self._disk = LogWriter(ports, storage, spec.kind, spec.knobs, self._durable, self._saved, self._disk_full)
        self._alarm = Alarm(ports.clock, self._tick, f"{spec.group_id}.alarm", self._panic)
        self._writer: asyncio.Task[None] | None = None

    @classmethod
    async def open(
        cls,
        ports: Ports,
        spec: GroupSpec,
        machine: StateMachine,
        transport: Transport,
        on_leadership: OnLeadership = _ignore,
        on_failure: OnFailure = _ignore,
    ) -> Group:
        """Recover the group from its directory (or begin it there) and run it; raises CorruptLog, OSError."""
        storage = GroupStorage(ports.disk, spec.directory)
        found = await storage.recover()
        raft = Raft(
            raft_config(spec),
            found.hard_state,
            found.snapshot,
            found.entries,
            ports.clock.monotonic_ns(),
            random.Random(ports.entropy.getrandbits(64)),
            restarted=not found.fresh,
        )
        group = cls(ports, spec, machine, transport, storage, raft, on_leadership, on_failure)
        group._start(found.snapshot)
        return group

    def _start(self, snapshot: Snapshot | None) -> None:
        self._writer = asyncio.create_task(self._disk.run(), name=f"{self._spec.group_id}.writer")
        self._writer.add_done_callback(self._writer_ended)
        if snapshot is not None:
            self._install(snapshot)
        self._step(Tick())

    # ---- what the owner calls ----

    @property
    def is_leader(self) -> bool:
        """Whether this replica believes to lead; it may be deposed without knowing yet."""
        return self._raft.role is Role.LEADER and not self._stopped

    @property
    def term(self) -> int:
        """Raft's current term."""
        return self._raft.term

    @property
    def leader(self) -> str | None:
        """The leader of the current term as far as known."""
        return self._raft.leader

    @property
    def applied_index(self) -> int:
        """Index of the last entry applied to the state machine."""
        return self._applied_index

    async def propose(self, command: bytes, timeout_s: float) -> bytes:
        """Replicate a command and return what applying it here gave; raises NotLeader, OutcomeUnknown."""
        return await self.submit(command, timeout_s)

    def submit(self, command: bytes, timeout_s: float) -> asyncio.Future[bytes]:
        """`propose` as a future; commands enter the log in the order of the calls, if they enter it."""
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        if not self.is_leader or self._disk.full:
            future.set_exception(self._not_leader())
            return future
        self._queue.append(_Proposal(command, future, self._deadline(timeout_s)))
        self._run()
        return future

    async def read_barrier(self, timeout_s: float) -> None:
        """Return when the state machine may serve a linearizable read; raises NotLeader, OutcomeUnknown (§6.4).

        With a valid lease no message is sent; without, leadership is confirmed by a round of heartbeats.
        """
        if not self.is_leader:
            raise self._not_leader()
        index = self._raft.lease_read_index(self._clock.monotonic_ns())
        if index is not None and self._applied_index >= index:
            return
        context, future = self._waiters.add_read(self._deadline(timeout_s))
        if index is None:
            self._step(ReadIndex(context))
        else:
            self._waiters.place_read(context, index)
            self._rearm()
        await future

    def receive(self, message: Message) -> None:
        """Take in a message from another replica of the group."""
        self._step(Receive(message))

    def transfer_leadership(self, target: str) -> None:
        """Hand leadership over to `target`, if this replica leads (§3.10)."""
        self._step(TransferLeadership(target))

    def status(self) -> GroupState:
        """This replica's own view of the group."""
        raft = self._raft
        return GroupState(
            group=self._spec.group_id,
            role=str(raft.role),
            term=raft.term,
            leader=raft.leader,
            commit_index=raft.commit_index,
            applied_index=self._applied_index,
            last_index=raft.last_index,
            last_term=raft.last_term,
            lease_valid=not self._stopped and raft.lease_valid(self._clock.monotonic_ns()),
            peers=tuple(raft.voters),
        )

    async def close(self) -> None:
        """Stop; what is not yet decided raises OutcomeUnknown at its callers."""
        self._stop()
        if self._writer is not None:
            self._writer.cancel()
            await asyncio.gather(self._writer, return_exceptions=True)

    async def destroy(self) -> None:
        """Close, then remove every file of the group."""
        await self.close()
        await self._storage.destroy()

    # ---- stepping ----

    def _step(self, event: Event) -> None:
        self._events.append(event)
        self._run()

    def _run(self) -> None:
        """Step Raft until nothing is left to do; what a step causes is queued, so that steps never nest.

        Proposals gather while an fsync runs and go out as one batch after it.
        """
        if self._stepping:
            return
        self._stepping = True
        try:
            while not self._stopped:
                if self._events:
                    self._carry_out(self._raft.step(self._events.popleft(), self._clock.monotonic_ns()))
                elif self._queue and not self._disk.busy:
                    self._propose_batch()
                else:
                    return
        except Exception as error:  # a bug of ours: memory can no longer be trusted, and the disk still can
            self._panic(error)
            raise
        finally:
            self._stepping = False

    def _propose_batch(self) -> None:
        limit = self._spec.knobs.max_batch_entries
        batch, self._queue = self._queue[:limit], self._queue[limit:]
        event = Propose(tuple(item.command for item in batch))
        ready = self._raft.step(event, self._clock.monotonic_ns())
        if ready.proposed is None:
            for item in batch:
                fail_future(item.future, self._not_leader())
        else:
            for position, item in zip(ready.proposed, batch, strict=True):
                self._waiters.add(position, item.future, item.deadline_ns)
        self._carry_out(ready)

    def _carry_out(self, ready: Ready) -> None:
        if ready.apply:
            self._observer.committed(self._spec.group_id, ready.apply)
        if ready.send_now:
            self._transport.send(self._spec.group_id, ready.send_now)
        if ready.persist is not None:
            self._disk.put(ready.persist)
        if ready.failed_reads:
            self._waiters.fail_reads(ready.failed_reads, self._not_leader())
        if ready.install is not None or ready.apply or ready.reads:
            if ready.persist is None and not self._after:
                self._finish(ready)
            else:
                self._after.append((ready.persist.sequence if ready.persist else 0, ready))
        if ready.soft_state is not None:
            self._changed(ready.soft_state)
        self._wake_ns = ready.wake_ns
        self._rearm()

    def _changed(self, soft_state: SoftState) -> None:
        role, term, leader = soft_state.role, soft_state.term, soft_state.leader
        self._log.info("%s: %s in term %d, leader %s", self._spec.group_id, role, term, leader)
        if role is Role.LEADER:
            self._observer.became_leader(self._spec.group_id, term)
        self._on_leadership(soft_state)

    def _durable(self, batch: list[Persist]) -> None:
        messages = tuple(message for item in batch for message in item.then_send)
        if messages:
            self._transport.send(self._spec.group_id, messages)
        while self._after and self._after[0][0] <= batch[-1].sequence:
            self._finish(self._after.popleft()[1])
        self._step(Persisted(batch[-1].sequence))

    def _finish(self, ready: Ready) -> None:
        """The part of a Ready that must find its `persist` durable."""
        if ready.install is not None:
            self._install(ready.install)
        if ready.apply:
            self._hit(self._before_apply)
            for entry in ready.apply:
                self._apply(entry)
            self._hit(self._after_apply)
        for read in ready.reads:
            self._waiters.place_read(read.context, read.index)
        self._waiters.resolve_reads(self._applied_index)
        self._snapshot_if_due()

    def _install(self, snapshot: Snapshot) -> None:
        meta = snapshot.meta
        self._machine.restore(snapshot.data)
        self._waiters.skip(meta.index, meta.term, self._raft.leader)
        self._applied_index, self._applied_term, self._snapshot_index = meta.index, meta.term, meta.index
        self._observer.restored(self._spec.group_id, meta, self._machine)

    def _apply(self, entry: Entry) -> None:
        if entry.term > self._applied_term:
            self._waiters.refuse_older(entry.term, self._raft.leader)
            self._applied_term = entry.term
        self._applied_index = entry.index
        if entry.kind == EntryKind.COMMAND:
            self._waiters.resolve(entry.term, entry.index, self._machine.apply(entry.index, entry.data))
        self._observer.applied(self._spec.group_id, entry.index, self._machine)

    def _snapshot_if_due(self) -> None:
        due = self._applied_index - self._snapshot_index >= self._spec.knobs.snapshot_entries
        if due and not self._disk.snapshot_pending:
            meta = SnapshotMeta(self._applied_index, self._applied_term, tuple(self._raft.voters))
            self._disk.put_snapshot(Snapshot(meta, self._machine.snapshot()))

    def _saved(self, snapshot: Snapshot) -> None:
        if snapshot.meta.index > self._snapshot_index:
            self._snapshot_index = snapshot.meta.index
            self._step(Compact(snapshot))

    # ---- refusals and deadlines ----

    def _not_leader(self) -> NotLeader:
        if self._stopped:
            return NotLeader(None, "the group is stopped")
        if self.is_leader and self._disk.full:
            return NotLeader(None, "the leader's disk is full")
        return NotLeader(self._raft.leader)

    def _deadline(self, timeout_s: float) -> int:
        return self._clock.monotonic_ns() + int(timeout_s * 1e9)

    def _rearm(self) -> None:
        if not self._stopped:
            self._alarm.set(min(self._wake_ns, self._waiters.next_deadline_ns))

    def _tick(self) -> None:
        self._waiters.expire(self._clock.monotonic_ns())
        self._step(Tick())

    # ---- stopping ----

    def _disk_full(self) -> None:
        """This replica can't take anything in: refuse proposals, and let another one lead."""
        self._log.warning("%s: the disk is full", self._spec.group_id)
        self._refuse_queued()
        others = [voter for voter in self._raft.voters if voter != self._spec.node_id]
        if self.is_leader and others:
            self.transfer_leadership(others[0])

    def _refuse_queued(self) -> None:
        """Definite: what is queued was never given to Raft."""
        queued, self._queue = self._queue, []
        for item in queued:
            fail_future(item.future, self._not_leader())

    def _writer_ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._panic(error)

    def _panic(self, error: BaseException) -> None:
        if not self._stopped:
            self._log.error("%s: stopped: %r", self._spec.group_id, error)
            self._stop()
            self._on_failure(error)

    def _stop(self) -> None:
        self._stopped = True
        self._events.clear()
        self._refuse_queued()
        self._waiters.abandon()
        self._alarm.cancel()
