"""Who is evicted, and what comes next for a tablet that is not whole (M11): pure decisions."""

from __future__ import annotations

from collections.abc import Collection

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.master.records import TabletConfig
from cluster.master.replication import Health, NextChange, newcomer, next_change, surplus
from cluster.master.tservers import ServerEntry
from cluster.raft.types import ChangeKind, Configuration, Member
from cluster.tserver.evictions import MemberSilence, victim
from tests.cluster.master.catalog_records import replica

ADD, PROMOTE, REMOVE = ChangeKind.ADD_LEARNER, ChangeKind.PROMOTE, ChangeKind.REMOVE


def config(voters: str, learners: str = "") -> TabletConfig:
    return TabletConfig(7, tuple(map(replica, voters.split())), tuple(map(replica, learners.split())), 2)


# ---- a leader and its members ----


def test_silence_is_counted_only_while_the_leader_looks_in_its_own_term_and_without_doubt() -> None:
    silence = MemberSilence(limit_ns=100, gap_ns=30)
    heard = {"b": 0, "c": 0}
    assert all(silence.look(now, 1, heard) == () for now in range(1_000, 1_100, 20))
    assert silence.look(1_100, 1, {"b": 0, "c": 1_090}) == ("b",)
    assert silence.look(1_180, 1, heard) == (), "it was paused itself: it begins anew"
    assert all(silence.look(now, 1, heard) == () for now in range(1_200, 1_280, 20))
    assert silence.look(1_280, 1, heard) == ("b", "c")
    assert silence.look(1_300, 2, heard) == (), "another term"
    for now in range(1_320, 1_400, 20):
        silence.look(now, 2, {} if now == 1_360 else heard)
    assert silence.look(1_400, 2, heard) == (), "it was in doubt"


def test_a_member_that_joined_lately_is_not_silent_yet() -> None:
    silence = MemberSilence(limit_ns=100, gap_ns=200)
    silence.look(1_000, 1, {"b": 990})
    assert silence.look(1_100, 1, {"b": 1_090, "new": -(1 << 62)}) == ()
    assert silence.look(1_200, 1, {"b": 1_190, "new": -(1 << 62)}) == ("new",)


@pytest.mark.parametrize(
    ("voters", "learners", "silent", "replication_factor", "evicted"),
    [
        ("a b c", "", "b", 3, "b"),
        ("a b c", "d", "b d", 3, "d"),
        ("a b", "", "b", 3, None),
        ("a b", "d", "d", 3, "d"),
        ("a b c d e", "", "e d", 5, "d"),
        ("a b c", "", "b", 5, None),
        ("a b c", "", "b", 0, "b"),
        ("a b c", "", "", 3, None),
    ],
)
def test_no_group_is_shrunk_below_a_majority_of_what_it_should_be(
    voters: str, learners: str, silent: str, replication_factor: int, evicted: str | None
) -> None:
    def members(names: str) -> tuple[Member, ...]:
        return tuple(Member(name, name) for name in names.split())

    found = victim(Configuration(members(voters), members(learners)), silent.split(), replication_factor)
    assert (None if found is None else found.server_id) == evicted


# ---- the leader master and a tablet ----

ALL = ("a", "b", "c", "d", "e")


@pytest.mark.parametrize(
    ("now", "health", "change"),
    [
        (config("a b c"), Health((), ALL), None),
        (config("a b"), Health((), ALL), None),
        (config("a b"), Health((), ALL, overdue=True), NextChange(ADD)),
        (config("a b", "d"), Health((), ALL), NextChange(PROMOTE, replica("d"))),
        (config("a b", "d"), Health((), ("a", "b"), overdue=True), None),
        (config("a b c", "d"), Health((), ALL), None),
        (config("a b c"), Health(("c",), ALL), NextChange(REMOVE, replica("c"))),
        (config("a b"), Health(("b",), ALL), None),
        (config("a b c", "d"), Health(("d",), ALL), NextChange(REMOVE, replica("d"))),
        (config("a b c"), Health((), ALL, ("b",)), NextChange(ADD)),
        (config("a b c", "d"), Health((), ALL, ("b",)), NextChange(PROMOTE, replica("d"))),
        (config("a b c d"), Health((), ALL, ("b",)), NextChange(REMOVE, replica("b"))),
        (config("a b c", "b2"), Health((), ALL, ("b", "b2")), NextChange(REMOVE, replica("b2"))),
        (config("a b c d"), Health((), ALL), None),
        (config("a b c d"), Health((), ALL, overdue=True), NextChange(REMOVE)),
        (config("a b c", "d"), Health((), ALL, overdue=True), NextChange(REMOVE)),
        (config("a b c d", "e"), Health((), ALL, ("b",), overdue=True), NextChange(REMOVE, replica("b"))),
        (config("a b c", "d"), Health((), ALL, ("b",), overdue=True), NextChange(PROMOTE, replica("d"))),
        (config("a b", "d e"), Health((), ALL, overdue=True), NextChange(PROMOTE, replica("d"))),
        (config("a"), Health((), ALL, overdue=True), NextChange(ADD)),
    ],
)
def test_the_next_change_of_a_tablet_of_three(now: TabletConfig, health: Health, change: NextChange | None) -> None:
    assert next_change(now, 3, health) == change


