"""Reads of a partition as their coordinator carries them out, and the repair of replicas that a read finds behind.

Both designs are state machines: events in, instructions out; the coordinator meets the network. Pure.

- Legacy (Q2). One replica is asked for data, the others that the level needs for digests. Where these agree the data is
  the answer. Otherwise all of them send their data, which is merged. A replica that stopped at the limit knows nothing
  of what lies behind its last row, so the merged rows count up to there only; while they are too few, the replicas that
  stopped first are asked for more (short-read protection). With blocking read repair each replica is then sent what it
  lacks *of the rows that were read*, and the client is answered when they have it. Both steps can tear a write: one
  that spans more rows than the read, and one that arrives between two answers of a replica. That is the design;
  `quorum.md` shows how.
- Logged (Q5). One replica is asked for data and a summary of what it has applied to the partition, as one snapshot; the
  others for summaries. Where these agree, compared from the highest of their bounds on, the data is the answer.
  Otherwise more and more detailed summaries tell which mutations some of them lack. Those are fetched *whole*, applied
  to the answer, and delivered to the replicas that lack them; the client is answered when they are durable there. So no
  mutation is torn by a read, whatever part of it the read covers, and what a read has shown a later one finds. A page
  with a limit may have become too short by deletions in what was missing. Then the same replica is asked for more and
  forwards, whole, whatever it has applied to the partition since its first answer: that goes into all of the page, and
  to the other replicas. So the page is a snapshot again, a later one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import ClassVar, TypeAlias

from cluster.quorum.ids import LOWEST_TIME, MutationId
from cluster.quorum.keys import KeyBytes
from cluster.quorum.messages import (
    DeliverMutations,
    FetchMutations,
    FetchRows,
    LoggedMutation,
    MutationsFetched,
    PartitionSummary,
    QuorumReply,
    ReadSnapshot,
    ReplicaRequest,
    RowsDigest,
    RowsFetched,
    SnapshotGone,
    SnapshotRead,
    StoreMutation,
    SummarizePartition,
)
from cluster.quorum.mutation import PartitionMutation, decode_mutation, encode_mutation
from cluster.quorum.replica_sets import Endpoint, ReplicaSet
from cluster.quorum.rows import NOTHING, PartitionContents, merge_contents
from cluster.quorum.slices import Page, Slice, cut_to, merge_pages, missing, page_digest, page_of, rest_of
from cluster.quorum.summaries import Difference, Summary, difference, more_detail
from harness.levels import Demand

# ---- whom to ask ----


def contacts(ordered: Sequence[Endpoint], wanted: Demand) -> tuple[list[Endpoint], list[Endpoint]]:
    """The first endpoints that together meet the demand, in order, and those that are left, to stand in for them.

    Where the demand names data centres, each gives what is asked of it; what is asked anywhere comes from the first.
    """
    left = dict(wanted.in_each)
    chosen: list[Endpoint] = []
    for endpoint in ordered:
        if left.get(endpoint.data_centre, 0) > 0:
            left[endpoint.data_centre] -= 1
            chosen.append(endpoint)
    others = [endpoint for endpoint in ordered if endpoint not in chosen]
    more = wanted.anywhere
    return [*chosen, *others[:more]], others[more:]


def stand_in(failed: Endpoint, spares: Sequence[Endpoint], wanted: Demand) -> Endpoint | None:
    """Who may be asked in the place of one that failed: where the demand names data centres, one of the same."""
    if failed.data_centre in wanted.in_each:
        return next((spare for spare in spares if spare.data_centre == failed.data_centre), None)
    return next(iter(spares), None)


# ---- legacy ----


class ReadRepair(StrEnum):
    """What is done about replicas that lack what a read has found."""

    BLOCKING = "blocking"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Question:
    """Something to ask one replica; `brief`: it gets only a part of the read's time, for another can stand in."""

    endpoint: Endpoint
    brief: ClassVar[bool] = True

    @property
    def point(self) -> str | None:
        """The failpoint to pass before it is asked, if there is one."""
        return None

    def request(self, replicas: ReplicaSet) -> ReplicaRequest:
        """What is sent to the replica, which is one of these."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class AskForData(Question):
    """Have the replica send the rows of the slice; `again` if it has answered before, and is asked behind that."""

    slice: Slice
    again: bool = False

    @property
    def point(self) -> str | None:
        """The failpoint to pass before it is sent."""
        return "quorum.before_follow_up" if self.again else None

    def request(self, replicas: ReplicaSet) -> ReplicaRequest:
        """What is sent."""
        return FetchRows(replicas.tablet_id, replicas.epoch, self.slice)


@dataclass(frozen=True, slots=True)
class AskForDigest(Question):
    """Have the replica send a digest of the rows of the slice."""

    slice: Slice

    def request(self, replicas: ReplicaSet) -> ReplicaRequest:
        """What is sent."""
        return FetchRows(replicas.tablet_id, replicas.epoch, self.slice, digest_only=True)


@dataclass(frozen=True, slots=True)
class SendRepair(Question):
    """Have the replica take what it lacks of the rows that were read."""

    partition: KeyBytes
    contents: PartitionContents
    brief: ClassVar[bool] = False

    @property
    def point(self) -> str | None:
        """The failpoint to pass before it is sent."""
        return "quorum.before_repair"

    def request(self, replicas: ReplicaSet) -> ReplicaRequest:
        """What is sent: a mutation like any other."""
        encoded = encode_mutation(PartitionMutation(self.partition, self.contents))
        return StoreMutation(replicas.tablet_id, replicas.epoch, encoded)


@dataclass(frozen=True, slots=True)
class PageFound:
    """The read is over: the rows, deletions among them, and the replicas of whose answers they are made."""

    page: Page
    replicas: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The read is over: this replica did not answer, and nobody can stand in for it."""

    node_id: str


