"""Reads of logged partitions, pure: against replicas that are logs in a dictionary (Q5)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mutations import KEYS, PARTITIONS, Statements, has_applied, statements

from cluster.quorum.ids import LOWEST_TIME, MutationId
from cluster.quorum.messages import (
    LoggedMutation,
    MutationsFetched,
    PartitionSummary,
    QuorumReply,
    SnapshotGone,
    SnapshotRead,
    Stored,
)
from cluster.quorum.mutation import decode_mutation, encode_mutation
from cluster.quorum.mutation_log import MutationLog
from cluster.quorum.read_repair import (
    AskForSnapshot,
    AskForSummary,
    Deliver,
    FetchFrom,
    GiveUp,
    LoggedInstruction,
    LoggedQuestion,
    LoggedReadState,
    PageFound,
)
from cluster.quorum.replica_sets import Endpoint
from cluster.quorum.rows import NOTHING, PartitionContents, merge_contents
from cluster.quorum.slices import Slice, page_of
from cluster.quorum.summaries import summarize
from harness.levels import Demand
from tests.cluster.quorum.test_legacy_reading import slices

ENDPOINTS = tuple(Endpoint(name, f"{name}:1", "z1") for name in ("a", "b", "c"))
QUORUM = Demand(2, {})
PARTITION = PARTITIONS[0]


class LogReplica:
    """One replica: what it has applied, in order."""

    def __init__(self) -> None:
        self.log = MutationLog()
        self.applied: dict[MutationId, bytes] = {}
        self.contents = NOTHING

    def take(self, each: MutationId, said: Statements | bytes) -> None:
        encoded = said if isinstance(said, bytes) else encode_mutation(said.mutation())
        if has_applied(self.log, each):
            return
        self.applied[each] = encoded
        self.contents = merge_contents([self.contents, decode_mutation(encoded).contents])
        self.log.stored(self.log.last + 1, each, PARTITION)

    def answer(self, question: LoggedQuestion) -> QuorumReply:
        log = self.log
        if isinstance(question, AskForSnapshot):
            newer = () if question.as_of is None else log.newer(PARTITION, question.as_of)
            if newer is None:
                return SnapshotGone()
            sent = tuple(LoggedMutation(each, self.applied[each]) for each in newer)
            return SnapshotRead(page_of(self.contents, question.slice), log.summary(PARTITION), log.last, sent)
        if isinstance(question, Deliver):
            for each in question.mutations:
                self.take(each.id, each.mutation)
            return Stored()
        if isinstance(question, AskForSummary):
            summary = log.summary_of(PARTITION, question.bound, question.detail, question.as_of)
            return SnapshotGone() if summary is None else PartitionSummary(summary)
        known = [each for each in question.ids if each in log.index]
        return MutationsFetched(tuple(LoggedMutation(each, self.applied[each]) for each in known))


class Cluster:
    """Three replicas, what is written to them, and the low bound that is being raised on one after the other."""

    def __init__(self, flaws: tuple[str, ...] = ()) -> None:
        self.replicas = {each.node_id: LogReplica() for each in ENDPOINTS}
        self.time, self.flaws = 0, flaws
        self.raising: list[tuple[str, int]] = []
        self.asked: list[LoggedQuestion] = []

    def write(self, said: Statements, where: set[str]) -> None:
        self.time += 1
        for node in where:
            self.replicas[node].take(MutationId(self.time, "t1"), said)

    def reconcile(self) -> None:
        """Everything is delivered everywhere; then nothing below the present time is new, and bounds rise in turn."""
        for one in self.replicas.values():
            for other in self.replicas.values():
                for each, encoded in one.applied.items():
                    other.take(each, encoded)
        self.time += 1
        self.raising = [(node, self.time) for node in self.replicas]

    def raise_next(self) -> None:
        if self.raising:
            node, bound = self.raising.pop()
            self.replicas[node].log.forget_below(bound)

    def read(self, asked: Slice, chosen: list[Endpoint], cells: int = 2, spares: int = 0) -> LoggedReadState:
        return LoggedReadState(asked, chosen, ENDPOINTS[:spares], Demand(len(chosen), {}), cells, self.flaws)

    def run(self, state: LoggedReadState, data: st.DataObject | None = None, more: bool = False) -> PageFound | GiveUp:
        """Answer questions to the end, in an order that is drawn; with `more` other things happen in between."""
        waiting: list[LoggedInstruction] = state.begin()
        while True:
            ended = [each for each in waiting if isinstance(each, PageFound | GiveUp)]
            if ended:
                return ended[0]
            if more and data is not None and self.time < 60:
                self.happen(data)
            at = 0 if data is None else data.draw(st.integers(0, len(waiting) - 1))
            question = waiting.pop(at)
            assert not isinstance(question, PageFound | GiveUp)
            self.asked.append(question)
            waiting += state.on_answer(question, self.replicas[question.endpoint.node_id].answer(question))

    @property
    def delivered(self) -> list[LoggedMutation]:
        """What the read has delivered to anybody."""
        return [mutation for each in self.asked if isinstance(each, Deliver) for mutation in each.mutations]

    def happen(self, data: st.DataObject) -> None:
        what = data.draw(st.sampled_from(["nothing", "write", "reconcile", "raise", "raise"]))
        if what == "write":
            self.write(data.draw(STATEMENTS), data.draw(st.sets(st.sampled_from("abc"), min_size=1)))
        elif what == "reconcile" and not self.raising:
            self.reconcile()
        elif what == "raise":
            self.raise_next()


STATEMENTS = statements(st.integers(1, 30))
HISTORIES = st.lists(st.tuples(STATEMENTS, st.sets(st.sampled_from("abc"), min_size=1)), max_size=8)


def of_all(applied: dict[MutationId, bytes]) -> PartitionContents:
    return merge_contents([NOTHING, *(decode_mutation(each).contents for each in applied.values())])


def written(history: list[tuple[Statements, set[str]]], reconciled: int = 0) -> Cluster:
    cluster = Cluster()
    for at, (said, where) in enumerate(history):
        cluster.write(said, where)
        if at + 1 == reconciled:
            cluster.reconcile()
    return cluster


@given(HISTORIES, st.integers(0, 8), slices(), st.integers(1, 3), st.sampled_from([1, 2, 8]), st.booleans(), st.data())
def test_a_page_is_of_whole_mutations_which_all_that_were_asked_have_by_then(
    history: list[tuple[Statements, set[str]]],
    reconciled: int,
    asked: Slice,
    count: int,
    cells: int,
    more: bool,
    data: st.DataObject,
) -> None:
    """Whatever is written and reconciled meanwhile, in whatever order answers come, at any level, with any sketch.

    The page is a snapshot: of all that anybody who was asked knew before, of what the read has delivered, and of the
    first so many of the mutations that the replica whose data it is has applied.
    """
    cluster = written(history, reconciled)
    chosen = data.draw(st.permutations(ENDPOINTS))[:count]
    before = {id: each for node in chosen for id, each in cluster.replicas[node.node_id].applied.items()}
    found = cluster.run(cluster.read(asked, chosen, cells), data, more)
    assert isinstance(found, PageFound) and found.replicas == tuple(each.node_id for each in chosen)
    delivered = {each.id: each.mutation for each in cluster.delivered}
    applied = list(cluster.replicas[chosen[0].node_id].applied.items())
    for length in range(len(applied) + 1):
        shown = dict(applied[:length]) | before | delivered
        if page_of(of_all(shown), asked) == found.page:
            held = [cluster.replicas[node].applied for node in found.replicas]
            if all(each in there for each in shown for there in held):
                return
    raise AssertionError("the page is no snapshot that all of them have")


@given(HISTORIES, slices())
def test_replicas_that_agree_are_asked_once_and_nothing_is_sent(
    history: list[tuple[Statements, set[str]]], asked: Slice
) -> None:
    cluster = written([(said, {"a", "b", "c"}) for said, _ in history])
    cluster.run(cluster.read(asked, list(ENDPOINTS)))
    assert [type(each) for each in cluster.asked] == [AskForSnapshot, AskForSummary, AskForSummary]


def test_one_row_that_is_read_brings_the_whole_mutation_to_who_lacks_it() -> None:
    """CEP-45's tear by read repair: W of three rows reaches A alone, and one of them is read from A and B."""
    row = Slice(PARTITION, ((KEYS[0], KEYS[0] + b"\xff"),))
    for flaws, whole in (((), True), (("reconcile-read-rows-only",), False)):
        cluster = Cluster(flaws)
        cluster.write(Statements(PARTITION, 5, [(key, {1: 5}, True) for key in KEYS[:3]]), {"a"})
        cluster.run(cluster.read(row, list(ENDPOINTS[:2])))
        assert (cluster.replicas["b"].contents == cluster.replicas["a"].contents) is whole
        assert cluster.replicas["b"].contents.rows[0] == cluster.replicas["a"].contents.rows[0]


