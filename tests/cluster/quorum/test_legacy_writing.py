"""What becomes of a write, pure: acknowledged, failed for certain, or unknown; and who is left a hint (Q1, Q2)."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.quorum.calls import Delivery
from cluster.quorum.coordinator import (
    MOST_AHEAD_NS,
    MOST_BYTES,
    Invalid,
    WriteOutcome,
    WriteState,
    checked_mutation,
    local_demand,
)
from cluster.quorum.mutation import MutationBuilder, encode_mutation
from cluster.quorum.replica_sets import Endpoint, ReplicaSet
from harness.levels import Demand, quorum

THREE = ReplicaSet("t", tuple(Endpoint(name, "", "z1") for name in "abc"))


def note(fates: tuple[Delivery, ...], wanted: int) -> WriteState:
    state = WriteState(THREE, Demand(wanted, {}))
    for name, fate in zip("abc", fates, strict=False):
        state.note(name, fate)
    return state


def test_every_course_of_a_write_to_three_replicas() -> None:
    for wanted, fates in product((1, 2, 3), product(Delivery, repeat=3)):
        durable = fates.count(Delivery.DURABLE)
        state = note(fates, wanted)
        if durable >= wanted:
            assert state.outcome is WriteOutcome.ACKNOWLEDGED
        elif durable or Delivery.LOST in fates:
            assert state.outcome is WriteOutcome.UNKNOWN
        else:
            assert state.outcome is WriteOutcome.FAILED, "sent to nobody, or refused by everybody"
        failed = state.outcome is WriteOutcome.FAILED
        lacking = [name for name, fate in zip("abc", fates, strict=True) if fate is not Delivery.DURABLE]
        assert list(state.missed()) == ([] if failed else lacking)


def test_a_level_is_met_as_soon_as_enough_have_it_and_nothing_else_is_known_early() -> None:
    assert note((Delivery.LOST,), 2).outcome is None
    assert note((Delivery.DURABLE, Delivery.REFUSED), 2).outcome is None
    assert note((Delivery.DURABLE, Delivery.DURABLE), 2).outcome is WriteOutcome.ACKNOWLEDGED
    state = note((Delivery.DURABLE, Delivery.LOST), 2)
    state.note("b", Delivery.DURABLE)
    assert state.acknowledged_by == ("a",), "the first word counts"


def write(timestamp: int, size: int = 1) -> bytes:
    return encode_mutation(MutationBuilder(b"p", timestamp, 1).write(b"k", {1: "x" * size}).build())


@pytest.mark.parametrize(
    ("encoded", "kind"),
    [
        (b"", "INVALID"),
        (b"\x01nothing", "INVALID"),
        (encode_mutation(MutationBuilder(b"p", 1, 1).build()), "INVALID"),
        (write(5, MOST_BYTES), "TOO_LARGE"),
        (write(0), "TIMESTAMP_OUT_OF_BOUNDS"),
        (write(-5), "TIMESTAMP_OUT_OF_BOUNDS"),
        (write(1_001 + MOST_AHEAD_NS), "TIMESTAMP_OUT_OF_BOUNDS"),
    ],
)
def test_mutations_that_no_replica_may_get_are_refused_in_words(encoded: bytes, kind: str) -> None:
    with pytest.raises(Invalid) as refused:
        checked_mutation(encoded, 1_000)
    assert (refused.value.error_reply.kind, refused.value.error_reply.definite) == (kind, True)


def test_levels_that_there_are_not_or_that_the_replicas_cannot_satisfy_are_refused() -> None:
    for level, place, kind in (
        ("MOST", "dc1", "UNKNOWN_LEVEL"),
        ("LOCAL_ONE", "dc2", "LEVEL_UNSATISFIABLE"),
    ):
        with pytest.raises(Invalid) as refused:
            local_demand(level, place, THREE)
        assert refused.value.error_reply.kind == kind
    with pytest.raises(Invalid, match="only 2"):
        local_demand("THREE", "dc1", ReplicaSet("t", THREE.endpoints[:2]))
    assert checked_mutation(write(1_000 + MOST_AHEAD_NS), 1_000).partition == b"p"


@given(st.integers(0, 5), st.integers(0, 5), st.integers(1, 3))
def test_whatever_the_data_centre_of_a_replica_proves_to_be_a_local_quorum_is_one(
    here: int, there: int, unplaced: int
) -> None:
    zones = [*["dc1/z1"] * here, *["dc2/z1"] * there, *[None] * unplaced]
    replicas = ReplicaSet("t", tuple(Endpoint(str(at), "", zone) for at, zone in enumerate(zones)))
    assert local_demand("QUORUM", "dc1", replicas) == Demand(quorum(here + there + unplaced), {})
    for level, wanted in (("LOCAL_QUORUM", quorum(here + unplaced)), ("LOCAL_ONE", 1)):
        if wanted <= here:
            assert local_demand(level, "dc1", replicas) == Demand(0, {"dc1": wanted})
            continue
        with pytest.raises(Invalid) as refused:
            local_demand(level, "dc1", replicas)
        assert refused.value.error_reply.kind == "NOT_LOCATED"
    with pytest.raises(Invalid, match="have not heard"):
        local_demand("EACH_QUORUM", "dc1", replicas)
