"""`make test`: the tests in containers, which mostly wait, and beside them all the others.

Clusters in containers would measure how busy the machine is. So the other tests have the lowest priority there is, in a
session of their own: where Linux groups processes by session, a priority counts only among groups.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

CONTAINERS = "tests/docker"
LOWEST = 19
NONE_CHOSEN = 5
"""How pytest ends if none of the tests that were asked for is one that it was to run."""
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run(arguments: Sequence[str]) -> int:
    """Both halves side by side, with these arguments for pytest; the exit code of the whole."""
    others = ["-n", "2", "--dist", "loadgroup", "-m", "not campaign and not docker", *arguments]
    in_containers = ["-m", "docker and not campaign", *arguments, *where_containers_are(arguments)]
    for ending in ENDING:
        signal.signal(ending, signal.default_int_handler)
    with tempfile.TemporaryFile() as output:
        print("The tests in containers run beside the others; what they say follows at the end.", flush=True)
        codes = wait_for([begin(others, step_back), begin(in_containers, hear_interrupts, output)])
        output.seek(0)
        print("\nIn containers:", flush=True)
        sys.stdout.buffer.write(output.read())
        sys.stdout.flush()
    return exit_code(codes)


def where_containers_are(arguments: Sequence[str]) -> list[str]:
    """The folder of tests in containers, unless it is said where to look: to load all the others takes long."""
    said = any(Path(argument.partition("::")[0]).exists() for argument in arguments)
    return [] if said else [CONTAINERS]


def begin(
    arguments: Sequence[str], prepare: Callable[[], None], output: IO[bytes] | None = None
) -> subprocess.Popen[bytes]:
    """Start pytest in a session of its own, which `prepare` sets up; it says where what it has to say."""
    command = [sys.executable, "-m", "pytest", *arguments]
    return subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True, preexec_fn=prepare)


def hear_interrupts() -> None:
    """Have ctrl-C end this process, though a shell that began us in the background had it ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def step_back() -> None:
    """Give this process, and all in its session, the lowest priority."""
    hear_interrupts()
    os.nice(LOWEST)
    group = Path("/proc/self/autogroup")
    if group.exists():
        group.write_text(str(LOWEST))


def wait_for(halves: Sequence[subprocess.Popen[bytes]]) -> list[int]:
    """How each ended; every interrupt is theirs, as if they were in the session of the terminal."""
    while True:
        try:
            return [half.wait() for half in halves]
        except KeyboardInterrupt:
            for half in halves:
                if half.poll() is None:
                    os.killpg(half.pid, signal.SIGINT)


def exit_code(codes: Sequence[int]) -> int:
    """Of the whole: that none of the tests asked for is one of a half's is a failure only if it is so of both."""
    if any(code not in (0, NONE_CHOSEN) for code in codes):
        return 1
    return 0 if 0 in codes else NONE_CHOSEN


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
