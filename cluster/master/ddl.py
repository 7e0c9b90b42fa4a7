"""CreateTable, AlterTable, PlaceTable and DeleteTable (M5, appendix B), as operations of the contract (M6).

Tablets follow an alteration afterwards.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence

import msgspec

from cluster.master.calls import CALL_TIMEOUT_S, ServerCall
from cluster.master.contract import Mutation, Operation, carry_out
from cluster.master.locks import LockKey, name_keys, table_keys, tablet_keys
from cluster.master.manager import MAX_BATCH_BYTES, CatalogManager, Conflict, LeaderTerm, Refusal, invalid, too_large
from cluster.master.queries import replicas_of_tablet, table_of
from cluster.master.records import (
    TableRecord,
    TableState,
    TabletRecord,
    TabletState,
    altered_table,
    changed_table,
    deleted_tablet,
    new_table,
    new_tablet,
    removed_table,
    settled_table,
)
from cluster.ranges.policies import InvalidPolicy, unmet
from cluster.store.schema import (
    MAX_GIVEN_ID,
    MAX_NAME_CHARACTERS,
    UNASSIGNED,
    Column,
    InvalidSchema,
    altered,
    check_schema,
)
from cluster.wire.messages import (
    DESIGNS,
    AlterTable,
    AlterTableReply,
    AlterTablet,
    CreateTable,
    CreateTableReply,
    DeleteTable,
    DeleteTableReply,
    DeleteTablet,
    ErrorReply,
    Partition,
    PlaceTable,
    Regional,
    Replica,
    Replicas,
    Reply,
    TabletReport,
    decode_reply,
    encode,
    voters_wanted,
)
from harness.ports.api import CallLost, Refused, Unreachable

# ---- how tablets follow an alteration (appendix B, M5) ----
# Each tablet is sent AlterTablet after the commit, by the background scan again, and whenever it reports an older
# schema; tablets take it up once, whoever sends it how often. What they report is kept in memory: a new leader learns
# it from the full reports that it gets (M4). When every tablet has the latest, one batch makes the table RUNNING
# again.


def take_schema(
    manager: CatalogManager, leadership: LeaderTerm, table: TableRecord, node_id: str, report: TabletReport
) -> None:
    """Note the version that a replica has; tell its tablet again if that lags, settle the table if it was the last."""
    leadership.schema_versions.setdefault(report.tablet_id, {})[node_id] = report.schema_version
    tablet = leadership.caches.tablets[report.tablet_id]
    if _lags(leadership, table, tablet):
        manager.tell(leadership, _calls(leadership, table, tablet))
    elif settled(leadership, table):
        manager.wake.set()


def _lags(leadership: LeaderTerm, table: TableRecord, tablet: TabletRecord) -> bool:
    """Whether the tablet is not known to have the table's latest schema.

    In a range one replica tells for all: it has the schema from the log, so every later leader will have it too.
    Elsewhere each tells for itself, but for those that serve nobody: they are broken, or on a server that is lost.
    """
    versions = leadership.schema_versions.get(tablet.tablet_id, {})
    if table.design == "raft":
        return max(versions.values(), default=-1) < table.version
    node_ids = () if tablet.config is None else tablet.config.node_ids
    mute = (*leadership.broken.get(tablet.tablet_id, {}), *leadership.lost())
    return min((versions.get(each, -1) for each in node_ids if each not in mute), default=-1) < table.version


def lagging(leadership: LeaderTerm, table: TableRecord) -> list[TabletRecord]:
    """The table's tablets that are not known to have its latest schema."""
    return [tablet for tablet in leadership.caches.tablets_of(table.table_id) if _lags(leadership, table, tablet)]


def alter_calls(leadership: LeaderTerm, table: TableRecord) -> tuple[ServerCall, ...]:
    """What tablet servers are told so that lagging tablets follow.

    Of a table that is not ALTERING those may lag that came after it was, in the place of others: they tell so.
    """
    if not table.version:
        return ()  # It was never altered: there is nothing to lag behind.
    altering, reported = table.state == TableState.ALTERING, leadership.schema_versions
    tablets = [each for each in lagging(leadership, table) if altering or each.tablet_id in reported]
    return tuple(call for tablet in tablets for call in _calls(leadership, table, tablet))


