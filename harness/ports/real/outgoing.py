"""The one connection a process keeps to each destination: connects when needed, again after a loss, with backoff."""

from __future__ import annotations

import asyncio

import msgspec

from harness.errors import UNDECODABLE
from harness.ports.api import Address, CallLost, Hello, Refused, Unreachable, is_stranger
from harness.ports.real.frames import FrameKind, FrameProtocol

CONNECT_TIMEOUT_S = 1.0
FIRST_BACKOFF_S = 0.02
LONGEST_BACKOFF_S = 1.0


class Outgoing:
    """Calls and notifications to one address, in order, over one connection.

    A call always tries to connect; notifications only start a connection, and not more often than the backoff allows.
    """

    def __init__(self, address: Address, hello: Hello, buffer_bytes: int) -> None:
        self._address = address
        self._hello = hello
        self._buffer_bytes = buffer_bytes
        self._loop = asyncio.get_running_loop()
        self._connection: FrameProtocol | None = None
        self._attempt: asyncio.Task[Exception | None] | None = None
        self._greeting: asyncio.Future[None] | None = None
        self._calls: dict[int, asyncio.Future[bytes]] = {}
        self._next_call = 0
        self._backoff_s = FIRST_BACKOFF_S
        self._not_before_s = 0.0

    async def call(self, request: bytes, timeout_s: float) -> bytes:
        deadline_s = self._loop.time() + timeout_s
        if self._connection is None:
            await self._connect(timeout_s)
        self._next_call += 1
        call_id = self._next_call
        if self._connection is None or not self._connection.send(FrameKind.CALL, call_id, request):
            raise Unreachable(f"the connection to {self._address} takes nothing more")
        future: asyncio.Future[bytes] = self._loop.create_future()
        self._calls[call_id] = future
        timer = self._loop.call_at(deadline_s, _lose, future, f"no answer within {timeout_s:.3g} s")
        try:
            return await future
        finally:
            timer.cancel()
            self._calls.pop(call_id, None)

    def notify(self, message: bytes) -> None:
        if self._connection is not None:
            self._connection.send(FrameKind.NOTIFY, 0, message)
        elif self._attempt is None and self._loop.time() >= self._not_before_s:
            self._start_attempt()

    def close(self) -> None:
        if self._attempt is not None:
            self._attempt.cancel()
        if self._connection is not None:
            self._connection.abort()
        self._drop("the network was closed")

    # ---- connecting ----

    async def _connect(self, timeout_s: float) -> None:
        attempt = self._attempt if self._attempt is not None else self._start_attempt()
        if not (await asyncio.wait((attempt,), timeout=timeout_s))[0]:
            raise Unreachable(f"no connection to {self._address} within {timeout_s} s")
        failure = attempt.result()
        if failure is not None:
            raise type(failure)(str(failure))

    def _start_attempt(self) -> asyncio.Task[Exception | None]:
        self._attempt = self._loop.create_task(self._try_to_connect())
        return self._attempt

    async def _try_to_connect(self) -> Exception | None:
        """Connect and shake hands; answers how it failed, or None."""
        connection: FrameProtocol | None = None
        try:
            host, _, port = self._address.rpartition(":")
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                _, connection = await self._loop.create_connection(self._protocol, host.strip("[]"), int(port))
                self._greeting = self._loop.create_future()
                connection.send(FrameKind.HELLO, 0, msgspec.msgpack.encode(self._hello))
                await self._greeting
            self._connection = connection
            self._backoff_s = FIRST_BACKOFF_S
            return None
        except asyncio.CancelledError:  # by `close`; who waits for the connection was not cancelled
            return Unreachable("the network was closed")
        except (OSError, TimeoutError, Refused, ValueError, OverflowError) as error:  # The latter two: no address.
            self._not_before_s = self._loop.time() + self._backoff_s
            self._backoff_s = min(2 * self._backoff_s, LONGEST_BACKOFF_S)
            return error if isinstance(error, Refused) else Unreachable(f"no connection to {self._address}: {error}")
        finally:
            self._attempt = None
            self._greeting = None
            if connection is not None and connection is not self._connection:
                connection.abort()

    def _protocol(self) -> FrameProtocol:
        return FrameProtocol(self._on_frame, self._on_lost, self._buffer_bytes)

    # ---- what comes back ----

    def _on_frame(self, connection: FrameProtocol, kind: int, call_id: int, payload: bytes) -> None:
        if kind in (FrameKind.HELLO, FrameKind.REFUSE):
            self._on_hello(connection, kind, payload)
            return
        future = self._calls.pop(call_id, None)
        if future is None or future.done():
            return
        if kind == FrameKind.REPLY:
            future.set_result(payload)
        else:
            future.set_exception(CallLost("the handler failed"))

    def _on_hello(self, connection: FrameProtocol, kind: int, payload: bytes) -> None:
        greeting = self._greeting
        if greeting is None or greeting.done():
            return
        try:
            theirs = msgspec.msgpack.decode(payload, type=Hello)
        except UNDECODABLE:
            connection.abort()
            return
        if kind == FrameKind.REFUSE or is_stranger(self._hello, theirs):
            greeting.set_exception(Refused(f"{self._address} is {describe(theirs)}, not {describe(self._hello)}"))
        else:
            greeting.set_result(None)

    def _on_lost(self, connection: FrameProtocol) -> None:
        if self._greeting is not None and not self._greeting.done():
            self._greeting.set_exception(ConnectionResetError("the connection broke in the handshake"))
        if connection is self._connection:
            self._drop(f"the connection to {self._address} broke")

    def _drop(self, reason: str) -> None:
        self._connection = None
        calls, self._calls = self._calls, {}
        for future in calls.values():
            _lose(future, reason)


def describe(hello: Hello) -> str:
    return f"{hello.cluster_id} (version {hello.version})"


def _lose(future: asyncio.Future[bytes], reason: str) -> None:
    if not future.done():
        future.set_exception(CallLost(reason))
