"""The table of outcomes: each row is made to happen, and `docs/checking.md` has these rows and no others."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, get_args

import pytest

from harness.verdict.advice import advice, remedy_of
from harness.verdict.failures import HarnessFailure
from harness.verdict.run_verdict import EXIT_CODES, Recovery, Why, conclude
from tests.harness.verdict.test_verdict_questions import VALID, facts

CHECKING = Path(__file__).parents[3] / "docs" / "checking.md"
REFUTED = {"register": {"valid": False}}
UNDECIDED = {"register": {"valid": "unknown", "reason": "out of budget"}}
OUR_BUG = (HarnessFailure("client", "KeyError: x"),)
NO_RECOVERY = Recovery(False, 10.0)
NOT_OBSERVED = Recovery(None, 10.0, None, "the machine was overloaded")


@pytest.mark.parametrize(
    ("changes", "checkers", "word", "why"),
    [
        ({}, VALID, "valid", None),
        ({}, REFUTED, "invalid", "refuted"),
        ({"recovery": NO_RECOVERY}, VALID, "invalid", "not-recovered"),
        ({"interrupted": True}, VALID, "unknown", "interrupted"),
        ({"failures": OUR_BUG}, VALID, "unknown", "harness"),
        ({"ended": False}, VALID, "unknown", "harness"),
        ({"unsealed": ("faults.json was changed",)}, VALID, "unknown", "harness"),
        ({"counts": {}}, VALID, "unknown", "vacuous"),
        ({}, UNDECIDED, "unknown", "undecided"),
        ({}, {}, "unknown", "undecided"),
        ({"recovery": NOT_OBSERVED}, VALID, "unknown", "undecided"),
        # What comes first where several apply.
        ({"recovery": NO_RECOVERY, "interrupted": True}, REFUTED, "invalid", "refuted"),
        ({"recovery": NO_RECOVERY, "failures": OUR_BUG, "counts": {}}, UNDECIDED, "invalid", "not-recovered"),
        ({"interrupted": True, "failures": OUR_BUG, "recovery": NOT_OBSERVED}, {}, "unknown", "interrupted"),
        ({"failures": OUR_BUG, "counts": {}, "recovery": NOT_OBSERVED}, UNDECIDED, "unknown", "harness"),
        ({"counts": {}, "recovery": NOT_OBSERVED}, UNDECIDED, "unknown", "vacuous"),
    ],
)
def test_each_outcome_happens(changes: dict[str, Any], checkers: dict[str, Any], word: str, why: str | None) -> None:
    verdict = conclude(facts(**changes), checkers)
    assert (verdict.overall, verdict.why) == (word, why)
    assert bool(advice(verdict.overall, verdict.reasons)) is (word == "unknown")
    assert all(remedy_of(reason) for reason in verdict.reasons if word == "unknown")


def test_the_documented_table_is_whole_and_in_order() -> None:
    rows = re.findall(r"^\| (\d+) \| (\w+) \| `([\w-]+)` \|", CHECKING.read_text(), re.MULTILINE)
    words = {"refuted": "invalid", "not-recovered": "invalid"}
    expected = [(words.get(why, "unknown"), why) for why in get_args(Why)]
    assert rows == [(str(EXIT_CODES[word]), word, why) for word, why in expected]
