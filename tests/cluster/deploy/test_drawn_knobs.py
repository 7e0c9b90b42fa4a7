"""Knobs as keys of a world."""

from __future__ import annotations

import msgspec
import pytest

from cluster.config import Knobs
from cluster.deploy.drawn_knobs import KNOB_KEYS, MILD_AND_HARSH, NOT_DRAWN, SHARES, draw_knobs, knobs_of
from harness.errors import UserError


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
    with pytest.raises(UserError, match="raft_heartbeat_ms must be above 0"):
        knobs_of({"raft-heartbeat-ms": 700, "election-timeout-ms": 600})
