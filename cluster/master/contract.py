"""The one order that every change of the catalog follows (M6; Kudu, "Ensure strict ordering for all state changes").

`carry_out` reads as the contract's list. What changes is decided by an `Operation`: which locks it needs, and which
records it makes of those that are committed; both are pure, and say nothing about order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from msgspec.structs import replace

from cluster.master.calls import ServerCall
from cluster.master.locks import LockKey
from cluster.master.manager import CatalogManager, LeaderTerm, Refusal
from cluster.master.records import ServerRecord, TableRecord, TableState, TabletRecord, TabletState
from cluster.wire.messages import RequestId
from harness.ports.failpoints import linger


@dataclass(frozen=True, slots=True)
class Mutation:
    """New revisions of records, which nobody sees before they are committed, and what tablet servers are told then.

    `reply` is what the request is answered with, by its retries too.
    """

    tables: tuple[TableRecord, ...] = ()
    tablets: tuple[TabletRecord, ...] = ()
    calls: tuple[ServerCall, ...] = ()
    reply: bytes = b""
    servers: tuple[ServerRecord, ...] = ()


@dataclass(frozen=True, slots=True)
class Operation:
    """A change of the catalog's state.

    `locks` says what it locks, names before tables before tablets; `mutate` what it changes under these locks, None for
    nothing. Both raise Refusal where the operation can't be carried out.
    """

    name: str
    locks: Callable[[LeaderTerm], tuple[LockKey, ...]]
    mutate: Callable[[LeaderTerm], Mutation | None]
    request_id: RequestId | None = None


VISIBLE_EARLY = {"create-table": "create-visible-early", "place-tablets": "replacement-visible-early"}
"""Which flaw makes an operation's new records visible before they are replicated (before step 3 instead of at 5)."""

CALLS_EARLY = {"delete-table": "delete-rpc-early"}
"""Which flaw sends an operation's calls before they are due (before step 3 instead of at 7)."""


async def carry_out(manager: CatalogManager, leadership: LeaderTerm, operation: Operation) -> bytes | None:
    """Carry an operation out, all of it or nothing; its reply, None if there was nothing to change.

    Raises Refusal (NOT_THE_LEADER and what `operation` refuses: definite; TIMED_OUT: unknown) and Conflict (definite).
    """
    while True:
        if (answer := manager.answered(operation.request_id)) is not None:
            return answer  # A retry of what was carried out already.
        # 1. Locks. Records may have changed while they were waited for: then others are needed.
        keys = operation.locks(leadership)
        async with manager.locks.hold(*keys):
            await linger(manager.ports.failpoints, "master.locked")
            manager.require(leadership)
            if (answer := manager.answered(operation.request_id)) is not None:
                return answer
            if operation.locks(leadership) != keys:
                continue
            # 2. Mutate copies: concurrent readers go on to see what is committed.
            mutation = operation.mutate(leadership)
            if mutation is None:
                return None
            _err_early(manager, leadership, operation, mutation)
            # 3. Replicate all of it in one batch. If that fails the operation fails, and the copies are forgotten.
            # 4. Once it is replicated the operation may not fail any more.
            # 5. Commit: `Caches.commit`, where the batch is applied, before `replicate` returns; tablets before tables.
            try:
                reply = await _replicate(manager, operation, mutation)
            except Refusal as refusal:
                if not refusal.error_reply.definite and manager.holds(leadership):  # Step 7 may be due yet.
                    manager.undecided.add(mutation.tables, mutation.tablets, mutation.calls)
                raise
            # 6. Disk and memory of this master agree.
        if reply != mutation.reply:
            return reply  # Refused at apply (the session had ended), or answered before: nothing of this took effect.
        # 7. Only now tablet servers are told. What is lost is owed (`ServerCalls`), nudged (M8) or reported again (M4).
        manager.tell(leadership, mutation.calls)
        return reply


async def _replicate(manager: CatalogManager, operation: Operation, mutation: Mutation) -> bytes:
    """One batch, so that no fail-over finds a part of an operation (M7); with the flaw one for each record."""
    request_id, reply = operation.request_id, mutation.reply
    if "unbatched-catalog" not in manager.flaws or mutation.servers:
        return await manager.replicate(mutation.tables, mutation.tablets, request_id, reply, mutation.servers)
    batches = [*(((table,), ()) for table in mutation.tables), *(((), (tablet,)) for tablet in mutation.tablets)]
    for tables, tablets in batches[:-1]:
        await manager.replicate(tables, tablets)
    return await manager.replicate(*batches[-1], request_id, reply)


def _err_early(manager: CatalogManager, leadership: LeaderTerm, operation: Operation, mutation: Mutation) -> None:
    """What the flaws of the order do too early, as appendix B found it in Kudu; nothing without them."""
    if VISIBLE_EARLY.get(operation.name) in manager.flaws:
        tables = [replace(each, state=TableState.UNKNOWN, columns=()) for each in mutation.tables if each.revision == 1]
        new = [each for each in mutation.tablets if each.revision == 1]
        leadership.caches.commit(tables, [replace(each, state=TabletState.UNKNOWN, config=None) for each in new])
    if CALLS_EARLY.get(operation.name) in manager.flaws:
        manager.tell(leadership, mutation.calls)
