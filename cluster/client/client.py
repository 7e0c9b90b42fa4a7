"""The client library: finds leaders, caches locations, retries within a deadline under one request id (M14, G8)."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias, TypeVar, Unpack

import msgspec

from cluster.client.attempt import RETRIED_ERRORS, TOO_EARLY, Miss, Missed, Route, Trial, attempt, attempt_as
from cluster.client.catalog import CatalogClient
from cluster.client.reading import Nearby, ReadWish, WishedRead
from cluster.client.rows import ServedChange, TypedTable
from cluster.client.sessions import ClientSessions, Ticket
from cluster.store.cells import Value
from cluster.store.hlc import physical
from cluster.wire.catalog import GLOBAL
from cluster.wire.known_masters import asking, masters_in
from cluster.wire.messages import (
    CATALOG_GROUP,
    ArmedReply,
    ArmFailpoint,
    Cell,
    Column,
    CompareAndSet,
    CreateTableReply,
    DiskReply,
    Done,
    GetStatus,
    GetTableLocations,
    HoldCells,
    ListTabletServers,
    Ping,
    ProbeDisk,
    ReadCell,
    ReadReply,
    ReadRows,
    RegisterSession,
    Replicas,
    Reply,
    Request,
    RequestId,
    RowRange,
    RowsReply,
    SessionReply,
    SettleHold,
    StatusReply,
    TableInfo,
    TableLocationsReply,
    TableSchemaReply,
    TabletLocation,
    TabletServersReply,
    WriteCell,
    WriteCells,
    decode_reply,
    encode,
)
from cluster.wire.staleness import HowServed
from harness.cell_address import CellAddress
from harness.errors import ELSEWHERE, DefiniteError, HarnessError, IndefiniteError
from harness.ports.api import Ports

ReplyType = TypeVar("ReplyType")

MakeChange: TypeAlias = Callable[[RequestId, str, int | None], Request]
"""A change by its request id, its tablet and the timestamp that is asked for, if one is."""

ATTEMPTS_PER_DEADLINE = 4
MAX_ATTEMPT_TIMEOUT_S = 1.0

MASTERS_FRESH_NS = 1_000_000_000
"""A client that works asks so often who the masters are, beside what it does."""

LEAD_PATIENCE_S = 3.0
"""How long one attempt of a change may take where the table is closed ahead of time: its answer waits for it (R6)."""

ANY_AGE_MS = 3_600_000
"""The staleness that is allowed where the answer does not depend on the catalog."""

SERVED_ELSEWHERE = ("NOT_THE_LEADER", "NOT_FOUND")
"""Error replies by which a node says that it does not serve a tablet."""


class ServedRead(NamedTuple):
    reply: ReadReply
    node: str

    @property
    def served(self) -> HowServed:
        """How it was served."""
        return how(self.reply)


class ServedRows(NamedTuple):
    reply: RowsReply
    node: str

    @property
    def served(self) -> HowServed:
        """How it was served."""
        return how(self.reply)


class _Tablet:
    """A tablet's location and the route to its leader."""

    def __init__(self, location: TabletLocation) -> None:
        self.location = location
        self.addresses = {replica.node_id: replica.address for replica in location.replicas}
        self.route = Route(tuple(self.addresses), location.leader_hint)
        self.leads_clock = False
        """Whether it is closed ahead of time, as masters said or it told since: any replica may serve strong reads."""

    def answered(self, reply: object, strong: bool) -> None:
        """It has answered so: changes tell that they were kept back, strong reads how they were served."""
        if type(reply) is Done and reply.waited_ns is not msgspec.UNSET:
            self.leads_clock = True
        elif strong:
            self.leads_clock = getattr(reply, "served", msgspec.UNSET) is not msgspec.UNSET

    def same_place(self, location: TabletLocation) -> bool:
        return self.location.tablet_id == location.tablet_id and self.location.replicas == location.replicas


