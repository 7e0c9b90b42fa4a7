"""What is told of a run while it goes on, where standard error is no terminal."""

from __future__ import annotations

import pytest

from assay import progress
from harness.history.ops import Op


def lines_of(capsys: pytest.CaptureFixture[str]) -> list[str]:
    with progress.RunProgress(10.0) as shown:
        shown.waits("6 nodes to be ready")
        shown.stage("load")
        for number in range(2 * progress.EVENTS_PER_UPDATE):
            shown.event(Op("invoke", 1, "read", time=number * 10**7))
        fault = {"fault": "kill", "instance": 0, "step": "begin", "targets": ["t1", "t2"]}
        shown.event(Op("info", -1, "start-kill", value=fault, time=6 * 10**9))
        shown.event(Op("invoke", -1, "stop-kill", value={**fault, "instance": None, "step": "end"}, time=7 * 10**9))
        shown.event(
            Op("info", -1, "stop-kill", value={"fault": "kill", "instance": None, "step": "end"}, time=7 * 10**9)
        )
        for type in ("invoke", "info"):
            shown.event(Op(type, -1, "stop-kill", value={**fault, "step": "end"}, time=7 * 10**9))
        shown.stage("judge")
    return capsys.readouterr().err.splitlines()


def test_without_a_terminal_stages_and_the_load_are_told_by_lines(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for gap in ("LINE_GAP_S", "WAIT_GAP_S"):
        monkeypatch.setattr(progress, gap, 0.0)
    assert lines_of(capsys) == [
        "set up: waiting for 6 nodes to be ready",
        "load",
        "load: 3 of 10 s, 256 events",
        "load: 5 of 10 s, 512 events",
        "load: 6 of 10 s, 513 events, kill t1 t2",
        "load: 7 of 10 s, 517 events",
        "judge",
    ]


def test_lines_are_apart_so_that_a_short_run_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert lines_of(capsys) == []
