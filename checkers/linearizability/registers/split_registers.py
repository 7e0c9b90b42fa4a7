"""Registers whose operations one task does not take, judged by many: by value, by chain, then by ranges of time.

A key is judged by its blocks (`register_zones`): contradictions inside one, and pairs that must each come
before the other. Both can be looked at apart:

1. *By value.* All operations of a value meet. A cluster is answers by its write, the read that completed first and the
   read invoked last, wherever they were read, so a value that millions read is a few rows. A cluster that no
   compare-and-set touches is a block by itself, and is checked inside here.
2. *By chain.* Clusters that compare-and-sets link meet, those of a key in one task: the order inside a chain is only
   known once all of it is there. Each chain becomes a block.
3. *By time.* With f the earliest completion and s the latest invocation of a block, it is at home in the range of time
   of f if its zone is forward (f < s), else in that of s. Two forward zones overlap exactly if the later one's f lies
   in the other, and a backward zone B lies in a forward one A exactly if f(A) < s(B) and f(B) < s(A). So at the home of
   the later forward zone, or of the backward one, all there is to know about earlier ranges is the forward zone that
   began there and reaches farthest: any conflict with an earlier zone is one with that zone too. This is what a border
   hands on, and nothing else. A block is at home once, so none is missed; what is compared are blocks of the history,
   so nothing is invented. How often a conflict is counted may differ: one that crosses borders counts once for the
   zone that was handed on, besides those in its own range.

Where values repeat, or compare-and-sets failed on a mismatch, this refutes but can't confirm, and says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from checkers.columns.codes import (
    CAS,
    FAILED_CAS,
    FAILED_WRITE,
    NEVER,
    NIL,
    READ,
    UNSUPPORTED,
    WRITE,
    Ints,
    RegisterColumns,
    unsupported,
)
from checkers.columns.instances import Instances, make_instances
from checkers.columns.projection import Flat, KeyedOps, places_of
from checkers.engines.api import Rows, SplitFindings, Zones, joined
from checkers.findings import Finding, Findings, Key, merged
from checkers.linearizability.registers.register_zones import (
    NO_REGISTER,
    ZONE_ANOMALIES,
    BlockRows,
    blocks_inside,
    conflicts_among,
    zone_findings,
)

_LINK: Final = 100
"""Kind of a row that says to a value that a compare-and-set expects it."""

REPEATED: Final = "a value is written twice, or nil is"
MISMATCHED: Final = "compare-and-sets failed on a mismatch"


@dataclass(frozen=True, slots=True)
class RegisterSplit:
    """Judges the registers of `addresses`; ranges are `width` events long. Picklable."""

    addresses: tuple[Key, ...]
    width: int
    explain: int

    def read(self, flat: Flat) -> tuple[Rows, SplitFindings]:
        """What a piece of the history has of these registers, thinned, to be gathered by key and value."""
        key = places_of(flat.address, self.addresses)
        mine = np.flatnonzero(key >= 0)
        kind, invoke = flat.kind[mine].astype(np.int64), flat.invoke[mine]
        problems = unsupported(invoke[kind == UNSUPPORTED], NO_REGISTER)
        doubts = frozenset([MISMATCHED]) if (kind == FAILED_CAS).any() else frozenset[str]()
        kind[kind == FAILED_CAS] = FAILED_WRITE
        rows = Rows(key[mine], invoke, flat.complete[mine], kind, flat.value[mine], flat.expected[mine])
        cas = np.flatnonzero(kind == CAS)
        links = rows.chosen(cas)._replace(kind=np.full(len(cas), _LINK), value=rows.expected[cas])
        answers = SplitFindings(Findings(len(mine), unsupported=problems), doubts=doubts)
        return _thinned(joined([rows.chosen(np.flatnonzero(kind != UNSUPPORTED)), links])), answers

    def gather(self, rows: Rows) -> tuple[Zones, Rows, SplitFindings]:
        """Of rows in which all of each value are: the zones of clusters by themselves, rows of clusters in chains."""
        rows = _thinned(rows)
        starts, group = _groups(rows)
        writes = (rows.kind == WRITE) | (rows.kind == CAS)
        count = np.add.reduceat(writes.astype(np.int64), starts) if len(starts) else starts
        repeated = (count > np.where(rows.value[starts] == NIL, 0, 1))[group]
        linked = _any_of((rows.kind == CAS) | (rows.kind == _LINK), starts)[group]
        alone = rows.chosen(np.flatnonzero(~linked & ~repeated))
        answers = [SplitFindings(doubts=frozenset([REPEATED] if repeated.any() else []))]
        zones = []
        for key in np.unique(alone.key).tolist():
            mine, found = self.blocks(alone.chosen(np.flatnonzero(alone.key == key)))
            zones.append(mine)
            answers.append(found)
        return _joined_zones(zones), rows.chosen(np.flatnonzero(linked & (rows.kind != _LINK))), self.united(answers)

    def blocks(self, rows: Rows) -> tuple[Zones, SplitFindings]:
        """The zones of one register's rows in which all of each value and of each chain are."""
        rows = rows.chosen(np.argsort(rows.invoke, kind="stable"))
        out = make_instances(len(ZONE_ANOMALIES), self.explain)
        found = blocks_inside(_columns(rows), out)
        if found is None:
            return _joined_zones([]), SplitFindings(doubts=frozenset([REPEATED]))
        return self._zones(rows, found), SplitFindings(self._findings(rows, out))

    def _zones(self, rows: Rows, blocks: BlockRows) -> Zones:
        """Where blocks are compared; what is refuted because it begins with its end is not compared."""
        first = np.where(blocks.first >= 0, rows.complete[blocks.first], -1)
        begun = np.where(blocks.writer >= 0, rows.invoke[blocks.writer], -2)
        blocks = BlockRows(*(column[first > begun] for column in blocks))
        first, last = first[first > begun], rows.invoke[blocks.last]
        home = np.maximum(np.where(first < last, first, last), 0) // self.width
        farthest = np.where(first < last, last // self.width, home)
        reaching, borders = _handed_on(home, last, farthest)
        here = _rows_of(rows, blocks), np.concatenate((home,) * 3), 0
        there = _rows_of(rows, BlockRows(*(c[reaching] for c in blocks))), np.concatenate((borders,) * 3), 1
        return _joined_zones([_of_some(*here), _of_some(*there)])

    def compare(self, rows: Rows, handed: Ints) -> SplitFindings:
        """What conflicts among the zones of one register in one range, and with what earlier ranges hand on."""
        order = np.argsort(rows.invoke, kind="stable")
        rows, handed = rows.chosen(order), handed[order]
        local, early = rows.chosen(np.flatnonzero(handed == 0)), rows.chosen(np.flatnonzero(handed))
        out = make_instances(len(ZONE_ANOMALIES), self.explain)
        conflicts_among(_columns(local), out)
        findings = self._findings(local, out)
        if not len(early.key) or not len(local.key) or local.complete.min() > early.invoke.max():
            return SplitFindings(findings)
        farthest, met = early.value[np.argmax(early.invoke)], local.value[np.argmin(local.complete)]
        pair = joined([_of_value(early, farthest), _of_value(local, met)])
        pair = pair.chosen(np.argsort(pair.invoke, kind="stable"))
        out = make_instances(len(ZONE_ANOMALIES), 1)
        conflicts_among(_columns(pair), out)
        kept = self._findings(pair, out).kept
        return SplitFindings(findings, {(int(rows.key[0]), int(farthest)): each for each in kept[:1]})

    def _findings(self, rows: Rows, out: Instances) -> Findings:
        address = np.array([self.addresses[int(key)] for key in rows.key[:1]], np.int64).reshape(-1, 4)
        return zone_findings(KeyedOps(address, _columns(rows)), out)

    def united(self, answers: Iterable[SplitFindings]) -> SplitFindings:
        """Several answers as one, in any grouping."""
        every = list(answers)
        crossing: dict[tuple[int, int], Finding] = {}
        for zone, finding in (item for part in every for item in part.crossing.items()):
            crossing[zone] = min(crossing.get(zone, finding), finding, key=lambda each: (each.order, each.ops))
        doubts = frozenset().union(*(part.doubts for part in every))
        return SplitFindings(merged((part.findings for part in every), self.explain), crossing, doubts)

    def concluded(self, answers: SplitFindings) -> Findings:
        """What is said of these registers in the end."""
        crossing = [Findings(counts={each.anomaly: 1}, kept=(each,)) for each in answers.crossing.values()]
        return merged([answers.findings, *crossing, Findings(keys=len(self.addresses))], self.explain)


def _groups(rows: Rows) -> tuple[Ints, Ints]:
    """Where the rows of each value of each key begin, and which value a row is of; for rows in that order."""
    changes = np.ones(len(rows.key), np.bool_)
    changes[1:] = (rows.key[1:] != rows.key[:-1]) | (rows.value[1:] != rows.value[:-1])
    return np.flatnonzero(changes), np.cumsum(changes) - 1


def _any_of(flags: Ints, starts: Ints) -> Ints:
    return np.logical_or.reduceat(flags, starts) if len(starts) else starts.astype(np.bool_)


def _thinned(rows: Rows) -> Rows:
    """In order of key, value and invocation; of each value the read that completed first, the read invoked last, the
    first two writes, the first that failed and the first link: what is left out says nothing more."""
    rows = rows.chosen(np.lexsort((rows.invoke, rows.value, rows.key)))
    starts, group = _groups(rows)
    if not len(starts):
        return rows
    kept = np.zeros(len(group), np.bool_)
    reads = rows.kind == READ
    earliest = np.minimum.reduceat(np.where(reads, rows.complete, NEVER), starts)
    latest = np.maximum.reduceat(np.where(reads, rows.invoke, -1), starts)
    kept[reads] = ((rows.complete == earliest[group]) | (rows.invoke == latest[group]))[reads]
    of_kinds: tuple[tuple[tuple[int, ...], int], ...] = (((WRITE, CAS), 2), ((FAILED_WRITE,), 1), ((_LINK,), 1))
    for kinds, most in of_kinds:
        some = np.isin(rows.kind, kinds)
        before = np.cumsum(some)
        number: Ints = before - (before[starts] - some[starts])[group]
        kept |= some & (number <= most)
    return rows.chosen(np.flatnonzero(kept))


def _handed_on(home: Ints, last: Ints, farthest: Ints) -> tuple[Ints, Ints]:
    """For each border that some forward zone crosses: which of them reaches farthest, and the range behind the border.
    `last` is where a zone ends, `farthest` the range of it."""
    crossing = np.flatnonzero(farthest > home)
    order = crossing[np.lexsort((-last[crossing], home[crossing]))]
    begins = order[np.flatnonzero(np.diff(home[order], prepend=-1))]
    zones, borders, best = list[int](), list[int](), -1
    for place, zone in enumerate(begins.tolist()):
        best = zone if best < 0 or last[zone] > last[best] else best
        until = int(home[begins[place + 1]]) if place + 1 < len(begins) else int(farthest[best])
        for border in range(int(home[zone]) + 1, min(until, int(farthest[best])) + 1):
            zones.append(best)
            borders.append(border)
    return np.array(zones, np.int64), np.array(borders, np.int64)


def _rows_of(rows: Rows, blocks: BlockRows) -> tuple[Rows, Ints]:
    """The rows that stand for blocks, thrice as many as there are, and which of them are there: the write that a block
    begins with, and its first and last operation as reads of what that wrote."""
    value = np.where(blocks.writer >= 0, rows.value[blocks.writer], NIL)
    parts = []
    for place, kind in ((blocks.writer, WRITE), (blocks.first, READ), (blocks.last, READ)):
        part = rows.chosen(np.maximum(place, 0))
        nothing = np.full(len(place), NIL)
        parts.append(part._replace(kind=np.full(len(place), kind), value=value, expected=nothing))
    there = (
        blocks.writer >= 0,
        (blocks.first >= 0) & (blocks.first != blocks.writer),
        (blocks.last != blocks.writer) & (blocks.last != blocks.first),
    )
    return joined(parts), np.concatenate(there)


def _of_some(made: tuple[Rows, Ints], ranges: Ints, handed: int) -> Zones:
    rows, there = made
    places = np.flatnonzero(there)
    return Zones(rows.chosen(places), ranges[places], np.full(len(places), handed))


def _of_value(rows: Rows, value: int) -> Rows:
    return rows.chosen(np.flatnonzero(rows.value == value))


def _columns(rows: Rows) -> RegisterColumns:
    """The rows of one register, in order of invocation, as kernels have them."""
    offsets = np.array([0, len(rows.key)], np.int64)
    return RegisterColumns(offsets, rows.kind.astype(np.uint8), rows.value, rows.expected, rows.invoke, rows.complete)


def _joined_zones(parts: Sequence[Zones]) -> Zones:
    ranges, handed = ([np.empty(0, np.int64), *(part[i] for part in parts)] for i in (1, 2))
    return Zones(joined([part.rows for part in parts]), np.concatenate(ranges), np.concatenate(handed))
