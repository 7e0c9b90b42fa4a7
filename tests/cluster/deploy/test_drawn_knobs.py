"""Knobs as keys of a world."""

from __future__ import annotations

import msgspec
import pytest

from cluster.deploy.drawn_knobs import KNOB_KEYS, MILD_AND_HARSH, NOT_DRAWN, SHARES, knobs_of
from cluster.knobs import Knobs
from harness.errors import UserError
from harness.ports.sim.worlds import Between, WorldKey
from tests.support.knobs import draw_knobs


def test_every_knob_is_drawn_or_left_alone_on_purpose() -> None:
    """A new knob belongs into one of these tables, so that worlds draw it small to large."""
    named = [*MILD_AND_HARSH, *SHARES, *NOT_DRAWN]
    assert sorted(named) == sorted(field.name for field in msgspec.structs.fields(Knobs))


def test_every_seed_draws_knobs_that_can_be() -> None:
    drawn = [draw_knobs(seed) for seed in range(400)]
    assert drawn == [draw_knobs(seed) for seed in range(400)]
    assert {knobs.snapshot_entries for knobs in drawn} == {2, 20, 200, 2_000, 10_000}
    assert {draw_knobs(seed, "mild").snapshot_entries for seed in range(100)} == {200, 2_000, 10_000}


def test_knobs_are_told_by_their_names_with_dashes() -> None:
    assert {key.name for key in KNOB_KEYS} >= {"snapshot-entries", "max-clock-drift"}
    assert knobs_of({"snapshot-entries": 2, "loss": 0.1}) == Knobs(snapshot_entries=2)


def test_knobs_that_contradict_are_told_in_one_sentence() -> None:
    with pytest.raises(UserError, match="raft_heartbeat_ms must be below the lease"):
        knobs_of({"raft-heartbeat-ms": 700, "election-timeout-ms": 600})


@pytest.mark.parametrize("key", KNOB_KEYS, ids=lambda key: key.name)
def test_a_knob_can_t_be_told_what_the_cluster_would_refuse(key: WorldKey) -> None:
    """Both bounds of a knob are the cluster's: what is told within them can only contradict other knobs."""
    assert isinstance(key.values, Between)
    name, default = key.name.replace("-", "_"), getattr(Knobs(), key.name.replace("-", "_"))
    assert isinstance(key.values.low, type(default)), "whole numbers for whole numbers"
    for beyond in (key.values.low - 1, -1):
        with pytest.raises(ValueError, match=f"^{name} is {beyond}; it has to lie between"):
            msgspec.structs.replace(Knobs(), **{name: beyond})
    for text in (str(key.values.low - 1), "nan", ""):
        with pytest.raises(ValueError, match="number between"):
            key.values.parse(text)
