"""What nobody wrote can't be placed in a history: a read of it is no reason to call the history valid."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_appended_lists import appended, judged, read
from test_monotonic_reads import r, w

from checkers.api import judge_source
from checkers.engines.local import LocalEngine
from checkers.made.examples import events_of
from checkers.sessions.session_order import GUARANTEES
from checkers.source import Source
from harness.history.table import to_table

MODELS = (*GUARANTEES, "sessions", "write-atomicity")
NOBODY = {
    "a value": [w(0, 1, 1), r(2, 3, 99)],
    "two values": [w(0, 1, 1), r(2, 3, 99), r(4, 5, 98), r(6, 7, 98)],
    "an element": [appended(0, 0, 1), read(2, 1, 1, 99)],
    "an element of a list off the longest": [appended(0, 0, 1), appended(1, 0, 2), read(2, 1, 1, 2), read(4, 2, 99)],
    "a write that had not begun": [w(0, 1, 1), r(2, 3, 99), w(4, 5, 99), r(6, 7, 99)],
    "a write that failed": [w(0, 1, 1), w(2, 3, 99, status="fail"), r(4, 5, 99)],
}


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("name", NOBODY)
def test_what_nobody_wrote_is_never_valid(name: str, model: str, tmp_path: Path) -> None:
    verdict = judged(NOBODY[name], tmp_path, (model,))[model]
    assert verdict.valid == "unknown" and verdict.details["values_unwritten"] == (2 if name == "two values" else 1)
    assert "no operation had begun to write" in str(verdict.reason)


@pytest.mark.parametrize("model", MODELS)
def test_what_may_have_been_written_was(model: str, tmp_path: Path) -> None:
    rows = [w(0, 1, 1), w(2, 9, 2, status="info"), r(3, 4, 2), r(5, 6, 2)]
    verdict = judged(rows, tmp_path, (model,))[model]
    assert verdict.valid is True and verdict.details["values_unwritten"] == 0


@pytest.mark.parametrize("asked", ["requested_ts=25", "bound=5"])
def test_a_snapshot_of_what_nobody_wrote_is_unknown(asked: str) -> None:
    text = f"0-1 0 ok write w(1)=1 served_ts=10\n2-3 0 ok write w(1)=2 served_ts=20\n4-5 1 ok read r(1)=99 {asked}\n"
    table = to_table([op.complete(op.type, index=i) for i, op in enumerate(events_of(text))])
    source = Source(Path("written"), "journal", table.num_rows, table=table)
    verdict = judge_source(source, "snapshot-reads", LocalEngine())
    assert verdict.valid == "unknown" and verdict.details["values_unwritten"] == 1
