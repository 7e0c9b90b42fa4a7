"""The model `set-full`: what became of each element, judged by all reads (`jepsen.checker/set-full`).

An element is *known* once its add is acknowledged or a read shows it. It is `stable` if the last read that could show
it and did began after the last that could and did not; `lost` if a read that began after it was known, and after every
read that shows it, misses it; else `never-read`. A stable element is `stale` if a read that began after it was known
misses it (whatever the latency; Jepsen counts from one millisecond). Order is that of events; a read can show an
element if it ends after the add began. Elements shown twice by one read are `duplicated`. Lost and duplicated elements
are anomalies, stale ones where the set is to be linearizable (`-o linearizable=true`). What a read shows and nobody had
begun to add, or only adds that failed, is none, as in Jepsen, but then nothing is valid.

No element's fate depends on another's. So on Spark large sets fall into shares of their elements, and of each read a
share has the moments, and those of its elements that the read shows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from checkers.columns.batches import (
    COLUMNS,
    OBJECT,
    SMALL,
    WIDE,
    column,
    first_flagged,
    flat,
    flat_schema,
    ints,
    key_at,
    lists_of,
    unknown_rows,
)
from checkers.columns.codes import FAIL, Ints
from checkers.columns.dense import spread
from checkers.engines.api import Engine
from checkers.engines.exchange import MOST_BUCKETS, buckets_of
from checkers.engines.flows import BatchFlow, findings_of, leaves_cores_idle, run_batches
from checkers.explain.conclude import conclude, thing, whose
from checkers.explain.speaker import Speaker
from checkers.findings import Finding, Findings, Key, earliest
from checkers.jepsen.elements import ADD, Elements, follow
from checkers.jepsen.sets import SetRows, problems_of, read_set_rows
from checkers.options import CheckOptions, bool_setting
from checkers.source import Source
from checkers.verdict import Verdict

_SCHEMA: Final = flat_schema(
    (*OBJECT, "share", "value", "invoke", "complete", "began", "ended"),
    kind=SMALL,
    outcome=SMALL,
    items=pa.list_(WIDE),
)
"""One row an add, or a successful read with what it shows of a share; `began` and `ended` in ns (0 where no times are
stated)."""

_ITEMS_PER_SHARE: Final = 1 << 21
"""Elements that reads show of one share, as far as reads show enough of them: each share takes a row of each read."""

_LEAST_SHOWN: Final = 8
"""Elements that a share has for each read on average, at least."""

_MOST_SETS: Final = 1_000
"""Sets that are counted; more sets than that are work for many tasks each by itself."""

_KEPT: Final = "kept:"
"""Figures of this name and a set's address say in how many shares the set has elements that stay."""

_LEAST_SHOWN_NS: Final = 1_000
"""Latencies below are no more than the order of events."""

_LATENCIES: Final = (0.0, 0.5, 0.95, 0.99, 1.0)


