"""The kernel of the session guarantees: what sessions, and strong reads in real time, show of cells and lists."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np

from checkers.columns.chains import Chains, chain_of, find_chains, positions
from checkers.columns.codes import NEVER, NIL, OK, READ, WRITE, Ints
from checkers.columns.dense import together
from checkers.columns.instances import Instances, make_instances
from checkers.columns.mops import Columns, key_of, selected, unsupported_rows
from checkers.columns.versions import (
    APPEND,
    ELEMENT,
    LIST_READ,
    Bools,
    Versions,
    dense_sessions,
    grouped_order,
    order_by_row,
    ordered_versions,
    sorted_cells,
)
from checkers.findings import Finding, Findings
from checkers.sessions.off_chain import omissions
from checkers.sessions.read_order import read_order
from checkers.sessions.session_order import GUARANTEES, Events, judge_sessions
from checkers.sessions.version_cycles import (
    Contradiction,
    SessionEdges,
    contradictions,
    make_nodes,
    shown_and_asked,
)

ANOMALIES: Final = ("non-monotonic-read", "missed-own-write", "non-monotonic-write", "write-before-what-was-read")
"""By the codes of `session_order`."""

CONTRADICTORY: Final = "contradictory-reads"
"""Strong reads, or one session's, that fit no order of the versions, whichever it is."""

UNCLEAR: Final = "reads_unclear"
"""Figure: reads of values that several operations wrote."""

APPENDS_UNCLEAR: Final = "appends_unclear"
"""Figure: appends of elements that were appended to the list more than once."""


class Table(NamedTuple):
    """Rows sorted by cell and invocation, without elements; `events` are the same as kernels read them."""

    rows: Columns
    versions: Versions
    events: Events
    timed: Bools
    listed: Bools
    sessions: int
    chains: Chains
    off_chain: Ints


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
        guilty, compared, undecided = judge_sessions(table.events, table.sessions, wanted, out)
        counts = {name: int(count) for name, count in zip(ANOMALIES, out.counts, strict=True) if count}
        kept = _direct(table, out)
        if wanted[0]:
            omitted = omissions(table.rows, table.events, table.chains, table.off_chain, self.explain)
            if omitted.total:
                counts[ANOMALIES[0]] = counts.get(ANOMALIES[0], 0) + omitted.total
                kept += [_omission(table, *pair) for pair in omitted.pairs]
            found, cycles = _contradictions(table, guilty, self.explain)
            if found:
                counts[CONTRADICTORY] = found
                kept += cycles
        reads = int(np.isin(rows["kind"], (READ, LIST_READ)).sum())
        figures = {"reads": reads, "comparisons": compared, "comparisons_undecided": undecided}
        figures[UNCLEAR] = int(_unclear_reads(table.events, table.versions).sum())
        figures[APPENDS_UNCLEAR] = int(((table.rows["kind"] == APPEND) & ~table.events.judged).sum())
        return Findings(ops, len(table.timed), counts, tuple(kept), figures=figures)


def read_table(rows: Columns) -> Table:
    """Sort, number versions, and find what is known of their order."""
    rows, cell, begin = sorted_cells(rows)
    cells = len(begin) - 1
    elements = rows["kind"] == ELEMENT
    name, place, item = (rows[column][elements] for column in ("chain", "place", "value"))
    chains = find_chains(cell[elements], name, place, item, cells)
    if elements.any():
        rows, cell = selected(rows, ~elements), cell[~elements]
        begin = np.searchsorted(cell, np.arange(cells + 1))
    listed = np.zeros(cells, np.bool_)
    listed[cell[(rows["kind"] == LIST_READ) | (rows["kind"] == APPEND)]] = True
    version, count = together([cell, rows["value"]])
    versions, timed = ordered_versions(rows, cell, cells, version, count, cell)
    since, settled = order_by_row(rows, version, cell, versions, timed)
    judged = (rows["kind"] == READ) | (rows["kind"] == WRITE)
    off_chain = _order_lists(rows, cell, listed, chains, since, settled, judged)
    events = _events(rows, cell, begin, version, since, settled, judged)
    return Table(rows, versions, events, timed, listed, dense_sessions(rows)[1], chains, off_chain)


