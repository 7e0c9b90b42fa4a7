"""The real network: framed messages over TCP, on asyncio or uvloop. Implements `harness.ports.api.Network`."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import msgspec

from harness.errors import UNDECODABLE
from harness.ports.api import Address, Channel, Handler, Hello, NotifyHandler, Peer, is_stranger
from harness.ports.eager import begin
from harness.ports.real.frames import FrameKind, FrameProtocol
from harness.ports.real.outgoing import Outgoing

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
