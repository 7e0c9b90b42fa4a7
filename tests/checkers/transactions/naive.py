"""The same questions answered by definition, slowly: all pairs, all simple cycles, no cleverness."""

from __future__ import annotations

from collections import defaultdict
from itertools import combinations, pairwise, product
from typing import Any

import networkx as nx
import numpy as np
from weak_store import Txn

from checkers.transactions.inference.register_accesses import ORDER_REALTIME, ORDER_SESSIONS, ORDER_WFR

Kinds = dict[tuple[int, int], set[str]]


def _possible(history: list[Txn]) -> list[tuple[int, Txn]]:
    return [(i, txn) for i, txn in enumerate(history) if txn.outcome != "fail"]


def _reads(txn: Txn) -> list[tuple[int, int, Any]]:
    """(place, key, value) of the reads that say something."""
    return [(i, k, v) for i, (f, k, v) in enumerate(txn.mops) if f == "r" and txn.outcome == "ok"]


def _writes(txn: Txn) -> list[tuple[int, int, int]]:
    return [(i, k, v) for i, (f, k, v) in enumerate(txn.mops) if f != "r"]


def _add(kinds: Kinds, source: int | None, target: int | None, kind: str) -> None:
    if source is not None and target is not None and source != target:
        kinds[source, target].add(kind)


def _common(history: list[Txn], anomalies: set[str]) -> None:
    """Lost updates: two that read one version first and then write."""
    seen: dict[Any, int] = defaultdict(int)
    for txn in history:
        if txn.outcome != "ok":
            continue
        for key in {k for _, k, _ in txn.mops}:
            mine = [(f, v) for f, k, v in txn.mops if k == key]
            if mine[0][0] == "r" and any(f != "r" for f, _ in mine):
                seen[key, mine[0][1]] += 1
    if any(count > 1 for count in seen.values()):
        anomalies.add("lost-update")


def _internal(txn: Txn, lists: bool) -> bool:
    for place, key, value in _reads(txn):
        before = [(f, v) for f, k, v in txn.mops[:place] if k == key]
        if not before:
            continue
        if not lists:
            if before[-1][1] != value:
                return True
            continue
        known = max((i for i, (f, _) in enumerate(before) if f == "r"), default=None)
        added = tuple(v for f, v in before[0 if known is None else known + 1 :] if f != "r")
        if known is not None and value != (*before[known][1], *added):
            return True
        if known is None and value[len(value) - len(added) :] != added:
            return True
    return False


def list_anomalies(history: list[Txn]) -> tuple[set[str], Kinds]:
    """Anomalies without cycles, and the kinds of dependencies between any two transactions."""
    anomalies: set[str] = set()
    kinds: Kinds = defaultdict(set)
    writer = {(k, v): i for i, txn in enumerate(history) for _, k, v in _writes(txn)}
    _common(history, anomalies)
    for i, txn in enumerate(history):
        if txn.outcome == "ok" and _internal(txn, True):
            anomalies.add("internal")
        for place, key, value in _reads(txn):
            if any((k, v) in {(key, e) for e in value} for at, k, v in _writes(txn) if at > place):
                anomalies.add("future-read")
            if len(set(value)) < len(value):
                anomalies.add("duplicate-elements")
            if any(history[writer[key, e]].outcome == "fail" for e in value):
                anomalies.add("G1a")
            if value and writer[key, value[-1]] != i:
                theirs = [v for _, k, v in _writes(history[writer[key, value[-1]]]) if k == key]
                if theirs[-1] != value[-1]:
                    anomalies.add("G1b")
    for key in {k for txn in history for _, k, _ in txn.mops}:
        _list_key(history, key, writer, anomalies, kinds)
    return anomalies, kinds


def _list_key(
    history: list[Txn], key: int, writer: dict[tuple[int, int], int], anomalies: set[str], kinds: Kinds
) -> None:
    reads = [(i, v) for i, txn in _possible(history) for _, k, v in _reads(txn) if k == key]
    most = max((len(value) for _, value in reads), default=0)
    longest = next((value for _, value in reads if len(value) == most), ())
    if any(value != longest[: len(value)] for _, value in reads):
        anomalies.add("incompatible-order")
    aborted = False
    for e in longest:
        outcome = history[writer[key, e]].outcome
        if outcome == "ok" and aborted:
            anomalies.add("dirty-update")
        aborted = outcome == "fail" or (aborted and outcome == "info")
    for i, value in reads:
        if value and history[writer[key, value[-1]]].outcome != "fail":
            _add(kinds, writer[key, value[-1]], i, "wr")
    _list_order(history, key, tuple(dict.fromkeys(longest)), reads, writer, kinds)


