"""All invariants of one run: an observer for each life of a node, and what was found.

Where nobody sees the steps of nodes, as in containers, what their statuses say together is looked at instead (G10).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType

from msgspec.structs import replace

from cluster.groups.observer import NO_STATE, Digested, RaftView
from cluster.invariants.answers import Answers
from cluster.invariants.catalog import CatalogInvariants
from cluster.invariants.disks import DiskInvariants, MachineDisk
from cluster.invariants.findings import BreachLog, Moment, Scope
from cluster.invariants.leases import AnsweredReads, Closing, HybridClock, Leases, MachineClock
from cluster.invariants.questions import CatalogAnswers
from cluster.invariants.raft import KEPT, ONE_LEADER, Elections, First, LogInvariants, Membership, States, WrittenStates
from cluster.invariants.reconciled import ReconciledWatch
from cluster.invariants.standstill import Down, IdleBounds, Standstill, always_ill
from cluster.knobs import Knobs
from cluster.log.envelope import CorruptLog
from cluster.master.catalog import Catalog
from cluster.observer import Observer, Readings
from cluster.quorum.ids import MutationId
from cluster.quorum.messages import QuorumReply, ReplicaRequest, StoreLogged, StoreMutation
from cluster.quorum.slices import Page, Slice
from cluster.quorum.summaries import Summary
from cluster.raft.types import (
    Entry,
    HardState,
    Message,
    NodeId,
    Persist,
    RequestVote,
    RequestVoteReply,
    SnapshotMeta,
)
from cluster.ranges.lease_record import Lease
from cluster.ranges.observer import QuietRange
from cluster.ranges.requests import Change, Read, ReadAnswer, is_strong
from cluster.ranges.tablet import HoldBatch, TabletMachine, WriteBatch
from cluster.store.cells import Span
from cluster.wire.identity import ForeignDisk
from cluster.wire.messages import CATALOG_GROUP, Done, ReadReply, RowRequest, RowsReply, decode_reply
from cluster.wire.nouns import RequestId
from cluster.wire.rows import TypedRowsReply
from harness.ports.failpoints import InjectedFailure
from harness.protocols import InvariantsRecord, NodeStatus
from harness.verdict.leaderships import Leaderships

CACHES = "caches-are-the-catalog"
NO_PANIC = "no-panic"

NOWHERE: Mapping[str, str] = MappingProxyType({})
USUAL_KNOBS = Knobs()


class GroupInvariants:
    """The invariants of one Raft group; what an earlier life of a node has told binds its later ones."""

    __slots__ = ("answers", "closing", "elections", "leases", "log", "membership", "reads", "states", "written")

    def __init__(self, scope: Scope, kept: int) -> None:
        self.log = LogInvariants(scope, kept)
        self.elections = Elections(scope, self.log)
        self.states = States(scope, kept)
        self.written = WrittenStates(scope)
        self.leases = Leases(scope)
        self.closing = Closing(scope)
        self.reads = AnsweredReads(scope)
        self.answers = Answers(scope)
        self.membership = Membership(scope)


class Watch:
    """Watches a whole cluster; `moment` tells time and step, for what is found. `kept` bounds what it remembers.

    `damaged` says of a node whether anything on its disk was ever damaged by others than itself, `data_centres` where
    each one stands, `down` which nodes are down where nothing else is disturbed; `knobs` are those of all nodes.
    """

    def __init__(
        self,
        moment: Moment,
        kept: int = KEPT,
        damaged: Callable[[str], bool] = lambda node: False,
        data_centres: Mapping[str, str] = NOWHERE,
        down: Callable[[], Down] = always_ill,
        knobs: Knobs = USUAL_KNOBS,
    ) -> None:
        self.findings = BreachLog(moment)
        self._kept = kept
        self._damaged = damaged
        self._moment = moment
        self.leaderships = Leaderships()
        self._groups: dict[str, GroupInvariants] = {}
        self.catalog = CatalogInvariants(self.findings)
        self.questions = CatalogAnswers(self.findings, moment)
        self.reconciled = ReconciledWatch(self.findings)
        self.standstill = Standstill(self.findings, moment, down, IdleBounds.of(knobs))
        self.disks = DiskInvariants(self.findings, self.standstill, data_centres)

    def observer(self, node: str, incarnation: int, clock: MachineClock, disk: MachineDisk | None = None) -> Observer:
        """The observer of a life that begins now, on a machine whose clocks and disk these are."""
        self.findings.checked[NO_PANIC] += 1
        self.standstill.began(node)
        if disk is not None:
            self.disks.begin(node, disk)
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
        self.standstill.leads(group, raft.term, life)

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

    __slots__ = ("_asked", "_catalog", "_clock", "_groups", "_hybrid", "_life", "_node", "_servers", "_watch")

    def __init__(self, watch: Watch, life: int, clock: MachineClock) -> None:
        self._watch, self._life, self._clock = watch, life, clock
        self._node = watch.findings.lives.node(life)
        self._catalog = Catalog()
        """What this life has applied of the masters' log; an empty one before."""
        self._asked: list[tuple[object, int | None]] = []
        """Requests that this master works on, each with the lowest entry that its answer may be as of."""
        self._hybrid: HybridClock | None = None
        self._groups: dict[str, GroupInvariants] = {}
        self._servers: dict[str, NodeId] = {}

    def clock_made(self, hlc: Readings, max_offset_ns: int) -> None:
        self._hybrid = HybridClock(self._watch.findings, self._life, self._clock, hlc, max_offset_ns)

    def opened(
        self,
        group: str,
        server: NodeId,
        snapshot: SnapshotMeta | None,
        entries: Sequence[Entry],
        state: HardState = NO_STATE,
    ) -> None:
        self._groups[group] = self._watch.group(group)
        self._servers[group] = server
        self._groups[group].log.opened(self._life, server, snapshot, entries, state)
        self._groups[group].closing.opened(self._life)
        self._groups[group].written.opened(self._life)
        self._groups[group].answers.opened(self._life)
        self._watch.standstill.opened(group, server)

    def leaving(self, group: str, messages: Sequence[Message]) -> None:
        self._watch.standstill.look()
        found, server = self._groups[group], self._servers[group]
        for message in messages:
            if type(message) is RequestVote or type(message) is RequestVoteReply:
                found.elections.leaves(self._life, server, message)
            found.log.leaves(self._life, server, message)

    def became_leader(self, group: str, raft: RaftView) -> None:
        self._watch.became_leader(group, self._life, raft)

    def configured(self, group: str, raft: RaftView) -> None:
        self._groups[group].membership.configured(self._life, raft)

    def durable(self, group: str, batch: Sequence[Persist]) -> None:
        self._watch.disks.durable(self._life, self._node, group, batch)
        self._groups[group].log.durable(self._servers[group], batch)

    def committed(self, group: str, raft: RaftView, entries: Sequence[Entry]) -> None:
        found = self._groups[group]
        found.log.committed(self._life, raft, entries)
        found.leases.committed(self._life, entries)
        if group == CATALOG_GROUP:
            self._watch.questions.committed(entries[-1].index)
        if (configuration := found.membership.committed(entries)) is not None:
            self._watch.catalog.configured(self._life, group, configuration)
            self._watch.standstill.configured(group, configuration.voter_ids)
        if self._hybrid is not None:
            self._hybrid.look()

    def applied(self, group: str, index: int, state: Digested) -> None:
        found = self._groups[group]
        found.states.applied(self._life, index, state.digest)
        if isinstance(state, TabletMachine):
            found.written.applied(self._life, state.written_state)
        elif isinstance(state, Catalog):
            self._catalog = state
            self._watch.catalog.applied(self._life, index, state)
            self._watch.questions.applied(index, state)

    def restored(self, group: str, meta: SnapshotMeta, state: Digested) -> None:
        found = self._groups[group]
        found.states.applied(self._life, meta.index, state.digest)
        if isinstance(state, TabletMachine):
            found.written.applied(self._life, state.written_state)
            found.closing.restored(self._life, state.closed)
        elif isinstance(state, Catalog):
            self._catalog = state
            self._watch.questions.applied(meta.index, state)

    def served_by_lease(self, group: str, raft: RaftView, now_ns: int) -> None:
        self._groups[group].leases.served(self._life, raft, now_ns, self._clock)

    def lease_recorded(self, group: str, before: Lease | None, lease: Lease) -> None:
        self._groups[group].leases.recorded(self._life, before, lease)
        self._groups[group].closing.recorded(self._life, lease)
        self._groups[group].answers.leased(self._life)
        self._watch.standstill.leased(group, lease.term)

    def lease_extended(self, group: str, sequence: int, until: int) -> None:
        self._groups[group].leases.extended(self._life, sequence, until)

    def timestamp_closed(
        self, group: str, sequence: int, closed: int, lease: Lease | None, request: RequestId | None = None
    ) -> None:
        found = self._groups[group]
        if request is not None:
            found.answers.placed(self._life, request, closed)
            self._watch.standstill.closed(self._life, group, closed, self._clock.true_wall_ns())
        self._watch.standstill.closes(group, closed, self._clock.true_wall_ns())
        found.closing.assigned(self._life, sequence, closed, lease, found.leases.lasts(sequence))

    def batch_applied(self, group: str, batch: WriteBatch, closed: int) -> None:
        found = self._groups[group]
        found.closing.applied(self._life, batch, closed)
        if found.reads.applied(self._life, batch):
            found.closing.carried_out(self._life, batch)
            found.answers.applied(self._life, batch)

    def hold_applied(self, group: str, hold: HoldBatch, closed: int) -> None:
        """What is laid lies above what is closed and read; what is committed was laid, and may lie below."""
        found, batch = self._groups[group], hold.batch
        laid = batch if hold.step == "lay" else replace(batch, puts=())
        found.closing.applied(self._life, laid, closed)
        if found.reads.applied(self._life, batch if hold.step != "abort" else laid):
            found.closing.carried_out(self._life, laid)
            found.answers.applied(self._life, batch if hold.step == "commit" else replace(batch, puts=()))

    def ranges_closed(self, closed: int, ranges: Mapping[str, QuietRange]) -> None:
        for group, quiet in ranges.items():
            found = self._groups[group]
            if quiet.end is None:
                found.leases.extended(self._life, quiet.sequence, closed + 1)
            found.closing.named(self._life, closed, quiet)
            self._watch.standstill.closes(group, closed, self._clock.true_wall_ns())

    def closed_read_answered(
        self, group: str, read: Read, spans: Sequence[Span], timestamp: int, found: ReadAnswer, state: TabletMachine
    ) -> None:
        invariants = self._groups[group]
        invariants.closing.served(self._life, timestamp, state.write_index)
        invariants.reads.answered(spans, timestamp)
        invariants.answers.recomputed(self._life, read, spans, timestamp, found)

    def remote_read_answered(
        self, group: str, read: Read, spans: Sequence[Span], timestamp: int, found: ReadAnswer
    ) -> None:
        invariants = self._groups[group]
        invariants.reads.answered(spans, timestamp)
        invariants.answers.recomputed(self._life, read, spans, timestamp, found)

    def read_answered(self, group: str, spans: Iterable[Span], timestamp: int) -> None:
        self._groups[group].reads.answered(spans, timestamp)

    def change_begun(self, group: str, change: Change, spans: Sequence[Span], lowest: int) -> None:
        self._groups[group].answers.begun(self._life, change, spans, lowest)

    def change_ended(self, group: str, request: RequestId) -> None:
        self._groups[group].answers.ended(self._life, request)

    def change_answered(self, group: str, request: RequestId, answer: bytes) -> None:
        self._groups[group].answers.answered(self._life, request, answer)

    def answer_leaves(self, request: RowRequest, answer: bytes) -> None:
        reply = decode_reply(answer)
        if self._hybrid is not None and isinstance(reply, Done | ReadReply | RowsReply | TypedRowsReply):
            self._hybrid.answers(reply.timestamp, isinstance(request, Read) and not is_strong(request))

    def read_found(self, group: str, read: Read, spans: Sequence[Span], timestamp: int, found: ReadAnswer) -> None:
        self._groups[group].answers.found(self._life, read, spans, timestamp, found)

    def caches_served(
        self, tables: Mapping[str, object], tablets: Mapping[str, object], servers: Mapping[str, object]
    ) -> None:
        known, findings = self._catalog, self._watch.findings
        for caches, applied in ((tables, known.tables), (tablets, known.tablets), (servers, known.servers)):
            findings.checked[CACHES] += 1
            if caches != applied:
                differing = [key for key in {**caches, **applied} if caches.get(key) != applied.get(key)]
                message = f"a leader master answers from {len(differing)} records other than the committed ones"
                findings.tell(CACHES, f"{message}, the first is {differing[0]}", (self._life,), None)

    def master_asked(self, request: object) -> None:
        self._watch.standstill.look()  # servers go on to report where all groups are silent
        self._asked.append((request, self._watch.questions.asked(request)))

    def master_answers(self, request: object, reply: object) -> None:
        place = next(at for at, (each, _) in enumerate(self._asked) if each is request)
        _, lowest = self._asked.pop(place)
        self._watch.questions.answered(self._life, request, lowest, reply)

    def tablet_called(self, server: NodeId, request: object) -> None:
        known = self._catalog
        self._watch.catalog.called(self._life, server, request, known.tables, known.tablets)

    def replica_failed(self, group: str, damaged: bool, reason: str) -> None:
        self._watch.replica_failed(self._life, group, damaged, reason)
        if group in self._servers:
            self._watch.standstill.closed_for_good(group, self._servers[group])

    def replica_deleted(self, group: str, server: NodeId, for_good: bool) -> None:
        found = self._watch.group(group)
        found.log.forget(server, for_good)
        self._watch.standstill.closed_for_good(group, server)
        if for_good:
            self._watch.catalog.deleted(self._life, server, group)
            self._watch.standstill.ended(group)
        else:
            found.membership.deleted(self._life, server)

    def replica_answers(self, request: ReplicaRequest, reply: QuorumReply) -> None:
        self._watch.disks.answered(self._life, self._node, request, reply)

    def write_acknowledged(self, level: str, replicas: Collection[str], message: StoreMutation | StoreLogged) -> None:
        self._watch.disks.acknowledged(self._life, self._node, level, replicas, message)

    def id_made(self, each: MutationId) -> None:
        self._watch.disks.id_made(self._life, self._node, each)
        self._watch.reconciled.made(self._life, each)

    def mutation_stored(self, group: str, replicas: Collection[str], each: MutationId, number: int) -> None:
        holders = self._watch.catalog.holders(group) or replicas
        self._watch.reconciled.stored(self._life, group, holders, each, number)

    def mutations_set_aside(self, group: str, numbers: Collection[int]) -> None:
        self._watch.reconciled.set_aside(self._life, group, numbers)

    def log_collected(self, group: str, number: int) -> None:
        self._watch.reconciled.collected(self._life, group, number)

    def snapshot_read(self, group: str, asked: Slice, summary: Summary, page: Page) -> None:
        self._watch.reconciled.read(self._life, group, asked, summary, page)

    def bound_raised(self, group: str, bound: int) -> None:
        self._watch.reconciled.bound_raised(self._life, group, bound)
        self._watch.standstill.bound(group, bound)

    def deletion_purged(self, group: str, taken_ns: int) -> None:
        self._watch.reconciled.purged(self._life, group, taken_ns)


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
