"""Runs in which dead replicas are replaced while clients work (M9, M11): valid, and replicas really move."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.options import RunOptions
from assay.runner import Keep, run_seed


def lines_that_say(run: Path, words: str) -> int:
    """How many lines of the nodes' logs say so."""
    return sum(path.read_text().count(words) for path in run.glob("nodes/*/node.log"))


@pytest.mark.parametrize("seed", [1])
def test_replicas_that_are_dead_for_two_seconds_move_and_no_client_notices(seed: int, tmp_path: Path) -> None:
    options = RunOptions(
        "register", nemesis=("kill",), time_limit=30.0, seed=seed, world="replica-dead-ms=2000", store=tmp_path
    )
    result = run_seed(options, Keep.ALL)
    assert result.overall == "valid", f"{options.command()}: {result.reasons}"
    assert result.run is not None
    assert lines_that_say(result.run, "for 2000 ms: evicted") >= 2
    assert lines_that_say(result.run, "buried tablet") >= 2


@pytest.mark.parametrize("seed", [51, 185])
def test_an_operator_changes_members_over_slow_links(seed: int, tmp_path: Path) -> None:
    """A message carries one entry or two from continent to continent: masters removed what had not caught up after 5 s,
    or another voter than the one that a leader was to remove when it was let back, and no core was reached."""
    options = RunOptions("register", nemesis=("membership",), time_limit=20.0, seed=seed, store=tmp_path)
    result = run_seed(options, Keep.ALL)
    assert result.overall == "valid", f"{options.command()}: {result.reasons}"
