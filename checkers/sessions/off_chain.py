"""Reads of lists that are no prefixes of the longest: compared with others element by element.

Such lists contradict each other already (`incompatible-order`, which the transactional models name); here it matters
only what a later read omits. Cost is the sum of the lists' lengths in the cells that have such reads.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from checkers.columns.chains import Chains
from checkers.columns.codes import NIL, READ, Ints
from checkers.columns.mops import Columns
from checkers.columns.versions import LIST_READ, Bools
from checkers.sessions.session_order import Events


class Omissions(NamedTuple):
    """How many reads omit something, and for the first of them (row, row of the read that saw it, whether both are of
    one session, an element)."""

    total: int
    pairs: list[tuple[int, int, bool, int]]


def omissions(rows: Columns, events: Events, chains: Chains, off_chain: Ints, stale: Bools, explain: int) -> Omissions:
    """Reads that lack an element which an earlier strong read, or an earlier one of the session, had; only those in
    which one of the two is off the chain, for the others are judged by their lengths. Each read counts once: those that
    their lengths show to be `stale` (flags by row) are left out."""
    cells = np.unique(np.searchsorted(events.begin, off_chain, side="right") - 1)
    odd = set(off_chain.tolist())
    count = 0
    pairs: list[tuple[int, int, bool, int]] = []
    # Chains of one cell are looked up, not searched for among all: every cell is judged, however many there are.
    by_cell = np.argsort(chains.cell, kind="stable")
    firsts = np.searchsorted(chains.cell[by_cell], cells)
    stops = np.searchsorted(chains.cell[by_cell], cells, side="right")
    for cell, first, stop in zip(cells.tolist(), firsts.tolist(), stops.tolist(), strict=True):
        for pair in _in_cell(rows, events, chains, by_cell[first:stop], cell, odd):
            if stale[pair[0]]:
                continue
            count += 1
            if len(pairs) < explain:
                pairs.append(pair)
    return Omissions(count, pairs)


class _SeenElements(NamedTuple):
    """Elements that reads had, with the first row that had each; in `odd` if it is off the chain."""

    every: dict[int, int]
    odd: dict[int, int]

    def take_in(self, row: int, items: Iterable[int], is_odd: bool) -> None:
        for element in items:
            if self.every.setdefault(element, row) == row and is_odd:
                self.odd[element] = row


def _in_cell(
    rows: Columns, events: Events, chains: Chains, mine: Ints, cell: int, odd: set[int]
) -> list[tuple[int, int, bool, int]]:
    begin, end = int(events.begin[cell]), int(events.begin[cell + 1])
    bounds = {int(chains.name[c]): (int(chains.begin[c]), int(chains.begin[c + 1])) for c in mine}
    nil = (rows["kind"][begin:end] == READ) & (rows["value"][begin:end] == NIL)
    reads = (begin + np.flatnonzero((rows["kind"][begin:end] == LIST_READ) | nil)).tolist()
    lists: dict[int, dict[int, None]] = {}
    for row in reads:
        first, _ = bounds.get(int(rows["chain"][row]), (0, 0))
        length = 0 if nil[row - begin] else int(rows["value"][row])
        lists[row] = dict.fromkeys(chains.items[first : first + length].tolist())
    finished = sorted(reads, key=lambda row: int(events.complete[row]))
    in_session: defaultdict[int, _SeenElements] = defaultdict(lambda: _SeenElements({}, {}))
    anywhere = _SeenElements({}, {})
    found: list[tuple[int, int, bool, int]] = []
    done = 0
    for row in reads:
        while done < len(finished) and events.complete[finished[done]] < events.invoke[row]:
            earlier = finished[done]
            in_session[int(events.session[earlier])].take_in(earlier, lists[earlier], earlier in odd)
            if events.strong[earlier]:
                anywhere.take_in(earlier, lists[earlier], earlier in odd)
            done += 1
        for seen in (in_session[int(events.session[row])], anywhere)[: 1 + events.strong[row]]:
            # No more than the list's own elements are passed before one that it lacks.
            had = seen.every if row in odd else seen.odd
            lacking = next((element for element in had if element not in lists[row]), None)
            if lacking is not None:
                found.append((row, had[lacking], seen is not anywhere, lacking))
                break
    return found
