"""Grudges: which one-way links a partition cuts, as pure functions over node names (Jepsen's word).

A link (source, target) is cut when nothing sent by `source` arrives at `target`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import permutations, product
from random import Random
from typing import TypeAlias

Link: TypeAlias = tuple[str, str]
Grudge: TypeAlias = tuple[Link, ...]


def grudge(links: Iterable[Link]) -> Grudge:
    """The canonical form: sorted, without repetition."""
    return tuple(sorted(set(links)))


def between(left: Iterable[str], right: Iterable[str]) -> Grudge:
    """Both directions of every link between two disjoint sides."""
    pairs = list(product(tuple(left), tuple(right)))
    return grudge([*pairs, *((b, a) for a, b in pairs)])


def split(*sides: Iterable[str]) -> Grudge:
    """Both directions of every link between nodes of different sides; nodes of no side are left alone."""
    groups = [tuple(side) for side in sides]
    return grudge(link for i, left in enumerate(groups) for right in groups[i + 1 :] for link in between(left, right))


def isolate(nodes: Sequence[str], cut_off: Iterable[str]) -> Grudge:
    """The nodes of `cut_off`, together, lose sight of all others, both ways."""
    inside = set(cut_off)
    return between([n for n in nodes if n in inside], [n for n in nodes if n not in inside])


def one_way(nodes: Sequence[str], victim: str, outbound: bool) -> Grudge:
    """What the victim sends (outbound) or what is sent to it is lost; the other direction works."""
    others = [n for n in nodes if n != victim]
    return grudge((victim, n) if outbound else (n, victim) for n in others)


def halves(nodes: Sequence[str], entropy: Random) -> Grudge:
    """Two random halves; of an odd number the second one is the majority."""
    shuffled = shuffle(nodes, entropy)
    return isolate(nodes, shuffled[: len(shuffled) // 2])


def bridge(nodes: Sequence[str], entropy: Random) -> Grudge:
    """Two random halves that see each other only through one node, which sees all; needs at least three nodes."""
    _, *others = shuffle(nodes, entropy)
    return between(others[: len(others) // 2], others[len(others) // 2 :])


def majorities_ring(nodes: Sequence[str], entropy: Random) -> Grudge:
    """Every node sees a majority (itself included) and no two nodes see the same one; needs at least four nodes.

    The nodes stand on a circle in random order and see their nearest neighbours. When an odd number of neighbours is
    needed, the opposite node is the last one, or (an odd circle has no opposite) one more than a majority is seen.
    """
    count = len(nodes)
    if count < 4:
        raise ValueError(f"a majorities ring needs at least 4 nodes, got {count}")
    circle = shuffle(nodes, entropy)
    reach, odd = divmod(count // 2, 2)
    steps = set(range(1, reach + 1)) | ({count // 2} if odd and count % 2 == 0 else set())
    if odd and count % 2 == 1:
        steps.add(reach + 1)
    seen = steps | {count - step for step in steps}
    return grudge((circle[i], circle[j]) for i, j in permutations(range(count), 2) if (j - i) % count not in seen)


def shuffle(items: Sequence[str], entropy: Random) -> list[str]:
    """A new list in random order."""
    return entropy.sample(list(items), len(items))
