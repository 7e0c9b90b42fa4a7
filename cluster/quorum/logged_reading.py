"""A read of a logged partition, as its coordinator carries it out (Q5): events in, instructions out. Pure.

One replica is asked for data and a summary of what it has applied to the partition, as one snapshot; the others for
summaries. Where these agree, compared from the highest of their bounds on, the data is the answer. Otherwise more and
more detailed summaries tell which mutations some of them lack. Those are fetched *whole*, applied to the answer, and
delivered to the replicas that lack them; the client is answered when they are durable there. So no mutation is torn by
a read, whatever part of it the read covers, and what a read has shown a later one finds.

A page with a limit may have become too short by deletions in what was missing. Then the same replica is asked for more
and forwards, whole, whatever it has applied to the partition since its first answer: that goes into all of the page,
and to the other replicas. So the page is a snapshot again, a later one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar, TypeAlias

from cluster.quorum.choosing import stand_in
from cluster.quorum.ids import LOWEST_TIME, MutationId
from cluster.quorum.keys import KeyBytes
from cluster.quorum.messages import (
    DeliverMutations,
    FetchMutations,
    LoggedMutation,
    MutationsFetched,
    PartitionSummary,
    QuorumReply,
    ReadSnapshot,
    ReplicaRequest,
    SnapshotGone,
    SnapshotRead,
    SummarizePartition,
)
from cluster.quorum.mutation import PartitionMutation, decode_mutation, encode_mutation
from cluster.quorum.reading import GiveUp, PageFound
from cluster.quorum.replica_sets import Endpoint, ReplicaSet
from cluster.quorum.rows import NOTHING, merge_contents
from cluster.quorum.slices import Page, Slice, behind, cut_to, live_rows, page_of
from cluster.quorum.summaries import Difference, Summary, difference, more_detail
from harness.levels import Demand


@dataclass(frozen=True, slots=True)
class AskForSnapshot:
    """Have the replica send rows and its summary as of one moment; behind `as_of` also what it has applied since."""

    endpoint: Endpoint
    slice: Slice
    as_of: int | None = None
    brief: ClassVar[bool] = True

    @property
    def point(self) -> str | None:
        """The failpoint to pass before it is sent."""
        return None if self.as_of is None else "quorum.before_follow_up"

    def request(self, replicas: ReplicaSet) -> ReplicaRequest:
        """What is sent."""
        return ReadSnapshot(replicas.tablet_id, replicas.epoch, self.slice, self.as_of)


@dataclass(frozen=True, slots=True)
class AskForSummary:
    """Have the replica send a summary from a bound on: of now, or of the snapshot that ended with `as_of`."""

    endpoint: Endpoint
    partition: KeyBytes
    bound: int = LOWEST_TIME
    detail: int = 0
    as_of: int | None = None
    brief: ClassVar[bool] = True
    point: ClassVar[str | None] = None

    def request(self, replicas: ReplicaSet) -> ReplicaRequest:
        """What is sent."""
        key = (replicas.tablet_id, replicas.epoch, self.partition)
        return SummarizePartition(*key, self.bound, self.detail, self.as_of)


@dataclass(frozen=True, slots=True)
class FetchFrom:
    """Have the replica send whole mutations."""

    endpoint: Endpoint
    ids: tuple[MutationId, ...]
    brief: ClassVar[bool] = True
    point: ClassVar[str | None] = None

    def request(self, replicas: ReplicaSet) -> ReplicaRequest:
        """What is sent."""
        return FetchMutations(replicas.tablet_id, replicas.epoch, self.ids)


@dataclass(frozen=True, slots=True)
class Deliver:
    """Have the replica make mutations durable that it lacks."""

    endpoint: Endpoint
    mutations: tuple[LoggedMutation, ...]
    brief: ClassVar[bool] = False
    point: ClassVar[str | None] = "quorum.before_repair"

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
        self._spares = list(spares)
        self._stage = _LoggedStage.OVER
        self._awaited: dict[str, LoggedQuestion] = {}
        self._summaries: dict[str, Summary] = {}
        self._detail = 0
        self._page = Page(NOTHING)
        self._as_of = 0
        self._mutations: dict[MutationId, bytes] = {}
        self._due: dict[str, tuple[MutationId, ...]] = {}

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
        """These, and nothing else, are waited for now; one for each replica."""
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
        vague = [node for node in involved if self._summaries[node].detail != self._detail]
        if vague:
            return self._ask_for_summaries(vague, bound)
        overflow_is_equal = "sketch-overflow-is-equal" in self._flaws
        found = {node: difference(own, self._summaries[node], overflow_is_equal) for node in differing}
        differences = {node: each for node, each in found.items() if each is not None}
        if len(differences) < len(found):
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
            return self._answer()
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
        limit = self._slice.limit
        lack = 0 if limit is None else limit - live_rows(page.contents)
        if page.end is not None and lack > 0 and (rest := behind(self._slice, page.end, lack)).spans:
            return self._ask(_LoggedStage.FOLLOW_UP, [AskForSnapshot(self._asked[self._first], rest, self._as_of)])
        self._ask(_LoggedStage.OVER, ())
        return [PageFound(page, tuple(self._asked))]


_NO_DIFFERENCE = Difference((), ())
