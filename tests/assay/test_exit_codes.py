"""Exit codes and words of the command line where nobody listens, or somebody stops it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import INVALID, assay

from assay import cli
from harness.errors import HarnessError, UserError

BUFFERED = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}


def code_of(monkeypatch: pytest.MonkeyPatch, outcome: int | BaseException) -> int:
    def invoke(arguments: list[str] | None) -> int:
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    monkeypatch.setattr(cli, "invoke", invoke)
    with pytest.raises(SystemExit) as stop:
        cli.main([])
    assert isinstance(stop.value.code, int)
    return stop.value.code


@pytest.mark.parametrize(
    ("outcome", "code", "words"),
    [
        (1, 1, ""),
        (UserError("Name a file."), 254, "assay: Name a file.\n"),
        (HarnessError("SSH broke."), 255, "assay: SSH broke.\n"),
        (KeyError("x"), 255, "assay: a bug of the harness: KeyError: 'x' (run again with --debug for the traceback)\n"),
    ],
)
def test_every_outcome_has_its_code_and_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], outcome: int | Exception, code: int, words: str
) -> None:
    assert code_of(monkeypatch, outcome) == code
    assert capsys.readouterr().err == words


def test_ctrl_c_that_comes_before_a_run_has_begun_is_no_exit_code_of_the_parser_s(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It ended with 130, and without a word."""

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("assay.run_command.run_or_runs", interrupted)
    answer = assay(capsys, "run", "register")
    assert answer.code == 255 and "stopped by the keyboard" in answer.complaint


@pytest.mark.parametrize("stop", [KeyboardInterrupt(), SystemExit(130)])
def test_ctrl_c_is_neither_a_verdict_nor_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], stop: BaseException
) -> None:
    assert code_of(monkeypatch, stop) == 255
    assert "stopped by the keyboard" in capsys.readouterr().err


@pytest.mark.parametrize(("found", "code"), [(0, 255), (1, 1), (2, 255)])
def test_a_verdict_that_could_not_be_printed_is_not_valid(found: int, code: int) -> None:
    script = f"from assay import cli\ncli.invoke = lambda arguments: print('word') or {found}\ncli.main([])"
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-c", script]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, env=BUFFERED)
    assert done.returncode == code
    assert done.stderr == "assay: standard output can't be written: No space left on device.\n"


def test_nobody_listening_is_no_traceback_and_never_a_verdict_of_its_own() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "assay", "list", "models"]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True)
    os.close(writing)
    assert (done.returncode, done.stderr) == (255, "")
    closed = subprocess.run(["sh", "-c", '"$@" >&-', "sh", *command], stderr=subprocess.PIPE, text=True)
    assert (closed.returncode, closed.stderr) == (0, "")


def test_without_a_command_it_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        cli.main([])
    assert stop.value.code == 254
    assert capsys.readouterr().err == "assay: A command is missing. Try `assay --help`.\n"


def invalid_history(tmp_path: Path) -> Path:
    path = tmp_path / "invalid.edn"
    path.write_text(INVALID)
    return path


@pytest.mark.parametrize("report", [(), ("--json",)])
def test_a_bug_that_was_found_is_told_to_a_closed_pipe_by_the_exit_code(
    tmp_path: Path, report: tuple[str, ...]
) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-u", "-m", "assay.cli", "check", str(invalid_history(tmp_path)), "--model", "register"]
    done = subprocess.run([*command, *report], stdout=writing, stderr=subprocess.PIPE, text=True)
    os.close(writing)
    assert done.returncode == 1, done.stderr


def test_a_full_device_and_a_narrow_encoding_hide_no_bug(tmp_path: Path) -> None:
    path = invalid_history(tmp_path).rename(tmp_path / "geprüft–✓.edn")
    command = [sys.executable, "-u", "-m", "assay.cli", "check", str(path), "--model", "register"]
    with Path("/dev/full").open("w") as full:
        assert subprocess.run(command, stdout=full, stderr=subprocess.DEVNULL).returncode == 1
    ascii_only = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    done = subprocess.run(command, capture_output=True, text=True, env=ascii_only)
    assert done.returncode == 1 and "gepr\\xfcft" in done.stdout, done
