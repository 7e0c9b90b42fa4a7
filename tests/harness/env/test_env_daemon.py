"""The shell text that keeps a program as a daemon, run by this machine's own shell on a program that does nothing, and
what a probe agent says of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from harness.env import daemon
from harness.env.probe_agent import daemon_state
from harness.errors import HarnessError
from harness.ports.machines import Daemon, ProcessState


def sh(command: str) -> str:
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True)
    return done.stdout


def state(program: Daemon) -> ProcessState:
    return daemon.parse_state(answer_about(program))


def answer_about(program: Daemon) -> object:
    question = daemon.question_about(program)
    return daemon_state(question["process"], question["owner"])


def a_daemon(directory: Path, code: str, *arguments: str) -> Daemon:
    return Daemon(
        "program",
        (sys.executable, "-c", code, *arguments),
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
    marker = sleeper.argv[-1].encode()
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
    other = subprocess.Popen(["sleep", "60"], start_new_session=True)
    try:
        Path(sleeper.pid_file).parent.mkdir()
        Path(sleeper.pid_file).write_text(f"{other.pid} 1\n")
        assert state(sleeper) is ProcessState.DEAD
        sh(daemon.kill_command(sleeper))
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_incarnations_grow_and_the_dead_have_none(sleeper: Daemon) -> None:
    seen: list[int | None] = []
    for _ in range(2):
        sh(daemon.start_command(sleeper))
        seen.append(daemon.parse_incarnation(answer_about(sleeper)))
        sh(daemon.kill_command(sleeper))
        assert daemon.parse_incarnation(answer_about(sleeper)) is None
    first, second = seen
    assert first is not None and second is not None and first < second


FAMILY = """
import os, sys, time
def child():
    if os.fork() == 0:
        {escape}
        print(os.getpid(), flush=True)
        while True: time.sleep(0.05)
child()
while True: time.sleep(0.05)
"""
ESCAPES = {
    "a session of its own": "os.setsid()",
    "a double fork": "os.setsid()\n        if os.fork() != 0: os._exit(0)",
    "a title of its own": "import ctypes; ctypes.CDLL(None).prctl(15, b'else')",
}


@pytest.fixture(params=ESCAPES)
def family(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Daemon]:
    program = a_daemon(tmp_path, FAMILY.format(escape=ESCAPES[request.param]))
    sh(daemon.start_command(program))
    yield program
    sh(daemon.kill_command(program))


def child_of(program: Daemon) -> Path:
    while not (told := Path(program.log_file).read_text()).endswith("\n"):
        time.sleep(0.01)
    return Path(f"/proc/{int(told)}/stat")


def test_signals_and_states_are_of_all_children(family: Daemon) -> None:
    child = child_of(family)
    sh(daemon.pause_command(family))
    assert state(family) is ProcessState.PAUSED
    assert child.read_text().rpartition(") ")[2][0] == "T"
    os.kill(int(child.parent.name), signal.SIGCONT)
    assert state(family) is ProcessState.RUNNING, "one that goes on is not paused"
    sh(daemon.resume_command(family))
    assert child.read_text().rpartition(") ")[2][0] in "RS"
    main = int(sh(daemon.start_command(family)))
    os.kill(main, signal.SIGKILL)
    assert state(family) is ProcessState.RUNNING, "its child still works"
    sh(daemon.kill_command(family))
    assert state(family) is ProcessState.DEAD
    assert not child.exists() or child.read_text().rpartition(") ")[2][0] in "XZ"


def test_a_program_that_can_not_be_started_says_why(tmp_path: Path) -> None:
    program = a_daemon(tmp_path, "raise SystemExit('no such port')")
    program = replace(program, argv=("/no/such/program",))
    with pytest.raises(subprocess.CalledProcessError) as raised:
        sh(daemon.start_command(program))
    assert "/no/such/program" in raised.value.stderr


def test_an_answer_that_is_no_state_is_our_failure() -> None:
    for answer in (None, "null", {"state": "odd"}):
        with pytest.raises(HarnessError, match=r"a probe of a process answered"):
            daemon.parse_state(answer)
