"""The kernel of the session guarantees: what sessions, and strong reads in real time, show of cells and lists."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np

from checkers.columns.chains import Chains, positions
from checkers.columns.codes import NEVER, NIL, OK, READ, WRITE, Bools, Ints
from checkers.columns.dense import together
from checkers.columns.instances import Instances, make_instances
from checkers.columns.mops import Columns, key_of, selected, unsupported_rows
from checkers.columns.versions import (
    APPEND,
    ELEMENT,
    LIST_READ,
    Replaced,
    Versions,
    dense_sessions,
    grouped_order,
    order_by_row,
    ordered_versions,
    replaced_versions,
    sorted_cells,
    values_unwritten,
)
from checkers.findings import Finding, Findings
from checkers.sessions.session_lists import (
    READS_UNCLEAR,
    UNDECIDED,
    UNTIMELY,
    UNWRITTEN,
    OddRows,
    elements_unwritten,
    list_rows,
    listed_cells,
    misplaced,
    repeated,
    whole_values,
    without_elements,
)
from checkers.sessions.session_order import (
    GUARANTEES,
    MONOTONIC_READS,
    MONOTONIC_WRITES,
    Events,
    judge_sessions,
    omissions,
    read_order,
)
from checkers.sessions.version_cycles import Contradiction, SessionEdges, contradictions, make_nodes, shown_and_asked

ANOMALIES: Final = ("non-monotonic-read", "missed-own-write", "non-monotonic-write", "write-before-what-was-read")
"""By the codes of `session_order`."""

CONTRADICTORY: Final = "contradictory-reads"
"""Strong reads, or one session's, that fit no order of the versions, whichever it is."""


WROTE: Final = "wrote"
READ_IT: Final = "read"
REPLACED: Final = "replaced"
"""What an operation did with a version before another one comes: `REPLACED` it by the other itself."""


class Table(NamedTuple):
    """Rows sorted by cell and invocation, without elements; `events` are the same as kernels read them. `replaced` are
    versions that one operation wrote to a cell one after the other."""

    rows: Columns
    versions: Versions
    events: Events
    timed: Bools
    listed: Bools
    sessions: int
    chains: Chains
    odd: OddRows
    replaced: Replaced


@dataclass(frozen=True, slots=True)
class SessionKernel:
    """Judges the wanted guarantees of many cells; `explain` instances of each anomaly are kept."""

    wanted: tuple[str, ...]
    explain: int

    def __call__(self, rows: Columns) -> Findings:
        """Findings; their figures are reads, those of unclear versions, comparisons of a read with the read before, and
        those that the history's order of versions leaves open."""
        problems = unsupported_rows(rows, "not reads, writes, compare-and-sets or appends of integers")
        ops = int((rows["kind"] != ELEMENT).sum())
        if problems:
            return Findings(ops=ops, unsupported=problems)
        table = read_table(rows)
        wanted = np.array([name in self.wanted for name in GUARANTEES])
        out = make_instances(len(GUARANTEES), self.explain)
        stale, compared, undecided = judge_sessions(table.events, table.sessions, wanted, out)
        more, displaced = misplaced(table.rows, table.events, table.chains, table.odd, wanted, self.explain)
        counts = {name: int(count) for name, count in zip(ANOMALIES, out.counts + more, strict=True) if count}
        kept = _direct(table, out)
        kept += [
            _of_element(table, one.code, one.late, one.earlier, one.element, True, one.reader) for one in displaced
        ]
        if wanted[0]:
            omitted = omissions(
                table.rows, table.events, table.chains, table.odd.off_chain, (stale & 1) > 0, self.explain
            )
            if omitted.total:
                counts[ANOMALIES[0]] = counts.get(ANOMALIES[0], 0) + omitted.total
                kept += [
                    _of_element(table, MONOTONIC_READS, row, earlier, element, in_session, -1)
                    for row, earlier, in_session, element in omitted.pairs
                ]
        if wanted[0] or wanted[1]:
            found, cycles = _contradictions(table, stale, wanted, self.explain)
            if found:
                counts[CONTRADICTORY] = found
                kept += cycles
        reads = int(np.isin(rows["kind"], (READ, LIST_READ)).sum())
        # Lists off the chain are decided, element by element.
        undecided -= len(table.odd.off_chain)
        figures = {"reads": reads, "comparisons": compared, "comparisons_undecided": undecided}
        # The order of a session's writes is told by their own numbers, whatever values they wrote.
        unclear = _unclear_reads(table.events, table.versions) & (self.wanted != (GUARANTEES[MONOTONIC_WRITES],))
        figures |= {READS_UNCLEAR: int(unclear.sum()), UNDECIDED: _lists_undecided(table, self.wanted)}
        cell = np.repeat(np.arange(len(table.timed)), np.diff(table.events.begin))
        unwritten = values_unwritten(table.rows, table.events.version, table.versions)
        figures[UNWRITTEN] = unwritten + elements_unwritten(table.rows, cell, table.chains)
        figures[UNTIMELY] = len(table.versions.untimely)
        return Findings(ops, len(table.timed), counts, tuple(kept), figures=figures)


