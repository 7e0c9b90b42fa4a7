"""Grudges: which links a partition cuts."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.ports.machines import CLIENTS
from nemesis.faults import Kill, NetworkPartition
from nemesis.grudges import Grudge, bridge, grudge, halves, isolate, majorities_ring, one_way, split

clusters = st.integers(2, 15).map(lambda count: tuple(f"n{i}" for i in range(count)))
chances = st.integers(0, 2**32).map(Random)


def seen_by(node: str, nodes: tuple[str, ...], links: Grudge) -> frozenset[str]:
    return frozenset(other for other in nodes if (other, node) not in links)


@settings(deadline=None)
@given(clusters.filter(lambda nodes: len(nodes) >= 4), chances)
def test_majorities_ring_shows_each_node_a_majority_of_its_own(nodes: tuple[str, ...], entropy: Random) -> None:
    links = majorities_ring(nodes, entropy)
    views = [seen_by(node, nodes, links) for node in nodes]
    assert all(len(view) > len(nodes) / 2 for view in views)
    assert len(set(views)) == len(nodes)
    assert all((b, a) in links for a, b in links)


@settings(deadline=None)
@given(clusters.filter(lambda nodes: len(nodes) >= 4), chances)
def test_majorities_ring_shows_no_more_than_needed(nodes: tuple[str, ...], entropy: Random) -> None:
    views = [seen_by(node, nodes, majorities_ring(nodes, entropy)) for node in nodes]
    spare = 1 if len(nodes) % 2 == 1 and len(nodes) // 2 % 2 == 1 else 0
    assert {len(view) for view in views} == {len(nodes) // 2 + 1 + spare}


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_majorities_ring_refuses_small_clusters(count: int) -> None:
    with pytest.raises(ValueError, match="at least 4"):
        majorities_ring([f"n{i}" for i in range(count)], Random(0))


@settings(deadline=None)
@given(clusters, chances)
def test_halves_leave_two_sides_that_differ_by_at_most_one(nodes: tuple[str, ...], entropy: Random) -> None:
    links = halves(nodes, entropy)
    sides = {seen_by(node, nodes, links) for node in nodes}
    assert len(sides) == 2
    assert sum(len(side) for side in sides) == len(nodes)
    assert max(map(len, sides)) - min(map(len, sides)) <= 1


@settings(deadline=None)
@given(clusters, st.data())
def test_isolated_nodes_see_each_other_only(nodes: tuple[str, ...], data: st.DataObject) -> None:
    inside = data.draw(st.sets(st.sampled_from(nodes), min_size=1, max_size=len(nodes) - 1))
    links = isolate(nodes, inside)
    for node in nodes:
        assert seen_by(node, nodes, links) == (inside if node in inside else set(nodes) - inside)


@settings(deadline=None)
@given(clusters, st.booleans())
def test_one_way_cuts_one_direction_of_one_node(nodes: tuple[str, ...], outbound: bool) -> None:
    links = one_way(nodes, nodes[0], outbound)
    assert len(links) == len(nodes) - 1
    assert all((a if outbound else b) == nodes[0] for a, b in links)
    assert not any((b, a) in links for a, b in links)


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("abc"))))
def test_grudges_are_canonical(links: list[tuple[str, str]]) -> None:
    assert grudge(links) == grudge(reversed(links)) == grudge(grudge(links))


@given(st.integers(3, 9), st.integers(0, 999))
def test_a_bridge_joins_halves_that_are_apart(count: int, seed: int) -> None:
    nodes = [f"n{i}" for i in range(count)]
    links = set(bridge(nodes, Random(seed)))
    whole = [name for name in nodes if not any(name in link for link in links)]
    assert len(whole) == 1
    lost = {name: sum(1 for link in links if link[0] == name) for name in nodes if name not in whole}
    assert set(lost.values()) == {(count - 1) // 2, count // 2}
    assert all((b, a) in links for a, b in links)


def test_cuts_of_clients_are_described_in_words() -> None:
    nodes = ("t1", "t2")
    assert NetworkPartition((("t1", CLIENTS),)).describe(nodes) == "t1 -/-> clients"
    assert NetworkPartition((("t1", CLIENTS),)).hits(nodes) == ("t1",)


def test_faults_are_described_in_words() -> None:
    nodes = ("m1", "t1", "t2", "t3")
    assert NetworkPartition(isolate(nodes, ["t2"])).describe(nodes) == "t2 | m1 t1 t3"
    assert NetworkPartition(one_way(nodes, "t1", outbound=True)).describe(nodes) == "t1 -/-> m1 t2 t3"
    assert NetworkPartition(one_way(nodes, "t1", outbound=False)).describe(nodes) == "m1 t2 t3 -/-> t1"
    assert NetworkPartition((("m1", "t1"), ("t2", "m1"))).describe(nodes) == "m1 -/-> t1, t2 -/-> m1"
    assert NetworkPartition(split(*([name] for name in nodes))[1:]).describe(nodes) == "11 of 12 one-way links cut"
    assert NetworkPartition(split(["t3"], ["t1", "t2"])).describe(nodes) == "t3 | t1 t2"
    assert NetworkPartition(split(["t3"], ["t1"], ["t2"])).describe(nodes) == "t1 | t2 | t3"
    assert NetworkPartition(()).describe(nodes) == "no cut"
    assert Kill(("m1", "t3")).describe(nodes) == "kill -9 m1 t3"


def test_targets_of_a_partition_are_the_nodes_that_lose_most() -> None:
    nodes = ("m1", "t1", "t2", "t3")
    assert NetworkPartition(isolate(nodes, ["t2"])).hits(nodes) == ("t2",)
    assert NetworkPartition(isolate(nodes, ["m1", "t1"])).hits(nodes) == nodes
    assert NetworkPartition(()).hits(nodes) == ()
