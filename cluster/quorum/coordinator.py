"""The coordinator of partitions: any tablet server, for any client, carries writes and reads out at levels (Q1).

What a read decides is pure (`cluster.quorum.read_repair`), and so is what becomes of a write (`WriteState`); here they
meet the network. A write is sent to all replicas at once and answered when enough have it. What is still
missing then gets a hint where the table is legacy (Q2); where it is logged a write has an id, and no hints (Q3).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from enum import Enum
from functools import partial
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

import msgspec

from cluster.config import NodeConfig
from cluster.log.frames import OtherVersion
from cluster.quorum.calls import Delivery, Performance, ReplicaCalls, Unanswered
from cluster.quorum.fence import too_old
from cluster.quorum.hints import Hinting
from cluster.quorum.ids import MutationIds
from cluster.quorum.messages import (
    READ_REPAIRS,
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
from cluster.quorum.mutation import (
    InvalidMutation,
    PartitionMutation,
    check_mutation,
    decode_mutation,
    deletes,
    encode_mutation,
    stamped,
)
from cluster.quorum.read_repair import (
    GiveUp,
    LegacyQuestion,
    LoggedQuestion,
    LoggedReadState,
    PageFound,
    Question,
    ReadRepair,
    ReadState,
    contacts,
)
from cluster.quorum.replica_sets import UNPLACED, Endpoint, NotLocated, ReplicaLocator, ReplicaSet, Snitch
from cluster.quorum.rows import timestamps_of
from cluster.quorum.slices import InvalidToken, Slice, page_token, resumed
from cluster.wire.messages import ErrorReply
from harness.errors import UserError
from harness.levels import BY_DATA_CENTRE, LEVELS, Demand, data_centre_of, demand
from harness.ports.api import DiskFull, Ports
from harness.ports.failpoints import ANY, pass_by

# ---- what clients ask, checked before anything is sent: each mistake is a typed refusal (Q1) ----


MOST_BYTES = 1 << 20
"""How long an encoded mutation may be."""

MOST_AHEAD_NS = 3_600_000_000_000
"""How far a timestamp may lie ahead of the coordinator's clock: one beyond would win over every later write."""


