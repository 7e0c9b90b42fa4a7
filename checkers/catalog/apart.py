"""A catalog falls apart into names that nothing links, which are objects of their own.

A rename links two names, and so does an id that answers tell of both. A list is of all names at once. What is
linearizable part by part is so as a whole (locality: Herlihy and Wing 1990, theorem 1), so a search need not carry
along what has nothing to do with the call at hand.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from checkers.catalog.calls import CREATE, RENAME, Call
from checkers.columns.graph import unite

_NAME, _ID = 0, 1
_Node: TypeAlias = tuple[int, int]
"""A name, or an id."""

Names: TypeAlias = tuple[int, ...]
"""The name behind each number."""


def parts(calls: Sequence[Call]) -> Iterator[tuple[list[Call], Names]]:
    """The calls about names that are linked, in their order and about names numbered from 0, part by part in order of
    their first calls."""
    if any(call.total for call in calls):
        yield _renamed(calls)
        return
    numbers: dict[_Node, int] = {}
    touched = [(op, numbers.setdefault(node, len(numbers))) for op, call in enumerate(calls) for node in _nodes(call)]
    op, number = np.array(touched, np.int64).reshape(-1, 2).T
    parents = np.arange(len(numbers))
    unite(np.ascontiguousarray(op), np.ascontiguousarray(number), parents)
    found: dict[int, list[Call]] = {}
    for call in calls:
        found.setdefault(int(parents[numbers[next(_nodes(call))]]), []).append(call)
    for part in found.values():
        yield _renamed(part)


def told_ids(call: Call) -> Iterator[int]:
    """The ids that a call's answer tells; a creation makes its own."""
    if call.changes and call.id is not None and call.kind != CREATE:
        yield call.id
    for seen in call.seen:
        if seen.id is not None:
            yield seen.id


def _nodes(call: Call) -> Iterator[_Node]:
    if call.changes:
        yield _NAME, call.name
        if call.kind == RENAME:
            yield _NAME, call.new
        if call.id is not None:
            yield _ID, call.id
    for seen in call.seen:
        yield _NAME, seen.name
        if seen.id is not None:
            yield _ID, seen.id


def _renamed(calls: Sequence[Call]) -> tuple[list[Call], Names]:
    met = {call.name for call in calls if call.changes}
    met |= {call.new for call in calls if call.changes and call.kind == RENAME}
    met |= {seen.name for call in calls for seen in call.seen}
    place = {name: i for i, name in enumerate(sorted(met))}
    dense = []
    for call in calls:
        seen = tuple(replace(each, name=place[each.name]) for each in call.seen)
        dense.append(replace(call, name=place.get(call.name, 0), new=place.get(call.new, 0), seen=seen))
    return dense, tuple(sorted(met))
