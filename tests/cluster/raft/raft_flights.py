"""What is under way on a rig."""

from __future__ import annotations

from dataclasses import dataclass, field

from cluster.raft.types import Message


@dataclass(frozen=True)
class Beat:
    """A heartbeat from node to node (`heartbeat_ns`), or the echo of one."""

    source: str
    target: str
    heartbeat_ns: int = 0
    echo_ns: int = 0


@dataclass(frozen=True, order=True)
class Flight:
    """A message under way, sent in the life `epoch` of its sender after so many withdrawals."""

    due_ns: int
    number: int
    message: Message | Beat = field(compare=False)
    epoch: int = 0
    withdrawals: int = 0
