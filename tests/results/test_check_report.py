"""The page of `assay check --report`: every history's verdict, what was refuted at length."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_report import Balance

from assay.cli import invoke
from harness.errors import HarnessError, UserError
from results.report import render_check, write_check_report

READ = {"op": 3, "process": 1, "f": "read", "type": "ok", "mops": ({"f": "r", "partition": 0, "value": 1},)}
STALE = {"message": "It was older.", "ops": (READ | {"invoke_time": 1, "complete_time": 9},), "steps": ()}
BAD = {"input": "bad<1>.edn", "valid": False, "model": "register", "ops": 4, "counts": {"stale-read": 1}}
BAD |= {"anomalies": {"stale-read": (STALE,)}, "not": ("linearizable",), "seconds": 0.1, "engine": "local"}
GOOD = {"input": "good.edn", "valid": True, "model": "register", "ops": 7, "anomalies": {}, "counts": {}}
OPEN = {"input": "open.edn", "valid": "unknown", "model": "register", "ops": 9, "reason": "Out of time."}

HISTORY = """{:process 0, :type :invoke, :f :write, :value 1}
{:process 0, :type :ok, :f :write, :value 1}
{:process 1, :type :invoke, :f :read, :value nil}
{:process 1, :type :ok, :f :read, :value 7}
"""


def visible(page: str) -> str:
    parser = Balance()
    parser.feed(page)
    assert parser.open == []
    return " ".join(" ".join(parser.words).split())


def test_one_history_is_told_whole() -> None:
    text = visible(render_check([BAD]))
    for words in ("assay check · bad<1>.edn", "INVALID", "stale-read 1 anomaly", "It was older.", "Ruled out: linear"):
        assert words in text
    assert "VALID" in visible(render_check([GOOD]))
    assert "Nothing wrong was found." in visible(render_check([GOOD]))


def test_of_several_the_refuted_come_first_and_the_valid_are_only_listed() -> None:
    text = visible(render_check([GOOD, OPEN, BAD]))
    assert "3 histories" in text
    assert text.index("bad<1>.edn") < text.index("open.edn") < text.index("good.edn")
    assert text.count("good.edn") == 1
    assert "Out of time." in text
    assert "stale-read (1)" in text


@pytest.mark.parametrize(("judged", "word"), [([GOOD], "UNKNOWN"), ([GOOD, BAD], "INVALID"), ([], "UNKNOWN")])
def test_inputs_that_could_not_be_judged_are_named(judged: list[dict[str, object]], word: str) -> None:
    text = visible(render_check(judged, ["x.edn, line 3: no <map>."]))
    assert "x.edn, line 3: no <map>." in text
    assert f" {word} " in text


def test_a_run_is_told_by_checker() -> None:
    run = {"input": "store/latest", "valid": False, "model": "register+stats", "anomalies": {}}
    run["checkers"] = {"stats": {"valid": True, "model": "stats"}, "register": BAD}
    text = visible(render_check([run]))
    assert "invalid register" in text
    assert "valid stats" in text


def test_a_directory_gets_a_page_of_its_own(tmp_path: Path) -> None:
    assert write_check_report(tmp_path, [GOOD]) == tmp_path / "check.html"
    assert "VALID" in (tmp_path / "check.html").read_text()
    with pytest.raises(HarnessError, match=r"can't be written"):
        write_check_report(tmp_path / "no" / "x.html", [GOOD])


def test_the_command_writes_it_beside_the_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    history, page = tmp_path / "h.edn", tmp_path / "page.html"
    history.write_text(HISTORY)
    command = ["check", str(history), "--model", "register", "--engine", "local", "--report"]
    assert invoke([*command, str(page)]) == 1
    printed = capsys.readouterr()
    assert "read-of-unwritten" in printed.out
    assert str(page) in printed.err
    assert "read-of-unwritten" in visible(page.read_text())
    with pytest.raises(UserError, match="There is no directory"):
        invoke([*command, str(tmp_path / "no" / "page.html")])


def test_a_torn_write_is_drawn_row_by_row() -> None:
    lines = [
        {"op": 1, "what": "process 0's write", "marks": ["the write", "the write", "the write", "the write"]},
        {"op": 2, "what": "process 1's read", "marks": ["the write", "older", "nothing", "not asked"]},
    ]
    lines[0]["marks"][3] = "gone"
    tear = {"columns": ["row 0", "row 1", "row 2", "row 3"], "lines": lines}
    torn = {"message": "torn", "ops": [], "details": {"tear": tear}}
    page = render_check([{**BAD, "anomalies": {"torn-read": [torn]}, "counts": {"torn-read": 1}}])
    text = visible(page)
    assert "row 0 row 1 row 2 row 3 T1 process 0's write written written written deleted" in text
    assert "T2 process 1's read shown older absent" in text
    assert page.count('class="cell unasked"') == 1
