"""Two halves of the tests, side by side: neither's failure is lost, and an interrupt ends both."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.support.halves import LOWEST, NONE_CHOSEN, exit_code, step_back, wait_for

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    ("codes", "whole"),
    [
        ((0, 0), 0),
        ((0, NONE_CHOSEN), 0),
        ((NONE_CHOSEN, 0), 0),
        ((NONE_CHOSEN, NONE_CHOSEN), NONE_CHOSEN),
        ((1, 0), 1),
        ((0, 1), 1),
        ((NONE_CHOSEN, 1), 1),
        ((-9, 0), 1),
        ((0, 2), 1),
    ],
)
def test_a_failure_of_either_half_is_one_of_the_whole(codes: tuple[int, int], whole: int) -> None:
    assert exit_code(codes) == whole


def test_what_was_asked_for_goes_to_both() -> None:
    command = [
        sys.executable,
        "-m",
        "tests.support.halves",
        "-n",
        "0",
        "--collect-only",
        "-q",
        "-k",
        "either_half",
        __file__,
    ]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    others, in_containers = ran.stdout.split("In containers:")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "[codes0-0]" in others and "[codes0-0]" not in in_containers
    assert "deselected" in in_containers


def test_an_interrupt_ends_both() -> None:
    halves = [subprocess.Popen(["sleep", "600"], start_new_session=True) for _ in range(2)]
    us = threading.main_thread().ident
    assert us is not None
    threading.Timer(0.2, signal.pthread_kill, (us, signal.SIGINT)).start()
    assert wait_for(halves) == [-signal.SIGINT] * 2


def test_what_is_not_in_containers_steps_back() -> None:
    asked = "import os, sys; print(os.nice(0), open(sys.argv[1]).read() if os.path.exists(sys.argv[1]) else '')"
    command = [sys.executable, "-c", asked, "/proc/self/autogroup"]
    ran = subprocess.run(
        command, capture_output=True, text=True, check=True, start_new_session=True, preexec_fn=step_back
    )
    nice, _, group = ran.stdout.partition(" ")
    assert int(nice) == LOWEST and (not group.strip() or group.split()[-1] == str(LOWEST))
