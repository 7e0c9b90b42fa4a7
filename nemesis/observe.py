"""The eyes of nemeses: what nodes say of themselves, looks that are repeated until a deadline, and a watch over faults.

A `View` is what the nodes said at one moment, with the questions that target selection asks of it (pure).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from harness.errors import HarnessError
from harness.ports.api import Clock, node_of
from harness.ports.machines import ProcessState
from harness.protocols import Database, Environment, GroupStatus, Node, NodeStatus

MASTER, TSERVER = "master", "tserver"

DEFAULT_CLOCK_OFFSET_NS = 500_000_000
"""Where no node tells how far clocks may be apart."""


@dataclass(frozen=True, slots=True)
class Leader:
    """A replica that calls itself leader of a group; `lease_valid` says whether it may serve reads."""

    node: str
    group: str
    term: int
    lease_valid: bool
    commit_index: int
    last_index: int
    voters: tuple[str, ...]

    @property
    def others(self) -> tuple[str, ...]:
        """The voters of the group but for the leader."""
        return tuple(name for name in self.voters if name != self.node)


@dataclass(frozen=True, slots=True)
class View:
    """The nodes in the database's order and the statuses of those that answered."""

    nodes: tuple[Node, ...]
    statuses: Mapping[str, NodeStatus]

    @property
    def max_clock_offset_ns(self) -> int:
        """How far any two wall clocks may be apart, as the nodes declare it."""
        told = [status.details.get("max_clock_offset_ns") for status in self.statuses.values()]
        return min((each for each in told if isinstance(each, int)), default=DEFAULT_CLOCK_OFFSET_NS)

    def replicas(self, group: str) -> dict[str, GroupStatus]:
        """Every answering replica's own view of the group, by node name."""
        found = {}
        for node in self.nodes:
            for status in self.statuses[node.name].groups if node.name in self.statuses else ():
                if status.group == group:
                    found[node.name] = status
        return found

    def last_index(self, group: str, node: str) -> int | None:
        """Of the log of the node's replica; None where there is none, or it does not answer."""
        replica = self.replicas(group).get(node)
        return None if replica is None else replica.last_index

    def groups(self, role: str | None = None) -> tuple[str, ...]:
        """Ids of the groups that nodes of this role (or any) hold replicas of, sorted."""
        held = {
            status.group
            for node in self.nodes
            if role in (None, node.role) and node.name in self.statuses
            for status in self.statuses[node.name].groups
        }
        return tuple(sorted(held))

    def dropped(self, group: str) -> bool:
        """Whether there is no such group any more: every node answers, and none holds a replica of it.

        Workloads drop tables. That a group was lost that should be there shows when the whole is examined.
        """
        return all(node.name in self.statuses for node in self.nodes) and not self.replicas(group)

    def voters(self, group: str) -> tuple[str, ...]:
        """The group's voters as its most advanced replica (by term, then commit index) names them."""
        replicas = self.replicas(group)
        if not replicas:
            return ()
        newest = max(replicas.values(), key=lambda status: (status.term, status.commit_index))
        return tuple(map(node_of, newest.voters))

    def term(self, group: str) -> int:
        """The highest term any answering replica is in; 0 if none answers."""
        return max((status.term for status in self.replicas(group).values()), default=0)

    def leaders(self, role: str | None = None, group: str | None = None) -> tuple[Leader, ...]:
        """The leader of the highest term of each group (deposed ones that don't know it yet are left out)."""
        groups = (group,) if group is not None else self.groups(role)
        return tuple(leader for name in groups if (leader := self.leader(name)) is not None)

    def leader(self, group: str) -> Leader | None:
        """The group's leader of the highest term among those that call themselves so."""
        claims = [(s.term, name, s) for name, s in self.replicas(group).items() if s.role == "leader"]
        if not claims:
            return None
        term, name, status = max(claims, key=lambda claim: claim[:2])
        voters = tuple(map(node_of, status.voters))
        return Leader(name, group, term, status.lease_valid, status.commit_index, status.last_index, voters)


def names(nodes: Iterable[Node], role: str | None = None) -> tuple[str, ...]:
    """Names of the nodes of a role (or of all), in order."""
    return tuple(node.name for node in nodes if role in (None, node.role))