def _list_order(
    history: list[Txn],
    key: int,
    order: tuple[int, ...],
    reads: list[tuple[int, Any]],
    writer: dict[tuple[int, int], int],
    kinds: Kinds,
) -> None:
    alive = [e for e in order if history[writer[key, e]].outcome != "fail"]
    unread = [v for _, txn in _possible(history) for _, k, v in _writes(txn) if k == key and v not in order]
    for one, other in pairwise(alive):
        _add(kinds, writer[key, one], writer[key, other], "ww")
    for e in unread:
        _add(kinds, writer[key, alive[-1]] if alive else None, writer[key, e], "ww")
    for i, value in reads:
        if value and value[-1] not in order:
            continue
        past = order.index(value[-1]) + 1 if value else 0
        later = [e for e in order[past:] if e in alive]
        for e in later[:1] or unread:
            _add(kinds, i, writer[key, e], "rw")


def register_anomalies(history: list[Txn], sources: int) -> tuple[set[str], Kinds]:
    """Anomalies without cycles of registers, and the kinds of dependencies; `sources` are those of version orders
    (`txn_register.ORDER_…` added up)."""
    anomalies: set[str] = set()
    kinds: Kinds = defaultdict(set)
    _common(history, anomalies)
    for i, txn in enumerate(history):
        if txn.outcome == "ok" and _internal(txn, False):
            anomalies.add("internal")
        for place, key, value in _reads(txn):
            first = all(k != key for _, k, _ in txn.mops[:place])
            if value is not None and all((key, value) != (k, v) for other in history for _, k, v in _writes(other)):
                anomalies.add("garbage-read")
            if first and (key, value) in [(k, v) for _, k, v in _writes(txn)]:
                anomalies.add("future-read")
            for j, other in enumerate(history):
                theirs = [v for _, k, v in _writes(other) if k == key]
                if value in theirs and other.outcome == "fail":
                    anomalies.add("G1a")
                if value in theirs[:-1] and i != j:
                    anomalies.add("G1b")
    for key in {k for txn in history for _, k, _ in txn.mops}:
        _register_key(history, key, sources, anomalies, kinds)
    return anomalies, kinds


def register_classes(history: list[Txn]) -> set[str]:
    """All anomalies of registers by strict serializability: what shows only where sessions, or real time, order
    versions is called so."""
    found: set[str] = set()
    for orders, sources in enumerate((0, ORDER_SESSIONS, ORDER_REALTIME)):
        anomalies, kinds = register_anomalies(history, sources)
        add_orders(history, kinds, orders)
        suffix = ("", "-process", "-realtime")[orders]
        for name in anomalies | cycle_classes(kinds):
            rests = name.startswith(("G0", "G1c", "G2", "G-", "cyclic-versions")) and not name.endswith("-realtime")
            raised = name.removesuffix("-process") + suffix if rests and orders else name
            found |= {raised}
    return found


def _register_key(history: list[Txn], key: int, sources: int, anomalies: set[str], kinds: Kinds) -> None:
    final: dict[int, Any] = {}
    external: dict[int, Any] = {}
    for i, txn in _possible(history):
        mine = [(f, v) for f, k, v in txn.mops if k == key]
        written = [v for f, v in mine if f != "r"]
        if written:
            final[i] = written[-1]
        if mine and mine[0][0] == "r" and txn.outcome == "ok":
            external[i] = mine[0][1]
    before = {(None, v) for v in {*final.values(), *external.values()} if v is not None}
    told = {None, *(v for txn in history for _, k, v in _writes(txn) if k == key)}
    for source in (ORDER_WFR, ORDER_SESSIONS, ORDER_REALTIME):
        said = _stated(history, external, final, told, source) if sources & source else set()
        more = before | {(one, other) for one, other in said if one != other and {one, other} <= told}
        if nx.is_directed_acyclic_graph(nx.DiGraph([(a or 0, b or 0) for a, b in more])):
            before = more
        else:
            anomalies.add("cyclic-versions")
    writer = {v: i for i, v in final.items()}
    for i, value in external.items():
        _add(kinds, writer.get(value), i, "wr")
    for one, other in before:
        _add(kinds, writer.get(one), writer.get(other), "ww")
        for i, value in external.items():
            if value == one:
                _add(kinds, i, writer.get(other), "rw")