def _calls(leadership: LeaderTerm, table: TableRecord, tablet: TabletRecord) -> Sequence[ServerCall]:
    """To the leader as last reported, or to every replica where none was: those that don't lead refuse."""
    if tablet.state != TabletState.RUNNING:
        return ()
    replicas = replicas_of_tablet(leadership, tablet)
    leading = [each for each in replicas if each.node_id == tablet.leader]
    policy = table.policy or msgspec.UNSET
    request = AlterTablet(tablet.tablet_id, table.name, table.columns, table.version, policy)
    return [ServerCall(each, request) for each in leading or replicas]


async def settle(manager: CatalogManager, leadership: LeaderTerm, table_id: str) -> None:
    """Make the table RUNNING if every tablet has its latest schema; raises Refusal, Conflict if that fails."""

    def mutate(leadership: LeaderTerm) -> Mutation | None:
        table = leadership.caches.tables[table_id]
        return Mutation((settled_table(table),)) if settled(leadership, table) else None

    if settled(leadership, leadership.caches.tables[table_id]):
        keys = table_keys((table_id,))
        await carry_out(manager, leadership, Operation("settle-table", lambda leadership: keys, mutate))


def settled(leadership: LeaderTerm, table: TableRecord) -> bool:
    """Whether an alteration of the table is done, and its record doesn't say so yet."""
    return table.state == TableState.ALTERING and not lagging(leadership, table)


# ---- requests ----


MIN_TABLET_RECORD_BYTES = 40
"""Lower bound of one tablet record's size, so that an absurd number of buckets is refused before it is built."""

CREATE_BATCH_BYTES = MAX_BATCH_BYTES * 7 // 8
"""A table that could be created can be deleted in one batch too, however much its records' revisions grow."""


async def carry_out_request(
    manager: CatalogManager, request: CreateTable | AlterTable | DeleteTable | PlaceTable
) -> Reply:
    """Answer a request; see there for what each raises."""
    if isinstance(request, CreateTable):
        return await create_table(manager, request)
    if isinstance(request, AlterTable):
        return await alter_table(manager, request)
    if isinstance(request, PlaceTable):
        return await place_table(manager, request)
    return await delete_table(manager, request)


async def create_table(manager: CatalogManager, request: CreateTable) -> Reply:
    """Create a table whose tablets are then placed in the background; once per request (G8).

    Raises Refusal (ALREADY_PRESENT, INVALID, TRY_AGAIN, NOT_THE_LEADER: definite; TIMED_OUT: unknown).
    """
    _validate(request)
    columns, policy = _numbered(request.columns), request.policy or ""
    _validate_policy(manager, policy, request.design)

    def mutate(leadership: LeaderTerm) -> Mutation:
        _require_free(leadership, request.name)
        _require_servers(manager, leadership, request.replicas)
        table = new_table(manager.new_id(), request.name, columns, request.replicas, request.design, policy)
        tablets = tuple(
            new_tablet(manager.new_id(), table.table_id, Partition(bucket, request.buckets))
            for bucket in range(request.buckets)
        )
        size = len(encode(tablets))
        if size > CREATE_BATCH_BYTES:
            raise too_large(request.buckets, size, CREATE_BATCH_BYTES)
        return Mutation((table,), tablets, reply=encode(CreateTableReply(table.table_id)))

    locks = name_keys((request.name,))
    reply = await _answer(manager, Operation("create-table", lambda leadership: locks, mutate, request.request_id))
    manager.wake.set()
    return reply


async def alter_table(manager: CatalogManager, request: AlterTable) -> Reply:
    """Change a table's schema, name or policy; its tablets follow (`cluster.master.ddl`); once per request (G8).

    Raises Refusal (NOT_FOUND, ALREADY_PRESENT, INVALID, POLICY_UNMET, NOT_THE_LEADER: definite; TIMED_OUT: unknown).
    """
    policy = None if request.policy is msgspec.UNSET else request.policy
    if not request.steps and request.new_name is None and policy is None:
        raise invalid("an alteration has to change something")
    if request.new_name is not None:
        _validate_name(request.new_name)
    if policy is not None:
        await _require_met(manager, table_of(await manager.lead(), request), policy)

    def locks(leadership: LeaderTerm) -> tuple[LockKey, ...]:
        table = table_of(leadership, request)
        return (*name_keys(dict.fromkeys((table.name, request.new_name or table.name))), *table_keys((table.table_id,)))

    def mutate(leadership: LeaderTerm) -> Mutation:
        table = table_of(leadership, request)
        new_name = request.new_name or table.name
        if request.new_name == table.name:
            raise invalid(f"the table {new_name!r} is called that already")
        if request.new_name is not None:
            _require_free(leadership, new_name)
        columns, next_id = _altered(request, table)
        changed = altered_table(table, new_name, columns, next_id, policy)
        calls = alter_calls(leadership, changed)
        return Mutation((changed,), (), calls, encode(AlterTableReply(table.table_id, changed.version)))

    return await _answer(manager, Operation("alter-table", locks, mutate, request.request_id))


