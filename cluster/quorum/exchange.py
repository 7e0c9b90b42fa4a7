"""Carries out what a read under way decides, over the network: each question beside the others (Q1).

What has to be decided is pure and of a design (`cluster.quorum.reading`, `cluster.quorum.logged_reading`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

from cluster.quorum.calls import ReplicaCalls, Unanswered
from cluster.quorum.messages import QuorumReply, ReplicaRequest
from cluster.quorum.performing import Performance
from cluster.quorum.reading import GiveUp, PageFound
from cluster.quorum.replica_sets import Endpoint, ReplicaSet
from harness.ports.api import Ports
from harness.ports.failpoints import ANY, pass_by

_PATIENCE = 0.3
"""Of a read's time a replica gets so much to answer, where another one can stand in for it."""


class Question(Protocol):
    """Something to ask one replica: the failpoint to pass before, and whether it is asked `brief`ly."""

    @property
    def endpoint(self) -> Endpoint: ...

    @property
    def point(self) -> str | None: ...

    @property
    def brief(self) -> bool: ...

    def request(self, replicas: ReplicaSet) -> ReplicaRequest:
        """What is sent."""


Q = TypeVar("Q", bound=Question)


class Read(Protocol[Q]):
    """A read under way: what comes of its questions is told to it, and it says what to do."""

    def begin(self) -> Sequence[Q | PageFound | GiveUp]: ...

    def on_answer(self, asked: Q, reply: QuorumReply) -> Sequence[Q | PageFound | GiveUp]: ...

    def on_missed(self, asked: Q) -> Sequence[Q | PageFound | GiveUp]: ...


class Exchange(Generic[Q]):
    """One read, to its end."""

    def __init__(
        self, ports: Ports, calls: ReplicaCalls, replicas: ReplicaSet, timeout_s: float, read: Read[Q]
    ) -> None:
        self._ports, self._calls, self._replicas = ports, calls, replicas
        self._read, self._timeout_s = read, timeout_s

    async def run(self) -> PageFound | GiveUp:
        """The end of the read; raises TimeoutError."""
        performance: Performance[Q, PageFound | GiveUp] = Performance("quorum.read", self._put, PageFound, GiveUp)
        return await performance.run(self._read.begin(), self._timeout_s)

    async def _put(self, question: Q) -> Sequence[Q | PageFound | GiveUp]:
        if question.point is not None and not {question.point, ANY}.isdisjoint(self._ports.failpoints.armed):
            await pass_by(self._ports.failpoints, question.point, self._replicas.tablet_id)
            await self._ports.clock.sleep(0)  # in the simulator, who stops itself ends its turn: it must ask nothing
        timeout_s = self._timeout_s * _PATIENCE if question.brief else self._timeout_s
        try:
            reply = await self._calls.ask(question.endpoint, question.request(self._replicas), timeout_s)
        except Unanswered:
            return self._read.on_missed(question)
        return self._read.on_answer(question, reply)
