"""Frozen states as tests hand them over."""

from __future__ import annotations

from cluster.groups.sessions import SessionRows, Sessions
from cluster.groups.spec import StateMachine
from cluster.store.mvcc import MvccStore, StoreRow

LARGE = 1 << 30


def frozen(machine: StateMachine, part_bytes: int = LARGE) -> list[bytes]:
    """Every part of a machine's state."""
    return list(machine.freeze(part_bytes))


def restore(machine: StateMachine, parts: list[bytes]) -> None:
    """Replace a machine's state."""
    take = machine.restoring()
    for part in parts:
        take(part)


def session_rows(table: Sessions) -> SessionRows:
    """Every session, as one part."""
    (rows,) = table.freeze().parts(LARGE)
    return rows


def sessions_of(rows: SessionRows, flaws: frozenset[str] = frozenset()) -> Sessions:
    """The table that holds just these."""
    table = Sessions(flaws)
    table.restore(rows)
    return table


def store_rows(store: MvccStore) -> list[StoreRow]:
    """Every cell in a row."""
    return [row for row, _ in store.freeze().rows(LARGE)]


def store_of(rows: list[StoreRow], threshold: int = 0) -> MvccStore:
    """The store that holds just these."""
    store = MvccStore()
    store.raise_threshold(threshold)
    for row in rows:
        store.restore(row)
    return store
