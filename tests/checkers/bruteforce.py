"""A reference for registers: tries every order of the operations. For histories of a few operations only."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

from checkers.columns.codes import CAS, FAILED_CAS, FAILED_WRITE, NEVER, NIL, READ, WRITE, RegisterColumns


def linearizable(columns: RegisterColumns) -> bool:
    """Whether some order of the operations of the single key respects real time and a register's behaviour."""
    rows = [
        tuple(int(column[row]) for column in columns[1:])
        for row in range(len(columns.kind))
        if columns.kind[row] != FAILED_WRITE
    ]
    dead: set[tuple[frozenset[int], int]] = set()

    def after(row: tuple[int, ...], state: int) -> int | None:
        kind, value, expected = row[0], row[1], row[2]
        if kind == WRITE:
            return value
        allowed = {READ: state == value, CAS: state == expected, FAILED_CAS: state != expected}[kind]
        return (value if kind == CAS else state) if allowed else None

    def search(left: frozenset[int], state: int) -> bool:
        if all(rows[i][4] == NEVER for i in left):
            return True
        if (left, state) in dead:
            return False
        horizon = min(rows[i][4] for i in left)
        for i in sorted(left):
            if rows[i][3] < horizon:
                state_after = after(rows[i], state)
                if state_after is not None and search(left - {i}, state_after):
                    return True
        dead.add((left, state))
        return False

    return search(frozenset(range(len(rows))), NIL)


State = TypeVar("State", bound=Hashable)
Call = TypeVar("Call")


def some_order(
    calls: Sequence[tuple[Call, int, int]], start: State, steps: Callable[[State, Call], Iterable[State]]
) -> bool:
    """Whether some order of calls (with invocation and completion) respects real time and leads from state to state."""
    dead: set[tuple[frozenset[int], State]] = set()

    def search(left: frozenset[int], state: State) -> bool:
        if all(calls[i][2] == NEVER for i in left):
            return True
        if (left, state) in dead:
            return False
        horizon = min(calls[i][2] for i in left)
        for i in sorted(left):
            if calls[i][1] < horizon and any(search(left - {i}, after) for after in steps(state, calls[i][0])):
                return True
        dead.add((left, state))
        return False

    return search(frozenset(range(len(calls))), start)
