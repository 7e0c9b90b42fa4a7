"""Trees of hashes over token ranges, by which replicas of a legacy partition range are compared (Q2). Pure.

A range of tokens is cut into 2 ** depth leaves of one length. A leaf's hash covers every partition whose token lies in
it, so that two replicas whose leaves are equal hold the same there; each inner node hashes its two children. Replicas
are compared from the root down, and what differs is a list of leaves. Partitions of a leaf that differs are streamed
whole, those that are equal among them: that is the price of a tree with fewer leaves than partitions (over-streaming).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import TypeAlias

from cluster.quorum.deletions import Deletion
from cluster.quorum.keys import token_of
from cluster.quorum.partition_store import Piece
from cluster.quorum.rows import without_deletions
from cluster.quorum.slices import ContentsDigest

Hash: TypeAlias = bytes
Unneeded: TypeAlias = Callable[[Deletion], bool]

_HASH_BYTES = 16


@dataclass(frozen=True, slots=True)
class TokenLeaves:
    """The leaves of a tree: tokens from `first` to `last`, both included, in 2 ** `depth` parts."""

    first: int
    last: int
    depth: int

    def __post_init__(self) -> None:
        """Raises ValueError where there are fewer tokens than leaves."""
        if not 0 <= self.depth <= 20 or self.last - self.first + 1 < self.count or self.first < 0:
            raise ValueError(f"{self.first} to {self.last} can't be cut into 2 ** {self.depth} leaves")

    @property
    def count(self) -> int:
        """How many leaves there are."""
        return 1 << self.depth

    def leaf_of(self, token: int) -> int:
        """The leaf in which a token lies."""
        return (token - self.first) * self.count // (self.last - self.first + 1)

    def span(self, low: int, high: int) -> tuple[int, int]:
        """The tokens of leaves from `low` to `high`, both included: the first and the last."""
        size = self.last - self.first + 1
        return self.first - (-low * size // self.count), self.first - (-(high + 1) * size // self.count) - 1


class LeafHasher:
    """Hashes partitions that come in order, piece by piece, into leaves from `first_leaf` on.

    What `unneeded` says of a deletion decides whether it counts: replicas that have forgotten one and replicas that
    still keep it are to be equal, once nobody needs it.
    """

    def __init__(self, leaves: TokenLeaves, first_leaf: int, unneeded: Unneeded) -> None:
        self._leaves, self._first_leaf, self._unneeded = leaves, first_leaf, unneeded
        self._hashes: list[Hash] = []
        self._leaf = blake2b(digest_size=_HASH_BYTES)
        self._partition = ContentsDigest()
        self._silent = True
        self.partitions = 0

    def leaf_of(self, piece: Piece) -> int:
        """The leaf that a piece belongs to."""
        return self._leaves.leaf_of(token_of(piece.partition))

    def add(self, piece: Piece) -> None:
        """Take the next piece in."""
        self._close_up_to(self.leaf_of(piece))
        contents = without_deletions(piece.contents, self._unneeded)
        if piece.first:
            self._partition, self._silent = ContentsDigest(), True
        self._silent = self._silent and contents.empty
        self._partition.add(contents)
        if piece.last and not self._silent:
            self.partitions += 1
            self._leaf.update(len(piece.partition).to_bytes(4, "big") + piece.partition + self._partition.digest())

    def hashes(self, end: int) -> tuple[Hash, ...]:
        """The hashes of the leaves from `first_leaf` up to `end` (exclusive), all of whose partitions were added."""
        self._close_up_to(end)
        return tuple(self._hashes)

    def _close_up_to(self, leaf: int) -> None:
        while self._first_leaf + len(self._hashes) < leaf:
            self._hashes.append(self._leaf.digest())
            self._leaf = blake2b(digest_size=_HASH_BYTES)


class MerkleTree:
    """The tree over the hashes of all leaves, of which there are 2 ** depth."""

    def __init__(self, leaves: Sequence[Hash]) -> None:
        self._levels: list[list[Hash]] = [list(leaves)]
        while len(self._levels[0]) > 1:
            below = self._levels[0]
            pairs = zip(below[::2], below[1::2], strict=True)
            self._levels.insert(0, [blake2b(one + two, digest_size=_HASH_BYTES).digest() for one, two in pairs])

    @property
    def root(self) -> Hash:
        """One hash of everything."""
        return self._levels[0][0]

    def leaf(self, number: int) -> Hash:
        """The hash of one leaf."""
        return self._levels[-1][number]

    def differing(self, other: MerkleTree) -> Iterator[int]:
        """The leaves that differ, rising; below a node that is equal nothing is looked at."""
        nodes = [(0, 0)]
        while nodes:
            level, number = nodes.pop()
            if self._levels[level][number] == other._levels[level][number]:
                continue
            if level == len(self._levels) - 1:
                yield number
            else:
                nodes += [(level + 1, 2 * number + 1), (level + 1, 2 * number)]


@dataclass(frozen=True, slots=True)
class Transfer:
    """Partitions with tokens from `first` to `last` go, whole, from one replica to others that differ from it there."""

    source: str
    targets: tuple[str, ...]
    first: int
    last: int


def transfers(leaves: TokenLeaves, trees: Mapping[str, MerkleTree]) -> list[Transfer]:
    """What makes all replicas equal: of those that are equal in a leaf the first sends to all that differ from it.

    Replicas are taken in the order of `trees`; leaves beside each other that need the same are one transfer.
    """
    names = list(trees)
    differing = {leaf for name in names[1:] for leaf in trees[names[0]].differing(trees[name])}
    found: list[Transfer] = []
    going_on: dict[tuple[str, tuple[str, ...]], tuple[int, int]] = {}
    for leaf in [*sorted(differing), None]:
        due = [] if leaf is None else _senders({name: trees[name].leaf(leaf) for name in names})
        for pair, (low, high) in list(going_on.items()):
            if leaf is None or pair not in due or high + 1 < leaf:
                found.append(Transfer(*pair, *leaves.span(low, high)))
                del going_on[pair]
        if leaf is not None:
            for pair in due:
                going_on[pair] = (going_on.get(pair, (leaf, leaf))[0], leaf)
    return found


def _senders(hashes: Mapping[str, Hash]) -> list[tuple[str, tuple[str, ...]]]:
    """Of each group of equal replicas the first, and all that are not of the group."""
    first: dict[Hash, str] = {}
    for name, each in hashes.items():
        first.setdefault(each, name)
    return [(name, tuple([other for other in hashes if hashes[other] != each])) for each, name in first.items()]


def older_than(before_ms: int) -> Unneeded:
    """Deletions that their coordinators took before a time: those whose grace is over, the same at every replica."""
    return lambda deletion: deletion.local_time_ms < before_ms
