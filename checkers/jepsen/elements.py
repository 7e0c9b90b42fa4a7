"""Follows each element of sets through all reads: when it was known, last shown, last missed. Columns in, columns out.

Costs a sort of all shown elements. What misses an element is found without looking at every pair of read and element:
the reads of a set are ranked, latest invocation first, and the first rank that is not among an element's own is the
last read that misses it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from checkers.jepsen.rows import OK, Bools, column, group_starts
from checkers.kernels.columns import NEVER, Ints


@dataclass(frozen=True, slots=True)
class Elements:
    """One entry an element (the last add of a value of a set). Events are indices: `acknowledged` and `known` NEVER,
    `last_present` and `last_absent` (invocations of reads) -1 where there is none; `place` is the add's row.

    `most_shown` is how often one read shows it at most, `most_shown_by` that read; `strays` are values that a read
    shows twice though no add of them had begun: (row, value, times, read). `unexpected` counts such shown values.
    """

    object: Ints
    value: Ints
    place: Ints
    add_invoke: Ints
    acknowledged: Ints
    known: Ints
    last_present: Ints
    last_absent: Ints
    stable: Bools
    lost: Bools
    stale: Bools
    stable_latency: Ints
    lost_latency: Ints
    most_shown: Ints
    most_shown_by: Ints
    strays: tuple[tuple[int, int, int, int], ...]
    unexpected: int
    operations: int


class _Reads:
    """Reads by (object, latest invocation first)."""

    def __init__(self, table: pa.Table, objects: int) -> None:
        owner, invoke = column(table, "object"), column(table, "invoke")
        order = np.lexsort((-invoke, owner))
        self.object, self.invoke = owner[order], invoke[order]
        self.complete, self.began = column(table, "complete")[order], column(table, "began")[order]
        self.first = np.searchsorted(self.object, np.arange(objects))
        self.count = np.bincount(self.object, minlength=objects)
        self._by_invoke = np.argsort(self.invoke)

    def ranked(self, invoke: Ints) -> Ints:
        """The places of the reads with these invocations."""
        found: Ints = self._by_invoke[np.searchsorted(self.invoke[self._by_invoke], invoke)]
        return found

    def latest_invoke(self) -> Ints:
        """Each object's latest invocation of a read, -1 for none."""
        latest = np.full(len(self.first), -1)
        some = self.count > 0
        latest[some] = self.invoke[self.first[some]]
        return latest


def follow(adds: pa.Table, reads: pa.Table, items: pa.Table) -> Elements:
    """What became of every element.

    The tables have `object`, `place`, `value`, `invoke`, `complete`, `began`, `ended`, and adds `outcome`; an item is
    one element of the read with its `invoke`.
    """
    objects = 1 + max((int(column(t, "object").max()) for t in (adds, reads) if t.num_rows), default=-1)
    ranked = _Reads(reads, objects)
    owner, value, invoke = column(adds, "object"), column(adds, "value"), column(adds, "invoke")
    order = np.lexsort((invoke, value, owner))
    starts = group_starts([owner[order], value[order]]) if len(order) else order
    sizes = np.diff(np.append(starts, len(order)))
    last = order[starts + sizes - 1] if len(order) else order
    element_of = np.repeat(np.arange(len(last)), sizes)
    element_object, element_value, add_invoke = owner[last], value[last], invoke[last]
    acknowledged = np.full(len(last), NEVER)
    complete = column(adds, "complete")[order]
    counts = (column(adds, "outcome")[order] == OK) & (complete > add_invoke[element_of])
    np.minimum.at(acknowledged, element_of[counts], complete[counts])

    element = _element_of_items(items, element_object, element_value)
    rank = ranked.ranked(column(items, "invoke"))
    visible = element >= 0
    visible[visible] = ranked.complete[rank[visible]] > add_invoke[element[visible]]
    shown, times = np.unique(element[visible] * max(1, reads.num_rows) + rank[visible], return_counts=True)
    by, at = shown // max(1, reads.num_rows), shown % max(1, reads.num_rows)

    known = acknowledged.copy()
    np.minimum.at(known, by, ranked.complete[at])
    last_present = np.full(len(last), -1)
    np.maximum.at(last_present, by, ranked.invoke[at])
    last_absent = _last_absent(ranked, element_object, add_invoke, shown, by, at)
    most_shown, most_shown_by = _most_shown(len(last), by, times, ranked.invoke[at])

    stable = (last_present >= 0) & (last_absent < last_present)
    is_known = known < NEVER
    lost = is_known & (last_absent >= 0) & (last_present < last_absent) & (known < last_absent)
    stale = stable & (last_absent > known)
    known_at = _times_of(known, adds, reads)
    missed_until, shown_until = _after(ranked, last_absent), _after(ranked, last_present)
    return Elements(
        element_object,
        element_value,
        column(adds, "place")[last],
        add_invoke,
        acknowledged,
        known,
        last_present,
        last_absent,
        stable,
        lost,
        stale,
        np.where(stable, np.maximum(missed_until - known_at, 0), 0),
        np.where(lost, np.maximum(shown_until - known_at, 0), 0),
        most_shown,
        most_shown_by,
        _strays(items, ~visible),
        int((~visible).sum()),
        adds.num_rows + reads.num_rows,
    )


