"""The model `unique-ids`: no two successful `generate` operations return the same (`jepsen.checker/unique-ids`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from checkers.columns.batches import (
    COLUMNS,
    SMALL,
    ClientMops,
    Operations,
    column,
    first_flagged,
    flat,
    flat_schema,
    groups_of,
    read_mops,
    read_operations,
)
from checkers.columns.codes import FAIL, OK, UNSUPPORTED, Ints, unsupported
from checkers.engines.api import Engine
from checkers.engines.flows import findings_of
from checkers.explain.conclude import conclude, who
from checkers.explain.speaker import Speaker, listed
from checkers.findings import NO_KEY, Finding, Findings, Key, earliest
from checkers.options import CheckOptions
from checkers.source import Source
from checkers.verdict import Verdict
from harness.history.columns import FOREIGN_BASE

GENERATE, ATTEMPT = 0, 1
DUPLICATE: Final = "duplicate-id"

_EMPTY: Final = "{}"

_SCHEMA: Final = flat_schema(("partition", "value", "invoke"), kind=SMALL, text=pa.string())
"""One row a `generate`; ids that are no scalars are in `text`, as JSON. Several keys may give the same id."""


@dataclass(frozen=True, slots=True)
class UniqueIdsFlow:
    """See `Flow`: equal ids meet."""

    dictionary_size: int
    explain: int
    columns: tuple[str, ...] = (*COLUMNS, "value")
    schema: pa.Schema = _SCHEMA
    keys: tuple[str, ...] = ("partition", "value", "text", "kind")
    order: tuple[str, ...] = ("invoke",)

    def flatten(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        operations = read_operations(batch)
        mops = read_mops(batch, operations, np.ones(len(operations.row), np.bool_), {"generate": GENERATE})
        ok = operations.outcome[mops.of] == OK
        kind = np.where(mops.kind != GENERATE, UNSUPPORTED, np.where(ok, GENERATE, ATTEMPT)).astype(np.int8)
        sizes = operations.mop_stop - operations.mop_start
        several = sizes[mops.of] > 1
        texts: list[str | None] = [None] * len(kind)
        first = np.flatnonzero(np.diff(mops.of, prepend=-1) > 0)
        for i in first[(ok & (mops.listed | mops.nil | several))[first]].tolist():
            texts[i] = _text(mops, i, int(sizes[mops.of[i]]) if several[i] else 1)
        plain = (kind == GENERATE) & ~several
        columns = {
            "kind": kind[first],
            "partition": np.where(plain, mops.address[1], 0)[first],
            "value": np.where(plain, mops.value, 0)[first],
            "text": pa.array([texts[i] for i in first.tolist()], pa.string()),
            "invoke": operations.invoke[mops.of[first]],
        }
        rows = flat(_SCHEMA, columns)
        empty = np.flatnonzero(~operations.unfit & (sizes == 0) & operations.named(("generate",)))
        unfit = np.flatnonzero(operations.unfit)
        return pa.concat_batches([rows, _empty(operations, empty), _structured(batch, operations, unfit)])

    def judge(self, rows: pa.Table) -> Findings:
        kind, invoke = column(rows, "kind"), column(rows, "invoke")
        value, partition = column(rows, "value"), column(rows, "partition")
        problems = unsupported(invoke[kind == UNSUPPORTED], "this generates no id")
        if problems or not rows.num_rows:
            return Findings(unsupported=problems)
        text = rows.column("text").combine_chunks()
        codes = text.dictionary_encode().indices.fill_null(-1).to_numpy(zero_copy_only=False)
        starts, sizes, _ = groups_of([partition, value, codes, kind])
        twice = (sizes > 1) & (kind[starts] == GENERATE)
        second = invoke[np.minimum(starts + 1, len(kind) - 1)]
        kept = []
        for group in first_flagged(twice, second, self.explain):
            begin = int(starts[group])
            ops = tuple(invoke[begin : begin + min(int(sizes[group]), 4)].tolist())
            facts = {"id": int(value[begin]), "text": text[begin].as_py(), "times": int(sizes[group])}
            kept.append(Finding(DUPLICATE, ops[1], Key(partition=int(partition[begin])), ops, facts))
        acknowledged = kind == GENERATE
        numbers = value[acknowledged & (codes < 0)]
        numbers = numbers[(numbers >= FOREIGN_BASE) | (numbers < FOREIGN_BASE - self.dictionary_size)]
        lowest = {"id": int(numbers.min())} if len(numbers) else {}
        highest = {"id": int(numbers.max())} if len(numbers) else {}
        figures = {"attempts": len(kind), "acknowledged": int(acknowledged.sum())}
        counts = {DUPLICATE: int(twice.sum())}
        return Findings(
            len(kind),
            counts=counts,
            kept=earliest(kept, self.explain),
            figures=figures,
            lowest=lowest,
            highest=highest,
        )


def _text(mops: ClientMops, first: int, size: int) -> str:
    """An id that is a list, a map (of `size` entries) or nil."""
    if size > 1:
        entries = range(first, first + size)
        pairs = [[int(mops.address[1][i]), None if mops.nil[i] else int(mops.value[i])] for i in entries]
        return msgspec.json.encode(sorted(pairs)).decode()
    places = range(mops.list_start[first], mops.list_stop[first])
    items = [None if mops.nil_item[i] else int(mops.items[i]) for i in places]
    return msgspec.json.encode(items if mops.listed[first] else None).decode()


def _empty(operations: Operations, which: Ints) -> pa.RecordBatch:
    """Operations whose ids are maps without entries, or that gave none."""
    zeros, ok = np.zeros(len(which), np.int64), operations.outcome[which] == OK
    columns = {"kind": np.where(ok, GENERATE, ATTEMPT), "partition": zeros, "value": zeros}
    texts = pa.array([_EMPTY if given else None for given in ok.tolist()], pa.string())
    return flat(_SCHEMA, columns | {"invoke": operations.invoke[which], "text": texts})


def _canonical(text: str | None) -> str | None:
    """Maps are equal in whatever order their entries are written."""
    return text and msgspec.json.encode(msgspec.json.decode(text), order="sorted").decode()


def _structured(batch: pa.RecordBatch, operations: Operations, which: Ints) -> pa.RecordBatch:
    """Operations whose ids are maps and the like: those are in the column `value`."""
    named = operations.named(("generate",))[which]
    outcome = operations.outcome[which]
    value = batch.column("value").take(pa.array(operations.row[which])).to_pylist()
    kind = np.where(~named, UNSUPPORTED, np.where(outcome == OK, GENERATE, ATTEMPT))
    texts = [_canonical(text) if code == GENERATE else None for text, code in zip(value, kind.tolist(), strict=True)]
    kept = np.flatnonzero(named | (outcome != FAIL)).tolist()
    zeros = np.zeros(len(kept), np.int64)
    columns = {"kind": kind[kept], "value": zeros, "partition": zeros, "invoke": operations.invoke[which][kept]}
    return flat(_SCHEMA, columns | {"text": pa.array([texts[i] for i in kept], pa.string())})


def judge_unique_ids(source: Source, engine: Engine, options: CheckOptions) -> Verdict:
    """Every acknowledged id is unique; the verdict's details give the range of the integers among them."""
    flow = UniqueIdsFlow(len(source.dictionary), options.explain)
    part = findings_of(engine, source, flow, options.explain)
    details = {"range": [part.lowest["id"], part.highest["id"]]} if part.lowest else {}
    few = part.figures.get("acknowledged", 0) < 2
    doubts = ("Fewer than two ids were given out, so nothing was compared.",) if few else ()
    return conclude("unique-ids", source, engine, part, _SENTENCES, doubts, details)


def _shown(speaker: Speaker, value: Any) -> str:
    """An id as it is told: a number, a text, nil, or lists and maps of these."""
    if isinstance(value, list):
        return f"[{','.join(_shown(speaker, item) for item in value)}]"
    if isinstance(value, dict):
        return f"{{{','.join(f'{key} {_shown(speaker, item)}' for key, item in value.items())}}}"
    return speaker.source.shown(value) if value is None or isinstance(value, int) else str(value)


def _duplicate(speaker: Speaker, finding: Finding) -> str:
    facts, ops = finding.facts, finding.ops
    shown = _shown(speaker, facts["id"] if facts["text"] is None else msgspec.json.decode(facts["text"]))
    of = "" if finding.key == NO_KEY else f" of {speaker.key(finding.key)}"
    others = [f"process {speaker.rows[i]['process']} at {speaker.when(i, 'invoke')}" for i in ops if i != ops[1]]
    more = facts["times"] - len(ops)
    return (
        f"{who(speaker, ops[1], f'was given the id {shown}{of}')}, which was given out also to {listed(others, more)}."
    )


_SENTENCES: Final = {DUPLICATE: _duplicate}