async def place_table(manager: CatalogManager, request: PlaceTable) -> Reply:
    """Change where a table's replicas are to stand; they move afterwards (`cluster.master.replication`).

    Raises Refusal (NOT_FOUND, INVALID, UNKNOWN_ZONE, TOO_FEW_NODES, NOT_THE_LEADER: definite; TIMED_OUT: unknown).
    """

    def locks(leadership: LeaderTerm) -> tuple[LockKey, ...]:
        return table_keys((table_of(leadership, request).table_id,))

    def mutate(leadership: LeaderTerm) -> Mutation:
        table = table_of(leadership, request)
        _validate_replicas(request.replicas, table.design)
        if voters_wanted(request.replicas) != table.replication_factor:
            raise invalid(f"the table {table.name!r} has {table.replication_factor} voters, wherever they stand")
        _require_servers(manager, leadership, request.replicas)
        changed = changed_table(table, replicas=request.replicas)
        return Mutation((changed,), reply=encode(AlterTableReply(table.table_id, table.version)))

    reply = await _answer(manager, Operation("place-table", locks, mutate, request.request_id))
    manager.wake.set()
    return reply


async def delete_table(manager: CatalogManager, request: DeleteTable) -> Reply:
    """Remove a table and its tablets in one batch; their replicas are deleted afterwards; once per request (G8).

    Raises Refusal (NOT_FOUND, NOT_THE_LEADER: definite; TIMED_OUT: unknown).
    """

    def locks(leadership: LeaderTerm) -> tuple[LockKey, ...]:
        table_id = table_of(leadership, request).table_id
        tablets = leadership.caches.tablets_of(table_id)
        return (*table_keys((table_id,)), *tablet_keys(tablet.tablet_id for tablet in tablets))

    def mutate(leadership: LeaderTerm) -> Mutation:
        table = table_of(leadership, request)
        tablets = leadership.caches.tablets_of(table.table_id)
        calls = tuple(call for tablet in tablets for call in delete_calls(leadership, tablet))
        reply = encode(DeleteTableReply(table.table_id))
        return Mutation((removed_table(table),), tuple(map(deleted_tablet, tablets)), calls, reply)

    return await _answer(manager, Operation("delete-table", locks, mutate, request.request_id))


def delete_calls(leadership: LeaderTerm, tablet: TabletRecord) -> tuple[ServerCall, ...]:
    """What tablet servers are told of a tablet that is gone for good."""
    return tuple(
        ServerCall(each, DeleteTablet(tablet.tablet_id, server_id=each.node_id))
        for each in replicas_of_tablet(leadership, tablet)
    )


async def _answer(manager: CatalogManager, operation: Operation) -> Reply:
    try:
        answer = await carry_out(manager, await manager.lead(), operation)
    except Conflict as error:
        # An earlier batch of unknown outcome took effect after all: the caches hold it now.
        raise Refusal(ErrorReply("TRY_AGAIN", str(error), definite=True)) from error
    assert answer is not None, "a request changes something or is refused"
    reply: Reply = decode_reply(answer)
    return reply


def _altered(request: AlterTable, table: TableRecord) -> tuple[tuple[Column, ...], int]:
    try:
        return altered(table.columns, table.next_column_id, request.steps)
    except InvalidSchema as error:
        raise invalid(f"{table.name!r}: {error}") from error


def _numbered(columns: tuple[Column, ...]) -> tuple[Column, ...]:
    """Columns with ids: those that the client gave, or their places if it gave none; raises Refusal (INVALID)."""
    if all(column.id == UNASSIGNED for column in columns):
        columns = tuple(msgspec.structs.replace(column, id=at) for at, column in enumerate(columns))
    if not all(0 <= column.id <= MAX_GIVEN_ID for column in columns):
        raise invalid(f"column ids are given for all columns, from 0 to {MAX_GIVEN_ID}, or for none")
    try:
        check_schema(columns)
    except InvalidSchema as error:
        raise invalid(str(error)) from error
    return columns


def _validate_name(name: str) -> None:
    if not name:
        raise invalid("a table needs a name")
    if len(name) > MAX_NAME_CHARACTERS:
        raise invalid(f"a table's name has at most {MAX_NAME_CHARACTERS} characters, not {len(name)}")


