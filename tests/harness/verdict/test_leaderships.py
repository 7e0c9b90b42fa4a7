"""Who led: what nodes and statuses tell comes together, with times since the history's start."""

from __future__ import annotations

from harness.protocols import GroupStatus, NodeStatus
from harness.verdict.leaderships import Leadership, Leaderships, since


def status(node: str, term: int, role: str = "leader") -> NodeStatus:
    return NodeStatus(node, "tserver", 1, (GroupStatus("g", role, term, (), None, 0, 0, 0, 0, False),))


def test_each_term_of_each_node_is_one_leadership() -> None:
    found = Leaderships()
    found.leads("g", 1, "t1", 10)
    found.take(status("t1", 1), 30)
    found.take(status("t2", 1, "follower"), 40)
    found.take(status("t2", 2), 50)
    found.take(status("t1", 1), 60)  # it does not know yet
    assert found.all() == (Leadership("g", 1, "t1", 10, 60), Leadership("g", 2, "t2", 50, 50))


def test_members_are_all_that_the_leader_named() -> None:
    found = Leaderships()
    for at_ns, voters in ((10, ("t1", "t2", "t3")), (20, ("t1", "t2"))):
        found.take(
            NodeStatus("t1", "tserver", 1, (GroupStatus("g", "leader", 1, voters, None, 0, 0, 0, 0, True),)), at_ns
        )
    found.leads("g", 1, "t1", 30)
    assert found.all() == (Leadership("g", 1, "t1", 10, 30, ("t1", "t2", "t3")),)


def test_what_was_over_before_the_start_is_left_out() -> None:
    led = [Leadership("g", 1, "t1", 10, 20), Leadership("g", 2, "t2", 30, 40), Leadership("g", 3, "t1", 150, 170)]
    assert since(led, 100) == (Leadership("g", 2, "t2", 0, 0), Leadership("g", 3, "t1", 50, 70))