def _order_lists(
    rows: Columns, cell: Ints, listed: Bools, chains: Chains, since: Ints, settled: Ints, judged: Bools
) -> Ints:
    """Orders what lists show by how long they are; returns the rows of reads that are no prefix of the longest."""
    if not listed.any():
        return np.empty(0, np.int64)
    inside = listed[cell]
    judged[inside] = False
    empty = np.flatnonzero(inside & (rows["kind"] == READ) & (rows["value"] == NIL))
    since[empty], settled[empty], judged[empty] = 0, 0, True
    read = np.flatnonzero(inside & (rows["kind"] == LIST_READ))
    chain = chain_of(chains, cell[read], rows["chain"][read])
    length = rows["value"][read]
    fits = length <= np.where(chain >= 0, chains.common[chain] if len(chains.common) else 0, 0)
    on = read[fits]
    since[on], settled[on], judged[on] = length[fits], length[fits], True
    append = np.flatnonzero(inside & (rows["kind"] == APPEND))
    if len(append):
        place = positions(chains, cell[append], rows["value"][append])
        missing = np.where(place > 0, place, NEVER)
        since[append], settled[append] = missing, missing
        judged[append] = _once(cell[append], rows["value"][append])
    return read[~fits]


def _once(cell: Ints, value: Ints) -> Bools:
    """Which elements were appended only once."""
    ids, count = together((cell, value))
    alone: Bools = np.bincount(ids, minlength=count)[ids] == 1
    return alone


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


def _omission(table: Table, row: int, earlier: int, in_session: bool, element: int) -> Finding:
    facts = {"mine": _shown(table, row), "earlier": _shown(table, earlier), "in_session": in_session}
    facts |= {"timed": False, "listed": True, "element": element}
    ops = (int(table.rows["invoke"][row]), int(table.rows["invoke"][earlier]), -1, -1)
    return Finding(ANOMALIES[0], ops[0], key_of(table.rows, row), ops, facts)


def _unclear_reads(events: Events, versions: Versions) -> Bools:
    """Of plain cells only: what lists show is told by their elements."""
    return events.read & events.judged & versions.unclear[events.version]


def _contradictions(table: Table, guilty: Bools, explain: int) -> tuple[int, list[Finding]]:
    """Judges cells whose versions are ordered in part, and where no single read is certainly wrong."""
    versions = table.versions
    events = table.events._replace(judged=table.events.judged & ~versions.unclear[table.events.version])
    chosen = ~(table.timed | table.listed | guilty)
    group_of = np.zeros(len(versions.since), np.int64)
    cell = np.repeat(np.arange(len(chosen)), np.diff(events.begin))
    group_of[events.version] = cell
    picked = np.flatnonzero(versions.seen & ~versions.unclear & chosen[group_of])
    if not len(picked):
        return 0, []
    count = len(versions.since)
    shown, asked = shown_and_asked(events, count)
    read = read_order(events, chosen, count)
    helpers = len(read.helper_cell)
    group_of = np.append(group_of, read.helper_cell)
    picked = np.append(picked, count + np.arange(helpers))
    picked = picked[np.argsort(group_of[picked], kind="stable")]
    columns = ((versions.settled, NEVER), (versions.since, NIL), (shown, NEVER), (asked, NIL))
    filled = [np.append(column, np.full(helpers, unbound))[picked] for column, unbound in columns]
    nodes = make_nodes(group_of[picked], len(chosen), *filled)
    node_of = np.full(count + helpers, -1)
    node_of[picked] = np.arange(len(picked))
    source, target = node_of[read.source], node_of[read.target]
    order, begin = grouped_order(source, len(picked), source)
    edges = SessionEdges(begin, target[order], picked >= count)
    found, cycles = contradictions(nodes, edges, explain)
    return found, [_contradiction(table, picked, shown, asked, cycle) for cycle in cycles]


def _contradiction(table: Table, picked: Ints, shown: Ints, asked: Ints, cycle: Contradiction) -> Finding:
    """Steps in order: each version must come before the next, by certain order, by two reads in real time or by two of
    one session."""
    kinds = ("certain", "realtime", "session")
    versions = picked[cycle.nodes][::-1]
    steps: list[dict[str, Any]] = []
    for place, version in enumerate(versions.tolist()):
        following = int(versions[(place + 1) % len(versions)])
        reason = int(cycle.reasons[::-1][(place + 1) % len(versions)])
        rows = _witnesses(table, version, following, reason, shown, asked)
        steps.append(
            {
                "kind": kinds[reason],
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


def _witnesses(table: Table, version: int, following: int, reason: int, shown: Ints, asked: Ints) -> tuple[int, int]:
    """Rows that show why a version comes before another: their writes, or reads of them."""
    events = table.events
    if reason == 0:
        return int(table.versions.writer[version]), int(table.versions.writer[following])
    mine = np.flatnonzero((events.version == version) & events.read)
    other = np.flatnonzero((events.version == following) & events.read)
    if reason == 1:
        return int(mine[events.complete[mine] == shown[version]][0]), int(
            other[events.invoke[other] == asked[following]][0]
        )
    for row in other.tolist():
        before = mine[(events.session[mine] == events.session[row]) & (events.complete[mine] < events.invoke[row])]
        if len(before):
            return int(before[-1]), int(row)
    return -1, -1
