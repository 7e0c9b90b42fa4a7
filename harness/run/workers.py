"""Workers: asyncio tasks that carry out one operation at a time, each for one thread of the interpreter."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from harness.errors import DefiniteError, HarnessError, IndefiniteError
from harness.history.ops import Op
from harness.ports.api import node_of
from harness.protocols import Client, Database, Nemesis
from harness.verdict.failures import FailureLog


class ClientPool(Protocol):
    """Opens clients for processes."""

    async def open(self, process: int) -> Client:
        """A new client; raises DefiniteError or IndefiniteError when the system can't be reached."""


class DatabaseClients:
    """The clients of a database, with one deadline for every operation."""

    def __init__(self, database: Database, timeout_s: float) -> None:
        self._database = database
        self._timeout_s = timeout_s

    async def open(self, process: int) -> Client:
        return await self._database.open_client(process, self._timeout_s)


class Executor(Protocol):
    """What a worker does with an invocation: returns its completion; raises nothing but CancelledError."""

    async def execute(self, op: Op) -> Op: ...

    async def close(self) -> None: ...


class ClientExecutor:
    """Carries out client operations for one thread, reopening the client when the process changes."""

    def __init__(self, pool: ClientPool, failures: FailureLog) -> None:
        self._pool = pool
        self._failures = failures
        self._client: Client | None = None
        self._process = -1

    async def execute(self, op: Op) -> Op:
        try:
            if self._process != op.process:
                await self._reopen(op.process)
        except (DefiniteError, IndefiniteError) as error:
            return op.complete("fail", error_class="no-client", error=str(error))
        except Exception as error:  # noqa: BLE001  a bug of ours: nothing was sent, so the operation failed for certain
            self._failures.record("client", error)
            return op.complete("fail", error_class="no-client", error=_words(error))
        assert self._client is not None
        return await _outcome(self._client.invoke, op, "client", self._failures)

    async def _reopen(self, process: int) -> None:
        await self.close()
        self._client = await self._pool.open(process)
        self._process = process

    async def close(self) -> None:
        client, self._client, self._process = self._client, None, -1
        if client is None:
            return
        try:
            await client.close()
        except Exception as error:  # noqa: BLE001  promised not to raise: a bug of ours, and no reason to stop
            self._failures.record("client", error)


class NemesisExecutor:
    """Carries out nemesis operations; a completed one is `info`, as in Jepsen.

    A nemesis that tells its own failures in a completion (`error_class` `harness`, with a value) has them recorded too.
    """

    def __init__(self, nemesis: Nemesis, failures: FailureLog) -> None:
        self._nemesis = nemesis
        self._failures = failures

    async def execute(self, op: Op) -> Op:
        completion = await _outcome(self._nemesis.invoke, op, "nemesis", self._failures)
        if completion.error_class == "harness" and isinstance(completion.value, dict):
            self._failures.record("nemesis", HarnessError(f"{op.f}: {completion.error}"))
        return completion if completion.type == "info" else completion.complete("info")

    async def close(self) -> None:
        """Nothing to release: the run tears the nemesis down."""


class Worker:
    """One task that takes an operation at a time and reports its completion.

    An abandoned worker has been given up (its operation took too long, or the run is over): it is cancelled and what it
    still reports is to be ignored.
    """

    def __init__(
        self, bit: int, executor: Executor, report: Callable[[Worker, Op], None], failures: FailureLog
    ) -> None:
        self.bit = bit
        self.abandoned = False
        self._executor = executor
        self._report = report
        self._failures = failures
        self._inbox: asyncio.Future[Op] = asyncio.get_running_loop().create_future()
        self.task = asyncio.create_task(self._work())

    def assign(self, op: Op) -> None:
        """Hand over an invocation; the worker must be idle."""
        self._inbox.set_result(op)

    def abandon(self) -> None:
        """Give up on it."""
        self.abandoned = True
        self.task.cancel()

    async def _work(self) -> None:
        create_future = asyncio.get_running_loop().create_future
        try:
            while True:
                op = await self._inbox
                self._inbox = create_future()
                self._report(self, await self._execute(op))
        finally:
            await self._executor.close()

    async def _execute(self, op: Op) -> Op:
        try:
            return await self._executor.execute(op)
        except asyncio.CancelledError as error:
            if self.abandoned:
                raise
            self._failures.record("client", error)
            return op.complete("info", error_class="harness", error="the client was cancelled from inside")


async def _outcome(invoke: Callable[[Op], Awaitable[Op]], op: Op, stage: str, failures: FailureLog) -> Op:
    """The completion by the typed errors: definite is `fail`, indefinite `info`, anything else `info` and our bug."""
    try:
        completion = await invoke(op)
    except DefiniteError as error:
        return op.complete("fail", error_class=error.kind, error=str(error))
    except IndefiniteError as error:
        return op.complete("info", error_class=error.kind, error=str(error))
    except Exception as error:  # noqa: BLE001  a bug of ours must cost neither the run nor its judgement
        failures.record(stage, error)
        return op.complete("info", error_class="harness", error=_words(error))
    if op.node is not None and completion.type == "ok" and node_of(completion.node or "") != op.node:
        failures.record(stage, HarnessError(f"a read sent to {op.node} was answered by {completion.node}"))
        return op.complete("info", error_class="harness", error=f"{completion.node} answered instead of {op.node}")
    if completion.type == "invoke" or completion.process != op.process:
        failures.record(stage, TypeError(f"the answer to {op.f} is no completion of it"))
        return op.complete("info", error_class="harness", error="the answer is no completion")
    return completion


def _words(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