def read_table(rows: Columns) -> Table:
    """Sort, number versions, and find what is known of their order."""
    rows, cell, begin = sorted_cells(rows)
    cells = len(begin) - 1
    chains, kept = without_elements(rows, cell, cells)
    if not kept.all():
        rows, cell = selected(rows, kept), cell[kept]
        begin = np.searchsorted(cell, np.arange(cells + 1))
    listed = listed_cells(rows, cell, cells)
    version, count = together([cell, rows["value"]])
    versions, timed = ordered_versions(rows, cell, cells, version, count, cell)
    replaced = replaced_versions(rows, cell, version, versions)
    since, settled = order_by_row(rows, version, cell, versions, timed)
    judged = (rows["kind"] == READ) | (rows["kind"] == WRITE)
    odd = _order_lists(rows, cell, listed, chains, since, settled, judged)
    events = _events(rows, cell, begin, version, since, settled, judged)
    return Table(rows, versions, events, timed, listed, dense_sessions(rows)[1], chains, odd, replaced)


def _order_lists(
    rows: Columns, cell: Ints, listed: Bools, chains: Chains, since: Ints, settled: Ints, judged: Bools
) -> OddRows:
    """Orders what lists show by how long they are, where that orders it; returns what it does not order."""
    if not listed.any():
        nothing = np.empty(0, np.int64)
        return OddRows(nothing, nothing, nothing, nothing)
    judged[listed[cell]] = False
    inside, empty, read, fits = list_rows(rows, cell, listed, chains)
    since[empty], settled[empty], judged[empty] = 0, 0, True
    on = read[fits]
    since[on], settled[on], judged[on] = rows["value"][on], rows["value"][on], True
    append = np.flatnonzero(inside & (rows["kind"] == APPEND))
    place = positions(chains, cell[append], rows["value"][append])
    missing = np.where(place > 0, place, NEVER)
    since[append], settled[append] = missing, missing
    off_chain, doubled = read[~fits], append[repeated(cell[append], rows["value"][append])]
    unordered = np.unique(cell[np.concatenate((off_chain, doubled))])
    judged[append] = ~np.isin(cell[append], unordered)
    return OddRows(off_chain, doubled, np.flatnonzero(listed[cell] & whole_values(rows)), unordered)


def _lists_undecided(table: Table, wanted: tuple[str, ...]) -> int:
    """How many operations on lists are not judged. For monotonic reads alone repeated appends matter only where lists
    are compared element by element."""
    doubled = table.odd.doubled
    if wanted == GUARANTEES[:1]:
        cells = np.searchsorted(table.events.begin, doubled, side="right")
        odd = np.searchsorted(table.events.begin, table.odd.off_chain, side="right")
        doubled = doubled[np.isin(cells, odd)]
    return len(table.odd.whole) + len(doubled)