LegacyQuestion: TypeAlias = AskForData | AskForDigest | SendRepair
Instruction: TypeAlias = LegacyQuestion | PageFound | GiveUp


class _ReadStage(Enum):
    DIGESTS = "one replica's data, the others' digests"
    DATA = "everybody's data"
    REPAIR = "acknowledgements of repairs"
    OVER = "nothing"


class ReadState:
    """One read under way, of `slice`, from the `chosen` replicas, for some of which `spares` may stand in."""

    def __init__(
        self, slice: Slice, chosen: Sequence[Endpoint], spares: Sequence[Endpoint], wanted: Demand, repair: ReadRepair
    ) -> None:
        self._slice, self._wanted, self._repair = slice, wanted, repair
        self._asked = {endpoint.node_id: endpoint for endpoint in chosen}
        """Whose answers make the result; together they meet the demand, at any time."""
        self._spares = list(spares)
        """Who may stand in for one of them; disjoint from `_asked`."""
        self._stage = _ReadStage.DIGESTS
        """What is waited for."""
        self._awaited: dict[str, None] = {}
        """Whose answers of this stage are due; a part of `_asked`."""
        self._pages: dict[str, Page] = {}
        """What each has sent so far, as one page from the slice's beginning."""
        self._digests: dict[str, bytes] = {}
        """What the others have sent instead, in the first stage."""
        self._data_from = chosen[0].node_id
        """Who is asked for data in the first stage; one of `_asked`."""
        self._found: PageFound | None = None
        """The answer, once it is known; it may have to wait for repairs."""

    def begin(self) -> list[Instruction]:
        """Data from the first, digests from the others."""
        self._awaited = dict.fromkeys(self._asked)
        return [self._ask(endpoint) for endpoint in self._asked.values()]

    # ---- events ----

    def on_answer(self, asked: LegacyQuestion, reply: QuorumReply) -> list[Instruction]:
        """A replica has answered."""
        if isinstance(reply, RowsFetched):
            return self.on_data(asked.endpoint.node_id, reply.page)
        if isinstance(reply, RowsDigest):
            return self.on_digest(asked.endpoint.node_id, reply.digest)
        return self.on_repaired(asked.endpoint.node_id)

    def on_data(self, node_id: str, page: Page) -> list[Instruction]:
        """A replica has sent rows, for the first time or behind those that it had sent."""
        if not self._expected(node_id):
            return []
        before = self._pages.get(node_id)
        if before is not None:
            # It may know of a deletion of the whole partition by now, which counts for all that it sent.
            page = Page(merge_contents([before.contents, page.contents]), page.end)
        self._pages[node_id] = page
        return self._go_on()

    def on_digest(self, node_id: str, digest: bytes) -> list[Instruction]:
        """A replica has sent a digest."""
        if not self._expected(node_id):
            return []
        self._digests[node_id] = digest
        return self._go_on()

    def on_repaired(self, node_id: str) -> list[Instruction]:
        """A replica has made durable what it lacked."""
        return self._go_on() if self._expected(node_id) else []

    def on_missed(self, asked: LegacyQuestion) -> list[Instruction]:
        """A replica could not be reached, refused, or took too long: another one is asked in its place, if any can be.

        Nobody stands in for one that is being repaired: monotonic reads need the repair on as many as were asked.
        """
        node_id = asked.endpoint.node_id
        if not self._expected(node_id):
            return []
        other = None if self._stage is _ReadStage.REPAIR else stand_in(self._asked[node_id], self._spares, self._wanted)
        if other is None:
            self._stage = _ReadStage.OVER
            return [GiveUp(node_id)]
        self._spares.remove(other)
        del self._asked[node_id]
        self._pages.pop(node_id, None)
        self._asked[other.node_id] = other
        self._awaited[other.node_id] = None
        if node_id == self._data_from:
            self._data_from = other.node_id
        return [self._ask(other)]

    # ---- decisions ----

    def _expected(self, node_id: str) -> bool:
        """Whether an answer of this replica is due; from now on it is not."""
        if node_id not in self._awaited or self._stage is _ReadStage.OVER:
            return False
        del self._awaited[node_id]
        return True

    def _ask(self, endpoint: Endpoint) -> Instruction:
        """The first question to a replica in this stage."""
        digest = self._stage is _ReadStage.DIGESTS and endpoint.node_id != self._data_from
        return AskForDigest(endpoint, self._slice) if digest else AskForData(endpoint, self._slice)

    def _go_on(self) -> list[Instruction]:
        if self._awaited:
            return []
        if self._stage is _ReadStage.DIGESTS:
            return self._compare()
        if self._stage is _ReadStage.DATA:
            return self._resolve()
        return self._end()

    def _compare(self) -> list[Instruction]:
        (page,) = self._pages.values()  # In this stage one replica alone was asked for data.
        expected = page_digest(page)
        if all(digest == expected for digest in self._digests.values()):
            self._found = PageFound(page, tuple(self._asked))
            return self._end()
        # All are asked for data, the first again too, so that what is merged was read in one round.
        self._stage, self._pages = _ReadStage.DATA, {}
        self._awaited = dict.fromkeys(self._asked)
        return [self._ask(endpoint) for endpoint in self._asked.values()]

    def _resolve(self) -> list[Instruction]:
        """Merge as far as each of them has told; ask on, or repair, or answer."""
        merged = merge_pages(self._slice, list(self._pages.values()))
        if (rest := rest_of(self._slice, merged)) is not None:
            return self._ask_behind(merged.end, rest)
        self._found = PageFound(merged, tuple(self._asked))
        return self._end() if self._repair is ReadRepair.NONE else self._send_repairs(merged)

    def _ask_behind(self, end: KeyBytes | None, rest: Slice) -> list[Instruction]:
        """Short-read protection: those that stopped first may have rows that sort before what others sent."""
        stopped = [self._asked[node_id] for node_id, page in self._pages.items() if page.end == end]
        self._awaited = dict.fromkeys(endpoint.node_id for endpoint in stopped)
        return [AskForData(endpoint, rest, again=True) for endpoint in stopped]

    def _send_repairs(self, merged: Page) -> list[Instruction]:
        """To each replica what it lacks of what was read, and of nothing else: this is where writes are torn."""
        due = []
        for node_id, endpoint in self._asked.items():
            held = cut_to(self._pages[node_id].contents, self._slice, merged.end)
            lacks = missing(merged.contents, held)
            if not lacks.empty:
                due.append(SendRepair(endpoint, self._slice.partition, lacks))
        if not due:
            return self._end()
        self._stage = _ReadStage.REPAIR
        self._awaited = dict.fromkeys(each.endpoint.node_id for each in due)
        return list(due)

    def _end(self) -> list[Instruction]:
        assert self._found is not None
        self._stage = _ReadStage.OVER
        return [self._found]