def _stated(
    history: list[Txn], external: dict[int, Any], final: dict[int, Any], known: set[Any], source: int
) -> set[tuple[Any, Any]]:
    """Which version of a key one source says comes before which; values but those `known` take no part."""
    touching = sorted({*final, *external})
    found = {i: external.get(i, final.get(i)) for i in touching}
    left = {i: final.get(i, external.get(i)) for i in touching}
    if source == ORDER_WFR:
        return {(external[i], final[i]) for i in touching if i in external and i in final}
    if source == ORDER_REALTIME:
        ended = {i: history[i].complete for i in touching}
        return {(left[i], found[j]) for i, j in product(touching, touching) if _over(ended[i], history[j].invoke)}
    said = set()
    for j in touching:
        before = [i for i in touching if i < j and history[i].process == history[j].process]
        done = [i for i in before if history[i].outcome == "ok" and left[i] in known]
        said |= {(left[i], found[j]) for i in done[-1:]}
    return said


def _over(complete: int | None, invoke: int) -> bool:
    return complete is not None and complete < invoke


def add_orders(history: list[Txn], kinds: Kinds, orders: int) -> None:
    """Edges within processes (orders 1 and 2) and in real time (2)."""
    for (i, one), (j, other) in combinations(_possible(history), 2):
        if one.complete is None or one.complete > other.invoke:
            continue
        if orders >= 1 and one.process == other.process:
            _add(kinds, i, j, "process")
        if orders == 2:
            _add(kinds, i, j, "realtime")


def cycle_classes(kinds: Kinds) -> set[str]:
    """The classes of all simple cycles, by every way to choose the kind of each edge."""
    graph = nx.DiGraph(list(kinds))
    found: set[str] = set()
    done: set[tuple[frozenset[str], ...]] = set()
    for component in nx.strongly_connected_components(graph):
        for cycle in nx.simple_cycles(graph.subgraph(component)):
            hops = tuple(frozenset(kinds[edge]) for edge in zip(cycle, (*cycle[1:], cycle[0]), strict=True))
            if hops not in done:
                done.add(hops)
                found |= {_class_of(choice) for choice in product(*hops)}
    return found - {""}


def _class_of(chosen: tuple[str, ...]) -> str:
    anti = [kind == "rw" for kind in chosen]
    if set(chosen) <= {"process", "realtime"}:
        return ""
    if sum(anti) > 1:
        touching = any(one and other for one, other in zip(anti, (*anti[1:], anti[0]), strict=True))
        base = "G2-item" if touching else "G-nonadjacent-item"
    else:
        base = "G-single-item" if sum(anti) else "G1c" if "wr" in chosen else "G0"
    return base + ("-realtime" if "realtime" in chosen else "-process" if "process" in chosen else "")


def projected_classes(kinds: Kinds, count: int) -> set[str]:
    """The same classes in graphs too large for all simple cycles, by what reaches what in projections of the graph.

    Of G-nonadjacent-item the closed walks: one that passes a node twice falls apart into cycles that rule out as much.
    Of several dependencies between two transactions the one that says most counts.
    """
    table = {name: np.zeros((count, count), bool) for name in ("ww", "wr", "rw", "process", "realtime")}
    for edge, known in kinds.items():
        for kind in known - set([kind for kind in ("ww", "wr", "rw") if kind in known][1:]):
            table[kind][edge] = True
    ww, wr, rw = table["ww"], table["wr"], table["rw"]
    found: set[str] = set()
    order = np.zeros((count, count), bool)
    for suffix, more in (("", order), ("-process", table["process"]), ("-realtime", table["realtime"])):
        order = order | more
        base = ww | wr | order
        after = _reached(base)
        alternating = _reached(base | _joined(rw, base))
        shown = {
            "G0": ww & _reached(ww | order).T,
            "G1c": wr & after.T,
            "G-single-item": rw & after.T,
            "G-nonadjacent-item": _joined(rw, base) & (alternating.T | np.eye(count, dtype=bool)),
            "G2-item": rw & _reached(base | rw).T,
        }
        found |= {name + suffix for name, edges in shown.items() if edges.any()}
    return found


def _reached(edges: Any) -> Any:
    """Which transactions come behind each, over one edge or more."""
    reached = edges
    while True:
        more = reached | _joined(reached, reached)
        if (more == reached).all():
            return reached
        reached = more


def _joined(one: Any, other: Any) -> Any:
    return one.astype(np.float32) @ other.astype(np.float32) > 0


def check_cycle(txns: tuple[int, ...], edge_kinds: tuple[str, ...], kinds: Kinds) -> str:
    """The class of a claimed cycle; fails if it is no simple cycle of dependencies that hold."""
    assert len(set(txns)) == len(txns) > 1, txns
    for edge, kind in zip(zip(txns, (*txns[1:], txns[0]), strict=True), edge_kinds, strict=True):
        assert kind in kinds[edge], (edge, kind, txns, edge_kinds)
    return _class_of(edge_kinds)