class ClusterClient:
    """A connection to the cluster for one user; methods raise DefiniteError or IndefiniteError at the latest at the
    deadline, `timeout_s` after their call. Reads have no effect, so their failures are definite.

    `catalog` has all calls of the metadata plane. Sessions are registered when a change first needs them, and left to
    end by silence.
    """

    def __init__(self, ports: Ports, masters: Sequence[str], timeout_s: float) -> None:
        self._ports = ports
        self._entropy = random.Random(ports.entropy.getrandbits(64))
        self._timeout_s = timeout_s
        self._attempt_timeout_s = min(MAX_ATTEMPT_TIMEOUT_S, timeout_s / ATTEMPTS_PER_DEADLINE)
        self._masters = Route(masters)
        self._masters_index = 0
        """The index of the configuration that names them, 0 for the addresses given here."""
        self._masters_asked_ns = -MASTERS_FRESH_NS
        """When any node was last asked whether there are others."""
        self._any_master: Route | None = None
        self._tables: dict[str, dict[int, _Tablet]] = {}
        self._sessions = ClientSessions()
        self._near = Nearby(ports.clock.monotonic_ns)
        self._measuring: dict[str, asyncio.Task[None]] = {}
        """By node the measurement of its distance that is under way."""
        self._measured = asyncio.Event()
        self.catalog = CatalogClient(self._ask_master, self._sessions)

    def close(self) -> None:
        """Measure nothing any more; whatever else it holds ends by itself."""
        for task in list(self._measuring.values()):
            task.cancel()

    # ---- metadata ----

    async def create_table(
        self,
        name: str,
        columns: Sequence[Column],
        buckets: int,
        replicas: Replicas,
        design: str = "raft",
        policy: str = "",
    ) -> CreateTableReply:
        """Answered at once: see `CatalogClient.create_table`."""
        return await self.catalog.create_table(name, columns, buckets, replicas, design, policy)

    async def is_create_done(self, name: str) -> bool:
        return (await self.catalog.is_create_done(name)).done

    async def list_tables(self) -> tuple[TableInfo, ...]:
        return await self.catalog.list_tables()

    async def table_locations(self, name: str) -> TableLocationsReply:
        """Locations as the leader master tells them now; the client's own cache is refreshed."""
        reply = await self.catalog.table_locations(name)
        self._remember(name, reply)
        return reply

    async def tablet_servers(self) -> TabletServersReply:
        return await self.catalog.tablet_servers()

    async def ask_any_master(self, request: Request, reply_type: type[ReplyType]) -> ReplyType:
        """Ask one master after another, beginning anywhere, until one may answer: a question that allows an age (M13).

        Raises DefiniteError; its kind is `too-stale` where no master was fresh enough.
        """
        trial = self._trial()
        if self._any_master is None:
            masters = self._masters.targets
            self._any_master = Route(masters, self._entropy.choice(masters))
        route = self._any_master
        while not trial.over:
            reply = await self._attempt(route.current, request, trial)
            if not isinstance(reply, Missed):
                route.succeeded()
                return _expect(reply, reply_type)
            _weigh(reply, trial, None)
            route.failed()
            if route.exhausted:
                await trial.pause()
        raise DefiniteError(trial.error().kind, str(trial.error()))

    async def ask_master(self, number: int, request: Request, reply_type: type[ReplyType]) -> ReplyType:
        """Put a question to one master, by its place among those known (counted round); raises DefiniteError."""
        trial = self._trial()
        address = sorted(self._masters.targets)[number % len(self._masters.targets)]
        while not trial.over:
            reply = await self._attempt(address, request, trial)
            if not isinstance(reply, Missed):
                return _expect(reply, reply_type)
            _weigh(reply, trial, None)
            await trial.pause()
        raise DefiniteError(trial.error().kind, str(trial.error()))

    async def ask_leader(self, request: Request, reply_type: type[ReplyType], trial: Trial | None = None) -> ReplyType:
        """Put a request to the leader master until it is answered; only what may be carried out twice without harm."""
        return await self._ask_master(lambda: request, reply_type, trial=trial)

    @property
    def patience_s(self) -> float:
        """How long one attempt of a request may take."""
        return self._attempt_timeout_s

    async def status(self, address: str) -> StatusReply:
        """What the node at this address says of itself; one attempt with the whole deadline."""
        return await self._look(address, GetStatus(), StatusReply, self._timeout_s)

    async def servers_heard_by(self, address: str) -> TabletServersReply:
        """The tablet servers that the master at this address has heard of, leader or not; one attempt.

        Raises DefiniteError.
        """
        request = ListTabletServers(max_staleness_ms=ANY_AGE_MS)
        return await self._look(address, request, TabletServersReply, self._attempt_timeout_s)

    async def _look(self, address: str, request: Request, reply_type: type[ReplyType], timeout_s: float) -> ReplyType:
        """One attempt of what has no effect."""
        reply = await attempt(self._ports.network, address, encode(request), timeout_s)
        if isinstance(reply, Missed):
            raise DefiniteError(reply.kind, reply.message)
        return _expect(reply, reply_type)

    async def ask_once(self, address: str, request: Request, reply_type: type[ReplyType]) -> ReplyType:
        """Put an operator's request to the node at this address alone; one attempt with the whole deadline.

        Raises DefiniteError, with the reason, where nothing was done.
        """
        reply = await attempt(self._ports.network, address, encode(request), self._timeout_s)
        if not isinstance(reply, Missed):
            return _expect(reply, reply_type)
        raise (IndefiniteError if reply.possible else DefiniteError)(reply.kind, reply.message)

    async def arm(self, address: str, request: ArmFailpoint) -> ArmedReply | None:
        """Have the node at this address arm or disarm a failpoint; None if it did not answer."""
        reply = await attempt(self._ports.network, address, encode(request), self._timeout_s)
        return None if isinstance(reply, Missed) else _expect(reply, ArmedReply)

    async def probe_disk(self, address: str, patience_s: float) -> DiskReply | None:
        """Have the node at this address try its disk; None if it did not answer."""
        reply = await attempt(self._ports.network, address, encode(ProbeDisk(patience_s)), self._timeout_s)
        return None if isinstance(reply, Missed) else _expect(reply, DiskReply)

    async def flood(
        self, table: str, tablet: TabletLocation, address: str, changes: Sequence[MakeChange], timeout_s: float
    ) -> None:
        """Send these changes of a tablet to one replica of it, all at once; whatever comes of them.

        The first time, one is made as usual, for a session. Raises DefiniteError, IndefiniteError if that fails.
        """
        if self._sessions.get(tablet.tablet_id) is None:
            await self._change(table, tablet.partition.bucket, changes[0])
        session = self._sessions.get(tablet.tablet_id)
        if session is None:
            return
        ids = [session.begin() for _ in changes]
        requests = [make(each, tablet.tablet_id, None) for make, each in zip(changes, ids, strict=True)]
        await asyncio.gather(
            *(attempt(self._ports.network, address, encode(request), timeout_s) for request in requests)
        )
        for each in ids:
            session.end(each)

    # ---- data ----

    async def open_table(self, name: str) -> TypedTable:
        """A handle of a table with a primary key, whose rows are addressed by it, and its columns by their names."""
        table = TypedTable(name, self._learn_table, self._read, self._change)
        await table.refresh()
        return table

    async def _learn_table(self, name: str) -> tuple[TableSchemaReply, TableLocationsReply]:
        return await self.catalog.table_schema(name), await self.table_locations(name)

    async def read(self, table: str, cell: CellAddress, **wish: Unpack[ReadWish]) -> ServedRead:
        """A read of one cell: strong, or as wished.

        Besides what every call raises: DefiniteError `future-time`, `too-old`, `two-bounds`, `negative-bound`,
        `not-closed`.
        """
        asked = WishedRead(wish)

        def make(tablet_id: str) -> Request:
            return ReadCell(tablet_id, *cell, asked.as_of, asked.bound, asked.begun)

        return ServedRead(*await self._read(table, cell.partition, make, ReadReply, asked))

    async def read_at(self, address: str, table: str, cell: CellAddress) -> ReadReply:
        """A strong read of one cell from the node at this address alone, asked again while it can't tell yet.

        Raises DefiniteError; its kind is `elsewhere` where the node answers that it does not serve the cell's tablet.
        """
        trial = self._trial()
        while not trial.over:
            tablet = await self._locate(table, cell.partition, trial)
            if tablet is None:
                continue
            request = ReadCell(tablet.location.tablet_id, *cell)
            reply = await self._attempt(address, request, trial)
            if not isinstance(reply, Missed):
                return _expect(reply, ReadReply)
            if reply.error_reply is not None and reply.error_reply.kind in SERVED_ELSEWHERE:
                raise DefiniteError(ELSEWHERE, reply.message)
            trial.note(reply)
            await trial.pause()
        raise DefiniteError("timeout", str(trial.error()))

    async def read_rows(
        self, table: str, partition: int, ranges: Sequence[RowRange], **wish: Unpack[ReadWish]
    ) -> ServedRows:
        """A read of rows of one partition, all at one time: strong, or as wished. Raises what `read` does."""
        asked = WishedRead(wish)

        def make(tablet_id: str) -> Request:
            return ReadRows(tablet_id, partition, tuple(ranges), asked.as_of, asked.bound, asked.begun)

        return ServedRows(*await self._read(table, partition, make, RowsReply, asked))

    async def write(self, table: str, cell: CellAddress, value: Value, requested: int | None = None) -> ServedChange:
        """Write one cell, at the timestamp that is asked for or a later one: by default that of this client's clock."""
        return await self._change(
            table,
            cell.partition,
            lambda request_id, tablet_id, time: WriteCell(request_id, tablet_id, *cell, value, time),
            requested,
        )

    async def write_rows(self, table: str, partition: int, cells: Sequence[Cell]) -> ServedChange:
        """Write cells of one partition together."""
        return await self._change(
            table,
            partition,
            lambda request_id, tablet_id, time: WriteCells(request_id, tablet_id, partition, tuple(cells), time),
        )

    async def compare_and_set(self, table: str, cell: CellAddress, expected: Value, value: Value) -> ServedChange:
        """Replace `expected` by `value`; `reply.applied` is false if the cell held `reply.found` instead."""
        return await self._change(
            table,
            cell.partition,
            lambda request_id, tablet_id, time: CompareAndSet(request_id, tablet_id, *cell, expected, value, time),
        )

    async def hold(
        self, table: str, partition: int, transaction: str, cells: Sequence[Cell], requested: int | None = None
    ) -> ServedChange:
        """Lay what a transaction will write to cells of one partition; `settle` it within `hold_ms`.

        Nobody else writes there meanwhile, nor reads at the timestamp or above, which readers that wait push upwards.
        """

        def make(request_id: RequestId, tablet_id: str, time: int | None) -> Request:
            return HoldCells(request_id, tablet_id, partition, transaction, tuple(cells), time)

        return await self._change(table, partition, make, requested)

    async def settle(self, table: str, partition: int, transaction: str, commits: bool) -> ServedChange:
        """Commit what a transaction holds in a partition's tablet, or abort it; `reply.applied` is false where it has
        ended, and `reply.timestamp` is when what was committed is written."""

        def make(request_id: RequestId, tablet_id: str, time: int | None) -> Request:
            return SettleHold(request_id, tablet_id, partition, transaction, commits)

        return await self._change(table, partition, make)

    # ---- how ----

    async def _read(
        self, table: str, partition: int, make: Callable[[str], Request], reply_type: type[ReplyType], asked: WishedRead
    ) -> tuple[ReplyType, str]:
        trial = self._trial()
        trial.on_miss = asked.refused
        plain = asked.plain
        try:
            tablet = self._known(table, partition) if plain else None
            nearby = not plain or (tablet is not None and tablet.leads_clock)
            found = await self._ask_nearest(table, partition, make, asked, trial) if nearby else None
            if found is not None:
                reply, node = _expect(found[0], reply_type), found[1]
            else:
                reply, node = await self._ask_tablet(table, partition, make, reply_type, trial)
            if plain and (tablet := self._known(table, partition)) is not None:
                tablet.answered(reply, strong=True)
            if not plain:
                asked.fixed(how(reply))
            return reply, node
        except IndefiniteError as error:
            raise DefiniteError(error.kind, str(error)) from error

    async def _ask_nearest(
        self, table: str, partition: int, make: Callable[[str], Request], asked: WishedRead, trial: Trial
    ) -> tuple[Reply, str] | None:
        """Ask the nearest replica that is likely to know enough, the next one where that is not there; None where the
        leaseholder has to be asked. Raises what the read ends with."""
        tried: dict[str, None] = {}
        while not trial.over:
            tablet = await self._locate(table, partition, trial)
            if tablet is None:
                continue
            tablet_id, near = tablet.location.tablet_id, self._near
            self._measure(tablet.addresses)
            if not near.knows(tablet.addresses):  # who answers first is the nearest
                self._measured.clear()
                await self._measured.wait()
            now = physical(self._ports.clock.wall_ns())
            addresses = tablet.addresses
            if asked.turn is None:
                asked.turn = self._entropy.getrandbits(32)
            order = near.nearest(addresses) if asked.nearest_only else near.nearest_in_turn(addresses, asked.turn)
            nodes = [each for each in order if each not in tried]
            likely = [each for each in nodes if asked.likely(near, tablet_id, each, now)]
            if not likely and not asked.nearest_only:
                return None
            if not likely:
                tried.clear()
                await self._refresh(table, trial)
                await trial.pause()
                continue
            node = likely[0]
            tried[node] = None
            reply = await self._attempt(tablet.addresses[node], make(tablet_id), trial)
            error = reply.error_reply if isinstance(reply, Missed) else None
            served = how(error or reply)
            if served.closed:
                near.note_closed(tablet_id, node, served.closed)
            if error is not None and error.kind == "NOT_CLOSED" and asked.plain:
                near.note_lacking(tablet_id, node)
            if not isinstance(reply, Missed):
                return reply, node
            if error is None:
                near.missed(node)
            again = _weigh(reply, trial, None, "NOT_FOUND")
            by_lease = ("NOT_CLOSED", "NOT_THE_LEADER") if asked.plain else ("NOT_CLOSED",)
            if again or (error is not None and error.kind in by_lease):
                if asked.nearest_only:
                    raise trial.error()
                return None
        raise trial.error()

    def _measure(self, addresses: Mapping[str, str]) -> None:
        """Have those measured of whom too little is known, each once at a time, while reads go on."""
        for node in self._near.due(addresses):
            if node not in self._measuring:
                self._measuring[node] = task = asyncio.create_task(self._ping(node, addresses[node]), name=node)
                task.add_done_callback(lambda task: self._measuring.pop(task.get_name(), None))

    async def _ping(self, node: str, address: str) -> None:
        began_ns = self._ports.clock.monotonic_ns()
        reply = await attempt(self._ports.network, address, encode(Ping()), self._attempt_timeout_s)
        if isinstance(reply, Missed) and reply.error_reply is None:
            self._near.missed(node)
        else:
            self._near.answered(node, self._ports.clock.monotonic_ns() - began_ns)
        self._measured.set()

    async def _change(
        self,
        table: str,
        partition: int,
        make: Callable[[RequestId, str, int], Request],
        requested: int | None = None,
    ) -> ServedChange:
        """The timestamp that is asked for is this client's time, or the one that is told, the same at every attempt."""
        if requested is None:
            requested = physical(self._ports.clock.wall_ns())
        with Ticket(self._sessions) as ticket:

            def change(tablet_id: str) -> Request:
                return make(ticket.request_id, tablet_id, requested)

            reply, node = await self._ask_tablet(table, partition, change, Done, self._trial(), ticket)
            return ServedChange(reply, node, requested)

    async def _ask_master(
        self,
        make: Callable[[], Request],
        reply_type: type[ReplyType],
        *,
        trial: Trial | None = None,
        ticket: Ticket | None = None,
    ) -> ReplyType:
        trial = trial or self._trial()
        while not trial.over:
            request = make() if ticket is None or ticket.bind(CATALOG_GROUP) else RegisterSession(CATALOG_GROUP)
            reply = await self._attempt(self._masters.current, request, trial)
            if not isinstance(reply, Missed):
                self._masters.succeeded()
                if ticket is None or not _registered(ticket, CATALOG_GROUP, reply):
                    return _expect(reply, reply_type)
                continue
            again = _weigh(reply, trial, ticket)
            stay = reply.error_reply is not None and reply.error_reply.kind in TOO_EARLY
            hint = None if reply.error_reply is None else reply.error_reply.leader_address
            if not again and (stay or not _turn(self._masters, reply, hint)):
                await trial.pause()
        raise trial.error()

    async def _ask_tablet(
        self,
        table: str,
        partition: int,
        make: Callable[[str], Request],
        reply_type: type[ReplyType],
        trial: Trial,
        ticket: Ticket | None = None,
    ) -> tuple[ReplyType, str]:
        while not trial.over:
            tablet = await self._locate(table, partition, trial)
            if tablet is None:
                continue
            if ticket is not None and tablet.leads_clock:
                trial.be_patient(LEAD_PATIENCE_S)
            tablet_id, node = tablet.location.tablet_id, tablet.route.current
            if ticket is not None and ticket.bound_elsewhere(tablet_id):
                _require_fresh(trial)
                ticket.release()
            request = make(tablet_id) if ticket is None or ticket.bind(tablet_id) else RegisterSession(tablet_id)
            reply = await self._attempt(tablet.addresses[node], request, trial)
            if not isinstance(reply, Missed):
                tablet.route.succeeded()
                if ticket is None or not _registered(ticket, tablet_id, reply):
                    tablet.answered(reply, strong=False)
                    return _expect(reply, reply_type), node
                continue
            if not _weigh(reply, trial, ticket, "NOT_FOUND"):
                await self._after_miss(table, tablet, reply, trial)
        raise trial.error()

    def _attempt(self, address: str, request: Request, trial: Trial) -> Coroutine[Any, Any, Reply | Missed]:
        """One attempt, which now and then asks for the masters too, whoever it goes to: they may all be others by the
        time that one of them is needed (G1)."""
        payload, now_ns = encode(request), self._ports.clock.monotonic_ns()
        if now_ns - self._masters_asked_ns < MASTERS_FRESH_NS:
            return attempt_as(decode_reply, self._ports.network, address, payload, trial.attempt_timeout_s)
        self._masters_asked_ns, payload = now_ns, asking(payload, self._masters_index)
        return attempt_as(self._decode_told, self._ports.network, address, payload, trial.attempt_timeout_s)

    def _decode_told(self, answer: bytes) -> Reply:
        """Decode what tells the masters too, if others know of later ones; the latest configuration is taken."""
        known, reply = masters_in(answer)
        if known is not None and known.index > self._masters_index:
            self._masters_index = known.index
            for route in (self._masters, self._any_master):
                if route is not None:
                    route.retarget([master.address for master in known.masters])
        decoded: Reply = decode_reply(reply)
        return decoded

    async def _after_miss(self, table: str, tablet: _Tablet, missed: Missed, trial: Trial) -> None:
        if _turn(tablet.route, missed, None if missed.error_reply is None else missed.error_reply.leader):
            return
        if tablet.route.exhausted:
            await self._refresh(table, trial)
        await trial.pause()

    async def _refresh(self, table: str, trial: Trial) -> None:
        """Ask the masters again, briefly: if they can't be reached, what is known may still be good."""
        timeout_s = trial.attempt_timeout_s
        short = Trial(self._ports.clock, self._entropy, timeout_s, timeout_s / 2)
        try:
            reply = await self.ask_leader(GetTableLocations(table), TableLocationsReply, short)
        except (DefiniteError, IndefiniteError):
            return  # The operation goes on with the old locations until its deadline.
        self._remember(table, reply)

    async def _locate(self, table: str, partition: int, trial: Trial) -> _Tablet | None:
        """The tablet of a partition key; None if it isn't running yet, after a pause. Raises at the deadline."""
        if table not in self._tables:
            self._remember(table, await self.ask_leader(GetTableLocations(table), TableLocationsReply, trial))
        if (tablet := self._known(table, partition)) is not None:
            return tablet
        del self._tables[table]
        trial.note(Missed(Miss.REFUSED, False, "not-running", f"the tablet of {table!r}:{partition} is not running"))
        await trial.pause()
        return None

    def _known(self, table: str, partition: int) -> _Tablet | None:
        """The tablet of a partition key, if it is known."""
        for tablet in self._tables.get(table, {}).values():
            held = tablet.location.partition
            if partition % held.buckets == held.bucket:
                return tablet
        return None

    def _remember(self, table: str, reply: TableLocationsReply) -> None:
        """Take locations over; of a tablet whose replicas are the same, the client keeps the leader it knows."""
        known = self._tables.get(table, {})
        tablets = [known.get(location.partition.bucket) for location in reply.tablets]
        self._tables[table] = {
            location.partition.bucket: tablet
            if tablet is not None and tablet.same_place(location)
            else _Tablet(location)
            for location, tablet in zip(reply.tablets, tablets, strict=True)
            if location.replicas
        }
        for tablet in self._tables[table].values():
            tablet.route.refreshed()
            tablet.leads_clock = reply.policy == GLOBAL

    def _trial(self) -> Trial:
        return Trial(self._ports.clock, self._entropy, self._timeout_s, self._attempt_timeout_s)


