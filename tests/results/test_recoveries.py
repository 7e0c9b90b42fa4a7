"""The report's table and picture of recoveries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harness.history.rundir import RunDir
from results.saved import Saved
from results.sections import recoveries

FOUND = [
    {"kind": "kill", "instance": 0, "before_hz": 90.0, "first_s": 0.5, "rate_s": 1.25},
    {"kind": "kill", "instance": 2, "before_hz": 90.0, "first_s": 2.0, "rate_s": None},
    {"kind": "$cut", "instance": 1, "before_hz": 90.0, "first_s": None, "rate_s": None},
]


def saved(details: Any) -> Saved:
    return Saved(RunDir(Path("nowhere")), {}, {}, {"liveness": {"details": details}}, (), None)


def test_each_kind_has_its_median_and_its_longest() -> None:
    page = str(recoveries(saved({"faults": FOUND}), {"kill": "#c8375b"}))
    assert "2.00 s, 2.00 s" in page
    assert "1.25 s, 1.25 s" in page
    assert "$cut" in page
    assert "data:image/svg+xml" in page


def test_nothing_is_shown_where_nothing_is_known() -> None:
    for details in (None, {}, {"faults": []}, {"faults": FOUND[2:]}, {"faults": "?"}, {"faults": [3]}):
        assert recoveries(saved(details), {}) is None
