"""Which classes of cycles a dependency graph has, and a short cycle of each (Adya 1999; Elle's names).

A strong component of the whole graph is searched for each class, the worst first: among the dependencies alone, then
with the order within processes, then with real time. Whether a class exists is a question of strong components in a
projection, so nothing is given up for time: G0 in ww, G1c in ww and wr, G-single and G-nonadjacent in the graph where
no rw edge follows another, G2-item in all of it. A closed walk that crosses itself falls apart into cycles of the same
class or a worse one, so what the projections show is always found as a cycle.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import numpy as np

from checkers.columns.codes import FAIL, NEVER, OK
from checkers.transactions.graph.closed_walks import ALLOWED, CROSSED, MISSED, REFUSED, REQUIRED, SIMPLE, Walks, Wanted
from checkers.transactions.graph.edges import FREE, PROCESS, REALTIME, RW, WR, WW, Edges
from checkers.transactions.graph.order import leftovers
from checkers.transactions.graph.projections import (
    Bools,
    Field,
    Graph,
    Ids,
    Ints,
    label,
    lay_out,
    nonadjacent,
    plain,
    ranks,
    search,
)
from checkers.transactions.lattice import implied_anomalies
from checkers.transactions.mops import Txns

ORDERS: Final = ("", "-process", "-realtime")
"""Suffixes of anomalies by the orders that their cycles use besides dependencies."""

BASES: Final = ("G0", "G1c", "G-single-item", "G-nonadjacent-item", "G2-item")

_UNEXPLAINED: Final = ("PL-3-cycle-exists", "strong-session-serializable-cycle-exists", "PL-SS-cycle-exists")

_MOST_WORK: Final = 4_000_000_000
"""Edges looked at in one search, which takes about ten seconds; past it a history is not known to be valid."""

_FEW: Final = 32
"""Edges tried where the class is implied by another that was found: what rules out the one rules out the other."""

_MANY: Final = 2**40


class Cycle(NamedTuple):
    """Transactions (by number) in order, and kind and key (-1: none) of the edge from each to the next."""

    txns: tuple[int, ...]
    kinds: tuple[int, ...]
    keys: tuple[int, ...]


class Cycles(NamedTuple):
    """How many strong components of each class's projection show it, and the earliest few cycles of each. Unless
    `whole`, a search ended before it had looked through a component, which may show more."""

    counts: dict[str, int]
    kept: dict[str, tuple[Cycle, ...]]
    whole: bool = True


def session_edges(txns: Txns) -> tuple[Ints, Ints]:
    """To each transaction that may have taken effect from the last one of its process that had completed before."""
    mine = np.flatnonzero(txns.outcome != FAIL)
    mine = mine[np.argsort(txns.process[mine], kind="stable")]
    places = np.arange(len(mine))
    done = np.maximum.accumulate(np.where(txns.outcome[mine] == OK, places, -1))
    before = np.concatenate(([-1], done[:-1])) if len(mine) else done
    told = np.flatnonzero(before >= 0)
    told = told[txns.process[mine[told]] == txns.process[mine[before[told]]]]
    return mine[before[told]], mine[told]


def core_of(edges: Edges, txns: Txns, orders: int) -> tuple[Graph, Ints]:
    """The part of the graph that may have cycles, and the transactions that its nodes stand for (helpers: -1).

    `orders` is 0 for dependencies alone, 1 with the order within processes, 2 also with real time.
    """
    nodes = int(edges.used[1])
    complete = np.where(txns.outcome == 0, txns.complete, NEVER)
    source, target, kind, key = edges[:4]
    if orders >= 1:
        begin, end = session_edges(txns)
        if orders == 1:
            source, target, kind, key = _with_sessions(edges, begin, end)
    left = leftovers(nodes, source, target, txns.invoke, complete, orders == 2)
    if not len(left):
        return Graph(0, source[:0], target[:0], kind[:0], key[:0], txns.invoke[:0], complete[:0]), left
    if orders == 2:
        source, target, kind, key = _with_sessions(edges, begin, end)
    graph = _part(Graph(nodes, source, target, kind, key, txns.invoke, complete), left)
    found = label(plain(graph, (WW, WR, RW, PROCESS)), orders == 2)
    sizes = np.bincount(found, minlength=1)
    cyclic = np.flatnonzero(sizes[found] > 1)
    return _part(graph, cyclic), np.where(left[cyclic] < txns.size, left[cyclic], -1)


def _with_sessions(edges: Edges, begin: Ints, end: Ints) -> tuple[Ids, Ids, Any, Ids]:
    return (
        np.concatenate((edges.source, begin.astype(np.int32))),
        np.concatenate((edges.target, end.astype(np.int32))),
        np.concatenate((edges.kind, np.full(len(begin), PROCESS, np.uint8))),
        np.concatenate((edges.key, np.full(len(begin), -1, np.int32))),
    )


def _part(graph: Graph, kept: Ints) -> Graph:
    """The subgraph of some nodes, renumbered in order; of parallel dependencies the one that says most stays."""
    place = np.full(graph.nodes, -1)
    place[kept] = np.arange(len(kept))
    inside = np.flatnonzero((place[graph.source] >= 0) & (place[graph.target] >= 0))
    begin, end, kind = place[graph.source[inside]], place[graph.target[inside]], graph.kind[inside]
    order = np.lexsort((kind, end, begin))
    first = np.ones(len(order), bool)
    first[1:] = (np.diff(begin[order]) != 0) | (np.diff(end[order]) != 0) | (kind[order][1:] == PROCESS)
    order = order[first]
    timed, key = kept[kept < graph.timed], graph.key[inside][order]
    return Graph(len(kept), begin[order], end[order], kind[order], key, graph.invoke[timed], graph.complete[timed])


def find_cycles(edges: Edges, txns: Txns, orders: int, explain: int) -> Cycles:
    """All classes of cycles, counted and with up to `explain` examples each; see `core_of` for `orders`."""
    graph, named = core_of(edges, txns, orders)
    if not graph.nodes:
        return Cycles({}, {})
    hunt = _Hunt(graph, named, label(plain(graph, (WW, WR, RW, PROCESS)), orders == 2), explain)
    for order in range(orders + 1):
        hunt.level(order)
    hunt.leave_nothing(orders)
    kept = {name: tuple(found[:explain]) for name, found in hunt.kept.items() if found}
    return Cycles(hunt.counts, kept, hunt.whole)


class _Hunt:
    """The state of one hunt: what was found where. `top` is the component of each node in the whole graph."""

    def __init__(self, graph: Graph, named: Ints, top: Ints, explain: int) -> None:
        self.graph, self.named, self.explain = graph, named, explain
        self.top: Ints = np.unique(top, return_inverse=True)[1]
        self.counts: dict[str, int] = {}
        self.kept: dict[str, list[Cycle]] = {}
        self._found: dict[str, Bools] = {}
        self.whole = True

    def level(self, order: int) -> None:
        """Search for all classes with one order added to the dependencies."""
        realtime = order == 2
        more = ((), (PROCESS,), ())[order]
        extra, late = REQUIRED if order else ALLOWED, int(realtime)
        base = plain(self.graph, (WW, WR, *more))
        rank = ranks(base, realtime)
        stages: tuple[tuple[Any, tuple[tuple[str, Wanted, tuple[int, ...]], ...]], ...] = (
            (plain(self.graph, (WW, *more)), (("G0", Wanted(0, 0, ALLOWED, extra, late), (WW,)),)),
            (base, (("G1c", Wanted(0, 0, ALLOWED, extra, late), (WR,)),)),
            (
                nonadjacent(self.graph, (WW, WR, *more)),
                (
                    ("G-single-item", Wanted(1, 1, REFUSED, extra, late), (RW,)),
                    ("G-nonadjacent-item", Wanted(2, 2, REFUSED, extra, late), (RW,)),
                ),
            ),
            (plain(self.graph, (WW, WR, RW, *more)), (("G2-item", Wanted(2, 2, REQUIRED, extra, late), (RW,)),)),
        )
        for projection, classes in stages:
            labels = rank.label if projection is base else label(projection, realtime)
            copies = len(labels) // self.graph.nodes
            top = np.repeat(self.top, copies)
            for stem, wanted, kinds in classes:
                name = stem + ORDERS[order]
                open_tops = ~self._implied(name) if order else np.ones(int(self.top.max()) + 1, bool)
                field = lay_out(projection, labels, open_tops[top], rank)
                if field.groups:
                    self._search(name, field, wanted, kinds, top)

    def _implied(self, name: str) -> Bools:
        """The components of the whole graph that show something which implies this anomaly."""
        implied = np.zeros(int(self.top.max()) + 1, bool)
        for other, where in self._found.items():
            if name in implied_anomalies([other]):
                implied |= where
        return implied

    def _search(self, name: str, field: Field, wanted: Wanted, kinds: tuple[int, ...], top: Ints) -> None:
        tops = top[field.top]
        tries = np.where(self._implied(name)[tops], _FEW, _MANY)
        walks = search(field, wanted, kinds, tries, _MOST_WORK)
        # Past the bound nothing else is looked at: what is missing then may be there, unless something implies it.
        if walks.used[1] > _MOST_WORK and (walks.status[tries == _MANY] == MISSED).any():
            self.whole = False
        simple = np.flatnonzero(walks.status == SIMPLE)
        if len(simple):
            self._note(name, tops[simple])
            self.counts[name] = self.counts.get(name, 0) + len(simple)
            # All are counted; of more than so many the earliest of these are explained.
            firsts = np.array([self._earliest(field, walks, int(group)) for group in simple[:4096]])
            for group in simple[np.argsort(firsts, kind="stable")[: self.explain]]:
                self._keep(name, self._cycle(field, walks, int(group)))
        for group in np.flatnonzero(walks.status == CROSSED):
            for cycle in _apart(self._cycle(field, walks, int(group))):
                self._take(_name(cycle), int(tops[group]), cycle)

    def _earliest(self, field: Field, walks: Walks, group: int) -> int:
        at = int(walks.at[group])
        nodes = field.ground.node[walks.place[at : at + int(walks.length[group])]]
        return int(nodes[nodes >= 0].min())

    def _note(self, name: str, tops: Ints) -> None:
        where = self._found.setdefault(name, np.zeros(int(self.top.max()) + 1, bool))
        where[tops] = True

    def _take(self, name: str, top: int, cycle: Cycle) -> None:
        """Count a cycle that came as a part of a walk, if its class was not found in its component."""
        if name not in self._found or not self._found[name][top]:
            self._note(name, np.array([top]))
            self.counts[name] = self.counts.get(name, 0) + 1
            self._keep(name, cycle)

    def _keep(self, name: str, cycle: Cycle) -> None:
        kept = self.kept.setdefault(name, [])
        first = cycle.txns.index(min(cycle.txns))
        txns, kinds, keys = (part[first:] + part[:first] for part in cycle)
        named = Cycle(tuple(int(self.named[node]) for node in txns), kinds, keys)
        if len(kept) < self.explain and named not in kept:
            kept.append(named)

    def _cycle(self, field: Field, walks: Walks, group: int) -> Cycle:
        """A walk without helper nodes, by numbers of the graph."""
        at, length = int(walks.at[group]), int(walks.length[group])
        nodes = field.ground.node[walks.place[at : at + length]].tolist()
        kinds = walks.kind[at : at + length].tolist()
        steps = [(node, kind) for node, kind in zip(nodes, kinds, strict=True) if node >= 0]
        txns = tuple(node for node, _ in steps)
        pairs = zip(txns, (*txns[1:], txns[0]), (kind for _, kind in steps), strict=True)
        keys = tuple(self._key(source, target, kind) for source, target, kind in pairs)
        return Cycle(txns, tuple(kind for _, kind in steps), keys)

    def _key(self, source: int, target: int, kind: int) -> int:
        if kind >= PROCESS:
            return -1
        graph = self.graph
        begin, end = np.searchsorted(graph.source, (source, source + 1))
        mine = np.flatnonzero(graph.kind[begin:end] == kind) + begin
        for edge in mine:
            if graph.target[edge] == target:
                return int(graph.key[edge])
        helpers = [int(edge) for edge in mine if graph.target[edge] >= graph.timed]
        for edge in helpers:
            out = (graph.source == graph.target[edge]) & (graph.target == target) & (graph.kind == FREE)
            if out.any():
                return int(graph.key[edge])
        return -1

    def leave_nothing(self, orders: int) -> None:
        """Name what no search explained (none should be left): a cycle exists, of unknown class."""
        explained = np.zeros(int(self.top.max()) + 1, bool)
        for where in self._found.values():
            explained |= where
        missing = int((~explained).sum())
        if missing:
            self.counts[_UNEXPLAINED[orders]] = missing


def _name(cycle: Cycle) -> str:
    """The class of a cycle by its edges."""
    anti = [kind == RW for kind in cycle.kinds]
    count = sum(anti)
    touching = any(one and other for one, other in zip(anti, (*anti[1:], anti[0]), strict=True))
    if count > 1:
        base = "G2-item" if touching else "G-nonadjacent-item"
    elif count == 1:
        base = "G-single-item"
    else:
        base = "G1c" if WR in cycle.kinds else "G0"
    return base + ("-realtime" if REALTIME in cycle.kinds else "-process" if PROCESS in cycle.kinds else "")


def _apart(walk: Cycle) -> Iterable[Cycle]:
    """The cycles that a closed walk consists of."""
    path: list[tuple[int, int, int]] = []
    seen: dict[int, int] = {}
    for step in (*zip(*walk, strict=True), (walk.txns[0], -1, -1)):
        node = int(step[0])
        if node in seen:
            begin = seen[node]
            txns, kinds, keys = zip(*path[begin:], strict=True)
            yield Cycle(txns, kinds, keys)
            for gone, _, _ in path[begin + 1 :]:
                del seen[gone]
            del path[begin:]
        seen[node] = len(path)
        path.append((node, int(step[1]), int(step[2])))


__all__ = ["BASES", "MISSED", "ORDERS", "Cycle", "Cycles", "core_of", "find_cycles", "session_edges"]
