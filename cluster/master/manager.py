"""The catalog manager: leadership over the catalog and replication of its changes (M2, M6, M10).

Beside it how old a follower's catalog is at most (M13), and changes that may yet be replicated (M6, step 7).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from cluster.groups.membership import replicas_of
from cluster.groups.sessions import RegisterClient, SessionLimits
from cluster.groups.waiters import NotLeader, NotProposed, OutcomeUnknown
from cluster.knobs import Knobs
from cluster.master.calls import ServerCall, ServerCalls
from cluster.master.catalog import BatchOutcome, Caches, Catalog, Record, decode_outcome, encode_batch
from cluster.master.locks import KeyLocks
from cluster.master.records import ServerRecord, TableRecord, TabletRecord
from cluster.master.reports import Holders
from cluster.master.tservers import ServerEntry, ServerMap
from cluster.observer import UNOBSERVED, Observer
from cluster.raft.types import Configuration
from cluster.wire.known_masters import KnownMasters
from cluster.wire.messages import (
    AskFreshness,
    DeleteTablet,
    ErrorReply,
    FreshnessReply,
    Replica,
    Reply,
    RequestId,
    decode_reply,
    encode,
)
from harness.ports.api import CallLost, Ports, Refused, Unreachable
from harness.ports.failpoints import pass_by

# ---- the age of a follower (M13) ----
# A follower may answer what allows a bounded age (KUDU-500). It asks the leader how far the log is committed, and how
# long ago a quorum acknowledged the leader's last round. When that round was sent nobody else can have led, so all
# that was committed by then lies within that index; once the follower has applied that much, it is as old as that
# round. It dates the round by the moment at which it asked itself, which was earlier than the answer: so no message's
# delay makes anything look younger than it is, and a leader that is cut off from its quorum tells an age that grows,
# however well it is heard.


FRESHNESS_PATIENCE_S = 0.5
"""How long a question may wait for the leader's answer, and for what it names to be applied."""


class FollowedGroup(Protocol):
    """The part of `cluster.groups.group.Group` that a follower's age depends on."""

    @property
    def leader(self) -> str | None: ...

    @property
    def configuration(self) -> Configuration: ...

    async def applied(self, index: int, timeout_s: float) -> None: ...


class Freshness:
    """What one master knows of its own age; `max_drift` bounds how far any clock's rate is off."""

    def __init__(self, ports: Ports, group: FollowedGroup, max_drift: float) -> None:
        self._ports, self._group, self._max_drift = ports, group, max_drift
        self._as_of_ns: int | None = None
        """A monotonic time by which all that was committed is applied here; only rises."""
        self._asking: asyncio.Task[None] | None = None
        """The one question to the leader that is under way."""

    @property
    def age_ns(self) -> int | None:
        """How old the applied catalog is at most, now; None if nothing is known of that."""
        return None if self._as_of_ns is None else self._ports.clock.monotonic_ns() - self._as_of_ns

    async def at_most(self, bound_ns: int) -> int | None:
        """The age, after asking the leader where it is above the bound; it may be above it still."""
        age_ns = self.age_ns
        if age_ns is None or age_ns > bound_ns:
            if self._asking is None or self._asking.done():
                self._asking = asyncio.create_task(self._ask(), name="catalog.freshness")
            await asyncio.shield(self._asking)
        return self.age_ns

    def close(self) -> None:
        """Ask no more."""
        if self._asking is not None:
            self._asking.cancel()

    async def _ask(self) -> None:
        leader, asked_ns = self._group.leader, self._ports.clock.monotonic_ns()
        members = self._group.configuration.members
        address = next((member.address for member in members if member.server_id == leader), None)
        if address is None or leader == self._ports.node_id:
            return
        try:
            reply = decode_reply(await self._ports.network.call(address, encode(AskFreshness()), FRESHNESS_PATIENCE_S))
            if isinstance(reply, FreshnessReply):
                await self._group.applied(reply.index, FRESHNESS_PATIENCE_S)
                self._note(asked_ns, reply.age_ns)
        except (Unreachable, CallLost, Refused, NotLeader, OutcomeUnknown):
            return  # Nothing new is known, and what is known grows old.

    def _note(self, asked_ns: int, leader_age_ns: int) -> None:
        """The leader's age was measured by its own clock, which may be slow."""
        as_of_ns = asked_ns - round(leader_age_ns * (1 + 2 * self._max_drift))
        self._as_of_ns = as_of_ns if self._as_of_ns is None else max(self._as_of_ns, as_of_ns)


