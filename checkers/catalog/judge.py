"""The model `catalog`: tables under names are one linearizable object, and clients see what was committed, no more.

The object's state maps names to tables, each with an id of its own and a schema version; `checkers.catalog.calls` says
what operations do to it and how they stand in the history. First come the contradictions that no order can mend
(`checkers.catalog.refute`, `checkers.catalog.lifecycles`): they are certain whatever the history's size, and cover what
linearizability of names alone would not: records that were never committed, tables with some of their tablets, tablets
that give way and come back, versions that go back, changes that are not done once all faults are healed. If there are
none, a search looks for an order of all operations (`checkers.catalog.search`). It is exact within its work; past it
the answer is unknown.

The search looks at the whole history in one piece: it carries from each completion to the next the set of states that
are possible, so that its cost grows with the operations that are open, not with the length of the history.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import pyarrow as pa

from checkers.catalog.altered_rows import RowsFlow, growth_findings, of_cell, schema_findings
from checkers.catalog.calls import (
    COLUMN,
    CREATE,
    INPUT_COLUMNS,
    RESHAPE,
    SCHEMA_OF_ROWS,
    Call,
    calls_of,
    flatten_calls,
)
from checkers.catalog.lifecycles import lifecycle_refutations, replica_doubts
from checkers.catalog.refute import refutations
from checkers.catalog.search import STUCK, UNDECIDED, SearchAnswer, search
from checkers.columns.codes import NEVER
from checkers.engines.api import Engine
from checkers.engines.flows import findings_of
from checkers.explain.conclude import Say, conclude, whose
from checkers.explain.speaker import Speaker, listed, opening
from checkers.findings import NO_KEY, Finding, Findings, counted
from checkers.linearizability.registers.refute_registers import as_asked, concluded
from checkers.options import CheckOptions, int_setting
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

_STATES_SHOWN: Final = 3


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
    every, calls = calls, [call for call in calls if call.kind not in (COLUMN, RESHAPE)]
    shapes = [call for call in every if call.kind in (COLUMN, RESHAPE)]
    found = [*schema_findings(shapes)] or [*growth_findings(shapes)]
    found += [*refutations(calls, budget_ns), *lifecycle_refutations(calls)]
    doubts = replica_doubts(calls)
    work = 0
    if not found:
        answer = search(calls, most_work)
        found, work = list(_stuck(answer)), answer.work
        if answer.word == UNDECIDED:
            doubts = (*doubts, f"The search for an order of {len(calls)} operations was given up after {work} steps.")
    return counted(
        found,
        explain,
        ops=len(every),
        reasons=doubts,
        figures=_figures(calls) | {"answered": sum(call.complete != NEVER for call in every), "steps": work},
    )


def _stuck(answer: SearchAnswer) -> Iterator[Finding]:
    if answer.word != STUCK or answer.stuck is None:
        return
    states = [
        [[answer.names[place], *table] for place, table in enumerate(state) if table is not None]
        for state in answer.states
    ]
    facts = {"states": states[:_STATES_SHOWN], "more": max(0, len(states) - _STATES_SHOWN)}
    facts["apart"] = answer.in_parts
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

    Each cell is a register, addressed by its row and by its column's id, which is given once
    (`checkers.catalog.altered_rows`). That an erasure takes all of a row's cells at one moment is not judged, nor that
    a page of a scan is of one.
    """
    flow = RowsFlow(*as_asked(source, options))
    found = findings_of(engine, source, flow, options.explain, expanded=ROWS_EXPANDED)
    verdict = concluded("catalog-rows", source, engine, found, of_cell)
    if verdict.ops:
        return verdict
    return msgspec.structs.replace(verdict, valid="unknown", reason="No operation of the history reads or writes rows.")


