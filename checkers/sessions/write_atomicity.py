"""The model `write-atomicity`: a partition write is seen whole or not at all within one page of a read.

A partition write is one operation that writes (or appends to) several cells of one partition, a page one operation that
reads several. Which writes are older is read from the data, see `columns.versions`: commit timestamps where all writes
of the partition that matter have one, else real time. Different pages of one read are different operations, and promise
nothing together (CEP-45).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np

from checkers.columns.chains import Chains, positions
from checkers.columns.codes import NEVER, NIL, READ, WRITE, Ints
from checkers.columns.dense import together
from checkers.columns.instances import Instances, make_instances
from checkers.columns.mops import ADDRESS, Columns, MopProjection, key_of, selected, unsupported_rows
from checkers.columns.versions import (
    APPEND,
    ELEMENT,
    LIST_READ,
    Versions,
    grouped_order,
    order_by_row,
    ordered_versions,
    sorted_cells,
    values_unwritten,
)
from checkers.engines.api import Engine
from checkers.engines.grouped import SLICES, judge_mops
from checkers.explain.conclude import Steps, explained_in_steps
from checkers.explain.speaker import Speaker, listed
from checkers.findings import Finding, Findings, Key, refuse_unsupported
from checkers.options import CheckOptions
from checkers.quorum.judge_quorum import judge_quorum
from checkers.quorum.quorum_history import read_quorum_history
from checkers.sessions.page_lists import (
    Appends,
    Lengths,
    TornLists,
    cells_twice,
    read_twice,
    torn_by_elements,
    torn_lists,
)
from checkers.sessions.session_lists import (
    READS_UNCLEAR,
    UNDECIDED,
    UNTIMELY,
    UNWRITTEN,
    elements_unwritten,
    list_rows,
    listed_cells,
    repeated,
    verdict_of,
    whole_values,
    without_elements,
)
from checkers.sessions.torn_page_reads import (
    UNCLEAR,
    Demands,
    PageVisits,
    cell_order,
    cells_written,
    replaced,
    torn_reads,
)
from checkers.sessions.version_cycles import SessionEdges, contradictions, make_nodes
from checkers.source import Source
from checkers.verdict import Verdict

TORN: Final = "torn-read"
CIRCULAR: Final = "torn-whichever-order"

PROJECTION: Final = MopProjection(
    {"r": READ, "w": WRITE, "cas": WRITE, "append": APPEND},
    extras=("served_ts",),
    list_kinds=(LIST_READ, ELEMENT),
    keep_failed=False,
)


def judge_write_atomicity(source: Source, engine: Engine, options: CheckOptions) -> Verdict:
    """Whether every page of every read shows partition writes whole or not at all."""
    reading = read_quorum_history(source, engine)
    if reading is not None:
        return judge_quorum("write-atomicity", reading, source, engine, options)
    kernel = PageKernel(options.explain)
    found = judge_mops(engine, source, PROJECTION, ("table", "partition"), kernel, options.explain, SLICES)
    refuse_unsupported(found, source.path, "write-atomicity")
    details = {"partitions": found.keys} | found.figures
    valid, reason = verdict_of(found)
    return Verdict(
        valid,
        "write-atomicity",
        explained_in_steps(source, found.kept, _torn_sentence),
        found.counts,
        found.ops,
        engine=engine.name,
        reason=reason,
        details=details,
    )


@dataclass(frozen=True, slots=True)
class PageKernel:
    """Judges many partitions at once; `explain` instances of each anomaly are kept."""

    explain: int

    def __call__(self, rows: Columns) -> Findings:
        """Findings; their figures count pages read, demands on the order of writes that are not certain by themselves,
        reads of lists that are no prefixes, and reads of unclear versions and appends of repeated elements that may
        hide a torn write."""
        problems = unsupported_rows(rows, "not reads, writes or appends of integers")
        ops = int((rows["kind"] != ELEMENT).sum())
        if problems:
            return Findings(ops=ops, unsupported=problems)
        table = _PageTable.of(rows)
        out = make_instances(1, self.explain)
        demands, reads = torn_reads(table.pages, table.cells, out)
        kept = [_torn(table, out, place) for place in range(min(int(out.counts[0]), out.kept.shape[1]))]
        torn, listed = self._lists(table)
        found, circles = _circles(table, demands, self.explain)
        counts = {TORN: int(out.counts[0]) + torn, CIRCULAR: found}
        shown = int(np.isin(rows["kind"], (READ, LIST_READ)).sum())
        figures = {
            "reads": shown,
            "pages": reads,
            "orders_undecided": len(demands.source),
            READS_UNCLEAR: table.unclear_reads(),
            UNDECIDED: len(table.lists.unjudged),
            UNWRITTEN: values_unwritten(table.rows, table.pages.version, table.versions)
            + elements_unwritten(table.rows, table.pages.cell, table.lists.chains),
            UNTIMELY: len(table.versions.untimely),
        }
        return Findings(
            ops, table.groups, {n: c for n, c in counts.items() if c}, (*kept, *listed, *circles), figures=figures
        )

    def _lists(self, table: _PageTable) -> tuple[int, list[Finding]]:
        if not table.listed.any():
            return 0, []
        appends, lists = table.appends(), table.lists
        alone = cells_twice(appends)
        lengths = table.lengths(alone)
        by_length = torn_lists(appends, lengths, table.cells, alone)
        # Lengths do not tell what a page read before its own appends, nor which of two reads of a list is meant.
        appended = np.isin(table.visit[by_length.shown], table.visit[table.rows["kind"] == APPEND])
        looked_up = np.concatenate((table.visit[by_length.shown[appended]], read_twice(appends, lengths)))
        again = np.flatnonzero((lists.length >= 0) & np.isin(table.visit, looked_up))
        by_length = by_length.without(np.isin(table.visit[by_length.shown], looked_up))
        places = table.visit, table.pages.cell, lists.chains
        by_element = torn_by_elements(table.rows, *places, appends, np.union1d(lists.elsewhere, again))
        found = TornLists(*(np.concatenate(columns) for columns in zip(by_length, by_element, strict=True)))
        firsts = np.argsort(table.rows["invoke"][found.shown], kind="stable")[: self.explain]
        return len(found.shown), [_finding(table, TORN, *(int(column[i]) for column in found)) for i in firsts.tolist()]


class _OnLists(NamedTuple):
    """By row: how many elements were read (-1: no list, or one of a page of which some list is no prefix of the
    longest), and an append's place in its list (-1: none). Then the rows of the lists in such pages, and of what is not
    judged: appends of an element that was appended more than once, reads and writes of whole values, appends together
    with such writes."""

    chains: Chains
    length: Ints
    place: Ints
    elsewhere: Ints
    unjudged: Ints


@dataclass(frozen=True, slots=True)
class _PageTable:
    """Rows sorted by partition and operation, without elements."""

    rows: Columns
    pages: PageVisits
    versions: Versions
    visit: Ints
    group: Ints
    groups: int
    cells: int
    listed: np.ndarray
    lists: _OnLists

    @staticmethod
    def of(rows: Columns) -> _PageTable:
        rows, group, begin = sorted_cells(rows, ("table", "partition"))
        cell, cells = together([rows[name] for name in ADDRESS])
        chains, kept = without_elements(rows, cell, cells)
        if not kept.all():
            rows, group, cell = selected(rows, kept), group[kept], cell[kept]
        version, count = together([cell, rows["value"]])
        versions, timed = ordered_versions(rows, cell, cells, version, count, group)
        fresh = np.ones(len(cell), np.bool_)
        fresh[1:] = (group[1:] != group[:-1]) | (rows["invoke"][1:] != rows["invoke"][:-1])
        visit = np.cumsum(fresh) - 1
        listed = listed_cells(rows, cell, cells)
        order = order_by_row(rows, version, group, versions, timed)
        pages = _pages(rows, cell, version, versions, order, visit, listed)
        lists = _on_lists(rows, cell, visit, chains, listed)
        return _PageTable(rows, pages, versions, visit, group, len(begin) - 1, cells, listed, lists)

    def unclear_reads(self) -> int:
        """Reads of unclear versions beside other reads, in cells that are written together with others; and in cells
        that some operation wrote several times."""
        if not self.versions.unclear.any():
            return 0
        pages = self.pages
        rows_of = np.bincount(self.visit[pages.write], minlength=len(pages.cells))
        together_with, replaced_in = np.zeros((2, self.cells), np.bool_)
        together_with[pages.cell[pages.write & (pages.cells[self.visit] > 1)]] = True
        replaced_in[pages.cell[pages.write & (rows_of > pages.cells)[self.visit]]] = True
        beside = np.bincount(self.visit[pages.read], minlength=len(pages.begin))[self.visit] > 1
        unclear = pages.read & self.versions.unclear[pages.version]
        return int((unclear & (beside & together_with[pages.cell] | replaced_in[pages.cell])).sum())

    def appends(self) -> Appends:
        """Appends of operations that append to several cells of a partition."""
        row = np.flatnonzero(self.lists.place >= 0)
        several = np.bincount(self.visit[row], minlength=len(self.pages.begin))[self.visit[row]] > 1
        row = row[several]
        return Appends(self.visit[row], self.pages.cell[row], self.lists.place[row], row)

    def lengths(self, alone: Ints) -> Lengths:
        """Lists read together with others of the partition, and those of the cells `alone`."""
        row = np.flatnonzero(self.lists.length >= 0)
        several = np.bincount(self.visit[row], minlength=len(self.pages.begin))[self.visit[row]] > 1
        row = row[several | np.isin(self.pages.cell[row], alone)]
        return Lengths(self.visit[row], self.pages.cell[row], self.lists.length[row], row)


def _pages(
    rows: Columns,
    cell: Ints,
    version: Ints,
    versions: Versions,
    order: tuple[Ints, Ints],
    visit: Ints,
    listed: np.ndarray,
) -> PageVisits:
    """`order` is `since` and `settled` by row."""
    firsts = np.flatnonzero(np.diff(visit, prepend=-1))
    begin = np.append(firsts, len(cell))
    plain = ~listed[cell] if len(listed) else np.zeros(0, np.bool_)
    read = plain & (rows["kind"] == READ)
    write = plain & (rows["kind"] == WRITE)
    writer = np.where(versions.writer >= 0, visit[versions.writer] if len(visit) else 0, -1)
    nil = version[rows["value"] == NIL]
    writer[nil] = np.where(versions.unclear[nil], UNCLEAR, -2)
    writer[versions.unclear] = UNCLEAR
    settled, since = np.full(len(firsts), NEVER), np.full(len(firsts), NIL)
    np.maximum.at(since, visit[write], order[0][write])
    np.minimum.at(settled, visit[write], order[1][write])
    since[settled < since] = NIL + 1
    cells = cells_written(begin, cell, write)
    over = replaced(visit, cell, version, writer, write, cells)
    by_version, by_visit = (writer, versions.settled, over), (since, settled, cells)
    return PageVisits(
        begin, cell, version, read, write, *by_version, *by_visit, cell_order(begin, cell), rows["invoke"]
    )


def _on_lists(rows: Columns, cell: Ints, visit: Ints, chains: Chains, listed: np.ndarray) -> _OnLists:
    length, place = np.full(len(cell), -1), np.full(len(cell), -1)
    if not listed.any():
        nothing = np.empty(0, np.int64)
        return _OnLists(chains, length, place, nothing, nothing)
    inside, empty, read, fits = list_rows(rows, cell, listed, chains)
    length[empty], length[read] = 0, rows["value"][read]
    elsewhere = np.flatnonzero((length >= 0) & np.isin(visit, visit[read[~fits]]))
    length[elsewhere] = -1
    append = np.flatnonzero(rows["kind"] == APPEND)
    found = positions(chains, cell[append], rows["value"][append])
    place[append] = np.where(found > 0, found, NEVER)
    doubled = append[repeated(cell[append], rows["value"][append])]
    place[doubled] = -1
    place[append[~inside[append]]] = -1
    # What appends once is no partition write: it can't be torn.
    doubled = doubled[np.bincount(visit[append])[visit[doubled]] > 1]
    whole = np.flatnonzero(listed[cell] & whole_values(rows))
    mixed = append[np.isin(visit[append], visit[rows["kind"] == WRITE])]
    return _OnLists(chains, length, place, elsewhere, np.unique(np.concatenate((doubled, whole, mixed))))


def _cell_facts(table: _PageTable, row: int) -> dict[str, Any]:
    value = int(table.rows["value"][row])
    listed = bool(table.rows["kind"][row] == LIST_READ)
    return {"cell": list(key_of(table.rows, row)), "value": None if value == NIL else value, "list": listed}


def _finding(table: _PageTable, name: str, shown: int, lacking: int, written: int, unwritten: int) -> Finding:
    """`written` and `unwritten` are the write's rows in the cell where it is seen and where it is not."""
    reader, writer = int(table.rows["invoke"][shown]), int(table.rows["invoke"][written])
    origin = int(table.pages.writer[table.pages.version[lacking]])
    facts: dict[str, Any] = {"shown": _cell_facts(table, shown), "lacking": _cell_facts(table, lacking)}
    facts["written"] = _cell_facts(table, unwritten)
    if not facts["lacking"]["list"] and (origin >= 0 or origin == UNCLEAR):
        latest = table.pages.latest[table.pages.version[lacking]]
        facts["settled"] = int(table.pages.settled[origin] if origin >= 0 else latest)
        facts["since"] = int(table.pages.since[table.visit[written]])
    older = int(table.rows["invoke"][table.pages.begin[origin]]) if origin >= 0 else -1
    return Finding(name, reader, key_of(table.rows, lacking), (reader, writer, older), facts)


