"""Frames over TCP: 4 bytes length, 1 byte kind, 8 bytes call id, payload; the length counts what follows it."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable
from enum import IntEnum
from typing import TypeAlias, cast

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
