"""When the datagrams of a probe's flow need not be waited for any longer."""

from __future__ import annotations

import pytest

from harness.ports.machines import LOOK_S, QUIET_S, WAIT_S, FlowWait


def waited_s(arrived_by: dict[float, tuple[int, ...]]) -> float:
    """How long 100 datagrams of each flow are waited for; `arrived_by` counts, by times in s, those there by then."""
    wait, at_s = FlowWait(100), 0.0
    while True:
        at_s += LOOK_S
        if wait.over(max((at, found) for at, found in arrived_by.items() if at <= at_s)[1], at_s):
            return at_s


@pytest.mark.parametrize(
    ("arrived_by", "due_s"),
    [
        ({0.0: (100, 100)}, LOOK_S),
        ({0.0: (85, 100)}, LOOK_S + QUIET_S),
        ({0.0: (0, 0), 0.45: (100, 100)}, 0.5),
        ({0.0: (2, 2), 0.75: (100, 100)}, 0.8),
        ({0.0: (0, 100)}, WAIT_S),
        ({round(0.1 * n, 1): (10 + n, 50) for n in range(20)}, WAIT_S),
    ],
    ids=["all", "some are lost", "late", "clogged, then in a burst", "one carries nothing", "slow"],
)
def test_it_is_over_when_all_are_there_or_no_more_come(arrived_by: dict[float, tuple[int, ...]], due_s: float) -> None:
    assert waited_s(arrived_by) == pytest.approx(due_s, abs=LOOK_S / 2)