def judge_catalog(source: Source, engine: Engine, options: CheckOptions) -> Verdict:
    """Whether the catalog behaved as one linearizable object; unknown if no operation is of a catalog."""
    budget_s = int_setting(options, "ddl-budget") or DDL_BUDGET_S
    flow = CatalogFlow(options.explain, budget_s * 1_000_000_000, int(options.time_limit_s * _STEPS_PER_S))
    part = findings_of(engine, source, flow, options.explain, expanded=EXPANDED)
    doubts: tuple[str, ...] = ()
    if not part.ops:
        doubts = ("No operation of the history is of a catalog.",)
    elif not part.figures["answered"]:
        doubts = ("No operation on the catalog was answered.",)
    return conclude("catalog", source, engine, part, SENTENCES, doubts)


_WHATS: Final = {
    "create": "creation",
    "delete": "deletion",
    "alter": "alteration",
    "rename": "renaming",
    "list": "list of tables",
    "locations": "question for locations",
}


def _op(speaker: Speaker, index: int) -> str:
    f = speaker.rows[index]["f"]
    return whose(speaker, index, _WHATS.get(f, f"question `{f}`"))


def _name(finding: Finding) -> str:
    return f"table {finding.key.partition}"


def _id(facts: dict[str, Any]) -> str:
    return f"the table with the id {facts['id']:x}"


def _uncommitted(speaker: Speaker, finding: Finding) -> str:
    facts = finding.facts
    if "id" in facts:
        shown = f"shows the tablet {facts['id']:x} in the state {facts['state']}"
        return f"{opening(_op(speaker, finding.ops[0]))} {shown}, which no committed record that clients see has."
    seen = f"a {facts['what']} of {_name(finding)} in the state {facts['state']}"
    return f"{opening(_op(speaker, finding.ops[0]))} shows {seen}, which no committed record that clients see has."


def _no_location(speaker: Speaker, finding: Finding) -> str:
    tablet = f"the tablet of partition {finding.facts['bucket']} of {_name(finding)}"
    shown = f"shows {tablet} RUNNING and names no replica of it"
    return f"{opening(_op(speaker, finding.ops[0]))} {shown}. Where a tablet is stands in its record."


def _half_made(speaker: Speaker, finding: Finding) -> str:
    buckets = " ".join(map(str, finding.facts["buckets"])) or "none"
    shown = f"shows partitions {buckets} of {_name(finding)}, which has {finding.facts['of']}"
    return f"{opening(_op(speaker, finding.ops[0]))} {shown}: a table is made with all of them, once each."


def _twice(speaker: Speaker, finding: Finding) -> str:
    if finding.facts["what"] == "created":
        both = " and ".join(_op(speaker, index) for index in finding.ops)
        return f"{opening(_id(finding.facts))} was made twice: by {both}."
    return f"{opening(_op(speaker, finding.ops[0]))} shows the same {finding.facts['what']} twice."


def _phantom(speaker: Speaker, finding: Finding) -> str:
    seen = f"{opening(_id(finding.facts))} is known to {_op(speaker, finding.ops[0])}"
    if len(finding.ops) > 1:
        return f"{seen}, before {_op(speaker, finding.ops[1])}, which made it, had begun."
    return f"{seen}, but no creation can have made it: each that had begun by then made another table or none."


def _flickering(speaker: Speaker, finding: Finding) -> str:
    known, listing, again = (_op(speaker, index) for index in finding.ops)
    return f"{opening(known)} tells of {_id(finding.facts)}, {listing} does not show it, and {again} tells of it again."


def _lost(speaker: Speaker, finding: Finding) -> str:
    known, listing = (_op(speaker, index) for index in finding.ops)
    misses = "misses it" if speaker.rows[finding.ops[1]]["f"] == "list" else "shows a tablet of it DELETED"
    return (
        f"{opening(known)} tells of {_id(finding.facts)}; {listing} {misses}, and nobody can have deleted it between."
    )


def _returned(speaker: Speaker, finding: Finding) -> str:
    gone, again = (_op(speaker, index) for index in finding.ops)
    if speaker.rows[finding.ops[0]]["f"] == "tablets":
        return f"{opening(gone)} shows a tablet of {_id(finding.facts)} DELETED, and {again} finds it all the same."
    return f"{opening(_id(finding.facts))} was deleted by {gone}, and {again} finds it all the same."


