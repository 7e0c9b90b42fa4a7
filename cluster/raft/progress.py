"""What a leader knows of one follower (§3.5 nextIndex and matchIndex; §10.2.1 pipelining)."""

from __future__ import annotations

from collections import deque
from enum import IntEnum

NEVER_NS = -(1 << 62)


class Mode(IntEnum):
    """PROBE sends one batch and waits; REPLICATE pipelines optimistically; SNAPSHOT waits until one is installed."""

    PROBE = 0
    REPLICATE = 1
    SNAPSHOT = 2


class Progress:
    """`acked_ns` is the leader's own send time of the newest message this follower answered in this term.

    In SNAPSHOT mode `snapshot` is the index it waits for, `streaming` says that the driver is sending it, and
    `snapshot_ns` is when that ended.
    """

    __slots__ = (
        "acked_ns",
        "acked_round",
        "inflight",
        "match",
        "mode",
        "next",
        "paused",
        "snapshot",
        "snapshot_ns",
        "streaming",
    )

    def __init__(self, next_index: int) -> None:
        self.match = 0
        self.next = next_index
        self.mode = Mode.PROBE
        self.paused = False
        self.inflight: deque[int] = deque()
        self.acked_ns = NEVER_NS
        self.acked_round = 0
        self.snapshot = 0
        self.snapshot_ns = NEVER_NS
        self.streaming = False

    def probe(self, next_index: int) -> None:
        """Go back to one message at a time from `next_index`."""
        self.mode = Mode.PROBE
        self.next = next_index
        self.paused = False
        self.streaming = False
        self.inflight.clear()

    def await_snapshot(self, index: int) -> None:
        """Wait until the snapshot up to `index`, whose stream begins now, is installed."""
        self.mode = Mode.SNAPSHOT
        self.snapshot = index
        self.streaming = True
        self.inflight.clear()

    def stream_ended(self, delivered: bool, now_ns: int) -> None:
        """Wait for the answer of a follower that has it all, else begin anew with the next heartbeat."""
        self.streaming = False
        self.snapshot_ns = now_ns
        if not delivered:
            self.probe(self.match + 1)
            self.paused = True

    def matched(self, index: int) -> None:
        """The follower holds everything up to `index` durably."""
        if index > self.match:
            self.match = index
        if self.mode is Mode.SNAPSHOT:
            if self.match >= self.snapshot:
                self.probe(self.match + 1)
            return
        self.mode = Mode.REPLICATE
        if self.next <= self.match:
            self.next = self.match + 1
        inflight = self.inflight
        while inflight and inflight[0] <= self.match:
            inflight.popleft()

    def refusal_is_stale(self, refused: int) -> bool:
        """Whether a refused `prev_index` was overtaken by later answers (reordered or duplicated)."""
        if self.mode is Mode.SNAPSHOT:
            return True
        if self.mode is Mode.PROBE:
            return refused != self.next - 1
        return refused <= self.match and refused != self.next - 1
