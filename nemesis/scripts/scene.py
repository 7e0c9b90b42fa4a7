"""What a script of faults is given: eyes (polled statuses), time and chance.

A script waits for the state that matters, then says what to do (`act`); the nemesis carries each action out as a step
of the history. A script never touches the database itself. It says when its core is reached: the state that it is
about, with its decisive action in effect; the rest is preparation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, TypeAlias, TypeVar

from harness.capabilities import Capability
from harness.ports.machines import ProcessState
from harness.protocols import Armable, PartlyWritten
from nemesis.faults import LOOK
from nemesis.kinds.api import Action
from nemesis.observe import MASTER, TSERVER, DatabaseObserver, Leader, View, names


@dataclass(frozen=True, slots=True)
class Offer:
    """What a script wants done next; `core` is what it saw, if with this step its decisive moment is reached."""

    action: Action
    core: dict[str, Any] | None = None


class Stage:
    """One running script. Actions are taken one at a time, so each can be a step of the history."""

    def __init__(self) -> None:
        self._offers: asyncio.Queue[Offer | None] = asyncio.Queue()
        self._done: asyncio.Queue[None] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None

    def begin(self, script: Coroutine[Any, Any, None]) -> None:
        """Let the script run; it offers its actions with `act`."""
        self._task = asyncio.create_task(self._run(script))

    async def _run(self, script: Coroutine[Any, Any, None]) -> None:
        try:
            await script
        finally:
            self._offers.put_nowait(None)

    async def act(self, action: Action, core: dict[str, Any] | None = None) -> None:
        """For the script: have this done; returns when it was (and, at its core, when it was seen in effect or not)."""
        self._offers.put_nowait(Offer(action, core))
        await self._done.get()

    async def next_offer(self) -> Offer | None:
        """For the nemesis: what the script wants next, or None when it has ended; raises what it raised, once."""
        offer = await self._offers.get()
        if offer is None:
            self._offers.put_nowait(None)
            task, self._task = self._task, None
            if task is not None:
                await task
        return offer

    def carried_out(self) -> None:
        """For the nemesis: the action last taken is done (or failed); the script goes on."""
        self._done.put_nowait(None)

    async def close(self) -> None:
        """Stop the script where it stands."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)


T = TypeVar("T")

MASTERS_SHARE = 0.15
"""How often a script plays with the masters' group: clients' data is in the others."""

WRITTEN_MASTERS_SHARE = 0.4
"""How often where clients write to the masters' group as well, as they make tables."""

LEAST_VOTERS = 3
"""Smaller groups have no majority without their leader."""

Script: TypeAlias = Callable[["Scene"], Coroutine[Any, Any, None]]


