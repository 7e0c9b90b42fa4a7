"""Parts of a master by themselves, with everything around them told: a follower's age, calls to servers, leadership."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from cluster.groups.waiters import OutcomeUnknown
from cluster.knobs import Knobs
from cluster.master.background import create_request, scan
from cluster.master.calls import MOST_IN_FLIGHT, ServerCall, ServerCalls
from cluster.master.catalog import Caches, Catalog, encode_batch
from cluster.master.manager import CatalogManager, Freshness, LeaderTerm, Refusal
from cluster.master.records import (
    ServerRecord,
    TabletConfig,
    TabletState,
    changed_tablet,
    deleted_tablet,
    new_table,
    new_tablet,
    removed_table,
)
from cluster.master.replication import replication_calls
from cluster.master.reports import ReportedReplica
from cluster.master.tservers import ServerMap
from cluster.raft.log import FOUNDING_INDEX
from cluster.raft.types import ChangeKind, Configuration, Member
from cluster.wire.messages import (
    AlterTablet,
    ChangeReplicas,
    CreateTablet,
    DeleteTablet,
    DoneReply,
    ErrorReply,
    FreshnessReply,
    Heartbeat,
    Partition,
    Replica,
    Reply,
    decode_request,
    encode,
    encode_reports,
)
from harness.ports.api import Unreachable
from tests.cluster.master.catalog_records import COLUMNS

SERVER = Replica("t1", "t1:7050")
MS = 1_000_000
S = 1_000 * MS


class Around:
    """Ports whose clock stands at `now_ns`, and whose calls are answered by `answer`."""

    def __init__(self, answer: Callable[[object], Awaitable[Reply]]) -> None:
        self.now_ns, self.asked = 0, 0
        self._answer = answer
        clock = SimpleNamespace(monotonic_ns=lambda: self.now_ns, wall_ns=lambda: self.now_ns)
        network = SimpleNamespace(call=self._call)
        failpoints = SimpleNamespace(armed={}, rest=lambda name, group="": None)
        self.ports: Any = SimpleNamespace(node_id="m2", clock=clock, network=network, failpoints=failpoints)

    async def _call(self, address: str, payload: bytes, timeout_s: float) -> bytes:
        self.asked += 1
        return encode(await self._answer(decode_request(payload)))


class FollowedGroup:
    """A group that m1 leads; what is committed is applied here if `applies`, and `leads` says whether m2 does."""

    def __init__(self) -> None:
        self.configuration = self.committed_configuration = Configuration(
            (Member("m1", "m1:7051"), Member("m2", "m2:7051"))
        )
        self.leader, self.term, self.applies, self.leads, self.term_after = "m1", 3, True, False, 3
        self.installing = False

    @property
    def is_leader(self) -> bool:
        return self.leads

    async def applied(self, index: int, timeout_s: float) -> None:
        if not self.applies:
            raise OutcomeUnknown

    async def propose(self, command: bytes, timeout_s: float) -> bytes:
        raise AssertionError("nothing is to be replicated here")

    async def read_barrier(self, timeout_s: float) -> bool:
        self.term = self.term_after
        return True


# ---- a follower's age (M13) ----


def follower(leader_age_ms: list[int]) -> tuple[Around, FollowedGroup, Freshness]:
    """It asks 10 ms long; the leader's answers tell these ages, one after the other."""

    async def answer(request: object) -> Reply:
        around.now_ns += 10 * MS
        return FreshnessReply(7, leader_age_ms.pop(0) * MS)

    around, group = Around(answer), FollowedGroup()
    return around, group, Freshness(around.ports, group, max_drift=0.05)


def test_an_age_counts_from_the_question_and_the_leader_s_clock_may_be_slow() -> None:
    around, _, freshness = follower([100])
    assert freshness.age_ns is None
    assert asyncio.run(freshness.at_most(500 * MS)) == (10 + 110) * MS
    around.now_ns += 300 * MS
    assert freshness.age_ns == 420 * MS


async def test_the_leader_is_asked_only_where_what_is_known_is_too_old() -> None:
    around, _, freshness = follower([100, 0])
    for bound_ms, asked in ((500, 1), (120, 1), (119, 2)):
        await freshness.at_most(bound_ms * MS)
        assert around.asked == asked


async def test_an_older_answer_makes_nothing_older_that_was_known() -> None:
    around, _, freshness = follower([0, 900])
    assert await freshness.at_most(0) == 10 * MS
    around.now_ns += 20 * MS
    assert await freshness.at_most(0) == 40 * MS


