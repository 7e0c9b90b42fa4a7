"""The session guarantees (Terry et al. 1994) on cells, and monotonic reads across sessions in real time.

An operation precedes another of its session if it completed before the other was invoked; those that overlap come in no
order. One pass over each cell's operations in order of invocation takes in what had completed by then: the newest that
a session has read and written, and the newest that strong reads of anyone have shown, are kept by their `since`;
whatever is `settled` before that is certainly older (see `versions`).

Where the order of versions is known in part, what sessions read after others says more (`read_order`). A session orders
version a before b if some read of a completed before some read of b was invoked, so where the first read of a completed
before the last read of b was invoked: reads of one version count together, as a visit. So does the session's own write
of a version, if its reads must not miss that (`read-your-writes`): what counts is which of these completed first.
Visits that overlap come in no order; if the visits of a session are sorted by their first completion, what comes before
each of them is a prefix of the others, though drawn pair by pair that may be the square of their number.

Lists that are no prefixes of the longest are compared with others element by element (`omissions`). They contradict
each other already (`incompatible-order`, which the transactional models name); here it matters only what a later read
omits. Cost is the sum of the lists' lengths in the cells that have such reads.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from checkers.columns.chains import Chains
from checkers.columns.codes import NEVER, NIL, READ, Bools, Ids, Ints
from checkers.columns.dense import together
from checkers.columns.instances import Instances, record
from checkers.columns.mops import Columns
from checkers.columns.versions import LIST_READ, grouped_order
from checkers.compiled import kernel, lean, lean_inline

MONOTONIC_READS: Final = 0
READ_YOUR_WRITES: Final = 1
MONOTONIC_WRITES: Final = 2
WRITES_FOLLOW_READS: Final = 3

GUARANTEES: Final = ("monotonic-reads", "read-your-writes", "monotonic-writes", "writes-follow-reads")
"""The models by the codes of their guarantees."""


class Events(NamedTuple):
    """Operations sorted by cell and invocation: cell c owns `begin[c]:begin[c + 1]`. `since` and `settled` are those of
    the version read or written; what is not `judged` (an unclear version) is skipped. `by_completion` has what later
    operations are compared with, each cell's judged reads and acknowledged writes, as rows in order of completion: cell
    c's at `finished[c]:finished[c + 1]`."""

    begin: Ints
    invoke: Ints
    complete: Ints
    session: Ids
    version: Ids
    since: Ints
    settled: Ints
    read: Bools
    strong: Bools
    judged: Bools
    by_completion: Ints
    finished: Ints


class _Sessions(NamedTuple):
    """By session what it did with one cell."""

    cell: Ints  # the cell that the rest is about
    read: Ints  # the row of the newest version that it had read when the row at hand began, -1: none
    write: Ints  # the row of the newest version that it had written by then, -1: none


@lean_inline
def _newer(events, candidate, newest):
    return newest < 0 or events.since[candidate] > events.since[newest]


@lean_inline
def _misses(events, row, earlier):
    """Whether a row's version is certainly older than that of an earlier row, which had completed (-1: of none)."""
    return earlier >= 0 and events.settled[row] < events.since[earlier]


@lean_inline
def _undecided(events, row, earlier):
    if earlier < 0 or events.version[earlier] == events.version[row]:
        return False
    forth, back = events.settled[earlier] < events.since[row], events.settled[row] < events.since[earlier]
    return not forth and not back


@lean_inline
def _enter(sessions, session, cell):
    """What a session did is kept by session, and counts only for the cell at hand."""
    if sessions.cell[session] != cell:
        sessions.cell[session], sessions.read[session], sessions.write[session] = cell, -1, -1


@lean_inline
def _take_in(events, sessions, done):
    """An operation that has completed. The newest stays, not the last: else a read that went back would excuse the
    next one."""
    newest = sessions.read if events.read[done] else sessions.write
    session = events.session[done]
    if _newer(events, done, newest[session]):
        newest[session] = done


@kernel
def _judge(events, sessions, wanted, out, stale):
    """Counts violations in `out` (kept as row, earlier row, scope) and marks stale reads (`judge_sessions`); returns
    how many reads were compared with the read before, and how many comparisons could not be decided."""
    compared, undecided = 0, 0
    for cell in range(events.begin.shape[0] - 1):
        pointer, newest, last = events.finished[cell], -1, -1
        for row in range(events.begin[cell], events.begin[cell + 1]):
            # What had completed when this row began. Of strong reads `newest` is the newest, by what is known of
            # versions, `last` the one that completed last.
            while pointer < events.finished[cell + 1]:
                done = events.by_completion[pointer]
                if events.complete[done] >= events.invoke[row]:
                    break
                _enter(sessions, events.session[done], cell)
                _take_in(events, sessions, done)
                if events.strong[done]:
                    if _newer(events, done, newest):
                        newest = done
                    last = done
                pointer += 1
            if not events.judged[row]:
                undecided += events.read[row]
                compared += events.read[row]
                continue
            mine = events.session[row]
            _enter(sessions, mine, cell)
            my_read, my_write = sessions.read[mine], sessions.write[mine]
            order = events.invoke[row]
            if events.read[row]:
                # What counts as a comparison: of strong reads with whatever completed before, of others with their
                # session's newest.
                before = last if events.strong[row] and last >= 0 else my_read
                compared += before >= 0
                undecided += _undecided(events, row, before)
                if _misses(events, row, my_read):
                    stale[row] |= 1
                    if wanted[0]:
                        record(out, 0, order, cell, (row, my_read, 1, -1))
                elif events.strong[row] and _misses(events, row, newest):
                    stale[row] |= 1
                    if wanted[0]:
                        record(out, 0, order, cell, (row, newest, 0, -1))
                if wanted[1] and _misses(events, row, my_write):
                    stale[row] |= 2
                    record(out, 1, order, cell, (row, my_write, 1, -1))
            else:
                if wanted[2] and _misses(events, row, my_write):
                    record(out, 2, order, cell, (row, my_write, 1, -1))
                if wanted[3] and _misses(events, row, my_read):
                    record(out, 3, order, cell, (row, my_read, 1, -1))
    return compared, undecided


