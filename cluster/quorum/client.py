"""The client library for quorum tables: any tablet server coordinates, at the level that is asked for (Q1)."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias, TypeVar

from cluster.client.attempt import NANOS_PER_S, RETRIED_ERRORS, Missed, Trial, attempt_as
from cluster.client.client import ATTEMPTS_PER_DEADLINE, SERVED_ELSEWHERE, ClusterClient
from cluster.quorum.messages import (
    BLOCKING,
    PageRead,
    QuorumReply,
    QuorumRequest,
    ReadPartition,
    ReadReplica,
    Repaired,
    RepairTable,
    StopRepairs,
    WritePartition,
    Written,
    decode_quorum_reply,
    encode_quorum_request,
)
from cluster.quorum.mutation import PartitionMutation, encode_mutation
from cluster.quorum.slices import Slice
from cluster.wire.messages import Replica
from harness.errors import ELSEWHERE, DefiniteError, HarnessError, IndefiniteError
from harness.levels import data_centre_of
from harness.ports.api import Network, Ports

Routing: TypeAlias = Literal["near", "random"]
"""Whom to ask: coordinators and replicas that have proven near, or any, drawn anew for each operation."""

RETRIED_AT_QUORUM = (*RETRIED_ERRORS, "UNAVAILABLE", "NOT_LOCATED", "NOT_FOUND")
_COORDINATORS_SHARE = 0.8
"""Of an attempt's time: the coordinator's part, so that its answer still arrives."""

_REPAIR_SLACK_S = 5.0
"""How much longer than a repair its caller waits for the answer."""

_SERVERS_FRESH_NS = 5 * NANOS_PER_S

AnswerType = TypeVar("AnswerType", Written, PageRead)


class WrittenBy(NamedTuple):
    reply: Written
    node: str


class ReadBy(NamedTuple):
    reply: PageRead
    node: str


@dataclass(frozen=True, slots=True)
class QuorumClientTable:
    """A table and how its client asks: `retry_unknown` sends a write again, as it is, where its outcome is unknown."""

    name: str
    read_repair: str = BLOCKING
    routing: Routing = "random"
    retry_unknown: bool = False


async def repair_table(network: Network, address: str, table: str, timeout_s: float) -> Repaired:
    """Have the tablet server at this address repair a legacy table (Q2); if this is cancelled, so is the repair.

    Raises DefiniteError, IndefiniteError: a part may be done, and asking again is harmless.
    """
    request = encode_quorum_request(RepairTable(table, timeout_s))
    try:
        reply = await attempt_as(decode_quorum_reply, network, address, request, timeout_s + _REPAIR_SLACK_S)
    except asyncio.CancelledError:
        stop = encode_quorum_request(StopRepairs())
        await attempt_as(decode_quorum_reply, network, address, stop, _REPAIR_SLACK_S)
        raise
    if isinstance(reply, Missed):
        raise (IndefiniteError if reply.possible else DefiniteError)(reply.kind, reply.message)
    if not isinstance(reply, Repaired):
        raise HarnessError(f"a {type(reply).__name__} came back where a {Repaired.__name__} was due")
    return reply


class QuorumClient:
    """Writes and reads of one quorum table; raises as `ClusterClient` does. Whatever is tried again stays the same
    mutation, timestamps included, so that it takes effect once."""

    def __init__(self, ports: Ports, masters: Sequence[str], timeout_s: float, table: QuorumClientTable) -> None:
        self._ports, self._timeout_s, self._table = ports, timeout_s, table
        self._entropy = random.Random(ports.entropy.getrandbits(64))
        self._masters = ClusterClient(ports, masters, timeout_s)
        self._servers: dict[str, list[Replica]] = {}
        self._asked_ns = 0
        self._near: dict[str, str] = {}

    async def write(self, mutation: PartitionMutation, level: str, data_centre: str) -> WrittenBy:
        """Write one partition, coordinated in a data centre."""

        def make(timeout_s: float) -> QuorumRequest:
            return WritePartition(self._table.name, encoded, level, timeout_s)

        encoded = encode_mutation(mutation)
        return WrittenBy(*await self._ask(make, Written, data_centre, self._table.retry_unknown))

    async def read(self, asked: Slice, level: str, data_centre: str, token: bytes | None = None) -> ReadBy:
        """Read one page of a partition, coordinated in a data centre; `token` is that of the page before."""
        prefer = tuple(self._shuffled_servers()) if self._table.routing == "random" else ()

        def make(timeout_s: float) -> QuorumRequest:
            return ReadPartition(self._table.name, asked, level, timeout_s, self._table.read_repair, token, prefer)

        try:
            return ReadBy(*await self._ask(make, PageRead, data_centre, True))
        except IndefiniteError as error:
            raise DefiniteError(error.kind, str(error)) from error

    async def read_at(self, address: str, asked: Slice) -> PageRead:
        """What the replica on the node at this address holds; asked again while there is time, for messages get lost.

        Raises DefiniteError; its kind is `elsewhere` where the node holds no replica.
        """
        attempt_s = self._timeout_s / ATTEMPTS_PER_DEADLINE
        for _ in range(ATTEMPTS_PER_DEADLINE):
            found = await self._attempt(address, ReadReplica(self._table.name, asked), attempt_s)
            if not isinstance(found, Missed) or found.error_reply is not None:
                break
        if isinstance(found, PageRead):
            return found
        if isinstance(found, Missed):
            elsewhere = found.error_reply is not None and found.error_reply.kind in SERVED_ELSEWHERE
            raise DefiniteError(ELSEWHERE if elsewhere else found.kind, found.message)
        raise HarnessError(f"a {type(found).__name__} came back where a page was due")

    # ---- how ----

    async def _ask(
        self, make: Callable[[float], QuorumRequest], answer: type[AnswerType], data_centre: str, retry_unknown: bool
    ) -> tuple[AnswerType, str]:
        trial = Trial(self._ports.clock, self._entropy, self._timeout_s, self._timeout_s / ATTEMPTS_PER_DEADLINE)
        while not trial.over:
            server = await self._coordinator(data_centre)
            timeout_s = trial.attempt_timeout_s
            reply = await self._attempt(server.address, make(timeout_s * _COORDINATORS_SHARE), timeout_s)
            if isinstance(reply, answer):
                self._near[data_centre] = server.node_id
                return reply, server.node_id
            if not isinstance(reply, Missed):
                raise HarnessError(f"a {type(reply).__name__} came back where a {answer.__name__} was due")
            self._near.pop(data_centre, None)
            trial.note(reply)
            final = reply.error_reply is not None and reply.error_reply.kind not in RETRIED_AT_QUORUM
            if final or (reply.possible and not retry_unknown):
                break
            await trial.pause()
        raise trial.error()

    async def _attempt(self, address: str, request: QuorumRequest, timeout_s: float) -> QuorumReply | Missed:
        return await attempt_as(
            decode_quorum_reply, self._ports.network, address, encode_quorum_request(request), timeout_s
        )

    async def _coordinator(self, data_centre: str) -> Replica:
        """A tablet server there: the one that answered last, or any. Raises DefiniteError where there is none."""
        await self._learn_servers()
        servers = self._servers.get(data_centre, [])
        if not servers:
            raise DefiniteError("no-coordinator", f"no tablet server stands in the data centre {data_centre!r}")
        near = self._near.get(data_centre) if self._table.routing == "near" else None
        chosen = next((server for server in servers if server.node_id == near), None)
        return chosen or servers[self._entropy.randrange(len(servers))]

    async def _learn_servers(self) -> None:
        now_ns = self._ports.clock.monotonic_ns()
        if self._servers and now_ns - self._asked_ns < _SERVERS_FRESH_NS:
            return
        try:
            reply = await self._masters.tablet_servers()
        except (DefiniteError, IndefiniteError) as error:
            if self._servers:
                return  # What is known may still be good.
            raise DefiniteError(error.kind, str(error)) from error
        self._asked_ns, self._servers = now_ns, {}
        for server, zone in zip(reply.servers, reply.zones, strict=True):
            self._servers.setdefault(data_centre_of(zone), []).append(server)

    def _shuffled_servers(self) -> list[str]:
        names = [server.node_id for servers in self._servers.values() for server in servers]
        self._entropy.shuffle(names)
        return names
