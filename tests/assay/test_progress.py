"""What is told of a run while it goes on, where standard error is no terminal."""

from __future__ import annotations

import pytest

from assay import progress
from harness.history.ops import Op


def lines_of(capsys: pytest.CaptureFixture[str]) -> list[str]:
    with progress.RunProgress(10.0) as shown:
        shown.stage("load")
        for number in range(2 * progress.EVENTS_PER_UPDATE):
            shown.event(Op("invoke", 1, "read", time=number * 10**7))
        shown.stage("judge")
    return capsys.readouterr().err.splitlines()


def test_without_a_terminal_stages_and_the_load_are_told_by_lines(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "LINE_GAP_S", 0.0)
    assert lines_of(capsys) == ["load", "load: 3 s, 256 events", "load: 5 s, 512 events", "judge"]


def test_lines_are_apart_so_that_a_short_run_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert lines_of(capsys) == []