def _most_shown(count: int, by: Ints, times: Ints, read: Ints) -> tuple[Ints, Ints]:
    """How often one read shows each element at most, and which read does."""
    most_shown, most_shown_by = np.zeros(count, np.int64), np.full(count, -1)
    np.maximum.at(most_shown, by, times)
    most = times == most_shown[by]
    most_shown_by[by[most]] = read[most]
    return most_shown, most_shown_by


def _element_of_items(items: pa.Table, owner: Ints, value: Ints) -> Ints:
    """The number of the element that each item is, -1 for none."""
    item_value = column(items, "value")
    if not len(value) or not len(item_value):
        return np.full(len(item_value), -1)
    values = np.unique(value)
    rank = np.minimum(np.searchsorted(values, item_value), len(values) - 1)
    codes = owner * len(values) + np.searchsorted(values, value)
    wanted = column(items, "object") * len(values) + rank
    place = np.minimum(np.searchsorted(codes, wanted), len(codes) - 1)
    return np.where((codes[place] == wanted) & (values[rank] == item_value), place, -1)


def _last_absent(ranked: _Reads, owner: Ints, add_invoke: Ints, shown: Ints, by: Ints, at: Ints) -> Ints:
    """The last invocation of a read that could show each element (it ended after the add began) and does not."""
    lead = np.zeros(len(owner), np.int64)
    if len(by):
        starts = group_starts([by])
        sizes = np.diff(np.append(starts, len(by)))
        turn = np.arange(len(by)) - np.repeat(starts, sizes)
        in_turn = at == ranked.first[owner[by]] + turn
        lead[by[starts]] = np.minimum.reduceat(np.where(in_turn, NEVER, turn), starts)
        lead[by[starts]] = np.minimum(lead[by[starts]], sizes)
    absent = np.full(len(owner), -1)
    some = lead < ranked.count[owner]
    candidate = np.where(some, ranked.first[owner] + lead, 0)
    if not some.any():
        return absent
    could = some & (ranked.complete[candidate] > add_invoke)
    absent[could] = ranked.invoke[candidate[could]]
    rest = some & ~could & (ranked.latest_invoke()[owner] < add_invoke)
    if rest.any():
        _look_among_late(ranked, np.flatnonzero(rest), owner, add_invoke, shown, absent)
    return absent


def _look_among_late(ranked: _Reads, elements: Ints, owner: Ints, add_invoke: Ints, shown: Ints, absent: Ints) -> None:
    """Elements added after the last read began: only reads still open then (few) can show them; these are tried."""
    late = np.flatnonzero(ranked.complete > ranked.latest_invoke()[ranked.object])
    first = np.searchsorted(ranked.object[late], np.arange(len(ranked.first)))
    count = np.bincount(ranked.object[late], minlength=len(ranked.first))
    total = len(ranked.invoke)
    turn = 0
    while len(elements):
        elements = elements[turn < count[owner[elements]]]
        read = late[first[owner[elements]] + turn]
        code = elements * total + read
        place = np.minimum(np.searchsorted(shown, code), max(len(shown) - 1, 0))
        present = shown[place] == code if len(shown) else np.zeros(len(code), np.bool_)
        found = ~present & (ranked.complete[read] > add_invoke[elements])
        absent[elements[found]] = ranked.invoke[read[found]]
        elements = elements[~found]
        turn += 1


def _times_of(known: Ints, adds: pa.Table, reads: pa.Table) -> Ints:
    """When the completions with these indices were, in ns."""
    index = np.concatenate((column(adds, "complete"), column(reads, "complete")))
    ended = np.concatenate((column(adds, "ended"), column(reads, "ended")))
    order = np.argsort(index)
    if not len(order):
        return np.zeros(len(known), np.int64)
    place = np.minimum(np.searchsorted(index[order], known), len(order) - 1)
    found: Ints = ended[order][place]
    return found


def _after(ranked: _Reads, invoke: Ints) -> Ints:
    """The moment after these invocations of reads, 0 for none."""
    moment = np.zeros(len(invoke), np.int64)
    some = invoke >= 0
    moment[some] = ranked.began[ranked.ranked(invoke[some])] + 1
    return moment


def _strays(items: pa.Table, flags: Any) -> tuple[tuple[int, int, int, int], ...]:
    """What one read shows twice although no add of it had begun: (row, value, times, read)."""
    mine = np.flatnonzero(flags)
    value, read = column(items, "value")[mine], column(items, "invoke")[mine]
    order = np.lexsort((value, read))
    if not len(order):
        return ()
    starts = group_starts([read[order], value[order]])
    times = np.diff(np.append(starts, len(order)))
    place = column(items, "place")[mine]
    twice: dict[int, tuple[int, int, int, int]] = {}
    for i in np.flatnonzero(times > 1).tolist():
        row = order[starts[i]]
        twice.setdefault(int(value[row]), (int(place[row]), int(value[row]), int(times[i]), int(read[row])))
    return tuple(twice.values())