# ---- logged ----


@dataclass(frozen=True, slots=True)
class AskForSnapshot(Question):
    """Have the replica send rows and its summary as of one moment; behind `as_of` also what it has applied since."""

    slice: Slice
    as_of: int | None = None

    @property
    def point(self) -> str | None:
        """The failpoint to pass before it is sent."""
        return None if self.as_of is None else "quorum.before_follow_up"

    def request(self, replicas: ReplicaSet) -> ReplicaRequest:
        """What is sent."""
        return ReadSnapshot(replicas.tablet_id, replicas.epoch, self.slice, self.as_of)


@dataclass(frozen=True, slots=True)
class AskForSummary(Question):
    """Have the replica send a summary from a bound on: of now, or of the snapshot that ended with `as_of`."""

    partition: KeyBytes
    bound: int = LOWEST_TIME
    detail: int = 0
    as_of: int | None = None

    def request(self, replicas: ReplicaSet) -> ReplicaRequest:
        """What is sent."""
        key = (replicas.tablet_id, replicas.epoch, self.partition)
        return SummarizePartition(*key, self.bound, self.detail, self.as_of)


@dataclass(frozen=True, slots=True)
class FetchFrom(Question):
    """Have the replica send whole mutations."""

    ids: tuple[MutationId, ...]

    def request(self, replicas: ReplicaSet) -> ReplicaRequest:
        """What is sent."""
        return FetchMutations(replicas.tablet_id, replicas.epoch, self.ids)


