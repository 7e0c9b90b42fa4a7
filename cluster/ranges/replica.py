"""One replica of a tablet on a server: its Raft group, its state machine, and what the leaseholder does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from cluster.config import Knobs
from cluster.group import Group, GroupSpec, NotLeader, OnFailure, OutcomeUnknown, Transport
from cluster.raft.types import Message, Role, SoftState
from cluster.ranges.lease import Lease, LeaseTimes
from cluster.ranges.tablet import AcquireLease, Change, CompareAndSetCell, RenewLease, TabletMachine, WriteCell
from cluster.store.hlc import Hlc
from cluster.store.mvcc import Key
from cluster.tserver.metadata import tablet_directory
from cluster.wire.messages import (
    CompareAndSet,
    CreateTablet,
    Fault,
    GroupState,
    ReadReply,
    ReadRow,
    TabletReport,
    WriteRow,
    encode,
)
from harness.ports import Ports

_MS = 1_000_000
_FOR_EVER_S = 1e6
"""A lease command waits as long as its group leads; its fate is read from the state machine."""

_NO_LEASE = encode(Fault("NO_LEASE", "the new leader's lease record is not applied yet", definite=True))


def _not_leader(error: NotLeader) -> bytes:
    return encode(Fault("NOT_THE_LEADER", str(error), definite=True, leader=error.leader))


def _timed_out(definite: bool) -> bytes:
    return encode(Fault("TIMED_OUT", "no quorum within the deadline", definite=definite))


class TabletReplica:
    """Serves reads and changes while it holds the lease; otherwise says who might.

    Nothing is served before the lease record of the own Raft term is applied (R2); whether the holder may still serve
    is then asked of Raft for each read, on the monotonic clock.
    """

    def __init__(self, ports: Ports, created: CreateTablet, knobs: Knobs, hlc: Hlc) -> None:
        self.created = created
        self._ports, self._clock, self._node_id, self._hlc = ports, ports.clock, ports.node_id, hlc
        self._knobs = knobs
        self._timeout_s = knobs.request_timeout_ms / 1e3
        self._duration_ns = knobs.tablet_lease_ms * _MS
        self._machine = TabletMachine(knobs.version_retention_ms * _MS)
        self._times: LeaseTimes | None = None
        self._acquisition: asyncio.Future[bytes] | None = None
        self._renewal: asyncio.Future[bytes] | None = None
        self._group: Group | None = None
        self._on_change: Callable[[], None] = lambda: None

    async def open(
        self, transport: Transport, flaws: frozenset[str], on_change: Callable[[], None], on_failure: OnFailure
    ) -> None:
        """Recover from disk, or begin there; `on_change` is called when what `report` says changes."""
        spec = GroupSpec(
            group_id=self.created.tablet_id,
            node_id=self._node_id,
            voters=self.created.voters,
            directory=tablet_directory(self.created.tablet_id),
            knobs=self._knobs,
            flaws=flaws,
        )
        group = await Group.open(self._ports, spec, self._machine, transport, self._leadership, on_failure)
        self._group = group
        self._on_change = on_change
        if group.is_leader:
            self._acquire(group)

    async def close(self) -> None:
        """Stop serving."""
        if self._group is not None:
            await self._group.close()

    async def destroy(self) -> None:
        """Stop serving and remove the files."""
        if self._group is not None:
            await self._group.destroy()

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
        return TabletReport(
            tablet_id=created.tablet_id,
            table_id=created.table_id,
            state="RUNNING",
            term=group.term if group else 0,
            leader=group.leader if group else None,
            voters=tuple(replica.node_id for replica in created.voters),
            config_index=0,
            schema_version=created.schema_version,
        )

    async def read(self, request: ReadRow) -> bytes:
        """A strong read: an encoded ReadReply or Fault."""
        if self._group is None or self._held() is None:
            return self._refusal()
        try:
            await self._group.read_barrier(self._timeout_s)
        except NotLeader as error:
            return _not_leader(error)
        except OutcomeUnknown:
            return _timed_out(definite=True)
        held = self._held()
        if held is None:
            return self._refusal()
        return self._read_now(held[0], held[1], request)

    async def change(self, request: WriteRow | CompareAndSet) -> bytes:
        """A write or a compare-and-set (decided where it stands in the log): an encoded Done or Fault."""
        answer = self._machine.answered(request.request_id)
        if answer is not None:
            return answer
        held = self._held()
        if held is None:
            return self._refusal()
        lease, times = held
        key = (request.partition, request.row, request.column)
        timestamp = times.write_at(key, self._clock.wall_ns())
        return await self._replicate(encode(self._command(request, key, lease.sequence, timestamp)))

    def _command(self, request: WriteRow | CompareAndSet, key: Key, lease_sequence: int, timestamp: int) -> Change:
        request_id, duration_ns = request.request_id, self._duration_ns
        if isinstance(request, WriteRow):
            return WriteCell(request_id, lease_sequence, timestamp, duration_ns, key, request.value)
        return CompareAndSetCell(
            request_id, lease_sequence, timestamp, duration_ns, key, request.expected, request.value
        )

    async def _replicate(self, command: bytes) -> bytes:
        if self._group is None:
            return self._refusal()
        try:
            return await self._group.submit(command, self._timeout_s)
        except NotLeader as error:
            return _not_leader(error)
        except OutcomeUnknown:
            return _timed_out(definite=False)

    def _held(self) -> tuple[Lease, LeaseTimes] | None:
        """The lease, if its record says that this replica acquired it in the term that it now leads."""
        group, lease = self._group, self._machine.lease
        if group is None or not group.is_leader or lease is None:
            return None
        if lease.holder != self._node_id or lease.term != group.term:
            return None
        if self._times is None or self._times.sequence != lease.sequence:
            self._times = LeaseTimes(lease, self._hlc)
            self._renewal = None
        return lease, self._times

    def _read_now(self, lease: Lease, times: LeaseTimes, request: ReadRow) -> bytes:
        key = (request.partition, request.row, request.column)
        times.settle(self._machine.last_write)
        timestamp = times.read_at(key, self._clock.wall_ns(), lease)
        if self._hlc.last > lease.expiration - self._duration_ns // 2:
            self._renew(lease)
        version = self._machine.read(key, timestamp)
        return encode(ReadReply(version[1] if version else None, timestamp))

    def _renew(self, lease: Lease) -> None:
        """Move the expiration ahead for reads where no write does; one renewal at a time."""
        if self._group is not None and (self._renewal is None or self._renewal.done()):
            command = RenewLease(lease.sequence, self._hlc.last, self._duration_ns)
            self._renewal = self._group.submit(encode(command), self._timeout_s)
            self._renewal.add_done_callback(_look_at)

    def _leadership(self, state: SoftState) -> None:
        self._on_change()
        if state.role is Role.LEADER and self._group is not None:
            self._acquire(self._group)

    def _acquire(self, group: Group) -> None:
        start = self._hlc.now(self._clock.wall_ns())
        command = AcquireLease(self._node_id, group.term, start, self._duration_ns)
        self._acquisition = group.submit(encode(command), _FOR_EVER_S)
        self._acquisition.add_done_callback(_look_at)

    def _refusal(self) -> bytes:
        """Why nothing is served here; a leader whose lease command was refused (its disk was full) asks again."""
        group = self._group
        if group is not None and group.is_leader:
            if self._acquisition is None or self._acquisition.done():
                self._acquire(group)
            return _NO_LEASE
        return _not_leader(NotLeader(group.leader if group else None))


def _look_at(future: asyncio.Future[bytes]) -> None:
    """The outcome of a lease command is read from the state machine; its future only must not complain."""
    if not future.cancelled():
        future.exception()
