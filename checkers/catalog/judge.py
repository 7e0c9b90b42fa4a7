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
from dataclasses import dataclass
from functools import partial
from typing import Final

import msgspec
import pyarrow as pa

from checkers.catalog.calls import CREATE, INPUT_COLUMNS, SCHEMA_OF_ROWS, Call, calls_of, flatten_calls
from checkers.catalog.explain import SENTENCES
from checkers.catalog.refute import refutations
from checkers.catalog.rows import RowsFlow, of_cell
from checkers.catalog.schemas import schema_findings
from checkers.catalog.search import STUCK, UNDECIDED, SearchAnswer, search
from checkers.columns.codes import NEVER
from checkers.engines.api import Engine
from checkers.engines.flows import run_flow
from checkers.explain.conclude import conclude
from checkers.findings import NO_KEY, Finding, Findings, earliest, merged
from checkers.linearizability.registers.judge import as_asked, concluded
from checkers.options import CheckOptions
from checkers.settings import int_setting
from checkers.source import Source
from checkers.verdict import Verdict

DDL_BUDGET_S: Final = 10
"""How long a change may take once all faults are healed, unless `-o ddl-budget=SECONDS` says otherwise."""

_STEPS_PER_S: Final = 20_000
"""The search's work for each second of its time limit; counted, so that verdicts do not depend on the machine."""

EXPANDED: Final = 40
"""To judge a catalog's operations takes 33 times what they take in a shuffle (`python -m bench task_memory`)."""

ROWS_EXPANDED: Final = 8
"""To judge operations on rows takes 5.5 times what they take in a shuffle, and an erasure a row for each cell."""

_STATES_TOLD: Final = 3


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
        figures=_figures(calls) | {"answered": sum(call.complete != NEVER for call in shapes), "steps": work},
    )


def _stuck(answer: SearchAnswer) -> Iterator[Finding]:
    if answer.word != STUCK or answer.stuck is None:
        return
    states = [
        [[answer.names[place], *table] for place, table in enumerate(state) if table is not None]
        for state in answer.states
    ]
    facts = {"states": states[:_STATES_TOLD], "more": max(0, len(states) - _STATES_TOLD)}
    facts["apart"] = answer.apart
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
    flow = RowsFlow(*as_asked(source, options))
    found = run_flow(engine, source, flow, partial(merged, explain=options.explain), expanded=ROWS_EXPANDED)
    verdict = concluded("catalog-rows", source, engine, found, of_cell)
    if verdict.ops:
        return verdict
    return msgspec.structs.replace(verdict, valid="unknown", reason="No operation of the history reads or writes rows.")


def judge_catalog(source: Source, engine: Engine, options: CheckOptions) -> Verdict:
    """Whether the catalog behaved as one linearizable object; unknown if no operation is of a catalog."""
    budget_s = int_setting(options, "ddl-budget") or DDL_BUDGET_S
    flow = CatalogFlow(options.explain, budget_s * 1_000_000_000, int(options.time_limit_s * _STEPS_PER_S))
    part = run_flow(engine, source, flow, partial(merged, explain=options.explain), expanded=EXPANDED)
    doubts: tuple[str, ...] = ()
    if not part.ops:
        doubts = ("No operation of the history is of a catalog.",)
    elif not part.figures["answered"]:
        doubts = ("No operation on the catalog was answered.",)
    return conclude("catalog", source, engine, part, SENTENCES, doubts)
