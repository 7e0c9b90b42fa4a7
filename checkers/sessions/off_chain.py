"""Reads of lists that are no prefixes of the longest: compared with others element by element.

Such lists contradict each other already (`incompatible-order`, which the transactional models name); here it matters
only what a later read omits. Cost is the sum of the lists' lengths in the cells that have such reads.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from checkers.columns.chains import Chains
from checkers.columns.codes import Ints
from checkers.columns.mops import Columns
from checkers.columns.versions import LIST_READ
from checkers.sessions.session_order import Events


class Omissions(NamedTuple):
    """How many reads omit something, and for the first of them (row, row of the read that saw it, whether both are of
    one session, an element)."""

    total: int
    pairs: list[tuple[int, int, bool, int]]


def omissions(rows: Columns, events: Events, chains: Chains, off_chain: Ints, explain: int) -> Omissions:
    """Reads that lack an element which an earlier strong read, or the session's last read, had; only those in which one
    of the two is off the chain, for the others are judged by their lengths."""
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
            count += 1
            if len(pairs) < explain:
                pairs.append(pair)
    return Omissions(count, pairs)


def _in_cell(
    rows: Columns, events: Events, chains: Chains, mine: Ints, cell: int, odd: set[int]
) -> list[tuple[int, int, bool, int]]:
    begin, end = int(events.begin[cell]), int(events.begin[cell + 1])
    bounds = {int(chains.name[c]): (int(chains.begin[c]), int(chains.begin[c + 1])) for c in mine}
    reads = [row for row in range(begin, end) if rows["kind"][row] == LIST_READ]
    lists = {}
    for row in reads:
        first, _ = bounds.get(int(rows["chain"][row]), (0, 0))
        lists[row] = frozenset(chains.items[first : first + int(rows["value"][row])].tolist())
    finished = sorted((row for row in reads if events.strong[row]), key=lambda row: int(events.complete[row]))
    seen: dict[int, int] = {}
    last: dict[int, int] = {}
    found: list[tuple[int, int, bool, int]] = []
    done = 0
    for row in reads:
        while done < len(finished) and events.complete[finished[done]] < events.invoke[row]:
            for element in lists[finished[done]]:
                seen.setdefault(element, finished[done])
            done += 1
        session = int(events.session[row])
        before = last.get(session)
        last[session] = row
        if before is not None and events.complete[before] < events.invoke[row] and lists[before] - lists[row]:
            if row in odd or before in odd:
                found.append((row, before, True, min(lists[before] - lists[row])))
            continue
        missing = seen.keys() - lists[row] if events.strong[row] else set()
        guilty = sorted(element for element in missing if row in odd or seen[element] in odd)
        if guilty:
            found.append((row, seen[guilty[0]], False, guilty[0]))
    return found
