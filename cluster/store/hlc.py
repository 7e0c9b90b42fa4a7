"""Hybrid logical clock (Kulkarni et al., 2014) as one 64-bit integer.

A timestamp is wall-clock ns since the epoch with the low 16 bits given to the logical counter, so that it has a
resolution of 65.536 µs and its integer order is its time order; a counter that overflows runs on into the next step.
"""

from __future__ import annotations

from typing import NewType

ClockReading = NewType("ClockReading", int)
"""What a node's clock showed. Readings travel with messages and move the clocks of those who receive them."""

Timestamp = NewType("Timestamp", int)
"""A time that data carries or that somebody asks for: requested, written, read, closed. It may lie in the future and
never moves a clock."""

LOGICAL_BITS = 16
_PHYSICAL_MASK = ~((1 << LOGICAL_BITS) - 1)


class ClockOffsetTooLarge(Exception):
    """A remote reading lies further ahead than the declared maximum offset: some clock is wrong, and it is refused."""


def as_timestamp(reading: ClockReading) -> Timestamp:
    """A reading taken as a time of data; there is no way back."""
    return Timestamp(reading)


def physical(wall_ns: int) -> int:
    """The first timestamp of a wall-clock time."""
    return wall_ns & _PHYSICAL_MASK


def shown_at(timestamp: Timestamp) -> int:
    """The wall-clock time from which on a clock shows this timestamp or a later one."""
    return physical(timestamp + (1 << LOGICAL_BITS) - 1)


class Hlc:
    """Pure: every call is handed the wall time, which may jump either way; timestamps given out always rise.

    `last` is the highest reading given out or seen.
    """

    def __init__(self, max_offset_ns: int) -> None:
        self._max_offset_ns = max_offset_ns
        self.last = ClockReading(0)

    def now(self, wall_ns: int) -> ClockReading:
        """A reading above every one given out or seen before."""
        above, reading = self.last, wall_ns & _PHYSICAL_MASK
        self.last = above = reading if reading > above else above + 1  # type: ignore[assignment]
        return above

    def observe(self, remote: ClockReading, wall_ns: int) -> None:
        """Take in a reading that came with a message; raises ClockOffsetTooLarge if it is too far ahead."""
        if remote > wall_ns + self._max_offset_ns:
            raise ClockOffsetTooLarge(f"a reading {(remote - wall_ns) / 1e9:.3f} s ahead of this node's clock")
        if remote > self.last:
            self.last = remote
