"""Each invariant of a group holds where it has to and breaks where its facts contradict each other."""

from __future__ import annotations

from cluster.invariants.facts import Positions
from cluster.invariants.watch import Watch
from cluster.raft.types import Entry, EntryKind, SnapshotMeta
from harness.invariants import Breach

GROUP = "tablet"


class State:
    """A state machine of which only the digest matters."""

    def __init__(self, digest: int) -> None:
        self.digest = digest


class Cluster:
    """A watch, and the observers of a few nodes' lives."""

    def __init__(self) -> None:
        self.step = 0
        self.watch = Watch(lambda: (self.step * 10, self.step))
        self.a, self.b, self.c = (self.watch.observer(name, 1) for name in "abc")

    @property
    def breaches(self) -> list[tuple[str, tuple[str, ...]]]:
        return [(breach.invariant, breach.nodes) for breach in self.watch.record().breaches]


def entry(term: int, index: int, data: bytes = b"x") -> Entry:
    return Entry(term, index, EntryKind.COMMAND, data)


def test_one_leader_a_term() -> None:
    cluster = Cluster()
    cluster.a.became_leader(GROUP, 1)
    cluster.b.became_leader(GROUP, 2)
    cluster.a.became_leader("another", 2)
    assert cluster.breaches == []
    cluster.step = 7
    cluster.c.became_leader(GROUP, 2)
    message = "two replicas lead in term 2"
    assert cluster.watch.record().breaches == (Breach("one-leader-per-term", message, 70, 7, ("b", "c"), GROUP),)


def test_a_second_life_may_not_lead_the_term_of_the_first() -> None:
    cluster = Cluster()
    cluster.a.became_leader(GROUP, 3)
    cluster.watch.observer("a", 2).became_leader(GROUP, 3)
    assert cluster.breaches == [("one-leader-per-term", ("a (incarnation 1)", "a (incarnation 2)"))]


def test_committed_entries_are_the_same_everywhere_and_after_a_restart() -> None:
    cluster = Cluster()
    cluster.a.committed(GROUP, [entry(1, 1), entry(1, 2, b"y")])
    cluster.b.committed(GROUP, [entry(1, 1)])
    cluster.b.committed(GROUP, [entry(1, 2, b"y"), entry(2, 3)])
    cluster.watch.observer("a", 2).committed(GROUP, [entry(1, 2, b"y"), entry(2, 3)])
    assert cluster.breaches == []
    cluster.c.committed(GROUP, [entry(1, 1), entry(1, 2, b"z")])
    cluster.watch.observer("b", 2).committed(GROUP, [entry(3, 3)])
    assert cluster.breaches == [
        ("committed-prefix", ("a", "c")),
        ("committed-prefix", ("b (incarnation 1)", "b (incarnation 2)")),
    ]


def test_entries_of_different_kinds_differ() -> None:
    cluster = Cluster()
    cluster.a.committed(GROUP, [Entry(1, 1, EntryKind.LEADER, b"")])
    cluster.b.committed(GROUP, [Entry(1, 1, EntryKind.COMMAND, b"")])
    assert cluster.breaches == [("committed-prefix", ("a", "b"))]


def test_nothing_is_committed_beyond_a_gap() -> None:
    cluster = Cluster()
    cluster.a.committed(GROUP, [entry(1, 1)])
    cluster.b.committed(GROUP, [entry(1, 3)])
    assert cluster.breaches == [("committed-prefix", ("b",))]


def test_states_are_equal_at_equal_index_also_out_of_a_snapshot() -> None:
    cluster = Cluster()
    cluster.a.applied(GROUP, 1, State(0))
    cluster.a.applied(GROUP, 2, State(5))
    cluster.b.applied(GROUP, 1, State(0))
    cluster.b.restored(GROUP, SnapshotMeta(2, 1, ("a", "b", "c")), State(5))
    assert cluster.breaches == []
    cluster.c.restored(GROUP, SnapshotMeta(2, 1, ("a", "b", "c")), State(6))
    cluster.c.applied(GROUP, 3, State(7))
    cluster.a.applied(GROUP, 3, State(0))
    assert cluster.breaches == [("state-digest", ("a", "c")), ("state-digest", ("c", "a"))]


def test_breaches_are_counted_and_the_first_are_kept() -> None:
    cluster = Cluster()
    for term in range(1, 21):
        cluster.a.became_leader(GROUP, term)
        cluster.b.became_leader(GROUP, term)
    record = cluster.watch.record()
    assert record.broken == {"one-leader-per-term": 20}
    assert record.checked["one-leader-per-term"] == 40
    assert len(record.breaches) == 5


def test_memory_is_bounded_and_what_is_kept_is_still_compared() -> None:
    facts = Positions(kept=10)
    for index in range(1, 101):
        assert facts.claim(index, index * 7, 0) == index * 7
    assert facts.last - facts.base < 20
    assert facts.claim(95, 1, 1) == 95 * 7
    assert facts.claim(1, 1, 1) == 1, "what was let go of is not compared"


def test_facts_may_come_ahead_of_their_place() -> None:
    facts = Positions(kept=10)
    assert facts.claim(4, 44, 1) == 44
    assert facts.claim(2, 22, 0) == 22
    assert (facts.get(2), facts.get(3), facts.claim(4, 9, 0), facts.teller(4)) == (22, 0, 44, 1)
    assert facts.claim(1_000_000, 5, 0) == 5
    assert (facts.base, facts.last) == (1_000_000, 1_000_000)
