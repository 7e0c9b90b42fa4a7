"""The coordinator of legacy partitions: any tablet server, for any client, carries writes and reads out at levels (Q1).

What has to be decided is pure (`cluster.quorum.writing`, `cluster.quorum.reading`); here it meets the network. A write
is sent to all replicas at once and answered when enough have it; what is still missing then gets a hint (Q2).
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import msgspec

from cluster.quorum.calls import ReplicaCalls, Unanswered
from cluster.quorum.choosing import contacts
from cluster.quorum.hinting import Hinting
from cluster.quorum.locating import Locator, NotLocated
from cluster.quorum.messages import (
    FetchRows,
    PageRead,
    QuorumReply,
    ReadPartition,
    RowsDigest,
    RowsFetched,
    StoreMutation,
    WritePartition,
    Written,
)
from cluster.quorum.mutation import PartitionMutation, deletes, encode_mutation, stamped
from cluster.quorum.reading import (
    AskForData,
    AskForDigest,
    GiveUp,
    Instruction,
    PageFound,
    ReadRepair,
    ReadState,
    SendRepair,
)
from cluster.quorum.replica_sets import Endpoint, ReplicaSet, Snitch
from cluster.quorum.requests import Invalid, checked_mutation, checked_slice, local_demand
from cluster.quorum.slices import page_token
from cluster.quorum.writing import Delivery, WriteOutcome, WriteState
from cluster.wire.messages import Fault
from harness.failpoints import pass_by
from harness.ports import Ports

_NS_PER_MS = 1_000_000
_PATIENCE = 0.3
"""Of a read's time a replica gets so much to answer, so that another one can stand in for it."""


class Coordinator:
    """Carries out what clients ask of partitions; `data_centre` is where it stands."""

    def __init__(
        self, ports: Ports, data_centre: str, locator: Locator, snitch: Snitch, calls: ReplicaCalls, hinting: Hinting
    ) -> None:
        self._ports, self._data_centre = ports, data_centre
        self._locator, self._snitch, self._calls, self._hinting = locator, snitch, calls, hinting
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
            return error.fault
        if deletes(mutation):
            taken = encode_mutation(stamped(mutation, wall_ns // _NS_PER_MS))
            request = msgspec.structs.replace(request, mutation=taken)
        await pass_by(self._ports.failpoints, "quorum.before_write", replicas.tablet_id)
        state = WriteState(replicas, wanted)
        answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._spawn(self._until_settled(self._write_everywhere(state, replicas, request, answered), answered))
        await answered
        return self._written(state, request)

    async def _until_settled(self, writing: Coroutine[Any, Any, None], answered: asyncio.Future[None]) -> None:
        """Whatever breaks the writing off, its client is told what is known by then."""
        try:
            await writing
        finally:
            if not answered.done():
                answered.set_result(None)

    async def _write_everywhere(
        self, state: WriteState, replicas: ReplicaSet, request: WritePartition, answered: asyncio.Future[None]
    ) -> None:
        """Goes on behind the client's answer, until every replica has acknowledged or is left a hint."""
        message = StoreMutation(replicas.tablet_id, replicas.epoch, request.mutation)

        async def send(endpoint: Endpoint) -> None:
            await pass_by(self._ports.failpoints, "quorum.before_send", replicas.tablet_id)
            try:
                await self._calls.ask(endpoint, message, request.timeout_s)
                state.told(endpoint.node_id, Delivery.DURABLE)
            except Unanswered as error:
                state.told(endpoint.node_id, error.delivery)
            if state.outcome is not None and not answered.done():
                answered.set_result(None)

        await asyncio.gather(*(send(endpoint) for endpoint in self._snitch.ordered(replicas.endpoints)))
        hints = state.hints()
        if hints:
            self._locator.doubt(request.table)
            await pass_by(self._ports.failpoints, "quorum.before_hint", replicas.tablet_id)
            await self._hinting.leave(replicas, hints, request.mutation)

    def _written(self, state: WriteState, request: WritePartition) -> QuorumReply:
        if state.outcome is WriteOutcome.ACKNOWLEDGED:
            return Written(state.acknowledged_by)
        definite = state.outcome is WriteOutcome.FAILED
        reached = ", ".join(state.acknowledged_by) or "nobody"
        return Fault("UNAVAILABLE", f"{request.level} was not reached: {reached} acknowledged", definite=definite)

    # ---- reads ----

    async def read(self, request: ReadPartition) -> QuorumReply:
        """One page of a partition."""
        try:
            asked, repair = checked_slice(request), ReadRepair(request.read_repair)
            replicas = await self._locator.locate(request.table, asked.partition)
            wanted = local_demand(request.level, self._data_centre, replicas)
        except (Invalid, NotLocated) as error:
            return error.fault
        ordered = self._snitch.ordered(replicas.endpoints, request.prefer)
        state = ReadState(asked, *contacts(ordered, wanted), wanted, repair)
        exchange = _Exchange(self._ports, self._calls, replicas, state, request.timeout_s)
        try:
            # What answers a call may run in no task (`harness.eager`), where there are no timeouts.
            found = await asyncio.create_task(exchange.run(asked.partition), name="quorum.read")
        except TimeoutError:
            return Fault("TIMED_OUT", f"{request.level} was not reached in time", definite=True)
        if isinstance(found, GiveUp):
            self._locator.doubt(request.table)
            return Fault("UNAVAILABLE", f"{request.level} was not reached: {found.node_id} is missing", definite=True)
        return PageRead(found.page, found.replicas, page_token(request.slice, found.page))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name="quorum.write")
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)


