"""Watches faults for as long as they last: the spans of time in which probes saw them in effect."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from harness.errors import HarnessError
from harness.ports.api import Clock
from nemesis.observe import Sight

Span = tuple[int, int]
"""From the first to the last look of those that saw a fault without a miss between; monotonic ns."""

LONGEST_DOUBT_NS = 2_000_000_000
"""A fault that looks could not tell for longer may have been gone meanwhile."""

LONGEST_UNSEEN_NS = 5_000_000_000
"""The same where nobody looked for so long: the harness was stopped, or had too much else to do."""


class Spans:
    """Sightings in the order of time, as spans: a look that misses ends one, and the next that sees begins another.

    Looks that can't tell end none by themselves; but what was seen before and after more than `LONGEST_DOUBT_NS` of
    them are two spans, and what was not seen after them ends where it was seen last. So it is with more than
    `LONGEST_UNSEEN_NS` between two looks.
    """

    def __init__(self) -> None:
        self._spans: list[list[int]] = []
        self._open = False
        self._doubted = False
        self._looked_ns: int | None = None

    def saw(self, at_ns: int, met: bool | None, until_ns: int | None = None, seen_ns: int | None = None) -> None:
        """One look, which ended at `until_ns`, and whether it saw the fault; None: it could not tell. What comes and
        goes was last there at `seen_ns`."""
        if self._looked_ns is not None and at_ns - self._looked_ns > LONGEST_UNSEEN_NS:
            self._open = False
        self._looked_ns = at_ns if until_ns is None else until_ns
        if met is None:
            self._doubted = True
            return
        if self._doubted and self._open and at_ns - self._spans[-1][1] > LONGEST_DOUBT_NS:
            self._open = False
        self._doubted = False
        last_ns = at_ns if seen_ns is None else min(seen_ns, at_ns)
        if not met:
            self._open = False
        elif self._open:
            self._spans[-1][1] = max(self._spans[-1][1], last_ns)
        else:
            self._spans.append([last_ns, last_ns])
            self._open = True

    def closed(self) -> tuple[Span, ...]:
        """All spans so far."""
        return tuple((first, last) for first, last in self._spans)


class FaultWatch:
    """Looks at every watched instance, `period_s` after the round before; a look counts from where it began."""

    def __init__(self, clock: Clock, period_s: float, look: Callable[[int], Awaitable[Sight]]) -> None:
        self._clock = clock
        self._period_s = period_s
        self._look = look
        self._watched: dict[int, Spans] = {}
        self._task: asyncio.Task[None] | None = None

    def begin(self, instance: int, first_seen_ns: int | None) -> None:
        """Watch an instance from now on; `first_seen_ns` is the look that saw it, None if none did so far."""
        spans = self._watched[instance] = Spans()
        if first_seen_ns is not None:
            spans.saw(first_seen_ns, True)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._go_on())

    async def end(self, instance: int) -> Spans | None:
        """Look once more, and no longer: what was seen; None if it was not watched."""
        if instance in self._watched:
            await self._look_at(instance)
        return self._watched.pop(instance, None)

    async def close(self) -> None:
        """Stop looking at anything."""
        self._watched.clear()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _go_on(self) -> None:
        while self._watched:
            await self._clock.sleep(self._period_s)
            for instance in tuple(self._watched):
                await self._look_at(instance)

    async def _look_at(self, instance: int) -> None:
        """A probe that can't be made saw nothing; one that the end of the fault overtook is left out."""
        spans, began_ns = self._watched.get(instance), self._clock.monotonic_ns()
        if spans is None:
            return
        try:
            sight = await self._look(instance)
        except HarnessError:
            sight = Sight(False)
        if self._watched.get(instance) is spans:
            spans.saw(began_ns, sight.met, self._clock.monotonic_ns(), sight.at_ns)
