"""Requests from a coordinator to the replicas of a partition, its own node's among them, and what came of each."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from cluster.quorum.messages import QuorumReply, ReplicaRequest, decode_quorum_reply, encode_quorum_request
from cluster.quorum.replica_sets import Endpoint, Snitch
from cluster.quorum.writing import Delivery
from cluster.wire.messages import ErrorReply
from harness.errors import UNDECODABLE
from harness.ports.api import CallLost, Clock, Network, Refused, Unreachable

AskOwn: TypeAlias = Callable[[ReplicaRequest], Awaitable[QuorumReply]]
"""Asks the replica on this very node."""


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