def how(reply: object) -> HowServed:
    """How a read was served that was answered by this: strong reads at the leaseholder say nothing of it."""
    served = getattr(reply, "served", msgspec.UNSET)
    return HowServed() if served is msgspec.UNSET else served


def _registered(ticket: Ticket, group: str, reply: Reply) -> bool:
    """Whether the reply is that of a session's registration, which is noted."""
    if type(reply) is not SessionReply:
        return False
    ticket.registered(group, reply.session)
    return True


def _weigh(missed: Missed, trial: Trial, ticket: Ticket | None, *more_retried: str) -> bool:
    """Note what a miss means; True if the same target should be asked again at once. Raises what it ends with.

    A registration changes no data. A refused session means that this attempt did nothing: the request is fresh again,
    unless an earlier attempt may have taken effect, whose answer is gone now.
    """
    error = missed.error_reply
    ended = error is not None and error.kind == "SESSION_ENDED" and ticket is not None and ticket.bound
    if ticket is not None and (ended or not ticket.bound):
        missed = replace(missed, possible=False)
    trial.note(missed)
    if ticket is not None and ended:
        ticket.ended()
        _require_fresh(trial)
        return True
    if error is not None and error.kind not in (*RETRIED_ERRORS, *more_retried):
        raise trial.error()
    return False


def _require_fresh(trial: Trial) -> None:
    """Raise IndefiniteError if an attempt may have taken effect: the request must not go out under another identity."""
    if trial.possible:
        raise trial.error()


def _turn(route: Route, missed: Missed, hint: str | None) -> bool:
    """Choose the next target; True if it should be asked at once."""
    if missed.miss == Miss.REFUSED:
        return route.refused(hint)
    route.failed()
    return False


def _expect(reply: Reply, reply_type: type[ReplyType]) -> ReplyType:
    if not isinstance(reply, reply_type):
        raise HarnessError(f"a {type(reply).__name__} came back where a {reply_type.__name__} was due")
    return reply
