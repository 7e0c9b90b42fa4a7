"""What the simulator's loop runs: a callback with its context and the incarnation it belongs to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context
from typing import TYPE_CHECKING, Any, final

if TYPE_CHECKING:
    from harness.ports.sim.incarnation import Incarnation
    from harness.ports.sim.loop import SimLoop


@final
class SimHandle(asyncio.TimerHandle):
    """A scheduled callback; `queued` while it is a timer on the heap, due at `when_ns`."""

    __slots__ = ("args", "callback", "context", "loop", "owner", "queued", "when_ns")

    def __init__(
        self, callback: Callable[..., object], args: tuple[Any, ...], context: Context, owner: Incarnation
    ) -> None:
        self.callback: Callable[..., object] | None = callback
        self.args = args
        self.context = context
        self.owner = owner
        self.queued = False
        self.loop: SimLoop | None = None
        self.when_ns = 0

    def cancel(self) -> None:
        """Never run the callback; what it refers to is let go at once."""
        if self.callback is not None:
            self.callback = None
            self.args = ()
            if self.loop is not None and self.queued:
                self.loop.timer_cancelled()

    def cancelled(self) -> bool:
        return self.callback is None

    def when(self) -> float:
        return self.when_ns / 1e9

    def __repr__(self) -> str:
        return f"<SimHandle {self.callback!r} of {self.owner.name}>"
