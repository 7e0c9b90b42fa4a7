"""How old a follower master's catalog is at most, so that it may answer what allows a bounded age (M13, KUDU-500).

A follower asks the leader how far the log is committed, and how long ago a quorum acknowledged the leader's last round.
When that round was sent nobody else can have led, so all that was committed by then lies within that index; once the
follower has applied that much, it is as old as that round. It dates the round by the moment at which it asked itself,
which was earlier than the answer: so no message's delay makes anything look younger than it is, and a leader that is
cut off from its quorum tells an age that grows, however well it is heard.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from cluster.groups.waiters import NotLeader, OutcomeUnknown
from cluster.raft.types import Configuration
from cluster.wire.messages import AskFreshness, FreshnessReply, decode_reply, encode
from harness.ports.api import CallLost, Ports, Refused, Unreachable

PATIENCE_S = 0.5
"""How long a question may wait for the leader's answer, and for what it names to be applied."""


class FollowedGroup(Protocol):
    """The part of `cluster.groups.group.Group` that a follower's age depends on."""

    @property
    def leader(self) -> str | None: ...

    @property
    def configuration(self) -> Configuration: ...

    async def applied(self, index: int, timeout_s: float) -> None: ...


class Freshness:
    """What one master knows of its own age; `max_drift` bounds how far any clock's rate is off."""

    def __init__(self, ports: Ports, group: FollowedGroup, max_drift: float) -> None:
        self._ports, self._group, self._max_drift = ports, group, max_drift
        self._as_of_ns: int | None = None
        self._asking: asyncio.Task[None] | None = None

    @property
    def age_ns(self) -> int | None:
        """How old the applied catalog is at most, now; None if nothing is known of that."""
        return None if self._as_of_ns is None else self._ports.clock.monotonic_ns() - self._as_of_ns

    async def at_most(self, bound_ns: int) -> int | None:
        """The age, after asking the leader where it is above the bound; it may be above it still."""
        age_ns = self.age_ns
        if age_ns is None or age_ns > bound_ns:
            if self._asking is None or self._asking.done():
                self._asking = asyncio.create_task(self._ask(), name="catalog.freshness")
            await asyncio.shield(self._asking)
        return self.age_ns

    def close(self) -> None:
        """Ask no more."""
        if self._asking is not None:
            self._asking.cancel()

    async def _ask(self) -> None:
        leader, asked_ns = self._group.leader, self._ports.clock.monotonic_ns()
        members = self._group.configuration.members
        address = next((member.address for member in members if member.server_id == leader), None)
        if address is None or leader == self._ports.node_id:
            return
        try:
            reply = decode_reply(await self._ports.network.call(address, encode(AskFreshness()), PATIENCE_S))
            if isinstance(reply, FreshnessReply):
                await self._group.applied(reply.index, PATIENCE_S)
                self._note(asked_ns, reply.age_ns)
        except (Unreachable, CallLost, Refused, NotLeader, OutcomeUnknown):
            return  # Nothing new is known, and what is known grows old.

    def _note(self, asked_ns: int, leader_age_ns: int) -> None:
        """The leader's age was measured by its own clock, which may be slow."""
        as_of_ns = asked_ns - round(leader_age_ns * (1 + 2 * self._max_drift))
        self._as_of_ns = as_of_ns if self._as_of_ns is None else max(self._as_of_ns, as_of_ns)