def test_what_is_not_applied_here_makes_nobody_fresh() -> None:
    _, group, freshness = follower([0])
    group.applies = False
    assert asyncio.run(freshness.at_most(500 * MS)) is None


# ---- calls to tablet servers (M6) ----


def request_of(kind: str, tablet: str = "x") -> CreateTablet | AlterTablet | DeleteTablet:
    if kind == "create":
        return CreateTablet("t1", True, tablet, "a", "orders", Partition(0, 1), COLUMNS, 0, (SERVER,))
    return AlterTablet(tablet, "orders", COLUMNS, 1) if kind == "alter" else DeleteTablet(tablet)


class Slow:
    """A tablet server that answers when it is `released`."""

    def __init__(self, reply: Reply | None = None) -> None:
        self.reply: Reply | None = DoneReply(True) if reply is None else reply
        self.told: list[object] = []
        self.done: list[object] = []
        self.released = asyncio.Event()
        self.ports = Around(self._answer).ports
        self.calls = ServerCalls(self.ports, ServerMap(1), on_done=lambda call: self.done.append(call.request))

    async def _answer(self, request: object) -> Reply:
        self.told.append(request)
        await self.released.wait()
        if self.reply is None:
            raise Unreachable("t1")
        return self.reply

    def send(self, *requests: CreateTablet | AlterTablet | DeleteTablet) -> None:
        self.calls.send([ServerCall(SERVER, each) for each in requests])

    async def rest(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0)


def crowd() -> list[DeleteTablet]:
    return [DeleteTablet(f"other{number}") for number in range(MOST_IN_FLIGHT)]


async def test_what_waits_to_be_made_or_altered_is_not_once_it_is_to_be_deleted() -> None:
    server = Slow()
    server.send(*crowd(), request_of("create"), request_of("alter"), request_of("delete"))
    await server.rest()
    assert len(server.told) == MOST_IN_FLIGHT
    server.released.set()
    await server.rest()
    assert server.told[MOST_IN_FLIGHT:] == [request_of("delete")]


async def test_what_is_under_way_is_not_sent_a_second_time_and_goes_out_again_once_it_was_lost() -> None:
    server = Slow()
    server.reply = None
    for _ in range(3):
        server.send(request_of("delete"))
        await server.rest()
    assert server.told == [request_of("delete")]
    server.released.set()
    await server.rest()
    server.send(request_of("delete"))
    await server.rest()
    assert server.told == [request_of("delete")] * 2 and server.done == []


@pytest.mark.parametrize("carried_out", [True, False])
async def test_a_refusal_is_no_acknowledgement(carried_out: bool) -> None:
    server = Slow(DoneReply(True) if carried_out else ErrorReply("CHANGE_REFUSED", "not now", definite=True))
    server.released.set()
    server.send(request_of("delete"))
    await server.rest()
    assert server.done == ([request_of("delete")] if carried_out else [])


# ---- leadership (M2, M6) ----


def manager_of(catalog: Catalog, server: Slow) -> tuple[CatalogManager, FollowedGroup]:
    group: Any = FollowedGroup()
    return CatalogManager(server.ports, catalog, group, ServerMap(1), Knobs()), group


async def test_a_term_that_ends_while_it_is_proven_serves_nothing() -> None:
    manager, group = manager_of(Catalog(), Slow())
    group.leads, group.term_after = True, 4
    with pytest.raises(Refusal, match="NOT_THE_LEADER"):
        await manager.lead()
    assert (await manager.lead()).term == 4


def seen_by(around: Around, group: FollowedGroup, max_staleness_ms: int | None) -> int | str:
    """The age of what questions are answered from, or the kind of the refusal."""
    known: Any = group
    manager = CatalogManager(around.ports, Catalog(), known, ServerMap(1), Knobs())
    try:
        return asyncio.run(manager.view(max_staleness_ms))[1]
    except Refusal as refusal:
        return refusal.error_reply.kind


def test_who_takes_a_snapshot_in_is_as_old_as_nobody_knows() -> None:
    for installing, seen in ((False, 10), (True, "TOO_STALE")):
        around, group, _ = follower([0])
        group.installing = installing
        assert seen_by(around, group, 1_000) == seen


def test_a_leader_answers_by_its_proof_whatever_age_is_allowed() -> None:
    around, group, _ = follower([])
    group.leads, group.leader = True, "m2"
    assert [seen_by(around, group, bound) for bound in (None, 0, 1_000, -1)] == [0, 0, 0, "INVALID"]
    assert around.asked == 0


