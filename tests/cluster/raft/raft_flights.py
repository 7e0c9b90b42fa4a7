"""What is under way on a rig, and what its heartbeats offer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from cluster.raft.types import Message

LEASE_NS = 600_000_000


class RigEnds:
    """What a node's heartbeats offer, on a clock that all nodes share. Some lives can't tell for a while what earlier
    ones have promised."""

    def __init__(self, now_ns: Callable[[], int], silent: bool) -> None:
        self._now_ns, self._silent = now_ns, silent
        self._before = now_ns() + LEASE_NS

    def next_end(self) -> int:
        return self._now_ns() + LEASE_NS

    def before_start(self) -> int | None:
        return None if self._silent and self._now_ns() < self._before else self._before


@dataclass(frozen=True)
class Beat:
    """A heartbeat from node to node (`heartbeat_ns`), or the echo of one."""

    source: str
    target: str
    heartbeat_ns: int = 0
    echo_ns: int = 0
    until: int = 0


@dataclass(frozen=True, order=True)
class Flight:
    """A message under way, sent in the life `epoch` of its sender after its withdrawals up to then."""

    due_ns: int
    number: int
    message: Message | Beat = field(compare=False)
    epoch: int = 0
    withdrawals: int = 0
