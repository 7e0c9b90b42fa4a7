"""Transactional models in-process: the history is streamed once, and only what its accesses say is kept."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from checkers.columns.instances import Instances
from checkers.explain.speaker import Speaker
from checkers.findings import Key
from checkers.source import Source
from checkers.transactions.found import (
    OWN,
    UNWRITTEN,
    Found,
    cycle_findings,
    instance_findings,
    orderless,
    outcome_counts,
)
from checkers.transactions.graph.cycles import find_cycles
from checkers.transactions.graph.edges import Edges
from checkers.transactions.inference.list_accesses import CLASSES as LIST_CLASSES
from checkers.transactions.inference.lists import LIST_APPEND, ListReader
from checkers.transactions.inference.register_accesses import CLASSES as REGISTER_CLASSES
from checkers.transactions.inference.registers import RW_REGISTER, RegisterReader
from checkers.transactions.mops import Ints, Txns, read_all, take_all
from harness.errors import UserError


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
    """See `Inferred`."""

    txns: Txns
    edges: Edges
    addresses: Ints
    out: Instances
    classes: tuple[str, ...]

    def found(self, orders: int, explain: int) -> Found:
        return _found(self, orders, explain)


def infer_in_process(source: Source, model: str, sources: int, explain: int, threads: int = 1) -> InProcess:
    """What the accesses of a list-append or rw-register history say; `sources` are those of registers' version orders
    (`txn_register.ORDER_…` added up). The history is read by so many threads."""
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
