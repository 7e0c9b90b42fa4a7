"""Reads of legacy partitions, pure: against replicas that are contents in a dictionary (Q2)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from mutations import BOUNDS, PARTITIONS, Statements, statements

from cluster.quorum.read_repair import (
    AskForData,
    AskForDigest,
    GiveUp,
    Instruction,
    PageFound,
    ReadRepair,
    ReadState,
    SendRepair,
    contacts,
    stand_in,
)
from cluster.quorum.replica_sets import Endpoint, ReplicaSet, Snitch
from cluster.quorum.rows import NOTHING, PartitionContents, merge_contents
from cluster.quorum.slices import Slice, cut_to, live_rows, page_digest, page_of
from harness.levels import Demand, demand

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
