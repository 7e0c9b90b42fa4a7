"""Trees of hashes: every difference between replicas is found, and what is sent makes them equal (Q2)."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mutations import PARTITIONS, statements

from cluster.quorum.deletions import Deletion
from cluster.quorum.keys import ABOVE, LOWEST_KEY, TOKENS, KeyBytes, encode_key, place_of, token_of
from cluster.quorum.merkle_repair import LeafHasher, MerkleTree, TokenLeaves, Transfer, older_than, transfers
from cluster.quorum.mutation import MutationBuilder
from cluster.quorum.partition_store import Piece
from cluster.quorum.rows import PartitionContents, clip_contents, merge_contents, without_deletions

Held = dict[KeyBytes, PartitionContents]

MANY = tuple(encode_key((number,)) for number in range(12))


def pieces(held: Held, cuts: random.Random) -> list[Piece]:
    """What a scan of these partitions gives, cut anywhere."""
    found = []
    for partition in sorted(held, key=place_of):
        bounds = [LOWEST_KEY, ABOVE]
        if held[partition].rows and cuts.random() < 0.5:
            bounds.insert(1, cuts.choice(held[partition].rows).key)
        spans = list(itertools.pairwise(bounds))
        for at, (start, end) in enumerate(spans):
            part = clip_contents(held[partition], start, end)
            found.append(Piece(partition, part, at == 0, at == len(spans) - 1))
    return found


def tree_of(held: Held, leaves: TokenLeaves, before_ms: int = 0, seed: int = 0) -> MerkleTree:
    hasher = LeafHasher(leaves, 0, older_than(before_ms))
    for piece in pieces(held, random.Random(seed)):
        hasher.add(piece)
    return MerkleTree(hasher.hashes(leaves.count))


replicas = st.lists(st.lists(statements(st.integers(1, 6), MANY[:6] + PARTITIONS), max_size=6), min_size=2, max_size=4)


@given(replicas, st.integers(0, 5), st.integers(0, 9))
def test_every_difference_is_found_and_nothing_else(said: list, depth: int, seed: int) -> None:
    """Compared with brute force: leaf by leaf, partition by partition."""
    leaves = TokenLeaves(0, TOKENS - 1, depth)
    held: list[Held] = [
        {
            partition: contents
            for partition in {each.partition for each in parts}
            if not (
                contents := merge_contents(
                    [PartitionContents(), *(each.mutation().contents for each in parts if each.partition == partition)]
                )
            ).empty
        }
        for parts in said
    ]
    trees = [tree_of(each, leaves, seed=seed + at) for at, each in enumerate(held)]
    for one, one_tree in zip(held, trees, strict=True):
        for other, other_tree in zip(held, trees, strict=True):
            unequal = {partition for partition in one | other if one.get(partition) != other.get(partition)}
            expected = sorted({leaves.leaf_of(token_of(partition)) for partition in unequal})
            assert list(one_tree.differing(other_tree)) == expected
            assert any(True for _ in one_tree.differing(other_tree)) == (one != other)

    names = [str(number) for number in range(len(held))]
    due = transfers(leaves, dict(zip(names, trees, strict=True)))
    after = [dict(each) for each in held]
    for each in due:
        assert each.source not in each.targets and each.first <= each.last
        for partition, contents in held[int(each.source)].items():
            if each.first <= token_of(partition) <= each.last:
                for target in each.targets:
                    have = after[int(target)].get(partition, PartitionContents())
                    after[int(target)][partition] = merge_contents([have, contents])
    assert all(each == after[0] for each in after)
    assert bool(due) == any(each != held[0] for each in held)


@given(st.integers(0, 10), st.integers(0, TOKENS - 1), st.integers(1, 1 << 40), st.data())
def test_leaves_cut_any_range_without_a_gap(depth: int, first: int, size: int, data: st.DataObject) -> None:
    last = min(first + size + (1 << depth), TOKENS - 1)
    if last - first + 1 < 1 << depth:
        with pytest.raises(ValueError, match="can't be cut"):
            TokenLeaves(first, last, depth)
        return
    leaves = TokenLeaves(first, last, depth)
    assert leaves.span(0, leaves.count - 1) == (first, last)
    token = data.draw(st.integers(first, last))
    leaf = leaves.leaf_of(token)
    low, high = leaves.span(leaf, leaf)
    assert 0 <= leaf < leaves.count and low <= token <= high
    assert leaf == 0 or leaves.span(leaf - 1, leaf - 1)[1] == low - 1


def test_a_scan_that_goes_on_where_it_stopped_gives_the_same_hashes() -> None:
    leaves = TokenLeaves(0, TOKENS - 1, 4)
    held = {each: MutationBuilder(each, 5, 5).write(b"k", {1: "x"}).build().contents for each in MANY}
    whole = LeafHasher(leaves, 0, older_than(0))
    for piece in pieces(held, random.Random(1)):
        whole.add(piece)
    hashes: list[bytes] = []
    for first_leaf, end in ((0, 3), (3, 9), (9, 16)):
        part = LeafHasher(leaves, first_leaf, older_than(0))
        low, high = leaves.span(first_leaf, end - 1)
        for piece in pieces({each: held[each] for each in held if low <= token_of(each) <= high}, random.Random(2)):
            part.add(piece)
        hashes += part.hashes(end)
    assert tuple(hashes) == whole.hashes(16)


def test_deletions_whose_grace_is_over_make_no_difference() -> None:
    leaves = TokenLeaves(0, TOKENS - 1, 2)
    kept = MutationBuilder(MANY[0], 5, 100).delete_row(b"k").write(b"l", {1: "x"}).build().contents
    forgotten = without_deletions(kept, lambda _: True)
    alone = {MANY[1]: MutationBuilder(MANY[1], 5, 100).delete_partition().build().contents}
    assert kept != forgotten and older_than(101)(Deletion(5, 100)) and not older_than(100)(Deletion(5, 100))
    for before_ms, equal in ((100, False), (101, True)):
        trees = [tree_of(each, leaves, before_ms) for each in ({MANY[0]: kept} | alone, {MANY[0]: forgotten})]
        assert (not list(trees[0].differing(trees[1]))) is equal


def test_of_equal_replicas_one_sends_and_neighbouring_leaves_are_one_transfer() -> None:
    leaves = TokenLeaves(0, 79, 3)
    same, lacks = [bytes([n]) for n in range(8)], [bytes([n]) for n in range(8)]
    lacks[2] = lacks[3] = lacks[6] = b"x"
    trees = {"a": MerkleTree(same), "b": MerkleTree(lacks), "c": MerkleTree(same)}
    assert sorted(transfers(leaves, trees), key=lambda each: (each.source, each.first)) == [
        Transfer("a", ("b",), 20, 39),
        Transfer("a", ("b",), 60, 69),
        Transfer("b", ("a", "c"), 20, 39),
        Transfer("b", ("a", "c"), 60, 69),
    ]