# ---- changes that may yet be replicated (M6) ----


@dataclass(frozen=True, slots=True)
class _Change:
    tables: tuple[TableRecord, ...]
    tablets: tuple[TabletRecord, ...]
    calls: tuple[ServerCall, ...]


class UndecidedChange:
    """What tablet servers are to be told of such a change as soon as it takes effect, while its proposer leads.

    Nobody else would: who asked was answered that nobody knows, reports are of what changes at tablet servers, and
    only a new leader gets full ones.
    """

    def __init__(self, catalog: Catalog, send: Callable[[Iterable[ServerCall]], None]) -> None:
        self._catalog, self._send = catalog, send
        self._changes: list[_Change] = []

    def add(
        self, tables: tuple[TableRecord, ...], tablets: tuple[TabletRecord, ...], calls: tuple[ServerCall, ...]
    ) -> None:
        """A change, which may have taken effect since its proposer gave up."""
        if calls:
            self._changes.append(_Change(tables, tablets, calls))
            self.settle()

    def settle(self) -> None:
        """Something took effect: send what is due now, and forget what can't come any more."""
        if not self._changes:
            return
        due = [change for change in self._changes if all(now == then for now, then in self._both(change))]
        self._changes = [change for change in self._changes if change not in due and not self._overtaken(change)]
        for change in due:
            self._send(change.calls)

    def forget(self) -> None:
        """Leadership was lost: the next leader gets full reports."""
        self._changes.clear()

    def _overtaken(self, change: _Change) -> bool:
        """Whether another change took the place of this one's revisions, so that it will be refused."""
        return any(now is not None and now.revision >= then.revision for now, then in self._both(change))

    def _both(self, change: _Change) -> Iterator[tuple[Record | None, Record]]:
        yield from ((self._catalog.tables.get(each.table_id), each) for each in change.tables)
        yield from ((self._catalog.tablets.get(each.tablet_id), each) for each in change.tablets)


# ---- the manager ----


MAX_BATCH_BYTES = 1 << 20
"""Limit on one replicated batch (M7); a create of 1 000 tablets takes about 89 KB."""

REPLICATION_TIMEOUT_S = 2.0

BARRIER_TIMEOUT_S = 0.5
"""How long a request waits for proof of leadership before it is refused; below every client's attempt timeout."""


class Refusal(Exception):
    """A request is answered with this reply."""

    def __init__(self, error_reply: ErrorReply) -> None:
        super().__init__(f"{error_reply.kind}: {error_reply.message}")
        self.error_reply = error_reply


class Conflict(Exception):
    """A batch was refused at apply: its records were made from revisions that are no longer current."""


def raise_it(error: BaseException) -> None:
    """What stops a program where nobody else was named to be told."""
    raise error


class CatalogGroup(Protocol):
    """The part of `cluster.groups.group.Group` that the manager needs."""

    async def propose(self, command: bytes, timeout_s: float) -> bytes: ...

    async def read_barrier(self, timeout_s: float) -> bool: ...

    @property
    def is_leader(self) -> bool: ...

    @property
    def term(self) -> int: ...

    @property
    def leader(self) -> str | None: ...

    @property
    def configuration(self) -> Configuration: ...

    @property
    def committed_configuration(self) -> Configuration: ...

    @property
    def installing(self) -> bool: ...

    def committed_as_of(self) -> tuple[int, int] | None: ...

    async def applied(self, index: int, timeout_s: float) -> None: ...


