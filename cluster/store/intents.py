"""Intents: what open transactions will write where they commit (R9); room for them, as nobody lays any yet (G6). Pure.

A cell has one intent at most, kept apart from its versions. Until it is resolved nobody may write the cell, and nobody
may read it at or above the intent's timestamp: the value there is not decided.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import TypeAlias

import msgspec

from cluster.store.cells import Key, Span, Value, value_bytes


class Intent(msgspec.Struct, frozen=True, array_like=True):
    """The version that `transaction` will leave, at `timestamp` or above; `written_at` is what the clock of who laid it
    showed."""

    transaction: str
    timestamp: int
    value: Value
    written_at: int


IntentRow: TypeAlias = tuple[Key, Intent]

_ROW_BYTES = 64
"""About what an intent takes beside its value."""


class OpenIntent(Exception):
    """A read as of a time, or a write, meets an intent that is not resolved: it has to wait, or to push the
    transaction."""

    def __init__(self, key: Key, intent: Intent, as_of: int) -> None:
        super().__init__(f"{key} has an intent of {intent.transaction} at {intent.timestamp}")
        self.key, self.intent, self.as_of = key, intent, as_of


class Intents:
    """Open intents; `by_key` is to be read only."""

    def __init__(self) -> None:
        self.by_key: dict[Key, Intent] = {}
        self._keys: list[Key] = []
        """The keys of `by_key` in order."""

    def put(self, key: Key, intent: Intent) -> None:
        """The cell's intent, in place of any that it had."""
        if key not in self.by_key:
            insort(self._keys, key)
        self.by_key[key] = intent

    def take(self, key: Key) -> None:
        """The cell has none any more; it must have one."""
        del self.by_key[key], self._keys[bisect_left(self._keys, key)]

    def check(self, span: Span, as_of: int) -> None:
        """Raise OpenIntent for an intent in the span at or below `as_of`, the first in key order."""
        keys = self._keys
        for at in range(bisect_left(keys, span[0]), bisect_left(keys, span[1])):
            intent = self.by_key[keys[at]]
            if intent.timestamp <= as_of:
                raise OpenIntent(keys[at], intent, as_of)

    def lowest(self, span: Span) -> IntentRow | None:
        """The intent of the lowest timestamp in the span; None if there is none."""
        keys = self._keys
        inside = keys[bisect_left(keys, span[0]) : bisect_left(keys, span[1])]
        return min(((key, self.by_key[key]) for key in inside), key=lambda row: row[1].timestamp, default=None)

    def freeze(self) -> Iterator[tuple[IntentRow, int]]:
        """All of them as they are now, with about their sizes."""
        return ((row, _ROW_BYTES + value_bytes(row[1].value)) for row in self.by_key.copy().items())