def _validate(request: CreateTable) -> None:
    _validate_name(request.name)
    if request.buckets < 1:
        raise invalid(f"a table needs at least one bucket, not {request.buckets}")
    if request.buckets * MIN_TABLET_RECORD_BYTES > CREATE_BATCH_BYTES:
        raise too_large(request.buckets, request.buckets * MIN_TABLET_RECORD_BYTES, CREATE_BATCH_BYTES)
    _validate_replicas(request.replicas, request.design)
    if request.design not in DESIGNS:
        raise invalid(f"a table's design is one of {', '.join(DESIGNS)}, not {request.design!r}")


def _validate_replicas(replicas: Replicas, design: str) -> None:
    factor = voters_wanted(replicas)
    if factor < 1 or (factor % 2 == 0 and design == "raft"):
        raise invalid(f"the replication factor must be odd and positive, not {factor}")
    if not isinstance(replicas, Regional):
        return
    if design != "raft":
        raise invalid(f"replicas of the design {design!r} stand in no certain zones")
    if min((*replicas.voters.values(), *replicas.learners.values())) < 1:
        raise invalid("a zone that is named has one replica at least")
    if replicas.home and 2 * replicas.voters.get(replicas.home, 0) <= factor:
        raise invalid(f"a majority of the {factor} voters has to stand in the home zone {replicas.home!r}")


def _validate_policy(manager: CatalogManager, policy: str, design: str) -> None:
    """Raises Refusal (INVALID; POLICY_UNMET where not even next to each other nodes could keep it)."""
    if policy and design != "raft":
        raise invalid(f"tables of the design {design!r} close nothing")
    try:
        problem = unmet(policy, manager.knobs, 0)
    except InvalidPolicy as error:
        raise invalid(str(error)) from error
    if problem is not None:
        raise Refusal(ErrorReply("POLICY_UNMET", problem, definite=True))


async def _require_met(manager: CatalogManager, table: TableRecord, policy: str) -> None:
    """Ask the leaseholders whether they could keep a policy, by the round trips that they have measured. Who does not
    answer goes by the lag of the knobs until it can.

    Raises Refusal (INVALID, POLICY_UNMET).
    """
    _validate_policy(manager, policy, table.design)
    leadership = await manager.lead()
    asked = [
        _ask_whether(manager, each, AlterTablet(tablet.tablet_id, table.name, (), 0, policy, only_asks=True))
        for tablet in leadership.caches.tablets_of(table.table_id)
        for each in replicas_of_tablet(leadership, tablet)
        if each.node_id == tablet.leader
    ]
    for problem in await asyncio.gather(*asked):
        if problem is not None:
            raise Refusal(problem)


async def _ask_whether(manager: CatalogManager, replica: Replica, request: AlterTablet) -> ErrorReply | None:
    """What a tablet server has against it that is sure; None for nothing, or no answer."""
    try:
        reply = decode_reply(await manager.ports.network.call(replica.address, encode(request), CALL_TIMEOUT_S))
    except (Unreachable, CallLost, Refused):
        return None
    return reply if isinstance(reply, ErrorReply) and reply.kind == "POLICY_UNMET" else None


def _require_free(leadership: LeaderTerm, name: str) -> None:
    if leadership.caches.table_named(name) is not None:
        raise Refusal(ErrorReply("ALREADY_PRESENT", f"a table named {name!r} exists", definite=True))


def _require_servers(manager: CatalogManager, leadership: LeaderTerm, replicas: Replicas) -> None:
    """Too few is never for good: this master may not have heard from all of them yet, or some are down (KUDU-1358)."""
    if isinstance(replicas, Regional):
        _require_zones(Counter(entry.zone for entry in manager.placeable(leadership)), replicas)
    live, count = len(manager.placeable(leadership)), voters_wanted(replicas)
    if live < count:
        message = f"{count} replicas were asked for and {live} tablet servers are live: try again"
        raise Refusal(ErrorReply("TRY_AGAIN", message, definite=True))


def _require_zones(live: Counter[str], replicas: Regional) -> None:
    for zone, count in (Counter(replicas.voters) + Counter(replicas.learners)).items():
        if zone not in live:
            known = ", ".join(sorted(live)) or "none"
            raise Refusal(ErrorReply("UNKNOWN_ZONE", f"no live tablet server is in {zone!r}; there are {known}", True))
        if live[zone] < count:
            message = f"{count} replicas are to stand in {zone!r}, and {live[zone]} tablet servers are live there"
            raise Refusal(ErrorReply("TOO_FEW_NODES", message, definite=True))
