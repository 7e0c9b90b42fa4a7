"""The model `convergence` on quorum tables: at the end all replicas hold the same, row by row.

Final reads are those that began after the last write had ended and, where a history marks any, are of the phases
`final` and `each-node`. Of each replica and cell the last that covers it counts, and a row that its page does not list
is absent there. Whose replica a read shows is who answered it, if the history says that one did, else its node. An
answer that was made of several, or may have been by its level, says nothing about any. A partition that was not read
from as many replicas as it has, or from two where the history does not say how many, is not decided.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from checkers.columns.codes import NIL, Ints
from checkers.columns.dense import spread
from checkers.columns.mops import Columns
from checkers.engines.api import Engine
from checkers.engines.grouped import SLICES, judge_mops
from checkers.explain.speaker import Speaker, listed
from checkers.findings import Finding, Findings
from checkers.options import CheckOptions
from checkers.quorum.judge_quorum import LEVEL_COLUMNS, cell_words, verdict_on_partitions
from checkers.quorum.quorum_history import Reading, refuse
from checkers.quorum.quorum_table import MOST_TOUCHES, QuorumTable, cell_key, judge_table
from checkers.source import Source
from checkers.verdict import Anomaly, Verdict

DIVERGED: Final = "divergence"

_MOST_OPS: Final = 4
"""Reads that are shown of a divergence; it is counted whatever is shown."""

_SHORT: Final = "Some partitions were not read, at the end, from as many replicas as they have."
_NOTHING: Final = "No cell was read from more than one replica at the end, so nothing was compared."
_TOO_MANY: Final = f"Final reads cover more than {MOST_TOUCHES} cells, so some partitions were not judged."


@dataclass(frozen=True, slots=True)
class QuorumConvergence:
    """The kernel. Final reads began after event `after` and, if they are `marked`, are said to be final; `replicas`
    says by place how many a partition has."""

    marked: bool
    after: int
    replicas: tuple[int, ...]
    explain: int

    def __call__(self, rows: Columns) -> Findings:
        return judge_table(rows, self._judged)

    def _judged(self, table: QuorumTable, partitions: int) -> Findings:
        pages, ops = table.pages, len(table.rows["kind"])
        final = pages.invoke > self.after
        if self.marked:
            final &= pages.final == 1
        chosen = np.flatnonzero(final & (pages.node >= 0))
        seen = _covered(table, chosen)
        if seen is None:
            return Findings(ops, partitions, undecided=partitions, reasons=(_TOO_MANY,))
        cell, _, value, page = seen
        heads = np.flatnonzero(np.diff(cell, prepend=-1))
        kinds = np.maximum.reduceat(value, heads) != np.minimum.reduceat(value, heads) if len(heads) else heads > 0
        count = np.diff(np.append(heads, len(cell)))
        apart = np.flatnonzero(kinds)
        order = np.argsort(pages.invoke[page[heads[apart]]], kind="stable")[: self.explain]
        kept = [self._finding(table, seen, int(heads[i]), int(count[i])) for i in apart[order].tolist()]
        short = self._short(table, chosen, cell[heads], count)
        figures = {"final_reads": len(chosen), "cells": len(heads), "compared": int((count > 1).sum())}
        counts = {DIVERGED: len(apart)} if len(apart) else {}
        reasons = (_SHORT,) if short else ()
        return Findings(ops, partitions, counts, tuple(kept), short, reasons, figures=figures)

    def _short(self, table: QuorumTable, chosen: Ints, cell: Ints, count: Ints) -> int:
        """How many partitions that were written were not read, or have cells that were not, from all replicas; `cell`
        are those that were read at all, from `count` replicas."""
        groups = len(table.cells.begin) - 1
        wanted = np.zeros(groups, np.int64)
        replicas = np.array([*self.replicas, 0], np.int64)
        every = np.concatenate((table.mutations.group, table.pages.group))
        np.maximum.at(wanted, every, replicas[np.concatenate((table.mutations.level, table.pages.level))])
        written = np.zeros(groups, np.bool_)
        written[table.mutations.group[~table.mutations.failed]] = True
        unread = written.copy()
        unread[table.pages.group[chosen]] = False
        of = np.searchsorted(table.cells.begin, cell, side="right") - 1
        unread[of[count < wanted[of]]] = True
        never = np.setdiff1d(table.mutations.cell, cell)
        unread[np.searchsorted(table.cells.begin, never, side="right") - 1] = True
        return int((unread & written).sum())

    def _finding(self, table: QuorumTable, seen: tuple[Ints, Ints, Ints, Ints], head: int, count: int) -> Finding:
        cell, node, value, page = (column[head : head + count] for column in seen)
        _, firsts = np.unique(value, return_index=True)
        firsts = np.sort(firsts)[:_MOST_OPS]
        ops = tuple(int(index) for index in table.pages.invoke[page[firsts]])
        shown = [None if value[i] == NIL else int(value[i]) for i in firsts]
        facts = {"nodes": node[firsts].tolist(), "values": shown, "replicas": count}
        return Finding(DIVERGED, min(ops), cell_key(table.cells, int(cell[0])), ops, facts)


def _covered(table: QuorumTable, chosen: Ints) -> tuple[Ints, Ints, Ints, Ints] | None:
    """By cell and replica what the last of the chosen pages that covers it shows: cell, node, value (NIL: absent),
    page; None if that is too much."""
    pages = table.pages
    places, page = spread(pages.begin[chosen], pages.begin[chosen + 1])
    bounds, page_of_bound = spread(pages.bound_begin[chosen], pages.bound_begin[chosen + 1])
    if len(places) + int((pages.high[bounds] - pages.low[bounds]).sum()) > MOST_TOUCHES:
        return None
    absent, of = spread(pages.low[bounds], pages.high[bounds])
    cell = np.concatenate((pages.cell[places], absent))
    value = np.concatenate((table.rows["value"][pages.row[places]], np.full(len(absent), NIL)))
    page = chosen[np.concatenate((page, page_of_bound[of]))]
    named = np.concatenate((np.ones(len(places), np.int8), np.zeros(len(absent), np.int8)))
    order = np.lexsort((named, pages.invoke[page], pages.node[page], cell))
    cell, value, page = cell[order], value[order], page[order]
    node = pages.node[page]
    last = np.append((cell[1:] != cell[:-1]) | (node[1:] != node[:-1]), True) if len(cell) else cell > 0
    return cell[last], node[last], value[last], page[last]


def judge_replicas(reading: Reading, source: Source, engine: Engine, options: CheckOptions) -> Verdict:
    """Convergence on a history of a quorum table."""
    kernel = QuorumConvergence(reading.marked, reading.last, reading.replicas, options.explain)
    keys = ("table", "partition")
    found = judge_mops(engine, source, reading.projection, keys, kernel, options.explain, SLICES)
    refuse(source, "convergence", found)
    reasons = found.reasons or (() if found.figures.get("compared") else (_NOTHING,))
    speaker = Speaker(source, source.operations([i for finding in found.kept for i in finding.ops], LEVEL_COLUMNS))
    explained = tuple(_explained(speaker, reading, finding) for finding in found.kept)
    return verdict_on_partitions("convergence", engine, found, {DIVERGED: explained} if explained else {}, reasons)


def _explained(speaker: Speaker, reading: Reading, finding: Finding) -> Anomaly:
    facts = finding.facts
    shown = [
        f"replica {reading.nodes[node]} showed {'nothing' if value is None else speaker.source.shown(value)}"
        for node, value in zip(facts["nodes"], facts["values"], strict=True)
    ]
    first = speaker.rows[finding.ops[0]]
    message = (
        f"At the end {cell_words(speaker, finding.key)} differs between replicas: {listed(shown)} "
        f"(of {facts['replicas']} that were read, the first by process {first['process']}'s read at "
        f"{speaker.when(finding.ops[0], 'invoke')})."
    )
    ops = tuple(speaker.rows[index] for index in dict.fromkeys(finding.ops))
    return Anomaly(message, speaker.source.shown_key(finding.key), ops)
