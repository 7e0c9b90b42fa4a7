"""The real network: framed messages over TCP, on asyncio or uvloop. Implements `harness.ports.api.Network`.

A frame is 4 bytes length, 1 byte kind, 8 bytes call id, payload; the length counts what follows it. A process keeps one
connection to each destination: it connects when needed, and again after a loss, with backoff.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable, Coroutine
from enum import IntEnum
from typing import Any, TypeAlias, cast

import msgspec

from harness.errors import UNDECODABLE
from harness.ports.api import (
    Address,
    CallLost,
    Channel,
    Handler,
    Hello,
    NotifyHandler,
    Peer,
    Refused,
    Unreachable,
    is_stranger,
)
from harness.ports.eager import begin

MAX_FRAME_BYTES = 256 << 20
SEND_BUFFER_BYTES = 64 << 20
"""With this much waiting to be sent on a connection, nothing more is taken, unless it is told otherwise."""
UNACKNOWLEDGED_MS = 3_000
"""A connection whose data stays unacknowledged this long is broken: a partition must not outlive its heal by
TCP's own, doubling retransmission times."""

_HEADER = struct.Struct(">IBQ")
_LENGTH_BYTES = 4


class FrameKind(IntEnum):
    """`REFUSE` answers a stranger's hello, with our own; `FAILED` answers a call whose handler raised."""

    HELLO = 0
    CALL = 1
    REPLY = 2
    NOTIFY = 3
    REFUSE = 4
    FAILED = 5


OnFrame: TypeAlias = Callable[["FrameProtocol", int, int, bytes], None]
OnLost: TypeAlias = Callable[["FrameProtocol"], None]


