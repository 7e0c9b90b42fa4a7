"""Checks that every history must pass, whatever it came from: one total order of events, each used once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from checkers.compiled import kernel
from harness.errors import UserError
from harness.history.address import Place

_TYPES: Final = {"ok", "fail", "info"}

COLUMNS: Final = ("invoke_index", "complete_index", "type")


class SeenEvents(NamedTuple):
    """The events of some operations: flags from event `base` on, and those beyond (sorted)."""

    base: int
    flags: np.ndarray
    far: np.ndarray


@kernel
def _mark(events, base, seen):
    """Mark events as seen; the first that was seen before, or -1. Those beyond `seen` are left to the caller."""
    for event in events:
        if event - base < seen.shape[0]:
            if seen[event - base]:
                return event
            seen[event - base] = True
    return np.int64(-1)


class EventOrder:
    """Takes batches of about `rows` consecutive operations and raises UserError at the first event that can't be."""

    def __init__(self, path: Place, rows: int) -> None:
        self._path = path
        self._last = -1
        self._base = -1
        self._seen = np.zeros(4 * rows + 1024, bool)
        self._far: list[np.ndarray] = []

    def check(self, batches: Iterable[pa.RecordBatch]) -> SeenEvents:
        """Check all batches; which events they have."""
        for batch in batches:
            self.take(batch)
        return self.seen()

    def seen(self) -> SeenEvents:
        """Which events there were."""
        far = np.sort(np.concatenate(self._far)) if self._far else np.empty(0, np.int64)
        twice = far[1:][far[1:] == far[:-1]]
        if len(twice):
            raise twice_used(self._path, int(twice[0]))
        return SeenEvents(max(self._base, 0), self._seen, far)

    def take(self, batch: pa.RecordBatch) -> None:
        """Check the next batch."""
        if self._base < 0 and batch.num_rows:
            self._base = max(0, batch.column("invoke_index")[0].as_py())
        self._check_batch(batch)

    def _check_batch(self, batch: pa.RecordBatch) -> None:
        types = batch.column("type")
        names = types.dictionary if pa.types.is_dictionary(types.type) else types.unique()
        unknown = [str(name) for name in names.to_pylist() if name not in _TYPES]
        if unknown:
            raise UserError(f"{self._path} has operations of type {unknown[0]}; an operation is ok, fail or info.")
        invoke = batch.column("invoke_index").to_numpy(zero_copy_only=False)
        complete_column = batch.column("complete_index")
        done = complete_column.is_valid().to_numpy(zero_copy_only=False)
        complete = complete_column.fill_null(-1).to_numpy(zero_copy_only=False)
        self._check_order(invoke, complete, done)
        ended = pa.compute.not_equal(types, "info").to_numpy(zero_copy_only=False)
        if (ended & ~done).any():
            raise UserError(self._sentence(int(invoke[ended & ~done][0]), "it is ok or fail but has no completion"))
        alone = done & (complete == invoke)
        self._check_unique(invoke)
        self._check_unique(complete[done & ~alone])

    def _check_order(self, invoke: np.ndarray, complete: np.ndarray, done: np.ndarray) -> None:
        if not len(invoke):
            return
        before = np.concatenate(([self._last], invoke[:-1]))
        if (invoke <= before).any():
            raise UserError(self._sentence(int(invoke[invoke <= before][0]), "invocations are not in order"))
        self._last = int(invoke[-1])
        if (done & (complete < invoke)).any():
            raise UserError(self._sentence(int(invoke[done & (complete < invoke)][0]), "it completes before it begins"))

    def _check_unique(self, events: np.ndarray) -> None:
        events = events.view()
        events.flags.writeable = False  # as Arrow's are, so that one kind is compiled
        twice = _mark(events, self._base, self._seen)
        if twice >= 0:
            raise twice_used(self._path, int(twice))
        self._far.append(events[events - self._base >= len(self._seen)])

    def _sentence(self, index: int, reason: str) -> str:
        return sentence(self._path, index, reason)


def sentence(path: Place, index: int, reason: str) -> str:
    """What is said of an event that can't be."""
    return f"{path}, event {index}: {reason}, so this is not a history."


def twice_used(path: Place, index: int) -> UserError:
    """The error about an index that two events have."""
    return UserError(sentence(path, index, "two events have this index"))
