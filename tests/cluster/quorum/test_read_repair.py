"""Reads of both designs as state machines: what they ask, what they answer, what they repair (Q2, Q5)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mutations import BOUNDS, KEYS, PARTITIONS, Statements, has_applied, statements

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
    AskForData,
    AskForDigest,
    AskForSnapshot,
    AskForSummary,
    Deliver,
    FetchFrom,
    GiveUp,
    Instruction,
    LoggedInstruction,
    LoggedQuestion,
    LoggedReadState,
    PageFound,
    ReadRepair,
    ReadState,
    SendRepair,
    contacts,
    stand_in,
)
from cluster.quorum.replica_sets import Endpoint, ReplicaSet, Snitch
from cluster.quorum.rows import NOTHING, PartitionContents, merge_contents
from cluster.quorum.slices import Page, Slice, behind, cut_to, live_rows, page_digest, page_of
from cluster.quorum.summaries import summarize
from harness.levels import Demand, demand

# ---- legacy ----


ENDPOINTS = tuple(Endpoint(name, f"{name}:1", "z1") for name in ("a", "b", "c"))
QUORUM = Demand(2, {})


class Replicas:
    """Contents by node; answers a read's instructions one at a time, in the order that `order` draws."""

    def __init__(self, contents: dict[str, PartitionContents]) -> None:
        self.contents = contents
        self.asked: list[Instruction] = []

    def answer(self, state: ReadState, instruction: Instruction) -> list[Instruction]:
        self.asked.append(instruction)
        assert not isinstance(instruction, PageFound | GiveUp)
        node = instruction.endpoint.node_id
        if isinstance(instruction, SendRepair):
            self.contents[node] = merge_contents([self.contents[node], instruction.contents])
            return state.on_repaired(node)
        page = page_of(self.contents[node], instruction.slice)
        if isinstance(instruction, AskForDigest):
            return state.on_digest(node, page_digest(page))
        return state.on_data(node, page)

    def run(self, state: ReadState, order: st.DataObject | None = None) -> PageFound:
        waiting = state.begin()
        while True:
            ended = [each for each in waiting if isinstance(each, PageFound)]
            if ended:
                return ended[0]
            chosen = 0 if order is None else order.draw(st.integers(0, len(waiting) - 1))
            waiting += self.answer(state, waiting.pop(chosen))


def contents_of(said: list[Statements]) -> PartitionContents:
    return merge_contents([NOTHING, *(each.mutation().contents for each in said)])


@st.composite
def slices(draw: st.DrawFn) -> Slice:
    first, last = sorted((draw(st.sampled_from(BOUNDS)), draw(st.sampled_from(BOUNDS))))
    spans = ((first, last),) if first < last else Slice(PARTITIONS[0]).spans
    return Slice(PARTITIONS[0], spans, draw(st.none() | st.integers(1, 4)))


HISTORIES = st.lists(st.tuples(statements(st.integers(1, 30)), st.sets(st.sampled_from("abc"), min_size=1)), max_size=8)


@given(HISTORIES, slices(), st.sampled_from(ReadRepair), st.data())
def test_a_page_is_what_one_replica_would_answer_that_knew_what_all_that_were_asked_know(
    history: list[tuple[Statements, set[str]]], asked: Slice, repair: ReadRepair, data: st.DataObject
) -> None:
    """In whatever order answers come; short reads are asked on until nothing is missing."""
    held = {name: contents_of([said for said, where in history if name in where]) for name in "abc"}
    before = dict(held)
    replicas = Replicas(held)
    chosen = data.draw(st.permutations(ENDPOINTS))[:2]
    found = replicas.run(ReadState(asked, chosen, [], QUORUM, repair), data)
    known = [before[each.node_id] for each in chosen]
    expected = page_of(merge_contents(known), asked)
    assert cut_to(found.page.contents, asked, expected.end) == expected.contents
    assert live_rows(found.page.contents) == live_rows(expected.contents)
    assert set(found.replicas) == {each.node_id for each in chosen}
    touched = [each for each in ENDPOINTS if held[each.node_id] != before[each.node_id]]
    if repair is ReadRepair.NONE:
        assert touched == []
        return
    assert all(each in chosen for each in touched)
    if any(isinstance(each, AskForData) and each.endpoint is chosen[1] for each in replicas.asked):
        end, together = found.page.end, merge_contents(known)
        assert all(cut_to(held[each.node_id], asked, end) == cut_to(together, asked, end) for each in chosen)


