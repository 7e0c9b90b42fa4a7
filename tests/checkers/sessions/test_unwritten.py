"""What nobody wrote can't be placed in a history: a read of it is no reason to call the history valid."""

from __future__ import annotations

from pathlib import Path

import pytest
from session_histories import Row, flattened, side_by_side
from test_appended_lists import appended, judged, read
from test_monotonic_reads import r, w

from checkers.api import judge_source
from checkers.engines.local import LocalEngine
from checkers.made.examples import events_of
from checkers.sessions.judge_sessions import PROJECTION as OF_SESSIONS
from checkers.sessions.session_guarantees import SessionKernel
from checkers.sessions.session_order import GUARANTEES
from checkers.sessions.write_atomicity import PROJECTION as OF_PAGES
from checkers.sessions.write_atomicity import PageKernel
from checkers.source import Source
from harness.history.table import to_table

MODELS = (*GUARANTEES, "sessions", "write-atomicity")
NOBODY = {
    "a value": [w(0, 1, 1), r(2, 3, 99)],
    "two values": [w(0, 1, 1), r(2, 3, 99), r(4, 5, 98), r(6, 7, 98)],
    "an element": [appended(0, 0, 1), read(2, 1, 1, 99)],
    "an element of a list off the longest": [appended(0, 0, 1), appended(1, 0, 2), read(2, 1, 1, 2), read(4, 2, 99)],
    "a write that had not begun": [w(0, 1, 1), r(2, 3, 99), w(4, 5, 99), r(6, 7, 99)],
    "a write that had not begun, and one more": [w(0, 1, 1), r(2, 3, 99), w(4, 5, 99), w(6, 7, 99)],
    "an append that had not begun": [appended(0, 0, 1), read(2, 1, 1, 99), appended(4, 0, 99), read(6, 1, 1, 99)],
    "appends that had not begun": [read(0, 1, 99), appended(2, 0, 99), appended(4, 0, 99)],
    "an append that had not begun, off the longest": [
        appended(0, 0, 1),
        appended(2, 0, 2),
        read(4, 1, 1, 2),
        read(6, 2, 99),
        Row(8, None, 3, (("append", 0, 99),), "info"),
    ],
    "a value that its own operation wrote later": [w(0, 1, 1), Row(2, 3, 1, (("r", 0, 99), ("w", 0, 99)))],
    "a value that its own operation wrote later and again": [
        w(0, 1, 1),
        Row(2, 3, 1, (("r", 0, 99), ("w", 0, 99), ("r", 0, 99), ("w", 0, 99))),
    ],
    "an element that its own operation appended later": [
        appended(0, 0, 1),
        Row(2, 3, 1, (("r", 0, (1, 99)), ("append", 0, 99))),
        read(4, 2, 1, 99),
    ],
    "an element that its own operation appended between": [
        appended(0, 0, 1),
        Row(2, 3, 1, (("r", 0, (1, 99)), ("append", 0, 99), ("r", 0, (1, 99)))),
    ],
    "an element that a list shows twice": [appended(0, 0, 1), read(2, 1, 1, 1)],
    "a write that failed": [w(0, 1, 1), w(2, 3, 99, status="fail"), r(4, 5, 99)],
}


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("name", NOBODY)
def test_what_nobody_wrote_is_never_valid(name: str, model: str, tmp_path: Path) -> None:
    verdict = judged(NOBODY[name], tmp_path, (model,))[model]
    assert verdict.valid == "unknown" and verdict.details["values_unwritten"] == (2 if name == "two values" else 1)
    assert "no operation had begun to write" in str(verdict.reason)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(
    "rows",
    [
        [w(0, 1, 1), Row(2, 3, 1, (("r", 0, 1), ("w", 0, 2), ("r", 0, 2)))],
        [w(0, 1, 1), Row(2, 3, 1, (("w", 0, 2), ("r", 0, 2), ("w", 0, 2)))],
        [appended(0, 0, 1), Row(2, 3, 1, (("r", 0, (1,)), ("append", 0, 2), ("r", 0, (1, 2)), ("append", 0, 3)))],
    ],
)
def test_what_its_own_operation_wrote_before_was_written(rows: list[Row], model: str, tmp_path: Path) -> None:
    verdict = judged(rows, tmp_path, (model,))[model]
    assert verdict.valid is True and verdict.details["values_unwritten"] == 0


@pytest.mark.parametrize("model", MODELS)
def test_what_may_have_been_written_was(model: str, tmp_path: Path) -> None:
    rows = [w(0, 1, 1), w(2, 9, 2, status="info"), r(3, 4, 2), r(5, 6, 2)]
    verdict = judged(rows, tmp_path, (model,))[model]
    assert verdict.valid is True and verdict.details["values_unwritten"] == 0


@pytest.mark.parametrize("size", [1, 2, 5, 100])
def test_elements_are_early_however_lists_are_read(size: int) -> None:
    """The first of the reads of a list counts, whichever list of a batch stands for it."""
    reads = [read(0, 1, 8), read(2, 2, 8, 9), read(8, 1, 8, 9, 7), read(10, 2, 8, 9, 7)]
    rows = [*reads[:2], appended(4, 0, 8), appended(6, 0, 7), *reads[2:], appended(12, 0, 9)]
    for kernel, projection in ((SessionKernel(GUARANTEES, 4), OF_SESSIONS), (PageKernel(4), OF_PAGES)):
        found = kernel(flattened(side_by_side([rows]), projection, size))
        assert found.figures["values_unwritten"] == 2


@pytest.mark.parametrize("asked", ["requested_ts=5", "bound=5"])
def test_a_snapshot_of_what_nobody_wrote_is_unknown(asked: str) -> None:
    text = f"0-1 0 ok write w(1)=1 served_ts=10\n2-3 0 ok write w(1)=2 served_ts=20\n4-5 1 ok read r(1)=99 {asked}\n"
    table = to_table([op.complete(op.type, index=i) for i, op in enumerate(events_of(text))])
    source = Source(Path("written"), "journal", table.num_rows, table=table)
    verdict = judge_source(source, "snapshot-reads", LocalEngine())
    assert verdict.valid == "unknown" and verdict.details["values_unwritten"] == 1
