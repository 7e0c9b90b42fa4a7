"""All injectors of a run as one: each action goes to the one that knows its class."""

from __future__ import annotations

from collections.abc import Iterable

from harness.errors import HarnessError
from harness.run.allowances import WearsOff
from nemesis.concurrently import all_to_the_end
from nemesis.kinds.api import Action, Claims, Injector, MakeInjector, Preparing
from nemesis.observe import DatabaseObserver, Sight, all_of


class Injectors:
    """What every family did, by instance (see `nemesis.kinds.api.Injector`); `claims` are the nodes taken by all."""

    def __init__(self, observer: DatabaseObserver, families: Iterable[MakeInjector]) -> None:
        self.claims = Claims()
        self._all: tuple[Injector, ...] = tuple(make(observer, self.claims) for make in families)
        self._of_action = {action: injector for injector in self._all for action in injector.actions}

    def instances(self) -> tuple[int, ...]:
        """Instances with something in effect, in order."""
        return tuple(sorted({instance for injector in self._all for instance in injector.instances()}))

    async def carry_out(self, instance: int, action: Action) -> None:
        """Do it; raises HarnessError when a part of it failed (what was done is remembered all the same)."""
        await self._of_action[type(action)].carry_out(instance, action)

    async def prepare(self, action: Action) -> bool:
        """What has to be known before it is done; False: nothing has, and no time has passed."""
        injector = self._of_action[type(action)]
        if not isinstance(injector, Preparing):
            return False
        await injector.prepare(action)
        return True

    async def look(self, instance: int) -> Sight:
        """One look at all that the instance did: whether everything of it is in effect now."""
        return all_of([await injector.look(instance) for injector in self._all if instance in injector.instances()])

    async def undo(self, instance: int) -> None:
        """Undo all that is left of an instance; raises HarnessError at the end when a part of it failed."""
        await all_to_the_end([each.undo(instance) for each in self._all if instance in each.instances()])

    async def undo_all(self) -> None:
        """Undo everything still in effect, each instance whatever failed before; raises HarnessError at the end."""
        problems = []
        for instance in self.instances():
            try:
                await self.undo(instance)
            except HarnessError as error:
                problems.append(str(error))
        if problems:
            raise HarnessError("; ".join(problems))

    async def look_gone(self, instance: int) -> Sight:
        """One look at whether nothing is left in effect of what the instance did."""
        return all_of([await injector.look_gone(instance) for injector in self._all])

    @property
    def worn_off_ns(self) -> int:
        """See `harness.run.allowances.WearsOff`."""
        return max((each.worn_off_ns for each in self._all if isinstance(each, WearsOff)), default=0)

    def forget(self, instance: int) -> None:
        """Nothing more will be asked of the instance."""
        for injector in self._all:
            injector.forget(instance)
