"""What a `Ready` says comes after its `persist`: a snapshot is installed, entries are applied, reads are served.

In the order of the Readys, each once its `persist` is durable. What is little is done in the step in which it can be.
An installation, or more entries than one turn of the event loop should take, is done in many turns, so that the node's
other groups go on meanwhile; what follows waits.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from cluster.groups.spec import GroupSpec, StateMachine, apply_entry, part_taker, pass_point
from cluster.groups.waiters import Waiters
from cluster.log.replay import SnapshotRef
from cluster.log.snapshots import gathered
from cluster.log.view import GroupLog
from cluster.raft.types import Entry, EntryKind, Ready
from harness.ports.api import Ports

_TURN_BYTES = 1 << 19
_ENTRY_BYTES = 1 << 10
"""How much is applied in one turn, and what an entry counts for beside its bytes: some milliseconds."""


class AppliedFor(NamedTuple):
    """The group of a state machine: who leads it, whom to tell that the state has moved on, and whom what stops the
    replica (MachineFailed, Quarantined, or a bug of ours)."""

    leader: Callable[[], str | None]
    on_applied: Callable[[], None]
    on_failure: Callable[[BaseException], None]


class Applier:
    """The state machine of one replica, driven."""

    def __init__(
        self,
        spec: GroupSpec,
        machine: StateMachine,
        log: GroupLog,
        ports: Ports,
        waiters: Waiters,
        group: AppliedFor,
    ) -> None:
        self._spec, self._machine, self._log = spec, machine, log
        self._clock, self._failpoints = ports.clock, ports.failpoints
        self._waiters, self._group = waiters, group
        self._waiting: deque[tuple[int, Ready, SnapshotRef | None]] = deque()
        self._durable_sequence = self._applied_term = 0
        self._long_work: asyncio.Task[None] | None = None
        self._installing = self._going_on = False
        self.applied_index = 0

    @property
    def installing(self) -> bool:
        """Whether a snapshot takes the state's place."""
        return self._installing

    @property
    def digest(self) -> int:
        """The digest of the state at `applied_index`, 0 while a snapshot takes its place."""
        return 0 if self._installing else self._machine.digest

    async def restore(self, ref: SnapshotRef) -> None:
        """Replace the state by a snapshot's; raises Quarantined, MachineFailed."""
        meta = ref.meta
        self._installing = True
        await self._log.load_snapshot(ref, part_taker(self._machine, meta))
        self._installing = False
        self._waiters.skip(meta.index, meta.term, self._group.leader())
        self.applied_index, self._applied_term = meta.index, meta.term
        self._spec.on_configured()
        self._spec.observer.restored(self._spec.group_id, meta, self._machine)

    def put(self, ready: Ready, received: SnapshotRef | None) -> None:
        """Carry the rest of a Ready out in its turn; `received` is the snapshot that it installs. Another one may
        replace it in the log before that turn: its file is kept.
        """
        if received is not None:
            self._log.pin(received)
        self._waiting.append((ready.persist.sequence if ready.persist else 0, ready, received))
        self._go_on()

    def durable(self, sequence: int) -> None:
        """Every `persist` up to this sequence is durable."""
        self._durable_sequence = sequence
        if self._waiting:
            self._go_on()

    def close(self) -> None:
        """Carry nothing out any more."""
        for _, _, received in self._waiting:
            if received is not None:
                self._log.unpin(received)
        self._waiting.clear()
        if self._long_work is not None:
            self._long_work.cancel()

    def _go_on(self) -> None:
        """Do what can be done now, as long as it is little; who is told of an entry may cause the next call."""
        if self._going_on:
            return
        self._going_on = True
        left, waiting, armed = _TURN_BYTES, self._waiting, self._failpoints.armed
        while waiting and waiting[0][0] <= self._durable_sequence and self._long_work is None:
            _, ready, received = waiting[0]
            for entry in ready.apply:
                left -= len(entry.data) + _ENTRY_BYTES
            if received is not None or left < 0:
                self._long_work = self._log.spawn(self._go_on_in_turns())
            else:
                waiting.popleft()
                if armed:
                    self._begin(ready)
                for entry in ready.apply:
                    self._apply(entry)
                self._end(ready)
        self._going_on = False

    async def _go_on_in_turns(self) -> None:
        try:
            while self._waiting and self._waiting[0][0] <= self._durable_sequence:
                _, ready, received = self._waiting.popleft()
                if received is not None:
                    try:
                        await self.restore(received)
                    finally:
                        self._log.unpin(received)
                    pass_point(self._failpoints, self._spec, "after_install")
                self._begin(ready)
                weighed = ((entry, len(entry.data) + _ENTRY_BYTES) for entry in ready.apply)
                for entries in gathered(weighed, _TURN_BYTES):
                    for each in entries:
                        self._apply(each)
                    await self._clock.sleep(0)
                self._end(ready)
            self._long_work = None
        except Exception as error:  # noqa: BLE001 - what a state machine raises harms this replica alone (G7)
            self._group.on_failure(error)

    def _begin(self, ready: Ready) -> None:
        if ready.apply and self._failpoints.armed:
            pass_point(self._failpoints, self._spec, "before_apply")

    def _end(self, ready: Ready) -> None:
        if ready.apply and self._failpoints.armed:
            pass_point(self._failpoints, self._spec, "after_apply")
        for read in ready.reads:
            self._waiters.place_read(read.context, read.index)
        self._waiters.resolve_reads(self.applied_index)
        self._group.on_applied()

    def _apply(self, entry: Entry) -> None:
        if entry.term > self._applied_term:
            self._waiters.refuse_older(entry.term, self._group.leader())
            self._applied_term = entry.term
        self.applied_index = entry.index
        self._waiters.resolve(entry.term, entry.index, apply_entry(self._machine, entry))
        if entry.kind == EntryKind.CONFIG:
            self._spec.on_configured()
            pass_point(self._failpoints, self._spec, "after_configuration")
        self._spec.observer.applied(self._spec.group_id, entry.index, self._machine)
