"""The invariants of logged tablets hold where they have to, and break where what replicas tell contradicts itself."""

from __future__ import annotations

from watched_cluster import GROUP, VOTERS, Cluster

from cluster.invariants import reconciled
from cluster.invariants.reconciled import COLLECTED, IDS, PURGED, RECONCILED, SUMMARIES
from cluster.observer import Observer
from cluster.quorum.ids import MutationId
from cluster.quorum.keys import encode_key
from cluster.quorum.mutation import MutationBuilder
from cluster.quorum.rows import NOTHING
from cluster.quorum.slices import Page, Slice
from cluster.quorum.summaries import Summary

WHOLE = Slice(b"p")


def id_of(time: int, node: str = "t1") -> MutationId:
    return MutationId(time, node)


def stored(observer: Observer, time: int, number: int) -> None:
    observer.mutation_stored(GROUP, VOTERS, id_of(time), number)


def page(value: str, timestamp: int = 5) -> Page:
    builder = MutationBuilder(b"p", timestamp, 0)
    builder.write(encode_key((1,)), {2: value}, insert=False)
    return Page(builder.build().contents)


def read(observer: Observer, contents: Page, bound: int = 0, asked: Slice = WHOLE) -> None:
    observer.snapshot_read(GROUP, asked, Summary(bound, 1, b"same"), contents)


def test_ids_of_a_server_rise_over_its_lives_and_those_of_others_are_their_own(cluster: Cluster) -> None:
    cluster.a.id_made(id_of(7))
    cluster.b.id_made(id_of(7, "t2"))
    cluster.a.id_made(id_of(8))
    again = cluster.life("a", 2)
    again.id_made(id_of(9))
    assert cluster.breaches == []
    again.id_made(id_of(9))
    cluster.life("a", 3).id_made(id_of(4))
    cluster.life("a", 4).id_made(id_of(8))
    found = cluster.breaches
    assert found[:2] == [
        (IDS, ("a",)),
        (IDS, ("a (incarnation 2)", "a (incarnation 3)")),
    ]
    assert len(cluster.breaches) == 3


def test_a_bound_is_raised_above_what_all_have_and_nothing_comes_to_be_below_it(cluster: Cluster) -> None:
    for observer in (cluster.a, cluster.b, cluster.c):
        stored(observer, 3, 1)
    stored(cluster.a, 8, 2)
    cluster.a.bound_raised(GROUP, 8)
    stored(cluster.b, 3, 1)
    assert cluster.breaches == []
    cluster.b.bound_raised(GROUP, 9)
    stored(cluster.c, 5, 2)
    assert [name for name, _ in cluster.breaches] == [RECONCILED, RECONCILED]


def test_a_log_keeps_what_is_not_reconciled_unless_it_was_set_aside(cluster: Cluster) -> None:
    for number, time in ((1, 3), (2, 5), (3, 6), (4, 9)):
        for observer in (cluster.a, cluster.b, cluster.c):
            stored(observer, time, number)
    cluster.a.bound_raised(GROUP, 5)
    cluster.a.log_collected(GROUP, 1)
    cluster.a.mutations_set_aside(GROUP, (2, 3))
    stored(cluster.a, 6, 3)  # found in the log once more
    cluster.a.log_collected(GROUP, 3)
    cluster.life("b", 2).log_collected(GROUP, 10)
    assert cluster.breaches == []
    cluster.a.log_collected(GROUP, 4)
    assert cluster.breaches == [(COLLECTED, ("a",))]


def test_a_deletion_is_forgotten_below_the_bound_that_was_seen_only(cluster: Cluster) -> None:
    cluster.a.bound_raised(GROUP, 7)
    cluster.a.deletion_purged(GROUP, 6)
    assert cluster.breaches == []
    cluster.a.deletion_purged(GROUP, 7)
    cluster.b.deletion_purged(GROUP, 6)
    assert cluster.breaches == [(PURGED, ("a",)), (PURGED, ("b",))]


def test_whole_partitions_of_one_summary_and_bound_show_the_same_rows(cluster: Cluster) -> None:
    read(cluster.a, page("x"))
    read(cluster.b, page("x"))
    read(cluster.b, page("y"), bound=1)
    read(cluster.c, Page(NOTHING), asked=Slice(b"p", limit=1))
    read(cluster.c, Page(NOTHING), asked=Slice(b"p", ((b"a", b"b"),)))
    read(cluster.c, Page(NOTHING, b"e"))
    assert cluster.breaches == []
    assert cluster.watch.record().checked[SUMMARIES] == 3
    read(cluster.c, page("x", 6))
    assert [name for name, _ in cluster.breaches] == [SUMMARIES]


def test_of_many_summaries_the_older_half_is_let_go_of(cluster: Cluster) -> None:
    for bound in range(reconciled.KEPT_SUMMARIES + 1):
        cluster.a.snapshot_read(GROUP, WHOLE, Summary(bound, 0, b""), Page(NOTHING))
    read(cluster.a, page("x"))
    for bound, broken in ((0, 0), (reconciled.KEPT_SUMMARIES, 1)):
        cluster.b.snapshot_read(GROUP, WHOLE, Summary(bound, 0, b""), page("y"))
        assert len(cluster.breaches) == broken