def test_a_replica_that_fails_is_replaced_and_one_that_lacks_something_is_not() -> None:
    cluster = Cluster()
    cluster.write(Statements(PARTITION, 5, rows=[b"x"]), {"a", "c"})
    state = LoggedReadState(Slice(PARTITION), ENDPOINTS[:2], ENDPOINTS[2:], QUORUM, 2)
    snapshot, summary = state.begin()
    assert isinstance(summary, AskForSummary) and summary.endpoint is ENDPOINTS[1]
    again = state.on_missed(summary)
    assert [each.endpoint.node_id for each in again] == ["a", "c"]  # type: ignore[union-attr]
    # What was asked before counts no more.
    assert state.on_answer(snapshot, cluster.replicas["a"].answer(snapshot)) == []  # type: ignore[arg-type]
    state = LoggedReadState(Slice(PARTITION), ENDPOINTS[:2], ENDPOINTS[2:], QUORUM, 2)
    waiting = state.begin()
    while not isinstance(question := waiting.pop(0), Deliver):
        assert isinstance(question, AskForSnapshot | AskForSummary | FetchFrom)
        waiting += state.on_answer(question, cluster.replicas[question.endpoint.node_id].answer(question))
    assert state.on_missed(question) == [GiveUp("b")]


def test_the_client_is_answered_when_the_others_have_it_and_with_the_flaw_before() -> None:
    for flaws, kinds in (((), [Deliver]), (("repair-reply-first",), [Deliver, PageFound])):
        cluster = Cluster(flaws)
        cluster.write(Statements(PARTITION, 5, rows=[b"x"]), {"a"})
        state = cluster.read(Slice(PARTITION), list(ENDPOINTS[:2]))
        waiting = state.begin()
        while not isinstance(question := waiting.pop(0), Deliver):
            assert isinstance(question, AskForSnapshot | AskForSummary | FetchFrom)
            waiting += state.on_answer(question, cluster.replicas[question.endpoint.node_id].answer(question))
        assert [type(each) for each in (question, *waiting)] == kinds