@dataclass(slots=True)
class LeaderTerm:
    """All that belongs to one term as leader; a new term starts with a new one. Keys are tablet ids."""

    term: int
    """The Raft term of the catalog's group in which this master leads."""
    caches: Caches
    """Committed records; the same object from term to term, for it follows what is applied."""
    schema_versions: dict[str, dict[str, int]] = field(default_factory=dict)
    """By tablet server the version of the schema that its replica has (M5)."""
    creating_since_ns: dict[str, int] = field(default_factory=dict)
    """When this leader first saw a tablet CREATING, by the monotonic clock."""
    heard_of: dict[str, dict[str, Replica]] = field(default_factory=dict)
    """Tablet servers that reported a tablet: what KUDU-1353 located tablets by, kept with the flaw only."""
    broken: dict[str, dict[str, None]] = field(default_factory=dict)
    """Tablet servers that report their replica as failed or quarantined; no entry is empty."""
    amiss_since_ns: dict[str, tuple[int, int]] = field(default_factory=dict)
    """What is amiss, and since when (monotonic): too few voters (0), or too many members by the configuration at this
    index (M11)."""
    holders: Holders = field(default_factory=Holders)
    """Tablet servers that have a tablet's replica, wanted or not (M9)."""
    founded_until_scan: int = 0
    """How many more tablets have to run before there is room for others that wait; 0 if none does."""
    nudge_after_ns: int = 0
    """Unreported replicas are nudged again after this time (monotonic)."""
    flaws: frozenset[str] = frozenset()
    """Names of the flaws that this program has."""
    lost: Callable[[], tuple[str, ...]] = tuple
    """Tablet servers that won't return (`ServerMap.lost`)."""
    zones: Callable[[], Mapping[str, str]] = dict
    """Where tablet servers stand (`ServerMap.zones`)."""


