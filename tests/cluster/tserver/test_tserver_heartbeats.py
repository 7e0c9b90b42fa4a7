"""What a tablet server tells one master, and when it says it again (M3, M4)."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.tserver.heartbeats import MasterLink
from cluster.wire.messages import HeartbeatReply


def reply(leader_term: int | None = None, need_full: bool = False) -> HeartbeatReply:
    return HeartbeatReply("m1", leader_term, need_full)


def settled(leader_term: int | None = None) -> MasterLink:
    link = MasterLink()
    link.begin()
    link.answered(reply(leader_term))
    return link


def test_the_first_report_is_full_until_it_is_answered() -> None:
    link = MasterLink()
    assert link.begin()[0]
    link.lost()
    assert link.begin()[0]
    link.answered(reply())
    assert not link.begin()[0]


def test_a_change_is_reported_once_and_again_only_if_the_answer_was_lost() -> None:
    link = settled()
    link.change("t")
    assert link.begin()[1] == ("t",)
    link.lost()
    assert link.begin()[1] == ("t",)
    link.answered(reply())
    assert link.begin()[1] == ()


def test_a_change_while_a_heartbeat_is_under_way_is_in_the_next_one() -> None:
    link = settled()
    link.change("t")
    link.begin()
    link.change("t")
    link.answered(reply())
    assert link.begin()[1] == ("t",)


def test_a_leader_not_seen_before_gets_a_full_report() -> None:
    link = settled()
    link.begin()
    link.answered(reply(leader_term=3))
    assert link.has_news
    assert link.begin()[0]
    link.answered(reply(leader_term=3))
    assert not link.begin()[0]
    link.answered(reply(leader_term=4))
    assert link.begin()[0]


def test_the_full_report_that_a_new_leader_answered_is_not_sent_twice() -> None:
    link = settled(leader_term=1)
    assert not link.begin()[0]


def test_a_follower_that_becomes_leader_again_in_a_new_term_gets_a_full_report() -> None:
    link = settled(leader_term=1)
    link.begin()
    link.answered(reply(None))
    link.begin()
    link.answered(reply(5))
    assert link.begin()[0]


def test_a_leader_that_could_not_prove_it_gets_a_full_report_when_it_can() -> None:
    """It has ignored what it was told meanwhile, in a term that is still its own."""
    link = settled(leader_term=1)
    link.change("t")
    assert link.begin()[1] == ("t",)
    link.answered(reply(None))
    link.begin()
    link.answered(reply(1))
    assert link.begin()[0]


def test_a_master_that_asks_gets_a_full_report() -> None:
    link = settled(leader_term=1)
    link.begin()
    link.answered(reply(1, need_full=True))
    assert link.begin()[0]


@settings(deadline=None)
@given(
    steps=st.lists(st.tuples(st.booleans(), st.booleans(), st.sampled_from((None, 1, 2, 3))), max_size=40),
    last=st.sampled_from((1, 3, 9)),
)
def test_a_leader_master_always_comes_to_know_the_latest_change(
    steps: list[tuple[bool, bool, int | None]], last: int
) -> None:
    """A master takes reports in only while it leads, and forgets them when it does not."""
    link = MasterLink()
    version, known, term_known = 0, -1, None
    for change, lost, term in [*steps, (False, False, last), (False, False, last)]:
        if change:
            version += 1
            link.change("t")
        full, changed = link.begin()
        if lost:
            link.lost()
            continue
        if term is None or term != term_known:
            known = -1
        term_known = term
        if term is not None and (full or changed):
            known = version
        link.answered(reply(term))
    assert known == version
