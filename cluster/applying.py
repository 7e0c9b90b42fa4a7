"""What a `Ready` says comes after its `persist`: a snapshot is installed, entries are applied, reads are served.

In the order of the Readys, each once its `persist` is durable. Applying takes one step. Installing takes many, so that
the node's other groups go on meanwhile; what follows it waits, and this replica serves nothing.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from cluster.group_spec import GroupSpec, StateMachine, apply_entry, part_taker
from cluster.log.replay import SnapshotRef
from cluster.log.view import GroupLog
from cluster.passing import Passing
from cluster.raft.types import Entry, EntryKind, Ready
from cluster.waiters import Waiters


class Applier:
    """The state machine of one replica, driven; `leader` says who leads, `on_applied` that the state has moved on.

    `on_failure` gets what stops the replica: MachineFailed, Quarantined, or a bug of ours.
    """

    def __init__(
        self,
        spec: GroupSpec,
        machine: StateMachine,
        log: GroupLog,
        passing: Passing,
        waiters: Waiters,
        leader: Callable[[], str | None],
        on_applied: Callable[[], None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._spec, self._machine, self._log, self._passing = spec, machine, log, passing
        self._waiters, self._leader = waiters, leader
        self._on_applied, self._on_failure = on_applied, on_failure
        self._waiting: deque[tuple[int, Ready, SnapshotRef | None]] = deque()
        self._durable_sequence = self._applied_term = 0
        self._installing: asyncio.Task[None] | None = None
        self.applied_index = 0

    @property
    def installing(self) -> bool:
        """Whether the state is being replaced by a snapshot's."""
        return self._installing is not None

    @property
    def digest(self) -> int:
        """That of the state at `applied_index`, 0 while there is none."""
        return 0 if self.installing else self._machine.digest

    async def restore(self, ref: SnapshotRef) -> None:
        """Replace the state by a snapshot's; raises Quarantined, MachineFailed."""
        meta = ref.meta
        await self._log.load_snapshot(ref, part_taker(self._machine, meta))
        self._waiters.skip(meta.index, meta.term, self._leader())
        self.applied_index, self._applied_term = meta.index, meta.term
        self._spec.on_configured()
        self._spec.observer.restored(self._spec.group_id, meta, self._machine)

    def put(self, ready: Ready, received: SnapshotRef | None) -> None:
        """Carry the rest of a Ready out in its turn; `received` is the snapshot that it installs."""
        if ready.persist is None and not self._waiting and not self.installing:
            self._finish(ready, received)
        else:
            self._waiting.append((ready.persist.sequence if ready.persist else 0, ready, received))

    def durable(self, sequence: int) -> None:
        """Every `persist` up to this sequence is durable."""
        self._durable_sequence = sequence
        self._go_on()

    def close(self) -> None:
        """Carry nothing out any more."""
        self._waiting.clear()
        if self._installing is not None:
            self._installing.cancel()

    def _go_on(self) -> None:
        while self._waiting and not self.installing and self._waiting[0][0] <= self._durable_sequence:
            self._finish(*self._waiting.popleft()[1:])

    def _finish(self, ready: Ready, received: SnapshotRef | None) -> None:
        if received is None:
            self._apply_all(ready)
        else:
            self._installing = self._log.spawn(self._install(ready, received))

    async def _install(self, ready: Ready, received: SnapshotRef) -> None:
        try:
            await self.restore(received)
            self._installing = None
            self._passing.at("after_install")
            self._apply_all(ready)
            self._go_on()
        except Exception as error:  # noqa: BLE001 - what a state machine raises harms this replica alone (G7)
            self._on_failure(error)

    def _apply_all(self, ready: Ready) -> None:
        if ready.apply:
            self._passing.at("before_apply")
            for entry in ready.apply:
                self._apply(entry)
            self._passing.at("after_apply")
        for read in ready.reads:
            self._waiters.place_read(read.context, read.index)
        self._waiters.resolve_reads(self.applied_index)
        self._on_applied()

    def _apply(self, entry: Entry) -> None:
        if entry.term > self._applied_term:
            self._waiters.refuse_older(entry.term, self._leader())
            self._applied_term = entry.term
        self.applied_index = entry.index
        self._waiters.resolve(entry.term, entry.index, apply_entry(self._machine, entry))
        if entry.kind == EntryKind.CONFIG:
            self._spec.on_configured()
            self._passing.at("after_configuration")
        self._spec.observer.applied(self._spec.group_id, entry.index, self._machine)
