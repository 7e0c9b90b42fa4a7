"""Each anomaly by its name: injected in a valid history it is found, told in words, and nothing else is."""

from __future__ import annotations

import pytest
from jepsen_histories import judge

from checkers.made.jepsen import MODELS, Shape, history
from harness.errors import UserError
from tests.support.injecting import ANOMALIES, inject

SETTINGS = {
    "unexpected-key": {"accounts": "0,1,2"},
    "stale": {"linearizable": "true"},
}
INJECTED = [(model, anomaly) for model, anomalies in ANOMALIES.items() for anomaly in anomalies]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("seed", range(5))
def test_histories_are_valid_by_construction(model: str, seed: int) -> None:
    verdict = judge(model, history(model, Shape(300, clients=6), seed))
    assert verdict.valid is True, verdict
    assert verdict.counts == {} and verdict.ops >= (12 if model == "convergence" else 120)


@pytest.mark.parametrize(("model", "anomaly"), INJECTED)
def test_a_injected_anomaly_is_found_and_explained(model: str, anomaly: str) -> None:
    info = 0 if (model.endswith("queue") and anomaly == "lost") else 0.05  # a crashed dequeue may have taken it
    events = inject(model, anomaly, history(model, Shape(120, clients=6, info_share=info), 3))
    verdict = judge(model, events, **SETTINGS.get(anomaly, {}))
    assert verdict.valid is False
    assert verdict.counts[anomaly] >= 1
    assert set(verdict.counts) <= {anomaly, "unexpected"}
    first = verdict.anomalies[anomaly][0]
    assert "rocess " in first.message and first.message.endswith(".")
    assert first.ops and all("invoke_index" in op for op in first.ops)
    if model != "set-full" and model != "long-fork":
        assert verdict.counts[anomaly] == 1


def test_what_cannot_be_injected_is_refused_in_a_sentence() -> None:
    with pytest.raises(UserError, match="no anomaly"):
        inject("bank", "lost", [])
    with pytest.raises(UserError, match="too short"):
        inject("set", "lost", [])
    with pytest.raises(UserError, match="no generator"):
        history("catalog", Shape(), 0)


def test_at_most_so_many_instances_are_explained_but_all_are_counted() -> None:
    events = history("set", Shape(200, info_share=0.0, fail_share=0.0), 1)
    events[-1] = events[-1].complete("ok", mops=(events[-1].mops[0].__class__("r", 0, values=()),))
    verdict = judge("set", events)
    assert verdict.counts["lost"] > 50
    assert len(verdict.anomalies["lost"]) == 8


def test_settings_change_what_counts() -> None:
    stale = inject("set-full", "stale", history("set-full", Shape(120), 3))
    assert judge("set-full", stale).valid is True
    assert judge("set-full", stale).details["stale"] >= 1
    overdrawn = inject("bank", "negative-value", history("bank", Shape(120), 3))
    assert judge("bank", overdrawn, **{"negative-balances": "yes"}).valid is True
    assert judge("bank", history("bank", Shape(120), 3), total="31").counts["wrong-total"] > 5
    twice = inject("queue", "duplicated", history("queue", Shape(120), 3))
    assert judge("total-queue", twice).valid is True
    assert judge("counter", history("counter", Shape(60), 3), initial="1000").valid is False
    assert judge("long-fork", history("long-fork", Shape(120), 3), **{"group-size": "2"}).valid == "unknown"


@pytest.mark.parametrize(
    ("model", "settings"),
    [
        ("bank", {"total": "much"}),
        ("bank", {"negative-balances": "perhaps"}),
        ("counter", {"initial": "1.5"}),
        ("long-fork", {"group-size": "many"}),
        ("set-full", {"linearizable": "2"}),
    ],
)
def test_settings_that_mean_nothing_are_refused_in_a_sentence(model: str, settings: dict[str, str]) -> None:
    with pytest.raises(UserError, match="-o "):
        judge(model, history(model, Shape(10), 0), **settings)
