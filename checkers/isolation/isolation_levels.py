"""Which isolation level a history reaches, and what keeps it from the next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from checkers.columns.codes import Ids, Ints, history_value
from checkers.columns.graph import Digraph, cyclic_components, digraph, peel, shortest_cycle
from checkers.columns.mops import Columns, key_of, unsupported_rows
from checkers.findings import NO_KEY, Finding, Findings, Key
from checkers.isolation.commit_edges import DemandedEdges, atomic_edges, causal_edges, committed_edges
from checkers.isolation.isolation_history import SEVERAL_WRITERS, History, read_history, so_wr

LEVELS: Final = ("none", "read-committed", "read-atomic", "causal")
"""From weak to strong."""

READ_ANOMALIES: Final = (
    "",
    "ThinAirRead",
    "AbortedRead",
    "FutureRead",
    "NotMyOwnWrite",
    "NotMyLastWrite",
    "IntermediateRead",
)
"""By the codes of `isolation_history`; the names are Plume's."""

CYCLIC_CO: Final = "CyclicCO"
NON_REPEATABLE_READ: Final = "NonRepeatableRead"

CYCLE_ANOMALIES: Final = {
    "read-committed": ("NonMonoReadCO", "NonMonoReadAO"),
    "read-atomic": ("FracturedReadCO", "FracturedReadAO"),
    "causal": ("COConflictAO", "ConflictAO"),
}
"""What breaks a level: cycles of so, wr and one edge that the level demands, and of more than one."""

REACHED: Final = "reached"
"""Name of the finding that tells the strongest level."""

_ENOUGH: Final = ((), (1,), (2,), (2, 3))
"""By level, those that have no cycle only if no level up to this has one: what read committed demands read atomic does
too, but the edges of causal are enough only where read atomic holds."""

_CYCLES: Final = 256
"""Components that are searched for their shortest cycle at most; further ones are counted as the graver class."""


@dataclass(frozen=True, slots=True)
class IsolationKernel:
    """Judges a whole history; `explain` instances of each anomaly are kept. No level above `highest`, by its place in
    LEVELS, is tried."""

    explain: int
    initial: int | None = None
    highest: int = len(LEVELS) - 1

    def __call__(self, rows: Columns) -> Findings:
        """Findings, among them one named REACHED whose facts tell the strongest level and what could not be told."""
        problems = unsupported_rows(rows, "not a transaction of plain reads and writes of integer cells")
        if problems:
            return Findings(ops=len(rows["kind"]), unsupported=problems)
        history = read_history(rows, self.initial)
        if history.overlap >= 0:
            problem = "began while a transaction of the same session was running, which leaves the session no order"
            return Findings(ops=len(history.invoke), unsupported=((int(history.invoke[history.overlap]), problem),))
        counts, kept = self._bad_reads(history)
        level, cycles, more = self._climb(history)
        for name, count in cycles.items():
            counts[name] = counts.get(name, 0) + count
        unclear = int((history.matched.problem == SEVERAL_WRITERS).sum())
        facts = {"level": 0 if kept else level, "unclear_reads": unclear, "sessions": history.chains.total}
        reached = Finding(REACHED, -1, NO_KEY, (), facts)
        return Findings(len(history.invoke), history.keys, counts | {REACHED: 1}, (reached, *kept, *more))

    def _bad_reads(self, history: History) -> tuple[dict[str, int], list[Finding]]:
        counts: dict[str, int] = {}
        kept: list[Finding] = []
        problem = history.matched.problem
        for code, name in enumerate(READ_ANOMALIES):
            rows = np.flatnonzero(problem == code) if code else np.empty(0, np.int64)
            if len(rows):
                counts[name] = len(rows)
                kept.extend(_bad_read(history, name, int(row)) for row in rows[: self.explain])
        return counts, kept

    def _climb(self, history: History) -> tuple[int, dict[str, int], list[Finding]]:
        """The strongest level without a cycle, of those that are tried, and the cycles of the next.

        Where some levels hold (`_ENOUGH`) those below them do, and are looked at only if one of them does not.
        """
        source, target, reason = so_wr(history)
        cause = _Cause(source, target, reason, len(source), "none")
        nodes = len(history.invoke) + 1
        graph, order = digraph(nodes, source, target), np.empty(nodes, np.int32)
        if peel(graph.offsets, graph.targets, order) < nodes:
            return 0, *self._cycles(history, graph, cause)
        if all(_is_acyclic(_level_graph(history, cause, level, order)[0]) for level in _ENOUGH[self.highest]):
            return self.highest, {}, []
        for level in range(1, self.highest + 1):
            graph, demanding = _level_graph(history, cause, level, order)
            if not _is_acyclic(graph):
                return level - 1, *self._cycles(history, graph, demanding)
        raise AssertionError("a level that had a cycle has none")

    def _cycles(self, history: History, graph: Digraph, cause: _Cause) -> tuple[dict[str, int], list[Finding]]:
        component, found = cyclic_components(graph)
        members = np.flatnonzero(component >= 0).astype(np.int32)
        members = members[np.argsort(component[members], kind="stable")]
        starts = np.searchsorted(component[members], np.arange(found + 1))
        by_first = np.argsort(members[starts[:-1]])
        counts: dict[str, int] = {}
        kept: list[Finding] = []
        for number in by_first[:_CYCLES].tolist():
            inside = members[starts[number] : starts[number + 1]]
            cycle = shortest_cycle(graph, component, inside)
            name = _name(history, cause, cycle)
            counts[name] = counts.get(name, 0) + 1
            if counts[name] <= self.explain:
                kept.append(_cycle(history, cause, name, cycle, len(inside)))
        if found > _CYCLES:
            graver = CYCLE_ANOMALIES.get(cause.level, (CYCLIC_CO, CYCLIC_CO))[1]
            counts[graver] = counts.get(graver, 0) + found - _CYCLES
        return counts, kept


