"""A reference for the model `catalog`: every order, and every id that an unacknowledged table may have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from checkers.catalog.calls import ALTER, CREATE, DELETE, RENAME, Call
from checkers.columns.codes import NEVER
from tests.checkers.bruteforce import some_order

State = tuple[frozenset[tuple[int, int, int]], frozenset[int]]
"""Tables as (name, id, version), and every id that was ever given."""


def linearizable(calls: Sequence[Call]) -> bool:
    told = {seen.id for call in calls for seen in call.seen if seen.id is not None}
    told |= {call.id for call in calls if call.changes and call.kind != CREATE and call.id is not None}
    claimed = [call.id for call in calls if call.changes and call.kind == CREATE and call.id is not None]
    unclaimed = sorted(told - set(claimed))

    def ids(call: Call) -> Iterator[int]:
        if call.id is not None:
            yield call.id
        else:
            yield from unclaimed
            yield -1 - call.order  # one that nobody ever sees

    def steps(state: State, call: Call) -> Iterator[State]:
        tables, given = state
        by_name = {name: (table_id, version) for name, table_id, version in tables}
        if not call.changes:
            if right(by_name, call):
                yield state
            return
        here = by_name.get(call.name)
        if call.kind == CREATE:
            for table_id in ids(call) if here is None else ():
                if table_id not in given:
                    yield tables | {(call.name, table_id, 0)}, given | {table_id}
            return
        if here is None or call.id not in (None, here[0]):
            return
        rest = tables - {(call.name, *here)}
        if call.kind == DELETE:
            yield rest, given
        elif call.kind == ALTER:
            yield rest | {(call.name, here[0], here[1] + 1)}, given
        elif call.kind == RENAME and call.new not in by_name:
            yield rest | {(call.new, here[0], here[1] + 1)}, given

    return some_order([(call, call.since, call.complete) for call in calls], (frozenset(), frozenset()), steps)


def right(by_name: dict[int, tuple[int, int]], call: Call) -> bool:
    for seen in call.seen:
        here = by_name.get(seen.name)
        if (here is None) != seen.absent:
            return False
        if here is not None and (seen.id not in (None, here[0]) or seen.version not in (None, here[1])):
            return False
    return not call.total or len(by_name) == len(call.seen)


def never_completes(call: Call) -> bool:
    return call.complete == NEVER
