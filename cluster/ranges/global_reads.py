"""Strong reads by what is closed ahead of time, at any replica (R6); and answers that wait for their timestamps.

A table whose policy is `global` is closed ahead of the clock. A strong read is begun at r, by the clock of the node
that was asked first. Whatever was acknowledged before has a timestamp of at most r plus the maximum offset, the
*limit*: so a replica at which the limit is closed has all of it. A version between the two is *uncertain*: it may
have been acknowledged before the read began, by a node whose clock is ahead. The read moves up to it, all its keys.

No answer leaves before its node's clock has passed every timestamp in it (commit wait): of a write, or the next reader,
whose clock is behind, would miss what was acknowledged; and of a read, or that one would miss what this one saw. It
follows the timestamps, whatever the policy is by then: what was written ahead of time under one shows under the next.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias

import msgspec

from cluster.groups.group import Group
from cluster.ranges import requests
from cluster.ranges.closed_here import ClosedHere
from cluster.ranges.observer import RangeObserver
from cluster.ranges.requests import Read
from cluster.ranges.tablet import TabletMachine
from cluster.store.cells import Span
from cluster.store.intents import OpenIntent
from cluster.store.node_clock import NodeClock
from cluster.wire.messages import Done, ErrorReply, ReadReply, RowsReply, decode_reply, encode
from cluster.wire.rows import TypedRowsReply
from cluster.wire.staleness import HowServed, KnownBy, Path
from harness.ports.api import Clock

ByLease: TypeAlias = Callable[[Read], Coroutine[Any, Any, bytes]]
"""Reads strongly by the lease."""

LOOK_S = 0.01
"""How long to wait at least before the clock is looked at again."""

Shows: TypeAlias = Done | ReadReply | RowsReply | TypedRowsReply
"""What has timestamps."""


class GlobalReads:
    """Of one replica; `attach` it to its group when that is open. What can't be served by what is closed goes
    `by_lease` where this replica holds that, and is refused with NOT_CLOSED elsewhere."""

    def __init__(
        self,
        max_offset_ns: int,
        machine: TabletMachine,
        closed: ClosedHere,
        holds: Callable[[], bool],
        by_lease: ByLease,
        flaws: frozenset[str],
    ) -> None:
        self._max_offset_ns, self._machine, self._closed = max_offset_ns, machine, closed
        self._holds, self._by_lease, self._flaws = holds, by_lease, flaws
        self.observer = RangeObserver()
        self._log: Group | None = None
        self._group_id = ""

    def attach(self, log: Group, group_id: str) -> None:
        """The replica's group is open."""
        self._log, self._group_id = log, group_id

    async def read(self, read: Read, begun: int, blocked_ns: int = 0) -> bytes:
        """A strong read that was `begun` then, which is fixed, to its answer: an encoded reply or ErrorReply.

        `blocked_ns` is how long it has waited for what lay in its way by now. Raises OpenIntent.
        """
        spans = requests.spans_of(read)
        if not spans:
            return encode(ErrorReply("INVALID", "a read of no rows", definite=True))
        limit = self.limit(begun)
        known_by = None if self._log is None or self._log.installing else self._closed.closed_by(limit)
        if known_by is not None and begun >= self._machine.threshold:
            return self._serve(read, begun, spans, known_by, blocked_ns)
        if self._holds():
            return self._told(await self._by_lease(read), self._served("leaseholder", "", begun, blocked_ns))
        return self._not_closed(begun, limit, blocked_ns)

    def limit(self, begun: int) -> int:
        """What was acknowledged before a read began by any clock within the bounds lies at or below."""
        return begun + self._max_offset_ns

    def _serve(self, read: Read, begun: int, spans: tuple[Span, ...], known_by: KnownBy, blocked_ns: int) -> bytes:
        timestamp = self._moved(begun, spans)
        found = requests.carry_out(read, spans, self._machine, timestamp)
        self.observer.closed_read_answered(self._group_id, read, spans, timestamp, found, self._machine)
        path: Path = "global-at-leaseholder" if self._holds() else "global"
        served = self._served(path, known_by, begun, blocked_ns)
        return encode(found if isinstance(found, ErrorReply) else msgspec.structs.replace(found, served=served))

    def _moved(self, begun: int, spans: tuple[Span, ...]) -> int:
        """The highest time up to the limit at which anything was written there, and no lower than the begin. As it is
        of all spans, nothing between it and the limit is left uncertain.

        Raises OpenIntent for what is not decided up to there. An intent above the limit was laid after the read began,
        and says nothing of the versions below it.
        """
        limit = begun if "global-limit-ignored" in self._flaws else self.limit(begun)
        lowest = self._machine.lowest_intent(spans)
        if lowest is not None and lowest[1].timestamp <= limit:
            raise OpenIntent(*lowest, limit)
        if lowest is not None and "intent-hides-uncertain" in self._flaws:
            return begun
        return max(begun, *(self._machine.newest_by(span, limit) for span in spans))

    def _not_closed(self, begun: int, limit: int, blocked_ns: int) -> bytes:
        message = f"a strong read needs what is closed up to {limit}, and here that is known up to"
        leader = None if self._log is None else self._log.leader
        served = self._served("global", "", begun, blocked_ns)
        known = f"{message} {self._closed.highest()}"
        return encode(ErrorReply("NOT_CLOSED", known, definite=True, leader=leader, served=served))

    def _served(self, path: Path, known_by: KnownBy, begun: int, blocked_ns: int) -> HowServed:
        return HowServed(path, known_by, begun, self._closed.highest(), 0, blocked_ns)

    def _told(self, answer: bytes, served: HowServed) -> bytes:
        """An answer by the lease, with what it says of how it was served."""
        reply = decode_reply(answer)
        if isinstance(reply, ErrorReply | ReadReply | RowsReply | TypedRowsReply):
            return encode(msgspec.structs.replace(reply, served=served))
        return answer


