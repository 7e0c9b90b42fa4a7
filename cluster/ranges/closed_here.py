"""How far a range is closed as one replica knows: by its log, by what was told and kept, by a stream that goes on (R4).

"closed ts 是否满足该时间戳的读取" (does it do for this read's time) is what is asked, so that the streams need not be
looked at where the log knows enough. Pure.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from cluster.ranges.tablet import TabletMachine
from cluster.wire.closing import ClosedAt
from cluster.wire.staleness import KnownBy

_WAITING = 16


class ClosedHere:
    """Of one replica. A time that was told counts once the replica's write index has reached the one told with it:
    then it has all that was written at or below. What counts once counts for ever, whoever leads.

    `streams` tells what goes on to be told of this range by nodes that have told of it; `answered` counts who knew.
    """

    def __init__(self, machine: TabletMachine, streams: Callable[[], Iterable[ClosedAt]]) -> None:
        self._machine, self._streams = machine, streams
        self._copied = 0
        """The highest time told that counts."""
        self._waiting: deque[ClosedAt] = deque(maxlen=_WAITING)
        """What does not count yet: write indexes and times rise."""
        self.answered: dict[KnownBy, int] = {"log": 0, "copied": 0, "side-transport": 0}

    def keep(self, known: ClosedAt) -> None:
        """This was told, and maybe nobody goes on to tell it."""
        if known.write_index <= self._machine.write_index:
            self._copied = max(self._copied, known.closed)
            return
        waiting = self._waiting
        while waiting and waiting[-1].write_index >= known.write_index and waiting[-1].closed <= known.closed:
            waiting.pop()
        if not waiting or (waiting[-1].write_index < known.write_index and waiting[-1].closed < known.closed):
            waiting.append(known)

    def closed_by(self, timestamp: int) -> KnownBy | None:
        """Who knows that `timestamp` is closed at what this replica has applied; None where nobody does."""
        found: KnownBy | None = None
        if timestamp <= self._machine.closed:
            found = "log"
        elif timestamp <= self._settle():
            found = "copied"
        elif timestamp <= self._ask_streams():
            found = "side-transport"
        if found is not None:
            self.answered[found] += 1
        return found

    def highest(self) -> int:
        """The highest time that is closed at what this replica has applied."""
        self._ask_streams()
        return max(self._machine.closed, self._copied)

    def _settle(self) -> int:
        while self._waiting and self._waiting[0].write_index <= self._machine.write_index:
            self._copied = max(self._copied, self._waiting.popleft().closed)
        return self._copied

    def _ask_streams(self) -> int:
        """What they tell is kept: it costs less to find the next time."""
        for known in self._streams():
            self.keep(known)
        return self._settle()
