"""The model `set-full`: what became of each element, judged by all reads (`jepsen.checker/set-full`).

An element is *known* once its add is acknowledged or a read shows it. It is `stable` if the last read that could show
it and did began after the last that could and did not; `lost` if a read that began after it was known, and after every
read that shows it, misses it; else `never-read`. A stable element is `stale` if a read that began after it was known
misses it (whatever the latency; Jepsen counts from one millisecond). Order is that of events; a read can show an
element if it ends after the add began. Elements shown twice by one read are `duplicated`. Lost and duplicated elements
are anomalies, stale ones where the set is to be linearizable (`-o linearizable=true`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa

from checkers.engines.api import Engine
from checkers.engines.flows import run_flow
from checkers.findings import Finding
from checkers.jepsen.elements import Elements, follow
from checkers.jepsen.parts import Part, earliest, merged
from checkers.jepsen.rows import COLUMNS, OBJECT, column, flat, ints, key_at, lists_of
from checkers.jepsen.sets import STRANGE, problems_of, read_set_rows
from checkers.jepsen.settings import bool_setting
from checkers.jepsen.words import conclude, thing, whose
from checkers.kernels.columns import Ints
from checkers.kernels.shown import ADD
from checkers.options import CheckOptions
from checkers.source import Source
from checkers.verdict import Verdict
from checkers.words import Speaker

_SCHEMA: Final = pa.schema(
    [
        *(pa.field(name, pa.int64(), nullable=False) for name in OBJECT),
        pa.field("kind", pa.int8(), nullable=False),
        pa.field("value", pa.int64(), nullable=False),
        pa.field("outcome", pa.int8(), nullable=False),
        pa.field("invoke", pa.int64(), nullable=False),
        pa.field("complete", pa.int64(), nullable=False),
        pa.field("began", pa.int64(), nullable=False),
        pa.field("ended", pa.int64(), nullable=False),
        pa.field("items", pa.list_(pa.int64())),
    ]
)
"""One row an add or a successful read with what it shows; `began` and `ended` in ns (0 where no times are stated)."""

_LEAST_SHOWN_NS: Final = 1_000
"""Latencies below are no more than the order of events."""

_LATENCIES: Final = (0.0, 0.5, 0.95, 0.99, 1.0)


@dataclass(frozen=True, slots=True)
class SetFullFlow:
    """See `Flow`: all operations on a set meet."""

    explain: int
    columns: tuple[str, ...] = (*COLUMNS, "invoke_time", "complete_time")
    schema: pa.Schema = _SCHEMA
    keys: tuple[str, ...] = OBJECT
    order: tuple[str, ...] = ("invoke",)

    def flatten(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        found = read_set_rows(batch)
        mops, operations = found.mops, found.operations
        rows = np.sort(np.concatenate((found.adds, found.reads)))
        of = mops.of[rows]
        began, ended = (ints(batch.column(name))[operations.row[of]] for name in ("invoke_time", "complete_time"))
        columns: dict[str, Any] = {name: part[rows] for name, part in zip(OBJECT, mops.address, strict=True)}
        columns |= {"kind": mops.kind[rows], "value": mops.value[rows], "outcome": operations.outcome[of]}
        columns |= {"invoke": operations.invoke[of], "complete": operations.complete[of]}
        columns |= {"began": began, "ended": ended, "items": lists_of(mops, rows)}
        odd = np.concatenate((operations.invoke[mops.of[found.strange]], operations.invoke[found.unfit]))
        if not len(odd):
            return flat(_SCHEMA, columns)
        other: dict[str, Any] = {field.name: np.zeros(len(odd), np.int64) for field in _SCHEMA}
        other |= {"kind": np.full(len(odd), STRANGE), "invoke": odd, "items": pa.nulls(len(odd), pa.list_(pa.int64()))}
        return pa.concat_batches([flat(_SCHEMA, columns), flat(_SCHEMA, other)])

    def judge(self, rows: pa.Table) -> Part:
        problems = problems_of(rows)
        if problems or not rows.num_rows:
            return Part(problems=problems)
        return _part(rows, follow(rows), self.explain)


def _part(rows: pa.Table, elements: Elements, explain: int) -> Part:
    stable, lost, stale = elements.stable, elements.lost, elements.stale
    flags = {"lost": lost, "stale": stale, "duplicated": elements.most > 1}
    kept: list[Finding] = []
    begun = column(rows, "invoke")[elements.place]
    for name, flag in flags.items():
        found = np.flatnonzero(flag)
        for i in found[np.argsort(begun[found], kind="stable")][:explain].tolist():
            kept.append(_finding(rows, elements, name, i))
    unstable = elements.objects - len(np.unique(elements.object[stable]))
    figures = {
        "attempts": len(stable),
        "stable": int(stable.sum()),
        "never_read": int((~stable & ~lost).sum()),
        "objects": elements.objects,
        "objects_without_stable": unstable,
        "unexpected": elements.unexpected,
    }
    for stray in elements.strays:
        read, facts = _index(rows, stray.row), {"element": stray.value, "times": stray.times}
        kept.append(Finding("duplicated", read, key_at(rows, stray.row), (-1, read, -1), facts))
    counts = {name: int(flag.sum()) for name, flag in flags.items()}
    counts["duplicated"] += len(elements.strays)
    for name, latency in (("stable", elements.stable_latency[stable]), ("lost", elements.lost_latency[lost])):
        figures |= _histogram(name, latency)
    highest = {"stable_latency_ns": int(elements.stable_latency.max(initial=0))}
    highest["lost_latency_ns"] = int(elements.lost_latency.max(initial=0))
    return Part(rows.num_rows, counts, earliest(kept, explain), figures, {}, highest)


def _index(rows: pa.Table, row: int) -> int:
    """The invocation of the operation of a row, -1 for none."""
    return rows.column("invoke")[row].as_py() if row >= 0 else -1


def _histogram(name: str, latency: Ints) -> dict[str, int]:
    """How many latencies need so many bits, in ns: parts of it can be added up."""
    bits = np.ceil(np.log2(latency.astype(np.float64) + 1)).astype(np.int64)
    found, counts = np.unique(bits, return_counts=True)
    return {f"{name}:{bit}": count for bit, count in zip(found.tolist(), counts.tolist(), strict=True)}


def _quantiles(name: str, figures: Mapping[str, int], highest_ns: int) -> dict[str, float]:
    """Quantiles of a latency in ms, from its histogram: each at most twice what it is, and never above the highest."""
    bins = sorted((int(key.split(":")[1]), count) for key, count in figures.items() if key.startswith(f"{name}:"))
    total = sum(count for _, count in bins)
    found = {}
    for point in _LATENCIES if total else ():
        wanted, seen = min(total - 1, int(total * point)), 0
        for bit, count in bins:
            seen += count
            if seen > wanted:
                found[f"{point:g}"] = min(2**bit - 1, highest_ns) / 1e6
                break
    return found


def _finding(rows: pa.Table, elements: Elements, name: str, i: int) -> Finding:
    place, known_by = int(elements.place[i]), int(elements.known_by[i])
    facts = {
        "element": int(elements.value[i]),
        "known_by_add": known_by >= 0 and rows.column("kind")[known_by].as_py() == ADD,
        "times": int(elements.most[i]),
        "latency_ns": int(elements.stable_latency[i] if name == "stale" else elements.lost_latency[i]),
    }
    absent, present = int(elements.absent[i]), int(elements.present[i])
    shows = (int(elements.most_by[i]), -1) if name == "duplicated" else (absent, present)
    add, *reads = (_index(rows, row) for row in (place, *shows))
    return Finding(name, add, key_at(rows, place), (add, *reads), facts)


def judge_set_full(source: Source, engine: Engine, options: CheckOptions) -> Verdict:
    """No element is lost or shown twice by one read; none is stale if the set has to be linearizable."""
    linearizable = bool_setting(options, "linearizable")
    part = run_flow(engine, source, SetFullFlow(options.explain), partial(merged, explain=options.explain))
    stale = part.counts.get("stale", 0)
    fatal = {"lost", "duplicated"} | ({"stale"} if linearizable else set())
    judged = replace(
        part,
        counts={name: count for name, count in part.counts.items() if name in fatal},
        kept=tuple(finding for finding in part.kept if finding.anomaly in fatal),
        figures={name: count for name, count in part.figures.items() if ":" not in name},
    )
    without = part.figures.get("objects_without_stable", 0)
    doubts: tuple[str, ...] = ()
    if not part.figures.get("stable"):
        doubts = ("No element was ever seen to stay, so nothing can be said.",)
    elif without:
        doubts = (f"In {without} of {part.figures['objects']} sets no element was ever seen to stay.",)
    details: dict[str, Any] = {"stale": stale, "lost": part.counts.get("lost", 0), "linearizable": linearizable}
    for name in ("stable", "lost"):
        highest = part.highest.get(f"{name}_latency_ns", 0)
        details[f"{name}_latencies_ms"] = _quantiles(name, part.figures, highest)
    return conclude("set-full", source, engine, judged, _SENTENCES, doubts, details)


def _element(speaker: Speaker, finding: Finding) -> str:
    return f"lement {speaker.source.shown(finding.facts['element'])} of {thing(speaker, 'set', finding.key)}"


def _known(speaker: Speaker, finding: Finding) -> str:
    add = finding.ops[0]
    if finding.facts["known_by_add"]:
        return f"{whose(speaker, add, 'add')} succeeded"
    return f"{whose(speaker, add, 'add')} had taken effect, since a read showed it"


def _lost(speaker: Speaker, finding: Finding) -> str:
    _, absent, present = finding.ops
    first = f"E{_element(speaker, finding)} was lost: {_known(speaker, finding)}, but {whose(speaker, absent, 'read')}"
    if present < 0:
        return f"{first} does not show it, nor does any other read."
    last = whose(speaker, present, "read")
    return f"{first} does not show it. The last read that does is {last}, and none that began later shows it again."


def _stale(speaker: Speaker, finding: Finding) -> str:
    _, absent, _ = finding.ops
    latency = finding.facts["latency_ns"]
    after = f", {latency / 1e6:.3f} ms after it was known," if latency >= _LEAST_SHOWN_NS else ""
    first = f"E{_element(speaker, finding)} was missed by a later read: {_known(speaker, finding)}"
    return f"{first}, but {whose(speaker, absent, 'read')}{after} does not show it. Later reads do."


def _duplicated(speaker: Speaker, finding: Finding) -> str:
    read = finding.ops[1]
    shows = f"shows e{_element(speaker, finding)} {finding.facts['times']} times"
    return f"P{whose(speaker, read, 'read')[1:]} {shows}, where a set has each element once."


_SENTENCES: Final = {"lost": _lost, "stale": _stale, "duplicated": _duplicated}