def _went_back(speaker: Speaker, finding: Finding) -> str:
    facts = finding.facts
    earlier, later = (_op(speaker, index) for index in finding.ops)
    versions = f"at version {facts['was']}", f"at version {facts['now']}"
    return f"{opening(earlier)} shows {_id(facts)} {versions[0]}, and later {later} shows it {versions[1]}."


def _unasked(speaker: Speaker, finding: Finding) -> str:
    facts = finding.facts
    shown = f"{opening(_op(speaker, finding.ops[0]))} shows {_id(facts)} at version {facts['now']}"
    if facts["now"] > facts["most"]:
        return f"{shown}, but only {facts['most']} changes of it can have begun by then."
    return f"{shown}, but {facts['least']} changes of it had been acknowledged before."


def _tablet_back(speaker: Speaker, finding: Finding) -> str:
    facts = finding.facts
    ops = [_op(speaker, index) for index in finding.ops]
    place = f"partition {facts['bucket']} of {_id(facts)}"
    if facts["ran"]:
        return f"{opening(ops[1])} shows another tablet for {place} than {ops[0]}, which saw its tablet RUNNING."
    return f"{opening(ops[1])} shows another tablet for {place} than {ops[0]}, and {ops[2]} shows the first one again."


def _tablet_gone(speaker: Speaker, finding: Finding) -> str:
    shown, asked = (_op(speaker, index) for index in finding.ops)
    tablet = f"the tablet with the id {finding.facts['id']:x}"
    return f"{opening(shown)} shows {tablet}, of which there is no record by {asked}. Records are kept for ever."


def _tablet_went_back(speaker: Speaker, finding: Finding) -> str:
    earlier, later = (_op(speaker, index) for index in finding.ops)
    facts = finding.facts
    shown = f"shows the tablet with the id {facts['id']:x} {facts['was']}, and later {later} shows it {facts['now']}"
    return f"{opening(earlier)} {shown}, which it can't become."


def _altering(speaker: Speaker, finding: Finding) -> str:
    facts, ops = finding.facts, [_op(speaker, index) for index in finding.ops]
    table = f"{_id(facts)} at version {facts['version']}"
    if len(ops) > 1:
        return f"{opening(ops[0])} shows {table} as altered everywhere, and later {ops[1]} shows it ALTERING again."
    if facts["applied"]:
        return f"{opening(ops[0])} shows {table} and that all tablets follow version {facts['applied']}: not both."
    return f"{opening(ops[0])} shows {table} ALTERING, and version 0 is no alteration's."


def _undone(speaker: Speaker, finding: Finding) -> str:
    done, later = (_op(speaker, index) for index in finding.ops)
    table = _id(finding.facts)
    return f"{opening(done)} says that {table} was created in all its parts, and later {later} shows it being created."


def _two_places(speaker: Speaker, finding: Finding) -> str:
    ops = " and ".join(_op(speaker, index) for index in finding.ops)
    verb = "show" if len(finding.ops) > 1 else "shows"
    tablet = f"the tablet with the id {finding.facts['id']:x}"
    return f"{opening(ops)} {verb} {tablet} in two places: it is of one partition of one table."


def _wrong_size(speaker: Speaker, finding: Finding) -> str:
    facts, ops = finding.facts, [_op(speaker, index) for index in finding.ops]
    has = f"{facts['buckets']} partitions" if facts["buckets"] else f"{facts['replicas']} replicas of each tablet"
    shown = f"{opening(ops[-1])} shows {_id(facts)} with {has}"
    return f"{shown}; {ops[0]} says otherwise." if len(ops) > 1 else f"{shown}, which no creation asked for."


def _schema_unasked(speaker: Speaker, finding: Finding) -> str:
    facts = finding.facts
    told = f"{opening(_op(speaker, finding.ops[0]))} told version {facts['now']} of the schema"
    if facts["now"] > facts["most"]:
        return f"{told}, but only {facts['most']} alterations of it can have begun by then."
    return f"{told}, but {facts['least']} alterations of it had been acknowledged before."


