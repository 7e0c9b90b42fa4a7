"""One life of one node's process: what is scheduled carries it, so that a kill or a pause takes hold at once."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context, ContextVar
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any, final

from harness.ports.api import Crashed

if TYPE_CHECKING:
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


_CLOSE_ATTEMPTS = 100


class Incarnation:
    """One life of a process. `blocked` is set while nothing of it may run at once: it is dead for ever, paused, or has
    a processor that works steps off by itself (`SlowIncarnation`).

    Live and failed tasks are kept referenced until the world ends, so that the garbage collector runs nothing of them.
    """

    __slots__ = (
        "_sweep_at",
        "_tasks",
        "blocked",
        "context",
        "dead",
        "failures",
        "held",
        "name",
        "number",
        "paused",
        "tag",
    )

    def __init__(self, name: str, number: int, tag: int) -> None:
        self.name = name
        self.number = number
        self.tag = tag
        self.blocked = False
        self.paused = False
        self.dead = False
        self.held: list[SimHandle] = []
        self.failures: list[BaseException] = []
        self.context = Context()
        self.context.run(OWNER.set, self)
        self._tasks: list[asyncio.Task[Any]] = []
        self._sweep_at = 64

    def hold(self, handle: SimHandle) -> None:
        """Take a handle that may not run now: kept for the resume if paused, dropped for ever if dead."""
        if self.dead:
            _drop(handle)
        else:
            self.held.append(handle)

    def pause(self) -> None:
        """Hold back whatever would run from now on."""
        self.paused = self.blocked = True

    def resume(self, loop: SimLoop) -> None:
        """Let what was held back run now, in order."""
        self.paused = self.blocked = False
        held, self.held = self.held, []
        loop.resume(held)

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
        for handle in self.held:
            _drop(handle)
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


LONG_TURN_NS = (1_000_000, 50_000_000)
"""How long a turn of the event loop takes that is long: something was worked out, or collected, meanwhile."""


@dataclass(frozen=True, slots=True)
class Processor:
    """What steps of a process take: `step_ns`, and of the share `long_turns` up to 50 ms more (uniform, LONG_TURN_NS).

    In the stretch of virtual time from `stretch_ns[0]` to `stretch_ns[1]` long turns take ten times as long.
    """

    step_ns: int = 0
    long_turns: float = 0.0
    stretch_ns: tuple[int, int] = (0, 0)

    @property
    def instant(self) -> bool:
        """Whether steps take no time at all."""
        return not self.step_ns and not self.long_turns

    def cost_ns(self, now_ns: int, entropy: Random) -> int:
        """What the next step takes."""
        if not self.long_turns or entropy.random() >= self.long_turns:
            return self.step_ns
        begin_ns, end_ns = self.stretch_ns
        return self.step_ns + entropy.randint(*LONG_TURN_NS) * (10 if begin_ns <= now_ns < end_ns else 1)


class SlowIncarnation(Incarnation):
    """One life on a processor that needs virtual time for steps: they wait for each other, in order.

    To the loop it is always blocked, so that processes on fast machines pay nothing for this.
    """

    __slots__ = ("_due", "_entropy", "_free_ns", "_loop", "_processor", "_queue")

    def __init__(self, name: str, number: int, tag: int, loop: SimLoop, processor: Processor, entropy: Random) -> None:
        super().__init__(name, number, tag)
        self.blocked = True
        self._loop = loop
        self._processor, self._entropy = processor, entropy
        self._queue: deque[SimHandle] = deque()
        self._free_ns = 0
        self._due = False

    def hold(self, handle: SimHandle) -> None:
        if self.dead:
            _drop(handle)
        else:
            self._queue.append(handle)
            self._go_on()

    def pause(self) -> None:
        self.paused = True

    def resume(self, loop: SimLoop) -> None:
        self.paused = False
        self._go_on()

    def die(self) -> None:
        super().die()
        for handle in self._queue:
            _drop(handle)
        self._queue.clear()

    def _go_on(self) -> None:
        if self._queue and not self._due and not self.paused:
            self._due = True
            self._loop.post(max(self._loop.now_ns, self._free_ns), self._step, ())

    def _step(self) -> None:
        self._due = False
        while self._queue and not self.paused:
            handle = self._queue.popleft()
            if handle.callback is not None:
                now_ns = self._loop.now_ns
                self._free_ns = now_ns + self._processor.cost_ns(now_ns, self._entropy)
                self._loop.run_handle(handle)
                break
        self._go_on()


OWNER: ContextVar[Incarnation] = ContextVar("assay_incarnation")


def _drop(handle: SimHandle) -> None:
    """Let go of what a dead process had still to run. If that was somebody who waited for a task, the task's exception
    would have been taken: it is not one that nothing handled."""
    for awaited in handle.args:
        if isinstance(awaited, asyncio.Future):
            awaited._log_traceback = False


def _close(coroutine: Any) -> None:
    for _ in range(_CLOSE_ATTEMPTS):
        # Whatever dead code raises while it is closed is nobody's error: its process is gone.
        with suppress(BaseException):
            coroutine.close()
            return
