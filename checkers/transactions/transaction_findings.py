"""What inference and cycle search hand to the verdict, few enough numbers to go anywhere; and how they come to it in
one process, where the history is streamed once and only what its accesses say is kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

import msgspec
import numpy as np

from checkers.columns.codes import Ints
from checkers.columns.instances import Instances
from checkers.explain.speaker import Speaker
from checkers.findings import NO_KEY, Finding, Findings, Key
from checkers.source import Source
from checkers.transactions.graph.cycle_anomalies import Cycles, find_cycles
from checkers.transactions.graph.edges import Edges
from checkers.transactions.inference.list_accesses import CLASSES as LIST_CLASSES
from checkers.transactions.inference.list_reader import LIST_APPEND, ListReader
from checkers.transactions.inference.register_accesses import CLASSES as REGISTER_CLASSES
from checkers.transactions.inference.register_reader import RW_REGISTER, RegisterReader
from checkers.transactions.polygraph.accessed_keys import list_accesses_of, register_accesses_of
from checkers.transactions.polygraph.history_polygraph import Accessed, Polygraph, TxnTimes, make_polygraph
from checkers.transactions.polygraph.levels import LevelAnswer, LevelQuestion, answered, is_open
from checkers.transactions.transaction_mops import Dialect, Mops, Txns, read_all, take_all
from harness.errors import UserError

OWN: Final = frozenset({"internal", "future-read"})
"""Anomalies that one transaction shows by itself."""


NO_VERSION_ORDER: Final = "no-version-order"
"""No order of the versions that nobody observed makes the history possible at a level."""


class Found(NamedTuple):
    """Anomalies counted by class and the few to be explained; `orderless` if no two transactions are related at all;
    `figures` are JSON-able details. Unless `whole`, there may be more anomalies than were found."""

    counts: dict[str, int]
    findings: tuple[Finding, ...]
    orderless: bool
    txns: int
    figures: dict[str, Any]
    whole: bool = True


class Decided(msgspec.Struct, frozen=True):
    """What a polygraph says of a consistency model (`levels.LevelAnswer`): of one that is refuted the finding that
    shows it."""

    valid: bool | None
    level: str = ""
    reason: str = ""
    finding: Finding | None = None


class Inferred(Protocol):
    """What the accesses of a history say, whatever orders transactions besides."""

    def found(self, orders: int, explain: int) -> Found:
        """Anomalies by dependencies and `orders` orders besides (`judge_transactions.orders_of`), some to be
        explained."""

    def decided(self, question: LevelQuestion) -> Decided:
        """Whether some order of the versions that nobody observed makes the history possible."""


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


def found_of(
    alone: Findings, cycles: tuple[dict[str, int], tuple[Finding, ...] | None, bool], orderless: bool, figures: Any
) -> Found:
    """What was found without cycles and with them: counts, what is to be explained (None: nothing), whether that is
    all. `figures` has the transactions by outcome."""
    in_cycles, explained, whole = cycles
    findings = () if explained is None else (*alone.kept, *explained)
    return Found(
        dict(alone.counts) | in_cycles, findings, orderless, sum(figures["transactions"].values()), figures, whole
    )


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


def refuse_copies(source: Source, verb: str, key: Key, events: tuple[int, int], stated: bool = False) -> None:
    """Raise UserError: two transactions write the same value, so nobody can tell who read whom; or, if `stated`, they
    state the same place among the versions."""
    where = Speaker(source, {}).key(key)
    first, second = sorted(events)
    if stated:
        field = source.stated or source.versions
        raise UserError(f"{source.path}: events {first} and {second} {verb} to {where} and state the same {field}.")
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
    lists: bool
    accessed: Callable[[bool], Accessed]

    def polygraph(self, stated: bool) -> Polygraph:
        """Who read whom and who wrote the same; `stated` says whether what settings say of version orders counts."""
        txns = self.txns
        return make_polygraph(TxnTimes(txns.outcome, txns.process, txns.invoke, txns.complete), self.accessed(stated))

    def decided(self, question: LevelQuestion) -> Decided:
        if not is_open(question.consistency, self.lists, int(self.edges.used[2]), question.shown):
            return Decided(True)
        answer = answered(self.polygraph(question.stated), question)
        finding = None if answer.valid is not False else self._refuting(answer)
        return Decided(answer.valid, answer.level, answer.reason, finding)

    def _refuting(self, answer: LevelAnswer) -> Finding:
        """The cycles that refute a level, with invocation indices for transactions and addresses for keys."""
        invoke = self.txns.invoke

        def event(txn: int) -> int:
            return int(invoke[txn]) if txn >= 0 else -1

        cycles: list[list[dict[str, Any]]] = [
            [
                {
                    "source": event(step.source),
                    "target": event(step.target),
                    "kind": step.kind,
                    "key": list(Key.of(self.addresses[step.key])) if step.key >= 0 else None,
                    "choice": [event(step.first), event(step.second)] if step.first >= 0 else None,
                    "reader": event(step.reader),
                }
                for step in clause.cycle
            ]
            for clause in answer.cycles
        ]
        every: list[int] = [step[end] for cycle in cycles for step in cycle for end in ("source", "target", "reader")]
        every += [writer for cycle in cycles for step in cycle for writer in step["choice"] or ()]
        ops = tuple(op for op in dict.fromkeys(every) if op >= 0)
        return Finding(NO_VERSION_ORDER, min(ops), NO_KEY, ops, {"level": answer.level, "cycles": cycles})

    def found(self, orders: int, explain: int) -> Found:
        txns, edges, addresses = self.txns, self.edges, self.addresses
        cycles = find_cycles(edges, txns, orders, explain)
        counts = {name: int(n) for name, n in zip(self.classes, self.out.counts, strict=True) if n}
        alone = Findings(counts=counts, kept=instance_findings(self.out, self.classes, addresses, txns, OWN))
        figures = {"transactions": outcome_counts(txns), "keys": len(addresses), "dependencies": edge_counts(edges)}
        found = cycles.counts, cycle_findings(cycles, addresses, txns) if explain else None, cycles.whole
        return found_of(alone, found, orderless(len(edges.source), txns), figures)


class TxnModel(NamedTuple):
    """How a model's history is read, and what its accesses may show; `verb` is what writers do; `accessed` is what a
    reader collected, with what edges state of version orders or without."""

    dialect: Dialect
    reader: Callable[[int], Any]
    classes: tuple[str, ...]
    verb: str
    accessed: Callable[[Any, Edges, bool], Accessed]


def _accessed_registers(reader: RegisterReader, edges: Edges, stated: bool) -> Accessed:
    return register_accesses_of(reader.grouped, edges if stated else None)


def _accessed_lists(reader: ListReader, edges: Edges, stated: bool) -> Accessed:
    return list_accesses_of(reader.grouped, reader.observed)


TXN_MODELS: Final = {
    "list-append": TxnModel(LIST_APPEND, ListReader, LIST_CLASSES, "append", _accessed_lists),
    "rw-register": TxnModel(RW_REGISTER, RegisterReader, REGISTER_CLASSES, "write", _accessed_registers),
}


def infer_in_process(source: Source, model: str, sources: int, explain: int, threads: int = 1) -> InProcess:
    """What the accesses of a list-append or rw-register history say; `sources` are those of registers' version orders
    (`register_accesses.ORDER_…` added up; 0 for lists). The history is read by `threads` threads."""
    return infer_from(read_all(source, TXN_MODELS[model].dialect, threads), source, model, sources, explain)


def infer_from(
    batches: Iterable[tuple[Txns, Mops]], source: Source, model: str, sources: int, explain: int
) -> InProcess:
    """What the accesses in some batches say, as `infer_in_process`; they are in order of invocation."""
    about = TXN_MODELS[model]
    reader = about.reader(max(1, explain))
    txns = take_all(reader, batches)
    edges, problem = reader.infer(sources)
    if problem[0] >= 0:
        events = (int(txns.invoke[problem[1]]), int(txns.invoke[problem[2]]))
        refuse_copies(source, about.verb, Key.of(reader.addresses[problem[0]]), events, bool(problem[3] > 0))
    accessed = model == "list-append", partial(about.accessed, reader, edges)
    return InProcess(txns, edges, reader.addresses, reader.out, about.classes, *accessed)
