"""The model `convergence`: at the end all replicas show the same.

Final reads are those of the phases `final` and `each-node`, or where a history states no phases, reads that began
after the last other operation had ended. Of each node and object the last final read counts; nodes that show different
values diverge. Where a node was asked for an object and never answered, nobody knows what it holds. Lists are compared
in their order if anything was appended to lists, else as sets. Quorum tables are compared row by row and replica by
replica (`checkers.quorum.replica_convergence`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from checkers.columns.batches import (
    COLUMNS,
    OBJECT,
    SMALL,
    WIDE,
    Bools,
    column,
    flat,
    flat_schema,
    group_starts,
    key_at,
    read_mops,
    read_operations,
)
from checkers.columns.codes import FAIL, NEVER, NIL, OK
from checkers.engines.api import Engine
from checkers.engines.flows import BatchFlow, findings_of, run_batches
from checkers.explain.conclude import conclude, thing, whose
from checkers.explain.speaker import Speaker, listed
from checkers.findings import Finding, Findings, earliest, merged
from checkers.options import CheckOptions
from checkers.quorum.quorum_history import PHASE_EACH_NODE, PHASE_FINAL, read_quorum_history
from checkers.quorum.replica_convergence import judge_replicas
from checkers.source import Source
from checkers.verdict import Verdict

DIVERGENCE: Final = "divergence"
FINAL: Final = pa.array([PHASE_FINAL, PHASE_EACH_NODE])

_KINDS: Final = {"r": 0, "read": 0, "append": 1}
_SCHEMA: Final = flat_schema(OBJECT, node=pa.string(), value=WIDE, text=pa.string(), invoke=WIDE, answered=SMALL)
"""One row a micro-operation of a final read, be it `answered` or not; lists are in `text` as JSON, and so is nil."""


def _marked(batch: pa.RecordBatch) -> Bools:
    """Which operations are said to be final reads."""
    phases = pc.is_in(batch.column("phase").cast(pa.string()), FINAL)
    found: Bools = phases.to_numpy(zero_copy_only=False)
    return found


def _course(batch: pa.RecordBatch) -> Findings:
    """What tells which reads are final: whether any is marked so, and the last event of anything but reads."""
    operations = read_operations(batch)
    mops = read_mops(batch, operations, np.ones(len(operations.row), np.bool_), _KINDS)
    other = np.bincount(mops.of[mops.kind != 0], minlength=len(operations.row)) > 0
    other |= (operations.mop_start == operations.mop_stop) & ~operations.named(("r", "read"))
    other &= operations.outcome != FAIL
    ended = np.where(operations.complete == NEVER, operations.invoke, operations.complete)
    figures = {"final": int(_marked(batch)[operations.row].sum()), "appends": int((mops.kind == 1).sum())}
    return Findings(figures=figures, highest={"last": int(ended[other].max(initial=-1))})


@dataclass(frozen=True, slots=True)
class ConvergenceFlow:
    """See `Flow`: the final reads of an object meet. `after` is None where reads are marked as final."""

    after: int | None
    ordered: bool
    explain: int
    columns: tuple[str, ...] = (*COLUMNS, "phase", "node")
    schema: pa.Schema = _SCHEMA
    keys: tuple[str, ...] = OBJECT
    order: tuple[str, ...] = ("node", "answered", "invoke")

    def flatten(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        operations = read_operations(batch)
        if self.after is None:
            final = _marked(batch)[operations.row]
        else:
            final = operations.invoke > self.after
        mops = read_mops(batch, operations, final, _KINDS)
        listed = np.where(mops.nil_item, NIL, mops.items)
        kept = np.flatnonzero(mops.kind == 0)
        texts: list[str | None] = [None] * len(kept)
        for place in np.flatnonzero((mops.listed | mops.nil)[kept]).tolist():
            i = kept[place]
            items = listed[mops.list_start[i] : mops.list_stop[i]].tolist()
            shown = (items if self.ordered else sorted(set(items))) if mops.listed[i] else None
            texts[place] = msgspec.json.encode(shown).decode()
        columns: dict[str, Any] = {name: part[kept] for name, part in zip(OBJECT, mops.address, strict=True)}
        columns["node"] = batch.column("node").take(pa.array(operations.row[mops.of[kept]])).cast(pa.string())
        columns |= {"value": mops.value[kept], "text": pa.array(texts, pa.string())}
        columns |= {"invoke": operations.invoke[mops.of[kept]]}
        return flat(_SCHEMA, columns | {"answered": (operations.outcome[mops.of[kept]] == OK).astype(np.int8)})

    def judge(self, rows: pa.Table) -> Findings:
        if not rows.num_rows:
            return Findings()
        named, answered = rows.column("node").is_valid().to_numpy(), column(rows, "answered") == 1
        figures = {"final_reads": int(answered.sum()), "without_node": int((answered & ~named).sum())}
        rows = rows.filter(pa.array(named))
        if not rows.num_rows:
            return Findings(figures["final_reads"], figures=figures)
        address = [column(rows, name) for name in OBJECT]
        node = rows.column("node").combine_chunks().dictionary_encode()
        last = np.append(group_starts([*address, node.indices.to_numpy()])[1:], rows.num_rows) - 1
        answered = column(rows, "answered")[last] == 1
        figures["unanswered"] = int((~answered).sum())
        last = last[answered]
        if not len(last):
            return Findings(figures["final_reads"], figures=figures)
        text = rows.column("text").combine_chunks().dictionary_encode().indices.fill_null(-1).to_numpy()
        value, invoke = column(rows, "value"), column(rows, "invoke")
        objects = group_starts([part[last] for part in address])
        sizes = np.diff(np.append(objects, len(last)))
        heads = np.repeat(last[objects], sizes)
        differ = (value[last] != value[heads]) | (text[last] != text[heads])
        diverged = np.logical_or.reduceat(differ, objects)
        kept = []
        for number in np.flatnonzero(diverged)[: self.explain].tolist():
            mine = last[objects[number] : objects[number] + sizes[number]]
            _, distinct = np.unique(np.stack((value[mine], text[mine])), axis=1, return_index=True)
            ops = tuple(invoke[mine[np.sort(distinct)]].tolist()[:4])
            facts = {"nodes": int(sizes[number]), "values": len(distinct)}
            kept.append(Finding(DIVERGENCE, min(ops), key_at(rows, int(mine[0])), ops, facts))
        figures |= {"objects": len(objects), "compared": int((sizes > 1).sum())}
        counts = {DIVERGENCE: int(diverged.sum())}
        return Findings(figures["final_reads"], counts=counts, kept=earliest(kept, self.explain), figures=figures)


def judge_convergence(source: Source, engine: Engine, options: CheckOptions) -> Verdict:
    """The last final reads of all nodes agree on every object."""
    reading = read_quorum_history(source, engine)
    if reading is not None:
        return judge_replicas(reading, source, engine, options)
    course = run_batches(engine, source, BatchFlow((*COLUMNS, "phase"), _course, partial(merged, explain=0)))
    after = None if course.figures.get("final") else course.highest.get("last", -1)
    flow = ConvergenceFlow(after, bool(course.figures.get("appends")), options.explain)
    part = findings_of(engine, source, flow, options.explain)
    doubts: tuple[str, ...] = ()
    if not part.figures.get("final_reads"):
        doubts = ("There are no final reads that succeeded.",)
    elif part.figures.get("without_node") == part.figures["final_reads"]:
        doubts = ("The history does not say which node served a final read.",)
    else:
        doubts = _uncompared(part)
    return conclude("convergence", source, engine, part, _SENTENCES, doubts)


def _uncompared(part: Findings) -> tuple[str, ...]:
    """Why final reads that agree where they could be compared may differ all the same."""
    if not part.figures.get("compared"):
        return ("No object was read from more than one node at the end, so nothing was compared.",)
    doubts = []
    if silent := part.figures.get("unanswered", 0):
        objects = "1 object" if silent == 1 else f"{silent} objects"
        doubts.append(f"Final reads of {objects} were not answered by the node that they went to.")
    if unnamed := part.figures.get("without_node", 0):
        reads = "1 final read" if unnamed == 1 else f"{unnamed} final reads"
        doubts.append(f"The history does not say which node served {reads}.")
    if alone := part.figures["objects"] - part.figures["compared"]:
        doubts.append(f"{alone} of {part.figures['objects']} objects were read from one node only at the end.")
    return tuple(doubts)


def _divergence(speaker: Speaker, finding: Finding) -> str:
    shown = [f"node {speaker.rows[i]['node']} showed {_value(speaker, i, finding)}" for i in finding.ops]
    first = f"At the end {thing(speaker, 'object', finding.key)} differs between nodes: {listed(shown)}"
    return f"{first}; the first by {whose(speaker, finding.ops[0], 'read')}."


def _value(speaker: Speaker, index: int, finding: Finding) -> str:
    for mop in speaker.rows[index]["mops"]:
        if (mop["table"], mop["partition"], mop["row"], mop["column"]) == tuple(finding.key):
            if mop["values"] is None:
                return speaker.source.shown(mop["value"])
            shown = " ".join(speaker.source.shown(item) for item in mop["values"][:16])
            return f"[{shown}{' …' if len(mop['values']) > 16 else ''}]"
    return "nothing"


_SENTENCES: Final = {DIVERGENCE: _divergence}