def judge_sessions(
    events: Events, session_count: int, wanted: Bools, out: Instances
) -> tuple[npt.NDArray[np.int8], int, int]:
    """Judge the wanted guarantees (flags by code); returns by row 1 for reads that are certainly not monotonic, 2 for
    those that miss an own write, if that is wanted, 3 for both and else 0; then how many comparisons of a read with the
    read before there were, and how many of them the history does not decide."""
    sessions = _Sessions(np.full(session_count, -1), np.full(session_count, -1), np.full(session_count, -1))
    stale = np.zeros(len(events.read), np.int8)
    compared, undecided = _judge(events, sessions, wanted, out, stale)
    return stale, int(compared), int(undecided)


class ReadOrder(NamedTuple):
    """Edges from what was read or written before to what was read after. A node is a version, or behind all versions a
    helper, of which `helper_cell` tells the cells."""

    source: Ints
    target: Ints
    helper_cell: Ints


class _Visits(NamedTuple):
    """Sorted by session and cell, each of which owns `begin[s]:begin[s + 1]`, and by `shown`, when the first of
    what counts completed; `asked` is when their last read began, and `by_asked` sorts each session's visits by that."""

    begin: Ints
    version: Ints
    shown: Ints
    asked: Ints
    by_asked: Ints


@lean
def _find_prefixes(visits, session, until):
    """How far the visits go that were shown before a visit was asked for last (itself may be one of them)."""
    place, end = visits.begin[session], visits.begin[session + 1]
    for position in range(visits.begin[session], end):
        visit = visits.by_asked[position]
        while place < end and visits.shown[place] < visits.asked[visit]:
            place += 1
        until[visit] = place


@kernel
def _draw(visits, until, top, versions, helper_of, source, target):
    """Write the edges; returns how many edges and helpers there are, and sets the sessions of the latter.

    `top[v]` is a node that v and all visits sorted before it lead to: v's own version if all of them come before it,
    else a helper. Of what comes before a visit the part sorted before it has such a node. The rest, shown between its
    first read and its last, is drawn one by one, up to a visit that comes after it too, for then there is no order. So
    none of the rest was itself read again, and each visit is drawn once at most.
    """
    count, helpers = 0, 0
    for session in range(visits.begin.shape[0] - 1):
        begin, end = visits.begin[session], visits.begin[session + 1]
        _find_prefixes(visits, session, until)
        for visit in range(begin, end):
            version, prefix = visits.version[visit], min(until[visit], visit)
            if prefix > begin:
                source[count], target[count] = top[prefix - 1], version
                count += 1
            top[visit] = version
            if prefix < visit:
                top[visit] = versions + helpers
                source[count], target[count] = top[visit - 1], top[visit]
                source[count + 1], target[count + 1] = version, top[visit]
                helper_of[helpers] = session
                helpers += 1
                count += 2
            for later in range(visit + 1, until[visit]):
                source[count], target[count] = visits.version[later], version
                count += 1
                if visits.asked[later] > visits.shown[visit]:
                    break
    return count, helpers


def read_order(events: Events, chosen: Bools, versions: int, before: Bools) -> ReadOrder:
    """What sessions say of the order of versions in the chosen cells; `before` flags the rows of which later reads must
    not be older: reads, writes that were acknowledged, or both."""
    cell = np.repeat(np.arange(len(chosen)), np.diff(events.begin))
    rows = np.flatnonzero(chosen[cell] & (events.read | before) & events.judged)
    session, sessions = together((cell[rows], events.session[rows].astype(np.int64)))
    version = events.version[rows].astype(np.int64)
    visit, count = together((session, version))
    shown, asked = np.full(count, NEVER), np.full(count, NIL)
    np.minimum.at(shown, visit, np.where(before[rows], events.complete[rows], NEVER))
    np.maximum.at(asked, visit, np.where(events.read[rows], events.invoke[rows], NIL))
    row_of = np.empty(count, np.int64)
    row_of[visit] = np.arange(len(rows))
    order, begin = grouped_order(session[row_of], sessions, shown)
    shown, asked, row_of = shown[order], asked[order], row_of[order]
    by_asked, _ = grouped_order(session[row_of], sessions, asked)
    visits = _Visits(begin, version[row_of], shown, asked, by_asked)
    source, target = np.empty(4 * count, np.int64), np.empty(4 * count, np.int64)
    helper_of = np.empty(count, np.int64)
    scratch = np.empty(count, np.int64), np.empty(count, np.int64)
    drawn, helpers = _draw(visits, *scratch, versions, helper_of, source, target)
    first = row_of[begin[helper_of[:helpers]]]
    return ReadOrder(source[:drawn], target[:drawn], cell[rows[first]])


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
