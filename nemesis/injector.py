"""Carries faults out on a database and its environment, and remembers what is in effect so that it can be undone.

What is about to be done is remembered before it is tried, so a step that fails half-way is healed as well; nothing that
we did not do is ever undone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from contextlib import suppress

from harness.errors import HarnessError, IndefiniteError
from harness.protocols import Armable, Database, Environment, Flooding, Reconfigurable
from nemesis.faults import Action, Bounce, Change, Flood, Hold, Kill, Look, Partition, Pause, Restart
from nemesis.grudges import Link

KILLED = "killed"
PAUSED = "paused"
HELD = "held"


class Injector:
    """The faults in effect, by instance: cut links, and nodes killed, paused or held."""

    def __init__(self, database: Database, environment: Environment) -> None:
        self._database = database
        self._environment = environment
        self._cuts: dict[int, frozenset[Link]] = {}
        self._downs: dict[int, dict[str, str]] = {}
        self._held: dict[str, str] = {}
        self._applied: frozenset[Link] = frozenset()

    def cut_links(self) -> frozenset[Link]:
        """Every link that some instance wants cut."""
        return frozenset[Link]().union(*self._cuts.values())

    def down(self) -> dict[str, str]:
        """Nodes that are killed, paused or (to be) held, with which of these."""
        return {name: how for nodes in self._downs.values() for name, how in nodes.items()}

    def in_effect(self, instance: int) -> bool:
        """Whether anything of the instance is left to undo."""
        return instance in self._cuts or instance in self._downs

    def instances(self) -> tuple[int, ...]:
        """Instances with something in effect, in order."""
        return tuple(sorted({*self._cuts, *self._downs}))

    async def carry_out(self, instance: int, action: Action) -> None:
        """Do it; raises HarnessError when a part of it failed (what was done is remembered all the same)."""
        match action:
            case Partition(links):
                self._cuts[instance] = frozenset(links)
                await self._apply_cuts()
            case Kill(targets):
                await self._take_down(instance, targets, KILLED)
            case Pause(targets):
                await self._take_down(instance, targets, PAUSED)
            case Restart(targets):
                await self._bring_up(instance, targets)
            case Bounce(targets):
                await self._take_down(instance, targets, KILLED)
                await self._bring_up(instance, targets)
            case Hold(targets, point, group):
                await self._hold(instance, targets, point, group)
            case Flood(node, group, writes):
                await self._flood(node, group, writes)
            case Change():
                await self._change(action)
            case Look():
                pass

    async def undo(self, instance: int) -> None:
        """Undo all that is left of an instance; raises HarnessError at the end when a part of it failed."""
        steps: list[Awaitable[None]] = []
        if self._downs.get(instance):
            steps.append(self._bring_up(instance, tuple(self._downs[instance])))
        if self._cuts.pop(instance, None) is not None or self._applied != self.cut_links():
            steps.append(self._apply_cuts())
        await _all(steps)
        self._downs.pop(instance, None)

    async def undo_all(self) -> None:
        """Undo everything still in effect, each instance whatever failed before; raises HarnessError at the end."""
        problems = []
        for instance in self.instances():
            try:
                await self.undo(instance)
            except HarnessError as error:
                problems.append(str(error))
        if self._applied:
            await self._apply_cuts()
        if problems:
            raise HarnessError("; ".join(problems))

    async def _apply_cuts(self) -> None:
        """From one set of cuts to the next at once: a link that stays cut is never open in between."""
        wanted, applied = self.cut_links(), self._applied
        if wanted == applied:
            return
        self._applied = applied | wanted
        await (self._environment.cut(wanted) if wanted else self._environment.heal_network())
        self._applied = wanted

    async def _take_down(self, instance: int, targets: Iterable[str], how: str) -> None:
        act = self._database.kill if how == KILLED else self._database.pause
        own = self._downs.get(instance, {})
        taken = [name for name in targets if name not in self.down() or (how == KILLED and own.get(name) == HELD)]
        self._downs.setdefault(instance, {}).update(dict.fromkeys(taken, how))
        await _all([act(name) for name in taken])

    async def _hold(self, instance: int, targets: Iterable[str], point: str, group: str) -> None:
        database = self._database
        if not isinstance(database, Armable):
            raise HarnessError(f"{database.name} can't be told where to stop")
        taken = [name for name in targets if name not in self.down()]
        self._downs.setdefault(instance, {}).update(dict.fromkeys(taken, HELD))
        self._held.update(dict.fromkeys(taken, point))
        await _all([database.arm(name, point, "stop", group) for name in taken])

    async def _flood(self, node: str, group: str, writes: int) -> None:
        database = self._database
        if not isinstance(database, Flooding):
            raise HarnessError(f"{database.name} takes no writes but its clients'")
        await database.flood(node, group, writes)

    async def _change(self, asked: Change) -> None:
        database = self._database
        if not isinstance(database, Reconfigurable):
            raise HarnessError(f"the groups of {database.name} can't be changed")
        with suppress(IndefiniteError):  # statuses will tell
            await database.change_replicas(
                asked.node, asked.group, asked.change, asked.server, asked.expected, asked.timeout_s
            )

    async def _bring_up(self, instance: int, targets: Iterable[str]) -> None:
        downs = self._downs.get(instance, {})
        await _all([self._bring_one_up(downs, name) for name in targets if name in downs])

    async def _bring_one_up(self, downs: dict[str, str], name: str) -> None:
        database = self._database
        if downs[name] == HELD and isinstance(database, Armable):
            await database.disarm(name, self._held[name])
        else:
            await (database.start(name) if downs[name] == KILLED else database.resume(name))
        del downs[name]


async def _all(steps: Iterable[Awaitable[object]]) -> None:
    """Run the steps side by side, each to its end, then raise HarnessError if any failed."""
    outcomes = await asyncio.gather(*steps, return_exceptions=True)
    failures = [outcome for outcome in outcomes if isinstance(outcome, Exception)]
    if failures:
        raise HarnessError("; ".join(f"{type(error).__name__}: {error}" for error in failures)) from failures[0]