def _events(rows: Columns, cell: Ints, begin: Ints, version: Ints, since: Ints, settled: Ints, judged: Bools) -> Events:
    session, _ = dense_sessions(rows)
    read = (rows["kind"] == READ) | (rows["kind"] == LIST_READ)
    strong = read & (rows["strong"] == 1)
    compared_with = np.flatnonzero(judged & (read | (rows["status"] == OK)))
    order, finished = grouped_order(cell[compared_with], len(begin) - 1, rows["complete"][compared_with])
    return Events(
        begin,
        rows["invoke"],
        rows["complete"],
        session,
        version.astype(np.int32),
        since,
        settled,
        read,
        strong,
        judged,
        compared_with[order],
        finished,
    )


def _shown(table: Table, row: int) -> dict[str, Any]:
    value = int(table.rows["value"][row])
    return {
        "value": None if value == NIL else value,
        "list": bool(table.rows["kind"][row] == LIST_READ),
        "since": int(table.events.since[row]),
        "settled": int(table.events.settled[row]),
        "writer": _writer(table, row),
    }


def _writer(table: Table, row: int) -> int:
    """The invocation of the write of a row's version; -1 where it is not one scalar write."""
    if table.rows["kind"][row] not in (READ, WRITE):
        return -1
    writer = int(table.versions.writer[table.events.version[row]])
    return int(table.rows["invoke"][writer]) if writer >= 0 else -1


def _direct(table: Table, out: Instances) -> list[Finding]:
    found = []
    for code, name in enumerate(ANOMALIES):
        for order, cell, row, earlier, scope, _ in out.kept[code, : out.counts[code]]:
            mine, other = _shown(table, int(row)), _shown(table, int(earlier))
            facts = {"mine": mine, "earlier": other, "in_session": bool(scope), "timed": bool(table.timed[cell])}
            facts["listed"] = bool(table.listed[cell])
            ops = (int(order), int(table.rows["invoke"][earlier]), mine["writer"], other["writer"])
            found.append(Finding(name, int(order), key_of(table.rows, int(row)), ops, facts))
    return found


def _of_element(
    table: Table, code: int, late: int, earlier: int, element: int, in_session: bool, reader: int
) -> Finding:
    """What row `late` lacks, or has before it, of what row `earlier` showed or appended; the row `reader` shows
    that."""
    facts = {"mine": _shown(table, late), "earlier": _shown(table, earlier), "in_session": in_session}
    facts |= {"timed": False, "listed": True, "element": element}
    first, second, third = (int(table.rows["invoke"][row]) if row >= 0 else -1 for row in (late, earlier, reader))
    return Finding(ANOMALIES[code], first, key_of(table.rows, late), (first, second, third, -1), facts)


def _unclear_reads(events: Events, versions: Versions) -> Bools:
    """Of plain cells only: what lists show is told by their elements."""
    return events.read & events.judged & versions.unclear[events.version]


def _contradictions(table: Table, stale: np.ndarray, wanted: Bools, explain: int) -> tuple[int, list[Finding]]:
    """Judges cells whose versions are ordered in part, and where no single read is certainly wrong (`stale`)."""
    versions, count = table.versions, len(table.versions.since)
    events = table.events._replace(judged=table.events.judged & ~versions.unclear[table.events.version])
    cell = np.repeat(np.arange(len(table.timed)), np.diff(events.begin))
    _, older, newer = table.replaced
    chosen = ~table.timed
    group_of = np.zeros(count, np.int64)
    group_of[events.version] = cell
    chosen[group_of[older]] = True
    chosen[table.listed] = False
    chosen[cell[(stale & (wanted[0] + 2 * wanted[1])) > 0]] = False
    read = read_order(events, chosen, count, _binding(table, wanted))
    source, target = read.source, read.target
    if len(older):
        inside = chosen[group_of[older]]
        source, target = np.append(source, older[inside]), np.append(target, newer[inside])
    ordered = versions.seen & ~versions.unclear & chosen[group_of]
    if wanted[1] or len(older):
        # Else whatever has an edge was read.
        ordered[source[source < count]], ordered[target[target < count]] = True, True
    picked = np.flatnonzero(ordered)
    if not len(picked):
        return 0, []
    shown, asked = shown_and_asked(events, count) if wanted[0] else (np.full(count, NEVER), np.full(count, NIL))
    helpers = len(read.helper_cell)
    group_of = np.append(group_of, read.helper_cell)
    picked = np.append(picked, count + np.arange(helpers))
    picked = picked[np.argsort(group_of[picked], kind="stable")]
    columns = ((versions.settled, NEVER), (versions.since, NIL), (shown, NEVER), (asked, NIL))
    filled = [np.append(column, np.full(helpers, unbound))[picked] for column, unbound in columns]
    nodes = make_nodes(group_of[picked], len(chosen), *filled)
    node_of = np.full(count + helpers, -1)
    node_of[picked] = np.arange(len(picked))
    order, begin = grouped_order(node_of[source], len(picked), node_of[source])
    edges = SessionEdges(begin, node_of[target][order], picked >= count)
    found, cycles = contradictions(nodes, edges, explain)
    return found, [_contradiction(table, picked, shown, asked, cycle, wanted) for cycle in cycles]