def test_a_master_names_itself_to_nobody_as_another_leader() -> None:
    manager, _ = manager_of(Catalog(), Slow())
    named = [manager.not_the_leader(leader).error_reply for leader in ("m1", "m2", "gone", None)]
    told = [("m1", "m1:7051"), (None, None), ("gone", None), (None, None)]
    assert [(fault.leader, fault.leader_address) for fault in named] == told


def test_servers_that_are_silent_or_to_leave_get_nothing_new() -> None:
    around, group, servers = Around(lambda request: asyncio.sleep(0, DoneReply(True))), FollowedGroup(), ServerMap(100)
    for number, heard_ns in ((1, 0), (2, 50), (3, 50)):
        beat = Heartbeat(f"t{number}", 1, f"t{number}:7050", "z1", 1, True, encode_reports(()))
        servers.observe(beat, heard_ns)
    known: Any = group
    manager = CatalogManager(around.ports, Catalog(), known, servers, Knobs())
    leadership = LeaderTerm(3, Caches((), (), (ServerRecord("t2", 1, True),)))
    assert [each.node_id for each in manager.placeable(leadership)] == ["t1", "t3"]
    around.now_ns = 101
    assert [each.node_id for each in manager.placeable(leadership)] == ["t3"]


def test_a_batch_beyond_the_limit_is_refused_before_it_is_proposed() -> None:
    manager, _ = manager_of(Catalog(), Slow())
    many = [new_tablet("0" * 32, "0" * 32, Partition(bucket, 15_000)) for bucket in range(15_000)]
    with pytest.raises(Refusal, match="use fewer buckets"):
        asyncio.run(manager.replicate((), many))


async def test_who_leads_no_more_tells_tablet_servers_nothing_of_what_waited_or_was_undecided() -> None:
    """The next leader finds it in full reports; by then it may be otherwise."""
    table, tablet = new_table("a", "orders", COLUMNS, 3), new_tablet("x", "a", Partition(0, 1))
    catalog, server = Catalog(), Slow()
    manager, _ = manager_of(catalog, server)
    catalog.apply(1, encode_batch([table], [tablet]))
    gone = (removed_table(table),), (deleted_tablet(tablet),)
    manager.undecided.add(*gone, (ServerCall(SERVER, request_of("delete")),))
    manager.calls.send([ServerCall(SERVER, each) for each in (*crowd(), request_of("create", "late"))])
    await server.rest()
    manager.step_down()
    catalog.apply(2, encode_batch(*gone))
    server.released.set()
    await server.rest()
    assert server.told == crowd()


def test_what_turns_out_to_be_committed_is_told_and_what_was_overtaken_is_not() -> None:
    async def scenario(overtaken: bool) -> list[object]:
        table, tablet = new_table("a", "orders", COLUMNS, 3), new_tablet("x", "a", Partition(0, 1))
        catalog, server = Catalog(), Slow()
        manager, _ = manager_of(catalog, server)
        catalog.apply(1, encode_batch([table], [tablet]))
        gone = (removed_table(table),), (deleted_tablet(tablet),)
        manager.undecided.add(*gone, (ServerCall(SERVER, request_of("delete")),))
        await server.rest()
        assert server.told == []
        catalog.apply(2, encode_batch(gone[0], () if overtaken else gone[1]))
        await server.rest()
        return server.told

    assert asyncio.run(scenario(False)) == [request_of("delete")]
    assert asyncio.run(scenario(True)) == []


@pytest.mark.parametrize(("op_index", "founding"), [(0, True), (FOUNDING_INDEX, True), (FOUNDING_INDEX + 1, False)])
def test_a_replica_that_comes_up_late_founds_its_group_unless_that_was_changed_since(
    op_index: int, founding: bool
) -> None:
    manager, _ = manager_of(Catalog(), Slow())
    table, made = new_table("a", "orders", COLUMNS, 3), new_tablet("x", "a", Partition(0, 1))
    tablet = changed_tablet(made, config=TabletConfig(op_index, (SERVER,)))
    request = create_request(manager, table, tablet, "t1")
    assert (request.founding, request.voters, request.server_id) == (founding, (SERVER,), "t1")


NAMES = ("t1", "t2", "t3", "t4")
Asked = Callable[[TabletConfig, int], list[tuple[ChangeKind, str]]]


