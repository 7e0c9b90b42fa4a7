"""A leader replica notices that another one is dead past a limit, and has its group remove it (M11).

Nothing is evicted in doubt. Only a leader that holds Raft's lease counts: a majority has just answered it, and what it
has not heard for so long is not its own loss. Its count begins anew with each term, whenever it was in doubt itself,
and after a pause of its own. The change then is an ordinary one: it is refused where too few of the voters that would
be left are in contact (`cluster.raft.membership.loses_quorum`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping

from cluster.alarm import Alarm
from cluster.nodelog import node_logger
from cluster.raft.types import ChangeKind, Configuration, Member
from cluster.tserver.strategy import Strategy
from cluster.wire.messages import ChangeReplicas, ConfigurationReply
from harness.ports.api import Ports

LOOKS_PER_LIMIT = 8
LEAST_VOTERS = 3
"""A group of fewer evicts nobody: of two voters both are a majority."""

_CHANGE_S = 2.0
_MS = 1_000_000


class MemberSilence:
    """For how long a leader has not heard of the other members; a pure record, fed with what it sees at each look.

    Times are ns of the node's monotonic clock. Between two looks that count there are `gap_ns` at most.
    """

    def __init__(self, limit_ns: int, gap_ns: int) -> None:
        self._limit_ns, self._gap_ns = limit_ns, gap_ns
        self._looked_ns = 0
        """When it was looked at last."""
        self._term = -1
        """In which term."""
        self._since_ns: dict[str, int] = {}
        """By member since when it is silent: its last answer, but not before the first look that counts."""

    def look(self, now_ns: int, term: int, contacts: Mapping[str, int]) -> tuple[str, ...]:
        """Members that are silent past the limit; `contacts` tells when each answered last, empty in doubt."""
        if term != self._term or now_ns - self._looked_ns > self._gap_ns:
            self._since_ns = {}  # Another term, or this node paused itself: silence may have been its own.
        self._looked_ns, self._term = now_ns, term
        known = self._since_ns
        self._since_ns = {name: max(known.get(name, now_ns), at_ns) for name, at_ns in contacts.items()}
        return tuple(name for name, since_ns in self._since_ns.items() if now_ns - since_ns >= self._limit_ns)


def victim(configuration: Configuration, silent: Collection[str], replication_factor: int) -> Member | None:
    """Whom to remove: a learner first; of the voters no more than leaves a majority of as many as there should be."""
    for learner in configuration.learners:
        if learner.server_id in silent:
            return learner
    voters = configuration.voters
    if len(voters) < LEAST_VOTERS or len(voters) - 1 < replication_factor // 2 + 1:
        return None
    return next((voter for voter in voters if voter.server_id in silent), None)


class Evictions:
    """Looks at the groups led here, between `start` and `close`; `replicas` are those of the node by tablet."""

    def __init__(self, ports: Ports, limit_ms: int, replicas: Callable[[], Mapping[str, Strategy]]) -> None:
        self._clock, self._replicas = ports.clock, replicas
        self._limit_ns = limit_ms * _MS
        self._interval_ns = self._limit_ns // LOOKS_PER_LIMIT
        self._alarm = Alarm(ports.clock, self._look)
        self._silences: dict[str, MemberSilence] = {}
        self._busy: dict[str, asyncio.Task[None]] = {}
        self._log = node_logger(ports.node_id)

    def start(self) -> None:
        """Look from now on."""
        self._alarm.set(self._clock.monotonic_ns() + self._interval_ns)

    async def close(self) -> None:
        """Look no more, and break off what is under way."""
        self._alarm.cancel()
        tasks = list(self._busy.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _look(self) -> None:
        now_ns = self._clock.monotonic_ns()
        self._alarm.set(now_ns + self._interval_ns)
        known, self._silences = self._silences, {}
        for tablet_id, replica in self._replicas().items():
            term, contacts = replica.contacts()
            if contacts:
                silence = known.get(tablet_id) or MemberSilence(self._limit_ns, 2 * self._interval_ns)
                self._silences[tablet_id] = silence
                self._judge(tablet_id, replica, silence.look(now_ns, term, contacts))

    def _judge(self, tablet_id: str, replica: Strategy, silent: tuple[str, ...]) -> None:
        committed, in_force = replica.configurations()
        if not silent or committed != in_force or tablet_id in self._busy:
            return
        member = victim(committed, silent, replica.created.replication_factor)
        if member is not None:
            self._busy[tablet_id] = asyncio.create_task(self._evict(tablet_id, replica, committed, member))

    async def _evict(self, tablet_id: str, replica: Strategy, configuration: Configuration, member: Member) -> None:
        request = ChangeReplicas(
            tablet_id,
            ChangeKind.REMOVE,
            member.server_id,
            member.address,
            configuration.term,
            configuration.index,
            _CHANGE_S,
        )
        try:
            reply = await replica.change_configuration(request)
        finally:
            del self._busy[tablet_id]
        outcome = "evicted" if isinstance(reply, ConfigurationReply) else f"not evicted: {reply.message}"
        self._log.info("%s: %s is silent for %d ms: %s", tablet_id, member.server_id, self._limit_ns // _MS, outcome)
