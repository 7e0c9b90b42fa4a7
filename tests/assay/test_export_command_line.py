"""`assay export`: saved runs and histories of other tools, what it says, and mistakes in one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import INVALID, VALID, assay

from harness.history.journal import JournalWriter
from harness.history.ops import Op, write

LOG = """INFO  jepsen.util - 0	:invoke	:write	1
INFO  jepsen.util - 0	:ok	:write	1
INFO  jepsen.util - 0	:invoke	:cas	[2 3]
INFO  jepsen.util - 0	:fail	:cas	[2 3]
"""


def test_a_run_of_ours_is_judged_the_same_from_its_copy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chosen = ("--nemesis", "power-cut", "--flaw", "raft-ack-before-fsync", "--seed", "1", "--time-limit", "20")
    kept = ("--keep-journal", "--store", tmp_path, "--json")
    run = Path(assay(capsys, "run", "register", *chosen, *kept).objects[0]["run"])
    answer = assay(capsys, "export", run)
    copy = run / "history.edn"
    lines = copy.read_text().splitlines()
    assert answer.code == 0 and answer.out.startswith(f"{copy}: ") and f", {len(lines)} events\n" in answer.out
    assert any(":process :nemesis" in line and ":type :info" in line for line in lines)
    found = [assay(capsys, "check", path, "--model", "register", "--json").objects[0] for path in (run, copy)]
    assert found[0]["valid"] is False
    for name in ("valid", "counts", "ops"):
        assert found[0][name] == found[1][name]
    (run / "history.parquet").unlink()
    by_journal = tmp_path / "journal.edn"
    assert assay(capsys, "export", run, "--to", by_journal).code == 0
    assert by_journal.read_bytes() == copy.read_bytes()


def test_a_history_of_another_tool_is_written_where_it_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log, copy = tmp_path / "jepsen.log", tmp_path / "copy.edn"
    log.write_text(LOG)
    answer = assay(capsys, "export", log, "--to", copy)
    first, note = answer.out.splitlines()
    assert first == f"{copy}: 2 operations, 4 events" and "--failed-cas observed" in note
    for options, expected in (((), [0, 2]), (("--failed-cas", "observed"), [0, 0])):  # in the copy nothing was read
        codes = [assay(capsys, "check", path, "--model", "cas-register", *options).code for path in (log, copy)]
        assert codes == expected
    log.write_text(LOG.replace("[2 3]", "[1 3]"))
    assert assay(capsys, "check", log, "--model", "cas-register").code == 1
    assert assay(capsys, "export", log, "--to", copy, "--format", "jepsen-log", "--overwrite").code == 0
    assert assay(capsys, "check", copy, "--model", "cas-register", "--failed-cas", "observed").code == 1


def test_a_journal_that_ended_early_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "history.journal"
    writer = JournalWriter(path)
    writer.append(Op("invoke", 0, "write", (write(0, 1),), index=0, time=0))
    writer.seal()
    answer = assay(capsys, "export", path, "--to", tmp_path / "copy.edn")
    writer.close()
    assert answer.code == 0 and "The journal ended early" in answer.out
    assert (tmp_path / "copy.edn").read_text() == (
        "{:index 0, :time 0, :type :invoke, :process 0, :f :write, :value 1}\n"
    )


def test_mistakes_get_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, there = tmp_path / "h.edn", tmp_path / "there.edn"
    source.write_text(VALID)
    there.write_text(INVALID)
    mistakes = {
        (tmp_path / "nowhere",): "no file or run directory",
        (source,): "name the file to write with --to",
        (tmp_path,): "name the file to write with --to",
        (tmp_path, "--to", tmp_path / "x.edn"): "it has no run.json",
        (source, "--to", tmp_path): "is a directory; name a file",
        (source, "--to", tmp_path / "no" / "x.edn"): "no directory",
        (source, "--to", there): "is there already",
        (source, "--to", source, "--overwrite"): "is what is to be exported",
        (source, "--to", tmp_path / "x.edn", "--format", "edm"): "no format 'edm'",
        (source, "--to", tmp_path / "x.edn", "--format", "json"): "this is not a JSON array",
        (): "Missing argument",
    }
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    for arguments, words in mistakes.items():
        answer = assay(capsys, "export", *arguments)
        assert (answer.code, answer.out) == (254, "") and words in answer.complaint, arguments
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert assay(capsys, "export", source, "--to", there, "--overwrite").code == 0
    assert assay(capsys, "check", there, "--model", "register").code == 0


def test_what_can_not_be_said_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "history.journal"
    writer = JournalWriter(path)
    writer.append(Op("info", -2, "feed-row", (write(0, 1),), index=0, time=0))
    writer.close()
    answer = assay(capsys, "export", path, "--to", tmp_path / "copy.edn")
    assert answer.code == 254 and "can't be exported: event 0: an unsolicited event" in answer.complaint
    assert [left.name for left in tmp_path.iterdir()] == [path.name]