def _torn(table: _PageTable, out: Instances, place: int) -> Finding:
    _, _, shown, lacking, first, _ = (int(i) for i in out.kept[0, place])
    return _finding(table, TORN, shown, lacking, *_written(table, table.visit[first], shown, lacking))


def _written(table: _PageTable, visit: int, shown: int, lacking: int) -> tuple[int, int]:
    rows = np.arange(table.pages.begin[visit], table.pages.begin[visit + 1])
    rows = rows[table.pages.write[rows]]
    found = [int(rows[table.pages.cell[rows] == table.pages.cell[row]][-1]) for row in (shown, lacking)]
    return found[0], found[1]


def _circles(table: _PageTable, demands: Demands, explain: int) -> tuple[int, list[Finding]]:
    """Partitions whose reads' demands no order of the writes fulfils."""
    if not len(demands.source):
        return 0, []
    visits = np.unique(np.concatenate((demands.source, demands.target)))
    group = table.group[table.pages.begin[visits]]
    node_of = np.full(len(table.pages.since), -1)
    node_of[visits] = np.arange(len(visits))
    unseen, never = np.full(len(visits), NEVER), np.full(len(visits), NIL)
    nodes = make_nodes(group, table.groups, table.pages.settled[visits], table.pages.since[visits], unseen, never)
    source = node_of[demands.source]
    order, begin = grouped_order(source, len(visits), source)
    edges = SessionEdges(begin, node_of[demands.target][order], np.zeros(len(visits), np.bool_))
    found, cycles = contradictions(nodes, edges, explain)
    told = []
    for cycle in cycles:
        around = visits[cycle.nodes]
        edge = _demand_of(demands, around)
        shown, lacking, visit = int(demands.shown[edge]), int(demands.other[edge]), int(demands.source[edge])
        finding = _finding(table, CIRCULAR, shown, lacking, *_written(table, visit, shown, lacking))
        writers = [int(table.rows["invoke"][table.pages.begin[v]]) for v in around[::-1]]
        told.append(Finding(CIRCULAR, finding.order, finding.key, (*finding.ops[:2], *writers), finding.facts))
    return found, told


