"""What failpoints do to a simulated process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from harness.ports.api import Crashed


class SimBody:
    """The process on a machine, through what the machine can do to it. Implements `harness.ports.failpoints.Body`.

    `acted` counts, over all lives of the machine's processes, how often each point acted. A process that stops ends
    its present step first: what it does before its next wait is done.
    """

    __slots__ = ("_block", "_kill", "_pause", "acted")

    def __init__(self, kill: Callable[[], None], pause: Callable[[], None], block: Callable[[float], None]) -> None:
        self._kill, self._pause, self._block = kill, pause, block
        self.acted: dict[str, int] = {}

    def crash(self, point: str) -> None:
        self._kill()
        raise Crashed(point)

    def stop(self) -> None:
        self._pause()

    def block(self, seconds: float) -> None:
        self._block(seconds)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def note(self, point: str) -> None:
        self.acted[point] = self.acted.get(point, 0) + 1
