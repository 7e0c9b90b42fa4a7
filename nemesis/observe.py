"""The eyes of nemeses: what nodes say of themselves, and looks that are repeated until a deadline."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from harness.ports.machines import ProcessState
from harness.protocols import Database, Environment, NodeStatus
from nemesis.view import View


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
        """Those of these nodes whose process has not ended by itself: what we did not end isn't ours to start again."""
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

    async def told(self, look: Callable[[], Awaitable[Sight]], timeout_s: float) -> Sight:
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