class CatalogManager:
    """Holds the catalog, its Raft group, the tserver map and the locks; serves only while leadership is proven."""

    def __init__(
        self,
        ports: Ports,
        catalog: Catalog,
        group: CatalogGroup,
        servers: ServerMap,
        knobs: Knobs,
        observer: Observer = UNOBSERVED,
        on_failure: Callable[[BaseException], None] = raise_it,
    ) -> None:
        self.ports = ports
        self.flaws = catalog.flaws
        self._on_failure = on_failure
        self._observer = observer
        self.servers = servers
        self.calls = ServerCalls(ports, servers, self._tell_of_call, self._call_done)
        self.undecided = UndecidedChange(catalog, self.calls.send)
        self.locks = KeyLocks()
        self.wake = asyncio.Event()
        """Set when the background scan has something to do before its interval is over."""
        self.reported: dict[str, int] = {}
        """By tablet server the incarnation that sent this process a full report (M4)."""
        self._catalog = catalog
        self._group = group
        self.knobs = knobs
        self._leadership: LeaderTerm | None = None
        """Of the latest term in which leadership was proven; None where it was lost since."""
        self._caches: Caches | None = None
        """Up to date with what is applied; None until they are needed, and after a snapshot."""
        self._freshness = Freshness(ports, group, knobs.max_clock_drift)
        catalog.observer, catalog.on_restoring = self._commit, self._forget_caches

    async def lead(self, timeout_s: float = BARRIER_TIMEOUT_S) -> LeaderTerm:
        """Proven leadership as of now, with caches that hold everything committed before the call.

        Raises Refusal (NOT_THE_LEADER, definite).
        """
        term = self._group.term
        if not self._trusts_itself(term):
            await self._prove(timeout_s)
        if not self._group.is_leader or self._group.term != term:
            raise self.not_the_leader(self._group.leader)
        if self._leadership is None or self._leadership.term != term:
            self._leadership = LeaderTerm(
                term, self._warm_caches(), flaws=self.flaws, lost=self.servers.lost, zones=self.servers.zones
            )
        self._tell_served(self._leadership.caches)
        return self._leadership

    async def view(self, max_staleness_ms: int | None) -> tuple[LeaderTerm, int]:
        """What questions are answered from, and its age in ms: proven leadership, or what a follower has applied (M13).

        Raises Refusal (NOT_THE_LEADER; where an age is allowed: TOO_STALE, INVALID; all definite).
        """
        if max_staleness_ms is not None and max_staleness_ms < 0:
            raise invalid(f"the staleness that is allowed must not be negative, as {max_staleness_ms} ms is")
        if max_staleness_ms is None or self.leads():
            return await self.lead(), 0
        bound_ns = max_staleness_ms * 1_000_000
        age_ns = await self._freshness.at_most(bound_ns)
        if age_ns is None or age_ns > bound_ns or self._group.installing:
            raise self._too_stale(age_ns, max_staleness_ms)
        caches = self._warm_caches()
        self._tell_served(caches)
        return LeaderTerm(self._group.term, caches, flaws=self.flaws), -(-age_ns // 1_000_000)

    def freshness(self) -> FreshnessReply:
        """What this leader can say of the age of its commit index; raises Refusal."""
        known = self._group.committed_as_of()
        if known is None:
            raise self.not_the_leader(self._group.leader)
        return FreshnessReply(*known)

    def close(self) -> None:
        """Call nobody any more."""
        self.calls.close()
        self._freshness.close()

    def _warm_caches(self) -> Caches:
        """The caches that this master keeps up to date with what it applies, leader or not (M13); built where there are
        none."""
        known = self._catalog
        if self._caches is None:
            self._caches = Caches(known.tables.values(), known.tablets.values(), known.servers.values())
        return self._caches

    def _forget_caches(self) -> None:
        """A snapshot replaces the catalog."""
        self._caches = None

    def _tell_served(self, caches: Caches) -> None:
        self._observer.caches_served(caches.tables, caches.tablets, caches.servers)

    def _too_stale(self, age_ns: int | None, bound_ms: int) -> Refusal:
        age = "of unknown age" if age_ns is None else f"up to {age_ns // 1_000_000} ms old"
        message = f"this follower's catalog is {age}, and {bound_ms} ms are allowed"
        return Refusal(ErrorReply("TOO_STALE", message, True))

    def _trusts_itself(self, term: int) -> bool:
        """With the flaw a master that led once in its term believes that it still does, deposed or not."""
        known = self._leadership is not None and self._leadership.term == term
        return known and "deposed-master-serves" in self.flaws

    async def _prove(self, timeout_s: float) -> None:
        """Leadership as of now, by a quorum or by the lease; raises Refusal."""
        try:
            await self._group.read_barrier(timeout_s)
        except NotLeader as error:
            raise self.not_the_leader(error.leader) from error
        except OutcomeUnknown as error:
            raise self.not_the_leader(None) from error

    def leads(self) -> bool:
        """Whether this master takes itself for the leader; no proof."""
        return self._group.is_leader

    def step_down(self) -> None:
        """Leadership was lost; the caches go on with what is applied."""
        self._leadership = None
        if self.flaws:
            self._caches = None  # What a flaw showed early goes with the term.
        self.calls.forget()
        self.undecided.forget()

    def new_id(self) -> str:
        """A table or tablet id: 32 hexadecimal digits, never given twice."""
        return f"{self.ports.entropy.getrandbits(128):032x}"

    def require(self, leadership: LeaderTerm) -> None:
        """Raises Refusal (NOT_THE_LEADER, definite) if its term has ended: its caches are no longer kept up to date."""
        if not self.holds(leadership):
            raise self.not_the_leader(self._group.leader)

    def holds(self, leadership: LeaderTerm) -> bool:
        """Whether its term lasts, as far as this master knows."""
        return self._leadership is leadership

    def tell(self, leadership: LeaderTerm, calls: Iterable[ServerCall]) -> None:
        """Have tablet servers told, while the term lasts: then its successor's catalog says what they are told, which
        may be of other things by now (M4)."""
        if self.holds(leadership):
            self.calls.send(calls)

    def answered(self, request_id: RequestId | None) -> bytes | None:
        """The encoded reply to a request that must not be carried out (any more), see `Sessions.answered`."""
        return None if request_id is None else self._catalog.sessions.answered(request_id)

    async def register_session(self) -> Reply:
        """Begin a client session; raises Refusal (NOT_THE_LEADER, TIMED_OUT)."""
        await self.lead()
        command = RegisterClient(self.ports.clock.wall_ns(), SessionLimits.of(self.knobs))
        reply: Reply = decode_reply((await self._propose(encode(command))).reply)
        return reply

    async def replicate(
        self,
        tables: Sequence[TableRecord],
        tablets: Sequence[TabletRecord],
        request_id: RequestId | None = None,
        reply: bytes = b"",
        servers: Sequence[ServerRecord] = (),
    ) -> bytes:
        """Replicate one batch; the caches hold it when this returns, and its reply is returned.

        Raises Refusal (NOT_THE_LEADER, definite; TIMED_OUT, unknown; INVALID, over the size limit) and Conflict. The
        master lives on whatever happens (M10).
        """
        command = encode_batch(tables, tablets, request_id, reply, self.ports.clock.wall_ns(), servers)
        if len(command) > MAX_BATCH_BYTES:
            raise too_large(len(tablets), len(command))
        await pass_by(self.ports.failpoints, "master.before_commit")
        try:
            outcome = await self._propose(command)
        except Refusal as refusal:
            if "abort-on-failed-replication" in self.flaws:
                self._on_failure(refusal)
            raise  # The operation fails; this master may have been deposed, and lives on (M10, KUDU-495).
        await pass_by(self.ports.failpoints, "master.after_commit")
        if outcome.conflict is not None:
            raise Conflict(outcome.conflict)
        return outcome.reply

    async def _propose(self, command: bytes) -> BatchOutcome:
        try:
            outcome: BatchOutcome = decode_outcome(await self._group.propose(command, REPLICATION_TIMEOUT_S))
        except NotLeader as error:
            raise self.not_the_leader(error.leader) from error
        except NotProposed as error:
            raise Refusal(ErrorReply(error.kind, str(error), definite=True)) from error
        except OutcomeUnknown as error:
            raise Refusal(
                ErrorReply("TIMED_OUT", "the catalog change was not replicated in time", definite=False)
            ) from error
        return outcome

    def not_the_leader(self, leader: str | None) -> Refusal:
        """The definite refusal of a master that does not lead, with the leader as a hint, if it knows another one."""
        hint = None if leader == self.ports.node_id else leader
        members = self._group.configuration.members
        address = next((member.address for member in members if member.server_id == hint), None)
        return Refusal(ErrorReply("NOT_THE_LEADER", "this master does not lead", True, hint, address))

    def known_leader(self) -> str | None:
        """Who leads the masters, as far as this one knows."""
        return self._group.leader

    def configuration(self) -> Configuration:
        """The masters' committed configuration."""
        return self._group.committed_configuration

    def masters(self) -> KnownMasters:
        """Who the masters are; clients and tservers learn it from here (G1)."""
        configuration = self._group.committed_configuration
        return KnownMasters(configuration.index, replicas_of(configuration.members))

    def _tell_of_call(self, call: ServerCall) -> None:
        self._observer.tablet_called(call.replica.node_id, call.request)

    def _call_done(self, call: ServerCall) -> None:
        if self._leadership is not None and isinstance(call.request, DeleteTablet):
            self._leadership.holders.deleted(call.replica.node_id, call.request)

    def placeable(self, leadership: LeaderTerm) -> list[ServerEntry]:
        """Tablet servers that may get replicas: those that live and are not to leave."""
        leaving = leadership.caches.leaving
        live = self.servers.live(self.ports.clock.monotonic_ns())
        return [entry for entry in live if entry.node_id not in leaving]

    def _commit(
        self, tables: Sequence[TableRecord], tablets: Sequence[TabletRecord], servers: Sequence[ServerRecord]
    ) -> None:
        if self._caches is not None:
            self._caches.commit(tables, tablets, servers)
        self.undecided.settle()


def invalid(message: str) -> Refusal:
    return Refusal(ErrorReply("INVALID", message, definite=True))


def not_found(message: str) -> Refusal:
    return Refusal(ErrorReply("NOT_FOUND", message, definite=True))


def too_large(tablets: int, size: int, limit: int = MAX_BATCH_BYTES) -> Refusal:
    sizes = f"takes {size} bytes in the catalog's log and the limit is {limit}"
    return invalid(f"a change of {tablets} tablets {sizes}: use fewer buckets")