def test_of_two_voters_none_is_removed_for_both_are_a_majority() -> None:
    assert next_change(config("a b"), 1, Health(("b",), ALL)) is None


NAMES = st.sets(st.sampled_from("abcdefg"), max_size=7)


@settings(deadline=None)
@given(voters=NAMES, learners=NAMES, broken=NAMES, live=NAMES, leaving=NAMES, overdue=st.booleans())
def test_a_change_leaves_enough_voters_and_takes_none_that_is_needed(
    voters: set[str], learners: set[str], broken: set[str], live: set[str], leaving: set[str], overdue: bool
) -> None:
    voters = voters or {"a"}
    now = config(" ".join(sorted(voters)), " ".join(sorted(learners - voters)))
    change = next_change(now, 3, Health(sorted(broken), sorted(live), sorted(leaving), overdue))
    if change is not None and change.kind is REMOVE and change.replica is None:
        assert overdue and len(voters) >= 3 and len(now.members) > 3 + bool(voters & leaving)
    if change is None or change.replica is None:
        return
    gone = change.replica.node_id
    if change.kind is REMOVE and gone in voters:
        assert len(voters) >= 3
        assert gone in broken or (gone in leaving and len(voters) > 3)
    if change.kind is PROMOTE:
        assert gone in live and gone not in voters and gone not in leaving


def entry(name: str, zone: str = "z1") -> ServerEntry:
    return ServerEntry(name, f"{name}:7050", zone, 1, 1, 0)


@pytest.mark.parametrize(
    ("eligible", "members", "load", "chosen"),
    [
        (("d", "e"), ("a", "b"), {}, "e"),
        (("d",), ("a", "b"), {}, "d"),
        (("c", "d", "e"), ("a", "b"), {"e": 9, "c": 1}, "c"),
        (("a", "b"), ("a", "b"), {}, None),
        (("b.new", "d"), ("a", "b"), {}, "d"),
        (("b.new", "d"), ("a",), {"d": 1}, "b.new"),
    ],
)
def test_the_newcomer_spreads_zones_before_it_balances_loads(
    eligible: Collection[str], members: tuple[str, ...], load: dict[str, int], chosen: str | None
) -> None:
    zones = {"a": "z1", "b": "z2", "b.new": "z2", "c": "z3", "d": "z1", "e": "z3"}
    found = newcomer([entry(name, zone) for name, zone in zones.items()], eligible, members, load)
    assert (None if found is None else found.node_id) == chosen


@pytest.mark.parametrize(
    ("now", "live", "leader", "load", "gone"),
    [
        (config("a b c", "d"), ALL, "a", {"a": 9}, "d"),
        (config("a b c d"), "a c d", "a", {"c": 9}, "b"),
        (config("a b c d"), "b c d", "a", {"c": 9}, "d"),
        (config("a b c d"), ALL, "b", {}, "d"),
        (config("a b c d"), ALL, "d", {"b": 9}, "a"),
        (config("a b c e"), ALL, "a", {}, "e"),
        (config("a b c e"), ALL, "a", {"c": 1}, "c"),
        (config("a b c x"), "a b c x", "a", {}, "x"),
    ],
    ids=[
        "a learner before any voter",
        "who is not live",
        "the leader is heard of, whatever masters have heard",
        "the most crowded zone",
        "but never the leader",
        "of two alike the later by name",
        "or the one on the most loaded server",
        "a server of which nothing is known stands in no zone",
    ],
)
def test_the_member_that_can_best_be_done_without_goes(
    now: TabletConfig, live: Collection[str], leader: str, load: dict[str, int], gone: str
) -> None:
    zones = {"a": "z1", "b": "z2", "c": "z3", "d": "z1", "e": "z3"}
    known = [entry(name, zone) for name, zone in zones.items()]
    assert surplus(known, live, now, leader, load).node_id == gone
