"""Each invariant of a group holds where it has to and breaks where its facts contradict each other."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from watched_cluster import GROUP, SECOND, VOTERS, Cluster, State, TestClock, View, covered, entry, persist

from cluster.invariants.raft import PROMISES_DURABLE, DurableLog, Positions
from cluster.master.catalog import Catalog
from cluster.observer import Observer
from cluster.raft.types import (
    AppendEntries,
    AppendReply,
    Entry,
    EntryKind,
    HardState,
    Message,
    PreVote,
    RequestVote,
    RequestVoteReply,
    Role,
    TimeoutNow,
)
from cluster.ranges.lease_record import Lease
from cluster.ranges.tablet import TabletMachine
from cluster.store.hlc import ClockReading, Hlc, Timestamp
from cluster.wire.messages import (
    Done,
    ErrorReply,
    ReadCell,
    ReadReply,
    Reply,
    RequestId,
    RowRequest,
    WriteCell,
    encode,
)
from harness.protocols import Breach
from tests.cluster.master.catalog_records import TABLE

FOLLOWER = View(1, role=Role.FOLLOWER)
WRITE = WriteCell(RequestId(1, 1, 1), "t", 0, 0, 0, 1)


def test_one_leader_a_term(cluster: Cluster) -> None:
    cluster.a.became_leader(GROUP, View(1))
    cluster.b.became_leader(GROUP, View(2))
    cluster.a.opened("another", "a", None, ())
    cluster.a.became_leader("another", View(2))
    assert cluster.breaches == []
    cluster.step = 7
    cluster.c.became_leader(GROUP, View(2))
    message = "two replicas lead in term 2"
    assert cluster.watch.record().breaches == (Breach("one-leader-per-term", message, 70, 7, ("b", "c"), GROUP),)


def test_a_second_life_may_not_lead_the_term_of_the_first(cluster: Cluster) -> None:
    cluster.a.became_leader(GROUP, View(3))
    cluster.life("a", 2).became_leader(GROUP, View(3))
    assert cluster.breaches == [("one-leader-per-term", ("a (incarnation 1)", "a (incarnation 2)"))]


def vote(cluster: Observer, term: int, candidate: str, voter: str = "a") -> None:
    """A vote that is durable leaves its voter."""
    cluster.durable(GROUP, [persist(state=HardState(term, candidate))])
    cluster.leaving(GROUP, [RequestVoteReply(voter, candidate, term, True)])


def test_a_server_votes_once_a_term_also_after_a_restart(cluster: Cluster) -> None:
    vote(cluster.a, 4, "b")
    vote(cluster.a, 4, "b")
    vote(cluster.c, 4, "c", "c")
    again = cluster.life("a", 2, state=HardState(4, "b"))
    vote(again, 5, "c")
    vote(again, 4, "b")
    assert cluster.breaches == []
    vote(again, 4, "c")
    assert cluster.breaches == [("one-vote-per-term", ("a (incarnation 1)", "a (incarnation 2)"))]


DURABLE = (HardState(4, "b"), (entry(3, 1), entry(4, 2)))
LEAVING = [
    (RequestVoteReply("a", "b", 4, True), True),
    (RequestVoteReply("a", "c", 4, True), False),
    (RequestVoteReply("a", "b", 5, True), False),
    (RequestVoteReply("a", "c", 4, False), True),
    (RequestVoteReply("a", "c", 5, False), False),
    (RequestVote("a", "b", 4, 2, 4, False), False),
    (AppendReply("a", "b", 4, True, 2, 0, 0, 0, 0), True),
    (AppendReply("a", "b", 4, True, 3, 0, 0, 0, 0), False),
    (AppendReply("a", "b", 4, False, 3, 0, 0, 0, 0), True),
    (AppendReply("a", "b", 5, True, 2, 0, 0, 0, 0), False),
    (AppendEntries("a", "b", 4, 2, 4, (entry(4, 3),), 0, 0, 0), True),
    (AppendEntries("a", "b", 5, 2, 4, (), 0, 0, 0), False),
    (TimeoutNow("a", "b", 5), False),
    (PreVote("a", "b", 5, 2, 4), True),
    # Made durable together with what followed in a later term.
    (RequestVoteReply("a", "c", 3, True), True),
    (RequestVote("a", "b", 3, 2, 3, False), True),
    (AppendReply("a", "b", 3, True, 3, 0, 0, 0, 0), True),
]


@pytest.mark.parametrize(("message", "fine"), LEAVING)
def test_what_leaves_a_replica_is_durable_there(cluster: Cluster, message: Message, fine: bool) -> None:
    state, log = DURABLE
    cluster.a.durable(GROUP, [persist(*log, state=state)])
    cluster.a.leaving(GROUP, [message])
    assert cluster.breaches == ([] if fine else [(PROMISES_DURABLE, ("a",))])


@pytest.mark.parametrize(
    ("state", "fine"),
    [(HardState(4, "b"), True), (HardState(5), True), (HardState(4), False), (HardState(3, "b"), False)],
)
def test_a_disk_gives_back_term_and_vote(cluster: Cluster, state: HardState, fine: bool) -> None:
    cluster.a.durable(GROUP, [persist(state=HardState(4, "b"))])
    cluster.life("a", 2, state=state)
    assert cluster.breaches == ([] if fine else [("durable-log-kept", ("a",))])


def test_a_leader_has_what_was_committed_before_its_term(cluster: Cluster) -> None:
    log = (entry(1, 1), entry(1, 2), entry(1, 3))
    cluster.on_disks(*log)
    cluster.a.committed(GROUP, View(1), log[:2])
    cluster.a.committed(GROUP, View(3, role=Role.FOLLOWER), log[2:])
    cluster.b.became_leader(GROUP, View(2, log[:2]))
    cluster.b.became_leader(GROUP, View(4, (entry(4, 4),), first_index=4))
    assert cluster.breaches == []
    cluster.b.became_leader(GROUP, View(5, log[:2]))
    cluster.c.became_leader(GROUP, View(6, (*log[:2], entry(2, 3))))
    assert cluster.breaches == [("leader-completeness", ("b",)), ("leader-completeness", ("c",))]


def test_committed_entries_are_the_same_everywhere_and_after_a_restart(cluster: Cluster) -> None:
    cluster.on_disks(entry(1, 1), entry(1, 2, b"y"))
    cluster.a.committed(GROUP, View(1), [entry(1, 1), entry(1, 2, b"y")])
    cluster.b.committed(GROUP, FOLLOWER, [entry(1, 1)])
    cluster.on_disks(entry(2, 3))
    cluster.b.committed(GROUP, View(2), [entry(1, 2, b"y"), entry(2, 3)])
    log = (entry(1, 1), entry(1, 2, b"y"), entry(2, 3))
    cluster.life("a", 2, entries=log).committed(GROUP, FOLLOWER, [entry(1, 2, b"y"), entry(2, 3)])
    assert cluster.breaches == []
    cluster.c.committed(GROUP, FOLLOWER, [entry(1, 1), entry(1, 2, b"z")])
    cluster.life("b", 2, entries=log).committed(GROUP, FOLLOWER, [entry(3, 3)])
    assert cluster.breaches == [
        ("committed-prefix", ("a", "c")),
        ("committed-prefix", ("b (incarnation 1)", "b (incarnation 2)")),
    ]


def test_entries_of_different_kinds_differ(cluster: Cluster) -> None:
    cluster.a.committed(GROUP, FOLLOWER, [Entry(1, 1, EntryKind.LEADER, b"")])
    cluster.b.committed(GROUP, FOLLOWER, [Entry(1, 1, EntryKind.COMMAND, b"")])
    assert cluster.breaches == [("committed-prefix", ("a", "b"))]


def test_nothing_is_committed_beyond_a_gap(cluster: Cluster) -> None:
    cluster.a.committed(GROUP, FOLLOWER, [entry(1, 1)])
    cluster.b.committed(GROUP, FOLLOWER, [entry(1, 3)])
    assert cluster.breaches == [("committed-prefix", ("b",))]


def test_a_leader_commits_what_is_durable_on_a_quorum(cluster: Cluster) -> None:
    first, second = entry(1, 1), entry(2, 2)
    cluster.a.durable(GROUP, [persist(first)])
    cluster.b.durable(GROUP, [persist(first)])
    cluster.a.committed(GROUP, View(1), [first])
    cluster.a.durable(GROUP, [persist(second)])
    cluster.b.durable(GROUP, [persist(entry(1, 2))])
    cluster.c.committed(GROUP, View(1, role=Role.FOLLOWER), [first])
    assert cluster.breaches == []
    cluster.a.committed(GROUP, View(2), [second])
    (breach,) = cluster.watch.record().breaches
    assert breach.invariant == "committed-on-a-quorum"
    assert breach.message == "entry 2 of term 2 is committed, but durable on a only"


def test_a_leader_counts_replicas_for_entries_of_its_own_term(cluster: Cluster) -> None:
    cluster.on_disks(entry(1, 1), entry(1, 2), entry(3, 3))
    cluster.a.committed(GROUP, View(1), [entry(1, 1)])
    cluster.b.committed(GROUP, View(2, role=Role.FOLLOWER), [entry(1, 1), entry(1, 2)])
    cluster.a.committed(GROUP, View(3), [entry(1, 2), entry(3, 3)])
    assert cluster.breaches == []
    cluster.on_disks(entry(3, 4))
    cluster.a.committed(GROUP, View(4), [entry(3, 4)])
    assert cluster.breaches == [("commits-own-term", ("a",))]


def test_a_snapshot_on_disk_counts_for_what_it_covers(cluster: Cluster) -> None:
    cluster.a.durable(GROUP, [persist(entry(1, 1), entry(1, 2), entry(1, 3))])
    cluster.b.durable(GROUP, [persist(entry(3, 5), snapshot=covered(4, 2))])
    cluster.a.committed(GROUP, View(1), [entry(1, 1), entry(1, 2), entry(1, 3)])
    assert cluster.breaches == []
    cluster.life("b", 2, snapshot=covered(4, 2))
    assert cluster.breaches == []


def test_a_disk_gives_back_what_was_committed_and_durable(cluster: Cluster) -> None:
    log = (entry(1, 1), entry(1, 2), entry(1, 3))
    cluster.on_disks(*log)
    cluster.a.committed(GROUP, View(1), log[:2])
    cluster.life("a", 2, entries=log[:2])
    cluster.life("b", 2, snapshot=covered(2, 1))
    assert cluster.breaches == []
    cluster.life("c", 2, entries=log[:1])
    cluster.life("a", 3, entries=(log[0], entry(2, 2)))
    assert cluster.breaches == [("durable-log-kept", ("c",)), ("durable-log-kept", ("a",))]


@given(st.lists(st.tuples(st.integers(1, 12), st.lists(st.integers(0, 1), min_size=1, max_size=5)), max_size=12))
def test_runs_of_terms_are_the_stored_log(writes: list[tuple[int, list[int]]]) -> None:
    """Against a plain list of terms; each write replaces everything from its first index on."""
    log, plain = DurableLog(HardState()), list[int]()
    for first, steps in writes:
        del plain[first - 1 :]
        term = plain[-1] if plain else 1
        entries = []
        for step in steps:
            term += step
            entries.append(entry(term, len(plain) + 1))
            plain.append(term)
        log.persist(persist(*entries))
        assert log.last == len(plain)
        for index in range(1, 20):
            has = [term for term in range(1, 70) if log.has(index, term)]
            assert has == plain[index - 1 : index]


def test_states_are_equal_at_equal_index_also_out_of_a_snapshot(cluster: Cluster) -> None:
    cluster.a.applied(GROUP, 1, State(0))
    cluster.a.applied(GROUP, 2, State(5))
    cluster.b.applied(GROUP, 1, State(0))
    cluster.b.restored(GROUP, covered(2, 1), State(5))
    assert cluster.breaches == []
    cluster.c.restored(GROUP, covered(2, 1), State(6))
    cluster.c.applied(GROUP, 3, State(7))
    cluster.a.applied(GROUP, 3, State(0))
    assert cluster.breaches == [("state-digest", ("a", "c")), ("state-digest", ("c", "a"))]


def test_leases_are_disjoint_in_true_time_whatever_the_clocks_show(cluster: Cluster) -> None:
    fast = cluster.life("b", 2, ahead_ns=90 * SECOND)
    old = View(1, lease_until_ns=10 * SECOND)
    cluster.a.served_by_lease(GROUP, old, 9 * SECOND)
    fast.served_by_lease(GROUP, View(2, lease_until_ns=105 * SECOND), 101 * SECOND)
    assert cluster.breaches == []
    cluster.c.served_by_lease(GROUP, View(3, lease_until_ns=16 * SECOND), 14 * SECOND)
    assert cluster.breaches == [("leases-disjoint", ("b", "c"))]


def test_a_lease_that_was_given_up_binds_nobody(cluster: Cluster) -> None:
    old = View(1, lease_until_ns=10 * SECOND)
    cluster.a.served_by_lease(GROUP, old, 2 * SECOND)
    old.lease_until_ns = 0
    cluster.b.served_by_lease(GROUP, View(2, lease_until_ns=12 * SECOND), 3 * SECOND)
    assert cluster.breaches == []


def test_the_lease_of_a_life_that_has_ended_does_not_bind_the_same_node(cluster: Cluster) -> None:
    """`assay run register --nemesis all --swarm --seed 32`: the only master was stopped and started again."""
    cluster.a.served_by_lease(GROUP, View(1, lease_until_ns=1 << 62), 9 * SECOND)
    cluster.life("a", 2).served_by_lease(GROUP, View(2, lease_until_ns=1 << 62), 10 * SECOND)
    assert cluster.breaches == []
    cluster.b.served_by_lease(GROUP, View(3, lease_until_ns=12 * SECOND), 11 * SECOND)
    assert cluster.breaches == [("leases-disjoint", ("a", "b"))]


@pytest.mark.parametrize("until_ns", [0, 2 * SECOND])
def test_nobody_serves_by_a_lease_that_is_over(cluster: Cluster, until_ns: int) -> None:
    cluster.a.served_by_lease(GROUP, View(1, lease_until_ns=until_ns), 2 * SECOND)
    assert cluster.breaches == [("served-within-the-lease", ("a",))]


def test_lease_records_follow_each_other(cluster: Cluster) -> None:
    first, second = lease("a", 1, 100, 200), lease("b", 2, 250, 300)
    cluster.a.lease_recorded(GROUP, None, first)
    cluster.a.lease_recorded(GROUP, first, second)
    cluster.b.lease_recorded(GROUP, None, first)
    cluster.b.lease_recorded(GROUP, lease("b", 2, 250, 900), lease("c", 3, 900, 1_000))
    assert cluster.breaches == []
    cluster.b.lease_recorded(GROUP, first, lease("b", 2, 251, 300))
    cluster.c.lease_recorded(GROUP, lease("c", 3, 900, 1_000), lease("a", 4, 999, 1_100))
    cluster.c.lease_recorded(GROUP, lease("a", 4, 999, 1_100), lease("a", 6, 1_200, 1_300))
    assert [invariant for invariant, _ in cluster.breaches] == ["lease-records"] * 3


def test_a_lease_begins_above_all_that_its_predecessor_had_by_promises(cluster: Cluster) -> None:
    """Whoever tells first: the holder that its lease lasts, or the replica that applies the next record."""
    first, late, soon = lease("a", 1, 100, 200), lease("b", 2, 700, 800), lease("b", 2, 699, 800)
    cluster.a.lease_recorded(GROUP, None, first)
    cluster.a.lease_extended(GROUP, 1, 700)
    cluster.a.lease_extended(GROUP, 1, 650)
    cluster.b.lease_recorded(GROUP, first, late)
    assert cluster.breaches == []
    cluster.a.lease_extended(GROUP, 1, 701)
    assert cluster.breaches == [("lease-records", ("a", "b"))]
    other = Cluster()
    other.a.lease_extended(GROUP, 1, 700)
    other.b.lease_recorded(GROUP, first, soon)
    assert other.breaches == [("lease-records", ("a", "b"))]


def test_a_lease_that_was_handed_over_has_nothing_by_promises_any_more(cluster: Cluster) -> None:
    over = msgspec.structs.replace(lease("a", 1, 100, 200), over=True)
    cluster.a.lease_extended(GROUP, 1, 700)
    cluster.b.lease_recorded(GROUP, over, lease("b", 2, 201, 300))
    assert cluster.breaches == []
    cluster.a.lease_extended(GROUP, 1, 701)
    assert cluster.breaches == [("lease-records", ("a", "b"))]


def lease(holder: str, sequence: int, start: int, expiration: int) -> Lease:
    return Lease(holder, sequence, 1, Timestamp(start), Timestamp(expiration))


def test_a_leader_serves_once_its_own_term_has_committed(cluster: Cluster) -> None:
    leader = View(2, (entry(1, 1), entry(2, 2)), lease_until_ns=9 * SECOND)
    cluster.on_disks(entry(1, 1), entry(2, 2))
    cluster.a.became_leader(GROUP, leader)
    cluster.a.committed(GROUP, View(2, role=Role.FOLLOWER), [entry(1, 1)])
    cluster.a.served_by_lease(GROUP, leader, SECOND)
    assert cluster.breaches == [("serves-own-term", ("a",))]
    cluster.a.committed(GROUP, leader, [entry(2, 2)])
    cluster.a.served_by_lease(GROUP, leader, SECOND)
    assert len(cluster.breaches) == 1


def test_nobody_serves_by_a_lease_once_another_leads_in_a_later_term(cluster: Cluster) -> None:
    leader = View(2, (entry(2, 1),), lease_until_ns=9 * SECOND)
    cluster.on_disks(entry(2, 1))
    cluster.a.became_leader(GROUP, leader)
    cluster.a.committed(GROUP, leader, [entry(2, 1)])
    cluster.a.served_by_lease(GROUP, leader, SECOND)
    assert cluster.breaches == []
    cluster.b.became_leader(GROUP, View(3, (entry(2, 1),)))
    cluster.a.served_by_lease(GROUP, leader, 2 * SECOND)
    assert cluster.breaches == [("leases-disjoint", ("b", "a"))]


def test_voters_change_one_at_a_time(cluster: Cluster) -> None:
    for voters in (VOTERS, (*VOTERS, "d"), ("a", "b")):
        cluster.a.configured(GROUP, View(2, voters=voters))
    cluster.b.configured(GROUP, View(2, role=Role.FOLLOWER, voters=("d",)))
    cluster.b.configured(GROUP, View(2, voters=VOTERS, committed=()))
    assert cluster.breaches == []
    cluster.a.configured(GROUP, View(2, voters=("a", "b", "d")))
    cluster.c.configured(GROUP, View(2, voters=(*VOTERS, "d", "e")))
    assert cluster.breaches == [("one-change-at-a-time", ("a",)), ("one-change-at-a-time", ("c",))]


@pytest.mark.parametrize(("peak_ns", "broken"), [(0, True), (SECOND, True), (SECOND + 1, False)])
def test_a_hybrid_clock_stays_near_true_time_where_the_wall_clock_does(
    cluster: Cluster, peak_ns: int, broken: bool
) -> None:
    observer = cluster.watch.observer("d", 1, TestClock(peak_ns=peak_ns))
    observer.opened(GROUP, "d", None, ())
    hlc = Hlc(SECOND)
    observer.clock_made(hlc, SECOND)
    hlc.now(1_002 * SECOND)
    observer.committed(GROUP, FOLLOWER, [entry(1, 1)])
    assert cluster.breaches == []
    hlc.now(1_003 * SECOND)
    observer.committed(GROUP, FOLLOWER, [entry(1, 2)])
    assert cluster.breaches == ([("hlc-in-bounds", ("d",))] if broken else [])


@pytest.mark.parametrize(
    ("request_", "reply", "broken"),
    [
        (WRITE, Done(True, None, 900), False),
        (WRITE, Done(True, None, 901), True),
        (ReadCell("t", 0, 0, 0), ReadReply(1, 901), True),
        (ReadCell("t", 0, 0, 0, begun=5), ReadReply(1, 901), True),
        (ReadCell("t", 0, 0, 0, as_of=901), ReadReply(1, 901), False),
        (ReadCell("t", 0, 0, 0, as_of=7), ReadReply(1, 1_001 * SECOND + 1), True),
        (WRITE, ErrorReply("TIMED_OUT", "", definite=False), False),
    ],
)
def test_no_answer_leaves_before_its_node_s_clock_has_come_to_what_it_shows(
    cluster: Cluster, request_: RowRequest, reply: Reply, broken: bool
) -> None:
    """A read at a time that was asked for is compared with the wall clock, which may be ahead of true time."""
    hlc = Hlc(SECOND)
    cluster.a.clock_made(hlc, SECOND)
    hlc.last = ClockReading(900)
    cluster.a.answer_leaves(request_, encode(reply))
    assert cluster.breaches == ([("answers-after-their-times", ("a",))] if broken else [])


def test_caches_are_what_the_master_was_seen_to_apply(cluster: Cluster) -> None:
    catalog = Catalog()
    cluster.a.caches_served({}, {}, {})
    cluster.a.opened("catalog", "a", None, ())
    cluster.a.applied("catalog", 1, catalog)
    catalog.tables = {"t": TABLE}
    cluster.a.caches_served({"t": TABLE}, {}, {})
    assert cluster.breaches == []
    cluster.a.caches_served({}, {}, {})
    cluster.b.caches_served({"t": TABLE}, {}, {})
    assert cluster.breaches == [("caches-are-the-catalog", ("a",)), ("caches-are-the-catalog", ("b",))]


def test_breaches_are_counted_and_the_first_are_kept(cluster: Cluster) -> None:
    for term in range(1, 21):
        cluster.a.became_leader(GROUP, View(term))
        cluster.b.became_leader(GROUP, View(term))
    record = cluster.watch.record()
    assert record.broken == {"one-leader-per-term": 20}
    assert record.checked["one-leader-per-term"] == 40
    assert len(record.breaches) == 5


def test_memory_is_bounded_and_what_is_kept_is_still_compared() -> None:
    facts = Positions(kept=10)
    for index in range(1, 101):
        assert facts.claim(index, index * 7, 0) == (index * 7, 0)
    assert facts.last - facts.base < 20
    assert facts.claim(95, 1, 1) == (95 * 7, 0)
    assert facts.claim(1, 1, 1) == (1, 1), "what was let go of is not compared"


def test_votes_and_leaders_of_old_terms_are_forgotten(cluster: Cluster) -> None:
    for term in range(1, 10_000):
        vote(cluster.a, term, "a")
        cluster.a.became_leader(GROUP, View(term))
    elections = cluster.watch.group(GROUP).elections
    assert len(elections._votes._values) == len(elections._leaders._values) == 4096
    vote(cluster.a, 9_000, "b")
    assert cluster.breaches == [("one-vote-per-term", ("a",))]


def test_facts_may_come_ahead_of_their_place() -> None:
    facts = Positions(kept=10)
    assert facts.claim(4, 44, 1) == (44, 1)
    assert facts.claim(2, 22, 0) == (22, 0)
    assert (facts.get(2), facts.get(3), facts.claim(4, 9, 0)) == (22, 0, (44, 1))
    assert facts.claim(1_000_000, 5, 0) == (5, 0)
    assert (facts.base, facts.last) == (1_000_000, 1_000_000)


def test_a_quorum_is_of_the_voters_alone(cluster: Cluster) -> None:
    cluster.on_disks(entry(1, 1))
    cluster.a.committed(GROUP, View(1, voters=(*VOTERS, "d", "e")), [entry(1, 1)])
    assert cluster.breaches == []
    cluster.a.durable(GROUP, [persist(entry(1, 2))])
    cluster.b.durable(GROUP, [persist(entry(1, 2))])
    cluster.a.committed(GROUP, View(1, voters=("a", "c", "d")), [entry(1, 2)])
    assert cluster.breaches == [("committed-on-a-quorum", ("a",))]


def test_a_tablet_that_is_deleted_for_good_owes_no_quorum_any_more() -> None:
    first, second = entry(1, 1), entry(1, 2)
    for for_good, expected in ((True, []), (False, [("committed-on-a-quorum", ("a",))])):
        cluster = Cluster()
        cluster.on_disks(first)
        cluster.a.committed(GROUP, View(1), [first])
        cluster.a.durable(GROUP, [persist(second)])
        cluster.b.replica_deleted(GROUP, "b", for_good=for_good)
        cluster.a.committed(GROUP, View(1), [second])
        assert cluster.breaches == expected


def test_what_leaves_the_write_index_alone_changes_no_data() -> None:
    def state(write_index: int, last_write: int) -> TabletMachine:
        machine = TabletMachine(1_000)
        machine.write_index, machine.last_write = write_index, last_write
        return machine

    cluster = Cluster()
    cluster.a.applied(GROUP, 5, state(5, 70))
    cluster.a.applied(GROUP, 6, state(5, 70))
    cluster.a.restored(GROUP, covered(8, 1), state(5, 70))
    cluster.a.applied(GROUP, 9, state(9, 90))
    cluster.b.restored(GROUP, covered(8, 1), state(5, 70))
    assert cluster.breaches == []
    assert cluster.watch.record().checked["data-at-write-index"] == 2
    cluster.a.applied(GROUP, 10, state(9, 91))
    cluster.b.restored(GROUP, covered(8, 1), state(5, 71))
    found = [breach for breach in cluster.breaches if breach[0] == "data-at-write-index"]
    assert found == [("data-at-write-index", ("a",)), ("data-at-write-index", ("b",))]