@dataclass(frozen=True, slots=True)
class Scene:
    """One episode's surroundings; `patience_s` bounds every wait, after which a script goes on with what it has.

    Nothing has to be seen quickly (what passes quickly is held), so that eyes open `poll_s` apart cost little.
    """

    observer: DatabaseObserver
    entropy: Random
    stage: Stage
    poll_s: float = 0.02
    patience_s: float = 6.0

    @property
    def nodes(self) -> tuple[str, ...]:
        """Names of all nodes."""
        return names(self.observer.database.nodes)

    async def act(self, action: Action, core: dict[str, Any] | None = None) -> None:
        """Have an action carried out; returns when it was. With `core`: what was seen that makes it decisive."""
        await self.stage.act(action, core)

    async def reached(self, **seen: Any) -> None:
        """Say that the core is reached, and what was seen of it: what is in effect is looked at now."""
        await self.stage.act(LOOK, seen)

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
        poll_s: float | None = None,
    ) -> T | None:
        """Poll the statuses until `seen` finds what it looks for; None when patience ran out."""
        wanted = None if of is None else tuple(of)

        async def look() -> T | None:
            return seen(await self.view(wanted))

        return await self._poll(look, patience_s, poll_s)

    async def _poll(
        self, look: Callable[[], Awaitable[T | None]], patience_s: float | None, poll_s: float | None = None
    ) -> T | None:
        """Look again and again until there is something to see; None when patience ran out."""
        clock = self.observer.environment.clock
        deadline_ns = clock.monotonic_ns() + int((self.patience_s if patience_s is None else patience_s) * 1e9)
        while (found := await look()) is None and clock.monotonic_ns() < deadline_ns:
            await clock.sleep(self.poll_s if poll_s is None else poll_s)
        return found

    async def stopped(self, among: Sequence[str], count: int, patience_s: float | None = None) -> tuple[str, ...]:
        """Wait until `count` of these nodes have stopped where they were to be held: all that have; () if too few."""

        async def look() -> tuple[str, ...] | None:
            states = await asyncio.gather(*(self.observer.database.process_state(name) for name in among))
            held = tuple(n for n, state in zip(among, states, strict=True) if state is ProcessState.PAUSED)
            return held if len(held) >= count else None

        return await self._poll(look, patience_s) or ()

    async def acted(self, node: str, point: str) -> int:
        """How often the point has acted on the node so far; 0 where there are no failpoints."""
        database = self.observer.database
        return (await database.acted(node)).get(point, 0) if isinstance(database, Armable) else 0

    async def acts(self, node: str, point: str, before: int, patience_s: float | None = None) -> bool:
        """Wait until the point has acted on the node more often than `before`."""

        async def look() -> bool | None:
            return await self.acted(node, point) > before or None

        return bool(await self._poll(look, patience_s))

    async def group(self, idle: bool = False, writable: bool = False, role: str | None = None) -> Leader | None:
        """The leader of a random group with at least three voters and a lease: more often a tablet's than the masters'.

        None, after patience, if there is none. The group stays (`PartlyWritten`): who waits for what a
        dropped tablet does waits in vain. With `idle` one whose log has not grown for a while, if there is one;
        with `writable` one that clients write to; with `role` one of nodes of that role.
        """
        among = await self._written()
        if idle:
            before = await self.view()
            await self.hold(0.3, 0.6)
            after = await self.view()
            found = _large(after, after.leaders(), among)
            still = [each for each in found if each.last_index == before.last_index(each.group, each.node)]
            if still:
                return self.entropy.choice(still)
        return await self.until(lambda view: self._random_leader(view, among, writable, role))

    async def _written(self) -> Collection[str] | None:
        database = self.observer.database
        if Capability.WRITTEN_GROUPS not in database.capabilities or not isinstance(database, PartlyWritten):
            return None
        return await database.written_groups()

    async def new_leader(
        self, group: str, above: int, among: Iterable[str] | None = None, patience_s: float | None = None
    ) -> Leader | None:
        """Wait for a leader of the group in a term above the given one (among some of its nodes)."""
        allowed = None if among is None else tuple(among)

        def seen(view: View) -> Leader | None:
            leader = view.leader(group)
            if leader is None or leader.term <= above or (allowed is not None and leader.node not in allowed):
                return None
            return leader

        return await self.until(seen, allowed, patience_s)

    async def leader(self, group: str) -> Leader | None:
        """Wait for any leader of the group."""
        return await self.new_leader(group, above=-1)

    def role(self, node: str) -> str:
        """The role of the node of this name."""
        return next(each.role for each in self.observer.database.nodes if each.name == node)

    def _random_leader(
        self, view: View, among: Collection[str] | None, writable: bool, role: str | None
    ) -> Leader | None:
        share = _masters_share(view, among, writable) if role is None else float(role == MASTER)
        leaders = _large(view, view.leaders(MASTER if self.entropy.random() < share else TSERVER), among)
        return self.entropy.choice(leaders) if leaders else None


def _masters_share(view: View, among: Collection[str] | None, writable: bool) -> float:
    if among is not None and not set(among).isdisjoint(view.groups(MASTER)):
        return WRITTEN_MASTERS_SHARE
    return 0.0 if writable else MASTERS_SHARE


def _large(view: View, leaders: Iterable[Leader], among: Collection[str] | None) -> list[Leader]:
    """The leaders with a lease and enough voters, of the tablets only these (None: all)."""
    wanted = None if among is None else {*among, *view.groups(MASTER)}
    large = [each for each in leaders if each.lease_valid and len(each.voters) >= LEAST_VOTERS]
    return [each for each in large if wanted is None or each.group in wanted]
