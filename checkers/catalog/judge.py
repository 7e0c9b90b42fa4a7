"""The model `catalog`: tables under names are one linearizable object, and clients see what was committed, no more.

The object's state maps names to tables, each with an id of its own and a schema version (`checkers.catalog.model`);
`checkers.catalog.calls` says how operations stand in the history. First come the contradictions that no order can mend
(`checkers.catalog.refute`): they are certain whatever the history's size, and cover what linearizability of names alone
would not: records that were never committed, tables with some of their tablets, tablets that give way and come back,
versions that go back, changes that are not done once all faults are healed. If there are none, a search looks for an
order of all operations (`checkers.catalog.search`). It is exact within its work; past it the answer is unknown.

The search looks at the whole history in one piece: it carries from each completion to the next the set of states that
are possible, so that its cost grows with the operations that are open, not with the length of the history.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from checkers.catalog.calls import CREATE, INPUT_COLUMNS, SCHEMA_OF_ROWS, Call, calls_of, flatten_calls
from checkers.catalog.explain import SENTENCES
from checkers.catalog.refute import refutations
from checkers.catalog.rows import OF_SEVERAL, cell_by_cell, with_cells
from checkers.catalog.schemas import schema_findings
from checkers.catalog.search import STUCK, UNDECIDED, SearchAnswer, search
from checkers.columns.codes import NEVER
from checkers.engines.api import Engine
from checkers.engines.flows import run_flow
from checkers.engines.session import machine_memory
from checkers.explain.conclude import conclude
from checkers.findings import NO_KEY, Finding, Findings, earliest, merged
from checkers.linearizability.registers.judge import judge_register
from checkers.options import CheckOptions
from checkers.settings import int_setting
from checkers.source import Source, chosen
from checkers.verdict import Undecided, Verdict
from harness.columns import SCHEMA

DDL_BUDGET_S: Final = 10
"""How long a change may take once all faults are healed, unless `-o ddl-budget=SECONDS` says otherwise."""

_STEPS_PER_S: Final = 20_000
"""The search's work for each second of its time limit; counted, so that verdicts do not depend on the machine."""

ROW_OPERATIONS: Final = ("read", "write", "cas", *OF_SEVERAL)
"""The operations that the model `catalog-rows` judges."""

EXPANDED: Final = 40
"""To judge a catalog's operations takes 33 times what they take in a shuffle (`bench/task_memory.py`)."""

_STATES_TOLD: Final = 3

_SHARE_OF_MEMORY: Final = 8
"""Operations of rows take at most this part of the machine's memory: giving columns their ids copies them twice."""


@dataclass(frozen=True, slots=True)
class CatalogFlow:
    """See `Flow`: all operations of the catalog meet."""

    explain: int
    budget_ns: int
    most_work: int
    columns: tuple[str, ...] = INPUT_COLUMNS
    schema: pa.Schema = SCHEMA_OF_ROWS
    keys: tuple[str, ...] = ("one",)
    order: tuple[str, ...] = ("invoke", "place")

    def flatten(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return flatten_calls(batch)

    def judge(self, rows: pa.Table) -> Findings:
        return judged(calls_of(rows), self.explain, self.budget_ns, self.most_work)


def judged(calls: list[Call], explain: int, budget_ns: int, most_work: int) -> Findings:
    """What is wrong with the calls of a whole history."""
    found = [*schema_findings(calls), *refutations(calls, budget_ns)]
    shapes, calls = calls, [call for call in calls if call.version is None]
    doubts: tuple[str, ...] = ()
    work = 0
    if not found:
        answer = search(calls, most_work)
        found, work = list(_stuck(answer)), answer.work
        if answer.word == UNDECIDED:
            doubts = (f"The search for an order of {len(calls)} operations was given up after {work} steps.",)
    counts: dict[str, int] = {}
    for finding in found:
        counts[finding.anomaly] = counts.get(finding.anomaly, 0) + 1
    return Findings(
        len(shapes),
        counts=counts,
        kept=earliest(found, explain),
        reasons=doubts,
        figures=_figures(calls) | {"steps": work},
    )


def _stuck(answer: SearchAnswer) -> Iterator[Finding]:
    if answer.word != STUCK or answer.stuck is None:
        return
    states = [
        [[answer.names[place], *table] for place, table in enumerate(state) if table is not None]
        for state in answer.states
    ]
    facts = {"states": states[:_STATES_TOLD], "more": max(0, len(states) - _STATES_TOLD)}
    yield Finding("no-order", answer.stuck.order, NO_KEY, (answer.stuck.order,), facts)


def _figures(calls: list[Call]) -> dict[str, int]:
    changes = [call for call in calls if call.changes]
    return {
        "changes": len(changes),
        "changes_of_unknown_outcome": sum(call.complete == NEVER for call in changes),
        "tables": sum(call.kind == CREATE and call.id is not None for call in changes),
        "observations": len(calls) - len(changes),
    }


def judge_rows(source: Source, engine: Engine, options: CheckOptions) -> Verdict:
    """Whether operations on rows, beside those of a catalog, are linearizable cell by cell (the model `register`);
    unknown if there are none.

    Each cell is a register, addressed by its row and by its column's id, which is given once (`checkers.catalog.rows`).
    That an erasure takes all of a row's cells at one moment is not judged, nor that a page of a scan is of one.
    """
    table = with_cells(_rows_of(source))
    one_each = cell_by_cell(table)

    def located(wanted: Any, columns: list[str]) -> list[pa.Table]:
        return [chosen(table.select(columns), wanted)]

    rows = replace(source, saved=None, located=located, table=one_each, rows=one_each.num_rows)
    verdict = msgspec.structs.replace(judge_register("register", rows, engine, options), model="catalog-rows")
    if verdict.ops:
        return verdict
    return msgspec.structs.replace(verdict, valid="unknown", reason="No operation of the history reads or writes rows.")


def _rows_of(source: Source) -> pa.Table:
    """The operations of rows, which are held by this process whatever the engine; Undecided if they are too many."""
    batches, size, most = list[pa.RecordBatch](), 0, machine_memory() // _SHARE_OF_MEMORY
    for batch in source.batches(SCHEMA.names):
        batches.append(batch.filter(_of_rows(batch)).cast(SCHEMA))
        size += batches[-1].nbytes
        if size > most:
            raise Undecided(
                f"The model catalog-rows reads all operations of rows into one process, of which {most} bytes are "
                "judged here, and this history has more."
            )
    return pa.Table.from_batches(batches, schema=SCHEMA)


def _of_rows(batch: pa.RecordBatch) -> pa.Array:
    """Which operations are of rows: reads, writes and compare-and-sets."""
    named = pc.is_in(batch.column("f").cast(pa.string()), value_set=pa.array(ROW_OPERATIONS))
    return pc.and_(named, pc.greater_equal(batch.column("process"), 0))


def judge_catalog(source: Source, engine: Engine, options: CheckOptions) -> Verdict:
    """Whether the catalog behaved as one linearizable object; unknown if no operation is of a catalog."""
    budget_s = int_setting(options, "ddl-budget") or DDL_BUDGET_S
    flow = CatalogFlow(options.explain, budget_s * 1_000_000_000, int(options.time_limit_s * _STEPS_PER_S))
    part = run_flow(engine, source, flow, partial(merged, explain=options.explain), expanded=EXPANDED)
    doubts = () if part.ops else ("No operation of the history is of a catalog.",)
    return conclude("catalog", source, engine, part, SENTENCES, doubts)
