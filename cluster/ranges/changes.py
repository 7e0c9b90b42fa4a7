"""What a change touches, what is wrong with it, and what it comes to on the state that it meets (G2). Pure."""

from __future__ import annotations

from typing import Protocol, TypeAlias

from cluster.ranges.commands import Put
from cluster.store.cells import Key, Span, is_value, point, same_value
from cluster.store.mvcc import Version
from cluster.wire.messages import CompareAndSet, Done, WriteRow, WriteRows

Change: TypeAlias = WriteRow | WriteRows | CompareAndSet


class State(Protocol):
    """The part of a range's state that changes are decided on."""

    def read(self, key: Key) -> Version | None:
        """The newest version of a cell."""


def problem(puts: tuple[Put, ...]) -> str | None:
    """Why a change that writes these can't be carried out on any state; None if it can."""
    if not puts:
        return "a change has to write something"
    if not all(is_value(put.value) for put in puts):
        return "a value must be null, a boolean, a number, text or bytes"
    if len(puts) > 1 and len(dict.fromkeys(put.key for put in puts)) < len(puts):
        return "a cell can't be written twice by one change"
    return None


def puts_of(change: Change) -> tuple[Put, ...]:
    """What it writes, if it writes."""
    partition = change.partition
    if isinstance(change, WriteRows):
        return tuple(Put((partition, cell.row, cell.column), cell.value) for cell in change.cells)
    return (Put((partition, change.row, change.column), change.value),)


def spans_of(puts: tuple[Put, ...]) -> tuple[Span, ...]:
    """What a change that writes these touches."""
    return tuple([point(put.key) for put in puts])


def decide(change: Change, puts: tuple[Put, ...], state: State, timestamp: int) -> tuple[tuple[Put, ...], Done]:
    """Which of its `puts` it writes on this state at `timestamp`, all or none, and its answer."""
    if isinstance(change, CompareAndSet):
        version = state.read((change.partition, change.row, change.column))
        found = None if version is None else version.value
        if not same_value(found, change.expected):
            return (), Done(applied=False, found=found, timestamp=timestamp)
    return puts, Done(applied=True, found=None, timestamp=timestamp)
