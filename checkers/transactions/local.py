"""Transactional models in-process: the history is streamed once, and only what its accesses say is kept."""

from __future__ import annotations

import numpy as np

from checkers.kernels.graph_edges import Edges
from checkers.kernels.txn_append import CLASSES
from checkers.source import Source
from checkers.transactions.cycles import find_cycles
from checkers.transactions.found import Found, cycle_findings, instance_findings, orderless, outcome_counts
from checkers.transactions.lists import LIST_APPEND, ListReader
from checkers.transactions.mops import Txns, joined, read_all
from checkers.words import Speaker
from harness.errors import UserError

_OWN: frozenset[str] = frozenset({"internal", "future-read"})


def edge_counts(edges: Edges) -> dict[str, int]:
    """How many dependencies there are of each kind."""
    counts = np.bincount(edges.kind, minlength=3)
    return {name: int(counts[code]) for code, name in enumerate(("ww", "wr", "rw"))}


def refuse_copies(source: Source, verb: str, key: tuple[int, int, int, int], events: tuple[int, int]) -> None:
    """Raise UserError: two transactions write the same value, so nobody can tell who read whom."""
    where = Speaker(source, {}).key(key)
    first, second = sorted(events)
    who = f"events {first} and {second} {verb} the same value" if first != second else f"event {first} {verb}s a value twice"
    raise UserError(f"{source.path}: {who} to {where}, so what was read can't be told apart.")


def find_in_lists(source: Source, orders: int, explain: int) -> Found:
    """Anomalies of a list-append history."""
    reader, parts = ListReader(max(1, explain)), list[Txns]()
    for txns, mops in read_all(source, LIST_APPEND):
        parts.append(txns)
        reader.take(txns, mops)
    edges, problem = reader.infer()
    txns = joined(parts)
    addresses = reader.addresses
    if problem[0] >= 0:
        table, partition, row, column = (int(part) for part in addresses[problem[0]])
        events = (int(txns.invoke[problem[1]]), int(txns.invoke[problem[2]]))
        refuse_copies(source, "append", (table, partition, row, column), events)
    cycles = find_cycles(edges, txns, orders, explain)
    counts = {name: int(count) for name, count in zip(CLASSES, reader.out.counts, strict=True) if count}
    findings = instance_findings(reader.out, CLASSES, addresses, txns, _OWN)
    return Found(
        counts | cycles.counts,
        (*findings, *cycle_findings(cycles, addresses, txns)) if explain else (),
        orderless(len(edges.source), txns),
        txns.count,
        {"transactions": outcome_counts(txns), "keys": len(addresses), "dependencies": edge_counts(edges)},
    )