class FrameProtocol(asyncio.Protocol):
    """One TCP connection that carries frames; what is sent in one turn of the loop leaves in one write."""

    def __init__(self, on_frame: OnFrame, on_lost: OnLost, buffer_bytes: int = SEND_BUFFER_BYTES) -> None:
        self.closed = False
        self._buffer_bytes = buffer_bytes
        self._on_frame = on_frame
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._outgoing: list[bytes] = []
        self._outgoing_bytes = 0

    def send(self, kind: FrameKind, call_id: int, payload: bytes) -> bool:
        """Queue one frame; False if the connection is gone or its buffer full."""
        if self.closed or self._transport is None:
            return False
        waiting = self._outgoing_bytes + self._transport.get_write_buffer_size()
        if waiting and waiting + len(payload) > self._buffer_bytes:
            return False
        if not self._outgoing:
            self._loop.call_soon(self._flush)
        self._outgoing.append(_HEADER.pack(len(payload) + _HEADER.size - _LENGTH_BYTES, kind, call_id))
        self._outgoing.append(payload)
        self._outgoing_bytes += len(payload)
        return True

    def close(self) -> None:
        """Send what is queued, then close."""
        self._flush()
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close at once and drop what is queued."""
        self.closed = True
        if self._transport is not None:
            self._transport.abort()

    def _flush(self) -> None:
        frames, self._outgoing, self._outgoing_bytes = self._outgoing, [], 0
        if frames and not self.closed and self._transport is not None:
            self._transport.write(b"".join(frames))

    # ---- asyncio's side ----

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        _tune(transport.get_extra_info("socket"))

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        self._on_lost(self)

    def data_received(self, data: bytes) -> None:
        received = self._received
        received += data
        start, end = 0, len(received)
        while end - start >= _HEADER.size and not self.closed:
            length, kind, call_id = _HEADER.unpack_from(received, start)
            stop = start + _LENGTH_BYTES + length
            if not _HEADER.size - _LENGTH_BYTES <= length <= MAX_FRAME_BYTES:
                self.abort()
                return
            if stop > end:
                break
            payload = bytes(memoryview(received)[start + _HEADER.size : stop])
            start = stop
            self._on_frame(self, kind, call_id, payload)
        if start:
            del received[:start]


def _tune(sock: socket.socket) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_USER_TIMEOUT", UNACKNOWLEDGED_MS),
        ("TCP_KEEPIDLE", 2),
        ("TCP_KEEPINTVL", 1),
        ("TCP_KEEPCNT", 3),
    ):
        if hasattr(socket, name):  # not every system has each of them
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


CHANNEL_BUFFER_BYTES = {Channel.CONTROL: 4 << 20, Channel.LOG: 64 << 20, Channel.BULK: 8 << 20}
"""With this much waiting to be sent on a channel, nothing more is taken."""


class RealListener:
    """A listening socket and the connections it took. Implements `harness.ports.api.Listener`."""

    def __init__(self, hello: Hello, on_call: Handler, on_notify: NotifyHandler) -> None:
        self._hello = hello
        self._on_call = on_call
        self._on_notify = on_notify
        self._loop = asyncio.get_running_loop()
        self._server: asyncio.Server | None = None
        self._address = ""
        self._connections: dict[FrameProtocol, Peer | None] = {}
        self._tasks: dict[asyncio.Task[None], None] = {}

    @property
    def address(self) -> Address:
        return self._address

    async def open(self, address: Address) -> None:
        host, _, port = address.rpartition(":")
        self._server = await self._loop.create_server(self._protocol, host.strip("[]"), int(port))
        self._address = f"{host}:{self._server.sockets[0].getsockname()[1]}"

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for connection in list(self._connections):
            connection.abort()

    def _protocol(self) -> FrameProtocol:
        return FrameProtocol(self._on_frame, self._on_lost)

    def _on_lost(self, connection: FrameProtocol) -> None:
        self._connections.pop(connection, None)

    def _on_frame(self, connection: FrameProtocol, kind: int, call_id: int, payload: bytes) -> None:
        peer = self._connections.get(connection)
        if kind == FrameKind.HELLO:
            self._on_hello(connection, payload)
        elif peer is None:
            connection.abort()
        elif kind == FrameKind.CALL:
            self._begin(self._serve(connection, peer, call_id, payload))
        elif kind == FrameKind.NOTIFY:
            self._take(peer, payload)

    def _on_hello(self, connection: FrameProtocol, payload: bytes) -> None:
        try:
            theirs = msgspec.msgpack.decode(payload, type=Hello)
        except UNDECODABLE:
            connection.abort()
            return
        ours = msgspec.msgpack.encode(self._hello)
        if is_stranger(self._hello, theirs):
            connection.send(FrameKind.REFUSE, 0, ours)
            connection.close()
        else:
            self._connections[connection] = Peer(theirs.node_id, theirs.incarnation)
            connection.send(FrameKind.HELLO, 0, ours)

    def _take(self, peer: Peer, message: bytes) -> None:
        try:
            self._on_notify(peer, message)
        except Exception as error:  # noqa: BLE001 - a bug of the node's; it is logged and must not end the connection
            self._report(error)

    async def _serve(self, connection: FrameProtocol, peer: Peer, call_id: int, request: bytes) -> None:
        try:
            reply = await self._on_call(peer, request)
        except Exception as error:  # noqa: BLE001 - a bug of the node's; it is logged, the caller sees a lost call
            self._report(error)
            connection.send(FrameKind.FAILED, call_id, b"")
        else:
            connection.send(FrameKind.REPLY, call_id, reply)

    def _begin(self, serving: Coroutine[Any, Any, None]) -> None:
        """Most requests are answered at once; a task goes on with those that have to wait."""
        begun = begin(serving)
        if begun is not None:
            task = self._loop.create_task(begun)
            self._tasks[task] = None
            task.add_done_callback(lambda done: self._tasks.pop(done, None))

    def _report(self, error: Exception) -> None:
        self._loop.call_exception_handler({"message": "a network handler failed", "exception": error})


class RealNetwork:
    """Connections to and from one process; every one begins with a handshake in both directions.

    A channel has a connection of its own to each destination: bytes that wait on one hold nothing else up.
    """

    def __init__(self, hello: Hello) -> None:
        self._hello = hello
        self._outgoing: dict[tuple[Address, Channel], Outgoing] = {}
        self._listeners: list[RealListener] = []

    async def listen(self, address: Address, on_call: Handler, on_notify: NotifyHandler) -> RealListener:
        listener = RealListener(self._hello, on_call, on_notify)
        await listener.open(address)
        self._listeners.append(listener)
        return listener

    async def call(self, address: Address, request: bytes, timeout_s: float) -> bytes:
        return await self._to(address, Channel.LOG).call(request, timeout_s)

    def notify(self, address: Address, message: bytes, channel: Channel = Channel.LOG) -> None:
        self._to(address, channel).notify(message)

    async def close(self) -> None:
        for listener in self._listeners:
            await listener.close()
        for outgoing in self._outgoing.values():
            outgoing.close()
        self._listeners.clear()
        self._outgoing.clear()
        await asyncio.sleep(0)  # lets aborted connections finish closing

    def _to(self, address: Address, channel: Channel) -> Outgoing:
        outgoing = self._outgoing.get((address, channel))
        if outgoing is None:
            outgoing = self._outgoing[address, channel] = Outgoing(address, self._hello, CHANNEL_BUFFER_BYTES[channel])
        return outgoing


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
