"""Failpoints of a simulated node: named points in node code at which a test acts. One check when none is armed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from harness.ports import Crashed

Action: TypeAlias = Literal["crash", "pause", "record"] | Callable[[str], Awaitable[None] | None]
"""`crash` kills the node there, `pause` stops it at its next wait, `record` only counts; a callable is called, and what
it returns is awaited where the point is one to rest at."""


@dataclass(slots=True)
class _Armed:
    action: Action
    skip: int


class SimFailpoints:
    """The failpoints of one machine; they stay armed over restarts. Implements `harness.ports.Failpoints`.

    `hits` counts passes of armed points. A `crash` disarms itself.
    """

    __slots__ = ("_armed", "_hold", "_kill", "_pause", "hits")

    def __init__(self, kill: Callable[[], None], pause: Callable[[], None]) -> None:
        self._kill = kill
        self._pause = pause
        self._armed: dict[str, _Armed] | None = None
        self._hold: tuple[str, str] | None = None
        self.hits: dict[str, int] = {}

    def hit(self, name: str, group: str = "") -> None:
        if self._armed is not None:
            self._hit(name)
        if self._hold is not None and self._hold == (name, group):
            self._hold = None
            self._pause()

    def hold(self, name: str, group: str) -> None:
        self._hold = (name, group) if name else None

    def rest(self, name: str) -> Awaitable[None] | None:
        return None if self._armed is None else self._hit(name)

    def arm(self, name: str, action: Action = "crash", skip: int = 0) -> None:
        """Act at the point `name`, after letting `skip` passes go by."""
        if self._armed is None:
            self._armed = {}
        self._armed[name] = _Armed(action, skip)

    def disarm(self, name: str | None = None) -> None:
        """Forget one armed point, or all."""
        if self._armed is not None and name is not None:
            self._armed.pop(name, None)
        if not self._armed or name is None:
            self._armed = None

    def _hit(self, name: str) -> Awaitable[None] | None:
        point = self._armed.get(name) if self._armed is not None else None
        if point is None:
            return None
        self.hits[name] = self.hits.get(name, 0) + 1
        if point.skip > 0:
            point.skip -= 1
            return None
        return self._act(name, point.action)

    def _act(self, name: str, action: Action) -> Awaitable[None] | None:
        if action == "crash":
            self.disarm(name)
            self._kill()
            raise Crashed(name)
        if action == "pause":
            self._pause()
        return action(name) if callable(action) else None
