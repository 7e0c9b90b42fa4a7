"""A deterministic asyncio event loop with virtual time: one thread, no sockets, the same run for the same program.

Everything scheduled belongs to the incarnation in its context; what belongs to a dead one is dropped for ever, what
belongs to a paused one is held back (`ARCHITECTURE.md`, "One node program, two worlds").
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, copy_context
from functools import partial
from heapq import heapify, heappop, heappush
from typing import Any, TypeAlias, TypeVar, TypeVarTuple

from harness.errors import HarnessError
from harness.ports.sim.incarnation import OWNER, Incarnation, SimHandle
from harness.ports.sim.trace import FIRST_INCARNATION_TAG, STEP_OF_NETWORK, Trace

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
Entry = tuple[int, int, SimHandle | None, Callable[..., object], tuple[Any, ...]]
Due: TypeAlias = SimHandle | tuple[Callable[..., object], tuple[Any, ...], Context, Incarnation]
"""What runs next: a handle, or what one is made of where nobody could cancel it."""

NO_LIMIT = 1 << 62
STALL_STEPS = 5_000_000
"""Steps at one instant of virtual time after which the run is called stuck, at the latest after twice as many."""

_LOOK_STEPS = 512
"""So often limits are looked at and the trace is hashed: to ask at each step would cost more than the answer."""


MARK_STEPS = 1_000
"""So often the digest of all steps is kept, so that the first difference between two runs is known."""


class SimulationStuck(HarnessError):
    """Nothing is left to run, or a step limit was reached, while the main program has not ended."""


def _nothing() -> None:
    return None


class SimLoop(asyncio.AbstractEventLoop):
    """Runs callbacks in the order they were scheduled; when none is ready, time jumps to the next timer.

    Times are whole nanoseconds (`now_ns`); `time()` is the same in seconds.
    """

    def __init__(self, trace: Trace, harness: Incarnation, step_limit: int | None = None) -> None:
        self.now_ns = 0
        self.steps = 0
        self.inert = False
        self.loose_errors: list[BaseException] = []
        self.observers: list[Callable[[Any], None]] = []
        self.subject: Any = None
        self._trace = trace
        self._harness = harness
        self._step_limit = step_limit if step_limit is not None else NO_LIMIT
        self.marks: list[tuple[int, int, str]] = []
        """After every MARK_STEPS steps: how many there were, the virtual time, ns, and the digest so far."""
        self._stalled_at = self._stalled_ns = 0
        self.create_future = partial(asyncio.Future, loop=self)  # type: ignore[method-assign]
        self._ready: deque[Due] = deque()
        self._heap: list[Entry] = []
        self._sequence = 0
        self._cancelled_timers = 0
        self._stopping = False
        self._running = False
        self._closed = False
        self._exception_handler: Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object] | None = None

    # ---- scheduling ----

    def time(self) -> float:
        return self.now_ns / 1e9

    def call_soon(self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None) -> SimHandle:
        """As asyncio's; futures and tasks, which say their context, keep no handle and get none."""
        if context is not None:
            if not self.inert:
                self._ready.append((callback, args, context, context.get(OWNER, self._harness)))
            return None  # type: ignore[return-value]
        context = copy_context()
        handle = SimHandle(callback, args, context, context.get(OWNER, self._harness))
        if not self.inert:
            self._ready.append(handle)
        return handle

    def call_later(
        self, delay: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> SimHandle:
        if context is None:
            context = copy_context()
        when_ns = self.now_ns + round(delay * 1e9) if delay > 0 else self.now_ns
        return self.schedule(when_ns, callback, args, context, context.get(OWNER, self._harness))

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> SimHandle:
        if context is None:
            context = copy_context()
        when_ns = max(self.now_ns, round(when * 1e9))
        return self.schedule(when_ns, callback, args, context, context.get(OWNER, self._harness))

    def call_soon_threadsafe(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> SimHandle:
        raise RuntimeError("the simulator has one thread")

    def schedule(
        self, when_ns: int, callback: Callable[..., object], args: tuple[Any, ...], context: Context, owner: Incarnation
    ) -> SimHandle:
        """A timer of the given incarnation, at a virtual time, ns."""
        handle = SimHandle(callback, args, context, owner)
        handle.when_ns = when_ns
        handle.loop = self
        if not self.inert:
            handle.queued = True
            self._sequence += 1
            heappush(self._heap, (when_ns, self._sequence, handle, _nothing, ()))
        return handle

    def post(self, when_ns: int, callback: Callable[..., object], args: tuple[Any, ...]) -> None:
        """An event of the simulated world itself (a message arrives, a disk is done): can't be cancelled or held."""
        self._sequence += 1
        heappush(self._heap, (when_ns, self._sequence, None, callback, args))

    def resume(self, handles: list[SimHandle]) -> None:
        """Let handles that were held back run now, in their order."""
        self._ready.extend(handles)

    def timer_cancelled(self) -> None:
        self._cancelled_timers += 1
        if self._cancelled_timers > 1000 and self._cancelled_timers * 2 > len(self._heap):
            # In place: the running loop holds a reference. Order is by (time, sequence), so nothing can change places.
            self._heap[:] = [entry for entry in self._heap if entry[2] is None or entry[2].callback is not None]
            heapify(self._heap)
            self._cancelled_timers = 0

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: object = None,
        context: Context | None = None,
    ) -> asyncio.Task[T]:
        task: asyncio.Task[T] = asyncio.Task(coro, loop=self, name=name, context=context)  # type: ignore[arg-type]
        owner = OWNER.get(self._harness) if context is None else context.get(OWNER, self._harness)
        owner.adopt(task)
        return task

    # ---- running ----

    def run_until_complete(self, future: Any) -> Any:
        """Run until the future is done and return its result.

        Raises SimulationStuck when nothing is left to run or a limit is passed, and what an observer raises.
        """
        task = asyncio.ensure_future(future, loop=self)
        task.add_done_callback(self._stop_when_done, context=self._harness.context)
        self._stopping = False
        self._running = True
        outer = asyncio.events._get_running_loop()
        asyncio.events._set_running_loop(self)
        try:
            self._drive()
        finally:
            asyncio.events._set_running_loop(outer)
            self._running = False
        return task.result()

    def _stop_when_done(self, _future: asyncio.Future[Any]) -> None:
        self._stopping = True

    def _drive(self) -> None:
        ready, heap, words, observers = self._ready, self._heap, self._trace.words, self.observers
        self._stalled_at, self._stalled_ns = self.steps + STALL_STEPS, self.now_ns
        while not self._stopping:
            # All this is done at each step, so the loop itself counts them, and only what can have stopped it is asked.
            first, last = self.steps + 1, self._look()
            for self.steps in range(first, last + 1):
                if ready:
                    due = ready.popleft()
                else:
                    if not heap:
                        raise SimulationStuck(self._describe_deadlock())
                    when_ns, _, timer, callback, args = heappop(heap)
                    if when_ns > self.now_ns:
                        self.now_ns = when_ns
                        words.append(when_ns)
                    if timer is None:
                        words.append(STEP_OF_NETWORK)
                        callback(*args)
                        for observer in observers:
                            observer(self.subject)
                        continue
                    timer.queued = False
                    due = timer
                if type(due) is not SimHandle:
                    callback, args, context, owner = due
                    if owner.blocked:
                        owner.hold(SimHandle(callback, args, context, owner))
                        continue
                else:
                    if due.callback is None:
                        continue
                    callback, args, context, owner = due.callback, due.args, due.context, due.owner
                    if owner.blocked:
                        owner.hold(due)
                        continue
                words.append(owner.tag)
                try:
                    context.run(callback, *args)
                except KeyboardInterrupt:
                    raise
                except BaseException as error:  # noqa: BLE001 - it belongs to a node, and is recorded there
                    self.fail(owner, error)
                for observer in observers:
                    observer(self.subject)
                if self._stopping:
                    break

    def _look(self) -> int:
        """Hash the trace, and see that no limit is reached; the step to look again after. Raises SimulationStuck."""
        self._trace.flush_if_full()
        if self.steps == (len(self.marks) + 1) * MARK_STEPS:
            self.marks.append((self.steps, self.now_ns, self._trace.digest()))
        if self.steps >= self._stalled_at:
            if self.now_ns == self._stalled_ns:
                raise self._stuck_by_limit()
            self._stalled_at, self._stalled_ns = self.steps + STALL_STEPS, self.now_ns
        if self.steps >= self._step_limit:
            raise self._stuck_by_limit()
        return min(self._step_limit, self._stalled_at, self.steps + _LOOK_STEPS, (len(self.marks) + 1) * MARK_STEPS)

    def run_handle(self, handle: SimHandle) -> None:
        """Run one step for an incarnation that works its steps off by itself."""
        self._trace.words.append(handle.owner.tag)
        assert handle.callback is not None
        try:
            handle.context.run(handle.callback, *handle.args)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - it belongs to a node, and is recorded there
            self.fail(handle.owner, error)

    def fail(self, owner: Incarnation, error: BaseException) -> None:
        """An exception left a callback: recorded for its node; one of the harness's own ends the run."""
        if owner is self._harness:
            raise error
        owner.fail(error)

    def _stuck_by_limit(self) -> SimulationStuck:
        if self.steps >= self._step_limit:
            return SimulationStuck(f"the limit of {self._step_limit} steps was reached at {self.time():.6f} s")
        return SimulationStuck(f"{STALL_STEPS} steps ran at {self.time():.6f} s and virtual time did not advance")

    def _describe_deadlock(self) -> str:
        return f"nothing is left to run at {self.time():.6f} s of virtual time, but the main program has not ended"

    # ---- the rest of asyncio's interface ----

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Exceptions of futures that nobody awaited end here; tasks are looked after by their incarnation."""
        if self._exception_handler is not None:
            self._exception_handler(self, context)
        elif (error := context.get("exception")) is not None and not self.inert:
            self.loose_errors.append(error)

    def set_exception_handler(
        self, handler: Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object] | None
    ) -> None:
        self._exception_handler = handler

    def get_exception_handler(self) -> Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object] | None:
        return self._exception_handler

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self.call_exception_handler(context)

    def is_running(self) -> bool:
        return self._running

    def is_closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """From now on nothing can be scheduled and nothing runs."""
        self.inert = True
        self._closed = True
        self._ready.clear()
        self._heap.clear()

    def stop(self) -> None:
        self._stopping = True

    get_debug = staticmethod(bool)
    """False, said by a C function: every future asks."""

    def set_debug(self, enabled: bool) -> None:
        """The simulator has no debug mode of asyncio's; this does nothing."""

    async def shutdown_asyncgens(self) -> None:
        """There are none: node code may not use them."""


__all__ = ["FIRST_INCARNATION_TAG", "SimLoop", "SimulationStuck"]
