"""Two halves of the tests, side by side: neither's failure is lost, and an interrupt ends both."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.conftest import refused
from tests.support.halves import (
    CONTAINERS,
    LOWEST,
    NONE_CHOSEN,
    exit_code,
    hear_interrupts,
    step_back,
    wait_for,
    where_containers_are,
)

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


def test_tests_in_containers_are_where_their_half_looks() -> None:
    mark = re.compile(r"mark\.docker\b")
    marked = {path for path in ROOT.glob("tests/**/*.py") if mark.search(path.read_text())}
    assert len(marked) > 10 and all(path.is_relative_to(ROOT / CONTAINERS) for path in marked)
    assert where_containers_are(["-q", "-k", "kill"]) == [CONTAINERS]
    assert where_containers_are(["-q", f"{__file__}::test"]) == []


def test_an_interrupt_ends_both() -> None:
    """It ends them even where a shell began the tests in the background, and had them ignore it."""
    begun = [subprocess.Popen(["sleep", "600"], start_new_session=True, preexec_fn=hear_interrupts) for _ in range(2)]
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        ended_by_an_interrupt(begun)
    finally:
        signal.signal(signal.SIGINT, before)


def ended_by_an_interrupt(halves: list[subprocess.Popen[bytes]]) -> None:
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


@pytest.mark.parametrize(
    ("expression", "unasked"),
    [
        ("not campaign and not runs", {"campaign", "runs"}),
        ("hypothesis and not docker", {"docker"}),
        ("runs or not docker", set()),
        ("not (docker and runs)", set()),
        ("runs", set()),
        ("", set()),
    ],
)
def test_no_file_is_passed_over_of_which_a_test_may_be_asked_for(expression: str, unasked: set[str]) -> None:
    assert refused(expression) == unasked