def _demand_of(demands: Demands, around: Ints) -> int:
    """A demand between neighbours on the circle (each is before the one listed before it)."""
    for place, later in enumerate(around.tolist()):
        earlier = int(around[(place + 1) % len(around)])
        edges = np.flatnonzero((demands.source == earlier) & (demands.target == later))
        if len(edges):
            return int(edges[0])
    return 0


def _value(speaker: Speaker, shown: dict[str, Any]) -> str:
    return f"a list of {shown['value']}" if shown["list"] else speaker.source.shown(shown["value"])


def _cell(speaker: Speaker, cell: Sequence[int]) -> str:
    """`row 2 of key 14`."""
    key = Key(*cell)
    name = f"row {key.row}" if key.column == 0 else f"row {key.row}, column {key.column}"
    return f"{name} of {speaker.key(Key(key.table, key.partition))}"


def _torn_sentence(speaker: Speaker, finding: Finding) -> tuple[str, Steps]:
    reader, writer = finding.ops[:2]
    facts = finding.facts
    shown, lacking = facts["shown"], facts["lacking"]
    wrote = speaker.source.shown(facts["written"]["value"])
    here, there = (_cell(speaker, told["cell"]) for told in (shown, lacking))
    node = f" on node {speaker.rows[reader]['node']}" if speaker.rows[reader]["node"] else ""
    by = f"process {speaker.rows[writer]['process']}'s write"
    first = (
        f"Process {speaker.rows[reader]['process']}'s read at {speaker.when(reader, 'invoke')}{node} shows {by} in "
        f"{here} ({_value(speaker, shown)}), but in {there}, where that wrote {wrote}, {_value(speaker, lacking)}."
    )
    sees = f"the read shows {_value(speaker, shown)} of {here}, which {by} wrote"
    lacks = f"the read shows {_value(speaker, lacking)} of {there}, which {by} replaced by {wrote}"
    source, target = speaker.rows[writer]["op"], speaker.rows[reader]["op"]
    seen, lacking_key = (speaker.source.shown_key(told["cell"]) for told in (shown, lacking))
    steps = (
        {"source": source, "target": target, "kind": "wr", "why": sees, "key": seen},
        {"source": target, "target": source, "kind": "rw", "why": lacks, "key": lacking_key},
    )
    return f"{first} {_order(speaker, finding)}", steps


def _order(speaker: Speaker, finding: Finding) -> str:
    facts, older = finding.facts, finding.ops[2]
    old, new = _value(speaker, facts["lacking"]), speaker.source.shown(facts["written"]["value"])
    if finding.anomaly != "torn-read":
        names = [f"process {speaker.rows[index]['process']}'s" for index in finding.ops[2:]]
        return (
            f"Reads and real time ask for a circle of the writes ({listed(names)}), so whichever way they are ordered, "
            "some read shows a part of one only."
        )
    if facts["lacking"]["list"]:
        return f"The element {new} is missing there: one page shows a part of the write only."
    if older == finding.ops[1]:
        return f"The same write put {new} in the place of {old}, so the page shows a part of the write only."
    if older < 0 and "settled" in facts:
        return (
            f"All writes of {old} there are older than {new} (they were there at {facts['settled']}, and the write of "
            f"{new} is of {facts['since']} at the earliest), so the page shows a part of the write only."
        )
    if older < 0 or facts["lacking"]["value"] is None:
        return "That row was unset only before everything, so the page shows a part of the write only."
    return (
        f"{old} is older than {new} (it was there at {facts['settled']}, and the write of {new} is of {facts['since']} "
        "at the earliest), so the page shows a part of the write only."
    )
