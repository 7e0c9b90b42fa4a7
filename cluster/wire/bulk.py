"""Bytes that can wait: a bounded queue with deadlines, released below a rate (G6); pure."""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")

_BURST_NS = 50_000_000
"""An idle queue saves up what it may send in this time, not more."""


class BulkQueue(Generic[T]):
    """At most `limit_bytes` wait, none longer than `patience_ns`; `rate_bytes_per_s` is a token bucket's (RFC 2697).

    `dropped` counts what was refused for want of room or has waited too long.
    """

    def __init__(self, rate_bytes_per_s: int, limit_bytes: int, patience_ns: int) -> None:
        self._rate, self._limit, self._patience_ns = rate_bytes_per_s, limit_bytes, patience_ns
        self._waiting: deque[tuple[int, int, T]] = deque()
        self._bytes = 0
        self._free_ns = 0
        self.dropped = 0

    def put(self, item: T, size: int, now_ns: int) -> None:
        """Queue an item of `size` bytes; one alone is always taken."""
        if self._waiting and self._bytes + size > self._limit:
            self.dropped += 1
            return
        self._waiting.append((now_ns + self._patience_ns, size, item))
        self._bytes += size

    def release(self, now_ns: int) -> list[T]:
        """What may leave now, in order."""
        leaving = []
        while self._waiting and (self._free_ns <= now_ns or self._waiting[0][0] <= now_ns):
            deadline_ns, size, item = self._waiting.popleft()
            self._bytes -= size
            if deadline_ns <= now_ns:
                self.dropped += 1
                continue
            leaving.append(item)
            self._free_ns = max(self._free_ns, now_ns - _BURST_NS) + size * 1_000_000_000 // self._rate
        return leaving

    @property
    def next_ns(self) -> int | None:
        """When `release` has something to do, if anything waits."""
        return min(self._free_ns, self._waiting[0][0]) if self._waiting else None
