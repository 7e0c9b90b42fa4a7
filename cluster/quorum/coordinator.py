"""The coordinator of partitions: any tablet server, for any client, carries writes and reads out at levels (Q1).

What has to be decided is pure (`cluster.quorum.writing`, `cluster.quorum.reading`, `cluster.quorum.logged_reading`);
here it meets the network. A write is sent to all replicas at once and answered when enough have it. What is still
missing then gets a hint where the table is legacy (Q2); where it is logged a write has an id, and no hints (Q3).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

import msgspec

from cluster.config import NodeConfig
from cluster.quorum.calls import ReplicaCalls, Unanswered
from cluster.quorum.choosing import contacts
from cluster.quorum.exchange import Exchange
from cluster.quorum.fence import too_old
from cluster.quorum.hinting import Hinting
from cluster.quorum.ids import MutationIds
from cluster.quorum.locating import NotLocated, ReplicaLocator
from cluster.quorum.logged_reading import LoggedQuestion, LoggedReadState
from cluster.quorum.messages import (
    BelowFence,
    LoggedMutation,
    PageRead,
    QuorumReply,
    ReadPartition,
    StoreLogged,
    StoreMutation,
    WritePartition,
    Written,
)
from cluster.quorum.mutation import PartitionMutation, deletes, encode_mutation, stamped
from cluster.quorum.reading import GiveUp, LegacyQuestion, ReadRepair, ReadState
from cluster.quorum.replica_sets import Endpoint, ReplicaSet, Snitch
from cluster.quorum.requests import Invalid, checked_mutation, checked_slice, local_demand, timestamps_of
from cluster.quorum.slices import page_token
from cluster.quorum.writing import Delivery, WriteOutcome, WriteState
from cluster.wire.messages import ErrorReply
from harness.levels import data_centre_of
from harness.ports.api import DiskFull, Ports
from harness.ports.failpoints import pass_by

_NS_PER_MS = 1_000_000


class Coordinator:
    """Carries out what clients ask of partitions; `ids` are for the mutations of logged tables."""

    def __init__(
        self,
        ports: Ports,
        config: NodeConfig,
        locator: ReplicaLocator,
        snitch: Snitch,
        calls: ReplicaCalls,
        hinting: Hinting,
        ids: MutationIds,
    ) -> None:
        self._ports, self._data_centre = ports, data_centre_of(config.zone)
        self._knobs, self._flaws = config.knobs, config.flaws
        self._locator, self._snitch, self._calls, self._hinting, self._ids = locator, snitch, calls, hinting, ids
        self._tasks: dict[asyncio.Task[None], None] = {}

    def close(self) -> None:
        """End whatever is under way."""
        for task in list(self._tasks):
            task.cancel()

    # ---- writes ----

    async def write(self, request: WritePartition) -> QuorumReply:
        """Send a mutation to all replicas; answered when the level is met or its outcome is known."""
        try:
            wall_ns = self._ports.clock.wall_ns()
            mutation = checked_mutation(request.mutation, wall_ns)
            replicas = await self._locator.locate(request.table, mutation.partition)
            wanted = local_demand(request.level, self._data_centre, replicas)
        except (Invalid, NotLocated) as error:
            return error.error_reply
        taken_ms = wall_ns // _NS_PER_MS
        if deletes(mutation):
            taken = encode_mutation(stamped(mutation, taken_ms))
            request = msgspec.structs.replace(request, mutation=taken)
        await pass_by(self._ports.failpoints, "quorum.before_write", replicas.tablet_id)
        try:
            message = await self._message(replicas, mutation, request.mutation)
        except Invalid as error:
            return error.error_reply
        except DiskFull:
            return ErrorReply("DISK_FULL", "no id can be reserved: the disk is full", definite=True)
        state = WriteState(replicas, wanted)
        answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        write = partial(self._write_everywhere, state, replicas, request, message, taken_ms, answered)
        self._spawn(self._until_settled(write, answered))
        await answered
        await pass_by(self._ports.failpoints, "quorum.after_write", replicas.tablet_id)
        return self._written(state, request)

    async def _message(
        self, replicas: ReplicaSet, mutation: PartitionMutation, encoded: bytes
    ) -> StoreMutation | StoreLogged:
        """What every replica is sent; of a logged table under an id of its own. Raises Invalid, DiskFull."""
        if not replicas.logged:
            return StoreMutation(replicas.tablet_id, replicas.epoch, encoded)
        each = await self._ids.next()
        if too_old(timestamps_of(mutation), each, self._knobs.deletion_grace_ms):
            raise Invalid("TOO_OLD", "its timestamp lies so far back that deletions above it may be forgotten")
        await pass_by(self._ports.failpoints, "quorum.after_id", replicas.tablet_id)
        logged = LoggedMutation(each, encoded)
        return StoreLogged(replicas.tablet_id, replicas.epoch, logged)

    async def _until_settled(self, write: Callable[[], Awaitable[None]], answered: asyncio.Future[None]) -> None:
        """Whatever breaks the writing off, its client is told what is known by then."""
        try:
            await write()
        finally:
            if not answered.done():
                answered.set_result(None)

    async def _write_everywhere(
        self,
        state: WriteState,
        replicas: ReplicaSet,
        request: WritePartition,
        message: StoreMutation | StoreLogged,
        taken_ms: int,
        answered: asyncio.Future[None],
    ) -> None:
        """Goes on behind the client's answer, until every replica has acknowledged or is left a hint."""

        async def send(endpoint: Endpoint) -> None:
            await pass_by(self._ports.failpoints, "quorum.before_send", replicas.tablet_id)
            try:
                reply = await self._calls.ask(endpoint, message, request.timeout_s)
                state.told(endpoint.node_id, self._fate(reply))
            except Unanswered as error:
                state.told(endpoint.node_id, error.delivery)
            if state.outcome is not None and not answered.done():
                answered.set_result(None)

        await asyncio.gather(*(send(endpoint) for endpoint in self._snitch.ordered(replicas.endpoints)))
        missed = state.missed()
        if missed:
            self._locator.doubt(request.table)
            await pass_by(self._ports.failpoints, "quorum.before_hint", replicas.tablet_id)
            if not replicas.logged:
                await self._hinting.leave(replicas, missed, request.mutation, taken_ms)

    def _fate(self, reply: QuorumReply) -> Delivery:
        """A replica that took nothing below its fence tells where ids have to begin (Q7)."""
        if isinstance(reply, BelowFence):
            self._ids.rise_above(reply.fence)
            return Delivery.REFUSED
        return Delivery.DURABLE

    def _written(self, state: WriteState, request: WritePartition) -> QuorumReply:
        if state.outcome is WriteOutcome.ACKNOWLEDGED:
            return Written(state.acknowledged_by)
        definite = state.outcome is WriteOutcome.FAILED
        reached = ", ".join(state.acknowledged_by) or "nobody"
        return ErrorReply("UNAVAILABLE", f"{request.level} was not reached: {reached} acknowledged", definite=definite)

    # ---- reads ----

    async def read(self, request: ReadPartition) -> QuorumReply:
        """One page of a partition."""
        try:
            asked, repair = checked_slice(request), ReadRepair(request.read_repair)
            replicas = await self._locator.locate(request.table, asked.partition)
            wanted = local_demand(request.level, self._data_centre, replicas)
        except (Invalid, NotLocated) as error:
            return error.error_reply
        await pass_by(self._ports.failpoints, "quorum.before_read", replicas.tablet_id)
        ordered = self._snitch.ordered(replicas.endpoints, request.prefer)
        chosen, spares = contacts(ordered, wanted)
        parts = (self._ports, self._calls, replicas, request.timeout_s)
        if replicas.logged:
            logged = LoggedReadState(asked, chosen, spares, wanted, self._knobs.summary_cells, self._flaws)
            reading = Exchange[LoggedQuestion](*parts, logged).run()
        else:
            reading = Exchange[LegacyQuestion](*parts, ReadState(asked, chosen, spares, wanted, repair)).run()
        try:
            # What answers a call may run in no task (`harness.ports.eager`), where there are no timeouts.
            found = await asyncio.create_task(reading, name="quorum.read")
        except TimeoutError:
            return ErrorReply("TIMED_OUT", f"{request.level} was not reached in time", definite=True)
        if isinstance(found, GiveUp):
            self._locator.doubt(request.table)
            return ErrorReply(
                "UNAVAILABLE", f"{request.level} was not reached: {found.node_id} is missing", definite=True
            )
        await pass_by(self._ports.failpoints, "quorum.after_read", replicas.tablet_id)
        return PageRead(found.page, found.replicas, page_token(request.table, request.slice, found.page))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name="quorum.write")
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