class _Exchange:
    """Carries the instructions of one read out, each beside the others, and hands what comes of them back."""

    def __init__(
        self, ports: Ports, calls: ReplicaCalls, replicas: ReplicaSet, state: ReadState, timeout_s: float
    ) -> None:
        self._ports, self._calls, self._replicas = ports, calls, replicas
        self._state, self._timeout_s = state, timeout_s
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._over: asyncio.Future[PageFound | GiveUp] = asyncio.get_running_loop().create_future()

    async def run(self, partition: bytes) -> PageFound | GiveUp:
        """The end of the read; raises TimeoutError."""
        self._partition = partition
        self._carry_out(self._state.begin())
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._over
        finally:
            for task in list(self._tasks):
                task.cancel()

    def _carry_out(self, instructions: list[Instruction]) -> None:
        for instruction in instructions:
            if isinstance(instruction, PageFound | GiveUp):
                if not self._over.done():
                    self._over.set_result(instruction)
                continue
            task = asyncio.create_task(self._do(instruction), name="quorum.read")
            self._tasks[task] = None
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        error = None if task.cancelled() else task.exception()
        if error is not None and not self._over.done():
            self._over.set_exception(error)

    async def _do(self, instruction: AskForData | AskForDigest | SendRepair) -> None:
        node_id = instruction.endpoint.node_id
        try:
            reply = await self._ask(instruction)
        except Unanswered:
            self._carry_out(self._state.on_missed(node_id))
            return
        if isinstance(reply, RowsFetched):
            self._carry_out(self._state.on_data(node_id, reply.page))
        elif isinstance(reply, RowsDigest):
            self._carry_out(self._state.on_digest(node_id, reply.digest))
        else:
            self._carry_out(self._state.on_repaired(node_id))

    async def _ask(self, instruction: AskForData | AskForDigest | SendRepair) -> QuorumReply:
        endpoint, tablet_id, epoch = instruction.endpoint, self._replicas.tablet_id, self._replicas.epoch
        if isinstance(instruction, SendRepair):
            await pass_by(self._ports.failpoints, "quorum.before_repair", tablet_id)
            encoded = encode_mutation(PartitionMutation(self._partition, instruction.contents))
            return await self._calls.ask(endpoint, StoreMutation(tablet_id, epoch, encoded), self._timeout_s)
        if isinstance(instruction, AskForData) and instruction.again:
            await pass_by(self._ports.failpoints, "quorum.before_follow_up", tablet_id)
        fetch = FetchRows(tablet_id, epoch, instruction.slice, isinstance(instruction, AskForDigest))
        return await self._calls.ask(endpoint, fetch, self._timeout_s * _PATIENCE)