class Invalid(Exception):
    """Nothing was sent: `error_reply` says what is wrong with the request."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.error_reply = ErrorReply(kind, message, definite=True)


def checked_mutation(encoded: bytes, wall_ns: int) -> PartitionMutation:
    """The mutation of a write; timestamps are in ns and positive. Raises Invalid."""
    if len(encoded) > MOST_BYTES:
        raise Invalid("TOO_LARGE", f"the mutation has {len(encoded)} bytes; the limit is {MOST_BYTES}")
    try:
        mutation = decode_mutation(encoded)
        check_mutation(mutation)
    except (InvalidMutation, OtherVersion) as error:
        raise Invalid("INVALID", str(error)) from error
    for timestamp in timestamps_of(mutation.contents):
        if not 0 < timestamp <= wall_ns + MOST_AHEAD_NS:
            raise Invalid("TIMESTAMP_OUT_OF_BOUNDS", f"the timestamp {timestamp} is not positive or too far ahead")
    return mutation


def checked_slice(request: ReadPartition) -> Slice:
    """What a read asks for, behind the page that its token continues; raises Invalid."""
    if request.read_repair not in READ_REPAIRS:
        raise Invalid("INVALID", f"read repair is one of {', '.join(READ_REPAIRS)}, not {request.read_repair!r}")
    if request.slice.limit is not None and request.slice.limit < 1:
        raise Invalid("INVALID", f"a limit is at least 1, not {request.slice.limit}")
    if request.token is None:
        return request.slice
    try:
        return resumed(request.table, request.slice, request.token)
    except InvalidToken as error:
        raise Invalid("INVALID_TOKEN", str(error)) from error


def local_demand(level: str, data_centre: str, replicas: ReplicaSet) -> Demand:
    """What the level asks of this replica set, from this data centre; raises Invalid."""
    if level not in LEVELS:
        raise Invalid("UNKNOWN_LEVEL", f"there is no consistency level {level!r}")
    factors = replicas.factors
    try:
        if UNPLACED in factors and level in BY_DATA_CENTRE:
            return _cautious_demand(level, data_centre, factors)
        return demand(level, data_centre, factors)
    except UserError as error:
        raise Invalid("LEVEL_UNSATISFIABLE", str(error)) from error


def _cautious_demand(level: str, data_centre: str, factors: Mapping[str, int]) -> Demand:
    """The demand where masters have not heard of some replicas since they started: any of these may stand here too.

    So a local level asks for what it would ask for then, of replicas that are known to stand here.
    """
    known = factors.get(data_centre, 0)
    wanted = demand(level, data_centre, {data_centre: known + factors[UNPLACED]})
    if level == "EACH_QUORUM" or wanted.total > known:
        message = f"the masters have not heard of {factors[UNPLACED]} replicas, which may stand in any data centre"
        raise Invalid("NOT_LOCATED", message)
    return wanted


# ---- what a coordinator knows of one write (Q1, Q2) ----
# Pure: fed with what came of each replica, asked for the outcome. A write has failed for certain only if it was sent
# to nobody or refused by everybody; otherwise what is not acknowledged in time is unknown.


class WriteOutcome(Enum):
    """What the client is told."""

    ACKNOWLEDGED = "acknowledged"
    FAILED = "failed"
    UNKNOWN = "unknown"


class WriteState:
    """One write under way to all replicas of a partition."""

    def __init__(self, replicas: ReplicaSet, wanted: Demand) -> None:
        self._replicas, self._wanted = replicas, wanted
        self._fates: dict[str, Delivery] = {}
        """What came of each replica, in the order of their answers; what is here never changes."""

    def note(self, node_id: str, fate: Delivery) -> None:
        """What came of one replica; the first word of each counts."""
        self._fates.setdefault(node_id, fate)

    @property
    def acknowledged_by(self) -> tuple[str, ...]:
        """The replicas on which it is durable, in the order of their answers."""
        return tuple(node_id for node_id, fate in self._fates.items() if fate is Delivery.DURABLE)

    @property
    def complete(self) -> bool:
        """Whether every replica has been told of."""
        return len(self._fates) == len(self._replicas.endpoints)

    @property
    def outcome(self) -> WriteOutcome | None:
        """What is known to have become of it; None while more answers may still decide."""
        if self._wanted.met_by(self._replicas.data_centres(self.acknowledged_by)):
            return WriteOutcome.ACKNOWLEDGED
        if not self.complete:
            return None
        return WriteOutcome.UNKNOWN if self._may_be_somewhere else WriteOutcome.FAILED

    @property
    def _may_be_somewhere(self) -> bool:
        return any(fate in (Delivery.DURABLE, Delivery.LOST) for fate in self._fates.values())

    def missed(self) -> tuple[str, ...]:
        """Once complete: the replicas that may lack it; none where it failed, for then it must stay without effect."""
        if self.outcome is WriteOutcome.FAILED:
            return ()
        at = [endpoint.node_id for endpoint in self._replicas.endpoints]
        return tuple(node_id for node_id in at if self._fates.get(node_id) is not Delivery.DURABLE)


# ---- reads over the network ----


_PATIENCE = 0.3
"""The share of a read's time that a replica gets to answer, where another one can stand in for it."""


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


# ---- the coordinator ----


_NS_PER_MS = 1_000_000

OnAcknowledged: TypeAlias = Callable[[str, Collection[str], StoreMutation | StoreLogged], None]
"""Called with the level, the replicas and what each was sent, as a write is acknowledged to its client."""


def _ignore(*_: object) -> None:
    return None


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
        self.on_acknowledged: OnAcknowledged = _ignore

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
        reply = self._written(state, request)
        if isinstance(reply, Written):
            self.on_acknowledged(request.level, [each.node_id for each in replicas.endpoints], message)
        return reply

    async def _message(
        self, replicas: ReplicaSet, mutation: PartitionMutation, encoded: bytes
    ) -> StoreMutation | StoreLogged:
        """What every replica is sent; of a logged table under an id of its own. Raises Invalid, DiskFull."""
        if not replicas.logged:
            return StoreMutation(replicas.tablet_id, replicas.epoch, encoded)
        each = await self._ids.next()
        if too_old(timestamps_of(mutation.contents), each, self._knobs.deletion_grace_ms):
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
                state.note(endpoint.node_id, self._fate(reply))
            except Unanswered as error:
                state.note(endpoint.node_id, error.delivery)
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