@dataclass(frozen=True, slots=True)
class Sight:
    """What one look saw: whether it is as it should be (None: the look could not tell, which is no evidence either
    way), the evidence, and whose failure it is if it is not.

    `at_ns`: when what comes and goes was last there, which nothing is claimed beyond; None: as the look began.
    """

    met: bool | None
    evidence: dict[str, Any] = field(default_factory=dict)
    blame: Literal["harness", "database"] = "harness"
    at_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Observation:
    """Whether it was seen (None: nobody looked), when (the environment's monotonic clock, ns), and what was seen."""

    observed: bool | None
    at_ns: int | None = None
    evidence: dict[str, Any] = field(default_factory=dict)
    blame: Literal["harness", "database"] = "harness"


@dataclass(frozen=True, slots=True)
class DatabaseObserver:
    """Looks at a database on an environment; looks that are repeated come `poll_s` apart.

    `incarnations` are those that the nodes last told.
    """

    database: Database
    environment: Environment
    poll_s: float = 0.02
    incarnations: dict[str, int] = field(default_factory=dict)

    async def view(self, skip: Iterable[str] = ()) -> View:
        """Ask every node (but those to skip) for its status, all at once."""
        asked = [node.name for node in self.database.nodes if node.name not in set(skip)]
        answers: list[NodeStatus | None] = await asyncio.gather(*(self.database.status(name) for name in asked))
        statuses = {name: status for name, status in zip(asked, answers, strict=True) if status is not None}
        self.incarnations.update((name, status.incarnation) for name, status in statuses.items())
        return View(self.database.nodes, statuses)

    async def living(self, names: Iterable[str]) -> tuple[str, ...]:
        """These nodes without those whose process ended by itself: what we did not end isn't ours to start again."""
        asked = tuple(names)
        states = await asyncio.gather(*(self.database.process_state(name) for name in asked))
        return tuple(name for name, state in zip(asked, states, strict=True) if state is not ProcessState.DEAD)

    async def until(
        self,
        look: Callable[[], Awaitable[Sight]],
        timeout_s: float,
        in_vain: Callable[[Sight], bool] = lambda sight: False,
    ) -> Observation:
        """Look again and again until it is met, time is over, or a look says that further ones would be `in_vain`; it
        counts from where the look began that saw it.

        What no look could tell was not observed.
        """
        clock = self.environment.clock
        deadline_ns = clock.monotonic_ns() + int(timeout_s * 1e9)
        while True:
            began_ns = clock.monotonic_ns()
            sight = await look()
            if sight.met or in_vain(sight) or clock.monotonic_ns() >= deadline_ns:
                seen_ns = began_ns if sight.at_ns is None else sight.at_ns
                return Observation(bool(sight.met), seen_ns if sight.met else None, sight.evidence, sight.blame)
            await clock.sleep(self.poll_s)

    async def conclusive(self, look: Callable[[], Awaitable[Sight]], timeout_s: float) -> Sight:
        """One look, which is made again while it can't tell and time is left."""
        clock = self.environment.clock
        deadline_ns = clock.monotonic_ns() + int(timeout_s * 1e9)
        while (sight := await look()).met is None and clock.monotonic_ns() < deadline_ns:
            await clock.sleep(self.poll_s)
        return sight


def all_of(sights: Iterable[Sight]) -> Sight:
    """Met if all are, not met if one is surely not; the evidence of all, and the blame of the first that is not."""
    seen = tuple(sights)
    evidence = {key: value for sight in seen for key, value in sight.evidence.items()}
    missing = sorted((sight for sight in seen if not sight.met), key=lambda sight: sight.met is None)
    at_ns = min((sight.at_ns for sight in seen if sight.at_ns is not None), default=None)
    return Sight(missing[0].met, evidence, missing[0].blame) if missing else Sight(True, evidence, at_ns=at_ns)


Span = tuple[int, int]
"""From the first to the last look of those that saw a fault without a miss between; monotonic ns."""

LONGEST_DOUBT_NS = 2_000_000_000
"""A fault that looks could not tell for longer may have been gone meanwhile."""

LONGEST_UNSEEN_NS = 5_000_000_000
"""A fault that nobody looked at for longer may have been gone too: the harness was stopped, or too busy."""


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
