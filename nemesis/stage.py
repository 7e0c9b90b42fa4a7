"""Where a script and the nemesis meet: the script offers an action and waits until it was carried out."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

from nemesis.kinds.api import Action


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
