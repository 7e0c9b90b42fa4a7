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

from checkers.columns.codes import FAIL, NEVER, OK, Bools, Ids, Ints
from checkers.columns.versions import grouped_order
from checkers.transactions.graph.closed_walks import ALLOWED, CROSSED, MISSED, REFUSED, REQUIRED, SIMPLE, Walks, Wanted
from checkers.transactions.graph.edges import FREE, PROCESS, REALTIME, RW, WR, WW, Edges
from checkers.transactions.graph.projections import (
    Field,
    Graph,
    label,
    lay_out,
    leftovers,
    nonadjacent,
    plain,
    ranks,
    search,
)
from checkers.transactions.lattice import implied_anomalies
from checkers.transactions.transaction_mops import Txns

ORDERS: Final = ("", "-process", "-realtime")
"""Suffixes of anomalies by the orders that their cycles use besides dependencies."""

BASES: Final = ("G0", "G1c", "G-single-item", "G-nonadjacent-item", "G2-item")

_UNEXPLAINED: Final = ("PL-3-cycle-exists", "strong-session-serializable-cycle-exists", "PL-SS-cycle-exists")

_DRAWN: Final = (WW, WR, RW, PROCESS)
"""The kinds of edges that are drawn, in order: without the last of them there are dependencies alone."""

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


class Core(NamedTuple):
    """Nodes on cycles, the transaction that each stands for (-1: a helper), and the strong component of each."""

    graph: Graph
    named: Ints
    component: Ints


