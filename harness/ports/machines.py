"""Machines that nodes run on and the links between them: what can be asked of them, as data, and what probes tell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import accumulate

CLIENTS = "clients"
"""Stands, as one end of a link, for the machines of all clients."""


class ProcessState(StrEnum):
    """What a probe inside the node says of the database's process there."""

    RUNNING = "running"
    PAUSED = "paused"
    DEAD = "dead"


@dataclass(frozen=True, slots=True)
class Daemon:
    """A program that is kept on a machine, with all its children: what to start, as whom, where it writes.

    `name` is unique on its node. `argv` stays in the foreground. `log_file` has what it prints; `pid_file` is the
    harness's own: the program must not write it. `stop_signal` (TERM, INT, …) asks the program to end gracefully.
    """

    name: str
    argv: Sequence[str]
    directory: str = "/"
    environment: Mapping[str, str] = field(default_factory=dict)
    user: str = "root"
    log_file: str = ""
    pid_file: str = ""
    stop_signal: str = "TERM"

    def __post_init__(self) -> None:
        object.__setattr__(self, "log_file", self.log_file or f"/var/log/assay/{self.name}.log")
        object.__setattr__(self, "pid_file", self.pid_file or f"/run/assay/{self.name}.pid")


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


WAIT_S = 1.0
"""They are waited for so long at most, after the last was sent."""

LOOK_S = 0.1
"""How far apart the looks are at what has arrived."""

QUIET_S = 0.3
"""Where a link carries something, and nothing more has come for so long, the others are lost."""

CARRIES = 0.1
"""Of its datagrams, that have to arrive before a link is said to carry something: a clog lets the first ones pass."""


class FlowWait:
    """Whether the wait for flows of `count` datagrams each is over, asked at every look."""

    def __init__(self, count: int, wait_s: float = WAIT_S) -> None:
        self._count = count
        self._wait_s = wait_s
        self._before: tuple[int, ...] = ()
        self._since_s = 0.0

    def over(self, arrived: Sequence[int], waited_s: float) -> bool:
        """`arrived` says how many different ones of each flow have, `waited_s` after the last was sent."""
        fewest = min(arrived, default=self._count)
        if fewest >= self._count or waited_s >= self._wait_s - LOOK_S / 2:
            return True
        if tuple(arrived) != self._before:
            self._before, self._since_s = tuple(arrived), waited_s
        return fewest >= CARRIES * self._count and waited_s - self._since_s >= QUIET_S - LOOK_S / 2


@dataclass(frozen=True, slots=True)
class ProbeFlow:
    """What became of the datagrams that a probe sent over a link one after another: when each arrived, or None.

    Times are in seconds since the first one left; `copies` counts all that arrived, those that came twice too.
    """

    sent_s: tuple[float, ...]
    arrived_s: tuple[float | None, ...]
    copies: int
    size: int

    @property
    def lost(self) -> float:
        """The share that never arrived."""
        return sum(at_s is None for at_s in self.arrived_s) / len(self.arrived_s)

    @property
    def duplicated(self) -> float:
        """The share that arrived twice."""
        return (self.copies - len(self._times_s())) / len(self.arrived_s)

    @property
    def overtaken(self) -> float:
        """The share that arrived after one that was sent later."""
        latest_first = self._times_s()[::-1]
        soonest_s = list(accumulate(latest_first, min))
        late = sum(at_s > soon_s for at_s, soon_s in zip(latest_first[1:], soonest_s, strict=False))
        return late / len(self.arrived_s)

    @property
    def delays_s(self) -> tuple[float, ...]:
        """How long those took that arrived, shortest first."""
        pairs = zip(self.sent_s, self.arrived_s, strict=True)
        return tuple(sorted(at_s - sent_s for sent_s, at_s in pairs if at_s is not None))

    @property
    def rate_bytes_per_s(self) -> float:
        """Bytes a second between the first and the last arrival; 0 if not even two arrived."""
        times_s = self._times_s()
        if len(times_s) < 2:
            return 0.0
        return self.size * (len(times_s) - 1) / max(max(times_s) - min(times_s), 1e-9)

    def _times_s(self) -> list[float]:
        return [at_s for at_s in self.arrived_s if at_s is not None]