def repairing() -> tuple[LeaderTerm, Asked]:
    """A leader master of four tablet servers, and what it asks of a tablet of three in a configuration at a time; its
    grace is a second."""
    around, servers = Around(lambda request: asyncio.sleep(0, DoneReply(True))), ServerMap(9 * S)
    for name in NAMES:
        servers.observe(Heartbeat(name, 1, f"{name}:7050", "z1", 1, True, encode_reports(())), 0)
    group: Any = FollowedGroup()
    manager = CatalogManager(around.ports, Catalog(), group, servers, Knobs(replica_dead_ms=4_000))
    record = changed_tablet(new_tablet("x", "a", Partition(0, 1)), state=TabletState.RUNNING, leader="t1")
    leadership = LeaderTerm(3, Caches((new_table("a", "orders", COLUMNS, 3),), (record,)))

    def asked(config: TabletConfig, at_ns: int) -> list[tuple[ChangeKind, str]]:
        around.now_ns = at_ns
        leadership.caches.commit((), (changed_tablet(record, config=config),))
        calls = [call.request for call in replication_calls(manager, leadership)]
        return [(each.change, each.server_id) for each in calls if isinstance(each, ChangeReplicas)]

    return leadership, asked


def config(voters: int, learners: int = 0, op_index: int = 9) -> TabletConfig:
    members = tuple(Replica(name, f"{name}:7050") for name in NAMES[: voters + learners])
    return TabletConfig(op_index, members[:voters], members[voters:])


def test_a_tablet_that_turns_from_too_few_voters_to_too_many_is_given_time_anew() -> None:
    """Whoever adds by hand what masters were about to add may be about to remove another (M11)."""
    _, asked = repairing()
    assert asked(config(2), 0) == asked(config(2), S - 1) == []
    assert [kind for kind, _ in asked(config(2), S)] == [ChangeKind.ADD_LEARNER]
    assert asked(config(4), S + 1) == asked(config(4), 2 * S) == []
    assert asked(config(4), 2 * S + 1) == [(ChangeKind.REMOVE, "t4")]
    assert asked(config(3), 2 * S + 2) == asked(config(4), 3 * S) == [], "it was whole between"


def test_whoever_adds_a_replica_by_hand_is_given_time_anew_with_each_step() -> None:
    """`assay run register --nemesis membership --seed 185` never came to remove a voter: masters took the learner that
    it had added away before that had caught up."""
    leadership, asked = repairing()
    learner, promoted = config(3, 1), config(4, op_index=12)
    for known in (None, 0, 8):
        if known is not None:
            leadership.holders.note("t4", "x", ReportedReplica(known, 8, True))
        assert asked(learner, 0) == asked(learner, 8 * S) == [], "it is not where it was added"
    leadership.holders.note("t4", "x", ReportedReplica(9, 8, True))
    assert asked(learner, 8 * S) == asked(learner, 9 * S - 1) == []
    assert asked(promoted, 9 * S - 1) == asked(promoted, 10 * S - 2) == []
    assert asked(promoted, 10 * S - 1) == [(ChangeKind.REMOVE, "t4")]


def test_a_learner_that_has_caught_up_and_one_that_is_dead_are_one_too_many() -> None:
    leadership, asked = repairing()
    leadership.holders.note("t4", "x", ReportedReplica(9, 8, True))
    assert asked(config(3, 1), 0) == []
    assert asked(config(3, 1), S) == [(ChangeKind.REMOVE, "t4")]
    _, asked = repairing()
    assert asked(config(3, 1), 10 * S) == [], "its server is dead by now"
    assert asked(config(3, 1), 11 * S) == [(ChangeKind.REMOVE, "t4")]


# ---- the scan ----


async def _steps_of_a_scan(dropped: int) -> int:
    """How many Python functions a scan calls, with that many dropped tables beside one that lives."""
    live = new_table("live", "live", COLUMNS, 1)
    tables, tablets = [live], [new_tablet("its", "live", Partition(0, 1))]
    for number in range(dropped):
        tables.append(removed_table(new_table(f"gone{number}", f"gone{number}", COLUMNS, 1)))
        tablets.append(deleted_tablet(new_tablet(f"of{number}", f"gone{number}", Partition(0, 1))))
    catalog = Catalog()
    for table in tables:
        catalog.tables[table.table_id] = table
    catalog.tablets |= {tablet.tablet_id: tablet for tablet in tablets}
    manager, group = manager_of(catalog, Slow())
    group.leads = True
    leadership, calls = await manager.lead(), 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        await scan(manager, leadership)
    finally:
        sys.setprofile(None)
    return calls


async def test_a_scan_costs_what_lives_whatever_was_ever_dropped() -> None:
    assert await _steps_of_a_scan(0) == await _steps_of_a_scan(500) > 0
