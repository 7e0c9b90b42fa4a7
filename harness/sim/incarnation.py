"""One life of one node's process: what is scheduled carries it, so that a kill or a pause takes hold at once."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from contextvars import Context, ContextVar
from typing import Any

from harness.ports import Crashed
from harness.sim.handle import SimHandle

_CLOSE_ATTEMPTS = 100


class Incarnation:
    """One life of a process. `blocked` is set while nothing of it may run: it is dead for ever, or paused.

    Live and failed tasks are kept referenced until the world ends, so that the garbage collector runs nothing of them.
    """

    __slots__ = ("_sweep_at", "_tasks", "blocked", "context", "dead", "failures", "held", "name", "number", "tag")

    def __init__(self, name: str, number: int, tag: int) -> None:
        self.name = name
        self.number = number
        self.tag = tag
        self.blocked = False
        self.dead = False
        self.held: list[SimHandle] = []
        self.failures: list[BaseException] = []
        self.context = Context()
        self.context.run(OWNER.set, self)
        self._tasks: list[asyncio.Task[Any]] = []
        self._sweep_at = 64

    def hold(self, handle: SimHandle) -> None:
        """Take a handle that may not run now: kept for the resume if paused, dropped for ever if dead."""
        if not self.dead:
            self.held.append(handle)

    def require_alive(self) -> None:
        """Stop what still unwinds in a dead process from acting on the world; raises Crashed."""
        if self.dead:
            raise Crashed(f"{self.name} is dead")

    def fail(self, error: BaseException) -> None:
        """Record an exception that nothing in the process handled."""
        if not self.dead and not isinstance(error, Crashed) and error not in self.failures:
            self.failures.append(error)

    def errors(self) -> list[BaseException]:
        """What escaped from callbacks and handlers, then from tasks that nobody awaited, each in order."""
        lost = (task._exception for task in self._tasks if task.done() and task._log_traceback)
        unseen = (error for error in lost if error not in self.failures)
        return [*self.failures, *(error for error in unseen if error is not None and not isinstance(error, Crashed))]

    def adopt(self, task: asyncio.Task[Any]) -> None:
        """Keep a task referenced while it runs, or failed and nobody took its exception."""
        tasks = self._tasks
        tasks.append(task)
        if len(tasks) > self._sweep_at:
            self._tasks = [kept for kept in tasks if not kept.done() or kept._log_traceback]
            self._sweep_at = 2 * len(self._tasks) + 64

    def die(self) -> None:
        """Nothing of this process runs from now on."""
        self.dead = True
        self.blocked = True
        self.held.clear()

    def bury(self) -> None:
        """Close what never finished; the world has ended, so whatever `finally` blocks do changes nothing."""
        for task in self._tasks:
            if not task.done():
                _close(task.get_coro())
            elif task._log_traceback:
                task._log_traceback = False
        self._tasks.clear()
        self.held.clear()


OWNER: ContextVar[Incarnation] = ContextVar("assay_incarnation")


def _close(coroutine: Any) -> None:
    for _ in range(_CLOSE_ATTEMPTS):
        # Whatever dead code raises while it is closed is nobody's error: its process is gone.
        with suppress(BaseException):
            coroutine.close()
            return
