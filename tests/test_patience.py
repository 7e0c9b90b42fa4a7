"""Limits that grow where other processes take the machine's cores, and hangs that end all the same."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.support import patience
from tests.support.patience import MOST, Limit, bear_with_this_machine, until


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """Its clock, and for how long some process has waited for a core."""
    here = {"clock": 100.0, "waited_for_core": 7.0}
    monkeypatch.setattr(patience.time, "monotonic", lambda: here["clock"])
    monkeypatch.setattr(patience, "waited_for_core_s", lambda: here["waited_for_core"])
    return here


@pytest.mark.parametrize(
    ("lasted_s", "waited_for_core_s", "left_s"),
    [(0, 0, 10), (4, 0, 6), (10, 0, 0), (10, 7, 7), (30, 30, 10), (10 * MOST - 1, 10 * MOST - 1, 1), (600, 600, -540)],
)
def test_only_seconds_in_which_nobody_waited_for_a_core_count(
    machine: dict[str, float], lasted_s: float, waited_for_core_s: float, left_s: float
) -> None:
    limit = Limit(10)
    machine["clock"] += lasted_s
    machine["waited_for_core"] += waited_for_core_s
    assert limit.left_s() == pytest.approx(left_s)


def test_a_kernel_that_says_nothing_has_us_count_by_the_clock(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(patience, "PRESSURE", tmp_path / "cpu")
    assert patience.waited_for_core_s() == 0
    (tmp_path / "cpu").write_text("some avg10=1.00 avg60=0.50 avg300=0.10 total=2500000\nfull avg10=0.00 total=9\n")
    assert patience.waited_for_core_s() == 2.5


def test_what_never_comes_is_waited_for_in_vain(machine: dict[str, float], monkeypatch: pytest.MonkeyPatch) -> None:
    def sleep(seconds: float) -> None:
        machine["clock"] += seconds

    monkeypatch.setattr(patience.time, "sleep", sleep)
    with pytest.raises(AssertionError, match="never came"):
        until(lambda: False, within_s=2.0)
    assert machine["clock"] == pytest.approx(102.0, abs=0.1)


def test_an_alarm_is_put_off_until_its_limit_is_over(
    machine: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[object] = []
    before = signal.signal(signal.SIGALRM, lambda number, frame: told.append("over"))
    monkeypatch.setattr(signal, "setitimer", lambda timer, seconds: told.append(seconds))
    bear_with_this_machine(10.0)
    try:
        for waited_for_core_s in (8.0, 0.0):
            machine["clock"] += 10.0
            machine["waited_for_core"] += waited_for_core_s
            signal.raise_signal(signal.SIGALRM)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert told == [pytest.approx(9.0), "over"]