def test_a_snapshot_that_lacked_what_was_reconciled_meanwhile_is_taken_anew() -> None:
    """Above the raised bound both agree, but the data is from before: it lacks what lies below the bound."""
    for raised in ("b", "ab"):
        cluster = Cluster()
        cluster.write(Statements(PARTITION, 5, [(KEYS[0], {1: 5}, True)]), {"b", "c"})
        state = cluster.read(Slice(PARTITION), list(ENDPOINTS[:2]))
        snapshot, summary = state.begin()
        assert isinstance(snapshot, AskForSnapshot) and isinstance(summary, AskForSummary)
        early = cluster.replicas["a"].answer(snapshot)
        cluster.reconcile()
        for node in raised:
            cluster.replicas[node].log.forget_below(cluster.time)
        waiting = [*state.on_answer(snapshot, early), *state.on_answer(summary, cluster.replicas["b"].answer(summary))]
        while not isinstance(question := waiting.pop(0), PageFound):
            assert not isinstance(question, GiveUp)
            waiting += state.on_answer(question, cluster.replicas[question.endpoint.node_id].answer(question))
        assert question.page.contents == cluster.replicas["c"].contents


def test_a_read_begins_anew_where_a_mutation_can_t_be_fetched_any_more() -> None:
    """It was reconciled since, and is not in the page."""
    cluster = Cluster()
    for key in KEYS[:2]:
        cluster.write(Statements(PARTITION, 5, [(key, {1: 5}, True)]), {"b"})
    state = cluster.read(Slice(PARTITION), list(ENDPOINTS[:2]))
    waiting = state.begin()
    while not isinstance(question := waiting.pop(0), FetchFrom):
        assert isinstance(question, AskForSnapshot | AskForSummary)
        waiting += state.on_answer(question, cluster.replicas[question.endpoint.node_id].answer(question))
    reply = cluster.replicas["b"].answer(question)
    assert isinstance(reply, MutationsFetched) and len(reply.mutations) == 2
    again = state.on_answer(question, MutationsFetched(reply.mutations[:1]))
    assert [type(each) for each in again] == [AskForSnapshot, AskForSummary]


def test_a_plain_summary_hashes_no_id_again(monkeypatch: pytest.MonkeyPatch) -> None:
    log, ids = MutationLog(), [MutationId(time, "t1") for time in range(1, 9)]
    for each in ids:
        log.stored(each.time, each, PARTITION)
    log.forget_below(4)
    expected = summarize(ids, 4)
    monkeypatch.setattr("cluster.quorum.mutation_log.summarize", None)
    assert log.summary_of(PARTITION, LOWEST_TIME, 0, None) == log.summary_of(PARTITION, 4, 0, None) == expected
