"""`assay check` as a whole: exit codes, what `--json` prints, the worst of several inputs, sentences for mistakes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from command_line import INVALID, UNKNOWN_SET, VALID, assay, files

from assay import check_command
from harness.history.journal import JournalWriter
from harness.history.ops import Op, write


@pytest.mark.parametrize(
    ("text", "model", "code", "word"),
    [
        (VALID, "register", 0, "VALID"),
        (INVALID, "register", 1, "INVALID"),
        (UNKNOWN_SET, "set", 2, "UNKNOWN"),
    ],
)
def test_the_verdict_is_the_exit_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, model: str, code: int, word: str
) -> None:
    (path,) = files(tmp_path, history=text)
    answer = assay(capsys, "check", path, "--model", model)
    assert answer.code == code
    assert answer.out.startswith(f"{word}: {path} by {model} (")
    assert ("what to change: " in answer.out) is (word == "UNKNOWN")
    (found,) = assay(capsys, "check", path, "--model", model, "--json").objects
    assert found["valid"] == {"VALID": True, "INVALID": False, "UNKNOWN": "unknown"}[word]
    assert {"model", "anomalies", "ops", "seconds", "engine"} <= found.keys()


def test_json_is_one_object_and_nothing_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (path,) = files(tmp_path, history=INVALID)
    answer = assay(capsys, "check", path, "--model", "register", "--json")
    assert len(answer.out.splitlines()) == 1 and answer.err == ""
    (found,) = answer.objects
    assert found["counts"] == {"read-of-unwritten": 1}
    assert "read 7" in found["anomalies"]["read-of-unwritten"][0]["message"]


def test_a_journal_that_ended_early_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "history.journal"
    journal = JournalWriter(path)
    begun = Op("invoke", 0, "write", (write(1, 5),), index=0, time=0)
    for event in (begun, begun.complete("ok", index=1, time=9)):
        journal.append(event)
    journal.seal()
    sentence = "The journal ended early (the end mark is missing); its sealed prefix was judged."
    answer = assay(capsys, "check", path, "--model", "register")
    assert answer.code == 2 and answer.out.count(f"  {sentence}\n") == 1
    (found,) = assay(capsys, "check", path, "--model", "register", "--json").objects
    assert found["details"]["note"] == sentence
    path.write_bytes(path.read_bytes()[:-3])
    assert "ended early (the last block is torn)" in assay(capsys, "check", path, "--model", "register").out
    journal.close()


def test_the_worst_finding_of_several_inputs_wins(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad, silent, broken = files(tmp_path, good=VALID, bad=INVALID, silent=UNKNOWN_SET, broken="[{:type :inv")
    nowhere = tmp_path / "nowhere.edn"
    assert assay(capsys, "check", good, bad, good, "--model", "register").code == 1
    assert assay(capsys, "check", silent, silent, "--model", "set").code == 2
    answer = assay(capsys, "check", nowhere, broken, bad, "--model", "register")
    assert answer.code == 1, "an unreadable input never hides an invalid one"
    assert answer.err.count("assay: ") == 2 and "nowhere.edn" in answer.err and "broken.edn" in answer.err
    answer = assay(capsys, "check", good, broken, "--model", "register")
    assert answer.code == 254 and "VALID" in answer.out and "broken.edn" in answer.complaint
    assert assay(capsys, "check", broken, silent, "--model", "set").code == 254


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--model", "linearisable"], "no model 'linearisable'"),
        (["--model", "register", "--engine", "flink"], "no engine 'flink'"),
        (["--model", "register", "--format", "xml"], "no format 'xml'"),
        (["--model", "register", "--failed-cas", "maybe"], "--failed-cas takes"),
        (["--model", "multi-register", "--failed-cas", "observed"], "--failed-cas goes with register, cas-register"),
        (["--model", "register", "-o", "total=3"], "no setting 'total'"),
        (["--model", "bank", "-o", "total"], "KEY=VALUE"),
        (["--model", "bank", "-o", "total=lots"], "-o total takes an integer"),
        (["--model", "logs"], "belongs to no run"),
        (["--model", "register", "--format", "json"], "not a JSON array"),
        (["--model", "register", "--format", "parquet"], "not a whole Parquet file"),
        (["--model", "register", "--format", "journal"], "journal"),
        (["--model", "set"], "the model set can't judge it"),
        (["--model"], "requires an argument"),
        (["--modle", "register"], "No such option"),
        ([], "--model"),
    ],
)
def test_mistakes_get_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    (path,) = files(tmp_path, history=VALID)
    for extra in ([], ["--json"]):
        answer = assay(capsys, "check", path, *extra, *arguments)
        assert answer.code == 254
        assert words in answer.complaint
        assert answer.out == ""


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("truncated.edn", b"[{:process 0 :type :invoke :f :read}", "truncated"),
        ("truncated.json", b'[{"process": 0, "type": "invoke", "f": "read"}', "line 1"),
        ("other.txt", b"Dear Sir or Madam,\n", "none of the formats"),
        ("binary.edn", bytes(range(256)), "line"),
        ("empty.parquet", b"PAR1", "not a whole Parquet file"),
        ("no-operation.edn", b"[1 2 3]", "not an operation"),
        ("twice.edn", (VALID.splitlines()[0] * 2).encode(), "while its last one is open"),
        ("unmatched.edn", VALID.splitlines()[1].encode(), "has not invoked"),
    ],
)
def test_what_is_no_whole_history_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, content: bytes, words: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    answer = assay(capsys, "check", path, "--model", "register")
    assert answer.code == 254
    assert words in answer.complaint and str(path) in answer.err
    assert answer.out == ""


def test_paths_that_are_no_histories(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "no run.json" in assay(capsys, "check", tmp_path, "--model", "register").complaint
    assert "not the directory of a run" in assay(capsys, "check", tmp_path).complaint
    assert "There is no file" in assay(capsys, "check", tmp_path / "gone", "--model", "register").complaint
    assert "Name a run directory" in assay(capsys, "check").complaint


def test_a_traceback_only_for_those_who_ask(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (path,) = files(tmp_path, history="[{:type")
    assert "Traceback" not in assay(capsys, "check", path, "--model", "register").err
    answer = assay(capsys, "check", path, "--model", "register", "--debug")
    assert answer.code == 254 and "Traceback" in answer.err


def test_a_bug_of_ours_is_255_and_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("nobody is perfect")

    monkeypatch.setattr("assay.check_command.check_by_each", broken)
    (path,) = files(tmp_path, history=VALID)
    answer = assay(capsys, "check", path, "--model", "register")
    assert answer.code == 255
    assert "ZeroDivisionError: nobody is perfect" in answer.complaint


def test_a_checker_that_crashes_is_unknown_and_says_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(*_: object) -> None:
        raise RuntimeError("out of cheese")

    monkeypatch.setattr("checkers.linearizability.registers.refute_registers.judge_register", crash)
    (path,) = files(tmp_path, history=VALID)
    answer = assay(capsys, "check", path, "--model", "register")
    assert answer.code == 2 and "out of cheese" in answer.out and "Traceback" not in answer.out + answer.err


def test_the_installed_command_ends_with_the_same_codes(tmp_path: Path) -> None:
    good, bad = files(tmp_path, good=VALID, bad=INVALID)
    command = [sys.executable, "-m", "assay.cli", "check", "--model", "register", "--json"]
    ended = [
        subprocess.run([*command, *paths], capture_output=True, text=True, check=False)
        for paths in ([str(good)], [str(good), str(bad)], [str(tmp_path / "gone")])
    ]
    assert [one.returncode for one in ended] == [0, 1, 254]
    assert [len(one.stdout.splitlines()) for one in ended] == [1, 2, 0]
    assert "Traceback" not in "".join(one.stderr for one in ended)


def test_what_is_ruled_out_is_told_by_elles_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [
        "{:process 0 :type :invoke :f :txn :value [[:append :x 1]]}",
        "{:process 0 :type :fail :f :txn :value [[:append :x 1]]}",
        "{:process 1 :type :invoke :f :txn :value [[:r :x nil]]}",
        "{:process 1 :type :ok :f :txn :value [[:r :x [1]]]}",
    ]
    path = tmp_path / "aborted.edn"
    path.write_text("\n".join(lines))
    told = assay(capsys, "check", path, "--model", "list-append")
    assert told.code == 1
    assert "  Ruled out: read-committed, and all that is stronger." in told.out.splitlines()
    (found,) = assay(capsys, "check", path, "--model", "list-append", "--json").objects
    assert found["not"] == ["read-committed"] and "strict-serializable" not in found["not"]
    assert "strong-serializable" in found["also-not"] or "strict-serializable" in found["also-not"]


SKEW = """
{:process 0 :type :invoke :f :txn :value [[:append 1 1] [:r 2 nil]]}
{:process 1 :type :invoke :f :txn :value [[:append 2 1] [:r 1 nil]]}
{:process 0 :type :ok :f :txn :value [[:append 1 1] [:r 2 []]]}
{:process 1 :type :ok :f :txn :value [[:append 2 1] [:r 1 []]]}
"""


def test_consistency_models_by_their_aliases_and_several(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "skew.edn"
    path.write_text(SKEW)
    asked = ("check", path, "--model", "list-append", "--consistency", "SI, Ser", "--consistency", "si")
    answer = assay(capsys, *asked, "--consistency", "STRICT", "--json")
    found = [(each["consistency"], each["details"]["consistency"], each["valid"]) for each in answer.objects]
    assert answer.code == 1 and found == [
        ("SI", "snapshot-isolation", True),
        ("Ser", "serializable", False),
        ("si", "snapshot-isolation", True),
        ("STRICT", "strong-serializable", False),
    ]
    assert "VALID: " in (out := assay(capsys, *asked).out) and " by list-append at SI (2 operations" in out
    assert "consistency" not in assay(capsys, *asked[:4], "--json").objects[0]
    answer = assay(capsys, *asked[:4], "--consistency", "foo")
    assert answer.code == 254 and "parallel-snapshot-isolation" in answer.complaint and " si (" in answer.complaint
    listed = dict(line.split("\t")[:2] for line in assay(capsys, "list", "consistency").out.splitlines())
    assert listed["snapshot-isolation"] == "PL-SI, si" and "rc" in listed["read-committed"]
    for texts, complaint in ((",", "names no consistency model"), ("RB,RC", "'RB'")):
        answer = assay(capsys, "check", path, "--model", "isolation", "--consistency", texts)
        assert answer.code == 254 and complaint in answer.complaint


def test_what_is_no_file_is_refused_in_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pipe = tmp_path / "pipe.edn"
    os.mkfifo(pipe)
    for arguments in (
        ("check", pipe, "--model", "register"),
        ("export", pipe, "--to", tmp_path / "out.edn"),
        ("check", "--manifest", pipe),
    ):
        answer = assay(capsys, *arguments)
        assert answer.code == 254 and "is no file but a pipe or a device" in answer.complaint


def test_process_substitution_is_told_by_its_path(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`<(command)` of a shell is such a path; it was called None."""
    reading, writing = os.pipe()
    try:
        path = f"/dev/fd/{reading}"
        for arguments in (("check", path, "--model", "register"), ("export", path, "--to", tmp_path / "out.edn")):
            answer = assay(capsys, *arguments)
            assert answer.code == 254 and f"{path} is no file but a pipe or a device" in answer.complaint
    finally:
        os.close(reading)
        os.close(writing)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("format", ["auto", "edn"])