@dataclass(frozen=True, slots=True)
class _Cause:
    """All edges of a level's graph: those below `demanded` are so or wr, the others demanded by the level."""

    source: Ids
    target: Ids
    reason: Ints
    demanded: int
    level: str


def _level_graph(history: History, base: _Cause, level: int, order: Ids) -> tuple[Digraph, _Cause]:
    """So, wr and what a level demands; `order` is a topological one of the former."""
    demanded = _demanded(history, level, order)
    cause = _Cause(
        np.concatenate((base.source, demanded.source)),
        np.concatenate((base.target, demanded.target)),
        np.concatenate((base.reason, demanded.reason)),
        len(base.source),
        LEVELS[level],
    )
    return digraph(len(order), cause.source, cause.target), cause


def _is_acyclic(graph: Digraph) -> bool:
    nodes = len(graph.offsets) - 1
    return bool(peel(graph.offsets, graph.targets, np.empty(nodes, np.int32)) == nodes)


def _demanded(history: History, level: int, order: Ids) -> DemandedEdges:
    if level == 1:
        return committed_edges(history.reads, history.writes, history.keys)
    if level == 2:
        return atomic_edges(history.reads, history.writes, history.chains, history.keys)
    return causal_edges(order, history.reads, history.writes, history.chains, history.keys)


def _name(history: History, cause: _Cause, cycle: Ints) -> str:
    demanded = cycle[cycle >= cause.demanded]
    if cause.level == "none":
        return CYCLIC_CO
    if cause.level == "read-atomic" and len(cycle) == 2 and len(demanded) == 2:
        reads = cause.reason[demanded]
        readers, keys = _readers(history, reads), history.reads.key[reads]
        if readers[0] == readers[1] and keys[0] == keys[1]:
            return NON_REPEATABLE_READ
    return CYCLE_ANOMALIES[cause.level][min(len(demanded), 2) - 1]


def _readers(history: History, reads: Ints) -> Ints:
    return np.searchsorted(history.reads.begin, reads, side="right") - 1


def _value(history: History, row: int) -> int | None:
    value = int(history.rows["value"][row])
    return history_value(value, history.initial)


def _bad_read(history: History, name: str, row: int) -> Finding:
    reader = int(history.rows["invoke"][row])
    witness = int(history.matched.witness[row])
    ops = (reader, int(history.rows["invoke"][witness]) if witness >= 0 else -1)
    facts: dict[str, Any] = {"value": _value(history, row)}
    if witness >= 0:
        facts["written"] = _value(history, witness)
        facts["replaced_by"] = _replacement(history, witness)
    return Finding(name, reader, key_of(history.rows, row), ops, facts)


def _replacement(history: History, row: int) -> int | None:
    """The last value that a write's transaction wrote to its key."""
    same = (history.rows["invoke"] == history.rows["invoke"][row]) & (history.mops.key == history.mops.key[row])
    return _value(history, int(np.flatnonzero(same & history.mops.write)[-1]))


def _cycle(history: History, cause: _Cause, name: str, cycle: Ints, size: int) -> Finding:
    steps = [_step(history, cause, int(edge)) for edge in cycle]
    ops = [step["source"] for step in steps] + [step.get("reader", -1) for step in steps]
    key = next((Key(*step["key"]) for step in steps if "key" in step and step["kind"] == "ww"), NO_KEY)
    unique = tuple(dict.fromkeys(op for op in ops if op >= 0))
    facts = {"steps": steps, "level": cause.level, "component": size}
    return Finding(name, max(unique), key, unique, facts)


def _index(history: History, node: int) -> int:
    return int(history.invoke[node]) if node < len(history.invoke) else -1


def _step(history: History, cause: _Cause, edge: int) -> dict[str, Any]:
    """One edge as plain data: kind so, wr or ww; of wr and ww the key, and of ww who demands it and what made the
    source visible to it: another key it read from it, or `session`, or nothing but the order of events (`causal`)."""
    source, target, read = int(cause.source[edge]), int(cause.target[edge]), int(cause.reason[edge])
    step: dict[str, Any] = {"source": _index(history, source), "target": _index(history, target), "kind": "so"}
    if read < 0:
        return step
    row = int(history.read_row[read])
    step |= {"kind": "wr", "key": list(key_of(history.rows, row)), "value": _value(history, row)}
    if edge < cause.demanded:
        return step
    reader = int(_readers(history, np.array([read]))[0])
    step |= {"kind": "ww", "reader": _index(history, reader)}
    reads = history.reads
    begin, end = int(reads.begin[reader]), int(reads.begin[reader + 1])
    stop = read if cause.level == "read-committed" else end
    direct = begin + np.flatnonzero(reads.source[begin:stop] == source)
    if len(direct):
        step |= {"seen_by": "read", "seen_key": list(key_of(history.rows, int(history.read_row[direct[0]])))}
    else:
        same = history.chains.chain[source] == history.chains.chain[reader]
        step["seen_by"] = "session" if same else "causal"
    return step
