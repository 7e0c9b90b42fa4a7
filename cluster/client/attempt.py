"""One attempt of a request, its outcome by what may have taken effect; the pace of retries, and whom to ask next."""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeVar

from cluster.wire.messages import ErrorReply, Reply, decode_reply
from harness.errors import DefiniteError, IndefiniteError
from harness.ports.api import CallLost, Clock, Network, Refused, Unreachable

NANOS_PER_S = 1_000_000_000

TOO_EARLY = ("TRY_AGAIN", "UNKNOWN_ZONE", "TOO_FEW_NODES")
"""Error replies of a leader master that has not heard of enough tablet servers as yet; nobody else knows better."""

RETRIED_ERRORS = (
    "NOT_THE_LEADER",
    "NO_LEASE",
    "CLOCK_FENCED",
    "SHUTTING_DOWN",
    "TIMED_OUT",
    "OVERLOADED",
    *TOO_EARLY,
    "SCHEMA_BEHIND",
    "TOO_STALE",
    "INTENT_OPEN",
    "NOT_CLOSED",
)
"""Error replies that another attempt, at this or another replica, may get past."""


ReplyType = TypeVar("ReplyType")


class Miss(Enum):
    """Why an attempt brought no reply: never sent, lost on the way there or back, or refused."""

    UNREACHABLE = "unreachable"
    LOST = "lost"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Missed:
    """An attempt without a reply; `possible` says that it may have taken effect."""

    miss: Miss
    possible: bool
    kind: str
    message: str
    error_reply: ErrorReply | None = None


def attempt(network: Network, address: str, payload: bytes, timeout_s: float) -> Coroutine[Any, Any, Reply | Missed]:
    """Send one request; a `ErrorReply` comes back as Missed."""
    return attempt_as(decode_reply, network, address, payload, timeout_s)


async def attempt_as(
    decode: Callable[[bytes], ReplyType | ErrorReply], network: Network, address: str, payload: bytes, timeout_s: float
) -> ReplyType | Missed:
    """Send one request whose reply is of a family of its own, which `decode` reads."""
    try:
        reply = decode(await network.call(address, payload, timeout_s))
    except (Unreachable, Refused) as error:
        return Missed(Miss.UNREACHABLE, False, "unreachable", str(error) or f"{address} can't be reached")
    except CallLost as error:
        return Missed(Miss.LOST, True, "timeout", str(error) or f"{address} did not answer in time")
    if type(reply) is ErrorReply:
        kind = reply.kind.lower().replace("_", "-")
        return Missed(Miss.REFUSED, not reply.definite, kind, reply.message, reply)
    return reply


_NO_ATTEMPT = Missed(Miss.UNREACHABLE, False, "timeout", "there was no time for an attempt")


class Trial:
    """One operation's deadline, the pause before its next attempt, and whether any attempt may have taken effect."""

    def __init__(self, clock: Clock, entropy: random.Random, timeout_s: float, attempt_timeout_s: float) -> None:
        self._clock = clock
        self._entropy = entropy
        self._deadline_ns = clock.monotonic_ns() + int(timeout_s * NANOS_PER_S)
        self._attempt_timeout_s = attempt_timeout_s
        self._pause_s = 0.01
        self._possible: Missed | None = None
        self._last = _NO_ATTEMPT
        self.on_miss: Callable[[Missed], object] = lambda _: None
        """Called with each attempt that brought no reply."""

    @property
    def remaining_s(self) -> float:
        return (self._deadline_ns - self._clock.monotonic_ns()) / NANOS_PER_S

    @property
    def over(self) -> bool:
        return self._deadline_ns - self._clock.monotonic_ns() < NANOS_PER_S // 1000

    @property
    def attempt_timeout_s(self) -> float:
        """For the next attempt: well below the whole deadline, so that there is time to ask another replica."""
        remaining_s = (self._deadline_ns - self._clock.monotonic_ns()) / NANOS_PER_S
        if remaining_s > self._attempt_timeout_s:
            return self._attempt_timeout_s
        return max(remaining_s, 0.001)

    def be_patient(self, attempt_timeout_s: float) -> None:
        """Give the attempts from now on so long: what is asked takes its time where nothing is wrong."""
        self._attempt_timeout_s = max(self._attempt_timeout_s, attempt_timeout_s)

    @property
    def possible(self) -> bool:
        """Whether an attempt may have taken effect."""
        return self._possible is not None

    def note(self, missed: Missed) -> None:
        self._last = missed
        self.on_miss(missed)
        if missed.possible:
            self._possible = missed

    async def pause(self) -> None:
        """Wait before the next attempt: 10 ms to 320 ms, doubling, with jitter, never past the deadline."""
        wait_s = self._pause_s * (0.5 + self._entropy.random())
        self._pause_s = min(self._pause_s * 2, 0.32)
        await self._clock.sleep(max(0.0, min(wait_s, self.remaining_s)))

    def error(self) -> DefiniteError | IndefiniteError:
        """What the operation ends with: definite only if no attempt can have taken effect."""
        if self._possible is not None:
            return IndefiniteError(self._possible.kind, self._possible.message)
        return DefiniteError(self._last.kind, self._last.message)


class Route:
    """Whom to ask next among the replicas of a group: one, until it fails or refuses, then its hint or the next.

    A hint is not followed back to the target that failed last: it may be dead while others still believe in it.
    """

    def __init__(self, targets: Sequence[str], first: str | None = None) -> None:
        self._targets = tuple(targets)
        self._current = first if first in self._targets else self._targets[0]
        self._failed: str | None = None
        self._misses = 0

    @property
    def targets(self) -> tuple[str, ...]:
        return self._targets

    @property
    def current(self) -> str:
        return self._current

    @property
    def exhausted(self) -> bool:
        """Whether as many attempts missed in a row as there are targets: the targets may be out of date."""
        return self._misses >= len(self._targets)

    def succeeded(self) -> None:
        self._failed = None
        self._misses = 0

    def refreshed(self) -> None:
        """The targets were confirmed by who knows."""
        self._misses = 0

    def retarget(self, targets: Sequence[str]) -> None:
        """The group has other members now."""
        self._targets = tuple(targets)
        if self._current not in self._targets:
            self._current = self._targets[0]

    def failed(self) -> None:
        """The current target did not answer."""
        self._failed = self._current
        self._go_round()

    def refused(self, hint: str | None) -> bool:
        """The current target does not lead; True if its hint is worth following at once."""
        if hint is None or hint not in self._targets or hint in (self._current, self._failed):
            self._go_round()
            return False
        self._misses += 1
        self._current = hint
        return self._misses < len(self._targets)

    def _go_round(self) -> None:
        self._misses += 1
        self._current = self._targets[(self._targets.index(self._current) + 1) % len(self._targets)]
