"""How many requests of clients a node works on at a time; beyond, they are refused at once (G7)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from cluster.wire.messages import ErrorReply, encode
from harness.ports.api import Failpoints
from harness.ports.failpoints import linger

OVERLOADED = encode(ErrorReply("OVERLOADED", "this node has as many requests in hand as it takes", definite=True))


class Admission:
    """Counts requests in flight against a bound; whoever takes one in counts it."""

    def __init__(self, limit: int, failpoints: Failpoints) -> None:
        self._limit, self._failpoints = limit, failpoints
        self.in_flight = 0

    @property
    def full(self) -> bool:
        return self.in_flight >= self._limit

    async def carry(self, work: Callable[[], Awaitable[bytes]]) -> bytes:
        """Take a request in, and await its answer."""
        self.in_flight += 1
        try:
            if self._failpoints.armed:
                await linger(self._failpoints, "request.admitted")
            return await work()
        finally:
            self.in_flight -= 1


def malformed(error: Exception) -> bytes:
    """The answer to bytes that are no request of this version."""
    return encode(ErrorReply("INVALID", f"this is no request: {error}", definite=True))
