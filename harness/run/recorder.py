"""The recorder: gives events their index and time, and is the only writer of the journal."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from harness.history.journal import JournalWriter
from harness.history.ops import Op
from harness.ports.api import Clock


class Recorder:
    """Numbers events in one total order, times them in ns since its own start, and journals them.

    `phase` is stamped on every invocation that has none. A nemesis step is sealed before `invoked` returns, so before
    anyone can carry it out.
    """

    def __init__(self, journal: JournalWriter, clock: Clock, on_event: Callable[[Op], None] | None = None) -> None:
        self.phase = "main"
        self._journal = journal
        self._clock = clock
        self._on_event = on_event
        self._next_index = 0
        self._start_ns = clock.monotonic_ns()

    def now_ns(self) -> int:
        """Ns since the recorder was made."""
        return self._clock.monotonic_ns() - self._start_ns

    def invoked(self, op: Op, now_ns: int) -> Op:
        """Record an invocation and return it as it stands in the history."""
        op = replace(op, type="invoke", index=self._next_index, time=now_ns, phase=op.phase or self.phase)
        self._write(op)
        if op.process < 0:
            self._journal.seal()
        return op

    def completed(self, op: Op, now_ns: int) -> Op:
        """Record a completion (or an unsolicited event) and return it as it stands in the history."""
        op = replace(op, index=self._next_index, time=now_ns)
        self._write(op)
        return op

    def seal_due(self) -> None:
        """To be called at least once a second."""
        self._journal.seal_due(self.now_ns())

    def _write(self, op: Op) -> None:
        self._next_index += 1
        self._journal.append(op)
        if self._on_event is not None:
            self._on_event(op)
