"""Who the masters are, told beside answers (G1), so that whoever works learns of each change wherever it works.

A request may begin with a mark and the index of the latest configuration of the masters that its sender knows. Where
the answerer knows of a later one its answer begins with that; else it is as long as ever. Tablet servers ask so with
each heartbeat, clients once in a while.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec

from cluster.wire.nouns import Replica
from harness.ports.api import Handler, Peer

_MARK = b"\xc0"
"""MessagePack's nil, with which no message begins."""

_ASKING = struct.Struct(">cQ")
_ANSWERED = struct.Struct(">cI")


class KnownMasters(msgspec.Struct, frozen=True, array_like=True):
    """The members of the masters' group in the committed configuration that was set at `index`, 0 for those that a
    node or client was started with."""

    index: int
    masters: tuple[Replica, ...]


_encode = msgspec.msgpack.Encoder().encode
decode_masters = msgspec.msgpack.Decoder(KnownMasters).decode


def asking(request: bytes, known_index: int) -> bytes:
    """The request, whose answer tells the masters if they are known better there."""
    return _ASKING.pack(_MARK, known_index) + request


def request_itself(payload: bytes) -> bytes:
    """The request of a payload, which may ask for the masters before it."""
    return payload[_ASKING.size :] if _asks(payload) else payload


def _asks(payload: bytes) -> bool:
    return payload[:1] == _MARK and len(payload) >= _ASKING.size


def masters_in(answer: bytes) -> tuple[KnownMasters | None, bytes]:
    """What an answer tells of the masters, and the answer itself; raises UNDECODABLE."""
    if answer[:1] != _MARK:
        return None, answer
    end = _ANSWERED.size + (_ANSWERED.unpack_from(answer)[1] if len(answer) >= _ANSWERED.size else 0)
    return decode_masters(answer[_ANSWERED.size : end]), answer[end:]


def telling(on_call: Handler, known: Callable[[], KnownMasters]) -> Handler:
    """A handler of calls that tells those who ask what is `known` of the masters."""

    def answer(peer: Peer, payload: bytes) -> Coroutine[Any, Any, bytes]:
        return tell(peer, payload) if _asks(payload) else on_call(peer, payload)

    async def tell(peer: Peer, payload: bytes) -> bytes:
        reply = await on_call(peer, request_itself(payload))
        latest = known()
        if latest.index <= _ASKING.unpack_from(payload)[1]:
            return reply
        masters = _encode(latest)
        return _ANSWERED.pack(_MARK, len(masters)) + masters + reply

    return answer
