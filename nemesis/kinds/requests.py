"""What scripts ask of the database beside faults: writes to pass the time, changes of membership, a look."""

from __future__ import annotations

from contextlib import suppress
from typing import ClassVar

from harness.errors import HarnessError, IndefiniteError
from harness.protocols import Flooding, Reconfigurable
from nemesis.faults import Change, Flood, Look
from nemesis.kinds.api import Claims, Family
from nemesis.observe import Observer, Sight


class Requests:
    """Nothing of them is left in effect, so there is nothing to undo."""

    actions: ClassVar[tuple[type, ...]] = (Flood, Change, Look)

    def __init__(self, observer: Observer, claims: Claims) -> None:
        self._database = observer.database

    def instances(self) -> frozenset[int]:
        return frozenset()

    async def carry_out(self, instance: int, action: Flood | Change | Look) -> None:
        match action:
            case Flood(node, group, writes):
                await self._flood(node, group, writes)
            case Change():
                await self._change(action)
            case Look():
                pass

    async def look(self, instance: int) -> Sight:
        return Sight(True)

    async def undo(self, instance: int) -> None:
        """Nothing to undo."""

    async def look_gone(self, instance: int) -> Sight:
        return Sight(True)

    def forget(self, instance: int) -> None:
        """Nothing is kept."""

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


FAMILY = Family(Requests)
