"""All invariants of one run: an observer for each life of a node, and what was found.

Where nobody sees the steps of nodes, as in containers, what their statuses say together is looked at instead (G10).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from cluster.groups.observer import Digested, RaftView
from cluster.invariants.catalog import CatalogInvariants
from cluster.invariants.findings import BreachLog, Moment, Scope
from cluster.invariants.leases import AnsweredReads, Closing, HybridClock, Leases, MachineClock
from cluster.invariants.raft import KEPT, ONE_LEADER, Elections, First, LogInvariants, Membership, States, WrittenStates
from cluster.invariants.reconciled import ReconciledWatch
from cluster.log.envelope import CorruptLog
from cluster.master.catalog import Catalog
from cluster.observer import Observer, Readings
from cluster.quorum.ids import MutationId
from cluster.quorum.slices import Page, Slice
from cluster.quorum.summaries import Summary
from cluster.raft.types import Entry, NodeId, Persist, SnapshotMeta
from cluster.ranges.lease_record import Lease
from cluster.ranges.tablet import TabletMachine, WriteBatch
from cluster.store.cells import Span
from cluster.wire.identity import ForeignDisk
from harness.ports.failpoints import InjectedFailure
from harness.protocols import InvariantsRecord, NodeStatus
from harness.verdict.leaderships import Leaderships

CACHES = "caches-are-the-catalog"
NO_PANIC = "no-panic"


class GroupInvariants:
    """The invariants of one Raft group; what an earlier life of a node has told binds its later ones."""

    __slots__ = ("closing", "elections", "leases", "log", "membership", "reads", "states", "written")

    def __init__(self, scope: Scope, kept: int) -> None:
        self.log = LogInvariants(scope, kept)
        self.elections = Elections(scope, self.log)
        self.states = States(scope, kept)
        self.written = WrittenStates(scope)
        self.leases = Leases(scope)
        self.closing = Closing(scope)
        self.reads = AnsweredReads(scope)
        self.membership = Membership(scope)


class Watch:
    """Watches a whole cluster; `moment` tells time and step, for what is found. `kept` bounds what it remembers.

    `damaged` says of a node whether anything on its disk was ever damaged by others than itself.
    """

    def __init__(self, moment: Moment, kept: int = KEPT, damaged: Callable[[str], bool] = lambda node: False) -> None:
        self.findings = BreachLog(moment)
        self._kept = kept
        self._damaged = damaged
        self._moment = moment
        self.leaderships = Leaderships()
        self._groups: dict[str, GroupInvariants] = {}
        self.catalog = CatalogInvariants(self.findings)
        self.reconciled = ReconciledWatch(self.findings)

    def observer(self, node: str, incarnation: int, clock: MachineClock) -> Observer:
        """The observer of a life that begins now, on a machine whose clocks these are."""
        self.findings.checked[NO_PANIC] += 1
        return _Life(self, self.findings.lives.begin(node, incarnation), clock)

    def group(self, group: str) -> GroupInvariants:
        """The invariants of a group, made at first use."""
        found = self._groups.get(group)
        if found is None:
            found = self._groups[group] = GroupInvariants(Scope(self.findings, group), self._kept)
        return found

    def became_leader(self, group: str, life: int, raft: RaftView) -> None:
        """A replica leads its group from now on."""
        self.leaderships.leads(group, raft.term, self.findings.lives.node(life), self._moment()[0])
        self._groups[group].elections.became_leader(life, raft)
        self._groups[group].leases.began(life, raft)

    def panicked(self, node: str, error: BaseException) -> None:
        """A node gave up by itself: only a disk may bring one to that (G7)."""
        damage = isinstance(error, CorruptLog) and self._damaged(node)
        if not (damage or isinstance(error, OSError | ForeignDisk)):
            message = f"a node stopped: {type(error).__name__}: {error}"
            self.findings.tell(NO_PANIC, message, (self.findings.lives.latest(node),), None)

    def unhandled(self, node: str, error: BaseException) -> None:
        """A handler or a task of a node ended by an exception that nothing in it took: a part of it may be missing.

        What a failpoint was told to raise ends what it was raised in, as a lost connection would.
        """
        if isinstance(error, InjectedFailure):
            return
        message = f"nothing handled an exception in a node: {type(error).__name__}: {error}"
        self.findings.tell(NO_PANIC, message, (self.findings.lives.latest(node),), None)

    def replica_failed(self, life: int, group: str, damaged: bool, reason: str) -> None:
        """A replica gave up by itself: only damage may bring one to that, and none makes its program fail (G7)."""
        node = self.findings.lives.node(life)
        if damaged and self._damaged(node):
            self.group(group).log.damaged(node)
        else:
            what = "is quarantined on a disk that nothing has damaged" if damaged else "failed"
            self.findings.tell(NO_PANIC, f"a replica {what}: {reason}", (life,), group)

    def record(self) -> InvariantsRecord:
        """What was checked and found so far."""
        return self.findings.record()


class _Life(Observer):
    """Implements `Observer` for one life of one node; its replicas say as which members of their groups they begin."""

    __slots__ = ("_clock", "_groups", "_hybrid", "_life", "_servers", "_watch")

    def __init__(self, watch: Watch, life: int, clock: MachineClock) -> None:
        self._watch, self._life, self._clock = watch, life, clock
        self._hybrid: HybridClock | None = None
        self._groups: dict[str, GroupInvariants] = {}
        self._servers: dict[str, NodeId] = {}

    def clock_made(self, hlc: Readings, max_offset_ns: int) -> None:
        self._hybrid = HybridClock(self._watch.findings, self._life, self._clock, hlc, max_offset_ns)

    def opened(self, group: str, server: NodeId, snapshot: SnapshotMeta | None, entries: Sequence[Entry]) -> None:
        self._groups[group] = self._watch.group(group)
        self._servers[group] = server
        self._groups[group].log.opened(self._life, server, snapshot, entries)
        self._groups[group].closing.opened(self._life)
        self._groups[group].written.opened(self._life)

    def voted(self, group: str, term: int, candidate: NodeId) -> None:
        self._groups[group].elections.voted(self._life, self._servers[group], term, candidate)

    def became_leader(self, group: str, raft: RaftView) -> None:
        self._watch.became_leader(group, self._life, raft)

    def configured(self, group: str, raft: RaftView) -> None:
        self._groups[group].membership.configured(self._life, raft)

    def durable(self, group: str, batch: Sequence[Persist]) -> None:
        self._groups[group].log.durable(self._servers[group], batch)

    def committed(self, group: str, raft: RaftView, entries: Sequence[Entry]) -> None:
        found = self._groups[group]
        found.log.committed(self._life, raft, entries)
        if (configuration := found.membership.committed(entries)) is not None:
            self._watch.catalog.configured(self._life, group, configuration)
        if self._hybrid is not None:
            self._hybrid.look()

    def applied(self, group: str, index: int, state: Digested) -> None:
        found = self._groups[group]
        found.states.applied(self._life, index, state.digest)
        if isinstance(state, TabletMachine):
            found.written.applied(self._life, state.written_state)
        elif isinstance(state, Catalog):
            self._watch.catalog.applied(self._life, index, state)

    def restored(self, group: str, meta: SnapshotMeta, state: Digested) -> None:
        found = self._groups[group]
        found.states.applied(self._life, meta.index, state.digest)
        if isinstance(state, TabletMachine):
            found.written.applied(self._life, state.written_state)
            found.closing.restored(self._life, state.closed)

    def served_by_lease(self, group: str, raft: RaftView, now_ns: int) -> None:
        self._groups[group].leases.served(self._life, raft, now_ns, self._clock)

    def lease_recorded(self, group: str, before: Lease | None, lease: Lease) -> None:
        self._groups[group].leases.recorded(self._life, before, lease)
        self._groups[group].closing.recorded(self._life, lease)

    def lease_extended(self, group: str, sequence: int, until: int) -> None:
        self._groups[group].leases.extended(self._life, sequence, until)

    def timestamp_closed(self, group: str, sequence: int, closed: int, lease: Lease | None) -> None:
        found = self._groups[group]
        found.closing.assigned(self._life, sequence, closed, lease, found.leases.lasts(sequence))

    def batch_applied(self, group: str, batch: WriteBatch, closed: int) -> None:
        self._groups[group].closing.applied(self._life, batch, closed)
        self._groups[group].reads.applied(self._life, batch)

    def read_answered(self, group: str, spans: Iterable[Span], timestamp: int) -> None:
        self._groups[group].reads.answered(spans, timestamp)

    def caches_served(self, caches: Mapping[str, object], catalog: Mapping[str, object]) -> None:
        findings = self._watch.findings
        findings.checked[CACHES] += 1
        if caches != catalog:
            differing = [key for key in {**caches, **catalog} if caches.get(key) != catalog.get(key)]
            message = f"a leader master answers from {len(differing)} records other than the committed ones"
            findings.tell(CACHES, f"{message}, the first is {differing[0]}", (self._life,), None)

    def tablet_called(
        self, server: NodeId, request: object, tables: Mapping[str, Any], tablets: Mapping[str, Any]
    ) -> None:
        self._watch.catalog.called(self._life, server, request, tables, tablets)

    def replica_failed(self, group: str, damaged: bool, reason: str) -> None:
        self._watch.replica_failed(self._life, group, damaged, reason)

    def replica_deleted(self, group: str, server: NodeId, for_good: bool) -> None:
        found = self._watch.group(group)
        found.log.forget(server, for_good)
        if for_good:
            self._watch.catalog.deleted(self._life, server, group)
        else:
            found.membership.deleted(self._life, server)

    def id_made(self, each: MutationId) -> None:
        self._watch.reconciled.made(self._life, each)

    def mutation_stored(self, group: str, replicas: Collection[str], each: MutationId, number: int) -> None:
        self._watch.reconciled.stored(self._life, group, replicas, each, number)

    def mutations_set_aside(self, group: str, numbers: Collection[int]) -> None:
        self._watch.reconciled.set_aside(self._life, group, numbers)

    def log_collected(self, group: str, number: int) -> None:
        self._watch.reconciled.collected(self._life, group, number)

    def snapshot_read(self, group: str, asked: Slice, summary: Summary, page: Page) -> None:
        self._watch.reconciled.read(self._life, group, asked, summary, page)

    def bound_raised(self, group: str, bound: int) -> None:
        self._watch.reconciled.bound_raised(self._life, group, bound)

    def deletion_purged(self, group: str, taken_ns: int, low_bound: int) -> None:
        self._watch.reconciled.purged(self._life, group, taken_ns, low_bound)


# ---- where nobody sees the steps: in containers ----
# What a replica says of a term or of an index is true for ever, so reports need not be of one moment to be compared.


class Reports:
    """Fed with every status that is asked for.

    `damaged` says of a node whether anything on its disk was ever damaged by others than itself.
    """

    def __init__(self, damaged: Callable[[str], bool] = lambda node: False) -> None:
        self._damaged = damaged
        self._findings = BreachLog(lambda: (0, 0))
        self._lives: dict[tuple[str, int], int] = {}
        self._leaders: First[tuple[str, int], int] = First()
        self._states: dict[str, States] = {}

    def take(self, status: NodeStatus) -> None:
        """One leader in a term, equal states at equal applied index, and no replica that has failed."""
        life = self._life(status.node, status.incarnation)
        for group in status.groups:
            scope = Scope(self._findings, group.group)
            self._findings.checked[NO_PANIC] += 1
            if group.role == "failed":
                scope.tell(NO_PANIC, "a replica has failed", life)
            elif group.role == "quarantined" and not self._damaged(status.node):
                scope.tell(NO_PANIC, "a replica is quarantined on a disk that nothing has damaged", life)
            if group.role == "leader":
                self._findings.checked[ONE_LEADER] += 1
                first = self._leaders.of((group.group, group.term), life)
                if first != life:
                    scope.tell(ONE_LEADER, f"two replicas lead in term {group.term}", first, life)
            if group.digest:
                self._states.setdefault(group.group, States(scope)).applied(life, group.applied_index, group.digest)

    def record(self) -> InvariantsRecord:
        """What was compared and found so far."""
        return self._findings.record()

    def _life(self, node: str, incarnation: int) -> int:
        life = self._lives.get((node, incarnation))
        if life is None:
            life = self._lives[node, incarnation] = self._findings.lives.begin(node, incarnation)
        return life
