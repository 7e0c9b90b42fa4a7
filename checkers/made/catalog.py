"""Calls of a catalog as the events of a history, so that they can be judged as any history is."""

from __future__ import annotations

from collections.abc import Sequence

from checkers.catalog.calls import ALTER, CREATE, DELETE, RENAME, Call, TableSeen
from checkers.columns.codes import NEVER
from harness.history.ops import Mop, Op

NAMES = {CREATE: "create", DELETE: "delete", ALTER: "alter", RENAME: "rename"}
RUNNING = 2
NS_PER_EVENT = 1_000_000


def events_of(calls: Sequence[Call]) -> list[Op]:
    """Invocations and completions in order; every call has a process of its own."""
    placed = []
    for process, call in enumerate(calls):
        op = _operation(call, process)
        placed.append((call.order, op.complete("invoke", mops=() if call.seen and op.type == "ok" else op.mops)))
        if call.complete != NEVER:
            placed.append((call.complete, op))
    placed.sort(key=lambda each: each[0])
    return [op.complete(op.type, index=event, time=event * NS_PER_EVENT) for event, op in placed]


def _operation(call: Call, process: int) -> Op:
    if call.total:
        return Op("ok", process, "list", tuple(_table(seen) for seen in call.seen))
    if call.changes:
        f = NAMES[call.kind]
        return Op("ok", process, f, (Mop(f, call.name, call.id, row=call.new if call.kind == RENAME else 0),))
    seen = call.seen[0]
    if call.kind in NAMES:
        f, refused = NAMES[call.kind], "not-found" if seen.absent else "already-present"
        if f == "rename" and not seen.absent:
            return Op("fail", process, f, (Mop(f, seen.name + 100, row=seen.name),), error_class=refused)
        if f == "create" or seen.absent:
            return Op("fail", process, f, (Mop(f, seen.name),), error_class=refused)
    return Op("ok", process, "schema", (_shown(seen),))


def _table(seen: TableSeen) -> Mop:
    return Mop("table", seen.name, seen.id, row=seen.version or 0, column=RUNNING)


def _shown(seen: TableSeen) -> Mop:
    if seen.id is None:
        return Mop("created", seen.name, column=int(seen.absent))
    if seen.version is None:
        return Mop("locations", seen.name, seen.id)
    return Mop("schema", seen.name, seen.id, row=seen.version)
