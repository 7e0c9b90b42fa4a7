"""What only scripts ask for: writes to pass the time, changes of membership, a look, delays at points of the code."""

from __future__ import annotations

from contextlib import suppress
from typing import ClassVar

from harness.errors import HarnessError, IndefiniteError
from harness.protocols import Flooding, Reconfigurable
from nemesis.faults import Change, Flood, Look, PointDelay, PointHang
from nemesis.kinds.api import Claims, Family, all_to_the_end, armable
from nemesis.observe import DatabaseObserver, Sight
from nemesis.operator import MemberNodes, make_whole, members_of, unlike

WHOLE_S = 20.0
"""How long a group that was changed is given to be whole again."""


class Requests:
    """Groups whose members were changed are made whole at the end: as many voters as before, and no more learners."""

    actions: ClassVar[tuple[type, ...]] = (Flood, Change, Look)

    def __init__(self, observer: DatabaseObserver, claims: Claims) -> None:
        self._observer, self._database = observer, observer.database
        self._changed: dict[int, dict[str, MemberNodes]] = {}
        self._restored: dict[int, dict[str, MemberNodes]] = {}

    def instances(self) -> frozenset[int]:
        return frozenset(self._changed)

    async def carry_out(self, instance: int, action: Flood | Change | Look) -> None:
        match action:
            case Flood(node, group, writes):
                await self._flood(node, group, writes)
            case Change():
                await self._note(instance, action.group)
                await self._change(action)
            case Look():
                pass

    async def look(self, instance: int) -> Sight:
        return Sight(True)

    async def undo(self, instance: int) -> None:
        changed = self._restored[instance] = self._changed[instance]
        await all_to_the_end([make_whole(self._observer, each, before, WHOLE_S) for each, before in changed.items()])
        del self._changed[instance]

    async def look_gone(self, instance: int) -> Sight:
        restored = self._restored.get(instance, {})
        if not restored:
            return Sight(True)
        view = await self._observer.view()
        left = [said for group, before in restored.items() if (said := unlike(view, group, before)) is not None]
        return Sight(not left, {"groups": left} if left else {}, "database")

    def forget(self, instance: int) -> None:
        self._restored.pop(instance, None)

    async def _note(self, instance: int, group: str) -> None:
        """Remember the members that the group had before the instance first asked for a change of it."""
        changed = self._changed.setdefault(instance, {})
        if group not in changed:
            members = members_of(await self._observer.view(), group)
            if members is not None:
                changed[group] = members

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


REQUESTS = Family(Requests)


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
            await armable(self._database).disarm(*place)
            return
        armed[place] = (await armable(self._database).acted(action.node)).get(action.point, 0)
        if isinstance(action, PointHang):
            await armable(self._database).arm(*place, "hang", action.group)
        else:
            await armable(self._database).arm(*place, "delay", times=0, seconds=action.seconds)

    async def look(self, instance: int) -> Sight:
        counts = {}
        for (node, point), before in self._armed[instance].items():
            counts[f"{node} {point}"] = (await armable(self._database).acted(node)).get(point, 0) - before
        return Sight(all(counts.values()), {"delayed": counts})

    async def undo(self, instance: int) -> None:
        armed = self._armed[instance]
        await all_to_the_end([armable(self._database).disarm(*place) for place in tuple(armed)])
        armed.clear()

    async def look_gone(self, instance: int) -> Sight:
        return Sight(not self._armed.get(instance))

    def forget(self, instance: int) -> None:
        self._armed.pop(instance, None)


DELAYS = Family(Delays)
