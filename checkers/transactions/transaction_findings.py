"""What inference and cycle search hand to the verdict: few enough numbers to go anywhere.

Transactional models in-process: the history is streamed once, and only what its accesses say is kept.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, Protocol

import numpy as np

from checkers.columns.codes import Ints
from checkers.columns.instances import Instances
from checkers.explain.speaker import Speaker
from checkers.findings import NO_KEY, Finding, Key
from checkers.source import Source
from checkers.transactions.graph.cycle_anomalies import Cycles, find_cycles
from checkers.transactions.graph.edges import Edges
from checkers.transactions.inference.list_accesses import CLASSES as LIST_CLASSES
from checkers.transactions.inference.lists import LIST_APPEND, ListReader
from checkers.transactions.inference.register_accesses import CLASSES as REGISTER_CLASSES
from checkers.transactions.inference.registers import RW_REGISTER, RegisterReader
from checkers.transactions.transaction_mops import Txns, read_all, take_all
from harness.errors import UserError

OWN: Final = frozenset({"internal", "future-read"})
"""Anomalies that one transaction shows by itself."""

UNWRITTEN: Final = "unwritten"
"""Counted among the anomalies of registers, but none: reads of values that nobody wrote."""


class Found(NamedTuple):
    """Anomalies counted by class and the few to be explained; `orderless` if no two transactions are related at all;
    `figures` are JSON-able details. Unless `whole`, there may be more anomalies than were found."""

    counts: dict[str, int]
    findings: tuple[Finding, ...]
    orderless: bool
    txns: int
    figures: dict[str, Any]
    whole: bool = True


class Inferred(Protocol):
    """What the accesses of a history say, whatever orders transactions besides."""

    def found(self, orders: int, explain: int) -> Found:
        """Anomalies by dependencies and `orders` orders besides (`judge_transactions.orders_of`), some to be
        explained."""


def instance_findings(
    out: Instances, names: tuple[str, ...], addresses: Ints, txns: Txns, plain_facts: frozenset[str]
) -> tuple[Finding, ...]:
    """The kept instances with invocation indices for transactions; in `plain_facts` classes the second of the four
    numbers is a micro-operation's place."""
    found = []
    for code, name in enumerate(names):
        for order, key, *rows in out.kept[code, : min(int(out.counts[code]), out.kept.shape[1])]:
            facts: dict[str, Any] = {}
            if name in plain_facts:
                facts, rows = {"mop": int(rows[1])}, rows[:1]
            ops = tuple(int(txns.invoke[row]) for row in rows if row >= 0)
            found.append(Finding(name, int(txns.invoke[order]), Key.of(addresses[key]), ops, facts))
    return tuple(sorted(found, key=lambda finding: finding.order))


def cycle_findings(cycles: Cycles, addresses: Ints, txns: Txns) -> tuple[Finding, ...]:
    """The kept cycles with invocation indices for transactions and addresses for keys."""
    found = []
    for name, kept in cycles.kept.items():
        for cycle in kept:
            ops = tuple(int(txns.invoke[txn]) for txn in cycle.txns)
            keys = [list(Key.of(addresses[key])) if key >= 0 else None for key in cycle.keys]
            found.append(Finding(name, min(ops), NO_KEY, ops, {"kinds": list(cycle.kinds), "keys": keys}))
    return tuple(found)


def orderless(edges: int, txns: Txns) -> bool:
    """Whether there is neither a dependency nor a transaction that began after another had completed."""
    if edges or not txns.size:
        return not edges
    done = txns.complete[txns.outcome == 0]
    return not (len(done) and bool((txns.invoke > int(done.min())).any()))


def outcome_counts(txns: Txns) -> dict[str, int]:
    """How many transactions completed, failed and are unknown."""
    ok, info, fail = (int(np.count_nonzero(txns.outcome == code)) for code in range(3))
    return {"ok": ok, "info": info, "fail": fail}


