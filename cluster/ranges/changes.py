"""What a change touches, what is wrong with it, and what it comes to on the state that it meets (G2). Pure."""

from __future__ import annotations

from typing import TypeAlias

from cluster.ranges import rows
from cluster.ranges.commands import Put
from cluster.ranges.rows import RowState
from cluster.store.cells import Span, is_value, point, same_value
from cluster.wire.messages import CompareAndSet, Done, WriteCell, WriteCells
from cluster.wire.rows import ChangeRow

Change: TypeAlias = WriteCell | WriteCells | CompareAndSet | ChangeRow


def problem(puts: tuple[Put, ...]) -> str | None:
    """Why a change that writes these can't be carried out on any state; None if it can."""
    if not puts:
        return "a change has to write something"
    for put in puts:
        if not is_value(put.value):
            return "a value must be null, a boolean, a number, text or bytes"
    if len(puts) > 1 and len(dict.fromkeys(put.key for put in puts)) < len(puts):
        return "a cell can't be written twice by one change"
    return None


def puts_of(change: Change) -> tuple[Put, ...]:
    """What it writes, if it writes; of a typed row its marker, which stands for all."""
    partition = change.partition
    if type(change) is WriteCells:
        return tuple(Put((partition, cell.row, cell.column), cell.value) for cell in change.cells)
    if type(change) is ChangeRow:
        return (Put(rows.marker_of(change), True),)
    return (Put((partition, change.row, change.column), change.value),)


def spans_of(puts: tuple[Put, ...]) -> tuple[Span, ...]:
    """What a change that writes these touches."""
    return tuple([point(put.key) for put in puts])


def decide(change: Change, puts: tuple[Put, ...], state: RowState, timestamp: int) -> tuple[tuple[Put, ...], Done]:
    """Which of its `puts` it writes on this state at `timestamp`, all or none, and its answer."""
    if type(change) is CompareAndSet:
        version = state.read(change.cell)
        found = None if version is None else version.value
        if not same_value(found, change.expected):
            return (), Done(applied=False, found=found, timestamp=timestamp)
    elif type(change) is ChangeRow:
        return rows.decide(change, state, timestamp)
    return puts, Done(applied=True, found=None, timestamp=timestamp)
