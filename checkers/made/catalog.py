"""Histories of a catalog, linearizable by construction or with one answer corrupted: as calls, or as events, so that
they can be judged as any history is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Final

from checkers.catalog.calls import ALTER, CREATE, DELETE, LIST, RENAME, SCHEMA, Call, State, TableSeen, after
from checkers.columns.codes import NEVER
from harness.history.ops import Mop, Op

_KINDS: Final = (CREATE, CREATE, DELETE, ALTER, RENAME, LIST, SCHEMA, SCHEMA)


@dataclass(frozen=True, slots=True)
class CatalogShape:
    """How many calls by how many clients about how many names; which share ends with unknown outcome; `tells`: changes
    tell the id of their table; `empties`: in the end all tables that there are get deleted."""

    calls: int = 8
    clients: int = 3
    names: int = 2
    unknown: float = 0.2
    tells: bool = True
    refusals: bool = True
    empties: bool = False


def catalog_calls(shape: CatalogShape, seed: int) -> list[Call]:
    """Calls in order of invocation. Each takes effect at one moment between its invocation and its completion.

    Calls of unknown outcome may have taken effect or not, and then at any later moment.
    """
    return _Maker(shape, Random(seed)).make()


class _Maker:
    def __init__(self, shape: CatalogShape, entropy: Random) -> None:
        self._shape = shape
        self._entropy = entropy
        self._state: State = (None,) * shape.names
        self._next_id = 100
        self._event = -1
        self._late: list[Call] = []

    def make(self) -> list[Call]:
        idle, left, done = self._shape.clients, self._shape.calls, []
        waiting: list[Call] = []
        ready: list[Call] = []
        while left or waiting or ready:
            step = self._entropy.random()
            if left and idle and step < 0.4:
                waiting.append(self._invoked())
                left, idle = left - 1, idle - 1
            elif waiting and step < 0.7:
                self._some_late()
                ready.append(self._carried_out(waiting.pop(self._entropy.randrange(len(waiting)))))
            elif ready and step >= 0.7:
                done.append(self._completed(ready.pop(self._entropy.randrange(len(ready)))))
                idle += 1
        if self._shape.empties:
            done += [self._deleted(name) for name, table in enumerate(self._state) if table is not None]
        return sorted((call for call in done if self._says_something(call)), key=lambda call: call.order)

    def _deleted(self, name: int) -> Call:
        order = self._tick()
        return replace(self._change(Call(order, order, NEVER, DELETE, name)), complete=self._tick())

    def _tick(self) -> int:
        self._event += 2
        return self._event

    def _invoked(self) -> Call:
        kind = self._entropy.choice(_KINDS)
        name = self._entropy.randrange(self._shape.names)
        new = self._entropy.choice([other for other in range(self._shape.names) if other != name] or [name])
        if kind == RENAME and new == name:
            kind = ALTER
        order = self._tick()
        return Call(order, order, NEVER, kind, name, new if kind == RENAME else 0)

    def _some_late(self) -> None:
        """Changes that nobody waits for any more may take effect at any time."""
        for call in list(self._late):
            if self._entropy.random() < 0.3:
                self._late.remove(call)
                self._change(call)

    def _carried_out(self, call: Call) -> Call:
        if call.kind == LIST:
            tables = enumerate(self._state)
            return replace(call, total=True, seen=tuple(TableSeen(n, False, *table) for n, table in tables if table))
        if call.kind == SCHEMA:
            table = self._state[call.name]
            return replace(
                call, seen=(TableSeen(call.name, True) if table is None else TableSeen(call.name, False, *table),)
            )
        if self._entropy.random() < self._shape.unknown:
            if self._entropy.random() < 0.5:
                self._change(call)
            else:
                self._late.append(call)
            return replace(call, duration_ns=-1)
        return self._change(call)

    def _change(self, call: Call) -> Call:
        """The change if it can be carried out, else what its refusal tells."""
        before = self._state
        made = replace(call, id=self._next_id) if call.kind == CREATE else call
        state = after(before, made)
        if state is None:
            return replace(call, seen=(_refusal(call, before),))
        self._state = state
        if call.kind == CREATE:
            self._next_id += 1
            return made
        here = before[call.name]
        return replace(call, id=here[0]) if self._shape.tells and here is not None else call

    def _completed(self, call: Call) -> Call:
        if call.duration_ns < 0:
            self._tick()
            return replace(call, duration_ns=0)
        return replace(call, complete=self._tick())

    def _says_something(self, call: Call) -> bool:
        return self._shape.refusals or not call.seen or call.kind in (LIST, SCHEMA)


def _refusal(call: Call, state: State) -> TableSeen:
    if call.kind == CREATE:
        return TableSeen(call.name, False)
    if state[call.name] is None:
        return TableSeen(call.name, True)
    return TableSeen(call.new, False)


def corrupted(calls: list[Call], seed: int) -> list[Call]:
    """Calls of which one answer tells something else than it did: a table more or less, another id, another version, a
    refusal turned round, or an answer that ended earlier than it did."""
    entropy = Random(seed)
    place = entropy.randrange(len(calls))
    return [*calls[:place], _spoiled(calls[place], entropy), *calls[place + 1 :]]


def _spoiled(call: Call, entropy: Random) -> Call:
    if call.seen and entropy.random() < 0.8:
        which = entropy.randrange(len(call.seen))
        seen = call.seen[which]
        rest = [*call.seen[:which], *call.seen[which + 1 :]]
        if call.total and entropy.random() < 0.4:
            return replace(call, seen=tuple(rest))
        if seen.absent:
            return replace(call, seen=(TableSeen(seen.name, False),))
        if seen.version is not None and entropy.random() < 0.5:
            return replace(call, seen=(*rest, replace(seen, version=max(0, seen.version + entropy.choice((-1, 1))))))
        if seen.id is not None:
            return replace(call, seen=(*rest, replace(seen, id=seen.id + entropy.choice((-1, 1)))))
        return replace(call, seen=(TableSeen(seen.name, True),))
    if call.changes and call.complete == NEVER and entropy.random() < 0.5:
        return replace(call, complete=call.order + 1)
    return replace(call, total=True, kind=LIST, seen=()) if call.complete != NEVER else call


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
