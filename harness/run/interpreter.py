"""The interpreter: one coroutine that owns time and workers, asks the generator, and records what happens.

After Jepsen's `jepsen.generator.interpreter`: completions are handled before invocations, a process whose operation
ends `info` is retired, and nothing else writes the history: its recorder alone writes the journal. It
runs on any asyncio loop whose time is the clock's.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass

from msgspec.structs import replace

from harness.errors import HarnessError
from harness.generators.core import NEMESIS_MASK, Context, Generator, Pending, Source, lift
from harness.history.journal import JournalWriter
from harness.history.ops import Op, feed_events
from harness.ports.api import Clock
from harness.protocols import Nemesis
from harness.run.workers import ClientExecutor, ClientPool, NemesisExecutor, Worker
from harness.verdict.failures import FailureLog


class Recorder:
    """Numbers events in one total order, times them in ns since its own start, and journals them.

    `phase` is stamped on every invocation that has none. A nemesis step is sealed before `invoked` returns, so before
    anyone can carry it out.
    """

    def __init__(self, journal: JournalWriter, clock: Clock, on_event: Callable[[Op], None] | None = None) -> None:
        self.phase = "main"
        self._journal = journal
        self._clock = clock
        self._on_event = on_event
        self._next_index = 0
        self._start_ns = clock.monotonic_ns()

    def now_ns(self) -> int:
        """Ns since the recorder was made."""
        return self._clock.monotonic_ns() - self._start_ns

    def invoked(self, op: Op, now_ns: int) -> Op:
        """Record an invocation and return it as it stands in the history."""
        op = replace(op, type="invoke", index=self._next_index, time=now_ns, phase=op.phase or self.phase)
        self._write(op)
        if op.process < 0:
            self._journal.seal()
        return op

    def completed(self, op: Op, now_ns: int) -> Op:
        """Record a completion (or an unsolicited event) and return it as it stands in the history; before that of a
        watch what it told."""
        if told := feed_events(op):
            for event in told:
                self.completed(event, now_ns)
            op = replace(op, value=None)
        op = replace(op, index=self._next_index, time=now_ns)
        self._write(op)
        return op

    def seal_due(self) -> None:
        """To be called at least once a second."""
        self._journal.seal_due(self.now_ns())

    def _write(self, op: Op) -> None:
        self._next_index += 1
        self._journal.append(op)
        if self._on_event is not None:
            self._on_event(op)


_SEAL_NS = 1_000_000_000
_CLOSE_S = 5.0
"""How long workers that were told to stop may take to close their clients."""


@dataclass(frozen=True, slots=True)
class HardLimits:
    """Past these an operation is given up as `info`: safety nets, well above the clients' own deadlines. A nemesis that
    fails `alike` times in a row is wedged, and its run of no use (None: it is borne with)."""

    client_s: float = 30.0
    nemesis_s: float = 180.0
    alike: int | None = 3


class Streak:
    """How often steps of a nemesis failed in a row: the same step, whatever others do meanwhile, or any step in the
    same words. Steps in between that did nothing, such as those of a script that waits, show nothing."""

    def __init__(self) -> None:
        self._steps = Counter[str]()
        self._words: tuple[str | None, int] = (None, 0)

    def after(self, step: Op) -> int:
        """The longest one that a completed step belongs to; 0 of one that did not fail."""
        if step.error_class not in ("harness", "hard-limit"):
            told = step.value if isinstance(step.value, dict) else {}
            if told.get("observed", True) is not True and "action" not in told:
                return 0
            self._words = (None, 0)
            self._steps.pop(step.f, None)
            return 0
        self._steps[step.f] += 1
        self._words = (step.error, self._words[1] + 1 if step.error == self._words[0] else 1)
        return max(self._steps[step.f], self._words[1])


class ProcessIds:
    """The ids of the client threads' processes, which live on from one generator to the next.

    Thread t's ids are t modulo the number of threads; a process whose operation ends `info` is never asked again.
    """

    def __init__(self, threads: int) -> None:
        self.ids = tuple(range(threads))

    def retire(self, process: int) -> None:
        """Its thread goes on as the next process."""
        count = len(self.ids)
        thread = process % count
        self.ids = (*self.ids[:thread], process + count, *self.ids[thread + 1 :])


async def interpret(
    source: Source,
    *,
    clients: ClientPool,
    nemesis: Nemesis | None,
    recorder: Recorder,
    failures: FailureLog,
    processes: ProcessIds,
    limits: HardLimits = HardLimits(),
) -> None:
    """Carry out a generator to its end, by these processes, of which some retire.

    Operations in flight when it is cancelled, or fails, are recorded as `info`. Raises HarnessError when the generator
    breaks its contract or the nemesis is wedged, and whatever the generator's own functions raise.
    """
    interpreter = _Interpreter(clients, nemesis, recorder, failures, processes, limits)
    try:
        await interpreter.carry_out(lift(source))
    finally:
        await interpreter.close()


class _Interpreter:
    def __init__(
        self,
        clients: ClientPool,
        nemesis: Nemesis | None,
        recorder: Recorder,
        failures: FailureLog,
        processes: ProcessIds,
        limits: HardLimits,
    ) -> None:
        self._processes = processes
        self._clients = clients
        self._nemesis = nemesis
        self._recorder = recorder
        self._failures = failures
        self._limits_ns = (round(limits.nemesis_s * 1e9), round(limits.client_s * 1e9))
        self._alike, self._streak, self._wedged = limits.alike, Streak(), ""
        self._threads = ((1 << len(processes.ids)) - 1) << 1 | (NEMESIS_MASK if nemesis is not None else 0)
        self._free = self._threads
        self._turn = 0
        self._generator: Generator | None = None
        self._completions: deque[tuple[Worker, Op, int]] = deque()
        self._flying: dict[int, Op] = {}
        self._deadlines: tuple[deque[tuple[int, int, Op]], ...] = (deque(), deque())
        self._workers = {bit: self._worker(bit) for bit in range(len(processes.ids) + 1) if self._threads >> bit & 1}
        self._abandoned: list[Worker] = []
        self._wake: asyncio.Future[None] | None = None

    async def carry_out(self, generator: Generator) -> None:
        self._generator = generator
        while True:
            now_ns = self._recorder.now_ns()
            if self._completions:
                self._absorb_completions()
            self._expire(now_ns)
            if self._wedged:
                raise HarnessError(self._wedged)
            op, after = self._generator.step(self._context(now_ns)) if self._generator is not None else (None, None)
            self._generator = after
            if isinstance(op, Op):
                self._dispatch(op, now_ns)
            elif op is None and not self._flying:
                return
            else:
                await self._wait(op, now_ns)

    def _context(self, now_ns: int) -> Context:
        return Context(now_ns, self._processes.ids, self._threads, self._free, self._turn)

    def _dispatch(self, op: Op, now_ns: int) -> None:
        bit = op.process % len(self._processes.ids) + 1 if op.process >= 0 else 0
        if not self._free >> bit & 1 or (bit and self._processes.ids[bit - 1] != op.process):
            raise HarnessError(f"the generator gave {op.f} to process {op.process}, which is not free")
        op = self._recorder.invoked(op, now_ns)
        self._free &= ~(1 << bit)
        if bit:  # the nemesis takes no client's turn: else those behind it would start over at each of its steps
            self._turn = bit + 1
        self._flying[bit] = op
        kind = 1 if bit else 0
        self._deadlines[kind].append((now_ns + self._limits_ns[kind], bit, op))
        if self._generator is not None:
            self._generator = self._generator.update(self._context(now_ns), op)
        self._workers[bit].assign(op)

    def _completed(self, worker: Worker, op: Op) -> None:
        """Called by a worker."""
        self._completions.append((worker, op, self._recorder.now_ns()))
        self._awake()

    def _absorb_completions(self) -> None:
        completions = self._completions
        while completions:
            worker, op, time_ns = completions.popleft()
            if not worker.abandoned:
                self._conclude(worker.bit, op, time_ns)

    def _conclude(self, bit: int, op: Op, now_ns: int) -> None:
        """Record a completion, free its thread, and retire the process if the outcome is unknown."""
        del self._flying[bit]
        op = self._recorder.completed(op, now_ns)
        self._free |= 1 << bit
        if op.type == "info" and bit:
            self._processes.retire(op.process)
        if not bit and self._alike is not None and self._streak.after(op) >= self._alike:
            self._wedged = f"the nemesis failed {self._alike} times alike, at last in {op.f}: {op.error}"
        if self._generator is not None:
            self._generator = self._generator.update(self._context(now_ns), op)

    def _expire(self, now_ns: int) -> None:
        """Give up on operations past their hard limit, and on the workers that hang in them."""
        for deadlines in self._deadlines:
            while deadlines:
                deadline_ns, bit, op = deadlines[0]
                hangs = self._flying.get(bit) is op
                if hangs and deadline_ns > now_ns:
                    break
                deadlines.popleft()
                if hangs:
                    self._give_up(bit, op, now_ns)

    def _give_up(self, bit: int, op: Op, now_ns: int) -> None:
        stage = "client" if bit else "nemesis"
        self._failures.record(stage, TimeoutError(f"{op.f} did not return within its hard limit"))
        worker = self._workers[bit]
        worker.abandon()
        self._abandoned.append(worker)
        self._workers[bit] = self._worker(bit)
        self._conclude(bit, op.complete("info", error_class="hard-limit", error="no answer from the client"), now_ns)

    def _worker(self, bit: int) -> Worker:
        if bit:
            return Worker(bit, ClientExecutor(self._clients, self._failures), self._completed, self._failures)
        assert self._nemesis is not None
        return Worker(bit, NemesisExecutor(self._nemesis, self._failures), self._completed, self._failures)

    async def _wait(self, pending: Pending | None, now_ns: int) -> None:
        """Until a completion, the time the generator asked for, a hard limit, or the time to seal."""
        self._recorder.seal_due()
        if self._completions:
            return
        until_ns = now_ns + _SEAL_NS
        if pending is not None and pending.until_ns is not None and pending.until_ns < until_ns:
            until_ns = pending.until_ns
        for deadlines in self._deadlines:
            if deadlines and deadlines[0][0] < until_ns:
                until_ns = deadlines[0][0]
        loop = asyncio.get_running_loop()
        self._wake = loop.create_future()
        timer = loop.call_later(max(0, until_ns - now_ns) / 1e9, self._awake)
        try:
            await self._wake
        finally:
            timer.cancel()
            self._wake = None

    def _awake(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    async def close(self) -> None:
        """Record what is in flight as unknown, and stop the workers."""
        try:
            self._conclude_all()
        finally:
            workers = [*self._abandoned, *self._workers.values()]
            for worker in workers:
                worker.abandon()
            if not await _all_done([worker.task for worker in workers], _CLOSE_S):
                self._failures.record("client", TimeoutError("clients could not be closed in time"))

    def _conclude_all(self) -> None:
        self._generator = None
        self._absorb_completions()
        now_ns = self._recorder.now_ns()
        for bit, op in list(self._flying.items()):
            self._workers[bit].abandoned = True
            self._conclude(bit, op.complete("info", error_class="interrupted", error="the run was stopped"), now_ns)


async def _all_done(tasks: list[asyncio.Task[None]], timeout_s: float) -> bool:
    """Whether all tasks end in time; their results and errors are of no interest."""
    left = len(tasks)
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def ended(task: asyncio.Task[None]) -> None:
        nonlocal left
        left -= 1
        if not task.cancelled():
            task.exception()
        if left == 0 and not done.done():
            done.set_result(None)

    for task in tasks:
        task.add_done_callback(ended)
    try:
        async with asyncio.timeout(timeout_s):
            await done
    except TimeoutError:
        return False
    return True
