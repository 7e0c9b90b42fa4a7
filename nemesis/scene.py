"""What a script of faults is given: eyes (polled statuses), time and chance.

A script waits for the state that matters, then says what to do (`act`); the nemesis carries each action out as a step
of the history. A script never touches the database itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from random import Random
from typing import Any, TypeAlias, TypeVar

from nemesis.faults import Action
from nemesis.observe import Observer
from nemesis.stage import Stage
from nemesis.view import Leader, View, names

T = TypeVar("T")

MASTERS_SHARE = 0.15
"""How often a script plays with the masters' group: clients' data is in the others."""

Script: TypeAlias = Callable[["Scene"], Coroutine[Any, Any, None]]


@dataclass(frozen=True, slots=True)
class Scene:
    """One episode's surroundings; `patience_s` bounds every wait, after which a script goes on with what it has."""

    observer: Observer
    entropy: Random
    stage: Stage
    poll_s: float = 0.001
    patience_s: float = 4.0

    @property
    def nodes(self) -> tuple[str, ...]:
        """Names of all nodes."""
        return names(self.observer.database.nodes)

    async def act(self, action: Action) -> None:
        """Have an action carried out; returns when it was."""
        await self.stage.act(action)

    async def hold(self, low_s: float, high_s: float) -> None:
        """Let a random time pass."""
        await self.observer.environment.clock.sleep(self.entropy.uniform(low_s, high_s))

    async def view(self, of: Iterable[str] | None = None) -> View:
        """The statuses now, of all nodes or of some."""
        wanted = set(self.nodes if of is None else of)
        return await self.observer.view(skip=[name for name in self.nodes if name not in wanted])

    async def until(
        self,
        seen: Callable[[View], T | None],
        of: Iterable[str] | None = None,
        patience_s: float | None = None,
        eyes: int = 1,
    ) -> T | None:
        """Poll the statuses until `seen` finds what it looks for; None when patience ran out.

        With more than one eye, questions are asked before earlier ones are answered, for moments that pass quickly.
        """
        limit_s = self.patience_s if patience_s is None else patience_s
        deadline_ns = self.observer.environment.clock.monotonic_ns() + int(limit_s * 1e9)
        if eyes == 1:
            return await self._look(seen, of, deadline_ns)
        looks = [self._look(seen, of, deadline_ns, self.poll_s * i / eyes) for i in range(eyes)]
        tasks = [asyncio.create_task(look) for look in looks]
        ended = asyncio.Event()
        for task in tasks:
            task.add_done_callback(lambda _: ended.set())
        try:
            await ended.wait()
            return next(task for task in tasks if task.done()).result()
        finally:
            for task in tasks:
                task.cancel()

    async def _look(
        self, seen: Callable[[View], T | None], of: Iterable[str] | None, deadline_ns: int, delay_s: float = 0.0
    ) -> T | None:
        clock = self.observer.environment.clock
        if delay_s:
            await clock.sleep(delay_s)
        while True:
            found = seen(await self.view(of))
            if found is not None or clock.monotonic_ns() >= deadline_ns:
                return found
            await clock.sleep(self.poll_s)

    async def group(self, voters: int = 3) -> Leader | None:
        """The leader of a random group, with a lease and so many voters: a tablet's more often than the masters'."""
        return await self.until(lambda view: self._random_leader(view, voters))

    async def new_leader(
        self, group: str, above: int, among: Iterable[str] | None = None, patience_s: float | None = None
    ) -> Leader | None:
        """Wait for a leader of the group in a term above the given one (among some of its nodes)."""
        allowed = None if among is None else set(among)

        def seen(view: View) -> Leader | None:
            leader = view.leader(group)
            if leader is None or leader.term <= above or (allowed is not None and leader.node not in allowed):
                return None
            return leader

        return await self.until(seen, allowed, patience_s)

    async def leader(self, group: str) -> Leader | None:
        """Wait for any leader of the group."""
        return await self.new_leader(group, above=-1)

    def _random_leader(self, view: View, voters: int) -> Leader | None:
        role = "master" if self.entropy.random() < MASTERS_SHARE else "tserver"
        leaders = [leader for leader in view.leaders(role) if leader.lease_valid and len(leader.voters) == voters]
        return self.entropy.choice(leaders) if leaders else None