def edge_counts(edges: Edges) -> dict[str, int]:
    """How many dependencies there are of each kind."""
    counts = np.bincount(edges.kind, minlength=3)
    return {name: int(counts[code]) for code, name in enumerate(("ww", "wr", "rw"))}


def refuse_copies(source: Source, verb: str, key: Key, events: tuple[int, int]) -> None:
    """Raise UserError: two transactions write the same value, so nobody can tell who read whom."""
    where = Speaker(source, {}).key(key)
    first, second = sorted(events)
    who = (
        f"events {first} and {second} {verb} the same value"
        if first != second
        else f"event {first} {verb}s a value twice"
    )
    raise UserError(f"{source.path}: {who} to {where}, so what was read can't be told apart.")


class InProcess(NamedTuple):
    """What the accesses of a history say, inferred in this process; see `Inferred`."""

    txns: Txns
    edges: Edges
    addresses: Ints
    out: Instances
    classes: tuple[str, ...]

    def found(self, orders: int, explain: int) -> Found:
        return _found(self, orders, explain)


def infer_in_process(source: Source, model: str, sources: int, explain: int, threads: int = 1) -> InProcess:
    """What the accesses of a list-append or rw-register history say; `sources` are those of registers' version orders
    (`register_accesses.ORDER_…` added up). The history is read by `threads` threads."""
    if model == "list-append":
        return _in_lists(source, explain, threads)
    return _in_registers(source, sources, explain, threads)


def find_in_lists(source: Source, orders: int, explain: int) -> Found:
    """Anomalies of a list-append history."""
    return _in_lists(source, explain).found(orders, explain)


def find_in_registers(source: Source, orders: int, sources: int, explain: int) -> Found:
    """Anomalies of an rw-register history."""
    return _in_registers(source, sources, explain).found(orders, explain)


def _in_lists(source: Source, explain: int, threads: int = 1) -> InProcess:
    reader = ListReader(max(1, explain))
    txns = take_all(reader, read_all(source, LIST_APPEND, threads))
    edges, problem = reader.infer()
    inferred = InProcess(txns, edges, reader.addresses, reader.out, LIST_CLASSES)
    _refuse_problem(source, "append", inferred, problem)
    return inferred


def _in_registers(source: Source, sources: int, explain: int, threads: int = 1) -> InProcess:
    reader = RegisterReader(max(1, explain))
    txns = take_all(reader, read_all(source, RW_REGISTER, threads))
    edges, problem = reader.infer(sources)
    inferred = InProcess(txns, edges, reader.addresses, reader.out, REGISTER_CLASSES)
    _refuse_problem(source, "write", inferred, problem)
    return inferred


def _refuse_problem(source: Source, verb: str, inferred: InProcess, problem: Ints) -> None:
    if problem[0] >= 0:
        events = (int(inferred.txns.invoke[problem[1]]), int(inferred.txns.invoke[problem[2]]))
        refuse_copies(source, verb, Key.of(inferred.addresses[problem[0]]), events)


def _found(inferred: InProcess, orders: int, explain: int) -> Found:
    txns, edges, addresses = inferred.txns, inferred.edges, inferred.addresses
    cycles = find_cycles(edges, txns, orders, explain)
    counts = {name: int(n) for name, n in zip(inferred.classes, inferred.out.counts, strict=True) if n}
    figures = {"transactions": outcome_counts(txns), "keys": len(addresses), "dependencies": edge_counts(edges)}
    unwritten = counts.pop(UNWRITTEN, 0)
    findings = instance_findings(inferred.out, inferred.classes, addresses, txns, OWN)
    findings = tuple(finding for finding in findings if finding.anomaly != UNWRITTEN)
    return Found(
        counts | cycles.counts,
        (*findings, *cycle_findings(cycles, addresses, txns)) if explain else (),
        orderless(len(edges.source), txns),
        txns.size,
        figures | ({"reads_of_unwritten_values": unwritten} if unwritten else {}),
        cycles.whole,
    )
