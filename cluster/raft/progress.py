"""What a leader knows of one follower (§3.5 nextIndex and matchIndex; §10.2.1 pipelining)."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import IntEnum

NEVER_NS = -(1 << 62)


class Mode(IntEnum):
    """PROBE sends one batch and waits; REPLICATE pipelines optimistically; SNAPSHOT waits until one is installed."""

    PROBE = 0
    REPLICATE = 1
    SNAPSHOT = 2


@dataclass(slots=True, eq=False)
class Progress:
    """What the leader knows of one other member.

    Invariant in REPLICATE mode: 0 <= match < next, and what is in flight lies between. In SNAPSHOT mode `next` stands
    still, and a refusal that comes late may have a probe begin at or below `match`.
    """

    # The next entry to send.
    next: int
    # The follower's log agrees with the leader's up to here, and is durable. Never falls in a term.
    match: int = 0
    mode: Mode = Mode.PROBE
    # In PROBE mode: a batch is under way, and nothing more is sent until it is answered or a heartbeat is due.
    paused: bool = False
    # In REPLICATE mode: the last indexes of batches that are not acknowledged, rising; at most `max_inflight`.
    inflight: deque[int] = field(default_factory=deque)
    # When the leader sent the newest message that this follower has answered in this term, by the leader's clock.
    acked_ns: int = NEVER_NS
    # The newest round of heartbeats that it has answered (§6.4).
    acked_round: int = 0
    # In SNAPSHOT mode: up to where the awaited snapshot reaches, whether the driver is sending it, and when that ended.
    snapshot: int = 0
    streaming: bool = False
    snapshot_ns: int = NEVER_NS

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
