"""The kernel of the models of quorum tables: mutations, pages, and what pages of a partition show that can't be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from checkers.columns.codes import NIL, Bools
from checkers.columns.instances import Instances, make_instances
from checkers.columns.mops import Columns
from checkers.findings import Finding, Findings
from checkers.quorum.quorum_table import ABSENT, QuorumTable, cell_key, garbage, judge_table
from checkers.quorum.row_floors import Sources, by_partition, by_session, too_old_reads
from checkers.quorum.torn_pages import Tear, seen_parts, torn_deletion, torn_pages

TORN: Final = "torn-read"
TWOFOLD: Final = "contradictory-page"
UNWRITTEN: Final = "unwritten-value"
OLDER: Final = "non-monotonic-read"
MISSED: Final = "missed-own-write"
LOST: Final = "lost-write"
RETURNED: Final = "deleted-row-returned"

ANOMALIES: Final = (
    *("torn-read", "contradictory-page", "unwritten-value", "non-monotonic-read", "missed-own-write", "lost-write"),
    "deleted-row-returned",
)
"""All that these models name."""

WRITE_ATOMICITY: Final = "write-atomicity"
MONOTONIC_READS: Final = "monotonic-reads"
READ_YOUR_WRITES: Final = "read-your-writes"
SESSIONS: Final = "sessions"
DURABLE_ROWS: Final = "durable-rows"


@dataclass(frozen=True, slots=True)
class QuorumKernel:
    """Judges many partitions by one model; `explain` instances of each anomaly are kept. `binding[i, j]` says whether
    what was done at place i (`quorum_history.Reading`) must be seen at place j."""

    model: str
    binding: Bools
    explain: int

    def __call__(self, rows: Columns) -> Findings:
        """Findings, as `judge_table` has them."""
        return judge_table(rows, self._judged)

    def _judged(self, table: QuorumTable, partitions: int) -> Findings:
        odd = garbage(table)
        found = _Found(self.explain)
        for place in odd[np.argsort(_page_of(table, odd), kind="stable")][: self.explain].tolist():
            found.kept.append(_unwritten(table, place))
        if len(odd):
            found.counts[UNWRITTEN] = len(odd)
        unwritten = np.zeros(len(table.pages.cell), np.bool_)
        unwritten[odd] = True
        figures = {"pages": len(table.pages.invoke)}
        if self.model == WRITE_ATOMICITY:
            self._pages(table, unwritten, found)
        else:
            figures["comparisons"] = self._floors(table, unwritten, found, partitions)
        ops = len(table.rows["kind"])
        return Findings(ops, partitions, found.counts, tuple(found.kept), figures=figures)

    def _pages(self, table: QuorumTable, unwritten: Bools, found: _Found) -> None:
        out = make_instances(2, self.explain)
        torn_pages(table.pages, table.mutations, table.deletions, unwritten, out)
        found.take(out, 0, TORN, lambda kept: _torn(table, *kept[1:4]))
        found.take(out, 1, TWOFOLD, lambda kept: _twofold(table, *kept[1:3]))

    def _floors(self, table: QuorumTable, unwritten: Bools, found: _Found, partitions: int) -> int:
        pages, mutations, compared = table.pages, table.mutations, 0
        rounds: list[tuple[Sources, tuple[str, str, str]]] = []
        if self.model in (MONOTONIC_READS, SESSIONS):
            rounds.append((by_partition(pages, mutations, partitions, reads=True, writes=False), (OLDER,) * 3))
        if self.model in (READ_YOUR_WRITES, SESSIONS):
            rounds.append((by_session(pages, mutations), (MISSED,) * 3))
        if self.model == DURABLE_ROWS:
            sources = by_partition(pages, mutations, partitions, reads=False, writes=True)
            rounds.append((sources, (LOST, LOST, RETURNED)))
        for sources, names in rounds:
            out = make_instances(3, self.explain)
            judged = (pages, mutations, table.deletions)
            compared += too_old_reads(sources, table.cells, judged, unwritten, self.binding, out)
            for code, name in enumerate(names):
                found.take(out, code, name, lambda kept, name=name: _too_old(table, name, *kept[1:5]))
        return compared


class _Found:
    """Anomalies as they are found."""

    def __init__(self, explain: int) -> None:
        self.counts: dict[str, int] = {}
        self.kept: list[Finding] = []
        self._explain = explain

    def take(self, out: Instances, code: int, name: str, explained: Any) -> None:
        """Take what a kernel recorded by a code as anomalies of a name."""
        count = int(out.counts[code])
        if count:
            self.counts[name] = self.counts.get(name, 0) + count
            self.kept += [explained([int(i) for i in kept]) for kept in out.kept[code, : min(count, self._explain)]]


def _page_of(table: QuorumTable, places: Any) -> Any:
    return np.searchsorted(table.pages.begin, places, side="right") - 1


def _seen(table: QuorumTable, page: int, cell: int, place: int) -> dict[str, Any]:
    """What a page shows of a cell; `place` is -1 if it does not name it."""
    pages, mutations = table.pages, table.mutations
    shown = int(pages.shown[place]) if place >= 0 else ABSENT
    value = int(table.rows["value"][pages.row[place]]) if place >= 0 else NIL
    timestamp = int(mutations.timestamp[shown]) if shown >= 0 else None
    facts = {
        "cell": list(cell_key(table.cells, cell)),
        "value": None if value == NIL else value,
        "timestamp": timestamp,
    }
    return facts | {"named": place >= 0}


def _written(table: QuorumTable, touch: int) -> dict[str, Any]:
    """What a mutation did to a cell: the value it wrote, None if it deleted it."""
    mutations = table.mutations
    m = int(np.searchsorted(mutations.begin, touch, side="right")) - 1
    cell = int(mutations.cell[touch])
    facts: dict[str, Any] = {"cell": list(cell_key(table.cells, cell)), "timestamp": int(mutations.timestamp[m])}
    if not mutations.value[touch]:
        return facts | {"value": None}
    mine = table.rows["invoke"] == mutations.invoke[m]
    for name, part in cell_key(table.cells, cell)._asdict().items():
        mine = mine & (table.rows[name] == part)
    row = np.flatnonzero(mine & (table.rows["kind"] == 1))[0]
    return facts | {"value": int(table.rows["value"][row])}


def _place_of(table: QuorumTable, page: int, cell: int) -> int:
    """Where a page names a cell, -1 where it does not."""
    first, last = int(table.pages.begin[page]), int(table.pages.begin[page + 1])
    found = np.flatnonzero(table.pages.cell[first:last] == cell)
    return first + int(found[0]) if len(found) else -1


def _writer(table: QuorumTable, place: int) -> int:
    """The invocation of the write of what stands there, -1 for none."""
    shown = int(table.pages.shown[place]) if place >= 0 else ABSENT
    return int(table.mutations.invoke[shown]) if shown >= 0 else -1


def _unwritten(table: QuorumTable, place: int) -> Finding:
    page = int(_page_of(table, place))
    shown, cell = int(table.pages.shown[place]), int(table.pages.cell[place])
    why = "never" if shown < 0 else "failed" if table.mutations.failed[shown] else "later"
    reader, writer = int(table.pages.invoke[page]), _writer(table, place)
    facts = {"shown": _seen(table, page, cell, place), "why": "own" if writer == reader else why}
    return Finding(UNWRITTEN, reader, cell_key(table.cells, cell), (reader, writer), facts)


def _torn(table: QuorumTable, page: int, place: int, touch: int) -> Finding:
    cell, shown, writer = int(table.mutations.cell[touch]), int(table.pages.cell[place]), int(table.pages.shown[place])
    other = _place_of(table, page, cell)
    facts: dict[str, Any] = {"shown": _seen(table, page, shown, place), "lacking": _seen(table, page, cell, other)}
    facts["written"] = _written(table, touch)
    tear = Tear(writer, shown, cell)
    absent = other < 0 or table.pages.shown[other] == ABSENT
    deletion = torn_deletion(table, page, writer, cell) if absent and table.mutations.value[touch] else None
    if deletion is not None:
        kept = _place_of(table, page, deletion.lacking)
        facts["kept"], tear = _seen(table, page, deletion.lacking, kept), deletion
        facts["deleted_ts"] = int(table.mutations.timestamp[deletion.mutation])
    parts = seen_parts(table, page, tear)
    reader = int(table.pages.invoke[page])
    earlier = (read for read, _ in parts["reads"] if read != reader)
    ops = (reader, _writer(table, place), _writer(table, other), parts["torn"], *earlier)
    return Finding(TORN, reader, cell_key(table.cells, cell), ops, facts | parts)


def _twofold(table: QuorumTable, page: int, place: int) -> Finding:
    cell, reader = int(table.pages.cell[place]), int(table.pages.invoke[page])
    first = _place_of(table, page, cell)
    facts = {"shown": _seen(table, page, cell, first), "lacking": _seen(table, page, cell, place)}
    ops = (reader, _writer(table, first), _writer(table, place))
    return Finding(TWOFOLD, reader, cell_key(table.cells, cell), ops, facts)


def _too_old(table: QuorumTable, name: str, cell: int, page: int, place: int, source: int) -> Finding:
    facts = {"mine": _seen(table, page, cell, place)}
    reader = int(table.pages.invoke[page])
    if source >= 0:
        other = _place_of(table, source, cell)
        facts["earlier"] = _seen(table, source, cell, other)
        ops = (reader, int(table.pages.invoke[source]), _writer(table, place), _writer(table, other))
    else:
        facts["earlier"] = _written(table, -2 - source)
        m = int(np.searchsorted(table.mutations.begin, -2 - source, side="right")) - 1
        ops = (reader, int(table.mutations.invoke[m]), _writer(table, place), -1)
    return Finding(name, reader, cell_key(table.cells, cell), ops, facts)