def _binding(table: Table, wanted: Bools) -> Bools:
    """Rows of which later reads of their session must not be older."""
    if not wanted[1]:
        return table.events.read
    acknowledged: Bools = ~table.events.read & (table.rows["status"] == OK)
    return acknowledged | table.events.read if wanted[0] else acknowledged


def _contradiction(
    table: Table, picked: Ints, shown: Ints, asked: Ints, cycle: Contradiction, wanted: Bools
) -> Finding:
    """Steps in order: each version must come before the next, by certain order, by two reads in real time or by what
    one session did."""
    kinds = ("certain", "realtime", "session")
    versions = picked[cycle.nodes][::-1]
    steps: list[dict[str, Any]] = []
    for place, version in enumerate(versions.tolist()):
        following = int(versions[(place + 1) % len(versions)])
        reason = int(cycle.reasons[::-1][(place + 1) % len(versions)])
        did, *rows = _witnesses(table, version, following, reason, (shown, asked), wanted)
        steps.append(
            {
                "kind": kinds[0 if did == REPLACED else reason],
                "did": did,
                "value": _value_of(table, version),
                "next": _value_of(table, following),
                "source": int(table.rows["invoke"][rows[0]]) if rows[0] >= 0 else -1,
                "target": int(table.rows["invoke"][rows[1]]) if rows[1] >= 0 else -1,
            }
        )
    ops = tuple(dict.fromkeys(op for step in steps for op in (step["source"], step["target"]) if op >= 0))
    row = int(np.flatnonzero(table.events.version == versions[0])[0])
    return Finding(CONTRADICTORY, max(ops), key_of(table.rows, row), ops, {"steps": steps})


def _value_of(table: Table, version: int) -> int | None:
    value = int(table.rows["value"][np.flatnonzero(table.events.version == version)[0]])
    return None if value == NIL else value


def _witnesses(
    table: Table, version: int, following: int, reason: int, times: tuple[Ints, Ints], wanted: Bools
) -> tuple[str, int, int]:
    """Rows that show why a version comes before another, their writes or reads of them, and what the first one did."""
    events, (shown, asked) = table.events, times
    writers = int(table.versions.writer[version]), int(table.versions.writer[following])
    if reason == 0:
        return WROTE, *writers
    mine = np.flatnonzero((events.version == version) & (events.read | _binding(table, wanted)))
    other = np.flatnonzero((events.version == following) & events.read)
    if reason == 1:
        mine = mine[events.read[mine]]
        return (
            READ_IT,
            int(mine[events.complete[mine] == shown[version]][0]),
            int(other[events.invoke[other] == asked[following]][0]),
        )
    mine = mine[_binding(table, wanted)[mine]]
    for row in other.tolist():
        before = mine[(events.session[mine] == events.session[row]) & (events.complete[mine] < events.invoke[row])]
        if len(before):
            return READ_IT if events.read[before[-1]] else WROTE, int(before[-1]), int(row)
    # Past helpers a cycle names versions that one session read one after the other, though not next to each other.
    overwritten = bool(np.any((table.replaced.older == version) & (table.replaced.newer == following)))
    return (REPLACED, *writers) if overwritten else (READ_IT, -1, -1)
