"""Coroutines that are begun at once, and become a task only where they have to wait.

Most requests are answered without a wait; for them a task and its turn of the loop would be the greater part of the
work. (Python 3.12 calls this eager tasks.) What runs before the first wait runs in no task.
"""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from typing import Any


def begin(work: Coroutine[Any, Any, None]) -> Begun | None:
    """Run `work` up to its first wait: None if it has ended, else what a task is to be made of. Raises what it does."""
    try:
        waits_for = work.send(None)
    except StopIteration:
        return None
    return Begun(work, waits_for)


class Begun(Coroutine[Any, Any, None]):
    """A coroutine that waits already; the task that is made of it goes on with it as if it had begun it."""

    __slots__ = ("_first", "_waits_for", "_work")

    def __init__(self, work: Coroutine[Any, Any, None], waits_for: object) -> None:
        self._work, self._waits_for, self._first = work, waits_for, True

    def send(self, value: None) -> Any:
        """The first time tell what it waits for, then go on."""
        if not self._first:
            return self._work.send(value)
        self._first = False
        return self._waits_for

    def throw(self, *error: Any) -> Any:
        """Raise in it, where it waits."""
        self._first = False
        return self._work.throw(*error)

    def close(self) -> None:
        """End it, where it waits."""
        self._work.close()

    def __await__(self) -> Generator[Any, Any, None]:
        raise RuntimeError("a task is to be made of this")
