"""Points of a node's code at which whatever passes waits, while everything else there goes on; for scripts."""

from __future__ import annotations

from typing import ClassVar

from harness.errors import HarnessError
from harness.protocols import Armable
from nemesis.concurrently import all_to_the_end
from nemesis.faults import PointDelay, PointHang
from nemesis.kinds.api import Claims, Family
from nemesis.observe import DatabaseObserver, Sight


class Delays:
    """The points that each instance has armed; in effect once each has acted, as the nodes themselves note."""

    actions: ClassVar[tuple[type, ...]] = (PointDelay, PointHang)

    def __init__(self, observer: DatabaseObserver, claims: Claims) -> None:
        self._database = observer.database
        self._armed: dict[int, dict[tuple[str, str], int]] = {}

    def instances(self) -> frozenset[int]:
        return frozenset(instance for instance, armed in self._armed.items() if armed)

    async def carry_out(self, instance: int, action: PointDelay | PointHang) -> None:
        armed, place = self._armed.setdefault(instance, {}), (action.node, action.point)
        if isinstance(action, PointDelay) and not action.seconds:
            armed.pop(place, None)
            await self._armable.disarm(*place)
            return
        armed[place] = (await self._armable.acted(action.node)).get(action.point, 0)
        if isinstance(action, PointHang):
            await self._armable.arm(*place, "hang", action.group)
        else:
            await self._armable.arm(*place, "delay", times=0, seconds=action.seconds)

    async def look(self, instance: int) -> Sight:
        counts = {}
        for (node, point), before in self._armed[instance].items():
            counts[f"{node} {point}"] = (await self._armable.acted(node)).get(point, 0) - before
        return Sight(all(counts.values()), {"delayed": counts})

    async def undo(self, instance: int) -> None:
        armed = self._armed[instance]
        await all_to_the_end([self._armable.disarm(*place) for place in tuple(armed)])
        armed.clear()

    async def look_gone(self, instance: int) -> Sight:
        return Sight(not self._armed.get(instance))

    def forget(self, instance: int) -> None:
        self._armed.pop(instance, None)

    @property
    def _armable(self) -> Armable:
        if not isinstance(self._database, Armable):
            raise HarnessError(f"{self._database.name} has no failpoints")
        return self._database


DELAYS = Family(Delays)
