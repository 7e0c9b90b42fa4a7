"""The shell text that keeps a program as a daemon, run by this machine's own shell on a program that does nothing, and
what a probe agent says of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.env import daemon
from harness.env.daemon import Daemon
from harness.env.probe_agent import process_state
from harness.errors import HarnessError
from harness.ports.machines import ProcessState


def sh(command: str) -> str:
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True)
    return done.stdout


def state(program: Daemon) -> ProcessState:
    question = dict(daemon.state_question(program))
    return daemon.parse_state(process_state(question["process"], question["marker"]))


def a_daemon(directory: Path, code: str, marker: str) -> Daemon:
    return Daemon(
        argv=(sys.executable, "-c", code, marker),
        marker=marker,
        pid_file=str(directory / "run" / "program.pid"),
        log_file=str(directory / "log" / "program.log"),
        environment={"GREETING": "two words"},
    )


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[Daemon]:
    code = "import os, time\nprint(os.environ['GREETING'], flush=True)\nwhile True: time.sleep(0.1)"
    program = a_daemon(tmp_path, code, f"sleeper-{tmp_path.name}")
    yield program
    sh(daemon.kill_command(program))


def test_the_states_follow_the_signals(sleeper: Daemon) -> None:
    assert state(sleeper) is ProcessState.DEAD
    sh(daemon.start_command(sleeper))
    assert state(sleeper) is ProcessState.RUNNING
    sh(daemon.pause_command(sleeper))
    assert state(sleeper) is ProcessState.PAUSED
    sh(daemon.resume_command(sleeper))
    assert state(sleeper) is ProcessState.RUNNING
    sh(daemon.kill_command(sleeper))
    assert state(sleeper) is ProcessState.DEAD


def test_starting_what_runs_changes_nothing(sleeper: Daemon) -> None:
    first = sh(daemon.start_command(sleeper))
    sh(daemon.pause_command(sleeper))
    assert sh(daemon.start_command(sleeper)) == first
    assert state(sleeper) is ProcessState.PAUSED


def test_commands_that_come_at_once_take_turns(sleeper: Daemon) -> None:
    marker = sleeper.marker.encode()
    commands = [daemon.start_command(sleeper), daemon.kill_command(sleeper), daemon.start_command(sleeper)] * 3
    at_once = [subprocess.Popen(["sh", "-c", command], stdout=subprocess.DEVNULL) for command in commands]
    assert all(process.wait() == 0 for process in at_once)
    sh(daemon.start_command(sleeper))
    processes = [each for each in Path("/proc").glob("[0-9]*/cmdline") if marker in _read(each)]
    assert [int(each.parent.name) for each in processes] == [int(sh(daemon.start_command(sleeper)))]


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # it has ended meanwhile
        return b""


def test_a_paused_program_can_be_stopped(sleeper: Daemon) -> None:
    sh(daemon.start_command(sleeper))
    sh(daemon.pause_command(sleeper))
    sh(daemon.stop_command(sleeper))
    assert state(sleeper) is ProcessState.DEAD


def test_signals_to_a_dead_program_are_no_error(sleeper: Daemon) -> None:
    for command in (daemon.kill_command, daemon.stop_command, daemon.pause_command, daemon.resume_command):
        sh(command(sleeper))
    assert state(sleeper) is ProcessState.DEAD


def test_its_output_is_in_its_log_over_several_starts(sleeper: Daemon) -> None:
    log = Path(sleeper.log_file)
    for start in (1, 2):
        sh(daemon.start_command(sleeper))
        while log.read_text().count("\n") < start:
            time.sleep(0.01)
        sh(daemon.kill_command(sleeper))
    assert log.read_text() == "two words\ntwo words\n"


def test_a_program_that_takes_the_process_id_over_is_left_alone(tmp_path: Path, sleeper: Daemon) -> None:
    other = subprocess.Popen(["sleep", "60"])
    try:
        Path(sleeper.pid_file).parent.mkdir()
        Path(sleeper.pid_file).write_text(f"{other.pid}\n")
        assert state(sleeper) is ProcessState.DEAD
        sh(daemon.kill_command(sleeper))
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_a_shell_that_is_about_to_become_the_program_is_not_it(sleeper: Daemon) -> None:
    about_to = subprocess.Popen(["sh", "-c", f"sleep 60; exec python -c pass {sleeper.marker}"], start_new_session=True)
    try:
        Path(sleeper.pid_file).parent.mkdir()
        Path(sleeper.pid_file).write_text(f"{about_to.pid}\n")
        assert state(sleeper) is ProcessState.DEAD
    finally:
        os.killpg(about_to.pid, signal.SIGKILL)
        about_to.wait()


def test_a_killed_program_that_nobody_reaped_is_dead(sleeper: Daemon) -> None:
    child = subprocess.Popen(list(sleeper.argv), env={**os.environ, **sleeper.environment}, stdout=subprocess.DEVNULL)
    Path(sleeper.pid_file).parent.mkdir()
    Path(sleeper.pid_file).write_text(f"{child.pid}\n")
    while sleeper.marker.encode() not in _read(Path(f"/proc/{child.pid}/cmdline")):
        time.sleep(0.01)
    assert state(sleeper) is ProcessState.RUNNING
    child.send_signal(signal.SIGKILL)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert state(sleeper) is ProcessState.DEAD
    child.wait()


def test_an_answer_that_is_no_state_is_our_failure() -> None:
    with pytest.raises(HarnessError, match="answered 'null'"):
        daemon.parse_state("null")