@dataclass(frozen=True, slots=True)
class Deliver(Question):
    """Have the replica make mutations durable that it lacks."""

    mutations: tuple[LoggedMutation, ...]
    brief: ClassVar[bool] = False

    @property
    def point(self) -> str | None:
        """The failpoint to pass before it is sent."""
        return "quorum.before_repair"

    def request(self, replicas: ReplicaSet) -> ReplicaRequest:
        """What is sent."""
        return DeliverMutations(replicas.tablet_id, replicas.epoch, self.mutations)


LoggedQuestion: TypeAlias = AskForSnapshot | AskForSummary | FetchFrom | Deliver
LoggedInstruction: TypeAlias = LoggedQuestion | PageFound | GiveUp


class _LoggedStage(Enum):
    SUMMARIES = "summaries, and the first data"
    MUTATIONS = "mutations that some lack"
    DELIVERY = "acknowledgements of mutations that were delivered"
    FOLLOW_UP = "rows behind those that were sent"
    OVER = "nothing"


class LoggedReadState:
    """One read under way, of `slice`, from the `chosen` replicas, for some of which `spares` may stand in.

    `first_cells` is the size of the first sketch, where summaries differ.
    """

    def __init__(
        self,
        slice: Slice,
        chosen: Sequence[Endpoint],
        spares: Sequence[Endpoint],
        wanted: Demand,
        first_cells: int,
        flaws: Collection[str] = (),
    ) -> None:
        self._slice, self._wanted, self._first_cells, self._flaws = slice, wanted, first_cells, flaws
        self._asked = {endpoint.node_id: endpoint for endpoint in chosen}
        """Whose answers make the result, the one whose data it is first; together they meet the demand, at any time."""
        self._spares = list(spares)
        """Who may stand in for one of them; disjoint from `_asked`."""
        self._stage = _LoggedStage.OVER
        """What is waited for."""
        self._awaited: dict[str, LoggedQuestion] = {}
        """The questions of this stage that are not answered, one for each replica at most."""
        self._summaries: dict[str, Summary] = {}
        """What each has applied to the partition, by its latest summary."""
        self._detail = 0
        """The size of the sketches that are asked for, 0 while plain summaries do; it only grows within an attempt."""
        self._page = Page(NOTHING)
        """The answer so far: the first one's rows, with the mutations of others that it lacked."""
        self._as_of = 0
        """The moment of the first one's latest snapshot: its last place in the log then."""
        self._mutations: dict[MutationId, bytes] = {}
        """Mutations that somebody lacks, whole and encoded, as far as they are fetched."""
        self._due: dict[str, tuple[MutationId, ...]] = {}
        """What each replica lacks, until it is sent."""

    def begin(self) -> list[LoggedInstruction]:
        """Data and a summary from the first, summaries from the others."""
        self._detail = 0
        self._summaries, self._mutations, self._due = {}, {}, {}
        first, *others = self._asked.values()
        asks = [AskForSummary(endpoint, self._slice.partition) for endpoint in others]
        return self._ask(_LoggedStage.SUMMARIES, [AskForSnapshot(first, self._slice), *asks])

    # ---- events ----

    def on_answer(self, asked: LoggedQuestion, reply: QuorumReply) -> list[LoggedInstruction]:
        """A replica has answered."""
        node_id = asked.endpoint.node_id
        if not self._expected(asked):
            return []
        if isinstance(reply, SnapshotGone):
            return self.begin()
        if isinstance(reply, SnapshotRead):
            self._take_snapshot(node_id, reply)
        elif isinstance(reply, PartitionSummary):
            self._summaries[node_id] = reply.summary
        elif isinstance(reply, MutationsFetched):
            self._mutations |= {each.id: each.mutation for each in reply.mutations}
        return [] if self._awaited else self._go_on()

    def on_missed(self, asked: LoggedQuestion) -> list[LoggedInstruction]:
        """A replica could not be reached, refused, or took too long: another one is asked in its place, if any can be.

        Nobody stands in for one that lacks something: monotonic reads need it on as many as were asked.
        """
        node_id = asked.endpoint.node_id
        if not self._expected(asked):
            return []
        failed = self._asked[node_id]
        other = None if self._stage is _LoggedStage.DELIVERY else stand_in(failed, self._spares, self._wanted)
        if other is None:
            self._ask(_LoggedStage.OVER, ())
            return [GiveUp(node_id)]
        self._spares.remove(other)
        del self._asked[node_id]
        self._asked[other.node_id] = other
        return self.begin()

    # ---- decisions ----

    @property
    def _first(self) -> str:
        """Whose data is the answer."""
        return next(iter(self._asked))

    def _expected(self, asked: LoggedQuestion) -> bool:
        """Whether just this question's answer is due; from now on it is not."""
        node_id = asked.endpoint.node_id
        if self._awaited.get(node_id) is not asked:
            return False
        del self._awaited[node_id]
        return True

    def _ask(self, stage: _LoggedStage, questions: Sequence[LoggedQuestion]) -> list[LoggedInstruction]:
        """Ask these questions, one for each replica: nothing else is waited for now."""
        self._stage, self._awaited = stage, {each.endpoint.node_id: each for each in questions}
        return list(questions)

    def _take_snapshot(self, node_id: str, reply: SnapshotRead) -> None:
        self._as_of = reply.as_of
        if self._stage is _LoggedStage.SUMMARIES:
            self._page, self._summaries[node_id] = reply.page, reply.summary
            return
        newer = {each.id: each.mutation for each in reply.newer if each.id not in self._mutations}
        self._mutations |= newer
        # What is known of the first part by now: all that was applied since goes into it.
        self._page = Page(merge_contents([self._page.contents, reply.page.contents]), reply.page.end)
        self._apply(newer)
        self._due = {node: tuple(newer) for node in self._asked if node != node_id and newer}

    def _go_on(self) -> list[LoggedInstruction]:
        if self._stage is _LoggedStage.SUMMARIES:
            return self._compare()
        if self._stage is _LoggedStage.MUTATIONS:
            wanted = dict.fromkeys(each for ids in self._due.values() for each in ids)
            if any(each not in self._mutations for each in wanted):
                return self.begin()  # it was reconciled meanwhile, so that everybody has it by now
            self._apply(self._due.get(self._first, ()))
            return self._deliver()
        if self._stage is _LoggedStage.FOLLOW_UP:
            return self._deliver()
        return self._answer()

    def _compare(self) -> list[LoggedInstruction]:
        # Below its bound a replica has forgotten ids, and every replica has the mutations: so sets of ids compare only
        # from the highest bound on (CEP-45).
        bound = max(summary.bound for summary in self._summaries.values())
        below = [node for node, summary in self._summaries.items() if summary.bound < bound]
        if below:
            return self._ask_for_summaries(below, bound)
        own = self._summaries[self._first]
        weak = "weak-summary" in self._flaws
        differing = [node for node, summary in self._summaries.items() if not own.agrees(summary, weak)]
        if not differing:
            return self._answer()
        involved = [self._first, *differing]
        if self._detail == 0:
            self._grow(involved)
        # Sketches of different sizes can't be subtracted: whoever differs, and whoever is compared with, has one size.
        vague = [node for node in involved if self._summaries[node].detail != self._detail]
        if vague:
            return self._ask_for_summaries(vague, bound)
        overflow_is_equal = "sketch-overflow-is-equal" in self._flaws
        found = {node: difference(own, self._summaries[node], overflow_is_equal) for node in differing}
        differences = {node: each for node, each in found.items() if each is not None}
        if len(differences) < len(found):
            # Some sketch overflowed. Sizes grow until the ids themselves are cheaper, so this ends.
            self._grow(involved)
            return self._ask_for_summaries(involved, bound)
        return self._fetch(differences)

    def _grow(self, involved: Iterable[str]) -> None:
        most = max(self._summaries[node].count for node in involved)
        self._detail = more_detail(self._detail, most, self._first_cells)

    def _ask_for_summaries(self, nodes: Sequence[str], bound: int) -> list[LoggedInstruction]:
        """Of the replica whose data is the answer one as of that data, for what it has applied since is not in it."""
        as_of = {self._first: self._as_of}
        questions = [
            AskForSummary(self._asked[node], self._slice.partition, bound, self._detail, as_of.get(node))
            for node in nodes
        ]
        return self._ask(_LoggedStage.SUMMARIES, questions)

    def _fetch(self, differences: dict[str, Difference]) -> list[LoggedInstruction]:
        """What somebody lacks, from one that has it."""
        # `lacking` is what the replica whose data is the answer does not have: the others together have it. Each of
        # them lacks what only the first has, and what of `lacking` it does not have itself.
        holders: dict[MutationId, str] = {}
        for node, each in differences.items():
            holders |= dict.fromkeys(each.only_other, node)
        lacking = tuple(sorted(holders))
        self._due = {self._first: lacking}
        for node in self._asked:
            if node != self._first:
                each = differences.get(node, _NO_DIFFERENCE)
                has = dict.fromkeys(each.only_other)
                self._due[node] = (*each.only_one, *(id for id in lacking if id not in has))
                holders |= dict.fromkeys(each.only_one, self._first)
        if not holders:
            return self._answer()  # Summaries differed in a set hash only: with the flaw, overflow counts as equal.
        wanted: dict[str, list[MutationId]] = {}
        for id in sorted(holders):
            wanted.setdefault(holders[id], []).append(id)
        return self._ask(
            _LoggedStage.MUTATIONS, [FetchFrom(self._asked[node], tuple(ids)) for node, ids in wanted.items()]
        )

    def _apply(self, ids: Iterable[MutationId]) -> None:
        """Let mutations take part in the page, as far as it goes."""
        contents = [decode_mutation(self._mutations[each]).contents for each in ids]
        parts = [cut_to(each, self._slice, self._page.end) for each in contents]
        self._page = Page(merge_contents([self._page.contents, *parts]), self._page.end)

    def _deliver(self) -> list[LoggedInstruction]:
        due, self._due = {node: ids for node, ids in self._due.items() if ids}, {}
        sent = self._ask(
            _LoggedStage.DELIVERY,
            [Deliver(self._asked[node], tuple(map(self._delivered, ids))) for node, ids in due.items()],
        )
        if not sent or "repair-reply-first" in self._flaws:
            return [*sent, *self._answer()]
        return sent

    def _delivered(self, each: MutationId) -> LoggedMutation:
        encoded = self._mutations[each]
        if "reconcile-read-rows-only" in self._flaws:
            whole = decode_mutation(encoded)
            read = cut_to(whole.contents, self._slice, self._page.end)
            encoded = encode_mutation(PartitionMutation(whole.partition, read))
        return LoggedMutation(each, encoded)

    def _answer(self) -> list[LoggedInstruction]:
        """The page, or a question for more where what was missing has made it too short."""
        page = self._page = page_of(self._page.contents, self._slice, self._page.end)
        if (rest := rest_of(self._slice, page)) is not None:
            return self._ask(_LoggedStage.FOLLOW_UP, [AskForSnapshot(self._asked[self._first], rest, self._as_of)])
        self._ask(_LoggedStage.OVER, ())
        return [PageFound(page, tuple(self._asked))]


_NO_DIFFERENCE = Difference((), ())
