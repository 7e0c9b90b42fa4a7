"""Anomalies grouped by key and time, each group with its neighbours: all that its keys and processes did around it.

The report shows a group as a timeline and as a table (`timeline.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from checkers.source import EVIDENCE_COLUMNS, Source

Key = tuple[int, int]
"""Table and partition: what fails together, and what clients name."""

AROUND_NS = 100_000_000
"""So long before and after a group its neighbours are drawn, or half as long as it lasts, if that is more."""
GROUP_GAP_NS = 1_000_000_000
"""Anomalies of one key that are further apart are two groups."""
MOST_GROUPS = 12
_MOP = ("f", "partition", "value", "expected", "values", "table")
MOST_NEIGHBOURS = 240
"""Of more, those nearest to the group's middle."""


@dataclass(slots=True)
class FindingGroup:
    """What was found wrong about some keys in a window of time (ns): classes with how many, and the operations."""

    keys: set[Key]
    begin_ns: int
    end_ns: int
    kinds: dict[str, int] = field(default_factory=dict)
    ops: set[int] = field(default_factory=set)
    processes: set[int] = field(default_factory=set)
    neighbours: list[dict[str, Any]] = field(default_factory=list)
    left_out: int = 0

    @property
    def around(self) -> tuple[int, int]:
        """The window with its margins; nothing was before the start."""
        margin_ns = max(AROUND_NS, (self.end_ns - self.begin_ns) // 2)
        return max(self.begin_ns - margin_ns, min(self.begin_ns, 0)), self.end_ns + margin_ns

    def meets(self, other: FindingGroup) -> bool:
        """Whether it is about a key of the other one at about that time."""
        near = self.begin_ns <= other.end_ns + GROUP_GAP_NS and other.begin_ns <= self.end_ns + GROUP_GAP_NS
        return near and bool(self.keys & other.keys)

    def take(self, other: FindingGroup) -> None:
        """Become one with it."""
        self.keys |= other.keys
        self.ops |= other.ops
        self.processes |= other.processes
        self.begin_ns, self.end_ns = min(self.begin_ns, other.begin_ns), max(self.end_ns, other.end_ns)
        for kind, number in other.kinds.items():
            self.kinds[kind] = self.kinds.get(kind, 0) + number


def grouped(checkers: Mapping[str, Mapping[str, Any]]) -> list[FindingGroup]:
    """The explained anomalies of all checkers that name operations with keys and times; the first ones in time."""
    groups: list[FindingGroup] = []
    for verdict in checkers.values():
        anomalies = verdict.get("anomalies") if isinstance(verdict, Mapping) else None
        for kind, found in anomalies.items() if isinstance(anomalies, Mapping) else ():
            for item in found if isinstance(found, list | tuple) else ():
                if isinstance(item, Mapping) and (group := _of_one(str(kind), item)) is not None:
                    _merge(groups, group)
    return sorted(groups, key=lambda group: (group.begin_ns, sorted(group.keys)))


def _merge(groups: list[FindingGroup], new: FindingGroup) -> None:
    for group in [each for each in groups if each.meets(new)]:
        new.take(group)
        groups.remove(group)
    groups.append(new)


def _of_one(kind: str, anomaly: Mapping[str, Any]) -> FindingGroup | None:
    told = anomaly.get("ops")
    listed = told if isinstance(told, list | tuple) else ()
    ops = [op for op in listed if isinstance(op, Mapping) and isinstance(op.get("op"), int)]
    timed = [op for op in ops if isinstance(op.get("invoke_time"), int)]
    keys = {key for op in timed for key in keys_of(op)}
    if not keys:
        return None
    begins = [op["invoke_time"] for op in timed]
    ends = [op["complete_time"] for op in timed if isinstance(op.get("complete_time"), int)]
    processes = {op["process"] for op in timed if isinstance(op.get("process"), int)}
    return FindingGroup(keys, min(begins), max([*ends, *begins]), {kind: 1}, {op["op"] for op in timed}, processes)


def keys_of(op: Mapping[str, Any]) -> set[Key]:
    """The keys that an operation names."""
    found, mops = set(), op.get("mops")
    for mop in mops if isinstance(mops, list | tuple) else ():
        told = dict(zip(_MOP, mop, strict=False)) if isinstance(mop, list | tuple) else mop
        if isinstance(told, Mapping) and isinstance(told.get("partition"), int):
            found.add((told.get("table") or 0, told["partition"]))
    return found


def find_neighbours(groups: Sequence[FindingGroup], source: Source) -> None:
    """Fill in what clients did about each group's keys, and what its processes did, within its window; one reading."""
    if not groups:
        return
    for batch in source.batches(EVIDENCE_COLUMNS):
        for group in groups:
            _take_from(batch, group)
    for group in groups:
        _keep_nearest(group)


def _take_from(batch: pa.RecordBatch, group: FindingGroup) -> None:
    first_ns, last_ns = group.around
    open_then = pc.fill_null(pc.greater_equal(batch.column("complete_time"), first_ns), True)
    begun = pc.and_(pc.less_equal(batch.column("invoke_time"), last_ns), pc.greater_equal(batch.column("process"), 0))
    rows = batch.filter(pc.and_(begun, open_then))
    for op in rows.to_pylist() if rows.num_rows else ():
        if op["process"] in group.processes or not group.keys.isdisjoint(keys_of(op)):
            group.neighbours.append(op)


def _keep_nearest(group: FindingGroup) -> None:
    middle_ns = (group.begin_ns + group.end_ns) // 2

    def order(op: Mapping[str, Any]) -> tuple[bool, int]:
        return op["op"] not in group.ops, abs(op["invoke_time"] - middle_ns)

    kept = sorted(group.neighbours, key=order)[:MOST_NEIGHBOURS]
    group.left_out = len(group.neighbours) - len(kept)
    group.neighbours = sorted(kept, key=lambda op: (op["process"], op["invoke_time"]))