def _column_unasked(speaker: Speaker, finding: Finding) -> str:
    ops = " and ".join(_op(speaker, index) for index in finding.ops)
    version = f"version {finding.facts['version']} of the schema"
    return f"No alterations lead from the schemas before to {version}, of which {ops} told."


def _schemas_differ(speaker: Speaker, finding: Finding) -> str:
    version = f"version {finding.facts['version']} of the schema"
    ops = [_op(speaker, index) for index in finding.ops]
    if len(ops) == 1:
        return f"{opening(ops[0])} shows {version}, in which columns share an id or a name."
    return f"{opening(ops[0])} and {ops[1]} contradict each other about {version}: a version is one schema."


def _schema_went_back(speaker: Speaker, finding: Finding) -> str:
    facts = finding.facts
    earlier, later = (_op(speaker, index) for index in finding.ops)
    return (
        f"{opening(earlier)} told version {facts['was']} of the schema, and later {later} told version {facts['now']}."
    )


def _column_came_back(speaker: Speaker, finding: Finding) -> str:
    before, gone, again = (_op(speaker, index) for index in finding.ops)
    column = f"the column with the id {finding.facts['id']}"
    return f"{opening(before)} shows {column}, {gone} a later schema without it, and {again} one that has it again."


def _stuck_ddl(speaker: Speaker, finding: Finding) -> str:
    facts = finding.facts
    what = "it is" if facts["what"] == "table" else "a tablet of it is"
    place = "" if facts["what"] == "table" else f" with {facts['replicas']} replicas told"
    said = f"{_op(speaker, finding.ops[0])} says {what} {facts['state']}{place}"
    return f"All faults are healed, and of {_name(finding)} {said}."


def _late(speaker: Speaker, finding: Finding) -> str:
    facts = finding.facts
    took = f"took {facts['took_ns'] / 1e9:.1f} s; {facts['budget_ns'] / 1e9:g} s are allowed"
    return f"All faults were healed, and {_op(speaker, finding.ops[0])} {took}."


def _no_order(speaker: Speaker, finding: Finding) -> str:
    states = [_state(state) for state in finding.facts["states"]]
    more = finding.facts["more"]
    what = "Of the names that have to do with it the" if finding.facts["apart"] else "The"
    before = f"{what} catalog may have been {listed(states, more)} by then" if states else "Nothing is known before"
    return f"{opening(_op(speaker, finding.ops[0]))} fits no order of the operations before it. {before}."


def _state(tables: list[list[int]]) -> str:
    named = [f"{name}: {'?' if table_id < 0 else format(table_id, 'x')} at version {v}" for name, table_id, v in tables]
    return f"{{{', '.join(named)}}}" if named else "empty"


_SENTENCES: Final[dict[str, Say]] = {
    "uncommitted-record": _uncommitted,
    "half-made-table": _half_made,
    "no-location": _no_location,
    "table-twice": _twice,
    "phantom-table": _phantom,
    "flickering-table": _flickering,
    "lost-table": _lost,
    "deleted-table-seen": _returned,
    "version-went-back": _went_back,
    "version-without-alter": _unasked,
    "tablet-came-back": _tablet_back,
    "vanished-tablet": _tablet_gone,
    "ddl-stuck": _stuck_ddl,
    "ddl-late": _late,
    "no-order": _no_order,
    "schemas-differ": _schemas_differ,
    "schema-went-back": _schema_went_back,
    "column-came-back": _column_came_back,
    "schema-without-alter": _schema_unasked,
    "column-without-alter": _column_unasked,
    "altering-without-alter": _altering,
    "tablet-went-back": _tablet_went_back,
    "creation-undone": _undone,
    "tablet-in-two-places": _two_places,
    "wrong-size": _wrong_size,
}
SENTENCES: Final = _SENTENCES
