"""How many cores there are to use, and work on them: results in order, bounds, and how it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.history.cores import in_order, usable_cores
from tests.support.patience import until

MINE = len(os.sched_getaffinity(0))


def cores_in(root: Path, groups: str, files: dict[str, str]) -> int:
    """How many cores there are where these are the process's control groups, and their files."""
    for name, text in {"proc/self/cgroup": groups, **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return usable_cores(root)


@pytest.mark.parametrize(
    ("groups", "files", "cores"),
    [
        ("", {}, 64),
        ("0::/\n", {"sys/fs/cgroup/cpu.max": "max 100000\n"}, 64),
        ("0::/\n", {"sys/fs/cgroup/cpu.max": "300000 100000\n"}, 3),
        ("0::/a/b\n", {"sys/fs/cgroup/a/cpu.max": "150000 100000\n", "sys/fs/cgroup/a/b/cpu.max": "max 100000\n"}, 2),
        ("0::/elsewhere/outside\n", {"sys/fs/cgroup/cpu.max": "50000 100000\n"}, 1),
        (
            "4:memory:/x\n1:cpu,cpuacct:/x\n0::/\n",
            {"sys/fs/cgroup/cpu/x/cpu.cfs_quota_us": "500000", "sys/fs/cgroup/cpu/x/cpu.cfs_period_us": "100000"},
            5,
        ),
        ("1:cpu:/\n", {"sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "9"}, 64),
    ],
)
def test_quotas_of_control_groups_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, groups: str, files: dict[str, str], cores: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(64)))
    assert cores_in(tmp_path, groups, files) == cores


def test_affinity_counts() -> None:
    program = (
        "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); from harness.history.cores import *; "
    )
    program += "print(usable_cores())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "1\n" and 1 <= usable_cores() <= MINE


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("ahead", [None, 1, 3])
def test_results_come_in_order_whoever_is_first(threads: int, ahead: int | None) -> None:
    def slow_first(part: int) -> int:
        time.sleep(0.002 * (5 - part % 5))
        return part * part

    found = list(in_order(slow_first, range(40), threads, ahead, alone=lambda part: part % 7 == 3))
    assert found == [part * part for part in range(40)]


def test_one_part_or_one_thread_begins_no_thread() -> None:
    def who(part: int) -> threading.Thread:
        return threading.current_thread()

    mine = threading.current_thread()
    assert list(in_order(who, [], 5)) == []
    assert list(in_order(who, [1], 5)) == [mine]
    assert set(in_order(who, range(9), 1)) == {mine}
    several = set(in_order(who, range(9), 5))
    assert mine not in several and len(several) <= 5 and not any(thread.is_alive() for thread in several)


def test_no_more_is_held_than_was_asked_for() -> None:
    begun, most = 0, 0

    def parts() -> Iterator[int]:
        nonlocal begun
        for part in range(30):
            begun += 1
            yield part

    for taken, _ in enumerate(in_order(lambda part: part, parts(), 2, ahead=3)):
        most = max(most, begun - taken)
    assert most <= 4  # three, and the one that is about to be begun


def test_what_is_to_be_alone_is() -> None:
    lock, at_once, seen = threading.Lock(), 0, list[tuple[int, int]]()

    def count(part: int) -> None:
        nonlocal at_once
        with lock:
            at_once += 1
        time.sleep(0.003)
        with lock:
            seen.append((part, at_once))
            at_once -= 1

    list(in_order(count, range(30), 4, alone=lambda part: part in (9, 20)))
    assert {part: many for part, many in seen if part in (9, 20)} == {9: 1, 20: 1}
    assert max(many for _, many in seen) > 1


def test_the_first_failure_in_order_is_raised_and_nothing_is_begun_after_it() -> None:
    begun: list[int] = []

    def fails(part: int) -> int:
        begun.append(part)
        if part in (5, 6):
            time.sleep(0.05 if part == 5 else 0)
            raise ValueError(part)
        time.sleep(0.001)
        return part

    found: list[int] = []
    with pytest.raises(ValueError, match="5"):
        found.extend(in_order(fails, range(10_000), 3))
    assert len(begun) < 1000
    assert not any(thread.name == "assay-core" for thread in threading.enumerate())


def test_whoever_leaves_early_leaves_no_thread_at_work() -> None:
    for part in in_order(lambda part: part, range(1000), 3, ahead=4):
        if part == 10:
            break
    until(lambda: not any(thread.name == "assay-core" for thread in threading.enumerate()))


def test_an_interrupt_waits_for_no_thread() -> None:
    program = """
import os, sys, time
from harness.history.cores import in_order
def work(part):
    os.write(1, b"at it\\n")  # in one piece: another thread writes too
    time.sleep(600)
try:
    list(in_order(work, range(9), 2))
except KeyboardInterrupt:
    sys.exit(7)
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == "at it\n"
            process.send_signal(signal.SIGINT)
            assert process.wait() == 7
        finally:
            process.kill()