@given(HISTORIES, slices())
def test_what_was_repaired_is_seen_by_every_later_read_of_two_of_three(
    history: list[tuple[Statements, set[str]]], asked: Slice
) -> None:
    """Monotonic reads of one slice: the reason for blocking read repair."""
    held = {name: contents_of([said for said, where in history if name in where]) for name in "abc"}
    replicas = Replicas(held)
    a, b, c = ENDPOINTS
    first = replicas.run(ReadState(asked, [a, b], [], QUORUM, ReadRepair.BLOCKING))
    later = replicas.run(ReadState(asked, [c, b], [], QUORUM, ReadRepair.BLOCKING))
    together = merge_contents([first.page.contents, later.page.contents])
    end = later.page.end
    assert cut_to(together, asked, end) == cut_to(later.page.contents, asked, end)


def test_replicas_that_agree_are_asked_once_and_one_of_them_for_data() -> None:
    one = contents_of([Statements(PARTITIONS[0], 3, [(BOUNDS[1], {1: 5}, True)])])
    replicas = Replicas(dict.fromkeys("abc", one))
    asked = Slice(PARTITIONS[0])
    found = replicas.run(ReadState(asked, ENDPOINTS, [], Demand(3, {}), ReadRepair.BLOCKING))
    assert [type(each) for each in replicas.asked] == [AskForData, AskForDigest, AskForDigest]
    assert found.page.contents == one


def test_another_replica_stands_in_for_one_that_is_missed_and_then_nobody_does() -> None:
    one, asked = NOTHING, Slice(PARTITIONS[0])
    a, b, c = ENDPOINTS
    state = ReadState(asked, [a, b], [c], QUORUM, ReadRepair.BLOCKING)
    assert state.begin() == [AskForData(a, asked), AskForDigest(b, asked)]
    assert state.on_missed(AskForData(a, asked)) == [AskForData(c, asked)], "the one that was to send data"
    assert state.on_digest("b", page_digest(page_of(one, asked))) == []
    assert state.on_data("a", page_of(one, asked)) == [], "too late"
    assert state.on_data("c", page_of(one, asked)) == [PageFound(page_of(one, asked), ("b", "c"))]
    state = ReadState(asked, [a, b], [], QUORUM, ReadRepair.BLOCKING)
    state.begin()
    assert state.on_missed(AskForDigest(b, asked)) == [GiveUp("b")]
    assert state.on_data("a", page_of(one, asked)) == []


def test_contacts_are_the_nearest_that_meet_the_level_in_each_data_centre() -> None:
    zones = {"a": "dc1/z1", "b": "dc1/z2", "c": "dc2/z1", "d": "dc2/z2", "e": "dc1/z3", "f": "dc2/z3"}
    endpoints = tuple(Endpoint(name, "", zone) for name, zone in zones.items())
    replicas, snitch = ReplicaSet("t", endpoints), Snitch("c", "dc2/z1")
    snitch.took("f", 0.5)
    ordered = snitch.ordered(endpoints)
    assert [each.node_id for each in ordered] == ["c", "d", "f", "a", "b", "e"]

    def names(level: str, data_centre: str) -> list[str]:
        return [each.node_id for each in contacts(ordered, demand(level, data_centre, replicas.factors))[0]]

    assert names("ONE", "dc2") == ["c"]
    assert names("LOCAL_QUORUM", "dc2") == ["c", "d"]
    assert names("LOCAL_QUORUM", "dc1") == ["a", "b"]
    assert names("EACH_QUORUM", "dc2") == ["c", "d", "a", "b"]
    assert names("QUORUM", "dc2") == ["c", "d", "f", "a"]
    assert [each.node_id for each in snitch.ordered(endpoints, ("e", "b"))][:2] == ["e", "b"]
    wanted = demand("LOCAL_QUORUM", "dc2", replicas.factors)
    chosen, spares = contacts(ordered, wanted)
    found = stand_in(chosen[0], spares, wanted)
    assert found is not None and found.node_id == "f", "nobody of another data centre counts"


# ---- logged ----


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


def of_all(applied: dict[MutationId, bytes]) -> PartitionContents:
    return merge_contents([NOTHING, *(decode_mutation(each).contents for each in applied.values())])


def as_stated(page: Page, asked: Slice) -> Page:
    """A page as clients see it: an end counts only where something of the slice lies behind it."""
    return page if page.end is not None and behind(asked, page.end, None).spans else Page(page.contents)


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
    first mutations, however many, that the replica whose data it is has applied.
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
        if as_stated(page_of(of_all(shown), asked), asked) == as_stated(found.page, asked):
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