@dataclass(frozen=True, slots=True)
class SetFullFlow:
    """See `Flow`: all operations on a set meet, or all of a share of its elements, where there are several `shares`."""

    explain: int
    shares: int = 1
    columns: tuple[str, ...] = (*COLUMNS, "invoke_time", "complete_time")
    schema: pa.Schema = _SCHEMA
    keys: tuple[str, ...] = (*OBJECT, "share")
    order: tuple[str, ...] = ("invoke",)

    def flatten(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        found = _begun_in(batch)
        mops, operations = found.mops, found.operations
        rows, share, items = self._shared(found)
        of = mops.of[rows]
        began, ended = (ints(batch.column(name))[operations.row[of]] for name in ("invoke_time", "complete_time"))
        columns: dict[str, Any] = {name: part[rows] for name, part in zip(OBJECT, mops.address, strict=True)}
        columns |= {"kind": mops.kind[rows], "value": mops.value[rows], "outcome": operations.outcome[of]}
        columns |= {"invoke": operations.invoke[of], "complete": operations.complete[of]}
        columns |= {"began": began, "ended": ended, "items": items, "share": share}
        odd = np.concatenate((operations.invoke[mops.of[found.unknown]], operations.invoke[found.unfit]))
        return pa.concat_batches([flat(_SCHEMA, columns), unknown_rows(_SCHEMA, odd)])

    def _shared(self, found: SetRows) -> tuple[Ints, Ints, pa.ListArray]:
        """The micro-operations of each share, in order of shares: adds once, reads in all with their elements there."""
        mops = found.mops
        if self.shares == 1:
            rows = np.sort(np.concatenate((found.adds, found.reads)))
            return rows, np.zeros(len(rows), np.int64), lists_of(mops, rows)
        adds, reads = np.sort(found.adds), np.sort(found.reads)
        places, which = spread(mops.list_start[reads], mops.list_stop[reads])
        place = self._share_of(mops.items[places]) * len(reads) + which
        sizes = np.bincount(place, minlength=self.shares * len(reads))
        sizes = np.concatenate((np.zeros(len(adds) + 1, np.int64), sizes))
        order = np.argsort(place, kind="stable")
        items = pa.ListArray.from_arrays(pa.array(np.cumsum(sizes), pa.int32()), pa.array(mops.items[places[order]]))
        shares = np.repeat(np.arange(self.shares), len(reads))
        rows = np.concatenate((adds, np.tile(reads, self.shares)))
        return rows, np.concatenate((self._share_of(mops.value[adds]), shares)), items

    def _share_of(self, value: Ints) -> Ints:
        return buckets_of({"kind": value, "value": value}, ("value",), self.shares).astype(np.int64)

    def judge(self, rows: pa.Table) -> Findings:
        problems = problems_of(rows)
        if problems or not rows.num_rows:
            return Findings(unsupported=problems)
        elements = follow(rows)
        part = _part(rows, elements, self.explain)
        sets = _kept_sets(rows, elements) if self.shares > 1 else {}
        return msgspec.structs.replace(part, figures=part.figures | sets)


def _part(rows: pa.Table, elements: Elements, explain: int) -> Findings:
    stable, lost, stale = elements.stable, elements.lost, elements.stale
    flags = {"lost": lost, "stale": stale, "duplicated": elements.most > 1}
    kept: list[Finding] = []
    begun = column(rows, "invoke")[elements.place]
    for name, flag in flags.items():
        kept += [_finding(rows, elements, name, i) for i in first_flagged(flag, begun, explain)]
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
    return Findings(rows.num_rows, counts=counts, kept=earliest(kept, explain), figures=figures, highest=highest)


def _kept_sets(rows: pa.Table, elements: Elements) -> dict[str, int]:
    """The figures of sets of which a share has elements that stay."""
    stay = np.flatnonzero(elements.stable)
    firsts = np.unique(elements.object[stay], return_index=True)[1]
    return {f"{_KEPT}{key_at(rows, int(elements.place[stay[i]]))}": 1 for i in firsts}


def _index(rows: pa.Table, row: int) -> int:
    """The invocation of the operation of a row, -1 for none."""
    return rows.column("invoke")[row].as_py() if row >= 0 else -1


def _histogram(name: str, latency: Ints) -> dict[str, int]:
    """How many latencies (ns) there are by the bits that they take: parts of it can be added up."""
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


def _begun_in(batch: pa.RecordBatch) -> SetRows:
    """What a batch says about sets, without the adds that failed."""
    found = read_set_rows(batch)
    took = found.operations.outcome[found.mops.of[found.adds]] != FAIL
    return replace(found, adds=found.adds[took])


class _Size(NamedTuple):
    """How many adds and reads there are of how many sets, and elements that the reads show."""

    sets: frozenset[Key]
    adds: int
    reads: int
    shown: int


def size_of(batch: pa.RecordBatch) -> _Size | None:
    """What a batch of a history says; None if there are more sets than are counted."""
    found = _begun_in(batch)
    rows = np.concatenate((found.adds, found.reads))
    sets = np.unique(np.stack([part[rows] for part in found.mops.address], axis=1), axis=0)
    if len(sets) > _MOST_SETS:
        return None
    shown = found.mops.list_stop[found.reads] - found.mops.list_start[found.reads]
    keys = frozenset(map(Key.of, sets))
    return _Size(keys, len(found.adds), len(found.reads), int(shown.sum()))


def total_size(sizes: list[_Size | None]) -> _Size | None:
    """What several parts of a history say together."""
    known = [size for size in sizes if size is not None]
    sets = frozenset[Key]().union(*(size.sets for size in known))
    if len(known) < len(sizes) or len(sets) > _MOST_SETS:
        return None
    adds, reads = sum(size.adds for size in known), sum(size.reads for size in known)
    return _Size(sets, adds, reads, sum(size.shown for size in known))


def shares_of(reads: int, shown: int) -> int:
    """Into how many shares sets fall whose reads show `shown` elements in all."""
    return max(1, min(-(-shown // _ITEMS_PER_SHARE), shown // (_LEAST_SHOWN * max(1, reads)), MOST_BUCKETS))


def _all_parts(source: Source, engine: Engine, explain: int) -> Findings:
    """What there is to say of all sets, of large ones share by share."""
    flow = SetFullFlow(explain)
    size = run_batches(engine, source, _SIZES) if leaves_cores_idle(engine, source, flow) else None
    shares = shares_of(size.reads, size.shown) if size is not None else 1
    if size is None or shares == 1:
        return findings_of(engine, source, flow, explain)
    part = findings_of(engine, source, replace(flow, shares=shares), explain, least_buckets=shares)
    kept = sum(name.startswith(_KEPT) for name in part.figures)
    figures = {name: figure for name, figure in part.figures.items() if not name.startswith(_KEPT)}
    sets = {"objects": len(size.sets), "objects_without_stable": len(size.sets) - kept}
    return msgspec.structs.replace(part, figures=figures | sets, ops=size.adds + size.reads)


_SIZES: Final = BatchFlow(COLUMNS, size_of, total_size)


def judge_set_full(source: Source, engine: Engine, options: CheckOptions) -> Verdict:
    """No element is lost or shown twice by one read; none is stale if the set has to be linearizable."""
    linearizable = bool_setting(options, "linearizable")
    part = _all_parts(source, engine, options.explain)
    stale = part.counts.get("stale", 0)
    fatal = {"lost", "duplicated"} | ({"stale"} if linearizable else set())
    judged = msgspec.structs.replace(
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
    if unexpected := part.figures.get("unexpected"):
        doubts += (f"Reads show {unexpected} times what nobody had begun to add, of which set-full says nothing.",)
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
