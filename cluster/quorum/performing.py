"""Carries out what a pure state machine instructs: each instruction beside the others, until one of them is the end.

Reads (`cluster.quorum.exchange`) and reconciliations (`cluster.quorum.reconciling`) take events in and give
instructions out; what they share is how instructions become tasks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar, cast

S = TypeVar("S")
E = TypeVar("E")


class Performance(Generic[S, E]):
    """One state machine, performed to its end: an instruction of a type of `ends`.

    `perform` carries any other instruction out, tells the machine what came of it, and gives what the machine says to
    that. An error in it ends the performance with that error.
    """

    def __init__(self, name: str, perform: Callable[[S], Awaitable[Sequence[S | E]]], *ends: type[E]) -> None:
        self._name, self._perform, self._ends = name, perform, ends
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._over: asyncio.Future[E] = asyncio.get_running_loop().create_future()

    async def run(self, first: Sequence[S | E], timeout_s: float | None = None) -> E:
        """The end; whatever is still under way then is broken off. Raises TimeoutError."""
        self._begin(first)
        try:
            async with asyncio.timeout(timeout_s):
                return await self._over
        finally:
            for task in list(self._tasks):
                task.cancel()

    def _begin(self, instructions: Sequence[S | E]) -> None:
        for each in instructions:
            if isinstance(each, self._ends):
                if not self._over.done():
                    self._over.set_result(each)
                continue
            task = asyncio.create_task(self._do(cast(S, each)), name=self._name)
            self._tasks[task] = None
            task.add_done_callback(self._ended)

    async def _do(self, instruction: S) -> None:
        self._begin(await self._perform(instruction))

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        error = None if task.cancelled() else task.exception()
        if error is not None and not self._over.done():
            self._over.set_exception(error)