def core_of(edges: Edges, txns: Txns, orders: int) -> Core:
    """What lies on cycles; of parallel dependencies the one that says most stays.

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
    if orders == 2:
        source, target, kind, key = _with_sessions(edges, begin, end)
    graph = _within(Graph(nodes, source, target, kind, key, txns.invoke, complete), left)
    cyclic, component = _on_cycles(graph, _DRAWN, orders == 2)
    return Core(_simple(_within(graph, cyclic)), np.where(left[cyclic] < txns.size, left[cyclic], -1), component)


def _with_sessions(edges: Edges, begin: Ints, end: Ints) -> tuple[Ids, Ids, Any, Ids]:
    return (
        np.concatenate((edges.source, begin.astype(np.int32))),
        np.concatenate((edges.target, end.astype(np.int32))),
        np.concatenate((edges.kind, np.full(len(begin), PROCESS, np.uint8))),
        np.concatenate((edges.key, np.full(len(begin), -1, np.int32))),
    )


def _on_cycles(graph: Graph, kinds: tuple[int, ...], realtime: bool) -> tuple[Ints, Ints]:
    """The nodes on cycles of edges of some kinds, in order, and the number of the strong component that each is in."""
    labels = label(plain(graph, kinds), realtime)
    sizes = np.bincount(labels, minlength=1)
    cyclic = np.flatnonzero(sizes[labels] > 1)
    return cyclic, (np.cumsum(sizes > 1) - 1)[labels[cyclic]]


def _within(graph: Graph, kept: Ints) -> Graph:
    """The subgraph of some nodes, renumbered in order."""
    place = np.full(graph.nodes, -1, np.int32)
    place[kept] = np.arange(len(kept), dtype=np.int32)
    source, target = place[graph.source], place[graph.target]
    inside = np.flatnonzero((source >= 0) & (target >= 0))
    timed = kept[kept < graph.timed]
    edges = (source[inside], target[inside], graph.kind[inside], graph.key[inside])
    return Graph(len(kept), *edges, graph.invoke[timed], graph.complete[timed])


def _simple(graph: Graph) -> Graph:
    """The graph with edges in order of sources; of parallel dependencies the one that says most stays."""
    by = 8 * graph.target.astype(np.int64) + graph.kind
    order, _ = grouped_order(graph.source.astype(np.int64), graph.nodes, by)
    source, target, kind = graph.source[order], graph.target[order], graph.kind[order]
    first = np.ones(len(order), bool)
    first[1:] = (np.diff(source) != 0) | (np.diff(target) != 0) | (kind[1:] == PROCESS)
    return graph._replace(source=source[first], target=target[first], kind=kind[first], key=graph.key[order[first]])


def find_cycles(edges: Edges, txns: Txns, orders: int, explain: int) -> Cycles:
    """All classes of cycles, counted and with up to `explain` examples each; see `core_of` for `orders`."""
    core = core_of(edges, txns, orders)
    if not core.graph.nodes:
        return Cycles({}, {})
    searching = _ClassSearch(core, orders, explain)
    for order in range(orders + 1):
        searching.level(order)
    searching.leave_nothing()
    kept = {name: tuple(found[:explain]) for name, found in searching.kept.items() if found}
    return Cycles(searching.counts, kept, searching.whole)


class _ClassSearch:
    """The search for each class in turn: what was found in which components of the core."""

    def __init__(self, core: Core, orders: int, explain: int) -> None:
        self.core, self.orders, self.explain = core, orders, explain
        self.counts: dict[str, int] = {}
        self.kept: dict[str, list[Cycle]] = {}
        self._found: dict[str, Bools] = {}
        self.whole = True

    def level(self, order: int) -> None:
        """Search for all classes with one order added to the dependencies."""
        part = self._part(order)
        graph = part.graph
        if not graph.nodes:
            return
        realtime, more = order == 2, (PROCESS,) if order == 1 else ()
        extra, late = REQUIRED if order else ALLOWED, int(realtime)
        rank = ranks(plain(graph, (WW, WR, *more)), realtime)
        stages: tuple[tuple[Any, tuple[int, ...], tuple[tuple[str, Wanted, tuple[int, ...]], ...]], ...] = (
            (plain, (WW,), (("G0", Wanted(0, 0, ALLOWED, extra, late), (WW,)),)),
            (plain, (WW, WR), (("G1c", Wanted(0, 0, ALLOWED, extra, late), (WR,)),)),
            (
                nonadjacent,
                (WW, WR),
                (
                    ("G-single-item", Wanted(1, 1, REFUSED, extra, late), (RW,)),
                    ("G-nonadjacent-item", Wanted(2, 2, REFUSED, extra, late), (RW,)),
                ),
            ),
            (plain, (WW, WR, RW), (("G2-item", Wanted(2, 2, REQUIRED, extra, late), (RW,)),)),
        )
        for project, kinds, classes in stages:
            if not any(self._open(stem, order).any() for stem, _, _ in classes):
                continue
            projection = project(graph, (*kinds, *more))
            labels = label(projection, realtime)
            cyclic = np.bincount(labels)[labels] > 1
            component = np.repeat(part.component, len(labels) // graph.nodes)
            for stem, wanted, through in classes:
                nodes = np.flatnonzero(cyclic & self._open(stem, order)[component])
                if len(nodes):
                    field = lay_out(projection, labels, nodes, rank)
                    self._search(stem + ORDERS[order], part, field, wanted, through, component)

    def _part(self, order: int) -> Core:
        """What lies on cycles of dependencies and that order: with real time often all, without it little."""
        if order == self.orders:
            return self.core
        cyclic, _ = _on_cycles(self.core.graph, _DRAWN[: 3 + order], False)
        return Core(_within(self.core.graph, cyclic), self.core.named[cyclic], self.core.component[cyclic])

    def _open(self, stem: str, order: int) -> Bools:
        """The components of the core where a class is searched for: with an order, unless what was found implies it."""
        return ~self._implied(stem + ORDERS[order]) if order else ~self._nowhere()

    def _nowhere(self) -> Bools:
        """No component of the core."""
        return np.zeros(int(self.core.component.max()) + 1, bool)

    def _implied(self, name: str) -> Bools:
        """The components of the core that show something which implies this anomaly."""
        implied = self._nowhere()
        for other, where in self._found.items():
            if name in implied_anomalies([other]):
                implied |= where
        return implied

    def _search(
        self, name: str, part: Core, field: Field, wanted: Wanted, kinds: tuple[int, ...], component: Ints
    ) -> None:
        components = component[field.first]
        tries = np.where(self._implied(name)[components], _FEW, _MANY)
        walks = search(field, wanted, kinds, tries, _MOST_WORK)
        # Past the bound nothing else is looked at: what is missing then may be there, unless something implies it.
        if walks.used[1] > _MOST_WORK and (walks.status[tries == _MANY] == MISSED).any():
            self.whole = False
        simple = np.flatnonzero(walks.status == SIMPLE)
        if len(simple):
            self._note(name, components[simple])
            self.counts[name] = self.counts.get(name, 0) + len(simple)
            # All are counted; of more than so many the earliest of these are explained.
            firsts = np.array([_earliest(field, walks, int(group)) for group in simple[:4096]])
            for group in simple[np.argsort(firsts, kind="stable")[: self.explain]]:
                self._keep(name, _cycle(part, field, walks, int(group)))
        for group in np.flatnonzero(walks.status == CROSSED):
            for cycle in _simple_cycles(_cycle(part, field, walks, int(group))):
                self._take(_name(cycle), int(components[group]), cycle)

    def _note(self, name: str, components: Ints) -> None:
        self._found.setdefault(name, self._nowhere())[components] = True

    def _take(self, name: str, component: int, cycle: Cycle) -> None:
        """Count a cycle that came as a part of a walk, if its class was not found in its component."""
        if name not in self._found or not self._found[name][component]:
            self._note(name, np.array([component]))
            self.counts[name] = self.counts.get(name, 0) + 1
            self._keep(name, cycle)

    def _keep(self, name: str, cycle: Cycle) -> None:
        kept = self.kept.setdefault(name, [])
        first = cycle.txns.index(min(cycle.txns))
        turned = Cycle(*(part[first:] + part[:first] for part in cycle))
        if len(kept) < self.explain and turned not in kept:
            kept.append(turned)

    def leave_nothing(self) -> None:
        """Name what no search explained (none should be left): a cycle exists, of unknown class."""
        explained = self._nowhere()
        for where in self._found.values():
            explained |= where
        missing = int((~explained).sum())
        if missing:
            self.counts[_UNEXPLAINED[self.orders]] = missing


def _earliest(field: Field, walks: Walks, group: int) -> int:
    at = int(walks.at[group])
    nodes = field.ground.node[walks.place[at : at + int(walks.length[group])]]
    return int(nodes[nodes >= 0].min())


def _cycle(part: Core, field: Field, walks: Walks, group: int) -> Cycle:
    """A walk without helper nodes."""
    at, length = int(walks.at[group]), int(walks.length[group])
    nodes = field.ground.node[walks.place[at : at + length]].tolist()
    kinds = walks.kind[at : at + length].tolist()
    steps = [(node, kind) for node, kind in zip(nodes, kinds, strict=True) if node >= 0]
    mine = tuple(node for node, _ in steps)
    pairs = zip(mine, (*mine[1:], mine[0]), (kind for _, kind in steps), strict=True)
    keys = tuple(_key(part.graph, source, target, kind) for source, target, kind in pairs)
    return Cycle(tuple(part.named[list(mine)].tolist()), tuple(kind for _, kind in steps), keys)


def _key(graph: Graph, source: int, target: int, kind: int) -> int:
    if kind >= PROCESS:
        return -1
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


def _simple_cycles(walk: Cycle) -> Iterable[Cycle]:
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
