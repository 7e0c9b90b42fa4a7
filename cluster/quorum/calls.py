"""Requests from a coordinator to replicas, its own node's among them, and how instructions become tasks that send them.

Reads (`cluster.quorum.read_repair`) and reconciliations (`cluster.quorum.mutation_reconciliation`) take events in and
give instructions out; what they share is how these are carried out, each beside the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from enum import Enum
from typing import Generic, TypeAlias, TypeVar, cast

from cluster.quorum.messages import QuorumReply, ReplicaRequest, decode_quorum_reply, encode_quorum_request
from cluster.quorum.replica_sets import Endpoint, Snitch
from cluster.wire.messages import ErrorReply
from harness.errors import UNDECODABLE
from harness.ports.api import CallLost, Clock, Network, Refused, Unreachable

AskOwn: TypeAlias = Callable[[ReplicaRequest], Awaitable[QuorumReply]]
"""Asks the replica on this very node."""


class Delivery(Enum):
    """What came of sending a mutation to one replica."""

    DURABLE = "durable"
    """It is in the replica's log, and synced."""
    REFUSED = "refused"
    """The replica said that it did not take it."""
    UNSENT = "unsent"
    """There was no way there."""
    LOST = "lost"
    """No answer in time: it may have taken it."""


class Unanswered(Exception):
    """A replica gave no answer; `delivery` says whether the request may have been carried out there."""

    def __init__(self, delivery: Delivery, reason: str) -> None:
        super().__init__(reason)
        self.delivery = delivery


class ReplicaCalls:
    """Asks replicas, and tells the snitch how long they took."""

    def __init__(self, server_id: str, network: Network, clock: Clock, snitch: Snitch, own: AskOwn) -> None:
        self._server_id, self._network, self._clock = server_id, network, clock
        self._snitch, self._own = snitch, own

    async def ask(self, endpoint: Endpoint, request: ReplicaRequest, timeout_s: float) -> QuorumReply:
        """The replica's answer; raises Unanswered, also where the replica refused."""
        began_ns = self._clock.monotonic_ns()
        try:
            reply = await self._ask(endpoint, request, timeout_s)
        finally:
            self._snitch.took(endpoint.node_id, (self._clock.monotonic_ns() - began_ns) / 1e9)
        if isinstance(reply, ErrorReply):
            raise Unanswered(Delivery.REFUSED if reply.definite else Delivery.LOST, f"{reply.kind}: {reply.message}")
        return reply

    async def _ask(self, endpoint: Endpoint, request: ReplicaRequest, timeout_s: float) -> QuorumReply:
        if endpoint.node_id == self._server_id:
            try:
                async with asyncio.timeout(timeout_s):
                    return await self._own(request)
            except TimeoutError:
                raise Unanswered(Delivery.LOST, "the own replica did not answer in time") from None
            except OSError as error:
                raise Unanswered(Delivery.LOST, f"the own replica failed: {error}") from error
        try:
            answer = await self._network.call(endpoint.address, encode_quorum_request(request), timeout_s)
            reply: QuorumReply = decode_quorum_reply(answer)
        except (Unreachable, Refused) as error:
            raise Unanswered(Delivery.UNSENT, str(error) or f"{endpoint.node_id} can't be reached") from error
        except CallLost as error:
            raise Unanswered(Delivery.LOST, str(error) or f"{endpoint.node_id} did not answer in time") from error
        except UNDECODABLE as error:
            raise Unanswered(Delivery.LOST, f"{endpoint.node_id} answered what nobody understands: {error}") from error
        return reply


# ---- state machines ----


S = TypeVar("S")
E = TypeVar("E")


class Performance(Generic[S, E]):
    """One state machine, performed to its end: an instruction of a type of `ends`.

    `perform` carries any other instruction out, tells the machine what came of it, and gives what the machine says to
    that. An error in it ends the performance with that error.
    """

    def __init__(self, name: str, perform: Callable[[S], Awaitable[Sequence[S | E]]], *ends: type[E]) -> None:
        self._name, self._perform, self._ends = name, perform, ends
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._over: asyncio.Future[E] = asyncio.get_running_loop().create_future()

    async def run(self, first: Sequence[S | E], timeout_s: float | None = None) -> E:
        """The end; whatever is still under way then is broken off. Raises TimeoutError."""
        self._begin(first)
        try:
            async with asyncio.timeout(timeout_s):
                return await self._over
        finally:
            for task in list(self._tasks):
                task.cancel()

    def _begin(self, instructions: Sequence[S | E]) -> None:
        for each in instructions:
            if isinstance(each, self._ends):
                if not self._over.done():
                    self._over.set_result(each)
                continue
            task = asyncio.create_task(self._do(cast(S, each)), name=self._name)
            self._tasks[task] = None
            task.add_done_callback(self._ended)

    async def _do(self, instruction: S) -> None:
        self._begin(await self._perform(instruction))

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        error = None if task.cancelled() else task.exception()
        if error is not None and not self._over.done():
            self._over.set_exception(error)