class CommitWait:
    """Keeps answers back until the own clock has passed their timestamps; no latch is held by then."""

    def __init__(self, clock: NodeClock, sleeper: Clock, timeout_s: float, flaws: frozenset[str]) -> None:
        self._clock, self._sleep, self._monotonic_ns = clock, sleeper.sleep, sleeper.monotonic_ns
        self._timeout_ns = int(timeout_s * 1e9)
        self._never, self._by_policy = "global-no-commit-wait" in flaws, "wait-by-policy" in flaws

    async def over(self, answer: bytes, ahead: bool) -> bytes:
        """The answer once it may leave, or that time is over; `ahead`: the range is closed ahead of time by now.

        A reading above the timestamp is given out first: so is every one from then on.
        """
        reply = decode_reply(answer)
        if not isinstance(reply, Done | ReadReply | RowsReply | TypedRowsReply) or reply.timestamp <= self._clock.last:
            return answer
        if self._never or (self._by_policy and not ahead):
            return answer
        began_ns = self._monotonic_ns()
        while (left := reply.timestamp - self._clock.reading()) >= 0:
            if self._monotonic_ns() - began_ns >= self._timeout_ns:
                message = "this node's clock did not come to the answer's timestamp within the deadline"
                return encode(ErrorReply("TIMED_OUT", message, definite=not isinstance(reply, Done)))
            await self._sleep(max(left / 1e9, LOOK_S))
        return encode(_waited(reply, self._monotonic_ns() - began_ns))


def _waited(reply: Shows, ns: int) -> Shows:
    """The answer, which says how long it was kept back."""
    if isinstance(reply, Done):
        return msgspec.structs.replace(reply, waited_ns=ns)
    if reply.served is msgspec.UNSET:
        return reply
    blocked_ns = reply.served.blocked_ns + ns
    return msgspec.structs.replace(reply, served=msgspec.structs.replace(reply.served, blocked_ns=blocked_ns))
