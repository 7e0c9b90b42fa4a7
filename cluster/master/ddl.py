"""CreateTable (appendix B, in its improved order): name locked, one replicated batch, visible only when committed."""

from __future__ import annotations

from cluster.master.locks import LockClass
from cluster.master.manager import MAX_BATCH_BYTES, CatalogManager, Conflict, Leadership, Refusal, invalid, too_large
from cluster.master.records import TabletRecord, new_table, new_tablet
from cluster.wire.messages import (
    DESIGNS,
    SUPPORTED_DESIGNS,
    CreateTable,
    CreateTableReply,
    Fault,
    Partition,
    Reply,
    decode_reply,
    encode,
)

MIN_TABLET_RECORD_BYTES = 40
"""Lower bound of one tablet record's size, so that an absurd number of buckets is refused before it is built."""


async def create_table(manager: CatalogManager, request: CreateTable) -> Reply:
    """Create a table whose tablets are then placed in the background; once per request (G8).

    Raises Refusal (ALREADY_PRESENT, INVALID, NOT_THE_LEADER: definite; TIMED_OUT: unknown).
    """
    _validate(request)
    async with manager.locks.hold((LockClass.NAME, request.name)):
        leadership = await manager.lead()
        answer = manager.answered(request.request_id)
        if answer is None:
            _admit(manager, leadership, request)
            answer = await _replicate(manager, request)
    manager.wake.set()
    reply: Reply = decode_reply(answer)
    return reply


async def _replicate(manager: CatalogManager, request: CreateTable) -> bytes:
    table = new_table(manager.new_id(), request.name, request.columns, request.replication_factor, request.design)
    tablets = _tablets(manager, table.table_id, request.buckets)
    reply = encode(CreateTableReply(table.table_id))
    try:
        return await manager.replicate((table,), tablets, request.request_id, reply)
    except Conflict as error:
        raise Refusal(Fault("ALREADY_PRESENT", str(error), definite=True)) from error


def _tablets(manager: CatalogManager, table_id: str, buckets: int) -> list[TabletRecord]:
    return [new_tablet(manager.new_id(), table_id, Partition(bucket, buckets)) for bucket in range(buckets)]


def _validate(request: CreateTable) -> None:
    if not request.name:
        raise invalid("a table needs a name")
    if request.buckets < 1:
        raise invalid(f"a table needs at least one bucket, not {request.buckets}")
    if request.buckets * MIN_TABLET_RECORD_BYTES > MAX_BATCH_BYTES:
        raise too_large(request.buckets, request.buckets * MIN_TABLET_RECORD_BYTES)
    odd = request.replication_factor % 2 == 1 or request.design != "raft"
    if request.replication_factor < 1 or not odd:
        raise invalid(f"the replication factor must be odd and positive, not {request.replication_factor}")
    if request.design not in DESIGNS:
        raise invalid(f"a table's design is one of {', '.join(DESIGNS)}, not {request.design!r}")
    if request.design not in SUPPORTED_DESIGNS:
        message = f"tables of the design {request.design!r} can't be hosted by this version"
        raise Refusal(Fault("UNSUPPORTED_DESIGN", message, definite=True))
    names = [column.name for column in request.columns]
    ids = [column.id for column in request.columns]
    if not names or len(names) != len(dict.fromkeys(names)) or len(ids) != len(dict.fromkeys(ids)):
        raise invalid("a table needs columns, with distinct names and ids")


def _admit(manager: CatalogManager, leadership: Leadership, request: CreateTable) -> None:
    if leadership.caches.table_named(request.name) is not None:
        raise Refusal(Fault("ALREADY_PRESENT", f"a table named {request.name!r} exists", definite=True))
    live = manager.servers.live(manager.ports.clock.monotonic_ns())
    if len(live) < request.replication_factor:
        raise invalid(f"{request.replication_factor} replicas were asked for and {len(live)} tablet servers are live")
