"""What can be asked of a machine that nodes run on, and of the links between machines, as data."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

CLIENTS = "clients"
"""Stands, as one end of a link, for the machines of all clients."""


class ProcessState(StrEnum):
    """What a probe inside the node says of the database's process there."""

    RUNNING = "running"
    PAUSED = "paused"
    DEAD = "dead"


@dataclass(frozen=True, slots=True)
class Skew:
    """A wall clock that is `offset_ns` ahead of true time when this begins, and gains `rate` of the time that passes.

    A rate of 0.05 gains 50 ms in a second; both may be negative.
    """

    offset_ns: int = 0
    rate: float = 0.0

    def after(self, elapsed_ns: int) -> int:
        """How far ahead the clock is, ns, this much later."""
        return self.offset_ns + int(elapsed_ns * self.rate)

    def __str__(self) -> str:
        offset = f"{self.offset_ns / 1e9:+.3f} s" if self.offset_ns or not self.rate else ""
        rate = f"{self.rate:+.1%} of the time that passes" if self.rate else ""
        return " and ".join(filter(None, (offset, rate)))


@dataclass(frozen=True, slots=True)
class Impairment:
    """What happens to the packets of a link, beside what its network does anyway; shares are per packet.

    A packet takes `delay_s` and up to `jitter_s` longer, is lost, arrives twice, is overtaken by later ones, or arrives
    broken (and is dropped for its checksum). `rate_bytes_per_s` limits throughput; what is `clogged` waits, and arrives
    in a burst when that ends.
    """

    delay_s: float = 0.0
    jitter_s: float = 0.0
    loss: float = 0.0
    duplication: float = 0.0
    reorder: float = 0.0
    corruption: float = 0.0
    rate_bytes_per_s: int | None = None
    clogged: bool = False