def test_utf_16_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str], encoding: str, format: str) -> None:
    path = tmp_path / "history.edn"
    path.write_text(VALID, encoding=encoding)
    answer = assay(capsys, "check", path, "--model", "register", "--format", format)
    assert answer.code == 254 and "is UTF-16; assay reads UTF-8" in answer.complaint


def test_a_bug_of_ours_hides_nothing_that_was_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    invalid, valid, strange = files(tmp_path, invalid=INVALID, valid=VALID, strange=VALID)

    def judged(named: str, request: check_command.CheckRequest) -> list[dict[str, Any]]:
        if named == str(strange):
            raise KeyError("x")
        return real(named, request)

    real = check_command.judged
    monkeypatch.setattr(check_command, "judged", judged)
    answer = assay(capsys, "check", strange, invalid, "--model", "register")
    assert answer.code == 1 and "KeyError" in answer.complaint
    answer = assay(capsys, "check", valid, strange, "--model", "register")
    assert answer.code == 255 and answer.out.startswith("VALID")


def test_a_report_that_could_not_be_written_is_no_success(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    invalid, valid = files(tmp_path, invalid=INVALID, valid=VALID)
    (tmp_path / "page.html.unfinished").mkdir()
    for path, code in ((valid, 254), (invalid, 1)):
        answer = assay(capsys, "check", path, "--model", "register", "--report", tmp_path / "page.html")
        assert answer.code == code and "the report could not be made" in answer.complaint


def test_options_that_a_run_can_not_take_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("--time-limit", "2", "--rate", "40", "--nodes", "3", "--seed", "1", "--json")
    run = assay(capsys, "run", "register", *arguments, "--store", tmp_path).objects[0]["run"]
    answer = assay(capsys, "check", run, "--format", "edn")
    assert answer.code == 254 and "whose history is not edn" in answer.complaint
    answer = assay(capsys, "check", run, "--consistency", "foo")
    assert answer.code == 254 and "this run is judged by register" in answer.complaint
    answer = assay(capsys, "run", "register", *arguments, "--store", Path(run) / "store")
    assert answer.code == 254 and "lies within the run" in answer.complaint
    assert assay(capsys, "check", run).code == 0
    (Path(run) / "outcome.json").unlink()
    answer = assay(capsys, "check", run)
    assert answer.code == 2 and answer.out.startswith("UNKNOWN: ")
    answer = assay(capsys, "check", run, "--model", "register", "--json")
    assert answer.code == 2 and answer.objects[0]["valid"] == "unknown"
    (Path(run) / "report.html.unfinished").mkdir()
    answer = assay(capsys, "report", run)
    assert answer.code == 254 and "can't be written" in answer.complaint
    answer = assay(capsys, "report", run, "--to", tmp_path / "elsewhere.html")
    assert answer.code == 2 and "outcome.json is missing" in answer.complaint
    assert (tmp_path / "elsewhere.html").exists()
    answer = assay(capsys, "report", run, "--to", tmp_path / "pages")
    assert answer.code == 2 and (tmp_path / "pages" / "report.html").exists()
