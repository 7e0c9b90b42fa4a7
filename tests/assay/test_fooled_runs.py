"""Attempts to talk a run into valid: little was asked, of few, or faults hit nobody. Each is unknown, and says why."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest

from assay.compose import carry_out
from assay.judging import judge_saved_run
from assay.options import RunOptions, validate
from cluster.client.client import ClusterClient
from cluster.wire.messages import StatusReply
from harness.errors import UserError
from harness.history.ops import Op
from harness.run.spec import Silent
from tests import honest_runs as honest
from tests.support.memory_database import apply_mop

OPTIONS = RunOptions(
    "register", nemesis=("kill(target=one)",), time_limit=8.0, seed=4, nodes=3, masters=1, world="severity=mild"
)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"rate": 0.2}, "succeeded; the floor is"),
        ({"workload_options": {"keys": "1"}}, "only 1 of 3 groups of keys ever answered"),
        (
            {"workload_options": {"keys": "3000", "hot": "1000", "dwell": "1"}},
            "keys were asked for as often as 5 times",
        ),
        ({"workload_options": {"readers": "0.9", "reads": "0.98"}}, "write succeeded; the floor is"),
        ({"nemesis": ("kill(target=learner)",)}, "the fault kill was never observed in effect"),
        ({"nemesis": ("kill(target=one,for=0.1s)",), "time_limit": 1.0}, "s; the floor is 0.25 s"),
        ({"op_timeout": 0.1, "world": "severity=mild,loss=0.5"}, "no load was put on the database"),
    ],
)
def test_a_run_that_means_little_is_unknown(tmp_path: Path, changes: dict[str, object], words: str) -> None:
    options = validate(replaced(tmp_path, changes))
    verdict = carry_out(options, judge_saved_run, Silent(), datetime.now(), lambda sentence: None).outcome.verdict
    assert verdict.overall == "unknown", (changes, verdict.reasons)
    assert verdict.adequacy.answer is False and any(words in reason for reason in verdict.reasons), verdict.reasons


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"probe_period": 30.0}, "--probe-period is 30; it has to lie between 0.05 and 2"),
        ({"rate": 0.01}, "--rate is 0.01"),
        ({"time_limit": float("nan")}, "--time-limit is nan"),
        ({"floors": {"effect": "nan"}}, "floor effect takes a number from 0 to 1"),
        ({"nemesis": ("kill", "kill(for=1s)")}, "named twice"),
    ],
)
def test_options_that_would_make_it_mean_little_are_refused(changes: dict[str, object], words: str) -> None:
    with pytest.raises(UserError, match=words):
        validate(replaced(Path("store"), changes))


class Cached(honest.Wrapped):
    """Answers all from what it remembers, and asks nobody."""

    cells: dict[int, int | None] = {}

    async def invoke(self, op: Op) -> Op:
        return op.complete("ok", mops=tuple(apply_mop(self.cells, mop) for mop in op.mops))


@pytest.mark.parametrize("nemesis", ["none", "kill"])
def test_clients_that_ask_nobody_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nemesis: str) -> None:
    """A history of a database that no operation ever reached was valid where no fault was asked for."""
    monkeypatch.setattr(Cached, "cells", {})
    honest.with_clients(monkeypatch, Cached)
    verdict = honest.run("sim", tmp_path, nemesis).verdict
    assert verdict.overall == "unknown" and verdict.safety.answer is True
    assert any("operations that succeeded say which node answered" in reason for reason in verdict.reasons)


def test_probes_that_the_wrong_node_answers_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was seen of one node would be said of another."""
    status = ClusterClient.status

    async def astray(self: ClusterClient, address: str) -> StatusReply:
        return await status(self, address.replace("t2", "t3"))

    monkeypatch.setattr(ClusterClient, "status", astray)
    verdict = honest.run("sim", tmp_path, "none").verdict
    assert verdict.overall == "unknown" and verdict.harness.answer is False
    assert any("t2 was asked for its status, and t3 answered" in reason for reason in verdict.reasons), verdict.reasons


def replaced(store: Path, changes: dict[str, object]) -> RunOptions:
    return replace(OPTIONS, store=store, **changes)  # type: ignore[arg-type]
