"""Supports between nodes as pure state (G6): what was promised stays, what is supported ends with the support."""

from __future__ import annotations

from cluster.raft.types import Quiescence, Silence
from cluster.wire.liveness import NodeLiveness

INTERVAL_NS, PATIENCE_NS = 100, 600


def liveness() -> NodeLiveness:
    return NodeLiveness(INTERVAL_NS, PATIENCE_NS, lambda server: None)


def test_the_highest_end_that_was_echoed_is_promised_and_stays_so() -> None:
    node = liveness()
    node.take_in("a", 1, 0)
    for until in (700, 650):
        node.on_heartbeat("a", 10, until)
    assert node.promised("a") == 700
    assert node.promised("b") == 0
    node.take_in("a", 2, 0)
    node.on_heartbeat("a", 20, 0)
    assert node.promised("a") == 700, "the next life of a node doesn't undo what its leases were promised"


def test_what_the_other_node_supports_ends_with_its_support_whoever_withdraws() -> None:
    node, woken = liveness(), []
    for withdraws in ("it", "we"):
        node.changed("g", Quiescence(Silence.LEADS, ("b",)), lambda: woken.append(node.supported("b")), 0)
        node.on_echo("b", 10, 20, 700)
        node.on_echo("b", 9, 21, 690)
        assert node.supported("b") == 700
        if withdraws == "it":
            node.take_in("b", 1, 1)
        else:
            assert node.poll(21 + PATIENCE_NS) == []
        assert node.supported("b") == 0
    assert woken == [700, 700], "whoever wakes counts what was promised until then"


def test_a_node_whose_groups_have_no_lease_records_promises_nothing() -> None:
    assert (liveness().next_end(), liveness().before_start()) == (0, 0)
