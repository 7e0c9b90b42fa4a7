"""Connections to machines that take their time, break or go away, without any machine."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from pathlib import Path

import paramiko
import pytest

from harness.env import ssh
from harness.env.ssh import PREPARED_AT_ONCE, Conversation, Gone, SshFleet, SshHost, SshTarget, end_programs_command
from harness.errors import HarnessError
from tests.support.patience import until


class Echo:
    """A channel to a program that takes a while for each answer; two answers may arrive together."""

    def __init__(self) -> None:
        self._lines: list[bytes] = []

    def settimeout(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s

    def sendall(self, data: bytes) -> None:
        self._lines.append(data)

    def recv(self, size: int) -> bytes:
        time.sleep(0.02)
        deadline_s = time.monotonic() + self._timeout_s
        while not self._lines:
            if time.monotonic() > deadline_s:
                raise TimeoutError
            time.sleep(0.001)
        lines, self._lines = self._lines, []
        return b"".join(lines)

    def close(self) -> None:
        pass


def test_who_asks_beside_another_gets_his_own_answer() -> None:
    conversation = Conversation(Echo(), lambda error: HarnessError(repr(error)))
    answers: dict[bytes, bytes] = {}

    def ask(line: bytes) -> None:
        answers[line] = conversation.ask(line, 0.5)

    threads = [threading.Thread(target=ask, args=(b"%d" % number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == {b"%d" % number: b"%d" % number for number in range(8)}


class Transport:
    """A connection that carries nothing."""

    active = True

    def is_active(self) -> bool:
        return self.active

    def open_session(self, timeout: float) -> Echo:
        return Echo()


def test_a_connection_that_broke_is_made_anew_until_the_machine_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    host = SshHost("t1", SshTarget("192.0.2.1"))
    made: list[Transport] = []
    down = [False]

    def connect_once(timeout_s: float) -> None:
        if down[0]:
            raise OSError("connection reset")
        made.append(Transport())

    monkeypatch.setattr(host, "_connect_once", connect_once)
    monkeypatch.setattr(host._client, "get_transport", lambda: made[-1] if made else None)
    host.connect()
    host._open_channel(1.0)
    made[-1].active, down[0] = False, True
    with pytest.raises(OSError, match="reset"):
        host._open_channel(1.0)
    down[0] = False
    host._open_channel(1.0)
    assert len(made) == 2
    host.close()
    made[-1].active = False
    with pytest.raises(paramiko.SSHException, match="closed"):
        host._open_channel(1.0)


def test_no_new_connection_is_tried_to_a_machine_that_can_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be waited for again and again, by each command."""
    gone: list[Gone | None] = [Gone("its container is paused")]
    host = SshHost("t1", SshTarget("192.0.2.1"), lambda name: gone[0])
    made: list[Transport] = []
    monkeypatch.setattr(host, "_connect_once", lambda timeout_s: made.append(Transport()))
    monkeypatch.setattr(host._client, "get_transport", lambda: made[-1] if made else None)
    with pytest.raises(HarnessError, match="t1 is gone: its container is paused"):
        host.run("true")
    assert not made
    gone[0] = Gone("its container was started anew", answers=True)
    host._open_channel(1.0)
    assert made, "what can be undone there is undone"


@pytest.mark.parametrize("answers", [False, True])
def test_who_waits_for_a_machine_that_is_gone_is_told_before_his_time_is_over(
    answers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ssh, "LOOK_S", 0.01)
    looks, looked_often, dropped = [0], threading.Event(), threading.Event()

    def explain(name: str) -> Gone | None:
        looks[0] += 1
        if looks[0] > 3:
            looked_often.set()
        return Gone("its container is gone its way", answers) if looks[0] > 2 else None

    def command(host: SshHost) -> str:
        """Ends when its connection does; on a machine that answers, by itself."""
        if answers:
            until(looked_often.is_set)
            return "done"
        until(dropped.is_set)  # or the connection outlives its machine
        raise host._failure("the connection ended")

    async def scenario() -> str:
        fleet = SshFleet(explain)
        await fleet.add("t1", SshTarget("192.0.2.1"), lambda host: None)
        monkeypatch.setattr(fleet._hosts["t1"]._client, "close", dropped.set)
        try:
            return await fleet.on("t1", command)
        finally:
            undropped.append(not dropped.is_set())
            fleet.close()

    undropped: list[bool] = []
    if answers:
        assert asyncio.run(scenario()) == "done"
    else:
        with pytest.raises(HarnessError, match="t1 is gone: its container is gone its way"):
            asyncio.run(scenario())
    assert undropped == [answers]


def test_programs_of_a_file_are_ended_and_the_shell_that_asks_is_not(tmp_path: Path) -> None:
    path = tmp_path / "agent.py"
    path.write_text("import time\ntime.sleep(600)\n")
    program = subprocess.Popen([sys.executable, path])
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        command = end_programs_command(str(path))
        waits = threading.Thread(target=program.wait)
        waits.start()
        assert subprocess.run(["sh", "-c", f"{command}; exit 7"]).returncode == 7
        waits.join()
        assert program.returncode == -9
        assert other.poll() is None
        assert subprocess.run(["sh", "-c", command]).returncode == 0, "there is none"
    finally:
        other.kill()
        other.wait()


async def test_many_machines_are_prepared_a_few_at_a_time_and_all_are_tried() -> None:
    """Fifty-nine that began together on two cores outlasted the timeout of a command that takes a second."""
    names = [f"t{number}" for number in range(5 * PREPARED_AT_ONCE)]
    lock = threading.Lock()
    at_work, most, tried = 0, 0, []

    def prepare(host: SshHost) -> None:
        nonlocal at_work, most
        with lock:
            at_work += 1
            most = max(most, at_work)
            tried.append(host.name)
        time.sleep(0.002)
        with lock:
            at_work -= 1
        if host.name == "t3":
            raise HarnessError("t3 is gone")

    fleet = SshFleet()
    adding = (fleet.add(name, SshTarget(name), prepare) for name in names)
    outcomes = dict(zip(names, await asyncio.gather(*adding, return_exceptions=True), strict=True))
    fleet.close()
    assert {name for name, outcome in outcomes.items() if isinstance(outcome, HarnessError)} == {"t3"}
    assert sorted(tried) == sorted(names) and most <= PREPARED_AT_ONCE
