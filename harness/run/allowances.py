"""What a database is allowed before it is said not to have recovered.

A repair that comes nearer to its end is waited for, with a bound; a recovery's budget begins when what healed faults
leave behind, and no database can help, has worn off; and what takes too long on an overloaded machine can't be held
against the database (question 4).
"""

from __future__ import annotations

import os
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from harness.ports.api import Clock, node_of
from harness.protocols import GroupStatus, NodeStatus

LONGEST = 4
"""A repair that comes nearer is waited for as many times as long as one that does not."""


@dataclass(slots=True)
class RepairProgress:
    """Whether a repair still comes nearer to its end: a replica takes as long as its log is long and its links slow.

    It is given up when for `patience_s` nothing was wrong that was not wrong before and nothing that is was nearer to
    its end than ever, and in any case after LONGEST times that.
    """

    clock: Clock
    patience_s: float
    _nearest: dict[Hashable, int] = field(default_factory=dict)
    _began_ns: int = field(init=False)
    _came_ns: int = field(init=False)

    def __post_init__(self) -> None:
        self._began_ns = self._came_ns = self.clock.monotonic_ns()

    def note(self, wrong: Mapping[Hashable, int]) -> None:
        """What a look found wrong, each with how many entries its replicas lack."""
        for what, lacked in wrong.items():
            if lacked < self._nearest.get(what, lacked + 1):
                self._nearest[what] = lacked
                self._came_ns = self.clock.monotonic_ns()

    def over(self) -> bool:
        """Whether it is given up."""
        now_ns, patience_ns = self.clock.monotonic_ns(), int(self.patience_s * 1e9)
        return now_ns - self._came_ns >= patience_ns or now_ns - self._began_ns >= LONGEST * patience_ns


def entries_lacked(leader: GroupStatus, servers: tuple[str, ...], replicas: Mapping[str, GroupStatus]) -> int:
    """How many entries of the leader's log these servers lack, all together; `replicas` are by node."""
    held = [replicas.get(node_of(server)) for server in servers]
    return sum(max(0, leader.last_index - (0 if each is None else each.last_index)) for each in held)


def lacked_by_all(statuses: Mapping[str, NodeStatus | None]) -> int:
    """How many entries replicas lack of what their groups' leaders have, all together; statuses are by node.

    Where nobody leads it is not known who lacks what, so all of them count as lacking everything.
    """
    held: dict[str, dict[str, GroupStatus]] = {}
    for node, status in statuses.items():
        for group in () if status is None else status.groups:
            held.setdefault(group.group, {})[node] = group
    lacked = 0
    for replicas in held.values():
        leading = [replica for replica in replicas.values() if replica.role == "leader"]
        if leading:
            leader = max(leading, key=lambda replica: replica.term)
            lacked += entries_lacked(leader, (*leader.voters, *leader.learners), replicas)
        else:
            lacked += len(replicas) * max(replica.last_index for replica in replicas.values())
    return lacked


LONGEST_WEARING_OFF_S = 60.0
"""Effects that wear off are waited for that long at most, however far somebody has clocks set."""


@runtime_checkable
class WearsOff(Protocol):
    """The power of a nemesis, or of what carries out a family of its faults, to say how long what it leaves behind
    takes to wear off."""

    @property
    def worn_off_ns(self) -> int:
        """The monotonic time, ns, by which they have; what clocks that ran ahead stamped is within bounds by then."""


def wearing_off_s(nemesis: object, now_ns: int) -> float:
    """How long the effects of a nemesis take to wear off, in seconds from now; 0 where it leaves none."""
    left_ns = nemesis.worn_off_ns - now_ns if isinstance(nemesis, WearsOff) else 0
    return min(max(0.0, left_ns / 1e9), LONGEST_WEARING_OFF_S)


MOST_WAITING = 4.0
"""Processes that wait for each core of a machine that is not overloaded. A cluster of eight nodes under an ordinary
load has one or two of its own on two cores."""


@runtime_checkable
class Overloadable(Protocol):
    """The power of an environment whose nodes share a machine with whatever else runs there."""

    def overload(self) -> str | None:
        """Why that machine is too slow to judge by, now, in a few words; None if it is not."""


def overload_of(environment: object) -> str | None:
    """Why the machine of this environment is too slow to judge by, if it is; one in virtual time never is."""
    return environment.overload() if isinstance(environment, Overloadable) else None


def in_words(waiting: float, cores: int) -> str | None:
    """Why a machine is overloaded on which this many processes wait for its cores; None if it is not."""
    if waiting <= MOST_WAITING * cores:
        return None
    return f"this machine is overloaded: {waiting:.0f} processes wait for its {cores} core{'s' * (cores != 1)}"


def overload_of_this_machine() -> str | None:
    """Why this machine is overloaded, by the load average of its last minute; None if it is not."""
    return in_words(os.getloadavg()[0], os.cpu_count() or 1)
