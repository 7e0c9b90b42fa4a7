"""Where replicas of REGIONAL tables go, one at a time (R6): pure decisions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.master.records import TabletConfig
from cluster.master.regional import is_placed
from cluster.master.replication import Health, NextChange, newcomer, next_change, surplus
from cluster.master.tservers import ServerEntry, founders
from cluster.raft.types import ChangeKind
from cluster.wire.messages import Regional, Replica
from tests.cluster.master.catalog_records import replica

ADD, PROMOTE, REMOVE = ChangeKind.ADD_LEARNER, ChangeKind.PROMOTE, ChangeKind.REMOVE
SERVERS = tuple(f"{zone}{number}" for zone in "abcd" for number in (1, 2, 3))
ZONES = {name: name[0] for name in SERVERS}
ENTRIES = [ServerEntry(name, f"{name}:7050", ZONES[name], 1, 1, 0) for name in SERVERS]
HOME_A = Regional("a", {"a": 2, "b": 1}, {"c": 1})


def config(voters: str, learners: str = "") -> TabletConfig:
    return TabletConfig(7, tuple(map(replica, voters.split())), tuple(map(replica, learners.split())), 2)


def health(broken: str = "", gone: str = "", leaving: str = "", overdue: bool = False, leader: str = "a1") -> Health:
    live = [name for name in SERVERS if name not in gone.split()]
    return Health(broken.split(), live, leaving.split(), overdue, ZONES, leader)


@pytest.mark.parametrize(
    ("now", "how", "change"),
    [
        (config("a1 a2 b1", "c1"), health(overdue=True), None),
        (config("a1 a2 b1"), health(), None),
        (config("a1 a2 b1"), health(overdue=True), NextChange(ADD, zone="c")),
        (config("a1 a2 b1"), health(gone="c1 c2 c3", overdue=True), None),
        (config("a1 a2 b1", "c1"), health("c1"), NextChange(REMOVE, replica("c1"))),
        (config("a1 a2", "c1"), health(), None),
        (config("a1 a2", "c1"), health(overdue=True), NextChange(ADD, zone="b")),
        (config("a1 a2", "c1 b2"), health(), NextChange(PROMOTE, replica("b2"))),
        (config("a1 a2 b1", "c1 c2"), health(), None),
        (config("a1 a2 b1", "c1 c2"), health(overdue=True), NextChange(REMOVE)),
        (config("a1 a2 d1", "c1"), health(), NextChange(ADD, zone="b")),
        (config("a1 a2 d1", "c1 b1"), health(), NextChange(PROMOTE, replica("b1"))),
        (config("a1 a2 d1 b1", "c1"), health(), NextChange(REMOVE, replica("d1"))),
        (config("d1 a2 b1", "c1"), health(leader="d1"), NextChange(ADD, zone="a")),
        (config("a1 b1 b2", "c1"), health(), NextChange(ADD, zone="a")),
        (config("a1 a2 b1 b2", "c1"), health(), None),
        (config("a1 a2 b1 b2", "c1"), health(overdue=True), NextChange(REMOVE)),
        (config("a1 a2 b1", "c1"), health(leaving="a2"), NextChange(ADD, zone="a")),
        (config("a1 a2 a3 b1", "c1"), health(leaving="a2"), NextChange(REMOVE, replica("a2"))),
        (config("a1 a2 b1", "c1"), health(leaving="c1"), NextChange(REMOVE, replica("c1"))),
        (config("a1 a2 x1", "c1"), health(overdue=True), None),
    ],
)
def test_the_next_change_of_a_regional_tablet(now: TabletConfig, how: Health, change: NextChange | None) -> None:
    assert next_change(now, HOME_A, how) == change


def changed(now: TabletConfig, wanted: Regional, change: NextChange, leader: str) -> TabletConfig:
    voters, learners = list(now.voters), list(now.learners)
    if change.kind is ADD:
        eligible = [name for name in SERVERS if ZONES[name] == change.zone]
        chosen = newcomer(ENTRIES, eligible, now.member_ids, {})
        assert chosen is not None
        learners.append(Replica(chosen.node_id, chosen.address))
    elif change.kind is PROMOTE:
        assert change.replica is not None
        learners.remove(change.replica)
        voters.append(change.replica)
    else:
        gone = change.replica or surplus(ENTRIES, SERVERS, now, leader, {}, wanted)
        (voters if gone in voters else learners).remove(gone)
    return TabletConfig(now.op_index + 1, tuple(voters), tuple(learners), 2)


PLACES = st.sampled_from(("abc", "bca", "cab", "dab", "bad")).map(
    lambda zones: Regional(zones[0], {zones[0]: 2, zones[1]: 1}, {zones[2]: 2})
)


@given(PLACES, PLACES, st.sampled_from(("a1", "b1", "c1", "d1")))
def test_replicas_move_one_at_a_time_with_no_voter_too_few_and_come_to_rest(
    before: Regional, after: Regional, leader: str
) -> None:
    voters = founders(ENTRIES, {}, before)
    assert voters is not None
    now = TabletConfig(1, voters, (), 2)
    for wanted in (before, after):
        for _ in range(16):
            leads = leader if leader in now.node_ids else now.node_ids[0]
            change = next_change(now, wanted, health(overdue=True, leader=leads))
            if change is None:
                break
            now = changed(now, wanted, change, leads)
            assert 3 <= len(now.voters) <= 4
        home = next(name for name in now.node_ids if ZONES[name] == wanted.home)
        assert is_placed(now, wanted, ZONES, (), home)
        assert not is_placed(now, wanted, ZONES, (), None)
